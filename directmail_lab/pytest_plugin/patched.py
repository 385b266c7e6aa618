"""``patch=True``: the clients that the code under test creates send through a session.

During one test, the methods with which these libraries send are replaced. The session sends with
the client's own original method, and so with the client's connections, proxy, certificates and
timeouts.

- httpx and httpx2: ``handle_request`` of their transports.
- requests, urllib3, boto3, urllib.request, http.client and httplib2: ``request``, ``getresponse``
  of `http.client.HTTPConnection`, and ``connect`` and ``send`` of it and each subclass.
- aiohttp: a middleware.

Clients of httpx with the default certificates share them, since reading them takes each 30 ms.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial, wraps
from http import client
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import pytest

from ..exchange.httpx_values import httpx
from ..sessions.clients import ClientsTransport, adapters_of, as_httpx
from ..sessions.clients.connections import Connections
from ..sessions.transports.network import IS_OF_SESSION, shared_certificates

_ORIGINAL = "directmail_original"
# vcrpy may have put a class of its own in this place: pytest-recording replays a test's cassette.
HTTPConnection = getattr(client.HTTPConnection, "_baseclass", client.HTTPConnection)
_DEFAULTS = {"verify": True, "cert": None, "trust_env": True}


@contextmanager
def patched(session: ClientsTransport, passing: Collection[str] = ()) -> Iterator[None]:
    """Make clients send through a session, except to the hosts or patterns in ``passing``."""
    patterns = [pattern.lower() for pattern in passing]

    def passes(host: str) -> bool:
        return any(fnmatchcase(host.lower(), pattern) for pattern in patterns)

    with pytest.MonkeyPatch.context() as patch:
        _patch_httpx(patch, session, passes)
        _patch_connections(patch, Connections(session, passes))
        with (
            _when_imported("aiohttp", lambda: _patch_aiohttp(patch, session, passes)),
            _when_imported("urllib3", _refuse_other_urllib3),
        ):
            yield


def _refuse_other_urllib3() -> None:
    """Fail a test in which another package, such as urllib3.future, takes the place of urllib3."""
    connection = sys.modules.get("urllib3.connection")
    if connection and not issubclass(connection.HTTPConnection, HTTPConnection):
        pytest.fail(
            "Another package has taken the place of urllib3, and does not send by http.client. "
            "Its requests do not go through the session: install urllib3 itself, or use the "
            "fixture directmail_server.",
            pytrace=False,
        )


def _replace(
    patch: pytest.MonkeyPatch, owner: type, name: str, through: Callable[..., Any]
) -> None:
    """Replace a method. ``through`` takes the original one first."""
    current = vars(owner)[name]
    # The session of a module may already have replaced it.
    original = getattr(current, _ORIGINAL, current)

    @wraps(original)
    def method(*args: Any, **options: Any) -> Any:
        return through(original, *args, **options)

    setattr(method, _ORIGINAL, original)
    patch.setattr(owner, name, method)


# -- http.client -----------------------------------------------------------------------------------


def _patch_connections(patch: pytest.MonkeyPatch, through: Connections) -> None:
    for name in ("request", "getresponse"):
        _replace(patch, HTTPConnection, name, getattr(through, name))
    _replace_in_subclasses(patch, HTTPConnection, connect=through.connect, send=through.send)


def _replace_in_subclasses(
    patch: pytest.MonkeyPatch, root: type[Any], **methods: Callable[..., Any]
) -> None:
    """Replace methods of a class, and those of each subclass that has its own."""

    def replace_own(kind: type[Any]) -> None:
        for name, through in methods.items():
            if name in vars(kind) and not hasattr(kind, "is_over_session"):
                _replace(patch, kind, name, through)

    def replace_later(kind: Any, /, **options: Any) -> None:
        super(root, kind).__init_subclass__(**options)
        replace_own(kind)

    for kind in _with_subclasses(root):
        replace_own(kind)
    patch.setattr(root, "__init_subclass__", classmethod(replace_later), raising=False)


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _with_subclasses(each)


# -- aiohttp ---------------------------------------------------------------------------------------


def _patch_aiohttp(
    patch: pytest.MonkeyPatch, session: ClientsTransport, passes: Callable[[str], bool]
) -> None:
    its = adapters_of("aiohttp")
    _replace(patch, its.ClientSession, "_request", its.Middleware(session, passes).request)
    _replace_in_subclasses(patch, its.BaseConnector, connect=its.connect)


@contextmanager
def _when_imported(name: str, then: Callable[[], None]) -> Iterator[None]:
    """Call ``then`` once a package is imported: tests that do not use it need not wait for it."""
    if name in sys.modules:
        then()
        yield
        return

    class Finder:
        @staticmethod
        def find_spec(fullname: str, *_: object) -> ModuleSpec | None:
            if fullname != name:
                return None
            sys.meta_path.remove(finder)
            spec = find_spec(name)
            if spec is None or spec.loader is None:
                return None
            execute = spec.loader.exec_module

            def execute_and_patch(module: Any) -> None:
                execute(module)
                then()

            spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
            return spec

    finder: Any = Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)


# -- httpx and httpx2 ------------------------------------------------------------------------------


def _patch_httpx(
    patch: pytest.MonkeyPatch, session: ClientsTransport, passes: Callable[[str], bool]
) -> None:
    def passes_by(transport: Any, request: Any) -> bool:
        is_ours = getattr(transport, IS_OF_SESSION, False)
        return is_ours or passes(urlsplit(str(request.url)).hostname or "")

    for owner, name, through in _methods(session):

        def send(
            original: Any, transport: Any, request: Any, through: Any = through
        ) -> Any:  # the awaitable, of an asynchronous method
            if passes_by(transport, request):
                return original(transport, request)
            return through(partial(original, transport), request)

        _replace(patch, owner, name, send)
        create = import_module(owner.__module__).create_ssl_context
        patch.setattr(owner, "__init__", _sharing_certificates(vars(owner)["__init__"], create))


def _sharing_certificates(
    original: Callable[..., None], create: Callable[[], ssl.SSLContext]
) -> Callable[..., None]:
    """Return a transport's ``__init__`` that shares the default certificates of its library."""

    @wraps(original)
    def init(transport: Any, *args: Any, **options: Any) -> None:
        given = {name: options.get(name, default) for name, default in _DEFAULTS.items()}
        if given == _DEFAULTS and not args:
            options["verify"] = shared_certificates(create)
        original(transport, *args, **options)

    return init


def _methods(session: ClientsTransport) -> Iterator[tuple[type, str, Callable[..., Any]]]:
    """Yield each method to replace, and a function that sends through the session instead.

    The function takes the original method of the transport, and the request.
    """

    # No coroutine functions are needed: these return the awaitable of the session's method.
    def by_httpx(original: Any, request: Any) -> Any:
        return session.handle_request(as_httpx(request, original))

    def by_httpx_async(original: Any, request: Any) -> Any:
        return session.handle_async_request(as_httpx(request, original))

    yield httpx.HTTPTransport, "handle_request", by_httpx
    yield httpx.AsyncHTTPTransport, "handle_async_request", by_httpx_async

    its = adapters_of("httpx2") if find_spec("httpx2") else None
    if its is not None and its.httpx2 is not httpx:
        transport = its.Httpx2Transport(session)

        def by_httpx2(original: Any, request: Any) -> Any:
            return transport.handle_request(request, its.sender(original, request))

        def by_httpx2_async(original: Any, request: Any) -> Any:
            return transport.handle_async_request(request, its.async_sender(original, request))

        yield its.httpx2.HTTPTransport, "handle_request", by_httpx2
        yield its.httpx2.AsyncHTTPTransport, "handle_async_request", by_httpx2_async
