"""Taking the key, and personal data on request, out of what is written down.

Everything that leaves a session for a file, a log or a message passes a `Redactor`. It removes the
keys that are known (see `key_search`), and what is known by its place alone, whether a key is known
or not: the headers that carry credentials and cookies, an ``api_key`` parameter or field, and the
user info of an address. `guard_logs` does so for what is logged while a session has a key.
"""

from __future__ import annotations

import contextlib
import logging
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Final, NoReturn, final
from urllib.parse import parse_qsl, unquote, urlsplit

from ..credentials import keys_version, known_keys
from ..errors import CassetteError, CredentialError, hide_frames
from ..interaction import Headers, Interaction, RecordedRequest, RecordedResponse, header
from .key import PLACEHOLDER, KeySearch, windows
from .personal import Pseudonyms
from .unpack import unpack

# Never written: each is a credential, or is as good as one.
_DROPPED: Final = frozenset(
    ("authorization", "proxy-authorization", "cookie", "cookie2", "set-cookie", "set-cookie2")
)
_MASKED: Final = frozenset(("api-key", "api_key", "apikey", "x-api-key", "x-api_key", "x-apikey"))
_SPECIAL: Final = _DROPPED | _MASKED | {"content-encoding"}

_PARAMETER = re.compile(r"((?:^|[?&;])([^=?&;#\s\"'<>\\]{1,99})=)[^&;#\s\"'<>\\]+", re.MULTILINE)
_FIELD = re.compile(
    r"((?<!\\)\\*\"api[-_]?key\\*\"\s*:\s*\\*\")(?!<API_KEY>)(?:[^\"\\]|\\[^\"])++", re.IGNORECASE
)
_USER_INFO = re.compile(r"(://)[^/?#@\s\"'<>\\]+@")
_ORIGIN = re.compile(r"(?<![:/])(/)")
# RFC 7235: a scheme and one token. Digest and AWS4 have parameters, of which none is a key.
_ONE_PART = re.compile(r"\s*([A-Za-z][\w-]*)\s+([A-Za-z0-9._~+/-]+=*)\s*")


@final
class Redactor:
    """Removes keys, credentials and chosen personal data; no repr or pickle shows what it knows.

    It knows every key of this process (see `credentials.known_keys`), also of sessions that are
    opened after it was made, and what a request that it sees carries as its own credentials.

    Parameters
    ----------
    secrets
        More keys, as they are typed.
    redact
        Names or dotted paths of fields, and ``"personal"`` for all in `personal.PERSONAL_FIELDS`
        and e-mail addresses and telephone numbers anywhere. Each value becomes a pseudonym, equal
        for equal values.
    """

    __slots__ = ("__personal", "__redact", "__search", "__version")

    def __init__(self, secrets: Iterable[str] = (), *, redact: Iterable[str] = ()) -> None:
        self.__search = KeySearch(secrets)
        self.__version: object = None
        self.__redact = tuple(redact)
        self.__personal = Pseudonyms(self.__redact)

    @property
    def redact(self) -> tuple[str, ...]:
        """The personal data it replaces, as named. A replay needs the same to find its requests."""
        return self.__redact

    def extended(self, redact: Iterable[str]) -> Redactor:
        """Return a redactor of the same keys that replaces more personal data, or this very one."""
        more = tuple(rule for rule in redact if rule not in self.__redact)
        if not more:
            return self
        other = Redactor(redact=(*self.__redact, *more))
        other.__search = self.__search
        return other

    def __repr__(self) -> str:
        return "Redactor(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise CredentialError("A redactor knows the key, and is never pickled or copied.")

    @hide_frames
    def interaction(self, interaction: Interaction) -> Interaction:
        """Return an interaction as it may be written."""
        request, response = self.request(interaction.request), interaction.response
        (reason,), headers, body = self._message([response.reason], response.headers, response.body)
        response = RecordedResponse(response.status, reason, headers, body)
        return replace(interaction, request=request, response=response)

    @hide_frames
    def redacted_text(self, interaction: Interaction, text_of: Callable[[Interaction], str]) -> str:
        """Return the text of an interaction as it may be written, searched once more for the key.

        Where nothing is to be removed, as in most, that one search is all that it costs.

        Raises
        ------
        CassetteError
            As `refuse_leak`.
        """
        self._learn()
        request, headers = interaction.request, interaction.response.headers
        if not (self.__redact or "%" in request.uri or _has_special((*request.headers, *headers))):
            text = text_of(interaction)
            if "!!binary" not in text and not self._is_affected(text):
                return text
        text = text_of(self.interaction(interaction))
        self.refuse_leak(text)
        return text

    @hide_frames
    def request(self, request: RecordedRequest) -> RecordedRequest:
        """Return a request as it may be written."""
        self._learn(_secrets_of(request))
        # Apart, so that an address stays one where a key that holds a slash is in its path.
        # Also an `api_key` whose name is escaped, and a placeholder that httpx has escaped.
        uri = _PARAMETER.sub(_mask_value, request.uri.replace("%3CAPI_KEY%3E", PLACEHOLDER))
        texts = [request.method, *_ORIGIN.split(uri, maxsplit=1)]
        (method, *uri_parts), headers, body = self._message(
            texts, request.headers, request.body or b""
        )
        sent = None if request.body is None else body
        return RecordedRequest(method, "".join(uri_parts), headers, sent)

    @hide_frames
    def text(self, text: str) -> str:
        """Return any text as it may be shown: an excerpt, a log line, a message."""
        self._learn()
        return self._text(text)

    @hide_frames
    def refuse_leak(self, written: str) -> None:
        """Search text that is about to be written once more.

        Raises
        ------
        CassetteError
            Where any form of a key is in it. Nothing of the text is in the message.
        """
        self._learn()
        if self.__search.holds(written):
            raise CassetteError(
                "The key was about to be written in a form that redaction had not removed, so "
                "nothing was written. Leave this request out of the recording, and report it."
            )

    def _learn(self, secrets: Iterable[str] = ()) -> None:
        version = keys_version()
        if version != self.__version:
            self.__search.learn(known_keys())
            self.__version = version  # read before the keys: of two threads, none learns too little
        if more := frozenset(secrets):
            self.__search.learn(more)

    def _is_affected(self, text: str) -> bool:
        """Return whether anything but personal data is to be removed from a text."""
        return _may_hold_credentials(text) or self.__search.holds(text)

    def _message(
        self, texts: list[str], headers: Headers, body: bytes
    ) -> tuple[list[str], Headers, bytes]:
        """Return what a message begins with, its headers, which fit its body, and the body."""
        written = self._body(body, header(headers, "content-encoding") or "")
        headers = _redact_headers(headers)
        if written != body:
            length = str(len(written))
            headers = tuple(
                (name, length if name.lower() == "content-length" else value)
                for name, value in headers
                if name.lower() != "content-encoding"
            )
        parts = [*texts, *chain.from_iterable(headers)]
        if self.__redact or self._is_affected("\n".join(parts)):
            parts = list(map(self._text, parts))
        rest = iter(parts[len(texts) :])
        return parts[: len(texts)], tuple(zip(rest, rest, strict=True)), written

    def _body(self, body: bytes, coding: str) -> bytes:
        """Return a body as it may be written; one that had to be opened for that stays open."""
        try:
            plain = unpack(body, coding)
        except ValueError:
            return b"<not searched: %d bytes>" % len(body)
        parts = (part.decode("utf-8", "replace") for part in windows(plain))
        if not self.__redact and not any(map(self._is_affected, parts)):
            return body
        try:
            text, charset = plain.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            text, charset = plain.decode("latin-1"), "latin-1"
        written = self._text(text)
        return body if written == text else written.encode(charset)

    def _text(self, text: str) -> str:
        if _may_hold_credentials(text):
            for pattern, replacement in _RULES:
                text = pattern.sub(replacement, text)
        text = self.__search.removed_from(text)
        return self.__personal.text(text) if self.__personal else text


def _has_special(headers: Headers) -> bool:
    """Return whether any header carries credentials or a cookie, or says how a body is packed."""
    return not _SPECIAL.isdisjoint([name.lower() for name, _ in headers])


def _redact_headers(headers: Headers) -> Headers:
    """Return the headers that may be written at all, those named for a key without their value."""
    return tuple(
        (name, PLACEHOLDER if name.lower() in _MASKED else value)
        for name, value in headers
        if name.lower() not in _DROPPED
    )


def _may_hold_credentials(text: str) -> bool:
    if "@" in text and _USER_INFO.search(text):
        return True
    low = text.lower()
    return "key" in low and ("api_key" in low or "apikey" in low or "api-key" in low)


def _is_api_key(name: str) -> bool:
    return unquote(name).lower().replace("-", "").replace("_", "") == "apikey"


def _mask_value(match: re.Match[str]) -> str:
    return match[1] + PLACEHOLDER if _is_api_key(match[2]) else match[0]


# What is known by its place, and what stands there instead.
_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (_PARAMETER, _mask_value),
    (_FIELD, rf"\1{PLACEHOLDER}"),
    (_USER_INFO, rf"\1{PLACEHOLDER}@"),
)


def secrets_in(interactions: Iterable[Interaction]) -> frozenset[str]:
    """Return the credentials that recordings of another program carry, so they can be removed.

    They are known by where they stand: an ``Authorization`` of one part, an ``api_key``, an
    ``X-Api-Key``. A service may have echoed them anywhere else.
    """
    return frozenset(chain.from_iterable(_secrets_of(each.request) for each in interactions))


def redact_foreign(interactions: Iterable[Interaction], *, foreign: bool) -> Iterable[Interaction]:
    """Return what a file holds as it may be shown: another program's without its credentials."""
    if not foreign:
        return interactions
    recorded = tuple(interactions)
    return map(Redactor(secrets_in(recorded)).interaction, recorded)


def _secrets_of(request: RecordedRequest) -> Iterator[str]:
    for name, value in request.headers:
        if name.lower() in ("authorization", "proxy-authorization"):
            yield from _credentials(value)
        elif name.lower() in _MASKED:
            yield value
    with contextlib.suppress(ValueError):
        parts = urlsplit(request.uri)
        yield from filter(None, (parts.username, parts.password))
        yield from (value for name, value in parse_qsl(parts.query) if _is_api_key(name))


def _credentials(authorization: str) -> Iterator[str]:
    """Yield the credential of one part; of Basic, the user name and the password."""
    if match := _ONE_PART.fullmatch(authorization):
        token = match[2]
        if match[1].lower() == "basic":
            with contextlib.suppress(ValueError):
                token = b64decode(token, validate=True).decode("utf-8")
        yield from filter(None, token.partition(":")[::2])


# -- logs --------------------------------------------------------------------------------------

_CORES: Final = ("httpcore", "httpcore2")  # httpx's, and that of its fork httpx2
_ROOTS: Final = ("directmail_lab", "httpx", "httpx2", *_CORES)
_CORE_PARTS: Final = ("connection", "http11", "http2", "proxy", "socks")
GUARDED_LOGGERS: Final = (*_ROOTS, *(f"{core}.{part}" for core in _CORES for part in _CORE_PARTS))
"""The loggers that a request's address, headers or errors reach, beside their children."""

# httpcore logs headers as pairs of bytes: (b'Cookie', b'…').
_CREDENTIALS = re.compile(
    r"((['\"])(?:proxy-authorization|authorization|set-cookie|cookie)\2, b?)(['\"]).*?\3(?=[,)\]])",
    re.IGNORECASE,
)


def guard_logs(redactor: Redactor) -> Callable[[], None]:
    """Redact what the guarded loggers log from now on; return a function that ends this.

    Each call adds a filter of its own, so sessions may overlap and end in any order.
    """

    def redact(record: logging.LogRecord) -> bool:
        # httpcore logs bytes and tuples of them as arguments, so the whole message is redacted.
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"{record.msg} {record.args}"
        message = _CREDENTIALS.sub(rf"\1\3{PLACEHOLDER}\3", message)
        record.msg, record.args = redactor.text(message), ()
        if record.exc_info and record.exc_info[0] is not None:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text, record.exc_info = text, None
        # Also a text that the filter of another session, with another key, has made already.
        record.exc_text = record.exc_text and redactor.text(record.exc_text)
        record.stack_info = record.stack_info and redactor.text(record.stack_info)
        return True

    # A filter is not inherited by the loggers below.
    below = (name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] in _ROOTS)
    with contextlib.ExitStack() as filters:
        for name in {*GUARDED_LOGGERS, *below}:
            logger = logging.getLogger(name)
            logger.addFilter(redact)
            filters.callback(logger.removeFilter, redact)
        return filters.pop_all().close
