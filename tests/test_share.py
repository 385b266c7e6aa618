"""Sharing: what the zip holds, what it refuses, and that a reader can run it."""

from __future__ import annotations

import json
import os
import zipfile
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from IPython.core.ultratb import VerboseTB
from nbclient import NotebookClient

from directmail_lab import Session, connect
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import DirectMailLabError
from directmail_lab.sharing import PersonalDataWarning, UnresolvedCassetteWarning, share
from directmail_lab.sharing.references import cassette_uses, code_cells, imported_packages

if TYPE_CHECKING:
    from directmail_lab.standin import StandIn

REPLAY = "import directmail_lab as dm\ndm.replay('shared-tour')\nname = dm.me()['name'].item()"


def notebook(path: str, *sources: str, outputs: list[dict[str, Any]] | None = None) -> Path:
    """A notebook of code cells; a source that begins with a space is text."""
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": source.strip()}
        if source.startswith(" ")
        else {
            "cell_type": "code",
            "metadata": {},
            "source": source,
            "outputs": outputs or [],
            "execution_count": None,
        }
        for source in sources
    ]
    file = Path(path).resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    file.write_text(json.dumps(whole), encoding="utf-8")
    return file


@pytest.fixture
def tour(service: StandIn) -> Path:
    """A cassette named shared-tour, where a notebook in this folder finds it."""
    path = Path("cassettes/shared-tour.yaml").resolve()
    with Session(service.base_url, ApiKey(service.api_key)) as session:
        session.record(path)
        session.me()
    return path


def uses(*sources: str) -> list[tuple[str | None, str]]:
    """Each cassette that cells of code name, and the call."""
    found = cassette_uses(list(enumerate(sources, start=1)))
    return [(None if use.cassette is None else str(use.cassette), use.call) for use in found]


def names_in(zipped: Path) -> list[str]:
    """The names in a zip."""
    with zipfile.ZipFile(zipped) as packed:
        return packed.namelist()


# -- which cassettes a notebook names ----------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("dm.replay('a')", [("a", "replay")]),
        ("with dm.record(\"a\", record_mode='all') as x:\n    pass", [("a", "record")]),
        ("dm.connect(cassette='a')", [("a", "connect")]),
        ("connect('https://api.test', 'key')", []),
        ("session.replay(cassette='a/b', timing=2.0)", [("a/b", "replay")]),
        ("dm.rate_limits('a'); dm.rate_limits()", [("a", "rate_limits")]),
        ("dm.rate_limits(cassette=None)", []),
        ("dm.replay(Path('../x/a.yaml'))", [("../x/a.yaml", "replay")]),
        ("NAME = 'a'\ndm.replay(NAME)", [("a", "replay")]),
        ("for n in 'ab': dm.replay(n)", [(None, "replay")]),
        ("NAME = 'a'\nNAME = 'b'\ndm.replay(NAME)", [(None, "replay")]),
        ("dm.replay(f'tour-{n}')", [(None, "replay")]),
        ("%time dm.replay('a')", [("a", "replay")]),
        ("%%capture\ndm.replay('a')", [("a", "replay")]),
        ("!ls\ndm.replay('a')", [("a", "replay")]),
        ("# dm.replay('a')\n'dm.replay(\"b\")'", []),
        ("dm.replay('a'", []),
        ("%%bash\necho dm.replay('a')", []),
    ],
)
def test_cassettes_are_read_from_code(source: str, found: list[tuple[str | None, str]]) -> None:
    """Literals and constants are names; what only running would tell is none."""
    assert uses(source) == found


def test_a_constant_is_followed_from_cell_to_cell() -> None:
    """A name that is set in the first cell is known in the last."""
    assert uses("NAME = 'a'", "dm.replay(NAME)") == [("a", "replay")]


def test_imports_are_read_without_the_standard_library() -> None:
    """Only what must be installed is left, by its top-level name."""
    cells = [(1, "import os, pandas as pd\nfrom httpx._api import get\nfrom . import x\n%pylab")]

    assert imported_packages(cells) == {"pandas", "httpx"}


def test_a_source_may_be_a_list_of_lines() -> None:
    """nbformat allows both, and counts all cells."""
    cells = [{"cell_type": "markdown", "source": []}, {"cell_type": "code", "source": ["a\n", "b"]}]

    assert code_cells({"cells": cells}) == [(2, "a\nb")]


# -- the zip -----------------------------------------------------------------------------------


def test_a_reader_unzips_and_runs_it_offline(
    tour: Path, service: StandIn, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a fresh kernel, elsewhere, with no key and no service: the answers are the recorded."""
    source = notebook("nb/one.ipynb", REPLAY, "print(name)")
    zipped = share([source], tmp_path / "tour.zip")
    service.close()
    elsewhere = tmp_path_factory.mktemp("reader")
    with zipfile.ZipFile(zipped) as packed:
        packed.extractall(elsewhere)
    folder = elsewhere / "tour" / "notebooks"
    ran = nbformat.read(folder / "one.ipynb", as_version=4)
    keyless = {k: v for k, v in os.environ.items() if not k.startswith("DIRECTMAIL_")}
    NotebookClient(ran, resources={"metadata": {"path": str(folder)}}).execute(env=keyless)

    assert ran.cells[1].outputs[0].text == "Stand-in User\n"


def test_the_zip_holds_what_a_reader_needs(tour: Path) -> None:
    """Notebook, cassette, shown pictures, README and requirements, in one folder."""
    Path("images").mkdir()
    for name in ("shown.png", "tagged.svg", "other.png", "secret.txt"):
        Path("images", name).write_bytes(b"x")
    Path("../up.png").write_bytes(b"x")
    text = " ![a](images/shown.png) <img src='images/tagged.svg'> ![b](../up.png)"
    text += " ![c](images/secret.txt) ![d](https://host.test/e.png)"
    source = notebook("one.ipynb", REPLAY, text, "import httpx")
    zipped = share(source, "out/my tour.zip")

    assert zipped == Path("out/my tour.zip")
    assert names_in(zipped) == [
        f"my tour/{name}"
        for name in (
            "README.md",
            "cassettes/shared-tour.yaml",
            "notebooks/images/shown.png",
            "notebooks/images/tagged.svg",
            "notebooks/one.ipynb",
            "requirements.txt",
        )
    ]
    with zipfile.ZipFile(zipped) as packed:
        readme = packed.read("my tour/README.md").decode()
        requirements = packed.read("my tour/requirements.txt").decode()
        assert packed.read("my tour/cassettes/shared-tour.yaml") == tour.read_bytes()
    assert 'jupyter lab "notebooks/one.ipynb"' in readme
    assert [line.partition("==")[0] for line in requirements.split()] == ["directmail-lab", "httpx"]


def test_the_same_input_gives_the_same_zip(tour: Path) -> None:
    """No time and no order of files shows in it."""
    one, two = notebook("one.ipynb", REPLAY), notebook("two.ipynb", REPLAY)
    first = share([one, two], "first/tour").read_bytes()
    os.utime(one, (0, 0))
    second = share([one, two], "second/tour.zip").read_bytes()

    assert first == second


def test_a_zip_is_replaced_whole(tour: Path) -> None:
    """Sharing again writes over the zip, and leaves nothing beside it."""
    Path("out").mkdir()
    share([notebook("one.ipynb", REPLAY)], "out/tour.zip")
    share([notebook("one.ipynb", REPLAY, "1")], "out/tour.zip")

    assert [path.name for path in Path("out").iterdir()] == ["tour.zip"]


def test_a_cassette_by_its_path_keeps_its_place(tour: Path) -> None:
    """What the code says with Path must be true in the zip too."""
    tour.rename("own.yaml")
    source = notebook("nb/one.ipynb", "dm.replay(Path('../own.yaml'))")

    assert "tour/own.yaml" in names_in(share([source], "tour.zip"))


def test_the_cassettes_nearest_the_notebook_win(tour: Path) -> None:
    """They are looked up from the notebook's folder, where its kernel will run."""
    near = Path("nb/cassettes/shared-tour.yaml")
    near.parent.mkdir(parents=True)
    near.write_bytes(tour.read_bytes() + b"# near\n")
    source = notebook("nb/one.ipynb", REPLAY)
    with zipfile.ZipFile(share([source], "tour.zip")) as packed:
        assert packed.read("tour/cassettes/shared-tour.yaml").endswith(b"# near\n")


def test_what_a_notebook_records_itself_need_not_be_there(tour: Path) -> None:
    """A recording that its own code makes is made again by the reader."""
    source = notebook("one.ipynb", "with dm.record('mine'): dm.me()", "dm.replay('mine')", REPLAY)

    assert "tour/cassettes/mine.yaml" not in names_in(share([source], "tour.zip"))


def test_a_name_that_only_running_tells_is_reported(tour: Path) -> None:
    """The warning says where, and naming the cassette by hand puts it in."""
    source = notebook("one.ipynb", "1", "dm.replay(f'shared-{x}')")
    with pytest.warns(UnresolvedCassetteWarning, match=r"one\.ipynb, cell 2: replay\(…\)"):
        zipped = share([source], "tour.zip", cassettes=["shared-tour"])

    assert "tour/cassettes/shared-tour.yaml" in names_in(zipped)


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("dm.replay('no-such')", r"'no-such' \(one\.ipynb, cell 1\)"),
        ("dm.replay('../shared-tour')", r"'\.\./shared-tour' \(one\.ipynb, cell 1\)"),
        ("dm.replay(Path('../../tour.yaml'))", "no cassette"),
    ],
)
def test_a_notebook_that_could_not_run_is_refused(tour: Path, source: str, says: str) -> None:
    """A cassette that is not there is named with the cell that replays it; no zip is made."""
    with pytest.raises(DirectMailLabError, match=says):
        share([notebook("nb/one.ipynb", source)], "tour.zip")

    assert not Path("tour.zip").exists()


def test_a_path_out_of_the_zip_is_refused(tour: Path) -> None:
    """A reader would not have it, whatever is there on this machine."""
    source = notebook("nb/one.ipynb", f"dm.replay(Path({str(tour)!r}))")

    with pytest.raises(DirectMailLabError, match="leads out of what can be shared"):
        share([source], "tour.zip")


@pytest.mark.parametrize("content", ["", "{}", "[]", "not json", '{"cells": 5}', "\ud800"])
def test_what_is_no_notebook_is_refused(content: str) -> None:
    """The message names the file."""
    Path("one.ipynb").write_bytes(content.encode("utf-8", "surrogatepass"))

    with pytest.raises(DirectMailLabError, match=r"one\.ipynb is not a notebook"):
        share(["one.ipynb"], "tour.zip")


def test_a_missing_notebook_and_none_at_all_are_refused() -> None:
    """Each with its own message."""
    with pytest.raises(DirectMailLabError, match=r"no\.ipynb cannot be read"):
        share(["no.ipynb"], "tour.zip")
    with pytest.raises(DirectMailLabError, match="No notebook to share"):
        share([], "tour.zip")


def test_two_files_for_one_place_are_refused(tour: Path) -> None:
    """Neither would be the right one for both notebooks."""
    one, two = notebook("a/one.ipynb", "1"), notebook("b/one.ipynb", "2")

    with pytest.raises(DirectMailLabError, match=r"Two files would be notebooks/one\.ipynb"):
        share([one, two], "tour.zip")


KEY = "sk_live_4f9d2c7be81a4d0f93"
OUTPUT = {"output_type": "stream", "name": "stdout", "text": [f"signed in with {KEY}\n"]}


def test_a_secret_in_source_output_or_cassette_refuses_the_zip(tour: Path) -> None:
    """The message says where each is, and not what it is; the zip of before stays."""
    source = notebook("one.ipynb", REPLAY, f"dm.connect(api_key='{KEY}')")
    printed = notebook("two.ipynb", "1", outputs=[OUTPUT])
    tour.write_text(tour.read_text(encoding="utf-8").replace("Stand-in User", KEY))
    Path("tour.zip").write_bytes(b"the old one")
    with pytest.raises(DirectMailLabError, match="Nothing was written") as caught:
        share([source, printed], "tour.zip")

    told = str(caught.value)
    for place in (
        "one.ipynb, cell 2, source: ",
        "two.ipynb, cell 1, outputs: ",
        "shared-tour.yaml, interaction 1, response body: ",
    ):
        assert place in told
    assert KEY not in told
    assert Path("tour.zip").read_bytes() == b"the old one"


@pytest.mark.parametrize("known_by", ["argument", "environment", "session"])
def test_the_users_own_key_refuses_the_zip_whatever_its_shape(
    tour: Path, known_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that looks like any word is found where it is known, in its other forms too."""
    key = "horse-battery"
    encoded = b64encode(f"{key}:".encode()).decode()
    source = notebook("one.ipynb", REPLAY, f"headers = '{encoded}'")
    share(source, "before.zip")
    if known_by == "environment":
        monkeypatch.setenv("DIRECTMAIL_API_KEY", key)
    if known_by == "session":
        connect("https://api.test", ApiKey(key))

    with pytest.raises(DirectMailLabError, match=r"one\.ipynb, cell 2, source: your API key"):
        share(source, "tour.zip", secrets=[key] if known_by == "argument" else [])


def test_personal_data_is_told_and_shared(tour: Path) -> None:
    """It may be meant for the reader, so it is a warning that says where."""
    source = notebook("one.ipynb", REPLAY, "'write to ada@lovelace.org'")
    with pytest.warns(PersonalDataWarning, match=r"one\.ipynb, cell 2, source: an e-mail address"):
        zipped = share(source, "tour.zip")

    assert zipped.exists()


def test_no_traceback_shows_a_key_that_is_looked_for(
    tour: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IPython's verbose tracebacks print the values on each line that a failure passes."""
    monkeypatch.setenv("DIRECTMAIL_API_KEY", "horse-battery")
    connect("https://api.test", "correct-horse")
    source = notebook("one.ipynb", REPLAY)
    tour.unlink()
    tour.mkdir()
    with pytest.raises(DirectMailLabError) as caught:
        share(source, "tour.zip", secrets=["staple-horse"])
    # Without this test's own frame, whose line has the key in it.
    shown = VerboseTB().text(caught.type, caught.value, caught.tb.tb_next)

    assert "_audited" in shown
    assert "horse" not in shown
