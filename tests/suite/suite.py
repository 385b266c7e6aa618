"""Tests of the client, as its users might write them. ``account`` is the client."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from client import Account, AsyncAccount


def test_who_am_i(account: Account) -> None:
    assert account.me()["name"] == "Stand-in"
    assert [account.balance(each)["currency"] for each in ("EUR", "CHF")] == ["EUR", "CHF"]


@pytest.mark.parametrize("name", ["spring", "new year"])
def test_a_list_by_its_name(account: Account, name: str) -> None:
    assert account.list(name)["rows"] == 3


def test_a_list_that_is_not_there(account: Account) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        account.list("nowhere")


def test_pages(account: Account) -> None:
    assert len(list(account.lists(size=2))) == 5


def test_search(account: Account) -> None:
    assert account.search("café & bar", city="Zürich")["query"]["city"] == "Zürich"


class TestWrites:
    def test_create(self, account: Account) -> None:
        assert account.create("easter")["name"] == "easter"

    def test_rename_and_delete(self, account: Account) -> None:
        assert account.rename("spring", "April")["name"] == "April"
        assert account.delete("spring") == 204

    def test_upload(self, account: Account) -> None:
        assert account.upload("spring", b"Jo|Zurich\nAl|Bern\n")["rows"] == 2

    def test_letter(self, account: Account) -> None:
        letter = account.letter("spring", "Hello", once="9f1c")

        assert letter["once"] == "9f1c"
        assert [account.status(letter["id"]) for _ in range(2)] == ["queued", "sent"]


def test_export(account: Account) -> None:
    assert account.export("spring") == b"name\nspring\n\xff"


def test_token(account: Account) -> None:
    assert account.token("s3cr3t-of-the-client")["expires_in"] == 60


@pytest.mark.parametrize(("name", "status"), [("allowance", 429), ("broken", 500), ("outage", 503)])
def test_errors(account: Account, name: str, status: int) -> None:
    with pytest.raises(httpx.HTTPStatusError, match=str(status)):
        account.check(name)


@pytest.mark.asyncio
async def test_events(async_account: AsyncAccount) -> None:
    assert [event async for event in async_account.events()] == ["one", "two"]


@pytest.mark.anyio
async def test_many_at_once(async_account: AsyncAccount) -> None:
    found = await asyncio.gather(*(async_account.list(name) for name in ("summer", "winter")))

    assert [each["name"] for each in found] == ["summer", "winter"]
