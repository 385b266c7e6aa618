"""Shapes: what JSON values have in common, as a schema and in words, without the values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from directmail_lab.questions.findings import describe
from directmail_lab.questions.shapes import Components, resolved, schema_of

TEXTS = st.text(max_size=8) | st.sampled_from(["2026-11-21", "ada@example.org"])


def json_values(*names: str) -> st.SearchStrategy[Any]:
    """JSON with objects of these names."""
    return st.recursive(
        st.sampled_from([None, True, 1, 0.5]) | TEXTS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=4)
        ),
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


@given(st.lists(st.lists(json_values("a", "b"), min_size=1, max_size=3), min_size=2, max_size=4))
@example([[{"a": 1, "b": 1}], [{"a": 1, "b": 1}, {"a": 1}]])
@example([[{"a": 1, "b": "2026-11-21"}], [{"a": None, "b": "x"}]])
@example([[{"a": 1, "7": 1}], [{"a": 1, "8": "x"}]])
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
