"""Use one key in every possible way, then search every byte that came out for it.

This module does not know how redaction works: `key_search` decodes whatever can be decoded and
looks for the key itself. `test_redaction` shows that each rule is needed.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import functools
import gc
import io
import itertools
import json
import logging
import os
import pickle
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pandas as pd
import pytest
import test_clients
from faulty_service import FaultyService
from key_search import planted, traces
from marks import rest_slow
from test_clients import OWN, PATCHED, Blocking, opened

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.credentials import ApiKey, known_keys
from directmail_lab.errors import DirectMailLabError, WriteRefusedError
from directmail_lab.notebook.browser_data import handle_request
from directmail_lab.questions.cells import shown
from directmail_lab.server.loopback import cassette_server
from directmail_lab.sessions.clients.refusals import check
from directmail_lab.sessions.current import make_current
from directmail_lab.sessions.session import Session, open_cassette

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from directmail_lab.cassettes import Recording, SessionRecording

KEY = "kQ7-vT2_xZ9bLw4RnE8sYh3JdF6mGcU1"
# A credential that the redactor does not know. Only its place shows what it is.
UNKNOWN = "Wy5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"


class Haul:
    """Everything that came out of the package, with its source."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, bytes]] = []
        self.log = io.StringIO()

    def add(self, where: str, what: object) -> None:
        data = what if isinstance(what, bytes) else str(what).encode("utf-8", "surrogatepass")
        self.pieces.append((where, data))

    def add_error(self, where: str, error: BaseException, *, of: str = "") -> None:
        """Add all that a notebook could print of an error.

        The locals of frames are added for files whose path contains ``of``.
        """
        self.add(where, f"{error} {error!r} {getattr(error, '__notes__', '')}")
        self.add(f"{where}, attributes", repr(getattr(error, "__dict__", {})))
        chain: BaseException | None = error
        seen: list[BaseException] = []
        while chain is not None and chain not in seen:
            seen.append(chain)
            for frame, _ in traceback.walk_tb(chain.__traceback__):
                # The test's own frames contain the key, because the test defines it.
                file = frame.f_code.co_filename
                if of in file and file not in (__file__, test_clients.__file__):
                    shown = {name: repr(value) for name, value in frame.f_locals.items()}
                    self.add(f"{where}, locals of {frame.f_code.co_name}", shown)
            chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)

    def leaks(self, *secrets: str) -> list[str]:
        lines = {line: where for where, data in self.pieces for line in data.split(b"\n")}
        return [
            f"{where}: {how}"
            for line, where in lines.items()
            for secret in secrets
            for how in traces(line, secret)[:1]
        ]


@pytest.fixture
def service() -> Iterator[FaultyService]:
    with FaultyService(api_key=KEY, limit=100_000) as started:
        yield started


@pytest.fixture
def haul() -> Iterator[Haul]:
    """A haul that also collects everything that is logged at DEBUG level."""
    haul, root = Haul(), logging.getLogger()
    handler, level = logging.StreamHandler(haul.log), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield haul
    root.removeHandler(handler)
    root.setLevel(level)


def attempt(
    haul: Haul,
    where: str,
    call: Callable[..., object],
    *args: object,
    frames_of: str = "",
    **options: object,
) -> None:
    try:
        result = call(*args, **options)
        haul.add(where, result.to_csv() if isinstance(result, pd.DataFrame) else repr(result))
    except (DirectMailLabError, httpx.HTTPError) as error:
        haul.add_error(where, error, of=frames_of)


def drive(service: FaultyService, haul: Haul) -> None:
    with Session(service.base_url, ApiKey(KEY), timeout_s=60.0, pace="off") as session:
        session.record("sweep")
        responses(service, session, haul)
        objects(session, haul)
        requests(service, session, haul)
        no_answers(service, session, haul)
        no_room(service, session, haul)
        clients(service, session, haul)
        many(service, session, haul)
        asked(session, haul)
        served(haul)
        kept = session.recording
    closed(session, kept, haul)
    # This tests the file with the shared allowance.
    with Session(service.base_url, ApiKey(KEY)) as paced:
        paced.me()
    for path in Path.cwd().rglob("*"):
        if path.is_file():
            haul.add(path.name, path.read_bytes())
    haul.add("log", haul.log.getvalue())


def faults() -> Iterator[dict[str, Any]]:
    """Yield faults: the service echoes the key in every encoding, or sends other credentials."""
    for status in (401, 403, 500):
        yield {"status": status, "echo_key": True}
    yield {"status": 500, "echo_key": True, "encoding": "gzip"}
    yield {"echo_key": True, "encoding": "deflate"}
    for content_type in ("text/html", "application/json"):
        yield {"body": f"<p>{KEY}", "headers": {"Content-Type": content_type}}
    yield {"redirect_to": f"/v1/login?next=/{KEY}&k={KEY}#{KEY}"}
    yield {"headers": {"Location": f"https://me:{UNKNOWN}@elsewhere.test/"}}
    yield {"headers": {"X-RateLimit-Reset": KEY}}
    for form in planted(KEY).values():
        yield {"body": form, "status": 500}
        if form.isascii() and b"\0" not in form:
            yield {"headers": {"X-Echo": form.decode(), "Location": f"/{form.decode()}"}}


def responses(service: FaultyService, session: Session, haul: Haul) -> None:
    session.me()
    for fault in faults():
        with service.fault(**fault):
            attempt(haul, f"me(), {list(fault)}", session.me)
            attempt(haul, f"request(), {list(fault)}", session.request, "GET", "/v1/users/me")
    with service.fault(body=json.dumps({"keys": {KEY: {"n": 1}}})), session.live():
        session.request("GET", "/v1/keys")


def no_answers(service: FaultyService, session: Session, haul: Haul) -> None:
    """Let requests fail in every mode, from the sync and the async client."""
    read = functools.partial(session.request, "GET", "/v1/users/me")
    for mode in (session.live, functools.partial(session.record, "failing")):
        with mode() as within:
            with service.fault(drop="reset"):
                attempt(haul, f"{within.mode}, reset", read)
            with service.fault(cut_after=5, body=KEY):
                attempt(haul, f"{within.mode}, cut body", read)
            # h11 refuses this header while the header with the key is beside it.
            attempt(haul, f"{within.mode}, illegal header", read, headers={"X-Mine": "a\nb"})
            with service.fault(latency_s=1.0):
                attempt(haul, f"{within.mode}, timeout", read, timeout=0.05)
    with service.fault(drop="reset"), session.live():
        attempt(haul, "live, reset, async", lambda: asyncio.run(in_a_task(session)))


async def in_a_task(session: Session) -> None:
    """Send a request as an async cell does, and leave no connection open."""
    session.async_client.headers["Connection"] = "close"
    await session.me_async()


def no_room(service: FaultyService, session: Session, haul: Haul) -> None:
    """Fill the disk while a response echoes the key, for the sync and the async client."""

    def full(name: str, call: Callable[[], object]) -> None:
        with service.fault(echo_key=True), session.record(name), pytest.MonkeyPatch.context() as on:
            on.setattr(os, "write", refuse_to_write)
            call()

    attempt(haul, "disk full", full, "full", session.me)
    in_task = functools.partial(asyncio.run, in_a_task(session))
    attempt(haul, "disk full, async", full, "full-async", in_task)


def clients(service: FaultyService, session: Session, haul: Haul) -> None:
    faults: tuple[dict[str, Any], ...] = (
        {"echo_key": True},
        {"drop": "reset"},
        {"cut_after": 60, "echo_key": True},
        {"body": KEY, "headers": {"Content-Encoding": "gzip"}},
        {"body": KEY, "headers": {"Content-Encoding": "gzip, gzip"}},
    )
    modes = session.live, functools.partial(session.record, "clients")
    for name, enter in itertools.product([*OWN, *PATCHED], modes):
        # We cannot change the frames of the clients of the code under test.
        frames_of = "directmail_lab" if name in PATCHED else ""
        with enter() as within, opened(name, session) as client:
            ask = functools.partial(sent, client, f"{service.base_url}/v1/users/me")
            for fault in faults:
                with service.fault(**fault):
                    where = f"{name}, {within.mode}, {list(fault)}"
                    attempt(haul, where, ask, frames_of=frames_of)
            haul.add(f"repr of {name}", repr(client.client))


def sent(client: Blocking, url: str) -> int:
    return client.send("GET", url).status


def refuse_to_write(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def requests(service: FaultyService, session: Session, haul: Haul) -> None:
    basic = base64.b64encode(f"{UNKNOWN}:".encode()).decode()
    for options in (
        {"params": {"q": KEY, "k" + KEY: "1"}},
        {"params": {"api_key": UNKNOWN}},
        {"params": {"client_secret": UNKNOWN}},
        {"headers": {"X-Mine": KEY}},
        {"headers": {"Authorization": f"Basic {basic}", "Cookie": f"session={UNKNOWN}"}},
        {"json": {"key": KEY}},
        {"data": {"key": KEY}},
        {"files": {"f": (KEY, KEY.encode())}},
    ):
        attempt(
            haul, f"request with {list(options)}", session.request, "GET", "/v1/keys", **options
        )
    attempt(haul, "path", session.request, "GET", f"/v1/keys/{KEY}")
    with service.fault(redirect_to=f"http://{KEY.replace('_', '-')}.test/"):
        followed = functools.partial(session.get, "/v1/users/me", follow_redirects=True)
        attempt(haul, "refused redirect", followed)
    # httpx's client keeps the cookie too.
    with service.fault(headers={"Set-Cookie": f"s={UNKNOWN}"}):
        attempt(haul, "cookie", session.me)
    for mode in (session.live, functools.partial(session.record, "refusing")):
        with mode(), pytest.raises(WriteRefusedError) as refused:
            session.request("POST", f"/v1/letters/{KEY}")
        # Without locals: those of httpx and of the cell contain the address that the caller wrote.
        haul.add("refused write", f"{refused.value} {refused.value!r} {vars(refused.value)}")


def objects(session: Session, haul: Haul) -> None:
    response = session.request("GET", "/v1/users/me")
    shown: list[Any] = [session, session.client, session.async_client, session.recording, response]
    shown += [response.request, response.request.headers, response.headers, response.extensions]
    shown += [session.recording.readings(), session.live(), session.record("places")]
    for thing in shown:
        haul.add(f"repr of {type(thing).__name__}", repr(thing))
        # The recording keeps unredacted messages in memory, and shows none.
        if thing is not session.recording:
            haul.add(f"vars of {type(thing).__name__}", repr(getattr(thing, "__dict__", "")))
        try:
            haul.add(f"pickle of {type(thing).__name__}", pickle.dumps(thing))
        except (TypeError, AttributeError, DirectMailLabError, pickle.PicklingError) as error:
            haul.add_error(f"pickle of {type(thing).__name__}", error)
    for name in dir(session):
        if not name.startswith("__") and name != "_api_key":
            haul.add(f"repr of session.{name}", repr(getattr(session, name)))


def many(service: FaultyService, session: Session, haul: Haul) -> None:
    make_current(session)
    for fault in ({"drop": "reset"}, {"cut_after": 5, "body": KEY}, {"status": 500}):
        with service.fault(**{"echo_key": True, **fault}):
            with warnings.catch_warnings(record=True, action="always") as said:
                results = dm.get_many(["/v1/users/me", "/v1/lists"])
            haul.add(f"what get_many() says, {fault}", "".join(str(each.message) for each in said))
            for got in results:
                if isinstance(got, Exception):
                    haul.add_error(f"get_many(), {fault}", got)
                else:
                    haul.add(f"get_many(), {fault}", repr(got))
    for elsewhere in (f"https://elsewhere.test/{KEY}", f"https://me:{UNKNOWN}@elsewhere.test/"):
        link = {"Link": f'<{elsewhere}>; rel="next"', "Content-Type": "application/json"}
        for headers, body in ((link, "[1]"), ({}, json.dumps({"data": [1], "next": elsewhere}))):
            with service.fault(headers=headers, body=body):
                attempt(haul, "pages()", lambda: list(dm.pages("/v1/users/me")))


def asked(session: Session, haul: Haul) -> None:
    make_current(session)
    cassette = Path("cassettes/sweep.yaml")
    questions("session", session, session.recording, haul)
    questions("file", cassette, read_cassette(cassette), haul)
    with session.live():
        haul.add("drift", dm.drift("sweep").to_csv())


def closed(session: Session, kept: SessionRecording, haul: Haul) -> None:
    """Check that the key is forgotten, and ask the questions about the closed session."""
    assert is_forgotten()
    questions("closed session", session, kept, haul)


def is_forgotten() -> bool:
    """Return whether the key is gone, after waiting for another thread that may collect it."""
    until = time.monotonic() + 10
    while KEY in known_keys() and time.monotonic() < until:
        gc.collect()  # a session and its transports refer to each other
    return KEY not in known_keys()


def questions(where: str, source: Session | Path, recording: Recording, haul: Haul) -> None:
    for question in (dm.findings, dm.interactions, dm.rate_limits, dm.check_contract):
        haul.add(f"{question.__name__}() of the {where}", question(source).to_csv())
    for number in range(1, len(recording) + 1):
        view = dm.interactions(source, number=number)
        haul.add(f"interaction {number} of the {where}", f"{view!r}{view._repr_html_()}")
    shown = dm.browse(source)
    asked = {"action": "select", "request_id": 1, "number": len(recording)}
    shown.receive("request", [json.dumps(asked).encode()])  # shown in full below the table
    haul.add(f"browser of the {where}", [repr(shown), shown.get_state(), shown.static_output()])
    shown.close()  # it follows the current session, and so keeps it alive
    haul.add(f"document of the {where}", json.dumps(dm.openapi(source), indent=0))
    answers(recording, haul)


def answers(recording: Recording, haul: Haul) -> None:
    asked: list[dict[str, object]] = [{"action": "list", "first": 1, "limit": 999}]
    for number in range(1, len(recording) + 1):
        asked += [{"action": "detail", "number": number}]
        asked += [
            {"action": "copy", "number": number, "format": kind} for kind in ("curl", "request")
        ]
    for each in asked:
        told, bodies = handle_request(recording, each)
        haul.add(f"page, {each}", json.dumps(told, indent=0))
        haul.add(f"page, {each}", b"\n".join(bodies))


def served(haul: Haul) -> None:
    with cassette_server([Path("cassettes/sweep.yaml")]) as server:
        for path in ("/v1/users/me", f"/v1/keys/{KEY}", "/v1/nowhere"):
            response = httpx.get(f"{server.base_url}{path}")
            haul.add(f"served, {path}", f"{response.headers} {response.text}")


@pytest.mark.slow
def test_no_output_contains_the_key(service, haul):
    """Files, logs, errors with the locals of our frames, reprs and pickles are all decoded."""
    drive(service, haul)

    assert haul.leaks(KEY, UNKNOWN) == []
    assert len(haul.pieces) > 100
    for reached in (b"the body is not JSON", b"ReadTimeout", b"could not be written"):
        assert any(reached in piece for _, piece in haul.pieces), reached
    assert "x-echo" in Path("cassettes/sweep.yaml").read_text(encoding="utf-8").lower()


def replace(_: Session) -> None:
    dm.connect("http://127.0.0.1:9", "another-key")


def ended(service: FaultyService, haul: Haul, end: Callable[[Any], object]) -> list[Recording]:
    """Return the recordings of a session that has ended."""
    session = dm.connect(service.base_url, KEY)
    session.client.headers["Connection"] = "close"
    session.record("kept")
    responses(service, session, haul)
    session.replay("kept")
    session.me()
    played = session.recording
    session.live()
    kept = session.recording  # not read yet, because reading would teach it the key
    with service.fault(echo_key=True), session.client.stream("GET", "/v1/users/me") as halfway:
        end(None if end is make_current else session)
        halfway.read()
    return [kept, played]


@pytest.mark.parametrize(
    "end", rest_slow([Session.close, lambda _: dm.logout(), make_current, replace])
)
def test_recordings_outlive_their_session_without_the_key(service, haul, end):
    """The session may be closed, logged out, dropped or replaced, during a response too."""
    kept, played = ended(service, haul, end)
    make_current(None)
    was_forgotten = is_forgotten()
    for where, recording in (("kept", kept), ("played", played)):
        haul.add(where, list(recording))
        answers(recording, haul)

    assert was_forgotten
    assert haul.leaks(KEY) == []
    assert any(b"<API_KEY>" in piece for _, piece in haul.pieces)


@pytest.mark.parametrize("mode", ["replay", "record"])
def test_another_programs_credentials_are_neither_replayed_nor_shown(service, haul, mode):
    """The caller gets stand-ins for the cookie and the token, and its requests match with them."""
    base, path = service.base_url, Path("foreign.yaml")
    basic = base64.b64encode(f"{UNKNOWN}:".encode()).decode()
    known = {"Authorization": [f"Basic {basic}"], f"X-{UNKNOWN}": [UNKNOWN]}
    echo = {"access_token": UNKNOWN, "echo": f"it is {UNKNOWN}", UNKNOWN: basic}
    body = {"string": json.dumps(echo)}
    headers = {"Content-Type": ["application/json"], "Set-Cookie": [f"token={UNKNOWN}; Path=/"]}
    headers |= {"X-RateLimit-Reset": [UNKNOWN], "X-Echo": [UNKNOWN]}
    interactions = [
        {
            "request": {"method": "GET", "uri": f"{base}{where}", "headers": sent, "body": ""},
            "response": {
                "status": {"code": status, "message": f"Not {UNKNOWN}"},
                "headers": headers,
                "body": body,
            },
        }
        for where, sent, status in (("/v1/login", {}, 200), (f"/v1/of/{UNKNOWN}", known, 403))
    ]
    path.write_text(json.dumps({"version": 1, "interactions": interactions}))
    session = dm.connect(base, KEY)
    enter = functools.partial(dm.record, record_mode="any") if mode == "record" else dm.replay
    enter(path)
    login = dm.get("/v1/login")
    token = login.json()["access_token"]
    again = dm.get(f"/v1/of/{token}", headers={"Authorization": f"Bearer {token}"})
    attempt(haul, "check", check, again, session.base_url)
    # The frames contain what this test passed to them.
    attempt(haul, "missing", dm.get, f"/v1/no/{token}?api_key={token}", frames_of="no file")
    if mode == "record":
        dm.get("/v1/users/me")
    haul.add("responses", [repr(login), repr(again), repr(session), repr(open_cassette(session))])
    haul.add("cells", [shown(login), shown(again)])
    haul.add("recording", [repr(session.recording), repr(vars(open_cassette(session)))])
    haul.add("file", repr([vars(read_cassette(path)), read_cassette(path)]))
    haul.add("readings", session.recording.readings())
    answers(session.recording, haul)
    haul.add("table", [ask().to_csv() for ask in (dm.interactions, dm.rate_limits, dm.findings)])
    haul.add("views", [dm.interactions(path, number=n)._repr_html_() for n in (1, 2)])
    haul.add("document", json.dumps(dm.openapi(path), indent=0))
    dm.live()
    if mode == "record":
        haul.add("cassette", path.read_bytes())
    haul.add("log", haul.log.getvalue())

    assert token == login.cookies["token"] == login.headers["X-Echo"] == "<REDACTED>"
    assert again.json()["echo"] == "it is <REDACTED>"
    sent = service.requests.total()
    assert (len(read_cassette(path)), sent) == ((3, 1) if mode == "record" else (2, 0))
    assert haul.leaks(KEY, UNKNOWN) == []
    assert any(b"<REDACTED>" in piece for _, piece in haul.pieces)
