"""One function for each client that ``patch=True`` leads through a session.

Each creates its client, as code under test does, sends one request and returns the outcome.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import boto3
import botocore.config
import httplib2
import httpx
import httpx2
import requests
import urllib3


class Got(NamedTuple):
    """What a client's caller sees of a response. The address is None if the client has none."""

    status: int
    body: bytes
    url: str | None = None


class Asked(NamedTuple):
    """A request, and the seconds to wait for its connection and for each part of its response."""

    method: str
    url: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    timeout_s: float = 5.0


def by_httpx(library: Any, asked: Asked) -> Got:
    with library.Client(follow_redirects=True, timeout=asked.timeout_s) as client:
        response = client.request(
            asked.method, asked.url, content=asked.body, headers=asked.headers
        )
        return Got(response.status_code, response.content, str(response.url))


def by_httpx_async(library: Any, asked: Asked) -> Got:
    async def send() -> Got:
        async with library.AsyncClient(follow_redirects=True, timeout=asked.timeout_s) as client:
            response = await client.request(
                asked.method, asked.url, content=asked.body, headers=asked.headers
            )
            return Got(response.status_code, response.content, str(response.url))

    return asyncio.run(send())


def by_requests(asked: Asked) -> Got:
    with requests.Session() as client:
        options: Any = {"data": asked.body, "headers": asked.headers, "timeout": asked.timeout_s}
        response = client.request(asked.method, asked.url, **options)
        return Got(response.status_code, response.content, response.url)


def by_urllib3(asked: Asked) -> Got:
    options: Any = {
        "retries": urllib3.Retry(None, connect=0, read=0, redirect=3),
        "timeout": asked.timeout_s,
    }
    proxy = os.environ.get("HTTPS_PROXY")
    with (
        urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options) as pool
    ):
        response = pool.request(asked.method, asked.url, body=asked.body, headers=asked.headers)
        return Got(response.status, response.data)


def by_urllib(asked: Asked) -> Got:
    request = urllib.request.Request(
        asked.url, asked.body, dict(asked.headers), method=asked.method
    )
    try:
        with urllib.request.build_opener().open(request, timeout=asked.timeout_s) as response:
            body = unpacked(response.read(), response.headers.get("Content-Encoding"))
            return Got(response.status, body, response.url)
    except urllib.error.HTTPError as error:
        with error:
            return Got(error.code, error.read(), error.url)


def by_http_client(asked: Asked) -> Got:
    parts, proxy = urlsplit(asked.url), os.environ.get("HTTPS_PROXY")
    is_tls = parts.scheme == "https"
    kind: Any = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
    place = urlsplit(proxy) if proxy else parts
    connection = kind(place.hostname, place.port, timeout=asked.timeout_s)
    try:
        if proxy:
            connection.set_tunnel(parts.hostname, parts.port)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(asked.method, target, asked.body, dict(asked.headers))
        response = connection.getresponse()
        body = unpacked(response.read(), response.headers["Content-Encoding"])
        return Got(response.status, body)
    finally:
        connection.close()


def by_httplib2(asked: Asked) -> Got:
    authorities = os.environ.get("HTTPLIB2_CA_CERTS")
    client = httplib2.Http(timeout=asked.timeout_s, ca_certs=authorities)
    try:
        response, body = client.request(asked.url, asked.method, asked.body, dict(asked.headers))
        return Got(response.status, body)
    finally:
        client.close()


def by_aiohttp(timeout: str, asked: Asked) -> Got:
    async def send() -> Got:
        limits = aiohttp.ClientTimeout(**{timeout: asked.timeout_s})
        checked: Any = ssl.create_default_context() if asked.url.startswith("https") else True
        async with (
            aiohttp.ClientSession(timeout=limits, trust_env=True) as client,
            client.request(
                asked.method, asked.url, data=asked.body, headers=asked.headers, ssl=checked
            ) as response,
        ):
            return Got(response.status, await response.read(), str(response.url))

    return asyncio.run(send())


def by_boto3(asked: Asked) -> Got:
    """Get an object, or put one: the path is its bucket and its key."""
    place = urlsplit(asked.url)
    config = botocore.config.Config(
        connect_timeout=asked.timeout_s,
        read_timeout=asked.timeout_s,
        retries={"max_attempts": 0},
        s3={"addressing_style": "path"},
    )
    client = boto3.client(
        "s3",
        endpoint_url=f"{place.scheme}://{place.netloc}",
        aws_access_key_id=AWS_ID,
        aws_secret_access_key=AWS_SECRET,
        region_name="eu-west-1",
        config=config,
    )
    bucket, _, key = place.path.strip("/").partition("/")
    if asked.body is not None:
        put = client.put_object(Bucket=bucket, Key=key, Body=asked.body)
        return Got(put["ResponseMetadata"]["HTTPStatusCode"], b"")
    got = client.get_object(Bucket=bucket, Key=key)
    body = unpacked(got["Body"].read(), got.get("ContentEncoding"))
    return Got(got["ResponseMetadata"]["HTTPStatusCode"], body)


def unpacked(body: bytes, coding: str | None) -> bytes:
    """Decompress a body as code does whose client does not."""
    return gzip.decompress(body) if coding == "gzip" else body


AWS_ID, AWS_SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
CLIENTS: dict[str, Callable[[Asked], Got]] = {
    "httpx": partial(by_httpx, httpx),
    "httpx async": partial(by_httpx_async, httpx),
    "httpx2": partial(by_httpx, httpx2),
    "httpx2 async": partial(by_httpx_async, httpx2),
    "requests": by_requests,
    "urllib3": by_urllib3,
    "urllib.request": by_urllib,
    "http.client": by_http_client,
    "httplib2": by_httplib2,
    "aiohttp": partial(by_aiohttp, "total"),
    "aiohttp sock_read": partial(by_aiohttp, "sock_read"),
    "boto3": by_boto3,
}
