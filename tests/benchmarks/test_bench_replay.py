"""What a replayed request costs beside httpx's mock, vcrpy and (where installed) cassetter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
import vcr
from measuring import BASE_URL, BODY, KEY, ME, NOISE, in_turns_us, network, polled, write

from directmail_lab.cassettes import open_cassette
from directmail_lab.cassettes.vcr_files import block_text
from directmail_lab.redaction import Redactor
from directmail_lab.transports import CassetteTransport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def mocked() -> httpx.Client:
    """Return a client whose requests a function answers."""
    return httpx.Client(transport=network(content=BODY))


@pytest.mark.parametrize("size", [100, 10_000, 100_000])
def test_replay(tmp_path: Path, report: Callable[[str], None], size: int) -> None:
    """A replayed request costs at most 1.25 times one that a mock answers, at every size."""
    path = write(tmp_path / "ours.yaml", [polled()] * size)
    cassette = open_cassette(path, redactor=Redactor([KEY]))
    transport = CassetteTransport(cassette, base_url=BASE_URL)

    with httpx.Client(transport=transport) as client, mocked() as mock:
        ours, theirs = in_turns_us(lambda: client.get(ME), lambda: mock.get(ME), count=1000)
    report(f"replay at {size:>7,}: {ours:6.1f} us, {ours / theirs:5.2f} of httpx's mock (1.25)")

    assert ours / theirs <= 1.25 * NOISE


@pytest.mark.parametrize("size", [100, 1000])
def test_replay_by_vcrpy(tmp_path: Path, report: Callable[[str], None], size: int) -> None:
    """The same by vcrpy, whose time grows with the cassette."""
    path = tmp_path / "theirs.yaml"
    path.write_text(block_text([polled()] * size, metadata={}))

    with mocked() as mock:
        (least,) = in_turns_us(lambda: mock.get(ME), count=1000)
    with vcr.use_cassette(str(path), record_mode="none"), httpx.Client() as client:
        (theirs,) = in_turns_us(lambda: client.get(ME), count=size, rounds=1)
    report(f"replay at {size:>7,}: {theirs:6.1f} us, {theirs / least:5.2f} of it: vcrpy")


@pytest.mark.parametrize("size", [100, 1000])
def test_replay_by_cassetter(tmp_path: Path, report: Callable[[str], None], size: int) -> None:
    """The same by cassetter."""
    cassetter = pytest.importorskip("cassetter", reason="cassetter is in the extra bench")
    path = tmp_path / "theirs.yaml"
    path.write_text(block_text([polled()] * size, metadata={}))

    with mocked() as mock:
        (least,) = in_turns_us(lambda: mock.get(ME), count=1000)
    with cassetter.use_cassette(str(path), record_mode="none"), httpx.Client() as client:
        (theirs,) = in_turns_us(lambda: client.get(ME), count=size, rounds=1)
    report(f"replay at {size:>7,}: {theirs:6.1f} us, {theirs / least:5.2f} of it: cassetter")
