"""What a stranger's text costs grows as its length does, whatever it repeats.

A search keeps Python's global lock, so a slow pattern would block JupyterLab's server.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest

from directmail_lab.cassettes.files import parse_cassette
from directmail_lab.cassettes.layout import header_text, interaction_text
from directmail_lab.errors import CassetteFormatError
from directmail_lab.exchange.bodies import read_multipart
from directmail_lab.exchange.values import Response
from directmail_lab.redaction import Redactor
from directmail_lab.redaction.personal import count_personal
from directmail_lab.redaction.suspects import credentials_in, texts_of
from directmail_lab.server.rewriting import origins_of, to_client

KEY = "8fK2+/x1"

# Texts that once made a pattern slow, or might.
SEEDS = (
    *('; name="x"', '; name="', '; name="x"\r\nA: b\r\n', '"password": "'),
    *('\\"password\\":\\"', "- recorded_at: ", "://a:b", "a@", "1.1.", "+31 6", "%41%", "\\\\"),
    *('"a" :', "name=", "'a', \"", "'a', '", "key: ", " \t", "\r\n", "a", "0", "/", "&#x0"),
    *("token",),
)


def cassette_of(body: str) -> bytes:
    """Return a vcrpy cassette with this text in its request and its response."""
    headers = {"X-Text": [" ".join(body[:4000].split())]}
    request = {"method": "POST", "uri": "https://a.test/", "body": body, "headers": headers}
    status = {"code": 200, "message": "OK"}
    response = {"status": status, "headers": headers, "body": {"string": body}}
    entry = {"request": request, "response": response}
    return json.dumps({"version": 1, "interactions": [entry]}).encode()


def open_and_redact(text: str) -> None:
    redactor = Redactor([KEY], redact=["personal"])
    for interaction in parse_cassette(cassette_of(text), Path("stranger.json")):
        redactor.interaction(interaction)
        redactor.redacted_text(interaction, interaction_text)
        count_personal(texts_of(interaction))


def open_torn(text: str) -> None:
    with suppress(CassetteFormatError):
        parse_cassette((header_text({}) + text).encode(), Path("torn.yaml"))


def search_for_credentials(text: str) -> None:
    list(credentials_in(text))


def read_form(text: str) -> None:
    read_multipart(f"--x\r\nContent-Disposition: {text}".encode())


def rewrite(text: str) -> None:
    headers = (("Content-Type", "application/json"), ("Link", text[:4000]))
    response = Response(200, "OK", headers, text.encode())
    to_client(response, origins_of(["https://b/c", "https://d/"]), "http://a")


READERS = (open_and_redact, open_torn, search_for_credentials, read_form, rewrite)


# Linear takes one or two CPU seconds, quadratic minutes.
_CHARACTERS = 300_000
_LIMIT_S = 20


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_text_takes_linear_time(read, seed):
    """The text repeats what once made a pattern slow."""
    text = seed * (_CHARACTERS // len(seed))
    started_s = time.process_time()
    read(text)

    assert time.process_time() - started_s < _LIMIT_S
