"""`findings`: what was seen of the parts that service.md leaves open. `explore` sends requests."""

# ruff: noqa: T201 (`explore` prints what it sends)

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final, Literal
from weakref import WeakKeyDictionary

import pandas as pd

from ..authentication import HEADER, header_value
from ..cassettes import Recording, uncollected
from ..contract import ME_PATH, RESET_HEADER, TYPICAL_LIMIT
from ..current import session as current
from ..display import Progress, ProgressBar, ranges, with_whole_cells
from ..errors import NotConnectedError
from ..exchange.bodies import read_json_body, shown_missing
from ..exchange.operations import operations_of
from ..exchange.values import (
    Interaction,
    Request,
    Response,
    header,
    normalize_headers,
)
from ..http import httpx, response_value
from ..readings.reading import Reading, is_exhausted, reading_of
from ..sessions import Session
from ..settings import configured_regions
from ..sources import Source, named_paths, recordings_of
from .shapes import ANY_NAME, Schema, grouped, notes_on, schema_of

_COLUMNS: Final = ("part", "section", "seen", "how_sure", "interactions", "find_out")
_ME: Final = f"GET {ME_PATH}"
_ASK: Final = "ask the service's operator"
_EXPLORE: Final = "explore()"
_OTHER_VERSION: Final = re.compile(r"/v(?!1/|1$)\d+(/|$)")
_VERSION_HEADERS: Final = ("Deprecation", "Sunset", "API-Version")

# Two harmless paths: one that should not exist, and the next version of one that does.
_NOWHERE: Final = "/v1/directmail-lab-nowhere"
_NEXT_VERSION: Final = "/v2/users/me"
_WRONG_KEY: Final = "directmail-lab-no-key"
# Enough reads to see a value of X-RateLimit-Reset count down, if it does.
_MOST_READS_FOR_UNIT: Final = 12

Credentials = Literal["key", "none", "wrong"]

# For each recording, the responses to `explore` that it does not keep, and which key was sent.
_explored: Final = WeakKeyDictionary[Recording, list[tuple[Interaction, Credentials]]]()

# The base addresses to which this process has sent a wrong key. It sends no second one, since a
# service may lock the account.
_wrong_key_sent: Final[set[str]] = set()


def findings(source: Source | Iterable[Source] = None) -> pd.DataFrame:
    """Return what was seen of each part that the document leaves open.

    It sends nothing. The document is the one of the service.

    Parameters
    ----------
    source
        A cassette's name, a path, a folder, a list of these, or a `Session`. By
        default the current session, with the responses to `explore`.

    Returns
    -------
    DataFrame
        A row for each open part, in the document's order. All columns are
        strings:

        ============ ===========================================================
        part         the part
        section      its section in the document
        seen         what was seen, in words; empty if nothing was
        how_sure     ``not seen``, ``undecided``, ``seen once``,
                     ``seen repeatedly``, or ``certain`` if everything else is
                     ruled out
        interactions where it was seen: recordings, and numbers from 1
        find_out     the call that would find out more
        ============ ===========================================================

        ``attrs["notes"]`` names the session, and says how many of its bodies
        were kept.

    Raises
    ------
    NotConnectedError
        No session is open, and no source is given.
    CassetteError
        There is no such cassette, or it cannot be read.

    Examples
    --------
    >>> found = dm.findings("explore-an-unknown-api").set_index("part")
    >>> found.loc["versions: new ones, deprecation", "seen"]
    'GET /v2/users/me: 404'
    """
    recordings = list(recordings_of(source))
    total = sum(map(len, recordings))
    with ProgressBar(total, desc="Findings", unit="interaction") as bar, uncollected():
        rows = _rows(recordings, named_paths(source), bar.update)
    frame = pd.DataFrame(rows, columns=list(_COLUMNS), dtype="string")
    frame.attrs["notes"] = notes_on(recordings)
    return with_whole_cells(frame)


def explore(*, pause_s: float = 1.0) -> pd.DataFrame:
    """Send requests that show what the document leaves open; see `findings`.

    It sends at most about twenty requests, all of them reads, with the
    session's pacing. It prints each one. It sends a request without a key to
    the session's address and to each other configured region, and once per
    process a request with a wrong key to the session's address. These are not
    recorded. If the service refuses the session's own key, nothing more is
    sent. The allowance is not used up; `burst` can do that.

    Parameters
    ----------
    pause_s
        Seconds to wait after each request.

    Raises
    ------
    NotConnectedError
        No session is open, or it replays a recording, which has no responses to
        new requests.
    """
    opened = current()
    if opened.mode == "replay":
        problem = "The session replays a recording, which has no responses to new requests."
        raise NotConnectedError(f"{problem} See findings(), or sign in with login().")
    _explore(opened, pause_s)
    return findings()


# -- what was seen -----------------------------------------------------------------------------


@dataclass(eq=False)
class _Response:
    """A response, the recording that has it, and its number there.

    ``key`` is ``"none"`` or ``"wrong"`` if `explore` sent no key or a wrong one.
    """

    recording: str
    number: int
    address: str
    reading: Reading
    response: Response
    has_body: bool = True
    key: Credentials = "key"
    operation: str = ""

    @property
    def status(self) -> int:
        return self.reading.status

    @cached_property
    def json(self) -> tuple[object, str | None]:
        """The body's JSON value, and what is wrong with the body, or None."""
        return read_json_body(self.response.headers, self.response.body)

    @cached_property
    def kind(self) -> str:
        """``"JSON"``, ``"no body"``, or another body's media type."""
        if not self.has_body:
            return "a body that was not kept"
        media_type = header(self.response.headers, "Content-Type") or "no content type"
        kind = "JSON" if self.json[1] is None else media_type.partition(";")[0].strip()[:100]
        return kind if self.response.body else "no body"

    @property
    def versions(self) -> list[str]:
        """Signs of other versions: the status of such a path, and names of headers."""
        names = [name for name in _VERSION_HEADERS if header(self.response.headers, name)]
        return [str(self.status), *names] if _OTHER_VERSION.match(self.reading.path) else names


_Responses = Sequence[_Response]


def _responses(recording: Recording, progress: Progress) -> Iterator[_Response]:
    address = recording.base_url or "unknown"
    for number, (reading, interaction) in enumerate(recording.responses(), 1):
        progress(1)
        if not reading.status:
            continue  # no response came
        if reading.elsewhere:
            continue  # another server says nothing about the service
        response, has_body = interaction.response, recording.has_bodies(number)
        has_body &= shown_missing(response.body) is None
        yield _Response(recording.name, number, address, reading, response, has_body)
    for number, (interaction, key) in enumerate(_explored.get(recording, ()), 1):
        address = interaction.request.uri.removesuffix(ME_PATH)
        reading = reading_of(interaction, ME_PATH)
        yield _Response("explore", number, address, reading, interaction.response, key=key)


def _rows(
    recordings: Sequence[Recording], paths: Collection[str], progress: Progress
) -> list[tuple[str, ...]]:
    every = [response for recording in recordings for response in _responses(recording, progress)]
    operations = operations_of({each.reading.path for each in every}, paths)
    for each in every:
        each.operation = f"{each.reading.method} {operations[each.reading.path]}"
    good = [each for each in every if 200 <= each.status < 300]
    others = [each for each in good if each.operation != _ME]
    other_json = [each for each in others if each.kind == "JSON"]
    mine = [each for each in good if each.operation == _ME and each.kind == "JSON"]
    no_key = [each for each in every if each.key == "none"]
    wrong_key = [each for each in every if each.key == "wrong"]
    failed = [each for each in every if each.status >= 400]
    own = [each for each in every if each.key == "key"]
    limited = [each for each in own if each.reading.limit not in (None, TYPICAL_LIMIT)]
    used_up = [each for each in own if is_exhausted(each.status, each.reading.remaining)]
    versions = [each for each in every if each.versions]
    with_reset = [each for each in own if each.reading.reset is not None]
    unit, sure = _unit(recordings)
    unit_call = "" if sure == "certain" else _EXPLORE
    # A paced session would wait for the renewal instead.
    over = 'connect(…, pace="off"), then burst(n) with n over the limit'
    v2 = f'get("{_NEXT_VERSION}")'
    sign_in, older = 'connect("https://…"), then me()', "drift(…), on an older cassette"
    known = 'get("/v1/…") with a known path'
    return [
        _row("other operations", "1, 4", known, others, _codes, by="operation"),
        _row("resources and their fields", "2", known, other_json, _fields, by="operation"),
        _row("states and transitions", "3", older),
        _row("regional base addresses", "4", sign_in, every, _codes, by="address"),
        _row("the user's record", "4", "me()", mine, _fields),
        _row("answer to a missing key", "5", _EXPLORE, no_key, _kinds, by="status"),
        _row("answer to an invalid key", "5", _EXPLORE, wrong_key, _kinds, by="status"),
        _row("how keys are issued or revoked", "5", _ASK),
        _row("events", "6", _ASK),
        _row("errors: statuses and body shapes", "7", _EXPLORE, failed, _kinds, by="status"),
        _row("unit of X-RateLimit-Reset", "8", unit_call, with_reset, lambda _: unit, sure=sure),
        _row("answer when the allowance is used up", "8", over, used_up, _exhaustion, by="status"),
        _row("operations with other allowances", "8", known, limited, _limits, by="operation"),
        _row("versions: new ones, deprecation", "9", v2, versions, _versions, by="operation"),
    ]


def _row(
    part: str,
    section: str,
    find_out: str,
    matches: _Responses = (),
    words: Callable[[_Responses], str] = str,
    *,
    by: str | None = None,
    sure: str = "",
) -> tuple[str, ...]:
    """Return the row of a part; ``words`` describes its matches, grouped ``by`` an attribute.

    By default, ``how_sure`` depends on the number of matches, and is never certain.
    """
    if not matches:
        return part, section, "", "not seen", "", find_out
    seen = words(matches) if by is None else _grouped(matches, by, words)
    sure = sure or ("seen repeatedly" if len(matches) > 1 else "seen once")
    where = _grouped(matches, "recording", _numbers)
    return part, section, seen, sure, where, find_out


def _grouped(responses: _Responses, by: str, words: Callable[[_Responses], str]) -> str:
    """Return ``"a: …; b: …"``: for each value of an attribute, a description of its responses."""
    groups = grouped(responses, attrgetter(by))
    return "; ".join(f"{value}: {words(same)}" for value, same in sorted(groups.items()))


def _unit(recordings: Sequence[Recording]) -> tuple[str, str]:
    """Return what is known about the unit of Reset, and how sure it is."""
    evidence = [recording.evidence for recording in recordings]
    known = {each.unit: f"{each.unit}. {each.why}" for each in evidence}
    known.pop("undetermined", None)
    sure = "certain" if len(known) == 1 else "undecided"
    return " ".join(known.values() or [each.why for each in evidence]), sure


# -- descriptions of responses -----------------------------------------------------------------


def _codes(responses: _Responses) -> str:
    return _joined(str(each.status) for each in responses)


def _fields(responses: _Responses) -> str:
    return in_words(schema_of([each.json[0] for each in responses if each.kind == "JSON"]))


def _kinds(responses: _Responses) -> str:
    kinds = dict.fromkeys(each.kind for each in responses)
    json = f"JSON {_fields(responses)}"
    return " or ".join(json if kind == "JSON" else kind for kind in kinds)


def _exhaustion(responses: _Responses) -> str:
    has_pause = any(each.reading.retry_after_s is not None for each in responses)
    return f"{_kinds(responses)}, {'with' if has_pause else 'no'} Retry-After"


def _limits(responses: _Responses) -> str:
    return _joined(str(each.reading.limit) for each in responses)


def _versions(responses: _Responses) -> str:
    return _joined(note for each in responses for note in each.versions)


def in_words(schema: Schema) -> str:
    """Return a schema on one line: ``id string, company.city? string or null``."""
    return ", ".join(_described(schema, "")) or "anything"


def _described(schema: Schema, path: str) -> list[str]:
    required = schema.get("required", ())
    parts = {
        f".{name}{'' if name in required else '?'}": part
        for name, part in schema.get("properties", {}).items()
    }
    others = {"additionalProperties": f".{ANY_NAME}", "items": "[]"}
    parts |= {name: schema[word] for word, name in others.items() if word in schema}
    leaves = [leaf for name, part in parts.items() for leaf in _described(part, path + name)]
    words = " or ".join(schema.get("type", ()))
    return leaves or [f"{path} {words}".removeprefix(".").strip()]


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _numbers(responses: _Responses) -> str:
    return ranges(each.number for each in responses)


# -- requests that show more -------------------------------------------------------------------


def _explore(opened: Session, pause_s: float) -> None:
    """Send all requests, or only the first if the key is refused."""
    address = opened.base_url
    print(f"Exploring {address} with reads, which change nothing there.")
    last = _send(opened.client, "GET", address, ME_PATH, pause_s)
    if last is not None and last.status_code in (401, 403):
        _wrong_key_sent.add(address)  # each further request would send the wrong key again
        print("The key was refused, so nothing more is sent.")
        return
    for method, path in (("OPTIONS", ME_PATH), ("GET", _NOWHERE), ("GET", _NEXT_VERSION)):
        _send(opened.client, method, address, path, pause_s)
    if address in _wrong_key_sent:
        print(f"A wrong key was sent to {address} before, and is not sent again.")
    else:
        _wrong_key_sent.add(address)
        _send_without_key(opened, address, "wrong", pause_s)
    # Other regions get no key: it belongs to one region, and must not be sent to another.
    for region in dict.fromkeys([address, *configured_regions().values()]):
        _send_without_key(opened, region, "none", pause_s)
    for _ in range(_MOST_READS_FOR_UNIT):
        has_reset = last is not None and RESET_HEADER in last.headers
        if not has_reset or opened.recording.evidence.unit != "undetermined":
            return
        last = _send(opened.client, "GET", address, ME_PATH, pause_s)


def _send_without_key(opened: Session, address: str, key: Credentials, pause_s: float) -> None:
    # Not recorded: a cassette keeps no credentials, so a replay would give the response to a wrong
    # key to a request with the right one.
    headers = {HEADER: header_value(_WRONG_KEY)} if key == "wrong" else {}
    note = " with a wrong key" if headers else " without a key"
    with httpx.Client(headers=headers, timeout=opened.client.timeout) as client:
        response = _send(client, "GET", address, ME_PATH, pause_s, note)
    if response is not None:
        recorded = normalize_headers(response_value(response))
        interaction = Interaction(Request("GET", address + ME_PATH), recorded)
        _explored.setdefault(opened.recording, []).append((interaction, key))


def _send(
    client: httpx.Client, method: str, address: str, path: str, pause_s: float, note: str = ""
) -> httpx.Response | None:
    """Send a request, print what came of it, and wait before the next."""
    response = None
    try:
        response = client.request(method, address + path)
        outcome = str(response.status_code)
    except httpx.HTTPError as error:
        outcome = f"no response ({type(error).__name__})"
    print(f"{method} {path}{note}: {outcome}")
    time.sleep(pause_s)
    return response
