"""What a session costs on top of plain httpx, with a service in another process.

The durable append and the search for the key are included; and the hundred-thousandth recorded
request costs no more than the first.
"""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from cassette_samples import count_calls, opened, recorded
from polled import different, served

import directmail_lab as dm
from directmail_lab import Session
from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.notebook.browser_data import rows
from directmail_lab.server.standin import stand_in
from directmail_lab.sessions.current import make_current

REQUESTS = 20  # few: on a busy machine, a short turn may have the processor for itself
TASKS = 50
# By what is done: a session's options, whether it records, and the goal.
ROWS: dict[str, tuple[dict[str, Any], bool, str]] = {
    "live, unpaced": ({"pace": "off"}, False, "+10 us"),
    "live, default options": ({}, False, "+20 us"),
    "recorded, unpaced": ({"pace": "off"}, True, "+80 us"),
    "recorded, default options": ({}, True, "+120 us"),
}
GOALS = {name: goal for name, (_, _, goal) in ROWS.items()}


@pytest.fixture(scope="module")
def account() -> Iterator[tuple[str, str]]:
    """The address of a service in another process, and its key."""
    with served(partial(stand_in, limit=10**9, limits={})) as account:
        yield account


@pytest.fixture
def sessions(account: tuple[str, str], tmp_path: Path) -> Iterator[dict[str, Session]]:
    """A session for each row: each interaction is in the file when the caller has the response."""
    with ExitStack() as opened:
        made = {}
        for name, (options, records, _) in ROWS.items():
            made[name] = opened.enter_context(Session(*account, **options))
            if records:
                made[name].record(tmp_path / f"{name}.yaml")
        yield made


def addresses() -> Iterator[str]:
    """Yield addresses of which no two are the same."""
    return (f"/v1/users/me?n={number}" for number in itertools.count())


def test_a_request(in_turns, account, sessions):
    """Each kind of session beside httpx alone, which paces, keeps and records nothing."""
    address = addresses()

    def send(client: httpx.Client) -> None:
        for _ in range(REQUESTS):
            client.get(next(address))

    with httpx.Client(base_url=account[0], auth=(account[1], "")) as plain:
        clients = {"httpx": plain, **{name: each.client for name, each in sessions.items()}}
        calls = {name: partial(send, client) for name, client in clients.items()}
        in_turns(calls, GOALS, rounds=100, requests=REQUESTS)


def test_a_request_by_50_tasks(in_turns, account, sessions):
    """The same by the asynchronous clients."""
    address = addresses()

    async def task(client: httpx.AsyncClient) -> None:
        await client.get(next(address))

    async def send(client: httpx.AsyncClient) -> None:
        await asyncio.gather(*[task(client) for _ in range(TASKS)])

    with asyncio.Runner() as runner:
        plain = httpx.AsyncClient(base_url=account[0], auth=(account[1], ""))
        clients = {"httpx": plain, **{name: each.async_client for name, each in sessions.items()}}

        def call(client: httpx.AsyncClient) -> None:
            runner.run(send(client))

        calls = {name: partial(call, client) for name, client in clients.items()}
        in_turns(calls, {}, rounds=20, requests=TASKS)
        for client in clients.values():
            runner.run(client.aclose())


def test_a_monitored_session_does_not_slow_down(account, tmp_path):
    """Ten requests, and what the monitor and the list then show: as many steps after 10,000."""
    with Session(*account, pace="off") as session:
        make_current(session)
        session.record(tmp_path / "tour.yaml")
        monitor, address = dm.monitor(), addresses()

        def ten_more() -> None:
            for _ in range(10):
                session.client.get(next(address))
            monitor.snapshot()
            rows(session.recording, len(session.recording) - 9, 10)

        steps = []
        for done in range(0, 10_000, 10):
            if done in (1000, 9990):
                steps.append(count_calls(ten_more))
            else:
                ten_more()
        monitor.close()

    assert steps[1] <= 1.05 * steps[0]


def test_replacing_ten_thousand(in_turns, tmp_path):
    """In update mode, beside as many new ones; and with the close, which writes the file anew."""
    size = 10_000
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    written = [replace(each, recorded_at=datetime.now(UTC)) for each in different(size)]
    cassettes: dict[Path, Cassette] = {}

    def record(path: Path) -> None:
        cassettes[path] = opened(path, "update")
        for each in written:
            cassettes[path].record(each)

    def replace_and_close() -> None:
        record(old)
        cassettes[old].close()

    def before() -> None:
        for cassette in cassettes.values():
            cassette.close()
        new.unlink(missing_ok=True)
        recorded(old, *different(size))

    calls = {
        "new": lambda: record(new),
        "replaced, and closed": replace_and_close,
        "replaced": lambda: record(old),
    }
    in_turns(calls, {}, rounds=5, requests=size, before=before)
    before()

    assert len(read_cassette(old)) == size
