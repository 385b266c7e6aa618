"""Explore a direct mail service's HTTP API in JupyterLab, with recorded sessions.

Sign in
    login()                 the sign-in form; signing in opens the current session
    connect(…)              the same without a form
    logout()                close the session and forget the key
    session(), Session      the current session; another one, for threads, tests, several accounts
    stand_in()              a local service to try things out with

Request
    me()                    the user's record, one row
    get(path), request(…)   any other path, as an httpx.Response
    get_many(paths)         many at once, in their order
    pages(path)             the pages of a list, one after the other
    frame(response)         any body as a DataFrame

Record and replay
    record("my-tour")       write what is sent and received to a cassette
    replay("my-tour")       answer from it, with no key and no network
    live()                  send, and record nothing

Rate limits
    rate_limits()           one row for each response, its three headers read
    chart_rate_limits()     the same, as a chart
    monitor()               the same, live
    burst(n)                send n reads
    check_contract()        the contract's three rules

What was seen
    interactions()          one row for each request; interactions(number=3) shows one in full
    browse()                the browser of interactions
    findings(), explore()   what is known of the open parts; requests that find out more
    openapi()               an OpenAPI 3.1 document
    drift("my-tour")        whether the service still answers as it was recorded

Errors
    DirectMailLabError      the base of all errors
    errors                  all of them, as errors.NotRecordedError
"""

import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors as errors
    from .current import (
        burst as burst,
        connect as connect,
        get as get,
        live as live,
        logout as logout,
        me as me,
        rate_limits as rate_limits,
        record as record,
        replay as replay,
        request as request,
        session as session,
    )
    from .errors import DirectMailLabError as DirectMailLabError
    from .frames import frame as frame
    from .paging import get_many as get_many, pages as pages
    from .questions.chart import chart_rate_limits as chart_rate_limits
    from .questions.contract_check import check_contract as check_contract
    from .questions.drift import drift as drift
    from .questions.findings import explore as explore, findings as findings
    from .questions.interactions import interactions as interactions
    from .questions.openapi import openapi as openapi
    from .sessions import Session as Session
    from .standin import stand_in as stand_in
    from .widgets.browser import browse as browse
    from .widgets.login import login as login
    from .widgets.monitor import monitor as monitor

    __version__: str

# A module is imported when one of its names is first used: most sessions need few of them.
_NAMES = {
    "current": "logout connect session me get request record replay live rate_limits burst",
    "errors": "DirectMailLabError",
    "frames": "frame",
    "paging": "get_many pages",
    "questions.chart": "chart_rate_limits",
    "questions.contract_check": "check_contract",
    "questions.drift": "drift",
    "questions.findings": "findings explore",
    "questions.interactions": "interactions",
    "questions.openapi": "openapi",
    "sessions": "Session",
    "standin": "stand_in",
    "widgets.browser": "browse",
    "widgets.login": "login",
    "widgets.monitor": "monitor",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_MODULES, "errors"]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module(".errors", __name__)
    if name == "__version__":
        return import_module(".settings", __name__).VERSION
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(f".{_MODULES[name]}", __name__), name)
        return value
    from .errors import did_you_mean, with_brief_traceback

    message = f"directmail_lab has no {name!r}. {did_you_mean(name, __all__)}"
    raise with_brief_traceback(AttributeError(message.rstrip(), name=name))


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


if "IPython" in sys.modules:
    with suppress(ImportError):  # an IPython before 8.6
        import_module(".completion", __name__).complete_in_ipython()
