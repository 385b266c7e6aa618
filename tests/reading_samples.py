"""Readings as the tests make them."""

from __future__ import annotations

from typing import Any

from directmail_lab.readings.reading import Reading

NOON_S = 1_795_262_400.0


def reading(at: float = NOON_S, **changes: Any) -> Reading:
    """Return a reading without a problem, of one operation, changed as told."""
    path = changes.get("operation", "/v1/users/me")
    fields = {
        "method": "GET",
        "path": path,
        "operation": path,
        "status": 200,
        "limit": 300,
        "remaining": 299,
        "reset": 60,
        "elapsed_s": 0.03,
    }
    return Reading(at, **{**fields, **changes})
