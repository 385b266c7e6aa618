"""The calls on the current session: what the account is, what was asked, what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .current import session

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from pathlib import Path

    import pandas as pd

    from .charts import Chart
    from .http import httpx

__all__ = [
    "chart_rate_limits",
    "check_contract",
    "drift",
    "get",
    "interactions",
    "me",
    "me_async",
    "post",
    "rate_limits",
    "request",
]


def me() -> pd.DataFrame:
    """Return the current user's record, one row; see `Session.me`."""
    return session().me()


async def me_async() -> pd.DataFrame:
    """Return the current user's record, one row, without blocking; see `Session.me_async`."""
    return await session().me_async()


def request(method: str, path: str, **options: Any) -> httpx.Response:
    """Send a request through the current session; see `Session.request`."""
    return session().request(method, path, **options)


def get(path: str, **options: Any) -> httpx.Response:
    """Send a GET through the current session; see `Session.request`."""
    return session().request("GET", path, **options)


def post(path: str, **options: Any) -> httpx.Response:
    """Send a POST through the current session, which must allow writes; see `Session.request`."""
    return session().request("POST", path, **options)


def rate_limits(cassette: str | Path | None = None) -> pd.DataFrame:
    """Return readings of the rate-limit headers, a row for each response.

    Parameters
    ----------
    cassette
        Read a cassette's responses, without replaying them; by default those of the current
        session.

    Returns
    -------
    DataFrame
        Columns as in `ReadingLog.frame`; no rows where there was no response.
    """
    if cassette is not None:
        from .cassettes import find_cassette
        from .readings import read_readings

        return read_readings(find_cassette(cassette))
    return session().rate_limits()


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


def interactions(cassette: str | Path | None = None) -> pd.DataFrame:
    """Return what a cassette holds, a row for each interaction; see `read_interactions`.

    Parameters
    ----------
    cassette
        A bare name or the `Path` of a file; by default the one that is in use.

    Raises
    ------
    NotRecordedError
        There is no such cassette.
    CassetteError
        None is named and none is in use, or it cannot be read.
    """
    if cassette is None:
        return session().interactions()
    from .cassettes import find_cassette, read_interactions

    return read_interactions(find_cassette(cassette))


def chart_rate_limits(frame: pd.DataFrame | None = None) -> Chart:
    """Return the readings as a chart: what remains over time, by operation, under its limit.

    Parameters
    ----------
    frame
        A frame as `rate_limits` gives it; by default the current session's.

    Returns
    -------
    matplotlib.figure.Figure
        It shows as a PNG where it is a cell's result, and stays in the saved notebook.
    """
    from . import charts

    return charts.chart_rate_limits(rate_limits() if frame is None else frame)


def drift(
    cassette: str | Path,
    *,
    ignore: Iterable[str] = (),
    max_age: timedelta | str | None = None,
    on_old: Literal["warn", "raise"] = "warn",
) -> pd.DataFrame:
    """Send a cassette's reads again, live, and return what is answered differently now.

    It is `directmail_lab.drifting.drift` on the current session, which needs a key; see there for
    the columns and for what counts as volatile.

    Parameters
    ----------
    cassette
        A bare name, or the `Path` of a file.
    ignore
        More paths and headers that may change, beside the documented ones.
    max_age
        A recording older than this, such as ``"90 days"``, warns, or raises as ``on_old`` says.
    """
    from .drifting import drift as drift_of

    return drift_of(session(), cassette, ignore=ignore, max_age=max_age, on_old=on_old)
