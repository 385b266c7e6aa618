"""Behind the form of `browse`: checks what a person wrote there, and sends it.

Nothing is sent but what the form's *Send* brings, one request at a time. For a write that the
session allows, it only gets a question; the token that comes with that sends the write, once.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from ..errors import DirectMailLabError
from ..exchange.operations import operation_of
from ..http import httpx, is_write
from ..redaction.key import has_placeholder
from ..sessions import Session
from ..transports.extensions import call_of, of

Respond = Callable[[dict[str, Any]], None]
_Sending = tuple[Session, httpx.Request]

_PATH: Final = re.compile(r"/(?!/)[^#\\{}]*")
_SET_BY_SESSION: Final = re.compile(
    r"(?i)\s*((proxy-)?authorization|connection|content-length|cookie|host|transfer-encoding)\s*"
)


class Explorer:
    """Handles what the form asks of ``session()``: see `handle`."""

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session
        self._is_sending = threading.Lock()
        self._last: _Sending | None = None
        self._asked: dict[str, _Sending] = {}

    def handle(self, request: Any, body: bytes, respond: Respond) -> bool:
        """Respond to a request, perhaps later in another thread; return whether it is a known one.

        Parameters
        ----------
        request
            ``{"action": "send", "request": {…}}`` sends, or asks a question; ``{"action":
            "confirm", "token": "…"}`` is the consent to that; ``{"action": "waiting"}`` tells for
            how long the request waits; ``{"action": "cancel"}`` ends that; ``{"action": "hint",
            "method": "GET", "path": "/v1"}`` tells what is left, and what can be typed.
        body
            That of the request to send.
        """
        match request:
            case {"action": "send", "request": form}:
                self._ask_or_send(form, body, respond)
            case {"action": "confirm", "token": str(token)}:
                self._send(self._asked.pop(token, None), respond)
            case {"action": "waiting"}:
                respond({"seconds": self._waits_s()})
            case {"action": "cancel"}:
                if self._last and (cancelled := call_of(self._last[1]).cancelled):
                    cancelled.set()
                respond({})
            case _:
                return False
        return True

    def _ask_or_send(self, form: Any, body: bytes, respond: Respond) -> None:
        session = self._session()
        request = _written(session, form, body)
        if not (session.allow_writes and is_write(request)):
            self._send((session, request), respond)
            return
        address, token = session.recording.redactor.text(str(request.url)), secrets.token_urlsafe()
        self._asked = {token: (session, request)}
        question = f"Send {request.method} to {address}? The service may act on it."
        respond({"question": question, "token": token})

    def _send(self, sending: _Sending | None, respond: Respond) -> None:
        if sending is None or not self._is_sending.acquire(blocking=False):
            respond({"problem": "Nothing was sent again: one request is sent at a time."})
            return
        self._last = sending
        _in_thread(lambda: respond(self._response_to(*sending)))

    def _response_to(self, session: Session, request: httpx.Request) -> dict[str, Any]:
        recording = session.recording
        # The page counts down: no progress bar is shown.
        is_alone = session.allowances.shown.acquire(blocking=False)
        try:
            response = session.client.send(request)
        except Exception as error:
            told = " ".join([str(error), *getattr(error, "__notes__", ())])
            return {"problem": recording.redactor.text(told)}
        finally:
            self._is_sending.release()
            if is_alone:
                session.allowances.shown.release()
        # None if a cell changed the mode meanwhile: the page shows another recording now.
        return {"number": of(response).number if session.recording is recording else None}

    def _waits_s(self) -> float | None:
        """Return for how many seconds the request waits; 0 if for another one, None if not."""
        if self._last is None or not self._is_sending.locked():
            return None
        session, request = self._last
        method = request.method.replace("HEAD", "GET")  # they share an allowance
        until = session.waiting_until.get(f"{method} {operation_of(request.url.path)}")
        return None if until is None else max(0.0, until - time.time())


def _in_thread(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _written(session: Session, form: Any, body: bytes) -> httpx.Request:
    """Return what a person wrote, as a request below the session's base address.

    Raises
    ------
    DirectMailLabError
        It must not be sent; the message is a sentence that says what to change.
    """
    path, _, query = form["path"].strip().partition("?")
    if not _PATH.fullmatch(path) or {".", ".."} & set(unquote(path).split("/")):
        raise DirectMailLabError(
            f"Type a path below {session.base_url}: it begins with one slash, and has no host, no "
            "#, no braces, and no segment of dots."
        )
    for name, _ in form["headers"]:
        if _SET_BY_SESSION.fullmatch(name):
            raise DirectMailLabError(f"Leave out the header {name}: the session sets it.")
    params = [*parse_qsl(query, keep_blank_values=True), *map(tuple, form["parameters"])]
    headers = [*map(tuple, form["headers"])]
    options: dict[str, Any] = {"params": params, "headers": headers, "content": body}
    try:
        request = session.client.build_request(form["method"], path, **options)
    except ValueError:
        raise DirectMailLabError("A header cannot be sent as it is.") from None
    call_of(request).cancelled = threading.Event()
    texts = [str(request.url), *request.headers.values(), body.decode("latin-1")]
    if session.mode != "replay" and any(map(has_placeholder, texts)):
        raise DirectMailLabError("A value was replaced when this was recorded: put in your own.")
    return request
