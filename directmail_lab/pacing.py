"""Pacing: requests go at will while the service says that some remain, and wait where none do."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal, Protocol

import httpx

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .reset_unit import ResetUnit

__all__ = ["Pace", "PacingTransport"]

Pace = Literal["burst", "even", "off"]


class _Inner(Protocol):
    def handle_request(self, request: httpx.Request) -> httpx.Response: ...

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...


class PacingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends at will while requests remain, and waits where none do."""

    def __init__(
        self,
        inner: _Inner,
        *,
        pace: Pace = "burst",
        max_wait_s: float = 120.0,
        reset_unit: ResetUnit | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        asleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._inner.handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._inner.handle_async_request(request)
