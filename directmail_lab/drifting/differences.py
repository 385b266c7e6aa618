"""Two answers to one request, compared field by field: pure, values in and differences out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from ..bodies import read_json
from .renames import renamed, type_of
from .volatile import is_volatile_field, is_volatile_header, moved_with_the_clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from ..interaction import Headers, Interaction

__all__ = ["ABSENT", "Change", "Difference", "Part", "compare"]

Part = Literal["status", "header", "body"]
Change = Literal[
    "added", "removed", "retyped", "renamed-like", "null-turned", "null-filled", "changed"
]

ROOT: Final = "$"
"""The path of a body as a whole."""


@dataclass(frozen=True, slots=True)
class _Absent:
    """What stands for a value that is not there; None stands for JSON's null."""


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two answers.

    ``path`` is the header's name in lower case, the field's dotted path as in `frame`'s columns
    (``company.address.city``, ``tags[0]``, ``lists[id=7].name``), ``$`` for a body as a whole, or
    ``status``. ``recorded`` and ``now`` are its values, `ABSENT` where there is none. ``new_path``
    is set where a field looks renamed.
    """

    part: Part
    path: str
    change: Change
    recorded: object = ABSENT
    now: object = ABSENT
    new_path: str | None = None


def compare(
    recorded: Interaction, now: Interaction, *, ignore: Iterable[str] = ()
) -> list[Difference]:
    """Return what is different in ``now``, in the order status, headers, body.

    Values that differ from call to call are no difference (see `volatile`); that they are there,
    and of what type, is compared. Arrays are compared by position, or by ``id`` where each element
    is an object with one of its own. Where one of the two answers is an error and the other is not,
    the status tells it all and the rest is not compared.

    Parameters
    ----------
    ignore
        Paths to leave out, ``*`` standing for any text: ``"company.*"``, ``"header.x-powered-by"``.
    """
    old, new = recorded.response, now.response
    found: list[Difference] = []
    if old.status != new.status:
        found.append(Difference("status", "status", "changed", old.status, new.status))
    if old.status == new.status or max(old.status, new.status) < 400:
        found.extend(_headers(old.headers, new.headers))
        if recorded.request.method != "HEAD":
            found.extend(_Bodies(recorded.recorded_at, now.recorded_at).compare(old, new))
    patterns = list(ignore)
    return [each for each in found if not any(_matches(each, pattern) for pattern in patterns)]


def _matches(difference: Difference, pattern: str) -> bool:
    part = f"{difference.part}."
    name = part + difference.path if pattern.startswith(part) else difference.path
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


# -- headers -----------------------------------------------------------------------------------


def _headers(old: Headers, new: Headers) -> Iterator[Difference]:
    recorded, now = _joined(old), _joined(new)
    for name in [*recorded, *(name for name in now if name not in recorded)]:
        if is_volatile_header(name, presence=True):
            continue
        was, is_now = recorded.get(name), now.get(name)
        if is_now is None:
            yield Difference("header", name, "removed", was)
        elif was is None:
            yield Difference("header", name, "added", ABSENT, is_now)
        elif _is_integer(was) != _is_integer(is_now):
            yield Difference("header", name, "retyped", was, is_now)
        elif was != is_now and not is_volatile_header(name):
            yield Difference("header", name, "changed", was, is_now)


def _joined(headers: Headers) -> dict[str, str]:
    """Return each header once; those sent more than once as one, as RFC 9110 section 5.2 has it."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


def _is_integer(value: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+\s*", value, re.ASCII) is not None


# -- bodies ------------------------------------------------------------------------------------


class _Bodies:
    """Compares two bodies, each with the time that its answer came."""

    def __init__(self, recorded_at: datetime | None, now_at: datetime | None) -> None:
        self.recorded_at = recorded_at
        self.now_at = now_at
        self._waiting: list[tuple[str, str, object, object]] = []

    def compare(self, old: Any, new: Any) -> Iterator[Difference]:
        was, was_problem = read_json(old.body)
        is_now, is_problem = read_json(new.body)
        if was_problem or is_problem:
            if bool(was_problem) != bool(is_problem) or old.body != new.body:
                kind: Change = "changed" if was_problem and is_problem else "retyped"
                names = [_kind_of_body(was_problem), _kind_of_body(is_problem)]
                yield Difference("body", ROOT, kind, *names)
            return
        # Without recursion: a body may be nested as deep as its reader can follow.
        self._waiting.append(("", "", was, is_now))
        while self._waiting:
            path, name, was, is_now = self._waiting.pop()
            yield from self._value(path, name, was, is_now)

    def _value(self, path: str, name: str, was: object, is_now: object) -> Iterator[Difference]:
        shown = path or ROOT
        before, after = type_of(was), type_of(is_now)
        if before != after:
            kind: Change = (
                "null-turned"
                if after == "null"
                else "null-filled"
                if before == "null"
                else "retyped"
            )
            yield Difference("body", shown, kind, was, is_now)
        elif before == "object":
            yield from self._members(path, cast("Any", was), cast("Any", is_now))
        elif before == "array":
            yield from self._elements(path, cast("Any", was), cast("Any", is_now))
        elif was != is_now and not self._volatile(name, was, is_now):
            yield Difference("body", shown, "changed", was, is_now)

    def _volatile(self, name: str, was: object, is_now: object) -> bool:
        return is_volatile_field(name) or moved_with_the_clock(
            was, is_now, recorded_at=self.recorded_at, now_at=self.now_at
        )

    def _members(
        self, path: str, was: Mapping[str, object], is_now: Mapping[str, object]
    ) -> Iterator[Difference]:
        removed = {key: was[key] for key in was if key not in is_now}
        added = {key: is_now[key] for key in is_now if key not in was}
        for old, new in renamed(removed, added):
            old_path, new_path = _below(path, old), _below(path, new)
            yield Difference(
                "body", old_path, "renamed-like", removed.pop(old), added.pop(new), new_path
            )
        for key, value in removed.items():
            yield Difference("body", _below(path, key), "removed", value)
        for key, value in added.items():
            yield Difference("body", _below(path, key), "added", ABSENT, value)
        common = [key for key in was if key in is_now]
        self._wait_for((_below(path, key), key, was[key], is_now[key]) for key in common)

    def _elements(
        self, path: str, was: Sequence[object], is_now: Sequence[object]
    ) -> Iterator[Difference]:
        before, after = _by_id(was), _by_id(is_now)
        if before is None or after is None:
            before, after = _by_position(was), _by_position(is_now)
        for key, value in before.items():
            if key not in after:
                yield Difference("body", f"{path}[{key}]", "removed", value)
        for key, value in after.items():
            if key not in before:
                yield Difference("body", f"{path}[{key}]", "added", ABSENT, value)
        common = [key for key in before if key in after]
        self._wait_for((f"{path}[{key}]", "", before[key], after[key]) for key in common)

    def _wait_for(self, pairs: Iterable[tuple[str, str, object, object]]) -> None:
        self._waiting.extend(reversed(list(pairs)))


def _kind_of_body(problem: str | None) -> str:
    return "JSON" if problem is None else "no body" if problem == "is empty" else "not JSON"


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _by_position(elements: Sequence[object]) -> dict[str, object]:
    return {str(position): element for position, element in enumerate(elements)}


def _by_id(elements: Sequence[object]) -> dict[str, object] | None:
    """Return the elements by their ``id``, or None where they are not all told apart by one."""
    by_id: dict[str, object] = {}
    for element in elements:
        own = element.get("id") if isinstance(element, Mapping) else None
        if not isinstance(own, str | int) or isinstance(own, bool) or f"id={own}" in by_id:
            return None
        by_id[f"id={own}"] = element
    return by_id
