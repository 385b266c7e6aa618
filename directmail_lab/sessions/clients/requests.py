"""The adapter for requests, to mount on a `requests.Session`."""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from . import ClientsTransport
from .connections import Connections


class SessionAdapter(HTTPAdapter):
    """Passes requests to a session, and returns its responses.

    ``timeout_s`` is for requests without a timeout of their own. The session's own connections
    send, so the settings of requests for proxies and certificates have no effect.
    """

    def __init__(self, session: ClientsTransport, timeout_s: float) -> None:
        self._session = session
        self._timeout_s = timeout_s
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        through = Connections(self._session, sends=False)
        self.poolmanager.pool_classes_by_scheme = {
            "http": _pool(HTTPConnectionPool, HTTPConnection, through),
            "https": _pool(HTTPSConnectionPool, HTTPSConnection, through),
        }

    def send(  # type: ignore[override]
        self, request: requests.PreparedRequest, stream: bool = False, timeout: Any = None, **_: Any
    ) -> requests.Response:
        if timeout is None:
            timeout = self._timeout_s
        return super().send(request, stream, timeout)


def _pool(pool: type, base: Any, through: Connections) -> type:
    """Return a class of pools whose connections send through a session."""

    class SessionConnection(base):  # type: ignore[misc]
        is_over_session = True

        def connect(self) -> None:
            through.connect(base.connect, self)

        def send(self, data: Any) -> None:
            through.send(base.send, self, data)

        def getresponse(self) -> Any:
            return through.getresponse(base.getresponse, self)

    return type("SessionPool", (pool,), {"ConnectionCls": SessionConnection})
