"""Sample readings for the tests."""

from email.utils import formatdate
from typing import Any

from directmail_lab.readings.reading import RawValues, Reading, raw_values

NOON_S = 1_795_262_400.0


def raw(
    limit: object = 300,
    remaining: object = 299,
    reset: object = 60,
    *,
    retry_after: object = None,
    served_at: float | None = None,
) -> RawValues:
    """Return what a reading keeps of these headers. None means that the header was not sent."""
    date = None if served_at is None else formatdate(served_at, usegmt=True)
    names = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
    values = [limit, remaining, reset, retry_after, date]
    pairs = zip([*names, "Retry-After", "Date"], values, strict=True)
    return raw_values([(name, str(value)) for name, value in pairs if value is not None])


def reading(at: float = NOON_S, path: str = "/v1/users/me", **changes: Any) -> Reading:
    """Return a valid reading, changed by fields of `Reading` or arguments of `raw`."""
    of_reading = {"method": "GET", "status": 200, "elapsed_s": 0.03}
    of_reading |= {name: changes.pop(name) for name in Reading._fields if name in changes}
    return Reading(at, path=path, raw=raw(**changes), **of_reading)
