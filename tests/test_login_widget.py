"""The sign-in form without a page: what it is told, what it does, what it says, what it keeps."""

from __future__ import annotations

import json
import pickle
import re
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import nbclient
import nbformat
import pytest

import directmail_lab as dm
from directmail_lab.cassettes import find_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import CredentialError, NotConnectedError
from directmail_lab.widgets.login import LoginWidget, SignInRequest, explain, login

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from directmail_lab.standin import StandIn

SECRET = "k-7Qf2-not-to-be-seen"


class Page:
    """Stands for the page: sends what a form sends, and notes what it is sent."""

    def __init__(self, form: LoginWidget) -> None:
        self.form = form
        self.received: list[dict[str, Any]] = []
        form.send = lambda content, **_: self.received.append(content)

    def hello(self) -> dict[str, Any]:
        self.form._handle_custom_msg({"type": "hello"}, [])
        return self.received[-1]

    def sign_in(
        self, *, mode: str = "live", address: str = "", key: str = "", cassette: str = ""
    ) -> dict[str, Any]:
        parts = [memoryview(text.encode()) for text in (mode, address, cassette, key)]
        self.form._handle_custom_msg({"type": "sign_in"}, parts)
        return self.received[-1]

    def sign_out(self) -> dict[str, Any]:
        self.form._handle_custom_msg({"type": "sign_out"}, [])
        return self.received[-1]


@pytest.fixture
def shown() -> Callable[..., Page]:
    """Show a form on a page."""
    return lambda **options: Page(LoginWidget(SignInRequest(**options)))


def test_signing_in_opens_the_current_session(shown: Callable[..., Page], service: StandIn) -> None:
    """The form says who it is and what is left, and the module-level calls work."""
    state = shown().sign_in(address=service.base_url, key=service.api_key)

    assert state["account"]["title"] == "Signed in as Stand-in User"
    assert (state["account"]["remaining"], state["account"]["limit"]) == (299, 300)
    assert state["account"]["renews_in_s"] is None  # its unit is not certain after one response
    assert dm.me()["name"].item() == "Stand-in User"


def test_when_it_renews_is_told_where_the_unit_is_known(
    shown: Callable[..., Page], service: StandIn
) -> None:
    """A user who knows the unit of the header gets the countdown at once."""
    page = shown(options={"reset_unit": "seconds_left"})
    state = page.sign_in(address=service.base_url, key=service.api_key)

    assert 0 < state["account"]["renews_in_s"] <= 60


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"key": "wrong"}, "key", r"did not accept this key \(status 401\)"),
        ({"key": "a:b"}, "key", "holds a colon"),
        ({"key": "schlüssel"}, "key", "not plain ASCII"),
        ({"address": "nowhere"}, "address", "not a base address"),
        ({"address": "http://api.example.com"}, "address", "would send the key unencrypted"),
        ({"address": "https://k-7Qf2-not-to-be-seen@h"}, "address", "user name or password"),
        (
            {"address": "http://127.0.0.1:1"},
            "address",
            r"Nothing answers at http://127\.0\.0\.1:1\.",
        ),
        ({"mode": "record", "cassette": "../up"}, "cassette", "not a cassette's name"),
        ({"mode": "replay", "cassette": "none"}, "cassette", "There is no cassette 'none'"),
    ],
)
def test_what_went_wrong_is_said_at_its_field(
    shown: Callable[..., Page],
    service: StandIn,
    typed: dict[str, str],
    field: str,
    words: str,
    tmp_path: Path,
) -> None:
    """In words, without a traceback, with nothing of the key, and with nothing written."""
    asked = {"address": service.base_url, "key": SECRET} | typed
    state = shown().sign_in(**asked)
    told = json.dumps(state)

    assert state["account"] is None
    assert state["problem"]["field"] == field
    assert re.search(words, state["problem"]["text"])
    assert SECRET not in told
    assert asked["key"] not in told
    assert not list(tmp_path.rglob("*.yaml"))


def test_what_is_missing_is_asked_for(shown: Callable[..., Page], service: StandIn) -> None:
    """Nothing is sent before there is an address, a key and, to record, a name."""
    page = shown()
    asked = [
        page.sign_in(key=SECRET),
        page.sign_in(address=service.base_url),
        page.sign_in(address=service.base_url, key=SECRET, mode="record"),
    ]

    assert [state["problem"]["field"] for state in asked] == ["address", "key", "cassette"]
    assert asked[1]["problem"]["text"] == "Type your API key."
    assert not service.requests


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"status": 502, "html": True}, "or a gateway before it, failed"),
        ({"body": b"<p>", "headers": {"Content-Type": "text/html"}}, "is not JSON"),
        ({"status": 404}, "answered 404"),
        ({"status": 429}, "allowance is used up"),
        ({"drop": "close"}, "broke before the response was complete"),
        ({"latency_s": 1.0}, "did not answer in time"),
    ],
)
def test_a_service_that_fails_is_told_from_a_wrong_key(
    shown: Callable[..., Page], service: StandIn, fault: dict[str, Any], words: str
) -> None:
    """What to try differs: the key may be right."""
    with service.fault(**fault):
        page = shown(options={"timeout_s": 0.5})
        state = page.sign_in(address=service.base_url, key=service.api_key)

    assert re.search(words, " ".join(state["problem"].values()))
    assert state["problem"]["field"] != "key"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyboardInterrupt(), "Interrupted"),
        (ZeroDivisionError("of k-7Qf2-not-to-be-seen"), r"unexpected error \(ZeroDivisionError\)"),
    ],
)
def test_every_error_has_words(error: BaseException, words: str) -> None:
    """Also one that nobody thought of, whose own text may hold anything."""
    assert re.search(words, " ".join(explain(error).values()))
    assert SECRET not in " ".join(explain(error).values())


def test_a_failed_sign_in_leaves_the_session_before_it(
    shown: Callable[..., Page], service: StandIn
) -> None:
    """Whoever is signed in stays so."""
    page = shown()
    page.sign_in(address=service.base_url, key=service.api_key)
    before = dm.session()
    shown().sign_in(address=service.base_url, key="wrong")

    assert dm.session() is before
    assert dm.me()["name"].item() == "Stand-in User"


def test_signing_out_forgets_the_key(shown: Callable[..., Page], service: StandIn) -> None:
    """After it no request is sent, and the form says so."""
    page = shown()
    page.sign_in(address=service.base_url, key=service.api_key)
    opened = dm.session()
    state = page.sign_out()

    assert state["account"] is None
    assert "forgotten" in state["notice"]
    with pytest.raises(NotConnectedError):
        dm.session()
    with pytest.raises(NotConnectedError):
        opened.me()


def test_after_logout_the_form_says_that_no_session_is_open(
    shown: Callable[..., Page], service: StandIn
) -> None:
    """Whoever logs out in a cell sees it in the form too."""
    page = shown()
    page.sign_in(address=service.base_url, key=service.api_key)
    dm.logout()
    after_logout = page.received[-1]
    page.sign_in(address=service.base_url, key=service.api_key)
    dm.replay("first-look")
    still = page.received[-1]
    dm.connect(cassette="first-look")

    assert after_logout["account"] is None
    assert after_logout["notice"] == "Signed out: no session is open."
    assert still["account"] is not None
    assert page.received[-1]["notice"] == "Signed out: another session is the current one."


def test_recording_keeps_no_refused_sign_in(
    shown: Callable[..., Page], service: StandIn, tmp_path: Path
) -> None:
    """A cassette is written from the first request after an accepted sign-in on."""
    page = shown()
    asked = {"mode": "record", "address": service.base_url, "cassette": "tour"}
    page.sign_in(key="wrong", **asked)
    refused = list(tmp_path.rglob("tour.yaml"))
    page.sign_in(key=service.api_key, **asked)
    dm.me()
    dm.logout()

    assert refused == []
    assert "Stand-in User" in (tmp_path / "cassettes" / "tour.yaml").read_text()


def test_replaying_asks_for_nothing(shown: Callable[..., Page]) -> None:
    """The cassettes that are found are offered, and one is replayed as it was recorded."""
    page = shown()
    names = page.hello()["choices"]["cassettes"]
    state = page.sign_in(mode="replay", cassette="first-look")

    assert "first-look" in names
    assert state["account"]["title"] == "Replaying first-look"
    assert dm.session().mode == "replay"
    assert len(dm.session().readings) == 0


def test_every_cassette_that_is_offered_can_be_replayed(
    shown: Callable[..., Page], tmp_path: Path
) -> None:
    """One in a folder of its own too; one that a link leads to from outside is neither."""
    own = tmp_path / "cassettes"
    (own / "deep").mkdir(parents=True)
    written = find_cassette("first-look").read_bytes()
    (own / "deep" / "tour.yaml").write_bytes(written)
    (tmp_path / "outside.yaml").write_bytes(written)
    (own / "linked.yaml").symlink_to(tmp_path / "outside.yaml")
    page = shown()
    offered = page.hello()["choices"]["cassettes"]
    linked = page.sign_in(mode="replay", cassette="linked")
    played = page.sign_in(mode="replay", cassette="deep/tour")

    assert "deep/tour" in offered
    assert played["account"]["title"] == "Replaying deep/tour"
    assert "linked" not in offered
    assert linked["account"] is None
    assert "a link that leads out of" in linked["problem"]["text"]


def test_the_regions_are_offered(
    shown: Callable[..., Page], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of the user's file and those of the environment, which win."""
    file = tmp_path / "config" / "directmail-lab" / "regions.toml"
    file.parent.mkdir(parents=True)
    file.write_text('eu = "https://eu.example.com"\nus = "https://old.example.com"\n')
    monkeypatch.setenv("DIRECTMAIL_REGIONS", "us=https://us.example.com")
    offer = shown(address="us").hello()["choices"]

    assert offer["regions"] == [
        ("eu", "https://eu.example.com"),
        ("us", "https://us.example.com"),
    ]
    assert offer["address"] == "https://us.example.com"


def test_regions_that_cannot_be_read_are_told(
    shown: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form still comes, with free text."""
    monkeypatch.setenv("DIRECTMAIL_REGIONS", "us=http://us.example.com")
    state = shown().hello()

    assert state["choices"]["regions"] == []
    assert "would send the key unencrypted" in state["problem"]["text"]


def test_the_form_comes_filled_in_from_the_environment(
    shown: Callable[..., Page], service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the address and the key in the environment one click signs in: nothing is typed.

    The form says where the key comes from, and not what it is.
    """
    monkeypatch.setenv("DIRECTMAIL_API_KEY", service.api_key)
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
    page = shown()
    offer = page.hello()["choices"]
    state = page.sign_in(mode=offer["mode"], address=offer["address"])

    assert offer["key_hint"] == "Leave it empty to use the key in DIRECTMAIL_API_KEY."
    assert state["account"]["title"] == "Signed in as Stand-in User"
    assert service.api_key not in json.dumps(page.received)


def test_a_variable_that_overrides_what_was_typed_is_told(
    shown: Callable[..., Page], service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the variable's key would be used."""
    monkeypatch.setenv("DIRECTMAIL_API_KEY", SECRET)
    state = shown().sign_in(address=service.base_url, key=service.api_key)

    assert "DIRECTMAIL_API_KEY holds another key" in state["account"]["note"]
    assert SECRET not in json.dumps(state)


def test_a_key_that_no_keyring_keeps_is_told_after_signing_in(
    shown: Callable[..., Page], service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sign-in itself succeeded; nothing is written to a plain file instead."""
    fail = types.SimpleNamespace(priority=0)
    ring = types.SimpleNamespace(get_keyring=lambda: fail)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    state = shown(remember=True).sign_in(address=service.base_url, key=service.api_key)

    assert state["account"]["title"] == "Signed in as Stand-in User"
    assert "No keyring works on this machine" in state["account"]["note"]


def test_a_key_is_remembered_on_request_until_one_signs_out(
    shown: Callable[..., Page], service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """login(remember=True) keeps it in the keyring; a refused key is not kept."""
    kept: dict[tuple[str, str], str] = {}
    ring = types.SimpleNamespace(
        priority=5,
        get_password=lambda *name: kept.get(name),
        set_password=lambda *entry: kept.__setitem__(entry[:2], entry[2]),
        delete_password=lambda *name: kept.pop(name),
    )
    monkeypatch.setitem(sys.modules, "keyring", types.SimpleNamespace(get_keyring=lambda: ring))
    page = shown(remember=True, address=service.base_url)
    page.sign_in(address=service.base_url, key="wrong")
    after_refusal = dict(kept)
    page.sign_in(address=service.base_url, key=service.api_key)
    after_sign_in = dict(kept)
    hint = page.hello()["choices"]["key_hint"]
    without_typing = page.sign_in(address=f"{service.base_url}/")
    page.sign_out()

    assert after_refusal == {}
    assert after_sign_in == {("directmail-lab", service.base_url): service.api_key}
    assert hint == "Leave it empty to use the key in the keyring."
    assert without_typing["account"]["title"] == "Signed in as Stand-in User"
    assert kept == {}


def test_a_second_click_while_the_first_is_at_work_does_nothing(
    shown: Callable[..., Page], service: StandIn
) -> None:
    """Messages may come in two threads at once: ipykernel 7 gives each later one its own."""
    page = shown()
    with service.fault(latency_s=0.3):
        clicks = [
            threading.Thread(
                target=page.sign_in, kwargs={"address": service.base_url, "key": service.api_key}
            )
            for _ in range(3)
        ]
        for click in clicks:
            click.start()
        for click in clicks:
            click.join()

    assert service.requests["GET /v1/users/me"] == 1


@pytest.mark.parametrize(
    ("content", "buffers"),
    [
        ({"type": "sign_in"}, []),
        ({"type": "sign_in"}, [b"\xff\xfe"] * 9),
        ({"type": "nonsense"}, []),
        ("nonsense", []),
        ({}, [b"live"]),
    ],
)
def test_a_message_that_makes_no_sense_is_borne(
    shown: Callable[..., Page], content: Any, buffers: list[bytes]
) -> None:
    """An exception in the handler would show nowhere."""
    page = shown()
    page.form._handle_custom_msg(content, buffers)

    assert all(state.get("account") is None for state in page.received)


def test_no_form_shows_or_keeps_the_key(shown: Callable[..., Page], service: StandIn) -> None:
    """Neither its state, its text, its variables, what it sent, nor the message it was sent."""
    page = shown()
    parts = [text.encode() for text in ("live", service.base_url, "", service.api_key)]
    page.form._handle_custom_msg({"type": "sign_in"}, parts)
    form = page.form
    seen = [form.get_state(), vars(form), repr(form), form._repr_mimebundle_(), page.received]

    assert service.api_key not in repr(seen)
    assert parts == []
    assert "Run this cell" in repr(form)
    with pytest.raises((CredentialError, TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(form)


def test_no_trait_of_the_form_says_who_is_signed_in(
    shown: Callable[..., Page], service: StandIn
) -> None:
    """A notebook that is opened again, with its widgets' state saved, must not claim it."""
    page = shown()
    before = page.form.get_state()
    page.sign_in(address=service.base_url, key=service.api_key)

    assert page.form.get_state() == before


NOTEBOOK_CELLS = (
    "import directmail_lab as dm\nform = dm.login()\nform",
    "import os\n"
    "texts = ['live', os.environ['SERVICE'], '', os.environ['TYPED']]\n"
    "form._handle_custom_msg({'type': 'sign_in'}, [memoryview(t.encode()) for t in texts])",
    "%whos\nprint(dm.session(), vars(form), dm.me().name.item())",
)


@pytest.mark.slow
def test_a_notebook_run_without_a_page_holds_no_key(
    service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nbclient saves the widgets' state by default."""
    monkeypatch.setenv("SERVICE", service.base_url)
    monkeypatch.setenv("TYPED", service.api_key)
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in NOTEBOOK_CELLS[:1]]
        + [nbformat.v4.new_code_cell(NOTEBOOK_CELLS[1] + "\ndel texts")]
        + [nbformat.v4.new_code_cell(NOTEBOOK_CELLS[2])]
    )
    nbclient.NotebookClient(notebook, timeout=60, store_widget_state=True).execute()
    written = nbformat.writes(notebook)

    assert "Stand-in User" in written
    assert "Run this cell to get the sign-in form" in written
    assert "application/vnd.jupyter.widget-state+json" in written
    assert service.api_key not in written


def test_at_a_terminal_it_asks_there(
    service: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain Python and IPython have no form: the key is typed unseen."""
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: service.base_url)
    monkeypatch.setattr(
        "directmail_lab.credentials.prompt_api_key", lambda: ApiKey(service.api_key)
    )
    session = login()

    assert capsys.readouterr().out == "Signed in as Stand-in User - 299 of 300 left\n"
    assert session is dm.session()


def test_where_nobody_can_be_asked_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a notebook it asks at the terminal; a script that has none must not hang."""
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: False))
    with pytest.raises(NotConnectedError, match=r"needs a notebook or a terminal.*connect\("):
        login()


def test_an_option_that_does_not_exist_is_refused_at_once() -> None:
    """A key that is given to it by mistake is in no frame of ours, which a traceback may show."""
    with pytest.raises(TypeError, match="login\\(\\) takes no api_key") as refused:
        login(api_key=SECRET)
    shown = [frame.frame.f_locals for frame in refused.traceback if "widgets" in str(frame.path)]

    assert SECRET not in repr(shown)


def test_in_marimo_the_form_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marimo has no IPython kernel, and shows widgets all the same."""
    marimo = types.SimpleNamespace(running_in_notebook=lambda: True)
    monkeypatch.setitem(sys.modules, "marimo", marimo)

    assert isinstance(login(), LoginWidget)
