"""The Python side of the form of `browse`: checks a request, sends it, and can abort it.

A request is sent only when the person presses *Send*, one request at a time. For a write, the form
first gets a question and a token. If the person agrees, the token sends the write, once.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from ..cassettes import Recording
from ..display import plural
from ..errors import CassetteError, DirectMailLabError
from ..exchange.bodies import declared_charset
from ..exchange.httpx_values import httpx, is_write, parse_url, request_value
from ..exchange.operations import operation_of
from ..exchange.values import Headers, Interaction, Response, header
from ..questions.snippets import copy_as
from ..sessions.session import Session, allowances_of, open_cassette
from ..sessions.transports.extensions import Sent, call_of
from ..sessions.transports.network import placeholder_in
from ..sessions.transports.writes import IF_SENT, sent_before, sent_when, that_counts
from ..settings import lacks_scheme, origin_of
from .browser_data import digest_of

Respond = Callable[..., None]
_Sending = tuple[Session, httpx.Request]

_SET_BY_SESSION = {
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "host",
    "proxy-authorization",
    "transfer-encoding",
}


class Composer:
    """Handles the form's requests; see `handle`.

    Parameters
    ----------
    session
        Returns the session that sends.
    shown
        Returns the recording that the page shows.
    """

    def __init__(self, session: Callable[[], Session], shown: Callable[[], Recording]) -> None:
        self._session = session
        self._shown = shown
        self._is_sending = threading.Lock()
        self._last: _Sending | None = None
        self._task: asyncio.Future[httpx.Response] | None = None
        self._to_confirm: dict[str, tuple[_Sending, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def close(self) -> None:
        """End the thread that sends requests."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def handle(self, request: Any, body: bytes, respond: Respond) -> bool:
        """Respond to a request of the page, and return whether its action is known.

        The response may come later, from another thread.

        Parameters
        ----------
        request
            ``{"action": "send", "request": {…}}`` sends a request, or returns a question about a
            write; ``{"action": "confirm", "token": "…"}`` sends that write. ``{"action":
            "waiting"}`` returns how long the request still waits. ``{"action": "abort"}`` closes
            its connection. ``{"action": "cell", "request": {…}}`` returns the request as Python
            code.
        body
            The body of the request to send.
        """
        match request:
            case {"action": "send", "request": form}:
                self._ask_or_send(form, body, respond)
            case {"action": "confirm", "token": str(token)}:
                self._send(self._confirmed(token), respond)
            case {"action": "waiting"}:
                respond({"seconds": self._waits_s()})
            case {"action": "abort"}:
                self._abort()
                respond({})
            case {"action": "cell", "request": form}:
                respond({"text": self._cell(form, body)})
            case _:
                return False
        return True

    # -- sending ----------------------------------------------------------------------------

    def _ask_or_send(self, form: Any, body: bytes, respond: Respond) -> None:
        session = self._session()
        request = _written(session, self._shown(), form, body)
        found = placeholder_in(request)
        if found is not None and session.mode != "replay":
            raise DirectMailLabError(
                f"The {found[0]} contains a placeholder, which replaced a secret value.",
                "Put in your own value, or remove it.",
            )
        if not session.allow_writes or not is_write(request) or _is_replayed(session, request):
            self._send((session, request), respond)
            return
        before = sent_before(request, open_cassette(session))
        token = secrets.token_urlsafe()
        self._to_confirm = {token: ((session, request), len(before))}
        url = request.url
        address = session.recording.redactor.text(f"{url.netloc.decode()}{url.raw_path.decode()}")
        size = plural(len(request.content), "byte")
        question = f"Send {request.method} to {address} with {size}?"
        if before:
            question += f" It was sent before, {sent_when(that_counts(before))}."
        respond({"question": f"{question} It may change something there.", "token": token})

    def _confirmed(self, token: str) -> _Sending | None:
        if token not in self._to_confirm:
            return None
        (session, request), before = self._to_confirm.pop(token)
        if session is not self._session():
            raise DirectMailLabError(
                "Nothing was sent: after the question, another session was opened.",
                "Send it again.",
            )
        # Only what the question says is confirmed.
        if len(sent_before(request, open_cassette(session))) != before:
            raise DirectMailLabError(
                "Nothing was sent: after the question, this write was sent, or the mode was "
                "changed.",
                "Send it again.",
            )
        if before:
            request.extensions[IF_SENT] = "send"
        return session, request

    def _send(self, sending: _Sending | None, respond: Respond) -> None:
        if sending is None or not self._is_sending.acquire(blocking=False):
            respond({"problem": "Nothing was sent: one request is sent at a time, and only once."})
            return
        self._last = sending
        if self._loop is None:
            # Connections stay open until this loop is stopped.
            runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            self._loop = runner.get_loop()
            threading.Thread(target=_run_until_stopped, args=[runner], daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._respond_to(*sending, respond), self._loop)

    async def _respond_to(self, session: Session, request: httpx.Request, respond: Respond) -> None:
        recording = session.recording
        # The page counts down, so no progress bar is shown.
        is_alone = allowances_of(session).shown.acquire(blocking=False)
        outcome: dict[str, Any] = {}
        # The asynchronous client: cancelling its task closes the connection.
        self._task = asyncio.ensure_future(session.async_client.send(request))
        try:
            await self._task
        except asyncio.CancelledError:
            outcome = {"problem": _aborted(request)}
        except Exception as error:
            text = " ".join([str(error), *getattr(error, "__notes__", ())])
            outcome = {"problem": recording.redactor.text(text)}
        finally:
            self._task = None
            self._is_sending.release()
            if is_alone:
                allowances_of(session).shown.release()
        # If a cell has changed the mode or the session meanwhile, the page shows another recording.
        is_shown = session is self._session() and session.recording is recording
        number = call_of(request).number if is_shown else 0
        respond({**outcome, "number": number or None})

    def _abort(self) -> None:
        if self._task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _waits_s(self) -> float | None:
        """Return how many seconds the request waits, 0 if it waits for another one, or None."""
        if self._last is None or not self._is_sending.locked():
            return None
        session, request = self._last
        method = request.method.replace("HEAD", "GET")  # HEAD and GET share an allowance
        until = allowances_of(session).waiting_until.get(
            f"{method} {operation_of(request.url.path)}"
        )
        return None if until is None else max(0.0, until - time.time())

    # -- code for a cell --------------------------------------------------------------------

    def _cell(self, form: Any, body: bytes) -> str:
        session = self._session()
        request = request_value(_written(session, self._shown(), form, body))
        interaction = Interaction(request, Response(200))
        redacted = session.recording.redactor.interaction(interaction)
        return copy_as(redacted, "request", base_url=session.base_url)


def _run_until_stopped(runner: asyncio.Runner) -> None:
    with runner:
        runner.get_loop().run_forever()


def _is_replayed(session: Session, request: httpx.Request) -> bool:
    """Return whether the response will come from a cassette, so that nothing is sent."""
    cassette = open_cassette(session)
    has_response = cassette is not None and cassette.has_unplayed(request_value(request))
    return session.mode == "replay" or has_response


def _aborted(request: httpx.Request) -> str:
    if call_of(request).sent is Sent.NOTHING:
        return "Aborted while the request waited for the allowance. Nothing was sent."
    if not is_write(request):
        return "Aborted: the connection was closed."
    return (
        f"Aborted: the connection was closed. The {request.method} was sent, so it may have been "
        "carried out. Find out whether it was carried out before you repeat it."
    )


# -- reading the form ------------------------------------------------------------------------


def _written(session: Session, shown: Recording, form: Any, body: bytes) -> httpx.Request:
    """Return the form's request, as the session sends it.

    A recorded body comes from ``shown``, the recording that the page shows.

    Raises
    ------
    DirectMailLabError
        The address is not on this session's server, the session sets one of the headers itself, or
        the body cannot be sent.
    """
    address = _below(session, form["address"].strip().partition("#")[0])
    for name, _ in form["headers"]:
        if name.strip().lower() in _SET_BY_SESSION:
            raise DirectMailLabError(f"The session sets {name} itself.", "Remove this header.")
    headers = tuple((name, value) for name, value in form["headers"])
    content = _content(shown, form, body, headers)
    try:
        return session.client.build_request(
            form["method"], address, headers=headers, content=content
        )
    except ValueError:
        raise DirectMailLabError(
            "A header contains a character that cannot be sent.", "Correct the header."
        ) from None


def _below(session: Session, address: str) -> str:
    """Check an address, and return it. It is a path below the service address, or a whole URL."""
    base_url = httpx.URL(session.base_url)
    if lacks_scheme(address):
        scheme = base_url.scheme
        raise DirectMailLabError(
            f"{address} has no scheme.", f"Type {scheme}://{address}, or /{address} for a path."
        )
    url = parse_url(address)
    # httpx would send what has a host or a scheme, but not both, below the service address.
    if (url.host or url.scheme) and origin_of(url) != origin_of(base_url):
        raise DirectMailLabError(
            f"This session sends to {session.base_url} only, and not to "
            f"{url.scheme or base_url.scheme}://{url.netloc.decode()}.",
            "To send there: dm.connect(…) with that address.",
        )
    path = address.partition("?")[0]
    if "\\" in path or {".", ".."} & set(unquote(path).split("/")):
        raise DirectMailLabError(
            "A path with a backslash, or with . or .. as a segment, would be sent as another path.",
            "Type the path that you mean.",
        )
    if not address:
        raise DirectMailLabError("The address is empty.", "Type a path, such as /v1/users/me.")
    return address


def _content(recording: Recording, form: Any, body: bytes, headers: Headers) -> bytes:
    """Return the bytes to send: the recorded body if it was not changed, else the typed one."""
    match form:
        case {"body_of": int(number), "digest": str(digest)}:
            recorded = b""
            with suppress(CassetteError):
                recorded = recording.interaction(number).request.body or b""
            if digest_of(recorded) != digest:
                raise DirectMailLabError(
                    "The recorded body is no longer available.",
                    "Open the request again, or replace the body.",
                )
            return recorded
        case {"is_text": True}:
            charset = declared_charset(header(headers, "content-type") or "") or "utf-8"
            try:
                return body.decode().encode(charset)
            except (LookupError, UnicodeError):
                raise DirectMailLabError(
                    f"The body cannot be encoded in {charset}, as its Content-Type header says.",
                    "Change the header or the body.",
                ) from None
    return body
