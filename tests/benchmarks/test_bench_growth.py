"""How the CPU time and the memory of each operation grow with the recording: in no case faster.

Each operation runs in its own process. The memory is the peak of that process, on Linux.
"""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from cassette_samples import recorded
from polled import different

SIZES = (1_000, 10_000, 100_000)
MOST_TIMES = 20.0
"""For ten times as many interactions; sorting takes 12 to 13 times as long, squares 100."""

OPERATIONS = {
    "open": "read_cassette(path)",
    "record": "recorded(path.with_suffix('.new.yaml'), *read_cassette(path))",
    "replay": "dm.replay(path)\nfor n in range(size): dm.get(f'/v1/lists/{n}?page={n}')",
    "rate_limits": "dm.rate_limits(path)",
    "interactions": "dm.interactions(path)",
    "findings": "dm.findings(path)",
    "openapi": "dm.openapi(path)",
    "audit": "audit.audit(path)",
    "redact": "redact(Path(shutil.copy(path, path.with_suffix('.copy.yaml'))), ['personal'])",
    "page": "save_page(read_cassette(path), path.with_suffix('.html'))",
    "drift": "dm.connect(service.base_url, service.api_key, pace='off')\ndm.drift(path)",
}
# The page of 100,000 would be larger than it may be, and drift sends each request.
UP_TO = {"page": 10_000, "drift": 10_000}

CHILD = """
import re, shutil, sys, time
from pathlib import Path
import directmail_lab as dm
from cassette_samples import recorded
from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.convert import redact
from directmail_lab.share import audit
from directmail_lab.share.cassette_page import save_page

def operation(path, size):
    with dm.stand_in(limit=10**9) as service:
        start_s = time.process_time()
        exec(sys.argv[1])
        return time.process_time() - start_s

operation(Path(sys.argv[2]), 1)  # imports
taken_s = operation(Path(sys.argv[3]), int(sys.argv[4]))
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
print(taken_s, int(peak[1]) / 1024)
"""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Recordings of one interaction and of each size, all with different addresses."""
    folder = tmp_path_factory.mktemp("growth")
    return {size: recorded(folder / f"{size}.yaml", *different(size)) for size in (1, *SIZES)}


def measured(code: str, one: Path, path: Path, size: int) -> tuple[float, float]:
    """Return the CPU seconds of an operation, and the peak memory of its process in MB."""
    arguments = [sys.executable, "-c", CHILD, code, str(one), str(path), str(size)]
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        arguments, cwd=tests, check=True, stdout=subprocess.PIPE, text=True, timeout=600
    )
    seconds, peak_mb = done.stdout.splitlines()[-1].split()
    return float(seconds), float(peak_mb)


@pytest.mark.parametrize("name", OPERATIONS)
def test_growth(benchmark, recordings, name):
    """Ten times as many interactions take about ten times as long."""
    sizes = [size for size in SIZES if size <= UP_TO.get(name, size)]

    def all_sizes() -> list[tuple[float, float]]:
        one = recordings[1]
        return [measured(OPERATIONS[name], one, recordings[size], size) for size in sizes]

    found = benchmark.pedantic(all_sizes, rounds=1)
    seconds = [taken_s for taken_s, _ in found]
    times = [after / before for before, after in pairwise(seconds)]
    described = [
        f"{size:,} {taken_s:.2f} s {peak_mb:.0f} MB"
        for size, (taken_s, peak_mb) in zip(sizes, found, strict=True)
    ]
    benchmark.extra_info.update(times=times, growth=f"{name}: {', '.join(described)}")

    assert times[-1] < MOST_TIMES
