"""``directmail.respond``: responses that a test gives itself, for paths that nobody can record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ..arguments import argument_error
from ..exchange.httpx_values import httpx, parse_url
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
        error: Exception | type[Exception] | None = None,
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
            An error to raise instead, or its class, such as `httpx.ReadTimeout`.
        **content
            What else the response has: ``json``, ``text``, ``headers`` and so
            on, as an `httpx.Response` takes them.

        Raises
        ------
        ValueError
            No request can have this path.
        """
        url = parse_url(path)
        if url.host or url.query or url.fragment or not path.startswith("/"):
            raise argument_error(
                f"respond() takes a path such as /v1/lists, without host and query: not {path!r}."
            )
        if content.get("json", content) is None:  # httpx would send no body
            headers = httpx.Headers({"Content-Type": "application/json"})
            headers.update(content.get("headers"))
            content = {"content": b"null", "headers": headers}

        def respond(request: httpx.Request) -> httpx.Response:
            if isinstance(error, Exception):
                raise error
            if error is not None:
                raise error(f"The test responds to {request.method} {path} with this error.")
            made = httpx.Response(status, **content)
            # As one that comes from the network: its client reads and times it.
            return httpx.Response(
                status, headers=made.headers, stream=made.stream, extensions=made.extensions
            )

        self.unused += [(method.upper(), url.path, function or respond)] * times

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
