"""Sample requests, responses and cassettes for the tests."""

import base64
import gc
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vcr.persisters.filesystem import FilesystemPersister
from vcr.serialize import serialize
from vcr.serializers import jsonserializer, yamlserializer

from directmail_lab.cassettes import Cassette, Policy, read_cassette
from directmail_lab.cassettes.vcr_files import vcr_request, vcr_response
from directmail_lab.exchange.values import Interaction, Request, Response

BASE_URL = "https://api.example.test"
NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)


def get(path: str = "/v1/users/me", *, base: str = BASE_URL) -> Request:
    return Request("GET", base + path, (("Accept", "*/*"),), b"")


def post(body: bytes, *, content_type: str = "application/json") -> Request:
    return Request("POST", f"{BASE_URL}/v1/letters", (("Content-Type", content_type),), body)


def answered(
    request: Request | None = None, body: bytes | str = b'{"id": 1}', *, status: int = 200
) -> Interaction:
    """Return an interaction: the request (a GET by default) and a JSON response with this body."""
    data = body.encode() if isinstance(body, str) else body
    headers = (
        ("Content-Type", "application/json"),
        ("X-RateLimit-Limit", "300"),
        ("X-RateLimit-Remaining", "299"),
        ("X-RateLimit-Reset", "42"),
    )
    return Interaction(
        request or get(), Response(status, "OK", headers, data), NOON, elapsed_s=0.042
    )


def letter(to: str, status: int = 201) -> Interaction:
    return answered(post(f'{{"to": "{to}"}}'.encode()), "{}", status=status)


def typed(content_type: str, body: bytes | str, *more: tuple[str, str]) -> Interaction:
    interaction = answered(get("/v1/x"), body)
    headers = (("Content-Type", content_type), *more)
    return replace(interaction, response=replace(interaction.response, headers=headers))


def opened(path: Path | str, record_mode: str = "new_episodes", **options: Any) -> Cassette:
    """Open a cassette for recording, without the notice about personal data."""
    options = {"base_url": BASE_URL, "notice": lambda _: None, **options}
    return Cassette(path, record_mode=record_mode, **options)


def recorded(path: Path | str, *interactions: Interaction, **options: Any) -> Path:
    """Write a new cassette with these interactions, and return its path."""
    with opened(Path(path), "all", policy=Policy(aside=True), **options) as cassette:
        for each in interactions:
            cassette.record(each)
        cassette.close("merge")
    return Path(path)


def begin(cassette: Cassette, write: Interaction) -> int:
    number = cassette.start(write.request.method)
    cassette.begin_write(write.request, NOON, number)
    return number


def loaded_by_vcrpy(path: Path) -> int:
    return len(FilesystemPersister.load_cassette(path, yamlserializer)[0])


def killed(path: Path, record: Callable[[Cassette], object], **options: Any) -> None:
    """Record in another process, which is killed before the recording ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork of several threads
        child = os.fork()
    if child == 0:
        try:
            cassette = opened(path, **{"record_mode": "update", **options})
            record(cassette)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def killing_at(stop: int) -> Any:
    """Return a tracer that kills this process before a line of what writes files."""
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if Path(frame.f_code.co_filename).stem not in ("recorder", "journal", "files", "library"):
            return None
        lines += event == "line"
        if lines == stop:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def theirs(
    path: Path | str, *interactions: Interaction, as_json: bool = False, **about: Any
) -> Path:
    """Write a cassette the way vcrpy does, and return its path."""
    cassette = {
        "requests": [vcr_request(each.request) for each in interactions],
        "responses": [vcr_response(each.response) for each in interactions],
    }
    serializer = jsonserializer if as_json else yamlserializer
    data = serializer.deserialize(serialize(cassette, serializer))
    for entry, each in zip(data["interactions"], interactions, strict=True):
        if not each.response.status:
            entry["no_response"] = each.response.cut
    text = serializer.serialize({**data, "recording": about})
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


def har(path: Path | str, *interactions: Interaction) -> Path:
    """Write a HAR file with these interactions, and return its path."""

    def message(of: Request | Response) -> dict[str, Any]:
        headers = [{"name": name, "value": value} for name, value in of.headers]
        return {"headers": headers, "bodySize": len(of.body or b"")}

    entries = []
    for each in interactions:
        request, response = each.request, each.response
        sent = {"method": request.method, "url": request.uri, **message(request)}
        if request.body:
            sent["postData"] = {"mimeType": "", "text": request.body.decode()}
        text = base64.b64encode(response.body).decode()
        content = {"size": len(response.body), "text": text, "encoding": "base64"}
        received = {"status": response.status, "statusText": response.reason, "content": content}
        at = (each.recorded_at or NOON).isoformat()
        received |= message(response)
        entries.append({"startedDateTime": at, "time": 0, "request": sent, "response": received})
    Path(path).write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))
    return Path(path)


def paths_in(path: Path) -> list[str]:
    return [each.request.uri.removeprefix(BASE_URL) for each in read_cassette(path).interactions]


def count_calls(act: Callable[[], object]) -> int:
    """Return how many Python functions an action calls, without those of garbage collection."""
    count = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count
