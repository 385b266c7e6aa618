"""What a notebook's cell, or IPython in a terminal, shows of a response of a session.

The text is redacted as a recording is. Responses of other clients look as httpx shows them.
"""

from __future__ import annotations

import html
from base64 import b64encode
from typing import TYPE_CHECKING

from IPython import get_ipython

if TYPE_CHECKING:
    from ..exchange.httpx_values import httpx

_MOST_LINES = 20
_MOST_CHARACTERS = 2_000
_MOST_PICTURE_BYTES = 2 * 1024**2


def shown(response: httpx.Response) -> dict[str, str] | None:
    """Return what is shown of a session's response, by media type; None for another response."""
    # Imported when a response is first shown: IPython imports this module with the package.
    from ..exchange.bodies import PICTURE_TYPES, body_text, shown_text
    from ..exchange.httpx_values import httpx
    from ..exchange.values import media_type_of
    from ..sessions.transports.extensions import received_of

    received = received_of(response)
    recording = received.recording
    reading = received.reading
    if recording is None or reading is None:
        return None
    interaction = recording.interaction(received.number)
    try:
        content = response.content
    except httpx.ResponseNotRead:
        content = None
    media_type = media_type_of(interaction.response.headers)
    facts = [
        f"{reading.status} {interaction.response.reason}".rstrip(),
        media_type or "no content type",
        "its body was not read" if content is None else f"{len(content):,} bytes",
    ]
    if reading.elapsed_s is not None:
        facts.append(f"{reading.elapsed_s:.3f} s")
    if None not in (reading.remaining, reading.limit):
        facts.append(f"{reading.remaining} of {reading.limit} requests left")
    if reading.source == "replayed":
        facts.append(f"replayed from {reading.cassette!r}{recording.recorded_note}")
    head = shown_text(" · ".join(facts))
    text = ""
    page = f'<div style="font-weight: bold">{html.escape(head)}</div>'
    if content and media_type in PICTURE_TYPES and len(content) <= _MOST_PICTURE_BYTES:
        data = b64encode(content).decode("ascii")
        page += f'<img style="max-width: 100%" src="data:{media_type};base64,{data}">'
    elif content and recording.has_bodies(received.number):
        lines = body_text(interaction.response.body, _MOST_CHARACTERS).splitlines()
        text = "\n".join(lines[:_MOST_LINES])
        if len(lines) > _MOST_LINES:
            text += "\n…"
    if text:
        page += f'<pre style="white-space: pre-wrap; padding: 0">{html.escape(text)}</pre>'
    return {"text/plain": f"{head}\n{text}".rstrip(), "text/html": page}


def show_in_ipython() -> None:
    """Show responses of sessions in this way if this runs in IPython."""
    shell = get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.mimebundle_formatter
        formatter.for_type_by_name("httpx", "Response", shown)
