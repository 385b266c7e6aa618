"""What the cassette tests record."""

from __future__ import annotations

from datetime import UTC, datetime

from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse

BASE_URL = "https://api.example.test"
NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)


def get(path: str = "/v1/users/me", *, base: str = BASE_URL) -> RecordedRequest:
    """Return a request to read a path."""
    return RecordedRequest("GET", base + path, (("Accept", "*/*"),), b"")


def post(body: bytes, *, content_type: str = "application/json") -> RecordedRequest:
    """Return a request that writes."""
    return RecordedRequest(
        "POST", f"{BASE_URL}/v1/letters", (("Content-Type", content_type),), body
    )


def answered(
    request: RecordedRequest | None = None, body: bytes | str = b'{"id": 1}', *, status: int = 200
) -> Interaction:
    """Return an interaction: a request and the response to it."""
    data = body.encode() if isinstance(body, str) else body
    headers = (
        ("Content-Type", "application/json"),
        ("X-RateLimit-Limit", "300"),
        ("X-RateLimit-Remaining", "299"),
        ("X-RateLimit-Reset", "42"),
    )
    return Interaction(
        request or get(), RecordedResponse(status, "OK", headers, data), NOON, elapsed_s=0.042
    )
