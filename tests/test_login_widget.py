"""The sign-in form without a browser: what it receives, does, shows and keeps."""

import json
import pickle
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from test_credentials import MemoryKeyring

import directmail_lab as dm
from directmail_lab import Session, settings
from directmail_lab.cassettes import Cassette, Policy, find_cassette, read_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import CredentialError, NotConnectedError
from directmail_lab.notebook.login import LoginWidget, SignInRequest, explain, login
from directmail_lab.server.standin import StandIn
from directmail_lab.sessions import current

TYPED = ("address", "key", "remember")
SECRET = "k-7Qf2-not-to-be-seen"


class Page:
    """Stands in for the browser page: sends the form's messages and keeps what it receives."""

    def __init__(self, service: StandIn, **options: Any) -> None:
        self.form = LoginWidget(SignInRequest(**options))
        self.defaults = {"address": service.base_url, "key": service.api_key, "remember": ""}
        self.received: list[dict[str, Any]] = []
        self.form.send = lambda content, **_: self.received.append(content)

    def send(self, kind: str, *parts: str) -> dict[str, Any]:
        buffers = [memoryview(part.encode()) for part in parts]
        self.form._handle_custom_msg({"type": kind}, buffers)
        return self.received[-1]

    def sign_in(self, **typed: str) -> dict[str, Any]:
        values = self.defaults | typed
        return self.send("sign_in", *(values[n] for n in TYPED))


@pytest.fixture
def show(service: StandIn) -> Callable[..., Page]:
    return lambda **options: Page(service, **options)


@pytest.fixture
def as_in_jupyter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `login` show its form, as in a notebook of marimo."""
    marimo = types.SimpleNamespace(running_in_notebook=lambda: True)
    monkeypatch.setitem(sys.modules, "marimo", marimo)


@pytest.fixture
def page(show: Callable[..., Page]) -> Page:
    return show()


def test_signing_in_opens_the_current_session(page):
    """The key may be pasted with the colon that curl needs."""
    before = page.send("hello")
    account = page.sign_in(key=f"{page.defaults['key']}:")["account"]
    dm.get("/v1/lists")
    recording = dm.session().recording

    assert before["notice"].startswith("Without a key, dm.record(…)")
    assert page.received[-1]["notice"] == ""
    assert account["title"] == "Signed in as Stand-in User"
    assert (account["remaining"], account["limit"]) == (299, 300)
    assert [each.path for each in recording.readings()] == ["/v1/users/me", "/v1/lists"]
    assert b"usr_stand_in_1" in recording.interaction(1).response.body


@pytest.mark.parametrize(
    ("typed", "fault", "field", "words"),
    [
        ({"key": "wrong"}, {}, "key", "not accept .* 401"),
        ({"key": "schlüssel"}, {}, "key", "not plain ASCII"),
        ({"key": ""}, {}, "key", "Type your key"),
        ({"address": ""}, {}, "address", "Type the service's address"),
        ({"address": f"https://{SECRET}@h"}, {}, "address", "user name or password"),
        ({"address": "http://127.0.0.1:1"}, {}, "address", "No server responds at http://127.0"),
        # The key may be right.
        ({}, {"status": 502, "html": True}, "", "or a gateway before it, failed"),
        ({}, {"status": 429}, "", "The service refused it although"),
        ({}, {"latency_s": 1.0}, "address", "did not respond in time"),
    ],
)
def test_a_problem_is_shown_at_its_field(show, service, tmp_path, typed, fault, field, words):
    page = show(options={"timeout_s": 0.5})
    with service.fault(**fault):
        state = page.sign_in(**{"key": SECRET} | typed)
    problem = state["problem"]

    assert (state["account"], problem["field"]) == (None, field)
    assert re.search(words, problem["text"] + problem["hint"])
    assert "interactions(" not in problem["hint"]  # no session has the response
    assert SECRET not in json.dumps(page.received)
    assert service.requests.total() == (typed.get("key") == "wrong" or bool(fault))
    assert not list(tmp_path.rglob("*.yaml"))


def test_an_unexpected_error_is_reported_without_its_own_text():
    """The error's own text may contain anything, also the key."""
    problem = explain(ZeroDivisionError(f"of {SECRET}"))

    assert "unexpected error (ZeroDivisionError)" in problem["text"]
    assert SECRET not in str(problem)
    assert "(KeyboardInterrupt)" in explain(KeyboardInterrupt())["text"]


def test_a_failed_sign_in_keeps_the_session_and_signing_out_ends_it(page):
    page.sign_in()
    opened = dm.session()
    page.sign_in(key="wrong")
    after_failure = dm.session()
    page.sign_in()
    state = page.send("sign_out")

    assert after_failure is opened
    assert state["account"] is None
    assert "the key is forgotten" in state["notice"]
    with pytest.raises(NotConnectedError):
        dm.session()


def test_the_form_says_when_its_session_is_no_longer_the_current_one(page):
    """A cell that logs out or connects also changes the form; a replay keeps the session."""
    page.sign_in()
    dm.logout()
    after_logout = page.received[-1]
    page.sign_in()
    dm.replay("first-look")
    replaying = page.received[-1]
    current.make_current(current.replaying_session(read_cassette(find_cassette("first-look"))))

    assert after_logout["notice"] == "Signed out: no session is open."
    assert replaying["account"] is not None
    assert page.received[-1]["account"] is None
    assert page.received[-1]["notice"] == "Signed out: another session is the current one."


def test_running_the_cell_again_shows_who_is_signed_in(show):
    """A form with other options asks again, and says that a session is open."""
    show().sign_in()
    again = show().send("hello")
    other = show(remember=True).send("hello")

    assert again["account"]["title"] == "Signed in as Stand-in User"
    assert other["account"] is None
    assert (
        other["notice"]
        == f"A session with {dm.session().base_url} is open. Signing in replaces it."
    )


@pytest.fixture
def tour(service: StandIn) -> Path:
    """A cassette that `record` replays without a key."""
    path = Path("cassettes/tour.yaml").absolute()
    with Session(service.base_url, service.api_key) as session, session.record(path):
        session.me()
    service.requests.clear()
    return path


def test_signing_in_records_what_was_replayed_without_a_key(page, service, tour):
    """A reader signs in below `dm.record`, and goes on in the same notebook as its author."""
    dm.record("tour")
    dm.me()
    before = dict(service.requests)
    account = page.sign_in()["account"]
    dm.get("/v1/lists")
    recorded = dm.interactions("tour")["path"].tolist()

    assert before == {}
    assert account["detail"] == f"{service.base_url} · recording to tour"
    assert account["note"] == "The cells below replayed what was recorded: run them again."
    assert recorded == ["/v1/users/me", "/v1/lists"]
    assert service.api_key not in tour.read_text()


@pytest.mark.parametrize("left", ["replay", "block"])
def test_signing_in_after_another_mode_records_nothing(page, service, tour, left):
    """The notebook replays on purpose, or the block that records has ended."""
    before = tour.read_bytes()
    with dm.record("tour"):
        dm.me()
    if left == "replay":
        dm.replay("tour")
    account = page.sign_in()["account"]
    dm.get("/v1/lists")

    assert account["detail"] == service.base_url
    assert tour.read_bytes() == before


def test_a_recording_that_cannot_begin_is_told_and_the_sign_in_succeeds(page, tour):
    """Another kernel records to the same cassette."""
    dm.record("tour")
    with Cassette("tour", record_mode="all", policy=Policy(aside=True)):
        account = page.sign_in()["account"]

    assert account["note"].startswith("Nothing is recorded. Cassette 'tour' is being recorded by")
    assert dm.session().mode == "live"


def test_the_regions_are_offered(show, monkeypatch):
    """If the regions are invalid, the address can still be typed."""
    monkeypatch.setenv("DIRECTMAIL_REGIONS", "us=https://us.example.com")
    choices = show(address="us").send("hello")["choices"]
    monkeypatch.setenv("DIRECTMAIL_REGIONS", "us=http://us.example.com")
    bad = show().send("hello")

    assert choices["regions"] == [("us", "https://us.example.com")]
    assert choices["address"] == "us"
    assert bad["choices"]["regions"] == []
    assert "would send the key unencrypted" in bad["problem"]["text"]


def test_the_form_is_filled_in_from_the_environment(page, service, monkeypatch):
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", service.api_key)
    choices = page.send("hello")["choices"]
    state = page.sign_in(address=choices["address"], key="")

    assert choices["key_sources"] == {service.base_url: "DIRECTMAIL_API_KEY"}
    assert state["account"]["title"] == "Signed in as Stand-in User"
    assert service.api_key not in json.dumps(page.received)


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    ring = MemoryKeyring()
    monkeypatch.setitem(sys.modules, "keyring", types.SimpleNamespace(get_keyring=lambda: ring))
    return ring.kept


def test_a_key_is_remembered_on_request_until_one_signs_out(show, service, keyring):
    """A stand-in has another address tomorrow, so its address is not remembered."""
    page = show(address=service.base_url)
    offered = page.send("hello")["choices"]
    page.sign_in(key="wrong", remember="yes")
    page.sign_in()
    after_sign_in = dict(keyring)
    page.sign_in(remember="yes")
    remembered = dict(keyring)
    of_new_form = show().send("hello")["choices"]["address"]
    sources = page.send("hello")["choices"]["key_sources"]
    without_typing = page.sign_in(address=f"{service.base_url}/", key="")
    page.send("sign_out")

    assert (offered["keyring_problem"], offered["remember"]) == ("", False)
    assert show(remember=True).send("hello")["choices"]["remember"]
    assert after_sign_in == {}
    assert remembered == {("directmail-lab", service.base_url): service.api_key}
    assert of_new_form == ""
    assert sources == {service.base_url: "the keyring"}
    assert without_typing["account"]["title"] == "Signed in as Stand-in User"
    assert keyring == {}


@pytest.fixture
def elsewhere(service: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A service that is no stand-in of this process, whose address would not be remembered."""
    monkeypatch.setattr(settings, "_stand_ins", set())
    return service


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin as in a new process, where no session is open and no form was shown."""
    dm.session().close()
    monkeypatch.setattr(current._current, "session", None)
    monkeypatch.setattr(current._current, "asked", {})


@pytest.mark.parametrize("member", ["data", "user"])
def test_the_form_finds_the_name_in_a_wrapped_record(member):
    """The service's document does not show the record's form."""
    with dm.stand_in(user={member: {"id": 7, "full_name": "Ann"}}) as service:
        assert Page(service).sign_in()["account"]["title"] == "Signed in as Ann"


@pytest.mark.usefixtures("keyring", "as_in_jupyter")
def test_after_a_restart_the_remembered_key_and_address_sign_in(show, elsewhere, monkeypatch):
    """One click signs in and says as whom, and the calls need no click; logging out ends that."""
    show().sign_in(remember="yes")
    restart(monkeypatch)
    page = show()
    before = page.send("hello")
    address = before["choices"]["address"]
    account = page.sign_in(address=address, key="")["account"]
    restart(monkeypatch)
    connected = dm.connect().base_url
    restart(monkeypatch)
    dm.record("tour")
    dm.me()
    restart(monkeypatch)
    dm.me()
    dm.logout()

    assert (address, connected) == (elsewhere.base_url, elsewhere.base_url)
    assert before["notice"] == ""  # and not that dm.record(…) replays
    assert account["title"] == "Signed in as Stand-in User"
    assert dm.interactions("tour")["source"].tolist() == ["recorded"]
    with pytest.raises(NotConnectedError, match="No session is open"):
        dm.me()
    assert show().send("hello")["choices"]["address"] == ""


@pytest.mark.usefixtures("keyring", "as_in_jupyter")
def test_on_day_two_the_cells_below_the_form_need_no_click(show, service, monkeypatch):
    """Run All opens the session that the form asks for, with its options, and the form shows it."""
    show().sign_in(remember="yes")
    restart(monkeypatch)
    form = login(base_url=service.base_url, allow_writes=True)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(form, "send", sent.append)
    dm.record("report")
    dm.me()

    assert (dm.session().mode, dm.session().allow_writes) == ("record", True)
    assert sent[-1]["account"] == {"title": "Signed in", "detail": service.base_url}


def test_two_accounts_at_one_address_have_two_keys(show, elsewhere, keyring, monkeypatch):
    """Without a name, the key is that of the account that is remembered."""
    regions = f"ours={elsewhere.base_url},theirs={elsewhere.base_url}"
    monkeypatch.setenv("DIRECTMAIL_REGIONS", regions)
    page = show()
    first = page.send("hello")["choices"]
    page.sign_in(address="theirs", remember="yes")
    sessions = [dm.connect("theirs"), dm.connect()]
    with pytest.raises(CredentialError, match="No key was found"):
        dm.connect("ours")
    after = page.send("hello")["choices"]
    dm.logout()

    assert first["address"] == "ours"
    assert [session.base_url for session in sessions] == [elsewhere.base_url] * 2
    assert after["key_sources"] == {"ours": "", "theirs": "the keyring"}
    assert keyring == {}


def test_a_key_that_no_keyring_stores_is_reported_after_signing_in(show, monkeypatch):
    fail = types.SimpleNamespace(priority=0)
    monkeypatch.setitem(sys.modules, "keyring", types.SimpleNamespace(get_keyring=lambda: fail))
    page = show()
    problem = page.send("hello")["choices"]["keyring_problem"]
    account = page.sign_in(remember="yes")["account"]

    assert problem == "No keyring works on this machine."
    assert "No keyring works on this machine" in account["note"]


def test_no_form_shows_or_keeps_the_key(page, service):
    form = page.form
    before = form.get_state()
    parts = [text.encode() for text in (service.base_url, service.api_key, "")]
    form._handle_custom_msg({"type": "sign_in"}, parts)
    seen = [form.get_state(), vars(form), repr(form), form._repr_mimebundle_(), page.received]

    assert dm.session().base_url == service.base_url
    assert form.get_state() == before
    assert service.api_key not in repr(seen)
    assert parts == []
    assert "Run this cell" in repr(form)
    assert "No form? Install anywidget and ipywidgets where JupyterLab runs" in repr(form)
    with pytest.raises((CredentialError, TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(form)


def test_login_asks_two_questions_at_a_terminal(service, monkeypatch, capsys):
    """Plain Python has no form, so `login` asks for the address and, hidden, for the key."""
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: service.base_url)
    key = ApiKey(service.api_key)
    monkeypatch.setattr("directmail_lab.credentials.prompt_api_key", lambda: key)
    session = login()

    assert capsys.readouterr().out == "Signed in as Stand-in User\n"
    assert session is dm.session()


def test_login_in_a_script_without_a_terminal_says_what_to_do(monkeypatch):
    """A script without a terminal must not hang."""
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: False))
    with pytest.raises(NotConnectedError, match=r"(?s)needs a notebook or a terminal.*connect\("):
        login()


@pytest.mark.slow
def test_a_run_with_a_key_says_who_has_signed_in(service, monkeypatch):
    """If a program runs the notebook, nobody needs a form."""
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", service.api_key)
    sources = ["import directmail_lab as dm\n\ndm.login()", "dm.me()"]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, startup_timeout=300).execute()
    texts = [output.get("data", {}).get("text/plain") for output in cells[0].outputs]

    assert f"Signed in as Stand-in User at {service.base_url}." in texts
    assert "Run this cell" not in repr(cells)
    assert service.api_key not in nbformat.writes(notebook)
