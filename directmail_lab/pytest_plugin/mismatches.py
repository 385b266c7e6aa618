"""What pytest reports about a test's cassette: requests without a response, and unplayed ones.

Values are shown only with ``-vv``. They are redacted, as requests are before they are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from .use import Use

_LIBRARIES = ("directmail_lab", "httpx")


def hide_our_frames(call: pytest.CallInfo[Any], config: pytest.Config) -> None:
    """Remove our frames and HTTP clients' from a traceback, unless --full-trace or --pdb is on."""
    if call.excinfo is None or config.getoption("fulltrace") or config.getoption("usepdb"):
        return
    shown = call.excinfo.tb
    while shown.tb_next is not None:
        following = shown.tb_next
        if str(following.tb_frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES:
            shown.tb_next = following.tb_next
        else:
            shown = following


def add_to_report(report: pytest.TestReport, config: pytest.Config, use: Use) -> None:
    """Add how a cassette was used to the report of a failure."""
    from ..display import printable_line

    lines = _lines(use, has_values=config.get_verbosity() >= 2)
    text = "\n".join(map(printable_line, lines))
    report.sections.append(("directmail cassette", text))
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash and use.refused and str(use.refused[-1]) in crash.message:
        crash.message = use.refused[-1].what


def _lines(use: Use, *, has_values: bool) -> Iterator[str]:
    """Yield the lines that say how a cassette was used."""
    yield f"{use.shown_path}, record mode {use.record_mode}"
    if use.makes_new:
        yield "the recording was not kept, since the test failed"
    else:
        yield from _listed("left unplayed", use.titles(use.unplayed))
    yield from _listed("not recorded", dict.fromkeys(error.request for error in use.refused))
    if use.cut:
        yield from _listed("recorded only as far as it was read then", dict.fromkeys(use.cut))
    refused = {error.request: error for error in use.refused if error.nearest}
    if refused and not has_values:
        yield "to see the values that differ: -vv"
        refused = {}
    for request, error in refused.items():
        yield f"nearest to {request}:"
        for title, differing in error.nearest:
            yield f"    {title}, which differs in {', '.join(differing)}"
            for name, (sent, recorded) in differing.items():
                yield f"        {name}: {sent!r:.200}, recorded {recorded!r:.200}"
    if use.keeps_old:
        yield "the old recording stays, since the test failed"
    yield f"to record it again: {use.command}"


def _listed(heading: str, titles: Collection[str]) -> Iterator[str]:
    yield f"{heading}:" if titles else f"{heading}: nothing"
    yield from (f"    {title}" for title in titles)
