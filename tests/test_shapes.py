"""Shapes: what JSON values have in common, as a schema and in words, without the values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from directmail_lab.questions.findings import describe
from directmail_lab.questions.shapes import Components, resolved, schema_of

NAMES = st.sampled_from([*"abcd", "data", "error", "Zürich", "7", "x@y.org", "Ada Lovelace"])
TEXTS = (
    st.text(max_size=8) | st.sampled_from(["2026-11-21", "ada@example.org"]) | st.uuids().map(str)
)
JSON = st.recursive(
    st.sampled_from([None, True, 1, 0.5]) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "anything"),
        ([[1, "a"]], "[] integer or string"),
        ([[{"a": 1}]], "[].a integer"),
        ([{"a": {}}, {"a": None}], "a object or null"),
        ([{"a": {"b": 1}}, {"a": {}}, {}], "a?.b? integer"),
        ([{"Ada": 1, "Bob": 2}, {"Eve": 3}, {"Zoe": 4.5}], "{id} number"),
    ],
)
def test_shapes_in_words(values: list[object], words: str) -> None:
    """Whatever JSON a body holds."""
    assert describe(schema_of(values)) == words


@given(st.lists(st.lists(JSON, min_size=1, max_size=3), min_size=1, max_size=4))
def test_every_value_meets_its_schema_and_the_components_of_that(groups: list[Any]) -> None:
    """Fields that are always there or may be null; whatever other objects became one with its."""
    components = Components()
    schemas = [components.refer(schema_of(values), "a", "Response") for values in groups]
    whole = {"schemas": schemas, "components": {"schemas": components}}
    document = resolved(whole)

    for number, values in enumerate(groups):
        schema = {**document["schemas"][number], "components": document["components"]}
        validator = Draft202012Validator(schema, format_checker=FormatChecker())
        assert all(map(validator.is_valid, values))


def test_a_shape_is_bounded() -> None:
    """However many fields a body has, and however deep they are."""
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}

    assert describe(schema_of([{f"k{n}": {"b": n} for n in range(100_000)}])) == "{id}.b integer"
    assert describe(schema_of([deep])).count("a") == 30
