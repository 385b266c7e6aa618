"""Settings with which vcrpy records the clients that a session does not have, without credentials.

One line in a ``conftest.py`` gives them to pytest-recording or pytest-vcr::

    from directmail_lab.vcrpy import vcr_config

A fixture ``vcr_config`` of a suite's own returns `vcr_settings` with settings of its own. Without
pytest, ``vcr.VCR(**vcr_settings())`` does the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from vcr.cassette import Cassette

from .arguments import check_names
from .cassettes.vcr_files import request_of_vcr, response_of_vcr, vcr_request, vcr_response
from .errors import WriteRefusedError
from .exchange.values import SAFE_METHODS, Interaction, Request, Response
from .redaction import Redactor

with suppress(ImportError):  # vcrpy needs no pytest
    import pytest

    @pytest.fixture(scope="session")
    def vcr_config() -> dict[str, Any]:
        """Return the settings of pytest-recording: those of `vcr_settings`."""
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
    clean = _Filters(Redactor(redact=redact))
    patches = () if allow_writes else (_GUARD,)
    return {
        "decode_compressed_response": True,
        **own,
        "before_record_request": [*_listed(own.get("before_record_request")), clean.request],
        "before_record_response": [*_listed(own.get("before_record_response")), clean.response],
        "custom_patches": (*own.get("custom_patches", ()), *patches),
    }


def _listed(filters: Any) -> list[Callable[..., Any]]:
    """Return vcrpy's filters of one kind as a list: it takes none, one or several."""
    if filters is None:
        return []
    return [filters] if callable(filters) else list(filters)


class _Filters:
    """vcrpy's two filters. It passes each request that it sends, plays, loads or records."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._last = threading.local()

    def request(self, request: Any) -> Any:
        sent = request_of_vcr(request)
        self._last.request = sent
        return vcr_request(self._redactor.interaction(Interaction(sent, _NO_RESPONSE)).request)

    def response(self, response: dict[str, Any]) -> dict[str, Any]:
        # vcrpy has just passed its request, in the same thread. The response may repeat a
        # credential of that.
        received = Interaction(self._last.request, response_of_vcr({"response": response}))
        clean = self._redactor.interaction(received).response
        recorded = vcr_response(clean)
        if "url" in response:  # of aiohttp
            recorded["url"] = self._redactor.request(Request("GET", response["url"])).uri
        return recorded


_NO_RESPONSE = Response(200)


# -- writes ----------------------------------------------------------------------------------------

_can_play = Cassette.can_play_response_for


def _can_play_or_may_send(cassette: Any, request: Any) -> Any:
    """Return whether vcrpy plays a response; raise an error if it would then send a write.

    Each of vcrpy's clients asks this before it connects and before it sends.
    """
    can_play = _can_play(cassette, request)
    if (
        not can_play
        and request.method.upper() not in SAFE_METHODS
        and not cassette.write_protected  # then vcrpy raises an error of its own
        and _GUARD in cassette.custom_patches
        and cassette.filter_request(request)  # else it is not recorded
    ):
        raise WriteRefusedError(
            f"{request.method} would change something at the live service, and nothing was sent.",
            "Run pytest --directmail-allow-writes, or give vcr_settings(allow_writes=True).",
        )
    return can_play


_GUARD = (Cassette, "can_play_response_for", _can_play_or_may_send)
