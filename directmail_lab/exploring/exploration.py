"""The requests that `explore` makes: reads only, announced, no wrong key twice."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ..contract import ME_PATH
from ..interaction import Interaction, RecordedRequest, RecordedResponse
from ..settings import configured_regions
from .open_parts import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..http import httpx
    from ..sessions import Session
    from .open_parts import Credentials

__all__ = ["Exploration"]

# Paths that nothing is known to be at, and that nobody would mind being asked for.
_NOWHERE: Final = "/v1/directmail-lab-nowhere"
_NEXT_VERSION: Final = ME_PATH.replace("/v1/", "/v2/")
_NO_KEY: Final = "directmail-lab-no-key"
_REFUSED: Final = (401, 403)
# Reads enough to see a time left count down, if it does.
_MOST_READS_FOR_UNIT: Final = 12

# Where a wrong key was sent to, in the life of this process.
_wrong_key_sent: set[str] = set()


@dataclass
class Exploration:
    """One run of `explore`: what it asks of whom, and the answers so far.

    ``pause_s`` is in seconds; ``announce`` takes a line for each request; ``earlier`` is how many
    answers of the session were numbered before.
    """

    session: Session
    pause_s: float
    announce: Callable[[str], object]
    sleep: Callable[[float], object]
    earlier: int = 0
    answers: list[Answer] = field(default_factory=list)

    def run(self) -> None:
        """Ask everything, until the key turns out to be refused.

        Raises
        ------
        QuotaExhaustedError
            The allowance is used up for longer than the session waits.
        """
        self.announce(f"Exploring {self.session.base_url} with reads, which change nothing there.")
        first = self._ask("GET", ME_PATH)
        if first is not None and first.status in _REFUSED:
            # To go on would be to send a wrong key again and again.
            _wrong_key_sent.add(self.session.base_url)
            self.announce("The key was refused, so nothing more is sent.")
            return
        for method, path in (("OPTIONS", ME_PATH), ("GET", _NOWHERE), ("GET", _NEXT_VERSION)):
            self._ask(method, path)
        self._ask_without_key(self.session.base_url)
        self._ask_with_wrong_key()
        self._ask_other_regions()
        self._read_until_unit_is_known()

    def _ask(self, method: str, path: str) -> Answer | None:
        return self._send(method, path, self.session.client, self.session.base_url, "key")

    def _ask_without_key(self, base_url: str) -> None:
        with self._bare_client(base_url) as client:
            self._send("GET", ME_PATH, client, base_url, "none")

    def _ask_with_wrong_key(self) -> None:
        base_url = self.session.base_url
        if base_url in _wrong_key_sent:
            self.announce(f"A wrong key was sent to {base_url} before, and is not sent again.")
            return
        _wrong_key_sent.add(base_url)
        with self._bare_client(base_url) as client:
            client.headers["Authorization"] = f"Basic {b64encode(f'{_NO_KEY}:'.encode()).decode()}"
            self._send("GET", ME_PATH, client, base_url, "wrong")

    def _ask_other_regions(self) -> None:
        for address in dict.fromkeys(configured_regions().values()):
            if address != self.session.base_url:
                # Without the key: it is this region's, and may not be that one's.
                self._ask_without_key(address)

    def _read_until_unit_is_known(self) -> None:
        for _ in range(_MOST_READS_FOR_UNIT):
            if self.session.readings.evidence().unit != "undetermined":
                return
            self._ask("GET", ME_PATH)

    def _bare_client(self, base_url: str) -> httpx.Client:
        """Return a client that adds no key, and whose requests no cassette records.

        A cassette does not keep the credentials: the answer to a wrong key would be replayed to who
        asks with the right one.
        """
        from ..http import httpx

        return httpx.Client(base_url=base_url, timeout=self.session.client.timeout)

    def _send(
        self, method: str, path: str, client: httpx.Client, base_url: str, credentials: Credentials
    ) -> Answer | None:
        from ..http import httpx

        if self.answers:
            self.sleep(self.pause_s)
        with_what = {"none": " without a key", "wrong": " with a wrong key"}.get(credentials, "")
        try:
            response = client.request(method, path)
        except httpx.HTTPError as error:
            self.announce(f"{method} {path}{with_what}: no answer ({type(error).__name__})")
            return None
        self.announce(f"{method} {path}{with_what}: {response.status_code}")
        number = self.earlier + len(self.answers)
        answer = Answer(_kept(response), path, base_url, "explore", number, credentials)
        self.answers.append(answer)
        return answer


def _kept(response: httpx.Response) -> Interaction:
    """Return a response as an interaction; of the request only what names it."""
    return Interaction(
        RecordedRequest(response.request.method, str(response.request.url)),
        RecordedResponse(
            response.status_code,
            response.reason_phrase,
            tuple(response.headers.multi_items()),
            response.content,
        ),
        datetime.now(UTC),
        response.elapsed.total_seconds(),
    )
