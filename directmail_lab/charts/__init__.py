"""Charts of readings: a DataFrame in, a matplotlib figure out.

Each function takes the frame that `rate_limits()` gives and returns a `Chart`, a
`matplotlib.figure.Figure` that shows itself as a PNG where it is a notebook cell's last value. No
chart touches pyplot or its state.
"""

from __future__ import annotations

from .allowance import chart_allowance
from .figure import Chart
from .latency import chart_latency
from .remaining import chart_rate_limits

__all__ = ["Chart", "chart_allowance", "chart_latency", "chart_rate_limits"]
