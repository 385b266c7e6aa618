"""The parts that service.md leaves open ("not shown"), and what was seen of each: pure.

Answers and their shapes in, one `Finding` for each open part out, in the document's order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd

from .contract import ME_PATH, TYPICAL_LIMIT
from .display import readable
from .quota import is_exhausted

if TYPE_CHECKING:
    from .bodies import AnswerShape, AnswerShapes, Credentials, Sighting
    from .reset_unit import Evidence

HowSure = Literal["not seen", "undecided", "seen once", "seen repeatedly", "certain"]

_ME: Final = f"GET {ME_PATH}"
_ASK: Final = "ask the service's operator: no request shows it"
_KNOWN_PATH: Final = 'dm.get("/v1/…") with a known path'
_REFUSED: Final = (401, 403)
_OTHER_VERSION: Final = re.compile(r"/v(?!1/|1$)\d+(/|$)")
_VERSION_HEADERS: Final = ("Deprecation", "Sunset", "API-Version", "X-API-Version")


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the findings are made from: answers, their shapes, and the unit of Reset."""

    answers: Sequence[Sighting]
    shapes: AnswerShapes
    reset_unit: Evidence

    @property
    def of_account(self) -> list[Sighting]:
        """The answers to the account's own key, whose allowances they tell."""
        return [each for each in self.answers if each.is_the_accounts]

    def shape(self, answers: Iterable[Sighting]) -> AnswerShape:
        """Return what these answers had in common."""
        return self.shapes.of(answers)

    def where(
        self, answers: Sequence[Sighting], test: Callable[[AnswerShape], object]
    ) -> list[Sighting]:
        """Return those of the answers whose shape passes a test."""
        passed = {
            key for key, each in {each.key: each for each in answers}.items()
            if test(self.shape([each]))
        }  # fmt: skip
        return [each for each in answers if each.key in passed]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen of one open part; `findings` says what the fields are."""

    part: str
    section: str
    seen: str
    how_sure: HowSure
    interactions: str
    find_out: str
    schema: dict[str, Any] | None = None


def findings_of(seen: Seen) -> list[Finding]:
    """Return one finding for each open part, in the order of service.md."""
    good = [each for each in seen.answers if 200 <= each.reading.status < 300]
    others = [each for each in good if each.operation != _ME]
    return [
        _finding("other operations", "1, 4", others, _operations(others), _KNOWN_PATH),
        _fields("resources and their fields", "2", seen, others, _KNOWN_PATH),
        _states(seen, good),
        _base_addresses(seen.answers),
        _fields(
            "the user's record", "4", seen, [each for each in good if each.operation == _ME],
            "dm.me()",
        ),
        _refusal("answer to a missing key", seen, "none"),
        _refusal("answer to an invalid key", seen, "wrong"),
        Finding("how keys are issued or revoked", "5", "", "not seen", "", _ASK),
        Finding("events", "6", "", "not seen", "", _ASK),
        _errors(seen),
        _unit(seen),
        _exhaustion(seen),
        _allowances(seen.of_account),
        _versions(seen),
    ]  # fmt: skip


def frame_of_findings(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return findings as a DataFrame, a row for each: `findings` says what its columns are."""
    names = list(Finding.__dataclass_fields__)
    columns = {name: [getattr(finding, name) for finding in findings] for name in names}
    frame = pd.DataFrame(
        {
            name: pd.Series(values, dtype="object" if name == "schema" else "string")
            for name, values in columns.items()
        }
    )
    return readable(frame, hidden=["schema"])


# -- one finding -------------------------------------------------------------------------------


def _finding(
    part: str,
    section: str,
    found: Sequence[Sighting],
    words: str,
    find_out: str,
    shape: AnswerShape | None = None,
) -> Finding:
    """Return a finding; what is open is never certain by being seen."""
    sure: HowSure = "seen repeatedly" if len(found) > 1 else "seen once" if found else "not seen"
    schema = shape.body.schema() if shape and shape.body.types else None
    return Finding(part, section, words, sure, _places(found), find_out, schema)


def _operations(answers: Sequence[Sighting]) -> str:
    return ", ".join(dict.fromkeys(f"{each.operation} {each.reading.status}" for each in answers))


def _base_addresses(answers: Sequence[Sighting]) -> Finding:
    statuses: dict[str, dict[int, None]] = {}
    known = [each for each in answers if each.base_url is not None]
    for each in known:
        statuses.setdefault(str(each.base_url), {})[each.reading.status] = None
    words = "; ".join(f"{base}: {', '.join(map(str, told))}" for base, told in statuses.items())
    call = 'dm.connect("https://…"), then dm.me()'
    return _finding("regional base addresses", "4", known, words, call)


def _fields(
    part: str, section: str, seen: Seen, answers: Sequence[Sighting], find_out: str
) -> Finding:
    """Return what fields bodies have, by operation, with the schema of all of them."""
    told = seen.where(answers, lambda shape: shape.kinds["JSON"])
    words = []
    for operation in dict.fromkeys(each.operation for each in told):
        shape = seen.shape(each for each in told if each.operation == operation)
        words.append(("" if operation == _ME else f"{operation}: ") + shape.body.in_words())
    return _finding(part, section, told, "; ".join(words), find_out, seen.shape(told))


def _states(seen: Seen, answers: Sequence[Sighting]) -> Finding:
    told = seen.where(answers, lambda shape: shape.body.all_states())
    states = ", ".join(sorted(seen.shape(told).body.all_states()))
    words = f"values of fields named state or status: {states}" if states else ""
    call = "dm.drift(…), on an older cassette"
    return _finding("states and transitions", "3", told, words, call)


def _refusal(part: str, seen: Seen, credentials: Credentials) -> Finding:
    """Return how a request was answered that went out with no key, or with a wrong one."""
    found = [each for each in seen.answers if each.credentials == credentials]
    unclear = [
        each
        for each in seen.answers
        if each.credentials == "unknown" and each.reading.status in _REFUSED
    ]
    note = "" if found or not unclear else " (what key it was sent with is not recorded)"
    found = found or unclear
    words = _statuses_in_words(seen, found) + note
    return _finding(part, "5", found, words, "dm.explore()", seen.shape(found))


def _errors(seen: Seen) -> Finding:
    failed = [each for each in seen.answers if each.reading.status >= 400]
    words = _statuses_in_words(seen, failed)
    return _finding(
        "errors: statuses and body shapes", "7", failed, words, "dm.explore()", seen.shape(failed)
    )


def _unit(seen: Seen) -> Finding:
    told = [each for each in seen.of_account if each.reading.reset is not None]
    unit, why = seen.reset_unit.unit, seen.reset_unit.why
    sure: HowSure = "certain"
    if unit == "undetermined":
        # How many values were seen does not matter while they leave the unit open.
        sure = "undecided" if told else "not seen"
    words = "" if sure == "not seen" else why if sure == "undecided" else f"{unit}. {why}"
    call = "" if sure == "certain" else "dm.explore()"
    return Finding("unit of X-RateLimit-Reset", "8", words, sure, _places(told), call)


def _exhaustion(seen: Seen) -> Finding:
    spent = [
        each
        for each in seen.of_account
        if is_exhausted(each.reading.status, each.reading.remaining)
    ]
    words = _statuses_in_words(seen, spent)
    if spent:
        pause = any(each.reading.retry_after_s is not None for each in spent)
        words += ", with Retry-After" if pause else ", no Retry-After"
    call = "dm.burst(n), with n over the limit"
    return _finding(
        "answer when the allowance is used up", "8", spent, words, call, seen.shape(spent)
    )


def _allowances(answers: Sequence[Sighting]) -> Finding:
    told = [each for each in answers if each.reading.limit is not None]
    found = [each for each in told if each.reading.limit != TYPICAL_LIMIT]
    words = ", ".join(dict.fromkeys(f"{each.operation} {each.reading.limit}" for each in found))
    if not found:
        found = [each for each in told if each.reading.status < 400]
        names = ", ".join(dict.fromkeys(each.operation for each in found))
        words = f"none so far: {TYPICAL_LIMIT} for {names}" if found else ""
    return _finding("operations with other allowances", "8", found, words, _KNOWN_PATH)


def _versions(seen: Seen) -> Finding:
    other = [each for each in seen.answers if _OTHER_VERSION.match(each.reading.path)]
    words, found = [f"{each.operation} {each.reading.status}" for each in other], list(other)
    for name in _VERSION_HEADERS:
        told = seen.where(seen.answers, lambda shape, name=name: name.lower() in shape.headers)  # type: ignore[misc]
        words += [f"{each.operation} has the header {name}" for each in told]
        found += told
    call = f'dm.get("{ME_PATH.replace("/v1/", "/v2/")}")'
    return _finding(
        "versions: new ones, deprecation", "9", found, ", ".join(dict.fromkeys(words)), call
    )


# -- in words ----------------------------------------------------------------------------------


def _statuses_in_words(seen: Seen, answers: Sequence[Sighting]) -> str:
    """Return statuses with the shape of their bodies: ``401, 404: JSON error.message string``."""
    by_shape: dict[str, list[int]] = {}
    for status in sorted({each.reading.status for each in answers}):
        shape = seen.shape(each for each in answers if each.reading.status == status)
        kinds = [
            f"JSON {shape.body.in_words()}" if kind == "JSON" else kind for kind in shape.kinds
        ]
        by_shape.setdefault(" or ".join(kinds), []).append(status)
    return "; ".join(
        ", ".join(map(str, statuses)) + (f": {shape}" if shape else "")
        for shape, statuses in by_shape.items()
    )


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
