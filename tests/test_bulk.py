"""Many requests in one call, and the rows of a frame as requests."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any, ClassVar

import httpx
import pytest
from faulty_service import Fault, FaultyService

import directmail_lab as dm
from directmail_lab.server.standin import stand_in
from directmail_lab.sessions.session import Session, on_reading


@pytest.fixture
def items() -> Iterator[FaultyService]:
    """A service with a different response for each of thirty paths; one drops the connection."""
    faults = [Fault(path=f"/v1/items/{n:02}", status=200, body=f'{{"n": {n}}}') for n in range(30)]
    faults[7] = Fault(path="/v1/items/07", drop="reset")
    with FaultyService(limit=1000, faults=faults) as service:
        yield service


def session_of(service: FaultyService, **options: Any) -> Session:
    return dm.connect(service.base_url, service.api_key, **options)


def numbers(results: list[Any]) -> list[Any]:
    return [r.json()["n"] if isinstance(r, httpx.Response) else type(r) for r in results]


PATHS = [f"/v1/items/{n:02}" for n in range(30)]
EXPECTED = [*range(7), httpx.ReadError, *range(8, 30)]


@pytest.mark.parametrize("concurrency", [1, 8, 100])
def test_results_have_the_order_of_the_paths_and_include_failures(items, concurrency):
    with session_of(items, pace="off"):
        with pytest.warns(
            UserWarning, match=r"^1 of 30 requests failed; the first, \[7\]: .*broke"
        ):
            got = dm.get_many(iter(PATHS), concurrency=concurrency)

        assert dm.get_many([]) == []
    assert numbers(got) == EXPECTED


class AtOnce(BaseHTTPRequestHandler):
    """Responds to three requests at once, and refuses the others without a header of limits."""

    protocol_version = "HTTP/1.1"
    places = threading.Semaphore(3)
    headers_of_limits: ClassVar[dict[str, str]] = {}
    statuses: ClassVar[list[int]] = []

    def log_message(self, *_): ...

    def do_GET(self):
        is_free = self.places.acquire(blocking=False)
        self.statuses.append(200 if is_free else 429)
        if is_free:
            time.sleep(0.02)  # the work of this service
            self.places.release()
        self.send_response(200 if is_free else 429)
        for name, value in {**self.headers_of_limits, "Content-Length": "2"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"{}")


LEFT = {"X-RateLimit-Limit": "300", "X-RateLimit-Remaining": "100", "X-RateLimit-Reset": "60"}


@pytest.mark.parametrize("headers", [{}, LEFT])
def test_a_limit_on_simultaneous_requests_loses_none(headers, monkeypatch):
    """Fewer are sent at once, those refused are sent again, and a line says how many worked."""
    monkeypatch.setattr(AtOnce, "headers_of_limits", headers)
    monkeypatch.setattr(AtOnce, "statuses", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), AtOnce) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        dm.connect(f"http://127.0.0.1:{server.server_port}", "a-key")
        with pytest.warns(UserWarning, match=r"dm\.get_many\(…, concurrency=[12]\)"):
            got = dm.get_many([f"/v1/items/{n}" for n in range(30)])
        server.shutdown()

    assert [each.status_code for each in got] == [200] * 30
    assert AtOnce.statuses.count(429) < 20


def test_the_first_of_several_failures_is_named_in_full(items):
    said = r'^2 of 3 requests failed; the first, \[1\]: GET /v1/nowhere responded with 404 .*: "'
    with session_of(items), pytest.warns(UserWarning, match=said) as caught:
        got = dm.get_many(["/v1/users/me", "/v1/nowhere", "https://me:you@x.test/"])

    assert [getattr(each, "status_code", 0) for each in got] == [200, 404, 0]
    assert [each.filename for each in caught] == [__file__]


def test_concurrent_requests_replay_their_own_responses(items):
    """Equal paths are requested one after the other: else the second here would be the first."""
    paths = ["/v1/users/me", *PATHS[:7], "/v1/users/me", *PATHS[8:], "/v1/users/me"]
    session_of(items, pace="off")
    items.fault(path="/v1/users/me", times=1, latency_s=0.2)
    with dm.record("many"):
        recorded = dm.get_many(paths)
    own = dm.rate_limits().query("path == '/v1/users/me'").sort_values("at")
    with dm.replay("many", repeat="strict"):
        played = dm.get_many(paths)

    assert [each.content for each in played] == [each.content for each in recorded]
    assert own["remaining"].is_monotonic_decreasing


@contextlib.contextmanager
def interrupted_after(count: int, session: Session) -> Iterator[None]:
    pressed = threading.Event()

    def press() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def interrupt(_: object) -> None:
        # Compare with >=, because another thread may have added a response meanwhile.
        if len(session.recording) >= count and not pressed.is_set():
            pressed.set()
            press()

    def ctrl_c(number: int, frame: FrameType | None) -> None:
        if frame is not None and "weakref" in frame.f_code.co_filename:
            # Python ignores what is raised there, so a person would press again.
            threading.Timer(0.01, press).start()
        else:
            signal.default_int_handler(number, frame)

    # Background jobs of a shell ignore SIGINT, and so would a test that runs in one.
    before = signal.signal(signal.SIGINT, ctrl_c)
    stop = on_reading(session, interrupt)
    yield
    stop()
    signal.signal(signal.SIGINT, before)


needs_ctrl_c = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="a real Ctrl-C")


@needs_ctrl_c
def test_an_interrupt_keeps_the_responses_received_so_far(items):
    session = session_of(items)
    with (
        items.fault(path="/v1/items/13", latency_s=60.0),
        interrupted_after(5, session),
        pytest.warns(UserWarning, match="of 22 requests failed; .*interrupted"),
    ):
        got = dm.get_many(PATHS[8:], concurrency=1)

    # Whether the fifth was received in time is chance.
    assert numbers(got)[:4] == [8, 9, 10, 11]
    assert numbers(got)[5:] == [dm.DirectMailLabError] * len(PATHS[8 + 5 :])
    assert "interrupted" in str(got[-1])
    assert len(dm.me()) == 1


@needs_ctrl_c
@pytest.mark.parametrize(("pace", "most"), [("burst", 2), ("off", 450)])
def test_after_an_interrupt_nothing_more_is_sent(pace, most):
    """Requests that wait for the allowance stop waiting, and no new one starts."""
    before = set(threading.enumerate())  # Dask's pool, too, which never ends
    with stand_in(limit=2, window_s=1.0, limits={}) as service:
        with (
            interrupted_after(2, session_of(service, pace=pace, retry=False)),
            pytest.warns(UserWarning, match="of 500 requests failed"),
        ):
            got = dm.get_many(["/v1/users/me"] * 500, concurrency=3)
        started = [each for each in threading.enumerate() if each not in before]
        while any(each.is_alive() for each in started if each.name.startswith("ThreadPool")):
            time.sleep(0.01)  # a thread that was interrupted while starting cannot be joined

        assert service.requests.total() <= most
        assert [type(each) for each in got].count(dm.DirectMailLabError) >= 50


def test_after_an_interrupt_while_they_are_started_no_other_one_is_sent(account, monkeypatch):
    class Interrupted(ThreadPoolExecutor):
        def submit(self, run, send, positions):
            if positions == [10]:
                raise KeyboardInterrupt
            return super().submit(run, send, positions)

    monkeypatch.setattr("directmail_lab.sessions.pages.ThreadPoolExecutor", Interrupted)
    session_of(account, pace="off")
    with pytest.warns(UserWarning, match="requests failed"):
        got = dm.get_many(["/v1/users/me"] * 500, concurrency=1)

    assert len(got) == 500
    assert account.requests.total() <= 10
