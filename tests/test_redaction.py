"""The key is removed in whatever form it comes, and nothing else is touched."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import pickle
import traceback
import zlib
from dataclasses import astuple
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from key_search import planted, traces

from directmail_lab.errors import CassetteError, CredentialError
from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse
from directmail_lab.redaction import PLACEHOLDER, Redactor
from directmail_lab.redaction.secret_forms import ALL_RULES

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "dm_live_8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
CREDENTIAL = base64.b64encode(f"{KEY}:".encode()).decode()
PRINTABLE = "".join(chr(code) for code in range(33, 127) if chr(code) != ":")

keys = st.text(PRINTABLE, min_size=8, max_size=60).filter(
    lambda key: not traces(PLACEHOLDER.encode(), key) and "stand-in" not in key.lower()
)
words = st.text(max_size=40)


def some_of(key: str, how: Callable[[str], str], data: st.DataObject) -> str:
    """Return a key with a random choice of its characters escaped, and all that have to be."""
    must = set("%\\\"&/+=<>'")
    return "".join(how(c) if c in must or data.draw(st.booleans()) else c for c in key)


def percent(key: str, data: st.DataObject) -> str:
    return some_of(key, lambda c: data.draw(st.sampled_from(("%%%02x", "%%%02X"))) % ord(c), data)


def as_json(key: str, data: st.DataObject) -> str:
    return some_of(key, lambda c: data.draw(st.sampled_from(("\\u%04x", "\\u%04X"))) % ord(c), data)


def entities(key: str, data: st.DataObject) -> str:
    return some_of(key, lambda c: data.draw(st.sampled_from(("&#%d;", "&#x%x;"))) % ord(c), data)


def in_base64(key: str, data: st.DataObject) -> str:
    around = st.binary(max_size=9)
    encode = data.draw(st.sampled_from((base64.b64encode, base64.urlsafe_b64encode)))
    return encode(data.draw(around) + key.encode() + data.draw(around)).decode()


def in_hex(key: str, data: st.DataObject) -> str:
    digits = key.encode().hex()
    return digits.upper() if data.draw(st.booleans()) else digits


def as_it_is(key: str, data: st.DataObject) -> str:
    return key


def in_other_case(key: str, data: st.DataObject) -> str:
    return data.draw(st.sampled_from((key.upper(), key.lower(), key.swapcase())))


INNER = (as_it_is, percent, as_json, entities, in_base64, in_hex)
OUTER = (*INNER, in_other_case)


@given(key=keys, before=words, after=words, data=st.data())
@settings(max_examples=400, deadline=None)
def test_nothing_of_any_key_is_left_in_any_form_at_any_place(
    key: str, before: str, after: str, data: st.DataObject
) -> None:
    """Any key, escaped in one way and then perhaps in another, is gone from any text."""
    form = data.draw(st.sampled_from(INNER))(key, data)
    form = data.draw(st.sampled_from(OUTER))(form, data)
    redacted = Redactor([key]).text(before + form + after)

    assert traces(redacted.encode("utf-8", "surrogatepass"), key) == []


@given(key=keys, text=st.text(max_size=300))
@example(key="stand-in-key-0123456789", text='{"name": "stand-in", "id": "st%61nd-in-2"}')
@settings(max_examples=300, deadline=None)
def test_a_text_without_the_key_stays_as_it_is(key: str, text: str) -> None:
    """Escapes, quotes and look-alikes of other things are returned byte for byte."""
    assume("stand-in" in key or not traces(text.encode("utf-8", "surrogatepass"), key))
    assume("@" not in text)

    assert Redactor([key]).text(text) == text


@given(body=st.binary(max_size=300))
def test_a_body_without_the_key_stays_as_it_is(body: bytes) -> None:
    """Bytes that are no text, or look compressed, are returned as they came."""
    assume(b"@" not in body)
    response = RecordedResponse(200, "OK", (("Content-Encoding", "deflate"),), body)

    assert Redactor([KEY]).response(response) == response


@pytest.mark.parametrize("size", [8, 9, 15, len(KEY)])
@pytest.mark.parametrize("start", [0, 3, 11, len(KEY) - 8])
def test_any_eight_characters_in_a_row_are_removed(start: int, size: int) -> None:
    """A cut or masked echo of the key leaves nothing of it either."""
    piece = KEY[start : start + size]

    assert Redactor([KEY]).text(f"the key ***{piece}*** is unknown") == (
        f"the key ***{PLACEHOLDER}*** is unknown"
    )


@pytest.mark.parametrize("rule", planted(KEY))
def test_each_rule_removes_what_no_other_would(rule: str) -> None:
    """With one rule off the key stays in the form that the rule is for; with all, in none."""
    body = b'{"error": "' + planted(KEY)[rule] + b'"}'
    if rule == "packed":
        body = planted(KEY)[rule]
    response = RecordedResponse(401, "", (), body)

    assert traces(Redactor([KEY]).response(response).body, KEY) == []
    without = Redactor([KEY], rules=ALL_RULES - {rule})
    assert traces(without.response(response).body, KEY) != []


def exchange(form: str) -> Interaction:
    """Return an exchange with ``form`` everywhere that text can be."""
    request = RecordedRequest(
        "POST",
        f"https://u:{form}@api.example.com/v1/{form}/x?q={form}#{form}",
        (("Authorization", f"Basic {CREDENTIAL}"), (f"X-{form}", form), ("Cookie", "a=b")),
        f"--b\r\nname={form}\r\n\r\n{form}".encode(),
    )
    response = RecordedResponse(
        401,
        f"No {form}",
        (("Location", f"/login?key={form}"), ("Set-Cookie", "s=1"), ("X-Echo", f"a {form} b")),
        f'{{"error": "no such key: {form}"}}'.encode(),
    )
    return Interaction(request, response)


@pytest.mark.parametrize("form", [KEY, CREDENTIAL, KEY.encode().hex(), KEY.replace("_", "%5f")])
def test_the_key_is_removed_from_every_part_of_an_exchange(form: str) -> None:
    """Path, query, fragment, header names and values, bodies and the reason: nothing is left."""
    redacted = Redactor([KEY]).interaction(exchange(form))

    assert traces(repr(astuple(redacted)).encode(), KEY) == []
    assert redacted.response.body == b'{"error": "no such key: <API_KEY>"}'


def test_credentials_and_cookies_are_dropped_whether_a_key_is_known_or_not() -> None:
    """A replay has no key, and must still write none that comes by."""
    redacted = Redactor().interaction(exchange("x"))

    assert [name for name, _ in redacted.request.headers] == ["X-x"]
    assert [name for name, _ in redacted.response.headers] == ["Location", "X-Echo"]


@pytest.mark.parametrize(
    ("uri", "redacted"),
    [
        ("https://a.test/x?api_key=s3cret&b=1", "https://a.test/x?api_key=<API_KEY>&b=1"),
        ("https://a.test/x?b=1&API-KEY=s3cret", "https://a.test/x?b=1&API-KEY=<API_KEY>"),
        ("https://a.test/x?api%5Fkey=s3%26cret#f", "https://a.test/x?api%5Fkey=<API_KEY>#f"),
        ("https://a.test/x?apikey=%3CAPI_KEY%3E", "https://a.test/x?apikey=<API_KEY>"),
        ("https://me:pw@a.test/x", "https://<API_KEY>@a.test/x"),
        ("https://a.test/x?monkey=1&key=2", "https://a.test/x?monkey=1&key=2"),
    ],
)
def test_an_api_key_parameter_is_removed_by_its_name(uri: str, redacted: str) -> None:
    """The value goes although no key is known; other parameters stay; twice is as once."""
    redactor = Redactor()
    once = redactor.request(RecordedRequest("GET", uri))

    assert once.uri == redacted
    assert redactor.request(once) == once


def test_an_api_key_is_removed_by_name_from_links_and_json_too() -> None:
    """A service that hands out a key, or a link with one, hands it to no cassette."""
    body = b'{"api_key": "s3cret", "next": "https://a.test/?p=2&api_key=s3cret", "note": "key"}'
    redacted = Redactor().response(RecordedResponse(200, "", (), body))

    assert json.loads(redacted.body) == {
        "api_key": PLACEHOLDER,
        "next": f"https://a.test/?p=2&api_key={PLACEHOLDER}",
        "note": "key",
    }


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("torn", [0, 4])
def test_a_compressed_body_with_the_key_is_kept_unpacked(
    compress: Callable[[bytes], bytes], torn: int
) -> None:
    """The headers are made true to it, also where its end is missing."""
    text = b'{"key": "' + KEY.encode() + b'"}' + b" " * 50
    body = compress(text)
    headers = (("Content-Encoding", "gzip"), ("Content-Length", str(len(body))), ("A", "b"))
    redacted = Redactor([KEY]).response(RecordedResponse(200, "", headers, body[: -torn or None]))

    assert redacted.body.startswith(b'{"key": "<API_KEY>"}')
    assert redacted.headers == (("Content-Length", str(len(redacted.body))), ("A", "b"))


def test_a_compressed_part_inside_a_body_is_looked_into() -> None:
    """A form's compressed file is cut off from where it begins."""
    body = b"--b\r\n\r\n" + gzip.compress(KEY.encode()) + b"\r\n--b--"

    assert Redactor([KEY]).request(RecordedRequest("POST", "/", (), body)).body == (
        b"--b\r\n\r\n<API_KEY>"
    )


def test_a_body_in_a_coding_that_cannot_be_undone_here_is_refused() -> None:
    """Where br may hide the key and no library can tell, nothing is written."""
    response = RecordedResponse(200, "", (("Content-Encoding", "br"),), b"\x0b\x02\x80\xff\xfe\x03")
    try:
        import brotli  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("brotli is installed")

    with pytest.raises(CassetteError, match="compressed with br"):
        Redactor([KEY]).response(response)


def test_a_body_that_httpx_has_decoded_is_read_although_its_header_says_br() -> None:
    """The header stays on a decoded body, and text is never refused for it."""
    headers = (("Content-Encoding", "br"),)
    response = RecordedResponse(200, "", headers, f"Zoë, your key is {KEY}".encode())

    assert Redactor([KEY]).response(response).body == f"Zoë, your key is {PLACEHOLDER}".encode()


def test_utf_16_stays_utf_16() -> None:
    """The placeholder is spaced out as the key was."""
    body = f"key {KEY}!".encode("utf-16-le")
    redacted = Redactor([KEY]).response(RecordedResponse(200, "", (), body))

    assert redacted.body.decode("utf-16-le") == f"key {PLACEHOLDER}!"


def test_a_short_key_is_removed_where_it_stands_alone() -> None:
    """A key of a few letters must not take those letters out of every word."""
    redactor = Redactor(["abc"])

    assert redactor.text("abc and /abc/ and YWJjOg== but abcd, cab") == (
        f"{PLACEHOLDER} and /{PLACEHOLDER}/ and {PLACEHOLDER} but abcd, cab"
    )


def test_the_stand_ins_own_name_is_no_part_of_its_key() -> None:
    """Its records say what they are, and its key is gone all the same."""
    redactor = Redactor(["stand-in-key-0123456789"])

    assert redactor.text("stand-in says: stand-in-key-0123456789 in stand-in-2") == (
        f"stand-in says: {PLACEHOLDER} in stand-in-2"
    )


@pytest.mark.parametrize("form", planted(KEY).values(), ids=planted(KEY))
def test_a_leak_is_refused_with_nothing_of_it_in_the_error(form: bytes) -> None:
    """Not in its message, nor in the locals of any frame of its traceback."""
    written = json.dumps({"body": form.decode("latin-1")})
    if form.startswith(b"\x1f\x8b"):
        written = json.dumps({"body": base64.b64encode(form).decode()})
    redactor = Redactor([KEY])
    caught: list[CassetteError] = []
    try:
        redactor.refuse_leak(written)
    except CassetteError as error:
        caught.append(error)

    assert "nothing was written" in str(caught[0])
    inside = traceback.TracebackException.from_exception(caught[0], capture_locals=True)
    for frame in inside.stack[1:]:
        assert traces(repr(frame.locals).encode(), KEY) == []


def test_what_is_redacted_is_never_refused() -> None:
    """The two agree, or recording would stop for no reason."""
    redactor = Redactor([KEY])

    redactor.refuse_leak(repr(astuple(redactor.interaction(exchange(KEY)))))


def test_an_error_while_redacting_shows_no_locals() -> None:
    """What is not text at all fails, without the frames that hold the key."""
    with pytest.raises(TypeError) as caught:
        Redactor([KEY]).text(7)  # type: ignore[arg-type]

    inside = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert traces("".join(inside.format()).replace(f"{KEY!r}", "").encode(), KEY) == []


def test_a_redactor_shows_and_hands_on_nothing() -> None:
    """Its repr is bare, it has no vars, and it is neither pickled nor copied."""
    redactor = Redactor([KEY], redact=["email"])
    shown = [repr(redactor)]
    shown += [repr(getattr(redactor, name)) for name in dir(redactor) if name != "__doc__"]

    assert traces("".join(shown).encode(), KEY) == []
    assert redactor.redact == ("email",)
    for hand_on in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(CredentialError, match="never pickled or copied"):
            hand_on(redactor)  # type: ignore[operator]
    with pytest.raises(TypeError):
        vars(redactor)


@pytest.mark.parametrize("name", ["api_key", "api%5Fkey", "API%2DKEY", "%61pi_key", "apikey"])
def test_an_api_key_parameter_is_masked_however_its_name_is_written(name: str) -> None:
    """Another account's key is none that we know: only its name tells it."""
    request = RecordedRequest("GET", f"https://api.test/v1/users/me?{name}=another-accounts&n=1")
    redacted = Redactor([KEY]).interaction(Interaction(request, RecordedResponse(200)))

    assert "another-accounts" not in redacted.request.uri
    assert redacted.request.uri.endswith("&n=1")


def test_base64_with_digits_of_one_alphabet_alone_is_one_run() -> None:
    """A slash or a plus behind many common digits does not hide what stands before it."""
    key = "0000?00000"
    packed = base64.b64encode(b"\0" * 8 + b"00&#48;&#48;?00000").decode()
    redacted = Redactor([key]).text(packed)

    assert "/" in packed
    assert traces(redacted.encode(), key) == []
