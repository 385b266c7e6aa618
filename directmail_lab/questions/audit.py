"""`audit`: find what must not be shared, which is keys, other credentials and personal data.

A finding says what was found and where, but never contains the value, so it can be printed. The
audit looks for the keys that this computer knows, and for personal data. It also looks for other
credentials, by their form or by the names beside them, as detect-secrets and bandit do.
Placeholders and the stand-in's public key do not count, since people switch off an audit that
raises false alarms.
"""

from __future__ import annotations

import ast
import html
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ..cassettes.files import read_as_written
from ..contract import STAND_IN_KEY
from ..credentials import known_keys
from ..errors import CassetteFormatError, DirectMailLabError
from ..exchange.bodies import unpack
from ..exchange.values import header
from ..redaction.key import KeySearch
from ..redaction.personal import count_personal
from ..redaction.redactor import mask_header
from ..settings import BASE_URL_VARIABLE, keyring_entries, variable

if TYPE_CHECKING:
    from ..exchange.values import Interaction

Part = tuple[str, str | bytes]
"""A place, and what to search there: a text, or the bytes of a body or a picture."""

# Separates two headers; no pattern below matches across it.
BETWEEN: Final = "\0\n"
# For less than this, starting processes takes longer than it saves.
_MANY_BYTES: Final = 16_000_000
_MEMBERS: Final = ("source", "outputs", "metadata", "attachments")


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
    """Return the findings in these parts, each kind once for a place."""
    found = (
        _find_in_bytes(where, content, search)
        if isinstance(content, bytes)
        else _find_in_text(where, content, search)
        for where, content in parts
    )
    return list(dict.fromkeys(chain.from_iterable(found)))


def _find_in_text(where: str, text: str, search: KeySearch) -> Iterator[Finding]:
    """Yield the findings in a text, in which the names of fields do not show personal data."""
    yield from secrets_in(where, text, search)
    yield from _personal(where, count_personal([text], by_field=False))


def _find_in_bytes(where: str, content: bytes, search: KeySearch) -> Iterator[Finding]:
    """Yield the findings in a body or a picture.

    Bytes that are not text may look like an e-mail address by chance, so only keys count there.
    """
    text = content.decode("utf-8", "surrogateescape")
    yield from secrets_in(where, text, search)
    if not re.search("[\udc80-\udcff]", text):
        yield from _personal(where, count_personal([text]))


def secrets_in(where: str, text: str, search: KeySearch) -> Iterator[Finding]:
    """Yield the keys and other credentials that a text contains."""
    if search.holds(text):
        yield Finding("secret", "your API key", where)
    yield from (Finding("secret", what, where) for what in credentials_in(text))


def _personal(where: str, kinds: Iterable[str]) -> Iterator[Finding]:
    for kind in kinds:
        yield Finding("personal", f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}", where)


def refuse_secrets(findings: Iterable[Finding]) -> None:
    """Raise an error that says where each secret is, if there are any."""
    secrets = [f"\n  {each}" for each in findings if each.kind == "secret"]
    if secrets:
        raise DirectMailLabError(
            f"Nothing was written, because this must not be shared:{''.join(secrets)}\n",
            "Edit such a cell and clear its output. Record such a cassette again, or clean it "
            "with: directmail-lab cassette redact.",
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


def parts_of(interaction: Interaction, where: str) -> Iterator[Part]:
    """Yield each part of an interaction."""
    request, response = interaction.request, interaction.response
    yield f"{where}, address", f"{request.method} {request.uri}"
    yield f"{where}, status", response.reason
    for side, message in (("request", request), ("response", response)):
        yield f"{where}, {side} headers", BETWEEN.join(map(": ".join, message.headers))
        body = message.body or b""
        with suppress(ValueError):  # a body that cannot be opened is never shared
            body = unpack(body, header(message.headers, "content-encoding") or "")
        yield f"{where}, {side} body", body


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
    yield from ((f"{where}, metadata", text) for text in _texts(rest))
    for number, cell in enumerate(notebook["cells"], 1):
        for name, value in cell.items():
            at = f"{where}, cell {number}, {name if name in _MEMBERS else 'another member'}"
            yield from ((at, text) for text in _texts({name: value}))
        for output in cell.get("outputs", ()):
            for data in _data_of(output.get("data", {})):
                yield f"{where}, cell {number}, outputs", data


def _texts(value: Any, name: str = "") -> Iterator[str | bytes]:
    """Yield each text in a part of a notebook, with its lines joined, and each picture.

    A text comes with its name, which may say what it is: ``"password": "…"``.
    """
    if _is_lines(value):
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


def _is_lines(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) for line in value)


def _data_of(output: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield what an output shows as JSON, in which the names of fields show personal data.

    That is what a body in a cassette may have: the rows of tables, JSON, or a Python value.
    """
    texts = {kind: "".join(value) for kind, value in output.items() if _is_lines(value)}
    texts |= {kind: value for kind, value in output.items() if isinstance(value, str)}
    if "application/json" in output:
        yield json.dumps(output["application/json"]).encode()
    elif "text/html" in texts:
        tables = _Tables()
        tables.feed(texts["text/html"])
        yield json.dumps(list(tables.records())).encode()
    else:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            yield json.dumps(ast.literal_eval(texts.get("text/plain", ""))).encode()


class _Tables(HTMLParser):
    """Reads the cells of HTML tables, such as those of pandas."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[list[tuple[str, str]]] = []
        self._cell: str | None = None

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag == "tr":
            self._rows.append([])
        self._cell = tag if tag in ("th", "td") else self._cell
        if tag in ("th", "td") and self._rows:
            self._rows[-1].append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td"):
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell and self._rows and self._rows[-1]:
            tag, text = self._rows[-1][-1]
            self._rows[-1][-1] = tag, text + data

    def records(self) -> Iterator[dict[str, str]]:
        """Yield the values of each row, by the names of the columns, or by that of the row."""
        names: list[str] = []
        for row in self._rows:
            texts = [text.strip() for _, text in row]
            if all(tag == "th" for tag, _ in row):
                names = texts
            else:
                yield {texts[0]: " ".join(texts[1:]), **dict(zip(names, texts, strict=False))}


# -- unknown credentials -------------------------------------------------------------------------

# The group `secret` is the secret itself. Repetitions that may be tried twice are bounded, so that
# the patterns take linear time. No possessive quantifier is inside another one, since the `re` of
# Python 3.11.2 misreads that.
_FORMS: Final = {
    "a private key": r"(?P<secret>-----BEGIN (?:[A-Z]{1,20} ){0,4}PRIVATE KEY-----)",
    "a service's key, by its prefix": r"(?<![A-Za-z0-9])(?P<secret>"
    r"(?:live|prod|secret)_(?:pub_)?[A-Za-z0-9_]{16,}"
    r"|test_(?:pub_)?[0-9a-f]{24,}|[sr]k-(?:[a-z]{1,20}-)?[A-Za-z0-9_-]{20,}"
    r"|gh[pousr]_[A-Za-z0-9]{30,}|(?:AKIA|ASIA)[0-9A-Z]{16})(?![A-Za-z0-9])",
    "a signed token (JWT)": r"(?<![\w-])(?P<secret>eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})",
    "a bearer token": r"(?i)\bbearer\s{1,9}(?P<secret>[\w.~+/-]{16,})",
    "credentials in an address": r"://(?P<secret>[^\s/?#@:\"'<>\\]{0,256}:[^\s/?#@\"'<>\\]{0,256}"
    r"|(?=[^\s/@]{0,99}\d)[^\s/?#@:\"'<>\\]{16,256})@",
    "an api_key parameter": r"(?i)[?&;]api[-_]?key=(?P<secret>[^&;#\s\"'<>\\]+)",
}
# A text of that form contains one of these, in lower case.
_HINTS: Final = {
    "a private key": ["private key"],
    "a service's key, by its prefix": [
        *("live_", "prod_", "secret_", "test_", "sk-", "rk-", "akia", "asia"),
        *("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    ],
    "a signed token (JWT)": ["eyj"],
    "a bearer token": ["bearer"],
    "credentials in an address": ["@"],
    "an api_key parameter": ["key"],
}
_HEADER: Final = re.compile(r"(?:\A|\0\n)([\w-]{1,99}): (?!(?i:basic) )([^\r\n\0]+)")
_BASIC = re.compile(r"(?i)\bbasic\s{1,9}([A-Za-z0-9+/_-]{8,})")
# The arguments of a call that takes a key.
_CALL = re.compile(
    r"(?:connect|login|Session|ApiKey|BasicAuth|Configuration|set_password|setenv)"
    r"\(((?:[^()]|\([^()]{0,400}\)){0,400})"
)
_CALL_HINTS: Final = (
    *("connect(", "login(", "session(", "apikey(", "basicauth(", "configuration("),
    *("set_password(", "setenv("),
)
_ARGUMENT = re.compile(r"[\"']([^\s\"'\\]{8,512})\\*[\"']")
# A name and its value: `key: str = f"x"`, `auth=("x", "")`, `{"key": "x"}`, `<key>x`,
# `environ["KEY"] = "x"`, `get("KEY", "x")`, `--key x`, `key is x`. The quotes may be escaped. The
# match begins within the name, at the word that says what it is: trying each name from its start
# takes four times as long. The lookahead halves the rest.
_OUTSIDE_NAMES = re.compile(r"[^\w-]")
_ASSIGNMENT = re.compile(
    r"(?P<name>(?=[kKtTsSpPaAcC])(?i:key|token|secret|pass|pwd|auth|credential)[\w-]{0,40})"
    r"(?:\\*[\"']?\]?(?:\s{0,9}:\s{0,9}[\w.|\[\]]{1,40}(?=\s{0,9}=))?(?:[ \t:=>]|\bis\b){1,40}"
    r"[(\[]?"
    r"|[\"'](?P<comma>\s{0,9},\s{0,9})(?=[\"']))"
    r"[bfruBFRU]{0,2}\\*(?P<quote>[\"']{0,3})(?P<secret>[^\s\"'\\<>(),;&]{8,512})"
)
_NAME_HINTS: Final = ("key", "token", "secret", "pass", "pwd", "auth", "credential")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# The words of a name decide: api_key names a key, page_token and key_name do not.
_KEY_WORD = re.compile("(?:api)?key|token|secret|passw(?:or)?d|pwd|auth(?:orization)?|credentials?")
_SURE_WORD = re.compile("api|apikey|secret|passw(?:or)?d|pwd|credentials|private|access|client")
_OTHER_WORD = re.compile(
    "public|page|next|continuation|cursor|idempotency|cache|sort|primary|foreign|ids?|names?"
    "|hash|digest|sha|type|file|path|url|count|at|expir(?:es|ed|y|ation)|created|updated|changed"
    "|used|length|version"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-][\d:]+)?)?")
_PLACEHOLDER = re.compile(
    r"[<$%{\[].*|.*(?:[<…]|\.\.\.|\*\*\*|xxxx|your|example|placeholder|dummy|redact|fake).*"
    r"|(?-i:[A-Z]{1,12}(?:[_-][A-Z]{1,12})*)|(.)\1*"
    r"|(?:(?:api|my|the|some|this|test|user(?:name)?|pass(?:word)?|key|token|secret)[\W_]?)*",
    re.DOTALL | re.IGNORECASE,
)
_FILE_PATH = re.compile(r"[\w.=-]+(?:/[\w.=-]+)+\.[a-z]\w{0,4}")
_LONG_PART = re.compile(r"[A-Za-z0-9]{8,}")
_CHANGE = re.compile(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])|[a-z](?=[A-Z])")


def credentials_in(text: str) -> Iterator[str]:
    """Yield a description of each kind of credential in a text, and never the credential."""
    with suppress(ValueError):  # Python refuses to parse a number of 5,000 digits
        text = html.unescape(text)
    lower = text.lower()

    def has_any(hints: Iterable[str]) -> bool:
        return any(map(lower.__contains__, hints))

    for what, form in _FORMS.items():
        found = re.finditer(form, text) if has_any(_HINTS[what]) else ()
        if any(not _is_placeholder(match["secret"][:512]) for match in found):
            yield what
    # The same headers that a recording is written without.
    headers = _HEADER.findall(text) if ": " in text else ()
    if any(mask_header(name) != "" and not _is_placeholder(each[:512]) for name, each in headers):
        yield "a credential in a header"
    if "basic" in lower and any(map(_is_basic, _BASIC.findall(text))):
        yield "credentials of HTTP Basic"
    if has_any(_NAME_HINTS) and any(map(_is_key_beside_name, _ASSIGNMENT.finditer(text))):
        yield "a key or password beside its name"
    elif has_any(_CALL_HINTS):
        arguments = _ARGUMENT.findall(" ".join(_CALL.findall(text)))
        if any(map(_is_random, arguments)):
            yield "a key as an argument"


def _is_basic(digits: str) -> bool:
    """Return whether base64 is ``user:password``, and not a word that follows "basic"."""
    try:
        pair = b64decode(digits + "=" * (-len(digits) % 4), altchars=b"-_").decode()
    except ValueError:
        return False
    return ":" in pair and pair.isprintable() and not all(map(_is_placeholder, pair.split(":", 1)))


def _is_key_beside_name(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 40) : match.start()]
    name, secret = _OUTSIDE_NAMES.split(before)[-1] + match["name"], match["secret"]
    words = [word.lower() for word in _WORD.findall(name)]
    if not any(map(_KEY_WORD.fullmatch, words)) or any(map(_OTHER_WORD.fullmatch, words)):
        return False
    is_sure = any(map(_SURE_WORD.fullmatch, words)) and not match["comma"]
    if _DATE.fullmatch(secret):
        return False
    if is_sure and match["quote"] and "://" not in secret:
        return bool(re.search(r"\d|.{20}", secret)) and not _is_placeholder(secret)
    return len(secret) >= (8 if is_sure else 12) and _is_random(secret)


def _is_placeholder(secret: str) -> bool:
    """Return whether a text in the place of a secret is a placeholder, or public."""
    return secret == STAND_IN_KEY or _PLACEHOLDER.fullmatch(secret) is not None


def _is_random(text: str) -> bool:
    """Return whether a text looks random, because letters, digits and case alternate often.

    ``hk_8fK2xQ9zLr7T`` and most UUIDs do; ``recordings-2026-11-21`` and ``utf8`` do not.
    """
    if "://" in text or text[0] in "/." or _FILE_PATH.fullmatch(text):
        return False
    parts = _LONG_PART.findall(text)
    is_random = any(len(_CHANGE.findall(part)) > max(3, len(part) * 0.2) for part in parts)
    return is_random and not _is_placeholder(text)
