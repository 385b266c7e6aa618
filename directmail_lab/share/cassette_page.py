"""A recording as one HTML file: `browse`, read-only, in any web browser, from disk.

The file contains one script, and every response that the script needs. `handle_request` made all of
them. The file's policy allows this script and no request, so the page loads and sends nothing,
whatever the recording contains.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..cassettes import FileRecording, Recording
from ..cassettes.library import create
from ..display import CONTROLS, ProgressBar
from ..errors import CassetteFormatError, DirectMailLabError
from ..notebook.browser_data import MAX_ROWS, handle_request, read_page, rows, static_table, text_of
from ..redaction.key import KeySearch
from ..redaction.suspects import Part, parts_of
from ..tracebacks import warn_caller
from . import audit

_MAX_BYTES = 20_000_000
_PART = 200
_MOST_HOSTS = 3
_MOST_TABLES = 1_000
_NO_TABLE = {"problem": "The page of more than 1,000 interactions has no tables."}

_POLICY = (
    "default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
    "img-src blob: data:; base-uri 'none'; form-action 'none'"
)
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main id="recording">
<div class="dml dml-p-first">
<div class="dml-title">{title}</div>
<p class="dml-soft dml-p-about">{about}</p>
{table}
<p>To filter, search and open the interactions, you need JavaScript and Chrome or Edge 123,
Firefox 120, Safari 17.5, or a later version.</p>
</div>
</main>
{data}
<script>{script}</script>
</body>
</html>
"""


def save_page(recording: Recording, target: str | Path) -> Path:
    """Write a recording as one HTML file, and return its path.

    An existing file is replaced once the new one is complete, and a missing folder is made. The
    same recording gives the same file.

    Warns
    -----
    UserWarning
        The recording contains personal data, such as e-mail addresses.

    Raises
    ------
    DirectMailLabError
        The recording contains a key or another credential, the page would be larger than 20 MB, or
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
    base_urls = recording.base_urls if isinstance(recording, FileRecording) else ()
    search = audit.search_for([recording.base_url, *base_urls])
    findings = audit.find(_parts_to_search(recording), search)
    audit.refuse_secrets(findings)
    page = make_page(recording, search)
    if page is None:
        raise DirectMailLabError(
            f"Nothing was written, because the page of {recording.name} would be larger than "
            f"{_MAX_BYTES:,} bytes.",
            "Share the recording itself, or record it in parts.",
        )
    redact = f"To replace it: directmail-lab cassette redact {recording.name} -r personal"
    advice = redact if recording.path else 'Record with redact=["personal"].'
    for found in audit.first_places(findings):
        warn_caller(f"The page contains {found}. {advice}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with create(target) as new:
        new.write_bytes(page)
    return target


def make_page(recording: Recording, search: KeySearch) -> bytes | None:
    """Return a recording as an HTML file; None if it would be larger than 20 MB.

    This searches each part of the page for keys before it is compressed, since nothing finds a key
    afterwards. Looking for other credentials is up to the caller.

    Raises
    ------
    DirectMailLabError
        A part of the page contains a key.
    """
    script, style = read_page("page")
    title = html.escape(CONTROLS.sub(" ", recording.title))
    table, _ = static_table(recording)
    size = len(script) + len(style) + len(table)
    data = []
    with ProgressBar(len(recording), desc="Making the page", unit="interaction") as bar:
        for where, part in _parts(recording):
            text = json.dumps(part, separators=(",", ":"), allow_nan=False)
            if search.holds(text):
                audit.refuse_secrets([audit.Finding("secret", "your API key", where)])
            packed = b64encode(gzip.compress(text.encode(), mtime=0)).decode()
            data.append(f'<script type="text/plain">{packed}</script>')
            size += len(data[-1])
            if size > _MAX_BYTES:
                return None
            bar.update(_PART)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _PAGE.format(
        policy=_POLICY.format(digest=digest),
        title=title,
        style=style,
        about=html.escape(_about(recording)),
        table=table,
        data="\n".join(data),
        script=script,
    )
    return page.encode()


def _about(recording: Recording) -> str:
    """Return what the page is, from which hosts, and when it was recorded."""
    found = []
    for number in range(1, len(recording) + 1):
        with suppress(CassetteFormatError, ValueError):  # neither file nor address is checked
            address = urlsplit(recording.interaction(number).request.uri)
            found.append(address.netloc.rpartition("@")[2])
    hosts = [*filter(None, dict.fromkeys(found))]
    more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
    names = ", ".join(hosts[:_MOST_HOSTS]) + more
    days = recording.recorded_when.removeprefix("on ")
    about = " · ".join(filter(None, ("Recorded HTTP requests", names, days)))
    return CONTROLS.sub(" ", about)


def _parts_to_search(recording: Recording) -> Iterator[Part]:
    """Yield each part of the interactions that can be read, for `audit`."""
    yield "the name", recording.title
    for number in range(1, len(recording) + 1):
        try:
            interaction = recording.interaction(number)
        except CassetteFormatError as error:  # the page shows this sentence
            yield f"interaction {number}", str(error)
        else:
            yield from parts_of(interaction, f"interaction {number}")


# -- the data of the page; src/page.ts reads it ----------------------------------------------------


def _parts(recording: Recording) -> Iterator[tuple[str, Any]]:
    """Yield each part with a name for errors: first the list, then the interactions."""
    count = len(recording)  # a session may get more meanwhile
    head, _ = handle_request(recording, {"action": "list", "first": 1, "limit": 0})
    table = [row for first in range(1, count + 1, MAX_ROWS) for row in rows(recording, first)]
    head |= {"total": count, "rows": table[:count]}
    yield "the list", {"size": _PART, "head": head}
    each_once = copy(recording)  # ten responses are about each interaction
    each_once.interaction = lru_cache(1)(recording.interaction)  # type: ignore[method-assign]
    each_once.reading = lru_cache(1)(recording.reading)  # type: ignore[method-assign]
    for first in range(1, count + 1, _PART):
        numbers = range(first, min(first + _PART, count + 1))
        packed = [_packed(each_once, each, has_table=count <= _MOST_TABLES) for each in numbers]
        yield f"interactions {numbers[0]}-{numbers[-1]}", packed


def _packed(recording: Recording, number: int, *, has_table: bool) -> dict[str, Any]:
    """Return all responses about an interaction."""

    def ask(action: str, **more: object) -> tuple[Any, list[bytes]]:
        return handle_request(recording, {"action": action, "number": number, **more})

    detail, shown = ask("detail")
    body = {}
    contents = {}
    for at, message in enumerate(("request", "response")):
        body[message], saved = ask("body", message=message)
        if shown:
            text = text_of(getattr(recording.interaction(number), message))
            contents[message] = _contents(shown[at], saved[0], text)
    kinds = ("curl", "request")
    return {
        "detail": detail,
        "copy": {kind: ask("copy", format=kind, has_key=False)[0] for kind in kinds},
        "table": ask("table")[0] if has_table else _NO_TABLE,
        "body": body,
        "contents": contents or None,
    }


def _contents(shown: bytes, saved: bytes, text: str) -> dict[str, str]:
    """Return a body as it is shown, saved and searched; without the last two if they are equal."""
    contents = {"shown": _as_text(shown)}
    if saved != shown:
        contents["saved"] = _as_text(saved)
    if saved.decode("utf-8", "replace") != text:
        contents["text"] = text
    return contents


def _as_text(data: bytes) -> str:
    """Return bytes as text: ``"t"`` and the text, or ``"b"`` and base64."""
    try:
        return f"t{data.decode()}"
    except UnicodeDecodeError:
        return f"b{b64encode(data).decode()}"
