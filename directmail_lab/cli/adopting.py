"""`cassette adopt`: what it finds in each file, and the settings with which the files replay."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from textwrap import indent
from typing import Any, Final

from ..cassettes import FileRecording, convert as files, read_cassette
from ..cassettes.files import MAX_FILE_BYTES, read_as_written
from ..cassettes.layout import read_header
from ..cassettes.matching import Matching
from ..cassettes.player import Player
from ..cassettes.recording import most_days
from ..cassettes.vcr_files import comments_in, vcr_text
from ..contract import SAFE_METHODS
from ..display import plural
from ..errors import CassetteFormatError, DirectMailLabError
from ..exchange.values import Interaction, header
from ..questions.audit import (
    BETWEEN,
    audit,
    credentials_in,
    map_files,
    parts_of_cassette,
    search_for,
    secrets_in,
)
from ..redaction import Redactor

THEIRS: Final = "of another program"
_OURS: Final = "of ours"
_NEITHER: Final = "that cannot be adopted"
OTHER: Final = "without interactions"  # a test's data, say

_OTHER_BODY: Final = re.compile(rb"\n {4}(?: {2})?(\w+_body|body_\w+):")
# By the start of their User-Agent: what vcrpy or another language's library recorded.
_UNSERVED: Final = re.compile(
    r"(?i)(?:Mozilla/5\.0 \(compatible; )?"
    r"(Tornado|PycURL|curl|Wget|grpc|Go-http-client|axios|node|Ruby|Faraday|okhttp)"
)
_FILTERED: Final = re.compile(r"filter_query_parameters[\"']?\s*[:=]\s*(\[[^\[\]]*\])")


@dataclass(frozen=True, slots=True)
class Look:
    """What was found in a file.

    Attributes
    ----------
    kind
        Who wrote it: us, another program, or neither; or that it is no cassette.
    problems
        Sentences about what is wrong with it.
    replays
        Whether it replays in the order of its recording, by default and with ``like="vcrpy"``.
    has_repeats
        Whether one request has several different responses.
    old_days
        Its age in days, if it is older than it may be.
    """

    path: Path
    kind: str
    problems: tuple[str, ...] = ()
    replays: tuple[bool, bool] = (False, False)
    has_repeats: bool = False
    old_days: int | None = None


def look_through(
    paths: Sequence[Path],
    max_age: str,
    *,
    write: bool,
    ignore: Collection[str],
    serializer: str | None = None,
) -> Iterator[Look]:
    """Yield what was found in each file; with ``write``, adopt them.

    ``serializer`` is the name of a suite's own: ``"module.name"``.
    """
    matching = Matching(None, ignore, "vcrpy")
    if serializer:
        serializer_named(serializer)  # raises an error before anything is changed
    look = partial(_look, max_age=max_age, write=write, matching=matching, serializer=serializer)
    yield from map_files(look, paths)


@cache
def serializer_named(name: str) -> Callable[[str], Any]:
    """Return the function ``deserialize`` of a suite's serializer.

    Raises
    ------
    DirectMailLabError
        There is none of this name in the current folder or among the installed packages.
    """
    sys.path.insert(0, str(Path.cwd()))
    try:
        function: Callable[[str], Any] = resolve_name(name).deserialize
    except (ImportError, AttributeError, ValueError) as error:
        raise DirectMailLabError(
            f"{name} is no serializer ({type(error).__name__}: {error}).",
            "Name the module or the class that has deserialize, and run the command in the folder "
            "from which it can be imported: --serializer=tests.my_serializer",
        ) from None
    finally:
        del sys.path[0]
    return function


def is_packed(path: Path) -> bool:
    """Return whether vcrpy itself does not read a file that may be a cassette: ``x.yaml.gz``."""
    is_hidden = path.name.startswith(".")
    return not is_hidden and files.unpacked(path) != path


def _look(
    path: Path, *, max_age: str, write: bool, matching: Matching, serializer: str | None
) -> Look:
    try:
        data = _data_of_theirs(path, serializer)
        if data is None:
            recording, secrets = read_cassette(path), _secrets(path)
            look = Look(path, _OURS)
        else:
            interactions, _ = read_as_written(data, path)
            recording = FileRecording(path.stem, interactions, path=path, layout="vcrpy")
            look, secrets = _replay(recording, matching), _secrets_of(recording, path)
        problems = list(look.problems)
        problems += _problems(path, secrets, look.kind, serializer, write=write)
    except (DirectMailLabError, OSError) as error:
        if _is_other(error, path):
            return Look(path, OTHER)
        return Look(path, _NEITHER, (f"cannot be adopted: {error}",))
    problems += [
        f"was recorded by {client}, whose requests do not go through the session: leave its test "
        "to vcrpy"
        for client in _unserved_clients(recording)
    ]
    dated = [each.recorded_at for each in recording if each.recorded_at]
    days = (datetime.now(UTC) - dated[0]).days if dated else 0
    is_old = days >= most_days(max_age)
    return replace(look, problems=tuple(problems), old_days=days if is_old else None)


def _is_other(error: Exception, path: Path) -> bool:
    """Return whether a file that could not be read is not even a damaged cassette."""
    is_cassette = not isinstance(error, CassetteFormatError) or error.is_cassette
    return not is_cassette and b"interactions" not in path.read_bytes()


def _data_of_theirs(path: Path, serializer: str | None) -> bytes | None:
    """Return another program's file as vcrpy's own serializer writes it; None for other files."""
    data = path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else b""
    if not data or data.isspace() or read_header(data) is not None:
        return None
    if serializer is not None:
        return vcr_text(path, serializer_named(serializer)).encode()
    if other := _OTHER_BODY.search(data):
        raise CassetteFormatError(
            f"{path} is not a cassette. It has {other[1].decode()} in the place of a body: the "
            "suite has a serializer of its own.",
            "Name it: --serializer=module.name",
        )
    return data


def _unserved_clients(recording: Iterable[Interaction]) -> list[str]:
    """Return the names of the clients that do not go through a session."""
    agents = {header(each.request.headers, "user-agent") or "" for each in recording}
    return sorted({match[1] for match in map(_UNSERVED.match, agents) if match})


def _problems(
    path: Path, secrets: dict[str, str], kind: str, serializer: str | None, *, write: bool
) -> list[str]:
    """Return sentences about a file's secrets and comments; with ``write``, adopt the file."""
    text = path.read_text("utf-8-sig", "replace") if kind == THEIRS else ""
    comments = sum(1 for _ in comments_in(text))
    is_in_address = any(where.endswith("address") for where in secrets.values())
    if write and kind == THEIRS:
        path = files.adopt(path, serializer_named(serializer) if serializer else None)
        secrets = _secrets(path)
    problems = [f"contains {what} ({where})" for what, where in secrets.items()]
    if comments:
        had, are = ("had", "were") if write else ("has", "would be")
        problems.insert(0, f"{had} {plural(comments, 'comment')}, which {are} dropped")
    if is_in_address:
        problems.append(
            "has a secret in an address: once that is redacted, vcrpy finds no response to it"
        )
    return problems


def _secrets(path: Path) -> dict[str, str]:
    """Return each kind of secret in a file, with its place."""
    found = (each for each in audit(path) if each.kind == "secret")
    return {each.what: each.where.removeprefix(f"{path}, ") for each in found}


def _secrets_of(recording: FileRecording, path: Path) -> dict[str, str]:
    """Return each kind of secret in a recording, with its place, and skip personal data."""
    search, secrets = search_for([recording.base_url]), dict[str, str]()
    places: dict[str, str] = {}  # each text once: most headers are in every interaction
    for where, content in parts_of_cassette(recording, str(path)):
        text = content if isinstance(content, str) else content.decode("utf-8", "surrogateescape")
        places[text] = where.removeprefix(f"{path}, ")
    for text, where in places.items():
        for found in secrets_in(where, text, search):
            if not secrets.get(found.what, "").endswith("address"):  # the place that matters most
                secrets[found.what] = _with_header(where, text, found.what)
    return secrets


def _with_header(where: str, headers: str, what: str) -> str:
    """Return the place of a secret; if it is in a message's headers, with the header's name."""
    if not where.endswith(" headers"):
        return where
    lines = (line for line in headers.split(BETWEEN) if what in credentials_in(line))
    name = next(lines, "").partition(":")[0]
    return f"{where.removesuffix('s')} {name}" if name else where


# -- what replays ----------------------------------------------------------------------------------


def _replay(recording: FileRecording, matching: Matching) -> Look:
    """Play a recording in its order, by default and with the proposed settings."""
    request = Redactor().request  # a replay compares redacted requests
    redacted = [replace(each, request=request(each.request)) for each in recording]
    compared = replace(recording, interactions=redacted)
    replays = _replays(compared, Matching()), _replays(compared, matching)
    problems = [] if all(replays) else ["does not replay in the order of its recording"]
    for number in range(1, len(recording) + 1):
        recording.decoded(number)  # raises an error for a body that cannot be decoded
    responses: dict[object, set[object]] = defaultdict(set)
    for each in recording:
        responses[_request_of(each)].add((each.response.status, each.response.body))
    has_repeats = any(len(several) > 1 for several in responses.values())
    assert recording.path is not None
    return Look(recording.path, THEIRS, tuple(problems), replays, has_repeats)


def _replays(recording: FileRecording, matching: Matching) -> bool:
    player = Player(recording, matching, base_url="", redactor=Redactor())
    for index, each in enumerate(recording):
        attempts, _ = player.find(each.request)
        if attempts is None or attempts.start != index:
            return False
        player.played[index] = 1
    return True


def _request_of(interaction: Interaction) -> object:
    request = interaction.request
    return request.method, request.uri, None if request.method in SAFE_METHODS else request.body


# -- the settings ----------------------------------------------------------------------------------


def filtered_parameters(folder: Path) -> list[str]:
    """Return the query parameters that a ``conftest.py`` lets vcrpy filter, for ``ignore``.

    vcrpy removes these parameters from its recordings, so the requests of a test differ in them.
    """
    names: dict[str, None] = {}
    for parent in folder.resolve().parents[:3]:
        with suppress(OSError, ValueError):
            for given in _FILTERED.findall((parent / "conftest.py").read_text("utf-8")):
                for each in ast.literal_eval(given):
                    names[f"query:{each if isinstance(each, str) else each[0]}"] = None
    return list(names)


def settings(
    folder: Path, looks: Collection[Look], ignore: Collection[str], max_age: str
) -> Iterator[str]:
    """Yield how old the cassettes are, how those of each folder replay, and the settings for it."""
    by_fixture: dict[str, dict[Path, list[Look]]] = defaultdict(lambda: defaultdict(list))
    for look in looks:
        if look.kind == THEIRS:
            fixture, place = _place(look.path, folder)
            by_fixture[fixture][place].append(look)
    if old := [look for look in looks if look.old_days is not None]:
        oldest = max(old, key=lambda look: look.old_days or 0)
        yield (
            f"{plural(len(old), 'file')} of {len(looks)} are older than {max_age}. The oldest is "
            f"{oldest.path}, of {oldest.old_days:,} days."
        )
    for fixture, places in by_fixture.items():
        for place, found in places.items():
            yield from _counts(place, found)
        yield f"Put this into conftest.py:\n\n{_conftest(fixture, ignore)}"


def _counts(place: Path, looks: list[Look]) -> Iterator[str]:
    by_default, like_vcrpy = (sum(look.replays[which] for look in looks) for which in (0, 1))
    yield (
        f"{place}: {by_default} of {plural(len(looks), 'cassette')} replay in the order of their "
        f'recording by default, {like_vcrpy} with like="vcrpy".'
    )
    if repeats := [look.path for look in looks if look.has_repeats]:
        yield (
            f"In {len(repeats)}, one request has several different responses, which are played in "
            f"their order. The first is {repeats[0]}."
        )


def _place(path: Path, folder: Path) -> tuple[str, Path]:
    """Return the setting that says where a cassette is, and the folder that it is for.

    There is none for the default, ``cassettes/<module>/`` next to the module.
    """
    parent = path.parent
    if (parent.parent.parent / f"{parent.name}.py").is_file():
        name = parent.parent.name
        ini = f"# In the ini file: directmail_cassettes = {name}\n"
        return "" if name == "cassettes" else ini, parent.parent
    if any(parent.parent.glob("test_*.py")):
        return _fixture(f'request.path.parent / "{parent.name}"'), parent
    return _fixture("...  # the path of the cassette of request.node"), folder


def _fixture(returned: str) -> str:
    return f"@pytest.fixture\ndef directmail_cassette(request):\n    return {returned}\n"


def _conftest(fixture: str, ignore: Collection[str]) -> str:
    options = {"patch": True, "like": "vcrpy"} | ({"ignore": [*ignore]} if ignore else {})
    shown = repr(options).replace("'", '"')
    parts = [
        "import pytest\n",
        "@pytest.fixture(autouse=True)\ndef recorded(request):\n"
        '    """Each test that is marked vcr replays its own cassette."""\n'
        '    if request.node.get_closest_marker("vcr"):\n'
        '        request.getfixturevalue("directmail")\n',
        f'@pytest.fixture(scope="session")\ndef directmail_options():\n    return {shown}\n',
        *([fixture] if fixture else []),
    ]
    return indent("\n\n".join(parts), "    ")
