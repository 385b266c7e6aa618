"""The settings of a test, from the ini file, the fixture and the markers; and its cassette's file.

The fixture ``directmail_options`` wins over the ini file, and a marker over both; of several
markers, the one nearest to the test.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from ..arguments import RECORD_MODES, REPEATS, RecordMode, Repeat, did_you_mean

if TYPE_CHECKING:
    from ..cassettes import BeforeRecord, Matcher

Node = pytest.Item | pytest.Module

OPTION: Final = "--directmail-record-mode"
WRITES_OPTION: Final = "--directmail-allow-writes"

_CHOICES: Final = {
    "record_mode": RECORD_MODES,
    "repeat": REPEATS,
    "unplayed": ("fail", "allow"),
    "on_old": ("warn", "fail"),
    "retry": (True, False),
    "allow_writes": (True, False),
}
_TEXTS: Final = ("max_age", "on_old")  # those that the ini file has
_LISTS: Final = ("match_on", "redact", "patch")
_LONGEST_NAME: Final = 120  # of a test, in its cassette's file name


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of the marker, which the fixture ``directmail_options`` may return too."""

    cassette: str | Path | None = None
    record_mode: RecordMode | None = None
    repeat: Repeat = "strict"
    redact: Iterable[str] = ()
    match_on: Sequence[str | Matcher] | None = None
    unplayed: Literal["fail", "allow"] | None = None
    max_age: str = ""
    on_old: Literal["warn", "fail"] = "warn"
    base_url: str | None = None
    retry: bool = False
    allow_writes: bool = False
    patch: bool | Sequence[str] = False
    before_record: BeforeRecord | None = None

    @property
    def is_patched(self) -> bool:
        """Whether clients that the code under test makes itself go through the session."""
        return self.patch is not False

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the settings that have a value."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


NAMES: Final = pytest.StashKey[set[tuple[Path, str]]]()
"""File and name of each test that was collected, also of those that are not run."""

DEFAULTS: Final = {field.name: field.default for field in fields(Settings)}


def words(config: pytest.Config, name: str, given: str = "") -> list[str]:
    """Return the words of an ini setting and of a text, which spaces or commas part."""
    return " ".join([given, *config.getini(name)]).replace(",", " ").split()


def settings_of(node: Node, options: Mapping[str, Any]) -> Settings:
    """Return the settings of a test or a module; ``options`` are the fixture's."""
    if "allow_writes" in options:
        only = f"only the marker and {WRITES_OPTION} do, since writes cost money"
        pytest.fail(f"The fixture directmail_options does not allow writes: {only}.", pytrace=False)
    config = node.config
    ini: dict[str, Any] = {name: config.getini(f"directmail_{name}") for name in _TEXTS}
    ini |= {name: words(config, f"directmail_{name}") for name in _LISTS}
    if (patch := ini["patch"]) in (["true"], ["false"]):
        ini["patch"] = patch == ["true"]
    ini = {name: value for name, value in ini.items() if value}
    sources = [("The ini file", ini), ("The fixture directmail_options", options)]
    for marker in reversed(list(node.iter_markers("directmail"))):
        by_place = dict.fromkeys(map(repr, marker.args))  # no setting has such a name
        sources.append((f"{node.nodeid}: the marker directmail", {**by_place, **marker.kwargs}))
    merged: dict[str, Any] = {}
    for source, given in sources:
        for name, value in given.items():
            _check(source, name, value)
        merged.update(given)
    return Settings(**merged)


def _check(source: str, name: str, value: Any) -> None:
    """Fail the test if a setting has a wrong name or value."""
    allowed = _CHOICES.get(name, (value,))
    if name not in DEFAULTS:
        advice = did_you_mean(name, DEFAULTS) or f"There are {', '.join(DEFAULTS)}."
        pytest.fail(f"{source} has no setting {name}. {advice.rstrip()}", pytrace=False)
    if name == "patch" and not (isinstance(value, bool) or _is_list_of_text(value)):
        pytest.fail(f"{source}: patch is True, or a list of hosts to pass through.", pytrace=False)
    if value is not None and value not in allowed:
        problem = f"{name} is one of {', '.join(map(str, allowed))}"
        pytest.fail(f"{source}: {problem}.", pytrace=False)


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


# -- which cassette ----------------------------------------------------------------------------


def cassette_folder(node: Node) -> Path:
    """Return the folder of the cassettes of a test's file."""
    return node.path.parent / str(node.config.getini("directmail_cassettes"))


def cassette_path(node: Node, settings: Settings) -> Path:
    """Return the file of the cassette of a test, or of a module."""
    cassette, folder = settings.cassette, cassette_folder(node)
    if isinstance(cassette, Path):
        from ..cassettes.library import file_of

        return file_of(node.path.parent / cassette)
    if cassette is not None:
        from ..cassettes import find_cassette
        from ..errors import NotRecordedError

        with suppress(NotRecordedError):  # what `replay(name)` would find
            return find_cassette(cassette, [folder])
        return folder / f"{cassette.removesuffix('.yaml')}.yaml"
    own = folder / node.path.stem
    return own / "directmail_session.yaml" if isinstance(node, pytest.Module) else _own(node, own)


def own_name(node: pytest.Item) -> str:
    """Return a test's name with those of its classes."""
    test_class = getattr(node, "cls", None)
    return node.name if test_class is None else f"{test_class.__qualname__}.{node.name}"


def _own(node: pytest.Item, folder: Path) -> Path:
    """Return a test's own file, ``Class.test[parameters].yaml``; pytest-recording's if it is there.

    Neither has characters that no path can have. Theirs may be the own file of another test.
    """
    name, by_vcr, test_class = own_name(node), node.name, getattr(node, "cls", None)
    if test_class is not None:
        by_vcr = f"{test_class.__name__}.{by_vcr}"
    safe = re.sub(r"[^\w.\-\[\]]", "-", name).encode()[:_LONGEST_NAME].decode("utf-8", "ignore")
    if safe != name:
        from hashlib import sha256

        # Two names may become the same one here, so a hash of the original is added.
        safe += f"-{sha256(name.encode()).hexdigest()[:8]}"
    path = folder / f"{safe}.yaml"
    by_vcr = re.sub(r"[<>?%*:|\"'/\\]", "-", by_vcr)
    if path.exists() or (node.path, by_vcr) in node.config.stash[NAMES]:
        return path
    theirs = folder / f"{by_vcr}.yaml"
    # The name may be too long: then `Path.exists` would raise an error.
    return theirs if os.path.exists(theirs) else path  # noqa: PTH110


def relative(path: Path, config: pytest.Config) -> str:
    """Return a path as from the folder that pytest was started in."""
    start = config.invocation_params.dir
    return str(path.relative_to(start) if path.is_relative_to(start) else path)


def command_to_record(node: Node, mode: str) -> str:
    """Return the command that records the cassette of a test or a module."""
    _, colons, test = node.nodeid.partition("::")
    return f"pytest {shlex.quote(relative(node.path, node.config) + colons + test)} {OPTION}={mode}"
