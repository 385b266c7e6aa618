"""A cassette, opened: plays what was recorded, records what was not, as its record mode says."""

from __future__ import annotations

import weakref
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Final, Literal, Self

from directmail_lab.display import plural
from directmail_lab.errors import CassetteError
from directmail_lab.interaction import Interaction, RecordedRequest, base_path

from .closing import notice_of_personal_data
from .player import Player
from .reader import LoadedCassette, read_cassette
from .recording import Recording, ReRecording
from .true_headers import with_true_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from directmail_lab.redaction import Redactor

    from .matching import Key, Matching

__all__ = ["Cassette"]

_MOST_KNOWN: Final = 4096


class Cassette:
    """Recorded answers by request, and a recording of what had none. Made by `open_cassette`.

    Any number of threads and tasks may use one cassette at once.

    Attributes
    ----------
    records
        Whether a request without an answer may be sent, and its outcome recorded.
    base_url
        The base address of the recording: its metadata's, else the first interaction's origin.
    foreign
        Whether another program wrote what it held when it was opened: credentials may be in it.
    on_unmatched
        Called with each request that `play` refuses, redacted.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        record_mode: str,
        redactor: Redactor,
        matching: Matching,
        base_url: str | None,
        repeat: Literal["last", "strict"],
        on_write_error: Literal["raise", "continue"],
        metadata: Mapping[str, object],
        notice: Callable[[str], None],
    ) -> None:
        self.name = name
        self.path = path
        self.record_mode = record_mode
        self.on_unmatched: Callable[[RecordedRequest], object] = lambda _: None
        self.records = record_mode != "none" and not (record_mode == "once" and _holds(path))
        self._redactor = redactor
        self._matching = matching
        self._given_base = base_url
        self._repeats = repeat == "last"
        self._goes_on = on_write_error == "continue"
        self._notice = notice
        self._lock = RLock()
        self._known: dict[tuple[str, str, str | None], tuple[Key, ...]] = {}
        self._unwritten = 0
        self._recorded = False
        self._said = ""
        self._metadata = metadata
        self._recording = self._open_recording() if self.records else None
        loaded = self._recording.loaded if self._recording else read_cassette(path)
        self._redactor = redactor.also(loaded.redact if loaded else ())
        self._interactions: Sequence[Interaction] = loaded.interactions if loaded else ()
        self.base_url = (loaded.base_url if loaded else None) or base_url
        self.foreign = loaded is not None and loaded.foreign
        self._player = self._make_player(loaded)
        if loaded is not None and loaded.problem:
            notice(f"Cassette {name!r}: {loaded.problem}.")

    def play(self, request: RecordedRequest, *, base_url: str | None = None) -> Interaction | None:
        """Return the recorded answer to a request; None says: send it, and `record` the outcome.

        ``base_url`` is the base address that the request is sent to, where it is not the one that
        the cassette was opened with.

        Raises
        ------
        NotRecordedError
            Where there is none and this cassette does not record.
        """
        if self._player is None:
            return None
        base = base_url or self._given_base or self.base_url
        asked, keys = self._keys(request, base)
        with self._lock:
            index = self._player.take(keys, asked)
        if index is None:
            if self.records:
                return None
            index = self._again(asked, keys, base)
        return self._interactions[index]

    def holds_answer(self, request: RecordedRequest, *, base_url: str | None = None) -> bool:
        """Return whether `play` would answer a request, without playing the answer."""
        if self._player is None:
            return False
        asked, keys = self._keys(request, base_url or self._given_base or self.base_url)
        with self._lock:
            return self._player.next(keys, asked) is not None

    def record(self, interaction: Interaction) -> None:
        """Redact an interaction and append it: when this returns, a kill does not lose it.

        Its response body comes decoded; its headers are made true to that here.

        Raises
        ------
        CassetteError
            Where it cannot be written, unless the cassette was opened to go on then; nothing that
            was recorded before is lost. Also where this cassette does not record.
        """
        if self._recording is None:
            raise CassetteError(
                f"Cassette {self.name!r} was opened to replay. "
                f"Open it with record({self.name!r}) to add to it."
            )
        true = _true(interaction)
        with self._lock:
            if self._unwritten and self._goes_on:
                self._unwritten += 1
                return
            try:
                self._recording.append(true)
                self._recorded = True
            except OSError as error:
                self._not_written(error)

    def interactions(self) -> Iterator[Interaction]:
        """Yield what the cassette holds by now, one in memory at a time."""
        if self._recording is not None:
            return self._recording.interactions()
        return iter(self._interactions)

    def unplayed(self) -> list[RecordedRequest]:
        """Return the recorded requests whose answers were not played since it was opened."""
        with self._lock:
            return self._player.unplayed() if self._player is not None else []

    def __len__(self) -> int:
        with self._lock:
            if self._recording is not None:
                return self._recording.count()
        return len(self._interactions)

    def close(self) -> None:
        """Close a recording: its file gets its last line, and another may record the cassette.

        What personal data it holds is said then, where there is any.

        Raises
        ------
        CassetteError
            Where the disk is full, unless the cassette was opened to go on then.
        """
        if self._recording is None:
            return
        with self._lock:
            if self._recording.closed:
                return
            try:
                self._recording.close()
            except OSError as error:
                self._not_written(error)
                return
            recorded, self._recorded = self._recorded, False
        if recorded and self._recording.closed:  # not in a forked child
            self._say_what_is_personal()

    def _say_what_is_personal(self) -> None:
        said = notice_of_personal_data(self.path, self.name)
        if said != self._said:  # a recording that was resumed says so once
            self._said = said
            if said:
                self._notice(said)

    def resume(self) -> None:
        """Go on recording after `close`, behind what the file holds; what was played stays played.

        Raises
        ------
        CassetteInUseError
            Where another records the cassette by now.
        """
        with self._lock:
            if self._recording is not None and self._recording.closed:
                # Also where it was recorded anew: by now that is the cassette, to be added to.
                self._recording = self._kept(
                    Recording(self.path, redactor=self._redactor, metadata=self._metadata)
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        count = len(self)
        held = plural(count, "interaction")
        return f"<Cassette {self.name!r}, {self.record_mode}, {held}>"

    def _open_recording(self) -> Recording:
        if self.record_mode != "all":
            return self._kept(
                Recording(self.path, redactor=self._redactor, metadata=self._metadata)
            )
        anew = ReRecording(
            self.path,
            redactor=self._redactor,
            metadata=self._metadata,
            matching=self._matching,
            prefix=base_path(self._given_base or ""),
        )
        if anew.abandoned:
            self._notice(
                f"Cassette {self.name!r}: recording it anew was broken off before; the old "
                "cassette stands, and this recording takes the place of the unfinished one."
            )
        return self._kept(anew)

    def _kept(self, recording: Recording) -> Recording:
        # A kernel that ends, or a cassette that is dropped, closes its recording too.
        weakref.finalize(self, _close_quietly, recording)
        return recording

    def _make_player(self, loaded: LoadedCassette | None) -> Player | None:
        if loaded is None or self.record_mode == "all":
            return None
        return Player(
            loaded.interactions,
            self._matching,
            # What we wrote is redacted already; what another program wrote is not.
            redact=self._redactor.request if loaded.foreign else None,
            prefix=base_path(self.base_url or ""),
            name=self.name,
        )

    def _keys(
        self, request: RecordedRequest, base_url: str | None
    ) -> tuple[RecordedRequest, tuple[Key, ...]]:
        """Return a request redacted, and its keys; those of plain reads are remembered."""
        known = (request.method, request.uri, base_url)
        keys = self._known.get(known)
        if keys is not None:
            return request, keys
        asked = self._redactor.request(request)
        keys = self._matching.keys(asked, base_path(base_url or ""))
        # Nothing that the redactor changed is kept in memory, nor more than a few of any.
        if asked.uri == request.uri and self._matching.by_address_alone(request.method):
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[known] = keys
        return asked, keys

    def _again(self, asked: RecordedRequest, keys: tuple[Key, ...], base_url: str | None) -> int:
        """Return the last answer once more, or raise the error that says why there is none."""
        assert self._player is not None
        index = self._player.last(keys, asked)
        if index is not None and self._repeats:
            return index
        self.on_unmatched(asked)
        how = f'Record it with record({self.name!r}, record_mode="new_episodes").'
        if index is not None:
            how = 'Replay with repeat="last" to have the last one again, or r' + how[1:]
        raise self._player.refusal(
            asked, base_path(base_url or ""), left=index is not None, how=how
        )

    def _not_written(self, error: OSError) -> None:
        message = (
            f"Cassette {self.name!r} could not be written ({error.strerror}). What was recorded "
            "before is safe. Make room in its folder, or set DIRECTMAIL_CASSETTES to another."
        )
        if not self._goes_on:
            raise CassetteError(message) from None
        self._unwritten += 1
        self._notice(f"{message} The session goes on unrecorded.")


def _holds(path: Path) -> bool:
    """Return whether a cassette has content: vcrpy records an empty one as it does a new one."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _true(interaction: Interaction) -> Interaction:
    """Return an interaction as it is written: its headers true to its body."""
    request = interaction.request
    if request.body is None:  # as vcrpy records httpx, so that its body matcher agrees
        request = RecordedRequest(request.method, request.uri, request.headers, b"")
    response = with_true_headers(interaction.response, method=request.method)
    if request is interaction.request and response is interaction.response:
        return interaction
    return Interaction(request, response, interaction.recorded_at, interaction.elapsed_s)


def _close_quietly(recording: Recording) -> None:
    with suppress(OSError, CassetteError):
        recording.close()
