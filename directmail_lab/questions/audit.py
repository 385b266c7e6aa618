"""Finding what must not be shared: keys, and personal data, in text, cassettes and notebooks.

A finding says what was found and where, but never holds the value, so that it can be printed. The
audit looks for the keys that this computer knows, in every form that redaction removes; for other
credentials by their form or place (see `key_shapes`); and for personal data as redaction does.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import CassetteFormatError, DirectMailLabError
from ..interaction import header
from ..redaction import unpack
from ..redaction.key import KeySearch
from ..redaction.personal import count_personal
from ..standin import STAND_IN_KEY
from .key_shapes import credentials_in, looks_random

if TYPE_CHECKING:
    from ..interaction import Interaction


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not be shared: its kind, a description, and where it is."""

    kind: Literal["secret", "personal"]
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class Part(NamedTuple):
    """A text or a body to search, and where it is.

    ``coding`` is the Content-Encoding of a body. ``by_field`` finds personal data by the names of
    fields, too.
    """

    where: str
    content: str | bytes
    coding: str = ""
    by_field: bool = False

    def __repr__(self) -> str:
        return f"<Part {self.where}>"


# -- searching ---------------------------------------------------------------------------------


def learn_known_keys(search: KeySearch, addresses: Iterable[str | None] = ()) -> None:
    """Let a search find the keys that this computer knows.

    They are the keys of the environment, of the open sessions and forms, and of the keyring for
    ``addresses`` and the configured ones.
    """
    from ..credentials import known_keys
    from ..settings import BASE_URL_VARIABLE, configured_regions, variable

    places = {variable(BASE_URL_VARIABLE), *addresses}
    with suppress(DirectMailLabError):
        places.update(configured_regions().values())
    search.learn(known_keys(remembered_for=filter(None, places)) - {STAND_IN_KEY})


def find(parts: Iterable[Part], search: KeySearch) -> list[Finding]:
    """Return what must not be shared, each kind once for a place."""
    findings: dict[Finding, None] = {}
    for part in parts:
        findings.update(dict.fromkeys(_find(part, search)))
    return list(findings)


def _find(part: Part, search: KeySearch) -> Iterator[Finding]:
    """Yield what must not be shared in one part.

    Bytes that are not text may look like an e-mail address by chance, so they are searched for
    secrets only. The texts in a picture's metadata are searched for everything.
    """
    where, content, coding, by_field = part
    texts = [content] if isinstance(content, str) else []
    if isinstance(content, bytes):
        try:
            content = unpack(content, coding)
        except ValueError as error:
            yield Finding("secret", f"what cannot be searched ({error})", where)
        try:
            texts = [content.decode("utf-8")]
        except UnicodeDecodeError:
            yield from _find_secrets(content.decode("latin-1"), where, search)
            texts = _texts_of_picture(content)
    for text in texts:
        yield from _find_secrets(text, where, search)
        for kind in count_personal([text], by_field=by_field):
            yield Finding("personal", f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}", where)


def _find_secrets(text: str, where: str, search: KeySearch) -> Iterator[Finding]:
    if search.holds(text):
        yield Finding("secret", "your API key", where)
    yield from (Finding("secret", what, where) for what in credentials_in(text))


def _texts_of_picture(data: bytes) -> list[str]:
    """Return the comments and other texts in a picture's file, unpacked."""
    from PIL import Image

    # Data that is not a picture, or a broken one, has no texts; its bytes were searched already.
    with suppress(Exception), Image.open(BytesIO(data)) as picture:
        picture.load()
        return list(map(str, picture.info.values()))
    return []


def _shown(name: str) -> str:
    """Return a name to say where a finding is; ``…`` if it may be a secret, or no plain text."""
    return "…" if looks_random(name, 8) or len(name) > 40 or not name.isprintable() else name


# -- cassettes ---------------------------------------------------------------------------------


def audit_cassette(path: str | Path, *, secrets: Iterable[str] = ()) -> list[Finding]:
    """Return what must not be shared in a cassette: by interaction, or by line of other text.

    Raises
    ------
    CassetteError
        Where there is no such file, or it cannot be read.
    """
    from ..cassettes import read_cassette
    from ..cassettes.layout import header_text, interaction_text

    path, search = Path(path), KeySearch(secrets)
    del secrets  # a traceback may print it
    learn_known_keys(search)
    findings: list[Finding] = []
    written: set[str] = set()
    with suppress(CassetteFormatError):
        loaded = read_cassette(path)
        learn_known_keys(search, [loaded.base_url])
        parts = parts_of_recording(loaded.metadata, loaded.interactions, str(path))
        findings = find(parts, search)
        texts = header_text(loaded.metadata), *map(interaction_text, loaded.interactions)
        written = {line for text in texts for line in text.splitlines()}
    # What is in the file but in no interaction: comments, other fields, a torn end.
    lines = enumerate(_read(path).decode("utf-8", "replace").splitlines(), 1)
    others = (Part(f"{path}, line {n}", line) for n, line in lines if line not in written)
    kinds = {finding.kind for finding in findings}
    return findings + [each for each in find(others, search) if each.kind not in kinds]


def parts_of_recording(
    metadata: Mapping[str, object], interactions: Iterable[Interaction], where: str
) -> Iterator[Part]:
    """Yield each part of what a cassette's file holds."""
    if metadata:
        about = json.dumps(metadata, default=str, ensure_ascii=False)
        yield Part(f"{where}, metadata", about)
    for number, interaction in enumerate(interactions, 1):
        request, response = interaction.request, interaction.response
        at = f"{where}, interaction {number}"
        yield Part(f"{at}, address", request.uri)
        yield Part(f"{at}, status", f"{request.method} {response.reason}")
        for side, message in (("request", request), ("response", response)):
            for name, value in message.headers:
                yield Part(f"{at}, {side} header {_shown(name)}", f"{name}: {value}")
            coding = header(message.headers, "content-encoding") or ""
            yield Part(f"{at}, {side} body", message.body or b"", coding, by_field=True)


# -- notebooks ---------------------------------------------------------------------------------


def audit_notebook(path: str | Path, *, secrets: Iterable[str] = ()) -> list[Finding]:
    """Return what must not be shared in a notebook: in sources, outputs, metadata, attachments.

    Raises
    ------
    DirectMailLabError
        Where there is no such file, or it is not a notebook.
    """
    path, search = Path(path), KeySearch(secrets)
    del secrets  # a traceback may print it
    learn_known_keys(search)
    findings = find(parts_of_notebook(read_notebook(path), str(path)), search)
    # Of a member that is named twice, only the last is in the parsed notebook.
    if not findings and search.holds(_read(path).decode("utf-8", "replace")):
        findings.append(Finding("secret", "your API key", str(path)))
    return findings


def read_notebook(path: Path) -> dict[str, Any]:
    """Return what a notebook's file holds.

    Raises
    ------
    DirectMailLabError
        Where there is no such file, or it is not a notebook of format 4.
    """
    try:
        notebook = json.loads(_read(path))
        # Raises ValueError for a lone surrogate, which could not be written again.
        json.dumps(notebook, ensure_ascii=False).encode()
        cells = notebook["cells"]
        is_notebook = isinstance(cells, list) and all(map(_is_cell, cells))
    except (ValueError, RecursionError, TypeError, KeyError):
        is_notebook = False
    if not is_notebook:
        raise DirectMailLabError(
            f"{path} is not a notebook of format 4. Save it in JupyterLab, and try again."
        )
    return dict(notebook)


def _is_cell(cell: object) -> bool:
    source = cell.get("source", "") if isinstance(cell, dict) else None
    lines = source if isinstance(source, list) else [source]
    return all(isinstance(line, str) for line in lines)


def parts_of_notebook(notebook: Mapping[str, Any], where: str) -> Iterator[Part]:
    """Yield each text and picture of a parsed notebook: of its cells by member, and of the rest."""
    rest = {name: value for name, value in notebook.items() if name != "cells"}
    yield from (Part(f"{where}, metadata", text) for text in _texts(rest))
    for number, cell in enumerate(notebook["cells"], 1):
        for name, value in cell.items():
            at = f"{where}, cell {number}, {_shown(name)}"
            yield from (Part(at, text) for text in _texts({name: value}))


def _texts(value: Any, name: str = "") -> Iterator[str | bytes]:
    """Yield each text in a part of a notebook, with its lines joined, and each picture.

    A text of one line comes with its name, which may show what it is: ``"password": "…"``.
    """
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "".join(value)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, name)
    elif name.startswith("image/") and "svg" not in name and isinstance(value, str):
        try:
            yield b64decode("".join(value.split()), validate=True)
        except ValueError:
            yield value
    elif value is not None:
        text = str(value)
        yield text if not name or "\n" in text else f'"{name}": "{text}"'


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DirectMailLabError(f"{path} cannot be read ({error.strerror}).") from None
