"""``directmail.respond``: responses that a test gives itself, for paths that nobody can record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ..exchange.httpx_values import httpx
from ..exchange.operations import base_path
from ..sessions.session import Session, transport_of

_Respond = Callable[[httpx.Request], httpx.Response]


class RespondingSession(Session):
    """The session of a test: `respond` gives its next requests responses of the test's own.

    Attributes
    ----------
    unused
        The responses that no request has had yet, each with its method and path.
    responded
        How often each method and path had such a response.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.unused: list[tuple[str, str, _Respond]] = []
        self.responded: Counter[tuple[str, str]] = Counter()
        transport_of(self).respond = self._respond_to

    def respond(
        self,
        path: str,
        function: _Respond | None = None,
        *,
        method: str = "GET",
        times: int = 1,
        status: int = 200,
        error: type[Exception] | None = None,
        **content: Any,
    ) -> None:
        """Give the next requests to an operation this response. Nothing is sent for them.

        If no request gets it, the test fails. A recorded response to such a
        request may be left unplayed.

        Parameters
        ----------
        path
            The path, as `get` takes it, or the whole path.
        function
            Returns the response to a request or raises an error, as the
            function of an `httpx.MockTransport` does.
        method
            The method of these requests.
        times
            How many requests get it.
        status
            The status of the response.
        error
            The class of an error to raise instead, such as `httpx.ReadTimeout`.
        **content
            What else the response has: ``json``, ``text``, ``headers`` and so
            on, as an `httpx.Response` takes them.
        """

        def respond(request: httpx.Request) -> httpx.Response:
            if error is None:
                return httpx.Response(status, **content)
            raise error(f"The test responds to {request.method} {path} with this error.")

        self.unused += [(method, path, function or respond)] * times

    def _respond_to(self, request: httpx.Request) -> httpx.Response | None:
        path = request.url.path
        own = path.removeprefix(base_path(self.base_url))
        for each in list(self.unused):
            method, expected, respond = each
            if method == request.method and expected in (path, own):
                self.unused.remove(each)
                self.responded[method, path] += 1
                return respond(request)
        return None
