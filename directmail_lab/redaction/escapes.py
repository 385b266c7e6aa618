"""The layers of escaping that a text may wear, and how to look below them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["Layer", "layers_for", "places_below", "unescaped"]

_MAX_LAYERS: Final = 4
_MAX_TEXTS: Final = 40
# In a large binary body every kind of token occurs by chance, in every order: one layer will do.
_LARGE: Final = 50_000
_MAX_LARGE_TEXTS: Final = 6


class Layer(NamedTuple):
    """A kind of escaping: its character, what shows that it matters, its tokens, their meaning."""

    character: str
    sign: re.Pattern[str]
    token: re.Pattern[str]
    plain: Callable[[re.Match[str]], str]


def _from_hex(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def _from_json(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else match[2]


def _from_html(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return chr(int(match[2])) if match[2] else _NAMED[match[3].lower()]


def _from_nothing(_match: re.Match[str]) -> str:
    return ""


_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}

# Tokens that stand for printable ASCII, which a key is made of, or for the NULs of UTF-16.
_JSON = re.compile(r"\\(?:(?:u00|x)([2-7][0-9a-fA-F]|00)|([\"\\/']))")
_PERCENT = re.compile(r"%([2-7][0-9a-fA-F]|00)")
_HTML = re.compile(
    r"&(?:#[xX]0*([2-7][0-9a-fA-F]);?|#0*(3[2-9]|[4-9]\d|1[01]\d|12[0-6]);?"
    r"|(amp|lt|gt|quot|apos);)"
)
_QUOTED = re.compile(r"=([2-7][0-9A-F])")
_NULS = re.compile(r"\0+")


def layers_for(characters: str, rules: Collection[str]) -> list[Layer]:
    """Return the kinds of escaping to look below, with the fewest marks that these keys allow."""
    # Every text in JSON has \" in it and many a query an &: they matter to a key that has one.
    quotes = re.compile(r"\\" if set(characters) & set("\"'\\") else r"\\[ux/]")
    entities = _HTML if set(characters) & set("&<>\"'") else re.compile("&(?:amp;)*#")
    kinds = {
        "json": Layer("\\", quotes, _JSON, _from_json),
        "percent": Layer("%", _PERCENT, _PERCENT, _from_hex),
        "html": Layer("&", entities, _HTML, _from_html),
        "quoted": Layer("=", _QUOTED, _QUOTED, _from_hex),
        "utf16": Layer("\0", _NULS, _NULS, _from_nothing),
    }
    return [layer for name, layer in kinds.items() if name in rules]


def unescaped(text: str, layers: list[Layer]) -> Iterator[tuple[str, tuple[Layer, ...]]]:
    """Yield a text with one layer of escaping undone, then two, by every way to undo them."""
    most = _MAX_LARGE_TEXTS if len(text) > _LARGE and not text.isascii() else _MAX_TEXTS
    seen = {text}
    queue: list[tuple[str, tuple[Layer, ...]]] = [(text, ())]
    for outer, path in queue:
        for layer in layers:
            if layer.character not in outer or not layer.sign.search(outer):
                continue
            inner = layer.token.sub(layer.plain, outer)
            if inner not in seen and len(path) < _MAX_LAYERS and len(seen) < most:
                seen.add(inner)
                queue.append((inner, (*path, layer)))
                yield queue[-1]


def places_below(text: str, path: tuple[Layer, ...]) -> list[int]:
    """Return where in ``text`` each character stands of what is below its layers of escaping."""
    places = list(range(len(text) + 1))
    for layer in path:
        parts: list[str] = []
        kept: list[int] = []
        end = 0
        for match in layer.token.finditer(text):
            plain = layer.plain(match)
            parts += [text[end : match.start()], plain]
            kept += places[end : match.start()]
            kept += [places[match.start()]] * len(plain)
            end = match.end()
        places = kept + places[end:]
        text = "".join((*parts, text[end:]))
    return places
