"""One interaction, shown in full: redacted, of bounded length, and nothing taken for markup."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from cassette_samples import NOON, answered, get, recorded, theirs
from key_search import traces

from directmail_lab.cassettes import Cassette, read_cassette
from directmail_lab.errors import CassetteError
from directmail_lab.interaction import Interaction
from directmail_lab.questions.interactions import (
    InteractionView,
    interactions,
    read_interactions,
    show_interaction,
)

KEY = "Wy5Nf0PtA3oVi7KzQm2ExRj8Dh6SbG4L"


@pytest.mark.parametrize("number", [-1, 0, 3])
def test_a_number_that_is_not_there_is_an_error_that_says_how_many_are(number: int) -> None:
    """Counting from 0 is said to be wrong, rather than show the last one."""
    path = recorded("tour.yaml", answered(get("/a")), answered(get("/b")))

    assert repr(show_interaction(path, 2)).startswith("GET https://api.example.test/b\n")
    with pytest.raises(CassetteError, match=f"no interaction {number}: it has 2, counted from 1"):
        show_interaction(path, number)


def test_what_another_program_kept_is_shown_without_the_key(tmp_path: Path) -> None:
    """Neither from its header, nor echoed in another interaction; nor in the frame."""
    basic = "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
    request = replace(get(), headers=(("Authorization", basic), ("Accept", "*/*")))
    echoed = answered(get(f"/b?api_key={KEY}"), f'{{"key": "{KEY}"}}')
    path = theirs(tmp_path / "theirs.yaml", answered(request), echoed)
    views = [show_interaction(path, 1), show_interaction(path, 2)]
    frame = read_interactions(path)
    shown = frame.to_csv() + "".join(repr(view) + view._repr_html_() for view in views)

    assert "Accept: */*" in shown
    assert '"key": "<REDACTED>"' in shown
    assert traces(path.read_bytes(), KEY) != []
    assert traces(shown.encode(), KEY) == []
    assert frame[["at", "elapsed_s"]].isna().all(axis=None)


def test_however_long_an_interaction_is_its_view_is_not() -> None:
    """Address, headers and bodies are cut, each with a sign of it."""
    long = answered(get("/" + "a" * 100_000), '{"b": "' + "b" * 1_000_000 + '"}')
    many = tuple((f"X-{n}", "c" * 10_000) for n in range(1000))
    path = recorded("tour.yaml", replace(long, response=replace(long.response, headers=many)))
    view = show_interaction(path, 1)

    assert len(repr(view)) < 50_000
    assert len(view._repr_html_()) < 50_000
    assert repr(view).count(" characters in all)") == 3


def test_nothing_that_was_sent_is_taken_for_markup_or_moves_the_cursor() -> None:
    """In the address, the reason, headers and bodies, of either side."""
    hostile = "<script>\x1b[2J\x9b&"
    exchange = answered(replace(get("/" + hostile), body=hostile.encode()), hostile)
    headers = (("X-" + hostile, hostile),)
    path = recorded(
        "tour.yaml",
        Interaction(
            replace(exchange.request, headers=headers),
            replace(exchange.response, reason=hostile, headers=headers),
        ),
    )
    view = show_interaction(path, 1)

    assert view._repr_html_().count("&lt;script&gt;\\x1b[2J\\x9b&amp;") == 8
    assert "<script>" not in view._repr_html_()
    assert {"\x1b", "\x9b"}.isdisjoint(repr(view) + view._repr_html_())


DTYPES = {
    "at": "datetime64[us, UTC]",
    "method": "string",
    "path": "string",
    "query": "string",
    "operation": "string",
    "status": "Int64",
    "content_type": "string",
    "bytes": "Int64",
    "elapsed_s": "Float64",
    "excerpt": "string",
}


def test_a_cassette_is_shown_as_a_frame(tour: Path) -> None:
    """One row for each interaction, in its order, with typed columns."""
    frame = read_interactions(tour)

    assert frame.dtypes.astype(str).to_dict() == DTYPES
    assert frame["path"].tolist()[1:] == ["/v1/users/me", "/v1/lists/8f14e45f", "/v1/letters"]
    assert frame["operation"].tolist()[1:] == ["/v1/users/me", "/v1/lists/{id}", "/v1/letters"]
    assert frame["query"].tolist() == ["", "", "page=2", ""]
    assert frame["status"].tolist() == [200, 200, 404, 201]
    assert frame["bytes"].tolist() == [43, 14, 3, 500]
    assert frame["excerpt"].tolist()[1:] == ['{"name": "Jo"}', "(binary)", "x" * 79 + "…"]
    assert frame["elapsed_s"].tolist() == [0.042] * 4
    assert frame["at"].tolist() == [NOON] * 4
    assert frame.attrs == {"cassette": "tour", "problem": None}
    assert frame.equals(read_interactions(str(tour)))
    assert frame.equals(interactions(Cassette("tour")))
    Path("empty.yaml").touch()
    empty = read_interactions("empty.yaml")
    assert (len(empty), empty.dtypes.astype(str).to_dict()) == (0, DTYPES)


def test_one_interaction_is_shown_readably(tour: Path) -> None:
    """As text and as HTML: JSON laid out, bytes by their number, nothing taken for markup."""
    first, _, second, _ = read_cassette(tour).interactions
    assert '"name": "é' in repr(InteractionView(first))
    assert "200 OK after 0.042 s, 2026-11-21 12:00:00 UTC" in repr(InteractionView(first))
    assert "(3 bytes, not text)" in InteractionView(second)._repr_html_()
