"""One finding for each part that service.md marks "not shown", in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from directmail_lab.contract import ME_PATH

from .limits import limit_findings
from .seen import Answer, Finding, Seen, how_sure, places
from .shapes import fields_in_words, schema_of, values_of
from .statuses import status_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["findings_of", "frame_of_findings"]

_ME: Final = f"GET {ME_PATH}"
_ASK: Final = "ask the service's operator: no request shows it"
_STATE_FIELDS: Final = frozenset({"state", "status"})
# A schema of very many answers is that of these.
_MOST_ANSWERS: Final = 500


def findings_of(seen: Seen) -> list[Finding]:
    """Return one finding for each open part, in the order of service.md."""
    return sorted(
        [
            *_resource_findings(seen.answers),
            *status_findings(seen),
            *limit_findings(seen),
            Finding("how keys are issued or revoked", "5", "", "not seen", "", _ASK),
            Finding("events", "6", "", "not seen", "", _ASK),
        ],
        key=lambda finding: finding.section,
    )


def frame_of_findings(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return findings as a DataFrame, a row for each.

    Returns
    -------
    DataFrame
        ``part`` and ``section`` of service.md; ``seen`` of it, in words, empty where nothing was;
        ``how_sure`` (``"not seen"``, ``"undecided"``, ``"seen once"``, ``"seen repeatedly"``, and
        ``"certain"`` where all else is ruled out); ``interactions``, which ones, by source and
        number from 0; ``find_out``, the one call that would find out more; ``schema``, a JSON
        Schema (dict) of the bodies, or None.
    """
    names = list(Finding.__dataclass_fields__)
    columns = {name: [getattr(finding, name) for finding in findings] for name in names}
    return pd.DataFrame(
        {
            name: pd.Series(values, dtype="object" if name == "schema" else "string")
            for name, values in columns.items()
        }
    )


def _resource_findings(answers: Sequence[Answer]) -> list[Finding]:
    good = [answer for answer in answers if 200 <= answer.status < 300]
    others = [answer for answer in good if answer.operation != _ME]
    return [
        _finding(
            "other operations", "1, 4", others, _operations, 'dm.get("/v1/…") with a known path'
        ),
        _fields_finding(
            "resources and their fields", "2", others, 'dm.get("/v1/…") with a known path'
        ),
        _states_finding(good),
        _finding(
            "regional base addresses",
            "4",
            answers,
            _addresses,
            'dm.connect("https://…"), then dm.me()',
        ),
        _fields_finding(
            "the user's record", "4", [each for each in good if each.operation == _ME], "dm.me()"
        ),
    ]


def _finding(
    part: str,
    section: str,
    answers: Sequence[Answer],
    words: Callable[[Sequence[Answer]], str],
    find_out: str,
) -> Finding:
    return Finding(part, section, words(answers), how_sure(len(answers)), places(answers), find_out)


def _operations(answers: Sequence[Answer]) -> str:
    return ", ".join(dict.fromkeys(f"{each.operation} {each.status}" for each in answers))


def _addresses(answers: Sequence[Answer]) -> str:
    statuses: dict[str | None, dict[int, None]] = {}
    for each in answers:
        statuses.setdefault(each.base_url, {})[each.status] = None
    return "; ".join(f"{base}: {', '.join(map(str, found))}" for base, found in statuses.items())


def _fields_finding(part: str, section: str, answers: Sequence[Answer], find_out: str) -> Finding:
    """Return what fields bodies have, by operation, with the schema of all of them."""
    told = [each for each in answers if each.is_json][-_MOST_ANSWERS:]
    words = []
    for operation in dict.fromkeys(each.operation for each in told):
        schema = schema_of(each.json for each in told if each.operation == operation)
        name = "" if operation == _ME else f"{operation}: "
        words.append(name + fields_in_words(schema or {}))
    schema = schema_of(each.json for each in told)
    return Finding(
        part, section, "; ".join(words), how_sure(len(told)), places(told), find_out, schema
    )


def _states_finding(answers: Sequence[Answer]) -> Finding:
    told = [each for each in answers if any(values_of(each.json, _STATE_FIELDS))]
    states = {value for each in told for value in values_of(each.json, _STATE_FIELDS)}
    seen = f"values of fields named state or status: {', '.join(sorted(states))}" if states else ""
    return Finding(
        "states and transitions", "3", seen, how_sure(len(told)), places(told),
        "dm.drift(…), on a cassette of some time ago",
    )  # fmt: skip
