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
from typing import Final
from urllib.parse import quote, urlsplit

from .errors import CassetteError
from .interaction import Headers, Interaction, RecordedRequest, base_path, header, path_below
from .redaction import PLACEHOLDER
from .settings import API_KEY_VARIABLE, is_loopback

_MOST_BODY_BYTES: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
# Headers that the program sets which sends the request again.
_OWN: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te"),
        *("accept-encoding", "user-agent", "authorization", "cookie", "expect", "upgrade"),
    }
)


def copy_as(interaction: Interaction, kind: str, *, base_url: str | None = None) -> str:
    """Return a recorded request as code.

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
    request = interaction.request
    if urlsplit(request.uri).scheme not in ("http", "https"):
        raise CassetteError("This request has no http address, so it cannot be sent again.")
    if kind == "request":
        return _as_request(request, base_path(base_url or ""))
    return {"curl": as_curl, "httpx": as_httpx}[kind](request, base_url=base_url)


def as_curl(request: RecordedRequest, *, base_url: str | None = None) -> str:
    """Return a request as a command line of curl, for a POSIX shell."""
    address, headers, notes = _parts(request)
    has_key = _may_have_key(address, base_url, notes)
    words = ["curl", "--globoff", "--path-as-is", "--request", shlex.quote(request.method)]
    if request.method == "HEAD":
        words[3:] = ["--head"]
    lines = [" ".join(words)]
    if has_key:
        lines.append(f'--user "${API_KEY_VARIABLE}:"')
    # curl drops "Name:"; to send a header without a value it wants "Name;".
    lines += [
        f"--header {_quoted(f'{n}: {v}' if v else f'{n};', has_key=has_key)}" for n, v in headers
    ]
    before = ""
    body = _sendable(request, notes, "--data-binary @FILE")
    if body:
        if header(headers, "content-type") is None:
            lines.append("--header 'Content-Type:'")
        text = _printable(body)
        if text is None:
            before = f"printf %s '{base64.b64encode(body).decode()}' | base64 -d | "
            lines.append("--data-binary @-")
        else:
            lines.append(f"--data-raw {_quoted(text, has_key=has_key)}")
    lines.append(f"--url {_quoted(address, has_key=has_key)}")
    return "".join(f"# {note}\n" for note in notes) + before + " \\\n  ".join(lines)


def as_httpx(request: RecordedRequest, *, base_url: str | None = None) -> str:
    """Return a request as Python that sends it with httpx."""
    address, headers, notes = _parts(request)
    key = f'os.environ["{API_KEY_VARIABLE}"]' if _may_have_key(address, base_url, notes) else ""
    arguments = [repr(request.method), _with_key(address, key)]
    if key:
        arguments.append(f'auth=({key}, "")')
    if headers:
        pairs = ", ".join(f"({n!r}, {_with_key(v, key)})" for n, v in headers)
        arguments.append(f"headers=[{pairs}]")
    body = _sendable(request, notes, "content=…")
    if body:
        arguments.append(f"content={body!r}")
    imports = "import os\n\nimport httpx\n\n" if key else "import httpx\n\n"
    return imports + _call("response = httpx.request", arguments, notes)


def _as_request(request: RecordedRequest, prefix: str) -> str:
    """Return a request as a call of `directmail_lab.request`."""
    address, headers, notes = _parts(request)
    query = urlsplit(address).query
    arguments = [
        repr(request.method),
        repr(path_below(address, prefix) + (f"?{query}" if query else "")),
    ]
    body = _sendable(request, notes, "content=…")
    value = _json_as_httpx_sends_it(body, header(headers, "content-type"))
    if value is not None:
        headers = tuple(each for each in headers if each[0].lower() != "content-type")
    if headers:
        pairs = ", ".join(f"({n!r}, {v!r})" for n, v in headers)
        arguments.append(f"headers=[{pairs}]")
    if value is not None:
        arguments.append(f"json={value!r}")
    elif body:
        arguments.append(f"content={body!r}")
    return "import directmail_lab as dm\n\n" + _call("response = dm.request", arguments, notes)


def _call(function: str, arguments: list[str], notes: list[str]) -> str:
    told = "".join(f"# {note}\n" for note in notes)
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= 88:
        return told + line
    return told + "\n".join([f"{function}(", *(f"    {each}," for each in arguments), ")"])


def _parts(request: RecordedRequest) -> tuple[str, Headers, list[str]]:
    """Return the address, the headers that can be sent, and notes on what was left out."""
    # Spaces and non-ASCII characters are percent-encoded here, as a client would on sending.
    address = quote(
        request.uri.replace("%3CAPI_KEY%3E", PLACEHOLDER), safe="!#$%&'()*+,/:;=?@[]~<>"
    )
    wanted = [
        (name, value)
        for name, value in request.headers
        if name.lower() not in _OWN and (name.lower(), value) != ("accept", "*/*")
    ]
    kept = tuple(each for each in wanted if _is_plain(*each))
    notes = ["A header that is not plain text is left out."] if len(kept) < len(wanted) else []
    return address, kept, notes


def _is_plain(name: str, value: str) -> bool:
    """Return whether a header can be sent and pasted as it is."""
    return bool(_TOKEN.fullmatch(name)) and value.isprintable() and value == value.strip()


def _may_have_key(address: str, base_url: str | None, notes: list[str]) -> bool:
    """Return whether the key may be sent to an address; if not, add the reason to ``notes``.

    It may be sent to the recording's own origin only, by https or on this machine.
    """
    parts = urlsplit(address)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        notes.append("The key is left out: the address is not https.")
    elif base_url and _origin(address) != _origin(base_url):
        notes.append("The key is left out: the address is not the recording's own.")
    else:
        return True
    return False


def _origin(address: str) -> tuple[str, str | None, int]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)


def _sendable(request: RecordedRequest, notes: list[str], how: str) -> bytes:
    """Return the body; if it is too large, return nothing and add a note."""
    body = request.body or b""
    if len(body) <= _MOST_BODY_BYTES:
        return body
    notes.append(f"The body of {len(body):,} bytes is left out: add {how}")
    return b""


def _printable(body: bytes) -> str | None:
    """Return a body as text that can be pasted; None if it has to be encoded."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text.replace("\n", "").isprintable() else None


def _json_as_httpx_sends_it(body: bytes, content_type: str | None) -> object:
    """Return a JSON body's value if httpx's ``json=`` would send the same bytes, else None."""
    if content_type != "application/json":
        return None
    try:
        value = json.loads(body)
        written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return value if written.encode() == body else None
    except (ValueError, RecursionError):
        return None


def _quoted(text: str, *, has_key: bool) -> str:
    """Return a text as one shell word, with ``"$VARIABLE"`` in place of the key's placeholder."""
    if not has_key:
        return shlex.quote(text)
    parts = (shlex.quote(part) if part else "" for part in text.split(PLACEHOLDER))
    return f'"${API_KEY_VARIABLE}"'.join(parts) or "''"


def _with_key(text: str, key: str) -> str:
    """Return a text as a Python expression that replaces the placeholder by the key, if any."""
    if not key or PLACEHOLDER not in text:
        return repr(text)
    return f"{text!r}.replace({PLACEHOLDER!r}, {key})"
