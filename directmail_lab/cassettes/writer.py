"""Write whole cassettes in our layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..exchange.values import Interaction
from ..redaction import Redactor
from ..settings import VERSION
from . import layout
from .library import Version, create


def write_cassette(
    path: Path,
    metadata: Mapping[str, object],
    parts: Iterable[Interaction | bytes],
    redactor: Redactor,
    *,
    version: Version | None = None,
    ready: Callable[[Path], object] = lambda _: None,
) -> None:
    """Write a redacted cassette, and let it replace ``path`` when it is complete.

    ``ready`` is called with the complete file before that. If the old file no longer has the
    ``version``, it raises the error of `create`.
    """
    with create(path, version) as new:
        with new.open("wb") as file:
            file.write(header_text(metadata, redactor).encode())
            for part in parts:
                if isinstance(part, Interaction):
                    part = redactor.redacted_text(part, layout.interaction_text)[0].encode()
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        ready(new)


def header_text(metadata: Mapping[str, object], redactor: Redactor) -> str:
    """Return the first lines of a cassette, redacted."""
    # `recorded_with` comes first, since our reader knows our own layout by it.
    about: dict[str, object] = {"recorded_with": f"{layout.WRITER} {VERSION}"}
    others = redacted_metadata(metadata, redactor)
    about |= {name: value for name, value in others.items() if name not in about}
    text = layout.header_text(about)
    redactor.refuse_leak(text)
    return text


def redacted_metadata(metadata: Mapping[str, object], redactor: Redactor) -> dict[str, object]:
    """Return a cassette's metadata as it may be written, with the rules of redaction."""
    about = {
        name: redactor.text(value) if isinstance(value, str) else value
        for name, value in metadata.items()
    }
    return about | ({"redact": list(redactor.redact)} if redactor.redact else {})
