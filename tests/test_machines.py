"""Other machines: files that another program has open, and names that one system refuses.

`.ci/run` runs this module and others on a disk with Windows' rules: see `machines/disk.py`.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import answered, get, recorded

from directmail_lab.cassettes import Cassette, read_cassette

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """Record a cassette anew, and return the notices."""
    notices: list[str] = []
    cassette = Cassette(path, record_mode="all", notice=notices.append)
    cassette.record(answered(get("/v1/users/me"), body="new"))
    cassette.close()
    return notices


def bodies(path: Path) -> list[bytes]:
    return [each.response.body for each in read_cassette(path)]


def test_a_recording_stays_beside_a_cassette_that_another_program_has_open(tmp_path: Path) -> None:
    """A notice says so and where the recording is; nothing is lost."""
    old = recorded(tmp_path / "tour.yaml", answered(body="old"))
    with in_use(old):
        notices = record_again(old)

    (beside,) = tmp_path.glob("tour.unfinished*.yaml")
    assert notices[0] == (
        f"Another program has {old} open, so it was not replaced. The new recording is in {beside}."
    )
    assert (bodies(old), bodies(beside)) == ([b"old"], [b"new"])


@pytest.mark.skipif(IS_WINDOWS_DISK, reason="a real file stays open for as long as it is open")
def test_a_cassette_is_replaced_as_soon_as_it_is_closed(tmp_path: Path) -> None:
    """A virus scanner or a viewer may have the file open for a moment."""
    old = recorded(tmp_path / "tour.yaml", answered(body="old"))
    with in_use(old, times=3):
        assert record_again(old) == []

    assert bodies(old) == [b"new"]


def test_a_recording_continues_beside_a_cassette_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may refuse that others open the file; what was received is recorded anyway."""
    old = recorded(tmp_path / "tour.yaml", answered(body="old"))
    notices: list[str] = []
    cassette = Cassette(old, record_mode="any", notice=notices.append)
    usual = os.open

    def refuse(path: Any, *arguments: Any) -> int:
        if Path(path) == old:
            raise PermissionError(13, "Permission denied")
        return usual(path, *arguments)

    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(os, "open", refuse)
    cassette.record(answered(get("/v1/lists"), body="new"))
    monkeypatch.undo()
    cassette.close()

    assert f"Another program has {old} open" in notices[0]
    assert bodies(old) == [b"old"]
    assert bodies(tmp_path / "tour.unfinished.yaml") == [b"new"]
