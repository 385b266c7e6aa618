"""The sources of a key, the places that store it, and that nothing shows it."""

import getpass
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from directmail_lab import credentials
from directmail_lab.credentials import (
    ApiKey,
    as_api_key,
    find_api_key,
    forget_api_key,
    keyring_problem,
    known_keys,
    prompt_api_key,
    remember_api_key,
    remembered_api_key,
)
from directmail_lab.errors import CredentialError, DirectMailLabError
from directmail_lab.sessions.current import connect
from directmail_lab.sessions.session import Session

KEY = "k-1f9d2c7a-secret"
ADDRESS = "https://eu.example.com"


class MemoryKeyring:
    priority = 5

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, password: str) -> None:
        self.kept[service, name] = password

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


class PlaintextKeyring(MemoryKeyring):
    """A backend that would write the key to a plain file."""


class LockedKeyring(MemoryKeyring):
    """A backend that raises an error with the key in its message."""

    def set_password(self, *given: str) -> None:
        raise RuntimeError(f"locked; was given {given}")

    delete_password = set_password


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the machine's keyring with a backend."""

    def use(*backends: Any) -> Any:
        chain = types.SimpleNamespace(backends=backends)
        module = types.SimpleNamespace(get_keyring=lambda: chain)
        monkeypatch.setitem(sys.modules, "keyring", module)

    return use


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Simulate a notebook; these are the cells that it has run."""
    run = [""]
    shell = types.SimpleNamespace(user_ns={"In": run})
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(credentials, "_warned_of", set())
    return run


def test_a_key_is_neither_shown_nor_pickled():
    key = ApiKey(KEY)

    assert KEY not in f"{key} {key!r} {dir(key)}"
    with pytest.raises(CredentialError, match="cannot be pickled"):
        pickle.dumps(key)


@pytest.mark.parametrize("make", [ApiKey, as_api_key])
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        *((text, "Copy it again") for text in ("", "  ", f"{KEY}\nb", f"ü{KEY}")),
        (f"{KEY} b", "contains a space"),
        (f"https://{KEY}.test", "looks like an address. Give the address first, then the key"),
        (f"{KEY}:", "contains a colon"),
    ],
)
def test_a_key_invalid_for_basic_auth_is_refused_and_shown_in_no_frame(make, wrong, reason):
    """A verbose traceback prints the locals of all frames, so ours must not have the argument."""
    with pytest.raises(CredentialError, match=reason) as caught:
        make(wrong)

    assert KEY not in str(caught.value)
    assert not any(KEY in repr(entry.frame.f_locals) for entry in caught.traceback[1:])


def test_an_argument_wins_over_the_environment_and_that_over_the_keyring(keyring, monkeypatch):
    keyring(MemoryKeyring())
    with pytest.raises(CredentialError, match=r"login\(\), set DIRECTMAIL_API_KEY, or .*connect"):
        find_api_key(entry=ADDRESS)
    remember_api_key(ApiKey("kept"), entry=ADDRESS)
    remember_api_key(ApiKey("us"), entry="https://us.example.com")
    kept = find_api_key(entry=ADDRESS)
    forget_api_key(ApiKey("us"), entry=ADDRESS)
    assert find_api_key(entry=ADDRESS) == kept
    forget_api_key(ApiKey("kept"), entry=ADDRESS)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", "set")
    in_environment = find_api_key(entry=ADDRESS)
    given = find_api_key(as_api_key("given"), entry=ADDRESS)

    assert [each.reveal() for each in (given, in_environment, kept)] == ["given", "set", "kept"]
    assert remembered_api_key(ADDRESS) is None
    assert remembered_api_key("https://us.example.com") == ApiKey("us")


@pytest.mark.parametrize(
    "backends", [[], [PlaintextKeyring()], None], ids=["none", "plain text", "not installed"]
)
def test_no_key_is_stored_without_a_working_keyring(monkeypatch, keyring, backends):
    keyring(*(backends or ()))
    if backends is None:
        monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(CredentialError, match=r"No keyring works .*\nNothing was written"):
        remember_api_key(ApiKey(KEY), entry=ADDRESS)
    forget_api_key(ApiKey(KEY), entry=ADDRESS)

    assert keyring_problem() == "No keyring works on this machine."
    assert remembered_api_key(ADDRESS) is None
    assert not any(getattr(backend, "kept", None) for backend in backends or ())


def test_a_keyring_failure_is_reported_without_the_key(keyring):
    locked = LockedKeyring()
    keyring(locked)
    with pytest.raises(CredentialError, match="did not store the key") as kept:
        remember_api_key(ApiKey(KEY), entry=ADDRESS)
    locked.kept["directmail-lab", ADDRESS] = KEY
    with pytest.raises(CredentialError, match="could not be removed from the keyring"):
        forget_api_key(ApiKey(KEY), entry=ADDRESS)

    assert KEY not in str(kept.value)
    assert kept.value.__context__ is None


def test_a_keyring_that_hangs_is_given_up_once_with_one_notice(keyring, monkeypatch):
    """It waits for a password in a window that nobody sees, as over ssh."""
    asked: list[tuple[str, ...]] = []
    goes_on = threading.Event()

    def wait(*given: str) -> None:
        asked.append(given)
        goes_on.wait()

    hanging = MemoryKeyring()
    vars(hanging)["get_password"] = wait
    keyring(hanging)
    monkeypatch.setattr(credentials, "_LIMIT_S", 0.1)
    monkeypatch.setattr(credentials, "_is_silent", threading.Event())
    with (
        pytest.warns(UserWarning, match=r"did not respond within 0\.1 s") as notices,
        pytest.raises(CredentialError, match="No key was found"),
    ):
        connect(ADDRESS)
    with pytest.raises(CredentialError, match=r"did not respond .*\nNothing was written"):
        remember_api_key(ApiKey(KEY), entry=ADDRESS)
    goes_on.set()

    assert len(notices) == 1
    assert asked == [("directmail-lab", ADDRESS)]
    assert "did not respond" in keyring_problem()


def test_the_user_is_prompted_for_the_key_unless_it_would_be_echoed(monkeypatch):
    def echoing(_prompt: str) -> str:
        warnings.warn("Can not control echo", getpass.GetPassWarning, stacklevel=1)
        raise AssertionError("the key would have been echoed")

    for typed in (KEY, f" {KEY}: "):  # as curl needs it
        monkeypatch.setattr("getpass.getpass", lambda _prompt, typed=typed: typed)
        assert prompt_api_key() == ApiKey(KEY)

    monkeypatch.setattr("getpass.getpass", echoing)
    with pytest.raises(CredentialError, match="cannot hide what is typed"):
        prompt_api_key()


WRONG_CALLS: list[tuple[str, Callable[[], object], str]] = [
    (KEY, lambda: connect(), "No service address"),
    (KEY, lambda: connect("nonsense", KEY), "not a service address"),
    (KEY, lambda: connect(ADDRESS, f"{KEY}:"), "contains a colon"),
    (f"{KEY}:", lambda: connect(ADDRESS), "contains a colon"),
    ("", lambda: connect(KEY, ADDRESS), "Give the address first, then the key"),
    ("", lambda: connect(KEY.encode(), "a-key"), "not a service address"),
    ("", lambda: Session(KEY, ADDRESS), "Give the address first, then the key"),
    ("", lambda: Session(ADDRESS, KEY.encode()), "is text, not bytes"),
    ("", lambda: Session(f"https://{KEY}@api.test"), "contains a user name or password"),
]


@pytest.mark.parametrize(("in_environment", "call", "says"), WRONG_CALLS)
def test_no_traceback_shows_a_key_of_the_environment_or_of_the_arguments(
    monkeypatch, in_environment, call, says
):
    """Rich and ``pytest -l`` print all locals, IPython's ``%xmode Verbose`` those on each line."""
    monkeypatch.setenv("DIRECTMAIL_API_KEY", in_environment)
    with pytest.raises((TypeError, ValueError, DirectMailLabError), match=says) as caught:
        call()
    below_the_call = caught.traceback[2:]
    ipython = pytest.importorskip("IPython.core.ultratb").VerboseTB()
    shown = ipython.text(caught.type, caught.value, below_the_call[0]._rawentry)

    assert len(below_the_call) == 1
    assert KEY not in repr([entry.frame.f_locals for entry in below_the_call])
    assert KEY not in shown


def test_the_warning_about_a_literal_key_does_not_print_its_source_line(tmp_path, cells):
    source = f'as_api_key("{KEY}")\n'
    file = tmp_path / "cell.py"
    file.write_text(source)
    cells.append(source)
    with pytest.warns(UserWarning, match=r"The key is in cell \[1\]") as caught:
        exec(compile(source, str(file), "exec"), {"as_api_key": as_api_key})
    shown = caught[0]
    printed = warnings.formatwarning(shown.message, shown.category, shown.filename, shown.lineno)

    assert KEY not in printed


@pytest.mark.parametrize(
    "earlier",
    [
        f'api_key = "{KEY}"',
        f"get_ipython().run_line_magic('env', 'DIRECTMAIL_API_KEY={KEY}')",
        f'# Parameters\nkey = "{KEY}"\n',
    ],
    ids=["a name", "%env", "papermill"],
)
def test_a_key_in_an_earlier_cell_is_warned_of_once(cells, monkeypatch, earlier):
    """The notebook that is saved has it, whichever cell it is in."""
    monkeypatch.setenv("DIRECTMAIL_API_KEY", KEY)
    cells += [earlier, "dm.connect(url)"]
    with pytest.warns(UserWarning, match=r"The key is in cell \[1\], so"):
        find_api_key(entry="https://api.example.com")
    as_api_key(KEY)  # a second warning would be an error

    cells.append(earlier)
    with pytest.warns(UserWarning, match=r"in cell \[3\], so"):
        as_api_key(KEY)


def test_every_key_of_the_process_is_known_while_it_is_in_use(monkeypatch, keyring):
    """Redaction needs the keys of sessions, the environment and, on request, the keyring."""
    keyring(MemoryKeyring())
    remember_api_key(ApiKey("kept-for-the-address"), entry=ADDRESS)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", "of-the-environment")
    first, again = ApiKey("held-here-alone"), ApiKey("held-here-alone")
    del first
    held = known_keys()
    with_keyring = known_keys(remembered_for=[ADDRESS])
    del again

    assert {"held-here-alone", "of-the-environment"} <= held
    assert with_keyring - held == {"kept-for-the-address"}
    assert "held-here-alone" not in known_keys()
