"""What the stand-in answers: a request in, a response out, no socket (`wire` has those)."""

from __future__ import annotations

import hmac
import threading
from collections import Counter
from dataclasses import replace
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from directmail_lab.contract import ME_PATH
from directmail_lab.interaction import operation_of, path_below

from .answers import basic_credentials, error_answer, json_answer, with_headers
from .faults import Faults, spoiled
from .windows import Allowances, limit_headers, retry_after_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from directmail_lab.interaction import Headers, RecordedRequest, RecordedResponse

    from .faults import Fault
    from .options import StandInOptions
    from .windows import Allowance

__all__ = ["StandInService"]

# The stand-in's own: service.md shows no operation but GET /v1/users/me.
_LISTS_PATH: Final = "/v1/lists"
_LETTERS_PATH: Final = "/v1/letters"
_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    ME_PATH: ("GET", "HEAD"),
    _LISTS_PATH: ("GET", "HEAD"),
    f"{_LISTS_PATH}/{{id}}": ("GET", "HEAD"),
    _LETTERS_PATH: ("POST",),
}
_LISTS: Final = tuple(
    {"id": f"lst_stand_in_{n}", "name": name, "addresses": addresses, "service": "stand-in"}
    for n, (name, addresses) in enumerate([("Spring", 120), ("Café owners", 48), ("Empty", 0)], 1)
)


class StandInService:
    """The service behind a stand-in's address. Any thread may call it."""

    def __init__(self, options: StandInOptions) -> None:
        self.options = options
        self._allowances = Allowances(options)
        self._faults = Faults(options.faults)
        self._requests: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def requests(self) -> Counter[str]:
        """How often each ``"METHOD /path"`` was received, whatever came of it. A copy."""
        with self._lock:
            return Counter(self._requests)

    def add_fault(self, fault: Fault) -> None:
        """Misbehave so, before any fault that was added earlier."""
        with self._lock:
            self._faults.add(fault)

    def remove_fault(self, fault: Fault) -> None:
        """Behave again, as far as one fault goes."""
        with self._lock:
            self._faults.remove(fault)

    def clear_faults(self) -> None:
        """Behave again."""
        with self._lock:
            self._faults.clear()

    def answer(self, request: RecordedRequest) -> tuple[RecordedResponse, Fault | None]:
        """Return the response, and the fault that applies to it, whose body and headers it has.

        Latency, cuts and drops are left to whoever holds the connection.
        """
        path = _path_within(request.uri, self.options.prefix)
        with self._lock:
            self._requests[f"{request.method} {path}"] += 1
            fault = self._faults.next_for(path)
            response = self._sound_answer(request, path)
        return (spoiled(response, fault, request) if fault else response), fault

    def malformed_headers(self) -> Headers:
        """Return the headers of the 400 that answers what is no HTTP request."""
        now = self.options.clock()
        with self._lock:
            allowance = self._allowances.take("", "", "", now)
        return self._common_headers(allowance, now)

    def _sound_answer(self, request: RecordedRequest, path: str) -> RecordedResponse:
        now = self.options.clock()
        known = _is_authorized(request, self.options.api_key)
        operation = operation_of(path)
        allowance = self._allowances.take(
            "account" if known else "", request.method, operation, now
        )
        if not known:
            response = self._refusal()
        elif allowance.exceeded:
            response = self._exhausted(allowance, now)
        else:
            response = self._routed(request, path, operation)
        return replace(response, headers=response.headers + self._common_headers(allowance, now))

    def _common_headers(self, allowance: Allowance, now: float) -> Headers:
        return (
            *limit_headers(allowance, self.options.reset_unit, now),
            ("Date", formatdate(now, usegmt=True)),
            ("Server", "directmail-lab-stand-in"),
        )

    def _refusal(self) -> RecordedResponse:
        status = self.options.unauthorized_status
        response = error_answer(
            status, "This stand-in does not know that key, or a password came with it."
        )
        challenge = 'Basic realm="stand-in"' if status == HTTPStatus.UNAUTHORIZED else None
        return with_headers(response, {"WWW-Authenticate": challenge})

    def _exhausted(self, allowance: Allowance, now: float) -> RecordedResponse:
        response = error_answer(self.options.exhausted_status, "The allowance is used up.")
        text = retry_after_text(allowance.renews_at, self.options.retry_after, now)
        return with_headers(response, {"Retry-After": text})

    def _routed(self, request: RecordedRequest, path: str, operation: str) -> RecordedResponse:
        methods = _METHODS.get(operation)
        if methods is None:
            return error_answer(404, "There is nothing at this path.")
        if request.method not in methods:
            response = error_answer(405, "This path does not take that method.")
            return with_headers(response, {"Allow": ", ".join(methods)})
        if operation == _LETTERS_PATH:
            return self._letter()
        if operation == ME_PATH:
            return self._found(self.options.record)
        if operation == _LISTS_PATH:
            return self._found(list(_LISTS))
        found = next((each for each in _LISTS if path.endswith(f"/{each['id']}")), None)
        return self._found(found) if found else error_answer(404, "There is no such list.")

    def _letter(self) -> RecordedResponse:
        number = self._requests[f"POST {_LETTERS_PATH}"]
        letter = {"id": f"ltr_stand_in_{number}", "state": "accepted", "service": "stand-in"}
        return self._found(letter, status=201)

    def _found(self, value: object, status: int = 200) -> RecordedResponse:
        envelope = self.options.envelope
        return json_answer(status, {envelope: value, "service": "stand-in"} if envelope else value)


def _path_within(uri: str, prefix: str) -> str:
    """Return the path below the base address; one beside it is marked, and so is no operation."""
    path = path_below(uri, prefix)
    outside = prefix and path == path_below(uri)
    return f"{path} (outside {prefix})" if outside else path


def _is_authorized(request: RecordedRequest, api_key: str) -> bool:
    """Return whether the request has the key as user name and an empty password (part 5)."""
    return hmac.compare_digest(basic_credentials(request).encode(), f"{api_key}:".encode())
