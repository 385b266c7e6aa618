"""Charts of readings: a DataFrame in, a matplotlib figure out.

`chart_rate_limits` takes the frame that `rate_limits()` gives and returns a `Chart`, a
`matplotlib.figure.Figure` that shows itself as a PNG where it is a notebook cell's last value. No
chart touches pyplot or its state.
"""

from __future__ import annotations

from .drawing import Kind as Kind, chart_rate_limits as chart_rate_limits
from .figure import Chart as Chart
