"""What requests of the code's own clients cost under ``patch=True``, beside vcrpy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import boto3
import httpx
import pytest
import requests
import urllib3
from botocore.config import Config
from client_service import ClientService
from directmail_lab.pytest_plugin.patched import patched
from every_client import AWS_ID, AWS_SECRET
from polled import cassette_of, served

from directmail_lab.sessions.session import Session
from directmail_lab.settings import NO_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Turns

REQUESTS = 50


def by_httpx(addresses: list[str]) -> None:
    with httpx.Client() as client:
        for address in addresses:
            client.get(address).raise_for_status()


def by_requests(addresses: list[str]) -> None:
    with requests.Session() as client:
        for address in addresses:
            client.get(address, timeout=60).raise_for_status()


def by_urllib3(addresses: list[str]) -> None:
    with urllib3.PoolManager() as pool:
        for address in addresses:
            assert pool.request("GET", address).status == 201


def by_aiohttp(addresses: list[str]) -> None:
    async def send() -> None:
        async with aiohttp.ClientSession(raise_for_status=True) as client:
            for address in addresses:
                async with client.get(address) as response:
                    await response.read()

    asyncio.run(send())


def by_boto3(addresses: list[str]) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=addresses[0].partition("/v1/")[0],
        aws_access_key_id=AWS_ID,
        aws_secret_access_key=AWS_SECRET,
        region_name="eu-west-1",
        config=Config(s3={"addressing_style": "path"}),
    )
    for address in addresses:
        version = address.rpartition("=")[2]
        client.get_object(Bucket="v1", Key="rows", VersionId=version)["Body"].read()


SENDERS = [by_httpx, by_requests, by_urllib3, by_aiohttp, by_boto3]


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """Addresses of a service in another process, no two the same."""
    with served(ClientService) as (base_url, _):
        yield [f"{base_url}/v1/rows?versionId={number}" for number in range(REQUESTS)]


@pytest.mark.parametrize("replays", [False, True], ids=["recorded", "replayed"])
@pytest.mark.parametrize("send", SENDERS)
def test_requests(
    in_turns: Turns,
    tmp_path: Path,
    addresses: list[str],
    send: Callable[[list[str]], None],
    replays: bool,
) -> None:
    """A test's requests, from opening its cassette to closing it."""
    our_path, their_path = tmp_path / "ours.yaml", tmp_path / "theirs.yaml"

    def theirs() -> None:
        with cassette_of("vcr", their_path):
            send(addresses)

    def ours() -> None:
        with Session(NO_ADDRESS) as session, patched(session._take_senders()):
            if our_path.exists():
                session.replay(our_path, repeat="strict")
            else:
                session.record(our_path)
            send(addresses)

    def before() -> None:
        if not replays:
            our_path.unlink(missing_ok=True)
            their_path.unlink(missing_ok=True)

    calls = {"vcrpy": theirs, "ours": ours, "without a cassette": lambda: send(addresses)}
    in_turns(calls, {"ours": "1"}, rounds=6, requests=REQUESTS, before=before)


def test_entering_and_leaving(in_turns: Turns) -> None:
    """For each test with ``patch=True``."""

    def enter() -> None:
        with patched(session._clients_transport):
            pass

    with Session(NO_ADDRESS) as session:
        in_turns({"patched": enter}, {"patched": "300 us"}, rounds=50)
