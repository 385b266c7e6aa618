"""The forms in which a key may be written, and the pieces by which each is looked for."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["FRAGMENT", "Form", "alone_of", "forms_of", "glances_of", "probes_of"]

FRAGMENT: Final = 8
"""So many characters of the key in a row are removed as the key is."""

# Eight characters are 64 bits, of which up to 4 share a digit with what stands before.
_BASE64_PIECE: Final = (FRAGMENT * 8 - 4) // 6


class Form(NamedTuple):
    """One way a key is written, in lower case, and the shortest piece of it that gives it away."""

    text: str
    piece: int


def _base64_digits(key: str, tail: str = "") -> Iterator[str]:
    """Yield what is sure to stand in the base64 of any text that has ``key + tail`` in it.

    At each of the three alignments the first and the last digit may also hold a neighbour's bits.
    """
    secret = (key + tail).encode()
    for before in range(3):
        digits = b64encode(b"\0" * before + secret).decode().rstrip("=")
        first, end = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        yield digits[first:end]
        yield digits[first:end].replace("+", "-").replace("/", "_")


def forms_of(key: str, rules: Collection[str]) -> list[Form]:
    """Return the forms of a key: as it is, in hex, in base64 at each alignment."""
    forms = [Form(key, FRAGMENT)] if "raw" in rules else []
    if "hex" in rules:
        forms.append(Form(key.encode().hex(), 2 * FRAGMENT))
    if "base64" in rules:
        written = [*_base64_digits(key), *_base64_digits(key, ":")]
        for tail in ("", ":"):
            whole = b64encode((key + tail).encode()).decode()
            written += [whole, whole.replace("+", "-").replace("/", "_")]
        forms += [Form(text, _BASE64_PIECE) for text in written]
    return list(dict.fromkeys(Form(form.text.lower(), form.piece) for form in forms))


def glances_of(key: str, rules: Collection[str]) -> Iterator[str]:
    """Yield texts one of which is in any text that has the key: of each form its head or tail."""
    if "raw" in rules:
        yield key[:FRAGMENT].lower()
        yield key[-FRAGMENT:].lower()
    for text in _base64_digits(key) if "base64" in rules else ():
        yield text[:_BASE64_PIECE].lower()
        yield text[-_BASE64_PIECE:].lower()
    if "hex" in rules:
        yield key.encode().hex()[: 2 * FRAGMENT]
        yield key.encode().hex()[-2 * FRAGMENT :]


def _probes(form: Form) -> list[tuple[str, int]]:
    """Return pieces of a form, with their places, one of which is in any piece that counts."""
    size = form.piece // 2
    last = len(form.text) - size
    step = form.piece - size + 1
    return [(form.text[at : at + size], at) for at in (*range(0, last, step), last)]


def probes_of(forms: list[Form]) -> list[tuple[str, list[tuple[Form, int]]]]:
    """Return each probe once, with the forms that it is a piece of and its places there."""
    probes: dict[str, list[tuple[Form, int]]] = {}
    for form in forms:
        for probe, place in _probes(form):
            probes.setdefault(probe, []).append((form, place))
    return list(probes.items())


def alone_of(keys: list[str], rules: Collection[str]) -> re.Pattern[str] | None:
    """Return the pattern of short keys, each whole and alone, raw, in hex or in base64."""
    written: list[str] = []
    for key in keys:
        written += [re.escape(key)] if "raw" in rules else []
        written += [f"(?i:{key.encode().hex()})"] if "hex" in rules else []
        if "base64" in rules:
            both = (b64encode(key.encode()), b64encode(f"{key}:".encode()))
            written += [re.escape(text.decode().rstrip("=")) + "=*" for text in both]
    if not written:
        return None
    either = "|".join(sorted(written, key=len, reverse=True))
    return re.compile(f"(?<![A-Za-z0-9])(?P<secret>{either})(?![A-Za-z0-9])")
