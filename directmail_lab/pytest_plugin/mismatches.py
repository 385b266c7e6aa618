"""What pytest says of requests that a cassette has no response to: briefly, in full, at the end.

Values are shown with ``-vv`` alone, redacted as the requests are before they are compared.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from .settings import WRITES_OPTION, Node, Settings, command_to_record, relative

if TYPE_CHECKING:
    from ..cassettes import Cassette
    from ..errors import NotRecordedError
    from ..interaction import RecordedRequest

_LIBRARIES: Final = ("directmail_lab", "httpx", "httpx2", "requests")
COMMAND: Final = "directmail_command"  # an attribute of a report, which xdist sends


@dataclass(slots=True)
class Use:
    """How a test used its cassette."""

    cassette: Cassette
    settings: Settings
    node: Node
    refused: list[NotRecordedError] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)  # what a client may have swallowed
    has_passed: bool = False
    has_teardown: bool = False  # a fixture goes on after the test

    @property
    def is_own(self) -> bool:
        """Whether no other test has the cassette."""
        return self.settings.cassette is None and isinstance(self.node, pytest.Item)

    @property
    def unplayed(self) -> Sequence[RecordedRequest]:
        return () if self.cassette.records else self.cassette.unplayed()

    @property
    def shown_path(self) -> str:
        return relative(self.cassette.path, self.node.config)

    @property
    def command(self) -> str:
        """The command that records the test again, with its writes if it has any."""
        from ..contract import SAFE_METHODS

        methods = {each.request.method for each in self.cassette.recording()}
        methods |= {error.request.partition(" ")[0] for error in self.refused}
        has_writes = not methods <= SAFE_METHODS and not self.settings.allow_writes
        return command_to_record(self.node, "all") + (f" {WRITES_OPTION}" if has_writes else "")

    def problem(self) -> str:
        """Return why a test that passed fails, or an empty text.

        All responses must be played, by default if only this test has the cassette.
        """
        if self.unanswered:
            return self.unanswered[0]
        default = "fail" if self.is_own else "allow"
        if (self.settings.unplayed or default) == "allow" or not self.unplayed:
            return ""
        advice = 'Record it again, or allow it: @pytest.mark.directmail(unplayed="allow").'
        return f"It did not request every response of its cassette. {advice}"

    def refuse(self, error: NotRecordedError) -> None:
        """Note a request that the cassette has no response to."""
        self.refused.append(error)
        say_briefly(error, self.command)

    def failure_for_client(self, error: Exception) -> BaseException:
        """Return what is raised in another library's client in place of an error of ours.

        SDKs repeat a request after any `Exception`, and raise an error of their own at last.
        """
        self.unanswered.append(str(error))
        return pytest.fail.Exception(str(error))

    def check_age(self) -> None:
        """Warn of a recording that is older than ``max_age``, or fail the test."""
        if self.cassette.records or not self.settings.max_age or not len(self.cassette):
            return
        from ..questions.drift import age_problem

        problem = age_problem(self.cassette.recording(), self.settings.max_age)
        message = f"{self.shown_path} {problem}; to record it again: {self.command}"
        if problem and self.settings.on_old == "fail":
            pytest.fail(message, pytrace=False)
        elif problem:
            warnings.warn(pytest.PytestWarning(message), stacklevel=2)


USE: Final = pytest.StashKey[Use]()


def say_briefly(error: NotRecordedError, command: str) -> None:
    """Make two lines of an error: what happened, and the command that records the test again."""
    from ..display import CONTROLS

    what = error.what
    for title, differing in error.nearest[:1]:
        names = ", ".join(differing)
        how = f"differs in {names}" if title == error.request else f"is not recorded, but {title}"
        what = f"{error.request} {how}"
    error.what, error.details = CONTROLS.sub(" ", what), ""
    error.advice = f"Record this test again: {command}"


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


def add_to_report(report: pytest.TestReport, config: pytest.Config, use: Use) -> None:
    """Add to the report of a failure how a cassette was used; in colour if pytest's output is."""
    from ..display import CONTROLS

    has_terminal = config.pluginmanager.has_plugin("terminalreporter")  # xdist's workers have none
    markup = config.get_terminal_writer().markup if has_terminal else lambda line, **_: line
    lines = _lines(use, has_values=config.get_verbosity() >= 2)
    text = "\n".join(markup(CONTROLS.sub(" ", line), **{colour: True}) for line, colour in lines)
    report.sections.append(("directmail cassette", text))
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash and use.refused and str(use.refused[-1]) in crash.message:
        crash.message = use.refused[-1].what
        setattr(report, COMMAND, use.command)


def _lines(use: Use, *, has_values: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines that say how a cassette was used, each with its colour."""
    yield f"{use.shown_path}, record mode {use.cassette.record_mode}", "bold"
    path_of = use.cassette.recording().path_of
    unplayed = [f"{each.method} {path_of(each)}" for each in use.unplayed]
    refused = {error.request: error for error in use.refused}
    yield from _counted("left unplayed", unplayed)
    yield from _counted("not recorded", [error.request for error in use.refused])
    for request, error in refused.items():
        yield from [(f"nearest to {request}:", "bold")] if error.nearest else ()
        for title, differing in error.nearest:
            yield f"    {title}, which differs in {', '.join(differing)}", "yellow"
            for name, (sent, recorded) in differing.items() if has_values else ():
                yield f"        {name}: {sent!r:.200}, recorded {recorded!r:.200}", "cyan"
    yield f"to record it again: {use.command}", "green"


def _counted(heading: str, titles: list[str]) -> Iterator[tuple[str, str]]:
    yield f"{heading}:" if titles else f"{heading}: nothing", "bold"
    for title, count in Counter(titles).items():
        yield f"    {title}" + (f" ({count} times)" if count > 1 else ""), "red"
