"""What every test stands on: no key, no settings of the user's, no network but this machine."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from directmail_lab import current
from directmail_lab.credentials import ApiKey
from directmail_lab.sessions import Session
from directmail_lab.settings import is_loopback
from directmail_lab.standin import StandIn, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest_plugins = ["pytester"]

# A failing example is a finding; in CI, chance is no reason to differ from day to day.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("developer", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "developer")


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in an empty folder as a user without settings, key or session."""
    for name in ("API_KEY", "BASE_URL", "REGIONS", "CASSETTES"):
        monkeypatch.delenv(f"DIRECTMAIL_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(current, "_current", None)
    yield
    if current._current is not None:
        current._current.close()


@pytest.fixture(autouse=True)
def loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a connection to any other machine fail the test."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
            if self.type == socket.SOCK_DGRAM:  # how programs ask which address of theirs goes out
                raise OSError("There is no network.")
            raise AssertionError(f"A test tried to reach {address[0]}.")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


@pytest.fixture
def service() -> Iterator[StandIn]:
    """A stand-in service, over real HTTP on loopback."""
    with stand_in() as started:
        yield started


@pytest.fixture
def live(service: StandIn) -> Iterator[Session]:
    """A live session with the stand-in."""
    with Session(service.base_url, ApiKey(service.api_key)) as opened:
        yield opened
