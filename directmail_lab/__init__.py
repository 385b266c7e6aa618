"""Explore a direct mail service's HTTP API in JupyterLab, with recorded sessions.

>>> import directmail_lab as dm
>>> dm.replay("first-look")  # doctest: +SKIP
>>> dm.me()  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .account import (
        burst,
        chart_rate_limits,
        check_contract,
        drift,
        get,
        interactions,
        me,
        me_async,
        post,
        rate_limits,
        request,
    )
    from .cassettes import read_interactions
    from .current import connect, live, logout, record, replay, session
    from .errors import (
        CassetteError,
        CassetteFormatError,
        CassetteInUseError,
        CredentialError,
        DirectMailLabError,
        InsecureAddressError,
        NotConnectedError,
        NotJSONError,
        NotRecordedError,
        OutcomeUnknownError,
        QuotaExhaustedError,
        ServiceError,
        UnauthorizedError,
        WriteRefusedError,
    )
    from .exploring import explore, findings
    from .frames import frame
    from .readings import read_readings
    from .sessions import Session
    from .standin import stand_in
    from .widgets.login import login
    from .widgets.monitor import monitor

__version__ = "0.1.0"

# Where each public name but the errors lives: it is imported when it is first used, and what it
# needs with it.
# No module may be called as a public function: importing it would put it in the function's place.
_HOMES = {
    "account": (
        "burst",
        "chart_rate_limits",
        "check_contract",
        "drift",
        "get",
        "interactions",
        "me",
        "me_async",
        "post",
        "rate_limits",
        "request",
    ),
    "cassettes": ("read_interactions",),
    "current": ("connect", "live", "logout", "record", "replay", "session"),
    "exploring": ("explore", "findings"),
    "frames": ("frame",),
    "readings": ("read_readings",),
    "sessions": ("Session",),
    "standin": ("stand_in",),
    "widgets.login": ("login",),
    "widgets.monitor": ("monitor",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "CassetteError",
    "CassetteFormatError",
    "CassetteInUseError",
    "CredentialError",
    "DirectMailLabError",
    "InsecureAddressError",
    "NotConnectedError",
    "NotJSONError",
    "NotRecordedError",
    "OutcomeUnknownError",
    "QuotaExhaustedError",
    "ServiceError",
    "Session",
    "UnauthorizedError",
    "WriteRefusedError",
    "burst",
    "chart_rate_limits",
    "check_contract",
    "connect",
    "drift",
    "explore",
    "findings",
    "frame",
    "get",
    "interactions",
    "live",
    "login",
    "logout",
    "me",
    "me_async",
    "monitor",
    "post",
    "rate_limits",
    "read_interactions",
    "read_readings",
    "record",
    "replay",
    "request",
    "session",
    "stand_in",
]


def __getattr__(name: str) -> Any:
    if name == "errors":  # a module that completion offers
        return import_module(".errors", __name__)
    home = "errors" if name in __all__ and name.endswith("Error") else _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what completion offers: the calls, imported, so that it knows what each is.

    The errors stand in ``errors``.
    """
    calls = [name for name in __all__ if not name.endswith("Error")]
    for name in calls:
        __getattr__(name)
    return [*calls, "errors", "__version__"]
