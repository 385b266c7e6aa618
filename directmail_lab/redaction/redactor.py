"""Remove the key, other credentials, and personal data on request, from data that is written.

Everything that leaves a session for a file, a log or a message passes through a `Redactor`. It
removes the known keys (see `key`). It also removes unknown credentials by their place (see
`places`), and the user info of an address.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import final

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
from .personal import Pseudonyms
from .places import (
    AUTHORIZATION,
    HINTS,
    fields_in,
    fields_replaced,
    mask_header,
    secrets_in,
    secrets_of,
    without_value,
)

# Hints of binary data, which may be compressed, and of UTF-16.
_OPENED_HINTS = ("!!binary", "\\u0000")
# Looser than the pattern below, since the written text has escapes.
_USER_INFO_HINT = re.compile(r"://[^/?#@\s\"'<>]+@", re.ASCII)
_USER_INFO = re.compile(r"(?<=://)[^/?#@\s\"'<>\\]+(?=@)")
# A placeholder in a URL that a client has escaped.
_ESCAPED_PLACEHOLDER = re.compile(r"%3C(API_KEY|REDACTED(?:-\d{1,4})?)%3E", re.IGNORECASE)
# RFC 7235: a scheme and one token. Digest and AWS4 have parameters instead, and none is a key.
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]{1,31}) ")

_ASCII = bytes(range(32, 127))
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WITHOUT_MARK = {
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
        self._learn(secrets_of(request))

    def learn_all(self, interactions: Iterable[Interaction]) -> None:
        """Remove the credentials of requests and responses wherever they are repeated."""
        for each in interactions:
            self._learn(secrets_in(each))
            self._learn(_fields_of(each.request))

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
        self.learn_all([interaction])
        response = interaction.response
        for secret in fields_in(_readable(response.body, response.headers)):
            self.__keys.issue(secret)
        request = self.request(interaction.request)
        (reason, incomplete), headers, body = self._message(
            [response.reason, response.incomplete],
            response.headers,
            response.body,
            stand_in=self.__keys.stand_in,
        )
        response = replace(
            response, reason=reason, incomplete=incomplete, headers=headers, body=body
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
        self._learn(() if written is interaction else secrets_in(interaction))
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
        self._learn(secrets_of(request))
        self._learn(_fields_of(request))
        texts = [request.method, _ESCAPED_PLACEHOLDER.sub(r"<\1>", request.uri)]
        (method, uri), headers, body = self._message(texts, request.headers, request.body or b"")
        return Request(method, uri, headers, None if request.body is None else body)

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
        request = interaction.request
        response = interaction.response
        sent = self._headers(request.headers)
        received = self._headers(response.headers)
        if sent is request.headers and received is response.headers:
            return interaction  # as most are
        request = replace(request, headers=sent)
        response = replace(response, headers=received)
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
        flat = parts[len(texts) :]  # name, value, name, value, …
        headers = tuple(zip(flat[::2], flat[1::2], strict=True))
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
            if mask and name.lower() == "set-cookie":
                value = without_value(value)
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
        if any(map(lower.__contains__, HINTS)) or self.__keys.may_be_in(lower):
            return True
        return "@" in lower and bool(_USER_INFO_HINT.search(lower))

    def _texts(self, texts: list[str]) -> list[str]:
        # One search of them all, since most contain nothing to remove.
        if self.__personal or self._is_hinted_at(lower_ascii("\n".join(texts))):
            return list(map(self._text, texts))
        return texts

    def _text(self, text: str, stand_in: Callable[[str], str] = lambda _: REDACTED) -> str:
        if self._is_hinted_at(lower_ascii(text)):
            text = fields_replaced(text, stand_in)
            text = _USER_INFO.sub(REDACTED, text)
            if self.__keys.holds(text):
                text = self.__keys.removed_from(text)
        return self.__personal.text(text) if self.__personal else text


def _fields_of(request: Request) -> Iterator[str]:
    """Yield the credentials in the named fields of a request."""
    yield from fields_in(request.uri)
    if request.body:
        yield from fields_in(_readable(request.body, request.headers))


def _readable(body: bytes, headers: Headers) -> str:
    """Return a body as text to look for credentials; empty if it cannot be searched."""
    try:
        plain = unpack(body, header(headers, "content-encoding") or "")
        charsets = _charsets(plain, header(headers, "content-type") or "")
        return plain.decode(charsets[0])
    except ValueError:
        return ""


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
    # One after the other, since most bodies are UTF-8.
    fitting = (
        each for each in wide or ("utf-8", declared) if _exactly_decoded(body, each) is not None
    )
    if not wide:
        return [next(fitting, "latin-1")]
    charsets = list(fitting)
    if not charsets:
        raise ValueError("in a charset that cannot be searched")
    return [*charsets, "latin-1"]


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
    for name, value in request.headers:
        scheme = _SCHEME.match(value)
        if scheme is not None and name.lower() in AUTHORIZATION:
            kept = name, f"{scheme[1]} {REDACTED}"
            redacted = replace(redacted, headers=(*redacted.headers, kept))
    return redacted
