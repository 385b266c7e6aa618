"""Opens a cassette: by name or path, in one of vcrpy's record modes."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Literal

from .cassette import Cassette
from .library import cassette_name, find_cassette, new_cassette_path
from .matching import DEFAULT_MATCH_ON, Matching
from .recording import about_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from directmail_lab.redaction import Redactor

    from .matching import Matcher

__all__ = ["RECORD_MODES", "open_cassette"]

RECORD_MODES: Final = ("none", "once", "new_episodes", "any", "all")

_log = logging.getLogger("directmail_lab")


def open_cassette(
    name: str | Path,
    *,
    record_mode: str = "none",
    redactor: Redactor | None = None,
    base_url: str | None = None,
    match_on: Sequence[str | Matcher] = DEFAULT_MATCH_ON,
    repeat: Literal["last", "strict"] = "last",
    on_write_error: Literal["raise", "continue"] = "raise",
    metadata: Mapping[str, object] | None = None,
    notice: Callable[[str], None] = _log.warning,
    clock: Callable[[], float] = time.time,
) -> Cassette:
    """Open a cassette by name, or by the `Path` of its file.

    Parameters
    ----------
    record_mode
        vcrpy's: ``"none"`` replays; ``"once"`` records a new cassette and replays an old one;
        ``"new_episodes"`` and ``"any"`` add what is not there; ``"all"`` records anew, and the old
        file stands until `Cassette.close`.
    redactor
        What removes secrets before anything is written or compared.
    base_url
        The base address of the session: paths are compared below it.
    match_on
        vcrpy's matchers by name, and functions of two of its requests.
    repeat
        What a replay does when all answers to a request were played: ``"last"`` gives the last one
        again, ``"strict"`` refuses.
    on_write_error
        Whether a full disk stops the session or lets it go on unrecorded.
    metadata
        What a new cassette says of itself beside its writer, base address and time.
    notice
        Is told, in a sentence, of a recording that was not closed, or could not go on; and of
        personal data in one, when it ends.
    clock
        Gives the seconds since the Unix epoch.

    Raises
    ------
    NotRecordedError
        Where a cassette to replay does not exist.
    CassetteFormatError, CassetteInUseError, CassetteError
        Where it cannot be read, is being recorded by another, or its name leads out of the folder.
    """
    if record_mode not in RECORD_MODES:
        raise ValueError(f"{record_mode!r} is no record mode. Use {', '.join(RECORD_MODES)}.")
    if redactor is None:
        from directmail_lab.redaction import Redactor

        redactor = Redactor()
    path = find_cassette(name) if record_mode == "none" else new_cassette_path(name)
    return Cassette(
        path,
        name=cassette_name(name),
        record_mode=record_mode,
        redactor=redactor,
        matching=Matching(match_on),
        base_url=base_url,
        repeat=repeat,
        on_write_error=on_write_error,
        metadata=about_recording(base_url, metadata, redactor, clock),
        notice=notice,
    )
