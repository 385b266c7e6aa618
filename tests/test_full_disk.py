"""A full disk during a recording: a clear error, and the session remains usable."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cassette_samples import answered, opened, recorded

from directmail_lab.cassettes import Policy, read_cassette
from directmail_lab.cassettes.library import create
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import CassetteError, NotConnectedError
from directmail_lab.sessions.session import Session, open_cassette

if TYPE_CHECKING:
    from collections.abc import Iterator


TOUR = Path("cassettes/tour.yaml")
PART = Path("cassettes/tour.yaml.part")


@contextmanager
def full_disk(*, spare: int = 10) -> Iterator[None]:
    """Let files grow by at most ten bytes, as on a disk that becomes full."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PART.stat().st_size + spare, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def no_disk() -> Iterator[None]:
    """Let no file have more than a few bytes, so that a cassette cannot be written anew."""
    with full_disk(spare=50 - PART.stat().st_size):
        yield


def test_a_full_disk_error_says_that_the_request_was_carried_out(live):
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


def test_a_full_disk_is_an_error_also_for_a_caller_that_leaves_the_body(live):
    def leave() -> None:
        with live.client.stream("GET", "/v1/users/me"):
            """No part of the body is read."""

    with live.record("tour"):
        live.me()
        with full_disk(), pytest.raises(CassetteError, match="Make room on the disk"):
            leave()


def test_a_write_that_cannot_be_recorded_is_not_sent(live, service):
    """Nothing is replaced by what could not be written. Once there is room, both work."""
    live._network.allow_writes = True  # type: ignore[union-attr]
    for _ in range(2):
        live.record("tour")
        live.me()
    live.get("/v1/lists")
    live.record("tour")
    live.me()
    with full_disk():
        with pytest.raises(CassetteError, match="could not be written"):
            live.get("/v1/lists")
        with pytest.raises(CassetteError, match="The POST was not sent"):
            live.post("/v1/letters")
    assert service.requests["POST /v1/letters"] == 0
    assert paths() == ["/v1/users/me", "/v1/lists"]
    live.get("/v1/lists")
    assert live.post("/v1/letters").status_code == 201

    assert service.requests["POST /v1/letters"] == 1
    assert paths() == ["/v1/users/me", "/v1/lists", "/v1/letters"]


def paths() -> list[str]:
    recording = read_cassette(TOUR)
    return [recording.path_of(each.request) for each in recording]


def test_a_recording_that_cannot_be_folded_is_read_from_its_journal(live, caplog):
    """The previous mode is restored; readers get the new response, and the next recorder folds."""
    with live.record("tour"):
        live.me()
    first = TOUR.read_bytes()
    change = live.record("tour")
    live.me()
    with no_disk(), change:
        pass

    assert live.mode == "live"
    assert "is read from there" in caplog.text
    assert TOUR.read_bytes() == first
    (again,) = read_cassette(TOUR)
    assert again.recorded_at == live.recording.interaction(2).recorded_at
    assert (
        read_cassette(TOUR).problem == "1 interaction recovered from a recording that did not end"
    )
    with live.record("tour", record_mode="any"):
        live.get("/v1/lists")
    assert len(read_cassette(TOUR)) == 2
    assert read_cassette(TOUR).interaction(1) == again
    assert not PART.exists()


def test_a_full_disk_at_the_end_of_a_cell_is_said_once(live, caplog):
    """The recording goes on in its journal."""
    live.record("tour")
    live.me()
    cassette = open_cassette(live)
    assert cassette is not None
    with no_disk():
        cassette.fold()
        cassette.fold()
    live.me()
    assert caplog.text.count("is read from there") == 1
    live.live()

    assert len(read_cassette(TOUR)) == 2
    assert not PART.exists()


def test_a_full_disk_loses_nothing_while_a_credential_is_removed(live):
    """It was seen only after the response that repeats it. It is removed once there is room."""
    token = "s3ss1on-0f-Ann-1"
    live.record("tour")
    live.get("/v1/lists", params={"note": token})
    live.get("/v1/letters", headers={"X-Session-Token": token})
    cassette = open_cassette(live)
    assert cassette is not None
    with no_disk():
        cassette.fold()
    live.me()
    assert paths() == ["/v1/lists", "/v1/letters", "/v1/users/me"]
    live.live()

    assert token not in TOUR.read_text()
    assert paths() == ["/v1/lists", "/v1/letters", "/v1/users/me"]


def test_a_recording_of_a_test_that_cannot_be_written_is_an_error():
    """The old one stays. Nobody reads the journal of a recording that stands aside."""
    recorded(TOUR, answered(body="old"))
    cassette = opened(TOUR, "all", policy=Policy(aside=True))
    cassette.record(answered(body="new"))
    with no_disk(), pytest.raises(CassetteError, match=r"could not be written .*\nMake room"):
        cassette.close("merge")

    with opened(TOUR) as again:
        assert [each.response.body for each in again.recording()] == [b"old"]
    assert not PART.exists()


def test_closing_a_session_on_a_full_disk_forgets_the_key(service):
    session = Session(service.base_url, ApiKey(service.api_key))
    session.record("tour")
    session.me()
    with no_disk():
        session.close()

    with pytest.raises(NotConnectedError, match=r"(?s)closed.*login\(\)"):
        session.me()
    with pytest.raises(NotConnectedError, match="no key"):
        session.live()
    assert len(read_cassette(TOUR)) == 1


def test_the_error_of_a_full_disk_names_the_file_that_was_not_written(tmp_path):
    """It is the file that the caller named, and no part of it remains."""
    page = tmp_path / "tour.html"
    with pytest.raises(OSError, match="No space left") as caught, create(page):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert caught.value.filename == str(page)
    assert not list(tmp_path.iterdir())
