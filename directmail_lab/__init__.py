"""Explore a direct mail service's HTTP API in JupyterLab, with recorded sessions.

>>> import directmail_lab as dm
>>> dm.replay("first-look")  # doctest: +SKIP
>>> dm.me()  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors as errors
from .errors import CassetteError as CassetteError
from .errors import CassetteFormatError as CassetteFormatError
from .errors import CassetteInUseError as CassetteInUseError
from .errors import CredentialError as CredentialError
from .errors import DirectMailLabError as DirectMailLabError
from .errors import InsecureAddressError as InsecureAddressError
from .errors import NotConnectedError as NotConnectedError
from .errors import NotJSONError as NotJSONError
from .errors import NotRecordedError as NotRecordedError
from .errors import OutcomeUnknownError as OutcomeUnknownError
from .errors import QuotaExhaustedError as QuotaExhaustedError
from .errors import ServiceError as ServiceError
from .errors import UnauthorizedError as UnauthorizedError
from .errors import WriteRefusedError as WriteRefusedError

if TYPE_CHECKING:
    from .account import burst as burst
    from .account import chart_rate_limits as chart_rate_limits
    from .account import check_contract as check_contract
    from .account import drift as drift
    from .account import get as get
    from .account import interactions as interactions
    from .account import me as me
    from .account import me_async as me_async
    from .account import post as post
    from .account import rate_limits as rate_limits
    from .account import request as request
    from .cassettes import read_interactions as read_interactions
    from .current import connect as connect
    from .current import live as live
    from .current import logout as logout
    from .current import record as record
    from .current import replay as replay
    from .current import session as session
    from .exploring import explore as explore
    from .exploring import findings as findings
    from .frames import frame as frame
    from .readings import read_readings as read_readings
    from .sessions import Session as Session
    from .standin import stand_in as stand_in
    from .widgets.login import login as login
    from .widgets.monitor import monitor as monitor

__version__ = "0.1.0"

# Where each public name but the errors lives: it is imported when it is first used, and what it
# needs with it. No module may be called as a public function: importing it would put it in the
# function's place.
_HOMES = {
    "account": "burst chart_rate_limits check_contract drift get interactions "
    "me me_async post rate_limits request",
    "cassettes": "read_interactions",
    "current": "connect live logout record replay session",
    "exploring": "explore findings",
    "frames": "frame",
    "readings": "read_readings",
    "sessions": "Session",
    "standin": "stand_in",
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
    """Return what completion offers: the calls, imported, so that it knows what each is.

    The errors stand in ``errors``.
    """
    for name in _HOME_OF:
        __getattr__(name)
    return [*_HOME_OF, "errors", "__version__"]
