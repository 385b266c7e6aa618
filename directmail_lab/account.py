"""Calls on the current session: its rate limits, interactions and charts, and bursts."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from .contract import ME_PATH
from .current import on_current, session
from .display import ProgressBar
from .drifting import drift as drift_of
from .transports import recorded_request

if TYPE_CHECKING:
    import pandas as pd

    from .cassettes.view import InteractionView
    from .charts import Chart, Kind
    from .quota import Reading


drift = on_current(drift_of)


def rate_limits(
    cassette: str | Path | None = None, *, by: Literal["response", "window"] = "response"
) -> pd.DataFrame:
    """Return readings of the rate-limit headers, a row for each response.

    Parameters
    ----------
    cassette
        Read a cassette's responses, without replaying them; by default those of the current
        session.
    by
        ``"response"`` gives a row for each response, ``"window"`` a row for each window: how much
        of it was used here, by others that share the allowance, and by anybody else.

    Returns
    -------
    DataFrame
        Columns as in `ReadingLog.frame`, or by window as in `frame_of_windows`; no rows where there
        was no response.
    """
    if cassette is not None:
        from .cassettes import find_cassette
        from .readings import read_readings, readings_in

        if by == "window":
            from .pacing.windows import frame_of_windows, windows_in

            return frame_of_windows(windows_in(readings_in(find_cassette(cassette))))
        return read_readings(find_cassette(cassette))
    return session().rate_limits(by=by)


def check_contract(cassette: str | Path | None = None) -> pd.DataFrame:
    """Return a verdict on each of the contract's three rules for rate limits, by operation.

    Parameters
    ----------
    cassette
        Check a cassette's responses; by default those of the current session.

    Returns
    -------
    DataFrame
        See `directmail_lab.contract_check.check_contract`.
    """
    from .contract_check import check_contract as check

    if cassette is None:
        log = session().readings
        return check(log.since(0), reset_unit=log.reset_unit)
    from .cassettes import find_cassette
    from .readings import readings_in

    return check(readings_in(find_cassette(cassette)))


@overload
def interactions(cassette: str | Path | None = None, *, number: None = None) -> pd.DataFrame: ...


@overload
def interactions(cassette: str | Path, *, number: int) -> InteractionView: ...


def interactions(
    cassette: str | Path | None = None, *, number: int | None = None
) -> pd.DataFrame | InteractionView:
    """Return what a cassette holds, a row for each interaction; see `read_interactions`.

    Parameters
    ----------
    cassette
        A bare name or the `Path` of a file; by default the one that is in use.
    number
        Return this interaction of a named cassette instead, counted from 1, shown in full; its
        ``.as_curl()`` and ``.as_httpx()`` are code that sends the request again.

    Raises
    ------
    NotRecordedError
        There is no such cassette.
    CassetteError
        No cassette is named and none is in use, or it cannot be read.
    """
    if cassette is None:
        return session().interactions()
    from .cassettes import find_cassette
    from .cassettes.view import read_interactions, show_interaction

    path = find_cassette(cassette)
    return read_interactions(path) if number is None else show_interaction(path, number)


def chart_rate_limits(frame: pd.DataFrame | None = None, *, kind: Kind = "remaining") -> Chart:
    """Return the readings as a chart.

    Parameters
    ----------
    frame
        A frame as `rate_limits` gives it; by default the current session's.
    kind
        ``"remaining"``: what remains over time, by operation, under its limit. ``"allowance"``:
        what each operation may do in a window, and what is left of it. ``"latency"``: how long the
        responses took.

    Returns
    -------
    matplotlib.figure.Figure
        It shows as a PNG where it is a cell's result, and stays in the saved notebook.
    """
    from . import charts

    return charts.chart_rate_limits(rate_limits() if frame is None else frame, kind=kind)


def burst(n: int, path: str = ME_PATH) -> pd.DataFrame:
    """Send ``n`` GET requests through the current session, one after the other.

    The session's pacing applies. A progress bar appears after a second. An interruption leaves the
    session usable, and `rate_limits` then has the readings of what was sent before it. A replay
    that runs out of answers repeats the last one, and a warning says so.

    Parameters
    ----------
    n
        How many, 1 or more.
    path
        The path below the base address.

    Returns
    -------
    DataFrame
        The readings that these requests made, retries included: columns as in `rate_limits`.

    Raises
    ------
    ValueError
        Where ``n`` is less than 1; nothing is sent.
    """
    from .readings import frame_of

    if n < 1:
        raise ValueError(f"burst({n}) would send nothing. Give 1 or more.")
    opened = session()
    here = threading.get_ident()
    made: list[Reading] = []
    cassette = opened.open_cassette
    asked, repeated = recorded_request(opened.client.build_request("GET", path)), 0

    def keep(reading: Reading) -> None:
        # Another thread's requests on the same session are not this burst's.
        if threading.get_ident() == here:
            made.append(reading)

    stop = opened.on_reading(keep)
    try:
        with ProgressBar(n, desc=f"GET {path}", unit="request") as bar:
            for _ in range(n):
                if cassette is not None and not cassette.records:
                    repeated += not cassette.holds_answer(asked, base_url=opened.base_url)
                opened.request("GET", path)
                bar.update()
    finally:
        stop()
    if repeated:
        warnings.warn(
            f"Cassette {opened.cassette!r} had {n - repeated} answers left to GET {path}: the last "
            f"one was given again {repeated} times.",
            stacklevel=2,
        )
    return frame_of(made)
