"""Explore a direct mail service's API in JupyterLab.

You sign in, which opens a session. It can record to a cassette, which is a
file, and replay the cassette later with no key and no network. A `Session`
has the same calls: get, record and so on. help(dm.get) explains one.

    login()                    the sign-in form
    connect(address, key)      the same without a form; logout() ends it
    session(), Session         the current session, and more of them

    me()                       the user's record, as one row
    get(path)                  any other path: an httpx.Response
    post, put, patch, delete   writes, if dm.session().allow_writes = True
    request("HEAD", path)      any other method
    post_many(path, rows)      each row of a table, once
    get_many(paths)            several paths at once, in the same order
    pages(path)                the pages of a list, one after the other
    frame(response)            a body, JSON or CSV, as a DataFrame

    record("my-tour")          send requests, and write them to a cassette
    replay("my-tour")          the same responses, without key or network
    live()                     send requests, and record nothing

    rate_limits()              one row for each response
    chart_rate_limits()        the same as a chart
    monitor()                  the same, live
    check_contract()           whether responses keep the contract's rules

    browse()                   a panel that shows, writes and sends requests
    interactions()             one row for each request
    findings()                 what is known of the undocumented parts
    openapi()                  an OpenAPI document
    drift("my-tour")           whether the service responds as recorded

    stand_in()                 a local service for trying things out
    errors, DirectMailLabError all errors, and their base class

To share, in a terminal: directmail-lab share my-tour.ipynb --to tour.zip
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


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module(".settings", __name__).VERSION
    if name == "__all__":
        # pydoc would add the docstring of each name, also of `Session`: help(dm) is one screen.
        is_help = sys._getframe(1).f_globals.get("__name__") == "pydoc"
        return [] if is_help else sorted(_MODULES)
    if name in _MODULES:
        from .errors import MissingPackageError, naming_what_is_missing

        _join_ipython()
        try:
            with naming_what_is_missing():
                module = import_module(_MODULES[name], __name__)
        except MissingPackageError as error:
            return error.as_call(name)
        value = module if name == "errors" else getattr(module, name)
        globals()[name] = value
        return value
    from .arguments import did_you_mean
    from .tracebacks import with_brief_traceback

    message = f"directmail_lab has no {name!r}. {did_you_mean(name, _MODULES)}"
    raise with_brief_traceback(AttributeError(message.rstrip(), name=name))


def __dir__() -> list[str]:
    return [*sorted(_MODULES), "__version__"]


def _join_ipython() -> None:
    """Complete names, and show responses, if this runs in IPython.

    A program may import the package before it starts IPython, as the run of `share` does. So this
    is tried again when a name is used.
    """
    if "IPython" not in sys.modules:
        return
    with suppress(ImportError):  # IPython before 8.6 has no context matchers
        import_module(".notebook.completion", __name__).complete_in_ipython()
    import_module(".questions.cells", __name__).show_in_ipython()
    import_module(".tracebacks", __name__).show_warnings_in_ipython()


_join_ipython()
