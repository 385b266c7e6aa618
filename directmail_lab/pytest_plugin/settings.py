"""The settings of a test, from the ini file, the fixture and the markers; and its cassette's file.

The fixture ``directmail_options`` overrides the ini file, and a marker overrides both. If there are
several markers, the one nearest to the test overrides the others. ``redact`` adds up: what one of
them redacts, no other one can keep.
"""

# ruff: noqa: RUF009 (a `_setting` is a field of a dataclass)

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from ..arguments import REPEATS, VCR_MODES, RecordMode, Repeat, check_names, did_you_mean

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
    unplayed: Literal["fail", "allow"] | None = _setting(None, None, "fail", "allow")
    max_age: str = _setting("", ini='how old a recording may be, such as "90 days"')
    on_old: Literal["warn", "fail"] = _setting(
        "warn", "warn", "fail", ini="what to do if a recording is older: warn or fail"
    )
    base_url: str | None = _setting(None, ini="the address if DIRECTMAIL_BASE_URL is not set")
    retry: bool = _setting(False, True, False)
    allow_writes: bool = _setting(False, True, False)
    patch: bool = _setting(
        False, True, False, ini="true: httpx clients of the code under test, too", kind="bool"
    )
    ignore_hosts: Sequence[str] = _setting(
        (), ini="hosts to which patched clients send as without the plugin", kind="args"
    )
    before_record: BeforeRecord | None = None

    @property
    def matching(self) -> Matching:
        """Which parts of two requests must be equal."""
        from ..cassettes.matching import Matching

        return Matching(self.match_on, self.ignore)


TABLE = {each.name: each for each in fields(Settings)}

RUNS: list[pytest.Config] = []
"""The configurations of the runs of pytest in this process, the newest last."""


def settings_of(node: Node, options: Mapping[str, Any]) -> Settings:
    """Return the settings of a test or a module; ``options`` are the fixture's."""
    if "allow_writes" in options:
        what = "The fixture directmail_options cannot allow writes, since writes cost money."
        pytest.fail(f"{what} Use the marker or {WRITES_OPTION}.", pytrace=False)
    sources = [
        ("The ini file", ini_settings(node.config)),
        ("The fixture directmail_options", options),
    ]
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


def ini_settings(config: pytest.Config) -> dict[str, Any]:
    """Return the settings of the ini file. The environment's address overrides the file's."""
    from ..settings import BASE_URL_VARIABLE, variable

    given = {}
    for name, each in TABLE.items():
        if each.metadata.get("ini"):
            value = config.getini(f"directmail_{name}")
            is_list = each.metadata["kind"] == "args"
            given[name] = " ".join(value).replace(",", " ").split() if is_list else value
    given["base_url"] = variable(BASE_URL_VARIABLE) or given["base_url"]
    return {name: value for name, value in given.items() if value}


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
    folder = node.path.parent / node.config.getini("directmail_cassettes")
    return folder / node.path.stem, folder


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
        return folder / "directmail_session.yaml"
    test_class = getattr(node, "cls", None)
    name = node.name if test_class is None else f"{test_class.__qualname__}.{node.name}"
    return folder / f"{_file_name(name)}.yaml"


def _file_name(name: str) -> str:
    """Return a test's name, ``Class.test[parameters]``, as that of a file."""
    safe = re.sub(r"[^\w.\-\[\]]", "-", name).encode()[:_LONGEST_NAME].decode("utf-8", "ignore")
    if safe != name:
        from hashlib import sha256

        # Two names may become the same here, so a hash of the original name is added.
        safe += f"-{sha256(name.encode()).hexdigest()[:8]}"
    return safe


def relative(path: Path, config: pytest.Config) -> str:
    """Return a path relative to the folder in which pytest was started, if it is inside."""
    start = config.invocation_params.dir
    return str(path.relative_to(start) if path.is_relative_to(start) else path)


def command_to_record(node: Node, mode: str) -> str:
    """Return the command that records the cassette of a test or a module."""
    from ..display import shell_word

    _, colons, test = node.nodeid.partition("::")
    return f"pytest {shell_word(relative(node.path, node.config) + colons + test)} {OPTION}={mode}"
