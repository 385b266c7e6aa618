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
Field = Literal["", "address", "key", "cassette"]

_PATIENCE_S: Final = 15.0

_FIELDS: Final[tuple[tuple[Any, Field], ...]] = (
    (CredentialError | UnauthorizedError, "key"),
    (CassetteError, "cassette"),
    (InsecureAddressError | NotConnectedError | NotJSONError | httpx.TransportError, "address"),
    (BaseException, ""),
)

# service.md part 2 leaves the record's fields open, so the first of these that is there is used.
_NAMING: Final = ("name", "full_name", "email", "login", "username", "user_name", "id")


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

    def __str__(self) -> str:
        """One line: ``Signed in as ada@example.com - 299 of 300 left``."""
        reading = self.reading
        if reading is None or reading.remaining is None or reading.limit is None:
            return self.title
        return f"{self.title} - {reading.remaining} of {reading.limit} left"


@dataclass(frozen=True, slots=True)
class SignInProblem:
    """Why signing in failed: what happened, what to do, and the form's field to show it at."""

    text: str
    hint: str = ""
    field: Field = ""

    def __str__(self) -> str:
        return f"{self.text} {self.hint}".rstrip()


def sign_in(request: SignInRequest) -> SignedIn:
    """Try the key with one request, then open the session as the current one.

    If that fails, the current session stays as it was. To replay, nothing is sent.

    Raises
    ------
    DirectMailLabError, httpx.TransportError
        As `Session` and its `me` raise them; `explain` turns them into texts for the form.
    """
    if request.mode == "replay":
        return _replay(request)
    address = choose_address(request.address or None)
    if request.mode == "record":
        new_cassette_path(request.cassette)  # refuse an invalid name before anything is sent
    key = find_api_key(request.key, base_url=address)
    who, reading = _try(address, key, request.options)
    cassette = request.cassette if request.mode == "record" else None
    mode = "new_episodes" if cassette else None
    session = connect(address, key, cassette=cassette, record_mode=mode, **request.options)
    session.readings.append(reading)
    recording = f" · recording to {session.cassette}" if session.cassette else ""
    return SignedIn(
        session=session,
        title=f"Signed in as {who}",
        detail=address + recording,
        note=_note(request, address),
        reading=reading,
    )


def key_source(address: str) -> str:
    """Return where a key is found if none is typed: a variable or the keyring; or an empty text."""
    if variable(API_KEY_VARIABLE):
        return API_KEY_VARIABLE
    return "the keyring" if address and remembered_api_key(address) is not None else ""


def _replay(request: SignInRequest) -> SignedIn:
    session = connect(cassette=request.cassette, **request.options)
    count = len(session.open_cassette or ())
    return SignedIn(
        session=session,
        title=f"Replaying {session.cassette}",
        detail=f"{plural(count, 'recorded answer')} from {session.base_url}. No key, no network.",
    )


def _try(address: str, key: ApiKey, options: SessionOptions) -> tuple[str, Reading]:
    """Return the account's name and the reading of one request.

    Its session does not wait for an allowance, since a person is waiting for the form. It does not
    record either, so that a refused key leaves no cassette behind.
    """
    timeout_s = min(options.get("timeout_s", _PATIENCE_S), _PATIENCE_S)
    impatient: SessionOptions = {**options, "pace": "off", "timeout_s": timeout_s}
    with Session(address, key, **impatient) as trial:
        who = _name_in(trial.me())
        return who, trial.readings.since(len(trial.readings) - 1)[0]


def _name_in(record: pd.DataFrame) -> str:
    """Return the account's name as its record gives it, or ``the account``."""
    row = {} if record.empty else {str(name).lower(): record[name].iloc[0] for name in record}
    named = (row.get(name) for name in _NAMING)
    texts = (each.strip()[:80] for each in named if isinstance(each, str))
    return next(filter(None, texts), "the account")


def _note(request: SignInRequest, address: str) -> str:
    """Return a warning about the key: a variable overrides it, or it could not be remembered."""
    if request.key is None:
        return ""
    note = overriding_variable(request.key) or ""
    if request.remember:
        try:
            remember_api_key(request.key, base_url=address)
        except CredentialError as error:  # the sign-in itself succeeded
            note = f"{note} {error}".strip()
    return note


def explain(error: BaseException) -> SignInProblem:
    """Return an error's text in two parts: what happened, and what to do."""
    if isinstance(error, KeyboardInterrupt):
        return SignInProblem("Interrupted. Nobody is signed in.")
    if not isinstance(error, DirectMailLabError | httpx.TransportError):
        return SignInProblem(
            f"Signing in failed in an unexpected way ({type(error).__name__}).",
            "connect(…) in a cell shows where.",
        )
    happened, full_stop, advice = str(error).partition(". ")
    if isinstance(error, UnauthorizedError):
        happened = f"The service did not accept this key (status {error.status})"
    field = next(field for kinds, field in _FIELDS if isinstance(error, kinds))
    return SignInProblem(happened + full_stop.rstrip(), advice, field)
