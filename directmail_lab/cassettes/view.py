"""Shows what cassettes hold: all interactions as a DataFrame, one of them readably."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pandas as pd

from ..display import readable
from ..errors import CassetteError
from ..interaction import Headers, Interaction, base_path, header, operation_of, path_below
from ..redaction import Redactor, secrets_in
from .cassette import Cassette
from .reader import LoadedCassette, read_cassette

_DTYPES: Final = {
    "at": "datetime64[us, UTC]",
    "method": "string",
    "path": "string",
    "query": "string",
    "operation": "string",
    "status": "Int64",
    "content_type": "string",
    "bytes": "Int64",
    "elapsed_s": "Float64",
    "excerpt": "string",
}
_EXCERPT: Final = 80
_SHOWN: Final = 4000
_LONGEST_LINE: Final = 500
_MOST_LINES: Final = 60
# What a terminal acts on: a service that sends it would move the cursor, or hide what it sent.
_UNSEEN: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 10}


def read_interactions(path: str | Path) -> pd.DataFrame:
    """Return what the cassette file at ``path`` holds, one row for each interaction.

    Returns
    -------
    DataFrame
        ``at`` (UTC; NaT where the writer kept no time), ``method``, ``path`` below the base
        address, ``query``, ``operation`` (the path with id-like segments as ``{id}``),
        ``status``, ``content_type``, ``bytes`` (of the body), ``elapsed_s`` and ``excerpt`` (the
        start of the body on one line). No rows for an empty cassette. ``attrs["problem"]`` says
        what is wrong with the file, or is None.
    """
    loaded = read_cassette(Path(path))
    frame = frame_of_interactions(_shown(loaded), base_url=loaded.base_url)
    frame.attrs.update(cassette=Path(path).stem, problem=loaded.problem)
    return frame


def interactions(cassette: Cassette) -> pd.DataFrame:
    """Return what an open cassette holds by now, as `read_interactions` does of a file."""
    return frame_of_interactions(_shown(cassette), base_url=cassette.base_url)


def show_interaction(path: Path, number: int) -> InteractionView:
    """Return one interaction of a cassette's file, counted from 1, to be shown in full.

    Raises
    ------
    CassetteError
        Where there is no such file or interaction.
    """
    loaded = read_cassette(path)
    count = len(loaded.interactions)
    if not 1 <= number <= count:
        raise CassetteError(
            f"Cassette {path.stem!r} has no interaction {number}: it has {count}, counted from 1."
        )
    return InteractionView(next(islice(_shown(loaded), number - 1, None)))


def _shown(held: Cassette | LoadedCassette) -> Iterable[Interaction]:
    """Return what is held; without credentials where another program wrote it."""
    found = held.interactions() if isinstance(held, Cassette) else held.interactions
    if not held.foreign:
        return found
    known = tuple(found)
    return map(Redactor(secrets_in(known)).interaction, known)


def frame_of_interactions(
    interactions: Iterable[Interaction], *, base_url: str | None = None
) -> pd.DataFrame:
    """Return interactions as a DataFrame, columns as in `read_interactions`."""
    prefix = base_path(base_url or "")
    rows = [_row(each, prefix) for each in interactions]
    return readable(pd.DataFrame(rows, columns=[*_DTYPES]).astype(_DTYPES))


def _row(interaction: Interaction, prefix: str) -> tuple[object, ...]:
    request, response = interaction.request, interaction.response
    path = path_below(request.uri, prefix)
    return (
        interaction.recorded_at,
        request.method,
        path,
        urlsplit(request.uri).query,
        operation_of(path),
        response.status,
        header(response.headers, "content-type"),
        len(response.body),
        interaction.elapsed_s,
        _excerpt(response.body),
    )


def _excerpt(body: bytes) -> str:
    try:
        # A character may be cut in two at the end of the part that is looked at.
        text = body[: 4 * _EXCERPT].decode("utf-8", "strict" if len(body) <= _EXCERPT else "ignore")
    except UnicodeDecodeError:
        return "(binary)"
    if "\0" in text or (body and not text):
        return "(binary)"
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…"


@dataclass(frozen=True, slots=True)
class InteractionView:
    """Shows one interaction as the last value of a cell: request, response, bodies laid out."""

    interaction: Interaction

    def __repr__(self) -> str:
        return "\n".join(
            f"{title}\n{lines}\n\n{body}".rstrip() + "\n" for title, lines, body in self._parts()
        )

    def _repr_html_(self) -> str:
        return "".join(
            f"<details open><summary><b>{html.escape(title)}</b></summary>"
            f"<pre>{html.escape(lines)}</pre><pre>{html.escape(body)}</pre></details>"
            for title, lines, body in self._parts()
        )

    def _parts(self) -> list[tuple[str, str, str]]:
        request, response = self.interaction.request, self.interaction.response
        told = f"{response.status} {_line(response.reason)}".rstrip()
        if self.interaction.elapsed_s is not None:
            told += f" after {self.interaction.elapsed_s:.3f} s"
        if self.interaction.recorded_at is not None:
            told += f", {self.interaction.recorded_at:%Y-%m-%d %H:%M:%S} UTC"
        asked = f"{request.method} {_line(request.uri)}"
        return [
            (asked, _lines(request.headers), _laid_out(request.body)),
            (told, _lines(response.headers), _laid_out(response.body)),
        ]


def _line(text: str) -> str:
    """Return a text on one line, a long one cut."""
    cut = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"
    return cut.replace("\n", " ").translate(_UNSEEN)


def _lines(headers: Headers) -> str:
    lines = [_line(f"{name}: {value}") for name, value in headers[:_MOST_LINES]]
    more = len(headers) - len(lines)
    return "\n".join([*lines, f"… ({more:,} more)"] if more else lines)


def _laid_out(body: bytes | None) -> str:
    """Return a body for reading: JSON indented, a binary one by its size, a long one cut."""
    if not body:
        return ""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"({len(body):,} bytes, not text)"
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}\n… ({len(text):,} characters in all)"
    return text.replace("\r\n", "\n").expandtabs(4).translate(_UNSEEN)
