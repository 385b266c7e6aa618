"""The environment, read where no traceback shows it.

IPython's ``%xmode Verbose`` prints the values of what stands on a line that raises. ``os.environ``
there would print every variable, the API key among them, into the cell's saved output. So only this
module names it, on a line that cannot raise.
"""

from __future__ import annotations

import os

__all__ = ["variable"]


def variable(name: str) -> str | None:
    """Return an environment variable without the space around it; None where unset or empty."""
    value = os.environ.get(name)
    return value.strip() or None if value else None
