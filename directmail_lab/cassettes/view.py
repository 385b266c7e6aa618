"""Shows what cassettes hold: all interactions as a DataFrame, one of them readably."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pandas as pd

from ..display import readable
from ..errors import CassetteError
from ..interaction import Headers, Interaction, base_path, header, operation_of, path_below
from ..redaction import as_shown
from ..snippets import copy_as
from .cassette import Cassette
from .reader import LoadedCassette, is_one_file, read_cassette, read_many

Row = tuple[object, ...]

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
# Control characters: sent by a service, they would move a terminal's cursor or hide text.
_UNSEEN: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 10}


def read_interactions(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Return what cassette files hold, one row for each interaction.

    Parameters
    ----------
    path
        A file; or any number of them, or a folder, whose cassettes are read with a progress bar.

    Returns
    -------
    DataFrame
        ``at`` (UTC; NaT where the writer kept no time), ``method``, ``path`` below the base
        address, ``query``, ``operation`` (the path with id-like segments as ``{id}``),
        ``status``, ``content_type``, ``bytes`` (of the body), ``elapsed_s`` and ``excerpt`` (the
        start of the body on one line). No rows for an empty cassette. ``attrs["problem"]`` says
        what is wrong with the file, or is None.

        Of many files, first ``cassette``: the path below the folder, or as it was given, without
        ``.yaml``. ``attrs["problems"]`` says by that name what is wrong with any.

    Raises
    ------
    CassetteError
        Where the one file is not there, or is no cassette. Of many, such a file is left out, and a
        warning names it.
    """
    if is_one_file(path):
        loaded = read_cassette(Path(path))
        frame = _frame(_rows(loaded))
        frame.attrs.update(cassette=Path(path).stem, problem=loaded.problem)
        return frame
    found, problems = read_many(path, lambda held, name: [(name, *row) for row in _rows(held)])
    frame = _frame(chain.from_iterable(found), {"cassette": "string", **_DTYPES})
    frame.attrs["problems"] = problems
    return frame


def interactions(cassette: Cassette) -> pd.DataFrame:
    """Return what an open cassette holds by now, as `read_interactions` does of a file."""
    return _frame(_rows(cassette))


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
    """Return the interactions, without credentials if another program wrote them."""
    found = held.interactions() if isinstance(held, Cassette) else held.interactions
    return as_shown(found, foreign=held.foreign)


def _frame(rows: Iterable[Row], dtypes: Mapping[str, str] = _DTYPES) -> pd.DataFrame:
    return readable(pd.DataFrame(list(rows), columns=[*dtypes]).astype(dict(dtypes)))


def _rows(held: Cassette | LoadedCassette) -> list[Row]:
    prefix = base_path(held.base_url or "")
    return [_row(each, prefix) for each in _shown(held)]


def _row(interaction: Interaction, prefix: str) -> Row:
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

    def as_curl(self) -> str:
        """Return the request as a command of curl; the key is ``$DIRECTMAIL_API_KEY``."""
        return copy_as(self.interaction, "curl")

    def as_httpx(self) -> str:
        """Return the request as Python with httpx; the key is taken from the environment."""
        return copy_as(self.interaction, "httpx")

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
