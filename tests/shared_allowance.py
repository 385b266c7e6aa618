"""Several processes read from one service with one key, like the kernels of one analyst.

``python tests/shared_allowance.py --processes 8 --requests 50 --runs 5`` prints for each run how
long it took, how many reads were refused, and how many failed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

LIMIT, WINDOW_S = 40, 3.0


@dataclass
class Outcome:
    """The result of a run.

    ``took_s`` is the time in seconds from the first request to the last response.
    """

    took_s: float
    ideal_s: float
    requests: int
    refused: int
    failed: int

    def __str__(self) -> str:
        return (
            f"{self.requests} reads in {self.took_s:.1f} s, {self.took_s / self.ideal_s:.2f} of "
            f"the ideal {self.ideal_s:.0f} s; {self.refused} refused "
            f"({self.refused / self.requests:.1%}), {self.failed} failed"
        )


def read(base_url: str, api_key: str, requests: int, threads: int) -> None:
    """Run as one of the processes: wait for a line on stdin, send the reads, print the result."""
    import directmail_lab as dm

    with dm.Session(base_url, dm.credentials.ApiKey(api_key)) as session:
        # The first request loads certificates and connects. In eight processes at once this takes
        # seconds, so it happens before the clock starts.
        session.get("/v1/lists")
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        began = time.time()

        def ask(_: int) -> bool:
            try:
                return session.get("/v1/users/me").status_code == 200
            except Exception:
                return False

        with ThreadPoolExecutor(threads) as pool:
            failed = sum(not good for good in pool.map(ask, range(requests)))
        took = {"began": began, "ended": time.time(), "failed": failed}
        took["refused"] = int((dm.rate_limits(session)["status"] == 429).sum())
    print(json.dumps(took))  # noqa: T201


def run(processes: int, requests: int, threads: int = 1) -> Outcome:
    """Start processes that each send ``requests`` reads to one stand-in service with one key."""
    from directmail_lab.server.standin import stand_in

    with stand_in(limit=LIMIT, window_s=WINDOW_S, limits={}) as service, ExitStack() as stack:
        command = [sys.executable, __file__, "--read", service.base_url, service.api_key]
        command += [f"--requests={requests}", f"--threads={threads}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        started = [subprocess.Popen(command, text=True, **pipes) for _ in range(processes)]
        for process in started:
            stack.enter_context(process)
            stack.callback(process.kill)
        for process in started:
            process.stdout.readline()
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [json.loads(process.communicate()[0]) for process in started]
    count = requests * processes
    return Outcome(
        took_s=max(r["ended"] for r in results) - min(r["began"] for r in results),
        ideal_s=(math.ceil(count / LIMIT) - 1) * WINDOW_S,
        requests=count,
        refused=sum(r["refused"] for r in results),
        failed=sum(r["failed"] for r in results),
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", nargs=2, metavar=("ADDRESS", "KEY"))
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    if options.read:
        read(*options.read, options.requests, options.threads)
    else:
        for _ in range(options.runs):
            print(run(options.processes, options.requests, options.threads), flush=True)  # noqa: T201
