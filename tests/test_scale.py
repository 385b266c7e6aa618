"""Beyond one machine: the readers are pure functions of a path, and run under Dask unchanged."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cassette_samples import answered, get, recorded

import directmail_lab as dm
from directmail_lab.server.standin import stand_in

ROOT = Path(__file__).parent.parent
CASSETTES = 200
READERS = [dm.interactions, dm.rate_limits]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    lines = (ROOT / "cassettes" / "record-and-replay.yaml").read_bytes()
    folder = tmp_path_factory.mktemp("many")
    paths = [folder / f"tour-{number:04}.yaml" for number in range(CASSETTES)]
    for path in paths:
        path.write_bytes(lines)
    return [str(path) for path in paths]


@pytest.fixture
def dask() -> None:
    """Skip a test without Dask, which takes a second to import."""
    for name in ("dask.dataframe", "distributed"):
        pytest.importorskip(name, reason="Dask is not installed (the extra `scale`)")


@pytest.mark.usefixtures("dask")
def test_the_how_to_runs(tmp_path, capsys):
    shutil.copytree(ROOT / "cassettes", tmp_path / "cassettes")
    text = (ROOT / "notebooks" / "many-recordings.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(compile(block, "many-recordings.md", "exec"), {})

    printed = capsys.readouterr().out
    assert re.search(r"/v1/users/me\s+300", printed)
    assert re.search(r"/v1/lists\s+60", printed)


IN_THE_CLUSTER = """
    statuses = cluster.run(lambda: dm.rate_limits()["status"].tolist())
    together = [dd.from_map(read, parts).compute() for read in readers]
"""


# A cluster's processes emit their own warnings when they start and stop.
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("dask")
def test_four_workers_use_one_key_and_read_many_cassettes(monkeypatch, many):
    """Few requests are refused, although the workers share one key."""
    text = (ROOT / "notebooks" / "many-recordings.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python cluster\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    with stand_in(limit=300, window_s=4.0, limits={}) as service:
        monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
        monkeypatch.setenv("DIRECTMAIL_API_KEY", service.api_key)
        given: dict[str, Any] = {
            "__name__": "__main__",
            "paths": [f"/v1/letters/{n}" for n in range(700)],
            "dd": pytest.importorskip("dask.dataframe"),
            "parts": [many[start : start + 20] for start in range(0, len(many), 20)],
            "readers": READERS,
        }
        exec(compile(block + IN_THE_CLUSTER, "many-recordings.md", "exec"), given)

    statuses: Counter[int] = Counter()
    for each in given["statuses"].values():
        statuses.update(each)
    assert len(given["responses"]) == len(given["paths"])
    assert statuses.total() - statuses[429] == len(given["paths"])
    assert statuses[429] <= 50
    for read, frame in zip(READERS, given["together"], strict=True):
        together = frame.reset_index(drop=True)
        pd.testing.assert_frame_equal(together, read(many).reset_index(drop=True))
        assert together["recording"].nunique() == CASSETTES


@pytest.mark.parametrize("read", READERS)
def test_a_folder_is_read_into_one_frame(read, tmp_path):
    exchanges = answered(get("/1")), answered(get("/2"))
    one, two = (recorded(tmp_path / name, *exchanges) for name in ("one.yaml", "parts/two.yaml"))
    frame, given = read(tmp_path), read(iter([one, str(two)]))

    assert frame["recording"].tolist() == ["one"] * 2 + ["parts/two"] * 2
    assert frame.index.tolist() == given.index.tolist() == [1, 2, 1, 2]
    assert given["recording"].unique().tolist() == ["one", "two"]
    assert frame["path"][2:].tolist() == read(two)["path"].tolist()


@pytest.mark.parametrize("read", READERS)
def test_a_damaged_cassette_among_many_is_named(read, tmp_path):
    whole = recorded(tmp_path / "whole.yaml", answered(get("/1")), answered(get("/2")))
    text = whole.read_text()
    (tmp_path / "odd.yaml").write_text(text.replace('{"code": 200', "{code: ["))
    with pytest.warns(UserWarning, match="1 of 2 cassettes could not be read.*: odd"):
        assert read(tmp_path)["recording"].unique().tolist() == ["whole"]
    for source in ([whole, tmp_path / "odd.yaml"], tmp_path / "odd.yaml"):
        with pytest.raises(dm.errors.CassetteError, match=r"odd\.yaml"):
            read(source)


@pytest.mark.parametrize("read", READERS)
def test_no_cassettes_are_a_frame_without_rows(read, tmp_path, many):
    (tmp_path / "empty").mkdir()
    dtypes = read(many[:2]).dtypes

    for nothing in (tmp_path / "empty", []):
        assert len(read(nothing)) == 0
        assert read(nothing).dtypes.equals(dtypes)
