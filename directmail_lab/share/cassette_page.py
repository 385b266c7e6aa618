"""A recording as one HTML file: a table whose rows open, without a script.

Any web browser shows it from disk, and so do places that block scripts, such as a CI's artifacts
or a mail program. Every text of the recording is escaped, and the file's policy forbids each load.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from ..cassettes import Recording
from ..cassettes.library import create
from ..display import picture_html, plural, printable_line
from ..errors import DirectMailLabError
from ..exchange.bodies import PICTURE_TYPES
from ..exchange.operations import with_query
from ..exchange.values import Interaction, Request, Response, media_type_of
from ..questions.interaction_view import InteractionView
from ..tracebacks import warn_caller
from . import audit

_MAX_BYTES = 50_000_000
_BODY_CHARACTERS = 100_000
_STYLE = Path(__file__).with_suffix(".css")

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{about}. Click a path to open the interaction. Your browser's search (Ctrl+F) looks into all
of them.</p>
<table>
<thead><tr>
<th class="number">#</th>
<th class="wide">Time (UTC)</th>
<th>Method</th>
<th>Status</th>
<th class="number wide">Remaining</th>
<th class="number wide">ms</th>
<th class="address">Path</th>
</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</body>
</html>
"""
_ROW = """\
<tr><td class="number">{number}</td><td class="wide">{time}</td><td>{method}</td>\
<td class="{outcome}">{status}</td><td class="number wide">{remaining}</td>\
<td class="number wide">{ms}</td><td class="address"><details><summary>{address}</summary>
{details}
</details></td></tr>"""


def save_page(recording: Recording, target: str | Path) -> Path:
    """Write a recording as one HTML file, and return its path.

    An existing file is replaced once the new one is complete, and a missing folder is made. The
    same recording gives the same file. The page has the first 100,000 characters of each body.

    Warns
    -----
    UserWarning
        The recording contains personal data, such as e-mail addresses.

    Raises
    ------
    DirectMailLabError
        The recording contains a key or another credential, the page would be larger than 50 MB, or
        it would replace the recording itself. Nothing is written.
    OSError
        The file cannot be written.
    """
    target = Path(target)
    if recording.path and target.exists() and target.samefile(recording.path):
        raise DirectMailLabError(
            f"{target} is the recording itself. A page would replace it, so nothing was written.",
            f"Choose another name, such as {target.stem}.html.",
        )
    search = audit.search_for(recording.base_urls)
    interactions = list(recording)
    parts = [("the name", recording.title), *audit.parts_of_cassette(interactions)]
    audit.refuse_secrets(audit.secrets_in(parts, search))
    page = make_page(recording, interactions)
    personal = audit.personal_data(parts)
    if personal:
        redact = f"To replace it: directmail-lab cassette redact {recording.name} -r personal"
        advice = redact if recording.path else 'Record with redact=["personal"].'
        warn_caller(f"The page contains {personal}. {advice}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with create(target) as new:
        new.write_bytes(page)
    return target


def make_page(recording: Recording, interactions: Sequence[Interaction]) -> bytes:
    """Return a recording's interactions as an HTML file. The caller looks for credentials.

    Raises
    ------
    DirectMailLabError
        The file would be larger than 50 MB.
    """
    rows = []
    size = 0
    for number, interaction in enumerate(interactions, 1):
        rows.append(_row(recording, number, interaction))
        size += len(rows[-1])
        if size > _MAX_BYTES:
            raise DirectMailLabError(
                f"The page of {recording.name} would be larger than {_MAX_BYTES:,} bytes.",
                "Share the recording itself, or record it in parts.",
            )
    page = _PAGE.format(
        title=_escaped(recording.title),
        style=_STYLE.read_text("utf-8"),
        about=_escaped(described(recording)),
        rows="\n".join(rows),
    )
    return page.encode("utf-8", "replace")


def described(recording: Recording) -> str:
    """Return how much a recording has, from when and where."""
    count = plural(len(recording), "interaction")
    source = f", from {recording.base_url}" if recording.base_url else ""
    return f"{count}{recording.recorded_note}{source}"


def _row(recording: Recording, number: int, interaction: Interaction) -> str:
    reading = recording.reading(number)
    at = interaction.recorded_at
    view = InteractionView(interaction, recording.has_bodies(number), reading.why_cut)
    is_failed = reading.status >= 400 or reading.cut
    return _ROW.format(
        number=number,
        time=f"{at:%Y-%m-%d %H:%M:%S}" if at else "",
        method=_escaped(reading.method),
        outcome="failed" if is_failed else "",
        status=reading.status or "none",
        remaining="" if reading.remaining is None else reading.remaining,
        ms="" if reading.elapsed_s is None else round(reading.elapsed_s * 1000),
        address=_escaped(with_query(reading.path, interaction.request.uri)),
        details=_details(view),
    )


def _details(view: InteractionView) -> str:
    messages: tuple[Request | Response, ...] = (view.interaction.request, view.interaction.response)
    parts = []
    for message, texts in zip(messages, view.texts(_BODY_CHARACTERS), strict=True):
        title, headers, body = map(html.escape, texts)
        parts += [f"<h2>{title}</h2>", f"<pre>{headers}</pre>"]
        media_type = media_type_of(message.headers)
        if message.body and media_type in PICTURE_TYPES:
            parts.append(picture_html(media_type, message.body, "The body"))
        elif body:
            parts.append(f"<pre>{body}</pre>")
    return "\n".join(parts)


def _escaped(text: str) -> str:
    return html.escape(printable_line(text))
