"""`findings`: what was seen of the parts that service.md leaves open."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import compress
from operator import attrgetter
from typing import NamedTuple

import pandas as pd

from ..cassettes import Recording, uncollected
from ..display import as_table, printable_line, ranges
from ..exchange.bodies import read_json_body, shown_missing
from ..exchange.contract import ME_PATH, TYPICAL_LIMIT
from ..exchange.operations import operations_of
from ..exchange.values import media_type_of
from ..readings.reading import Reading, used_up
from .shapes import ANY_NAME, Schema, grouped, notes_on, schema_of
from .sources import Sources, named_paths, recordings_of

_COLUMNS = ("part", "section", "seen", "how_sure", "interactions", "find_out")
_ME = f"GET {ME_PATH}"
_ASK = "ask the service's operator"
_OTHER_VERSION = re.compile(r"/v(?!1/|1$)\d+(/|$)")


@uncollected()
def findings(source: Sources = None) -> pd.DataFrame:
    """Return what responses show about the undocumented parts of the API.

    It sends nothing.

    Parameters
    ----------
    source
        A cassette's name, a path, a folder, a list of these, or a `Session`. By
        default the current session.

    Returns
    -------
    DataFrame
        A row for each part that the service's document leaves open, in the
        document's order. All columns are strings:

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
    rows = _rows(recordings, named_paths(source))
    frame = pd.DataFrame(rows, columns=list(_COLUMNS), dtype="string")
    frame.attrs["notes"] = notes_on(recordings)
    return as_table(frame)


# -- what was seen -----------------------------------------------------------------------------


class _Response(NamedTuple):
    """A response, the recording that has it, and its number there.

    ``kind`` is ``"JSON"``, ``"no body"``, or another body's media type, and ``json`` the value of a
    body of JSON.
    """

    recording: str
    number: int
    address: str
    operation: str
    reading: Reading
    status: int
    kind: str
    json: object


_Responses = Sequence[_Response]


def _responses(recording: Recording, paths: Collection[str]) -> Iterator[_Response]:
    address = recording.base_url or "unknown"
    responses = list(recording.responses())
    operations = operations_of({reading.path for reading, _ in responses}, paths)
    for number, (reading, interaction) in enumerate(responses, 1):
        # It has no response of its own, or it is another server's, or an earlier one was kept.
        has_own = reading.status and reading.attempt
        if not has_own or reading.elsewhere or reading.source == "kept":
            continue
        operation = f"{reading.method} {operations[reading.path]}"
        response = interaction.response
        json = None
        if not recording.has_bodies(number) or shown_missing(response.body):
            kind = "a body that was not kept"
        elif not response.body:
            kind = "no body"
        else:
            json, problem = read_json_body(response)
            media_type = media_type_of(response.headers)[:100]
            kind = (media_type or "no content type") if problem else "JSON"
        yield _Response(
            recording.name, number, address, operation, reading, reading.status, kind, json
        )


def _rows(recordings: Sequence[Recording], paths: Collection[str]) -> list[tuple[str, ...]]:
    every: list[_Response] = []
    for recording in recordings:
        every += _responses(recording, paths)
    good = [each for each in every if 200 <= each.status < 300]
    others = [each for each in good if each.operation != _ME]
    other_json = [each for each in others if each.kind == "JSON"]
    mine = [each for each in good if each.operation == _ME and each.kind == "JSON"]
    unauthorized = [each for each in every if each.status in (401, 403)]
    failed = [each for each in every if each.status >= 400]
    limited = [each for each in every if each.reading.limit not in (None, TYPICAL_LIMIT)]
    exhaustion = list(compress(every, used_up([each.reading for each in every])))
    versions = [each for each in every if _OTHER_VERSION.match(each.reading.path)]
    with_reset = [each for each in every if each.reading.reset_number is not None]
    unit, sure = _unit(recordings)
    unit_call = "" if sure == "certain" else "dm.me(), again after some seconds"
    # A paced session would wait for the renewal instead.
    over = 'dm.connect(…, pace="off"), then dm.get_many() of more paths than the limit'
    no_key = f'dm.get("{ME_PATH}", auth=None)'
    nowhere = 'dm.get("/v1/nowhere")'
    version_2 = 'dm.get("/v2/users/me")'
    sign_in = 'dm.connect("https://…"), then dm.me()'
    known = 'dm.get("/v1/…") with a known path'
    return [
        _row("other operations", "1, 4", known, others, _codes, by="operation"),
        _row("resources and their fields", "2", known, other_json, _fields, by="operation"),
        _row("states and transitions", "3", "dm.drift(…), on an older cassette"),
        _row("regional service addresses", "4", sign_in, every, _codes, by="address"),
        _row("the user's record", "4", "dm.me()", mine, _fields),
        _row("answer to a missing or invalid key", "5", no_key, unauthorized, _kinds, by="status"),
        _row("how keys are issued or revoked", "5", _ASK),
        _row("events", "6", _ASK),
        _row("errors: statuses and body shapes", "7", nowhere, failed, _kinds, by="status"),
        _row("unit of X-RateLimit-Reset", "8", unit_call, with_reset, lambda _: unit, sure=sure),
        _row(
            "answer when the allowance is used up", "8", over, exhaustion, _exhaustion, by="status"
        ),
        _row("operations with other allowances", "8", known, limited, _limits, by="operation"),
        _row("versions: new ones, deprecation", "9", version_2, versions, _codes, by="operation"),
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
    return part, section, printable_line(seen), sure, where, find_out


def _grouped(responses: _Responses, by: str, words: Callable[[_Responses], str]) -> str:
    """Return ``"a: …; b: …"``: for each value of an attribute, a description of its responses."""
    groups = grouped(responses, attrgetter(by))
    return "; ".join(f"{value}: {words(same)}" for value, same in sorted(groups.items()))


def _unit(recordings: Sequence[Recording]) -> tuple[str, str]:
    """Return what is known about the unit of Reset, and how sure it is."""
    evidence = [recording.evidence for recording in recordings]
    known = {each.unit: each.why for each in evidence if each.unit != "undetermined"}
    if not known:
        return " ".join(each.why for each in evidence), "undecided"
    seen = " ".join(f"{unit}. {why}" for unit, why in known.items())
    return seen, "certain" if len(known) == 1 else "undecided"


# -- descriptions of responses -----------------------------------------------------------------


def _codes(responses: _Responses) -> str:
    return _joined(each.status for each in responses)


def _fields(responses: _Responses) -> str:
    return in_words(schema_of([each.json for each in responses if each.kind == "JSON"]))


def _kinds(responses: _Responses) -> str:
    kinds = dict.fromkeys(each.kind for each in responses)
    json = f"JSON {_fields(responses)}"
    return " or ".join(json if kind == "JSON" else kind for kind in kinds)


def _exhaustion(responses: _Responses) -> str:
    has_pause = any(each.reading.retry_after_s is not None for each in responses)
    return f"{_kinds(responses)}, {'with' if has_pause else 'no'} Retry-After"


def _limits(responses: _Responses) -> str:
    return _joined(each.reading.limit for each in responses)


def in_words(schema: Schema) -> str:
    """Return a schema on one line: ``id string, company.city? string or null``."""
    return ", ".join(_described(schema, "")) or "anything"


def _described(schema: Schema, path: str) -> list[str]:
    required = schema.get("required", ())
    parts = {}
    for name, part in schema.get("properties", {}).items():
        mark = "" if name in required else "?"
        parts[f".{name}{mark}"] = part
    if "additionalProperties" in schema:
        parts[f".{ANY_NAME}"] = schema["additionalProperties"]
    if "items" in schema:
        parts["[]"] = schema["items"]
    leaves = [leaf for name, part in parts.items() for leaf in _described(part, path + name)]
    words = " or ".join(schema.get("type", ()))
    return leaves or [f"{path} {words}".removeprefix(".").strip()]


def _joined(numbers: Iterable[int | None]) -> str:
    return ", ".join(map(str, dict.fromkeys(numbers)))


def _numbers(responses: _Responses) -> str:
    return ranges(each.number for each in responses)
