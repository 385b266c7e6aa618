"""What service.md leaves open: seen so far (`findings`), and by new requests (`explore`)."""

# ruff: noqa: T201 (`explore` prints what it sends)

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from ..bodies import leaves, read_json_body
from ..cassettes.recording import Credentials, Recording, SessionRecording
from ..contract import ME_PATH, PASSWORD, RESET_HEADER, TYPICAL_LIMIT
from ..current import recordings_of, session as current
from ..display import readable
from ..errors import NotConnectedError, QuotaExhaustedError
from ..http import httpx, recorded_response
from ..interaction import (
    Headers,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    header,
    normalize_headers,
)
from ..readings.reading import Reading, is_exhausted, reading_of
from ..settings import configured_regions
from .shapes import describe, grouped, notes_on_bodies, schema_of

if TYPE_CHECKING:
    from ..sessions import Session

_COLUMNS: Final = ("part", "section", "seen", "how_sure", "interactions", "find_out", "schema")
_ME: Final = f"GET {ME_PATH}"
_ASK: Final = "ask the service's operator"
_KNOWN_PATH: Final = 'dm.get("/v1/…") with a known path'
_SIGN_IN: Final = 'dm.connect("https://…"), then dm.me()'
_OVER_LIMIT: Final = "dm.burst(n), with n over the limit"
_EXPLORE: Final = "dm.explore()"
_OLDER: Final = "dm.drift(…), on an older cassette"
_LATER: Final = 'dm.get("/v2/users/me")'
_UNKNOWN_KEY: Final = " (the recording does not say with which key)"
_OTHER_VERSION: Final = re.compile(r"/v(?!1/|1$)\d+(/|$)")
_VERSION_HEADERS: Final = ("Deprecation", "Sunset", "API-Version", "X-API-Version")
_STATE_FIELDS: Final = (("state",), ("status",))
_WORD: Final = re.compile(r"[^\W\d]{1,40}")
_MOST_STATES: Final = 20

# A path that should not exist, and the next version of one that does: harmless to request.
_NOWHERE: Final = "/v1/directmail-lab-nowhere"
_NEXT_VERSION: Final = "/v2/users/me"
_WRONG_KEY: Final = "directmail-lab-no-key"
_NOTES: Final = {"none": " without a key", "wrong": " with a wrong key"}
# Enough reads to see a value of X-RateLimit-Reset count down, if it does.
_MOST_READS_FOR_UNIT: Final = 12

# The base addresses to which this process has sent a wrong key: a service may lock the account for
# that, so no other is sent.
_wrong_key_sent: Final[set[str]] = set()


def findings(source: Any = None) -> pd.DataFrame:
    """Return what was seen so far of each part that the service's document leaves open.

    Nothing is sent.

    Parameters
    ----------
    source
        A cassette's name, a path, a folder, a list of these, or a `Session`; by default what the
        current session has recorded in its present mode, and the responses to `explore`.

    Returns
    -------
    DataFrame
        A row for each open part, in the document's order. ``part`` and ``section`` name it, and
        ``seen`` says in words what was seen of it, or is empty. ``how_sure`` is ``"not seen"``,
        ``"undecided"``, ``"seen once"``, ``"seen repeatedly"``, or ``"certain"`` if everything else
        is ruled out. ``interactions`` lists where, by recording and number from 1. ``find_out`` is
        the one call that would find out more. These are strings. ``schema`` (object) is a JSON
        Schema of the bodies (dict) or None; the table shows neither it nor ``section``.
        ``attrs["notes"]`` says of which recordings only the last bodies were kept.

    Raises
    ------
    NotConnectedError
        No session is open, and no source is given.
    CassetteError
        There is no such cassette, or it cannot be read.
    """
    return findings_of(list(recordings_of(source)))


def explore(*, pause_s: float = 1.0) -> pd.DataFrame:
    """Send requests that show what the service's document leaves open; return the `findings`.

    About twenty requests at most, all of them reads. Each is printed, and they are paced as the
    session is. A request without a key goes to the session's address and to each other configured
    region, and one with a wrong key to the session's address (once per process); none of these is
    recorded. If the session's own key is refused, nothing more is sent. The allowance is not used
    up: to see that, use ``burst``.

    Parameters
    ----------
    pause_s
        Seconds to wait after each request.

    Raises
    ------
    NotConnectedError
        No session is open, or it replays a recording, which answers no new requests.
    """
    opened = current()
    if opened.mode == "replay":
        raise NotConnectedError(
            "The session replays a recording, which answers no new requests. See findings(), "
            "or sign in with login() and explore() the live service."
        )
    try:
        _explore(opened, pause_s)
    except QuotaExhaustedError as error:
        print(f"Stopped: {error}")
    return findings()


# -- what was seen -----------------------------------------------------------------------------


class _Response(NamedTuple):
    """A response: the recording that has it and its number there, and what it is.

    ``key`` is ``"none"`` or ``"wrong"`` if `explore` sent that in place of the key. ``kind`` is
    ``"JSON"``, ``"no body"``, the media type of another body, or empty if the body was not kept;
    ``states`` are single words in fields that are named so, which are not about a person.
    """

    recording: str
    number: int
    address: str | None
    key: Credentials | None
    reading: Reading
    headers: Headers
    kind: str
    body: object
    states: set[str]

    @property
    def operation(self) -> str:
        return f"{self.reading.method} {self.reading.operation}"


_Responses = Sequence[_Response]


def findings_of(recordings: Sequence[Recording]) -> pd.DataFrame:
    """Return the `findings` of these recordings."""
    every = [response for recording in recordings for response in _responses(recording)]
    good = [each for each in every if 200 <= each.reading.status < 300]
    others = [each for each in good if each.operation != _ME]
    other_json = [each for each in others if each.kind == "JSON"]
    mine = [each for each in good if each.operation == _ME and each.kind == "JSON"]
    states = [each for each in good if each.states]
    failed = [each for each in every if each.reading.status >= 400]
    own = [each for each in every if each.key is None]
    used_up = [each for each in own if is_exhausted(each.reading.status, each.reading.remaining)]
    versions = [each for each in every if _version_notes(each)]
    with_reset = [each for each in own if each.reading.reset is not None]
    unit, unit_sure = _unit(recordings)
    unit_call = "" if unit_sure == "certain" else _EXPLORE
    rows = [
        _row("other operations", "1, 4", _KNOWN_PATH, others, _operations),
        _row("resources and their fields", "2", _KNOWN_PATH, other_json, _fields),
        _row("states and transitions", "3", _OLDER, states, _states),
        _row("regional base addresses", "4", _SIGN_IN, every, _addresses),
        _row("the user's record", "4", "dm.me()", mine, _record),
        _row("answer to a missing key", "5", _EXPLORE, _refused(every, "none"), _refusals),
        _row("answer to an invalid key", "5", _EXPLORE, _refused(every, "wrong"), _refusals),
        _row("how keys are issued or revoked", "5", _ASK),
        _row("events", "6", _ASK),
        _row("errors: statuses and body shapes", "7", _EXPLORE, failed, _statuses),
        _row("unit of X-RateLimit-Reset", "8", unit_call, with_reset, lambda _: unit, unit_sure),
        _row("answer when the allowance is used up", "8", _OVER_LIMIT, used_up, _exhaustion),
        _row("operations with other allowances", "8", _KNOWN_PATH, _limited(own), _allowances),
        _row("versions: new ones, deprecation", "9", _LATER, versions, _versions),
    ]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)
    frame = frame.astype(dict.fromkeys(_COLUMNS[:-1], "string"))
    frame.attrs["notes"] = notes_on_bodies(recordings)
    return readable(frame, hidden=["section", "schema"])


def _responses(recording: Recording) -> Iterator[_Response]:
    for number, reading in enumerate(recording.readings(), 1):
        response = recording.interaction(number).response
        body = _body(response) if recording.has_bodies(number) else ("", None, set[str]())
        about = reading, response.headers, *body
        yield _Response(recording.name, number, recording.base_url, None, *about)
    explored = recording.explored if isinstance(recording, SessionRecording) else []
    for number, (interaction, key) in enumerate(explored, 1):
        address, response = interaction.request.uri.removesuffix(ME_PATH), interaction.response
        about = reading_of(interaction, ME_PATH), response.headers, *_body(response)
        yield _Response("explore", number, address, key, *about)


def _body(response: RecordedResponse) -> tuple[str, object, set[str]]:
    """Return the kind of a body, its JSON, and its states."""
    value, problem = read_json_body(response.headers, response.body)
    fields = leaves(value, into_arrays=True)
    words = [text for path, text in fields if path[-1:] in _STATE_FIELDS]
    states = {word for word in words if isinstance(word, str) and _WORD.fullmatch(word)}
    media_type = header(response.headers, "Content-Type") or "no content type"
    kind = media_type.partition(";")[0].strip()[:100] if response.body else "no body"
    return "JSON" if problem is None else kind, value, states


def _row(
    part: str,
    section: str,
    find_out: str,
    matches: _Responses = (),
    words: Callable[[_Responses], str] = str,
    how_sure: str = "",
) -> tuple[object, ...]:
    """Return the row of a part, and what its matches show, in words.

    By default ``how_sure`` counts the matches, which never makes it certain.
    """
    where, schema = _by(matches, lambda each: each.recording, _ranges), _schema(matches) or None
    if not matches:
        return part, section, "", "not seen", where, find_out, schema
    counted = how_sure or ("seen repeatedly" if len(matches) > 1 else "seen once")
    return part, section, words(matches), counted, where, find_out, schema


def _unit(recordings: Sequence[Recording]) -> tuple[str, str]:
    """Return what is known of the unit of Reset, and how sure that is."""
    evidence = [recording.evidence for recording in recordings]
    known = {each.unit: f"{each.unit}. {each.why}" for each in evidence}
    known.pop("undetermined", None)
    how_sure = "certain" if len(known) == 1 else "undecided"
    return " ".join(known.values() or [each.why for each in evidence]), how_sure


# -- which responses show something of a part --------------------------------------------------


def _refused(responses: _Responses, key: Credentials) -> _Responses:
    """Return the responses to a request with no key, or with a wrong one; else any refusals."""
    refused = [each for each in responses if each.key is None and each.reading.status in (401, 403)]
    return [each for each in responses if each.key == key] or refused


def _limited(responses: _Responses) -> _Responses:
    """Return the responses with another limit than the usual one; else all with a limit."""
    limited = [each for each in responses if each.reading.limit is not None]
    other = [each for each in limited if each.reading.limit != TYPICAL_LIMIT]
    return other or [each for each in limited if each.reading.status < 400]


def _version_notes(response: _Response) -> list[str]:
    """Return what a response shows of other versions: its own path, and headers."""
    operation, path = response.operation, response.reading.path
    notes = [f"{operation} {response.reading.status}"] if _OTHER_VERSION.match(path) else []
    names = [name for name in _VERSION_HEADERS if header(response.headers, name) is not None]
    return notes + [f"{operation} has the header {name}" for name in names]


# -- what they show, in words ------------------------------------------------------------------


def _operations(responses: _Responses) -> str:
    return _joined(f"{each.operation} {each.reading.status}" for each in responses)


def _fields(responses: _Responses) -> str:
    return _by(responses, lambda each: each.operation, _record)


def _record(responses: _Responses) -> str:
    return describe(_schema(responses))


def _states(responses: _Responses) -> str:
    words = sorted(set().union(*(each.states for each in responses)))
    return f"values of fields named state or status: {', '.join(words[:_MOST_STATES])}"


def _addresses(responses: _Responses) -> str:
    return _by(
        responses,
        lambda each: each.address or "unknown",
        lambda same: _joined(str(each.reading.status) for each in same),
    )


def _refusals(responses: _Responses) -> str:
    is_known = responses[0].key is not None
    return _statuses(responses) + ("" if is_known else _UNKNOWN_KEY)


def _statuses(responses: _Responses) -> str:
    """Return statuses with the kinds of their bodies: ``401, 404: JSON error string``."""
    by_status = grouped(responses, lambda response: response.reading.status)
    kinds = {status: _kinds(by_status[status]) for status in sorted(by_status)}
    return "; ".join(
        ", ".join(map(str, statuses)) + (f": {kind}" if kind else "")
        for kind, statuses in grouped(kinds, kinds.__getitem__).items()
    )


def _kinds(responses: _Responses) -> str:
    kinds = dict.fromkeys(each.kind for each in responses if each.kind)
    json = f"JSON {_record(responses)}"
    return " or ".join(json if kind == "JSON" else kind for kind in kinds)


def _exhaustion(responses: _Responses) -> str:
    pause = any(each.reading.retry_after_s is not None for each in responses)
    return f"{_statuses(responses)}, {'with' if pause else 'no'} Retry-After"


def _allowances(responses: _Responses) -> str:
    if responses[0].reading.limit != TYPICAL_LIMIT:
        return _joined(f"{each.operation} {each.reading.limit}" for each in responses)
    operations = _joined(each.operation for each in responses)
    return f"none so far: {TYPICAL_LIMIT} for {operations}"


def _versions(responses: _Responses) -> str:
    return _joined(note for each in responses for note in _version_notes(each))


def _schema(responses: _Responses) -> dict[str, Any]:
    return schema_of([each.body for each in responses if each.kind == "JSON"])


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _by(
    responses: _Responses, key: Callable[[_Response], str], words: Callable[[_Responses], str]
) -> str:
    """Return ``"a: …; b: …"``: what the responses with each key show, in words."""
    return "; ".join(f"{name}: {words(same)}" for name, same in grouped(responses, key).items())


def _ranges(responses: _Responses) -> str:
    numbers = {each.number for each in responses}
    starts = sorted(number for number in numbers if number - 1 not in numbers)
    ends = sorted(number for number in numbers if number + 1 not in numbers)
    pairs = zip(starts, ends, strict=True)
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in pairs)


# -- requests that show more -------------------------------------------------------------------


def _explore(opened: Session, pause_s: float) -> None:
    """Send all requests, or only the first if the key is refused."""
    address = opened.base_url
    print(f"Exploring {address} with reads, which change nothing there.")
    last = _send(opened.client, "GET", address, ME_PATH, pause_s)
    if last is not None and last.status_code in (401, 403):
        _wrong_key_sent.add(address)  # each further request would send it once more
        print("The key was refused, so nothing more is sent.")
        return
    for method, path in (("OPTIONS", ME_PATH), ("GET", _NOWHERE), ("GET", _NEXT_VERSION)):
        _send(opened.client, method, address, path, pause_s)
    if address in _wrong_key_sent:
        print(f"A wrong key was sent to {address} before, and is not sent again.")
    else:
        _wrong_key_sent.add(address)
        _send_without_key(opened, address, "wrong", pause_s)
    # Without the key to all: it belongs to one region, and must not be sent to another.
    for region in dict.fromkeys([address, *configured_regions().values()]):
        _send_without_key(opened, region, "none", pause_s)
    for _ in range(_MOST_READS_FOR_UNIT):
        if opened.recording.evidence.unit != "undetermined":
            return
        if last is not None and RESET_HEADER not in last.headers:
            print("There is no X-RateLimit-Reset, so its unit cannot be found.")
            return
        last = _send(opened.client, "GET", address, ME_PATH, pause_s)


def _send_without_key(opened: Session, address: str, key: Credentials, pause_s: float) -> None:
    # Not recorded: a cassette keeps no credentials, so a replay would give the response to a wrong
    # key to a request with the right one.
    auth = httpx.BasicAuth(_WRONG_KEY, PASSWORD) if key == "wrong" else None
    with httpx.Client(auth=auth, timeout=opened.client.timeout) as client:
        response = _send(client, "GET", address, ME_PATH, pause_s, _NOTES[key])
    if response is not None:
        recorded = normalize_headers(recorded_response(response))
        interaction = Interaction(RecordedRequest("GET", address + ME_PATH), recorded)
        opened.recording.explored.append((interaction, key))


def _send(
    client: httpx.Client, method: str, address: str, path: str, pause_s: float, note: str = ""
) -> httpx.Response | None:
    """Send a request, print what came of it, and wait before the next."""
    response, outcome = None, ""
    try:
        response = client.request(method, address + path)
        outcome = str(response.status_code)
    except httpx.HTTPError as error:
        outcome = f"no response ({type(error).__name__})"
    print(f"{method} {path}{note}: {outcome}")
    time.sleep(pause_s)
    return response
