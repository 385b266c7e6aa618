"""One interaction, shown in full: redacted, of bounded length, and nothing taken for markup."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from cassette_samples import answered, get
from key_search import traces

from directmail_lab.cassettes import open_cassette
from directmail_lab.cassettes.vcr_files import block_text
from directmail_lab.cassettes.view import show_interaction
from directmail_lab.errors import CassetteError
from directmail_lab.interaction import Interaction

KEY = "Wy5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"


def recorded(*interactions: Interaction) -> Path:
    """Write a cassette of our own, and return its path."""
    path = Path("cassettes/tour.yaml").absolute()
    path.parent.mkdir(exist_ok=True)
    with open_cassette(path, record_mode="all") as cassette:
        for each in interactions:
            cassette.record(each)
    return path


@pytest.mark.parametrize("number", [-1, 0, 3])
def test_a_number_that_is_not_there_is_an_error_that_says_how_many_are(number: int) -> None:
    """Counting from 0 is said to be wrong, rather than show the last one."""
    path = recorded(answered(get("/a")), answered(get("/b")))

    assert repr(show_interaction(path, 2)).startswith("GET https://api.example.test/b\n")
    with pytest.raises(CassetteError, match=f"no interaction {number}: it has 2, counted from 1"):
        show_interaction(path, number)


def test_what_another_program_kept_is_shown_without_the_key(tmp_path: Path) -> None:
    """Neither from its header, nor echoed in another interaction; open or by its path."""
    basic = "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
    asked = replace(get(), headers=(("Authorization", basic), ("Accept", "*/*")))
    path = tmp_path / "theirs.yaml"
    path.write_text(
        block_text([answered(asked), answered(get("/b"), f'{{"key": "{KEY}"}}')], metadata={}),
        encoding="utf-8",
    )
    views = [show_interaction(path, 1), show_interaction(path, 2)]
    shown = "".join(repr(view) + view._repr_html_() for view in views)

    assert "Accept: */*" in shown
    assert '"key": "<API_KEY>"' in shown
    assert traces(path.read_bytes(), KEY) != []
    assert traces(shown.encode(), KEY) == []


def test_however_long_an_interaction_is_its_view_is_not() -> None:
    """Address, headers and bodies are cut, each with a sign of it."""
    long = answered(get("/" + "a" * 100_000), '{"b": "' + "b" * 1_000_000 + '"}')
    many = tuple((f"X-{n}", "c" * 10_000) for n in range(1000))
    path = recorded(replace(long, response=replace(long.response, headers=many)))
    view = show_interaction(path, 1)

    assert len(repr(view)) < 50_000
    assert len(view._repr_html_()) < 50_000
    assert "a…\n" in repr(view)
    assert "… (940 more)" in repr(view)
    assert "… (1,000,013 characters in all)" in repr(view)


def test_nothing_that_was_sent_is_taken_for_markup_or_moves_the_cursor() -> None:
    """In the address, the reason, headers and bodies, of either side."""
    hostile = "<script>\x1b[2J\x9b&"
    exchange = answered(replace(get("/" + hostile), body=hostile.encode()), hostile)
    headers = (("X-" + hostile, hostile),)
    path = recorded(
        Interaction(
            replace(exchange.request, headers=headers),
            replace(exchange.response, reason=hostile, headers=headers),
        )
    )
    view = show_interaction(path, 1)

    assert view._repr_html_().count("&lt;script&gt;\\x1b[2J\\x9b&amp;") == 8
    assert "<script>" not in view._repr_html_()
    assert {"\x1b", "\x9b"}.isdisjoint(repr(view) + view._repr_html_())
