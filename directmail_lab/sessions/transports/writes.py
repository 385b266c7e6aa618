"""The writes that this process has sent, so that none is sent again from another cell unasked.

What one execution (see `executions`) sends twice, such as a loop, is sent twice.
"""

from __future__ import annotations

import math
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from textwrap import shorten

from ...cassettes import Cassette, Recording, SessionRecording
from ...cassettes.matching import Matching
from ...display import printable_line, utc_time
from ...errors import AlreadySentError, WriteRefusedError
from ...exchange.bodies import (
    MAX_UNPACKED_BYTES,
    path_of_records,
    read_json,
    shown_missing,
    unwrap,
)
from ...exchange.httpx_values import body_of, httpx, is_write, request_value
from ...exchange.next_page import only_list
from ...exchange.values import Interaction, Response, fails
from ...executions import Execution, current_execution
from ...settings import is_loopback, origin_of, stand_ins
from ...tracebacks import warn_caller
from .extensions import Sent, call_of
from .network import NOT_SENT

IF_SENT = "if_sent"
"""The key of the choice in a request's ``extensions``; `Session.request` has it as a parameter."""

UNGUARDED = nullcontext()
"""The block for a request that may be sent again."""

_DEFAULT = Matching()
_SEARCH = re.compile(r"(search|query|find|filter|lookup)/*\Z", re.IGNORECASE)


def say_kept(write: SentWrite, text: str) -> None:
    """Say that the response to an earlier write is returned: in a notebook, at the cell's end."""
    here = current_execution()
    if here.is_cell:
        here.outcomes.append(f"kept failure ({write.status})" if write.fails else "kept")
        here.kept = text
    else:
        warn_caller(text)


# -- writes ----------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class SentWrite:
    """A write that was sent, and that may have been carried out.

    Attributes
    ----------
    at
        When its response came, or when it was sent; None if a cassette does not say.
    status
        The status of its response; 0 if none came, or none has come yet.
    execution
        What sent it; None if it was an earlier run, of which a cassette knows.
    recording, number
        What has its response. It is not kept for this: it may be gone.
    key
        The first and the last character of the key that signed it, ``k…9``; empty if not known.
    is_unsure
        Whether it may have been another write, which differs in a value that redaction replaced.
    """

    at: datetime | None
    status: int = 0
    execution: Execution | None = None
    recording: Callable[[], Recording | None] = lambda: None
    number: int = 0
    key: str = ""
    is_unsure: bool = False

    def answered(self, recording: Recording, number: int) -> None:
        """Note the response, which a recording keeps."""
        reading = recording.reading(number)
        self.at = None if math.isnan(reading.at) else utc_time(reading.at)
        self.status = reading.status
        self.recording = weakref.ref(recording)
        self.number = number

    @property
    def fails(self) -> bool:
        """Whether its response is a failure, as `values.fails` says, or is not known here."""
        recording = self.recording()
        if recording is None or recording.reading(self.number).cut:
            return True
        return fails(Response(self.status))

    def interaction(self) -> Interaction | None:
        """Return the whole interaction; None if there is no response, or not all of it."""
        recording = self.recording()
        if not (self.status and recording is not None and recording.has_bodies(self.number)):
            return None
        found = recording.interaction(self.number)
        if recording.reading(self.number).cut or shown_missing(found.response.body):
            return None
        return found


_lock = threading.Lock()
_sent: dict[int, list[SentWrite]] = {}
"""The writes of all sessions, whatever their keys: a new key may be the same account's."""


def sent_before(request: httpx.Request, cassette: Cassette | None) -> list[SentWrite]:
    """Return when a write was sent before: by an earlier run, or by this process."""
    here = current_execution()
    found: dict[object, SentWrite] = {}
    if cassette is not None:
        for each in cassette.sent_before(request_value(request)):
            write = _answered(each.recording, each.number, each.sender)
            write.is_unsure = each.is_unsure
            found[write.at, write.status] = write
    for key in _keys_of(request, cassette):
        for write in _sent.get(key, ()):
            # What this process has recorded is in both, once a later run has begun. It then
            # belongs to an earlier run if this execution sent it, or else to its cell.
            known = found.setdefault((write.at, write.status), write)
            known.is_unsure = False
            if write.execution is not here:
                # Its session may be closed and gone, and the file still has the response.
                best = write if write.recording() is not None else known
                found[write.at, write.status] = replace(
                    write, recording=best.recording, number=best.number
                )
    # What this process sent, it knows with all values.
    return [each for each in found.values() if not (each.is_unsure and each.execution)]


def guard(
    request: httpx.Request, recording: SessionRecording, cassette: Cassette | None
) -> AbstractContextManager[SentWrite | httpx.Response | None]:
    """Return the block in which a write is sent: see `_noted`; `UNGUARDED` for a redirected one.

    The block gets a response if the caller lets that one count as the write's.

    A write is compared with others, for which its body is read. A live session sends a large
    body, or one of unknown size, as it reads it.
    """
    choice = request.extensions.get(IF_SENT)
    if isinstance(choice, httpx.Response):
        if not sent_before(request, cassette):
            warn_caller(
                f"This {request.method} is not known to have been sent. It was not sent now "
                "either: the response that if_sent gives counts as its."
            )
        return nullcontext(choice)
    if call_of(request).sent is Sent.REDIRECTED:
        return UNGUARDED
    size = request.headers.get("content-length", "")
    is_small = size.isdecimal() and int(size) <= MAX_UNPACKED_BYTES
    if cassette is None and not is_small and body_of(request) is None:
        return UNGUARDED
    return _noted(request, recording, cassette)


@contextmanager
def _noted(
    request: httpx.Request, recording: SessionRecording, cassette: Cassette | None
) -> Iterator[SentWrite | None]:
    """Note a write that is sent within this block.

    The block gets an earlier write if it must return the response of that one, and send nothing.

    Raises
    ------
    AlreadySentError
        The write was sent before, and the caller does not want it to be sent again.
    """
    execution = current_execution()
    write = SentWrite(datetime.now(UTC), execution=execution, key=recording.key_hint)
    keys = _keys_of(request, cassette)
    with _lock:
        kept = _earlier_write(request, recording, cassette)
        if kept is None:
            _add(write, keys)
    if kept is not None:
        yield kept
        return
    call = call_of(request)
    call.number = 0
    call.shown = lambda: _shown(request, recording, cassette)
    may_be_done = True
    try:
        yield None
    except BaseException as error:
        is_refused = isinstance(error, (*NOT_SENT, WriteRefusedError))
        may_be_done = call.sent is not Sent.NOTHING and not is_refused
        raise
    finally:
        if call.number:
            write.answered(recording, call.number)
        if call.sent is not Sent.NOTHING and not call.is_row:
            is_success = 0 < write.status < 400
            failed = f"failed ({write.status or 'no response'})"
            execution.outcomes.append("sent" if is_success else failed)
        if not may_be_done or 400 <= write.status < 500:
            with _lock:
                for key in keys:
                    _sent[key].remove(write)


def add_response(
    request: httpx.Request, recording: SessionRecording, cassette: Cassette | None
) -> None:
    """Note a write that this session did not send, but has a response to."""
    write = _answered(recording, call_of(request).number, current_execution())
    write.key = recording.key_hint
    with _lock:
        _add(write, _keys_of(request, cassette))


def _add(write: SentWrite, keys: list[int]) -> None:
    for key in keys:
        _sent.setdefault(key, []).append(write)


def _earlier_write(
    request: httpx.Request, recording: SessionRecording, cassette: Cassette | None
) -> SentWrite | None:
    """Return the earlier write whose response the caller wants, or None to send this one."""
    keeps = request.extensions.get(IF_SENT) == "keep"
    if asks_anew(request) or not (cassette is None or cassette.knows_repeats(keeps)):
        return None
    earlier = sent_before(request, cassette)
    if not keeps:
        if origin_of(request.url) in stand_ins():
            return None
        earlier = [each for each in earlier if each.execution is not current_execution()]
    if not earlier:
        return None
    # What this process sent, it knows with all values.
    write = that_counts([each for each in earlier if not each.is_unsure] or earlier)
    if not keeps or write.is_unsure or write.interaction() is None:
        raise _already_sent(request, write, recording, cassette)
    return write


def _shown(request: httpx.Request, recording: SessionRecording, cassette: Cassette | None) -> str:
    """Return a write's method, its path and the start of its body, redacted as in the recording."""
    sent = recording.redactor.request(request_value(request))
    if cassette is not None:
        sent = cassette.redactor.request(sent)
    body = printable_line((sent.body or b"").decode(errors="replace"))
    start = f" ({shorten(body, 80, placeholder=' …')})" if body else ""
    return f"{request.method} {recording.path_of(sent)}{start}"


def _already_sent(
    request: httpx.Request,
    write: SentWrite,
    recording: SessionRecording,
    cassette: Cassette | None,
) -> AlreadySentError:
    file = write.recording()
    name = ""
    number = write.number
    where = "in this kernel"
    if write.execution is None and cassette is not None and file is not None:
        name = file.name
        number = cassette.number_now(number)
        where = f"interaction {number} of cassette {name!r}"
    cell = None if write.execution is None else write.execution.cell
    if cell is not None:
        where = f"by cell [{cell}]"
    if file is recording:
        where += f", number {number} in dm.interactions()"
    if write.key and write.key != recording.key_hint:
        where += f", with the key {write.key}"
    return AlreadySentError(
        f"{_shown(request, recording, cassette)} was sent before, {sent_when(write)}, {where}. "
        "It was not sent again.",
        _advice(request, write),
        cassette=name,
        cell=cell,
        number=number,
        status=write.status,
        sent_at=write.at,
    )


def that_counts(earlier: Sequence[SentWrite]) -> SentWrite:
    """Return the write whose response counts: the last success, as in a replay, or the last one."""
    successes = [each for each in earlier if not each.fails]
    return (successes or earlier)[-1]


def _keys_of(request: httpx.Request, cassette: Cassette | None) -> list[int]:
    """Return what equal writes have in common: by the rules of the cassette, and by the usual ones.

    A write that was sent live is known in a later recording with other rules.
    """
    rules = [_DEFAULT] if cassette is None else [cassette.matching, _DEFAULT]
    value = request_value(request)
    if is_loopback(request.url.host):  # localhost and 127.0.0.1 are one
        value = replace(value, uri=str(request.url.copy_with(host="127.0.0.1")))
    return list(dict.fromkeys(hash(each.form(value)) for each in rules))


def _answered(recording: Recording, number: int, execution: Execution | None) -> SentWrite:
    write = SentWrite(None, execution=execution)
    write.answered(recording, number)
    return write


def asks_anew(request: httpx.Request) -> bool:
    """Return whether the caller wants no recorded response to a write, but to send or count it."""
    choice = request.extensions.get(IF_SENT)
    return is_write(request) and (choice == "send" or isinstance(choice, httpx.Response))


def sent_when(write: SentWrite) -> str:
    """Return when a write was sent, and its outcome: ``on 21 November 2026 at 04:00 UTC (201)``."""
    when = f"on {write.at.day} {write.at:%B %Y} at {write.at:%H:%M} UTC" if write.at else "once"
    return f"{when} ({write.status or 'no response came'})"


def _advice(request: httpx.Request, write: SentWrite) -> str:
    option = "if_sent={}"
    if IF_SENT not in request.extensions:  # sent by a client, which has no such parameter
        option = 'extensions={{"if_sent": {}}}'
    send = option.format('"send"')
    again = f" To send it again: {send}."
    first = ""
    if _is_search(request, write):
        first = f"It looks like a search: to send it each time, {send}. "
        again = ""
    if not write.status:
        return (
            f"{first}Find out whether it was carried out. If a read has shown that it was, let the "
            f"response to that read count as this one's: {option.format('RESPONSE')}.{again}"
        )
    keeps = request.extensions.get(IF_SENT) == "keep"
    if keeps and write.is_unsure:
        return (
            "It may be another one, since redaction or before_record changed a value of it: "
            f"compare what else is known of it in dm.interactions(). If it is another: {send}."
        )
    if keeps:
        return f"{first}Its whole response is not known here.{again}"
    keep = option.format('"keep"')
    advice = f"{first}To get its response back, and send only what was never sent: {keep}.{again}"
    if write.execution is None:
        advice += (
            " It may be another one: of another account, or different only in what redaction, "
            "ignore or match_on leave out."
        )
    return advice


def shows_nothing(response: httpx.Response) -> bool:
    """Return whether a response is a list without any record: a search that found nothing."""
    body, _ = read_json(response.content)
    records, others = unwrap(body, path_of_records(body))
    return records == [] and (not others or bool(only_list(body)))


def _is_search(request: httpx.Request, write: SentWrite) -> bool:
    """Return whether a write is a read by its path, or since its response is a list."""
    if _SEARCH.search(request.url.path):
        return True
    sent = write.interaction()
    if sent is None or sent.response.status != 200:  # 201 lists what was made
        return False
    body, _ = read_json(sent.response.body)
    return isinstance(body, list) or bool(only_list(body))
