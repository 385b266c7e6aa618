"""Shapes: what JSON values and answers had in common, merged, bounded, and without values."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator
from reading_samples import reading as sample

from directmail_lab.questions.shapes import ResponseShape, ResponseShapes, Shape

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=10,
)


def shape_of(values: Iterable[object]) -> Shape:
    """The shape of all these values."""
    shape = Shape()
    for value in values:
        shape.add(value)
    return shape


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([{}], "object"),
        ([None], "null"),
        ([], "anything"),
        ([[1, "a"]], "[] integer or string"),
        ([[{"a": 1}]], "[].a integer"),
        ([{"a": {}}, {"a": None}], "a object or null"),
        ([{"a": 1}, {"a": 1.5}], "a number"),
        ([{"a": {"b": 1}}, {"a": {}}, {}], "a?.b? integer"),
        ([{"Ada": 1, "Bob": 2}, {"Eve": 3}, {"Zoe": 4.5}], "{id} number"),
    ],
)
def test_shapes_in_words(values: list[object], words: str) -> None:
    """Whatever JSON a body holds."""
    assert shape_of(values).describe().endswith(words)


@given(st.lists(JSON, min_size=1, max_size=5))
def test_every_value_meets_the_schema_of_all(values: list[Any]) -> None:
    """Types, fields that are always there, fields that may be null."""
    schema = shape_of(values).schema()

    assert all(Draft202012Validator(schema).is_valid(value) for value in values)


@given(st.lists(st.lists(JSON, max_size=3), min_size=3, max_size=3))
def test_merging_is_as_taking_all_values_in_any_grouping(parts: list[list[Any]]) -> None:
    """So that many recordings can be looked at apart, and their shapes put together."""
    whole = shape_of(value for part in parts for value in part)
    left, right = shape_of(parts[0]), shape_of(parts[1])
    left.merge(right)
    left.merge(shape_of(parts[2]))
    right.merge(shape_of(parts[2]))
    other = shape_of(parts[0])
    other.merge(right)

    assert left.schema() == other.schema() == whole.schema()


def test_a_shape_is_bounded() -> None:
    """However many fields a body has, and however deep they are."""
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    many, far = shape_of([{f"k{n}": {"b": n} for n in range(100_000)}]), shape_of([deep])

    assert len(many.properties) == 202
    assert many.describe() == "{id}.b integer"
    assert far.describe().startswith("a.a.a")


def test_a_shape_keeps_no_value_but_the_words_of_states() -> None:
    """A word in a field named state or status; no e-mail address, no sentence, no number."""
    shape = shape_of(
        [
            {"state": "active", "name": "Ada"},
            {"status": "ada@x.org"},
            {"list": [{"status": "to_do"}]},
        ]
    )

    assert shape.all_states() == {"active", "to_do"}
    assert "Ada" not in repr(shape)


def test_an_answer_is_read_as_its_headers_say() -> None:
    """Compressed, in its own character set, or no JSON at all; a bomb is not opened."""
    shape = ResponseShape()
    shape.add((("content-encoding", "gzip"),), gzip.compress(b'{"a": 1}'))
    shape.add(
        (("Content-Type", "application/json; charset=latin-1"),), '{"é": 1}'.encode("latin-1")
    )
    shape.add((("Content-Type", "text/html; charset=utf-8"),), b"<p>")
    shape.add((), b"")
    shape.add((("Content-Encoding", "gzip"),), gzip.compress(bytes(300 * 1024**2), 9))

    assert shape.kinds == {"JSON": 2, "text/html": 1, "no body": 1, "no content type": 1}
    assert shape.body.describe() == "a? integer, é? integer"
    assert set(shape.headers) == {"content-encoding", "content-type"}


def test_a_session_notes_some_answers_of_a_kind() -> None:
    """Fifty of each; very large ones and the rest cost nothing."""
    shapes, reading = ResponseShapes(), sample()
    for _ in range(500):  # httpx has undone the coding that the headers still name
        shapes.add(reading, httpx.Headers({"Content-Encoding": "gzip"}), b"{}")
    shapes.add(reading._replace(status=201), httpx.Headers(), b" " * 2_000_000)

    known = shapes.samples([reading, reading._replace(status=201)], "https://api.test")
    assert [sample.shape.kinds for sample in known] == [{"JSON": 50}, {}]
