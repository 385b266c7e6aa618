"""A burst of reads, to see how the allowance goes down."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .contract import ME_PATH
from .current import session
from .readings import frame_of

if TYPE_CHECKING:
    import pandas as pd

    from .quota import Reading

__all__ = ["burst"]


def burst(n: int, path: str = ME_PATH) -> pd.DataFrame:
    """Send ``n`` GET requests through the current session, one after the other.

    They are paced as the session is. A progress bar shows while it takes longer than a second;
    interrupting it leaves the session usable, and what was sent by then in `rate_limits`.

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
    from tqdm.auto import tqdm

    if n < 1:
        raise ValueError(f"burst({n}) would send nothing. Give 1 or more.")
    opened = session()
    here = threading.get_ident()
    made: list[Reading] = []

    def keep(reading: Reading) -> None:
        # Another thread's requests on the same session are not this burst's.
        if threading.get_ident() == here:
            made.append(reading)

    stop = opened.on_reading(keep)
    try:
        for _ in tqdm(range(n), desc=f"GET {path}", unit="request", delay=1, leave=False):
            opened.request("GET", path)
    finally:
        stop()
    return frame_of(made)
