"""Findings on rate limits: part 8 of service.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from directmail_lab.contract import TYPICAL_LIMIT
from directmail_lab.interaction import header

from .seen import Answer, Finding, Seen, how_sure, places
from .shapes import schema_of
from .statuses import in_words

if TYPE_CHECKING:
    from directmail_lab.quota import Reading

__all__ = ["limit_findings"]


def limit_findings(seen: Seen) -> list[Finding]:
    """Return what was seen of the unit of Reset, of exhaustion, and of other allowances."""
    return [_unit(seen), _exhaustion(seen), _allowances(seen)]


def _unit(seen: Seen) -> Finding:
    part = "unit of X-RateLimit-Reset"
    told = [each for each in seen.readings if each.reading.reset is not None]
    where = places(told)
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
    spent = [each for each in seen.readings if _exhausted(each.reading)]
    statuses = sorted({each.reading.status for each in spent})
    words = ", ".join(map(str, statuses))
    return Finding(part, "8", words, how_sure(len(spent)), places(spent), call)


def _refused(answer: Answer) -> bool:
    remaining = header(answer.interaction.response.headers, "X-RateLimit-Remaining")
    return answer.status == 429 or (answer.status >= 400 and (remaining or "").strip() == "0")


def _exhausted(reading: Reading) -> bool:
    return reading.status == 429 or (reading.status >= 400 and reading.remaining == 0)


def _allowances(seen: Seen) -> Finding:
    told = [each for each in seen.readings if each.reading.limit is not None]
    found = [each for each in told if each.reading.limit != TYPICAL_LIMIT]
    names = (f"{_name(each.reading)} {each.reading.limit}" for each in found)
    words = ", ".join(dict.fromkeys(names))
    if not found:
        found = [each for each in told if each.reading.status < 400]
        names = (_name(each.reading) for each in found)
        words = f"none so far: {TYPICAL_LIMIT} for {', '.join(dict.fromkeys(names))}"
    return Finding(
        "operations with other allowances", "8", words if found else "", how_sure(len(found)),
        places(found), 'dm.get("/v1/…") with a known path',
    )  # fmt: skip


def _name(reading: Reading) -> str:
    return f"{reading.method} {reading.operation}"
