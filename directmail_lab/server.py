"""A server on loopback that answers from cassettes: for curl, a browser, PHP or Node."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from .cassettes import DEFAULT_MATCH_ON, Cassette
from .errors import CassetteError, DirectMailLabError, NotRecordedError
from .http import httpx
from .interaction import RecordedRequest, RecordedResponse, header
from .loopback import LoopbackServer, error_response
from .settings import is_loopback

_LONGEST_PAUSE_S: Final = 30.0


class CassetteServer(LoopbackServer):
    """Answers each request below its own address as cassettes do below theirs; sends nothing on.

    Of several cassettes, the first with a response that was not played yet answers; else the first
    with any. A refusal is JSON: ``{"error": {"status", "message", "reason"}}``.

    Parameters
    ----------
    paths
        The cassettes' files.
    port
        The port on 127.0.0.1; 0 takes a free one.
    repeat
        As in `replay`: ``"last"`` or ``"strict"``.
    latency_factor
        How much of the recorded latencies it waits: 0 none, 1 as recorded.
    message
        Returns the message of an error.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        port: int = 0,
        repeat: Literal["last", "strict"] = "last",
        latency_factor: float = 0.0,
        message: Callable[[Exception], str] = str,
    ) -> None:
        match_on = (*DEFAULT_MATCH_ON, _same_range)
        self.cassettes = [Cassette(path, repeat=repeat, match_on=match_on) for path in paths]
        for cassette in self.cassettes:
            if not len(cassette):
                raise CassetteError(
                    f"Cassette {cassette.name} has no interactions to answer with. Record some "
                    "first, or convert a HAR file: directmail-lab cassette convert."
                )
        self._latency_factor = latency_factor
        self._message = message
        super().__init__(port)

    def answer(self, request: RecordedRequest) -> RecordedResponse:
        """Return the recorded response to a request, or why there is none."""
        if problem := _problem(request):
            return error_response(403, problem, reason="refused")
        try:
            response = self._played(request)
        except DirectMailLabError as error:  # an interaction that cannot be read
            response = error_response(502, self._message(error), reason="unreadable")
        if header(request.headers, "sec-fetch-mode") == "navigate":
            # A recorded web page is shown, but its scripts must not run with JupyterLab's cookies.
            sandbox = ("Content-Security-Policy", "sandbox")
            response = replace(response, headers=(*response.headers, sandbox))
        return response

    def _played(self, request: RecordedRequest) -> RecordedResponse:
        try:  # spelled as httpx recorded it: %22 for a quotation mark, and so on
            asked = [
                (each, replace(request, uri=str(httpx.URL(f"{each.base_url}{request.uri}"))))
                for each in self.cassettes
            ]
        except (httpx.InvalidURL, ValueError) as error:
            return error_response(400, self._message(error), reason="invalid")
        refusals: list[NotRecordedError] = []
        for cassette, sent in sorted(asked, key=lambda pair: not pair[0].has_unplayed(pair[1])):
            try:
                _, played = cassette.play(sent)[-1]
            except NotRecordedError as error:
                refusals.append(error)
            else:
                pause_s = self._latency_factor * (played.elapsed_s or 0.0)
                self.closing.wait(min(pause_s, _LONGEST_PAUSE_S))
                return played.response
        nearest = max(refusals, key=lambda refusal: refusal.similarity)
        return error_response(404, self._message(nearest), reason=nearest.reason)


def _problem(request: RecordedRequest) -> str:
    """Return why a request is refused, or an empty text.

    A web page in the user's browser can send requests here: through a host name of its own that
    resolves to this machine (Host shows it), or across sites (Origin or Sec-Fetch-Site does).
    """
    host = re.sub(r":\d*$", "", header(request.headers, "host") or "localhost").strip("[]")
    if not is_loopback(host.lower()):
        return "Only requests to 127.0.0.1 or localhost are answered."
    site = header(request.headers, "sec-fetch-site") or "none"
    if header(request.headers, "origin") or site not in ("none", "same-origin"):
        return "Requests from web pages are refused."
    if not request.uri.startswith("/"):
        return "Only paths are answered: this server is no proxy."
    return ""


def _same_range(request: Any, recorded: Any) -> bool:
    """Let only a request for the same part of a body match: curl would save a cut file."""
    return bool(request.headers.get("Range") == recorded.headers.get("Range"))
