"""Settings with which vcrpy records the clients that a session does not have, without credentials.

One line in a ``conftest.py`` gives them to pytest-recording::

    from directmail_lab.vcrpy import vcr_config

A fixture ``vcr_config`` of a suite's own returns `vcr_settings` with settings of its own. Without
pytest, ``vcr.VCR(**vcr_settings())`` does the same.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from http import client
from typing import Any

import httpcore
from vcr.cassette import Cassette

from .arguments import check_names
from .cassettes.vcr_files import request_of_vcr, response_of_vcr, vcr_request, vcr_response
from .errors import WriteRefusedError
from .exchange.values import SAFE_METHODS, Interaction, Request
from .redaction import Redactor

_save = Cassette._save
_ESCAPED_PLACEHOLDER = re.compile("%3C(API_KEY|REDACTED)%3E", re.IGNORECASE)

with suppress(ImportError):  # vcrpy needs no pytest
    import pytest

    @pytest.fixture
    def vcr_config() -> dict[str, Any]:
        """Return the settings of pytest-recording: those of `vcr_settings`, new for each test."""
        return vcr_settings()


def vcr_settings(
    *, redact: Iterable[str] = (), allow_writes: bool = False, **own: Any
) -> dict[str, Any]:
    """Return settings for vcrpy: what it then records has no credentials.

    A write (POST and so on) that the cassette does not play is refused before
    it is sent, unless writes are allowed.

    Parameters
    ----------
    redact
        What else to redact, such as ``["personal"]``; see `record`. In pytest,
        the ini setting ``directmail_redact`` adds to it.
    allow_writes
        Whether writes may be sent. In pytest, ``--directmail-allow-writes``
        allows them, too.
    own
        Any settings of vcrpy. Its filters run before ours.
    """
    redact = check_names("redact", redact)
    with suppress(ImportError):
        from .pytest_plugin.settings import RUNS, WRITES_OPTION, ini_settings

        for config in RUNS[-1:]:
            redact += tuple(ini_settings(config).get("redact", ()))
            allow_writes = allow_writes or config.getoption(WRITES_OPTION)
    own_request_filters = own.get("before_record_request") or own.get("before_record")
    clean_request, clean_response, save = _filters(Redactor(redact=redact))
    patches = () if allow_writes else _GUARDS
    return {
        "decode_compressed_response": True,
        **own,
        "before_record_request": [*_listed(own_request_filters), clean_request],
        "before_record_response": [*_listed(own.get("before_record_response")), clean_response],
        "custom_patches": (*own.get("custom_patches", ()), (Cassette, "_save", save), *patches),
    }


def _listed(filters: Any) -> list[Callable[..., Any]]:
    """Return vcrpy's filters of one kind as a list: it takes none, one or several."""
    if filters is None:
        return []
    return [filters] if callable(filters) else list(filters)


def _filters(redactor: Redactor) -> tuple[Callable[..., Any], ...]:
    """Return vcrpy's two filters, for all that it sends, plays, loads or records, and its `_save`.

    They are functions, because pytest-recording copies its settings and a redactor has no copy.
    """

    def clean_request(request: Any) -> Any:
        redacted = redactor.request(request_of_vcr(request))
        # vcrpy compares paths as they are written.
        uri = _ESCAPED_PLACEHOLDER.sub(r"<\1>", redacted.uri)
        return vcr_request(replace(redacted, uri=uri))

    def clean_response(response: dict[str, Any]) -> dict[str, Any]:
        # It may repeat a credential of its request, which the redactor knows from there.
        received = Interaction(Request("GET", "/"), response_of_vcr({"response": response}))
        return vcr_response(redactor.interaction(received).response)

    def save(cassette: Any, **options: Any) -> None:
        # A later message may have named a credential. vcrpy finds a response by its address, which
        # stays as it was sent.
        for request, response in cassette.data if cassette.dirty else ():
            cleaned = clean_request(request)
            request.body, request.headers = cleaned.body, cleaned.headers
            response.update(clean_response(response))
        _save(cassette, **options)

    return clean_request, clean_response, save


# -- writes ----------------------------------------------------------------------------------------

_can_play = Cassette.can_play_response_for
# vcrpy's own class may stand in this place while a cassette is open.
_HTTPConnection = getattr(client.HTTPConnection, "_baseclass", client.HTTPConnection)
_put_request = _HTTPConnection.putrequest
_LED_BY_VCRPY = ("http", "urllib3", "botocore", "httplib2")
_asked = threading.local()


def _can_play_or_may_send(cassette: Any, request: Any) -> Any:
    """Return whether vcrpy plays a response; raise an error if it would then send a write.

    Each of vcrpy's clients asks this before it connects and before it sends.
    """
    can_play = _can_play(cassette, request)
    # Else vcrpy raises an error of its own. What a filter leaves out is sent and not recorded.
    is_sent = not can_play and not (cassette.write_protected and cassette.filter_request(request))
    if is_sent and _GUARDS[0] in cassette.custom_patches and cassette.filter_request(request):
        _refuse_write(request.method)
    _asked.method = request.method if is_sent else None
    return can_play


def _refuse_unasked(method: str) -> None:
    """Refuse a write that vcrpy was not asked about.

    While vcrpy makes a connection, it takes its patches out of the whole process (vcrpy #849), so
    what another thread sends then passes it.
    """
    was_asked = getattr(_asked, "method", None) == method
    _asked.method = None
    if not was_asked:
        _refuse_write(method)


def _put_request_if_asked(connection: Any, method: str, *args: Any, **options: Any) -> None:
    """Begin a real request of `http.client` and of what is built on it."""
    if type(connection).__module__.partition(".")[0] in _LED_BY_VCRPY:
        _refuse_unasked(method)
    _put_request(connection, method, *args, **options)


def _if_asked(send: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a method of httpx's connections that sends what vcrpy was asked about."""

    def send_if_asked(connections: Any, request: Any) -> Any:
        _refuse_unasked(request.method.decode())
        return send(connections, request)

    return send_if_asked


def _refuse_write(method: str) -> None:
    if method.upper() not in SAFE_METHODS:
        raise WriteRefusedError(
            f"{method} would change something at the live service, and nothing was sent.",
            "Run pytest --directmail-allow-writes, or give vcr_settings(allow_writes=True).",
        )


_POOL = httpcore.ConnectionPool
_ASYNC_POOL = httpcore.AsyncConnectionPool
_GUARDS = (
    (Cassette, "can_play_response_for", _can_play_or_may_send),
    (_HTTPConnection, "putrequest", _put_request_if_asked),
    (_POOL, "handle_request", _if_asked(_POOL.handle_request)),
    (_ASYNC_POOL, "handle_async_request", _if_asked(_ASYNC_POOL.handle_async_request)),
)
