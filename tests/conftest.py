"""Set up every test: no API key, no user settings, and no network except this machine."""

import os
import socket
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import hypothesis
import pytest
from cassette_samples import BASE_URL, answered, get, post
from faulty_service import FaultyService

from directmail_lab import credentials, settings
from directmail_lab.cassettes import Cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.redaction import Redactor
from directmail_lab.sessions import current
from directmail_lab.sessions.session import Session
from directmail_lab.sessions.transports import writes
from directmail_lab.settings import is_loopback
from directmail_lab.share import package_files

pytest_plugins = ["pytester"]

# On a developer's machine Hypothesis tries new examples on each run, so it may find new bugs. In CI
# (`.ci/run` sets the variable) the examples are fixed, so a run never fails by chance.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("developer", deadline=None, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "developer")


@pytest.fixture(scope="session", autouse=True)
def nothing_above(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make the folder of all tests the root of a project, so that no cassette above it is found."""
    (tmp_path_factory.getbasetemp() / ".git").mkdir(exist_ok=True)


@pytest.fixture(scope="session")
def a_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the first certificate of certifi."""
    end = "-----END CERTIFICATE-----\n"
    path = tmp_path_factory.mktemp("certificates") / "first.pem"
    path.write_text(Path(certifi.where()).read_text(encoding="utf-8").partition(end)[0] + end)
    return path


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Run pytest in a folder that is its rootdir, so no settings or conftest above it apply."""
    pytester.makeini("[pytest]")
    # cassetter and pytest-recording define the same option. pytest-randomly imports NumPy.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cassetter -p no:randomly")
    monkeypatch.delenv("CI", raising=False)  # with CI set, pytest does not shorten its summary
    # Compiled, a test would run unchanged if its file changes in the same second to the same size.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return pytester


def pytest_xdist_auto_num_workers() -> int:
    """Return one more than there are cores: many tests wait for a server or another program."""
    return (os.cpu_count() or 1) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the browser tests out where none would run: importing Playwright takes seconds."""
    marks = config.option.markexpr
    if collection_path.name == "browser" and ("not browser" in marks or marks == "slow"):
        return True
    return None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Use the argument's name as the id of bytes.

    Gzipped bytes contain the time, and all xdist workers must collect the same ids.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, a_certificate: Path) -> Iterator[None]:
    """Run each test in an empty folder, as a user without settings, key or session."""
    for name in [name for name in os.environ if name.startswith("DIRECTMAIL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{tmp_path}-config")  # the keyring creates it
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    # Loading all certificates takes 15 ms per session. No test leaves this machine: one is enough.
    monkeypatch.setenv("SSL_CERT_FILE", str(a_certificate))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(current._current, "session", None)
    # A widget that an earlier test left open would follow this test's sessions and keep them alive.
    monkeypatch.setattr(current._current, "callbacks", {})
    # Another test's service may have had the same port: forget what is known by address.
    monkeypatch.setattr(settings, "_connected", set())
    monkeypatch.setattr(current._current, "asked", {})
    monkeypatch.setattr(current._current, "may_write", True)
    monkeypatch.setattr(writes, "_sent", {})
    # Forget the keys of earlier tests that are not yet garbage-collected.
    monkeypatch.setattr(credentials, "_holders", weakref.WeakValueDictionary())
    yield
    if (left := current.current_session()) is not None:
        left.close()


@pytest.fixture(autouse=True)
def loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a test fail if it connects to another machine."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
            if self.type == socket.SOCK_DGRAM:  # programs do this to find out their own address
                raise OSError("There is no network.")
            raise AssertionError(f"A test tried to reach {address[0]}.")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs what Windows lacks, on Windows or on a disk with its rules."""
    marker = item.get_closest_marker("posix")
    if marker is not None and (os.name == "nt" or os.environ.get("TEST_DISK") == "windows"):
        pytest.skip(marker.args[0])


@pytest.fixture
def service() -> Iterator[FaultyService]:
    """A stand-in service over real HTTP on loopback; a test can make it misbehave."""
    with FaultyService() as started:
        yield started


@pytest.fixture
def live(service: FaultyService) -> Iterator[Session]:
    with Session(service.base_url, ApiKey(service.api_key)) as opened:
        yield opened


@pytest.fixture
def unpaced(service: FaultyService) -> Iterator[Session]:
    """A live session that never waits for the allowance and never repeats a request."""
    with Session(service.base_url, ApiKey(service.api_key), pace="off") as opened:
        yield opened


@pytest.fixture
def connected(live: Session) -> Session:
    current.make_current(live)
    return live


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, service: FaultyService) -> FaultyService:
    """A stand-in service whose address and key are in the environment."""
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", service.api_key)
    return service


@pytest.fixture
def tour(tmp_path: Path) -> Path:
    """A cassette with two equal reads, a 404 with a binary body, and a write.

    The body of the first read contains personal data.
    """
    path = tmp_path / "cassettes" / "tour.yaml"
    with Cassette(
        path, record_mode="any", redactor=Redactor(), base_url=BASE_URL, notice=lambda _: None
    ) as cassette:
        cassette.record(answered(body='{"name":\n "é\u2028", "email": "joe@corp.com"}'))
        cassette.record(answered(body='{"name": "Jo"}'))
        cassette.record(answered(get("/v1/lists/8f14e45f?page=2"), b"\xff\0\x85", status=404))
        cassette.record(answered(post(b'{"a": 1}'), "x" * 500, status=201))
    return path


@pytest.fixture
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `share` pack three files of this package: to search all takes most of its time."""
    names = ("__init__.py", "questions/__init__.py", "packaged/notebooks/01-first-look.ipynb")
    every = package_files.package_files()
    files = {place: every[place] for place in (f"directmail_lab/{name}" for name in names)}
    monkeypatch.setattr(package_files, "package_files", lambda: files)
