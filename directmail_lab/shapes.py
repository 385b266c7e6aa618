"""The shapes of JSON bodies and of answers: types, fields and counts, but no values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

from .bodies import decoded_headers, json_in
from .interaction import Headers, header

if TYPE_CHECKING:
    from .quota import Reading

# -- of any JSON ------------------------------------------------------------------------------

Path = tuple[str | None, ...]
"""The place of a value in a body: names of fields, and None for the elements of an array.

Names that are values themselves, such as ids or e-mail addresses, are replaced by ``ANY_NAME``.
"""

ANY_NAME: Final = "{id}"

_MOST_PATHS: Final = 2_000
_DEEPEST: Final = 30
_MOST_FIELDS_IN_WORDS: Final = 30
_STATE_FIELDS: Final = frozenset({"state", "status"})
_MOST_STATES: Final = 20
_WORD: Final = re.compile(r"[^\W\d]{1,40}")
# Counted beside the types: the key "string:date" counts the strings that are dates.
_FORMATS: Final = {
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.I),
    "email": re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+"),
    "uri": re.compile(r"https?://[!-~]+"),
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I),
}
_LONGEST_OF_A_FORMAT: Final = 2_000
# Numbers, hex digits, UUIDs, texts with an "@", telephone numbers, and redaction's "<…>".
_VALUE_AS_NAME: Final = re.compile(
    r"\d+|[0-9a-f-]{16,}|[^@]*@.*|\+?[\d ()/.-]{6,}|<.*>", re.IGNORECASE | re.DOTALL
)


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


def format_of(text: str) -> str | None:
    """Return JSON Schema's name for the format of a text, or None."""
    if len(text) > _LONGEST_OF_A_FORMAT:
        return None
    found = next((name for name, form in _FORMATS.items() if form.fullmatch(text)), None)
    if found in ("date", "date-time"):
        try:
            datetime.fromisoformat(text)
        except ValueError:  # the 30th of February
            return None
    return found


@dataclass(slots=True)
class Shape:
    """What JSON values had in common: their types and fields, and how often each was there.

    It keeps no values, except single words in fields named ``state`` or ``status``. Merging two
    shapes gives the shape of all their values; the order does not matter.

    Attributes
    ----------
    types
        By path, parents first: how often each of JSON Schema's types was seen there, and each
        format (``string:date``). At most the first 2,000 paths are kept, and none deeper than 30.
    states
        Up to twenty words that were values of a field named ``state`` or ``status``.
    """

    types: dict[Path, Counter[str]] = field(default_factory=dict)
    states: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, values: Iterable[object]) -> Shape:
        """Return the shape of all these values."""
        shape = cls()
        for value in values:
            shape.add(value)
        return shape

    def add(self, value: object) -> None:
        """Add one value."""
        for path, each in _walk(value):
            kind = type_of(each)
            self._count(path, {kind: 1})
            if isinstance(each, str):
                if form := format_of(each):
                    self._count(path, {f"string:{form}": 1})
                if path and path[-1] in _STATE_FIELDS and _WORD.fullmatch(each):
                    self._add_states({each})

    def merge(self, other: Shape) -> None:
        """Add all values of another shape."""
        for path, counts in other.types.items():
            self._count(path, counts)
        self._add_states(other.states)

    def _count(self, path: Path, counts: Mapping[str, int]) -> None:
        if path in self.types:
            self.types[path].update(counts)
        elif len(self.types) < _MOST_PATHS:
            self.types[path] = Counter(counts)

    def _add_states(self, words: set[str]) -> None:
        self.states = set(sorted(self.states | words)[:_MOST_STATES])

    def schema(self, *, with_counts: bool = False) -> dict[str, Any]:
        """Return a JSON Schema that all the values match. It has no ``enum`` and no example.

        ``with_counts`` adds ``x-seen``: how often each part was seen.
        """
        schemas: dict[Path, dict[str, Any]] = {(): {}}
        for path, counts in self.types.items():
            kinds = self._kinds(path)
            schema = schemas[path] = {"type": kinds if len(kinds) > 1 else kinds[0]}
            forms = [name for name in _FORMATS if counts[f"string:{name}"] == counts["string"] > 0]
            schema |= {"format": forms[0]} if forms else {}
            schema |= {"x-seen": self.seen(path)} if with_counts else {}
            if path:
                parent, name = schemas[path[:-1]], path[-1]
                if name is None:
                    parent["items"] = schema
                    continue
                if name == ANY_NAME:
                    # At the limit some paths were not kept, so other names may have other types.
                    if len(self.types) < _MOST_PATHS:
                        parent["additionalProperties"] = schema
                    continue
                parent.setdefault("properties", {})[name] = schema
                if not self.is_optional(path):
                    parent["required"] = sorted([*parent.get("required", ()), name])
        return schemas[()]

    def in_words(self) -> str:
        """Return fields and types on one line: ``id string, company.city? string or null``."""
        place = {path: number for number, path in enumerate(self.types)}
        parents = {path[:-1] for path in self.types if path}
        fields = [
            f"{self._name(path)} {' or '.join(self._kinds(path))}".strip()
            for path in sorted(
                self.types, key=lambda path: [place[path[:n]] for n in range(len(path) + 1)]
            )
            if path not in parents
        ]
        more = len(fields) - _MOST_FIELDS_IN_WORDS
        shown = ", ".join(fields[:_MOST_FIELDS_IN_WORDS]) or "anything"
        return f"{shown}, and {more} more" if more > 0 else shown

    def _kinds(self, path: Path) -> list[str]:
        counts = self.types[path]
        # "number" includes integers. "null" comes last: `string or null`.
        kinds = {each for each in counts if each != "integer" or "number" not in counts}
        return sorted({each for each in kinds if ":" not in each}, key=lambda k: (k == "null", k))

    def seen(self, path: Path = ()) -> int:
        """Return how many values were seen at a path."""
        return sum(number for kind, number in self.types[path].items() if ":" not in kind)

    def is_optional(self, path: Path) -> bool:
        """Return whether an object was seen without this field."""
        return self.seen(path) < self.types[path[:-1]]["object"]

    def _name(self, path: Path) -> str:
        name = ""
        for depth, key in enumerate(path, start=1):
            always = key in (None, ANY_NAME) or not self.is_optional(path[:depth])
            optional = "" if always else "?"
            name += "[]" if key is None else f"{'.' if name else ''}{key}{optional}"
        return name


def _walk(value: object) -> Iterator[tuple[Path, object]]:
    """Yield a value and all values inside it, each with its path, in order, without recursion."""
    waiting: list[tuple[Path, object]] = [((), value)]
    while waiting:
        path, each = waiting.pop()
        yield path, each
        if len(path) == _DEEPEST:
            continue
        if isinstance(each, dict):
            waiting += [((*path, name_of(name)), each[name]) for name in reversed(each)]
        elif isinstance(each, list):
            waiting += [((*path, None), inner) for inner in reversed(each)]


def name_of(name: object) -> str:
    """Return the name of a field, or ``ANY_NAME`` if it is a value, such as an id."""
    return ANY_NAME if _VALUE_AS_NAME.fullmatch(str(name)) else str(name)


# -- the shapes of answers -----------------------------------------------------------------------

_MOST_ANSWERS: Final = 1_000
_LARGEST_LIVE_BYTES: Final = 1024**2
_MOST_LIVE_BODIES: Final = 50

Credentials = Literal["key", "none", "wrong", "unknown"]
"""What a request was sent with; "unknown" if it was recorded, since cassettes do not say."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """One answer: its reading, and where it comes from.

    ``source`` is a cassette's name, ``"rate_limits()"`` or ``"explore"``, and ``number`` the row
    there, from 0. ``base_url`` is the base address of the request, or None if it is not known.
    """

    reading: Reading
    source: str = ""
    number: int = 0
    base_url: str | None = None
    credentials: Credentials = "unknown"

    @classmethod
    def of_session(cls, reading: Reading, row: int = 0, base_url: str | None = None) -> Sighting:
        """Return the sighting of one row of `rate_limits`; a replay's credentials are unknown."""
        credentials: Credentials = "unknown" if reading.source == "replayed" else "key"
        return cls(reading, "rate_limits()", row, base_url, credentials)

    @property
    def operation(self) -> str:
        """Method and path, with segments that look like ids as ``{id}``."""
        return f"{self.reading.method} {self.reading.operation}"

    @property
    def is_the_accounts(self) -> bool:
        """Whether the session's key may have been sent: then the allowance is this account's."""
        return self.credentials in ("key", "unknown")

    @property
    def key(self) -> tuple[str, int, Credentials]:
        """The key of its shape in `AnswerShapes`."""
        return self.operation, self.reading.status, self.credentials


@dataclass(slots=True)
class AnswerShape:
    """What answers had in common.

    ``kinds`` counts ``"JSON"``, ``"no body"`` and the media types of other bodies; ``headers`` are
    the names of all headers, in lower case; ``body`` is the shape of the bodies that are JSON.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    headers: set[str] = field(default_factory=set)
    body: Shape = field(default_factory=Shape)

    def add(self, headers: Headers, body: bytes) -> None:
        """Add one answer."""
        self.headers.update(name.lower() for name, _ in headers)
        value, problem = json_in(headers, body)
        if problem is None:
            self.body.add(value)
        media_type = (header(headers, "Content-Type") or "no content type").partition(";")[0]
        kind = media_type.strip()[:100] if body else "no body"
        self.kinds["JSON" if problem is None else kind] += 1

    def merge(self, other: AnswerShape) -> None:
        """Add all answers of another one."""
        self.kinds.update(other.kinds)
        self.headers |= other.headers
        self.body.merge(other.body)


class AnswerShapes:
    """The shapes of a session's or a cassette's answers, by operation, status and credentials.

    Parameters
    ----------
    redacted
        Removes the key from the text of a session's answers, where it may be the name of a field.

    Attributes
    ----------
    apart
        Answers to the requests that `explore` sent outside the session, without its key.
    """

    def __init__(self, redacted: Callable[[str], str] = str) -> None:
        self._redacted = redacted
        self.apart: list[Sighting] = []
        self._by_key: dict[tuple[str, int, Credentials], AnswerShape] = {}
        self._live: Counter[tuple[str, str, int, str]] = Counter()
        self._lock = Lock()

    def add(self, sighting: Sighting, headers: Headers, body: bytes) -> None:
        """Add one answer; beyond a thousand different `Sighting.key`, new ones are dropped."""
        with self._lock:
            known = self._by_key.get(sighting.key)
            if known is None and len(self._by_key) < _MOST_ANSWERS:
                known = self._by_key[sighting.key] = AnswerShape()
            if known is not None:
                known.add(headers, body)

    def add_live(self, reading: Reading, headers: Any, body: bytes) -> None:
        """Add a session's answer; ``headers`` are an httpx response's.

        Only the first fifty of a kind are added, and no body over 1 MiB: the rest take about 1 µs.
        """
        kind = (reading.method, reading.operation, reading.status, reading.source)
        if self._live[kind] < _MOST_LIVE_BODIES and len(body) <= _LARGEST_LIVE_BYTES:
            self._live[kind] += 1
            body = self._redacted(body.decode("latin-1")).encode("latin-1")
            self.add(Sighting.of_session(reading), decoded_headers(headers), body)

    def of(self, sightings: Iterable[Sighting]) -> AnswerShape:
        """Return what these answers had in common."""
        merged = AnswerShape()
        with self._lock:
            for key in dict.fromkeys(each.key for each in sightings):
                if key in self._by_key:
                    merged.merge(self._by_key[key])
        return merged

    def merge(self, other: AnswerShapes) -> None:
        """Add all answers of another one."""
        with other._lock:
            for key, shape in other._by_key.items():
                self._by_key.setdefault(key, AnswerShape()).merge(shape)
