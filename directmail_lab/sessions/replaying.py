"""Sessions that only replay, and what `directmail_lab.record` does without a key."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

from ..cassettes import FileRecording, find_cassette, new_cassette_path, read_cassette
from ..cassettes.library import cassette_name
from ..display import plural
from ..errors import AddressError, NotConnectedError, NotRecordedError
from ..settings import NO_ADDRESS
from .modes import Entered, write_warning
from .session import Session, SessionOptions


def replaying_session(
    cassette: str | Path | FileRecording,
    base_url: str | None = None,
    **options: Unpack[SessionOptions],
) -> tuple[Session, FileRecording]:
    """Return a session that can only replay, at the address of a cassette, and its recording."""
    if isinstance(cassette, FileRecording):
        recording = cassette
    else:
        recording = read_cassette(find_cassette(cassette))
    if base_url is None:
        with suppress(AddressError):  # a stranger's cassette may have any address
            return Session(recording.base_url or "", **options), recording
        base_url = NO_ADDRESS
    return Session(base_url, **options), recording


def replay_in_place(
    session: Session | None, cassette: str | Path, options: Mapping[str, Any]
) -> tuple[Entered[Session], str]:
    """Replay the file that a recording with a key would write.

    A replayed write warns that nothing was sent. A request that is not in the cassette raises
    `NotRecordedError` as usual; the advice is to sign in.

    Parameters
    ----------
    session
        The session that replays; None for a new one at the cassette's address.
    options
        The options of `Session.record`, except the mode.

    Returns
    -------
    Entered, str
        The mode that was entered, and a line to show to the user.

    Raises
    ------
    NotConnectedError
        There is no such file.
    """
    path = new_cassette_path(cassette)
    if not (path.is_file() and path.stat().st_size):
        title = cassette_name(cassette)
        what = f"There is no key, and no cassette {title!r} yet."
        raise NotConnectedError(what, "Sign in to record it.")
    start: Path | FileRecording = path
    if session is None:
        session, start = replaying_session(path)
    entered = session.record(start, record_mode="none", **options).entered
    played = session._open_cassette
    assert played is not None, "the session has just opened it"
    recorded = f"{played.name!r}{session.recording.recorded_note}"

    def advise(error: NotRecordedError) -> None:
        error.advice = "There is no key, so nothing was sent. Sign in to record it."
        if options["before_record"] is not None:
            error.advice += " If before_record leaves it out, no recording contains it."

    played.on_played = write_warning(played)
    played.on_unmatched = advise
    count = plural(len(played), "interaction")
    return entered, f"No key: replaying {recorded} ({count}). Sign in to record more."
