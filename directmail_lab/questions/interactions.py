"""What a recording holds: its interactions as a DataFrame, one in full, one as code to send again.

A recording may be somebody else's. So nothing in it is taken for markup or moves a cursor, and of a
snippet, which is pasted into a terminal, everything but printable text is encoded or left out. The
key is in none: a shell and httpx read it from the environment, and a session has its own.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Final, overload
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlsplit

import pandas as pd

from ..arguments import check_choice
from ..bodies import read_json, read_json_body, shown_missing
from ..cassettes import Recording
from ..contract import SAFE_METHODS
from ..current import Source, describe, is_many, named_paths, recording_of, recordings_of
from ..display import CONTROLS, readable
from ..errors import CassetteError
from ..interaction import (
    Interaction,
    RecordedRequest,
    RecordedResponse,
    base_path,
    header,
    path_below,
)
from ..operations import operations_of
from ..readings.reading import CUT_SHORT
from ..redaction.key import has_placeholder
from ..settings import API_KEY_VARIABLE, origin_of, trusted_origins

_COLUMNS: Final = (
    *("cassette", "at", "method", "path", "query", "operation", "status", "attempt"),
    *("content_type", "bytes", "elapsed_s", "excerpt", "problem", "cassette_number"),
)
_DTYPES: Final = dict.fromkeys(_COLUMNS, "string") | {
    **dict.fromkeys(("status", "attempt", "bytes", "cassette_number"), "Int64"),
    "at": "datetime64[us, UTC]",
    "elapsed_s": "Float64",
}
_EXCERPT_CHARACTERS: Final = 80
_MAX_CHARACTERS: Final = 4000


@overload
def interactions(
    source: Source | Iterable[Source] = None, *, number: None = None
) -> pd.DataFrame: ...


@overload
def interactions(source: Source = None, *, number: int) -> InteractionView: ...


def interactions(
    source: Source | Iterable[Source] = None, *, number: int | None = None
) -> pd.DataFrame | InteractionView:
    """Return what was sent and received, one row for each interaction.

    Parameters
    ----------
    source
        By default what the current session sent and received: in a replay what it played. Else
        see `directmail_lab.current.recordings_of`: a cassette's name, a path, a folder, a list of
        these, a `Session`.
    number
        Return this interaction instead, counted from 1, shown in full; its ``.as_curl()`` and
        ``.as_httpx()`` are code that sends the request again.

    Returns
    -------
    DataFrame
        ``at`` (UTC; NaT where the writer kept no time), ``method``, ``path`` below the base
        address, ``query``, ``operation`` (the path with id-like segments as ``{id}``),
        ``status``, ``attempt`` (1, and 2 or more where the request was sent again after a response
        that allows that), ``content_type``, ``bytes`` (of the body), ``elapsed_s``, ``excerpt``
        (the start of the body on one line) and ``problem`` (text if the response was cut short,
        and its body is what came of it). ``bytes`` and ``excerpt`` are ``<NA>`` where a session did
        not keep the body. Where it was not recorded, ``bytes`` is ``<NA>`` and ``excerpt`` says so.
        The index, ``number``, counts from 1. Of a session, ``cassette`` and ``cassette_number`` say
        where else a row is; of a folder or of several, ``cassette`` names each.
        ``attrs["problem"]`` says what is wrong with the one file, or is None.

    Raises
    ------
    NotConnectedError, CassetteError, ValueError
        As in `directmail_lab.current.recordings_of`.
    """
    if number is None and is_many(source):
        frames = [_frame(each, is_one_of_many=True) for each in recordings_of(source)]
        frame = pd.concat(frames or [_frame(Recording(""), is_one_of_many=True)])
        return readable(_with_operations(frame, source), hidden=_usual_columns(frame))
    recording = recording_of(source)
    if number is not None:
        return view_of(recording, number)
    frame = _with_operations(_frame(recording), source)
    frame.attrs.update(describe(recording), problem=recording.problem)
    return readable(frame, hidden=_usual_columns(frame))


def _usual_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns that say nothing: each attempt is the first, nothing is a problem."""
    says = {"attempt": frame["attempt"] > 1, "problem": frame["problem"].notna()}
    return [name for name, is_said in says.items() if not is_said.any()]


def _with_operations(frame: pd.DataFrame, source: object) -> pd.DataFrame:
    operations = operations_of(frame["path"].unique(), named_paths(source))
    return frame.assign(operation=frame["path"].map(operations).astype("string"))


def _frame(recording: Recording, *, is_one_of_many: bool = False) -> pd.DataFrame:
    rows = [_row(recording, number, each) for number, each in enumerate(recording, 1)]
    index = pd.RangeIndex(1, len(rows) + 1, name="number")
    frame = pd.DataFrame(rows, index, _COLUMNS).astype(_DTYPES)
    if is_one_of_many:
        return frame.assign(cassette=pd.array([recording.name] * len(rows), "string"))
    return frame if recording.path is None else frame.drop(columns=["cassette", "cassette_number"])


def _row(recording: Recording, number: int, interaction: Interaction) -> tuple[object, ...]:
    request, response = interaction.request, interaction.response
    path, is_kept = recording.path_of(request), recording.has_bodies(number)
    reading = recording.reading(number) if recording.path is None else None
    return (
        reading and reading.cassette,
        interaction.recorded_at,
        request.method,
        path,
        urlsplit(request.uri).query,
        path,
        response.status,
        interaction.attempt,
        header(response.headers, "content-type"),
        len(response.body) if is_kept and not shown_missing(response.body) else None,
        interaction.elapsed_s,
        _excerpt(response.body) if is_kept else None,
        CUT_SHORT if reading and reading.is_cut_short else None,
        reading and reading.cassette_number,
    )


def _excerpt(body: bytes) -> str:
    if missing := shown_missing(body):
        return missing
    text = _text_of(body)
    if text is None:
        return "(binary)"
    line = CONTROLS.sub(" ", " ".join(text[: 4 * _EXCERPT_CHARACTERS].split()))
    is_long = len(line) > _EXCERPT_CHARACTERS
    return line[: _EXCERPT_CHARACTERS - 1] + "…" if is_long else line


def _text_of(body: bytes) -> str | None:
    """Return a body that is text; None if it is binary."""
    try:
        return None if b"\0" in body else body.decode()
    except UnicodeDecodeError:
        return None


# -- one in full -------------------------------------------------------------------------------


def view_of(recording: Recording, number: int) -> InteractionView:
    """Return an interaction of a recording; raises as `Recording.interaction` does."""
    interaction, has_bodies = recording.interaction(number), recording.has_bodies(number)
    is_cut_short = recording.reading(number).is_cut_short
    return InteractionView(interaction, has_bodies, recording.base_url or "", is_cut_short)


@dataclass(frozen=True, slots=True)
class InteractionView:
    """Shows one interaction as the last value of a cell: request, response, bodies laid out."""

    interaction: Interaction
    has_bodies: bool = True
    base_url: str = ""
    is_cut_short: bool = False

    def as_curl(self) -> str:
        """Return the request as a command of curl; the key is ``$DIRECTMAIL_API_KEY``."""
        return copy_as(self, "curl")

    def as_httpx(self) -> str:
        """Return the request as Python with httpx; the key is taken from the environment."""
        return copy_as(self, "httpx")

    def __repr__(self) -> str:
        parts = (f"{title}\n{headers}\n\n{body}" for title, headers, body in self._texts())
        return "\n".join(f"{part.rstrip()}\n" for part in parts)

    def _repr_html_(self) -> str:
        return "".join(
            f"<details open><summary><b>{html.escape(title)}</b></summary>"
            f"<pre>{html.escape(headers)}</pre><pre>{html.escape(body)}</pre></details>"
            for title, headers, body in self._texts()
        )

    def _texts(self) -> Iterator[tuple[str, str, str]]:
        """Yield title, headers and body of the request, and of the response."""
        request, response = self.interaction.request, self.interaction.response
        elapsed_s, at = self.interaction.elapsed_s, self.interaction.recorded_at
        status = f"{response.status} {response.reason}".rstrip()
        status += "" if elapsed_s is None else f" after {elapsed_s:.3f} s"
        status += "" if at is None else f", {at:%Y-%m-%d %H:%M:%S} UTC"
        status += f"; {CUT_SHORT}" if self.is_cut_short else ""
        for title, message in ((f"{request.method} {request.uri}", request), (status, response)):
            headers = [": ".join(pair).replace("\n", " ") for pair in message.headers]
            body = _body_text(message.body or b"") if self.has_bodies else "(it was not kept)"
            yield _shown(title.replace("\n", " ")), _shown("\n".join(headers)), _shown(body)


def _body_text(body: bytes) -> str:
    """Return JSON laid out, with letters in the place of their escapes; other text as it is."""
    if missing := shown_missing(body):
        return missing
    text = _text_of(body)
    if text is None:
        return f"({len(body):,} bytes, not text)"
    with suppress(ValueError, RecursionError):
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text


def _shown(text: str) -> str:
    """Return a text as it is shown: a long one cut, control characters escaped."""
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]}\n… ({len(text):,} characters in all)"
    text = text.replace("\r\n", "\n").expandtabs(4)
    return CONTROLS.sub(lambda control: ascii(control[0])[1:-1], text)


# -- as code -----------------------------------------------------------------------------------

_MAX_BODY_BYTES: Final = 64 * 1024
_LINE_CHARACTERS: Final = 88  # as formatters of Python lay code out
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|true|false|null')
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
# Headers that the program sets which sends the request again.
_SET_BY_CLIENT: Final = re.compile(
    r"(?:host|content-length|transfer-encoding|connection|keep-alive|te|accept-encoding|user-agent"
    r"|authorization|cookie|expect|upgrade):.*|accept: \*/\*",
    re.IGNORECASE | re.DOTALL,
)
_VALUE_REPLACED: Final = "A value was replaced when this was recorded: put in your own."
_KEY_LEFT_OUT: Final = (
    "The key is left out: this process did not connect to this address, and no setting names it."
)


def copy_as(view: InteractionView, kind: str) -> str:
    """Return a recorded request as code, below comments on what is left out.

    A recording may name any address, so the key goes to `settings.trusted_origins` alone.

    Parameters
    ----------
    kind
        ``"curl"`` (a POSIX shell), ``"httpx"`` (Python) or ``"request"`` (`directmail_lab.request`,
        which uses the address and key of the current session, as a cell of a notebook, which
        makes a frame of a response that is JSON).

    Raises
    ------
    CassetteError
        The request's address is neither http nor https, so it cannot be sent again.
    ValueError
        There is no such kind.
    """
    check_choice("kind", kind, ("curl", "httpx", "request"))
    recorded, body = view.interaction.request, view.interaction.request.body or b""
    if urlsplit(recorded.uri).scheme not in ("http", "https"):
        raise CassetteError("This request has no http address, so it cannot be sent again.")
    # Spaces and non-ASCII characters are percent-encoded here, as a client would on sending.
    url = quote(recorded.uri, safe="!#$%&'()*+,/:;=?@[]~<>")
    headers = [pair for pair in recorded.headers if not _SET_BY_CLIENT.fullmatch(": ".join(pair))]
    sendable = tuple(
        (name, value)
        for name, value in headers
        if _TOKEN.fullmatch(name) and value.isprintable() and value == value.strip()
    )
    has_key = kind != "request" and origin_of(url) in trusted_origins()
    is_kept = view.has_bodies or recorded.method in SAFE_METHODS
    if len(body) > _MAX_BODY_BYTES:
        body, is_kept = b"", False
    texts = [url, body.decode("latin-1"), *(value for _, value in headers)]
    notes = {
        "A header that is not plain text is left out.": len(sendable) < len(headers),
        "The body was not kept, or is too large: add it yourself.": not is_kept,
        _VALUE_REPLACED: any(map(has_placeholder, texts)),
        _KEY_LEFT_OUT: kind != "request" and not has_key,
    }
    request = replace(recorded, uri=url, headers=sendable, body=body)
    if kind == "curl":
        code = _as_curl(request, has_key=has_key)
    elif kind == "httpx":
        key = [f'auth=(os.environ["{API_KEY_VARIABLE}"], "")'] if has_key else []
        key += [f"headers={list(sendable)!r}"] if sendable else []
        key += [f"content={body!r}"] if body else []
        arguments = [_literal(request.method), _literal(url), *key]
        code = f"import os\n\nimport httpx\n\n{_as_python('httpx.request', arguments)}"
    else:
        code = _as_cell(request, view.interaction.response, view.base_url)
    return "".join(f"# {note}\n" for note, applies in notes.items() if applies) + code


def _as_curl(request: RecordedRequest, *, has_key: bool) -> str:
    method = f"--request {shlex.quote(request.method)}"
    words = [f"curl --globoff --path-as-is {'--head' if request.method == 'HEAD' else method}"]
    words += [f'--user "${API_KEY_VARIABLE}:"'] if has_key else []
    # curl drops "Name:"; to send a header without a value it wants "Name;".
    headers = [f"{name}: {value}" if value else f"{name};" for name, value in request.headers]
    words += [f"--header {shlex.quote(each)}" for each in headers]
    pipe, body = "", request.body or b""
    text = _text_of(body)
    if text and text.replace("\n", "").isprintable():
        words.append(f"--data-raw {shlex.quote(text)}")
    elif body:
        pipe = f"printf %s '{base64.b64encode(body).decode()}' | base64 -d | "
        words.append("--data-binary @-")
    words.append(f"--url {shlex.quote(request.uri)}")
    return pipe + " \\\n  ".join(words)


def _as_cell(request: RecordedRequest, response: RecordedResponse, base_url: str) -> str:
    path, query = path_below(request.uri, base_path(base_url)), urlsplit(request.uri).query
    params = parse_qsl(query, keep_blank_values=True)
    # A name without "=", or a value that is not UTF-8, stays as it is in the address.
    if unquote_to_bytes(query.replace("+", " ")) != "&".join(map("=".join, params)).encode():
        path, params = f"{path}?{query}", []
    body, headers = request.body or b"", request.headers
    options = [f"params={_as_dict(params)}"] if params else []
    value, problem = read_json(body)
    if problem is None and (header(headers, "content-type") or "") == "application/json":
        headers = tuple(pair for pair in headers if pair[0].lower() != "content-type")
        options += [f"json={_literal(value)}"]
    elif body:
        options += [f"content={body!r}"]
    options += [f"headers={_as_dict(headers)}"] if headers else []
    function = {"GET": "dm.get", "POST": "dm.post"}.get(request.method, "dm.request")
    method = [_literal(request.method)] if function == "dm.request" else []
    code = _as_python(function, [*method, _literal(path), *options])
    if read_json_body(response.headers, response.body)[1] is not None:
        return code
    on_error = ', on_error="keep"' if response.status >= 400 else ""
    return f"{code}\ndm.frame(response{on_error})"


def _as_python(function: str, arguments: Sequence[str]) -> str:
    """Return a call of a function; on one line if that fits."""
    line = f"response = {function}({', '.join(arguments)})"
    if len(line) <= _LINE_CHARACTERS:
        return line
    lines = "".join(f"{each},\n" for each in arguments)
    return f"response = {function}(\n{indent(lines, '    ')})"


def _as_dict(pairs: Sequence[tuple[str, str]]) -> str:
    """Return pairs as a literal: a dict, but a list if a name comes twice."""
    return _literal(dict(pairs) if len(dict(pairs)) == len(pairs) else pairs)


def _literal(value: object) -> str:
    """Return a JSON value as Python, on several lines if it is long."""
    text = json.dumps(value)
    if len(text) > _LINE_CHARACTERS - 20:
        text = json.dumps(value, indent=4)
    return _JSON_TOKEN.sub(_token, text)


def _token(json_token: re.Match[str]) -> str:
    value = json.loads(json_token[0])
    if not isinstance(value, str) or '"' in value:
        return repr(value)
    return repr(f"'{value}").replace("'", "", 1)  # because of "'", repr() takes double quotes
