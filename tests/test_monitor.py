"""The live monitor without a browser: what it shows, how often, and how it ends."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from reading_samples import reading as sample

import directmail_lab as dm
from directmail_lab.cassettes import SessionRecording
from directmail_lab.exchange.values import Interaction, Request, Response
from directmail_lab.notebook.monitor import MAX_POINTS, History, MonitorWidget
from directmail_lab.notebook.widget import Follower
from directmail_lab.readings.reading import Reading
from directmail_lab.redaction import Redactor
from directmail_lab.sessions.session import Session, allowances_of

WAIT_S = 10.0
NO_MESSAGES = Interaction(Request("GET", ""), Response(200))


def reading(remaining: int | None = 1, *, status: int = 200, path: str = "/v1/users/me") -> Reading:
    return sample(0.0, path, status=status, remaining=remaining, reset=30)


def history(readings: Iterable[Reading]) -> History:
    recording = SessionRecording("this session", "https://api.example.test")
    for each in readings:
        recording.add(each, NO_MESSAGES, Redactor().texts)
    return History(recording)


@pytest.fixture
def monitor(connected: Session) -> Iterator[MonitorWidget]:
    del connected
    widget = dm.monitor()
    yield widget
    widget.close()


def test_every_response_counts_and_the_last_ones_are_drawn():
    """A success with nothing remaining used the last of the allowance; it is not a refusal."""
    points = [
        *((0, 200, ""), (3, 429, "refused"), (None, 429, "refused")),
        *((0, 403, "failed"), (3, 403, "failed"), (None, 500, "failed")),
    ] * 100
    known = history([reading(path="/v1/lists"), reading(), reading(path="/v1/lists")])
    (operation,) = history(reading(left, status=status) for left, status, _ in points).update()

    assert [each.name for each in known.update()] == ["GET /v1/users/me", "GET /v1/lists"]
    assert list(operation.points) == [(left, mark) for left, _, mark in points[-MAX_POINTS:]]
    assert operation.counts == {"responses": 600, "refused": 200, "failed": 300}


def test_a_response_that_is_played_by_a_live_session_does_not_count(connected):
    """It says nothing about the allowance that is left now."""
    with connected.record("tour"):
        dm.me()
    widget = dm.monitor()
    with connected.record("tour", record_mode="new_episodes"):
        dm.me()
        dm.get("/v1/lists")
        shown: Any = widget.snapshot()
    widget.close()

    counts = {each["name"]: each["responses"] for each in shown["operations"]}
    assert counts == {"GET /v1/users/me": 1, "GET /v1/lists": 1}


@pytest.mark.parametrize(
    ("left", "names"),
    [
        ([59, 58, 57, 56, 55, 54], ["Shared allowance of 300"]),
        ([59, 59, 58, 58, 57, 57], ["GET /v1/lists", "GET /v1/letters"]),
        ([59, 58, 12, 30, 300, 17], ["GET /v1/lists", "GET /v1/letters"]),
    ],
    ids=["shared", "apart", "not sure"],
)
def test_operations_that_share_an_allowance_are_one_row(left, names):
    """A row for each path would be stale: the others used what it shows."""
    paths = ["/v1/lists", "/v1/letters"] * 3
    readings = [reading(each, path=path) for each, path in zip(left, paths, strict=True)]
    shown = history(readings).update()

    assert [each.name for each in shown] == names
    if len(names) == 1:
        assert [point for point, _ in shown[0].points] == left
        assert shown[0].latest.remaining == 54


def test_the_monitor_shows_the_mode_of_the_session(service):
    """Renewals are counted down if the unit is known, but not in a replay, whose window is over."""
    dm.connect(service.base_url, service.api_key, reset_unit="seconds_left")
    monitor = dm.monitor()
    dm.me()
    with dm.record("tour"):
        snapshots: Any = [monitor.snapshot()]
    with dm.replay("first-look"):
        snapshots.append(monitor.snapshot())
        dm.me()
        snapshots.append(monitor.snapshot())
    snapshots.append(monitor.snapshot())
    monitor.close()

    sources = [each["source"].split()[0] for each in snapshots]
    assert sources == ["Recording", "Replaying", "Replaying", "Live"]
    assert [each["responses"] for each in snapshots] == [1, 0, 1, 1]
    assert snapshots[1]["note"].startswith("Nothing of first-look was played yet.")
    assert snapshots[2]["operations"][0]["renews_in_s"] is None
    assert 0 < snapshots[3]["operations"][0]["renews_in_s"] <= 60


def test_no_response_of_any_thread_is_missed_or_counted_twice(monitor, live):
    """New readings arrive while a snapshot is taken."""
    sending = threading.Thread(target=dm.get_many, args=(["/v1/users/me"] * 100,))
    sending.start()
    while sending.is_alive():
        monitor.snapshot()
    snapshot: Any = monitor.snapshot()

    assert snapshot["responses"] == 100
    assert snapshot["operations"][0]["responses"] == 100


def test_a_wait_and_a_mode_are_shown_without_a_response(connected, monkeypatch):
    """The page counts down the seconds until the first waiting request is sent."""
    sent: queue.Queue[dict[str, Any]] = queue.Queue()
    waiting: dict[str, float] = {}
    monkeypatch.setattr(type(allowances_of(connected)), "waiting_until", waiting)
    widget = dm.monitor()
    monkeypatch.setattr(widget, "send", sent.put)
    widget.receive("hello")
    shown = [sent.get(timeout=WAIT_S)]
    waiting.update({"GET /a": time.time() + 30.0, "GET /b": time.time() + 90.0, "GET /c": 0.0})
    shown.append(sent.get(timeout=WAIT_S))
    waiting.clear()
    shown.append(sent.get(timeout=WAIT_S))
    dm.replay("first-look")
    shown.append(sent.get(timeout=WAIT_S))
    widget.close()

    assert [each["waits_s"] for each in shown] == [None, pytest.approx(30, abs=WAIT_S), None, None]
    live = f"Live at {connected.base_url.partition('://')[2]}"
    assert [each["source"] for each in shown] == [live] * 3 + [
        "Replaying first-look, recorded on 21 November 2026"
    ]


def test_the_monitor_follows_the_current_session(monitor, service):
    """After a logout, the last state stays. The saved picture shows the monitor's own session."""
    dm.me()
    dm.logout()
    logged_out: Any = monitor.snapshot()
    dm.connect(service.base_url, service.api_key)
    other = dm.monitor()
    dm.get("/v1/lists")
    followed: Any = monitor.snapshot()
    first, second = [each.static_output()[0] for each in (monitor, other)]
    other.close()

    assert (logged_out["live"], logged_out["source"]) == (False, "No session is open")
    assert logged_out["operations"][0]["renews_in_s"] is None
    assert (followed["live"], followed["responses"]) == (True, 1)
    lists = followed["operations"][0]
    assert (lists["name"], lists["remaining"], lists["limit"]) == ("GET /v1/lists", 59, 60)
    assert "GET /v1/users/me: 299 of 300 left" in first["text/plain"]
    assert "GET /v1/lists: 59 of 60 left" in second["text/plain"]
    assert first["image/png"] != second["image/png"]


def test_a_closed_monitor_sends_nothing(connected, monkeypatch):
    sent: list[dict[str, Any]] = []
    widget = dm.monitor()
    monkeypatch.setattr(widget, "send", sent.append)
    widget.receive("hello")
    widget.receive("stop")
    connected.me()
    dm.logout()
    widget.follower.thread.join(WAIT_S)

    assert not widget.follower.thread.is_alive()
    assert [each["live"] for each in sent] == [True, False]
    assert sent[1]["source"] == "Stopped"


def test_a_monitor_of_a_source_shows_that_alone(connected, service):
    """A session that is not the current one is followed; of a cassette, nothing moves."""
    with dm.connect(service.base_url, service.api_key) as other:
        of_session = dm.monitor(connected)
        of_cassette: Any = dm.monitor("first-look")
        other.me()
        connected.get("/v1/lists")
        snapshot: Any = of_session.snapshot()
        of_session.close()
        shown = of_cassette.snapshot()
        of_cassette.close()

    assert [each["name"] for each in snapshot["operations"]] == ["GET /v1/lists"]
    assert (shown["live"], shown["responses"]) == (False, 102)
    assert shown["source"] == "first-look, recorded on 21 November 2026"
    assert of_cassette.snapshot()["source"] == shown["source"]
    with pytest.raises(ValueError, match="Give one cassette here"):
        dm.monitor(["first-look", "waiting"])


def test_updates_are_few_however_many_responses_there_are():
    """There is one update in each interval and one after the last response, even without a page."""
    dm.replay("first-look")
    updates: list[int] = []

    def update() -> None:
        updates.append(len(dm.session().recording))
        for _ in range(100 if len(updates) < 5 else 0):
            dm.get("/v1/users/me")
        raise OSError("no page")

    settled = threading.Semaphore(0)
    page = SimpleNamespace(update_page=update, update_static_output=settled.release)
    follower = Follower(page, dm.session(), interval_s=0.05, quiet_s=0.1)
    dm.get("/v1/users/me")
    is_settled = settled.acquire(timeout=WAIT_S)
    follower.stop()

    assert is_settled
    assert 5 <= len(updates) <= 6
