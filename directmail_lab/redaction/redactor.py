"""Taking the key, and personal data on request, out of what is written down.

Everything that leaves a session for a file, a log or a message passes a `Redactor`. It removes the
key in every form (see `secret_forms`), and by name, whether a key is known or not: the headers that
carry credentials and cookies, an ``api_key`` parameter or field, and the user info of an address.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NoReturn, ParamSpec, TypeVar, final

from ..errors import CassetteError, CredentialError
from ..interaction import Headers, Interaction, RecordedRequest, RecordedResponse, header
from .named_secrets import (
    PLACEHOLDER,
    may_name_a_key,
    without_key_fields,
    without_key_parameters,
    without_user_info,
    writable_headers,
)
from .packed import cannot_unpack, unpack, unpacked_parts
from .personal import Pseudonyms
from .secret_forms import ALL_RULES, Finder, make_finder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

__all__ = ["PLACEHOLDER", "Redactor"]

_REMEMBERED: Final = 1024
_LONGEST_REMEMBERED: Final = 65_536

_Texts = tuple[str, str, str, bytes, bytes]
"""An exchange but for its headers: address, method, reason, and the body of each side."""

P = ParamSpec("P")
R = TypeVar("R")


def _bare(method: Callable[P, R]) -> Callable[P, R]:
    """Let an error out of ``method`` without its frames: their locals hold what is removed."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            failure = error
        del args, kwargs
        failure.__cause__ = failure.__context__ = None
        raise failure.with_traceback(None)

    return wrapper


@final
class Redactor:
    """Removes the key, credentials and chosen personal data; no repr or pickle shows what it knows.

    Parameters
    ----------
    secrets
        API keys as they are typed.
    redact
        Names or dotted paths of fields, and ``"personal"`` for e-mail addresses and telephone
        numbers anywhere. Each value becomes a pseudonym, equal for equal values.
    rules
        The rules that apply; all of them but in the tests that show what each is for.
    """

    __slots__ = ("__finder", "__last", "__pseudonyms", "__redact", "__rules", "__sound")

    def __init__(
        self,
        secrets: Iterable[str] = (),
        *,
        redact: Iterable[str] = (),
        rules: Collection[str] = ALL_RULES,
    ) -> None:
        self.__finder: Finder = make_finder(frozenset(filter(None, secrets)), rules)
        self.__rules = frozenset(rules)
        self.__redact = tuple(redact)
        self.__pseudonyms = Pseudonyms(self.__redact)
        # Most headers come with every exchange: those seen and found sound are not searched again.
        self.__sound: set[tuple[str, str]] = set()
        self.__last: _Texts | None = None

    @property
    def redact(self) -> tuple[str, ...]:
        """The personal data it replaces, as named. A replay needs the same to find its requests."""
        return self.__redact

    def also(self, redact: Iterable[str]) -> Redactor:
        """Return a redactor of the same key that replaces more personal data, or this very one."""
        more = tuple(rule for rule in redact if rule not in self.__redact)
        if not more:
            return self
        other = object.__new__(Redactor)
        other.__finder, other.__rules = self.__finder, self.__rules
        other.__sound, other.__last = set(), None
        other.__redact = (*self.__redact, *more)
        other.__pseudonyms = Pseudonyms(other.__redact)
        return other

    def __repr__(self) -> str:
        return "Redactor(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise CredentialError("A redactor knows the key, and is never pickled or copied.")

    @_bare
    def interaction(self, interaction: Interaction) -> Interaction:
        """Return an exchange as it may be written."""
        asked, given = interaction.request, interaction.response
        new: list[tuple[str, str]] = []
        sent = self._known(asked.headers, new)
        got = self._known(given.headers, new)
        texts = (asked.uri, asked.method, given.reason, asked.body or b"", given.body)
        if self.__redact or not self._are_sound(texts, new):
            request, response = self.request(asked), self.response(given)
        elif sent is asked.headers and got is given.headers:
            return interaction
        else:
            request = RecordedRequest(asked.method, asked.uri, sent, asked.body)
            response = RecordedResponse(given.status, given.reason, got, given.body)
        return Interaction(request, response, interaction.recorded_at, interaction.elapsed_s)

    def _are_sound(self, texts: _Texts, new: list[tuple[str, str]]) -> bool:
        """Return whether an exchange may be written as it is; what is sound is remembered.

        A poll has the same texts over and over: those of the last exchange are not searched again.
        """
        searched = [part for pair in new for part in pair]
        uri, method, reason, *bodies = texts
        if texts != self.__last:
            # What may be compressed, or an escaped name, is for the closer look.
            if any(map(_may_be_packed, bodies)) or ("%" in uri and self._uri(uri) != uri):
                return False
            searched += (uri, method, reason, *(body.decode("latin-1") for body in bodies))
        if searched and not self._is_clean("\n".join(searched)):
            return False
        if sum(map(len, bodies)) <= _LONGEST_REMEMBERED:
            self.__last = texts
        if len(self.__sound) < _REMEMBERED:
            self.__sound.update(new)
        return True

    def _known(self, headers: Headers, new: list[tuple[str, str]]) -> Headers:
        """Return the headers that may be written, noting in ``new`` those to be searched."""
        sound = self.__sound
        for pair in headers:
            if pair not in sound:
                break
        else:
            return headers
        kept = self._headers(headers)
        new += [pair for pair in kept if pair not in sound]
        return kept

    @_bare
    def request(self, request: RecordedRequest) -> RecordedRequest:
        """Return a request as it may be written."""
        headers = self._headers(request.headers)
        body = None if request.body is None else self._body(request.body, headers)
        return RecordedRequest(
            self._text(request.method),
            self._uri(request.uri),
            self._values(headers, request.body, body),
            body,
        )

    @_bare
    def response(self, response: RecordedResponse) -> RecordedResponse:
        """Return a response as it may be written."""
        headers = self._headers(response.headers)
        body = self._body(response.body, headers)
        return RecordedResponse(
            response.status,
            self._text(response.reason),
            self._values(headers, response.body, body),
            body,
        )

    @_bare
    def text(self, text: str) -> str:
        """Return any text as it may be shown: an excerpt, a log line, a message."""
        return self._text(text)

    @_bare
    def refuse_leak(self, written: str) -> None:
        """Search text that is about to be written once more.

        Raises
        ------
        CassetteError
            Where any form of a key is in it. Nothing of the text is in the message.
        """
        if self.__finder.holds_whole(written):
            raise CassetteError(
                "The key was about to be written in a form that redaction had not removed, so "
                "nothing was written. Leave this request out of the recording, and report it."
            )

    def _headers(self, headers: Headers) -> Headers:
        return writable_headers(headers) if "headers" in self.__rules else headers

    def _values(self, headers: Headers, before: bytes | None, after: bytes | None) -> Headers:
        """Return redacted headers, true to a body that redaction may have changed."""
        redacted = tuple((self._text(name), self._text(value)) for name, value in headers)
        if before == after or after is None:
            return redacted
        return tuple(
            (name, str(len(after)) if name.lower() == "content-length" else value)
            for name, value in redacted
            if name.lower() != "content-encoding"
        )

    def _is_clean(self, text: str) -> bool:
        return not may_name_a_key(text) and not self.__finder.holds(text)

    def _text(self, text: str) -> str:
        text = self._keyless(text)
        return self.__pseudonyms.text(text) if self.__pseudonyms else text

    def _keyless(self, text: str) -> str:
        if may_name_a_key(text):
            text = without_key_fields(text) if "query" in self.__rules else text
            text = without_user_info(text) if "userinfo" in self.__rules else text
        return self._without(text) if self.__finder.holds(text) else text

    def _without(self, text: str) -> str:
        """Return a text with the placeholder for each span that the finder sees."""
        parts: list[str] = []
        end = 0
        for start, stop in self.__finder.spans(text):
            parts += (text[end:start], _placeholder_like(text[start:stop]))
            end = stop
        return "".join((*parts, text[end:]))

    def _uri(self, uri: str) -> str:
        if "query" in self.__rules:
            uri = without_key_parameters(uri)
        # httpx escapes a placeholder that a recorded address brought along.
        return self._text(uri).replace("%3CAPI_KEY%3E", PLACEHOLDER)

    def _body(self, body: bytes, headers: Headers) -> bytes:
        """Return a body without the key; one that had it compressed is returned unpacked."""
        if _may_be_packed(body) and "packed" in self.__rules:
            coding = header(headers, "content-encoding") or ""
            if hidden := cannot_unpack(body, coding):
                raise CassetteError(
                    f"A body compressed with {hidden} could not be searched for the key, so "
                    f"nothing was written. Install the {hidden} package, or ask for gzip."
                )
            if (inner := unpack(body, coding)) is not None and inner != body:
                redacted = self._body(inner, ())
                return body if redacted == inner else redacted
            for at, part in unpacked_parts(body):
                if not self._is_clean(part.decode("latin-1")):
                    return self._body(body[:at], ()) + PLACEHOLDER.encode()
        plain = self._keyless(body.decode("latin-1")).encode("latin-1")
        return self.__pseudonyms.body(plain) if self.__pseudonyms else plain


def _may_be_packed(body: bytes) -> bool:
    """Return whether a body is compressed, or may hold something that is."""
    return not body.isascii()


def _placeholder_like(secret: str) -> str:
    """Return the placeholder, spaced out with as many NULs as UTF-16 or UTF-32 text was."""
    nuls = len(secret) - len(secret[1:].lstrip("\0")) - 1
    return ("\0" * nuls).join(PLACEHOLDER) + "\0" * (len(secret) - len(secret.rstrip("\0")))
