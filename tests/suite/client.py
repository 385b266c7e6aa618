"""A client with 15 operations, like one that a user of the package might test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx


class Account:
    """The service's operations, sent through the `httpx.Client` that is passed in."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def me(self) -> dict[str, Any]:
        return self._json("GET", "/v1/users/me")

    def balance(self, currency: str) -> dict[str, Any]:
        return self._json("GET", "/v1/balance", headers={"X-Currency": currency})

    def list(self, name: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/lists/{name}")

    def lists(self, size: int) -> Iterator[dict[str, Any]]:
        path: str | None = f"/v1/lists?size={size}"
        while path is not None:
            page = self._json("GET", path)
            yield from page["data"]
            path = page["next"]

    def search(self, text: str, *, city: str) -> dict[str, Any]:
        return self._json("GET", "/v1/search", params={"q": text, "city": city})

    def export(self, name: str) -> bytes:
        return self._send("GET", f"/v1/lists/{name}/export").content

    def create(self, name: str) -> dict[str, Any]:
        return self._json("POST", "/v1/lists", json={"name": name, "kind": "static"})

    def rename(self, name: str, new: str) -> dict[str, Any]:
        return self._json("PATCH", f"/v1/lists/{name}", json={"name": new})

    def delete(self, name: str) -> int:
        return self._send("DELETE", f"/v1/lists/{name}").status_code

    def upload(self, name: str, rows: bytes) -> dict[str, Any]:
        files = {"file": ("rows.csv", rows, "text/csv")}
        return self._json("POST", f"/v1/lists/{name}/rows", files=files)

    def letter(self, name: str, text: str, *, once: str) -> dict[str, Any]:
        body = {"list": name, "text": text}
        return self._json("POST", "/v1/letters", json=body, headers={"Idempotency-Key": once})

    def status(self, letter: str) -> str:
        return str(self._json("GET", f"/v1/letters/{letter}")["status"])

    def token(self, secret: str) -> dict[str, Any]:
        form = {"grant_type": "client_credentials", "client_secret": secret}
        return self._json("POST", "/v1/token", data=form)

    def check(self, name: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/checks/{name}")

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        return dict(self._send(method, path, **options).json())

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.http.request(method, path, **options).raise_for_status()


class AsyncAccount:
    """Some of the operations, sent through an `httpx.AsyncClient`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def list(self, name: str) -> dict[str, Any]:
        response = await self.http.get(f"/v1/lists/{name}")
        return dict(response.raise_for_status().json())

    async def events(self) -> AsyncIterator[str]:
        async with self.http.stream("GET", "/v1/events") as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    yield line.removeprefix("data: ")
