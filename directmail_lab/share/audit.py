"""`audit`: find what must not be shared, which is keys, other credentials and personal data.

A finding says what was found and where, but never contains the value, so it can be printed. The
audit looks for the keys that this computer knows, for personal data, and for what looks like
another credential (see `redaction.suspects`).
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..cassettes.files import read_as_written
from ..credentials import known_keys
from ..display import plural
from ..errors import CassetteFormatError, DirectMailLabError
from ..exchange.bodies import unpacked
from ..exchange.contract import STAND_IN_KEY
from ..redaction.key import KeySearch
from ..redaction.personal import count_personal
from ..redaction.suspects import Part, credentials_in, parts_of, text_of
from ..settings import BASE_URL_VARIABLE, keyring_entries, variable

if TYPE_CHECKING:
    from ..exchange.values import Interaction

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


def find(parts: Iterable[Part], search: KeySearch, keep: Iterable[str] = ()) -> list[Finding]:
    """Return the findings in these parts: each secret once for a place, personal data counted.

    Personal data in the fields to ``keep`` does not count.

    A part is a text, in which the names of fields do not show personal data, or a body or a picture
    as bytes.
    """
    findings: list[Finding] = []
    for where, group in groupby(parts, itemgetter(0)):
        own = list(group)
        findings += secrets_in(own, search)
        personal = personal_data(own, keep)
        if personal:
            findings.append(Finding("personal", personal, where))
    return findings


def secrets_in(parts: Iterable[Part], search: KeySearch) -> list[Finding]:
    """Return the keys and other credentials in these parts, each once for a place."""
    found = []
    for where, content in parts:
        text = text_of(content)
        if search.holds(text):
            found.append(Finding("secret", "your key", where))
        others = credentials_in(text, is_body=isinstance(content, bytes))
        found += [Finding("secret", what, where) for what in others]
    return list(dict.fromkeys(found))


def personal_data(parts: Iterable[Part], keep: Iterable[str] = ()) -> str:
    """Return how much personal data is in these parts: ``"12 names, 1 e-mail address"``."""
    texts = []
    bodies = []
    for _, content in parts:
        text = text_of(content)
        if isinstance(content, str):
            texts.append(text)
        # Bytes that are not text may look like an e-mail address by chance.
        elif not re.search("[\udc80-\udcff]", text):
            bodies.append(text)
    counts = count_personal(bodies, texts, keep=keep)
    return ", ".join(plural(count, kind) for kind, count in counts.items())


def refuse_secrets(findings: Iterable[Finding]) -> None:
    """Raise an error that says where each of these secrets is, if there are any."""
    secrets = [f"\n  {each}" for each in findings]
    if secrets:
        raise DirectMailLabError(
            f"Nothing was written, because this must not be shared:{''.join(secrets)}\n",
            "Edit such a cell and clear its output. To remove it from a cassette: "
            "directmail-lab cassette redact NAME.",
        )


# -- cassettes and notebooks -------------------------------------------------------------------


def audit(path: str | Path) -> list[Finding]:
    """Return the findings in a cassette, a notebook or another text file.

    Each one names the interaction of the cassette, or the cell of the notebook.

    Raises
    ------
    DirectMailLabError
        There is no such file, or its name says that it is a notebook, and it is not.
    """
    findings, _ = audited(Path(path))
    return findings


def audited(path: Path, keep: Iterable[str] = ()) -> tuple[list[Finding], str]:
    """Return the findings in a file as `audit` does, with the problem of a damaged cassette."""
    if path.suffix == ".ipynb":
        return find(parts_of_notebook(read_notebook(path), str(path)), search_for(), keep), ""
    data = _read(path)
    whole = data.decode("utf-8", "replace")
    try:
        interactions, base_url = read_as_written(data, path)
    except CassetteFormatError as error:
        return find([(str(path), whole)], search_for(), keep), str(error)
    search = search_for([base_url])
    findings = find(parts_of_cassette(interactions, f"{path}, "), search, keep)
    findings += _unread(interactions, path)
    if not any(finding.kind == "secret" for finding in findings):
        # Also search the rest of the file: comments, other fields, an unfinished line.
        findings += secrets_in([(str(path), whole)], search)
    return findings, ""


def _unread(interactions: Iterable[Interaction], path: Path) -> Iterator[Finding]:
    """Yield each body that cannot be decompressed: nobody knows what it has."""
    for number, each in enumerate(interactions, 1):
        for side, message in (("request", each.request), ("response", each.response)):
            try:
                unpacked(message)
            except ValueError as error:
                what = f"it was not searched, since it is {error}"
                yield Finding("secret", what, f"{path}, interaction {number}, {side} body")


def parts_of_cassette(interactions: Iterable[Interaction], where: str = "") -> Iterator[Part]:
    """Yield each part of a cassette's interactions; ``where`` stands before their numbers."""
    for number, interaction in enumerate(interactions, 1):
        yield from parts_of(interaction, f"{where}interaction {number}")


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


def _texts(value: Any, name: str = "") -> Iterator[str | bytes]:
    """Yield each text in a part of a notebook, with its lines joined, and each picture.

    A text comes with its name, which may say what it is: ``"password": "…"``.
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
    else:
        text: str | bytes = f'"{name}": "{value}"'
        if name.startswith("image/"):
            with suppress(ValueError):
                text = b64decode("".join(str(value).split()), validate=True)
        yield text
