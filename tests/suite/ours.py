"""The conftest.py that runs the suite with this package's fixtures."""

import pytest
from client import Account, AsyncAccount


@pytest.fixture(scope="session")
def directmail_options():
    def currency(asked, recorded):
        return asked.headers.get("X-Currency") == recorded.headers.get("X-Currency")

    return {"match_on": ["method", "host", "path", "query", "body", currency]}


@pytest.fixture
def account(directmail):
    return Account(directmail.client)


@pytest.fixture
def async_account(directmail):
    return AsyncAccount(directmail.async_client)


@pytest.fixture
def anyio_backend():
    return "asyncio"
