"""Find the credentials in headers and texts by their names, and their repetitions elsewhere."""

from __future__ import annotations

import html
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, final
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

from ..credentials import Hidden
from ..exchange.values import Headers
from .key import REDACTED, REPLACED
from .names import HINTS, is_credential, is_random, is_session_cookie, kind_of
from .personal import FIELD

AUTHORIZATION = frozenset(("authorization", "proxy-authorization"))
# Headers that are never written: each is a credential, or as valuable as one.
_DROPPED = AUTHORIZATION | {"cookie"}
_COOKIE = re.compile(r"\s*([^=;,\s]{0,256}=)([^;,\s]*)")
# With the domain, no cookie would be kept in a replay at another service address.
_ATTRIBUTE = re.compile(
    r"(?i)\s*(?:path=/[^;,\s]*|max-age=-?\d+|expires=[a-z]{3,9},? [\w :-]{9,30}"
    r"|samesite=[a-z]+|httponly|secure|partitioned)\s*"
)
_SCHEME_AND_TOKEN = re.compile(r"\s*(?:([A-Za-z][\w-]*)\s+)?([^\s,\"]+)\s*")
_JWT = re.compile(r"(eyJ[\w-]+)\.[\w-]+\.[\w-]*")

# -- named fields of a text ----------------------------------------------------------------------


def _json_text(value: str) -> str:
    """Return the text of a JSON value, whose string may be cut short."""
    with suppress(ValueError):
        return str(json.loads(value))
    return value.strip('"')


def _json_value(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _Syntax(NamedTuple):
    """How fields are written in a text that contains ``sign``.

    The groups of ``pattern``: all before the value, the name, the value.
    """

    sign: str
    pattern: re.Pattern[str]
    read: Callable[[str], str] = str
    write: Callable[[str], str] = str


_NAME = rf"(?i:[\w:.$-]{{0,40}}?(?:{'|'.join(HINTS)})[\w:.$-]{{0,40}})"
# In each line, only the first name is tried, since trying all would take quadratic time.
_PART = re.compile(
    r"(^(?>[^\r\n]*?;\s*name=\"([^\"\r\n]*)\")[^\r\n]*\r\n(?:[^\r\n]+\r\n){0,20}\r\n)"
    r"(.*?)(?=\r\n--|\Z)",
    re.DOTALL | re.MULTILINE,
)
_JSON_FIELD = re.compile(
    rf'("(?=[\w:.$-]{{1,99}}")({_NAME})"\s*:\s*)("(?:[^"\\]|\\.)*(?:"|\\?\Z)|-?\d[\d.eE+-]*)',
    re.DOTALL,
)
# JSON in a JSON string.
_NESTED = re.compile(r'"\s*[{\[](?:[^"\\]|\\.)*"', re.DOTALL)
_ELEMENT = re.compile(
    rf"(<({_NAME})(?:\s[^<>]{{0,999}})?>\s*(?:<!\[CDATA\[)?)([^<>\s][^<>]*?)(?=\s*(?:\]\]>\s*)?</)"
)
_ATTRIBUTE_OF_ELEMENT = re.compile(
    rf"(\s(?=[\w:.$-]{{1,99}}\s{{0,9}}=)({_NAME})\s*=\s*[\"'])([^\"'<>]+)"
)
# How far from a parameter another one of the same address may be.
_NEAR = 999
_SYNTAXES = (
    _Syntax('"', _JSON_FIELD, _json_text, _json_value),
    _Syntax("=", FIELD, unquote_plus),
    _Syntax("=", _PART),
    _Syntax("<", _ELEMENT, html.unescape, html.escape),
    _Syntax("<", _ATTRIBUTE_OF_ELEMENT, html.unescape, html.escape),
)


def replace_fields(text: str, stand_in: Callable[[str], str]) -> str:
    """Return a text with what ``stand_in`` returns for each credential in a named field."""
    for syntax in _SYNTAXES:
        if syntax.sign not in text:
            continue

        def replaced(field: re.Match[str], syntax: _Syntax = syntax) -> str:
            before, name, raw = field.groups()
            value = syntax.read(raw)
            name = unquote(name)
            if name == "code":
                around = field.string[max(0, field.start() - _NEAR) : field.end() + _NEAR]
                name = "oauth_code" if "state=" in around else name
            if not is_credential(name, value, may_be_id=syntax.sign in '"<'):
                return field[0]
            new = stand_in(value)
            return field[0] if new == value else before + syntax.write(new)

        text = syntax.pattern.sub(replaced, text)

    def within(string: re.Match[str]) -> str:
        with suppress(ValueError, RecursionError):
            inner = json.loads(string[0])
            new = replace_fields(inner, stand_in)
            if new != inner:
                return json.dumps(new, ensure_ascii=string[0].isascii())
        return string[0]

    return _NESTED.sub(within, text) if '\\"' in text else text


def credentials_in_fields(text: str) -> list[str]:
    """Return the credentials in the named fields of a text."""
    found = []

    def note(secret: str) -> str:
        found.append(secret)
        return secret

    replace_fields(text, note)
    return found


def stand_in_for(secret: str) -> str:
    """Return what replaces a credential: for a JWT, one without claims, which can be decoded."""
    if REPLACED.fullmatch(secret):
        return secret
    token = _JWT.fullmatch(secret)
    return f"{token[1]}.e30.REDACTED" if token else REDACTED


# -- headers -------------------------------------------------------------------------------------


@lru_cache(1000)  # a service sends few sets of headers, and each recorded request asks
def are_other_headers(names: frozenset[str]) -> bool:
    """Return whether headers with these names are written with any value."""
    return all("cookie" not in name.lower() and kind_of(name) == "other" for name in names)


def written_header(name: str, value: str) -> str | None:
    """Return the value of a header as it may be written; None if it is never written."""
    lower = name.lower()
    if lower in _DROPPED:
        return None
    if lower == "set-cookie":
        return _written_cookie(value)
    return stand_in_for(value) if is_credential(name, value) else value


def _written_cookie(cookie: str) -> str:
    """Return a cookie that a service sets, with its name, its attributes and no value."""
    first, *attributes = cookie.split(";")
    named = _COOKIE.match(first)
    name = named[1] if named else ""
    is_empty = named is not None and named[2] in ("", '""') and not first[named.end() :].strip()
    kept = [each for each in attributes if _ATTRIBUTE.fullmatch(each)]
    return ";".join([first if is_empty else f"{name}{REDACTED}", *kept])


def credentials_in(headers: Headers, uri: str = "") -> Iterator[str]:
    """Yield the credentials in headers and in the user info of an address."""
    for name, value in headers:
        lower = name.lower()
        if lower in AUTHORIZATION:
            yield from _authorized(value)
        elif lower in ("cookie", "set-cookie"):
            pairs = value.split(";")[: 1 if lower == "set-cookie" else None]
            for pair in pairs:
                cookie, _, secret = pair.strip().partition("=")
                secret = secret.strip('"')
                if is_session_cookie(cookie, secret):
                    yield from (secret, unquote(secret))
        elif is_credential(name, value):
            yield value
    if "@" in uri:
        with suppress(ValueError):
            parts = urlsplit(uri)
            yield from _of_user(unquote(parts.username or ""), unquote(parts.password or ""))


def _authorized(authorization: str) -> Iterator[str]:
    """Yield the credential of an ``Authorization`` that is one, maybe after its scheme."""
    match = _SCHEME_AND_TOKEN.fullmatch(authorization)
    if match is None:
        return  # such as Digest: it has parameters, and none is a credential
    yield match[2]
    if (match[1] or "").lower() == "basic":
        with suppress(ValueError):
            user, _, password = b64decode(match[2], validate=True).decode().partition(":")
            yield from _of_user(user, password)


def _of_user(user: str, password: str) -> Iterator[str]:
    """Yield the password, or a user name that stands alone: it is a key, as in this service."""
    if password or is_random(user):
        yield password or user


# -- repetitions ---------------------------------------------------------------------------------

_SHORTEST = 8
_MOST_FORMS = 2000
# Words, such as "invalid_token" or "text/csv": they are no secret, and would be removed everywhere.
_WORDS = re.compile(r"(?:[a-z]+|[A-Z]+|[A-Z][a-z]+)(?:[._/-](?:[a-z]+|[A-Z]+|[A-Z][a-z]+))*")
_LONGEST_WORD = 14
# Any but the one of a number: 1.2e+16.
_LETTER = re.compile(r"[^\W\d_eE]")
# No letter, but the end of an escape in an address or in JSON.
_BEFORE_WHOLE = r"(?:(?<!\w)|(?<=%[0-9A-F]{2})|(?<=\\[nrt]))"
# Nor the name of a field: {"password1": "password1"}.
_AFTER_WHOLE = r"(?!\w|[=>]|\\*\"\s*:)"


@final
class Repetitions(Hidden):
    """The credentials that a recording has at their places; they are removed elsewhere, too.

    One that is random is removed from any text, another one only where it stands whole. After
    2,000 forms no more are learned: a service may issue one with each response.
    """

    __slots__ = ("__forms",)

    def __init__(self) -> None:
        self.__forms: dict[str, tuple[re.Pattern[str], str]] = {}  # as they were learned

    @property
    def count(self) -> int:
        """In how many forms it knows credentials."""
        return len(self.__forms)

    def learn(self, secrets: Iterable[str], *, are_shown: bool = False) -> None:
        """Remove these credentials from now on, but words and numbers only if they were shown."""
        for secret in secrets:
            is_learned = self.count < _MOST_FORMS and _is_distinctive(secret)
            if secret in self.__forms or not (is_learned or are_shown):
                continue
            forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
            forms.add(html.escape(secret))
            for write in (json.dumps, _json_value):
                quoted = write(secret)[1:-1]
                forms |= {quoted, write(quoted)[1:-1]}
            new = {}
            for form in forms:
                pattern = re.escape(form)
                if not is_random(secret):
                    pattern = f"{_BEFORE_WHOLE}{pattern}{_AFTER_WHOLE}"
                new[form] = re.compile(pattern), stand_in_for(secret)
            # A new dict, since another thread may be searching.
            self.__forms = {**self.__forms, **new}

    def are_in(self, text: str, since: int = 0) -> bool:
        """Return whether a text, which may be quoted as JSON, may have one of them.

        The first forms that it has learned, ``since`` many, do not count.
        """
        return any(map(text.__contains__, islice(self.__forms, since, None)))

    def removed_from(self, text: str) -> str:
        """Return a text without them."""
        forms = self.__forms
        found = [form for form in forms if form in text]
        for form in sorted(found, key=len, reverse=True):  # one may contain another one
            pattern, stand_in = forms[form]
            text = pattern.sub(stand_in, text)
        return text


def _is_distinctive(secret: str) -> bool:
    if len(secret) < _SHORTEST or REPLACED.fullmatch(secret):
        return False
    words = re.split("[._/-]", secret)
    are_words = _WORDS.fullmatch(secret) and max(map(len, words)) <= _LONGEST_WORD
    return not are_words and _LETTER.search(secret) is not None
