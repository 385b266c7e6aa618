"""A recorded request as code that sends it again: for a shell, for httpx, for a session. Pure.

A recording may be somebody else's, and a snippet is pasted into a terminal: so everything but
printable text is encoded or left out. A snippet never contains the key: in a shell and with httpx
it is read from the environment, and a session has its own.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from ..errors import CassetteError
from ..interaction import Headers, Interaction, RecordedRequest, base_path, header, path_below
from ..redaction import PLACEHOLDER
from ..settings import API_KEY_VARIABLE, is_loopback

FORMATS: Final = ("curl", "httpx", "request")
_MAX_BODY_BYTES: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
# Headers that the program sets which sends the request again.
_SET_BY_CLIENT: Final = re.compile(
    "host|content-length|transfer-encoding|connection|keep-alive|te|accept-encoding|user-agent"
    "|authorization|cookie|expect|upgrade"
)


@dataclass(frozen=True, slots=True)
class _Request:
    """The part of a recorded request that can be sent again, and whether the key may go with it."""

    method: str
    url: str
    headers: Headers
    body: bytes
    has_key: bool


def copy_as(interaction: Interaction, kind: str, *, base_url: str | None = None) -> str:
    """Return a recorded request as code, below comments on what is left out.

    Parameters
    ----------
    kind
        ``"curl"`` (a POSIX shell), ``"httpx"`` (Python) or ``"request"`` (`directmail_lab.request`,
        which uses the address and key of the current session).
    base_url
        The base address of the recording. ``"request"`` gives the path below it; the others send
        no key to another origin, such as one that a redirect led to.

    Raises
    ------
    CassetteError
        The request's address is neither http nor https, so it cannot be sent again.
    """
    recorded = interaction.request
    if urlsplit(recorded.uri).scheme not in ("http", "https"):
        raise CassetteError("This request has no http address, so it cannot be sent again.")
    # Spaces and non-ASCII characters are percent-encoded here, as a client would on sending.
    url = quote(recorded.uri.replace("%3CAPI_KEY%3E", PLACEHOLDER), safe="!#$%&'()*+,/:;=?@[]~<>")
    headers, notes = _sendable_headers(recorded)
    body = recorded.body or b""
    if len(body) > _MAX_BODY_BYTES:
        notes.append(f"The body of {len(body):,} bytes is left out: add it yourself.")
        body = b""
    problem = "" if kind == "request" else _reason_without_key(url, base_url)
    notes += [f"The key is left out: {problem}."] if problem else []
    request = _Request(recorded.method, url, headers, body, has_key=not problem)
    if kind == "curl":
        code = _as_curl(request)
    else:
        code = _as_httpx(request) if kind == "httpx" else _as_request(request, base_url or "")
    return "".join(f"# {note}\n" for note in notes) + code


def _sendable_headers(request: RecordedRequest) -> tuple[Headers, list[str]]:
    """Return the headers that can be sent and pasted as they are, and a note if some cannot."""
    headers = [
        (name, value)
        for name, value in request.headers
        if not _SET_BY_CLIENT.fullmatch(name.lower()) and (name.lower(), value) != ("accept", "*/*")
    ]
    sendable = tuple(
        (name, value)
        for name, value in headers
        if _TOKEN.fullmatch(name) and value.isprintable() and value == value.strip()
    )
    is_cut = len(sendable) < len(headers)
    return sendable, ["A header that is not plain text is left out."] if is_cut else []


def _reason_without_key(url: str, base_url: str | None) -> str:
    """Return why the key may not be sent to an address, or an empty text.

    It may be sent to the recording's own origin only, by https or on this machine.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        return "the address is not https"
    is_foreign = base_url and _origin(url) != _origin(base_url)
    return "the address is not the recording's own" if is_foreign else ""


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)


# -- a shell -----------------------------------------------------------------------------------


def _as_curl(request: _Request) -> str:
    is_head = request.method == "HEAD"
    method = "--head" if is_head else f"--request {shlex.quote(request.method)}"
    words = [f"curl --globoff --path-as-is {method}"]
    if request.has_key:
        words.append(f'--user "${API_KEY_VARIABLE}:"')
    for name, value in request.headers:
        # curl drops "Name:"; to send a header without a value it wants "Name;".
        text = f"{name}: {value}" if value else f"{name};"
        words.append(f"--header {_shell_word(text, has_key=request.has_key)}")
    pipe = ""
    if request.body:
        if header(request.headers, "content-type") is None:
            words.append("--header 'Content-Type:'")
        text = request.body.decode("utf-8", "replace")
        if text.encode() == request.body and text.replace("\n", "").isprintable():
            words.append(f"--data-raw {_shell_word(text, has_key=request.has_key)}")
        else:
            pipe = f"printf %s '{base64.b64encode(request.body).decode()}' | base64 -d | "
            words.append("--data-binary @-")
    words.append(f"--url {_shell_word(request.url, has_key=request.has_key)}")
    return pipe + " \\\n  ".join(words)


def _shell_word(text: str, *, has_key: bool) -> str:
    """Return a text as one shell word, with ``"$VARIABLE"`` in place of the key's placeholder."""
    parts = text.split(PLACEHOLDER) if has_key else [text]
    return (
        f'"${API_KEY_VARIABLE}"'.join(shlex.quote(part) if part else "" for part in parts) or "''"
    )


# -- Python ------------------------------------------------------------------------------------


def _as_httpx(request: _Request) -> str:
    key = f'os.environ["{API_KEY_VARIABLE}"]'

    def literal(text: str) -> str:
        has_key = request.has_key and PLACEHOLDER in text
        return f"{text!r}.replace({PLACEHOLDER!r}, {key})" if has_key else repr(text)

    arguments = [repr(request.method), literal(request.url)]
    if request.has_key:
        arguments.append(f'auth=({key}, "")')
    if request.headers:
        pairs = ", ".join(f"({name!r}, {literal(value)})" for name, value in request.headers)
        arguments.append(f"headers=[{pairs}]")
    if request.body:
        arguments.append(f"content={request.body!r}")
    imports = "import os\n\nimport httpx" if request.has_key else "import httpx"
    return f"{imports}\n\n{_call('response = httpx.request', arguments)}"


def _as_request(request: _Request, base_url: str) -> str:
    query = urlsplit(request.url).query
    path = path_below(request.url, base_path(base_url)) + (f"?{query}" if query else "")
    arguments, headers = [repr(request.method), repr(path)], request.headers
    content = [f"content={request.body!r}"] if request.body else []
    value = _json_value(request)
    if value is not None:
        headers = tuple(pair for pair in headers if pair[0].lower() != "content-type")
        content = [f"json={value!r}"]
    arguments += [f"headers={list(headers)!r}"] if headers else []
    return "import directmail_lab as dm\n\n" + _call("response = dm.request", arguments + content)


def _json_value(request: _Request) -> object:
    """Return a JSON body's value if httpx's ``json=`` would send the same bytes, else None."""
    if header(request.headers, "content-type") != "application/json":
        return None
    try:
        value = json.loads(request.body)
        written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return value if written.encode() == request.body else None
    except (ValueError, RecursionError):
        return None


def _call(function: str, arguments: list[str]) -> str:
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= 88:
        return line
    return "\n".join([f"{function}(", *(f"    {argument}," for argument in arguments), ")"])
