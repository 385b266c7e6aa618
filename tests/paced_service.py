"""A service with a rate limit, on a clock that the tests control."""

import asyncio
import itertools
import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import httpx

from directmail_lab.cassettes import SessionRecording
from directmail_lab.sessions.transports.observer import Observer
from directmail_lab.sessions.transports.pacing import Allowances, PacingTransport
from directmail_lab.sessions.transports.recording import RecordingTransport

START = 1_795_000_000.25
BASE_URL = "https://api.example.test"


class Clock:
    """Returns seconds since the Unix epoch. Sleeping moves it forward at once."""

    def __init__(self) -> None:
        self.now = START
        self.slept: list[float] = []
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        until = self.now + seconds
        self.waits.append(until)
        for turn in itertools.count():
            await asyncio.sleep(0)
            if self.now >= until:
                break
            # If no other task moves the clock for a while, the task that is due next moves it.
            if turn % 50 == 49 and until == min(self.waits):
                self.sleep(until - self.now)
        self.waits.remove(until)


@dataclass
class Service:
    """Counts requests by path, and reports the count in the three rate-limit headers.

    Each request costs ``cost``; all paths have one allowance if it is ``shared``. The responses and
    errors in ``instead`` are used first, and cost nothing.
    """

    clock: Clock
    limit: int = 5
    window_s: float = 2.0
    cost: int = 1
    unit: str = "seconds_left"
    sliding: bool = False
    shared: bool = False
    rounding: Callable[[float], int] = math.ceil
    latency_s: float = 0.001
    ahead_s: float = 0.0
    taken: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    statuses: list[int] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)
    instead: list[httpx.Response | Exception] = field(default_factory=list)

    def spend(self, path: str = "/v1/users/me") -> tuple[bool, int, float]:
        """Count one request.

        Return whether it is allowed, what remains, and when the window renews.
        """
        now, taken = self.clock(), self.taken[path]
        if self.sliding:
            while taken and taken[0] <= now - self.window_s:
                taken.popleft()
        elif taken and now >= taken[0] + self.window_s:
            taken.clear()
        allowed = len(taken) + self.cost <= self.limit
        if allowed:
            taken.extend([now] * self.cost)
        return allowed, self.limit - len(taken), (taken[0] if taken else now) + self.window_s

    def reset(self, renews_at: float) -> str:
        scale = 1000 if self.unit in ("milliseconds_left", "epoch_ms") else 1
        left = self.unit.endswith("left")
        seconds = renews_at - self.clock() if left else renews_at + self.ahead_s
        return str(self.rounding(round(seconds * scale, 6)))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.sent_at.append(self.clock())
        self.clock.now += self.latency_s / 2
        if self.instead:
            answer = self.instead.pop(0)
            if isinstance(answer, Exception):
                raise answer
            self.statuses.append(answer.status_code)
            return answer
        allowed, remaining, renews_at = self.spend("" if self.shared else request.url.path)
        headers = {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(remaining),
            "X-RateLimit-Reset": self.reset(renews_at),
            "Date": formatdate(int(self.clock() + self.ahead_s), usegmt=True),
        }
        self.clock.now += self.latency_s / 2
        self.statuses.append(200 if allowed else 429)
        return httpx.Response(self.statuses[-1], headers=headers)


class _Network(httpx.MockTransport):
    """A service as the network transport, which is also told what to do before a write."""

    def handle_request(self, request: httpx.Request, *_: object) -> httpx.Response:
        return super().handle_request(request)

    async def handle_async_request(self, request: httpx.Request, *_: object) -> httpx.Response:
        return await super().handle_async_request(request)


def observed(service: Service, recording: SessionRecording) -> RecordingTransport:
    """Return a transport that sends to the service and keeps the readings of its responses."""
    network, clock = _Network(service), service.clock
    return RecordingTransport(network, Observer(), recording, clock=clock, timer=clock)


def paced(
    service: Service, recording: SessionRecording | None = None, **options: Any
) -> PacingTransport:
    """Return a transport that paces requests on the service's clock.

    ``options`` go to `Allowances` and `PacingTransport`.
    """
    clock = service.clock
    if recording is None:
        unit = options.pop("reset_unit", None)
        recording = SessionRecording("paced", BASE_URL, reset_unit=unit)
    shared = {"pace", "max_wait_s"} & options.keys()
    allowances = Allowances(
        reset_unit=lambda: recording.evidence.unit, **{name: options.pop(name) for name in shared}
    )
    settings = {"sleep": clock.sleep, "sleep_async": clock.sleep_async, "progress": None}
    settings["backoff"] = lambda failures: 0.5 * failures
    return PacingTransport(
        observed(service, recording), allowances, clock=clock, **settings | options
    )


def client(service: Service, **options: Any) -> httpx.Client:
    """Return a client of the service that is paced on the service's clock."""
    return httpx.Client(transport=paced(service, **options), base_url=BASE_URL)


def async_client(service: Service, **options: Any) -> httpx.AsyncClient:
    """Return an async client of the service that is paced on the service's clock."""
    return httpx.AsyncClient(transport=paced(service, **options), base_url=BASE_URL)
