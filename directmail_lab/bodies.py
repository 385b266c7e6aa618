"""What answers hold: bodies read as JSON, strictly, and their shapes, which keep no values."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

from .interaction import Headers, header
from .redaction.unpack import unpack

if TYPE_CHECKING:
    from .quota import Reading


# -- reading -----------------------------------------------------------------------------------


def read_json(content: bytes, charset: str | None = None) -> tuple[object, str | None]:
    """Return a body's JSON and None, or None and what is wrong with it.

    It raises nothing, so that no exception that holds the body hangs behind ours.
    """
    if not content.strip():
        return None, "is empty"
    text = _decoded(content, charset)
    if text is None:
        return None, "is in no character set that it declares, nor in UTF-8"
    try:
        return _loads(text), None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        where = f"line {error.lineno}, column {error.colno}"
        return None, "is JSON cut short" if cut else f"is not JSON (from {where} on)"
    except _ConstantError:
        return None, "is not JSON (it holds NaN or Infinity, which JSON does not have)"
    except RecursionError:
        return None, "is nested deeper than can be read"


def json_in(headers: Headers, body: bytes) -> tuple[object, str | None]:
    """Return what `read_json` does of an answer's body, which may be compressed as it says."""
    try:
        content = unpack(body, header(headers, "Content-Encoding") or "")
    except ValueError as error:
        return None, f"is {error}"
    return read_json(content, charset_in(header(headers, "Content-Type") or ""))


def charset_in(content_type: str) -> str | None:
    """Return the character set that a content type declares, or None."""
    found = re.search(r"charset=\"?([\w.:-]{1,40})", content_type, re.IGNORECASE)
    return found[1] if found else None


def text_in(content: bytes, charset: str | None = None) -> str:
    """Return a body as text, what is no text in it as U+FFFD; it raises nothing."""
    text = _decoded(content, charset)
    return content.decode("utf-8", "replace") if text is None else text


def _decoded(content: bytes, charset: str | None) -> str | None:
    """Return a body as text: in UTF-8 (or UTF-16 or -32, which show), else as it declares."""
    for encoding in (json.detect_encoding(content), charset):
        try:
            return content.decode(encoding) if encoding else None
        # A service may declare any codec of Python's: "undefined" and "idna" raise a UnicodeError
        # that is no UnicodeDecodeError, "base64" a LookupError.
        except (UnicodeError, LookupError):
            continue
    return None


class _ConstantError(Exception):
    """The body holds NaN, Infinity or -Infinity."""


def _refuse_constant(_: str) -> object:
    raise _ConstantError


def _loads(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python reads no integer of more than some 4,300 digits from text; Decimal does.
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_integer)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 4000 else Decimal(digits)


# -- shapes ------------------------------------------------------------------------------------

_MOST_MEMBERS: Final = 2_000
_DEEPEST: Final = 30
_MOST_FIELDS_IN_WORDS: Final = 30
_STATE_FIELDS: Final = frozenset({"state", "status"})
_MOST_STATES: Final = 20


def type_of(value: object) -> str:
    """Return JSON Schema's name for a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    return "integer" if isinstance(value, int) else "number"


@dataclass(slots=True)
class Shape:
    """What JSON values had in common: their types and fields, and how often each was there.

    Of the values themselves it keeps nothing, but for single words in fields that are named
    ``state`` or ``status``. Two shapes merge into that of all their values, in any order.

    Attributes
    ----------
    types
        How often each of JSON Schema's types was seen.
    members
        The shapes of an object's fields; that of an array's elements under None.
    states
        Up to twenty words that a field named ``state`` or ``status`` held.
    is_whole
        False where there were more fields, or deeper ones, than are kept.
    """

    types: Counter[str] = field(default_factory=Counter)
    members: dict[str | None, Shape] = field(default_factory=dict)
    states: set[str] = field(default_factory=set)
    is_whole: bool = True
    _size: int = 0

    @classmethod
    def of(cls, values: Iterable[object]) -> Shape:
        """Return the shape of all these values."""
        shape = cls()
        for value in values:
            shape.add(value)
        return shape

    def add(self, value: object) -> None:
        """Take one more value; no recursion, however deep it is."""
        waiting: list[tuple[Shape, object, int]] = [(self, value, 0)]
        while waiting:
            shape, value, depth = waiting.pop()
            shape.types[type_of(value)] += 1
            for name, inner in _members(value):
                member = self._member(shape, name) if depth < _DEEPEST else None
                if member is None:
                    self.is_whole = False
                    continue
                if name in _STATE_FIELDS and _is_word(inner) and len(member.states) < _MOST_STATES:
                    member.states.add(str(inner))
                waiting.append((member, inner, depth + 1))

    def merge(self, other: Shape) -> None:
        """Take all that another shape was made of."""
        self.is_whole &= other.is_whole
        waiting = [(self, other)]
        while waiting:
            mine, theirs = waiting.pop()
            mine.types.update(theirs.types)
            mine.states.update(sorted(theirs.states)[: _MOST_STATES - len(mine.states)])
            for name, their_member in theirs.members.items():
                member = self._member(mine, name)
                if member is None:
                    self.is_whole = False
                else:
                    waiting.append((member, their_member))

    def _member(self, shape: Shape, name: str | None) -> Shape | None:
        """Return a member of ``shape``, a part of this one; None where there are too many."""
        member = shape.members.get(name)
        if member is None and self._size < _MOST_MEMBERS:
            self._size += 1
            member = shape.members[name] = Shape()
        return member

    def is_optional(self, name: str) -> bool:
        """Return whether an object was seen without this field."""
        return self.members[name].types.total() < self.types["object"]

    def schema(self) -> dict[str, Any]:
        """Return a JSON Schema that all the values meet."""
        kinds = self._kinds()
        schema: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
        fields = {name: shape for name, shape in self.members.items() if name is not None}
        if fields:
            schema["properties"] = {name: shape.schema() for name, shape in fields.items()}
            required = sorted(name for name in fields if not self.is_optional(name))
            schema |= {"required": required} if required else {}
        if None in self.members:
            schema["items"] = self.members[None].schema()
        return schema

    def in_words(self) -> str:
        """Return fields and types on a line: ``id string, company.city? string or null``."""
        fields = [f"{name} {kind}".strip() for name, kind in self._fields("")]
        more = len(fields) - _MOST_FIELDS_IN_WORDS
        shown = ", ".join(fields[:_MOST_FIELDS_IN_WORDS])
        return f"{shown}, and {more} more" if more > 0 else shown

    def all_states(self) -> set[str]:
        """Return the words of all fields named state or status, at any depth."""
        return self.states.union(*(member.all_states() for member in self.members.values()))

    def _kinds(self) -> list[str]:
        # An integer is a number too; null last: `string or null`.
        kinds = {kind for kind in self.types if kind != "integer" or "number" not in self.types}
        return sorted(kinds, key=lambda kind: (kind == "null", kind))

    def _fields(self, name: str) -> Iterator[tuple[str, str]]:
        if not self.members:
            yield name, " or ".join(self._kinds()) or "anything"
        for key, member in self.members.items():
            if key is None:
                yield from member._fields(f"{name}[]")
            else:
                optional = "?" if self.is_optional(key) else ""
                yield from member._fields(f"{name}.{key}{optional}" if name else key + optional)


def _members(value: object) -> Iterable[tuple[str | None, object]]:
    if isinstance(value, dict):
        return ((str(name), inner) for name, inner in value.items())
    return ((None, inner) for inner in value) if isinstance(value, list) else ()


def _is_word(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^\W\d]{1,40}", value) is not None


# -- the shapes of answers -----------------------------------------------------------------------

_MOST_ANSWERS: Final = 1_000
_LARGEST_LIVE_BYTES: Final = 1024**2
_MOST_LIVE_BODIES: Final = 50

Credentials = Literal["key", "none", "wrong", "unknown"]
"""What a request was sent with; "unknown" where it was recorded, since no cassette says."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """One answer: its reading, and where it is found.

    ``source`` and ``number`` are a cassette's name, ``"rate_limits()"`` or ``"explore"``, and the
    row there, from 0; ``base_url`` is the base address that was asked, None where it is not known.
    """

    reading: Reading
    source: str = ""
    number: int = 0
    base_url: str | None = None
    credentials: Credentials = "unknown"

    @classmethod
    def of_session(cls, reading: Reading, row: int = 0, base_url: str | None = None) -> Sighting:
        """Return a row of a session's `rate_limits`; what a replay's was sent with is not known."""
        credentials: Credentials = "unknown" if reading.source == "replayed" else "key"
        return cls(reading, "rate_limits()", row, base_url, credentials)

    @property
    def operation(self) -> str:
        """Method and path, id-like segments as ``{id}``."""
        return f"{self.reading.method} {self.reading.operation}"

    @property
    def is_the_accounts(self) -> bool:
        """Whether the session's key was sent, so that allowances are this account's."""
        return self.credentials in ("key", "unknown")

    @property
    def key(self) -> tuple[str, int, Credentials]:
        """Where its shape is found in `AnswerShapes`."""
        return self.operation, self.reading.status, self.credentials


@dataclass(slots=True)
class AnswerShape:
    """What answers had in common; two merge into one.

    ``kinds`` counts ``"JSON"``, ``"no body"`` and the media types of other bodies; ``headers`` are
    the names of all headers, in lower case; ``body`` is the shape of the bodies that are JSON.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    headers: set[str] = field(default_factory=set)
    body: Shape = field(default_factory=Shape)

    def add(self, headers: Headers, body: bytes) -> None:
        """Take one more answer."""
        self.headers.update(name.lower() for name, _ in headers)
        value, problem = json_in(headers, body)
        if problem is None:
            self.body.add(value)
        media_type = (header(headers, "Content-Type") or "no content type").partition(";")[0]
        kind = media_type.strip()[:100] if body else "no body"
        self.kinds["JSON" if problem is None else kind] += 1

    def merge(self, other: AnswerShape) -> None:
        """Take all that another one was made of."""
        self.kinds.update(other.kinds)
        self.headers |= other.headers
        self.body.merge(other.body)


class AnswerShapes:
    """The shapes of a session's or a cassette's answers, by operation, status and credentials.

    Attributes
    ----------
    apart
        Answers to what `explore` asked past the session, without its key.
    """

    def __init__(self) -> None:
        self.apart: list[Sighting] = []
        self._by_key: dict[tuple[str, int, Credentials], AnswerShape] = {}
        self._live: Counter[tuple[str, str, int, str]] = Counter()
        self._lock = Lock()

    def add(self, sighting: Sighting, headers: Headers, body: bytes) -> None:
        """Take one more answer; of very many operations, only the first thousand."""
        with self._lock:
            known = self._by_key.get(sighting.key)
            if known is None and len(self._by_key) < _MOST_ANSWERS:
                known = self._by_key[sighting.key] = AnswerShape()
            if known is not None:
                known.add(headers, body)

    def add_live(self, reading: Reading, headers: Any, body: bytes) -> None:
        """Take a session's answer, whose headers are httpx's: the first fifty of a kind.

        After those, and for a body of over 1 MB, it costs a microsecond.
        """
        kind = (reading.method, reading.operation, reading.status, reading.source)
        if self._live[kind] < _MOST_LIVE_BODIES and len(body) <= _LARGEST_LIVE_BYTES:
            self._live[kind] += 1
            self.add(Sighting.of_session(reading), tuple(headers.multi_items()), body)

    def add_apart(self, sighting: Sighting, headers: Headers, body: bytes) -> None:
        """Take an answer to what `explore` asked past the session."""
        self.apart.append(replace(sighting, source="explore", number=len(self.apart)))
        self.add(sighting, headers, body)

    def of(self, sightings: Iterable[Sighting]) -> AnswerShape:
        """Return what these answers had in common."""
        merged = AnswerShape()
        with self._lock:
            for key in dict.fromkeys(each.key for each in sightings):
                if key in self._by_key:
                    merged.merge(self._by_key[key])
        return merged

    def merge(self, other: AnswerShapes) -> None:
        """Take all that another one was made of."""
        with other._lock:
            for key, shape in other._by_key.items():
                self._by_key.setdefault(key, AnswerShape()).merge(shape)
