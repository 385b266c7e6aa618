"""Shows what cassettes hold: all interactions as a DataFrame, one of them readably."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pandas as pd

from ..cassettes.cassette import Cassette
from ..cassettes.reader import LoadedCassette, is_one_file, read_cassette, read_many
from ..display import readable
from ..errors import CassetteError
from ..interaction import Interaction, base_path, header, operation_of, path_below
from ..redaction import redact_foreign
from .snippets import copy_as

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
_EXCERPT_CHARACTERS: Final = 80
_MAX_CHARACTERS: Final = 4000
# Control characters: sent by a service, they would move a terminal's cursor or hide text.
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 10}


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
    rows, problems = read_many(path, lambda loaded, name: [(name, *row) for row in _rows(loaded)])
    frame = _frame(chain.from_iterable(rows), {"cassette": "string", **_DTYPES})
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
    shown = redact_foreign(loaded.interactions, foreign=loaded.foreign)
    return InteractionView(next(islice(shown, number - 1, None)))


def _frame(rows: Iterable[Row], dtypes: Mapping[str, str] = _DTYPES) -> pd.DataFrame:
    return readable(pd.DataFrame(list(rows), columns=[*dtypes]).astype(dict(dtypes)))


def _rows(cassette: Cassette | LoadedCassette) -> list[Row]:
    prefix = base_path(cassette.base_url or "")
    recorded = cassette.interactions
    shown = redact_foreign(recorded() if callable(recorded) else recorded, foreign=cassette.foreign)
    return [_row(interaction, prefix) for interaction in shown]


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
        text = body.decode()
    except UnicodeDecodeError:
        return "(binary)"
    if "\0" in text:
        return "(binary)"
    line = " ".join(text[: 4 * _EXCERPT_CHARACTERS].split())
    is_long = len(line) > _EXCERPT_CHARACTERS
    return line[: _EXCERPT_CHARACTERS - 1] + "…" if is_long else line


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
            f"{title}\n{headers}\n\n{body}".rstrip() + "\n"
            for title, headers, body in self._texts()
        )

    def _repr_html_(self) -> str:
        return "".join(
            f"<details open><summary><b>{html.escape(title)}</b></summary>"
            f"<pre>{html.escape(headers)}</pre><pre>{html.escape(body)}</pre></details>"
            for title, headers, body in self._texts()
        )

    def _texts(self) -> Iterator[tuple[str, str, str]]:
        """Yield title, headers and body of the request, and of the response."""
        request, response = self.interaction.request, self.interaction.response
        elapsed_s, at = self.interaction.elapsed_s, self.interaction.recorded_at
        status = f"{response.status} {response.reason}".rstrip()
        status += "" if elapsed_s is None else f" after {elapsed_s:.3f} s"
        status += "" if at is None else f", {at:%Y-%m-%d %H:%M:%S} UTC"
        for title, message in ((f"{request.method} {request.uri}", request), (status, response)):
            headers = "\n".join(_on_one_line(f"{name}: {value}") for name, value in message.headers)
            yield _cut(_on_one_line(title)), _cut(headers), _cut(_body_text(message.body))


def _on_one_line(text: str) -> str:
    return text.replace("\n", " ")


def _cut(text: str) -> str:
    """Return a text as it is shown: a long one cut, control characters escaped."""
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]}\n… ({len(text):,} characters in all)"
    return text.replace("\r\n", "\n").expandtabs(4).translate(_ESCAPES)


def _body_text(body: bytes | None) -> str:
    """Return a body as text: JSON indented, a binary one as its size."""
    try:
        text = (body or b"").decode()
    except UnicodeDecodeError:
        return f"({len(body or b''):,} bytes, not text)"
    with suppress(ValueError, RecursionError):
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text
