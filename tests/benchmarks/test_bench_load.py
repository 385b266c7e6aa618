"""Opening our cassettes takes at most 1/40 of vcrpy's time, and vcrpy's at most 1.05 of it."""

from collections.abc import Callable

import pytest
from cassette_samples import recorded, theirs
from polled import BASE_URL, alike, different
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.redaction import Redactor

GOALS = {"our layout": "0.025", "vcrpy's layout by our reader": "1.05"}


@pytest.mark.parametrize("make", [alike, different])
@pytest.mark.parametrize("size", [100, 1000])
def test_load(in_turns, tmp_path, make, size):
    """Each layout by its reader."""
    ours = recorded(tmp_path / "ours.yaml", *make(size))
    other = theirs(tmp_path / "theirs.yaml", *make(size))
    text = other.read_text()
    calls: dict[str, Callable[[], object]] = {
        "vcrpy": lambda: deserialize(text, yamlserializer),
        "our layout": lambda: Cassette(ours, redactor=Redactor(), base_url=BASE_URL),
        "vcrpy's layout by our reader": lambda: read_cassette(other),
    }
    in_turns(calls, GOALS, rounds=5)

    assert len(read_cassette(ours)) == len(read_cassette(other)) == size
