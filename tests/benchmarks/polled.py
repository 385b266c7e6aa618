"""What the benchmarks record, load and replay, and from where."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

import httpx
from cassette_samples import BASE_URL, answered, get

from directmail_lab.exchange.values import Interaction

ME = f"{BASE_URL}/v1/users/me"
KEY = "sk_bench_0123456789"
BODY = (
    b'{"id": "8f14e45f-ceea-467f-a9f4-3d1b2c4e5f60", "name": "Ada Lovelace", "email": '
    b'"ada@example.test", "company": {"name": "Analytical Engines Ltd", "address": {"city": '
    b'"London"}}, "plan": "starter", "n": 1}'
)
"""A record of about 200 bytes. Its id and its e-mail address slow a search down most."""


@cache
def polled() -> Interaction:
    headers = tuple(httpx.Client().build_request("GET", ME).headers.multi_items())
    return answered(replace(get(), headers=headers), BODY)


def alike(size: int) -> list[Interaction]:
    """Return the same interaction ``size`` times, as polling records it."""
    return [polled()] * size


def different(size: int) -> list[Interaction]:
    return [
        answered(
            replace(polled().request, uri=f"{BASE_URL}/v1/lists/{index}?page={index}"),
            BODY.replace(b'"n": 1', b'"n": %d' % index),
        )
        for index in range(size)
    ]


def mocked() -> httpx.MockTransport:
    """Return a transport that calls a function, which is the least a response can cost."""
    headers = dict(polled().response.headers)
    return httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=BODY))


@contextmanager
def served(make: Callable[[], Any]) -> Iterator[tuple[str, str]]:
    """Start a service in another process, for the time of this one; give its address and key."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=[make, theirs])
    process.start()
    yield ours.recv()
    ours.send(None)
    process.join()


def _serve(make: Callable[[], Any], pipe: Connection) -> None:
    with make() as service:
        pipe.send((service.base_url, getattr(service, "api_key", "")))
        pipe.recv()
