"""The settings of a test, from the ini file, the fixture and the markers; and its cassette's file.

The fixture ``directmail_options`` overrides the ini file, and a marker overrides both. If there are
several markers, the one nearest to the test overrides the others. ``redact`` adds up: what one of
them redacts, no other one can keep.
"""

# ruff: noqa: RUF009 (a `_setting` is a field of a dataclass)

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from ..arguments import REPEATS, VCR_MODES, Like, RecordMode, Repeat, check_names, did_you_mean

if TYPE_CHECKING:
    from ..cassettes import BeforeRecord, Matcher, Matching

Node = pytest.Item | pytest.Module

OPTION = "--directmail-record-mode"
WRITES_OPTION = "--directmail-allow-writes"
_LONGEST_NAME = 120  # bytes of a test's name in the name of its cassette


def _setting(default: Any, *choices: object, ini: str = "", kind: str = "string") -> Any:
    """Return a field of `Settings`.

    If the ini file may have the setting, as ``directmail_NAME``, then ``ini`` is its help text and
    ``kind`` is pytest's name for its type.
    """
    return field(default=default, metadata={"choices": choices, "ini": ini, "kind": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a test.

    The marker takes all of them, the fixture all except ``allow_writes``, and the ini file those
    with a help text.
    """

    cassette: str | Path | None = None
    record_mode: RecordMode | None = _setting(None, None, *VCR_MODES)
    repeat: Repeat = _setting("strict", *REPEATS)
    redact: Iterable[str] = _setting(
        (), ini="headers, fields and kinds of data to redact", kind="args"
    )
    match_on: Sequence[str | Matcher] | None = _setting(
        None, ini="vcrpy's matchers, such as: method path body", kind="args"
    )
    ignore: Sequence[str] = _setting(
        (), ini="what not to compare, such as: query:key body:apikey", kind="args"
    )
    like: Like | None = _setting(
        None, None, "vcrpy", ini="vcrpy: match as it does, and play its cassettes unchanged"
    )
    unplayed: Literal["fail", "allow"] | None = _setting(None, None, "fail", "allow")
    unrecorded: Literal["fail", "allow"] = _setting("fail", "fail", "allow")
    max_age: str = _setting("", ini='how old a recording may be, such as "90 days"')
    on_old: Literal["warn", "fail"] = _setting(
        "warn", "warn", "fail", ini="what to do if a recording is older: warn or fail"
    )
    base_url: str | None = _setting(None, ini="the address if DIRECTMAIL_BASE_URL is not set")
    retry: bool = _setting(False, True, False)
    allow_writes: bool | Literal["redirected"] = _setting(False, True, False, "redirected")
    before_record: BeforeRecord | None = None

    @property
    def matching(self) -> Matching:
        """Which parts of two requests must be equal."""
        if self.match_on is None and not self.ignore:
            return _matching(self.like)
        from ..cassettes.matching import Matching

        return Matching(self.match_on, self.ignore, self.like)

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the named settings that have a value."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


@cache
def _matching(like: Like | None) -> Matching:
    from ..cassettes.matching import Matching

    return Matching(like=like)


TABLE = {each.name: each for each in fields(Settings)}

RUNNING = pytest.StashKey[pytest.Item]()
"""The test that runs, or ran last."""

_INI = pytest.StashKey[dict[str, Any]]()  # what the ini file has, read once

NAMES = pytest.StashKey[set[tuple[Path, str]]]()
"""The file and the name of each collected test, including those that are deselected."""


def words(config: pytest.Config, name: str, given: str = "") -> list[str]:
    """Return the words of an ini setting and of ``given``, separated by spaces or commas."""
    return " ".join([given, *config.getini(name)]).replace(",", " ").split()


def settings_of(node: Node, options: Mapping[str, Any]) -> Settings:
    """Return the settings of a test or a module; ``options`` are the fixture's."""
    if "allow_writes" in options:
        what = "The fixture directmail_options cannot allow writes, since writes cost money."
        pytest.fail(f"{what} Use the marker or {WRITES_OPTION}.", pytrace=False)
    sources = [("The ini file", _of_ini(node.config)), ("The fixture directmail_options", options)]
    for marker in reversed(list(node.iter_markers("directmail"))):
        by_place = dict.fromkeys(map(repr, marker.args))  # `_check` refuses these as unknown names
        sources.append((f"{node.nodeid}: the marker directmail", {**by_place, **marker.kwargs}))
    merged: dict[str, Any] = {}
    redact: tuple[str, ...] = ()
    for source, given in sources:
        for name, value in given.items():
            _check(source, name, value)
        redact += check_names("redact", given.get("redact", ()))
        merged.update(given)
    return Settings(**{**merged, "redact": redact})


def _of_ini(config: pytest.Config) -> dict[str, Any]:
    """Return the settings of the ini file. The environment's address overrides the file's."""
    from ..settings import BASE_URL_VARIABLE, variable

    given = config.stash.get(_INI, {})
    if not given:
        for name, each in TABLE.items():
            if each.metadata.get("ini"):
                key = f"directmail_{name}"
                is_list = each.metadata["kind"] == "args"
                given[name] = words(config, key) if is_list else config.getini(key)
        config.stash[_INI] = given
    address = variable(BASE_URL_VARIABLE) or given["base_url"]
    return {name: value for name, value in {**given, "base_url": address}.items() if value}


def _check(source: str, name: str, value: Any) -> None:
    """Fail the test if a setting has a wrong name or value."""
    if name not in TABLE:
        advice = did_you_mean(name, TABLE) or f"The settings are {', '.join(TABLE)}."
        pytest.fail(f"{source} has no setting {name}. {advice.rstrip()}", pytrace=False)
    choices = TABLE[name].metadata.get("choices")
    if choices and value not in choices:
        named = ", ".join(str(choice) for choice in choices if choice is not None)
        pytest.fail(f"{source}: {name} must be one of {named}.", pytrace=False)


# -- which cassette ----------------------------------------------------------------------------


def cassette_folders(node: Node) -> tuple[Path, Path]:
    """Return the folder of the cassettes of a test file, and the one of all files beside it."""
    return _folders(node.path, node.config.getini("directmail_cassettes"))


@cache
def _folders(file: Path, name: str) -> tuple[Path, Path]:
    folder = file.parent / name
    return folder / file.stem, folder


def cassette_path(node: Node, cassette: str | Path | None) -> Path:
    """Return the file of a named cassette, or of the own cassette of a test or a module."""
    folders = cassette_folders(node)
    folder = folders[0]
    if isinstance(cassette, Path):
        from ..cassettes.library import file_of

        # In a folder, each test has its own file.
        folder = node.path.parent / cassette
        if not folder.is_dir():
            return file_of(folder)
    elif cassette is not None:
        from ..cassettes.library import find_cassette, new_cassette_path
        from ..errors import NotRecordedError

        with suppress(NotRecordedError):  # the same file as for `replay(name)`
            return find_cassette(cassette, folders)
        return new_cassette_path(cassette, folders[1:])
    if isinstance(node, pytest.Module):
        return _with_suffix(folder / "directmail_session")
    return _own_file(node, folder)


def own_name(node: pytest.Item, of_class: str = "__qualname__") -> str:
    """Return a test's name with the names of its classes."""
    test_class = getattr(node, "cls", None)
    return node.name if test_class is None else f"{getattr(test_class, of_class)}.{node.name}"


def _own_file(node: pytest.Item, folder: Path) -> Path:
    """Return a test's own file, ``Class.test[parameters].yaml``, or else that of pytest-recording.

    In both names, characters that a path cannot have are replaced. The file that pytest-recording
    would use is not returned if it is another test's own file.
    """
    path = _with_suffix(folder / _file_name(own_name(node)))
    return path


def _file_name(name: str) -> str:
    """Return a test's own name as that of a file, without a suffix."""
    safe = re.sub(r"[^\w.\-\[\]]", "-", name).encode()[:_LONGEST_NAME].decode("utf-8", "ignore")
    if safe != name:
        from hashlib import sha256

        # Two names may become the same here, so a hash of the original name is added.
        safe += f"-{sha256(name.encode()).hexdigest()[:8]}"
    return safe


def _with_suffix(path: Path) -> Path:
    """Return a path with ``.yaml``, or with ``.yml`` or ``.json`` if only such a file exists."""
    files = (f"{path}{suffix}" for suffix in (".yaml", ".yml", ".json"))
    return Path(next(filter(os.path.exists, files), f"{path}.yaml"))


def similar_cassette(node: Node, path: Path) -> Path | None:
    """Return a cassette in the folders beside the test that has the test's name, or None.

    Without one, it is the cassette of the test's module whose name is the nearest, and which is no
    other test's: the test may have had that name.
    """
    names = {path.stem, node.name, getattr(node, "originalname", "")}
    _, folder = cassette_folders(node)
    found = sorted([*folder.rglob("*.y*ml"), *folder.rglob("*.json")])
    beside = [each for each in found if each.parent == path.parent]
    for each in [*beside, *found]:
        if each.stem in names:
            return each
    used = {_file_name(name) for file, name in node.config.stash[NAMES] if file == node.path}
    old = {each.stem: each for each in beside}
    nearest = get_close_matches(path.stem, old.keys() - used, n=1)
    return old[nearest[0]] if nearest else None


def relative(path: Path, config: pytest.Config) -> str:
    """Return a path relative to the folder in which pytest was started, if it is inside."""
    start = config.invocation_params.dir
    return str(path.relative_to(start) if path.is_relative_to(start) else path)


def command_to_record(node: Node, mode: str) -> str:
    """Return the command that records the cassette of a test or a module."""
    from ..display import shell_word

    _, colons, test = node.nodeid.partition("::")
    return f"pytest {shell_word(relative(node.path, node.config) + colons + test)} {OPTION}={mode}"
