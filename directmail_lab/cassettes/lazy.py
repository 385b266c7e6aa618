"""The interactions of a file in the line layout, each parsed when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

from directmail_lab.errors import CassetteFormatError
from directmail_lab.interaction import Interaction

from . import layout

if TYPE_CHECKING:
    import re
    from array import array
    from collections.abc import Callable

    from directmail_lab.interaction import RecordedRequest, RecordedResponse

__all__ = ["LazyInteractions"]

_MOST_REMEMBERED: Final = 256
_LONGEST_REMEMBERED: Final = 4096


class LazyInteractions(Sequence[Interaction]):
    """The interactions of a file in the line layout; each is parsed when it is asked for."""

    def __init__(self, data: bytes, starts: array[int], name: str) -> None:
        self._data = data
        self._starts = starts
        self._name = name
        self._remembered: dict[bytes, RecordedRequest | RecordedResponse] = {}

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Interaction: ...

    @overload
    def __getitem__(self, index: slice) -> list[Interaction]: ...

    def __getitem__(self, index: int | slice) -> Interaction | list[Interaction]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        at, elapsed, request, response = self._lines(index).groups()
        return Interaction(
            self._parsed(layout.request_of, request, index),
            self._parsed(layout.response_of, response, index),
            layout.recorded_at_of(at.decode("ascii", "replace")),
            _seconds(elapsed),
        )

    def request(self, index: int) -> RecordedRequest:
        """Return one request, its response unparsed."""
        request: RecordedRequest = self._parsed(layout.request_of, self._lines(index)[3], index)
        return request

    def request_lines(self) -> Iterator[bytes]:
        """Yield the line of each request, unparsed: equal lines hold equal requests."""
        match, data = layout.INTERACTION.match, self._data
        for start in self._starts:
            found = match(data, start)
            assert found is not None, "the index was made by this pattern"
            yield found[3]

    def _lines(self, index: int) -> re.Match[bytes]:
        match = layout.INTERACTION.match(self._data, self._starts[index])
        assert match is not None, "the index was made by this pattern"
        return match

    def _parsed(self, build: Callable[[Any], Any], line: bytes, index: int) -> Any:
        """Return the value of a line; equal short ones, as a poll gives, are parsed once."""
        value = self._remembered.get(line)
        if value is None:
            value = self._parse(build, line, index)
            if len(line) <= _LONGEST_REMEMBERED:
                if len(self._remembered) >= _MOST_REMEMBERED:
                    self._remembered.clear()
                self._remembered[line] = value
        return value

    def _parse(self, build: Callable[[Any], Any], line: bytes, index: int) -> Any:
        try:
            return build(_value(line))
        except (KeyError, TypeError, AttributeError, ValueError, CassetteFormatError) as error:
            raise CassetteFormatError(
                f"Interaction {index + 1} of cassette {self._name!r} cannot be read "
                f"({type(error).__name__}). Mend that line, or record it again."
            ) from None


def _value(line: bytes) -> Any:
    try:
        return layout.read_json(line)
    except (ValueError, KeyError, TypeError):
        from .vcr_files import load_yaml

        return load_yaml(line.decode())


def _seconds(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
