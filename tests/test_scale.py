"""Beyond one machine: the readers are pure functions of a path, and run under Dask unchanged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import directmail_lab as dm

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

dd = pytest.importorskip("dask.dataframe", reason="Dask is not installed (the extra `scale`)")
distributed = pytest.importorskip("distributed", reason="Dask is not installed (the extra `scale`)")

ROOT = Path(__file__).parent.parent
CASSETTES = 1_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A thousand cassettes, each a file of its own."""
    lines = (ROOT / "cassettes" / "record-and-replay.yaml").read_bytes()
    folder = tmp_path_factory.mktemp("many")
    paths = [folder / f"tour-{number:04}.yaml" for number in range(CASSETTES)]
    for path in paths:
        path.write_bytes(lines)
    return [str(path) for path in paths]


# What a cluster's own processes warn of when they start and end is not ours.
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("read", "count"), [(dm.read_interactions, 50), (dm.read_readings, CASSETTES)]
)
def test_a_thousand_cassettes_on_a_local_cluster(
    read: Callable[[str], pd.DataFrame], count: int, many: list[str]
) -> None:
    """`dask.dataframe.from_map` over the paths gives what reading them one by one gives."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster),
    ):
        frames = dd.from_map(read, many[:count])
        counted = frames.groupby("path").size().compute()

    each = read(many[0])
    assert counted.to_dict() == {
        path: count * there for path, there in each["path"].value_counts().items()
    }
    assert list(frames.columns) == list(each.columns)


def test_the_how_to_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The Python of the tutorials' README, pasted beside a folder of cassettes."""
    shutil.copytree(ROOT / "cassettes", tmp_path / "cassettes")
    text = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})

    printed = capsys.readouterr().out
    assert re.search(r"/v1/users/me\s+300", printed)
    assert re.search(r"/v1/lists\s+60", printed)


def test_readings_in_parquet_are_read_by_dask(tmp_path: Path) -> None:
    """What a session saves, Dask reads back with the same times and numbers."""
    dm.replay("record-and-replay")
    dm.me()
    dm.rate_limits().to_parquet(tmp_path / "readings.parquet")

    back = dd.read_parquet(tmp_path / "readings.parquet").compute()
    assert back["remaining"].tolist() == dm.rate_limits()["remaining"].tolist()
    assert back["at"].tolist() == dm.rate_limits()["at"].tolist()


def test_the_readers_need_no_session(many: list[str]) -> None:
    """They open no session and change none: a path in, a frame out."""
    dm.read_interactions(many[0])
    dm.read_readings(Path(many[0]))

    with pytest.raises(dm.NotConnectedError):
        dm.session()
