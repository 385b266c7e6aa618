"""Finding out what service.md leaves open: from what a session has seen, or by asking for it."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..cassettes import find_cassette, read_cassette
from ..current import session as current
from ..errors import CassetteError, NotConnectedError, QuotaExhaustedError
from ..interaction import base_path, path_below
from ..quota import Reading, read_headers
from ..quota.reset_unit import infer_reset_unit
from .exploration import Exploration
from .open_parts import Answer, Seen, Told, findings_of, frame_of_findings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd

    from ..quota.reset_unit import Evidence
    from ..sessions import Session

__all__ = ["explore", "findings"]

# What `explore` got for each session, for `findings` to use later.
_explored: WeakKeyDictionary[Session, list[Answer]] = WeakKeyDictionary()


def findings(cassette: str | Path | None = None) -> pd.DataFrame:
    """Return what was seen of each part that the service's document leaves open.

    Nothing is sent.

    Parameters
    ----------
    cassette
        A cassette's name, or the `Path` of one; by default what the current session has seen: its
        readings, all of the cassette that it records or replays, and what `explore` got.

    Returns
    -------
    DataFrame
        A row for each open part, in the document's order. ``part`` and ``section`` of the document;
        ``seen`` of it, in words, empty where nothing was; ``how_sure`` (``"not seen"``,
        ``"undecided"``, ``"seen once"``, ``"seen repeatedly"``, or ``"certain"`` where every other
        possibility is ruled out); ``interactions``, which ones, by source and number from 0;
        ``find_out``, the one call that would find out more; ``schema``, a JSON Schema (a dict) of
        the bodies, or None.

    Raises
    ------
    NotConnectedError
        No session is open, and no cassette was given.
    CassetteError
        There is no such cassette, or it cannot be read.
    """
    if cassette is not None:
        answers, readings = _recorded(find_cassette(cassette))
        return _findings_frame(answers, readings, _evidence(readings))
    return _session_findings(current())


def explore(
    *,
    pause_s: float = 1.0,
    announce: Callable[[str], object] | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> pd.DataFrame:
    """Ask the service for what its document leaves open, and return the `findings`.

    Some twenty reads at most, and nothing but reads; each is announced, and they are paced as the
    session is. A request without a key is sent once, and a wrong key once in the life of this
    process, both past any recording. Where the key itself is refused, nothing more is sent. The
    allowance is not used up for it: ``burst`` does that, if you want to see it.

    Parameters
    ----------
    pause_s
        Seconds between two requests.
    announce
        What takes the lines that say what is sent; by default they are printed.
    sleep
        What waits.

    Raises
    ------
    NotConnectedError
        No session is open, or it replays: a recording cannot be asked for more.
    """
    opened = current()
    if opened.mode == "replay":
        raise NotConnectedError(
            "The session replays a recording, which cannot be asked for more. See findings(), or "
            "sign in with login() and explore() the live service."
        )
    earlier = len(_explored.get(opened, ()))
    exploration = Exploration(opened, pause_s, announce or _print, sleep, earlier)
    try:
        exploration.run()
    except QuotaExhaustedError as error:
        exploration.announce(f"Stopped: {error}")
    finally:
        _explored.setdefault(opened, []).extend(exploration.answers)
    return _session_findings(opened)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _session_findings(opened: Session) -> pd.DataFrame:
    answers: list[Answer] = []
    readings: list[Told] = []
    if opened.open_cassette is not None:
        # One that was opened by its path is not found by its name: the readings tell what it told.
        with contextlib.suppress(CassetteError):
            answers, readings = _recorded(opened.open_cassette.path)
    known = {_gist(each) for each in answers}
    answers += [each for each in _explored.get(opened, ()) if _gist(each) not in known]
    readings += [
        Told(each, "rate_limits()", row)
        for row, each in enumerate(opened.readings.since(0))
        if not (readings and each.cassette == opened.cassette)
    ]
    evidence = opened.readings.evidence()
    if evidence.unit == "undetermined":
        evidence = _evidence(readings)
    return _findings_frame(answers, readings, evidence)


def _evidence(readings: list[Told]) -> Evidence:
    return infer_reset_unit(each.reading for each in readings)


def _gist(answer: Answer) -> tuple[object, ...]:
    """Return what is equal of an answer and its recording; one to no or a wrong key has none."""
    sent_with_key = answer.credentials in ("key", "unknown")
    return (answer.operation, answer.status, answer.interaction.response.body, sent_with_key)


def _findings_frame(
    answers: list[Answer], readings: list[Told], evidence: Evidence
) -> pd.DataFrame:
    return frame_of_findings(findings_of(Seen(answers, readings, evidence.unit, evidence.why)))


def _recorded(path: Path) -> tuple[list[Answer], list[Told]]:
    """Return what a cassette holds, as answers and as the readings of them."""
    loaded = read_cassette(path)
    prefix = base_path(loaded.base_url or "")
    answers = [
        Answer(each, path_below(each.request.uri, prefix), loaded.base_url, path.stem, number)
        for number, each in enumerate(loaded.interactions)
    ]
    return answers, [Told(_reading_of(each), each.source, each.number) for each in answers]


def _reading_of(answer: Answer) -> Reading:
    interaction = answer.interaction
    at = interaction.recorded_at
    return read_headers(
        interaction.response.headers,
        at=at.timestamp() if at is not None else math.nan,
        method=interaction.request.method,
        path=answer.path,
        status=answer.status,
        elapsed_s=interaction.elapsed_s,
        source="recorded",
        cassette=answer.source,
    )
