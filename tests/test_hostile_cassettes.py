"""Cassettes from a stranger, or damaged by hand: whatever is in them, only our errors appear.

The tests replace each value of a cassette in each layout by many odd values, and pass the result to
everything that reads a cassette.
"""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cassette_samples import BASE_URL

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.convert import convert, redact, repair
from directmail_lab.share.audit import audit
from directmail_lab.share.cassette_page import make_page

# The number of changed cassettes to try, drawn at random from about 5,000. With
# DIRECTMAIL_TEST_HOSTILE=all, each is tried.
TRIED = None if os.environ.get("DIRECTMAIL_TEST_HOSTILE") else 60

LIMITS = {"X-RateLimit-Limit": ["300"], "X-RateLimit-Remaining": ["299"]}
INTERACTION = {
    "recorded_at": "2026-11-21T12:00:00Z",
    "elapsed_s": 0.25,
    "request": {
        "method": "GET",
        "uri": f"{BASE_URL}/v1/users/me?a=1",
        "body": "{}",
        "headers": {"Accept": ["*/*"], "Content-Type": ["application/json"]},
    },
    "response": {
        "status": {"code": 200, "message": "OK"},
        "headers": {"Content-Type": ["application/json"], **LIMITS, "X-RateLimit-Reset": ["42"]},
        "body": {"string": '{"id": 1, "email": "joe@corp.com"}'},
    },
}
ABOUT = {"base_url": BASE_URL, "started_at": "2026-11-21T12:00:00Z", "redact": ["personal"]}
ENTRY = {
    "startedDateTime": "2026-11-21T12:00:00Z",
    "time": 250,
    "_elapsed_s": 0.25,
    "_recorded_at": "2026-11-21T12:00:00Z",
    "request": {
        "method": "POST",
        "url": f"{BASE_URL}/v1/users/me",
        "headers": [{"name": "Accept", "value": "*/*"}],
        "queryString": [{"name": "a", "value": "1"}],
        "postData": {"mimeType": "text/plain", "text": "a", "params": [], "_encoding": ""},
    },
    "response": {
        "status": 200,
        "statusText": "OK",
        "headers": [{"name": "Content-Encoding", "value": "gzip"}],
        "content": {"mimeType": "application/json", "text": "e30=", "encoding": "base64"},
    },
}
DEEP = "[" * 500 + "]" * 500
ODD_JSON = [
    *("null", "true", "0", "-1", "7", "1e999", "NaN", "Infinity", "9" * 5000, '""', '"\\ud800"'),
    *('"http://[::1"', '"http://x:99999999/"', '"//["', '"a\\u0000b"', '"\\u0001 \\u0080é"', '"%"'),
    *('"0001-01-01T00:00:00+23:59"', '"9999-12-31T23:59:59-23:59"', '"1492-10-12T00:00:00Z"'),
    *("[]", "{}", "[[1]]", '{"a": {"b": [null]}}', '[{"name": 1}]', DEEP, '"' + "x" * 70_000 + '"'),
    *('"base64"', '"idna"', '"application/json; charset=undefined"', '"Basic !"', '"multipart/x"'),
]
ODD_YAML = [
    "1" + ":10" * 5000,
    *""".inf|.nan|-.5|0x1F|1_000|1:30:00|2026-11-21|~|=|<<|80000000000|0001-01-01T00:00:00+23:59
9999-99-99|2026-11-21T00:00:00+99:99|!!binary gA==|!!binary x|!!set {a}|!!omap [a]|!x y
!!python/tuple [a]|!!python/object/new:_io.BytesIO {state: 7}|!!python/name:os.system
!!python/object/apply:builtins.iter {args: [7]}|!!int a|!!float a|!!timestamp a|!!bool a
&a [*a]|&a {a: *a}|*b|{? [a] : b}|{<<: [a]}""".replace("\n", "|").split("|"),
]


def changed(document: Any, odd: list[str]) -> Iterator[str]:
    """Yield JSON-like text of the document with one value removed or replaced."""
    for place in places(document):
        for value in (*odd, None):
            copy = json.loads(json.dumps(document))
            parent = copy
            for step in place[:-1]:
                parent = parent[step]
            if value is None:
                del parent[place[-1]]
            else:
                parent[place[-1]] = "@here@"
            yield json.dumps(copy).replace('"@here@"', value or "")


def places(value: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    if above:
        yield above
    if isinstance(value, dict | list):
        for step in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[step], *above, step)


def in_lines() -> Iterator[str]:
    """Yield cassettes in our layout: one changed interaction between two intact ones."""
    whole = "- " + "\n  ".join(f"{name}: {json.dumps(INTERACTION[name])}" for name in INTERACTION)
    head = f"version: 1\nrecording: {json.dumps(ABOUT)}\ninteractions:\n"
    for name, value in INTERACTION.items():
        for text in changed({name: value}, [*ODD_JSON, *ODD_YAML]):
            line = f"{name}: {text[len(name) + 5 : -1]}" if len(text) > 2 else "note: gone"
            yield f"{head}{whole}\n{whole.replace(f'{name}: {json.dumps(value)}', line)}\n{whole}\n"
    for text in changed(ABOUT, [*ODD_JSON, *ODD_YAML]):
        yield f"version: 1\nrecording: {text}\ninteractions:\n{whole}\n"


def in_yaml() -> Iterator[str]:
    document = {"version": 1, "recording": ABOUT, "interactions": [INTERACTION]}
    for text in changed(document, [*ODD_JSON, *ODD_YAML]):
        yield f"# not JSON\n{text}\n"


def in_json() -> Iterator[str]:
    yield from changed({"version": 1, "metadata": ABOUT, "interactions": [INTERACTION]}, ODD_JSON)


def in_har() -> Iterator[str]:
    yield from changed({"log": {"version": "1.2", "entries": [ENTRY]}}, ODD_JSON)


def replayed(path: Path) -> None:
    with dm.replay(path):
        dm.get("/v1/users/me", params={"a": "1"})
        dm.me()


def page_of(path: Path) -> None:
    recording = read_cassette(path)
    make_page(recording, list(recording))


ENTRY_POINTS: dict[str, Callable[[Path], object]] = {
    "interactions": dm.interactions,
    "rate_limits": dm.rate_limits,
    "show": lambda path: repr(dm.interactions(path, number=2)),
    "replay": replayed,
    "convert": lambda path: convert(path, Path("to.yaml")),
    "repair": repair,
    "drift": dm.drift,
    "redact": lambda path: redact(path, ["personal"]),
    "audit": audit,
    "page": page_of,
}
LAYOUTS = {"yaml": in_lines, "yml": in_yaml, "json": in_json, "har": in_har}


def failures(layout: str, entry_points: list[str], most: int | None) -> tuple[int, list[str]]:
    """Return the number of attempts, and those that end neither in a result nor in our error."""
    files = list(LAYOUTS[layout]())
    if most is not None:
        files = random.Random(20261121).sample(files, most)
    tried, found = 0, []
    for text in files:
        path = Path(f"odd.{layout}")
        for name in entry_points:
            path.write_text(text, encoding="utf-8")
            tried += 1
            try:
                ENTRY_POINTS[name](path)
            # A server may close the connection on an odd request.
            except (dm.DirectMailLabError, httpx.TransportError):
                pass
            except Exception as error:
                found.append(f"{name}: {type(error).__name__}: {str(error)[:80]} in {text[-300:]}")
    return tried, found


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_odd_value_in_a_cassette_gives_a_result_or_our_error(layout, connected):
    names = [name for name in ENTRY_POINTS if layout != "har" or name == "convert"]
    tried, found = failures(layout, names, TRIED)

    assert tried > 50
    assert found == []
