"""The service that the client calls. Some of its responses carelessly repeat the key."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from directmail_lab.exchange.values import Request, Response, header
from directmail_lab.server.loopback import LoopbackServer, error_response, json_response

NAMES = ["spring", "summer", "autumn", "winter", "new year"]


class Asked(NamedTuple):
    """A request in its parts. ``times`` counts the requests for its operation so far."""

    request: Request
    path: list[str]
    query: dict[str, str]
    key: str
    times: int

    def header(self, name: str) -> str | None:
        return header(self.request.headers, name)

    @property
    def body(self) -> bytes:
        return self.request.body or b""


def page(asked: Asked) -> dict[str, Any]:
    start, size = int(asked.query.get("start", 0)), int(asked.query["size"])
    end = start + size
    following = f"/v1/lists?size={size}&start={end}" if end < len(NAMES) else None
    return {"data": [{"name": name} for name in NAMES[start:end]], "next": following}


def one(asked: Asked) -> object:
    name = unquote(asked.path[1])
    return {"name": name, "rows": 3} if name in NAMES else error_response(404, "No such list.")


def packed(asked: Asked) -> Response:
    headers = (("Content-Type", "text/csv"), ("Content-Encoding", "gzip"))
    rows = f"name\n{asked.path[1]}\n\xff".encode("latin-1")
    return Response(200, "OK", headers, gzip.compress(rows, mtime=0))


def failed(status: int) -> Response:
    return error_response(status, "Not now.", (("Retry-After", "0"),))


EVENTS = Response(
    200, "OK", (("Content-Type", "text/event-stream"),), b"data: one\n\ndata: two\n\n"
)
ANSWERS: dict[str, Callable[[Asked], object]] = {
    "GET users/me": lambda a: {
        "name": "Stand-in",
        "signed": base64.b64encode(a.key.encode()).decode(),
    },
    "GET balance": lambda a: {"currency": a.header("X-Currency"), "amount": 12},
    "GET lists": page,
    "GET lists/*/export": packed,
    "GET lists/*": one,
    "GET search": lambda a: {"query": a.query},
    "GET events": lambda _: EVENTS,
    "GET letters/*": lambda a: {"status": "queued" if a.times % 2 else "sent"},
    "GET checks/allowance": lambda _: failed(429),
    "GET checks/broken": lambda _: failed(500),
    "GET checks/outage": lambda _: failed(503),
    "POST lists": lambda a: {**json.loads(a.body), "by": a.key},
    "PATCH lists/*": lambda a: json.loads(a.body),
    "DELETE lists/*": lambda _: Response(204, "No Content"),
    "POST lists/*/rows": lambda a: {
        "rows": a.body.count(b"|"),
        "callback": f"https://hooks.test/?token={a.key}",
    },
    "POST letters": lambda a: {"id": "let1", "once": a.header("Idempotency-Key")},
    "POST messages": lambda _: EVENTS,
    "POST chat/completions": lambda a: failed(429) if a.times % 2 else {"text": "Hello back"},
    "POST token": lambda _: {"access_token": "at-0123456789abcdef", "expires_in": 60},
}


class Service(LoopbackServer):
    """Counts the requests it receives by ``"METHOD /path"``."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        super().__init__()

    def response_to(self, request: Request) -> Response:
        parts = urlsplit(request.uri)
        operation = f"{request.method} {parts.path.removeprefix('/v1/')}"
        self.requests[operation] += 1
        scheme, _, sent = (header(request.headers, "Authorization") or "").partition(" ")
        asked = Asked(
            request,
            operation.partition(" ")[2].split("/"),
            {name: values[0] for name, values in parse_qs(parts.query).items()},
            base64.b64decode(sent).decode().removesuffix(":") if scheme == "Basic" else sent,
            self.requests[operation],
        )
        for pattern, respond in ANSWERS.items():
            if fnmatchcase(operation, pattern):
                found = respond(asked)
                return found if isinstance(found, Response) else json_response(200, found)
        return error_response(404, "There is no such operation.")
