"""Explore a direct mail service's HTTP API in JupyterLab, with recorded sessions.

Sign in
    login()                 the sign-in form; signing in opens the current session
    connect(…)              the same without a form
    logout()                close the session and forget the key
    session(), Session      the current session; another one, for threads, tests, several accounts
    stand_in()              a local service to try things out with

Request
    me()                    the user's record, one row
    get(path), post(path)   any other path, as an httpx.Response
    request("PUT", path)    any other method
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

import ast
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

# The stub states each public name and its module. A module is imported when one of its names is
# first used, since most sessions need few of them.
_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
_MODULES = {
    name.name: f".{statement.module or name.name}"
    for statement in _STUB.body
    if isinstance(statement, ast.ImportFrom)
    for name in statement.names
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module(".settings", __name__).VERSION
    if name in _MODULES:
        module = import_module(_MODULES[name], __name__)
        value = globals()[name] = module if name == "errors" else getattr(module, name)
        return value
    from .arguments import did_you_mean
    from .tracebacks import with_brief_traceback

    message = f"directmail_lab has no {name!r}. {did_you_mean(name, __all__)}"
    raise with_brief_traceback(AttributeError(message.rstrip(), name=name))


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


if "IPython" in sys.modules:
    with suppress(ImportError):  # an IPython before 8.6
        import_module(".completion", __name__).complete_in_ipython()
