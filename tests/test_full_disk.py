"""A full disk while a session records: a clear error, and the session goes on as was chosen."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from directmail_lab.cassettes import read_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import CassetteError, NotConnectedError
from directmail_lab.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faulty_service import FaultyService


TOUR = Path("cassettes/tour.yaml")


@contextmanager
def full_disk() -> Iterator[None]:
    """Let the cassette grow by ten bytes and no further, as on a disk that is full then."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (TOUR.stat().st_size + 10, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_stops_the_request_and_says_that_it_was_carried_out(live: Session) -> None:
    """What to do is said, what was recorded before is safe, and with room again it goes on."""
    with live.record("tour"):
        live.me()
        with full_disk(), pytest.raises(CassetteError, match="Make room in its folder") as caught:
            live.me()
        live.me()

    assert "The service had responded with 200 to the GET" in "".join(caught.value.__notes__)
    assert len(live.recording) == 3
    assert len(read_cassette(TOUR)) == 2
    assert read_cassette(TOUR).problem is None


def test_a_recording_that_cannot_be_ended_does_not_hold_the_session_in_it(live: Session) -> None:
    """The mode before is back, in what it says and in where its requests go."""
    change = live.record("tour")
    live.me()
    with full_disk(), pytest.raises(CassetteError, match="could not be written"), change:
        pass

    assert live.mode == "live"
    assert len(live.me()) == 1


def test_a_mode_that_cannot_be_entered_leaves_the_recording_going(live: Session) -> None:
    """Where the cassette in use cannot be closed for another, it stays the one in use."""
    live.record("tour")
    live.me()
    with full_disk(), pytest.raises(CassetteError, match="'tour' could not be written"):
        live.record("other")
    live.me()
    live.live()

    assert len(read_cassette(TOUR)) == 2


def test_closing_a_session_on_a_full_disk_still_forgets_the_key(service: FaultyService) -> None:
    """The error comes after the connections are closed and the key is gone."""
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
