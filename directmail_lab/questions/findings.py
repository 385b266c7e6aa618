"""What service.md leaves open: seen so far (`findings`), and by new requests (`explore`)."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..bodies import decoded_headers
from ..cassettes import find_cassette, read_cassette
from ..contract import ME_PATH, PASSWORD
from ..current import session as current, wrong_key_sent
from ..errors import CassetteError, NotConnectedError, QuotaExhaustedError
from ..http import httpx
from ..interaction import READING, base_path, path_below
from ..readings.reading import Reading, raw_values, reading_of
from ..readings.reset_unit import Evidence, infer_reset_unit
from ..redaction import redact_foreign
from ..settings import configured_regions
from .open_parts import findings_of
from .shapes import Credentials, ResponseSample, ResponseShape

if TYPE_CHECKING:
    import pandas as pd

    from ..sessions import Session

# A path that should not exist, and the next version of one that does: harmless to request.
_NOWHERE: Final = "/v1/directmail-lab-nowhere"
_NEXT_VERSION: Final = ME_PATH.replace("/v1/", "/v2/")
_NO_KEY: Final = "directmail-lab-no-key"
_NOTES: Final = {"key": "", "none": " without a key", "wrong": " with a wrong key"}
# Enough reads to see a value of X-RateLimit-Reset count down, if it does.
_MOST_READS_FOR_UNIT: Final = 12


def findings(cassette: str | Path | None = None) -> pd.DataFrame:
    """Return what was seen so far of each part that the service's document leaves open.

    Nothing is sent.

    Parameters
    ----------
    cassette
        A cassette's name or `Path`; by default all that the current session has seen: its
        responses, the whole cassette that it records or replays, and the responses to `explore`. Of
        responses that are not recorded only the shape is kept: fields and types, no values.

    Returns
    -------
    DataFrame
        A row for each open part, in the document's order. ``part`` and ``section`` name it, and
        ``seen`` says in words what was seen of it, or is empty. ``how_sure`` is ``"not seen"``,
        ``"undecided"``, ``"seen once"``, ``"seen repeatedly"``, or ``"certain"`` if everything else
        is ruled out. ``interactions`` lists where, by source and number from 0. ``find_out`` is the
        one call that would find out more. These are strings. ``schema`` (object) is a JSON Schema
        of the bodies (dict) or None; the table shows neither it nor ``section``.

    Raises
    ------
    NotConnectedError
        No session is open, and no cassette is named.
    CassetteError
        There is no such cassette, or it cannot be read.
    """
    if cassette is None:
        return _findings_of_session(current())
    return _findings_of(_recorded(find_cassette(cassette)))


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
        No session is open, or it replays a recording, which answers no new requests.
    """
    opened = current()
    if opened.mode == "replay":
        raise NotConnectedError(
            "The session replays a recording, which answers no new requests. See findings(), "
            "or sign in with login() and explore() the live service."
        )
    try:
        _Exploration(opened, pause_s, announce, sleep).run()
    except QuotaExhaustedError as error:
        announce(f"Stopped: {error}")
    return _findings_of_session(opened)


# -- what was seen -----------------------------------------------------------------------------


def _findings_of_session(opened: Session) -> pd.DataFrame:
    samples: list[ResponseSample] = []
    if opened.open_cassette is not None:
        # If its file cannot be read, the session's readings are used alone.
        with contextlib.suppress(CassetteError):
            samples = _recorded(opened.open_cassette.path)
    is_read, readings = bool(samples), opened.readings.since(0)
    samples += [
        sample
        for sample in opened.response_shapes.samples(readings, opened.base_url)
        if not (is_read and sample.reading.cassette == opened.cassette)
    ]
    evidence = opened.readings.evidence()
    return _findings_of(samples, None if evidence.unit == "undetermined" else evidence)


def _findings_of(samples: list[ResponseSample], evidence: Evidence | None = None) -> pd.DataFrame:
    readings = (sample.reading for sample in samples if sample.may_have_key)
    return findings_of(samples, evidence or infer_reset_unit(readings))


def _recorded(path: Path) -> list[ResponseSample]:
    """Return the responses that a cassette holds."""
    loaded, samples = read_cassette(path), list[ResponseSample]()
    shapes = defaultdict[tuple[str, str, int], ResponseShape](ResponseShape)
    prefix = base_path(loaded.base_url or "")
    for number, interaction in enumerate(
        redact_foreign(loaded.interactions, foreign=loaded.foreign)
    ):
        below = path_below(interaction.request.uri, prefix)
        reading = reading_of(interaction, below, cassette=path.stem)
        shape = shapes[reading.method, reading.operation, reading.status]
        shape.add(interaction.response.headers, interaction.response.body)
        samples.append(ResponseSample(reading, shape, path.stem, number, loaded.base_url))
    return samples


# -- requests that show more -------------------------------------------------------------------


@dataclass(slots=True)
class _Exploration:
    """One run of `explore`, with its session and its parameters."""

    session: Session
    pause_s: float
    announce: Callable[[str], object]
    sleep: Callable[[float], object]
    is_first: bool = True

    def run(self) -> None:
        """Send all requests, or only the first if the key is refused.

        Raises
        ------
        QuotaExhaustedError
            The allowance is used up, and renews later than the session is willing to wait.
        """
        base_url = self.session.base_url
        self.announce(f"Exploring {base_url} with reads, which change nothing there.")
        first = self._send("GET", ME_PATH)
        if first is not None and first.status in (401, 403):
            # Each further request would send the wrong key once more.
            wrong_key_sent().add(base_url)
            self.announce("The key was refused, so nothing more is sent.")
            return
        for method, path in (("OPTIONS", ME_PATH), ("GET", _NOWHERE), ("GET", _NEXT_VERSION)):
            self._send(method, path)
        if base_url in wrong_key_sent():
            self.announce(f"A wrong key was sent to {base_url} before, and is not sent again.")
        else:
            wrong_key_sent().add(base_url)
            self._send("GET", ME_PATH, base_url, "wrong")
        for address in dict.fromkeys([base_url, *configured_regions().values()]):
            # Without the key, which belongs to this region and must not be sent to another.
            self._send("GET", ME_PATH, address, "none")
        self._read_until_unit_is_known(first)

    def _read_until_unit_is_known(self, last: Reading | None) -> None:
        for _ in range(_MOST_READS_FOR_UNIT):
            if self.session.readings.evidence().unit != "undetermined":
                return
            if last is not None and last.reset is None and last.reset_text is None:
                self.announce("There is no X-RateLimit-Reset, so its unit cannot be found.")
                return
            last = self._send("GET", ME_PATH)

    def _send(
        self, method: str, path: str, base_url: str = "", credentials: Credentials = "key"
    ) -> Reading | None:
        """Send a request: through the session, or without its key to the base address."""
        if not self.is_first:
            self.sleep(self.pause_s)
        self.is_first = False
        client, note = self.session.client, _NOTES[credentials]
        try:
            if credentials == "key":
                response = client.request(method, path)
            else:
                # Not recorded: a cassette keeps no credentials, so a replay would give the response
                # to a wrong key to a request with the right one.
                auth = httpx.BasicAuth(_NO_KEY, PASSWORD) if credentials == "wrong" else None
                url = base_url + path
                response = httpx.request(method, url, auth=auth, timeout=client.timeout)
        except httpx.HTTPError as error:
            self.announce(f"{method} {path}{note}: no response ({type(error).__name__})")
            return None
        self.announce(f"{method} {path}{note}: {response.status_code}")
        if credentials == "key":
            reading: Reading = response.extensions[READING]
            return reading
        reading = Reading(
            time.time(), method, path, response.status_code, raw_values(response.headers.raw),
            response.elapsed.total_seconds(),
        )  # fmt: skip
        shape, explored = ResponseShape(), self.session.response_shapes.explored
        shape.add(decoded_headers(response.headers), response.content)
        number = len(explored)
        explored.append(ResponseSample(reading, shape, "explore", number, base_url, credentials))
        return reading
