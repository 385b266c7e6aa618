"""What is said of personal data when a recording ends."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cassette_samples import answered, get

from directmail_lab.cassettes import Cassette, open_cassette, read_cassette
from directmail_lab.credentials import ApiKey
from directmail_lab.redaction import Redactor
from directmail_lab.redaction.personal import count_personal, texts_of
from directmail_lab.sessions import Session
from directmail_lab.standin import stand_in

if TYPE_CHECKING:
    from collections.abc import Iterable

TUTORIALS = Path(__file__).parent.parent / "cassettes"
JOE = answered(body='{"email": "joe@corp.com", "phone": "+31 6 1234 5678"}')
NO_ONE = answered(body='{"email": "stand-in@example.com", "from": "no-reply@corp.com"}')


def opened(said: list[str], *, redact: Iterable[str] = (), name: str | Path = "tour") -> Cassette:
    return open_cassette(
        name, record_mode="any", redactor=Redactor(redact=redact), notice=said.append
    )


def test_the_end_of_a_recording_says_what_is_personal_and_what_to_do() -> None:
    """One line: how many of what, the command that redacts it, and how to record without."""
    said: list[str] = []
    with opened(said) as cassette:
        cassette.record(JOE)
        cassette.record(JOE)

    assert said == [
        "Cassette 'tour' holds 1 e-mail address and 1 telephone number. Before you share it: "
        "directmail-lab cassette redact tour, or record it with redact=['personal']."
    ]


def test_a_cassette_that_no_name_finds_is_told_by_its_path(tmp_path: Path) -> None:
    """So that the command can be pasted as it stands; the name may even find another."""
    said: list[str] = []
    with opened([], name="my tour") as cassette:
        cassette.record(NO_ONE)
    with opened(said, name=tmp_path / "my tour.yaml") as cassette:
        cassette.record(JOE)

    assert f"directmail-lab cassette redact '{tmp_path / 'my tour.yaml'}', or" in said[0]


def test_nothing_personal_is_nothing_said() -> None:
    """Neither of examples and programs, nor of pseudonyms, nor where nothing was recorded."""
    said: list[str] = []
    with opened(said) as cassette:
        cassette.record(NO_ONE)
    with opened(said, redact=["personal"]) as cassette:
        cassette.record(JOE)
    Path("cassettes/tour.yaml").unlink()
    with opened(said):
        pass
    with opened([]) as cassette:
        cassette.record(JOE)
    with opened(said) as cassette:
        cassette.play(get())
    with opened(said) as cassette:  # nor where the file went: the notice is a courtesy
        cassette.record(JOE)
        Path("cassettes/tour.yaml").unlink()

    assert said == []


def test_a_recording_that_is_resumed_says_it_again_only_when_it_changed() -> None:
    """A with that comes back closes the recording twice."""
    said: list[str] = []
    cassette = opened(said)
    for exchange in (JOE, JOE, answered(body="ann@corp.com")):
        cassette.resume()
        cassette.record(exchange)
        cassette.close()
        cassette.close()

    assert ["1 e-mail" in line for line in said] == [True, False]
    assert "2 e-mail addresses" in said[1]


@pytest.mark.parametrize(
    ("count", "padding", "looked_at"), [(2500, 10, "834"), (4, 400_000, "2"), (2, 1_200_000, "1")]
)
def test_of_a_large_recording_a_part_is_looked_at_and_it_is_said_how_much(
    count: int, padding: int, looked_at: str
) -> None:
    """Every so many interactions, from start to end, and not more than a megabyte."""
    said: list[str] = []
    with opened(said) as cassette:
        for number in range(count):
            cassette.record(answered(body=f'"u{number}@corp.com {"x" * padding}"'))

    assert f" in the {looked_at} of its interactions that were searched. " in said[0]


def test_a_session_says_it_as_a_warning_that_a_notebook_shows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, when its recording ends; a replay says nothing."""
    with (
        stand_in(record={"name": "Joe", "email": "joe@corp.com"}) as service,
        Session(service.base_url, ApiKey(service.api_key)) as session,
    ):
        with session.record("tour"):
            session.me()
        with session.replay("tour"):
            session.me()
    # The stand-in's own people are made up, so a tutorial has no warning in its output.
    with (
        stand_in() as service,
        Session(service.base_url, ApiKey(service.api_key)) as session,
        session.record("silent"),
    ):
        session.me()

    assert [(each.name, each.levelno) for each in caplog.records if "holds" in each.message] == [
        ("directmail_lab", logging.WARNING)
    ]


@pytest.mark.parametrize("path", sorted(TUTORIALS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_tutorials_cassettes_hold_no_ones_data(path: Path) -> None:
    """Whoever records in one gets no warning for what was in it."""
    recorded = read_cassette(path).interactions

    assert count_personal(text for each in recorded for text in texts_of(each)) == {}
