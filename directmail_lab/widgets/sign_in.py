"""Signing in, for the form and for the terminal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from ..cassettes import new_cassette_path
from ..credentials import (
    ApiKey,
    find_api_key,
    overriding_variable,
    remember_api_key,
    remembered_api_key,
)
from ..current import connect
from ..display import plural
from ..errors import (
    CassetteError,
    CredentialError,
    DirectMailLabError,
    InsecureAddressError,
    NotConnectedError,
    NotJSONError,
    UnauthorizedError,
)
from ..http import httpx
from ..sessions import Session, SessionOptions
from ..settings import API_KEY_VARIABLE, choose_address, variable

if TYPE_CHECKING:
    import pandas as pd

    from ..quota import Reading


Mode = Literal["live", "record", "replay"]
MODES: Final[tuple[Mode, ...]] = ("live", "record", "replay")

_MAX_TIMEOUT_S: Final = 15.0

# service.md part 2 leaves the record's fields open, so the first of these that is there is used.
_NAME_FIELDS: Final = ("name", "full_name", "email", "login", "username", "user_name", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInRequest:
    """How to sign in.

    An ``address`` that is empty, or a ``key`` that is None, is looked up in the environment and the
    keyring. ``options`` are those of `Session`.
    """

    mode: Mode = "live"
    address: str = ""
    key: ApiKey | None = None
    cassette: str = ""
    remember: bool = False
    options: SessionOptions = field(default_factory=lambda: SessionOptions())


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """The session that was opened, and texts that describe it. ``note`` is a warning, if any."""

    session: Session
    title: str
    detail: str
    note: str = ""
    reading: Reading | None = None


def sign_in(request: SignInRequest) -> SignedIn:
    """Try the key with one request, then open the session as the current one.

    If that fails, the current session stays as it was. To replay, nothing is sent.

    Raises
    ------
    DirectMailLabError, httpx.TransportError
        As `Session` and its `me` raise them; `explain` turns them into texts for the form.
    """
    options, cassette = request.options, request.cassette
    if request.mode == "replay":
        session = connect(cassette=cassette, **options)
        count = plural(len(session.open_cassette or ()), "recorded answer")
        detail = f"{count} from {session.base_url}. No key, no network."
        return SignedIn(session=session, title=f"Replaying {session.cassette}", detail=detail)
    address = choose_address(request.address or None)
    if request.mode == "record":
        new_cassette_path(cassette)  # refuse an invalid name before anything is sent
    key = find_api_key(request.key, base_url=address)
    name, reading = _try(address, key, options)
    if request.mode == "record":
        session = connect(address, key, cassette=cassette, record_mode="new_episodes", **options)
    else:
        session = connect(address, key, **options)
    session.readings.append(reading)
    recording = f" · recording to {session.cassette}" if session.cassette else ""
    return SignedIn(
        session=session,
        title=f"Signed in as {name}",
        detail=address + recording,
        note=_remember(request, address),
        reading=reading,
    )


def key_source(address: str) -> str:
    """Return where a key is found if none is typed: a variable or the keyring; or an empty text."""
    if variable(API_KEY_VARIABLE):
        return API_KEY_VARIABLE
    return "the keyring" if address and remembered_api_key(address) is not None else ""


def _try(address: str, key: ApiKey, options: SessionOptions) -> tuple[str, Reading]:
    """Return the account's name and the reading of one request.

    Its session does not wait for an allowance, since a person is waiting for the form. It does not
    record either, so that a refused key leaves no cassette behind.
    """
    timeout_s = min(options.get("timeout_s", _MAX_TIMEOUT_S), _MAX_TIMEOUT_S)
    trial_options: SessionOptions = {**options, "pace": "off", "timeout_s": timeout_s}
    with Session(address, key, **trial_options) as trial:
        name = _find_name(trial.me())
        return name, trial.readings.since(len(trial.readings) - 1)[0]


def _find_name(record: pd.DataFrame) -> str:
    """Return the account's name as its record gives it, or ``the account``."""
    row: dict[str, Any] = {}
    if not record.empty:
        row = {str(column).lower(): record[column].iloc[0] for column in record}
    values = [row.get(field) for field in _NAME_FIELDS]
    names = [value.strip()[:80] for value in values if isinstance(value, str)]
    return next(filter(None, names), "the account")


def _remember(request: SignInRequest, address: str) -> str:
    """Keep a typed key in the keyring if that is wanted; return a warning about it, if any."""
    if request.key is None:
        return ""
    note = overriding_variable(request.key) or ""
    if request.remember:
        try:
            remember_api_key(request.key, base_url=address)
        except CredentialError as error:  # the sign-in itself succeeded
            note = f"{note} {error}".strip()
    return note


def explain(error: BaseException) -> dict[str, str]:
    """Return an error as what happened (``text``), what to do (``hint``) and the form's ``field``.

    The field is ``"address"``, ``"key"``, ``"cassette"`` or empty.
    """
    text, full_stop, hint = str(error).partition(". ")
    field = ""
    match error:
        case KeyboardInterrupt():
            text = "Interrupted. Nobody is signed in."
        case UnauthorizedError():
            text, field = f"The service did not accept this key (status {error.status})", "key"
        case CredentialError():
            field = "key"
        case CassetteError():
            field = "cassette"
        case InsecureAddressError() | NotConnectedError() | NotJSONError() | httpx.TransportError():
            field = "address"
        case DirectMailLabError():
            pass
        case _:  # its own text may contain anything
            text = f"Signing in failed with an unexpected error ({type(error).__name__})."
            full_stop, hint = "", "Call connect(…) in a cell to see where."
    return {"text": text + full_stop.rstrip(), "hint": hint, "field": field}
