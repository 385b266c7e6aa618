"""The parts that service.md leaves open ("not shown"), and what was seen of each.

Pure: takes answers and their shapes, and returns a row for each open part, in the document's order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pandas as pd

from .contract import ME_PATH, TYPICAL_LIMIT
from .display import readable
from .quota import is_exhausted
from .reset_unit import Evidence
from .shapes import AnswerShape, AnswerShapes, Credentials, Sighting

_HowSure = Literal["not seen", "undecided", "seen once", "seen repeatedly", "certain"]

_COLUMNS: Final = ("part", "section", "seen", "how_sure", "interactions", "find_out", "schema")
_Finding = tuple[str, str, str, _HowSure, str, str, dict[str, Any] | None]
"""One row, with these columns: what was seen of one open part. See `findings`."""

_ME: Final = f"GET {ME_PATH}"
_ASK: Final = "ask the service's operator: no request shows it"
_KNOWN_PATH: Final = 'dm.get("/v1/…") with a known path'
_REFUSED: Final = (401, 403)
_OTHER_VERSION: Final = re.compile(r"/v(?!1/|1$)\d+(/|$)")
_VERSION_HEADERS: Final = ("Deprecation", "Sunset", "API-Version", "X-API-Version")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the findings are made from: answers, their shapes, and the unit of Reset."""

    answers: Sequence[Sighting]
    shapes: AnswerShapes
    reset_unit: Evidence

    @property
    def of_account(self) -> list[Sighting]:
        """The answers to requests with the account's own key; their limits are its limits."""
        return [each for each in self.answers if each.is_the_accounts]

    def where(
        self, answers: Sequence[Sighting], test: Callable[[AnswerShape], object]
    ) -> list[Sighting]:
        """Return the answers whose shape passes a test."""
        by_key = {each.key: each for each in answers}
        passed = {key for key, each in by_key.items() if test(self.shapes.of([each]))}
        return [each for each in answers if each.key in passed]


def findings_of(seen: Seen) -> pd.DataFrame:
    """Return a row for each open part, in the order of service.md; see `findings` for columns."""
    good = [each for each in seen.answers if 200 <= each.reading.status < 300]
    others = [each for each in good if each.operation != _ME]
    mine = [each for each in good if each.operation == _ME]
    operations = ", ".join(
        dict.fromkeys(f"{each.operation} {each.reading.status}" for each in others)
    )
    failed = [each for each in seen.answers if each.reading.status >= 400]
    rows: list[_Finding] = [
        _finding("other operations", "1, 4", others, operations, _KNOWN_PATH),
        _fields("resources and their fields", "2", seen, others, _KNOWN_PATH),
        _states(seen, good),
        _base_addresses(seen.answers),
        _fields("the user's record", "4", seen, mine, "dm.me()"),
        _refusal("answer to a missing key", seen, "none"),
        _refusal("answer to an invalid key", seen, "wrong"),
        _finding("how keys are issued or revoked", "5", [], "", _ASK),
        _finding("events", "6", [], "", _ASK),
        _statuses("errors: statuses and body shapes", "7", seen, failed, "dm.explore()"),
        _unit(seen),
        _exhaustion(seen),
        _allowances(seen.of_account),
        _versions(seen),
    ]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)
    return readable(frame.astype(dict.fromkeys(_COLUMNS[:-1], "string")), hidden=["schema"])


# -- one finding -------------------------------------------------------------------------------


def _finding(
    part: str,
    section: str,
    found: Sequence[Sighting],
    words: str,
    find_out: str,
    shape: AnswerShape | None = None,
) -> _Finding:
    """Return a finding whose ``how_sure`` counts the answers; counting never makes it certain."""
    sure: _HowSure = "seen repeatedly" if len(found) > 1 else "seen once" if found else "not seen"
    schema = shape.body.schema() if shape else None
    return part, section, words, sure, _places(found), find_out, schema or None


def _statuses(
    part: str,
    section: str,
    seen: Seen,
    found: Sequence[Sighting],
    find_out: str,
    note: str = "",
) -> _Finding:
    """Return a finding of statuses and bodies: ``401, 404: JSON error string``."""
    by_shape: dict[str, list[str]] = {}
    for status in sorted({each.reading.status for each in found}):
        shape = seen.shapes.of(each for each in found if each.reading.status == status)
        json = f"JSON {shape.body.in_words()}"
        kinds = " or ".join(json if kind == "JSON" else kind for kind in shape.kinds)
        by_shape.setdefault(kinds, []).append(str(status))
    words = "; ".join(
        ", ".join(statuses) + (f": {kinds}" if kinds else "")
        for kinds, statuses in by_shape.items()
    )
    return _finding(part, section, found, words + note, find_out, seen.shapes.of(found))


def _fields(
    part: str, section: str, seen: Seen, answers: Sequence[Sighting], find_out: str
) -> _Finding:
    """Return a finding of the fields of JSON bodies, by operation, with a schema of them all."""
    told = seen.where(answers, lambda shape: shape.kinds["JSON"])
    words = []
    for operation in dict.fromkeys(each.operation for each in told):
        shape = seen.shapes.of(each for each in told if each.operation == operation)
        words.append(("" if operation == _ME else f"{operation}: ") + shape.body.in_words())
    return _finding(part, section, told, "; ".join(words), find_out, seen.shapes.of(told))


def _states(seen: Seen, answers: Sequence[Sighting]) -> _Finding:
    told = seen.where(answers, lambda shape: shape.body.states)
    states = ", ".join(sorted(seen.shapes.of(told).body.states))
    words = f"values of fields named state or status: {states}" if states else ""
    return _finding("states and transitions", "3", told, words, "dm.drift(…), on an older cassette")


def _base_addresses(answers: Sequence[Sighting]) -> _Finding:
    statuses: dict[str, dict[str, None]] = {}
    known = [each for each in answers if each.base_url is not None]
    for each in known:
        statuses.setdefault(str(each.base_url), {})[str(each.reading.status)] = None
    words = "; ".join(f"{base}: {', '.join(told)}" for base, told in statuses.items())
    call = 'dm.connect("https://…"), then dm.me()'
    return _finding("regional base addresses", "4", known, words, call)


def _refusal(part: str, seen: Seen, credentials: Credentials) -> _Finding:
    """Return a finding of the answers to requests with no key, or with a wrong one."""
    note, found = "", [each for each in seen.answers if each.credentials == credentials]
    if not found:
        unknown = [each for each in seen.answers if each.credentials == "unknown"]
        found = [each for each in unknown if each.reading.status in _REFUSED]
        note = " (what key it was sent with is not recorded)" if found else ""
    return _statuses(part, "5", seen, found, "dm.explore()", note)


def _unit(seen: Seen) -> _Finding:
    told = [each for each in seen.of_account if each.reading.reset is not None]
    unit, why = seen.reset_unit.unit, seen.reset_unit.why
    part, section = "unit of X-RateLimit-Reset", "8"
    if unit != "undetermined":
        return part, section, f"{unit}. {why}", "certain", _places(told), "", None
    # Not "seen repeatedly": any number of values may leave the unit undecided.
    sure: _HowSure = "undecided" if told else "not seen"
    return part, section, why if told else "", sure, _places(told), "dm.explore()", None


def _exhaustion(seen: Seen) -> _Finding:
    spent = [
        each
        for each in seen.of_account
        if is_exhausted(each.reading.status, each.reading.remaining)
    ]
    pause = any(each.reading.retry_after_s is not None for each in spent)
    note = f", {'with' if pause else 'no'} Retry-After" if spent else ""
    call = "dm.burst(n), with n over the limit"
    return _statuses("answer when the allowance is used up", "8", seen, spent, call, note)


def _allowances(answers: Sequence[Sighting]) -> _Finding:
    told = [each for each in answers if each.reading.limit is not None]
    found = [each for each in told if each.reading.limit != TYPICAL_LIMIT]
    words = ", ".join(dict.fromkeys(f"{each.operation} {each.reading.limit}" for each in found))
    if not found:
        found = [each for each in told if each.reading.status < 400]
        names = ", ".join(dict.fromkeys(each.operation for each in found))
        words = f"none so far: {TYPICAL_LIMIT} for {names}" if found else ""
    return _finding("operations with other allowances", "8", found, words, _KNOWN_PATH)


def _versions(seen: Seen) -> _Finding:
    found = [each for each in seen.answers if _OTHER_VERSION.match(each.reading.path)]
    words = [f"{each.operation} {each.reading.status}" for each in found]
    for name in _VERSION_HEADERS:
        told = seen.where(seen.answers, lambda shape, name=name: name.lower() in shape.headers)  # type: ignore[misc]
        words += [f"{each.operation} has the header {name}" for each in told]
        found += told
    call = f'dm.get("{ME_PATH.replace("/v1/", "/v2/")}")'
    words = list(dict.fromkeys(words))
    return _finding("versions: new ones, deprecation", "9", found, ", ".join(words), call)


def _places(found: Iterable[Sighting]) -> str:
    """Return where answers are found: ``"first-look 0-3, 7; explore 2"``."""
    by_source: dict[str, set[int]] = {}
    for each in found:
        by_source.setdefault(each.source, set()).add(each.number)
    return "; ".join(f"{source} {_ranges(numbers)}" for source, numbers in by_source.items())


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
