"""The HTTP client that everything here uses: no other module imports it.

A fork that is maintained on (httpx2) takes its place by a change of this one line.
"""

from __future__ import annotations

import httpx

__all__ = ["httpx"]
