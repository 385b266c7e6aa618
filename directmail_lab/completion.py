"""Tab completes the names of cassettes in IPython and JupyterLab: ``dm.replay("first-``."""

from __future__ import annotations

import re
from typing import Final

from IPython import get_ipython
from IPython.core import completer

# A call that takes one or several cassettes, up to the name that is being typed.
_TYPED: Final = re.compile(
    r"\b(?:(?:record|replay|rate_limits|chart_rate_limits|check_contract|interactions|browse|findings"
    r"|openapi|drift)\(\s*(?:\[[^\]]{0,999})?|cassette\s*=\s*)[\"']([^\"'\n]*)\Z"
)


@completer.context_matcher(identifier="directmail_lab.cassettes")  # type: ignore[untyped-decorator]
def cassettes(context: completer.CompletionContext) -> completer.SimpleMatcherResult:
    """Return the names of cassettes that begin with the text typed so far."""
    names: list[str] = []
    typed = _TYPED.search(context.text_until_cursor)
    if typed is not None:
        from .cassettes.library import cassettes_by_name

        names = [name for name in cassettes_by_name() if name.startswith(typed[1])]
    return {
        "completions": [completer.SimpleCompletion(name, type="cassette") for name in names],
        "matched_fragment": typed[1] if typed else "",
        "suppress": bool(names),  # so that IPython does not offer files of the working directory
    }


def complete_in_ipython() -> None:
    """Register the completion if this runs in IPython."""
    shell = get_ipython()
    if shell is not None and cassettes not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(cassettes)
