"""Marks of parametrized tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: object) -> Any:
    """Return the values of one test that only ``pytest -m slow`` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def rest_slow(values: Iterable[object]) -> list[Any]:
    """Return the values of tests of which ``pytest`` alone runs the first."""
    first, *rest = values
    return [first, *map(slow, rest)]
