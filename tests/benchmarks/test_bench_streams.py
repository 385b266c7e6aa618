"""What a long stream and a large download cost while they are recorded, beside httpx alone."""

from collections.abc import Iterator
from functools import partial

import httpx
import pytest
from client_service import ClientService
from polled import served

from directmail_lab.exchange.values import Request
from directmail_lab.sessions.session import Session

BODIES = {"1,000 events": "/v1/thousand", "200 MB": "/v1/sized-200000000"}


class _Handler(ClientService.handler):
    def reply(self, request: Request) -> None:
        if request.uri == BODIES["1,000 events"]:
            self._stream(range(1000), self.server.owner.goes_on)
        else:
            super().reply(request)


class Streams(ClientService):
    """Sends as many events as it can."""

    handler = _Handler


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with served(Streams) as (base_url, _):
        yield base_url


@pytest.mark.parametrize("parts", ["all", "the first part"])
@pytest.mark.parametrize("body", BODIES)
def test_of(in_turns, tmp_path, base_url, body, parts):
    """The first part comes as soon as live, and the memory has a limit."""

    def read(client: httpx.Client) -> None:
        with client.stream("GET", BODIES[body]) as response:
            for _ in response.iter_raw():
                if parts != "all":
                    return

    with (
        httpx.Client(base_url=base_url) as plain,
        Session(base_url, "key", pace="off") as recording,
        Session(base_url) as replaying,
    ):
        recording.record(tmp_path / "tour.yaml")
        clients = {"httpx": plain, "recorded": recording.client}
        if "MB" not in body:  # a replay says that the body is not recorded
            with Session(base_url, "key") as other:
                other.record(tmp_path / "whole.yaml")
                other.client.get(BODIES[body])
            replaying.replay(tmp_path / "whole.yaml")
            clients["replayed"] = replaying.client
        calls = {name: partial(read, client) for name, client in clients.items()}
        in_turns(calls, {}, rounds=6, memory=True)
