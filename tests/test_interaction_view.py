"""One interaction in full: redacted, limited in length, and escaped."""

from dataclasses import replace

import pytest
from cassette_samples import NOON, answered, get, recorded

from directmail_lab.exchange.bodies import missing_body
from directmail_lab.exchange.values import Interaction
from directmail_lab.questions.interaction_view import InteractionView
from directmail_lab.questions.interactions import interactions


def test_the_view_of_a_long_interaction_is_truncated():
    long = answered(get("/" + "a" * 100_000), '{"b": "' + "b" * 1_000_000 + '"}')
    many = tuple((f"X-{n}", "c" * 10_000) for n in range(1000))
    view = InteractionView(replace(long, response=replace(long.response, headers=many)))
    numbers = str([*range(100_000)])
    listed = repr(InteractionView(answered(get(), numbers)))

    assert "[\n  0,\n  1,\n" in listed
    assert f"({len(numbers):,} characters in all)" in listed
    assert len(repr(view)) < 50_000
    assert len(view._repr_html_()) < 50_000
    assert repr(view).count(" characters in all)") == 3


def test_a_view_escapes_markup_and_control_characters():
    hostile = "<script>\x1b[2J\x9b\u202e&"
    exchange = answered(replace(get("/" + hostile), body=hostile.encode()), hostile)
    headers = (("X-" + hostile, hostile),)
    view = InteractionView(
        Interaction(
            replace(exchange.request, headers=headers),
            replace(exchange.response, reason=hostile, headers=headers),
        )
    )

    assert view._repr_html_().count("&lt;script&gt;\\x1b[2J\\x9b\\u202e&amp;") == 8
    assert "<script>" not in view._repr_html_()
    assert {"\x1b", "\x9b", "\u202e"}.isdisjoint(repr(view) + view._repr_html_())


def test_one_interaction_is_shown_readably():
    shown = repr(InteractionView(answered(body='{"name": "Z\\u00fcrich", "half": "\\ud800"}')))

    assert '"name": "Zürich",\n' in shown
    assert '"half": "\\ud800"' in shown
    assert "200 OK after 0.042 s, 2026-11-21 12:00:00 UTC" in shown
    assert "(3 bytes, not text)" in InteractionView(answered(body=b"\xff\0\x85"))._repr_html_()


def test_a_body_that_was_not_recorded_is_named_on_both_sides(tmp_path):
    lost = missing_body(5000)
    exchange = answered(replace(get("/v1/file"), body=lost), lost)
    view = interactions(recorded(tmp_path / "tour.yaml", exchange), number=1)

    assert repr(view).count("(not recorded: 5000 bytes)") == 2


def test_a_recording_is_shown_as_a_frame(tour):
    frame = interactions(tour)

    assert frame.dtypes.astype(str)[["at", "path", "bytes", "elapsed_s"]].tolist() == [
        *("datetime64[us, UTC]", "string", "Int64", "Float64")
    ]
    assert (frame.index.name, frame.index.tolist()) == ("number", [1, 2, 3, 4])
    row = frame.loc[3]
    assert row[["method", "path", "query"]].tolist() == ["GET", "/v1/lists/8f14e45f", "page=2"]
    assert row[["operation", "status", "attempt"]].tolist() == ["/v1/lists/{id}", 404, 1]
    assert row[["content_type", "bytes"]].tolist() == ["application/json", 3]
    assert frame.loc[2:, "excerpt"].tolist() == ['{"name": "Jo"}', "(binary)", "x" * 79 + "…"]
    assert (frame["elapsed_s"][1], frame["at"][1]) == (0.042, NOON)
    assert frame.attrs["problem"] is None


def test_a_number_with_several_recordings_is_an_error(tour):
    for several in (tour.parent, [tour, tour]):
        with pytest.raises(ValueError, match="Give one cassette"):
            interactions(several, number=1)


def test_a_dropped_body_does_not_look_like_an_empty_body(service, live, monkeypatch):
    monkeypatch.setattr("directmail_lab.cassettes.memory._MAX_KEPT_BYTES", 8500)
    for size in (100, 3000):
        with service.fault(body="x" * size):
            live.get("/v1/lists")
    frame = interactions(live)

    assert frame["bytes"].isna().tolist() == frame["excerpt"].isna().tolist() == [True, False]
    assert "(it was not kept)" in repr(interactions(live, number=1))
    assert "(it was not kept)" not in repr(interactions(live, number=2))
