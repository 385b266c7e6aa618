"""The interactions that the benchmarks record, load and replay."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import httpx
from cassette_samples import BASE_URL, answered, get

if TYPE_CHECKING:
    from directmail_lab.exchange.values import Interaction

ME: Final = f"{BASE_URL}/v1/users/me"
KEY: Final = "sk_bench_0123456789"
BODY: Final = (
    b'{"id": "8f14e45f-ceea-467f-a9f4-3d1b2c4e5f60", "name": "Ada Lovelace", "email": '
    b'"ada@example.test", "company": {"name": "Analytical Engines Ltd", "address": {"city": '
    b'"London"}}, "plan": "starter", "n": 1}'
)
"""The record of the issue's 200 bytes: with the id and the address that slow a search down most."""


@cache
def polled() -> Interaction:
    """Return what one poll of the record is."""
    headers = tuple(httpx.Client().build_request("GET", ME).headers.multi_items())
    return answered(replace(get(), headers=headers), BODY)


def alike(size: int) -> list[Interaction]:
    """Return one interaction over and over, as a poll makes it."""
    return [polled()] * size


def different(size: int) -> list[Interaction]:
    """Return interactions of which no two have the same address or body."""
    return [
        answered(
            replace(polled().request, uri=f"{BASE_URL}/v1/lists/{index}?page={index}"),
            BODY.replace(b'"n": 1', b'"n": %d' % index),
        )
        for index in range(size)
    ]


def mocked() -> httpx.MockTransport:
    """Return what has a function answer: the least that an answer can cost."""
    headers = dict(polled().response.headers)
    return httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=BODY))
