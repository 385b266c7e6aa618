"""Pacing and retries, mostly on a fake clock; a few tests use the real one."""

import asyncio
import heapq
import itertools
import math
import os
import random
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import httpx
import nbclient
import nbformat
import pytest
from faulty_service import FaultyService
from marks import slow
from paced_service import BASE_URL, START, Clock, Service, async_client, client, paced
from reading_samples import raw

import directmail_lab as dm
from directmail_lab.cassettes import SessionRecording
from directmail_lab.errors import AllowanceExhaustedError
from directmail_lab.readings.reading import RawValues, Reading
from directmail_lab.readings.sharing import SharedAllowances
from directmail_lab.server.standin import stand_in
from directmail_lab.sessions.session import Session
from directmail_lab.sessions.transports.allowance import Allowance

UNITS = ["seconds_left", "milliseconds_left", "epoch_s", "epoch_ms"]
ME = "/v1/users/me"


def burst(service: Service, n: int, **options: object) -> float:
    """Send n reads one after another; return the seconds from the first to the last."""
    with client(service, **options) as paced_client:
        for _ in range(n):
            paced_client.get(ME)
    return service.sent_at[-1] - service.sent_at[0]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize(("limit", "window_s"), [(5, 2.0), slow(300, 60.0)])
def test_a_burst_over_three_windows_meets_no_refusal_and_wastes_no_time(
    unit, stated, limit, window_s
):
    service = Service(Clock(), limit=limit, window_s=window_s, unit=unit)

    took_s = burst(service, 3 * limit, reset_unit=unit if stated else None)

    # Reset in whole seconds may be up to a second late per window; the client cannot know better.
    told_late_s = 2.0 if unit == "epoch_s" else 0.0
    assert service.statuses == [200] * 3 * limit
    assert took_s <= 1.05 * 2 * window_s + told_late_s


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("window_s", [2.0, 60.0, 1800.0])
@pytest.mark.parametrize("rounding", [math.ceil, math.floor])
def test_an_unknown_unit_is_learned_from_at_most_one_refusal(unit, window_s, rounding):
    service = Service(Clock(), window_s=window_s, unit=unit, rounding=rounding)

    burst(service, 25, max_wait_s=4000.0)

    assert service.statuses.count(429) <= 1


@pytest.mark.parametrize("unit", UNITS)
def test_a_sliding_window_is_followed(unit):
    service = Service(Clock(), unit=unit, sliding=True)

    burst(service, 20, reset_unit=unit)

    assert service.statuses.count(429) <= 1
    assert service.statuses.count(200) == 20


@pytest.mark.parametrize("ahead_s", [-80_000.0, -3.0, 3.0, 80_000.0])
@pytest.mark.parametrize("unit", ["epoch_s", "epoch_ms"])
def test_the_date_header_corrects_for_a_wrong_clock(unit, ahead_s):
    """A renewal on the service's clock is converted to ours, and never expected too early."""
    service = Service(Clock(), unit=unit, ahead_s=ahead_s)

    took_s = burst(service, 10, reset_unit=unit)

    assert service.statuses.count(429) == 0
    assert took_s < 2.0 + 2.1


def test_a_response_with_unchanged_remaining_belongs_to_a_new_window():
    """Reset is 1 in every window here, so only Remaining shows that a new window began."""
    service = Service(Clock(), window_s=1.0, latency_s=0.4)

    with client(service, reset_unit="seconds_left") as paced_client:
        paced_client.get(ME)
        service.latency_s, service.clock.now = 0.001, service.clock.now + 0.85
        for _ in range(6):
            paced_client.get(ME)

    assert service.statuses == [200] * 7


def test_operations_with_allowances_of_their_own_do_not_wait_for_each_other():
    service = Service(Clock())

    with client(service) as paced_client:
        for _ in range(5):
            paced_client.get(ME)
        paced_client.get("/v1/lists")

    assert service.clock.slept == []


def test_operations_that_share_an_allowance_wait_for_each_other():
    service = Service(Clock(), limit=12, window_s=10.0, shared=True)
    paths = [f"/v1/{name}" for name in ("lists", "letters", "contacts")]

    with client(service, reset_unit="seconds_left") as paced_client:
        for number in range(60):
            paced_client.get(paths[number % 3])

    assert service.statuses == [200] * 60
    assert service.sent_at[-1] - service.sent_at[0] < 1.1 * 40.0


@pytest.mark.parametrize("is_shared", [True, False])
def test_it_takes_a_few_rounds_to_see_whether_operations_share_an_allowance(is_shared):
    """Shared, remaining falls from one operation to the other; apart, each falls by itself."""
    allowances = SharedAllowances()
    known = []
    for number in range(8):
        for at, operation in enumerate(("GET /a", "GET /b")):
            used = 2 * number + at if is_shared else number
            allowances.observe(operation, 60, 59 - used)
            allowances.observe("GET /without", 60, None)
        known.append(allowances.is_shared(60))

    assert known == ([False] + [True] * 7 if is_shared else [False] * 8)


def test_operations_share_an_allowance_until_half_as_many_steps_say_that_they_do_not():
    """From the fifth response on, each operation falls by itself, and not from the other's."""
    allowances = SharedAllowances()
    known = []
    for operation, remaining in zip("abababa", (59, 58, 57, 56, 56, 55, 55), strict=True):
        allowances.observe(operation, 60, remaining)
        known.append(allowances.is_shared(60))

    assert known == [False, False, False, True, True, True, False]


def test_a_service_that_sends_only_its_limit_is_not_waited_for():
    service = Service(Clock())
    service.instead = [httpx.Response(200, headers={"X-RateLimit-Limit": "5"}) for _ in range(12)]

    with client(service) as paced_client:
        for number in range(12):
            paced_client.get(ME if number % 2 else "/v1/lists")

    assert service.statuses == [200] * 12
    assert service.clock.slept == []


def test_another_origin_has_an_allowance_of_its_own():
    with stand_in(limit=1) as first, stand_in() as second:
        options: dict[str, Any] = {"max_wait_s": 0, "reset_unit": "seconds_left"}
        session = Session(first.base_url, first.api_key, **options)
        session.me()
        elsewhere = session.get(f"{second.base_url}{ME}")
        with pytest.raises(AllowanceExhaustedError, match="for GET /v1/users/me is used up"):
            session.me()
        session.close()

    assert elsewhere.status_code == 401
    assert (first.requests["GET /v1/users/me"], second.requests["GET /v1/users/me"]) == (1, 1)


def test_even_pace_spreads_the_allowance_over_the_window():
    service = Service(Clock(), limit=10, window_s=10.0)

    burst(service, 30, pace="even", reset_unit="seconds_left")

    gaps = [later - earlier for earlier, later in itertools.pairwise(service.sent_at[1:])]
    assert service.statuses == [200] * 30
    assert min(gaps) > 0.5


def test_pace_off_never_waits():
    with (
        FaultyService(limit=2, limits={}) as service,
        dm.Session(service.base_url, service.api_key, pace="off") as session,
    ):
        statuses = [session.get(ME).status_code for _ in range(3)]
        with service.fault(status=503):
            statuses.append(session.get(ME).status_code)

        assert statuses == [200, 200, 429, 503]
        assert len(dm.rate_limits(session)) == 4


def test_the_error_for_a_too_long_wait_contains_the_renewal_time():
    service = Service(Clock(), window_s=600.0, limit=1)

    with client(service, reset_unit="seconds_left", max_wait_s=120.0) as paced_client:
        paced_client.get(ME)
        with pytest.raises(AllowanceExhaustedError, match="600 s from now") as caught:
            paced_client.get(ME)

    assert caught.value.until == pytest.approx(START + 600.0, abs=0.1)
    assert (service.clock.slept, len(service.statuses)) == ([], 1)


def test_an_interrupted_wait_ends_at_once_and_leaves_the_session_usable():
    clock, bars = Clock(), []

    def show(*_: object) -> Mock:
        bars.append(Mock())
        return bars[-1]

    def sleep(seconds: float) -> None:
        if len(bars) == 1:
            raise KeyboardInterrupt
        clock.sleep(seconds)

    service = Service(clock, limit=1)
    with client(service, progress=show, sleep=sleep) as paced_client:
        paced_client.get(ME)
        with pytest.raises(KeyboardInterrupt):
            paced_client.get(ME)
        paced_client.get(ME)

    assert [bar.close.call_count for bar in bars] == [1, 1]
    waited_s = sum(call.args[0] for call in bars[1].update.call_args_list)
    assert waited_s == pytest.approx(2.0, abs=0.1)
    assert service.statuses == [200, 200]


def test_the_end_of_a_wait_is_known_while_the_request_waits():
    service, seen = Service(Clock(), limit=1), []

    def sleep(seconds: float) -> None:
        seen.append(transport.allowances.waiting_until)
        service.clock.sleep(seconds)

    transport = paced(service, reset_unit="seconds_left", sleep=sleep)
    for _ in range(2):
        transport.handle_request(httpx.Request("GET", BASE_URL + ME))

    assert seen[0] == {f"GET {ME}": pytest.approx(START + 2.0, abs=0.01)}
    assert transport.allowances.waiting_until == {}


@pytest.mark.slow
def test_a_wait_leaves_one_line_in_a_saved_notebook():
    """An empty output would stay in the file."""
    cell = nbformat.v4.new_code_cell(
        "from directmail_lab.sessions.transports.pacing import waiting_bar\n"
        "bar = waiting_bar(2.0, 'waiting for the allowance')\n"
        "bar.update(1.874)\n"
        "bar.close()"
    )
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=300, startup_timeout=300).execute()

    assert [output.get("data") for output in cell.outputs] == [
        {"text/plain": "waiting for the allowance: 1.9 s."}
    ]


def told(status: int = 429, **headers: str) -> httpx.Response:
    """Return a response with Remaining 0 and Reset 2, and with these headers."""
    standard = {"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2"}
    return httpx.Response(status, headers=standard | headers)


THREE_LEFT = told(200, **{"X-RateLimit-Remaining": "3"})
OF_A_CACHE = told(200, **{"X-RateLimit-Reset": "60", "Age": "50"})


@pytest.mark.parametrize(
    ("responses", "slept_s"),
    [
        # Retry-After overrides Reset. Without any header, nothing waits.
        pytest.param([told(), httpx.Response(200)], 2.0, id="Reset"),
        pytest.param([told(**{"Retry-After": "7"}), httpx.Response(200)], 7.0, id="Retry-After"),
        pytest.param([httpx.Response(200) for _ in range(20)], 0.0, id="nothing"),
        # A response that does not say what is left has used one request.
        pytest.param([THREE_LEFT, *(httpx.Response(200) for _ in range(3))], 0.0, id="left"),
        pytest.param([THREE_LEFT, *(httpx.Response(200) for _ in range(4))], 2.0, id="none left"),
        # The contract promises integers, but a service may send a fraction.
        pytest.param([told(**{"Retry-After": "1.8"}), httpx.Response(200)], 1.8, id="a fraction"),
        pytest.param([told(200, **{"X-RateLimit-Reset": "1.8"}), told(200)], 1.8, id="fractions"),
        # A cache has the headers of an earlier response.
        pytest.param([OF_A_CACHE, httpx.Response(200)], 0.0, id="of a cache"),
        # With only zeros in the headers, the wait is the typical minute (service.md part 8).
        pytest.param([told(200, **{"X-RateLimit-Reset": "0"}) for _ in range(2)], 60.0, id="zero"),
        pytest.param([httpx.ConnectError("refused"), httpx.Response(200)], 0.5, id="no connection"),
        pytest.param([httpx.Response(503), httpx.Response(200)], 0.5, id="a failure"),
        # Other programs may use up each new window first. A refusal is no failure, so there is no
        # backoff that would miss the next renewal.
        pytest.param([*(told() for _ in range(6)), httpx.Response(200)], 12.0, id="refusals"),
        # If the service keeps naming a time that is already over, the requests become less
        # frequent.
        pytest.param(
            [*(told(**{"Retry-After": "0"}) for _ in range(6)), httpx.Response(200)],
            47.0,
            id="refusals, Retry-After 0",
        ),
    ],
)
def test_a_request_waits_as_long_as_the_response_asks_for(responses, slept_s):
    service = Service(Clock(), instead=responses)
    reads = sum(getattr(response, "status_code", 0) == 200 for response in responses)

    burst(service, reads, reset_unit="seconds_left")

    assert responses == []
    assert sum(service.clock.slept) == pytest.approx(slept_s, abs=0.1)


PASSING = [httpx.ReadError("reset"), httpx.RemoteProtocolError("cut off"), 502, 503, 504]
MAY_WRITE = [{"headers": {"X-HTTP-Method-Override": "DELETE"}}, {"params": {"_method": "POST"}}]
ATTEMPTS = [
    *((method, failure, 4, {}) for method in ("GET", "HEAD") for failure in PASSING),
    # A refused connection usually means that there is no service, so one retry is enough. After a
    # timeout the user has waited long enough.
    ("GET", httpx.ConnectError("refused"), 2, {}),
    *(("GET", failure, 1, {}) for failure in (httpx.ConnectTimeout(""), httpx.ReadTimeout(""))),
    *(("GET", status, 1, {}) for status in (401, 404, 500)),
    # A repeated write could send a second letter, which costs money.
    *(
        (method, failure, 1, {})
        for method in ("POST", "PUT", "PATCH", "DELETE")
        for failure in (*PASSING, httpx.ReadTimeout("slow"), httpx.ConnectError("refused"), 429)
    ),
    *(("GET", 503, 1, options) for options in MAY_WRITE),
]


@pytest.mark.parametrize(("method", "failure", "attempts", "options"), ATTEMPTS, ids=repr)
def test_only_a_read_is_repeated_and_only_after_a_failure_that_may_pass(
    method, failure, attempts, options
):
    """The last response or error reaches the caller unchanged, and each response is a reading."""
    service, log = Service(Clock()), SessionRecording("paced", BASE_URL)
    is_status = isinstance(failure, int)
    service.instead = [httpx.Response(failure) if is_status else failure for _ in range(9)]

    with client(service, recording=log) as paced_client:
        try:
            outcome: object = paced_client.request(method, ME, json={}, **options).status_code
        except httpx.TransportError as error:
            outcome = error

    assert outcome == failure
    assert len(service.sent_at) == attempts
    assert [reading.status for reading in log.readings()] == [failure] * attempts * is_status


async def gather(service: Service, n: int, **options: object) -> list[int | BaseException]:
    """Send n reads as tasks at once; return their numbers, or errors, in order of completion."""
    order: list[int | BaseException] = []

    async def ask(number: int) -> None:
        try:
            await paced_client.get(ME)
            order.append(number)
        except AllowanceExhaustedError as error:
            order.append(error)

    async with async_client(service, **options) as paced_client:
        await asyncio.gather(*(ask(number) for number in range(n)))
    return order


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("pace", ["burst", "even"])
def test_tasks_share_one_allowance_and_are_served_in_the_order_they_came(unit, pace):
    service = Service(Clock(), unit=unit)

    order = asyncio.run(gather(service, 17, reset_unit=unit, pace=pace))

    assert service.statuses == [200] * 17
    assert order == list(range(17))


def test_tasks_that_wait_at_once_let_the_event_loop_run():
    """Each waits for a response to another one, which comes only if none blocks the loop.

    One of them shows a progress bar.
    """
    service = Service(Clock(), limit=2, window_s=10.0)
    bars = Mock()
    turns = []

    async def go() -> list[int | BaseException]:
        async def turn() -> None:
            while True:
                turns.append(service.clock())
                await asyncio.sleep(0)

        other = asyncio.create_task(turn())
        order = await gather(service, 8, reset_unit="seconds_left", progress=bars)
        other.cancel()
        return order

    assert asyncio.run(go()) == list(range(8))
    assert service.statuses == [200] * 8
    assert any(before > service.sent_at[1] for before in turns)
    assert 1 <= bars.call_count <= 3


def test_max_wait_s_bounds_all_waiting_of_each_request():
    service = Service(Clock(), window_s=50.0)

    order = asyncio.run(gather(service, 17, reset_unit="seconds_left", max_wait_s=120.0))
    told = [each for each in order if isinstance(each, AllowanceExhaustedError)]

    assert (len(order) - len(told), len(told)) == (15, 2)
    assert max(service.sent_at) - START < 120.0


def test_a_read_that_is_always_refused_ends_when_its_time_is_over():
    service = Service(Clock())
    service.instead = [told() for _ in range(99)]

    with (
        client(service, reset_unit="seconds_left", max_wait_s=10.0) as paced_client,
        pytest.raises(AllowanceExhaustedError, match=r"refused \(429\) 5 times.*10 s at most"),
    ):
        paced_client.get(ME)

    assert 5.0 < service.clock.now - START < 10.0


def test_a_read_that_is_always_refused_is_sent_eight_times():
    """Each renewal that the service names passes, and it refuses again. Each wait has a bar."""
    service, progress = Service(Clock()), Mock()
    service.instead = [told() for _ in range(99)]

    options = {"reset_unit": "seconds_left", "max_wait_s": 120.0, "progress": progress}
    with client(service, **options) as paced_client:
        response = paced_client.get(ME)

    assert response.status_code == 429
    assert progress.call_count == progress.return_value.close.call_count == 7
    assert len(service.statuses) == 8
    assert service.clock.now - START < 30.0


def test_an_assumed_renewal_is_not_told_as_a_fact():
    """A service may say that nothing remains, but not until when."""
    nothing = {"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"}
    service = Service(Clock(), instead=[httpx.Response(200, headers=nothing)])

    with client(service, max_wait_s=20.0) as paced_client:
        paced_client.get(ME)
        with pytest.raises(AllowanceExhaustedError, match="60 s is a guess") as caught:
            paced_client.get(ME)

    assert caught.value.until is None


def test_a_task_that_is_cancelled_during_its_wait_does_not_delay_the_next():
    service = Service(Clock(), limit=1)

    async def sleep_async(seconds: float) -> None:
        await asyncio.Event().wait()

    async def go() -> int:
        options = {"reset_unit": "seconds_left", "sleep_async": sleep_async}
        async with async_client(service, **options) as paced_client:
            await paced_client.get(ME)
            waiting = asyncio.create_task(paced_client.get(ME))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            service.clock.now += 2.0
            return (await paced_client.get(ME)).status_code

    assert asyncio.run(go()) == 200


def test_threads_never_overrun_a_real_service():
    """Eight threads try fifteen reads: five are sent, and ten raise as nothing remains."""

    def read(_: int) -> int | None:
        try:
            return session.get(ME).status_code
        except AllowanceExhaustedError:
            return None

    with (
        stand_in(limit=5, window_s=600.0, limits={}) as service,
        dm.Session(service.base_url, service.api_key, reset_unit="seconds_left") as session,
        ThreadPoolExecutor(8) as threads,
    ):
        statuses = Counter(threads.map(read, range(15)))

        assert statuses == {200: 5, None: 10}
        assert len(dm.rate_limits(session)) == 5


def reading(remaining: int, reset: int, at: float, elapsed_s: float = 0.0) -> Reading:
    return Reading(at, "GET", ME, 200, raw(5, remaining, reset), elapsed_s=elapsed_s)


def test_an_overtaken_response_does_not_increase_the_allowance():
    allowance = Allowance(lambda: "milliseconds_left")

    sent = [allowance.wait_s(START, "a")]
    allowance.settle("a", reading(4, 1000, START))
    sent += [allowance.wait_s(START, name) for name in "bc"]
    allowance.settle("c", reading(2, 990, START + 0.01, 0.01))
    allowance.settle("b", reading(3, 995, START + 0.4, 0.395))
    later = [allowance.wait_s(START + 0.4, name) for name in "def"]

    assert sent == [0.0] * 3
    assert [seconds > 0 for seconds in later] == [False, False, True]


def sent_while(allowance: Allowance, falls: list[int], gap_s: float = 0.01) -> int:
    """Send as Remaining falls by ``falls``, until the allowance makes us wait; return how many."""
    remaining, at = 100, START
    for sent, fall in enumerate(falls):
        if allowance.wait_s(at, sent):
            allowance.settle(sent, None)
            return sent
        remaining -= fall
        allowance.settle(sent, reading(remaining, 60_000, at + 0.01, 0.01))
        at += gap_s
    return len(falls)


@pytest.mark.parametrize(
    ("falls", "sent"),
    [
        pytest.param([1] * 200, 100, id="alone"),
        pytest.param([2] * 200, 50, id="one other"),
        pytest.param([8] * 200, 12, id="seven others"),
        # The first fall is ignored, because it may have happened long ago.
        pytest.param([90, *[1] * 20], 11, id="others, before"),
        pytest.param([1, 90, *[1] * 20], 2, id="others, just now"),
    ],
)
def test_each_request_reserves_what_other_programs_use_meanwhile(falls, sent):
    allowance = Allowance(lambda: "milliseconds_left")

    assert sent_while(allowance, falls) == sent


def test_a_session_that_sends_occasionally_is_not_delayed():
    allowance = Allowance(lambda: "milliseconds_left")

    assert sent_while(allowance, [1, 90, *[1] * 20], gap_s=5.0) == 11


def test_usage_by_other_programs_is_forgotten_when_the_allowance_renews():
    """The first request of a window finds out what remains; then all of it may be used."""
    allowance = Allowance(lambda: "milliseconds_left")

    before = sent_while(allowance, [30] * 5)
    renewed = allowance.wait_s(START + 61.0, "a")
    allowance.settle("a", reading(3, 60_000, START + 61.0))
    after = [allowance.wait_s(START + 61.0, name) > 0 for name in "bcde"]

    assert (before, renewed) == (3, 0.0)
    assert after == [False, False, False, True]


def test_own_requests_in_flight_are_not_taken_for_those_of_others():
    """Four requests are in flight, and the response to the last one arrives first."""
    allowance = Allowance(lambda: "milliseconds_left")
    allowance.wait_s(START, "first")
    allowance.settle("first", reading(6, 60_000, START + 0.01, 0.01))
    sent = [allowance.wait_s(START + 0.02, name) for name in "abcd"]
    allowance.settle("d", reading(2, 60_000, START + 0.03, 0.01))

    for name, remaining in zip("abc", (3, 4, 5), strict=True):
        allowance.settle(name, reading(remaining, 60_000, START + 0.04, 0.02))
    sent += [allowance.wait_s(START + 0.05, name) for name in "ef"]

    assert sent == [0.0] * 6


def test_a_request_that_costs_more_than_one_is_not_sent_when_too_little_is_left():
    service = Service(Clock(), limit=23, cost=5)

    burst(service, 12)

    assert service.statuses == [200] * 12


def read_at_once(service: Service, sessions: int, reads: int) -> float:
    """Let several sessions send reads at the same time; return the seconds to the last response.

    The sessions do not know of each other. Each request takes 2 to 12 ms, from a fixed random seed.
    """
    chance, clock = random.Random(5), service.clock
    allowances = [Allowance() for _ in range(sessions)]
    left = [reads] * sessions
    numbers = itertools.count()
    due: list[tuple[float, int, Callable[[], None]]] = []

    def after(seconds: float, step: Callable[[], None]) -> None:
        heapq.heappush(due, (clock() + seconds, next(numbers), step))

    def ask(session: int) -> None:
        if seconds := allowances[session].wait_s(clock(), session):
            after(seconds, lambda: ask(session))
        else:
            latency_s = chance.uniform(0.002, 0.012)
            after(latency_s / 2, lambda: count(session, latency_s))

    def count(session: int, latency_s: float) -> None:
        is_allowed, remaining, renews_at = service.spend()
        status = 200 if is_allowed else 429
        service.statuses.append(status)
        said = raw(service.limit, remaining, int(service.reset(renews_at)))
        after(latency_s / 2, lambda: receive(session, status, said, latency_s))

    def receive(session: int, status: int, said: RawValues, latency_s: float) -> None:
        response = Reading(clock(), "GET", ME, status, said, elapsed_s=latency_s)
        allowances[session].settle(session, response)
        left[session] -= status == 200
        pause_s = 0.001 if status == 200 else allowances[session].pause_s(clock(), 1)
        if left[session]:
            after(pause_s, lambda: ask(session))

    for session in range(sessions):
        after(chance.uniform(0.0, 0.005), lambda session=session: ask(session))
    while due:
        clock.now, _, step = heapq.heappop(due)
        step()
    return clock() - START


@pytest.mark.parametrize(("sessions", "reads", "refused"), [(8, 50, 0.07), (2, 200, 0.02)])
def test_sessions_that_know_nothing_of_each_other_hardly_overrun_the_allowance(
    sessions, reads, refused
):
    """The sessions take about as long as one, because the headers tell them when to stop."""
    service = Service(Clock(), limit=40, window_s=3.0)

    took_s = read_at_once(service, sessions, reads)

    assert service.statuses.count(200) == 400
    assert service.statuses.count(429) <= refused * 400
    assert took_s <= 1.2 * 27.0


@pytest.mark.posix("forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_others_send_does_not_hang(service, monkeypatch):
    """The other threads do not exist in the child, so none of them can release a lock there."""
    entered, over = threading.Event(), threading.Event()
    wait_s = Allowance.wait_s

    def slow(*args: Any) -> float:
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            over.wait()
        return wait_s(*args)

    monkeypatch.setattr(Allowance, "wait_s", slow)
    with dm.Session(service.base_url, service.api_key) as session:
        other = threading.Thread(target=session.me)
        other.start()
        entered.wait()
        if (child := os.fork()) == 0:
            signal.alarm(20)  # ends a hanging child
            warnings.simplefilter("ignore")
            os._exit(len(session.me()))
        _, status = os.waitpid(child, 0)
        over.set()
        other.join()

    assert os.waitstatus_to_exitcode(status) == 1


def test_a_refused_read_pauses_though_the_renewal_seems_past():
    """Pacing's clock is a minute ahead of the readings', so it backs off for 1, 2, 4, … seconds."""
    service = Service(Clock(), window_s=5.0)
    transport = paced(service, reset_unit="seconds_left", max_wait_s=300.0)
    transport.clock = lambda: service.clock() + 60.0
    request = httpx.Request("GET", BASE_URL + ME)

    statuses = [transport.handle_request(request).status_code for _ in range(11)]

    assert statuses == [200] * 11
    assert service.statuses.count(429) <= 2 * 3
