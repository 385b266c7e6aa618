"""The body of a response that comes from a server: live and while recording."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from ...exchange.bodies import MAX_UNPACKED_BYTES
from ...exchange.httpx_values import httpx

_MOST_KEPT_BYTES = MAX_UNPACKED_BYTES
"""The largest body that is kept while it is read."""


class BoundedDecoder:
    """Decompresses a response that is read at once, up to 64 MB: 2 MB of gzip can expand to 2 GB.

    httpx has no bound. It calls what the response has as ``_decoder``.
    """

    def __init__(self, response: httpx.Response) -> None:
        self._inner: Any = response._get_content_decoder()
        self._left = MAX_UNPACKED_BYTES

    def decode(self, data: bytes) -> bytes:
        plain: bytes = self._inner.decode(data)
        self._left -= len(plain)
        if self._left < 0:
            raise httpx.DecodingError(f"it expands to more than {MAX_UNPACKED_BYTES:,} bytes")
        return plain

    def flush(self) -> bytes:
        plain: bytes = self._inner.flush()
        return plain


def _unchanged(error: BaseException) -> BaseException:
    return error


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a response, whose parts go to the caller as they come.

    An error that ends the body passes ``ended``, then ``explain``.

    Parameters
    ----------
    stream
        The parts of the body: an iterable or an asynchronous one.
    ended
        Called once: before the caller sees the end of the body, when the caller leaves it, with
        GeneratorExit, or with the error that ended it. What it raises reaches the caller.
    explain
        Converts an error of httpx to one that says what happened.

    Attributes
    ----------
    refusal
        Raised in place of the first part.
    length
        How many bytes the body has, if that is known.
    size
        How many bytes were read.
    """

    def __init__(
        self,
        stream: Any,
        ended: Callable[[Body, BaseException | None], object],
        explain: Callable[[BaseException], BaseException] = _unchanged,
    ) -> None:
        self._stream = stream
        self._parts: list[bytes] = []
        self._ended: Callable[[Body, BaseException | None], object] | None = ended
        self._explain = explain
        self.refusal: Exception | None = None
        self.length: int | None = None
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        try:
            # Without a local for a part: a traceback with locals would print what it echoes.
            yield from map(self._passed_on, self._stream)
            self.end()
        except BaseException as error:
            failure = self._failed(error)
        else:
            return
        raise failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield self._passed_on(part)
            self.end()
        except BaseException as error:
            part = b""  # so that no traceback shows what it echoes
            failure = self._failed(error)
        else:
            return
        raise failure

    def _passed_on(self, part: bytes) -> bytes:
        if self.refusal is not None:
            raise self.refusal
        self.size += len(part)
        if self._ended is not None:
            self._parts.append(part)
            if self.size > _MOST_KEPT_BYTES:
                self._parts.clear()
            # A client that knows the length sees the end when it has the last part.
            if self.size == self.length:
                self.end()
        return part

    @property
    def kept(self) -> bytes | None:
        """What was read of the body, or None if that is too large to be kept."""
        return None if self.size > _MOST_KEPT_BYTES else b"".join(self._parts)

    def end(self, error: BaseException | None = None) -> None:
        """Say that the body has ended, unless that was said before."""
        ended = self._ended
        self._ended = None
        if ended is not None:
            ended(self, error)
            self._parts.clear()

    def _failed(self, error: BaseException) -> BaseException:
        self.end(error)
        return self._explain(error)

    def close(self) -> None:
        try:
            try:
                self.leave()
            finally:
                self._stream.close()
        except BaseException as error:
            failure = self._failed(error)
        else:
            return
        finally:
            self._forget()
        raise failure

    async def aclose(self) -> None:
        try:
            try:
                self.leave()
            finally:
                await self._stream.aclose()
        except BaseException as error:
            failure = self._failed(error)
        else:
            return
        finally:
            self._forget()
        raise failure

    def leave(self) -> None:
        """Say that the caller reads no further, unless the body has ended."""
        is_whole = self.size == self.length
        self.end(None if is_whole else GeneratorExit())

    def _forget(self) -> None:
        """Forget the transports: a response must not keep the key of a dropped session alive."""
        self._stream = httpx.ByteStream(b"")
        self._explain = _unchanged
