"""The shapes of JSON values and of responses: types, fields and counts, but no values."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from ..bodies import decoded_headers, read_json_body
from ..interaction import Headers, header

if TYPE_CHECKING:
    from ..readings.reading import Reading


@dataclass(slots=True)
class Mergeable:
    """Counts that can be added up, in any order and grouping. Subclasses are dataclasses.

    Their fields may be numbers, dictionaries (also nested), `Mergeable` objects or None. Of two
    tuples the lesser is kept.
    """

    def merge(self, other: Self) -> None:
        """Add the counts of another one, which stays as it is."""
        for name in (each.name for each in fields(self)):
            setattr(self, name, _merged(getattr(self, name), getattr(other, name)))


def _merged(total: Any, part: Any) -> Any:
    if part is None:
        return total
    if isinstance(part, tuple):
        return min(part, total or part)
    total = type(part)() if total is None else total
    if isinstance(part, dict):
        for name, value in part.items():
            total[name] = _merged(total.get(name), value)
    elif isinstance(part, Mergeable):
        total.merge(part)
    else:
        total += part
    return total


# -- JSON values -------------------------------------------------------------------------------

ANY_NAME: Final = "{id}"
"""Stands for the names of fields that are values themselves, such as ids or e-mail addresses."""

_DEEPEST: Final = 30
_MOST_NAMES: Final = 200
_STATE_FIELDS: Final = frozenset({"state", "status"})
_WORD: Final = re.compile(r"[^\W\d]{1,40}")
_FORMATS: Final = {
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.I),
    "email": re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+"),
    "uri": re.compile(r"https?://[!-~]+"),
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I),
}
_TYPES: Final = {
    type(None): "null", bool: "boolean", str: "string", dict: "object", list: "array",
    int: "integer",
}  # fmt: skip
# Numbers, hex digits, UUIDs, texts with an "@" or a space, such as a person's name, telephone
# numbers, and redaction's "<…>".
_VALUE_AS_NAME: Final = re.compile(
    r"\d+|[0-9a-f-]{16,}|[^@\s]*[@\s].*|\+?[\d()/.-]{6,}|<.*>", re.IGNORECASE | re.DOTALL
)


def type_of(value: object) -> str:
    """Return JSON Schema's name for a value's type."""
    return _TYPES.get(type(value), "number")


def format_of(text: str) -> str | None:
    """Return JSON Schema's name for the format of a text, or None."""
    name = next((name for name, pattern in _FORMATS.items() if pattern.fullmatch(text)), None)
    if name in ("date", "date-time"):
        try:
            datetime.fromisoformat(text)
        except ValueError:  # the 30th of February
            return None
    return name


def is_value(name: str) -> bool:
    """Return whether the name of a field or parameter is itself a value, such as an id."""
    return name == ANY_NAME or _VALUE_AS_NAME.fullmatch(name) is not None


@dataclass(slots=True)
class Shape(Mergeable):
    """What JSON values have in common: their types and fields, and how often each was seen.

    It keeps no values, except single words in fields named ``state`` or ``status``.

    Attributes
    ----------
    types, formats
        How often each of JSON Schema's types and formats was seen.
    states
        The words of a field named ``state`` or ``status``.
    items
        The shape of the elements of arrays, or None.
    properties
        The shapes of the fields of objects, by name; those whose name `is_value` by ``ANY_NAME``,
        as all after the first 200. Nothing is kept deeper than 30.
    """

    types: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    items: Shape | None = None
    properties: dict[str, Shape] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        """How many values were added."""
        return self.types.total()

    def add(self, value: object, *, depth: int = 0, is_state: bool = False) -> None:
        """Add one value; the options are for values inside others."""
        self.types[type_of(value)] += 1
        if isinstance(value, str):
            if format_name := format_of(value):
                self.formats[format_name] += 1
            if is_state and _WORD.fullmatch(value):
                self.states[value] += 1
        elif isinstance(value, list) and value and depth < _DEEPEST:
            self.items = self.items or Shape()
            for element in value:
                self.items.add(element, depth=depth + 1)
        elif isinstance(value, dict) and depth < _DEEPEST:
            for name, member in value.items():
                is_new = name not in self.properties
                is_any = is_value(name) or (is_new and len(self.properties) > _MOST_NAMES)
                shape = self.properties.setdefault(ANY_NAME if is_any else name, Shape())
                shape.add(member, depth=depth + 1, is_state=name in _STATE_FIELDS)

    def _fields(self) -> Iterator[tuple[str, Shape, bool]]:
        """Yield each field: its name, its shape, and whether all objects have it.

        If three objects or more have no name in common, or there are more than 200 names, they are
        taken for values.
        """
        objects, properties = self.types["object"], self.properties
        once = all(shape.seen == 1 for shape in properties.values())
        if (once and min(objects, len(properties)) >= 3) or len(properties) > _MOST_NAMES:
            merged = Shape()
            for shape in properties.values():
                merged.merge(shape)
            properties = {ANY_NAME: merged}
        for name, shape in properties.items():
            yield name, shape, shape.seen == objects

    def all_states(self) -> set[str]:
        """Return the words of all fields named ``state`` or ``status``, at any depth."""
        inner = [*self.properties.values(), *filter(None, [self.items])]
        return {*self.states}.union(*(shape.all_states() for shape in inner))

    def schema(self, *, with_counts: bool = False) -> dict[str, Any]:
        """Return a JSON Schema that all the values match. It has no ``enum`` and no example.

        ``with_counts`` adds ``x-seen``: how often each part was seen.
        """
        types = self._type_names()
        if not types:
            return {}
        schema: dict[str, Any] = {"type": types if len(types) > 1 else types[0]}
        if len(self.formats) == 1 and self.formats.total() == self.types["string"]:
            schema["format"] = next(iter(self.formats))
        if with_counts:
            schema["x-seen"] = self.seen
        required = []
        for name, shape, is_required in self._fields():
            inner = shape.schema(with_counts=with_counts)
            if name == ANY_NAME:
                schema["additionalProperties"] = inner
                continue
            schema.setdefault("properties", {})[name] = inner
            required += [name] * is_required
        if required:
            schema["required"] = sorted(required)
        if self.items is not None:
            schema["items"] = self.items.schema(with_counts=with_counts)
        return schema

    def describe(self) -> str:
        """Return fields and types on one line: ``id string, company.city? string or null``."""
        return ", ".join(self._leaves("")) or "anything"

    def _leaves(self, path: str) -> list[str]:
        inner = []
        for name, shape, is_required in self._fields():
            optional = "" if is_required or name == ANY_NAME else "?"
            inner.append((f"{path}.{name}{optional}" if path else f"{name}{optional}", shape))
        if self.items is not None:
            inner.append((f"{path}[]", self.items))
        leaves = [leaf for path, shape in inner for leaf in shape._leaves(path)]
        return leaves or [f"{path} {' or '.join(self._type_names())}".strip()]

    def _type_names(self) -> list[str]:
        # "number" includes integers. "null" comes last: `string or null`.
        names = [name for name in self.types if name != "integer" or "number" not in self.types]
        return sorted(names, key=lambda name: (name == "null", name))


# -- responses ---------------------------------------------------------------------------------

_MOST_SHAPES: Final = 1_000
_LARGEST_BYTES: Final = 1024**2
_MOST_BODIES: Final = 50

Credentials = Literal["key", "none", "wrong", "unknown"]
"""What a request was sent with; "unknown" if it was recorded, since cassettes do not say."""


@dataclass(slots=True)
class ResponseShape(Mergeable):
    """What responses have in common.

    ``kinds`` counts ``"JSON"``, ``"no body"`` and the media types of other bodies; ``headers`` the
    names of headers, in lower case; ``body`` is the shape of the bodies that are JSON.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    headers: Counter[str] = field(default_factory=Counter)
    body: Shape = field(default_factory=Shape)

    def add(self, headers: Headers, body: bytes) -> None:
        """Add one response."""
        self.headers.update({name.lower() for name, _ in headers})
        value, problem = read_json_body(headers, body)
        if problem is None:
            self.body.add(value)
        media_type = (header(headers, "Content-Type") or "no content type").partition(";")[0]
        kind = media_type.strip()[:100] if body else "no body"
        self.kinds["JSON" if problem is None else kind] += 1


@dataclass(frozen=True, slots=True)
class ResponseSample:
    """One response: its reading, its shape and where it comes from.

    ``shape`` may be that of several responses with the same operation and status. ``source`` is a
    cassette's name, ``"rate_limits()"`` or ``"explore"``, and ``number`` the row there, from 0.
    ``base_url`` is the base address of the request, or None if it is not known.
    """

    reading: Reading
    shape: ResponseShape = field(default_factory=ResponseShape)
    source: str = ""
    number: int = 0
    base_url: str | None = None
    credentials: Credentials = "unknown"

    @property
    def operation(self) -> str:
        """Method and path, with segments that look like ids as ``{id}``."""
        return f"{self.reading.method} {self.reading.operation}"

    @property
    def may_have_key(self) -> bool:
        """Whether the session's key may have been sent: then the allowance is this account's."""
        return self.credentials in ("key", "unknown")


class ResponseShapes:
    """The shapes of a session's responses, by operation and status.

    Parameters
    ----------
    redact
        Removes the key from the text of a response, where it may be the name of a field.

    Attributes
    ----------
    explored
        Responses to the requests that `explore` sent outside the session, without its key.
    """

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self.explored: list[ResponseSample] = []
        self._redact = redact
        self._shapes: dict[tuple[object, ...], ResponseShape] = {}
        self._lock = Lock()

    def add(self, reading: Reading, headers: Any, body: bytes) -> None:
        """Add a response; ``headers`` are an httpx response's.

        Only the first fifty of each operation and status are added, up to a thousand of these, and
        no body over 1 MiB: the rest take about 1 µs.
        """
        shape = self._shapes.get(_key(reading)) or ResponseShape()
        is_full = shape.kinds.total() >= _MOST_BODIES or len(self._shapes) >= _MOST_SHAPES
        if not is_full and len(body) <= _LARGEST_BYTES:
            body = self._redact(body.decode("latin-1")).encode("latin-1")
            with self._lock:
                shape = self._shapes.setdefault(_key(reading), shape)
                shape.add(decoded_headers(headers), body)

    def samples(self, readings: Sequence[Reading], base_url: str) -> list[ResponseSample]:
        """Return the explored responses, and a sample for each of the session's readings."""
        with self._lock:
            shapes = copy.deepcopy(self._shapes)
        samples = self.explored.copy()
        for row, reading in enumerate(readings):
            credentials: Credentials = "unknown" if reading.source == "replayed" else "key"
            shape, source = shapes.get(_key(reading)) or ResponseShape(), "rate_limits()"
            samples.append(ResponseSample(reading, shape, source, row, base_url, credentials))
        return samples


def _key(reading: Reading) -> tuple[object, ...]:
    return reading.method, reading.operation, reading.status, reading.source
