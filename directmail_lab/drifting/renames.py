"""Which of two objects' fields look like one that was renamed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

__all__ = ["renamed", "type_of"]

# How alike two names must be to be taken for one that was renamed, from 0 to 1 (difflib's ratio):
# `postcode` and `postal_code` are (0.89), `name` and `email` are not (0.22).
_ALIKE = 0.7


def renamed(removed: Mapping[str, object], added: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the pairs of a removed and an added key that look like one field renamed.

    The same value under another name is one, where the value tells something or no other field is
    in question; so is a like name with a value of the same type.
    """
    lone = len(removed) == len(added) == 1
    pairs: dict[str, str] = {}

    def same_value(old: str, new: str) -> bool:
        return (lone or _tells(removed[old])) and _equal(removed[old], added[new])

    for alike in (same_value, _like_names):
        for old in (key for key in removed if key not in pairs):
            free = (key for key in added if key not in pairs.values())
            match = next(
                (new for new in free if _same_type(removed[old], added[new]) and alike(old, new)),
                None,
            )
            if match is not None:
                pairs[old] = match
    return list(pairs.items())


def _tells(value: object) -> bool:
    """Return whether finding this value twice is more than chance."""
    return value not in ("", 0, 1, None, [], {})


def _same_type(was: object, is_now: object) -> bool:
    return type_of(was) == type_of(is_now)


def _equal(was: object, is_now: object) -> bool:
    try:
        return was == is_now
    except RecursionError:  # nested too deep to be compared at once
        return False


def _like_names(old: str, new: str) -> bool:
    before, after = (re.sub(r"[\W_]", "", name).lower() for name in (old, new))
    return difflib.SequenceMatcher(None, before, after).ratio() >= _ALIKE


def type_of(value: object) -> str:
    """Return JSON's name for a value's type; JSON has one type for all numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, list) else "number"
