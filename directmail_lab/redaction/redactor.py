"""Remove the key, other credentials, and personal data on request, from data that is written.

Everything that leaves a session for a file, a log or a message passes through a `Redactor`. It
removes the known keys (see `key`). It also removes other credentials by their names (see `names`),
and the user info of an address.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import html
import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import final

from ..credentials import Hidden, keys_version, known_keys
from ..errors import CassetteError
from ..exchange.bodies import (
    MAX_UNPACKED_BYTES,
    Table,
    TooLargeError,
    declared_charset,
    missing_body,
    table_in,
    unpack,
)
from ..exchange.values import Headers, Interaction, Request, Response, header, media_type_of
from ..tracebacks import hide_frames
from .key import REDACTED, REPLACED, KeySearch, lower_ascii
from .names import HINTS
from .personal import Pseudonyms
from .places import (
    Repetitions,
    are_other_headers,
    credentials_in,
    credentials_in_fields,
    replace_fields,
    stand_in_for,
    written_header,
)

# Hints of binary data, which may be compressed, and of UTF-16.
_OPENED_HINTS = ("!!binary", "\\u0000")
# Hints of credentials in named fields; "%" for a name that is escaped, "code=" for OAuth's.
_FIELD_HINTS = (*HINTS, "%", "code=")
# Looser than the pattern below, since the written text has escapes.
_USER_INFO_HINT = re.compile(r"://[^/?#@\s\"'<>]+@", re.ASCII)
_USER_INFO = re.compile(r"(?<=://)[^/?#@\s\"'<>\\]+(?=@)")

_MARKUP = re.compile("xml|html")
_BYTE_ORDER_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@final
class Redactor(Hidden):
    """Removes keys, credentials and chosen personal data. No repr or pickle shows its keys.

    It knows every key of this process (see `credentials.known_keys`), including those of sessions
    that are opened later. A credential in a place of its name becomes ``<REDACTED>``, even if it is
    the key, and so does the same value elsewhere from then on. Anywhere else, the key becomes
    ``<API_KEY>``.

    Parameters
    ----------
    secrets
        More keys, as they are typed.
    redact
        Names or dotted paths of fields, names of headers, and ``"personal"`` for all fields in
        `personal.PERSONAL_FIELDS` and for e-mail addresses and telephone numbers anywhere. Each
        value becomes a pseudonym; equal values become equal pseudonyms.
    """

    __slots__ = ("__keys", "__personal", "__redact", "__repetitions", "__version")

    def __init__(self, secrets: Iterable[str] = (), *, redact: Iterable[str] = ()) -> None:
        self.__keys = KeySearch(secrets)
        self.__repetitions = Repetitions()
        self.__version: object = None
        self.__redact = tuple(redact)
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
        other.__repetitions = self.__repetitions
        return other

    def learn(self, secrets: Iterable[str], *, are_shown: bool = False) -> None:
        """Remove these credentials wherever they are, from now on.

        Words and numbers are removed only if ``are_shown``: the audit names each of them.
        """
        self._learn_keys()
        found = [each for each in secrets if not self.__keys.holds(each)]
        self.__repetitions.learn(found, are_shown=are_shown)

    @property
    def learned(self) -> int:
        """How many credentials it removes wherever they are."""
        return self.__repetitions.count

    def learned_in(self, text: str, since: int) -> bool:
        """Return whether a text has a credential that was learned after ``since`` others."""
        return self.__repetitions.are_in(text, since)

    @hide_frames
    def interactions(self, interactions: Iterable[Interaction]) -> list[Interaction]:
        """Return redacted interactions: each without the credentials of all of them."""
        given = list(interactions)
        for each in given:
            self._learn_from(each.request)
            self._learn_from(each.response)
        return list(map(self.interaction, given))

    @hide_frames
    def interaction(self, interaction: Interaction) -> Interaction:
        """Return the redacted interaction, as it may be written."""
        request = interaction.request
        response = interaction.response
        self._learn_from(request)
        self._learn_from(response)
        return replace(
            interaction, request=self._request(request), response=self._response(response)
        )

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
        # Most contain nothing to remove. For those, one search of the written text is enough.
        if self._keeps_headers(interaction):
            text = text_of(interaction)
            lower = lower_ascii(text)
            if not (self._is_hinted_at(text, lower) or _needs_opening(text)):
                return text, interaction
        written = self.interaction(interaction)
        text = text_of(written)
        self.refuse_leak(text)
        return text, written

    @hide_frames
    def request(self, request: Request) -> Request:
        """Return the redacted request, as it may be written.

        If two requests differ only in a value that is replaced, they become equal.
        """
        self._learn_from(request)
        return self._request(request)

    def _request(self, request: Request) -> Request:
        texts = [request.method, request.uri]
        (method, uri), headers, body = self._message(texts, request.headers, request.body or b"")
        return Request(method, uri, headers, None if request.body is None else body)

    def _response(self, response: Response) -> Response:
        texts = [response.reason, response.error]
        (reason, error), headers, body = self._message(texts, response.headers, response.body)
        return replace(response, reason=reason, error=error, headers=headers, body=body)

    @hide_frames
    def text(self, text: str) -> str:
        """Return any redacted text, such as an excerpt, a log line or a message."""
        return self._text(text)

    @hide_frames
    def texts(self, texts: list[str]) -> list[str]:
        """Return several redacted texts; see `text`."""
        # One search of them all, since most contain nothing to remove.
        joined = "\n".join(texts)
        if self.__personal or self._is_hinted_at(joined, lower_ascii(joined)):
            return list(map(self._text, texts))
        return texts

    @hide_frames
    def refuse_leak(self, written: str) -> None:
        """Search a text once more before it is written.

        Raises
        ------
        CassetteError
            The text contains a form of a key. The message quotes nothing of the text.
        """
        self._learn_keys()
        if self.__keys.holds(written):
            raise CassetteError(
                "The text still contained the key after redaction, so nothing was written.",
                "Leave this request out of the recording, and report it.",
            )

    def _learn_keys(self) -> None:
        version = keys_version()
        if version != self.__version:
            self.__keys.learn(known_keys())
            self.__version = version  # read before the keys, so that no thread misses a new key

    def _learn_from(self, message: Request | Response) -> None:
        """Learn the credentials in the places of a message, to remove them elsewhere too."""
        uri = message.uri if isinstance(message, Request) else ""
        found = list(credentials_in(message.headers, uri))
        texts = [uri, *(value for _, value in message.headers)]
        with contextlib.suppress(ValueError):  # a body that cannot be searched is not written
            texts.append(_opened(message.body or b"", message.headers)[0])
        table = table_in(message.headers, uri, message.body or b"")
        texts += [table.json] if table else []
        for text in texts:
            if any(map(lower_ascii(text).__contains__, _FIELD_HINTS)):
                found += credentials_in_fields(text)
        self.learn(found)

    def _keeps_headers(self, interaction: Interaction) -> bool:
        names = dict(interaction.request.headers + interaction.response.headers)
        return not self.__personal and are_other_headers(frozenset(names))

    def _message(
        self, texts: list[str], headers: Headers, body: bytes
    ) -> tuple[list[str], Headers, bytes]:
        """Return the redacted texts, headers and body of a message. The headers fit the body."""
        written = self._body(body, headers) if body else body
        parts = self.texts([*texts, *chain.from_iterable(self._headers(headers))])
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
            written = written_header(name, value)
            if written is None:
                continue
            if self.__personal and written == value:
                written = value and self.__personal.field(name, value)
            kept.append((name, written))
        return tuple(kept)

    def _body(self, body: bytes, headers: Headers) -> bytes:
        """Return a redacted body. If something was removed from it, it is no longer compressed."""
        try:
            text, charset = _opened(body, headers)
        except TooLargeError:
            return missing_body(len(body))
        except ValueError:
            return missing_body(len(body), "searched")
        # UTF-16 without a declared charset.
        if "\0" in text and self.__keys.holds(text.replace("\0", "")):
            return missing_body(len(body), "searched")
        table = table_in(headers, "", body)
        redacted = self._text(self._columns(table, text) or text if table else text)
        if redacted == text:
            return body
        if _MARKUP.search(media_type_of(headers)) or text.lstrip().startswith("<"):
            redacted = REPLACED.sub(_escaped, redacted)  # there, <REDACTED> would be a tag
        return redacted.encode(charset)

    def _columns(self, table: Table, text: str) -> str:
        """Return a table in CSV without what its columns' names say; nothing if it has none."""
        end = "\r\n" if "\r\n" in text else "\n"
        cells = table.json
        redacted = self._text(cells)
        if redacted == cells:
            return ""
        written = io.StringIO()
        lines = csv.writer(written, delimiter=table.separator, lineterminator=end)
        lines.writerow(table.names)
        for row in json.loads(redacted):
            lines.writerow([value for cell in row for value in cell.values()])
        return written.getvalue()

    def _is_hinted_at(self, text: str, lower: str) -> bool:
        """Return whether anything but personal data may have to be removed from a text.

        ``lower`` is its `lower_ascii`. It may be quoted as JSON.
        """
        self._learn_keys()
        if any(map(lower.__contains__, _FIELD_HINTS)) or self.__keys.may_be_in(lower):
            return True
        if self.__repetitions.are_in(text):
            return True
        return "@" in lower and bool(_USER_INFO_HINT.search(lower))

    def _text(self, text: str) -> str:
        if self._is_hinted_at(text, lower_ascii(text)):
            text = replace_fields(text, stand_in_for)
            text = _USER_INFO.sub(REDACTED, text)
            text = self.__repetitions.removed_from(text)
            if self.__keys.holds(text):
                text = self.__keys.removed_from(text)
        return self.__personal.text(text) if self.__personal else text


def _escaped(replaced: re.Match[str]) -> str:
    return html.escape(html.unescape(replaced[0]))


def _opened(body: bytes, headers: Headers) -> tuple[str, str]:
    """Return a body decompressed as text, and the charset that encodes the text to the same body.

    Raises
    ------
    ValueError
        The body cannot be decompressed, its charset is unknown, or it is not in its charset.
    """
    plain = unpack(body, header(headers, "content-encoding"))
    declared = declared_charset(header(headers, "content-type") or "") or "utf-8"
    charsets = [_BYTE_ORDER_MARKS.get(plain[:2], declared.lower())]
    if charsets == ["utf-8"]:
        charsets.append("latin-1")
    elif b"\0" not in plain:
        charsets.insert(0, "utf-8")
    for charset in charsets:
        with contextlib.suppress(LookupError, UnicodeError):
            text = plain.decode(charset)
            if text.encode(charset) == plain:
                return text, charset
    raise ValueError("in a charset that cannot be searched")


def _needs_opening(text: str) -> bool:
    """Return whether a text has a body that must be decompressed or decoded to be searched."""
    return len(text) > MAX_UNPACKED_BYTES or any(map(text.__contains__, _OPENED_HINTS))
