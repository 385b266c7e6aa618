"""Find credentials by their place: in headers, parameters and fields with certain names.

Their names are certain, since a `Redactor` removes the values unasked. `suspects` finds more.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

from ..exchange.values import Interaction, Request
from .key import REDACTED, lower_ascii
from .personal import FIELD, normalize

# Headers that are never written: each is a credential, or as valuable as one.
AUTHORIZATION = frozenset(("authorization", "proxy-authorization"))
_DROPPED = AUTHORIZATION | {"cookie", "cookie2", "set-cookie2"}
# A cookie's name, its value, and the attributes that are written with it. Several cookies in one
# line have commas between them.
_COOKIE = re.compile(r"\s*([^=;,\s]{0,256}?)\s*=\s*([^;]*)(.*)", re.DOTALL)
_ATTRIBUTE = re.compile(
    r";\s*(expires=(?:\w{3,9}, )?[\w :+-]{0,40}"
    r"|(?:path|domain|max-age|samesite|priority)=[^;,]{0,256}"
    r"|secure|httponly|partitioned)(?=\s*(?:[;,]|$))",
    re.IGNORECASE,
)
# Headers that are written without their value: DD-API-KEY, X-Auth-Token, X-Amz-Security-Token.
# These keep their value: X-CSRF-Token, X-Next-Page-Token, X-RateLimit-Remaining-Tokens.
_CREDENTIAL_HEADER = re.compile(
    r"^set-cookie$|(?:authorization|token|secret|password|passwd|credential"
    r"|(?:api|app|application|access|auth|subscription|functions|master|private)[-_]?key)(?![a-z])",
    re.IGNORECASE,
)
_OTHER_HEADER = re.compile(
    r"\b(?:x?csrf|xsrf|page|pagination|continuation|cursor|ratelimit|limit|count)", re.IGNORECASE
)
_API_KEY = re.compile("(?:x[-_])?api[-_]?key", re.IGNORECASE)
# Names without marks: client_secret is clientsecret. A short key or token, such as ?key=2, is not a
# credential.
_CREDENTIAL_FIELD = re.compile(
    "apikey|(?:api|access|auth|id|refresh|xamzsecurity)token|(?:api|client)?secret|secretkey"
    "|subscriptionkey|clientassertion|x(?:amz|goog)signature"
    # newPassword, user[password], password_confirmation, password2
    "|[a-z0-9]*(?:password|passwd|passwort|pwd)(?:confirmation|confirm|again|repeat|[0-9])?"
)
_LONG_ENOUGH = 16
# A form names the object that it uploads in a field "key": a path in lower case, or a file.
_OBJECT_NAME = re.compile(r"(?=[^/]*/)[a-z0-9._/ -]*|.*\$\{filename\}.*|[\w /-]+\.[a-z]{1,4}")
# Words, such as "invalid_token": they are no secret, and would be removed everywhere.
_WORDS = re.compile(r"(?:[a-z]+|[A-Z]+|[A-Z][a-z]+)(?:[._-](?:[a-z]+|[A-Z]+|[A-Z][a-z]+))*")
_LONGEST_WORDS = 40
# S3, CloudFront and Azure sign addresses so. A person's signature has spaces.
_SIGNATURE = re.compile(r"[\w+/~-]{20,}=*", re.ASCII)
# Each text with such a field contains one of these.
HINTS = ("key", "token", "secret", "passw", "pwd", "assertion", "sig=", "signature", "%")

# A field of a multipart form. Its groups: all before the value, the name, the value. In each line,
# only the first name is tried, since trying all would take quadratic time.
_PART = re.compile(
    r"(^(?>[^\r\n]*?;\s*name=\"([^\"\r\n]*)\")[^\r\n]*\r\n(?:[^\r\n]+\r\n){0,20}\r\n)"
    r"(.*?)(?=\r\n--|\Z)",
    re.DOTALL | re.MULTILINE,
)
# The same for JSON, and for JSON in a JSON string.
_JSON_FIELDS = tuple(
    re.compile(
        rf"({quote}(api[-_]?key|(?:access|refresh|id)_token|(?:api|client)_secret"
        rf"|[\w-]{{0,40}}(?:passw|pwd)[\w-]{{0,20}}){quote}\s*:\s*{quote})({value})",
        re.IGNORECASE | re.DOTALL,
    )
    for quote, value in (('"', r"(?:[^\"\\]|\\.)*"), (r"\\\"", r"(?:[^\"\\]|\\[^\"])*"))
)
_ONE_PART = re.compile(r"\s*([A-Za-z][\w-]*)\s+([A-Za-z0-9._~+/-]+=*)\s*")


@lru_cache(1000)  # without it, the same few names take a fifth of the time of a recording
def mask_header(header_name: str) -> str | None:
    """Return ``<REDACTED>`` to replace a header's value, ``""`` to keep it, None to drop it."""
    if header_name.lower() in _DROPPED:
        return None
    is_credential = _CREDENTIAL_HEADER.search(header_name) and not _OTHER_HEADER.search(header_name)
    return REDACTED if is_credential else ""


def without_value(cookie: str) -> str:
    """Return a ``Set-Cookie`` with its name and attributes, and a stand-in as its value."""
    match = _COOKIE.fullmatch(cookie)
    if match is None:
        return REDACTED
    name, value, rest = match.groups()
    attributes = "".join(f"; {each}" for each in _ATTRIBUTE.findall(rest))
    return f"{name}={value and REDACTED}{attributes}"


def carries_credentials(request: Request) -> bool:
    """Return whether a request has a credential in its headers or its address."""
    is_in_header = any(
        name.lower() in AUTHORIZATION or mask_header(name) for name, _ in request.headers
    )
    return is_in_header or any(_secrets_in_address(request))


def secrets_of(request: Request) -> Iterator[str]:
    """Yield the credentials of a request that are no words."""
    for name, value in request.headers:
        if name.lower() in AUTHORIZATION:
            yield from filter(_teaches, _credentials(value))
        elif mask_header(name) and _teaches(value):
            yield value
    yield from filter(_teaches, _secrets_in_address(request))


def secrets_in(interaction: Interaction) -> Iterator[str]:
    """Yield the credentials in the headers of an interaction, and in its address."""
    yield from secrets_of(interaction.request)
    yield from _repeated_cookies(interaction)


def _repeated_cookies(interaction: Interaction) -> list[str]:
    """Return the values of cookies that the response repeats elsewhere.

    Others are not learned: a load balancer sets a new one with each response.
    """
    response = interaction.response
    pairs: list[str] = []
    texts: list[str] = []
    for name, value in interaction.request.headers:
        if name.lower() == "cookie":
            pairs += value.split(";")
    for name, value in response.headers:
        if name.lower() == "set-cookie":
            pairs.append(value.partition(";")[0])
        elif name.lower() not in _DROPPED:
            texts.append(value)
    repeated = "\n".join(texts)
    values = [pair.partition("=")[2].strip(' "') for pair in pairs]
    return [
        each
        for each in values
        if len(each) >= _LONG_ENOUGH and (each in repeated or each.encode() in response.body)
    ]


def _secrets_in_address(request: Request) -> Iterator[str]:
    if "@" in request.uri or "%" in request.uri or _API_KEY.search(request.uri):
        with suppress(ValueError):
            parts = urlsplit(request.uri)
            yield from map(unquote, filter(None, (parts.username, parts.password)))
            query = parse_qsl(parts.query)
            yield from (value for name, value in query if _API_KEY.fullmatch(name))


def _credentials(authorization: str) -> Iterator[str]:
    """Yield the credential of a header with one part; for Basic, the user name and password."""
    bare = authorization.strip()
    if bare and not re.search(r"[\s,]", bare):
        yield bare  # no scheme
    match = _ONE_PART.fullmatch(authorization)
    if match is not None:
        token = match[2]
        if match[1].lower() == "basic":
            with suppress(ValueError):
                token = b64decode(token, validate=True).decode("utf-8")
        yield from filter(None, token.partition(":")[::2])


def _teaches(secret: str) -> bool:
    """Return whether a credential is removed wherever else it is."""
    is_words = len(secret) <= _LONGEST_WORDS and _WORDS.fullmatch(secret) is not None
    has_letter = any(map(str.isalpha, secret))
    return has_letter and not is_words and not re.search(r"\s", secret)


def fields_in(text: str) -> Iterator[str]:
    """Yield the credentials in the named fields of a text that are no words."""
    if not any(map(lower_ascii(text).__contains__, HINTS)):
        return
    for pattern in _field_patterns(text):
        credentials = filter(_is_credential, pattern.finditer(text))
        yield from filter(_teaches, map(_unescaped, credentials))


def fields_replaced(text: str, stand_in: Callable[[str], str]) -> str:
    """Return a text with what ``stand_in`` returns for each credential in a named field."""

    def replaced(field: re.Match[str]) -> str:
        return f"{field[1]}{stand_in(_unescaped(field))}" if _is_credential(field) else field[0]

    for pattern in _field_patterns(text):
        text = pattern.sub(replaced, text)
    return text


def _field_patterns(text: str) -> tuple[re.Pattern[str], ...]:
    return (FIELD, _PART, *_JSON_FIELDS) if "=" in text else _JSON_FIELDS


def _is_credential(field: re.Match[str]) -> bool:
    """Return whether a field of a form, a query or JSON has a credential."""
    _, name, value = field.groups()
    name = normalize(unquote(name))
    if name in ("key", "token"):
        is_object = name == "key" and _OBJECT_NAME.fullmatch(unquote_plus(value))
        return len(value) >= _LONG_ENOUGH and not is_object
    if name in ("sig", "signature"):
        return _SIGNATURE.fullmatch(unquote_plus(value)) is not None
    return bool(value) and _CREDENTIAL_FIELD.fullmatch(name) is not None


def _unescaped(field: re.Match[str]) -> str:
    """Return the value of a field without the escapes of JSON or of a form."""
    value = field[3]
    if field.re is FIELD:
        return unquote_plus(value)
    if field.re in _JSON_FIELDS:
        with suppress(ValueError):
            return str(json.loads(f'"{value}"'))
    return value
