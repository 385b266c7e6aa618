"""A full disk during a recording: a clear error, and the session remains usable."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.library import create
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import CassetteError, NotConnectedError
from directmail_lab.sessions.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faulty_service import FaultyService


TOUR = Path("cassettes/tour.yaml")


@contextmanager
def full_disk() -> Iterator[None]:
    """Let the cassette grow by at most ten bytes, as on a disk that becomes full."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (TOUR.stat().st_size + 10, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_error_says_that_the_request_was_carried_out(live: Session) -> None:
    """The error says what to do.

    Earlier interactions are safe, and recording goes on once there is space.
    """
    with live.record("tour"):
        live.me()
        with full_disk(), pytest.raises(CassetteError, match="Make room on the disk") as caught:
            live.me()
        live.me()

    assert "The service had responded with 200 to the GET" in "".join(caught.value.__notes__)
    assert len(live.recording) == 3
    assert len(read_cassette(TOUR)) == 2
    assert read_cassette(TOUR).problem is None


def test_a_session_leaves_a_recording_that_cannot_be_ended(live: Session) -> None:
    """The previous mode is restored, and requests go where that mode sends them."""
    change = live.record("tour")
    live.me()
    with full_disk(), pytest.raises(CassetteError, match="could not be written"), change:
        pass

    assert live.mode == "live"
    assert len(live.me()) == 1


def test_a_run_that_cannot_be_ended_is_read_as_if_it_was(live: Session) -> None:
    """Readers get the new response in place of the old one, and so does the next recording."""
    live.record("tour")
    live.me()
    live.record("tour")
    live.get("/v1/users/me")
    with full_disk(), pytest.raises(CassetteError, match="could not be written"):
        live.live()
    assert len(read_cassette(TOUR)) == 1
    assert "# replaces 1 of 1" in TOUR.read_text()
    live.record("tour", record_mode="any")
    live.get("/v1/lists")
    live.close()

    assert len(read_cassette(TOUR)) == 2
    assert read_cassette(TOUR).problem is None
    assert "replaces" not in TOUR.read_text()


def test_a_mode_that_cannot_be_entered_leaves_the_recording_going(live: Session) -> None:
    """If the open cassette cannot be closed, the session continues to record to it."""
    live.record("tour")
    live.me()
    with full_disk(), pytest.raises(CassetteError, match="'tour' could not be written"):
        live.record("other")
    live.me()
    live.live()

    assert len(read_cassette(TOUR)) == 2


def test_closing_a_session_on_a_full_disk_still_forgets_the_key(service: FaultyService) -> None:
    """The error is raised only after the connections are closed and the key is forgotten."""
    session = Session(service.base_url, ApiKey(service.api_key))
    session.record("tour")
    session.me()
    with full_disk(), pytest.raises(CassetteError, match="could not be written"):
        session.close()

    with pytest.raises(NotConnectedError, match=r"closed.*login\(\)"):
        session.me()
    with pytest.raises(NotConnectedError, match="no key"):
        session.live()
    assert len(read_cassette(TOUR)) == 1


def test_the_error_of_a_full_disk_names_the_file_that_was_not_written(tmp_path: Path) -> None:
    """It is the file that the caller named, and no part of it remains."""
    page = tmp_path / "tour.html"
    with pytest.raises(OSError, match="No space left") as caught, create(page):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert caught.value.filename == str(page)
    assert not list(tmp_path.iterdir())
