"""What requests of the code's own clients cost under ``patch=True``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import requests
from client_service import ClientService

from directmail_lab.pytest_plugin.patched import patched
from directmail_lab.sessions import Session
from directmail_lab.settings import NO_ADDRESS

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Turns

REQUESTS: Final = 50


def test_requests_of_a_patched_client(in_turns: Turns, tmp_path: Path) -> None:
    """Recorded and replayed, beside the same requests without a session."""
    path = tmp_path / "patched.yaml"
    with ClientService() as service:
        addresses = [f"{service.base_url}/v1/rows?n={number}" for number in range(REQUESTS)]

        def send() -> None:
            with requests.Session() as client:
                for address in addresses:
                    assert client.get(address, timeout=5).status_code == 201

        def record() -> None:
            path.unlink(missing_ok=True)
            with Session(NO_ADDRESS) as session, patched(session._take_senders()):
                session.record(path)
                send()

        def replay() -> None:
            with Session(NO_ADDRESS) as session, patched(session._take_senders()):
                session.replay(path, repeat="strict")
                send()

        calls = {"requests": send, "recorded": record, "replayed": replay}
        in_turns(calls, {}, rounds=10, requests=REQUESTS)


def test_entering_and_leaving(in_turns: Turns) -> None:
    """For each test with ``patch=True``."""

    def enter() -> None:
        with patched(session._clients_transport):
            pass

    with Session(NO_ADDRESS) as session:
        in_turns({"patched": enter}, {"patched": "300 us"}, rounds=50)
