"""Finding what must not be shared: keys, and personal data, in text, cassettes and notebooks.

A finding says where and of what kind, and never holds what was found, so that it can be printed.
Looked for are the keys that this computer knows, in every form that redaction removes; what is a
credential by its shape; and any text that looks random in the place of a key, such as an argument
of ``connect`` or the value of a name with "key" in it (the names that detect-secrets and bandit
look for). Placeholders, the stand-in's public key and addresses that are kept for examples pass: an
audit that raises false alarms is switched off.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import CassetteFormatError, DirectMailLabError
from ..redaction import unpack
from ..redaction.key_search import KeySearch
from ..redaction.personal import personal_in
from ..standin import STAND_IN_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..cassettes import LoadedCassette
    from ..interaction import Interaction

    HoldsKey = Callable[[str], bool]

__all__ = [
    "Finding",
    "Hidden",
    "audit_cassette",
    "audit_notebook",
    "audit_text",
    "find_in_bytes",
    "find_in_interactions",
    "find_in_notebook",
    "key_search",
    "read_notebook",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not be shared: of what kind, what it looks like, and where it stands."""

    kind: Literal["secret", "personal"]
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class Hidden(tuple[str, ...]):
    """Keys that a traceback which prints values does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<hidden>"


# -- what a credential looks like --------------------------------------------------------------

# What each is, its pattern, and the group that has the secret itself. Their time is linear in the
# text: none starts again within what it has read, and what may be read twice is bounded.
_SHAPES: Final = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        ("a private key", r"(?P<secret>-----BEGIN (?:[A-Z]{1,20} ){0,4}PRIVATE KEY-----)"),
        (
            "a service's key, by its prefix",
            r"(?<![A-Za-z0-9])(?P<secret>"
            r"(?:[a-z]{2,8}_)?(?:live|prod|secret)_(?:pub_)?[A-Za-z0-9_]{16,}"
            r"|test_(?:pub_)?[0-9a-f]{24,}|[sr]k-(?:[a-z]{1,20}-)?[A-Za-z0-9_-]{20,}"
            r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
            r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}|SG\.[\w-]{16,99}\.[\w-]{16,}"
            r"|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}|pypi-[\w-]{50,})(?![A-Za-z0-9])",
        ),
        ("a signed token (JWT)", r"(?P<secret>eyJ(?<![\w-]eyJ)[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})"),
        ("a bearer token", r"[Bb](?:earer|EARER)\s{1,9}(?P<secret>[\w.~+/-]{16,})"),
        (
            "a user name and password in an address",
            r"://(?P<secret>[^\s/?#@:\"'<>\\]{0,256}:[^\s/?#@\"'<>\\]{0,256})@",
        ),
        ("a key in an address", r"://(?P<secret>(?=[^\s/@]{0,99}\d)[^\s/?#@:\"'<>\\]{16,256})@"),
        ("an api_key parameter", r"(?i)[?&;]api[-_]?key=(?P<secret>[^&;#\s\"'<>\\]+)"),
    )
)
_BASIC = re.compile(r"[Bb](?:asic|ASIC)\s{1,9}([A-Za-z0-9+/_-]{8,}={0,2})")
# A name with a word for a key in it, and what it is given: `key: str = f"x"`, `auth=("x", "")`,
# `"key": "x"`, `environ["KEY"] = "x"`, `setenv("KEY", "x")`, `KEY=x`; with escaped quotes too.
_NAMED = re.compile(
    r"(?:[kK](?:ey|EY)|[tT](?:oken|OKEN)|[sS](?:ecret|ECRET)|[pP](?:ass|ASS|wd|WD)|[aA](?:uth|UTH)"
    r"|[cC](?:redential|REDENTIAL)|[bB](?:earer|EARER))(?P<rest>[\w-]{0,40}+)"
    r"(?:(?P<closed>\\*+[\"'])\]?+)?+(?:\s{0,9}:\s{0,9}[\w.|]{1,40})?\s{0,9}[:=,]=?\s{0,9}"
    r"[(\[]?[bfruBFRU]{0,2}\\*+(?P<quote>[\"']{0,3})"
    r"(?=[^\s\"'\\<>(),;&]{0,200}?\d|[^\s\"'\\<>(),;&]{20})(?P<secret>[^\s\"'\\<>(),;&]{8,512})"
)
_NAME_BEFORE = re.compile(r"[\w-]+\Z")
_ENV = re.compile(r"%(?:set_)?env\s{1,9}(?P<rest>\w{1,64})[\s=]{1,9}(?P<secret>[^\s\"']{8,512})")
_ARGUMENT = re.compile(r"[(,]\s{0,99}[bfruBFRU]{0,2}\\*[\"'](?P<secret>[^\s\"'\\]{8,512})\\*[\"']")
_CALL = re.compile(r"(?:connect|login|Session|ApiKey|BasicAuth)\(")
_HEAD = re.compile(r"<th[^<>]{0,99}>([^<>]{1,64})</th>")
_CELL = re.compile(r"[^\s<>\"',]{12,512}")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_KEY_WORDS: Final = _words(
    "key apikey token secret password passwd pwd passphrase auth authorization credential "
    "credentials bearer"
)
_SURE_WORDS: Final = _words("apikey secret password passwd pwd passphrase credentials")
_KEY_OF: Final = _words("api secret private access auth account app client service")
# With one of these it names something else: a page's token, a key's name, a column to sort by.
_OTHER_WORDS: Final = _words(
    "public page next previous cursor idempotency cache sort primary foreign partition group "
    "id ids name names hash digest sha type hint file path url count index length"
)
_PLAIN_WORDS: Final = _KEY_WORDS | _words(
    "a an api access my the some this test user username pass foo bar baz none null true false "
    "string value"
)
_PLACEHOLDER = re.compile(
    r"<[^<>]*>|\$?\{.*\}|\$\w+|%\w+%|\[\w+\]|\.\.\.|…|[A-Z]{1,12}(?:[_-][A-Z]{1,12})*|(.)\1*",
    re.DOTALL,
)
_SAYS_PLACEHOLDER = re.compile(
    r"[<…]|\.\.\.|\*\*\*|xxxx|your|example|placeholder|dummy|changeme|redact|filtered|removed|masked"
    r"|sanitized|fake|replace",
    re.IGNORECASE,
)
_CREDENTIAL_HEADERS: Final = frozenset(
    ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key")
)
_NAMES: Final = {"email": "an e-mail address", "phone": "a telephone number"}


def _passes(secret: str) -> bool:
    """Return whether what stands in a secret's place is none: a placeholder, or public."""
    return (
        secret in ("", STAND_IN_KEY)
        or _PLACEHOLDER.fullmatch(secret) is not None
        or _SAYS_PLACEHOLDER.search(secret) is not None
        or all(word in _PLAIN_WORDS for word in re.split(r"[\W_]+", secret.lower()) if word)
    )


def _is_random(text: str, fewest: int) -> bool:
    """Return whether a text looks random: letters and digits change in it as no words do.

    ``hk_8fK2xQ9zLr7T`` and each part of a UUID do; ``recordings-2026-11-21``, ``utf8`` do not.
    """
    if len(text) < fewest or "://" in text or text[0] in "/.":
        return False
    for part in re.split(r"[^A-Za-z0-9]+", text):
        changes = len(re.findall(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])|[a-z](?=[A-Z])", part))
        if len(part) >= 8 and changes > max(3, len(part) * 0.2):
            return True
    return False


def _names_a_key(name: str) -> Literal["", "maybe", "surely"]:
    words = [word.lower() for word in _WORD.findall(name)]
    if _KEY_WORDS.isdisjoint(words) or not _OTHER_WORDS.isdisjoint(words):
        return ""
    sure = any(a in _KEY_OF and b in ("key", "token") for a, b in pairwise(words))
    return "surely" if sure or not _SURE_WORDS.isdisjoint(words) else "maybe"


def _is_key_beside_name(match: re.Match[str]) -> bool:
    secret, groups = match["secret"], match.groupdict()
    quoted = bool(groups.get("quote"))
    if "," in match[0] and not (quoted and groups["closed"]):
        return False
    name = _NAME_BEFORE.search(match.string, max(0, match.start() - 40), match.end("rest"))
    kind = _names_a_key(name[0] if name else "")
    if not kind or _passes(secret):
        return False
    if kind == "surely" and quoted and "://" not in secret:
        return len(secret) >= 20 or any(map(str.isdigit, secret))
    return _is_random(secret, 8 if kind == "surely" else 12)


def _key_arguments(text: str) -> Iterator[str]:
    """Yield each random text among the arguments of a call that takes a key."""
    calls = [match.end() - 1 for match in _CALL.finditer(text)]
    for start, following in zip(calls, [*calls[1:], len(text)], strict=False):
        arguments = text[start : min(start + 400, following)]
        for match in _ARGUMENT.finditer(arguments):
            secret, before = match["secret"], arguments[: match.start() + 1]
            inside = before.count("(") > before.count(")")
            if inside and _is_random(secret, 8) and not _passes(secret):
                yield secret


def _has_key_column(text: str) -> bool:
    """Return whether a table has a column named for a key, and in any cell a random text."""
    heads = set(_HEAD.findall(text))
    if text.startswith("  "):  # as a DataFrame is printed: its columns' names, and the rows below
        heads.update(text[:2000].partition("\n")[0].split())
    return any(map(_names_a_key, heads)) and any(
        _is_random(cell, 12) and not _passes(cell) for cell in _CELL.findall(text)
    )


def _is_credential(digits: str) -> bool:
    """Return whether base64 is ``user:password``, and not a word that follows "basic"."""
    padded = digits.rstrip("=") + "=" * (-len(digits.rstrip("=")) % 4)
    try:
        pair = b64decode(padded, altchars=b"-_").decode("utf-8")
    except ValueError:
        return False
    user, colon, password = pair.partition(":")
    return bool(colon) and pair.isprintable() and not (_passes(user) and _passes(password))


# -- in texts and bytes ------------------------------------------------------------------------


def key_search(secrets: Iterable[str] = (), *, addresses: Iterable[str] = ()) -> HoldsKey:
    """Return what tells whether a text holds a key: one given, or one that this computer knows.

    Those are the environment's, the open sessions' and forms', and the keyring's for ``addresses``
    and the configured ones. It shows none of them: it is what the functions here pass along.
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
        What the findings are to call its place.
    secrets
        Keys that are known, beside those that `key_search` knows.
    """
    return list(_find(text, where, key_search(secrets)))


def _find(text: str, where: str, holds_key: HoldsKey) -> Iterator[Finding]:
    yield from _find_secrets(text, where, holds_key)
    kinds = {kind for kind, *_ in personal_in(text)}
    yield from (Finding("personal", _NAMES.get(kind, kind), where) for kind in sorted(kinds))


def _find_secrets(text: str, where: str, holds_key: HoldsKey) -> Iterator[Finding]:
    if holds_key(text):
        yield Finding("secret", "your API key", where)
    if "&#" in text or "&quot;" in text:
        text = unescape(text)
    for what, pattern in _SHAPES:
        if any(not _passes(match["secret"]) for match in pattern.finditer(text)):
            yield Finding("secret", what, where)
    if any(_is_credential(match[1]) for match in _BASIC.finditer(text)):
        yield Finding("secret", "credentials of HTTP Basic", where)
    if any(_is_key_beside_name(m) for each in (_NAMED, _ENV) for m in each.finditer(text)):
        yield Finding("secret", "a key or password beside its name", where)
    elif any(_key_arguments(text)):
        yield Finding("secret", "a key as an argument", where)
    elif _has_key_column(text):
        yield Finding("secret", "a key in a table", where)


def find_in_bytes(data: bytes, coding: str, where: str, holds_key: HoldsKey) -> Iterator[Finding]:
    """Yield what must not be shared in a body or a file, unpacked as its ``coding`` says.

    Chance makes anything look like an e-mail address in bytes that are no text: there, only secrets
    are looked for, and in the texts that a picture brings along everything.
    """
    try:
        data = unpack(data, coding)
    except ValueError as error:
        yield Finding("secret", f"what cannot be searched ({error})", where)
    try:
        yield from _find(data.decode("utf-8"), where, holds_key)
    except UnicodeDecodeError:
        yield from _find_secrets(data.decode("latin-1"), where, holds_key)
        for text in _texts_of_picture(data):
            yield from _find(text, where, holds_key)


def _texts_of_picture(data: bytes) -> Iterator[str]:
    """Yield the comments and other texts in a picture's file, unpacked."""
    from PIL import Image

    # No picture, or a broken one, has none: its bytes were searched as they are.
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
    # What stands in the file and is in no interaction: comments, other fields, a torn end.
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
                if not _is_empty(value):
                    yield Finding("secret", f"the header {name}", at)
            else:
                yield from _find(f"{name}: {value}", at, holds_key)
        yield from find_in_bytes(body or b"", coding, f"{where}, {side} body", holds_key)


def _shown(name: str) -> str:
    """Return a name for the place of a finding, unless it is one itself."""
    return "…" if _is_random(name, 8) or len(name) > 40 else name


def _is_empty(value: str) -> bool:
    """Return whether a header for a credential has only a placeholder in it."""
    word = value.rpartition(" ")[2]
    return _passes(word) or (_BASIC.search(value) is not None and not _is_credential(word))


# -- in notebooks ------------------------------------------------------------------------------


def audit_notebook(path: str | Path, *, secrets: Iterable[str] = ()) -> list[Finding]:
    """Return what must not be shared in a notebook: in its sources, outputs, and all that is in it.

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
        # A lone surrogate is no text that could be written again.
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
    """Yield each text in a part of a notebook, those kept by line made whole, and each picture.

    A short text comes beside its name: a widget's ``{"password": "…"}`` is known by that.
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
