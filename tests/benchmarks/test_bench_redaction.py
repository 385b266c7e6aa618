"""What redaction costs for a megabyte of usual input, and of the worst inputs known.

A careless redactor takes time that is quadratic in the size of each of the worst inputs.
"""

import json
import random
import time

import pytest

from directmail_lab.exchange.values import Interaction, Request, Response
from directmail_lab.redaction import Redactor

pytestmark = pytest.mark.benchmark(timer=time.process_time)

KEY = "dm_live_8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
SIZE = 1_000_000
AT_MOST_S = {(): 0.2, ("personal",): 2.0}
PERSON = {"name": "Ada %d", "email": "a%d@corp.com", "address": {"city": "Ede", "zip": "%d"}}


def over(text: str, *, start: str = "") -> str:
    return start + text * (SIZE // len(text))


def each(text: str) -> str:
    """Return repetitions of a text, each with another number in it."""
    return " ".join(text.replace("%d", f"{number:05}") for number in range(70_000))


INPUTS: dict[str, str | bytes] = {
    "backslashes": over("\\"),
    "escapes": over("%41"),
    "zeros in an entity": over("0", start="&#"),
    "brackets": over("["),
    "nested objects": over('{"a":'),
    "quotes": over('"'),
    "escaped quotes": over('\\"', start='"'),
    "a torn string": over("a\\n", start='["'),
    "short strings": over('"hello",', start="["),
    "fields": over('"a":1,', start="{"),
    "a form": over("a=b&"),
    "a form of named fields": over("name=b&"),
    "at signs": over("a@"),
    "e-mail addresses": each("u%d@b.nl"),
    "telephone numbers": each("+3161234%d"),
    "almost telephone numbers": over("+1 2 3 4 "),
    "api_key": over('"api_key'),
    "a password": over('password="'),
    "keys": over("key="),
    "parts of a form": over('Content-Disposition: ; name="a"\r\n', start="--\r\n"),
    "JSON in JSON": json.dumps(json.dumps(["joe@x.com", "a"] * 30_000)),
    "the key": over(f"{KEY} "),
    "the key in JSON": json.dumps([KEY] * (SIZE // 40)),
    "the key once": over("word ") + KEY,
    "half of the key": over(KEY[:7] + " "),
    "any bytes": random.Random(1).randbytes(SIZE),
    "people": json.dumps(
        [json.loads(json.dumps(PERSON).replace("%d", str(n))) for n in range(9000)]
    ),
}


@pytest.mark.parametrize("redact", [(), ("personal",)], ids=["the key", "personal data"])
@pytest.mark.parametrize("name", INPUTS)
def test_redaction_of_a_megabyte(benchmark, name, redact):
    """The time limit applies to any response body, with and without personal data."""
    given = INPUTS[name]
    body = given if isinstance(given, bytes) else given.encode()
    exchange = Interaction(Request("GET", "/"), Response(200, "", (), body))
    redactor = Redactor([KEY], redact=redact)
    benchmark.group = f"redaction, s for a megabyte (at most {AT_MOST_S[redact]})"
    benchmark.extra_info["at_most_s"] = AT_MOST_S[redact] * len(body) / SIZE
    benchmark.pedantic(redactor.interaction, [exchange], rounds=3)
