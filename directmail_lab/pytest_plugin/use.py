"""How a test uses its cassette, and whether that fails the test."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from ..arguments import RecordMode
from .settings import WRITES_OPTION, Node, Settings, command_to_record, relative

if TYPE_CHECKING:
    from ..cassettes import Cassette, Ending, Policy
    from ..errors import DirectMailLabError, NotRecordedError
    from .responses import RespondingSession


@dataclass(slots=True, kw_only=True)
class Use:
    """How a test, or the setup of a module, uses its cassette.

    The plugin calls `start`, then `note_report`, and finally `end`.

    Attributes
    ----------
    record_mode
        The mode that was asked for. In ``"once"``, a cassette that is there is replayed.
    is_own
        Whether the cassette belongs to this test alone.
    has_ended
        Whether the cassette is closed.
    """

    node: Node
    settings: Settings
    path: Path
    record_mode: RecordMode
    is_own: bool
    session: RespondingSession = field(init=False)
    cassette: Cassette = field(init=False)
    refused: list[NotRecordedError] = field(default_factory=list)
    client_errors: list[str] = field(default_factory=list)  # errors that a client may have caught
    cut: list[str] = field(default_factory=list)  # read to the end of a part of their response
    was_refused_a_write: bool = False
    has_ended: bool = False
    _was_there: bool = False  # the file, before the test
    _count_before: int = 0  # the interactions of the cassette when it was opened
    _has_passed: bool = False
    _has_failed: bool = False

    def start(self, session: RespondingSession) -> None:
        """Follow what a session does with its cassette."""
        from ..sessions.session import open_cassette

        cassette = open_cassette(session)
        assert cassette is not None, "the session has just opened it"
        self.session = session
        self.cassette = cassette
        self._was_there = self.path.exists()
        self._count_before = len(self.cassette)
        self._check_age()

    def policy(self) -> Policy:
        """Return what a test wants of its cassette: errors for all that its replay would lack."""
        from ..cassettes import Policy

        return Policy(
            aside=True,
            records_failures=True,
            on_unmatched=self._refuse,
            on_early_end=self.cut.append,
        )

    def urls(self) -> set[str]:
        """Return the addresses of the session, its settings and cassette, without ignored hosts."""
        requests = [each.request.uri for each in self.cassette.recording()]
        urls = {"/".join(uri.split("/", 3)[:3]) for uri in requests}
        urls |= {self.session.base_url, self.settings.base_url or self.session.base_url}
        return {url for url in urls if urlsplit(url).hostname not in self.settings.ignore_hosts}

    def note_report(self, report: pytest.TestReport) -> None:
        """Note the outcome of a part of the test."""
        self._has_failed |= report.failed
        self._has_passed |= report.when == "call" and report.passed

    def end(self) -> None:
        """Keep or replace the old recording, and fail a test if responses were left unplayed."""
        self.has_ended = True
        problem = self._problem() if self._has_passed and not self._has_failed else ""
        is_module = isinstance(self.node, pytest.Module)
        is_good = not (problem or self._has_failed) and (self._has_passed or is_module)
        # A cassette of this test alone must not keep responses that it no longer requests: the test
        # would always fail.
        ending: Ending = "replace" if self.is_own and self.cassette.updates else "merge"
        unused = self.titles(self.unplayed) if is_good and self.cassette.records else []
        # The test may have left the session in another mode. A failure that a test did not expect
        # must not be replayed.
        self.cassette.close(ending if is_good else "drop")
        if problem and isinstance(self.node, pytest.Item):
            pytest.fail(problem, pytrace=False)
        if unused and self.is_own:
            message = f"{self.shown_path} has what the test no longer requests: {', '.join(unused)}"
            again = command_to_record(self.node, "all")
            warnings.warn(
                pytest.PytestWarning(f"{message}. Its replay would fail: record it again, {again}"),
                stacklevel=2,
            )

    # -- what is found ---------------------------------------------------------------------------

    @property
    def unplayed(self) -> list[int]:
        """The numbers of the recorded responses that a replay left, or that one would leave."""
        responded = self.session.responded.copy()
        left = []
        for number in [] if self.cassette.updates else self.cassette.unplayed():
            request = self.cassette.recording().interaction(number).request
            operation = request.method, urlsplit(request.uri).path
            if responded[operation]:  # the test gave this response itself
                responded[operation] -= 1
            elif number <= self._count_before:
                left.append(number)
        return left

    def titles(self, numbers: Iterable[int]) -> list[str]:
        """Return the requests of interactions with their queries: ``2: GET /v1/lists?page=1``."""
        recording = self.cassette.recording()
        titles = []
        for number in numbers:
            request = recording.interaction(number).request
            _, mark, query = request.uri.partition("?")
            path = recording.path_of(request)
            titles.append(f"{number}: {request.method} {path}{mark}{query}")
        return titles

    @property
    def keeps_old(self) -> bool:
        """Whether the test was to record again: then a failure leaves the old recording."""
        return self.cassette.updates and self._was_there

    @property
    def makes_new(self) -> bool:
        """Whether it recorded a cassette that was not there: a failure then keeps none."""
        return self.cassette.records and not self._was_there

    @property
    def shown_path(self) -> str:
        return relative(self.path, self.node.config)

    @property
    def command(self) -> str:
        """The command that records the test again."""
        from ..exchange.values import SAFE_METHODS

        command = command_to_record(self.node, "all" if self.path.exists() else "once")
        methods = {error.request.partition(" ")[0] for error in self.refused}
        writes = self.was_refused_a_write or not methods <= SAFE_METHODS
        return f"{command} {WRITES_OPTION}" if writes else command

    def _problem(self) -> str:
        """Return why a test that passed must fail, or an empty string.

        By default, a test must play all responses of its own cassette.
        """
        if self.client_errors:
            return self.client_errors[0]
        if self.session.unused:
            method, path, _ = self.session.unused[0]
            return f"No request had the response that the test gave for {method} {path}."
        if self.cassette.records:
            return ""
        default = "fail" if self.is_own else "allow"
        if (self.settings.unplayed or default) == "allow" or not self.unplayed:
            return ""
        advice = 'Record it again, or allow this: @pytest.mark.directmail(unplayed="allow").'
        return f"The test did not request every response of its cassette. {advice}"

    def _refuse(self, error: NotRecordedError) -> None:
        """Note a request without a response, and shorten its error to two lines.

        They say what happened, and which command records the test again.
        """
        from ..cassettes.matching import ORIGIN
        from ..cassettes.mismatch import changing_values
        from ..display import printable

        self.refused.append(error)
        what = error.what
        error.advice = f"Record this test again: {self.command}"
        for title, differing in error.nearest[:1]:
            names = ", ".join(differing)
            is_same = title == error.request
            how = f"differs in {names}" if is_same else f"is not recorded, but {title} is"
            what = f"{error.request} {how}"
            rules = changing_values(differing)
            if rules:
                error.advice = (
                    "Only values that change with each run differ. Leave them out: "
                    f"@pytest.mark.directmail(ignore={rules})"
                )
            elif differing and set(ORIGIN).issuperset(differing):
                error.advice = (
                    "To compare no host, for tests of several regions: "
                    '@pytest.mark.directmail(match_on=["method", "path", "query", "body"])'
                )
        if not self.path.exists():
            what = f"{error.request} has no response: there is no cassette {self.shown_path}"
            error.advice = f"Record this test: {self.command}"
        error.what = printable(what)
        error.details = ""

    def failure_for_client(self, error: DirectMailLabError) -> BaseException:
        """Return the error that a client of the code under test raises in place of ours.

        It is not an `Exception`: after one, SDKs repeat a request and then raise their own error.
        """
        self.client_errors.append(str(error))
        return pytest.fail.Exception(str(error))

    def _check_age(self) -> None:
        """Warn about a recording that is older than ``max_age``, or fail the test."""
        if self.cassette.records or not self.settings.max_age or not len(self.cassette):
            return
        from ..cassettes.recording import age_problem

        problem = age_problem(self.cassette.recording(), self.settings.max_age)
        if not problem:
            return
        message = f"{self.shown_path} {problem}; to record it again: {self.command}"
        if self.settings.on_old == "fail":
            pytest.fail(message, pytrace=False)
        warnings.warn(pytest.PytestWarning(message), stacklevel=2)


USE = pytest.StashKey[Use]()
