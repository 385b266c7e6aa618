"""The unit of Reset: inferred once the readings allow only one, and never wrong."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import pytest
from hypothesis import given, settings, strategies as st
from reading_samples import reading as sample

from directmail_lab.readings.reading import Reading
from directmail_lab.readings.reset_unit import ResetUnitInference, infer_reset_unit

NOW_S = 1_795_262_400.3
UNITS = ["seconds_left", "milliseconds_left", "epoch_s", "epoch_ms"]
# The times in seconds of requests by a person who runs cells, and by a program.
BY_HAND = [0.0, 3.1, 7.7, 12.9, 15.2, 21.8, 26.1, 33.3, 41.7, 52.6]
BURST = [n * 0.0071 for n in range(900)]
FIVE = [n * 0.78 for n in range(5)]


def reset_value(
    unit: str, left_s: float, renews_at: float, rounding: Callable[[float], int]
) -> int:
    scale = 1000 if unit in ("milliseconds_left", "epoch_ms") else 1
    return rounding(scale * (left_s if unit.endswith("left") else renews_at))


def reading(at: float, reset: int | str | None, **changes: object) -> Reading:
    """Return a reading of one operation in which only Reset shows when the window renews."""
    return sample(at, **{"reset": reset, "remaining": 3, **changes})


def window(
    unit: str,
    moments: Sequence[float],
    *,
    window_s: float = 60.0,
    start: float = NOW_S,
    rounding: Callable[[float], int] = math.ceil,
    **changes: object,
) -> list[Reading]:
    """Return the readings of one window of a service whose responses take 30 ms."""
    return [
        reading(
            start + at + 0.015,
            reset_value(unit, window_s - at, start + window_s, rounding),
            **{"remaining": len(moments) - n, **changes},
        )
        for n, at in enumerate(moments)
    ]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rounding", [math.ceil, math.floor, round])
@pytest.mark.parametrize(
    ("moments", "window_s"),
    [(BY_HAND, 60.0), (BURST, 60.0), (FIVE, 10.0), (FIVE, 60.0), (FIVE, 600.0)],
)
def test_the_unit_is_inferred_from_one_window_of_readings(unit, rounding, moments, window_s):
    evidence = infer_reset_unit(window(unit, moments, window_s=window_s, rounding=rounding))

    assert (evidence.unit, evidence.candidates) == (unit, (unit,))
    assert "reading 1 " in evidence.why


@pytest.mark.parametrize("unit", UNITS)
def test_an_inferred_unit_remains_until_a_reading_contradicts_it(unit):
    inference = ResetUnitInference()
    readings = window(unit, BY_HAND) + window(unit, [0.0, 1.0], start=NOW_S + 70)
    for one in [*readings, reading(NOW_S + 72, 0), reading(NOW_S + 73, None)]:
        inference.observe(one)
    named = inference.unit
    inference.observe(reading(NOW_S + 74, 10**15))

    assert (named, inference.unit) == (unit, "undetermined")


@pytest.mark.parametrize(
    ("one", "unit"),
    [
        (window("epoch_s", [0.0])[0], "epoch_s"),
        (window("epoch_ms", [0.0])[0], "epoch_ms"),
        (reading(NOW_S + 86_400, int(NOW_S)), "epoch_s"),  # the client's clock is a day ahead
        # The client's clock is years behind, so the service's Date counts.
        (reading(NOW_S - 3e8, int(NOW_S), served_at=NOW_S), "epoch_s"),
        (reading(math.nan, int(NOW_S)), "epoch_s"),
    ],
)
def test_one_reading_is_enough_to_recognize_a_point_in_time(one, unit):
    """A timestamp is too large for a duration and close to now."""
    assert infer_reset_unit([one]).unit == unit


# Hours that count down, replayed one per second, so that the latencies are unknown.
PLAYED = [86396, 86359, 86339, 86334, 86321, 86301, 86300, 86263, 86148, 86145]
UNCLEAR = {
    "none": [],
    "zero": [reading(NOW_S + n, 0) for n in range(100)],
    "constant s": [reading(NOW_S + n, 60) for n in range(100)],
    "constant ms": [reading(NOW_S + n, 60_000) for n in range(100)],
    "missing": [reading(NOW_S + n, None) for n in range(100)],
    "few": window("seconds_left", [0.0, 1.5, 2.2]),
    "backwards": window("seconds_left", BY_HAND)[::-1],
    "vague": window("seconds_left", BY_HAND, elapsed_s=None),
    "played": [
        reading(NOW_S + n, value, remaining=299 - n, elapsed_s=None, source="replayed")
        for n, value in enumerate(PLAYED)
    ],
    "odd": [reading(NOW_S + n / 2, 60_001 - n // 3, remaining=9 - n) for n in range(5)],
}


@pytest.mark.parametrize("readings", UNCLEAR.values(), ids=UNCLEAR)
def test_the_unit_is_undetermined_if_several_units_fit(readings):
    """A unit must be certain, not only likely."""
    evidence = infer_reset_unit(readings)

    assert evidence.unit == "undetermined"
    assert {"seconds_left", "milliseconds_left"} <= set(evidence.candidates)


@pytest.mark.parametrize(
    "others",
    [lambda n: 0 * n, lambda n: n % 3, lambda n: 7 * n % 5, lambda n: n * n % 11],
    ids=["none", "0 1 2", "0 2 4 1 3", "0 1 4 9 5 3"],
)
def test_regular_polling_may_make_milliseconds_look_like_seconds(others):
    readings = [
        reading(NOW_S + 1.002 * n, 1001 - 1002 * n % 1001, elapsed_s=0.0, remaining=299 - others(n))
        for n in range(50)
    ]

    assert infer_reset_unit(readings).unit in ("undetermined", "milliseconds_left")


MIXED = [reading(NOW_S + n / 10, 60 - n // 10 if n % 2 else 20 - n // 10) for n in range(100)]


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        (MIXED, "one window and account"),
        (window("epoch_s", [0.0]) + window("epoch_ms", [1.0]), "two accounts, or"),
    ],
)
def test_two_accounts_in_one_log_give_no_unit(readings, why):
    evidence = infer_reset_unit(readings)

    assert evidence.unit == "undetermined"
    assert why in evidence.why


@pytest.mark.parametrize("stated", UNITS)
@pytest.mark.parametrize("unit", UNITS)
def test_a_stated_unit_is_used_even_if_the_readings_contradict_it(stated, unit):
    inference = ResetUnitInference(stated=stated)
    for each in window(unit, BY_HAND):
        inference.observe(each)
    evidence = inference.evidence()

    assert evidence.unit == stated
    assert (evidence.contradiction is None) == (stated == unit)


def two_operations(unit: str) -> Iterable[Reading]:
    first = window(unit, BY_HAND, path="/a")
    second = window(unit, BY_HAND, path="/b", start=NOW_S + 0.2, window_s=90.0)
    return chain(*zip(first, second, strict=True))


def untimed(unit: str) -> Iterable[Reading]:
    """Yield readings of a recording without times, whose Date headers are precise to a second."""
    for one in window(unit, BY_HAND):
        value = one.raw.reset
        served_at = int(one.at)
        yield reading(math.nan, value, remaining=one.remaining, elapsed_s=None, served_at=served_at)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("readings", [two_operations, untimed])
def test_the_unit_is_inferred_per_operation_and_also_from_date_headers(readings, unit):
    assert infer_reset_unit(readings(unit)).unit == unit


def test_a_large_number_alone_does_not_prove_milliseconds():
    """In seconds it is more than a year, which is possible, so milliseconds are not certain."""
    evidence = infer_reset_unit([reading(NOW_S + n, 63_000_000 - n) for n in range(3)])

    assert (evidence.unit, evidence.candidates) == ("undetermined", ("milliseconds_left",))


@pytest.mark.parametrize("others", [0, 1])
def test_the_unit_is_inferred_from_short_windows(others):
    """A window of 2 s shows only 2 and 1, and other programs may use the allowance too."""
    readings = [
        reading(
            NOW_S + n * 0.36,
            math.ceil(2.0 - n * 0.36 % 2.0),
            remaining=39 - (n - math.ceil(n * 0.36 // 2.0 * 2.0 / 0.36)) - others * (n > 20),
        )
        for n in range(28)
    ]

    assert infer_reset_unit(readings).unit == "seconds_left"


def test_usage_by_other_programs_only_delays_the_inference():
    """Remaining falls by more than our own requests, so more readings are needed."""
    readings = [
        reading(NOW_S + n * 0.78, 60 - round(n * 0.78), remaining=299 - n - 3 * n)
        for n in range(20)
    ]

    assert infer_reset_unit(readings[:5]).unit == "undetermined"
    assert infer_reset_unit(readings).unit == "seconds_left"


@st.composite
def services(draw: st.DrawFn) -> tuple[str, list[Reading]]:
    """Draw a unit and readings of a service that uses it, as a client may see them."""
    unit = draw(st.sampled_from(UNITS))
    kind = draw(st.sampled_from(["fixed", "aligned", "sliding", "constant", "zero"]))
    window_s = draw(st.sampled_from([1.0, 2.0, 60.0, 3600.0, 86_400.0]) | st.floats(1.0, 4000.0))
    rounding = draw(st.sampled_from([math.ceil, math.floor, round]))
    skew_s = draw(st.sampled_from([0.0]) | st.floats(-86_400.0, 86_400.0))
    source = draw(st.sampled_from(["live", "recorded", "replayed"]))
    years_s = draw(st.floats(0.0, 3e8)) if source == "replayed" else 0.0
    times_known, dated = draw(st.booleans()), draw(st.booleans())
    regular = draw(st.none() | st.sampled_from([0.999, 1.0, 1.001, 5.0, 60.06]))
    gaps = st.just(regular) if regular else st.floats(0.0, 40.0) | st.floats(0.0, 0.05)
    latencies = st.floats(0.0, draw(st.sampled_from([0.0, 0.05, 3.0])))
    limit, others = draw(st.sampled_from([40, 300])), draw(st.sampled_from([0, 0, 1, 5, 80]))
    tells_remaining = draw(st.sampled_from(["counted", "counted", "constant", "missing"]))
    now, starts, used, renewed, readings = NOW_S, {0: NOW_S, 1: NOW_S}, {0: 0, 1: 0}, {}, []
    play = NOW_S
    for _ in range(draw(st.integers(1, 25))):
        operation = draw(st.integers(0, 1))
        long_s = window_s * (operation + 1)
        if now >= starts[operation] + long_s:
            starts[operation] = now
        renews_at = {
            "fixed": starts[operation] + long_s,
            "aligned": (now // long_s + 1) * long_s,
            "sliding": max(starts[operation], now - draw(st.floats(0.0, long_s))) + long_s,
        }.get(kind, now + long_s)
        window = renews_at if kind in ("aligned", "sliding") else starts[operation]
        if renewed.setdefault(operation, window) != window:
            freed = draw(st.integers(1, 5)) if kind == "sliding" else limit
            renewed[operation], used[operation] = window, max(0, used[operation] - freed)
        used[operation] = min(limit, used[operation] + 1 + draw(st.integers(0, others)))
        remaining = {"counted": limit - used[operation], "constant": 3}.get(tells_remaining)
        reset = 0 if kind == "zero" else reset_value(unit, renews_at - now, renews_at, rounding)
        to_us, to_them = draw(latencies), draw(latencies)
        at, elapsed_s = now + to_us + skew_s, to_us + to_them
        if years_s > 1e6:
            # A cassette without times is replayed, so the clock is that of the replay.
            play += draw(st.sampled_from([0.0003, 1.0]))
            at, elapsed_s = play + years_s, 0.0003
        fields = {"path": "/" + "ab"[operation], "limit": limit, "remaining": remaining}
        fields |= {"source": source, "served_at": float(int(now)) if dated else None}
        elapsed = elapsed_s if times_known else None
        readings.append(reading(at, max(reset, 0), elapsed_s=elapsed, **fields))
        now += draw(gaps) + to_them
    return unit, readings


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(services(), st.none() | services())
def test_the_unit_is_never_a_wrong_one(first, second):
    """The test covers wrong clocks, slow networks, any window, old replays and two services."""
    units, readings = zip(*filter(None, (first, second)), strict=True)
    mixed = sorted(chain(*readings), key=lambda one: one.at) if second else readings[0]

    assert infer_reset_unit(mixed).unit in (*units, "undetermined")


def test_another_server_says_nothing_of_the_unit():
    readings = window("seconds_left", BY_HAND)
    other = reading(NOW_S + 55, int(NOW_S) + 115, elsewhere="https://other.test")

    assert infer_reset_unit([*readings, other]).unit == "seconds_left"
