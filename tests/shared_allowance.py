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
from dataclasses import dataclass, field
from pathlib import Path

LIMIT, WINDOW_S = 40, 3.0


@dataclass
class Outcome:
    """What came of a run; times are in seconds from the first request to the last answer."""

    took_s: float
    ideal_s: float
    requests: int
    refused: int
    failed: int
    each_took_s: list[float] = field(default_factory=list)

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
        began, failed = time.time(), 0

        def ask(_: int) -> bool:
            try:
                return session.request("GET", "/v1/users/me").status_code == 200
            except Exception:
                return False

        with ThreadPoolExecutor(threads) as pool:
            failed = sum(not good for good in pool.map(ask, range(requests)))
        took = {"began": began, "ended": time.time(), "failed": failed}
        took["refused"] = int((session.rate_limits()["status"] == 429).sum())
    sys.stdout.write(json.dumps(took))


def run(
    processes: int,
    requests: int,
    *,
    threads: int = 1,
    share: str | None = "machine",
    killed_after_s: float | None = None,
    foreign_per_s: float = 0.0,
    limit: int = LIMIT,
    window_s: float = WINDOW_S,
) -> Outcome:
    """Let processes send so many reads each to a stand-in service with a common allowance.

    One of them is killed after so many seconds; and a client that does not share spends
    ``foreign_per_s`` of the allowance.
    """
    import httpx

    from directmail_lab.standin import stand_in

    with stand_in(limit=limit, window_s=window_s, limits={}) as service:
        command = [sys.executable, __file__, "--read", service.base_url, service.api_key]
        command += [f"--requests={requests}", f"--threads={threads}", f"--share={share}"]
        started = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for _ in range(processes)
        ]
        try:
            for each in started:
                each.stdout.readline()
            for each in started:
                each.stdin.write("go\n")
                each.stdin.flush()
            over = threading.Event()

            def spend() -> None:
                auth = (service.api_key, "")
                with httpx.Client(base_url=service.base_url, auth=auth) as client:
                    while not over.wait(1.0 / foreign_per_s):
                        client.get("/v1/users/me")

            if foreign_per_s:
                threading.Thread(target=spend, daemon=True).start()
            survivors = started
            if killed_after_s is not None:
                time.sleep(killed_after_s)
                os.kill(started[0].pid, signal.SIGKILL)
                survivors = started[1:]
            told = [json.loads(each.communicate()[0]) for each in survivors]
            over.set()
        finally:
            for each in started:
                each.kill()
                each.communicate()
    count = requests * len(told)
    return Outcome(
        took_s=max(one["ended"] for one in told) - min(one["began"] for one in told),
        ideal_s=(math.ceil(count / limit) - 1) * window_s,
        requests=count,
        refused=sum(one["refused"] for one in told),
        failed=sum(one["failed"] for one in told),
        each_took_s=[one["ended"] - one["began"] for one in told],
    )


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
    given = parser.parse_args()
    share = None if given.share == "None" else given.share
    if given.read:
        read(*given.read, given.requests, given.threads, share)
    else:
        outcome = run(
            given.processes,
            given.requests,
            threads=given.threads,
            share=share,
            killed_after_s=given.killed_after_s,
            foreign_per_s=given.foreign_per_s,
        )
        sys.stdout.write(f"{outcome}\n")
