"""Processes that read from one service with one key, as kernels of one analyst do.

``python tests/shared_allowance.py --processes 8 --requests 50 --threads 1 --share machine`` prints
how long they took, how many reads were refused and how many failed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from directmail_lab.standin import StandIn

LIMIT, WINDOW_S = 40, 3.0


@dataclass
class Outcome:
    """What came of a run; times are in seconds from the first request to the last answer."""

    took_s: float
    ideal_s: float
    requests: int
    refused: int
    failed: int
    each_took_s: list[float]

    def __str__(self) -> str:
        ratio = max(self.each_took_s) / min(self.each_took_s)
        return (
            f"{self.requests} requests in {self.took_s:.1f} s, {self.took_s / self.ideal_s:.2f} of "
            f"the ideal {self.ideal_s:.0f} s; {self.refused} refused, {self.failed} failed; "
            f"slowest to fastest {ratio:.2f}"
        )


def read(base_url: str, api_key: str, requests: int, threads: int, share: str | None) -> None:
    """Be one process: wait for a line, send the reads, and print what came of them."""
    import directmail_lab as dm

    with dm.Session(base_url, dm.credentials.ApiKey(api_key), share=share) as session:
        # A first request loads certificates and connects: with eight at once that takes seconds.
        session.request("GET", "/v1/lists")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        began = time.time()

        def ask(_: int) -> bool:
            try:
                return session.request("GET", "/v1/users/me").status_code == 200
            except Exception:
                return False

        with ThreadPoolExecutor(threads) as pool:
            failed = sum(not good for good in pool.map(ask, range(requests)))
        took = {"began": began, "ended": time.time(), "failed": failed}
        took["refused"] = int((dm.rate_limits(session)["status"] == 429).sum())
    sys.stdout.write(json.dumps(took))


def run(
    processes: int,
    requests: int,
    *,
    threads: int = 1,
    share: str | None = "machine",
    killed_after_s: float | None = None,
    foreign_per_s: float = 0.0,
) -> Outcome:
    """Let processes send so many reads each to a stand-in service with a common allowance.

    One of them is killed after so many seconds; and a client that does not share spends
    ``foreign_per_s`` of the allowance.
    """
    from directmail_lab.standin import stand_in

    with stand_in(limit=LIMIT, window_s=WINDOW_S, limits={}) as service, ExitStack() as stack:
        command = [sys.executable, __file__, "--read", service.base_url, service.api_key]
        command += [f"--requests={requests}", f"--threads={threads}", f"--share={share}"]
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
        over = threading.Event()
        if foreign_per_s:
            threading.Thread(target=spend, args=[service, foreign_per_s, over], daemon=True).start()
        if killed_after_s is not None:
            time.sleep(killed_after_s)
            os.kill(started[0].pid, signal.SIGKILL)
            del started[0]
        results = [json.loads(process.communicate()[0]) for process in started]
        over.set()
    count = requests * len(results)
    return Outcome(
        took_s=max(r["ended"] for r in results) - min(r["began"] for r in results),
        ideal_s=(math.ceil(count / LIMIT) - 1) * WINDOW_S,
        requests=count,
        refused=sum(r["refused"] for r in results),
        failed=sum(r["failed"] for r in results),
        each_took_s=[r["ended"] - r["began"] for r in results],
    )


def spend(service: StandIn, per_s: float, over: threading.Event) -> None:
    import httpx

    with httpx.Client(base_url=service.base_url, auth=(service.api_key, "")) as client:
        while not over.wait(1.0 / per_s):
            client.get("/v1/users/me")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", nargs=2, metavar=("ADDRESS", "KEY"))
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--share", default="machine")
    parser.add_argument("--killed-after-s", type=float)
    parser.add_argument("--foreign-per-s", type=float, default=0.0)
    options = vars(parser.parse_args())
    options["share"] = None if options["share"] == "None" else options["share"]
    address_and_key = options.pop("read")
    if address_and_key:
        read(*address_and_key, options["requests"], options["threads"], options["share"])
    else:
        sys.stdout.write(f"{run(**options)}\n")
