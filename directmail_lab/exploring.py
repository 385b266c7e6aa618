"""Finding out what service.md leaves open: from what a session has seen, or by asking for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .bodies import AnswerShapes, Credentials, Sighting, decoded_headers
from .cassettes import find_cassette, read_cassette
from .contract import ME_PATH, PASSWORD
from .current import session as current, wrong_key_sent
from .errors import CassetteError, NotConnectedError, QuotaExhaustedError
from .http import httpx
from .interaction import READING, base_path
from .open_parts import Seen, findings_of
from .quota import Reading, read_headers, reading_of
from .redaction import as_shown
from .reset_unit import Evidence, infer_reset_unit
from .settings import configured_regions

if TYPE_CHECKING:
    import pandas as pd

    from .sessions import Session

# Paths that nothing is known to be at, and that nobody would mind being asked for.
_NOWHERE: Final = "/v1/directmail-lab-nowhere"
_NEXT_VERSION: Final = ME_PATH.replace("/v1/", "/v2/")
_NO_KEY: Final = "directmail-lab-no-key"
_REFUSED: Final = (401, 403)
# Reads enough to see a time left count down, if it does.
_MOST_READS_FOR_UNIT: Final = 12


def findings(cassette: str | Path | None = None) -> pd.DataFrame:
    """Return what was seen of each part that the service's document leaves open.

    Nothing is sent.

    Parameters
    ----------
    cassette
        A cassette's name, or the `Path` of one; by default what the current session has seen: its
        answers, all of the cassette that it records or replays, and what `explore` got. Of answers
        that were not recorded only the shape is kept: fields and types, no values.

    Returns
    -------
    DataFrame
        A row for each open part, in the document's order: ``part`` and ``section`` of the document;
        ``seen`` of it, in words, empty where nothing was; ``how_sure`` (``"not seen"``,
        ``"undecided"``, ``"seen once"``, ``"seen repeatedly"``, and ``"certain"`` where all else is
        ruled out); ``interactions``, which ones, by source and number from 0; ``find_out``, the one
        call that would find out more; ``schema``, a JSON Schema (dict) of the bodies, or None (the
        table does not show it).

    Raises
    ------
    NotConnectedError
        No session is open, and no cassette was given.
    CassetteError
        There is no such cassette, or it cannot be read.
    """
    if cassette is None:
        return _findings_of_session(current())
    answers, shapes = _recorded(find_cassette(cassette))
    return _findings_of(answers, shapes)


def explore(
    *,
    pause_s: float = 1.0,
    announce: Callable[[str], object] = print,
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
    exploration = _Exploration(opened, pause_s, announce, sleep)
    try:
        exploration.run()
    except QuotaExhaustedError as error:
        exploration.announce(f"Stopped: {error}")
    return _findings_of_session(opened)


# -- what was seen -----------------------------------------------------------------------------


def _findings_of_session(opened: Session) -> pd.DataFrame:
    answers: list[Sighting] = []
    shapes = AnswerShapes()
    if opened.open_cassette is not None:
        # One that was opened by its path is not found by its name: the readings tell what it told.
        with contextlib.suppress(CassetteError):
            answers, shapes = _recorded(opened.open_cassette.path)
    is_read = bool(answers)
    answers += opened.answers.apart
    answers += [
        Sighting.of_session(each, row, opened.base_url)
        for row, each in enumerate(opened.readings.since(0))
        if not (is_read and each.cassette == opened.cassette)
    ]
    shapes.merge(opened.answers)
    return _findings_of(answers, shapes, opened.readings.evidence())


def _findings_of(
    answers: list[Sighting], shapes: AnswerShapes, evidence: Evidence | None = None
) -> pd.DataFrame:
    if evidence is None or evidence.unit == "undetermined":
        evidence = infer_reset_unit(each.reading for each in answers if each.is_the_accounts)
    return findings_of(Seen(answers, shapes, evidence))


def _recorded(path: Path) -> tuple[list[Sighting], AnswerShapes]:
    """Return the answers that a cassette holds, and their shapes."""
    loaded, answers, shapes = read_cassette(path), list[Sighting](), AnswerShapes()
    prefix = base_path(loaded.base_url or "")
    for number, each in enumerate(as_shown(loaded.interactions, foreign=loaded.foreign)):
        reading = reading_of(each, prefix=prefix, cassette=path.stem)
        answers.append(Sighting(reading, path.stem, number, loaded.base_url))
        shapes.add(answers[-1], each.response.headers, each.response.body)
    return answers, shapes


# -- asking for the rest -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Exploration:
    """One run of `explore`: whom it asks, how long it pauses (seconds), and whom it tells."""

    session: Session
    pause_s: float
    announce: Callable[[str], object]
    sleep: Callable[[float], object]

    def run(self) -> None:
        """Ask everything, until the key turns out to be refused.

        Raises
        ------
        QuotaExhaustedError
            The allowance is used up for longer than the session waits.
        """
        base_url = self.session.base_url
        self.announce(f"Exploring {base_url} with reads, which change nothing there.")
        first = self._ask("GET", ME_PATH, pause_s=0.0)
        if first is not None and first.status in _REFUSED:
            # To go on would be to send a wrong key again and again.
            wrong_key_sent().add(base_url)
            self.announce("The key was refused, so nothing more is sent.")
            return
        for method, path in (("OPTIONS", ME_PATH), ("GET", _NOWHERE), ("GET", _NEXT_VERSION)):
            self._ask(method, path)
        self._ask_apart(base_url, "none")
        if base_url in wrong_key_sent():
            self.announce(f"A wrong key was sent to {base_url} before, and is not sent again.")
        else:
            wrong_key_sent().add(base_url)
            self._ask_apart(base_url, "wrong")
        for address in dict.fromkeys(configured_regions().values()):
            if address != base_url:
                # Without the key: it is this region's, and may not be that one's.
                self._ask_apart(address, "none")
        self._read_until_unit_is_known(first)

    def _read_until_unit_is_known(self, last: Reading | None) -> None:
        for _ in range(_MOST_READS_FOR_UNIT):
            if self.session.readings.evidence().unit != "undetermined":
                return
            if last is not None and last.reset is None and last.reset_text is None:
                self.announce("The answers have no X-RateLimit-Reset whose unit could be found.")
                return
            last = self._ask("GET", ME_PATH)

    def _ask(self, method: str, path: str, *, pause_s: float | None = None) -> Reading | None:
        response = self._send(self.session.client, method, path, "", pause_s)
        return response.extensions[READING] if response is not None else None

    def _ask_apart(self, base_url: str, credentials: Credentials) -> None:
        """Ask with no key, or with a wrong one, past the session.

        A cassette does not keep the credentials: the answer to a wrong key would be replayed to who
        asks with the right one.
        """
        auth, words = None, " without a key"
        if credentials == "wrong":
            auth, words = httpx.BasicAuth(_NO_KEY, PASSWORD), " with a wrong key"
        timeout = self.session.client.timeout
        with httpx.Client(base_url=base_url, timeout=timeout, auth=auth) as client:
            response = self._send(client, "GET", ME_PATH, words)
        if response is None:
            return
        reading = read_headers(
            response.headers.raw,
            at=time.time(),
            method="GET",
            path=ME_PATH,
            status=response.status_code,
            elapsed_s=response.elapsed.total_seconds(),
        )
        apart = self.session.answers.apart
        apart.append(Sighting(reading, "explore", len(apart), base_url, credentials))
        self.session.answers.add(apart[-1], decoded_headers(response.headers), response.content)

    def _send(
        self,
        client: httpx.Client,
        method: str,
        path: str,
        words: str,
        pause_s: float | None = None,
    ) -> httpx.Response | None:
        if pause_s is None:
            self.sleep(self.pause_s)
        try:
            response = client.request(method, path)
        except httpx.HTTPError as error:
            self.announce(f"{method} {path}{words}: no answer ({type(error).__name__})")
            return None
        self.announce(f"{method} {path}{words}: {response.status_code}")
        return response
