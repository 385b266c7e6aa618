"""One allowance for all sessions with one key: on a clock that tests move, then for real."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import math
import os
import shutil
import signal
import socket
import socketserver
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
from key_search import traces
from paced_service import BASE_URL, START, Clock, Service, observed
from shared_allowance import run

import directmail_lab as dm
from directmail_lab.cassettes import SessionRecording
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import QuotaExhaustedError
from directmail_lab.interaction import READING
from directmail_lab.pacing import Allowances
from directmail_lab.pacing.allowance import MOMENTS, Allowance
from directmail_lab.pacing.shared import FileStore, Share, SharedStore, machine
from directmail_lab.sessions import Session
from directmail_lab.standin import StandIn, stand_in
from directmail_lab.widgets.monitor import MonitorWidget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ME = "/v1/users/me"
KEPT, KEEP = "SELECT value FROM allowances", "UPDATE allowances SET value = ?"
KEY = ApiKey("hk_Zt7Qm2Xr9LwT4bV1")


def on_machine(base_url: str = BASE_URL, api_key: ApiKey | None = KEY) -> SharedStore:
    store = Share("machine").open(api_key, base_url, time.time)
    assert store is not None
    return store


def state_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "state").rglob("*"))


def in_file(query: str, *values: object) -> Any:
    """Return the first value that a query of the machine's file gives."""
    (database,) = Path(os.environ["XDG_STATE_HOME"]).rglob("*.sqlite")
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as others:
        return (others.execute(query, values).fetchone() or [None])[0]


def join_threads() -> None:
    """Wait until what a probe found out has been told to the others."""
    for thread in threading.enumerate():
        if thread.name.endswith("(_tell)"):
            thread.join()


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


def read_at_once(service: Service, sessions: int, reads: int, **options: Any) -> list[float]:
    """Let sessions that share send reads, each one after another; return when each had its last."""
    log = SessionRecording("shared", BASE_URL, reset_unit=options.pop("reset_unit", None))
    sending, clock = observed(service, log), service.clock
    request = httpx.Request("GET", BASE_URL + ME)
    users = [
        Allowances(shared=on_machine(), reset_unit=lambda: log.evidence.unit, **options)
        for _ in range(sessions)
    ]
    turns = {number: users[number].turn(ME, clock()) for number in range(sessions)}
    due, left = dict.fromkeys(turns, clock()), dict.fromkeys(turns, reads)
    ended = dict.fromkeys(turns, 0.0)
    while due:
        number = min(due, key=lambda each: due[each])
        clock.now = max(clock.now, due.pop(number))
        seconds = users[number].wait_s(turns[number], clock())
        if not seconds:
            reading = sending.handle_request(request).extensions[READING]
            users[number].settle(turns[number], reading, clock())
            join_threads()
            left[number] -= reading.status == 200
            ended[number], turns[number] = clock() - START, users[number].turn(ME, clock())
        if left[number]:
            due[number] = clock() + seconds
    for each in users:
        each.close()
    return list(ended.values())


@pytest.mark.parametrize("unit", ["seconds_left", "milliseconds_left", "epoch_s", "epoch_ms"])
@pytest.mark.parametrize("pace", ["burst", pytest.param("even", marks=pytest.mark.slow)])
def test_sessions_that_share_meet_no_refusal_and_none_is_last(unit: str, pace: str) -> None:
    """Eight of them take as long as one would, and each gets the same share of each window."""
    service = Service(Clock(), limit=40, window_s=3.0, unit=unit)

    ended = read_at_once(service, 8, 20, reset_unit=unit, pace=pace)

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


def ask(store: SharedStore) -> float:
    """Let a session ask for a request, and find out that three remain; return how long it waits."""
    own = Allowance(remaining=3, renews_at=START + 60.0, answered_at=START)
    changed = store.change(ME, own, lambda allowance: allowance.wait_s(START, "a"), START)
    store.close()
    assert changed is not None
    return changed[1]


class FullStore(SharedStore):
    """A store that has no room for a row."""

    def _replace(self, name: str, update: Callable[[object], str]) -> None:
        raise OSError(f"{name} {update(None)}")

    def close(self) -> None:
        pass


def test_a_change_that_could_not_be_kept_changes_nothing() -> None:
    """The session paces alone by what it knew, and counts its request once."""
    own, store = Allowance(remaining=3, renews_at=START + 60.0), FullStore(b"an account")
    with pytest.warns(UserWarning, match="paces alone"):
        changed = store.change(ME, own, lambda allowance: allowance.wait_s(START, "a"), START)

    assert changed is None
    assert own == Allowance(remaining=3, renews_at=START + 60.0, reset_unit=own.reset_unit)


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
    accounts = [(BASE_URL, "a" * 20), (BASE_URL, "b" * 20), ("https://x.test", "a" * 20)]
    for base_url, key in accounts:
        ask(on_machine(base_url, ApiKey(key)))

    assert in_file("SELECT count(*) FROM allowances") == 3


def test_a_replay_and_a_session_that_shares_nothing_never_touch_it(
    service: StandIn, tmp_path: Path
) -> None:
    """Not even a folder is made."""
    dm.replay("first-look")
    dm.me()
    with Session(service.base_url, service.api_key, share=None) as session:
        session.me()
    with Session(service.base_url, service.api_key) as idle:
        assert idle.recording is not None

    assert state_files(tmp_path) == []


def test_sessions_that_start_together_share_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever makes the file, the others wait for it: as the workers of a cluster do."""
    together = threading.Barrier(4)

    def start(_: int) -> None:
        store = on_machine()
        together.wait()
        ask(store)

    with ThreadPoolExecutor(4) as threads:
        for folder in range(30):
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state" / str(folder)))
            list(threads.map(start, range(4)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("share", ["machine", None])
def test_a_child_forked_while_others_send_does_not_hang(
    share: str | None, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread is left in it that would release a lock, or leave the queue."""
    entered, over = threading.Event(), threading.Event()
    wait_s = Allowance.wait_s

    def slow(*args: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            over.wait()
        return wait_s(*args, **options)

    monkeypatch.setattr(Allowance, "wait_s", slow)
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


@pytest.mark.parametrize("how", ["torn", "locked", "no folder", "another user's", "full"])
def test_a_file_that_cannot_be_used_costs_no_request(
    how: str, service: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session paces alone, and says so once."""
    path = tmp_path / "state" / "directmail-lab" / f"allowances-4-{machine()}.sqlite"
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


def test_ctrl_c_in_a_change_leaves_no_transaction_open(
    service: StandIn, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """The next change would find it, fail, and the session would pace alone for a minute."""
    execute, moments = FileStore._execute_once_free, [KeyboardInterrupt]

    def interrupted(self: FileStore, connection: sqlite3.Connection, statement: str) -> None:
        execute(self, connection, statement)
        if moments and statement.startswith("BEGIN"):
            raise moments.pop()

    with Session(service.base_url, service.api_key) as session:
        monkeypatch.setattr(FileStore, "_execute_once_free", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.me()
        join_threads()
        session.me()

    assert not recwarn.list


ODD: list[object] = [None, "soon", [], {}, [[]], -1, 10**30, 1e400, math.nan, {"a": [1, 2]}]
ROWS = ["", "{", "null", "5", "[" * 100_000, "9" * 5000, b"\xff", 5, None, 2**62]


def test_no_row_makes_a_request_fail() -> None:
    """Whatever another program wrote counts for nothing, and a write is not carried out twice."""
    with (
        stand_in(limit=10_000, limits={}) as service,
        Session(service.base_url, service.api_key, allow_writes=True) as session,
    ):
        statuses = {session.post("/v1/lists").status_code}
        join_threads()
        row = json.loads(in_file(KEPT))
        odd = [row | {name: value} for name in row for value in ODD]
        odd += [row | {name: {"a": value}} for name in MOMENTS for value in ODD]
        for text in [*ROWS, *map(json.dumps, odd)]:
            in_file(KEEP, text)
            statuses |= {session.post("/v1/lists").status_code}
            join_threads()

        assert statuses == {405}
        assert service.requests.total() == 1 + len(ROWS) + len(odd)
        assert session.shared_with == ""


# -- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize("share", ["", "http://:pw-123456@host", 5])
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
        join_threads()
        row = json.loads(in_file(KEPT))
        row["kernels"] |= dict.fromkeys(["one-1", "two-2"], time.time())
        in_file(KEEP, json.dumps(row))
        session.me()
        picture = MonitorWidget(session).snapshot()

        assert alone == ""
        assert session.shared_with == "shared with 2 other kernels"
        assert picture["source"] == "Live, shared with 2 other kernels"


# -- a server -------------------------------------------------------------------------------------


def test_sessions_share_through_redis_whatever_their_clocks_say(redis_address: str) -> None:
    """Two machines whose clocks are a minute apart use up an allowance and agree on its renewal."""

    class Ahead(Session):
        """A session on a machine whose clock is ahead."""

        _clock = staticmethod(lambda: time.time() + 60.0)

    options: dict[str, Any] = {"share": redis_address, "reset_unit": "seconds_left"}
    with stand_in(limit=5, window_s=600.0, limits={}) as service:
        sessions = [kind(service.base_url, service.api_key, **options) for kind in (Session, Ahead)]
        statuses = [sessions[number % 2].get(ME).status_code for number in range(5)]
        refused = []
        for session in sessions:
            with pytest.raises(QuotaExhaustedError) as caught, session:
                session.get(ME)
            refused.append(caught.value.until)
        sent = [len(session.recording) for session in sessions]

    now = time.time()
    assert (statuses, sent) == ([200] * 5, [3, 2])
    assert refused == [pytest.approx(now + ahead + 600.0, abs=25.0) for ahead in (0.0, 60.0)]


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
            join_threads()
            if how != "wrong password":
                server.kill()
                server.wait()
            with pytest.warns(UserWarning, match="paces alone: Redis at 127.0.0.1") as warned:
                statuses += [session.get(ME).status_code for _ in range(3)]

    assert set(statuses) == {200}
    assert len(warned) == 1
    assert "open" not in str(warned[0].message)


class ForgetfulServer(socketserver.StreamRequestHandler):
    """A Redis server whose keys others always change, each call after ``latency_s``."""

    latency_s = 0.0

    def handle(self) -> None:
        while parts := self.rfile.readline():
            command = [self.read() for _ in range(int(parts[1:]))]
            threading.Event().wait(self.latency_s)
            kept = b"*2\r\n$20\r\n%020d\r\n*2\r\n$1\r\n1\r\n$1\r\n1\r\n" % time.monotonic_ns()
            replies = {b"EVAL": kept, b"HELLO": b"%1\r\n$5\r\nproto\r\n:3\r\n"}
            self.wfile.write(replies.get(command[0], b"+OK\r\n"))

    def read(self) -> bytes:
        size = int(self.rfile.readline()[1:])
        return self.rfile.read(size + 2)[:size]


@pytest.fixture(params=[0.0, 0.9], ids=["always changed", "slow"])
def forgetful(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("redis", reason="redis-py is not installed (the extra `redis`)")
    monkeypatch.setattr(ForgetfulServer, "latency_s", request.param)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), ForgetfulServer) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        server.shutdown()


def test_one_deadline_is_all_that_a_server_can_cost(forgetful: str, service: StandIn) -> None:
    """Half a second once, however often it answers, and no event loop stands still for it."""

    async def send(session: Session) -> tuple[float, float]:
        began = last = time.monotonic()
        longest_s = 0.0
        sending = asyncio.ensure_future(session.async_client.get(ME))
        while not sending.done():
            await asyncio.sleep(0.01)
            longest_s, last = max(longest_s, time.monotonic() - last), time.monotonic()
        await sending
        await session.aclose()
        return last - began, longest_s

    session = Session(service.base_url, service.api_key, share=forgetful)
    with pytest.warns(UserWarning, match=r"Redis at 127.0.0.1:\d+ fails \(TimeoutError\)"):
        took_s, longest_s = asyncio.run(send(session))

    assert took_s < 1.0
    assert longest_s < 0.3


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
