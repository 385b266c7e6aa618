"""``patch=True``: the clients that the code under test creates send through a session.

During one test, the methods with which httpx, httpx2 and requests send are replaced. The session
sends with the original method of the client's own transport, and so with the client's connections,
proxy, certificates and timeouts.

Clients with the default certificates share them, since reading them takes each client 30 ms.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from ..clients import ClientsTransport, adapters_of, as_httpx
from ..http import httpx
from ..transports.extensions import KEY, Call
from ..transports.network import shared_certificates

_ORIGINAL: Final = "directmail_original"
_DEFAULTS: Final = {"verify": True, "cert": None, "trust_env": True}


@contextmanager
def patched(session: ClientsTransport, passing: Collection[str] = ()) -> Iterator[None]:
    """Make clients send through a session, except to the hosts or patterns in ``passing``."""

    def passes(request: Any) -> bool:
        host = urlsplit(str(request.url)).hostname or ""
        call: Call | None = getattr(request, "extensions", {}).get(KEY)
        is_ours = call is not None and call.first_sent is not None  # a session is sending it
        return is_ours or any(fnmatchcase(host, pattern.lower()) for pattern in passing)

    with pytest.MonkeyPatch.context() as patch:
        for owner, name, through in _methods(session):
            current = getattr(owner, name)
            # The session of a module may already have replaced it.
            original = getattr(current, _ORIGINAL, current)
            patch.setattr(owner, name, _replacement(original, through, passes))
            if create := getattr(import_module(owner.__module__), "create_ssl_context", None):
                patch.setattr(
                    owner, "__init__", _sharing_certificates(vars(owner)["__init__"], create)
                )
        yield


def _sharing_certificates(
    original: Callable[..., None], create: Callable[[], ssl.SSLContext]
) -> Callable[..., None]:
    """Return a transport's ``__init__`` that shares the default certificates of its library."""

    @wraps(original)
    def init(transport: Any, *args: Any, **options: Any) -> None:
        asked = {name: options.get(name, default) for name, default in _DEFAULTS.items()}
        if asked == _DEFAULTS and not args:
            options["verify"] = shared_certificates(create)
        original(transport, *args, **options)

    return init


def _replacement(
    original: Callable[..., Any], through: Callable[..., Any], passes: Callable[[Any], bool]
) -> Callable[..., Any]:
    def send(transport: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if passes(request):
            return original(transport, request, *args, **kwargs)
        return through(partial(original, transport), transport, request, *args, **kwargs)

    setattr(send, _ORIGINAL, original)
    return send


def _methods(session: ClientsTransport) -> Iterator[tuple[type, str, Callable[..., Any]]]:
    """Yield each method to replace, and a function that sends through the session instead.

    The function takes the original method of the transport, and then that method's arguments.
    """

    # No coroutine functions are needed: these return the awaitable of the session's method.
    def by_httpx(original: Any, _: Any, request: Any) -> Any:
        return session.handle_request(as_httpx(request, original))

    def by_httpx_async(original: Any, _: Any, request: Any) -> Any:
        return session.handle_async_request(as_httpx(request, original))

    yield httpx.HTTPTransport, "handle_request", by_httpx
    yield httpx.AsyncHTTPTransport, "handle_async_request", by_httpx_async

    if find_spec("httpx2") and (its := adapters_of("httpx2")).httpx2 is not httpx:
        transport = its.Httpx2Transport(session)

        def by_httpx2(original: Any, _: Any, request: Any) -> Any:
            return transport.handle_request(request, its.sender(original, request))

        def by_httpx2_async(original: Any, _: Any, request: Any) -> Any:
            return transport.handle_async_request(request, its.async_sender(original, request))

        yield its.httpx2.HTTPTransport, "handle_request", by_httpx2
        yield its.httpx2.AsyncHTTPTransport, "handle_async_request", by_httpx2_async

    if find_spec("requests"):
        of_requests = adapters_of("requests")

        def by_requests(
            original: Any, adapter: Any, request: Any, *args: Any, **kwargs: Any
        ) -> Any:
            sender = of_requests.sender(partial(_with, original, args, kwargs), request)
            timeout = of_requests.timeout_of(*args, **kwargs)
            return of_requests.answer(adapter, session, request, timeout, sender)

        yield of_requests.HTTPAdapter, "send", by_requests


def _with(original: Any, args: Any, kwargs: Any, request: Any) -> Any:
    return original(request, *args, **kwargs)
