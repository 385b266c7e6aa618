"""Code that sends a recorded request again: with curl, or in a cell.

The recording may come from a stranger, and people paste its code into a terminal. So everything but
printable text is encoded or left out. The code never contains the key: a shell reads it from the
environment, and a session has its own.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from urllib.parse import quote, urlsplit

from ..arguments import check_choice
from ..credentials import IN_CURL
from ..errors import CassetteError
from ..exchange.bodies import plain_text, read_json, read_json_body
from ..exchange.operations import base_path, path_below, with_query
from ..exchange.values import (
    SAFE_METHODS,
    TOKEN,
    Interaction,
    Request,
    Response,
    header,
    without_headers,
)
from ..redaction.key import has_placeholder
from ..settings import origin_of, trusted_origins

_MAX_BODY_BYTES = 64 * 1024
# Headers that the sending program sets by itself.
_SET_BY_CLIENT = re.compile(
    r"(?:host|content-length|transfer-encoding|connection|keep-alive|te|accept-encoding|user-agent"
    r"|authorization|cookie|expect|upgrade):.*|accept: \*/\*",
    re.IGNORECASE | re.DOTALL,
)
_VALUE_REPLACED = "A value was replaced when this was recorded: put in your own."
_KEY_LEFT_OUT = (
    "The key is left out: no session and no setting names this address. Add it if it belongs there."
)


def copy_as(
    interaction: Interaction,
    kind: str,
    *,
    base_url: str = "",
    has_bodies: bool = True,
) -> str:
    """Return code that sends a recorded request, after comments on what is left out.

    A recording may name any address, so only code for `settings.trusted_origins` sends the key.

    Parameters
    ----------
    kind
        ``"curl"`` for a POSIX shell, or ``"request"`` for a cell of a notebook. The cell calls
        `directmail_lab.request`, which uses the address and key of the current session, and makes
        a frame of a JSON response.
    base_url
        The service address that a path in a cell is relative to.
    has_bodies
        Whether the recording kept the body.

    Raises
    ------
    CassetteError
        The request's address is neither http nor https, so it cannot be sent again.
    ValueError
        There is no such kind.
    """
    check_choice("kind", kind, ("curl", "request"))
    is_curl = kind == "curl"
    recorded = interaction.request
    if urlsplit(recorded.uri).scheme not in ("http", "https"):
        raise CassetteError("This request has no http address, so it cannot be sent again.")
    # Spaces and non-ASCII characters are percent-encoded here, as a client would on sending.
    url = quote(recorded.uri, safe="!#$%&'()*+,/:;=?@[]~<>")
    headers = [pair for pair in recorded.headers if not _SET_BY_CLIENT.fullmatch(": ".join(pair))]
    sendable = tuple(
        (name, value)
        for name, value in headers
        if TOKEN.fullmatch(name) and value.isprintable() and value == value.strip()
    )
    has_key = is_curl and origin_of(url) in trusted_origins()
    is_kept = has_bodies or recorded.method in SAFE_METHODS
    body = recorded.body or b""
    text = plain_text(body)
    is_plain = text is not None and text.replace("\n", "").isprintable()
    if len(body) > _MAX_BODY_BYTES or (is_curl and not is_plain):
        body = b""
        is_kept = False
    texts = [url, body.decode("latin-1"), *(value for _, value in headers)]
    notes = {
        "A header that is not plain text is left out.": len(sendable) < len(headers),
        "The body was not kept, or is too large, or no plain text: add it yourself.": not is_kept,
        _VALUE_REPLACED: any(map(has_placeholder, texts)),
        _KEY_LEFT_OUT: is_curl and not has_key,
    }
    request = replace(recorded, uri=url, headers=sendable, body=body)
    if is_curl:
        code = _as_curl(request, has_key=has_key)
    else:
        code = _as_cell(request, interaction.response, base_url)
    return "".join(f"# {note}\n" for note, applies in notes.items() if applies) + code


def _as_curl(request: Request, *, has_key: bool) -> str:
    method = "--head" if request.method == "HEAD" else f"--request {shlex.quote(request.method)}"
    words = [f"curl --globoff --path-as-is {method}"]
    if has_key:
        words.append(IN_CURL)
    for name, value in request.headers:
        # curl drops "Name:". "Name;" makes it send a header without a value.
        line = f"{name}: {value}" if value else f"{name};"
        words.append(f"--header {shlex.quote(line)}")
    if request.body:
        words.append(f"--data-raw {shlex.quote(request.body.decode())}")
    words.append(f"--url {shlex.quote(request.uri)}")
    return " \\\n  ".join(words)


def _as_cell(request: Request, response: Response, base_url: str) -> str:
    path = with_query(path_below(request.uri, base_path(base_url)), request.uri)
    if request.method in ("GET", "POST"):
        function = f"dm.{request.method.lower()}"
        arguments = [repr(path)]
    else:
        function = "dm.request"
        arguments = [repr(request.method), repr(path)]
    body = request.body or b""
    headers = request.headers
    value, problem = read_json(body)
    if problem is None and header(headers, "content-type") == "application/json":
        headers = without_headers(headers, ["content-type"])
        arguments.append(f"json={value!r}")
    elif body:
        arguments.append(f"content={body!r}")
    if headers:
        # Pairs, if a name occurs twice.
        named = dict(headers)
        arguments.append(f"headers={named if len(named) == len(headers) else headers}")
    code = f"response = {function}({', '.join(arguments)})"
    if read_json_body(response)[1] is not None:
        return code
    on_error = ', on_error="keep"' if response.status >= 400 else ""
    return f"{code}\ndm.frame(response{on_error})"
