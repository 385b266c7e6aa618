"""What every test stands on: no key, no settings of the user's, no network but this machine."""

from __future__ import annotations

import os
import socket
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import BASE_URL, answered, get, post
from faulty_service import FaultyService
from hypothesis import settings

from directmail_lab import credentials, current
from directmail_lab.cassettes import Cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.redaction import Redactor
from directmail_lab.sessions import Session
from directmail_lab.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest_plugins = ["pytester"]

# A failing example of a developer is a finding. In CI (`.ci/run` sets it) chance must not decide.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("developer", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "developer")


@pytest.fixture(scope="session", autouse=True)
def nothing_above(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let the folder of all tests be a project's root: no cassette is looked for above it."""
    (tmp_path_factory.getbasetemp() / ".git").mkdir(exist_ok=True)


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Run pytest in a folder that is its root, whatever settings and conftest stand above it."""
    pytester.makeini("[pytest]")
    # cassetter, which the benchmarks compare with, and pytest-recording have options of one name;
    # pytest-randomly imports NumPy.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cassetter -p no:randomly")
    monkeypatch.delenv("CI", raising=False)  # where it is set, pytest cuts no line of its summary
    return pytester


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: gzip writes the time, and all workers must see one name."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in an empty folder as a user without settings, key or session."""
    for name in ("API_KEY", "BASE_URL", "REGIONS", "CASSETTES"):
        monkeypatch.delenv(f"DIRECTMAIL_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    # Nobody is trusted, as nobody is reached: a session takes 25 ms to load the usual certificates.
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(current._current, "session", None)
    # A widget that an earlier test left open would follow, and so hold, the sessions of this one.
    monkeypatch.setattr(current._current, "callbacks", {})
    # Keys that an earlier test left behind, and that were not collected yet.
    monkeypatch.setattr(credentials, "_holders", weakref.WeakValueDictionary())
    yield
    if (left := current.current_session()) is not None:
        left.close()


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
def service() -> Iterator[FaultyService]:
    """A stand-in service, over real HTTP on loopback; it can be told to misbehave."""
    with FaultyService() as started:
        yield started


@pytest.fixture
def live(service: FaultyService) -> Iterator[Session]:
    """A live session with the stand-in."""
    with Session(service.base_url, ApiKey(service.api_key)) as opened:
        yield opened


@pytest.fixture
def unpaced(service: FaultyService) -> Iterator[Session]:
    """A live session that waits for nothing, and asks for nothing twice."""
    with Session(service.base_url, ApiKey(service.api_key), pace="off") as opened:
        yield opened


@pytest.fixture
def connected(live: Session) -> Session:
    """The live session, made the current one."""
    current.make_current(live)
    return live


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, service: FaultyService) -> FaultyService:
    """A stand-in that the environment names, with its key."""
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", service.api_key)
    return service


@pytest.fixture
def tour(tmp_path: Path) -> Path:
    """A cassette of four: a read with personal data, the same again, bytes with a 404, a write."""
    path = tmp_path / "cassettes" / "tour.yaml"
    with Cassette(
        path, record_mode="any", redactor=Redactor(), base_url=BASE_URL, notice=lambda _: None
    ) as cassette:
        cassette.record(answered(body='{"name":\n "é\u2028", "email": "joe@corp.com"}'))
        cassette.record(answered(body='{"name": "Jo"}'))
        cassette.record(answered(get("/v1/lists/8f14e45f?page=2"), b"\xff\0\x85", status=404))
        cassette.record(answered(post(b'{"a": 1}'), "x" * 500, status=201))
    return path
