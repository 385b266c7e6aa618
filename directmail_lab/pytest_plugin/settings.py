"""The settings of a test, from the ini file, the fixture and the markers; and its cassette's file.

The fixture ``directmail_options`` wins over the ini file, and a marker over both; of several
markers, the one nearest to the test.
"""

# ruff: noqa: RUF009 (a `_setting` is a field of a dataclass)

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from ..arguments import RECORD_MODES, REPEATS, Like, RecordMode, Repeat, did_you_mean

if TYPE_CHECKING:
    from ..cassettes import BeforeRecord, Matcher

Node = pytest.Item | pytest.Module

OPTION: Final = "--directmail-record-mode"
WRITES_OPTION: Final = "--directmail-allow-writes"
_LONGEST_NAME: Final = 120  # of a test, in its cassette's file name


def _setting(default: Any, *choices: object, ini: str = "", kind: str = "string") -> Any:
    """Return a line of the table below.

    ``ini`` is the help of a setting that the ini file may have as ``directmail_NAME``, and ``kind``
    what it is there, as pytest names it.
    """
    return field(default=default, metadata={"choices": choices, "ini": ini, "kind": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The table of the settings: the marker and the fixture take all; the ini file what has help.

    Neither the fixture nor the ini file allows writes; see `settings_of`.
    """

    cassette: str | Path | None = None
    record_mode: RecordMode | None = _setting(None, None, *RECORD_MODES)
    repeat: Repeat = _setting("strict", *REPEATS)
    redact: Iterable[str] = _setting((), ini="headers, fields and kinds of data", kind="args")
    match_on: Sequence[str | Matcher] | None = _setting(
        None, ini="vcrpy's matchers, such as: method path body", kind="args"
    )
    ignore: Sequence[str] = _setting(
        (), ini="what is not compared, such as: query:key body:apikey", kind="args"
    )
    like: Like | None = _setting(
        None, None, "vcrpy", ini="vcrpy: match as it does, and play its cassettes as they are"
    )
    unplayed: Literal["fail", "allow"] | None = _setting(None, None, "fail", "allow")
    max_age: str = _setting("", ini='how old a recording may be, such as "90 days"')
    on_old: Literal["warn", "fail"] = _setting(
        "warn", "warn", "fail", ini="what an older one does: warn or fail"
    )
    base_url: str | None = _setting(None, ini="the address, if DIRECTMAIL_BASE_URL is not set")
    retry: bool = _setting(False, True, False)
    allow_writes: bool = _setting(False, True, False)
    patch: bool | Sequence[str] = _setting(
        False, ini="true, or hosts that clients reach by themselves", kind="args"
    )
    before_record: BeforeRecord | None = None

    @property
    def is_patched(self) -> bool:
        """Whether clients that the code under test makes itself go through the session."""
        return self.patch is not False

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the settings that have a value."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


TABLE: Final = {each.name: each for each in fields(Settings)}

NAMES: Final = pytest.StashKey[set[tuple[Path, str]]]()
"""File and name of each test that was collected, also of those that are not run."""


def words(config: pytest.Config, name: str, given: str = "") -> list[str]:
    """Return the words of an ini setting and of a text, which spaces or commas part."""
    return " ".join([given, *config.getini(name)]).replace(",", " ").split()


def settings_of(node: Node, options: Mapping[str, Any]) -> Settings:
    """Return the settings of a test or a module; ``options`` are the fixture's."""
    if "allow_writes" in options:
        only = f"only the marker and {WRITES_OPTION} do, since writes cost money"
        pytest.fail(f"The fixture directmail_options does not allow writes: {only}.", pytrace=False)
    sources = [("The ini file", _of_ini(node.config)), ("The fixture directmail_options", options)]
    for marker in reversed(list(node.iter_markers("directmail"))):
        by_place = dict.fromkeys(map(repr, marker.args))  # no setting has such a name
        sources.append((f"{node.nodeid}: the marker directmail", {**by_place, **marker.kwargs}))
    merged: dict[str, Any] = {}
    for source, given in sources:
        for name, value in given.items():
            _check(source, name, value)
        merged.update(given)
    return Settings(**merged)


def _of_ini(config: pytest.Config) -> dict[str, Any]:
    """Return the settings that the ini file has, and the environment's address before its own."""
    from ..settings import BASE_URL_VARIABLE, variable

    given: dict[str, Any] = {}
    for name, each in TABLE.items():
        if each.metadata.get("ini"):
            is_list, key = each.metadata["kind"] == "args", f"directmail_{name}"
            given[name] = words(config, key) if is_list else config.getini(key)
    if (patch := given["patch"]) in (["true"], ["false"]):
        given["patch"] = patch == ["true"]
    given["base_url"] = variable(BASE_URL_VARIABLE) or given["base_url"]
    return {name: value for name, value in given.items() if value}


def _check(source: str, name: str, value: Any) -> None:
    """Fail the test if a setting has a wrong name or value."""
    if name not in TABLE:
        advice = did_you_mean(name, TABLE) or f"There are {', '.join(TABLE)}."
        pytest.fail(f"{source} has no setting {name}. {advice.rstrip()}", pytrace=False)
    choices = TABLE[name].metadata.get("choices")
    if name == "patch" and not (isinstance(value, bool) or _is_list_of_text(value)):
        pytest.fail(f"{source}: patch is True, or a list of hosts to pass through.", pytrace=False)
    if choices and value not in choices:
        named = ", ".join(str(choice) for choice in choices if choice is not None)
        pytest.fail(f"{source}: {name} is one of {named}.", pytrace=False)


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


# -- which cassette ----------------------------------------------------------------------------


def cassette_folder(node: Node) -> Path:
    """Return the folder of the cassettes of a test's file."""
    return node.path.parent / str(node.config.getini("directmail_cassettes"))


def cassette_path(node: Node, cassette: str | Path | None) -> Path:
    """Return the file of the cassette of a test or a module; by default, of its own one."""
    folder = cassette_folder(node)
    own = folder / node.path.stem
    if isinstance(cassette, Path):
        from ..cassettes.library import file_of

        own = node.path.parent / cassette
        if not own.is_dir():
            return file_of(own)
    elif cassette is not None:
        from ..cassettes import find_cassette
        from ..errors import NotRecordedError

        with suppress(NotRecordedError):  # what `replay(name)` would find
            return find_cassette(cassette, [folder])
        return folder / f"{re.sub(r'[.]ya?ml$', '', cassette)}.yaml"
    return (
        _there(own / "directmail_session") if isinstance(node, pytest.Module) else _own(node, own)
    )


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
    path = _there(folder / safe)
    by_vcr = re.sub(r"[<>?%*:|\"'/\\]", "-", by_vcr)
    if path.exists() or (node.path, by_vcr) in node.config.stash[NAMES]:
        return path
    theirs = _there(folder / by_vcr)
    # The name may be too long: then `Path.exists` would raise an error.
    return theirs if os.path.exists(theirs) else path  # noqa: PTH110


def _there(path: Path) -> Path:
    """Return a path with ``.yaml``, or with ``.yml`` where only that file is there."""
    yaml, yml = (path.with_name(f"{path.name}{suffix}") for suffix in (".yaml", ".yml"))
    return yml if os.path.exists(yml) and not os.path.exists(yaml) else yaml  # noqa: PTH110


def similar_cassette(node: Node, path: Path) -> Path | None:
    """Return a cassette in the folders beside the test that has the test's name, or None."""
    names = {path.stem, node.name, getattr(node, "originalname", "")}
    found = sorted(cassette_folder(node).rglob("*.y*ml"))
    return next((each for each in found if each.stem in names), None)


def relative(path: Path, config: pytest.Config) -> str:
    """Return a path as from the folder that pytest was started in."""
    start = config.invocation_params.dir
    return str(path.relative_to(start) if path.is_relative_to(start) else path)


def command_to_record(node: Node, mode: str) -> str:
    """Return the command that records the cassette of a test or a module."""
    _, colons, test = node.nodeid.partition("::")
    return f"pytest {shlex.quote(relative(node.path, node.config) + colons + test)} {OPTION}={mode}"
