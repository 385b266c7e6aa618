"""What a replayed request costs: as much as one that a function answers, at every size."""

import asyncio
import tracemalloc

import httpx
import pytest
from cassette_samples import recorded
from polled import BASE_URL, different, mocked

from directmail_lab import Session
from directmail_lab.cassettes import Cassette, read_cassette

REQUESTS = 100
TASKS = 50
ADDRESS = BASE_URL + "/v1/lists/{0}?page={0}"
SIZES = pytest.mark.parametrize("size", [100, 10_000, 100_000])
GOALS = {"ours": "0.80"}


class Asking:
    """Asks for a part of a cassette, of which no two have the same address."""

    def __init__(self, size: int) -> None:
        self.size, self._first = size, 0
        self.turn()

    def turn(self) -> None:
        numbers = range(self._first, self._first + REQUESTS)
        self._addresses = [ADDRESS.format(number % self.size) for number in numbers]
        self._first += REQUESTS

    def by(self, client: httpx.Client) -> None:
        for address in self._addresses:
            assert client.get(address).status_code == 200

    async def by_tasks(self, client: httpx.AsyncClient) -> None:
        left = iter(self._addresses)

        async def task() -> None:
            for address in left:
                assert (await client.get(address)).status_code == 200

        await asyncio.gather(*[task() for _ in range(TASKS)])


@SIZES
def test_replay(in_turns, tmp_path, size):
    """A session's own client, first and again, beside what httpx has for tests."""
    path = recorded(tmp_path / "ours.yaml", *different(size))
    asking = Asking(size)
    with (
        httpx.Client(transport=mocked()) as mock,
        Session(BASE_URL) as first,
        Session(BASE_URL) as again,
    ):
        first.replay(path)
        again.replay(path)
        asking.by(again.client)

        def before() -> None:
            if size == REQUESTS:  # else each round has a part of its own
                first.replay(path)
                again.replay(path)
            asking.turn()
            asking.by(again.client)

        calls = {
            "MockTransport": lambda: asking.by(mock),
            "ours": lambda: asking.by(first.client),
            "ours, again": lambda: asking.by(again.client),
        }
        in_turns(calls, GOALS, rounds=100, requests=REQUESTS, before=before)


@SIZES
def test_replay_by_50_tasks(in_turns, tmp_path, size):
    """The same by the asynchronous clients."""
    path = recorded(tmp_path / "ours.yaml", *different(size))
    asking = Asking(size)
    with asyncio.Runner() as runner, Session(BASE_URL) as session:
        session.replay(path)
        mock = httpx.AsyncClient(transport=mocked())
        calls = {
            "MockTransport": lambda: runner.run(asking.by_tasks(mock)),
            "ours": lambda: runner.run(asking.by_tasks(session.async_client)),
        }
        in_turns(calls, GOALS, rounds=100, requests=REQUESTS, before=asking.turn)


def test_memory_of_a_hundred_thousand(tmp_path):
    """Interactions and index take four times the bytes of the file at most."""
    large = recorded(tmp_path / "large.yaml", *different(100_000))
    tracemalloc.start()
    held = Cassette(read_cassette(large), base_url=BASE_URL)
    grown_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert len(held) == 100_000
    assert grown_bytes <= 4 * large.stat().st_size
