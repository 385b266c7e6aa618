"""Explore a direct mail service's HTTP API in JupyterLab, with recorded sessions.

Sign in
    login()                 the sign-in form; signing in opens the current session
    connect(…)              the same without a form
    logout()                close the session and forget the key
    session(), Session      the current session; more sessions for threads, tests or accounts
    stand_in()              a local service for trying things out

Request
    me()                    the user's record, as one row
    get(path), post(path)   any other path; the result is an httpx.Response
    request("PUT", path)    any other method
    get_many(paths)         several paths at once; the responses are in the same order
    pages(path)             the pages of a list, one after the other
    frame(response)         any body as a DataFrame

Record and replay
    record("my-tour")       write requests and responses to a cassette
    replay("my-tour")       get the same responses, with no key and no network
    live()                  send requests, and record nothing

Rate limits
    rate_limits()           one row for each response, with its three rate-limit headers
    chart_rate_limits()     the same as a chart
    monitor()               the same, live
    burst(n)                send n reads
    check_contract()        check the contract's three rules

Look at recordings
    interactions()          one row for each request; interactions(number=3) shows one in full
    browse()                a panel that shows, writes and sends requests
    findings(), explore()   what the responses tell about the undocumented parts; find out more
    openapi()               an OpenAPI 3.1 document
    drift("my-tour")        whether the live service still answers as recorded

Errors
    DirectMailLabError      the base class of all errors
    errors                  all of them, such as errors.NotRecordedError
"""

import ast
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

# The stub names the module of each public name. A module is imported when one of its names is
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
        from .errors import naming_what_is_missing

        with naming_what_is_missing():
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
    with suppress(ImportError):  # IPython before 8.6 has no context matchers
        import_module(".completion", __name__).complete_in_ipython()
