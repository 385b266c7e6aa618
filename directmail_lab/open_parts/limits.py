"""Findings on rate limits: part 8 of service.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from directmail_lab.contract import TYPICAL_LIMIT
from directmail_lab.interaction import header

from .seen import Answer, Finding, Seen, how_sure, places
from .shapes import schema_of
from .statuses import in_words

if TYPE_CHECKING:
    from directmail_lab.quota import Reading

__all__ = ["limit_findings"]

_READINGS: Final = "rate_limits()"


def limit_findings(seen: Seen) -> list[Finding]:
    """Return what was seen of the unit of Reset, of exhaustion, and of other allowances."""
    return [_unit(seen), _exhaustion(seen), _allowances(seen)]


def _unit(seen: Seen) -> Finding:
    part = "unit of X-RateLimit-Reset"
    told = [number for number, reading in enumerate(seen.readings) if reading.reset is not None]
    where = places((_READINGS, number) for number in told)
    if seen.reset_unit == "undetermined":
        # How many values were seen does not matter while they leave the unit open.
        words = seen.reset_why if told else ""
        return Finding(part, "8", words, "undecided" if told else "not seen", where, "dm.explore()")
    return Finding(part, "8", f"{seen.reset_unit}. {seen.reset_why}", "certain", where, "")


def _exhaustion(seen: Seen) -> Finding:
    part, call = "answer when the allowance is used up", "dm.burst(n), with n over the limit"
    answers = [each for each in seen.answers if _refused(each)]
    if answers:
        after = {header(each.interaction.response.headers, "Retry-After") for each in answers}
        retry = "no Retry-After" if after == {None} else "with Retry-After"
        schema = schema_of(each.json for each in answers if each.is_json)
        words = f"{in_words(answers)}, {retry}"
        return Finding(part, "8", words, how_sure(len(answers)), places(answers), call, schema)
    rows = [n for n, reading in enumerate(seen.readings) if _exhausted(reading)]
    statuses = sorted({seen.readings[row].status for row in rows})
    return Finding(
        part, "8", ", ".join(map(str, statuses)), how_sure(len(rows)),
        places((_READINGS, row) for row in rows), call,
    )  # fmt: skip


def _refused(answer: Answer) -> bool:
    remaining = header(answer.interaction.response.headers, "X-RateLimit-Remaining")
    return answer.status == 429 or (answer.status >= 400 and (remaining or "").strip() == "0")


def _exhausted(reading: Reading) -> bool:
    return reading.status == 429 or (reading.status >= 400 and reading.remaining == 0)


def _allowances(seen: Seen) -> Finding:
    told = [(row, each) for row, each in enumerate(seen.readings) if each.limit is not None]
    other = [(row, each) for row, each in told if each.limit != TYPICAL_LIMIT]
    words = ", ".join(dict.fromkeys(f"{_name(each)} {each.limit}" for _, each in other))
    if not other:
        other = [(row, each) for row, each in told if each.status < 400]
        names = ", ".join(dict.fromkeys(_name(each) for _, each in other))
        words = f"none so far: {TYPICAL_LIMIT} for {names}" if names else ""
    rows = [row for row, _ in other]
    return Finding(
        "operations with other allowances", "8", words, how_sure(len(rows)),
        places((_READINGS, row) for row in rows), 'dm.get("/v1/…") with a known path',
    )  # fmt: skip


def _name(reading: Reading) -> str:
    return f"{reading.method} {reading.operation}"
