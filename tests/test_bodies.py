"""Shapes: what JSON values and answers had in common, merged, bounded, and without values."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest
from hypothesis import given, strategies as st

from directmail_lab.quota import Reading
from directmail_lab.shapes import AnswerShape, AnswerShapes, Shape, Sighting

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=10,
)


def meets(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is valid by a schema, as far as shapes use JSON Schema."""
    kinds = {
        type(None): {"null"}, bool: {"boolean"}, str: {"string"}, dict: {"object"},
        list: {"array"}, int: {"integer", "number"}, float: {"number"},
    }[type(value)]  # fmt: skip
    declared = schema.get("type", [])
    if not kinds & set([declared] if isinstance(declared, str) else declared):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return set(schema.get("required", ())) <= set(value) and all(
            meets(inner, properties[name]) for name, inner in value.items()
        )
    return not isinstance(value, list) or all(meets(each, schema["items"]) for each in value)


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
        ([{f"f{n}": 1 for n in range(33)}], "and 3 more"),
    ],
)
def test_shapes_in_words(values: list[object], words: str) -> None:
    """Whatever JSON a body holds."""
    assert Shape.of(values).in_words().endswith(words)


@given(st.lists(JSON, min_size=1, max_size=5))
def test_every_value_meets_the_schema_of_all(values: list[Any]) -> None:
    """Types, fields that are always there, fields that may be null."""
    schema = Shape.of(values).schema()

    assert all(meets(value, schema) for value in values)


@given(st.lists(st.lists(JSON, max_size=3), min_size=3, max_size=3))
def test_merging_is_as_taking_all_values_in_any_grouping(parts: list[list[Any]]) -> None:
    """So that many recordings can be looked at apart, and their shapes put together."""
    whole = Shape.of(value for part in parts for value in part)
    left, right = Shape.of(parts[0]), Shape.of(parts[1])
    left.merge(right)
    left.merge(Shape.of(parts[2]))
    right.merge(Shape.of(parts[2]))
    other = Shape.of(parts[0])
    other.merge(right)

    assert left.schema() == other.schema() == whole.schema()


def test_a_shape_is_bounded() -> None:
    """However many fields a body has, and however deep they are."""
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    many, far = Shape.of([{f"k{n}": {"b": n} for n in range(100_000)}]), Shape.of([deep])

    assert len(many.types) == 2_000
    assert len(json.dumps(many.schema())) < 200_000
    assert far.in_words().startswith("a.a.a")


def test_a_shape_keeps_no_value_but_the_words_of_states() -> None:
    """A word in a field named state or status; no e-mail address, no sentence, no number."""
    shape = Shape.of(
        [
            {"state": "active", "name": "Ada"},
            {"status": "ada@x.org"},
            {"list": [{"status": "to_do"}]},
        ]
    )

    assert shape.states == {"active", "to_do"}
    assert "Ada" not in repr(shape)


def test_an_answer_is_read_as_its_headers_say() -> None:
    """Compressed, in its own character set, or no JSON at all; a bomb is not opened."""
    shape = AnswerShape()
    shape.add((("content-encoding", "gzip"),), gzip.compress(b'{"a": 1}'))
    shape.add(
        (("Content-Type", "application/json; charset=latin-1"),), '{"é": 1}'.encode("latin-1")
    )
    shape.add((("Content-Type", "text/html; charset=utf-8"),), b"<p>")
    shape.add((), b"")
    shape.add((("Content-Encoding", "gzip"),), gzip.compress(bytes(300 * 1024**2), 9))

    assert shape.kinds == {"JSON": 2, "text/html": 1, "no body": 1, "no content type": 1}
    assert shape.body.in_words() == "a? integer, é? integer"
    assert shape.headers == {"content-encoding", "content-type"}


def test_a_session_notes_some_answers_of_a_kind() -> None:
    """Fifty of each; very large ones and the rest cost nothing."""
    shapes, reading = AnswerShapes(), Reading(1.0, "GET", "/a", "/a", 200, 300, 299, 60)
    for _ in range(500):  # httpx has undone the coding that the headers still name
        shapes.add_live(reading, httpx.Headers({"Content-Encoding": "gzip"}), b"{}")
    shapes.add_live(reading._replace(status=201), httpx.Headers(), b" " * 2_000_000)

    assert shapes.of([Sighting.of_session(reading)]).kinds == {"JSON": 50}
    assert not shapes.of([Sighting.of_session(reading._replace(status=201))]).kinds
