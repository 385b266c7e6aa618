"""The module-level calls: where their session comes from, and what they say about bad input."""

import importlib
import inspect
import itertools
import pkgutil
import pydoc
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

import pytest
from faulty_service import FaultyService

import directmail_lab as dm
from directmail_lab import Session, questions
from directmail_lab.credentials import ApiKey
from directmail_lab.notebook.login import SignInRequest, sign_in
from directmail_lab.sessions import current

NAMES = [name for name in dir(dm) if name != "__version__"]
WRITES = ("post", "put", "patch", "delete", "request")
HELP = pydoc.plain(pydoc.render_doc(dm)).splitlines()


def test_each_name_that_completion_offers_is_there():
    assert 20 < len(NAMES) <= 31, "A new name is worth more than one that goes for it"
    assert [name for name in NAMES if inspect.ismodule(getattr(dm, name))] == ["errors"]
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = dm.no_such_name


@pytest.mark.parametrize("call", [dm.connect, dm.login])
def test_the_signature_names_the_options_of_a_session(call):
    """Tab completes them, and their defaults and types are those of `Session`."""
    parameters = inspect.signature(dm.Session).parameters
    of_session = {name: each for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}
    of_call = inspect.signature(call).parameters

    assert {name: of_call[name] for name in of_session} == of_session != {}


def test_help_of_the_package_is_one_screen():
    overview = HELP[: HELP.index("PACKAGE CONTENTS")]
    named = {name for line in overview for name in re.findall(r"\w+", line)}

    missing = {*NAMES} - named
    assert not missing, f"Add to the docstring of directmail_lab/__init__.py: {missing}"
    assert len(overview) <= 50
    assert len(HELP) <= 80
    assert max(map(len, overview)) <= 80


@pytest.mark.parametrize("name", [*WRITES, "get", "get_many", "pages", "me", "record", "live"])
def test_each_call_that_sends_is_one_of_a_session(name):
    of_package = getattr(dm, name)
    of_session = getattr(dm.Session, name)
    _, *parameters = inspect.signature(of_session).parameters.values()

    assert [*inspect.signature(of_package).parameters.values()] == parameters
    assert inspect.getdoc(of_package) == inspect.getdoc(of_session)
    assert f"{name}(" in pydoc.plain(pydoc.render_doc(of_package)).splitlines()[2]


def test_two_accounts_side_by_side_need_no_current_session(service):
    """Each session has the calls, and a question takes it as its source."""
    with (
        FaultyService() as other,
        dm.Session(service.base_url, service.api_key) as here,
        dm.Session(other.base_url, other.api_key, allow_writes=True) as there,
    ):
        with there.record("there"):
            there.get_many(["/v1/users/me"] * 2)
            sent = [getattr(there, name)("/v1/letters") for name in WRITES[:-1]]

        assert dm.frame(here.get("/v1/lists")).shape[0] == 3
        assert [len(list(here.pages("/v1/lists"))), len(dm.rate_limits(here))] == [1, 2]
        assert len(dm.rate_limits(there)) == len(dm.interactions("there")) == 6
        assert [each.request.method for each in sent] == ["POST", "PUT", "PATCH", "DELETE"]
        with pytest.raises(dm.errors.NotConnectedError):
            dm.session()


def test_a_star_import_has_the_public_names():
    names: dict[str, object] = {}
    exec("from directmail_lab import *", names)

    assert sorted(names.keys() - {"__builtins__"}) == NAMES == dm.__all__


def test_each_question_of_a_source_is_a_call_of_the_package():
    """A new module in questions/ is checked against the stub, and so against `help(dm)`."""
    asked = {
        name: module
        for each in pkgutil.iter_modules(questions.__path__, f"{questions.__name__}.")
        for module in [importlib.import_module(each.name)]
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if not each.name.endswith(".sources")
        and function.__module__ == each.name
        and "source" in inspect.signature(function).parameters
        if not name.startswith("_")
    }

    assert {"chart_rate_limits", "findings", "openapi"} <= asked.keys() <= {*NAMES}


def test_importing_loads_nothing_heavy():
    """Our own cassettes are parsed line by line, so replaying them needs none of these."""
    program = "import sys, directmail_lab as dm; dm.replay('first-look'); dm.get('/v1/users/me')"
    command = [sys.executable, "-c", f"{program}; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, check=True)

    loaded = set(done.stdout.decode().split())
    heavy = {"matplotlib", "ipywidgets", "anywidget", "bqplot", "tornado", "vcr", "yaml", "tqdm"}
    assert not loaded & {*heavy, "stamina", "typer", "IPython", "genson", "keyring"}


def test_with_nothing_set_a_call_says_how_to_get_a_session():
    with pytest.raises(dm.errors.NotConnectedError, match=r"login\(\).*connect.*replay"):
        dm.me()


def test_below_a_form_a_call_says_to_sign_in_there(monkeypatch):
    monkeypatch.setattr("directmail_lab.notebook.login.can_show_widgets", lambda: True)
    dm.login()
    with pytest.raises(dm.errors.NotConnectedError, match="with the form above, then run this"):
        dm.me()


def test_the_environment_opens_a_session(account):
    assert dm.connect("https://api.example.com").base_url == "https://api.example.com"
    dm.logout()
    assert len(dm.me()) == 1
    assert dm.session() is dm.session()


def test_a_single_configured_region_is_the_default(monkeypatch, service):
    monkeypatch.setenv("DIRECTMAIL_REGIONS", f"here={service.base_url}")

    for region in (None, "here"):
        assert dm.connect(region, service.api_key).base_url == service.base_url


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("", "https://"),
        ("k3y-4f5e6d7c8b9a", "not a service address"),
        ("https://api.example.com/v1", r"Give https://api\.example\.com\."),
        ("api.example.com/eu/v1/users/me/", r"Give https://api\.example\.com/eu\."),
        ("http://api.example.com", "unencrypted"),
        ("https://k3y@api.example.com", "user name"),
        ("ftp://api.example.com", "https://"),
        ("https://api.example.com:port", "is not a service address"),
        ("https://api.example.com:4\t43", "is not a service address"),
        (f"https://{'a' * 300}.example.com", "This is not a valid address"),
    ],
)
def test_an_invalid_address_is_refused(address, said):
    with pytest.raises(dm.errors.AddressError, match=said) as caught:
        dm.connect(address, "some-key")

    assert "k3y" not in str(caught.value)
    with pytest.raises(dm.errors.NotConnectedError):
        dm.session()
    if "not a base" in said:  # a session that only replays needs a valid address too
        with pytest.raises(dm.errors.AddressError):
            dm.Session(address)


@pytest.mark.parametrize("address", ["api.example.com", "API.example.com:8443/eu/", "localhost:1"])
def test_an_address_without_a_scheme_means_https(address):
    """Browsers do the same, but here the connection is never unencrypted."""
    opened = dm.connect(address, "some-key-0123456789")

    assert opened.base_url == f"https://{address.rstrip('/')}"


def test_logout_forgets_the_session(service):
    opened = dm.connect(service.base_url, service.api_key)
    dm.logout()
    dm.logout()

    assert service.api_key not in str(vars(opened))
    for call in (dm.me, opened.me):
        with pytest.raises(dm.errors.NotConnectedError):
            call()


def test_readings_that_contradict_the_stated_unit_cause_a_warning(service):
    dm.connect(service.base_url, service.api_key, reset_unit="epoch_s")
    dm.me()

    with pytest.warns(UserWarning, match="epoch_s"):
        dm.rate_limits()


CALLS = ("record", "replay", "live", "connect", "login")


def call(service: FaultyService, name: str, fails: bool) -> None:
    """Call one of `CALLS`, at a cassette or an address that lets it fail."""
    cassette = "damaged" if fails else "fine"
    url = "http://a b" if fails else service.base_url
    match name:
        case "record":
            dm.record(cassette)
        case "replay":
            dm.replay(cassette)
        case "live":
            dm.live()
        case "connect":
            dm.connect(url, service.api_key, allow_writes=True)
        case "login":
            key = ApiKey(service.api_key)
            sign_in(SignInRequest(address=url, key=key, options={"allow_writes": True}))


@dataclass
class Expected:
    """Whether a letter may be sent after some of `CALLS`."""

    mode: str | None = None
    is_blocked: bool = False  # until a mode is entered
    is_wrong_session: bool = False  # until there is another one
    waits_for_key: bool = False  # as record() does in a replay

    def failed(self, name: str) -> None:
        if name in ("record", "replay", "live"):
            self.is_blocked = True
            self.waits_for_key = False
        self.is_wrong_session |= name == "connect"

    def succeeded(self, name: str, mode: str) -> None:
        if name in ("connect", "login"):
            assert mode == ("record" if self.waits_for_key else "live")
            self.is_wrong_session = False
        elif mode != "replay":
            self.is_wrong_session = False
        self.is_blocked &= mode != "record" and name != "live"
        self.waits_for_key = name == "record" and mode == "replay"
        self.mode = mode

    @property
    def is_sent(self) -> bool:
        return self.mode in ("live", "record") and not (self.is_blocked or self.is_wrong_session)


@pytest.mark.filterwarnings("ignore:Nothing was sent")
@pytest.mark.parametrize("failing", range(3))
def test_after_a_mode_that_failed_no_letter_goes_out_unrecorded(
    service, tmp_path, monkeypatch, failing
):
    """In all orders of three calls of which one fails; a sign-in goes on with what record() was."""
    monkeypatch.setenv("DIRECTMAIL_CASSETTES", str(tmp_path))
    with Session(service.base_url, service.api_key) as opened, opened.record("fine"):
        opened.client.get("/v1/users/me")
    fine = (tmp_path / "fine.yaml").read_bytes()
    (tmp_path / "damaged.yaml").write_bytes(b"interactions: [1\n")
    for names in itertools.product(CALLS, repeat=3):
        monkeypatch.setattr(current._current, "session", None)
        monkeypatch.setattr(current._current, "without_key", None)
        monkeypatch.setattr(current._current, "may_write", True)
        (tmp_path / "fine.yaml").write_bytes(fine)
        expected = Expected()
        for position, name in enumerate(names):
            try:
                call(service, name, position == failing)
            except dm.DirectMailLabError:
                expected.failed(name)
            else:
                expected.succeeded(name, dm.session().mode)
        before = service.requests["POST /v1/letters"]
        with suppress(dm.DirectMailLabError):
            dm.post("/v1/letters", json={"order": names})

        assert (service.requests["POST /v1/letters"] > before) == expected.is_sent, names
        dm.logout()
