"""Remove the key, other credentials, and personal data on request, from data that is written.

Everything that leaves a session for a file, a log or a message passes through a `Redactor`. It
removes the known keys (see `key`). It also removes unknown credentials by their place: in headers,
parameters and fields with certain names, and in the user info of an address. `guard_logs` redacts
log messages while a session has a key.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import logging
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Final, final
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

from ..credentials import Hidden, keys_version, known_keys
from ..errors import CassetteError
from ..exchange.bodies import (
    MAX_UNPACKED_BYTES,
    TooLargeError,
    declared_charset,
    missing_body,
    unpack,
)
from ..exchange.values import Headers, Interaction, Request, header
from ..tracebacks import hide_frames
from .key import PLACEHOLDER, REDACTED, KeySearch, lower_ascii
from .personal import FIELD, Pseudonyms, normalize

# Headers that are never written: each is a credential, or as valuable as one.
_AUTHORIZATION: Final = frozenset(("authorization", "proxy-authorization"))
_DROPPED: Final = _AUTHORIZATION | {"cookie", "cookie2", "set-cookie2"}
_SETS_COOKIE: Final = "set-cookie"
# A cookie's name, its value, and the attributes that are written with it. Several cookies in one
# line have commas between them.
_COOKIE: Final = re.compile(r"\s*([^=;,\s]{0,256}?)\s*=\s*([^;]*)(.*)", re.DOTALL)
_ATTRIBUTE: Final = re.compile(
    r";\s*(expires=(?:\w{3,9}, )?[\w :+-]{0,40}"
    r"|(?:path|domain|max-age|samesite|priority)=[^;,]{0,256}"
    r"|secure|httponly|partitioned)(?=\s*(?:[;,]|$))",
    re.IGNORECASE,
)
# Headers that are written without their value: DD-API-KEY, X-Auth-Token, X-Amz-Security-Token.
# These keep their value: X-CSRF-Token, X-Next-Page-Token, X-RateLimit-Remaining-Tokens.
_CREDENTIAL_HEADER: Final = re.compile(
    r"(?:authorization|token|secret|password|passwd|credential"
    r"|(?:api|app|application|access|auth|subscription|functions|master|private)[-_]?key)(?![a-z])",
    re.IGNORECASE,
)
_OTHER_HEADER: Final = re.compile(
    r"\b(?:x?csrf|xsrf|page|pagination|continuation|cursor|ratelimit|limit|count)", re.IGNORECASE
)
_API_KEY: Final = re.compile("(?:x[-_])?api[-_]?key", re.IGNORECASE)
# Names without marks: client_secret is clientsecret. A short key or token, such as ?key=2, is not a
# credential.
_CREDENTIAL_FIELD: Final = re.compile(
    "apikey|(?:api|access|auth|id|refresh|xamzsecurity)token|(?:api|client)?secret|secretkey"
    "|subscriptionkey|clientassertion|x(?:amz|goog)signature"
    # newPassword, user[password], password_confirmation, password2
    "|[a-z0-9]*(?:password|passwd|passwort|pwd)(?:confirmation|confirm|again|repeat|[0-9])?"
)
_LONG_ENOUGH: Final = 16
# A form names the object that it uploads in a field "key": a path in lower case, or a file.
_OBJECT_NAME: Final = re.compile(
    r"(?=[^/]*/)[a-z0-9._/ -]*|.*\$\{filename\}.*|[\w /-]+\.[a-z]{1,4}"
)
# Words, such as "invalid_token": they are no secret, and would be removed everywhere.
_WORDS: Final = re.compile(r"(?:[a-z]+|[A-Z]+|[A-Z][a-z]+)(?:[._-](?:[a-z]+|[A-Z]+|[A-Z][a-z]+))*")
_LONGEST_WORDS: Final = 40
# S3, CloudFront and Azure sign addresses so. A person's signature has spaces.
_SIGNATURE: Final = re.compile(r"[\w+/~-]{20,}=*", re.ASCII)
# Each text with such a field contains one of these.
_HINTS: Final = ("key", "token", "secret", "passw", "pwd", "assertion", "sig=", "signature", "%")

# A field of a multipart form. Its groups: all before the value, the name, the value. In each line,
# only the first name is tried, since trying all would take quadratic time.
_PART: Final = re.compile(
    r"(^(?>[^\r\n]*?;\s*name=\"([^\"\r\n]*)\")[^\r\n]*\r\n(?:[^\r\n]+\r\n){0,20}\r\n)"
    r"(.*?)(?=\r\n--|\Z)",
    re.DOTALL | re.MULTILINE,
)
# The same for JSON, and for JSON in a JSON string.
_JSON_FIELDS: Final = tuple(
    re.compile(
        rf"({quote}(api[-_]?key|(?:access|refresh|id)_token|(?:api|client)_secret"
        rf"|[\w-]{{0,40}}(?:passw|pwd)[\w-]{{0,20}}){quote}\s*:\s*{quote})({value})",
        re.IGNORECASE | re.DOTALL,
    )
    for quote, value in (('"', r"(?:[^\"\\]|\\.)*"), (r"\\\"", r"(?:[^\"\\]|\\[^\"])*"))
)
# Hints of binary data, which may be compressed, and of UTF-16.
_OPENED_HINTS: Final = ("!!binary", "\\u0000")
# Looser than the pattern below, since the written text has escapes.
_USER_INFO_HINT: Final = re.compile(r"://[^/?#@\s\"'<>]+@", re.ASCII)
_USER_INFO = re.compile(r"(?<=://)[^/?#@\s\"'<>\\]+(?=@)")
# A placeholder in a URL that a client has escaped.
_ESCAPED_PLACEHOLDER = re.compile(r"%3C(API_KEY|REDACTED(?:-\d{1,4})?)%3E", re.IGNORECASE)
# RFC 7235: a scheme and one token. Digest and AWS4 have parameters instead, and none is a key.
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]{1,31}) ")
_ONE_PART = re.compile(r"\s*([A-Za-z][\w-]*)\s+([A-Za-z0-9._~+/-]+=*)\s*")

_ASCII: Final = bytes(range(32, 127))
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WITHOUT_MARK: Final = {
    "utf-16": ("utf-16-le", "utf-16-be"),
    "utf-32": ("utf-32-le", "utf-32-be"),
}


@final
class Redactor(Hidden):
    """Removes keys, credentials and chosen personal data. No repr or pickle shows its keys.

    It knows every key of this process (see `credentials.known_keys`), including those of sessions
    that are opened later, and the credentials of each request that it gets. A credential in its
    usual place becomes ``<REDACTED>``, even if it is the key, so that a replay with another key
    finds the request. Anywhere else, the key becomes ``<API_KEY>``.

    Parameters
    ----------
    secrets
        More keys, as they are typed.
    redact
        Names or dotted paths of fields, names of headers, and ``"personal"`` for all fields in
        `personal.PERSONAL_FIELDS` and for e-mail addresses and telephone numbers anywhere. Each
        value becomes a pseudonym; equal values become equal pseudonyms.
    """

    __slots__ = ("__keys", "__personal", "__redact", "__version")

    def __init__(self, secrets: Iterable[str] = (), *, redact: Iterable[str] = ()) -> None:
        self.__keys = KeySearch(secrets)
        self.__version: object = None
        self.__redact = (redact,) if isinstance(redact, str) else tuple(redact)
        self.__personal = Pseudonyms(self.__redact) or None

    @property
    def redact(self) -> tuple[str, ...]:
        """The names of the data that it replaces. A replay needs the same names."""
        return self.__redact

    def extended(self, redact: Iterable[str]) -> Redactor:
        """Return a redactor with the same keys that replaces more data, or this one."""
        more = tuple(rule for rule in redact if rule not in self.__redact)
        if not more:
            return self
        other = Redactor(redact=(*self.__redact, *more))
        other.__keys = self.__keys
        return other

    def learn(self, keys: Iterable[str], placeholder: str = PLACEHOLDER) -> None:
        """Remove these keys, too, from now on."""
        self.__keys.learn(keys, placeholder)

    def join(self, other: Redactor) -> None:
        """Remove the keys and credentials that another redactor knows, too."""
        self.__keys.join(other.__keys)

    def learn_from(self, request: Request) -> None:
        """Remove the credentials of a request wherever they are repeated, from now on."""
        self._learn(_secrets_of(request))

    def learn_all(self, interactions: Iterable[Interaction]) -> None:
        """Remove the credentials of requests and responses wherever they are repeated."""
        for each in interactions:
            self._learn(_secrets_in(each))
            self._learn(self._fields_of(each.request))

    def without_keys(self, interaction: Interaction) -> Interaction:
        """Return what `interaction` returns, faster if there is nothing to remove."""
        self._learn()
        lower = _searched(interaction)
        is_clean = lower is not None and not self.__keys.may_be_in(lower)
        return interaction if is_clean else self.interaction(interaction)

    @hide_frames
    def interaction(self, interaction: Interaction) -> Interaction:
        """Return the redacted interaction, as it may be written."""
        self._learn()
        # Most contain no secret. Then one search of all their texts is enough.
        if not self.__personal and self._without_credential_headers(interaction) is interaction:
            lower = _searched(interaction)
            if lower is not None and not self._is_hinted_at(lower):
                return interaction
        self._learn(_secrets_in(interaction))
        self._learn(self._fields_of(interaction.request))
        response = interaction.response
        for secret in _fields_in(_readable(response.body, response.headers)):
            self.__keys.issue(secret)
        request = self.request(interaction.request)
        texts, headers, body = self._message(
            [response.reason, response.incomplete],
            response.headers,
            response.body,
            stand_in=self.__keys.stand_in,
        )
        response = replace(
            response, reason=texts[0], incomplete=texts[1], headers=headers, body=body
        )
        return replace(interaction, request=request, response=response)

    @hide_frames
    def redacted_text(
        self, interaction: Interaction, text_of: Callable[[Interaction], str]
    ) -> tuple[str, Interaction]:
        """Return the redacted text of an interaction, and the redacted interaction.

        The text has been searched once more for the key. ``text_of`` returns the text of an
        interaction in a cassette.

        Raises
        ------
        CassetteError
            See `refuse_leak`.
        """
        written = self._without_credential_headers(interaction)
        self._learn(() if written is interaction else _secrets_in(interaction))
        text = text_of(written)
        # Most contain nothing to remove. For those, one search of the written text is enough.
        lower = lower_ascii(text)
        if self.__personal or self._is_hinted_at(lower) or _is_opened(lower):
            written = self.interaction(interaction)
            text = text_of(written)
            self.refuse_leak(text)
        return text, written

    @hide_frames
    def request(self, request: Request) -> Request:
        """Return the redacted request, as it may be written.

        If two requests differ only in a value that is replaced, they become equal.
        """
        self._learn()
        is_bare = not (request.headers or request.body or self.__personal)
        if is_bare and not self._is_hinted_at(lower_ascii(request.uri)):
            return request  # most requests of a replay
        self._learn(_secrets_of(request))
        self._learn(self._fields_of(request))
        texts = [request.method, _ESCAPED_PLACEHOLDER.sub(r"<\1>", request.uri)]
        (method, uri), headers, body = self._message(texts, request.headers, request.body or b"")
        return Request(method, uri, headers, None if request.body is None else body)

    def _fields_of(self, request: Request) -> Iterator[str]:
        """Yield the credentials in the named fields of a request."""
        yield from _fields_in(request.uri)
        if request.body:
            yield from _fields_in(_readable(request.body, request.headers))

    @property
    def learned(self) -> int:
        """How many keys and credentials it knows."""
        return self.__keys.count

    def may_be_in(self, written: str) -> bool:
        """Return whether a written text may have a key or a credential."""
        return self.__keys.may_be_in(lower_ascii(written))

    @hide_frames
    def text(self, text: str) -> str:
        """Return any redacted text, such as an excerpt, a log line or a message."""
        self._learn()
        return self._text(text)

    @hide_frames
    def texts(self, texts: list[str]) -> list[str]:
        """Return several redacted texts; see `text`."""
        self._learn()
        return self._texts(texts)

    @hide_frames
    def refuse_leak(self, written: str) -> None:
        """Search a text once more before it is written.

        Raises
        ------
        CassetteError
            The text contains a form of a key. The message quotes nothing of the text.
        """
        self._learn()
        if self.__keys.holds(written):
            raise CassetteError(
                "The text still contained the key after redaction, so nothing was written.",
                "Leave this request out of the recording, and report it.",
            )

    def _learn(self, secrets: Iterable[str] = ()) -> None:
        version = keys_version()
        if version != self.__version:
            self.__keys.learn(known_keys())
            self.__version = version  # read before the keys, so that no thread misses a new key
        if secrets:
            self.__keys.learn(secrets, REDACTED)

    def _without_credential_headers(self, interaction: Interaction) -> Interaction:
        sent = interaction.request.headers
        received = interaction.response.headers
        masks = set(map(mask_header, dict(sent + received)))
        if masks <= {""} and not self.__personal:
            return interaction  # as most are
        sent = self._headers(sent)
        received = self._headers(received)
        if sent is interaction.request.headers and received is interaction.response.headers:
            return interaction  # as one that was redacted before
        request = replace(interaction.request, headers=sent)
        response = replace(interaction.response, headers=received)
        return replace(interaction, request=request, response=response)

    def _message(
        self,
        texts: list[str],
        headers: Headers,
        body: bytes,
        stand_in: Callable[[str], str] = lambda _: REDACTED,
    ) -> tuple[list[str], Headers, bytes]:
        """Return the redacted texts, headers and body of a message. The headers fit the body.

        ``stand_in`` returns what replaces a credential in a named field of the body.
        """
        written = self._body(body, headers, stand_in) if body else body
        parts = self._texts([*texts, *chain.from_iterable(self._headers(headers))])
        headers = tuple(zip(parts[len(texts) :: 2], parts[len(texts) + 1 :: 2], strict=True))
        if written != body:
            length = str(len(written))
            headers = tuple(
                (name, length if name.lower() == "content-length" else value)
                for name, value in headers
                if name.lower() != "content-encoding"
            )
        return parts[: len(texts)], headers, written

    def _headers(self, headers: Headers) -> Headers:
        """Return the headers that may be written, with ``<REDACTED>`` for credentials."""
        kept = []
        for name, value in headers:
            mask = mask_header(name)
            if mask is None:
                continue
            if mask == _SETS_COOKIE:
                value = _without_value(value)
            elif mask:
                value = value and mask
            elif self.__personal:
                value = value and self.__personal.field(name, value)
            kept.append((name, value))
        written = tuple(kept)
        return headers if written == headers else written

    def _body(self, body: bytes, headers: Headers, stand_in: Callable[[str], str]) -> bytes:
        """Return a redacted body. If something was removed from it, it is no longer compressed."""
        try:
            plain = unpack(body, header(headers, "content-encoding") or "")
            charsets = _charsets(plain, header(headers, "content-type") or "")
        except TooLargeError:
            return missing_body(len(body))
        except ValueError:
            return missing_body(len(body), "searched")
        written = plain
        for charset in charsets:
            text = _exactly_decoded(written, charset)
            if text is None:
                continue
            # UTF-16 without a declared charset.
            if "\0" in text and self.__keys.holds(text.replace("\0", "")):
                return missing_body(len(body), "searched")
            redacted = self._text(text, stand_in)
            if redacted != text:
                written = redacted.encode(charset)
        return body if written == plain else written

    def _is_hinted_at(self, lower: str) -> bool:
        """Return whether anything but personal data may have to be removed from a text.

        ``lower`` is its `lower_ascii`. It may be quoted as JSON.
        """
        if any(map(lower.__contains__, _HINTS)) or self.__keys.may_be_in(lower):
            return True
        return "@" in lower and bool(_USER_INFO_HINT.search(lower))

    def _texts(self, texts: list[str]) -> list[str]:
        # One search of them all, since most contain nothing to remove.
        if self.__personal or self._is_hinted_at(lower_ascii("\n".join(texts))):
            return list(map(self._text, texts))
        return texts

    def _text(self, text: str, stand_in: Callable[[str], str] = lambda _: REDACTED) -> str:
        if self._is_hinted_at(lower_ascii(text)):

            def redacted_field(field: re.Match[str]) -> str:
                before, _, value = field.groups()
                if not _is_credential(field):
                    return f"{before}{value}"
                return f"{before}{stand_in(_unescaped(field))}"

            for pattern in _field_patterns(text):
                text = pattern.sub(redacted_field, text)
            text = _USER_INFO.sub(REDACTED, text)
            if self.__keys.holds(text):
                text = self.__keys.removed_from(text)
        return self.__personal.text(text) if self.__personal else text


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
    if field.re in _JSON_FIELDS:
        with contextlib.suppress(ValueError):
            return str(json.loads(f'"{value}"'))
        return value
    return unquote_plus(value) if field.re is FIELD else value


def _fields_in(text: str) -> Iterator[str]:
    """Yield the credentials in the named fields of a text that are no words."""
    if not any(map(lower_ascii(text).__contains__, _HINTS)):
        return
    for pattern in _field_patterns(text):
        for field in pattern.finditer(text):
            if _is_credential(field) and _teaches(_unescaped(field)):
                yield _unescaped(field)


def _teaches(secret: str) -> bool:
    """Return whether a credential is removed wherever else it is."""
    is_words = len(secret) <= _LONGEST_WORDS and _WORDS.fullmatch(secret) is not None
    has_letter = any(map(str.isalpha, secret))
    return has_letter and not is_words and not re.search(r"\s", secret)


def _without_value(cookie: str) -> str:
    """Return a ``Set-Cookie`` with its name and attributes, and a stand-in as its value."""
    match = _COOKIE.fullmatch(cookie)
    if match is None:
        return REDACTED
    name, value, rest = match.groups()
    attributes = "".join(f"; {each}" for each in _ATTRIBUTE.findall(rest))
    return f"{name}={value and REDACTED}{attributes}"


def _readable(body: bytes, headers: Headers) -> str:
    """Return a body as text to look for credentials; empty if it cannot be searched."""
    try:
        plain = unpack(body, header(headers, "content-encoding") or "")
        charsets = _charsets(plain, header(headers, "content-type") or "")
        return plain.decode(charsets[0])
    except ValueError:
        return ""


@lru_cache(1000)  # without it, the same few names take a fifth of the time of a recording
def mask_header(header_name: str) -> str | None:
    """Return ``<REDACTED>`` to replace a header's value, ``""`` to keep it, None to drop it."""
    if header_name.lower() in _DROPPED:
        return None
    if header_name.lower() == _SETS_COOKIE:
        return _SETS_COOKIE
    is_credential = _CREDENTIAL_HEADER.search(header_name) and not _OTHER_HEADER.search(header_name)
    return REDACTED if is_credential else ""


def _searched(interaction: Interaction) -> str | None:
    """Return all texts of an interaction as one, for searching; None if a body is to be opened."""
    request = interaction.request
    response = interaction.response
    texts = [request.method, request.uri, response.reason, response.incomplete]
    texts += chain.from_iterable((*request.headers, *response.headers))
    try:
        texts += [(request.body or b"").decode(), response.body.decode()]
    except UnicodeDecodeError:
        return None
    lower = lower_ascii("\n".join(texts))
    return None if "\0" in lower or _is_opened(lower) else lower


def _is_opened(lower: str) -> bool:
    """Return whether a text has a body that must be decompressed or decoded to be searched."""
    is_utf_8 = lower.count("charset=") == lower.count("charset=utf-8")
    is_small = len(lower) <= MAX_UNPACKED_BYTES
    return not is_utf_8 or not is_small or any(map(lower.__contains__, _OPENED_HINTS))


def _charsets(body: bytes, content_type: str) -> list[str]:
    """Return the charsets in which to search a body; each encodes its text to the same body.

    In UTF-16, ASCII is searched too: a service may declare what it does not send.

    Raises
    ------
    ValueError
        The charset is unknown, or the body is not in it.
    """
    declared = (declared_charset(content_type) or "utf-8").lower()
    wide = [charset for mark, charset in _BYTE_ORDER_MARKS if body.startswith(mark)]
    if not wide and not _is_like_ascii(declared):
        wide = [declared, *_WITHOUT_MARK.get(declared.replace("_", "-"), ())]
    fitting = []
    for charset in wide or ["utf-8", declared]:
        if _exactly_decoded(body, charset) is not None:
            if not wide:
                return [charset]
            fitting.append(charset)
    if wide and not fitting:
        raise ValueError("in a charset that cannot be searched")
    return [*fitting, "latin-1"]


def _is_like_ascii(charset: str) -> bool:
    try:
        return _ASCII.decode(charset).encode() == _ASCII
    except (LookupError, UnicodeError):
        return False


def _exactly_decoded(body: bytes, charset: str) -> str | None:
    """Return a body as text, or None if the text would not be encoded to the same body."""
    with contextlib.suppress(LookupError, UnicodeError):
        text = body.decode(charset)
        if text.encode(charset) == body:
            return text
    return None


def redact_foreign(request: Request, redactor: Redactor) -> Request:
    """Return another program's request without credentials.

    The scheme of an ``Authorization`` is kept: ``Bearer <REDACTED>``.
    """
    redacted = redactor.request(request)
    schemes = [
        (name, f"{scheme[1]} {REDACTED}")
        for name, value in request.headers
        if name.lower() in _AUTHORIZATION and (scheme := _SCHEME.match(value))
    ]
    if not schemes:
        return redacted
    return replace(redacted, headers=(*redacted.headers, *schemes))


def carries_credentials(request: Request) -> bool:
    """Return whether a request has a credential in its headers or its address."""
    is_in_header = any(
        name.lower() in _AUTHORIZATION or mask_header(name) for name, _ in request.headers
    )
    return is_in_header or any(_secrets_in_address(request))


def _secrets_of(request: Request) -> Iterator[str]:
    """Yield the credentials of a request that are no words."""
    for name, value in request.headers:
        if name.lower() in _AUTHORIZATION:
            yield from filter(_teaches, _credentials(value))
        elif mask_header(name) and _teaches(value):
            yield value
    yield from filter(_teaches, _secrets_in_address(request))


def _secrets_in(interaction: Interaction) -> Iterator[str]:
    yield from _secrets_of(interaction.request)
    yield from _repeated_cookies(interaction)


def _repeated_cookies(interaction: Interaction) -> list[str]:
    """Return the values of cookies that the response repeats elsewhere.

    Others are not learned: a load balancer sets a new one with each response.
    """
    request = interaction.request
    response = interaction.response
    pairs = [
        p for name, value in request.headers if name.lower() == "cookie" for p in value.split(";")
    ]
    pairs += [v.partition(";")[0] for name, v in response.headers if name.lower() == "set-cookie"]
    values = [pair.partition("=")[2].strip(' "') for pair in pairs]
    values = [each for each in values if len(each) >= _LONG_ENOUGH]
    if not values:
        return []
    texts = [value for name, value in response.headers if name.lower() not in _DROPPED]
    repeated = "\n".join(texts)
    return [each for each in values if each in repeated or each.encode() in response.body]


def _secrets_in_address(request: Request) -> Iterator[str]:
    if "@" in request.uri or "%" in request.uri or _API_KEY.search(request.uri):
        with contextlib.suppress(ValueError):
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
            with contextlib.suppress(ValueError):
                token = b64decode(token, validate=True).decode("utf-8")
        yield from filter(None, token.partition(":")[::2])


# -- logs --------------------------------------------------------------------------------------

_CORES: Final = ("httpcore", "httpcore2")  # of httpx and of its fork httpx2
_ROOTS: Final = ("directmail_lab", "httpx", "httpx2", "urllib3", *_CORES)
_CORE_PARTS: Final = ("connection", "http11", "http2", "proxy", "socks")
GUARDED_LOGGERS: Final = (
    *_ROOTS,
    "urllib3.connectionpool",
    *(f"{core}.{part}" for core in _CORES for part in _CORE_PARTS),
)
"""The loggers that get addresses, headers or errors of requests. Their children get them, too."""

# httpcore logs headers as pairs of bytes: (b'Cookie', b'…').
_LOGGED_HEADER = re.compile(r"(b?(['\"])([\w-]{1,99})\2, b?)(['\"]).*?(?:\4(?=[,)\]])|$)", re.M)


def _logged_header(match: re.Match[str]) -> str:
    is_credential = mask_header(match[3]) != ""
    return f"{match[1]}{match[4]}{REDACTED}{match[4]}" if is_credential else match[0]


def guard_logs(redactor: Redactor) -> Callable[[], None]:
    """Redact what the guarded loggers log from now on; return a function that ends this.

    Each call adds its own filter, so sessions may overlap and end in any order.
    """

    def redact(record: logging.LogRecord) -> bool:
        # httpcore logs bytes and tuples of them as arguments, so the whole message is redacted.
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"{record.msg} {record.args}"
        message = _LOGGED_HEADER.sub(_logged_header, message)
        record.msg = redactor.text(message)
        record.args = ()
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        # Not only if it was formatted here: the filter of another session may have done so.
        record.exc_text = record.exc_text and redactor.text(record.exc_text)
        record.stack_info = record.stack_info and redactor.text(record.stack_info)
        return True

    # Child loggers do not inherit a filter.
    below = (name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] in _ROOTS)
    loggers = [logging.getLogger(name) for name in {*GUARDED_LOGGERS, *below}]
    for logger in loggers:
        logger.addFilter(redact)

    def end() -> None:
        for logger in loggers:
            logger.removeFilter(redact)

    return end
