"""The service that the client is for. It is careless: here and there it repeats the key."""

from __future__ import annotations

import base64
import gzip
import json
import sys
import threading
from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

from directmail_lab.interaction import Headers, RecordedRequest, RecordedResponse, header
from directmail_lab.server import LoopbackServer, error_response, json_response

NAMES = ["spring", "summer", "autumn", "winter", "new year"]
STATUSES = {"quota": 429, "broken": 500, "outage": 503}


class Service(LoopbackServer):
    """It answers each request as its path and body say, nearly: a letter is queued, then sent."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        super().__init__()

    def answer(self, request: RecordedRequest) -> RecordedResponse:
        self.seen[request.method] += 1
        sent = header(request.headers, "Authorization") or ""
        key = base64.b64decode(sent.removeprefix("Basic ")).decode().removesuffix(":")
        parts = urlsplit(request.uri)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        found = self.found(request, parts.path.removeprefix("/v1/").split("/"), query, key)
        return found if isinstance(found, RecordedResponse) else json_response(200, found)

    def found(
        self, request: RecordedRequest, path: list[str], query: dict[str, str], key: str
    ) -> Any:
        match request.method, path:
            case "GET", ["users", "me"]:
                return {
                    "id": 7,
                    "name": "Stand-in",
                    "signed": base64.b64encode(key.encode()).decode(),
                }
            case "GET", ["balance"]:
                return {"currency": header(request.headers, "X-Currency"), "amount": 12}
            case "GET", ["lists"]:
                start, size = int(query.get("start", 0)), int(query["size"])
                end = start + size
                following = f"/v1/lists?size={size}&start={end}" if end < len(NAMES) else None
                return {"data": [{"name": n} for n in NAMES[start:end]], "next": following}
            case "GET", ["lists", name, "export"]:
                headers: Headers = (("Content-Type", "text/csv"), ("Content-Encoding", "gzip"))
                rows = f"name\n{name}\n\xff".encode("latin-1")
                return RecordedResponse(200, "OK", headers, gzip.compress(rows, mtime=0))
            case "GET", ["lists", name] if name.replace("%20", " ") in NAMES:
                return {"name": name, "rows": 3}
            case "GET", ["search"]:
                return {"query": query}
            case "GET", ["events"]:
                headers = (("Content-Type", "text/event-stream"),)
                return RecordedResponse(200, "OK", headers, b"data: one\n\ndata: two\n\n")
            case "GET", ["letters", name]:
                self.seen[name] += 1
                return {"id": name, "status": ("sent", "queued")[self.seen[name] % 2]}
            case "GET", ["checks", name] if name in STATUSES:
                return error_response(STATUSES[name], "Not now.", (("Retry-After", "0"),))
            case "POST", ["lists"]:
                return {**json.loads(request.body or b""), "by": key}
            case "PATCH", ["lists", _]:
                return json.loads(request.body or b"")
            case "DELETE", ["lists", _]:
                return RecordedResponse(204, "No Content")
            case "POST", ["lists", name, "rows"]:
                back = f"https://hooks.test/{name}?token={key}"
                return {"rows": (request.body or b"").count(b"|"), "callback": back}
            case "POST", ["letters"]:
                return {"id": "let1", "once": header(request.headers, "Idempotency-Key")}
            case "POST", ["token"]:
                return {"access_token": "at-0123456789abcdef", "expires_in": 60}
        return error_response(404, "There is no such thing.")


if __name__ == "__main__":  # for whoever tries it out
    with Service() as service:
        print(service.base_url, file=sys.stdout, flush=True)  # noqa: T201
        threading.Event().wait()
