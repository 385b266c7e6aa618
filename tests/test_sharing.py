"""One allowance for all sessions with one key: on a clock that tests move, then for real."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from directmail_lab.pacing.state import PaceState
from directmail_lab.pacing.stores import Share, SharedStore, machine
from directmail_lab.pacing.windows import RenewalReader, Window, WindowLog
from hypothesis import given, strategies as st
from key_search import traces
from paced_service import BASE_URL, START, Clock, Service, async_client, client
from shared_allowance import run

import directmail_lab as dm
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import QuotaExhaustedError
from directmail_lab.readings.reading import Reading
from directmail_lab.readings.reset_unit import ResetUnitInference
from directmail_lab.sessions import Session
from directmail_lab.standin import StandIn, stand_in
from directmail_lab.widgets.monitor import MonitorWidget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ME = "/v1/users/me"
KEY = ApiKey("hk_Zt7Qm2Xr9LwT4bV1")


def on_machine(base_url: str = BASE_URL, api_key: ApiKey | None = KEY) -> SharedStore:
    store = Share("machine").open(api_key, base_url, time.time)
    assert store is not None
    return store


def state_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "state").rglob("*"))


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real server, on loopback and with a password; yields its process and its address."""
    pytest.importorskip("redis", reason="redis-py is not installed (the extra `redis`)")
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("There is no redis-server or valkey-server here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    command += ["--requirepass", "open-sesame", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert any("Ready to accept connections" in line for line in server.stdout)
        yield server, f"redis://:open-sesame@127.0.0.1:{port}/0"
        server.terminate()


@pytest.fixture(scope="module")
def redis_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as (_, address):
        yield address


# -- the rules, on a clock that is moved ----------------------------------------------------------


def read_at_once(
    service: Service, sessions: int, reads: int, **options: object
) -> list[list[float]]:
    """Let sessions that share send reads, each one after another; return when each was answered."""

    async def read() -> list[float]:
        answered = []
        async with async_client(service, shared=on_machine(), **options) as session:
            for _ in range(reads):
                await asyncio.sleep(0)  # the others' turn
                await session.get(ME)
                answered.append(service.clock() - START)
        return answered

    async def go() -> list[list[float]]:
        return await asyncio.gather(*(read() for _ in range(sessions)))

    return asyncio.run(go())


@pytest.mark.parametrize("unit", ["seconds_left", "milliseconds_left", "epoch_s", "epoch_ms"])
@pytest.mark.parametrize("pace", ["burst", pytest.param("even", marks=pytest.mark.slow)])
def test_sessions_that_share_meet_no_refusal_and_none_is_last(unit: str, pace: str) -> None:
    """Eight of them take as long as one would, and each gets the same share of each window."""
    service = Service(Clock(), limit=40, window_s=3.0, unit=unit)

    answered = read_at_once(service, 8, 20, reset_unit=unit, pace=pace)
    ended = [each[-1] for each in answered]

    # A time in whole seconds is told up to a second late: that is the earliest anyone can know.
    told_late_s = 3.0 if unit == "epoch_s" else 0.0
    assert service.statuses == [200] * 160
    assert max(ended) <= 1.15 * (9.0 if pace == "burst" else 12.0) + told_late_s
    assert max(ended) <= 1.5 * min(ended)


@pytest.mark.parametrize("rounding", [round, int])
def test_what_one_session_learns_of_the_unit_all_know(rounding: Callable[[float], int]) -> None:
    """Counts that are rounded down cost a refusal or two, not one for each of six sessions."""
    service = Service(Clock(), limit=20, window_s=3.0, rounding=rounding)

    read_at_once(service, 6, 15)

    assert service.statuses.count(429) <= 2


def test_what_others_lack_of_their_share_is_kept_for_them_as_the_window_passes() -> None:
    """Of 40, one session gets 20 at once and more with time, but never what another asks for."""
    state = PaceState(remaining=40, limit=40, renews_at=3.0, window_s=3.0, answered_at=0.0)
    sent = []
    for tenth in range(30):
        assert tenth % 5 or state.request("slow", tenth / 10) is None
        while state.request("fast", tenth / 10) is None:
            sent.append(tenth / 10)

    assert sent.count(0.0) == 20
    assert 26 <= len(sent) <= 34
    assert sent[-1] > 2.0


def test_what_a_process_that_died_had_in_flight_is_forgotten() -> None:
    """Its requests hold nothing up for longer than answers take, nor does its turn."""
    state = PaceState(remaining=2, limit=5, renews_at=60.0, answered_at=0.0)
    assert [state.request("dead", 0.0) for _ in range(2)] == [None, None]
    assert state.request("dead", 0.0) is not None

    held_up, later = state.request("alive", 1.0), state.request("alive", 3.0)

    assert held_up is not None
    assert later is None


def test_no_waiting_session_looks_all_the_time() -> None:
    """Sleeping until the renewal is one look; for another's answer they become fewer."""
    state = PaceState(remaining=1, limit=5, renews_at=60.0, answered_at=0.0)
    assert state.request("other", 0.0) is None
    now, looks = 0.0, 0
    while now < 0.9:  # the other's request is not yet taken for lost
        pause = state.request("mine", now)
        assert pause is not None
        now, looks = pause.until, looks + 1
    state.settle("other", now)
    state.remaining = 0

    asleep = state.request("mine", now)

    assert looks <= 30
    assert asleep is not None
    assert asleep.until >= 60.0


# -- whose requests they were ---------------------------------------------------------------------


def windows_seen(paced_client: httpx.Client) -> list[Window]:
    return paced_client._transport.pacer.windows.windows()  # type: ignore[attr-defined, no-any-return]


STEPS = st.lists(st.sampled_from(["here", "sharing", "others", "later"]), max_size=60)


@given(STEPS)
def test_never_more_is_said_to_be_others_than_was(steps: list[str]) -> None:
    """Whoever spends in whatever order: of each window no more than was theirs."""
    service = Service(Clock(), limit=20, window_s=10.0, latency_s=0.0)
    truth: list[dict[str, int]] = []
    state, log = PaceState(), WindowLog()
    reader = RenewalReader(ResetUnitInference(stated="seconds_left"), max_wait_s=120.0)
    for step in steps:
        if step == "later":
            service.clock.now += 3.0
            continue
        began = service.taken.get(ME) and service.taken[ME][0]
        allowed, left, renews_at = service.spend()
        if not truth or service.taken[ME][0] != began:
            truth.append(dict.fromkeys(("here", "sharing", "others"), 0))
        truth[-1][step] += allowed
        if step == "others":
            continue
        status, reset = 200 if allowed else 429, int(service.reset(renews_at))
        reading = Reading(service.clock(), "GET", ME, ME, status, 20, left, reset)
        state.take(reading, reader.read(reading, state), service.clock())
        if step == "here":
            log.note(reading, state)
    seen, windows = [used for used in truth if used["here"]], log.windows()

    for window, used in zip(windows, seen, strict=False):
        assert window.used_here <= used["here"]
        assert window.used_by_others <= used["others"]
    if len(seen) == len(truth) == len(windows) and not any(used["sharing"] for used in truth):
        assert [window.used_here for window in windows] == [used["here"] for used in truth]


@pytest.mark.parametrize("unit", ["seconds_left", "milliseconds_left", "epoch_ms"])
def test_where_requests_come_free_one_by_one_nobody_else_is_accused(unit: str) -> None:
    """A sliding window that one session uses alone has no others in it, once it is known to."""
    service = Service(Clock(), limit=10, window_s=20.0, unit=unit, sliding=True)

    with client(service, reset_unit=unit) as mine:
        for _ in range(40):
            mine.get(ME)
            service.clock.now += 1.5

    assert windows_seen(mine)[-1].used_by_others == 0


def test_what_others_use_is_counted_by_window() -> None:
    """Of ten, six are used by somebody else between two requests of ours."""
    service = Service(Clock(), limit=10)

    with client(service, reset_unit="seconds_left") as mine:
        mine.get(ME)
        for _ in range(6):
            service.spend()
        mine.get(ME)

    (window,) = windows_seen(mine)
    assert (window.limit, window.used_here, window.used_by_others) == (10, 2, 6)


def test_a_frame_of_windows(account: StandIn) -> None:
    """Its columns and their kinds are the same with rows and without; a cassette has one too."""
    session = dm.connect()
    empty = dm.rate_limits(by="window")
    dm.me()
    full = dm.rate_limits(by="window")

    assert list(full.dtypes.items()) == list(empty.dtypes.items())
    assert (len(empty), full["used_here"].tolist(), full["limit"].tolist()) == (0, [1], [300])
    assert dm.rate_limits("first-look", by="window")["used_here"].tolist()[0] == 41
    session.replay("first-look")
    dm.burst(3)
    assert dm.rate_limits(by="window")["used_here"].tolist() == [3, 1]


# -- the file -------------------------------------------------------------------------------------


def test_the_file_is_the_users_own_and_does_not_tell_the_key(
    service: StandIn, tmp_path: Path
) -> None:
    """No form of key or path, nor a hash of the key, is in it, its name or beside it."""
    with Session(service.base_url, service.api_key) as session:
        session.me()
        kept = state_files(tmp_path)
        held = b"\n".join(path.name.encode() + path.read_bytes() for path in kept if path.is_file())
        modes = {oct(path.stat().st_mode & 0o777) for path in kept if path.is_file()}

    key = service.api_key.encode()
    hashes = [hashlib.new(name, key) for name in ("md5", "sha1", "sha256", "blake2b")]
    digests = [form for each in hashes for form in (each.digest(), each.hexdigest().encode())]
    assert traces(held, service.api_key) == []
    assert not [form for form in (*digests, base64.b64encode(key), ME.encode()) if form in held]
    assert modes == {"0o600"}
    assert kept[0].stat().st_mode & 0o777 == 0o700


def test_two_keys_or_two_addresses_do_not_share() -> None:
    """The same key at another address is another allowance, and so is another key."""
    names = []
    for base_url, key in [(BASE_URL, "a" * 20), ("https://x.test", "a" * 20), (BASE_URL, "b" * 20)]:
        store = on_machine(base_url, ApiKey(key))
        store.change("GET /", lambda state, _, name=base_url + key: state.request(name, 0.0))
        names += store.change("GET /", lambda state, _: list(state.participants))
        store.close()

    assert len(names) == 3


def test_a_replay_and_a_session_that_shares_nothing_never_touch_it(
    service: StandIn, tmp_path: Path
) -> None:
    """Not even a folder is made."""
    dm.replay("first-look")
    dm.me()
    with Session(service.base_url, service.api_key, share=None) as session:
        session.me()
    with Session(service.base_url, service.api_key) as idle:
        assert idle.readings is not None

    assert state_files(tmp_path) == []


def test_sessions_that_start_together_share_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever makes the file, the others wait for it: as the workers of a cluster do."""
    together = threading.Barrier(4)

    def start(number: int) -> None:
        store = on_machine()
        together.wait()
        store.change("GET /", lambda state, _: state.request(str(number), 0.0))
        store.close()

    with ThreadPoolExecutor(4) as threads:
        for folder in range(30):
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state" / str(folder)))
            list(threads.map(start, range(4)))

            store = on_machine()
            assert store.change("GET /", lambda state, _: len(state.participants)) == 4
            store.close()


def test_a_locked_file_is_tried_again_within_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load, SQLite's own attempts, up to 0.1 s apart, let some sessions starve."""
    store, pauses = on_machine(), []
    store.change("GET /", lambda state, _: state.request("one", 0.0))
    (database,) = Path(os.environ["XDG_STATE_HOME"]).rglob("*.sqlite")
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            other.execute("ROLLBACK")

    monkeypatch.setattr(time, "sleep", sleep)

    assert store.change("GET /", lambda state, _: len(state.participants)) == 1
    assert len(pauses) == 5
    assert max(pauses) < 0.005
    store.close()
    other.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("share", ["machine", None])
def test_a_child_forked_while_others_send_does_not_hang(
    share: str | None, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread is left in it that would release a lock, or leave the queue."""
    entered, over = threading.Event(), threading.Event()
    request = PaceState.request

    def slow(*args: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            over.wait()
        return request(*args, **options)

    monkeypatch.setattr(PaceState, "request", slow)
    with Session(service.base_url, service.api_key, share=share) as session:
        other = threading.Thread(target=session.me)
        other.start()
        entered.wait()
        if (child := os.fork()) == 0:
            signal.alarm(20)  # ends a child that hangs
            warnings.simplefilter("ignore")
            os._exit(len(session.me()))
        _, status = os.waitpid(child, 0)
        over.set()
        other.join()

    assert os.waitstatus_to_exitcode(status) == 1


def broken(how: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Break the file at ``path``; return what ends that."""
    path.parent.mkdir(parents=True)
    if how == "torn":
        path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 20)
    elif how == "locked":
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        return other.close
    elif how == "no file":
        path.mkdir()
    elif how == "no folder":
        path.parent.rmdir()
        path.parent.write_text("")
    elif how == "another user's":
        theirs = path.parent.parent / "theirs"
        path.parent.rename(theirs)
        path.parent.symlink_to(theirs)
        monkeypatch.setattr(os, "geteuid", lambda: theirs.stat().st_uid + 1)
    elif how == "full":
        resource = pytest.importorskip("resource")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return lambda: None


@pytest.mark.parametrize(
    "how", ["torn", "locked", "no file", "no folder", "another user's", "full"]
)
def test_a_file_that_cannot_be_used_costs_no_request(
    how: str, service: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session paces alone, and says so once."""
    path = tmp_path / "state" / "directmail-lab" / f"allowances-2-{machine()}.sqlite"
    restore = broken(how, path, monkeypatch)
    try:
        with (
            Session(service.base_url, service.api_key) as session,
            pytest.warns(UserWarning, match="this session paces alone") as warned,
        ):
            statuses = [session.request("GET", ME).status_code for _ in range(3)]
    finally:
        restore()

    assert statuses == [200] * 3
    assert len(warned) == 1


def test_a_state_that_is_not_ours_is_begun_anew(service: StandIn) -> None:
    """A row that another version wrote, or nobody, counts for nothing."""
    store = on_machine()
    store.change("GET /", lambda state, _: state.request("one", 0.0))
    (database,) = Path(os.environ["XDG_STATE_HOME"]).rglob("*.sqlite")
    for text in ("", "{", "[]", '{"a": 1}', "[{}, 1, 2, 3, 4, 5]" * 2, "null"):
        with sqlite3.connect(database) as connection:
            connection.execute("UPDATE states SET value = ? WHERE at IS NOT NULL", [text])
        connection.close()

        assert store.change("GET /", lambda state, _: state.request("two", 0.0)) is None
    store.close()


# -- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize("share", ["", "file", "redis", "http://:pw-123456@host", 5, "machine "])
def test_an_unknown_share_is_refused_and_not_repeated(share: str) -> None:
    """What is right is said; what was given may hold a password."""
    with pytest.raises(ValueError, match='share is "machine", None, or') as caught:
        dm.connect(BASE_URL, KEY, share=share)

    shown = [repr(entry.frame.f_locals) for entry in caught.traceback[1:]]
    assert "pw-123456" not in "".join([str(caught.value), *shown])


def test_other_kernels_are_told_of(service: StandIn) -> None:
    """The session, its monitor and the bar of a wait say with how many the allowance is shared."""
    with Session(service.base_url, service.api_key) as session:
        dm.current.make_current(session)
        session.me()
        alone = session.shared_with
        store = on_machine(service.base_url, session.api_key)
        for name in ("one-1.a", "one-1.b", "two-2.a"):
            store.change(f"GET {ME}", lambda state, _, name=name: state.request(name, time.time()))
        session.me()
        picture = MonitorWidget(session).snapshot()
        store.close()

    assert alone == ""
    assert session.shared_with == "shared with 2 other kernels"
    assert picture["source"] == "Live, shared with 2 other kernels"


# -- a server -------------------------------------------------------------------------------------


def test_sessions_share_through_redis_whatever_their_clocks_say(redis_address: str) -> None:
    """Two machines whose clocks are a minute apart use up an allowance and agree on its renewal."""
    clocks = [time.time, lambda: time.time() + 60.0]
    options = {"share": redis_address, "reset_unit": "seconds_left"}
    with stand_in(limit=5, window_s=600.0, limits={}) as service:
        sessions = [
            Session(service.base_url, service.api_key, clock=clock, **options)  # type: ignore[arg-type]
            for clock in clocks
        ]
        statuses = [sessions[number % 2].get(ME).status_code for number in range(5)]
        with pytest.raises(QuotaExhaustedError) as caught:
            sessions[1].get(ME)
        sent = [len(session.readings) for session in sessions]
        for session in sessions:
            session.close()

    assert (statuses, sent) == ([200] * 5, [3, 2])
    assert caught.value.until == pytest.approx(time.time() + 60.0 + 600.0, abs=25.0)


def test_the_server_is_told_neither_key_nor_path(redis_address: str, service: StandIn) -> None:
    """Its keys and values are HMACs and numbers."""
    import redis

    with Session(service.base_url, service.api_key, share=redis_address) as session:
        session.me()
        kept = redis.Redis.from_url(redis_address)
        held = b"\n".join(name + bytes(kept.get(name)) for name in kept.scan_iter())
        kept.close()
        shown = f"{session!r} {vars(session)}"

    assert traces(held, service.api_key) == []
    assert ME.encode() not in held
    assert "open-sesame" not in shown


@pytest.mark.parametrize("how", ["unreachable", "wrong password", "lost"])
def test_a_server_that_fails_costs_no_request(how: str, service: StandIn, tmp_path: Path) -> None:
    """The session paces alone and says so once, without the password: in mid-session too."""
    with redis_server(tmp_path) as (server, address):
        if how == "wrong password":
            address = address.replace("open-sesame", "open-barley")
        with Session(service.base_url, service.api_key, share=address) as session:
            statuses = [session.get(ME).status_code] if how == "lost" else []
            if how != "wrong password":
                server.kill()
                server.wait()
            with pytest.warns(UserWarning, match="paces alone: Redis at 127.0.0.1") as warned:
                statuses += [session.get(ME).status_code for _ in range(3)]

    assert set(statuses) == {200}
    assert len(warned) == 1
    assert "open" not in str(warned[0].message)


# -- processes ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"killed_after_s": 2.0}, {"foreign_per_s": 4.0}, {"threads": 4}],
    ids=lambda options: "-".join(options) or "plain",
)
def test_processes_share_one_allowance(options: dict[str, float]) -> None:
    """Hardly a refusal and no failure, though one is killed, others spend, or threads are many.

    A process that the machine stops for a second while its request is in flight costs a refusal.
    """
    outcome = run(6, 20, **options)  # type: ignore[arg-type]

    assert outcome.failed == 0
    assert outcome.refused <= (6 if "foreign_per_s" in options else 2)
    # Of a busy machine: on a quiet one it is 1.02 of the ideal.
    assert outcome.took_s <= 2.5 * outcome.ideal_s


@pytest.mark.slow
def test_processes_share_one_allowance_through_redis(redis_address: str) -> None:
    """The same rules on a server."""
    outcome = run(6, 20, share=redis_address)

    assert outcome.failed == 0
    assert outcome.refused <= 2
