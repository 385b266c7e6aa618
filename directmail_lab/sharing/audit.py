"""Finding what must not be shared: keys, and personal data, in text, cassettes and notebooks.

A finding says what was found and where, but never holds the value, so that it can be printed. The
audit looks for the keys that this computer knows, in every form that redaction removes; for other
credentials by their form or place (see `key_shapes`); and for personal data as redaction does.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import CassetteFormatError, DirectMailLabError
from ..redaction import unpack
from ..redaction.key_search import KeySearch
from ..redaction.personal import count_personal
from ..standin import STAND_IN_KEY
from .key_shapes import credentials_in, is_credential_value, looks_random

if TYPE_CHECKING:
    from ..cassettes import LoadedCassette
    from ..interaction import Interaction

HoldsKey = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not be shared: its kind, a description, and where it is."""

    kind: Literal["secret", "personal"]
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class Hidden(tuple[str, ...]):
    """Keys whose repr is hidden, for tracebacks that print values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<hidden>"


_CREDENTIAL_HEADERS: Final = frozenset(
    ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key")
)


# -- in texts and bytes ------------------------------------------------------------------------


def key_search(secrets: Iterable[str] = (), *, addresses: Iterable[str] = ()) -> HoldsKey:
    """Return a function that tells whether a text holds one of ``secrets`` or a known key.

    Known are the keys of the environment, of the open sessions and forms, and of the keyring for
    ``addresses`` and the configured ones. The function's repr shows none of them.
    """
    from ..credentials import known_keys
    from ..settings import BASE_URL_VARIABLE, configured_regions, variable

    places = {variable(BASE_URL_VARIABLE) or "", *addresses}
    with suppress(DirectMailLabError):
        places.update(configured_regions().values())
    known = known_keys(remembered_for=filter(None, places))
    search = KeySearch()
    search.learn(frozenset((*known, *secrets)) - {STAND_IN_KEY})
    return search.holds


def audit_text(text: str, where: str, *, secrets: Iterable[str] = ()) -> list[Finding]:
    """Return what must not be shared in a text, each kind once.

    Parameters
    ----------
    text
        Any text: source, output, a header's value, a body.
    where
        What the findings say about where the text is.
    secrets
        More keys to look for, besides those that `key_search` knows.
    """
    return list(_find(text, where, key_search(secrets)))


def _find(
    text: str, where: str, holds_key: HoldsKey, *, by_field: bool = False
) -> Iterator[Finding]:
    yield from _find_secrets(text, where, holds_key)
    for kind in count_personal([text], by_field=by_field):
        yield Finding("personal", f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}", where)


def _find_secrets(text: str, where: str, holds_key: HoldsKey) -> Iterator[Finding]:
    if holds_key(text):
        yield Finding("secret", "your API key", where)
    yield from (Finding("secret", what, where) for what in credentials_in(text))


def find_in_bytes(
    data: bytes, coding: str, where: str, holds_key: HoldsKey, *, by_field: bool = False
) -> Iterator[Finding]:
    """Yield what must not be shared in a body or a file, unpacked as its ``coding`` says.

    Bytes that are not text may look like an e-mail address by chance, so they are searched for
    secrets only. The texts in a picture's metadata are searched for everything.
    """
    try:
        data = unpack(data, coding)
    except ValueError as error:
        yield Finding("secret", f"what cannot be searched ({error})", where)
    try:
        yield from _find(data.decode("utf-8"), where, holds_key, by_field=by_field)
    except UnicodeDecodeError:
        yield from _find_secrets(data.decode("latin-1"), where, holds_key)
        for text in _texts_of_picture(data):
            yield from _find(text, where, holds_key)


def _texts_of_picture(data: bytes) -> Iterator[str]:
    """Yield the comments and other texts in a picture's file, unpacked."""
    from PIL import Image

    # Data that is not a picture, or a broken one, has no texts; its bytes were searched already.
    with suppress(Exception), Image.open(BytesIO(data)) as picture:
        picture.load()
        yield from map(str, picture.info.values())


# -- in cassettes ------------------------------------------------------------------------------


def audit_cassette(path: str | Path, *, secrets: Iterable[str] = ()) -> list[Finding]:
    """Return what must not be shared in a cassette: by interaction, or by line of other text.

    Raises
    ------
    CassetteError
        Where there is no such file, or it cannot be read.
    """
    from ..cassettes import read_cassette
    from ..cassettes.layout import header_text, interaction_text

    path, secrets = Path(path), Hidden(secrets)
    loaded: LoadedCassette | None = None
    with suppress(CassetteFormatError):
        loaded = read_cassette(path)
    holds_key = key_search(secrets, addresses=[(loaded and loaded.base_url) or ""])
    text, whole = _read(path).decode("utf-8", "replace"), ""
    found: list[Finding] = []
    if loaded is not None:
        found = find_in_interactions(loaded.metadata, loaded.interactions, str(path), holds_key)
        whole = header_text(loaded.metadata) + "".join(map(interaction_text, loaded.interactions))
    # What is in the file but in no interaction: comments, other fields, a torn end.
    rest = text.removeprefix(whole)
    kinds = {each.kind for each in found}
    first = text.count("\n", 0, len(text) - len(rest)) + 1
    for number, line in enumerate(rest.splitlines(), first):
        of_line = _find(line, f"{path}, line {number}", holds_key)
        found += [each for each in of_line if each.kind not in kinds]
    return found


def find_in_interactions(
    metadata: object, interactions: Iterable[Interaction], where: str, holds_key: HoldsKey
) -> list[Finding]:
    """Return what must not be shared in what a cassette's file holds."""
    about = json.dumps(metadata, default=str, ensure_ascii=False)
    found = list(_find(about, f"{where}, metadata", holds_key)) if metadata else []
    for number, interaction in enumerate(interactions, 1):
        found += _find_in_interaction(interaction, f"{where}, interaction {number}", holds_key)
    return found


def _find_in_interaction(
    interaction: Interaction, where: str, holds_key: HoldsKey
) -> Iterator[Finding]:
    request, response = interaction.request, interaction.response
    yield from _find(request.uri, f"{where}, address", holds_key)
    yield from _find(f"{request.method} {response.reason}", f"{where}, status", holds_key)
    sides = (
        ("request", request.headers, request.body),
        ("response", response.headers, response.body),
    )
    for side, headers, body in sides:
        coding = ""
        for name, value in headers:
            at = f"{where}, {side} header {_shown(name)}"
            coding = value if name.lower() == "content-encoding" else coding
            if name.lower() in _CREDENTIAL_HEADERS:
                if is_credential_value(value):
                    yield Finding("secret", f"the header {name}", at)
            else:
                yield from _find(f"{name}: {value}", at, holds_key)
        at = f"{where}, {side} body"
        yield from find_in_bytes(body or b"", coding, at, holds_key, by_field=True)


def _shown(name: str) -> str:
    """Return a name to say where a finding is; ``…`` if the name itself may be a secret."""
    return "…" if looks_random(name, 8) or len(name) > 40 else name


# -- in notebooks ------------------------------------------------------------------------------


def audit_notebook(path: str | Path, *, secrets: Iterable[str] = ()) -> list[Finding]:
    """Return what must not be shared in a notebook: in sources, outputs, metadata, attachments.

    Raises
    ------
    DirectMailLabError
        Where there is no such file, or it is not a notebook.
    """
    path, secrets = Path(path), Hidden(secrets)
    return find_in_notebook(read_notebook(path, repeated=True), str(path), key_search(secrets))


def read_notebook(path: Path, *, repeated: bool = False) -> dict[str, Any]:
    """Return what a notebook's file holds. ``repeated`` keeps members that it names twice, too.

    Raises
    ------
    DirectMailLabError
        Where there is no such file, or it is not a notebook of format 4.
    """

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        last = dict(pairs)
        return last if len(last) == len(pairs) else {**last, "\0": pairs}

    try:
        notebook = json.loads(_read(path), object_pairs_hook=keep if repeated else None)
        # Raises ValueError for a lone surrogate, which could not be written again.
        json.dumps(notebook, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        notebook = None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(map(_is_cell, cells)):
        raise DirectMailLabError(
            f"{path} is not a notebook of format 4. Save it in JupyterLab, and try again."
        )
    return dict(notebook)


def _is_cell(cell: object) -> bool:
    source = cell.get("source", "") if isinstance(cell, dict) else None
    return isinstance(source, str) or (
        isinstance(source, list) and all(isinstance(line, str) for line in source)
    )


def find_in_notebook(notebook: dict[str, Any], where: str, holds_key: HoldsKey) -> list[Finding]:
    """Return what must not be shared in a parsed notebook, each kind once for a part of a cell."""
    rest = {name: value for name, value in notebook.items() if name != "cells"}
    parts = [("metadata", rest)]
    for number, cell in enumerate(notebook["cells"], 1):
        parts += [(f"cell {number}, {_shown(name)}", {name: value}) for name, value in cell.items()]
    found: dict[Finding, None] = {}
    for part, value in parts:
        for text in _texts(value):
            at = f"{where}, {part}"
            if isinstance(text, bytes):
                found.update(dict.fromkeys(find_in_bytes(text, "", at, holds_key)))
            else:
                found.update(dict.fromkeys(_find(text, at, holds_key)))
    return list(found)


def _texts(value: Any, name: str = "") -> Iterator[str | bytes]:
    """Yield each text in a part of a notebook, with its lines joined, and each picture.

    A text of one line comes with its name, which may show what it is: ``"password": "…"``.
    """
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = "".join(value)
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _texts(each, key)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each, name)
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
