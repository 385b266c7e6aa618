"""What pytest says of requests that a cassette has no response to: briefly, in full, at the end.

Values are shown with ``-vv`` alone, redacted as the requests are before they are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from ..errors import NotRecordedError

_LIBRARIES: Final = ("directmail_lab", "httpx", "httpx2")
_COMMAND: Final = "directmail_command"  # an attribute of a report, which xdist sends


def say_briefly(error: NotRecordedError, command: str) -> None:
    """Make two lines of an error: what happened, and the command that records the test again."""
    from ..display import CONTROLS

    what = str(error).partition("\n")[0]
    for title, differing in error.nearest[:1]:
        names = ", ".join(differing)
        how = f"differs in {names}" if title == error.request else f"is not recorded, but {title}"
        what = f"{error.request} {how}"
    error.args = (f"{CONTROLS.sub(' ', what)}\nRecord this test again: {command}",)


def hide_our_frames(call: pytest.CallInfo[Any], config: pytest.Config) -> None:
    """Leave our frames and httpx's out of a traceback, unless a debugger or all are asked for."""
    if call.excinfo is None or config.getoption("fulltrace") or config.getoption("usepdb"):
        return
    shown = call.excinfo.tb
    while (following := shown.tb_next) is not None:
        if str(following.tb_frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES:
            shown.tb_next = following.tb_next
        else:
            shown = following


def add_to_report(
    report: pytest.TestReport,
    config: pytest.Config,
    heading: str,
    unplayed: Iterable[str],
    refused: Sequence[NotRecordedError],
    command: str,
) -> None:
    """Add to the report of a failure how a cassette was used; in colour if pytest's output is."""
    from ..display import CONTROLS

    lines = [(heading, "bold"), *_counted("left unplayed", unplayed)]
    lines += _counted("not recorded", [error.request for error in refused])
    for error in {error.request: error for error in refused}.values():
        lines += _nearest(error, has_values=config.get_verbosity() >= 2)
    lines.append((f"to record it again: {command}", "green"))
    has_terminal = config.pluginmanager.has_plugin("terminalreporter")  # xdist's workers have none
    writer = config.get_terminal_writer() if has_terminal else None
    safe = [(CONTROLS.sub(" ", line), colour) for line, colour in lines]
    texts = [writer.markup(line, **{colour: True}) if writer else line for line, colour in safe]
    report.sections.append(("directmail cassette", "\n".join(texts)))
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash and refused and str(refused[-1]) in crash.message:
        crash.message = str(refused[-1]).partition("\n")[0]
        setattr(report, _COMMAND, command)


def print_commands(reporter: pytest.TerminalReporter) -> None:
    """Print, below the short summary, how to record the tests again whose requests differed."""
    reports = [*reporter.getreports("failed"), *reporter.getreports("error")]
    for command in filter(None, (getattr(report, _COMMAND, None) for report in reports)):
        reporter.write_line(f"to record it again: {command}", green=True)


def _counted(heading: str, titles: Iterable[str]) -> Iterator[tuple[str, str]]:
    counts = Counter(titles)
    yield f"{heading}:" if counts else f"{heading}: nothing", "bold"
    for title, count in counts.items():
        yield f"    {title}" + (f" ({count} times)" if count > 1 else ""), "red"


def _nearest(error: NotRecordedError, *, has_values: bool) -> Iterator[tuple[str, str]]:
    yield from [(f"nearest to {error.request}:", "bold")] if error.nearest else ()
    for title, differing in error.nearest:
        yield f"    {title}, which differs in {', '.join(differing)}", "yellow"
        for name, (sent, recorded) in differing.items() if has_values else ():
            yield f"        {name}: {sent!r:.200}, recorded {recorded!r:.200}", "cyan"
