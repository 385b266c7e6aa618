"""Marks of parametrized tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def slow(*values: object) -> Any:
    """Return the values of one test that only ``pytest -m slow`` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def rest_slow(values: Iterable[object]) -> list[Any]:
    """Return the values of tests of which ``pytest`` alone runs the first."""
    first, *rest = values
    return [first, *map(slow, rest)]
