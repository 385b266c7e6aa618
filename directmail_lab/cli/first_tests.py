"""`cassette test`: a pytest file that replays a cassette, and says what its responses look like."""

from __future__ import annotations

import inspect
import re
from collections.abc import Hashable, Iterator
from contextlib import suppress
from itertools import islice

from ..cassettes import FileRecording
from ..cassettes.matching import Matching
from ..display import ranges
from ..errors import DirectMailLabError
from ..exchange.httpx_values import httpx
from ..exchange.operations import operation_of, take_name
from ..questions.shapes import is_value
from ..redaction.personal import count_personal
from ..redaction.suspects import credentials_in
from ..sessions.current import replaying_session
from ..sessions.session import open_recording

_TOP = '''\
"""First tests: replace `directmail.get` by the code that you test.

`directmail-lab cassette test` made them from what was recorded.
"""

import pytest

pytestmark = pytest.mark.directmail(cassette={name})


{fields}'''

_WHY = "They are no GET, 5xx, 429, not whole, or private by their address."
_MOST_FIELDS = 500
# After the path of a field: a field in it, its elements or its type.
_INNER = re.compile(r"\.|\[\]|: ")
_WIDTH = 88
"""The longest line that ruff leaves as it is."""


def fields(body: object, path: str = "") -> set[str]:
    """Return the fields of a JSON body, with their types: "[].id: str"."""
    kind = "number" if type(body) in (int, float) else type(body).__name__
    inner = [] if body is None else [{f"{path}: {kind}"}]
    if isinstance(body, dict):
        inner = [fields(body[key], f"{path}.{key}".removeprefix(".")) for key in body]
    if isinstance(body, list):
        inner = [fields(each, f"{path}[]") for each in body]
    return {path}.union(*inner)


def first_tests(recording: FileRecording, name: str) -> str:
    """Return a file with a test for each path that was read, and for each status that it had.

    The file contains no value of a body. ``name`` is what the tests call the cassette.
    """
    parts = [_TOP.format(name=_literal(name), fields=inspect.getsource(fields))]
    left_out = []
    seen: set[Hashable] = set()
    taken: dict[str, int] = {}
    with replaying_session(recording) as session:
        open_recording(session, recording, record_mode="none", repeat="strict")
        for number, each in enumerate(recording, 1):
            request = each.request
            form = Matching().form(request)
            if form in seen:
                continue  # a replay plays an earlier response first
            seen.add(form)
            target = request.uri.removeprefix(recording.base_url or "")
            response = None
            if request.method == "GET" and not _is_private(target):
                with suppress(DirectMailLabError, httpx.RequestError):
                    response = session.get(target)
            if response is None or response.status_code >= 500 or response.status_code == 429:
                left_out.append(number)
                continue
            operation = operation_of(recording.path_of(request)), response.status_code
            if operation not in seen:
                seen.add(operation)
                words = re.findall(r"\w+", "test get {} {}".format(*operation).lower(), re.ASCII)
                parts.append(_test(take_name("_".join(words), taken), target, response))
    if left_out:
        parts.append(f"# Left out: interactions {ranges(left_out)}. {_WHY}\n")
    return "\n\n".join(parts)


def _test(name: str, target: str, response: httpx.Response) -> str:
    call = f"    response = directmail.get({_literal(target)})"
    if len(call) > _WIDTH:
        call = _in_lines("    response = directmail.get(", [target], ")")
    lines = [f"def {name}(directmail):", call]
    lines.append(f"    assert response.status_code == {response.status_code}")
    wanted = list(islice(_worth_keeping(response), _MOST_FIELDS))
    if len(wanted) == _MOST_FIELDS:
        lines.append(f"    # The first {_MOST_FIELDS} fields:")
    if wanted:
        lines.append(_in_lines("    assert fields(response.json()) >= {", wanted, "}"))
    return "\n".join([*lines, ""])


def _in_lines(start: str, texts: list[str], end: str) -> str:
    return "\n".join([start, *(f"        {_literal(each)}," for each in texts), f"    {end}"])


def _literal(text: str) -> str:
    """Return a text as Python code, in the quotes that ruff prefers."""
    code = repr(text)
    return code if '"' in code else f'"{code[1:-1]}"'


def _worth_keeping(response: httpx.Response) -> Iterator[str]:
    """Yield the fields of a body with their types; without, if they are null or empty.

    A field whose name is a value, such as an id, is left out.
    """
    try:
        found = fields(response.json())
    except (RecursionError, ValueError):
        return
    around = {each[: end.start()] for each in found for end in _INNER.finditer(each)}
    for each in sorted(found - around - {""}):
        if not (any(map(is_value, filter(None, _INNER.split(each)))) or _is_private(each)):
            yield each


def _is_private(text: str) -> bool:
    return bool(count_personal([], [text])) or any(credentials_in(text))
