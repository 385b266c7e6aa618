"""Tab in IPython and JupyterLab: calls, results, choices, cassettes' names, paths that were seen.

IPython asks Jedi otherwise. For ``dm.`` it would import all that is imported on first use, and for
``dm.me().`` it would read the sources of pandas.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from inspect import get_annotations, unwrap
from itertools import chain
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from IPython import get_ipython
from IPython.core import completer

if TYPE_CHECKING:
    from ..cassettes import Recording

# A call that takes one or several cassettes, up to the name that is being typed.
_CASSETTE = re.compile(
    r"\b(?:(?:record|replay|rate_limits|chart_rate_limits|check_contract|interactions|browse|findings"
    r"|openapi|drift)\(\s*(?:\[[^\]]{0,999})?|cassette\s*=\s*)[\"']([^\"'\n]*)\Z"
)
# A call that takes a path or several, up to the path that is being typed.
_PATH = re.compile(
    r"\b(?:get|post|put|patch|delete|head|request|pages|get_many|burst)\([^()\n]{0,999}"
    r"[\"'](/[^\"'\n]*)\Z"
)
# A call's parameter that has choices, ``if_sent="``, up to the choice that is being typed.
_CHOICE = re.compile(r"\b(\w+)\([^()\n]{0,999}\b(\w+)\s*=\s*[\"'](\w*)\Z")
# ``dm.``, or ``dm.me().``, up to the name that is being typed.
_MEMBER = re.compile(r"(?<![\w.)\]])(\w+)\.(?:(\w+)\([^()\n]{0,999}\)\.)?(\w*)\Z")


@completer.context_matcher(identifier="directmail_lab", priority=100)  # type: ignore[untyped-decorator]
def complete(context: completer.CompletionContext) -> completer.SimpleMatcherResult:
    """Return what may follow the text that was typed so far."""
    text = context.text_until_cursor
    for pattern, kind, offer in (
        (_CASSETTE, "cassette", _cassettes),
        (_PATH, "path", _paths),
        (_CHOICE, "choice", _choices),
        (_MEMBER, "", _members),
    ):
        match = pattern.search(text)
        if match is not None:
            typed = match[match.lastindex or 0]
            names = [name for name in offer(match) if name.startswith(typed)]
            return {
                "completions": [completer.SimpleCompletion(name, type=kind) for name in names],
                "matched_fragment": typed,
                # So that IPython asks neither Jedi nor the working directory.
                "suppress": bool(names),
            }
    return {"completions": []}


def _cassettes(_: re.Match[str]) -> Iterable[str]:
    from ..cassettes.library import cassettes_by_name

    return cassettes_by_name()


def _paths(_: re.Match[str]) -> Iterable[str]:
    """Return the paths that the current session or its cassette has seen, except those with 404."""
    from ..sessions.current import current_session

    session = current_session()
    if session is None:
        return ()
    recordings: list[Recording] = [session.recording]
    if session.open_cassette is not None:
        recordings.append(session.open_cassette.recording())
    readings = [reading for recording in recordings for reading in recording.readings()]
    return sorted({each.path for each in readings if each.status != 404 and not each.elsewhere})


def _choices(match: re.Match[str]) -> Iterable[str]:
    """Return the texts that a parameter of a call accepts, if its annotation lists them."""
    call, parameter, _ = match.groups()
    function: Any = getattr(sys.modules[__package__], call, None)
    function = unwrap(function)
    annotation = getattr(function, "__annotations__", {}).get(parameter, "None")
    try:
        accepted = eval(annotation, function.__globals__)
    except (AttributeError, NameError):  # not a function of ours
        return ()
    # Literal["a", "b"], or Literal["a", "b"] | None
    choices = chain.from_iterable(get_args(each) or [each] for each in get_args(accepted))
    return [each for each in choices if isinstance(each, str)]


def _members(match: re.Match[str]) -> Iterable[str]:
    """Return the public names of the package, of a session, or of the result of their calls."""
    name, call, typed = match.groups()
    owner = get_ipython().user_ns.get(name)
    package = sys.modules[__package__]
    # Until the module is imported, there is no session.
    session_type = getattr(sys.modules.get(f"{__package__}.sessions"), "Session", ())
    if owner is not package and not isinstance(owner, session_type):
        return ()
    names: Iterable[str] = dir(owner)
    if call is not None:
        names = _names_of_result(getattr(owner, call, None))
    return [each for each in names if typed.startswith("_") or not each.startswith("_")]


def _names_of_result(function: Any) -> set[str]:
    """Return the names of the type that a call's annotation states, or none."""
    plain = unwrap(function)
    if isinstance(plain, type):
        return {*dir(plain), *get_annotations(plain)}
    annotation = getattr(plain, "__annotations__", {}).get("return")
    if annotation is None:
        return set()
    import pandas as pd

    from ..exchange.httpx_values import httpx

    try:
        result = eval(annotation, {**plain.__globals__, "pd": pd})
    except NameError:  # it is imported only for type checkers
        return set()
    if result is httpx.Response:  # only an instance has all attributes
        return {*dir(httpx.Response(200))}
    types = [get_origin(result) or result]
    if isinstance(result, UnionType):
        types = list(get_args(result))
    names: set[str] = set()
    for each in types:
        names.update(dir(each), get_annotations(each))
    return names


def complete_in_ipython() -> None:
    """Register the completion if this runs in IPython."""
    shell = get_ipython()
    if shell is not None and complete not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(complete)
