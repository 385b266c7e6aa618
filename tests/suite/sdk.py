"""Clients that work like SDKs: each takes an httpx client, adds its own key, and retries."""

from __future__ import annotations

from typing import Any


class Completions:
    """Works like OpenAI's SDK: it builds a request with a bearer token, then sends it."""

    def __init__(self, *, api_key: str, base_url: str, http_client: Any) -> None:
        self.http = http_client
        self._options: dict[str, Any] = {
            "method": "POST",
            "url": f"{base_url}/v1/chat/completions",
            "headers": {"Authorization": f"Bearer {api_key}"},
        }

    def complete(self, prompt: str) -> str:
        request = self.http.build_request(**self._options, json={"prompt": prompt})
        response = self.http.send(request)
        if response.status_code == 429:
            response = self.http.send(request)
        return str(response.raise_for_status().json()["text"])

    async def complete_async(self, prompt: str) -> str:
        request = self.http.build_request(**self._options, json={"prompt": prompt})
        response = await self.http.send(request)
        if response.status_code == 429:
            response = await self.http.send(request)
        return str(response.raise_for_status().json()["text"])


class Messages:
    """Works like Anthropic's SDK: it sends the key in its own header and reads events."""

    def __init__(self, *, api_key: str, base_url: str, http_client: Any) -> None:
        self.http, self._url = http_client, f"{base_url}/v1/messages"
        self._options: dict[str, Any] = {"headers": {"X-Api-Key": api_key}, "json": {"stream": 1}}

    def stream(self) -> list[str]:
        with self.http.stream("POST", self._url, **self._options) as response:
            return [line[6:] for line in response.iter_lines() if line.startswith("data: ")]

    async def stream_async(self) -> list[str]:
        async with self.http.stream("POST", self._url, **self._options) as response:
            lines = [line async for line in response.aiter_lines()]
        return [line[6:] for line in lines if line.startswith("data: ")]
