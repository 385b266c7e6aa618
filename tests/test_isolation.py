"""Sessions side by side, and one session used by many: nothing crosses, nothing foreign is kept."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from directmail_lab.cassettes import read_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.sessions import Session
from directmail_lab.standin import Fault, StandIn, stand_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

THREADS = TASKS = 8
WORKERS = range(THREADS + TASKS)
ROUNDS = range(8)


def side_by_side(
    in_thread: Callable[[int], object], in_task: Callable[[int], Awaitable[object]]
) -> None:
    """Run 8 threads and 8 tasks at once, each with its number; they start together."""
    start = threading.Barrier(THREADS + 1, timeout=30)

    def thread(worker: int) -> None:
        start.wait()
        in_thread(worker)

    async def tasks() -> None:
        start.wait()
        await asyncio.gather(*(in_task(worker) for worker in WORKERS[THREADS:]))

    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(thread, worker) for worker in WORKERS[:THREADS]]
        asyncio.run(tasks())
        for each in running:
            each.result(timeout=30)


class Foreigner:
    """A client of httpx that is not ours, at work in a thread while the sessions are."""

    def __init__(self, service: StandIn) -> None:
        self._service = service
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.answers: list[int] = []

    def _work(self) -> None:
        with httpx.Client(auth=(self._service.api_key, "")) as client:
            while not self._over.is_set():
                response = client.get(f"{self._service.base_url}/v1/users/me")
                self.answers.append(response.json()["id"])

    def __enter__(self) -> Foreigner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=30)


def connected(service: StandIn) -> Session:
    """Return a session whose tasks leave no connection behind when their event loop ends."""
    session = Session(service.base_url, ApiKey(service.api_key), pace="off")
    session.async_client.headers["Connection"] = "close"
    return session


@pytest.fixture
def services() -> Iterator[list[StandIn]]:
    """A service for each worker and one for the foreigner, each with its own key and record."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                stand_in(api_key=f"stand-in-key-{n:010}", record={"id": n}, limit=100_000)
            )
            for n in (*WORKERS, len(WORKERS))
        ]


def test_sessions_in_threads_and_tasks_never_meet(services: list[StandIn]) -> None:
    """Each records and replays its own service's answers; the foreigner's are in no cassette."""
    plain = httpx.HTTPTransport.handle_request, httpx.AsyncHTTPTransport.handle_async_request
    sessions = [connected(service) for service in services[:-1]]
    got: dict[tuple[str, int], list[int]] = {}

    def note(worker: int, response: httpx.Response) -> None:
        assert plain == (
            httpx.HTTPTransport.handle_request,
            httpx.AsyncHTTPTransport.handle_async_request,
        )
        got.setdefault((sessions[worker].mode, worker), []).append(response.json()["id"])

    def in_thread(worker: int) -> None:
        for n in ROUNDS:
            note(worker, sessions[worker].client.get("/v1/users/me", params={"n": n}))

    async def in_task(worker: int) -> None:
        for n in ROUNDS:
            note(worker, await sessions[worker].async_client.get("/v1/users/me", params={"n": n}))

    with Foreigner(services[-1]) as foreigner:
        for mode in ("record", "replay"):
            for worker, session in enumerate(sessions):
                getattr(session, mode)(f"of-{worker}")
            side_by_side(in_thread, in_task)
    for session in sessions:
        session.close()

    assert got == {
        (mode, worker): [worker] * len(ROUNDS)
        for mode in ("record", "replay")
        for worker in WORKERS
    }
    for worker, service in enumerate(services[:-1]):
        kept = read_cassette(Path(f"cassettes/of-{worker}.yaml")).interactions
        assert [each.request.uri for each in kept] == [
            f"{service.base_url}/v1/users/me?n={n}" for n in ROUNDS
        ]
        assert {json.loads(each.response.body)["id"] for each in kept} == {worker}
        assert [r.cassette for r in sessions[worker].readings.since(0)] == [f"of-{worker}"] * (
            2 * len(ROUNDS)
        )
    assert set(foreigner.answers) == {len(WORKERS)}
    assert services[-1].requests.total() == len(foreigner.answers) > 0
    assert len(list(Path("cassettes").glob("*.yaml"))) == len(WORKERS)


@pytest.fixture
def items() -> Iterator[StandIn]:
    """A service that answers each worker's every round differently."""
    answers = [
        Fault(path=f"/v1/items/{worker:02}-{n:02}", body=f"[{worker}, {n}]")
        for worker, n in itertools.product(WORKERS, ROUNDS)
    ]
    with stand_in(limit=100_000, faults=answers) as service:
        yield service


@pytest.mark.parametrize("record_mode", ["new_episodes", "all"])
def test_one_session_used_by_many_gives_each_its_own_answer(
    items: StandIn, record_mode: str
) -> None:
    """Recording and replaying; every exchange is in the cassette once, and so is its reading."""
    wrong: list[str] = []

    def note(worker: int, n: int, response: httpx.Response) -> None:
        if response.json() != [worker, n]:
            wrong.append(f"{worker} {n}: {response.text}")

    def in_thread(worker: int) -> None:
        for n in ROUNDS:
            note(worker, n, session.client.get(f"/v1/items/{worker:02}-{n:02}"))

    async def in_task(worker: int) -> None:
        for n in ROUNDS:
            note(worker, n, await session.async_client.get(f"/v1/items/{worker:02}-{n:02}"))

    with connected(items) as session:
        with session.record("shared", record_mode=record_mode):
            side_by_side(in_thread, in_task)
        with session.replay("shared", repeat="strict"):
            side_by_side(in_thread, in_task)
        sources = [reading.source for reading in session.readings.since(0)]
    kept = read_cassette(Path("cassettes/shared.yaml"))

    assert wrong == []
    assert sorted(json.loads(each.response.body) for each in kept.interactions) == [
        [worker, n] for worker, n in itertools.product(WORKERS, ROUNDS)
    ]
    assert kept.problem is None
    count = len(WORKERS) * len(ROUNDS)
    assert sources == ["recorded"] * count + ["replayed"] * count


def test_answers_to_one_request_are_shared_out_once_each(items: StandIn) -> None:
    """All workers poll: a strict replay gives every recorded answer to exactly one of them."""
    remaining: dict[str, list[int]] = {"record": [], "replay": []}

    def in_thread(_: int) -> None:
        for _ in ROUNDS:
            session.me()

    async def in_task(_: int) -> None:
        for _ in ROUNDS:
            await session.me_async()

    with connected(items) as session:
        session.on_reading(lambda reading: remaining[session.mode].append(reading.remaining or 0))
        with session.record("polled"):
            side_by_side(in_thread, in_task)
        with session.replay("polled", repeat="strict"):
            side_by_side(in_thread, in_task)

    count = len(WORKERS) * len(ROUNDS)
    assert sorted(remaining["record"]) == list(range(100_000 - count, 100_000))
    assert sorted(remaining["replay"]) == sorted(remaining["record"])
