"""Findings on answers that are refusals or errors, and on versions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from directmail_lab.contract import ME_PATH
from directmail_lab.interaction import header

from .seen import Answer, Finding, Seen, how_sure, places
from .shapes import fields_in_words, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["in_words", "status_findings"]

_REFUSED: Final = (401, 403)
_OTHER_VERSION: Final = re.compile(r"/v(?!1/|1$)\d+(/|$)")
_VERSION_HEADERS: Final = ("Deprecation", "Sunset", "API-Version", "X-API-Version")


def status_findings(seen: Seen) -> list[Finding]:
    """Return what was seen of parts 5, 7 and 9 of service.md."""
    return [
        _refusal("answer to a missing key", seen, "none"),
        _refusal("answer to an invalid key", seen, "wrong"),
        _errors(seen.answers),
        _versions(seen.answers),
    ]


def _refusal(part: str, seen: Seen, credentials: str) -> Finding:
    """Return how a request was answered that went out with no key, or with a wrong one."""
    told = [each for each in seen.answers if each.credentials == credentials]
    unclear = [
        each for each in seen.answers if each.credentials == "unknown" and each.status in _REFUSED
    ]
    words = in_words(told)
    if not told and unclear:
        words = f"{in_words(unclear)} (what key it was sent with is not recorded)"
    found = told or unclear
    return Finding(
        part, "5", words, how_sure(len(found)), places(found), "dm.explore()", _schema(found)
    )


def _errors(answers: Sequence[Answer]) -> Finding:
    failed = [each for each in answers if each.status >= 400]
    return Finding(
        "errors: statuses and body shapes", "7", in_words(failed), how_sure(len(failed)),
        places(failed), "dm.explore()", _schema(failed),
    )  # fmt: skip


def _versions(answers: Sequence[Answer]) -> Finding:
    other = [each for each in answers if _OTHER_VERSION.match(each.path)]
    told = [
        (each, name)
        for each in answers
        for name in _VERSION_HEADERS
        if header(each.interaction.response.headers, name) is not None
    ]
    words = [f"{each.operation} {each.status}" for each in other]
    words += [f"{each.operation} has the header {name}" for each, name in told]
    found = list(dict.fromkeys([*other, *(each for each, _ in told)]))
    return Finding(
        "versions: new ones, deprecation", "9", ", ".join(dict.fromkeys(words)),
        how_sure(len(found)), places(found), f'dm.get("{ME_PATH.replace("/v1/", "/v2/")}")',
    )  # fmt: skip


def in_words(answers: Iterable[Answer]) -> str:
    """Return statuses with the shape of their bodies: ``401, 404: JSON error.message string``."""
    by_status: dict[int, list[Answer]] = {}
    for answer in answers:
        by_status.setdefault(answer.status, []).append(answer)
    by_shape: dict[str, list[int]] = {}
    for status in sorted(by_status):
        by_shape.setdefault(_body(by_status[status]), []).append(status)
    return "; ".join(
        f"{', '.join(map(str, statuses))}: {shape}" for shape, statuses in by_shape.items()
    )


def _body(answers: Sequence[Answer]) -> str:
    kinds = []
    schema = _schema(answers)
    if schema is not None:
        kinds.append(f"JSON {fields_in_words(schema)}")
    for each in answers:
        if not each.is_json:
            told = header(each.interaction.response.headers, "Content-Type") or "no content type"
            kinds.append(told.partition(";")[0] if each.interaction.response.body else "no body")
    return " or ".join(dict.fromkeys(kinds))


def _schema(answers: Iterable[Answer]) -> dict[str, object] | None:
    return schema_of(each.json for each in answers if each.is_json)
