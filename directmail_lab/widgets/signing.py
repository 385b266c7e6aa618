"""What signing in does, whoever asks for it: the form or the terminal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from directmail_lab.cassettes import new_cassette_path, open_cassette
from directmail_lab.credentials import find_api_key, overriding_variable, remember_api_key
from directmail_lab.current import make_current
from directmail_lab.errors import CredentialError
from directmail_lab.sessions import Session
from directmail_lab.settings import choose_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from directmail_lab.credentials import ApiKey
    from directmail_lab.quota import Reading

__all__ = ["MODES", "Account", "Mode", "Wish", "sign_in"]

Mode = Literal["live", "record", "replay"]
MODES: Final[tuple[Mode, ...]] = ("live", "record", "replay")

_PATIENCE_S: Final = 15.0

# service.md part 2 leaves the record's fields open: which of these there is, is looked up.
_NAMING: Final = ("name", "full_name", "email", "login", "username", "user_name", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked for: how to sign in.

    ``address`` and ``cassette`` are empty where none was given, ``key`` is None, and then each is
    looked up. ``options`` are those of `Session`.
    """

    mode: Mode = "live"
    address: str = ""
    key: ApiKey | None = None
    cassette: str = ""
    remember: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What came of it.

    ``limit`` and ``remaining`` are None where the service did not say, and ``renews_at`` (seconds
    since the Unix epoch) where the unit of its header is not certain yet. ``note`` is a warning.
    """

    session: Session
    title: str
    detail: str
    limit: int | None = None
    remaining: int | None = None
    renews_at: float | None = None
    note: str = ""

    def __str__(self) -> str:
        """One line: ``Signed in as ada@example.com - 299 of 300 left``."""
        if self.remaining is None or self.limit is None:
            return self.title
        return f"{self.title} - {self.remaining} of {self.limit} left"


def sign_in(wish: Wish) -> Account:
    """Open the session that was wished for, try it, and make it the current one.

    Where that fails, the session before it stays the current one.

    Raises
    ------
    DirectMailLabError, httpx.TransportError
        As the session's own calls do; `directmail_lab.widgets.troubles.explain` puts it in words.
    """
    account = _replay(wish) if wish.mode == "replay" else _ask_who(wish)
    make_current(account.session)
    return account


def _replay(wish: Wish) -> Account:
    with open_cassette(wish.cassette) as recorded:
        address, count = recorded.base_url or "https://recorded.invalid", len(recorded)
    session = Session(address, **wish.options)
    session.replay(wish.cassette)
    answers = "1 recorded answer" if count == 1 else f"{count} recorded answers"
    return Account(
        session=session,
        title=f"Replaying {session.cassette}",
        detail=f"{answers} from {address}. No key, no network.",
    )


def _ask_who(wish: Wish) -> Account:
    address = choose_address(wish.address or None)
    if wish.mode == "record":
        new_cassette_path(wish.cassette)  # an impossible name is told before anything is sent
    key = find_api_key(wish.key, base_url=address)
    who, reading = _try(address, key, wish.options)
    session = Session(address, key, **wish.options)
    session.readings.append(reading)
    if wish.mode == "record":
        try:
            session.record(wish.cassette)
        except BaseException:
            session.close()
            raise
    return _account(wish, session, who, reading)


def _try(address: str, key: ApiKey, options: Mapping[str, Any]) -> tuple[str, Reading]:
    """Ask who it is, in a session that does not wait for an allowance: somebody sits before it.

    Nor does it record: a refused key leaves no cassette behind.
    """
    timeout_s = min(options.get("timeout_s", _PATIENCE_S), _PATIENCE_S)
    impatient = {**options, "pace": "off", "timeout_s": timeout_s}
    with Session(address, key, **impatient) as trial:
        who = _name_in(trial.me())
        return who, trial.readings.since(len(trial.readings) - 1)[0]


def _account(wish: Wish, session: Session, who: str, reading: Reading) -> Account:
    notes = []
    if wish.key is not None:
        notes.append(overriding_variable(wish.key) or "")
        if wish.remember:
            notes.append(_keep(wish.key, session.base_url))
    return Account(
        session=session,
        title=f"Signed in as {who}",
        detail=session.base_url
        + (f" · recording to {session.cassette}" if session.cassette else ""),
        limit=reading.limit,
        remaining=reading.remaining,
        renews_at=_renewal(session),
        note=" ".join(filter(None, notes)),
    )


def _keep(key: ApiKey, address: str) -> str:
    """Keep the key in the keyring; what went wrong is a note, for the sign-in itself succeeded."""
    try:
        remember_api_key(key, base_url=address)
    except CredentialError as error:
        return str(error)
    return ""


def _renewal(session: Session) -> float | None:
    renewal = session.readings.frame()["reset_at"].iloc[-1]
    # NaT, where the unit is not certain, is the one value that does not equal itself.
    return float(renewal.timestamp()) if renewal == renewal else None


def _name_in(record: pd.DataFrame) -> str:
    """Return what the account calls itself, or ``the account``."""
    if record.empty:
        return "the account"
    row = {str(name).lower(): record[name].iloc[0] for name in record.columns}
    for name in _NAMING:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()[:80]
    return "the account"
