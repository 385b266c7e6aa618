"""Finding what must not be shared: keys, and personal data, in text, cassettes and notebooks.

A finding says where and what kind, and never holds what was found, so it can be printed anywhere.
The rules look for what is surely a credential by its shape or its place: an audit that cries wolf
is switched off. Placeholders, the stand-in's key and addresses kept for examples pass.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import CassetteFormatError, DirectMailLabError
from ..redaction import Redactor
from ..redaction.personal import personal_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..interaction import Interaction

__all__ = ["Finding", "audit_cassette", "audit_notebook", "audit_text"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not be shared: of what kind, what it looks like, and where it stands."""

    kind: Literal["secret", "personal"]
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


_PLACEHOLDER = re.compile(
    r".*(?:[<>{}…*$]|\.\.\.|your|example|placeholder|dummy|changeme|redacted).*|DEMO_7Qm2Xr9LwT4bZk|(.)\1*",
    re.IGNORECASE | re.DOTALL,
)

# What each is, its pattern, and the group that has the secret itself.
_SHAPES: Final = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        ("a private key", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?P<secret>)"),
        (
            "a service's key, by its prefix",
            r"(?<![A-Za-z0-9])(?P<secret>"
            r"(?:[a-z]{2,8}_)?(?:live|prod|secret)_(?:pub_)?[A-Za-z0-9_]{16,}"
            r"|test_(?:pub_)?[0-9a-f]{24,}|[sr]k-(?:[a-z]+-)?[A-Za-z0-9_-]{20,}"
            r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
            r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}|SG\.[\w-]{16,}\.[\w-]{16,}"
            r"|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}|pypi-[\w-]{50,})(?![A-Za-z0-9])",
        ),
        ("a signed token (JWT)", r"\b(?P<secret>eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})"),
        ("a bearer token", r"(?i)\bbearer\s+(?P<secret>[\w.~+/-]{16,})"),
        (
            "a user name and password in an address",
            r"://(?P<secret>[^\s/?#@\"'<>\\]*:[^\s/?#@\"'<>\\]*)@",
        ),
        ("an api_key parameter", r"(?i)[?&;]api[-_]?key=(?P<secret>[^&;#\s\"'<>\\]+)"),
        (
            "a key or password in quotes",
            r"(?i)\b(?:x[-_])?(?:api[-_]?key|secret(?:[-_]?key)?|access[-_]?token|auth[-_]?token|passw(?:or)?d)"
            r"\\*[\"']?\s*[:=]\s*\\*[\"'](?P<secret>(?=[^\"'\\\s]*\d)[^\"'\\\s]{8,}|[^\"'\\\s]{20,})\\*[\"']",
        ),
    )
)
_BASIC = re.compile(r"(?i)\bbasic\s+([A-Za-z0-9+/_-]{8,}={0,2})")
_NAMES: Final = {"email": "an e-mail address", "phone": "a telephone number"}
_CREDENTIAL_HEADERS: Final = frozenset(
    ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key")
)


def audit_text(text: str, where: str, *, secrets: Iterable[str] = ()) -> list[Finding]:
    """Return what must not be shared in a text, each kind once.

    Parameters
    ----------
    text
        Any text: source, output, a header's value, a body.
    where
        What the findings are to call its place.
    secrets
        Keys that are known: found in every form that redaction removes.
    """
    found = [Finding("secret", what, where) for what in _secrets_in(text, tuple(secrets))]
    kinds = {kind for kind, _, _ in personal_in(text)}
    return found + [Finding("personal", _NAMES[kind], where) for kind in sorted(kinds)]


def _secrets_in(text: str, secrets: tuple[str, ...]) -> Iterator[str]:
    if secrets and Redactor(secrets).holds_key(text):
        yield "your API key"
    for what, pattern in _SHAPES:
        if any(not _passes(match["secret"]) for match in pattern.finditer(text)):
            yield what
    if any(_is_credential(match[1]) for match in _BASIC.finditer(text)):
        yield "credentials of HTTP Basic"


def _passes(secret: str) -> bool:
    return bool(secret) and _PLACEHOLDER.fullmatch(secret) is not None


def _is_credential(digits: str) -> bool:
    """Return whether base64 is ``user:password``, and not a word that follows "basic"."""
    padded = digits.rstrip("=") + "=" * (-len(digits.rstrip("=")) % 4)
    try:
        pair = b64decode(padded, altchars=b"-_").decode("utf-8")
    except (Base64Error, UnicodeDecodeError):
        return False
    user, colon, password = pair.partition(":")
    return (
        bool(colon)
        and pair.isprintable()
        and not (_passes(user) and (_passes(password) or not password))
    )


def audit_cassette(path: str | Path, *, secrets: Iterable[str] = ()) -> list[Finding]:
    """Return what must not be shared in a cassette: by interaction, or by line of other text.

    Raises
    ------
    CassetteError
        Where there is no such file, or it cannot be read.
    """
    from ..cassettes import read_cassette

    path, known = Path(path), tuple(secrets)
    try:
        loaded = read_cassette(path)
    except CassetteFormatError:
        return _audit_lines(path, known)
    found = audit_text(json.dumps(loaded.metadata, default=str), f"{path}, metadata", secrets=known)
    for number, interaction in enumerate(loaded.interactions, 1):
        found += _audit_interaction(interaction, f"{path}, interaction {number}", known)
    # A torn interaction at the end is shared with the file, though no one can play it.
    return found + (_audit_lines(path, known, loaded.clean_bytes) if loaded.problem else [])


def _audit_interaction(
    interaction: Interaction, where: str, secrets: tuple[str, ...]
) -> Iterator[Finding]:
    request, response = interaction.request, interaction.response
    texts = {
        "address": request.uri,
        "request body": (request.body or b"").decode("utf-8", "replace"),
        "response body": response.body.decode("utf-8", "replace"),
    }
    for place, text in texts.items():
        yield from audit_text(text, f"{where}, {place}", secrets=secrets)
    for side, headers in (("request", request.headers), ("response", response.headers)):
        for name, value in headers:
            at = f"{where}, {side} header {name[:40]}"
            if name.lower() in _CREDENTIAL_HEADERS and not _is_empty(value):
                yield Finding("secret", f"the header {name}", at)
            else:
                yield from audit_text(value, at, secrets=secrets)


def _is_empty(value: str) -> bool:
    """Return whether a header for a credential has only a placeholder in it."""
    word = value.rpartition(" ")[2]
    return (
        not value.strip()
        or _passes(word)
        or (_BASIC.search(value) is not None and not _is_credential(word))
    )


def _audit_lines(path: Path, secrets: tuple[str, ...], start: int = 0) -> list[Finding]:
    try:
        lines = path.read_bytes()[start:].decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise DirectMailLabError(f"{path} cannot be read ({error.strerror}).") from None
    place = f"{path}, torn end, line" if start else f"{path}, line"
    return [
        finding
        for number, line in enumerate(lines, 1)
        for finding in audit_text(line, f"{place} {number}", secrets=secrets)
    ]


def audit_notebook(path: str | Path, *, secrets: Iterable[str] = ()) -> list[Finding]:
    """Return what must not be shared in a notebook: sources, outputs, metadata, widget state.

    Raises
    ------
    DirectMailLabError
        Where there is no such file, or it is not a notebook.
    """
    path, known = Path(path), tuple(secrets)
    try:
        notebook = json.loads(path.read_bytes())
        cells = notebook["cells"]
    except OSError as error:
        raise DirectMailLabError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise DirectMailLabError(
            f"{path} is not a notebook. Save it in JupyterLab again."
        ) from None
    found = _audit_value(notebook.get("metadata"), f"{path}, metadata", known)
    for number, cell in enumerate(cells, 1):
        for part, value in cell.items() if isinstance(cell, dict) else ():
            found += _audit_value(value, f"{path}, cell {number}, {part}", known)
    return found


def _audit_value(value: Any, where: str, secrets: tuple[str, ...]) -> list[Finding]:
    texts = list(dict.fromkeys(_texts(value)))
    found = [finding for text in texts for finding in audit_text(text, where, secrets=secrets)]
    return list(dict.fromkeys(found))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a part of a notebook, with those that it keeps by line made whole."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(each, str) for each in value):
        yield "".join(value)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name.startswith("image/"):
                continue
            if isinstance(each, str | int | float):
                # Beside its name: a widget's {"password": "…"} is known by it.
                yield f'"{name}": "{each}"'
            else:
                yield from _texts(each)
