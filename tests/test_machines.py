"""Other machines: files that another program has open, and names that one system refuses.

`.ci/run` runs this module and others on a disk with Windows' rules: see `machines/disk.py`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
from cassette_samples import answered, get, recorded

import directmail_lab as dm
from directmail_lab import settings
from directmail_lab.cassettes import Cassette, Policy, read_cassette
from directmail_lab.display import shell_word, utc_time

IS_WINDOWS_DISK = os.environ.get("TEST_DISK") == "windows"


@contextmanager
def in_use(path: Path, *, times: float = float("inf")) -> Iterator[None]:
    """Let another program have a file open. On a POSIX disk, refuse to replace it, ``times``."""
    usual, left = Path.replace, times

    def replace(self: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left >= 0:
            raise PermissionError(13, "Permission denied")
        return usual(self, target)

    with pytest.MonkeyPatch.context() as patch, path.open("rb"):
        patch.setattr("time.sleep", lambda _: None)
        if not IS_WINDOWS_DISK:
            patch.setattr(Path, "replace", replace)
        yield


def record_again(path: Path) -> list[str]:
    notices: list[str] = []
    cassette = Cassette(path, record_mode="all", policy=Policy(), notice=notices.append)
    cassette.record(answered(get("/v1/users/me"), body="new"))
    cassette.close("merge")
    return notices


def has_new_alone(path: Path) -> bool:
    """Return whether the file, without a journal beside it, has the new recording and no other."""
    return [each.response.body for each in read_cassette(path)] == [b"new"] and (
        '"old"' not in path.read_text("utf-8")
    )


def test_a_cassette_that_another_program_has_open_is_rewritten_later(tmp_path):
    """The recording stays in its journal, and the next one folds it."""
    old = recorded(tmp_path / "tour.yaml", answered(body="old"))
    with in_use(old):
        (notice,) = record_again(old)
        assert f"Another program has {old} open, so it was not replaced." in notice
        assert "safe beside it, in tour.yaml.part" in notice
        assert [each.response.body for each in read_cassette(old)] == [b"new"]
        assert not has_new_alone(old)
    record_again(old)

    assert has_new_alone(old)


@pytest.mark.skipif(IS_WINDOWS_DISK, reason="a real file stays open for as long as it is open")
def test_a_cassette_is_replaced_as_soon_as_it_is_closed(tmp_path):
    """A virus scanner or a viewer may have the file open for a moment."""
    old = recorded(tmp_path / "tour.yaml", answered(body="old"))
    with in_use(old, times=3):
        assert record_again(old) == []

    assert has_new_alone(old)


def test_regions_may_begin_with_a_byte_order_mark(tmp_path):
    """Editors on Windows write one."""
    path = tmp_path.with_name(f"{tmp_path.name}-config") / "directmail-lab/regions.toml"
    path.parent.mkdir(parents=True)
    path.write_text('eu = "https://eu.example.com"\n', encoding="utf-8-sig")

    assert settings.configured_regions() == {"eu": "https://eu.example.com"}


def test_a_session_needs_no_home_folder(monkeypatch, live):
    """Some containers run with a user id that the system does not know, and without HOME."""

    def no_home(*_: object, **__: object) -> Path:
        raise RuntimeError("could not determine the home directory for '~/.config'")

    monkeypatch.setattr("platformdirs.user_config_path", no_home)
    monkeypatch.setattr(Path, "home", no_home)
    with dm.connect(live.base_url, "key-of-a-test") as session, session.record("tour"):
        session.get("/v1/users/me")
    dm.replay("tour")

    assert dm.get("/v1/users/me").status_code == 401


@pytest.mark.parametrize("seconds", [-62_000_000_000.5, -1.0, 0.1, 1.7e9 + 1 / 3, 200_000_000_000])
def test_times_are_those_of_the_usual_function(seconds):
    """Years before 1970 and after 3000 are shown on Windows too."""
    assert utc_time(seconds) == datetime.fromtimestamp(seconds, UTC)


def test_a_command_that_is_shown_is_quoted_for_the_system(monkeypatch):
    """The shells of Windows know no single quotes."""
    shown = []
    for name in ("posix", "nt"):
        monkeypatch.setattr("directmail_lab.display.os", SimpleNamespace(name=name))
        shown += [shell_word("my tour"), shell_word("tour")]

    assert shown == ["'my tour'", "tour", '"my tour"', "tour"]


@pytest.mark.usefixtures("connected")
def test_get_many_waits_in_steps(monkeypatch):
    """On Windows before Python 3.14, Ctrl-C does not end a wait without a timeout."""

    class InSteps(Queue):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            assert timeout is not None
            return super().get(block, timeout)

    monkeypatch.setattr("directmail_lab.sessions.pages.SimpleQueue", InSteps)

    assert [each.status_code for each in dm.get_many(["/v1/users/me"] * 2)] == [200, 200]
