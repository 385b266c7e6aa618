"""A recording in progress: which file it goes to, and what becomes of the cassette at its end."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

from directmail_lab.errors import CassetteError
from directmail_lab.interaction import base_path
from directmail_lab.redaction import Redactor
from directmail_lab.redaction.named_secrets import secrets_in

from . import layout
from .reader import read_cassette
from .recorder import LineWriter, hold, let_go, replace_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from directmail_lab.interaction import Interaction, RecordedRequest

    from .matching import Key, Matching


__all__ = ["ReRecording", "Recording", "about_recording"]


class Recording:
    """Appends redacted interactions to a cassette; the lock on it is held until `close`.

    A cassette in another program's layout is rewritten, redacted, at the first interaction; the
    old file stands until the new one is whole.

    Attributes
    ----------
    loaded
        What the cassette held when it was opened; None where there was no file.
    closed
        Whether it has ended, and the lock was released.
    """

    def __init__(self, path: Path, *, redactor: Redactor, metadata: Mapping[str, object]) -> None:
        self._lock = hold(path)
        try:
            self.loaded = read_cassette(path) if path.exists() else None
        except BaseException:
            let_go(self._lock)
            raise
        self._path = self._file = path
        # What was once redacted in a cassette is redacted in it from then on.
        self._redactor = redactor.also(self.loaded.redact if self.loaded else ())
        self._metadata = metadata
        self._writer: LineWriter | None = None
        self._process = os.getpid()
        self.closed = False
        # A poll sends one request over and over: its line is made once.
        self._last: tuple[RecordedRequest | None, str | None] = None, None

    def append(self, interaction: Interaction) -> None:
        """Redact an interaction and write it: when this returns, a kill does not lose it."""
        if self.closed:
            raise CassetteError(
                f"The recording of cassette {self._path.stem!r} was closed. Record it again to add "
                "to it."
            )
        text = self._text(self._redactor.interaction(interaction))
        if self._writer is None:
            self._writer = self._start()
        self._writer.append(text)

    def interactions(self) -> Iterator[Interaction]:
        """Yield what the cassette holds by now."""
        if self._writer is not None:
            yield from read_cassette(self._path if self.closed else self._file).interactions
        elif self.loaded is not None:
            yield from self.loaded.interactions

    def count(self) -> int:
        """Return how many interactions the cassette holds by now."""
        if self._writer is not None:
            return self._writer.count
        return len(self.loaded.interactions) if self.loaded is not None else 0

    def close(self) -> None:
        """Close the file and release the lock; a second time does nothing."""
        if os.getpid() != self._process:  # a forked child must not write into its parent's file
            return
        if self.closed:
            return
        self.closed = True
        try:
            if self._writer is not None:
                self._finish(self._writer)
        finally:
            let_go(self._lock)

    def _start(self) -> LineWriter:
        sound = self.loaded
        if sound is not None and (
            sound.layout in ("vcrpy", "json") or sound.redact != self._redactor.redact
        ):
            metadata = {
                **self._metadata,
                **sound.metadata,
                "recorded_with": self._metadata["recorded_with"],
                "base_url": sound.base_url or self._metadata.get("base_url"),
            }
            # Its credentials are none that we were told: they are known by where they stand.
            learned = Redactor(secrets_in(sound.interactions))
            redacted = map(self._redactor.interaction, map(learned.interaction, sound.interactions))
            replace_whole(self._path, self._header(metadata), map(self._text, redacted))
            sound = read_cassette(self._path)
        return LineWriter(self._path, header=self._header(self._metadata), sound=sound)

    def _finish(self, writer: LineWriter) -> None:
        writer.close()

    def _header(self, metadata: Mapping[str, object]) -> str:
        rules = list(self._redactor.redact)
        text = layout.header_text({**metadata, "redact": rules} if rules else metadata)
        self._redactor.refuse_leak(text)
        return text

    def _text(self, interaction: Interaction) -> str:
        request, asked = self._last
        if asked is None or request != interaction.request:
            request, asked = interaction.request, layout.request_text(interaction.request)
            self._redactor.refuse_leak(asked)
            self._last = request, asked
        text = layout.interaction_text(interaction, asked=asked)
        # All but the request, which was searched when its line was made.
        self._redactor.refuse_leak(text.replace(asked, "", 1))
        return text


class ReRecording(Recording):
    """Records into a file beside, which takes the cassette's place at `close`, not before.

    Old interactions whose requests were not recorded again are kept, as vcrpy keeps them.
    ``abandoned`` says that such a file of a recording before this one stands there, unfinished; it
    goes when the first interaction is recorded.
    """

    def __init__(
        self,
        path: Path,
        *,
        redactor: Redactor,
        metadata: Mapping[str, object],
        matching: Matching,
        prefix: str,
    ) -> None:
        super().__init__(path, redactor=redactor, metadata=metadata)
        self._file = path.with_name(f".{path.name}.recording")
        self._matching = matching
        self._prefix = prefix
        self._anew: dict[Key, list[RecordedRequest]] = {}
        self.abandoned = self._file.exists()

    def append(self, interaction: Interaction) -> None:
        """Redact an interaction and write it beside the old cassette."""
        super().append(interaction)
        if self.loaded is None:
            return
        request = self._redactor.request(interaction.request)
        for key in self._matching.keys(request, self._prefix):
            # Only a custom matcher has to see the requests themselves.
            self._anew.setdefault(key, []).extend([request] * bool(self._matching.custom))

    def interactions(self) -> Iterator[Interaction]:
        """Yield what the cassette will hold: what is kept of the old one, then the new ones."""
        if self.closed or self._writer is None:
            return super().interactions()
        return chain(self._kept(), read_cassette(self._file).interactions)

    def count(self) -> int:
        """Return how many interactions the cassette will hold."""
        return sum(1 for _ in self._kept()) + (self._writer.count if self._writer else 0)

    def _kept(self) -> Iterator[Interaction]:
        if self.loaded is None:
            return
        prefix = base_path(self.loaded.base_url or "")
        for each in self.loaded.interactions:
            if not self._was_recorded_anew(self._redactor.request(each.request), prefix):
                yield each

    def _was_recorded_anew(self, old: RecordedRequest, prefix: str) -> bool:
        keys = [key for key in self._matching.keys(old, prefix) if key in self._anew]
        if not self._matching.custom:
            return bool(keys)
        from .vcr_files import matches

        return any(
            all(matches(matcher, new, old) for matcher in self._matching.custom)
            for key in keys
            for new in self._anew[key]
        )

    def _start(self) -> LineWriter:
        self._file.unlink(missing_ok=True)
        return LineWriter(self._file, header=self._header(self._metadata))

    def _finish(self, writer: LineWriter) -> None:
        writer.close()
        recorded = read_cassette(self._file).interactions
        kept = [self._redactor.interaction(each) for each in self._kept()]
        if kept:
            replace_whole(
                self._path, self._header(self._metadata), map(self._text, chain(kept, recorded))
            )
            self._file.unlink()
        else:
            self._file.replace(self._path)


def about_recording(
    base_url: str | None,
    given: Mapping[str, object] | None,
    redactor: Redactor,
    clock: Callable[[], float],
) -> dict[str, object]:
    """Return what a new cassette says of itself: by what it was recorded, of where, and when."""
    from directmail_lab import __version__

    started = datetime.fromtimestamp(clock(), UTC).isoformat(timespec="microseconds")
    about: dict[str, object] = {
        # First, and always ours: it is what tells the line layout from others.
        "recorded_with": f"directmail-lab {__version__}",
        "base_url": base_url,
        "started_at": started.replace("+00:00", "Z"),
    }
    about.update((name, value) for name, value in (given or {}).items() if name not in about)
    return {
        name: redactor.text(value) if isinstance(value, str) else value
        for name, value in about.items()
    }
