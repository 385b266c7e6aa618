"""What service.md leaves open, found in answers so far (`findings`) or by requests (`explore`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .bodies import decoded_headers
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
from .shapes import AnswerShapes, Credentials, Sighting

if TYPE_CHECKING:
    import pandas as pd

    from .sessions import Session

# A path that should not exist, and the next version of one that does: harmless to request.
_NOWHERE: Final = "/v1/directmail-lab-nowhere"
_NEXT_VERSION: Final = ME_PATH.replace("/v1/", "/v2/")
_NO_KEY: Final = "directmail-lab-no-key"
_REFUSED: Final = (401, 403)
# Enough reads to see a value of X-RateLimit-Reset count down, if it does.
_MOST_READS_FOR_UNIT: Final = 12


def findings(cassette: str | Path | None = None) -> pd.DataFrame:
    """Return what is known so far about each part that the service's document leaves open.

    Nothing is sent.

    Parameters
    ----------
    cassette
        A cassette's name or `Path`; by default all that the current session has seen: its answers,
        the whole cassette that it records or replays, and the answers to `explore`. Of answers that
        were not recorded only the shape is kept: fields and types, no values.

    Returns
    -------
    DataFrame
        A row for each open part, in the document's order. ``part`` and ``section`` name it, and
        ``seen`` says in words what was seen of it, or is empty. ``how_sure`` is ``"not seen"``,
        ``"undecided"``, ``"seen once"``, ``"seen repeatedly"``, or ``"certain"`` if everything else
        is ruled out. ``interactions`` lists where, by source and number from 0. ``find_out`` is the
        one call that would find out more. These are strings. ``schema`` (object) is a JSON Schema
        of the bodies (dict) or None; the table does not show it.

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
    """Send requests that show what the service's document leaves open; return the `findings`.

    About twenty requests at most, all of them reads. Each is announced, and they are paced as the
    session is. A request without a key goes to the session's address and to each other configured
    region, and one with a wrong key to the session's address (once per process); none of these is
    recorded. If the session's own key is refused, nothing more is sent. The allowance is not used
    up: to see that, use ``burst``.

    Parameters
    ----------
    pause_s
        Seconds between two requests.
    announce
        Called with each line that says what was sent; by default `print`.
    sleep
        Called with the seconds to wait.

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
        # If its file cannot be read, the session's readings are used alone.
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
    """One run of `explore`; its fields are the session and the parameters of `explore`."""

    session: Session
    pause_s: float
    announce: Callable[[str], object]
    sleep: Callable[[float], object]

    def run(self) -> None:
        """Send all requests, or only the first if the key is refused.

        Raises
        ------
        QuotaExhaustedError
            The allowance is used up, and renews later than the session is willing to wait.
        """
        base_url = self.session.base_url
        self.announce(f"Exploring {base_url} with reads, which change nothing there.")
        first = self._ask("GET", ME_PATH, pause_s=0.0)
        if first is not None and first.status in _REFUSED:
            # Each further request would send the wrong key once more.
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
                # Without the key, which belongs to this region and must not be sent to another.
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
        """Ask with no key or with a wrong one, by a client that records nothing.

        A cassette keeps no credentials, so a replay would give the answer to a wrong key to a
        request with the right one.
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
