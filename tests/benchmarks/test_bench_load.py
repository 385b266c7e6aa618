"""What opening a cassette costs an interaction, beside vcrpy and (where installed) cassetter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from measuring import BASE_URL, NOISE, different, in_turns_us, polled, write
from vcr.serialize import deserialize
from vcr.serializers import jsonserializer, yamlserializer

from directmail_lab.cassettes import open_cassette
from directmail_lab.cassettes.vcr_files import block_text
from directmail_lab.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from directmail_lab.interaction import Interaction

# cassetter writes a file of 4,000 such requests that it then refuses to load.
FEW = 1000
MANY = 10_000


def alike(size: int) -> list[Interaction]:
    """Return one exchange over and over, as a poll makes it."""
    return [polled()] * size


def ours_us(path: Path, size: int) -> float:
    """Return the microseconds an interaction that our loader takes."""
    (us,) = in_turns_us(
        lambda: open_cassette(path, redactor=Redactor(), base_url=BASE_URL), count=1
    )
    return us / size


@pytest.mark.parametrize("make", [alike, different])
def test_load(
    tmp_path: Path, report: Callable[[str], None], make: Callable[[int], list[Interaction]]
) -> None:
    """A poll's interaction is loaded 40 times faster than by vcrpy's YAML, twice as by its JSON."""
    few = make(200)
    block, as_json = (block_text(few, metadata={}, as_json=each) for each in (False, True))

    ours = ours_us(write(tmp_path / "ours.yaml", make(MANY)), MANY)
    by_yaml, by_json = in_turns_us(
        lambda: deserialize(block, yamlserializer),
        lambda: deserialize(as_json, jsonserializer),
        count=1,
        rounds=5,
    )
    yaml_times, json_times = by_yaml / len(few) / ours, by_json / len(few) / ours
    report(
        f"load of one, {make.__name__}: {ours:.1f} us; vcrpy's YAML {yaml_times:.0f} times as "
        f"long, its JSON {json_times:.1f} times (40 and 2 where alike)"
    )

    assert make is different or yaml_times >= 40 / NOISE
    assert json_times >= (2 if make is alike else 1) / NOISE


@pytest.mark.parametrize("make", [alike, different])
def test_load_beside_cassetter(
    tmp_path: Path, report: Callable[[str], None], make: Callable[[int], list[Interaction]]
) -> None:
    """Each loads a file of its own making, and ours is loaded sooner."""
    cassetter = pytest.importorskip("cassetter", reason="cassetter is in the extra bench")
    theirs = tmp_path / "theirs.yaml"
    recorded_by_cassetter(cassetter, theirs, make(FEW))

    ours = ours_us(write(tmp_path / "ours.yaml", make(FEW)), FEW)
    (us,) = in_turns_us(lambda: opened_by_cassetter(cassetter, theirs), count=1, rounds=3)
    times = us / FEW / ours
    report(f"load of one, {make.__name__}: cassetter {us / FEW:.1f} us, {times:.1f} times as long")

    assert len(opened_by_cassetter(cassetter, theirs)) == FEW
    assert times >= 1 / NOISE


def recorded_by_cassetter(cassetter: Any, path: Path, interactions: list[Interaction]) -> None:
    cassette = cassetter.Cassette(path, record_mode=cassetter.RecordMode.ALL)
    cassette.load()
    for each in interactions:
        cassette.record(
            each.request.method,
            each.request.uri,
            {name: [value] for name, value in each.request.headers},
            each.request.body,
            each.response.status,
            {name: [value] for name, value in each.response.headers},
            each.response.body,
        )
    cassette.save()


def opened_by_cassetter(cassetter: Any, path: Path) -> Any:
    cassette = cassetter.Cassette(path, record_mode=cassetter.RecordMode.NONE)
    cassette.load()
    return cassette
