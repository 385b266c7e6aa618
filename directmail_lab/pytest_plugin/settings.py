"""The settings of a test, from the ini file, the fixture and the markers; and its cassette's file.

The fixture ``directmail_options`` wins over the ini file, and a marker over both; of several
markers, the one nearest to the test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from ..cassettes import Matcher
    from ..interaction import Interaction

Node = pytest.Item | pytest.Module

MODES: Final = ("none", "once", "new_episodes", "any", "all")
WRITES_OPTION: Final = "--directmail-allow-writes"
MARKER: Final = (
    "directmail(cassette=None, record_mode=None, repeat='strict', redact=(), match_on=None, "
    "unplayed=None, max_age=None, on_old=None, base_url=None, cassettes='cassettes', retry=False, "
    "allow_writes=False, before_record=None): how the fixture directmail records and replays"
)

_CHOICES: Final = {
    "record_mode": MODES,
    "repeat": ("strict", "last"),
    "unplayed": ("fail", "allow"),
    "on_old": ("warn", "fail"),
    "retry": (True, False),
    "allow_writes": (True, False),
}
_LONGEST_NAME: Final = 120  # of a test, in its cassette's file name


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of the marker, which the fixture ``directmail_options`` may return too."""

    cassette: str | Path | None = None
    record_mode: str | None = None
    repeat: Literal["strict", "last"] = "strict"
    redact: Iterable[str] = ()
    match_on: Sequence[str | Matcher] | None = None
    unplayed: Literal["fail", "allow"] | None = None
    max_age: str = ""
    on_old: str = "warn"
    base_url: str | None = None
    cassettes: str = "cassettes"
    retry: bool = False
    allow_writes: bool = False
    before_record: Callable[[Interaction], Interaction | None] | None = None

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the settings that have a value."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def add_ini_settings(parser: pytest.Parser) -> None:
    """Add the settings that may stand in the ini file; each but one is an argument of the marker.

    None of them allows writes, or records: both are meant each time.
    """
    parser.addini("directmail_match_on", "vcrpy's matchers, such as: method path body", "args")
    parser.addini("directmail_redact", "headers, fields and kinds of data to redact", "args")
    parser.addini("directmail_max_age", 'how old a recording may be, such as "90 days"')
    parser.addini("directmail_on_old", "what an older one does: warn or fail", default="warn")
    parser.addini("directmail_cassettes", "the folder beside each test file", default="cassettes")
    parser.addini("directmail_base_url", "the address, if DIRECTMAIL_BASE_URL is not set")


def settings_of(node: Node, options: Mapping[str, Any]) -> Settings:
    """Return the settings of a test or a module; ``options`` are the fixture's."""
    names = ("match_on", "redact", "max_age", "on_old", "cassettes")
    ini = {name: node.config.getini(f"directmail_{name}") for name in names}
    merged = {name: value for name, value in ini.items() if value}
    sources = [("The fixture directmail_options", options)]
    problem = ""
    for marker in reversed(list(node.iter_markers("directmail"))):
        sources.append(("The marker directmail", marker.kwargs))
        if marker.args:
            problem = "The marker directmail takes settings by their names alone."
    for source, given in sources:
        problem = problem or _problem(source, given)
        merged.update(given)
    if "allow_writes" in options:
        problem = f"Only the marker and {WRITES_OPTION} take allow_writes, since writes cost money."
    if problem:
        pytest.fail(f"{node.nodeid}: {problem}", pytrace=False)
    return Settings(**merged)


def _problem(source: str, given: Mapping[str, Any]) -> str:
    """Return what is wrong with the names and values that are given, or an empty text."""
    names = [field.name for field in fields(Settings)]
    for name, value in given.items():
        if name not in names:
            alike = get_close_matches(name, names, n=1)
            advice = f"Did you mean {alike[0]}?" if alike else f"There are {', '.join(names)}."
            return f"{source} has no setting {name!r}. {advice}"
        allowed = _CHOICES.get(name, (value,))
        if value is not None and value not in allowed:
            return f"{source}: {name} is one of {', '.join(map(str, allowed))}."
    return ""


# -- which cassette ----------------------------------------------------------------------------


def cassette_path(node: Node, settings: Settings) -> Path:
    """Return the file of the cassette of a test, or of a module."""
    cassette, folder = settings.cassette, node.path.parent / settings.cassettes
    if isinstance(cassette, Path):
        return node.path.parent / cassette
    if cassette is not None:
        from ..cassettes import find_cassette
        from ..errors import NotRecordedError

        with suppress(NotRecordedError):  # what `replay(name)` would find
            return find_cassette(cassette, [folder])
        return folder / f"{cassette.removesuffix('.yaml')}.yaml"
    own = folder / node.path.stem
    if isinstance(node, pytest.Module):
        return own / "directmail_session.yaml"
    path, other = own / f"{_test_name(node)}.yaml", own / _name_of_pytest_recording(node)
    return other if other.exists() and not path.exists() else path


def _name_of_pytest_recording(node: pytest.Item) -> str:
    """Return the file that pytest-recording gives a test: one whose mark was taken off keeps it."""
    test_class = getattr(node, "cls", None)
    name = f"{test_class.__name__}.{node.name}" if test_class else node.name
    return re.sub(r"[<>?%*:|\"'/\\]", "-", name) + ".yaml"


def _test_name(node: pytest.Item) -> str:
    """Return a test's name for a file: ``Class.test[parameters]``, without characters of paths."""
    test_class = getattr(node, "cls", None)
    name = f"{test_class.__qualname__}.{node.name}" if test_class else node.name
    safe = re.sub(r"[^\w.\-\[\]]", "-", name).encode()[:_LONGEST_NAME].decode("utf-8", "ignore")
    if safe == name:
        return name
    from hashlib import sha256

    # Two names may become the same one here, so a hash of the original is added.
    return f"{safe}-{sha256(name.encode()).hexdigest()[:8]}"


def relative(path: Path, config: pytest.Config) -> str:
    """Return a path as from the folder that pytest was started in."""
    start = config.invocation_params.dir
    return str(path.relative_to(start) if path.is_relative_to(start) else path)
