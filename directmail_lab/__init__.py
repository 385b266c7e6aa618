"""Explore a direct mail service's HTTP API in JupyterLab, with recorded sessions.

>>> import directmail_lab as dm
>>> dm.replay("first-look")  # doctest: +SKIP
>>> dm.me()  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors as errors
from .errors import (
    CassetteError as CassetteError,
    CassetteFormatError as CassetteFormatError,
    CassetteInUseError as CassetteInUseError,
    CredentialError as CredentialError,
    DirectMailLabError as DirectMailLabError,
    InsecureAddressError as InsecureAddressError,
    NotConnectedError as NotConnectedError,
    NotJSONError as NotJSONError,
    NotRecordedError as NotRecordedError,
    OutcomeUnknownError as OutcomeUnknownError,
    QuotaExhaustedError as QuotaExhaustedError,
    ServiceError as ServiceError,
    UnauthorizedError as UnauthorizedError,
    WriteRefusedError as WriteRefusedError,
)

if TYPE_CHECKING:
    from .account import (
        burst as burst,
        chart_rate_limits as chart_rate_limits,
        check_contract as check_contract,
        drift as drift,
        interactions as interactions,
        rate_limits as rate_limits,
    )
    from .cassettes.view import read_interactions as read_interactions
    from .current import (
        connect as connect,
        get as get,
        get_many as get_many,
        live as live,
        logout as logout,
        me as me,
        me_async as me_async,
        pages as pages,
        post as post,
        record as record,
        replay as replay,
        request as request,
        session as session,
    )
    from .describing import openapi as openapi
    from .exploring import explore as explore, findings as findings
    from .frames import frame as frame
    from .readings import read_readings as read_readings
    from .sessions import Session as Session
    from .standin import stand_in as stand_in
    from .widgets.browser import browse as browse
    from .widgets.login import login as login
    from .widgets.monitor import monitor as monitor

__version__ = "0.1.0"

# The module of each public name except the errors: it is imported when the name is first used. No
# module may have the name of a public function: importing it would replace the function here.
_HOMES = {
    "account": "burst chart_rate_limits check_contract drift interactions rate_limits",
    "cassettes.view": "read_interactions",
    "current": "connect get get_many live logout me me_async pages post record replay request "
    "session",
    "describing": "openapi",
    "exploring": "explore findings",
    "frames": "frame",
    "readings": "read_readings",
    "sessions": "Session",
    "standin": "stand_in",
    "widgets.browser": "browse",
    "widgets.login": "login",
    "widgets.monitor": "monitor",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted([*_HOME_OF, *(name for name in vars(errors) if name.endswith("Error"))])


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what completion offers: every public name; the errors are below ``errors``.

    All are imported, so that completion knows which are functions and which are classes.
    """
    for name in _HOME_OF:
        __getattr__(name)
    return [*_HOME_OF, "errors", "__version__"]
