"""The parts that service.md leaves open ("not shown"), and what was seen of each.

Pure: takes responses with their shapes, and returns a row for each open part, in the document's
order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pandas as pd

from ..contract import ME_PATH, TYPICAL_LIMIT
from ..display import readable
from ..readings.reading import is_exhausted
from ..readings.reset_unit import Evidence
from .shapes import Credentials, ResponseSample, ResponseShape

_COLUMNS: Final = ("part", "section", "seen", "how_sure", "interactions", "find_out", "schema")
_ME: Final = f"GET {ME_PATH}"
_ASK: Final = "ask the service's operator"
_KNOWN_PATH: Final = 'dm.get("/v1/…") with a known path'
_SIGN_IN: Final = 'dm.connect("https://…"), then dm.me()'
_NEXT_VERSION: Final = f'dm.get("{ME_PATH.replace("/v1/", "/v2/")}")'
_OTHER_VERSION: Final = re.compile(r"/v(?!1/|1$)\d+(/|$)")
_VERSION_HEADERS: Final = ("Deprecation", "Sunset", "API-Version", "X-API-Version")
_MOST_STATES: Final = 20

_Samples = Sequence[ResponseSample]
_Finding = tuple[_Samples, str]
"""The responses that show something of a part, and what they show."""


def findings_of(samples: _Samples, reset_unit: Evidence) -> pd.DataFrame:
    """Return a row for each open part, in the order of service.md; see `findings` for columns."""
    successful = [sample for sample in samples if 200 <= sample.reading.status < 300]
    mine = [sample for sample in successful if sample.operation == _ME]
    others = [sample for sample in successful if sample.operation != _ME]
    own = [sample for sample in samples if sample.may_have_key]
    failed = [sample for sample in samples if sample.reading.status >= 400]
    rows = [
        _row("other operations", "1, 4", _KNOWN_PATH, others, _operations(others)),
        _row("resources and their fields", "2", _KNOWN_PATH, *_fields(others)),
        _row("states and transitions", "3", "dm.drift(…), on an older cassette",
             *_states(successful)),
        _row("regional base addresses", "4", _SIGN_IN, *_base_addresses(samples)),
        _row("the user's record", "4", "dm.me()", *_fields(mine)),
        _row("answer to a missing key", "5", "dm.explore()", *_refusals(samples, "none")),
        _row("answer to an invalid key", "5", "dm.explore()", *_refusals(samples, "wrong")),
        _row("how keys are issued or revoked", "5", _ASK),
        _row("events", "6", _ASK),
        _row("errors: statuses and body shapes", "7", "dm.explore()", failed, _statuses(failed)),
        _unit(own, reset_unit),
        _row("answer when the allowance is used up", "8", "dm.burst(n), with n over the limit",
             *_exhaustion(own)),
        _row("operations with other allowances", "8", _KNOWN_PATH, *_allowances(own)),
        _row("versions: new ones, deprecation", "9", _NEXT_VERSION, *_versions(samples)),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)
    frame = frame.astype(dict.fromkeys(_COLUMNS[:-1], "string"))
    return readable(frame, hidden=["section", "schema"])


def _row(
    part: str,
    section: str,
    find_out: str,
    matches: _Samples = (),
    seen: str = "",
    how_sure: str | None = None,
) -> tuple[Any, ...]:
    """Return a row; by default ``how_sure`` counts the matches, which never makes it certain."""
    counted = "seen repeatedly" if len(matches) > 1 else "seen once" if matches else "not seen"
    schema = _merged(matches).body.schema() or None
    return part, section, seen, how_sure or counted, _interactions(matches), find_out, schema


# -- what was seen -----------------------------------------------------------------------------


def _operations(samples: _Samples) -> str:
    return _joined(f"{sample.operation} {sample.reading.status}" for sample in samples)


def _fields(samples: _Samples) -> _Finding:
    """Return the fields of JSON bodies, by operation."""
    matches = [sample for sample in samples if sample.shape.kinds["JSON"]]
    by_operation: dict[str, list[ResponseSample]] = {}
    for sample in matches:
        by_operation.setdefault(sample.operation, []).append(sample)
    texts = []
    for operation, same in by_operation.items():
        name = "" if operation == _ME else f"{operation}: "
        texts.append(name + _merged(same).body.describe())
    return matches, "; ".join(texts)


def _states(samples: _Samples) -> _Finding:
    matches = [sample for sample in samples if sample.shape.body.all_states()]
    states = ", ".join(sorted(_merged(matches).body.all_states())[:_MOST_STATES])
    return matches, f"values of fields named state or status: {states}" if states else ""


def _base_addresses(samples: _Samples) -> _Finding:
    matches = [sample for sample in samples if sample.base_url is not None]
    statuses: dict[str | None, list[str]] = {}
    for sample in matches:
        statuses.setdefault(sample.base_url, []).append(str(sample.reading.status))
    return matches, "; ".join(f"{base}: {_joined(texts)}" for base, texts in statuses.items())


def _statuses(samples: _Samples) -> str:
    """Return statuses with the kinds of their bodies: ``401, 404: JSON error string``."""
    by_kind: dict[str, list[str]] = {}
    for status in sorted({sample.reading.status for sample in samples}):
        shape = _merged(sample for sample in samples if sample.reading.status == status)
        json = f"JSON {shape.body.describe()}"
        kinds = " or ".join(json if kind == "JSON" else kind for kind in shape.kinds)
        by_kind.setdefault(f": {kinds}" if kinds else "", []).append(str(status))
    return "; ".join(", ".join(statuses) + kind for kind, statuses in by_kind.items())


def _refusals(samples: _Samples, credentials: Credentials) -> _Finding:
    """Return the responses to requests with no key, or with a wrong one."""
    if matches := [sample for sample in samples if sample.credentials == credentials]:
        return matches, _statuses(matches)
    unknown = [sample for sample in samples if sample.credentials == "unknown"]
    matches = [sample for sample in unknown if sample.reading.status in (401, 403)]
    note = " (the recording does not say with which key)" if matches else ""
    return matches, _statuses(matches) + note


def _unit(samples: _Samples, evidence: Evidence) -> tuple[Any, ...]:
    matches = [sample for sample in samples if sample.reading.reset is not None]
    part, section, unit = "unit of X-RateLimit-Reset", "8", evidence.unit
    if unit != "undetermined":
        return _row(part, section, "", matches, f"{unit}. {evidence.why}", "certain")
    # Not "seen repeatedly": any number of values may leave the unit undecided.
    how_sure, why = ("undecided", evidence.why) if matches else ("not seen", "")
    return _row(part, section, "dm.explore()", matches, why, how_sure)


def _exhaustion(samples: _Samples) -> _Finding:
    matches = [
        sample
        for sample in samples
        if is_exhausted(sample.reading.status, sample.reading.remaining)
    ]
    pause = any(sample.reading.retry_after_s is not None for sample in matches)
    note = f", {'with' if pause else 'no'} Retry-After" if matches else ""
    return matches, _statuses(matches) + note


def _allowances(samples: _Samples) -> _Finding:
    limited = [sample for sample in samples if sample.reading.limit is not None]
    if matches := [sample for sample in limited if sample.reading.limit != TYPICAL_LIMIT]:
        return matches, _joined(f"{match.operation} {match.reading.limit}" for match in matches)
    matches = [sample for sample in limited if sample.reading.status < 400]
    operations = _joined(sample.operation for sample in matches)
    return matches, f"none so far: {TYPICAL_LIMIT} for {operations}" if matches else ""


def _versions(samples: _Samples) -> _Finding:
    matches = [sample for sample in samples if _OTHER_VERSION.match(sample.reading.path)]
    texts = [f"{sample.operation} {sample.reading.status}" for sample in matches]
    for name in _VERSION_HEADERS:
        announcing = [sample for sample in samples if sample.shape.headers[name.lower()]]
        texts += [f"{sample.operation} has the header {name}" for sample in announcing]
        matches += announcing
    return matches, _joined(texts)


# -- of several responses ----------------------------------------------------------------------


def _merged(samples: Iterable[ResponseSample]) -> ResponseShape:
    """Return what responses have in common; samples may refer to the same shape."""
    merged = ResponseShape()
    for shape in {id(sample.shape): sample.shape for sample in samples}.values():
        merged.merge(shape)
    return merged


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _interactions(samples: Iterable[ResponseSample]) -> str:
    """Return where responses are found: ``"first-look 0-3, 7; explore 2"``."""
    by_source: dict[str, set[int]] = {}
    for sample in samples:
        by_source.setdefault(sample.source, set()).add(sample.number)
    return "; ".join(f"{source} {_ranges(numbers)}" for source, numbers in by_source.items())


def _ranges(numbers: Iterable[int]) -> str:
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)
