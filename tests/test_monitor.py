"""The live monitor without a page: what it shows, how often, how much, and what it leaves."""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import nbclient
import nbformat
import pytest
from hypothesis import given, strategies as st
from reading_samples import reading as sample

import directmail_lab as dm
from directmail_lab.errors import NotConnectedError
from directmail_lab.readings.reading import Reading
from directmail_lab.widgets.monitor import MAX_OPERATIONS, MAX_POINTS, History, MonitorWidget
from directmail_lab.widgets.widget import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from directmail_lab.sessions import Session
    from directmail_lab.standin import StandIn

WAIT_S = 10.0


def reading(remaining: int | None = 1, *, status: int = 200, path: str = "/v1/users/me") -> Reading:
    return sample(0.0, path, status=status, remaining=remaining, reset=30)


@pytest.fixture
def monitor(connected: Session) -> Iterator[MonitorWidget]:
    """A monitor of a live session with the stand-in."""
    del connected
    widget = dm.monitor()
    yield widget
    widget.close()


def test_without_a_session_it_says_how_to_get_one() -> None:
    """There is nothing to follow yet."""
    with pytest.raises(NotConnectedError, match=r"login\(\)"):
        dm.monitor()


@pytest.mark.parametrize(
    ("status", "remaining", "mark"),
    [
        *((200, 3, ""), (200, 0, ""), (429, 3, "exhausted"), (429, None, "exhausted")),
        *((403, 0, "exhausted"), (403, 3, "failed"), (500, None, "failed")),
    ],
)
def test_exhausted_and_failed_are_told_apart(status: int, remaining: int | None, mark: str) -> None:
    """The last response of an allowance succeeds with nothing remaining: that is no refusal."""
    history = History()
    history.add(reading(remaining, status=status))
    (operation,) = history.operations.values()

    assert list(operation.points) == [(remaining, mark)]


@given(st.lists(st.tuples(st.none() | st.integers(1, 300), st.sampled_from([200, 429, 500]))))
def test_every_response_counts_and_the_last_ones_are_drawn(
    responses: list[tuple[int | None, int]],
) -> None:
    """However many there are: in order, each with its mark."""
    marks = {200: "", 429: "exhausted", 500: "failed"}
    points = [(remaining, marks[status]) for remaining, status in responses * 70]
    history = History()
    for remaining, status in responses * 70:
        history.add(reading(remaining, status=status))

    assert history.responses == len(points)
    for operation in history.operations.values():
        assert list(operation.points) == points[-MAX_POINTS:]
        assert operation.counts["responses"] == len(points)
        assert operation.counts["exhausted"] == sum(mark == "exhausted" for _, mark in points)
        assert operation.counts["failed"] == sum(mark == "failed" for _, mark in points)


def test_a_hundred_thousand_readings_make_a_snapshot_of_the_same_size(
    monitor: MonitorWidget, live: Session
) -> None:
    """The page draws as much after an hour as after a minute."""
    sizes = []
    for count in (2_000, 98_000):
        for number in range(count):
            live.readings.append(reading(300 - number % 300, path=f"/v1/x/{number % 3}"))
        sizes.append(len(json.dumps(monitor.snapshot())))

    assert monitor.snapshot()["responses"] == 100_000
    assert sizes[1] < 1.1 * sizes[0]


def test_any_number_of_operations_take_bounded_room() -> None:
    """Paths without id-like segments could each be an operation."""
    history = History()
    for number in range(1_000):
        history.add(reading(path="/" + "a" * number))

    assert len(history.operations) == MAX_OPERATIONS
    assert list(history.operations)[-1] == "GET /" + "a" * 999


def test_the_snapshot_has_what_the_service_said(
    monitor: MonitorWidget, live: Session, service: StandIn
) -> None:
    """By operation: what remains, of what, and what went wrong."""
    live.me()
    live.request("GET", "/v1/lists")
    with service.fault(status=418):
        live.request("GET", "/v1/users/me")
    snapshot: Any = monitor.snapshot()
    lists, me = snapshot["operations"]

    assert (lists["name"], me["name"]) == ("GET /v1/lists", "GET /v1/users/me")
    assert (lists["remaining"], lists["limit"]) == (59, 60)
    assert (me["responses"], me["failed"], me["exhausted"]) == (2, 1, 0)
    assert snapshot["source"] == "Live"
    assert "GET /v1/lists: 59 of 60 left" in repr(monitor)


@pytest.mark.parametrize("unit", [None, "seconds_left"])
def test_the_countdown_is_there_where_the_unit_is_known(service: StandIn, unit: Any) -> None:
    """Where it is not certain, none is shown; nor in a replay, whose window renewed long ago."""
    session = dm.connect(service.base_url, service.api_key, reset_unit=unit)
    widget = dm.monitor()
    session.me()
    (live,) = widget.snapshot()["operations"]
    dm.replay("first-look")
    dm.me()
    replayed: Any = widget.snapshot()
    widget.close()

    assert live["renews_in_s"] is None if unit is None else 0 < live["renews_in_s"] <= 60
    assert replayed["source"] == "Replaying first-look"
    assert replayed["operations"][0]["limit"] == 300
    assert replayed["operations"][0]["renews_in_s"] is None


def test_no_response_of_any_thread_is_missed_or_counted_twice(
    monitor: MonitorWidget, live: Session
) -> None:
    """Readings come while the snapshot is made."""
    threads = [
        threading.Thread(target=lambda: [live.request("GET", "/v1/users/me") for _ in range(25)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        monitor.snapshot()
    snapshot: Any = monitor.snapshot()

    assert snapshot["responses"] == 100
    assert snapshot["operations"][0]["responses"] == 100


def test_the_picture_of_a_monitor_stays_that_of_its_session(
    monitor: MonitorWidget, service: StandIn
) -> None:
    """Although its page follows the next session, which has a monitor and a picture of its own."""
    dm.me()
    dm.connect(service.base_url, service.api_key)
    other = dm.monitor()
    dm.get("/v1/lists")
    first, second = [each.static_output()[0] for each in (monitor, other)]
    (followed,) = monitor.snapshot()["operations"]
    other.close()

    assert first["text/plain"].startswith("Rate-limit monitor. GET /v1/users/me: 299 of 300 left")
    assert second["text/plain"].startswith("Rate-limit monitor. GET /v1/lists: 59 of 60 left")
    assert first["image/png"] != second["image/png"]
    assert followed["name"] == "GET /v1/lists"


def test_a_request_that_waits_is_shown_at_once_without_a_response(
    connected: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds until it is sent, which the page counts down; and None when nothing waits."""
    sent: queue.Queue[dict[str, Any]] = queue.Queue()
    monkeypatch.setattr(type(connected), "waiting_until", None, raising=False)
    widget = dm.monitor()
    monkeypatch.setattr(widget, "send", sent.put)
    widget.receive("hello")
    waits = [sent.get(timeout=WAIT_S)["waits_s"]]
    for until in (time.time() + 30.0, None):
        monkeypatch.setattr(type(connected), "waiting_until", until, raising=False)
        waits.append(sent.get(timeout=WAIT_S)["waits_s"])
    widget.close()

    assert waits == [None, pytest.approx(30.0, abs=WAIT_S), None]


def test_it_follows_the_current_session(monitor: MonitorWidget, service: StandIn) -> None:
    """As the module's calls do. After a logout the last state stays, and nothing is live."""
    dm.me()
    dm.me()
    dm.logout()
    logged_out: Any = monitor.snapshot()
    dm.connect(service.base_url, service.api_key)
    dm.me()
    connected: Any = monitor.snapshot()

    assert (logged_out["live"], logged_out["source"]) == (False, "No session is open")
    assert logged_out["responses"] == 2
    assert logged_out["operations"][0]["renews_in_s"] is None
    assert (connected["live"], connected["responses"]) == (True, 1)


def test_a_closed_monitor_sends_nothing(
    connected: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it stopped, and is not called back any more, whatever is requested."""
    sent: list[dict[str, Any]] = []
    widget = dm.monitor()
    monkeypatch.setattr(widget, "send", sent.append)
    widget.receive("hello")
    widget.receive("stop")
    connected.me()
    dm.logout()

    assert [(each["source"], each["live"]) for each in sent] == [("Live", True), ("Stopped", False)]


def test_updates_are_few_however_many_events_there_are() -> None:
    """One for all events of an interval, and one more after the last event."""
    updates: list[float] = []
    settled = threading.Event()

    def update() -> None:
        updates.append(time.monotonic())
        for _ in range(1_000 if len(updates) < 5 else 0):
            throttle.notify()

    throttle = Throttle(update, settled.set, interval_s=0.02, settled_s=0.02)
    throttle.notify()

    assert settled.wait(WAIT_S)
    assert len(updates) == 5
    assert all(after - before >= 0.019 for before, after in itertools.pairwise(updates))


def test_a_throttle_goes_on_after_a_pause_and_after_a_failure() -> None:
    """A page that is gone ends nothing."""
    pauses = threading.Semaphore(0)
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise OSError("no page")

    throttle = Throttle(fail, pauses.release, interval_s=0.001, settled_s=0.01)
    for _ in range(3):
        throttle.notify()
        assert pauses.acquire(timeout=WAIT_S)

    assert len(calls) == 3


def test_a_stopped_throttle_calls_nothing() -> None:
    """Not even for an event before that was not reported yet."""
    calls: list[str] = []
    started, stopped = threading.Event(), threading.Event()

    def update() -> None:
        calls.append("update")
        started.set()
        stopped.wait(WAIT_S)

    throttle = Throttle(update, lambda: calls.append("settled"), interval_s=0.0, settled_s=0.0)
    throttle.notify()
    started.wait(WAIT_S)
    throttle.notify()
    throttle.stop()
    stopped.set()
    throttle.notify()
    throttle._thread.join(WAIT_S)

    assert not throttle._thread.is_alive()
    assert calls == ["update"]


@pytest.mark.slow
def test_a_picture_stays_in_a_notebook_that_is_run_without_a_page() -> None:
    """Closing it leaves a PNG and a sentence, and no widget that cannot be shown."""
    cells = [
        "import directmail_lab as dm\ndm.replay('first-look')\nmonitor = dm.monitor()\nmonitor",
        "for _ in range(40):\n    dm.me()",
        "monitor.close()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=60).execute()
    words, still = notebook.cells[0].outputs

    assert "GET /v1/users/me: " in words["data"]["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" not in words["data"]
    assert still["data"]["image/png"].startswith("iVBOR")
    assert still["metadata"]["image/png"]["width"] == 768  # drawn at twice that, for sharp screens
