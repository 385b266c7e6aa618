"""`audit`: find what must not be shared, which is keys, other credentials and personal data.

A finding says what was found and where, but never contains the value, so it can be printed. The
audit looks for the keys that this computer knows, for personal data, and for what looks like
another credential (see `redaction.suspects`).
"""

from __future__ import annotations

import ast
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..cassettes.files import read_as_written
from ..contract import STAND_IN_KEY
from ..credentials import known_keys
from ..errors import CassetteFormatError, DirectMailLabError
from ..redaction.key import KeySearch
from ..redaction.personal import count_personal
from ..redaction.suspects import Part, credentials_in, parts_of
from ..settings import BASE_URL_VARIABLE, keyring_entries, variable

if TYPE_CHECKING:
    from ..exchange.values import Interaction

# For less than this, starting processes takes longer than it saves.
_MANY_BYTES = 16_000_000
_MEMBERS = ("source", "outputs", "metadata", "attachments")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not be shared: its kind, a description, and where it is."""

    kind: Literal["secret", "personal"]
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def search_for(base_urls: Iterable[str | None] = ()) -> KeySearch:
    """Return a search for the keys that this computer knows.

    These are the keys in the environment, in open sessions and forms, and in the keyring for
    ``base_urls`` and the configured addresses.
    """
    addresses = {variable(BASE_URL_VARIABLE), *base_urls}
    with suppress(DirectMailLabError):
        addresses |= keyring_entries()
    return KeySearch(known_keys(remembered_for=filter(None, addresses)) - {STAND_IN_KEY})


def find(parts: Iterable[Part], search: KeySearch) -> list[Finding]:
    """Return the findings in these parts, each kind once for a place.

    A part is a text, in which the names of fields do not show personal data, or a body or a picture
    as bytes.
    """
    findings: list[Finding] = []
    for where, content in parts:
        text = content if isinstance(content, str) else content.decode("utf-8", "surrogateescape")
        findings += secrets_in(where, text, search)
        # Bytes that are not text may look like an e-mail address by chance.
        if not re.search("[\udc80-\udcff]", text):
            for kind in count_personal([text], by_field=isinstance(content, bytes)):
                article = "an" if kind[0] in "aeiou" else "a"
                findings.append(Finding("personal", f"{article} {kind}", where))
    return list(dict.fromkeys(findings))


def secrets_in(where: str, text: str, search: KeySearch) -> Iterator[Finding]:
    """Yield the keys and other credentials that a text contains."""
    if search.holds(text):
        yield Finding("secret", "your API key", where)
    yield from (Finding("secret", what, where) for what in credentials_in(text))


def refuse_secrets(findings: Iterable[Finding]) -> None:
    """Raise an error that says where each secret is, if there are any."""
    secrets = [f"\n  {each}" for each in findings if each.kind == "secret"]
    if secrets:
        raise DirectMailLabError(
            f"Nothing was written, because this must not be shared:{''.join(secrets)}\n",
            "Edit such a cell and clear its output. To remove it from a cassette: "
            "directmail-lab cassette redact NAME.",
        )


def first_places(findings: Iterable[Finding]) -> list[str]:
    """Return a phrase for each thing that was found, with its first place."""
    places: dict[str, str] = {}
    for each in findings:
        places.setdefault(each.what, each.where)
    return [f"{what}, first in {where}" for what, where in places.items()]


# -- cassettes and notebooks -------------------------------------------------------------------


class Audited(NamedTuple):
    """What was found in a file, and why it is not a cassette that can be read, or ``""``."""

    findings: list[Finding]
    problem: str = ""


def audit(path: str | Path) -> list[Finding]:
    """Return the findings in a cassette, a notebook or another text file.

    Each one names the interaction of the cassette, or the cell of the notebook.

    Raises
    ------
    DirectMailLabError
        There is no such file, or its name says that it is a notebook, and it is not.
    """
    return _audited(Path(path)).findings


def _audited(path: Path) -> Audited:
    if path.suffix == ".ipynb":
        return Audited(find(parts_of_notebook(read_notebook(path), str(path)), search_for()))
    data = _read(path)
    whole = data.decode("utf-8", "replace")
    try:
        interactions, base_url = read_as_written(data, path)
    except CassetteFormatError as error:
        return Audited(find([(str(path), whole)], search_for()), str(error))
    search = search_for([base_url])
    findings = find(parts_of_cassette(interactions, str(path)), search)
    if not any(finding.kind == "secret" for finding in findings):
        # Also search the rest of the file: comments, other fields, an unfinished line.
        findings += dict.fromkeys(secrets_in(str(path), whole, search))
    return Audited(findings)


def audit_many(paths: Sequence[Path]) -> Iterator[Audited]:
    """Yield what was found in each file, from several processes if the files are large."""
    if sum(path.stat().st_size for path in paths if path.exists()) < _MANY_BYTES:
        yield from map(_audited, paths)
        return
    # Spawned and not forked, since this process may have threads.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from pool.map(_audited, paths, chunksize=max(1, min(16, len(paths) // 8)))


def parts_of_cassette(interactions: Iterable[Interaction], where: str) -> Iterator[Part]:
    """Yield each part of a cassette's interactions."""
    for number, interaction in enumerate(interactions, 1):
        yield from parts_of(interaction, f"{where}, interaction {number}")


def read_notebook(path: Path) -> dict[str, Any]:
    """Return the notebook in a file.

    Raises
    ------
    DirectMailLabError
        There is no such file, or it is not a notebook of format 4.
    """
    try:
        notebook = json.loads(_read(path))
        # This raises ValueError for a lone surrogate, which could not be written again.
        json.dumps(notebook, ensure_ascii=False).encode()
        for cell in notebook["cells"]:
            "".join(cell.get("source", ""))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise DirectMailLabError(
            f"{path} is not a notebook of format 4.", "Save it in JupyterLab, and try again."
        ) from None
    return dict(notebook)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DirectMailLabError(f"{path} cannot be read ({error.strerror}).") from None


def parts_of_notebook(notebook: Mapping[str, Any], where: str) -> Iterator[Part]:
    """Yield each text and picture of a notebook: of its metadata, then of each cell's members."""
    rest = {name: value for name, value in notebook.items() if name != "cells"}
    for text in _texts(rest):
        yield f"{where}, metadata", text
    for number, cell in enumerate(notebook["cells"], 1):
        for name, value in cell.items():
            member = name if name in _MEMBERS else "another member"
            for text in _texts({name: value}):
                yield f"{where}, cell {number}, {member}", text
        for output in cell.get("outputs", ()):
            for data in _data_of(output.get("data", {})):
                yield f"{where}, cell {number}, outputs", data


def _texts(value: Any, name: str = "") -> Iterator[str | bytes]:
    """Yield each text in a part of a notebook, with its lines joined, and each picture.

    A text comes with its name, which may say what it is: ``"password": "…"``.
    """
    if _is_text(value):
        value = "".join(value)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, name)
    else:
        text: str | bytes = f'"{name}": "{value}"'
        if name.startswith("image/"):
            with suppress(ValueError):
                text = b64decode("".join(str(value).split()), validate=True)
        yield text


def _is_text(value: Any) -> bool:
    """Return whether a value is a text, or a list of its lines."""
    if isinstance(value, list):
        return all(isinstance(line, str) for line in value)
    return isinstance(value, str)


def _data_of(output: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield what an output shows as JSON, in which the names of fields show personal data.

    That is what a body in a cassette may have: the rows of tables, JSON, or a Python value.
    """
    if "application/json" in output:
        yield json.dumps(output["application/json"]).encode()
    elif _is_text(output.get("text/html")):
        tables = _Tables()
        tables.feed("".join(output["text/html"]))
        yield json.dumps(list(tables.records())).encode()
    elif _is_text(output.get("text/plain")):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            yield json.dumps(ast.literal_eval("".join(output["text/plain"]))).encode()


class _Tables(HTMLParser):
    """Reads the cells of HTML tables, such as those of pandas."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[list[tuple[str, str]]] = []
        self._is_in_cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag == "tr":
            self._rows.append([])
            self._is_in_cell = False
        elif tag in ("th", "td") and self._rows:
            self._rows[-1].append((tag, ""))
            self._is_in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td"):
            self._is_in_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            tag, text = self._rows[-1].pop()
            self._rows[-1].append((tag, text + data))

    def records(self) -> Iterator[dict[str, str]]:
        """Yield the values of each row, by the names of the columns, or by that of the row."""
        names: list[str] = []
        for row in self._rows:
            texts = [text.strip() for _, text in row]
            if all(tag == "th" for tag, _ in row):
                names = texts
            else:
                yield {texts[0]: " ".join(texts[1:]), **dict(zip(names, texts, strict=False))}
