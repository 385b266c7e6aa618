"""What a notebook's cell, or IPython in a terminal, shows of a response of a session.

The text is redacted as a recording is. Responses of other clients look as httpx shows them.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from IPython import get_ipython

from ..display import duration_text, picture_html, plural, size_text

if TYPE_CHECKING:
    from ..exchange.httpx_values import httpx

_MOST_LINES = 20
_MOST_CHARACTERS = 2_000
_MOST_READ = 100_000
_MOST_PICTURE_BYTES = 2 * 1024**2
_STYLE = """style="white-space: pre-wrap; padding: 0; margin: 0; \
font-family: var(--jp-code-font-family, monospace)\""""
# Red, and light enough on a dark page: half of it is the page's own colour of text.
_FAILED = "color: color-mix(in srgb, #d32f2f 60%, currentColor)"
_COPY = """ <input type="button" value="Copy" title="Copy what is shown, once the cell was run" \
onclick="navigator.clipboard.writeText(this.parentNode.nextSibling.textContent)">"""


def shown(response: httpx.Response) -> dict[str, str] | None:
    """Return what is shown of a session's response, by media type; None for another response."""
    # Imported when a response is first shown: IPython imports this module with the package.
    from ..exchange.bodies import PICTURE_TYPES, body_text, shown_text
    from ..exchange.httpx_values import httpx
    from ..exchange.values import is_json_type, media_type_of
    from ..readings.reading import MARKS, mark_of
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
    mark = mark_of(reading)
    facts = [
        f"{MARKS.get(mark, '')}{reading.status} {interaction.response.reason}".rstrip(),
        "JSON" if is_json_type(media_type) else media_type or "no content type",
        "its body was not read" if content is None else size_text(len(content)),
    ]
    if reading.elapsed_s is not None:
        facts.append(duration_text(reading.elapsed_s))
    if None not in (reading.remaining, reading.limit):
        facts.append(f"{reading.remaining:,} of {reading.limit:,} left")
    if reading.source == "replayed":
        at = interaction.recorded_at
        day = f", {at.day} {at:%b %Y}" if at else ""
        facts.append(f"replayed from {reading.cassette!r}{day}")
    facts = list(map(shown_text, facts))
    text = ""
    below = ""
    if content and media_type in PICTURE_TYPES and len(content) <= _MOST_PICTURE_BYTES:
        below = picture_html(media_type, content, f"The picture that the service sent: {facts[2]}")
    elif content and recording.has_bodies(received.number):
        whole = body_text(interaction.response.body, _MOST_READ)
        lines = whole[:_MOST_CHARACTERS].splitlines()[:_MOST_LINES]
        text = "\n".join(lines)
        if text != whole.rstrip():
            of_all = f" of {len(whole.splitlines()):,}" if len(whole) <= _MOST_READ else ""
            text += f"\n… {plural(len(lines), 'line')}{of_all}; dm.browse() shows all."
        below = f"<pre {_STYLE}>{html.escape(text)}</pre>"
    color = _FAILED if mark else ""
    status, *rest = map(html.escape, facts)
    head = " · ".join([f'<strong style="{color}">{status}</strong>', *rest])
    page = f"<div>{head}{_COPY if text else ''}</div>{below}"
    return {"text/plain": f"{' · '.join(facts)}\n{text}".rstrip(), "text/html": page}


def show_in_ipython() -> None:
    """Show responses of sessions in this way if this runs in IPython."""
    shell = get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.mimebundle_formatter
        formatter.for_type_by_name("httpx", "Response", shown)
