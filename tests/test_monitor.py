"""The live monitor without a page: what it shows, how often, how much, and what it leaves."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import nbclient
import nbformat
import pytest
from hypothesis import given, strategies as st

import directmail_lab as dm
from directmail_lab.current import make_current
from directmail_lab.errors import NotConnectedError
from directmail_lab.quota import Reading
from directmail_lab.widgets import Throttle
from directmail_lab.widgets.monitor import MAX_OPERATIONS, MAX_POINTS, History, MonitorWidget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from directmail_lab.sessions import Session
    from directmail_lab.standin import StandIn

WAIT_S = 10.0


def reading(
    remaining: int | None = 1, *, status: int = 200, path: str = "/v1/users/me", at: float = 0.0
) -> Reading:
    return Reading(at, "GET", path, path, status, 300, remaining, 30)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Every message that a monitor sends to its page."""
    messages: list[dict[str, Any]] = []
    monkeypatch.setattr(MonitorWidget, "send", lambda _self, content, **_: messages.append(content))
    return messages


@pytest.fixture
def monitor(live: Session) -> Iterator[MonitorWidget]:
    """A monitor of a live session with the stand-in."""
    make_current(live)
    widget = dm.monitor()
    yield widget
    widget.close()


def test_without_a_session_it_says_how_to_get_one() -> None:
    """There is nothing to follow yet."""
    with pytest.raises(NotConnectedError, match=r"login\(\)"):
        dm.monitor()


@pytest.mark.parametrize(
    ("status", "remaining", "said"),
    [
        (200, 3, "answered"),
        (200, 0, "answered"),
        (429, 3, "exhausted"),
        (429, None, "exhausted"),
        (403, 0, "exhausted"),
        (403, 3, "failed"),
        (500, None, "failed"),
    ],
)
def test_exhausted_and_failed_are_told_apart(status: int, remaining: int | None, said: str) -> None:
    """The last response of an allowance succeeds with nothing remaining: that is no refusal."""
    history = History()
    history.add(reading(remaining, status=status))
    (only,) = history.operations.values()

    assert (only.exhausted, only.failed) == (said == "exhausted", said == "failed")


@given(st.lists(st.tuples(st.none() | st.integers(0, 300), st.sampled_from([200, 429, 500]))))
def test_every_response_counts_and_the_last_ones_are_drawn(
    responses: list[tuple[int | None, int]],
) -> None:
    """However many there are: in order, each with its mark."""
    history = History()
    for remaining, status in responses * 70:
        history.add(reading(remaining, status=status))
    expected = [
        (left, "exhausted" if s == 429 or (s == 500 and left == 0) else "failed" * (s == 500))
        for left, s in responses
    ] * 70
    marks = [mark for _, mark in expected]

    assert history.responses == len(expected)
    for operation in history.operations.values():
        assert list(operation.points) == expected[-MAX_POINTS:]
        assert operation.responses == len(expected)
        assert operation.exhausted == marks.count("exhausted")
        assert operation.failed == marks.count("failed")


def test_a_hundred_thousand_readings_make_a_picture_of_the_same_size(
    monitor: MonitorWidget, live: Session
) -> None:
    """The page draws as much after an hour as after a minute."""
    sizes = []
    for count in (1_000, 99_000):
        for number in range(count):
            live.readings.append(reading(300 - number % 300, path=f"/v1/x/{number % 3}"))
        sizes.append(len(json.dumps(monitor.snapshot())))
    picture = monitor.snapshot()

    assert picture["responses"] == 100_000
    assert sizes[1] < 1.2 * sizes[0]


def test_any_number_of_operations_take_bounded_room() -> None:
    """Paths without id-like segments could each be an operation."""
    history = History()
    for number in range(1_000):
        history.add(reading(path=f"/{number}"))

    assert len(history.operations) == MAX_OPERATIONS
    assert list(history.operations)[-1] == "GET /999"


def test_the_picture_has_what_the_service_said(
    monitor: MonitorWidget, live: Session, service: StandIn
) -> None:
    """By operation: what remains, of what, and what went wrong."""
    live.me()
    live.request("GET", "/v1/lists")
    with service.fault(status=418):
        live.request("GET", "/v1/users/me")
    picture: Any = monitor.snapshot()
    lists, me = picture["operations"]

    assert (lists["name"], me["name"]) == ("GET /v1/lists", "GET /v1/users/me")
    assert (lists["remaining"], lists["limit"]) == (59, 60)
    assert (me["responses"], me["failed"], me["exhausted"]) == (2, 1, 0)
    assert me["renews_in_s"] is None
    assert picture["source"] == "Live"
    assert "GET /v1/lists: 59 of 60 left" in repr(monitor)


def test_the_countdown_is_there_where_the_unit_is_known(service: StandIn) -> None:
    """Where it is not certain, none is shown: see the test above."""
    session = dm.connect(service.base_url, service.api_key, reset_unit="seconds_left")
    widget = dm.monitor()
    session.me()
    picture: Any = widget.snapshot()
    widget.close()

    assert 0 < picture["operations"][0]["renews_in_s"] <= 60


def test_a_replay_shows_the_recording_without_a_countdown() -> None:
    """A recorded window renewed long ago."""
    dm.replay("first-look")
    widget = dm.monitor()
    dm.me()
    picture: Any = widget.snapshot()
    widget.close()

    assert picture["source"] == "Replaying first-look"
    assert picture["operations"][0]["limit"] == 300
    assert picture["operations"][0]["renews_in_s"] is None


def test_no_response_of_any_thread_is_missed_or_counted_twice(
    monitor: MonitorWidget, live: Session
) -> None:
    """Readings come while the picture is made."""
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            monitor.snapshot()

    looking = threading.Thread(target=look)
    asking = [
        threading.Thread(target=lambda: [live.request("GET", "/v1/users/me") for _ in range(25)])
        for _ in range(4)
    ]
    looking.start()
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    enough.set()
    looking.join()
    picture: Any = monitor.snapshot()

    assert picture["responses"] == 100
    assert picture["operations"][0]["responses"] == 100


def test_it_follows_whoever_signs_in(monitor: MonitorWidget, service: StandIn) -> None:
    """The module-level calls act on the current session, and so does the monitor."""
    dm.me()
    monitor.snapshot()
    dm.connect(service.base_url, service.api_key)
    dm.me()

    assert monitor.snapshot()["responses"] == 1


def test_after_logout_it_says_that_no_session_is_open(
    monitor: MonitorWidget, service: StandIn
) -> None:
    """What was seen stays; nothing is live. Whoever signs in next is followed."""
    dm.me()
    dm.logout()
    picture: Any = monitor.snapshot()
    dm.connect(service.base_url, service.api_key)

    assert (picture["live"], picture["source"]) == (False, "No session is open")
    assert picture["responses"] == 1
    assert picture["operations"][0]["renews_in_s"] is None
    assert monitor.snapshot()["live"] is True


def test_a_closed_monitor_sends_nothing(live: Session, sent: list[dict[str, Any]]) -> None:
    """It says that it stopped, and is not called back any more, whatever is requested."""
    make_current(live)
    widget = dm.monitor()
    widget.receive("hello")
    widget.receive("stop")
    live.me()
    dm.logout()

    assert [each["source"] for each in sent] == ["Live", "Stopped"]
    assert [each["live"] for each in sent] == [True, False]


def test_updates_are_few_however_many_events_there_are() -> None:
    """At most one in an interval, and one more after the last event."""
    updates: list[float] = []
    rested = threading.Event()
    throttle = Throttle(
        lambda: updates.append(time.monotonic()), rested.set, interval_s=0.05, settled_s=0.1
    )
    started = time.monotonic()
    events = 0
    while time.monotonic() - started < 0.4:
        throttle.notify()
        events += 1
    last_event = time.monotonic()

    assert rested.wait(WAIT_S)
    assert events > 1_000
    assert 3 <= len(updates) <= 0.4 / 0.05 + 2
    assert updates[-1] >= last_event - 0.05


def test_a_throttle_goes_on_after_a_rest_and_after_a_failure() -> None:
    """Its thread ends when nothing happens, and a page that is gone ends nothing."""
    rests = threading.Semaphore(0)
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise OSError("no page")

    throttle = Throttle(fail, rests.release, interval_s=0.001, settled_s=0.01)
    for _ in range(3):
        throttle.notify()
        assert rests.acquire(timeout=WAIT_S)

    assert len(calls) == 3


def test_a_stopped_throttle_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It calls nothing, not even once more."""
    started: list[object] = []
    monkeypatch.setattr("threading.Thread.start", started.append)
    throttle = Throttle(pytest.fail, pytest.fail, interval_s=0.0, settled_s=0.0)
    throttle.stop()
    throttle.notify()

    assert started == []


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
