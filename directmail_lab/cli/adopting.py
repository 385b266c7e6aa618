"""`cassette adopt`: what it finds in each file, and the settings with which the files replay."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Final

from ..cassettes import FileRecording, convert as files, read_cassette
from ..cassettes.files import MAX_FILE_BYTES, read_as_written
from ..cassettes.layout import read_header
from ..cassettes.matching import Matching
from ..cassettes.player import Player
from ..cassettes.recording import age_problem
from ..cassettes.vcr_files import count_comments
from ..contract import SAFE_METHODS
from ..display import plural
from ..errors import CassetteFormatError, DirectMailLabError
from ..exchange.values import Interaction
from ..questions.audit import audit, map_files, parts_of_cassette, search_for, secrets_in
from ..redaction import Redactor

THEIRS: Final = "of another program"
_OURS: Final = "of ours"
_NEITHER: Final = "that cannot be adopted"

_OTHER_BODY: Final = re.compile(rb"\n {4}(?: {2})?(\w+_body|body_\w+):")
_FILTERED: Final = re.compile(r"filter_query_parameters[\"']?\s*[:=]\s*(\[[^\[\]]*\])")


@dataclass(frozen=True, slots=True)
class Look:
    """What was found in a file.

    Attributes
    ----------
    kind
        Who wrote it: us, another program, or neither.
    problems
        Sentences about what is wrong with it.
    replays
        Whether it replays in the order of its recording, by default and with ``like="vcrpy"``.
    has_repeats
        Whether one request has several different responses.
    """

    path: Path
    kind: str
    problems: tuple[str, ...] = ()
    replays: tuple[bool, bool] = (False, False)
    has_repeats: bool = False


def look_through(
    paths: Sequence[Path], max_age: str, *, write: bool, ignore: Collection[str]
) -> Iterator[Look]:
    """Yield what was found in each file; with ``write``, adopt them."""
    look = partial(_look, max_age=max_age, write=write, matching=Matching(None, ignore, "vcrpy"))
    yield from map_files(look, paths)


def _look(path: Path, *, max_age: str, write: bool, matching: Matching) -> Look:
    try:
        theirs = _read_theirs(path)
        recording = read_cassette(path) if theirs is None else theirs
        look = Look(path, _OURS) if theirs is None else _replay(theirs, matching)
        secrets = _secrets(path) if theirs is None else _secrets_of(theirs, path)
        problems = list(look.problems) + _problems(path, secrets, look.kind, write=write)
    except (DirectMailLabError, OSError) as error:
        return Look(path, _NEITHER, (f"cannot be adopted: {error}",))
    dated = [each for each in recording if each.recorded_at]
    if dated and (old := age_problem(dated, max_age)):
        problems.append(old)
    return replace(look, problems=tuple(problems))


def _read_theirs(path: Path) -> FileRecording | None:
    """Return another program's recording, unchanged; None for any other file."""
    data = path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else b""
    if not data or data.isspace() or read_header(data) is not None:
        return None
    if other := _OTHER_BODY.search(data):
        raise CassetteFormatError(
            f"{path} is not a cassette. It has {other[1].decode()} in the place of a body: the "
            "suite has a serializer of its own.",
            "Load it with that serializer, and save it with vcrpy's.",
        )
    interactions, _ = read_as_written(data, path)
    return FileRecording(path.stem, interactions, path=path, layout="vcrpy")


def _problems(path: Path, secrets: dict[str, str], kind: str, *, write: bool) -> list[str]:
    """Return sentences about a file's secrets and comments; with ``write``, adopt the file."""
    comments = count_comments(path) if kind == THEIRS else 0
    is_in_address = any(where.endswith("address") for where in secrets.values())
    if write and kind == THEIRS:
        files.adopt(path)
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
                secrets[found.what] = where
    return secrets


# -- what replays ----------------------------------------------------------------------------------


def _replay(recording: FileRecording, matching: Matching) -> Look:
    """Play a recording in its order, by default and with the proposed settings."""
    request = Redactor().request  # a replay compares redacted requests
    asked = [replace(each, request=request(each.request)) for each in recording]
    compared = replace(recording, interactions=asked)
    replays = _replays(compared, Matching()), _replays(compared, matching)
    problems = [] if all(replays) else ["does not replay in the order of its recording"]
    for number in range(1, len(recording) + 1):
        recording.answer(number)  # raises an error for a body that cannot be decoded
    responses: dict[object, set[object]] = defaultdict(set)
    for each in recording:
        responses[_request_of(each)].add((each.response.status, each.response.body))
    has_repeats = any(len(several) > 1 for several in responses.values())
    assert recording.path is not None
    return Look(recording.path, THEIRS, tuple(problems), replays, has_repeats)


def _replays(recording: FileRecording, matching: Matching) -> bool:
    player = Player(recording, matching, base_url="", redactor=Redactor())
    for index, each in enumerate(recording):
        run, _ = player.find(each.request)
        if run is None or run.start != index:
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


def settings(folder: Path, looks: Iterable[Look], ignore: Collection[str]) -> Iterator[str]:
    """Yield how the cassettes of each folder replay, and the settings for it."""
    by_fixture: dict[str, dict[Path, list[Look]]] = defaultdict(lambda: defaultdict(list))
    for look in looks:
        if look.kind == THEIRS:
            fixture, place = _place(look.path, folder)
            by_fixture[fixture][place].append(look)
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
        return _fixture("", f'Path(__file__).parent / "{parent.name}"'), parent
    return _fixture("request", "...  # the path of the cassette of request.node"), folder


def _fixture(arguments: str, returned: str) -> str:
    return f"@pytest.fixture\ndef directmail_cassette({arguments}):\n    return {returned}\n"


def _conftest(fixture: str, ignore: Collection[str]) -> str:
    options = {"patch": True, "like": "vcrpy"} | ({"ignore": [*ignore]} if ignore else {})
    shown = repr(options).replace("'", '"')
    parts = [
        "import pytest\n"
        if "Path" not in fixture
        else "from pathlib import Path\n\nimport pytest\n",
        "@pytest.fixture(autouse=True)\ndef recorded(directmail):\n"
        '    """Every test replays its own cassette."""\n',
        f'@pytest.fixture(scope="session")\ndef directmail_options():\n    return {shown}\n',
        *([fixture] if fixture else []),
    ]
    return indent("\n\n".join(parts), "    ")
