"""The audit finds keys and personal data, says where, shows none of it, and seldom cries wolf."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING

import pytest
from key_search import traces

from directmail_lab.errors import DirectMailLabError
from directmail_lab.redaction.key_search import KeySearch
from directmail_lab.sharing.audit import Finding, Part, audit_cassette, audit_notebook, find
from directmail_lab.standin import STAND_IN_KEY

if TYPE_CHECKING:
    from pathlib import Path

# Put together here, so that no scanner takes this file for a leak.
KEY = "dm_" + "live_" + "8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
BASIC = "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()

ODD = "hk_8fK2xQ9zLr7TtVb3nW"

IN_PLACE_OF_A_KEY = [
    "dm.connect(url, '¤')",
    'connect(\n    os.environ.get("URL"),\n    "¤",\n)',
    "dm.connect('https://api.test', api_key='¤')",
    "dm.Session(url, ApiKey('¤'))",
    "dm.login(key='¤')",
    "KEY = '¤'",
    "MY_KEY: Final = '¤'",
    "token: str = f'¤'",
    "{'key': '¤', 'n': 1}",
    '{\\"auth_token\\": \\"¤\\"}',
    "{&#x27;key&#x27;: &#x27;¤&#x27;}",
    "os.environ['DIRECTMAIL_API_KEY'] = '¤'",
    "monkeypatch.setenv('DIRECTMAIL_API_KEY', '¤')",
    "%env DIRECTMAIL_API_KEY ¤",
    "!export DIRECTMAIL_API_KEY=¤",
    "auth=('¤', '')",
    "auth=httpx.BasicAuth('¤', '')",
    "password: ¤",
    "https://¤@api.test/v1",
    "<th>name</th><th>key</th></tr><tr><td>a</td><td>¤</td>",
]


def audit_text(text: str, *secrets: str) -> list[Finding]:
    return find([Part("here", text)], KeySearch(secrets))


SECRETS = [
    KEY,
    BASIC,
    '"Authorization": ["' + BASIC + '"]',
    "Basic " + base64.b64encode(b"joe:hunter2").decode(),
    "https://api.test/v1?api_key=3f9a77c1",
    '{\\"api_key\\": \\"3f9a77c1e2\\"}',
    'dm.connect(api_key="3f9a77c1e2")',
    "password = 'hunter2-hunter2'",
    "https://joe:hunter2@api.test/",
    "Bearer 3f9a77c1e2d84b0fa1",
    "-----BEGIN RSA " + "PRIVATE KEY-----",
    "ghp_" + "a1B2" * 9,
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "test_" + "0123456789abcdef" * 2,
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    *(form.replace("¤", ODD) for form in IN_PLACE_OF_A_KEY),
]

SOUND = [
    "",
    "Authorization: Basic <API_KEY>",
    "Basic " + base64.b64encode(b"<API_KEY>:").decode(),
    "Basic " + base64.b64encode(f"{STAND_IN_KEY}:".encode()).decode(),
    "basic authentication, basic understanding of it",
    f"connect(api_key='{STAND_IN_KEY}')",
    'connect(api_key="your-api-key-1234567890")',
    'connect(api_key=os.environ["DIRECTMAIL_API_KEY"])',
    'api_key = "…"',
    "/v1?api_key=<API_KEY>&a=1",
    "https://<API_KEY>@api.test/",
    "secret_santa_is_a_word, live_chart, test_that_it_works_when_called_twice",
    "joe@example.com, ann@mail.test, x@y.invalid, git@github.com:a/b",
    "person-1a2b3c4d@example.invalid called +999255945577",
    "2026-11-21T04:00:00.123456Z 8f14e45f-ceea-467f-9575-6a1b1c1f5a3e 1763697600123",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "@property and @dataclass(frozen=True)",
    "Authorization: Bearer TOKEN, Bearer <token>, Bearer YOUR_ACCESS_TOKEN_HERE",
    "next_page_token='c2VjcmV0LXRva2VuLTEyMzQ1Njc4OTA', idempotency_key: '8f14e45f-ceea-467f-9575'",
    "dm.connect('https://api.example.test/eu1', key, cassette='tour-2026-11-21')",
    "key = os.environ['KEY_8fK2xQ9zLr7T']; token = response1.headers2",
    "{'key': 'first-look-2', 'author': 'j8K2xQ9zLr7TtVb3', 'monkey': 'a1b2c3d4e5f6a7b8'}",
    "connect(address, 'my-api-key')",
    "sqlite3.connect('recordings-2026-11-21.db')",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_found_and_not_repeated(text: str) -> None:
    """Whatever shape it has, the finding tells its place and nothing of it."""
    found = audit_text(f"before {text} after")

    assert [finding.kind for finding in found if finding.kind == "secret"] != []
    assert all(finding.where == "here" for finding in found)
    assert "8fK2" not in "".join(map(str, found))
    assert "hunter2" not in "".join(map(str, found))
    assert traces("".join(map(repr, found)).encode(), KEY) == []


@pytest.mark.parametrize("text", SOUND)
def test_what_may_be_shared_passes(text: str) -> None:
    """Placeholders, the stand-in's values, examples, words, dates and digests."""
    assert audit_text(text) == []


@pytest.mark.parametrize("digit", "09")
def test_an_entity_of_thousands_of_digits_is_read(digit: str) -> None:
    """Python refuses to read such a number; a stranger's page may hold one, and a key behind it."""
    hidden = f"&#{digit * 5000}; api_key=&quot;{'&#0' * 9}107;8Fq2Zx71Lm09Tb&quot;"

    assert [finding.kind for finding in audit_text(hidden)] == ["secret"]


def test_personal_data_is_found() -> None:
    """Each kind once, however often it occurs."""
    assert audit_text("joe@corp.com ann@corp.com +31 6 1234 5678") == [
        Finding("personal", "an e-mail address", "here"),
        Finding("personal", "a telephone number", "here"),
    ]


def test_a_known_key_is_found_in_any_form() -> None:
    """One that looks like no key at all, too."""
    text = base64.b64encode(b"xx quite-an-ordinary-word").decode()

    assert audit_text(text) == []
    assert audit_text(text, "quite-an-ordinary-word") == [Finding("secret", "your API key", "here")]


def cassette(path: Path, **changes: object) -> Path:
    """Write a cassette of one interaction in vcrpy's JSON layout."""
    request = {"method": "GET", "uri": "https://api.test/v1/users/me", "body": "", "headers": {}}
    response = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": "{}"}}
    whole = {"request": request, "response": response}
    for name, value in changes.items():
        side, _, field = name.partition("_")
        whole[side][field] = value  # type: ignore[index]
    path.write_text(json.dumps({"version": 1, "interactions": [whole]}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"request_uri": f"https://api.test/{KEY}"}, "address"),
        ({"request_headers": {"Authorization": [BASIC]}}, "request header Authorization"),
        ({"request_headers": {"X-Trace": [KEY]}}, "request header X-Trace"),
        ({"response_headers": {"Set-Cookie": ["s=1"]}}, "response header Set-Cookie"),
        ({"request_body": f"a={KEY}"}, "request body"),
        ({"response_body": {"string": f'{{"k": "{KEY}"}}'}}, "response body"),
        ({"request_headers": {"Authorization": ["Basic <API_KEY>"]}}, ""),
    ],
)
def test_a_cassette_is_searched_in_every_part(
    tmp_path: Path, changes: dict[str, object], place: str
) -> None:
    """The finding names the interaction and the part; with a placeholder it may be shared."""
    path = cassette(tmp_path / "tour.json", **changes)
    places = [f"{path}, interaction 1, {place}"] if place else []

    assert [finding.where for finding in audit_cassette(path)] == places


def test_personal_fields_of_a_body_are_found_as_redaction_finds_them(tmp_path: Path) -> None:
    """By the names of fields too, and in compressed bodies; chance bytes are no e-mail address."""
    body = gzip.compress(b'{"first_name": "Joe", "iban": "NL91ABNA0417164300"}')
    packed = {"response_body": {"string": body.hex()}}
    path = cassette(tmp_path / "tour.yaml", **packed)
    binary = f'!!binary "{base64.b64encode(body).decode()}"'
    path.write_text(path.read_text().replace(f'"{body.hex()}"', binary))
    noise = cassette(tmp_path / "noise.yaml", response_body={"string": "@@"})
    chance = base64.b64encode(b"\xff\xfe a@corp.com \x81").decode()
    noise.write_text(noise.read_text().replace('"@@"', f'!!binary "{chance}"'))

    assert [each.what for each in audit_cassette(path)] == ["a name", "a bank account"]
    assert audit_cassette(noise) == []


def test_a_file_that_is_no_cassette_is_searched_by_line(tmp_path: Path) -> None:
    """A HAR file or a torn one is shared as text, so it is audited as text."""
    path = tmp_path / "saved.har"
    path.write_text(f'{{"log": {{\n"x": "{BASIC}"}}}}', encoding="utf-8")

    assert {finding.where for finding in audit_cassette(path)} == {f"{path}, line 2"}


def notebook(path: Path, **cell: object) -> Path:
    """Write a notebook of one cell."""
    text = {"cells": [{"cell_type": "code", **cell}], "metadata": {}, "nbformat": 4}
    path.write_text(json.dumps(text), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("cell", "part"),
    [
        ({"source": ["import os\n", f'key = "{KEY}"']}, "source"),
        ({"source": ["dm.connect(api_key=", '"3f9a77c1e2")']}, "source"),
        ({"outputs": [{"output_type": "stream", "text": [KEY]}]}, "outputs"),
        ({"outputs": [{"data": {"text/html": ["<td>", KEY, "</td>"]}}]}, "outputs"),
        ({"outputs": [{"traceback": [f"auth = {BASIC}"]}]}, "outputs"),
        ({"metadata": {"state": {"password": "hunter2-hunter2"}}}, "metadata"),
        # Pictures are no text: their base64 is not searched for look-alikes.
        ({"outputs": [{"data": {"image/png": "AKIA" + "A" * 16, "text/plain": "7"}}]}, ""),
    ],
)
def test_a_notebook_is_searched_in_every_part(
    tmp_path: Path, cell: dict[str, object], part: str
) -> None:
    """Sources, every kind of output, tracebacks and the state that widgets leave."""
    path = notebook(tmp_path / "tour.ipynb", **cell)
    places = {f"{path}, cell 1, {part}"} if part else set()

    assert {finding.where for finding in audit_notebook(path)} == places


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, None])
def test_what_is_no_notebook_is_an_error(tmp_path: Path, text: str | None) -> None:
    """Ours, that says what to do."""
    path = tmp_path / "a.ipynb"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(DirectMailLabError, match=r"not a notebook|cannot be read"):
        audit_notebook(path)
