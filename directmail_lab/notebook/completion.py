"""Tab in IPython and JupyterLab: calls, cassettes' names, paths that were seen.

IPython asks Jedi otherwise, which for ``dm.`` would import all that is imported on first use. What
a cassette contains or is named may come from a stranger, and the cell that takes it is run: so only
text that needs no escapes is offered.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

from IPython import get_ipython
from IPython.core import completer

if TYPE_CHECKING:
    from ..cassettes import Recording

_PACKAGE = __name__.partition(".")[0]
_MODULES: dict[str, str] = vars(sys.modules[_PACKAGE])["_MODULES"]
_QUESTIONS = [name for name, module in _MODULES.items() if module.startswith(".questions.")]
# A call that takes one or several cassettes, up to the name that is being typed.
_CASSETTE = re.compile(
    rf"\b(?:(?:{'|'.join(['record', 'replay', 'browse', *_QUESTIONS])})\(\s*(?:\[[^\]]{{0,999}})?"
    r"|cassette\s*=\s*)[\"']([^\"'\n]*)\Z"
)
# A call that takes a path or several, up to the path that is being typed.
_PATH = re.compile(
    r"\b(?:get|post|put|patch|delete|request|pages|get_many)\([^()\n]{0,999}"
    r"[\"'](/[^\"'\n]*)\Z"
)
# ``dm.``, up to the name that is being typed.
_MEMBER = re.compile(r"(?<![\w.)\]])(\w+)\.(\w*)\Z")
_NEEDS_NO_ESCAPE = re.compile(r"[^\"'\\{}]*")


@completer.context_matcher(identifier="directmail_lab", priority=100)  # type: ignore[untyped-decorator]
def complete(context: completer.CompletionContext) -> completer.SimpleMatcherResult:
    """Return what may follow the text that was typed so far."""
    text = context.text_until_cursor
    for pattern, kind, offer in (
        (_CASSETTE, "cassette", _cassettes),
        (_PATH, "path", _paths),
        (_MEMBER, "", _members),
    ):
        match = pattern.search(text)
        if match is not None:
            typed = match[match.lastindex or 0]
            names = [name for name in offer(match) if name.startswith(typed)]
            return {
                "completions": [
                    completer.SimpleCompletion(name, type=kind or _kind_of(match[1], name))
                    for name in names
                ],
                "matched_fragment": typed,
                # So that IPython asks neither Jedi nor the working directory.
                "suppress": bool(names),
            }
    return {"completions": []}


def _cassettes(_: re.Match[str]) -> Iterable[str]:
    from ..cassettes.library import cassettes_by_name

    names = cassettes_by_name()
    return [name for name in names if name.isprintable() and _NEEDS_NO_ESCAPE.fullmatch(name)]


def _paths(_: re.Match[str]) -> Iterable[str]:
    """Return the paths that the current session or its cassette has seen, except those with 404.

    They are percent-encoded as they are sent.
    """
    from ..sessions.current import current_session
    from ..sessions.session import open_cassette

    session = current_session()
    if session is None:
        return ()
    recordings: list[Recording] = [session.recording]
    cassette = open_cassette(session)
    if cassette is not None:
        recordings.append(cassette.recording())
    readings = [reading for recording in recordings for reading in recording.readings()]
    seen = {each.path for each in readings if each.status != 404 and not each.elsewhere}
    return [quote(path, safe="/%:;=@!$&()*+,~") for path in sorted(seen)]


def _members(match: re.Match[str]) -> Iterable[str]:
    """Return the public names of the package or of a session."""
    name, typed = match.groups()
    owner = get_ipython().user_ns.get(name)
    # By name, since importing the session's module would take long.
    is_session = type(owner).__module__ == f"{_PACKAGE}.sessions.session"
    if owner is not sys.modules[_PACKAGE] and not is_session:
        return ()
    return [each for each in dir(owner) if typed.startswith("_") or not each.startswith("_")]


def _kind_of(owner: str, name: str) -> str:
    """Return what JupyterLab shows beside a name. Nothing is imported for that."""
    value = getattr(type(get_ipython().user_ns[owner]), name, None)
    if name == "errors":
        return "module"
    if isinstance(value, property):
        return "property"
    return "class" if name[0].isupper() else "function"


def complete_in_ipython() -> None:
    """Register the completion if this runs in IPython."""
    shell = get_ipython()
    if shell is not None and complete not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(complete)
