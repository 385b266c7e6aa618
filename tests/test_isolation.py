"""Several sessions at once, and one session in many threads: responses are never mixed up."""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from faulty_service import Fault, FaultyService

from directmail_lab.cassettes import read_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.server.standin import StandIn, stand_in
from directmail_lab.sessions.session import Session

THREADS = TASKS = 8
WORKERS = range(THREADS + TASKS)
ROUNDS = range(8)


def get_side_by_side(
    session_of: Callable[[int], Session], path_of: Callable[[int, int], str]
) -> dict[int, list[httpx.Response]]:
    """Send each worker's requests from 8 threads and 8 tasks that start together."""
    start = threading.Barrier(THREADS + 1, timeout=120)
    got: dict[int, list[httpx.Response]] = {worker: [] for worker in WORKERS}

    def thread(worker: int) -> None:
        start.wait()
        for n in ROUNDS:
            got[worker].append(session_of(worker).client.get(path_of(worker, n)))

    async def task(worker: int) -> None:
        for n in ROUNDS:
            got[worker].append(await session_of(worker).async_client.get(path_of(worker, n)))

    async def tasks() -> None:
        start.wait()
        await asyncio.gather(*map(task, WORKERS[THREADS:]))

    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(thread, worker) for worker in WORKERS[:THREADS]]
        asyncio.run(tasks())
        for each in running:
            each.result(timeout=120)
    return got


def connected(service: StandIn) -> Session:
    """Return a session whose tasks leave no connection open when their event loop ends."""
    session = Session(service.base_url, ApiKey(service.api_key), pace="off")
    session.async_client.headers["Connection"] = "close"
    return session


@pytest.fixture
def services() -> Iterator[list[StandIn]]:
    """A service for each worker, with its own key and record."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                stand_in(api_key=f"stand-in-key-{n:010}", user={"id": n}, limit=100_000)
            )
            for n in WORKERS
        ]


def test_sessions_in_threads_and_tasks_do_not_mix_their_responses(services):
    sessions = [connected(service) for service in services]
    for mode in ("record", "replay"):
        for worker, session in enumerate(sessions):
            getattr(session, mode)(f"of-{worker}")
        got = get_side_by_side(sessions.__getitem__, lambda _, n: f"/v1/users/me?n={n}")
        for worker, session in enumerate(sessions):
            cassettes = [reading.cassette for reading in session.recording.readings()]
            assert cassettes == [f"of-{worker}"] * len(ROUNDS)
            assert {response.json()["id"] for response in got[worker]} == {worker}
    # A plain client still works, because httpx is not patched.
    with httpx.Client(auth=(services[0].api_key, "")) as foreigner:
        assert foreigner.get(f"{services[0].base_url}/v1/users/me").json() == {"id": 0}
    for session in sessions:
        session.close()

    for worker, service in enumerate(services):
        recorded = list(read_cassette(Path(f"cassettes/of-{worker}.yaml")))
        assert [interaction.request.uri for interaction in recorded] == [
            f"{service.base_url}/v1/users/me?n={n}" for n in ROUNDS
        ]
        assert {json.loads(interaction.response.body)["id"] for interaction in recorded} == {worker}
    assert len(list(Path("cassettes").glob("*.yaml"))) == len(WORKERS)


@pytest.fixture
def items() -> Iterator[StandIn]:
    answers = [
        Fault(path=f"/v1/items/{worker:02}-{n:02}", body=f"[{worker}, {n}]")
        for worker, n in itertools.product(WORKERS, ROUNDS)
    ]
    with FaultyService(limit=100_000, faults=answers) as service:
        yield service


@pytest.mark.parametrize("record_mode", ["new_episodes", "all"])
def test_one_session_used_by_many_gives_each_its_own_response(items, record_mode):
    expected = {worker: [[worker, n] for n in ROUNDS] for worker in WORKERS}
    sources = {}
    with connected(items) as session:
        for mode, options in (
            ("record", {"record_mode": record_mode}),
            ("replay", {"repeat": "strict"}),
        ):
            with getattr(session, mode)("shared", **options):
                got = get_side_by_side(lambda _: session, "/v1/items/{:02}-{:02}".format)
                sources[mode] = [reading.source for reading in session.recording.readings()]
            assert {worker: [r.json() for r in got[worker]] for worker in WORKERS} == expected
    recorded = read_cassette(Path("cassettes/shared.yaml"))

    bodies = sorted(json.loads(each.response.body) for each in recorded)
    assert bodies == list(itertools.chain.from_iterable(expected.values()))
    assert recorded.problem is None
    assert sources["record"] == ["recorded"] * len(bodies)
    assert sources["replay"] == ["replayed"] * len(bodies)


def test_threads_that_read_while_record_is_run_again_lose_nothing_unsaid(items, caplog):
    """As when a cell is run again while a thread polls: what is not recorded is said."""
    paths = [f"/v1/items/{worker:02}-{n:02}" for worker, n in itertools.product(WORKERS, ROUNDS)]
    is_over = threading.Event()

    def record_again(session: Session) -> int:
        times = 0
        while not is_over.is_set():
            session.record("tour")
            times += 1
        return times

    with connected(items) as session, ThreadPoolExecutor(THREADS + 1) as pool:
        session.record("tour")
        changing = pool.submit(record_again, session)
        responses = list(pool.map(session.get, paths))
        is_over.set()
        times = changing.result(timeout=60)
        session.record("tour")
        session.get("/v1/items/last")
    recorded = read_cassette(Path("cassettes/tour.yaml"))
    said = caplog.text.count("ended before the response to a GET did")

    assert len(responses) == len(paths)
    assert len(paths) + 1 - len({each.request.uri for each in recorded}) <= said
    assert times > 1
