"""What is said when a recording ends: the personal data in it, before the cassette is shared."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from directmail_lab.errors import CassetteError
from directmail_lab.redaction.personal import personal_notice, summarise_personal

from .library import find_cassette
from .reader import parse_cassette

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from directmail_lab.interaction import Interaction

__all__ = ["notice_of_personal_data"]

# So that closing costs about a tenth of a second at most, however much was recorded.
_MOST_READ_BYTES: Final = 32 * 1024**2
_MOST_INTERACTIONS: Final = 1000
_MOST_BODY_BYTES: Final = 1024**2


def notice_of_personal_data(path: Path, name: str) -> str:
    """Return a line that says what personal data a closed cassette holds; empty for none.

    Of a large one only a part is looked at, spread evenly over its first 32 MiB, and the line says
    how much that was. It never fails: a recording that ended well did so whatever is in it.
    """
    with suppress(OSError, CassetteError):
        with path.open("rb") as file:
            found = parse_cassette(file.read(_MOST_READ_BYTES), path).interactions
            is_whole = not file.read(1)
        some = _some(found)
        looked_at = None if is_whole and len(some) == len(found) else len(some)
        return personal_notice(summarise_personal(some), _word_for(path, name), looked_at=looked_at)
    return ""


def _some(found: Sequence[Interaction]) -> list[Interaction]:
    """Return interactions from start to end, no more than a thousand, nor than a megabyte."""
    some: list[Interaction] = []
    size = 0
    for each in found[:: -(-len(found) // _MOST_INTERACTIONS) or 1]:
        size += len(each.request.body or b"") + len(each.response.body)
        if size > _MOST_BODY_BYTES and some:
            break
        some.append(each)
    return some


def _word_for(path: Path, name: str) -> str:
    """Return what the command line calls a cassette: its name where that finds it."""
    with suppress(CassetteError):
        if find_cassette(name).samefile(path):
            return name
    return str(path)
