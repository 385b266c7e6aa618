"""`Cassette`: an open cassette, which replays or records as its record mode says."""

from __future__ import annotations

import logging
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import RLock, Timer
from traceback import extract_tb
from typing import Any, NamedTuple, Self

from ..arguments import REPEATS, RecordMode, Repeat, check_choice, parse_age, rules_of
from ..display import plural, running_ipython, say_in_notebook, shell_word
from ..errors import CassetteError, CassetteFormatError, CassetteInUseError, NotRecordedError
from ..exchange.bodies import MissingBody, shown_missing
from ..exchange.values import (
    Interaction,
    Request,
    Response,
    check_interaction,
    fails,
    is_write,
    normalize_headers,
)
from ..executions import is_between_cells
from ..redaction import Redactor
from ..tracebacks import warn_caller
from .convert import notice_of_contents
from .files import FileRecording, read_cassette
from .journal import journal_of
from .library import before_of, cassette_name, find_cassette, new_cassette_path, version_of
from .matching import Matching
from .player import Attempts, Index, Player
from .recorder import BETWEEN_FOLDS_S, Ending, Recorder, SentBefore
from .recording import service_of

BeforeRecord = Callable[[Interaction], Interaction | None]
"""Takes an interaction and returns the one to record, or None to record none."""

_UNANSWERED = Response(0, cut="interrupted", error="the recording ended before a response came")
"""What is recorded of a write before it is sent."""

_PAUSE_S = 0.05
_MOST_PAUSES = 200  # 10 seconds
_PAUSES_IN_SILENCE = 6
"""A reader may have the lock for a moment, to know whether the cassette is being recorded."""

_log = logging.getLogger("directmail_lab")


def records(record_mode: RecordMode, path: Path) -> bool:
    """Return whether a record mode adds to the cassette of this file."""
    rules = rules_of(record_mode)
    with suppress(OSError):
        return rules.sends and (rules.extends or path.stat().st_size == 0)  # as in vcrpy
    return rules.sends


def _warn_of_early_end(request: str) -> None:
    warn_caller(
        f"{request}: the recording has only the start of this response, since it was read no "
        "further.",
        "To get more, record it again.",
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """What those who open a cassette want of it.

    Attributes
    ----------
    aside
        Whether a new cassette, and a recording in mode ``"all"`` of an old one, only count if
        `Cassette.close` gets an ``ending`` that says so.
    records_failures
        Whether a read to which no response came is recorded, as a write is.
    warns_of_writes
        Whether a replayed write warns: its caller may believe that it was sent.
    on_unmatched
        Called with each error that `Cassette.play` raises.
    on_early_end
        Called with a request if a replay was read to the end of its response, and the recording
        stopped before that, since its reader left. By default, it warns.
    """

    aside: bool = False
    records_failures: bool = False
    warns_of_writes: bool = False
    on_unmatched: Callable[[NotRecordedError], object] = lambda _: None
    on_early_end: Callable[[str], object] = _warn_of_early_end


class Played(NamedTuple):
    """A response that was played.

    Attributes
    ----------
    cassette, recording
        The name of the cassette, and its recording.
    number, attempt
        The number of its interaction there, from 1, and which attempt at the request it is here.
    request
        The request that it was played for, as `Player.find` returns it.
    response
        The recorded response.
    """

    cassette: str
    recording: FileRecording
    number: int
    attempt: int
    request: Request
    response: Response

    def interaction(self) -> Interaction:
        """Return the interaction, with the method and address of the request that was sent."""
        known = self.recording.decoded(self.number)
        request = replace(known.request, method=self.request.method, uri=self.request.uri)
        return replace(known, request=request, attempt=min(self.attempt, known.attempt))


class Cassette:
    """Recorded responses to requests; in most record modes, also a recorder of new ones.

    Any number of threads and tasks may use one cassette at once. A forked child can replay from it,
    and records nothing.

    A recording locks its cassette. In a notebook, others may take turns between cells: see `hold`.

    Parameters
    ----------
    name
        A bare name, or the `Path` of a file. To replay, it may also be a `FileRecording`.
    folders
        The folders in which a name is looked up first. A new cassette is created in the first one.
    record_mode
        ``"update"`` and ``"all"`` record everything: new responses replace those of earlier
        executions or runs to the same requests, and the other interactions stay. ``"update"``
        refuses a write that was sent before: see `sent_before`. The others are vcrpy's too.
        ``"none"`` replays; ``"once"`` records a new cassette and replays an old one;
        ``"new_episodes"`` and ``"any"`` add requests that it does not contain.
    redactor
        Removes secrets before anything is written or compared.
    base_url
        The session's service address, below which paths are compared; by default the recording's.
    matching
        Which parts of two requests must be equal.
    repeat
        What a replay does when all responses to a request were played: ``"last"`` plays the last
        one again, ``"strict"`` raises an error.
    max_age
        In mode ``"update"``, the age in words below which reads are replayed.
    begins_anew
        Whether a cassette of another service address begins anew.
    before_record
        Called with each interaction before it is redacted; see `directmail_lab.record`.
    notice
        Called with a sentence if a recording was not closed, if it cannot go on, or if it contains
        personal data when it ends.

    Attributes
    ----------
    path
        The cassette's file.
    redactor
        The redactor, with the file's rules.
    matching
        Which parts of two requests are compared.
    records
        Whether a request without a recorded response may be sent, and the response recorded.
    updates
        Whether a new response replaces those of earlier runs to the same request.
    replays
        Whether it replays anything.
    policy
        What those who opened it want of it.

    Raises
    ------
    NotRecordedError
        There is no such cassette to replay.
    CassetteFormatError, CassetteInUseError, CassetteError
        The file cannot be read, somebody else is recording it, it was recorded at another service
        address, or its name leads out of the folder.
    """

    def __init__(
        self,
        name: str | Path | FileRecording,
        *,
        folders: Sequence[Path] = (),
        record_mode: RecordMode = "none",
        redactor: Redactor | None = None,
        base_url: str | None = None,
        matching: Matching | None = None,
        repeat: Repeat = "last",
        max_age: str | None = None,
        begins_anew: bool = False,
        before_record: BeforeRecord | None = None,
        policy: Policy = Policy(),
        notice: Callable[[str], None] = _log.warning,
    ) -> None:
        self._rules = rules_of(record_mode)
        check_choice("repeat", repeat, REPEATS)
        self._max_age = max_age
        self._youngest = None if max_age is None else datetime.now(UTC) - parse_age(max_age)
        self._counts = Counter[str]()
        self.record_mode = record_mode
        self.policy = policy
        self.redactor = redactor or Redactor()
        self.matching = matching or Matching()
        self._repeat = repeat
        self._begins_anew = begins_anew
        self._before_record = before_record
        self._notice = notice
        self._lock = RLock()
        started_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        self._metadata = {"started_at": started_at, "base_url": base_url}
        if isinstance(name, FileRecording):
            self.name = name.name
            self.path = name.path or Path(name.name)
        else:
            self.name = cassette_name(name)
            locate = new_cassette_path if self._rules.sends else find_cassette
            self.path = locate(name, folders)
        self.records = records(record_mode, self.path)
        self._recorder: Recorder | None = None
        self._open: dict[int, Callable[[bool], object]] = {}
        self._held = 0
        self._timer: Timer | None = None
        self._was_told = False
        self.updates = self._rules.replaces
        self.replays = self._rules.replays or max_age is not None
        self._aside = policy.aside and (self.updates or version_of(self.path) is None)
        if self.records:
            self._in_turn(self._open_recorder)
        self._recording: FileRecording
        if self._recorder is not None:
            self._recording = self._recorder.recording
        else:
            self._recording = name if isinstance(name, FileRecording) else read_cassette(self.path)
        if self._recorder is None or not self.replays:
            self.redactor = self.redactor.extended(self._recording.redact)
            played = self._recording if self.replays else FileRecording(self.name)
            index = Index(
                played,
                self.matching,
                base_url=base_url or self._recording.base_url or "",
                redactor=self.redactor,
            )
        else:
            self.redactor = self._recorder.redactor
            index = self._recorder.index
        self._player = Player(index)
        if self._recording.problem:
            notice(f"Cassette {self.name!r}: {self._recording.problem}.")

    @property
    def _writer(self) -> Recorder:
        if self._recorder is None:
            raise CassetteError(
                f"Cassette {self.name!r} was opened to replay.",
                f"Open it with dm.record({self.name!r}) to add to it.",
            )
        return self._recorder

    @property
    def base_url(self) -> str | None:
        """The service address of the recording."""
        return self._recording.base_url

    def play(self, request: Request) -> list[Played]:
        """Return the recorded response to a request, after its failed attempts.

        The list is empty if the request must be sent and recorded. A repeated response comes
        without its attempts.

        Raises
        ------
        NotRecordedError
            There is no response and this cassette does not record, or the body was not recorded.
        """
        repeats = self._repeat == "last" and not self.records
        with self._lock:
            player = self._player
            call, request = player.find(request)
            while self.records and call is not None and self._is_left_out(call):
                player.mark(call)
                call, request = player.find(request)
            is_played = call is not None and player.played[call[0]] == 1
            if call is not None and self._youngest is not None:
                repeats = self._is_young(call)
            if call is not None:
                player.mark(call)
                self._counts["replayed"] += repeats or not is_played
        if call is None or (is_played and not repeats):
            if self._recorder is None:
                refusal = player.refusal(request, is_played=is_played)
                self.policy.on_unmatched(refusal)
                raise refusal
            return []
        if self.policy.warns_of_writes and is_write(request):
            recorded = f"{self.name!r}{self._recording.recorded_note}"
            warn_caller(f"Nothing was sent: this {request.method} is replayed from {recorded}.")
        played = []
        for attempt, index in enumerate(call[-1:] if is_played else call, 1):
            file = self._recording
            response = file.decoded(index + 1).response
            played.append(Played(self.name, file, index + 1, attempt, request, response))
        if isinstance(response.body, MissingBody):
            failure = player.missing_body(request, response.body)
            self.policy.on_unmatched(failure)
            raise failure
        return played

    def note_end(self, played: Played) -> None:
        """Say that a replay was read to the end of a body whose recording stopped before it."""
        self.policy.on_early_end(
            f"{played.request.method} {self._recording.path_of(played.request)}"
        )

    def _is_left_out(self, attempts: Attempts) -> bool:
        """Return whether a recording sends the request, if these attempts were not played yet.

        That is so if no whole response came, or if it is older than ``max_age``.
        """
        if self._player.played[attempts[0]]:
            return False
        if self._youngest is not None:
            return not self._is_young(attempts)
        return self._recording.interaction(attempts[-1] + 1).response.broke_off

    def _is_young(self, attempts: Attempts) -> bool:
        """Return whether these attempts led to a response that ``max_age`` lets replay.

        One that is dated in the future is not: nobody knows how old it is.
        """
        known = self._recording.interaction(attempts[-1] + 1)
        assert self._youngest is not None, "only then it is called"
        at = known.recorded_at
        is_young = at is not None and self._youngest < at <= datetime.now(UTC)
        return is_young and not (is_write(known.request) or fails(known.response))

    def has_unplayed(self, request: Request) -> bool:
        """Return whether a request has a response that was not played yet."""
        with self._lock:
            attempts, _ = self._player.find(request)
            if attempts is None or (self.records and self._is_left_out(attempts)):
                return False
            return not self._player.played[attempts[0]]

    def start(self, method: str) -> int:
        """Return the number of a request that begins. Its response gets its place by this.

        Raises
        ------
        CassetteError
            It cannot be recorded, so it must not be sent.
        """
        writer = self._writer
        if writer.lock is None:
            self._in_turn(self._wake)
        return writer.start(method)

    def begin_write(self, write: Request, at: datetime, number: int) -> None:
        """Record a write before it is sent, as one to which no response came.

        So a later run knows of it, even if this process is killed before the response comes.
        Nothing is recorded if ``before_record`` leaves it out, or if the recording has ended. Its
        ``number`` is what `start` returned.

        Raises
        ------
        CassetteError
            It cannot be recorded, so it must not be sent.
        """
        interaction = self._as_recorded(Interaction(write, _UNANSWERED, at))
        if interaction is None:
            return
        with self._lock:
            try:
                self._writer.begin_write(number, interaction)
            except OSError as error:
                raise self._not_written(error, f" The {write.method} was not sent.") from None

    def drop(self, number: int) -> None:
        """Drop a write that was recorded before it was sent, since it was not sent."""
        with self._lock, suppress(OSError):
            self._writer.drop(number)

    def record(self, interaction: Interaction, number: int | None = None) -> Interaction | None:
        """Redact an interaction and append it. After this returns, a kill does not lose it.

        The response's body must be decoded; its headers are changed to fit. It replaces the write
        that was begun with this ``number``. Returns None if ``before_record`` left the interaction
        out, or the recording has ended.

        Raises
        ------
        CassetteError
            The interaction cannot be written, ``before_record`` failed, or this cassette does not
            record. Everything recorded before is safe.
        """
        with self._lock:
            self._counts["sent"] += number is not None
        number = number or self.start(interaction.request.method)
        if self._writer.lock is None:
            self._in_turn(self._wake)
        try:
            changed = self._as_recorded(interaction)
            if changed is None:
                self.drop(number)
                return None
            response = normalize_headers(changed.response, method=changed.request.method)
            if response is not changed.response:
                changed = replace(changed, response=response)
            with self._lock:
                recorded = self._writer.append(changed, number)
        except OSError as error:
            raise self._not_written(error) from None
        finally:  # not before: another thread's fold would release the lock of the cassette
            self._open.pop(number, None)
        if is_between_cells():
            self.fold()
        if recorded is None:
            return None
        if isinstance(recorded.response.body, MissingBody):
            self._report_missing_body(recorded)
        return recorded

    def _report_missing_body(self, recorded: Interaction) -> None:
        """Call ``notice``, or raise `CassetteError` in a test, if a body could not be stored."""
        missing = shown_missing(recorded.response.body)
        title = f"{recorded.request.method} {self._recording.path_of(recorded.request)}"
        what = f"Cassette {self.name!r} has {title} without the body of its response {missing}."
        advice = "Record a smaller body, or one in UTF-8, with before_record=…."
        if self.policy.records_failures:
            raise CassetteError(f"{what} A replay would fail.", advice)
        self._notice(f"{what} A replay of it fails. {advice}")

    def _as_recorded(self, interaction: Interaction) -> Interaction | None:
        """Return what ``before_record`` makes of an interaction; None to record nothing."""
        if self._before_record is None:
            return interaction
        return _changed(interaction, self._before_record)

    def recording(self) -> FileRecording:
        """Return the recording so far; of a recording ``aside``, only the new interactions."""
        return self._recording if self._recorder is None else self._recorder.current()

    def unplayed(self) -> list[int]:
        """Return the numbers of the recorded responses that were not played."""
        with self._lock:
            return [number for number, count in enumerate(self._player.played, 1) if not count]

    def __len__(self) -> int:
        return len(self.recording())

    def note_open(self, number: int, end: Callable[[bool], object]) -> None:
        """Note a response whose body was not read to its end.

        If the recording ends first, ``end`` is called: it records what was read until then, and
        with True, its reader will not come back.
        """
        self._open[number] = end

    # -- turns -------------------------------------------------------------------------------------

    def hold(self) -> Iterable[float]:
        """Lock a recording until `release`. The caller waits for each pause (s) that this returns.

        So no other program records between what a request finds in the cassette and its response.
        Between the cells of a notebook, others may record. This reads what they changed.

        Raises
        ------
        CassetteInUseError
            Others are recording it, and did not end meanwhile. Iterating over the pauses raises it.
        """
        with self._lock:
            self._held += 1
            is_awake = self._recorder is None or self._recorder.lock is not None
        return () if is_awake else self._turns(self._wake)

    def release(self) -> None:
        """End a `hold`. If no cell and no other request needs the lock, others may record."""
        with self._lock:
            self._held -= 1
        if is_between_cells():
            self.fold()

    def _in_turn(self, act: Callable[[], object]) -> None:
        for pause_s in self._turns(act):
            time.sleep(pause_s)

    def _turns(self, act: Callable[[], object]) -> Iterator[float]:
        """Do what locks the cassette. Yield the seconds to wait while others record it."""
        for pauses in count():
            try:
                with self._lock:
                    act()
            except CassetteInUseError as error:
                file = self.path.resolve()
                own = [each for each in list(_recorded_to) if each.path.resolve() == file]
                if any(each._aside for each in own) or pauses == _MOST_PAUSES:
                    raise
                if pauses == _PAUSES_IN_SILENCE:
                    self._notice(f"{error.what} Waiting up to 10 seconds for that.")
            else:
                return
            for each in own:
                each.fold(rests=True)
            yield _PAUSE_S if pauses else 0.0

    def _wake(self) -> None:
        """Lock a recording that rests, and read what others made of its cassette."""
        recorder = self._writer
        try:
            is_changed = recorder.wake()
        except OSError as error:
            raise self._not_written(error) from None
        if is_changed:
            self._check_address(recorder)
            known = self._recording.interactions
            played = {known[at] for at, count in enumerate(self._player.played) if count}
            self._recording = recorder.recording
            if self.replays:
                self.redactor = recorder.redactor
                self._player = Player(recorder.index)
                for at, each in enumerate(self._recording):
                    if each in played or recorder.sender_of(at):
                        self._player.mark((at,))

    def fold(self, *, rests: bool = False) -> None:
        """Write the cassette as a whole file, at the end of a cell; it goes on being recorded.

        If it ``rests``, or no cell is being executed, others may record until the next request.
        """
        if self._recorder is None:
            return
        with self._lock:
            rests = (rests or is_between_cells()) and not (self._held or self._open)
            try:
                waits = self._recorder.fold_after_cell(rests=rests)
                if waits and (self._timer is None or not self._timer.is_alive()):
                    self._timer = Timer(BETWEEN_FOLDS_S, _fold_all)
                    self._timer.daemon = True
                    self._timer.start()
            except (OSError, CassetteError) as error:
                if not self._was_told:  # it is tried again after each cell
                    self._was_told = True
                    self._say_not_folded(error)
        self._say_counts()

    def _say_counts(self) -> None:
        """Say how many requests were replayed and sent since the last time."""
        counts = self._counts
        if self._max_age is None or not counts.total():
            return
        self._counts = Counter()
        text = (
            f"Cassette {self.name!r}: {plural(counts['replayed'], 'request')} replayed (younger "
            f"than {self._max_age}), {counts['sent']:,} sent."
        )
        if not say_in_notebook(text):
            self._notice(text)

    def _say_not_folded(self, error: OSError | CassetteError) -> None:
        why = error.what if isinstance(error, CassetteError) else f"{error.strerror}."
        self._notice(
            f"Cassette {self.name!r} could not be written: {why} What was recorded is safe beside "
            f"it, in {journal_of(self.path).name}, and is read from there. To add it to the file: "
            f"directmail-lab cassette repair {shell_word(self.name)}."
        )

    def close(self, ending: Ending | None = None) -> None:
        """End a recording: write its file, and release the lock.

        Responses that are still open are recorded as far as they were read. If the recording has
        personal data, a notice says so.

        Parameters
        ----------
        ending
            What becomes of a recording ``aside``, which goes on with None. ``"merge"`` keeps the
            interactions that were not recorded again, as vcrpy does. ``"replace"`` drops them.
            ``"drop"`` drops the new ones; of another recording, only the failures.

        If the file cannot be written, a notice says so, and the recording stays in its journal.

        Raises
        ------
        CassetteError
            A recording ``aside`` could not be written: nobody reads its journal.
        """
        if self._recorder is None or (self._aside and ending is None):
            return
        with self._lock:
            _end_open(self._open, is_last=False)
            was_aside = self._aside
            self._aside = False  # if the recording goes on, it adds to what is in place then
            has_recorded = False
            try:
                has_recorded = self._recorder.close(ending)
                self._recorder.say_new_shapes()
            except (OSError, CassetteError) as error:
                if was_aside:
                    raise self._not_written(error) from None
                self._say_not_folded(error)
        self._say_counts()
        hint = notice_of_contents(self.path, self.name) if has_recorded else ""
        if hint and not say_in_notebook(hint):
            self._notice(hint)

    def resume(self) -> None:
        """Continue to record after `close`. Responses that were played stay marked as played.

        Raises
        ------
        CassetteInUseError
            Somebody else is recording the cassette.
        """
        if self._recorder is not None and self._recorder.closed:
            self._in_turn(self._open_recorder)
            self.continue_run()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cassette {self.name!r}, {self.record_mode}>"

    def continue_run(self) -> None:
        """Go on with the run that this process recorded last, instead of a new one."""
        if self._recorder is not None:
            self._recorder.continue_run()

    def sent_before(self, write: Request) -> list[SentBefore]:
        """Return what `Recorder.sent_before` does.

        Each of these may have been carried out: the service did not refuse it (4xx), and a
        connection was made. In a mode that replays, they have no response to play.
        """
        if self._recorder is None:
            return []
        unanswered = self._as_recorded(Interaction(write, _UNANSWERED))
        if unanswered is None:
            return []
        # A function that masks the recipient makes the letters to two of them equal.
        is_changed = self.matching.form(unanswered.request) != self.matching.form(write)
        found = self._recorder.sent_before(unanswered.request)
        return [each._replace(is_unsure=each.is_unsure or is_changed) for each in found]

    def number_now(self, number: int) -> int:
        """Return the number that an interaction of an earlier run has by now."""
        return number if self._recorder is None else self._recorder.number_now(number)

    def knows_repeats(self, keeps: bool) -> bool:
        """Return whether a write that was sent before is refused, or if ``keeps``, kept.

        A test records the failures that it asks for, and its writes are allowed for each run.
        """
        return not self.policy.records_failures and (keeps or self._rules.refuses_repeats)

    def _check_address(self, recorder: Recorder) -> None:
        """Begin a cassette of another service address anew, or raise `CassetteError`."""
        recording = recorder.recording
        base_url = self._metadata["base_url"]
        if base_url is None or not len(recording) or self._aside:
            return
        if recording.is_third_party:
            is_same = service_of(base_url, "") in {
                service_of(each.request.uri, "") for each in recording
            }
        else:
            is_same = {service_of(base_url)} == set(map(service_of, recording.base_urls))
        if is_same:
            return
        if self._begins_anew:
            recorder.begin_anew()
            return
        recorder.close()
        raise CassetteError(
            f"Cassette {self.name!r} was recorded at {' and '.join(recording.base_urls)}, and this "
            f"session sends to {base_url}. Nothing was sent.",
            f"Record under another name, or begin it anew: dm.record({self.name!r}, replace=True), "
            f"which keeps the old file as {before_of(self.path).name}.",
        )

    def _open_recorder(self) -> None:
        try:
            recorder = Recorder(
                self.path,
                redactor=self.redactor,
                metadata=self._metadata,
                notice=self._notice,
                matching=self.matching,
                rules=self._rules,
                aside=self._aside,
                records_failures=self.policy.records_failures,
            )
        except OSError as error:  # what a killed recording left cannot be added to the file
            raise self._not_written(error) from None
        self._check_address(recorder)
        # So the recording is also closed when the kernel ends, or the cassette is dropped.
        weakref.finalize(self, _close_quietly, recorder, self._open)
        _fold_after_cells(self)
        self._recorder = recorder

    def _not_written(self, error: OSError | CassetteError, what_now: str = "") -> CassetteError:
        if isinstance(error, CassetteError):
            return error
        advice = "Make room on the disk, or set DIRECTMAIL_CASSETTES to another folder."
        if isinstance(error, PermissionError):
            advice = f"Close {self.path} in other programs, or record to a folder of your own."
        return CassetteError(
            f"Cassette {self.name!r} could not be written ({error.strerror}).{what_now} "
            "Everything recorded before is safe.",
            advice,
        )


def _changed(interaction: Interaction, before_record: BeforeRecord) -> Interaction | None:
    """Call ``before_record`` and check its result; raise `CassetteError` if it fails."""
    problem = "returned neither an Interaction nor None"
    try:
        changed = before_record(interaction)
        if isinstance(changed, Interaction | None):
            return changed and check_interaction(changed)
    except CassetteFormatError as error:
        problem = f"returned an interaction that cannot be recorded: {error}"
    except Exception as error:  # without its message, which may quote a value to be removed
        place = extract_tb(error.__traceback__, 2)[-1]
        problem = f"raised {type(error).__name__} ({place.filename}, line {place.lineno})"
    raise CassetteError(f"before_record {problem}. This request was not recorded.")


def _end_open(still_open: dict[int, Callable[[bool], object]], *, is_last: bool) -> None:
    for end in list(still_open.values()):
        with suppress(CassetteError):
            end(is_last)
    still_open.clear()


def _close_quietly(recorder: Recorder, still_open: dict[int, Callable[[bool], object]]) -> None:
    if not recorder.closed:
        _end_open(still_open, is_last=True)
    with suppress(OSError, CassetteError):
        recorder.close()


_recorded_to: weakref.WeakSet[Cassette] = weakref.WeakSet()
_shells: weakref.WeakSet[Any] = weakref.WeakSet()


def _fold_after_cells(cassette: Cassette) -> None:
    """Fold a recording at the end of each cell of a notebook, and of each message to a widget."""
    _recorded_to.add(cassette)
    shell = running_ipython()
    if shell is not None and shell not in _shells:
        _shells.add(shell)
        shell.events.register("post_execute", _fold_all)
        shell.events.register("post_run_cell", _fold_all)  # which knows how the cell ended


def _fold_all(_: object = None) -> None:
    for each in list(_recorded_to):
        each.fold()
