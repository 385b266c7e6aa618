"""How cassettes are found, and what happens if a file is not a cassette."""

from __future__ import annotations

import os
import re
from pathlib import Path
from unittest import mock

import pytest
from cassette_samples import BASE_URL, answered, get, har, opened, paths_in, recorded, theirs
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from directmail_lab.cassettes import (
    Cassette,
    cassettes_by_name,
    find_cassette,
    new_cassette_path,
    read_cassette,
    shown_path,
)
from directmail_lab.cassettes.convert import convert
from directmail_lab.cassettes.library import command_name
from directmail_lab.errors import CassetteError, CassetteFormatError, CassetteNotFoundError
from directmail_lab.questions.sources import recording_of
from directmail_lab.sessions.session import Session


def write(path: Path) -> Path:
    return recorded(path, answered())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, two levels below a folder that has a cassette `tour`."""
    write(tmp_path / "cassettes" / "tour.yaml")
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


NOWHERE = pytest.raises(CassetteNotFoundError)


def test_a_bare_name_is_found_in_the_nearest_folder_upward(tmp_path, here):
    package = here.parent / "cassettes"
    package.mkdir()
    (package / "__init__.py").touch()
    outer = tmp_path / "cassettes" / "tour.yaml"

    assert find_cassette("tour") == find_cassette("tour.yaml") == outer
    inner = write(here / "cassettes" / "tour.yaml")
    assert find_cassette("tour") == inner


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git", "notebooks"])
def test_no_cassette_is_looked_for_above_the_projects_root(tmp_path, here, monkeypatch, mark):
    """Neither reads nor writes leave the project. Without a root, only this folder counts."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for _ in range(2):
        with NOWHERE:
            find_cassette("tour")
        assert new_cassette_path("tour") == here / "cassettes" / "tour.yaml"
        (here.parent / mark).mkdir(exist_ok=True)
    inner = write(here.parent / "cassettes" / "tour.yaml")
    assert find_cassette("tour") == inner


def test_no_cassette_is_looked_for_above_home(here, monkeypatch):
    """A root above the home folder does not belong to this user."""
    monkeypatch.setattr(Path, "home", lambda: here.parent)
    with NOWHERE:
        find_cassette("tour")


@pytest.mark.posix("permissions of folders")
def test_packaged_cassettes_are_found_below_a_closed_folder(here, monkeypatch):
    """Such as with `sudo -u` in the home folder of root."""
    write(here / "cassettes" / "tour.yaml")
    here.parent.chmod(0)
    if os.getuid() == 0:  # who may look into any folder
        os.seteuid(12345)
    try:
        with NOWHERE:
            find_cassette("tour")
        with pytest.raises(CassetteError, match=r"(?s)Cannot record in .*Set DIRECTMAIL_CASSETTES"):
            Cassette("fresh", record_mode="all")
    finally:
        os.seteuid(os.getuid())
        here.parent.chmod(0o700)


def test_a_user_without_a_home_folder_finds_cassettes(here, monkeypatch):
    """Some containers run with a user id that the system does not know, and without HOME."""

    monkeypatch.setattr(Path, "home", mock.Mock(side_effect=RuntimeError("no home")))
    old = write(here / "cassettes" / "tour.yaml")

    assert find_cassette("tour") == old
    assert shown_path(old) == "cassettes/tour.yaml"
    assert shown_path(Path("/elsewhere/tour.yaml")) == "/elsewhere/tour.yaml"


@pytest.mark.parametrize("name", ["x" * 300, Path("x" * 300), Path("a/" * 3000 + "b"), Path()])
def test_a_name_that_no_file_can_have_is_a_clear_error(name):
    for mode in ("none", "all"):
        with pytest.raises(CassetteError, match=r"There is no|File name too long|Give the file"):
            Cassette(name, record_mode=mode)


def test_the_folder_in_the_environment_variable_comes_first(tmp_path, monkeypatch):
    near = write(tmp_path / "cassettes" / "near.yaml")
    write(tmp_path / "cassettes" / "tour.yaml")
    named = write(tmp_path / "elsewhere" / "tour.yaml")
    monkeypatch.setenv("DIRECTMAIL_CASSETTES", str(tmp_path / "elsewhere"))

    assert find_cassette("tour") == named
    assert find_cassette("near") == near
    assert new_cassette_path("fresh") == tmp_path / "elsewhere" / "fresh.yaml"


def test_a_path_is_the_file_itself(tmp_path):
    """The file may be anywhere. A path without a suffix gets that of a cassette."""
    path = write(tmp_path / "any" / "tour.yaml")

    assert find_cassette(path) == find_cassette(path.with_suffix("")) == path
    assert new_cassette_path(Path("here.yml")) == Path("here.yml")
    assert new_cassette_path("parts/one") == tmp_path / "cassettes" / "parts" / "one.yaml"
    for name in ("here.json", "here.HAR"):  # YAML lines in such a file would confuse other programs
        with pytest.raises(CassetteError, match="A recording is YAML"):
            new_cassette_path(Path(name))


@pytest.mark.parametrize("name", ["found/tour.har", "./found/tour.har", "../found/tour.har"])
def test_the_text_of_a_path_is_that_file(tmp_path, monkeypatch, name):
    """A replay, a question and a command find the same file; HAR replays as a cassette does."""
    interactions = read_cassette(write(tmp_path / "tour.yaml"))
    (tmp_path / "found").mkdir()
    file = har(tmp_path / "found" / "tour.har", *interactions)
    if name.startswith("../"):
        monkeypatch.chdir(file.parent)

    assert find_cassette(name).samefile(file)
    with Session(BASE_URL) as session, session.replay(name):
        assert session.get("/v1/users/me").json() == {"id": 1}
    assert len(recording_of(name)) == 1


def test_yml_and_yaml_suffixes_are_equivalent(tmp_path):
    path = write(tmp_path / "cassettes" / "tour.yml")
    for name in ("tour", "tour.yml", "tour.yaml", path, path.with_suffix(".yaml")):
        assert find_cassette(name) == new_cassette_path(name) == path
        assert Cassette(name).name == "tour"
    with opened("tour") as cassette:
        cassette.record(answered(get("/new")))

    assert paths_in(path)[-1] == "/new"
    assert cassettes_by_name()["tour"] == path
    assert list(path.parent.iterdir()) == [path]


def test_tour_yaml_is_preferred_to_tour_yml(tmp_path):
    """The other file is found by its full name."""
    paths = [tmp_path / "cassettes" / name for name in ("tour.yaml", "tour.yml")]
    yaml, yml = paths
    yml.write_bytes(write(yaml).read_bytes())
    named = cassettes_by_name()

    assert [find_cassette(name) for name in ("tour", "tour.yml")] == paths
    assert [named[name] for name in ("tour", "tour.yml")] == paths


BAD_NAMES = ["", " ", "..", "../tour", "a/../../tour", "/etc/passwd", "a\\..\\b", "a\0b", "C:tour"]


BAD_ON_WINDOWS = ["a//b", "CON", "eu/aux.v1", "why?", "tour.", "tour "]


@pytest.mark.parametrize("name", [*BAD_NAMES, *BAD_ON_WINDOWS])
def test_a_name_never_leads_out_of_its_folder_and_is_one_on_each_system(tmp_path, name):
    (tmp_path / "cassettes").mkdir()
    write(tmp_path / "tour.yaml")

    is_path = name.startswith(("../", "/"))  # which only a question or a replay takes
    for path_of in (new_cassette_path,) if is_path else (find_cassette, new_cassette_path):
        with pytest.raises(CassetteError, match="not a cassette's name"):
            path_of(name)


@pytest.mark.posix("links")
def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path):
    secret = write(tmp_path / "secret" / "tour.yaml")
    own = write(tmp_path / "cassettes" / "own.yaml")
    own.with_name("tour.yaml").symlink_to(secret)
    own.with_name("away").symlink_to(secret.parent)
    own.with_name("dangling.yaml").symlink_to(tmp_path / "nowhere.yaml")

    for name in ("tour", "away/tour", "dangling"):
        for path_of in (find_cassette, new_cassette_path):
            with pytest.raises(CassetteError, match="leads out"):
                path_of(name)
    assert "tour" not in cassettes_by_name()


def test_the_error_for_a_missing_cassette_names_own_folders_and_one_nearby(here, monkeypatch):
    """The packaged folder is of no use to a reader; the path that it names can be replayed."""
    (here / "other" / "cassettes").mkdir(parents=True)
    (here / "other" / "cassettes" / "near.yaml").touch()
    with pytest.raises(CassetteNotFoundError) as caught:
        find_cassette("near")

    assert "site-packages" not in str(caught.value)
    assert str(Path("directmail_lab")) not in caught.value.what
    assert "There is one in another folder: dm.replay('other/cassettes/near.yaml')" in str(
        caught.value
    )
    assert find_cassette("other/cassettes/near.yaml").samefile(here / "other/cassettes/near.yaml")


@pytest.mark.posix("links")
def test_a_link_in_a_folder_nearby_is_no_cassette_and_no_error(here):
    near = here / "other" / "cassettes"
    near.mkdir(parents=True)
    (near / "near.yaml").symlink_to(here / "nowhere.yaml")
    with pytest.raises(CassetteNotFoundError, match="There is no cassette 'near'"):
        find_cassette("near")


@pytest.mark.parametrize("name", ["tour", Path("cassettes/tour")])
def test_the_error_for_a_missing_cassette_names_the_searched_folders(tmp_path, name):
    """The error also says how to record it; "in .." at the end of a sentence would mislead."""
    (tmp_path / "cassettes").mkdir()
    folder = re.escape(str(tmp_path / "cassettes"))
    with pytest.raises(CassetteNotFoundError, match=rf"(?s) in {folder}\b.*record\('tour'\)"):
        Cassette(name)


def test_the_users_cassettes_are_listed_before_packaged_cassettes(tmp_path):
    """Each name is listed once, for its nearest file; packaged cassettes have no path."""
    first = write(tmp_path / "cassettes" / "a.yaml")
    second = write(tmp_path / "cassettes" / "parts" / "b.yaml")
    (tmp_path / "cassettes" / "notes.txt").touch()
    found = cassettes_by_name()

    assert list(found.items())[:2] == [("a", first), ("parts/b", second)]
    assert [shown_path(path) for path in (second, found["first-look"])] == [
        "cassettes/parts/b.yaml",
        "",
    ]


REQUEST = b"interactions:\n- request: {method: GET, uri: /, body: '', headers: {}}\n"


def aliases_in(form: str) -> bytes:
    """Return members that each contain the previous one twice: a billion of the first in all."""
    names = [f"n{number}" for number in range(30)]
    members = (form.format(f"*{name}", f"*{name}") for name in names[:-1])
    values = zip(names, ("{a: b}", *members), strict=True)
    return "".join(f"{name}: &{name} {value}\n" for name, value in values).encode()


BAD_FILES = {
    "text": b"hello",
    "no interactions": b"version: 2\n",
    "interactions are no list": b"interactions: 7\n",
    "no response": REQUEST,
    "header is a list of lists": REQUEST
    + b"  response: {status: {code: 200, message: OK}, headers: {a: [[b]]}, body: {string: ''}}\n",
    "object tag": b"interactions: !!python/object/apply:os.system ['touch owned']\n",
    "name tag": b"a: !!python/name:os.system\ninteractions: []\n",
    "own tag": b"interactions: !mine {}\n",
    "unfinished flow": b"interactions: [{\n",
    "nul": b"version: 1\ninteractions: []\n\0",
    "latin-1": b"version: 1\ninteractions: []\n# \xe9\n",
    "utf-16": "version: 1\ninteractions: []\n".encode("utf-16"),
    "json, cut": b'{"version": 1, "interactions": [',
    "json, deep": b'{"interactions": ' + b"[" * 100_000,
    "yaml, deep": b"interactions: " + b"[" * 100_000,
    "yaml, deep and whole": b"a: " + b"[" * 600 + b"]" * 600 + b"\ninteractions: []\n",
    "yaml, deep keys": b"interactions: " + b"{? " * 100_000,
    "yaml, deep block": b"- " * 100_000,
    "long line": b"version: 1 " + b"x" * 10_000_000,
    "base 60": b"interactions: 1" + b":1" * 9_999,
    "unknown alias": b"interactions: *nowhere\n",
    "itself": b"interactions: &a [*a]\n",
    "aliases of aliases": aliases_in("[{}, {}]") + b"interactions: []\n",
    "merged aliases": aliases_in("{{<<: [{}, {}]}}") + b"interactions: []\n",
    "aliases of a long text": b"a: &a " + b"x" * 100_000 + b"\nb: [" + b"*a, " * 1000 + b"]\n",
    "before version 1": b"- request: {}\n  response: {}\n",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_an_invalid_cassette_raises_a_format_error_and_runs_nothing(tmp_path, name):
    """There is no other exception and no side effect. A tag that is not safe has its line."""
    path = tmp_path / "bad.yaml"
    path.write_bytes(BAD_FILES[name])
    says = r"tag !!python/name:os\.system in line 1" if name == "name tag" else r"bad\.yaml"
    with pytest.raises(CassetteFormatError, match=says) as caught:
        list(read_cassette(path))

    assert len(str(caught.value)) < 500
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_conflict_of_a_merge_names_its_line_and_what_to_do(tmp_path, is_ours):
    """Git leaves such marks in a file that two branches changed."""
    path = (recorded if is_ours else theirs)(tmp_path / "tour.yaml", answered())
    head, line_feed, rest = path.read_text().rpartition("  response:")
    path.write_text(f"{head}<<<<<<< HEAD\n{line_feed}{rest}=======\n{rest}>>>>>>> main\n")
    line = head.count("\n") + 1
    with pytest.raises(CassetteFormatError, match=rf"line {line} on\.\n.*cassette repair tour"):
        read_cassette(path)


@pytest.mark.parametrize("module", ["_multidict", "_istr"])
def test_the_names_of_headers_that_aiohttp_recorded_as_objects_are_read(tmp_path, module):
    """Nothing of multidict is run; a conversion writes them as text."""
    path = tmp_path / "tour.yaml"
    path.write_text(
        "interactions:\n- request:\n    method: GET\n    uri: https://x.test/\n    body: null\n"
        "    headers:\n"
        f"      ? !!python/object/new:multidict.{module}.istr\n      - Accept\n      : - '*/*'\n"
        "  response: {status: {code: 204, message: ''}, headers: {}, body: {string: ''}}\n"
        "version: 1\n"
    )

    assert read_cassette(path).interaction(1).request.headers == (("Accept", "*/*"),)
    convert(path, tmp_path / "plain.yaml")
    assert deserialize((tmp_path / "plain.yaml").read_text(), yamlserializer)


@pytest.mark.parametrize("make", [recorded, theirs])
def test_a_body_under_another_key_is_an_error(tmp_path, make):
    """vcrpy raises a KeyError when it plays the response."""
    path = make(tmp_path / "tour.yaml", answered())
    path.write_text(re.sub(r'(["\s])string("?:)', r"\1base64_string\2", path.read_text()))
    with pytest.raises(CassetteFormatError, match="its body is under 'base64_string', not under"):
        read_cassette(path).interaction(1)


def test_a_short_number_in_base_60_is_read_as_vcrpy_reads_it(tmp_path):
    """Computing 800 kB of ``1:1:1…`` would take half a minute, so it is refused."""
    path = tmp_path / "tour.yaml"
    path.write_bytes(b"recording: {started_at: 12:30:45}\ninteractions: []\n")
    assert read_cassette(path).metadata == {"started_at": 45_045}


def test_a_response_without_a_body_gets_an_empty_body(tmp_path):
    """Some programs omit the body, and vcrpy replays such cassettes."""
    path = tmp_path / "tour.yaml"
    answer = b"  response: {status: {code: 204, message: ''}, headers: {}}\n"
    path.write_bytes(REQUEST + answer)

    assert read_cassette(path).interaction(1).response.body == b""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"code": 200', "{code: ["),
        ('{"code": 200', '{"code": 2000'),
        ('"method": "GET"', '"method": ""'),
        ('"https://', '"//[::1'),
        ('"2026-', '"1826-'),
        ("elapsed_s: 0.04", "elapsed_s: -4"),
        (', "X-RateLimit-Limit"', ' "X-RateLimit-Limit"'),
        (', "X-RateLimit-Limit"', ',, "X-RateLimit-Limit"'),
    ],
)
def test_a_damaged_line_is_one_error_that_names_it(tmp_path, old, new):
    """It says where and why, and quotes nothing of the file."""
    path = recorded(tmp_path / "tour.yaml", answered(get("/0")), answered(get("/1")))
    head, first, second = path.read_text().split("- recorded_at")
    path.write_text("- recorded_at".join([head, first, second.replace(old, new)]))

    with pytest.raises(CassetteFormatError, match=rf"{path}: The interaction in line 8 cannot be"):
        read_cassette(path)


@pytest.mark.posix("named pipes")
def test_an_unreadable_path_raises_a_cassette_error(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    with (tmp_path / "sparse.yaml").open("wb") as file:
        file.truncate(2**40)

    for path in (tmp_path / "pipe.yaml", tmp_path / "folder.yaml", Path(os.devnull)):
        with pytest.raises(CassetteFormatError, match="not a file"):
            read_cassette(path)
    for name in ("a" * 5000, "a\0b"):
        with pytest.raises(CassetteError):
            read_cassette(tmp_path / name)
    with pytest.raises(CassetteFormatError, match="1,099,511,627,776 bytes"):
        read_cassette(tmp_path / "sparse.yaml")
    path = write(tmp_path / "tour.yaml")
    denied = mock.Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(CassetteError, match="Permission denied"):
        read_cassette(path)


def test_a_replay_of_what_another_kernel_records_says_that_it_is_being_recorded():
    notices: list[str] = []
    with opened("tour", "all") as cassette:
        cassette.record(answered())
        Cassette("tour", notice=notices.append)

        assert notices == ["Cassette 'tour': it is being recorded: 1 interaction until now."]
    assert read_cassette(cassette.path).problem is None


def test_a_command_names_the_path_if_the_name_finds_another_file(tmp_path):
    found = recorded(Path("cassettes/tour.yaml"), answered())
    other = recorded(tmp_path / "elsewhere" / "tour.yaml", answered())

    assert command_name(found, "tour") == "tour"
    assert command_name(other, "tour") == str(other)
    assert command_name(other, "nowhere") == str(other)
