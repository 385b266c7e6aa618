"""What a user sees of an error, in a notebook and from httpx's own clients."""

import asyncio
import json
import re
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import httpx
import pytest
from faulty_service import FaultyService
from IPython.core.interactiveshell import InteractiveShell

import directmail_lab as dm
from directmail_lab.credentials import ApiKey
from directmail_lab.display import wrapped
from directmail_lab.sessions.session import Session, on_reading
from directmail_lab.tracebacks import show_warnings_in_ipython

KEY = "k-7Qf2-not-to-be-seen"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[str], list[str]]]:
    """Run a cell in a real IPython shell, and return the lines that it prints."""
    shell = InteractiveShell.instance(user_ns={"dm": dm})

    def in_shell(cell: str) -> list[str]:
        shell.run_cell(cell)
        return capsys.readouterr().out.splitlines()

    yield in_shell
    shell.restore_sys_module_state()
    InteractiveShell.clear_instance()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_cell_shows_its_own_line_and_one_message(run):
    address = f"http://127.0.0.1:{free_port()}"
    dm.connect(address, KEY, pace="off")
    nothing = f"ConnectError: No server responds at {address} ("
    for cell, message in {
        "dm.me()": nothing,
        "await dm.session().me_async()": nothing,
        "dm.session().post('/v1/letters')": "WriteRefusedError: POST would change something",
        "dm.replay('none')": "CassetteNotFoundError: There is no cassette 'none'",
    }.items():
        where, *said = run(cell)

        assert where.endswith(f", line 1: {cell}")
        assert " ".join(said).startswith(message)
    dm.logout()
    outer, inner, *_ = run("def ask():\n    return dm.me()\n\nask()")
    assert outer.endswith(", line 4: ask()")
    assert inner.endswith(", line 2: return dm.me()")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("dm.rate_limit", "AttributeError: .* Did you mean rate_limits\\?"),
        ("dm.replay('frist-look')", "CassetteNotFoundError: .* Did you mean 'first-look'\\?"),
        ("dm.replay(5)", "CassetteError: A cassette is a name or a Path"),
        ("dm.interactions(5)", "ValueError: 5 is not a source"),
        ("dm.get('/v1/lists', parms={})", "TypeError: .* no option parms. Did you mean params\\?"),
        (
            "dm.get('/v1/lists', limit=3)",
            r'TypeError: dm.get.* no option limit.*={"limit": 3}\. See',
        ),
        ("dm.get(5)", "ValueError: This request cannot be made"),
        ("dm.pages('/v1/lists', page=2)", "ValueError: page= is the name of a parameter"),
        ("dm.get_many(5)", "ValueError: dm.get_many.. takes a list"),
        ("dm.get_many([], concurrency=0)", "ValueError: concurrency must be"),
        ("dm.pages('/v1/lists', max_pages='x')", "ValueError: max_pages must be"),
        ("dm.record('tour', redact=[5])", "ValueError: redact must be a list of strings"),
        ("dm.record('tour', match_on='method')", "ValueError: match_on must be a list"),
        ("dm.record('tour', ignore=[5])", "ValueError: ignore must be a list of strings"),
        ("dm.record('tour', ignore='key')", "ValueError: 'key' names nothing to ignore. Give q"),
        ("dm.replay('first-look', timing=-1.0)", "ValueError: timing must be"),
        ("dm.drift('first-look', ignore=5)", "ValueError: ignore must be a list of strings"),
        ("dm.connect(max_wait=5)", "TypeError: dm.connect.. has no option max_wait. Did.*wait_s"),
        ("dm.connect(max_wait_s='x')", "ValueError: max_wait_s must be a number"),
        ("dm.stand_in(window_s=0)", "ValueError: window_s must be"),
        ("dm.replay('first-look', repeat='often')", 'ValueError: repeat must be one of "last", "s'),
        ("dm.record('tour', record_mode='new')", 'ValueError: record_mode must be one of "u'),
        ("dm.Session('https://a.b', pace='fast')", 'ValueError: pace must be one of "burst", "e'),
        ("dm.connect(reset_unit='days')", 'ValueError: reset_unit must be one of "seconds'),
        ("dm.login(timeout=3)", "TypeError: dm.login.. has no option timeout. Did.*timeout_s"),
        (
            "dm.record('tour', mode='all')",
            "TypeError: dm.record.. has no option mode. Did.*record_mode",
        ),
    ],
)
def test_a_wrong_argument_is_reported_in_two_lines(run, account, cell, message):
    dm.connect()
    where, *said = run(cell)

    assert where.endswith(f", line 1: {cell}")
    assert re.match(message, " ".join(said))
    assert max(map(len, said)) <= 80
    assert not account.requests


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("dm.get('/v1/campaigns/archived')", "dm.get('/v1/campaigns/archived')"),
        ("dm.get('/v1/users/12345678901234')", "dm.get('/v1/users/12345678901234')"),
        ("dm.get('/v1/users/k9Lq2Xr9LwT4bZkQ/x')", "dm.get('/v1/users/…/x')"),
        ("dm.get('/v1/users?api_key=hunter-hunter')", "dm.get('/v1/users…')"),
        ("dm.get('https://hunter@a.test/v1/users')", "dm.get('https://…/v1/users')"),
        ("dm.replay('hunter-hunter-hunter')", "dm.replay('…')"),
    ],
)
def test_a_shown_line_has_the_path_but_nothing_that_may_be_a_key(run, cell, shown):
    where, *_ = run(cell)

    assert where.endswith(f", line 1: {shown}")


def test_pages_that_are_not_requested_yet_say_how_to_get_them(run, account):
    """`dm.pages(…)` alone in a cell requests nothing, and so has no table to show."""
    dm.connect()
    said = run(f"dm.pages('/v1/lists/{account.api_key}')")

    assert "<Pages of GET /v1/lists/<API_KEY>: each is requested when a loop asks" in said[-1]
    assert "dm.frame(dm.pages(…))" in said[-1]
    assert not account.requests


def test_a_warning_has_two_parts_and_no_line_of_ours(run, account, monkeypatch):
    """JupyterLab would break a long line within a word."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    show_warnings_in_ipython()
    dm.connect()
    account.fault(path="/v1/lists", body=json.dumps({"items": [{"id": 1}], "page": 1, "total": 2}))
    with pytest.warns(UserWarning, match="one page") as caught:
        run("frame = dm.frame(dm.get('/v1/lists'))")
    shown = warnings.formatwarning(str(caught[0].message), caught[0].category, "cell.py", 1)

    assert shown.splitlines() == [
        "Warning: This is one page of a list: 1 of 2 records.",
        'For all: dm.frame(dm.pages("/v1/lists")).',
    ]


def test_a_long_message_is_wrapped_but_not_its_code():
    call = 'record("tour", record_mode="new_episodes", redact=["personal"], match_on=["method"])'
    lines = wrapped(f"{'word ' * 30}\nTo record it: {call}. {'word ' * 30}").splitlines()

    assert [line for line in lines if len(line) > 80] == [f"{call}."]
    assert lines[1] == ("word " * 14).strip()


def test_the_debugger_still_has_the_frames(run):
    run("dm.replay('none')")

    assert "find_cassette" in [frame.name for frame in traceback.extract_tb(sys.last_traceback)]


def test_an_interrupt_is_reported_in_two_lines(run, connected):
    interrupt = mock.Mock(side_effect=KeyboardInterrupt)
    stop = on_reading(connected, interrupt)
    _, message, _ = run("dm.me()")
    stop()

    assert message.startswith("KeyboardInterrupt: GET /v1/users/me was interrupted.")
    assert len(dm.me()) == 1


@pytest.mark.parametrize(
    "fault", [{"cut_after": 20}, {"headers": {"Content-Encoding": "gzip"}}], ids=str
)
def test_the_error_for_a_broken_body_shows_nothing_of_the_body(run, fault):
    run("%xmode Verbose")
    with FaultyService(api_key=KEY, user={"echo": KEY}) as service, service.fault(**fault):
        dm.connect(service.base_url, ApiKey(KEY), pace="off")
        lines = run("dm.me()")

    assert "Traceback" not in lines[0]
    assert KEY not in "\n".join(lines)


def planted_bug(*_: Any, **__: Any) -> Any:
    """Stand in for a function of the package: raise an error while a local contains the key."""
    held = {"sent": f"{KEY}:"}
    try:
        return held["missing"]
    except KeyError as error:
        raise LookupError("planted") from error


async def planted_async_bug(*_: Any, **__: Any) -> Any:
    return planted_bug()


@pytest.mark.parametrize(
    ("place", "cell"),
    [
        ("directmail_lab.sessions.frames._column", "dm.me()"),
        ("httpx.HTTPTransport.handle_request", "dm.me()"),
        ("httpx.AsyncHTTPTransport.handle_async_request", "await dm.session().me_async()"),
        ("httpx.Response.iter_raw", "dm.me()"),
        (
            "directmail_lab.sessions.session.trust_origin",
            "dm.connect(api_key=__import__('os').getenv('DIRECTMAIL_API_KEY'))",
        ),
        # in another thread
        ("httpx.HTTPTransport.handle_request", "raise dm.get_many(['/v1/users/me'])[0]"),
    ],
)
def test_the_traceback_of_a_bug_shows_the_line_but_not_the_key(run, monkeypatch, place, cell):
    """IPython's verbose traceback and ``pytest --showlocals`` still name the file and the line."""
    run("%xmode Verbose")
    with FaultyService(api_key=KEY, user={"echo": KEY}) as service:
        monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
        monkeypatch.setenv("DIRECTMAIL_API_KEY", KEY)
        dm.connect(pace="off")
        with monkeypatch.context() as planting:
            planting.setattr(place, planted_async_bug if "async" in place else planted_bug)
            shown = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(run(cell)))
    caught = pytest.ExceptionInfo.from_exception(sys.last_value)
    with_locals = str(caught.getrepr(showlocals=True, tbfilter=False))
    line = planted_bug.__code__.co_firstlineno + 6

    for text in (shown, with_locals):
        assert f"{__file__}:{line}" in text
        assert "KeyError: 'missing'" in text
        assert "LookupError: planted" in text
        assert KEY not in text


def test_the_traceback_of_a_body_that_the_caller_reads_does_not_show_the_key(monkeypatch):
    """Its frames are below a loop of the caller, and not below a call of ours."""
    read = "httpcore._sync.http11.HTTP11Connection._receive_response_body"
    with FaultyService(api_key=KEY) as service, Session(service.base_url, ApiKey(KEY)) as session:
        with session.client.stream("GET", "/v1/users/me") as response:
            monkeypatch.setattr(read, planted_bug)
            with pytest.raises(LookupError, match="planted") as caught:
                list(response.iter_raw())
        shown = str(caught.getrepr(showlocals=True, tbfilter=False))

    assert "http11.py" in shown
    assert KEY not in shown


def test_a_bug_leaves_the_locals_of_an_exception_that_the_caller_handles(monkeypatch):
    """These locals belong to the caller, who may inspect them in the debugger."""

    def fail() -> None:
        mine = 1
        raise KeyError(mine)

    monkeypatch.setattr("directmail_lab.sessions.frames._column", planted_bug)
    try:
        fail()
    except KeyError as handled:
        with pytest.raises(LookupError, match="planted"):
            dm.frame({"a": 1})
        *_, (frame, _) = traceback.walk_tb(handled.__traceback__)

    assert frame.f_locals == {"mine": 1}


def test_https_to_a_plain_http_port_is_reported():
    """The error blames neither the certificate nor the network."""

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:
        thread.submit(answer)
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        with (
            Session(address, ApiKey(KEY), pace="off") as session,
            pytest.raises(httpx.ConnectError, match="does not respond with https") as caught,
        ):
            session.me()

    assert caught.value.advice.endswith(f"its address may be {address.replace('https', 'http')}.")


async def stream(session: Session, *request: str, **options: Any) -> None:
    async with session.async_client.stream(*request, **options):
        pass


@pytest.mark.parametrize(
    "send",
    [
        lambda _, path, body: dm.post(path, json=body),
        lambda _, path, body: dm.request("PUT", path, json=body),
        lambda _, __, body: list(dm.pages("/v1/nowhere", params=body)),
        lambda session, path, body: session.delete(path, headers=body),
        lambda session, path, body: session.client.patch(path, json=body),
        lambda session, path, body: session.client.request("POST", path, json=body),
        lambda session, path, body: session.client.stream("POST", path, json=body).__enter__(),
        lambda session, path, body: asyncio.run(session.async_client.post(path, json=body)),
        lambda session, path, body: asyncio.run(stream(session, "POST", path, json=body)),
    ],
)
def test_no_frame_of_ours_or_of_httpx_shows_what_was_sent(connected, send):
    """A tool that prints locals shows those of the user's own frames alone."""
    with pytest.raises(dm.DirectMailLabError) as caught:
        send(connected, f"/v1/{KEY}", {"Key": KEY})
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
    shown = {each.filename for each in frames if KEY in str(each.locals)}

    assert shown == {__file__}


def test_a_cell_prints_how_many_of_many_requests_failed(run, connected):
    """A warning would be a red box with a line of code."""
    line, *_ = run("dm.get_many(['/v1/users/me', '/v1/nowhere'])")

    assert line.startswith("1 of 2 requests failed; the first, [1]: GET /v1/nowhere responded with")
