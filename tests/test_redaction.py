"""The key is removed in whatever form it comes, and nothing else is touched."""

from __future__ import annotations

import base64
import copy
import gzip
import html
import json
import pickle
import re
import traceback
import tracemalloc
import zlib
from dataclasses import astuple
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings, strategies as st
from key_search import planted, traces

from directmail_lab.cassettes.layout import interaction_text
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import CassetteError, CredentialError
from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse
from directmail_lab.redaction import PLACEHOLDER, Redactor
from directmail_lab.redaction.key import SHARED, WINDOW
from directmail_lab.redaction.personal import count_personal

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "dm_live_8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
CREDENTIAL = base64.b64encode(f"{KEY}:".encode()).decode()
PRINTABLE = "".join(chr(code) for code in range(33, 127) if chr(code) != ":")

keys = st.text(PRINTABLE, min_size=8, max_size=60).filter(
    lambda key: not traces(PLACEHOLDER.encode(), key)
)
words = st.text(max_size=40)


ESCAPES = ((), ("%%%02x", "%%%02X"), ("\\u%04x", "\\u%04X"), ("&#%d;", "&#x%x;"))


def in_any_form(key: str, data: st.DataObject) -> str:
    """Return a key as text, base64 or hex, in any case, below any two layers of escapes.

    Of its characters a random choice is escaped, and all that have to be.
    """
    around = st.binary(max_size=9)
    encode = data.draw(st.sampled_from((base64.b64encode, base64.urlsafe_b64encode)))
    encodings = (
        lambda: key,
        key.encode().hex,
        lambda: encode(data.draw(around) + key.encode() + data.draw(around)).decode(),
    )
    change_case = data.draw(st.sampled_from((str, str.upper, str.lower, str.swapcase)))
    form: str = change_case(data.draw(st.sampled_from(encodings))())
    for _ in range(2):
        if formats := data.draw(st.sampled_from(ESCAPES)):
            choices = data.draw(st.binary(min_size=len(form), max_size=len(form)))
            form = "".join(
                formats[choice >> 1 & 1] % ord(character)
                if character in "%\\\"&/+=<>'" or choice & 1
                else character
                for character, choice in zip(form, choices, strict=True)
            )
    return form


def written_response(
    body: bytes, *headers: tuple[str, str], redactor: Redactor | None = None
) -> RecordedResponse:
    """Return a response as it is written."""
    response = RecordedResponse(200, "", headers, body)
    exchange = Interaction(RecordedRequest("GET", "/"), response)
    return (redactor or Redactor([KEY])).interaction(exchange).response


@given(key=keys, before=words, after=words, data=st.data())
@settings(max_examples=400)
def test_nothing_of_any_key_is_left_in_any_form_at_any_place(
    key: str, before: str, after: str, data: st.DataObject
) -> None:
    """Any key in any form, in any case, below any two layers of escapes, is gone from any text."""
    redacted = Redactor([key]).text(before + in_any_form(key, data) + after)

    assert traces(redacted.encode("utf-8", "surrogatepass"), key) == []


@given(key=keys, text=st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_a_text_without_the_key_stays_as_it_is(key: str, text: str) -> None:
    """Escapes, quotes and look-alikes of other things are returned byte for byte."""
    assume(not traces(text.encode("utf-8", "surrogatepass"), key))
    assume("@" not in text)

    assert Redactor([key]).text(text) == text


@given(body=st.binary(max_size=300))
def test_a_body_without_the_key_stays_as_it_is(body: bytes) -> None:
    """Bytes that are no text are returned as they came."""
    assume(b"@" not in body and not body.startswith((b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd")))
    headers = ("Content-Type", "image/png")

    assert written_response(body, headers) == RecordedResponse(200, "", (headers,), body)


@pytest.mark.parametrize("size", [8, 9, 15, len(KEY)])
@pytest.mark.parametrize("start", [0, 3, 11, len(KEY) - 8])
def test_any_eight_characters_in_a_row_are_removed(start: int, size: int) -> None:
    """A cut or masked echo of the key leaves nothing of it either."""
    piece = KEY[start : start + size]

    assert Redactor([KEY]).text(f"the key ***{piece}*** is unknown") == (
        f"the key {PLACEHOLDER} is unknown"
    )


json_texts = st.text(max_size=20) | st.sampled_from(
    (
        KEY,
        f"key: {KEY}\n",
        "\\" + KEY,
        "Contact:\njohn@corp.com",
        "zoë@exämple.nl",
        "\\n+31612345678",
    )
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | json_texts,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(json_texts | st.sampled_from(("name", "phone", "a", "address")), inner)
    ),
    max_leaves=20,
)


def shape(text: str) -> object:
    """Return the JSON with a word for each leaf, and of each object the values in order."""

    def shape_of(value: object) -> object:
        if isinstance(value, list):
            return list(map(shape_of, value))
        names = {int: "number", float: "number", bool: "null", type(None): "null"}
        return names.get(type(value), "text")

    return shape_of(json.loads(text, object_pairs_hook=lambda pairs: [v for _, v in pairs]))


def text_of(value: object) -> str:
    """Return all texts of JSON, names included, a line each."""
    if isinstance(value, dict):
        return "\n".join(f"{name}\n{text_of(each)}" for name, each in value.items())
    return "\n".join(map(text_of, value)) if isinstance(value, list) else str(value)


@given(
    value=json_values,
    redact=st.lists(st.sampled_from(("personal", "a", "address.a")), unique=True),
    ascii_only=st.booleans(),
)
@settings(max_examples=300)
def test_redacted_json_is_json_of_the_same_shape(
    value: object, redact: list[str], ascii_only: bool
) -> None:
    """Whatever it holds: no escape is cut in two, no text becomes a number, nothing is lost."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    redactor = Redactor([KEY], redact=redact)
    once = written_response(text.encode(), redactor=redactor).body.decode()

    assert shape(once) == shape(text)
    assert traces(once.encode(), KEY) == []
    if "personal" in redact:
        assert count_personal([text_of(json.loads(once))], by_field=False) == {}
    assert redactor.text(once) == once


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
    redactor = Redactor([KEY])
    redacted = redactor.interaction(exchange(form))
    redactor.refuse_leak(repr(astuple(redacted)))

    assert traces(repr(astuple(redacted)).encode(), KEY) == []
    assert redacted.response.body == b'{"error": "no such key: <API_KEY>"}'


@given(key=keys, place=st.sampled_from(("uri", "header", "body", "reason")), data=st.data())
@settings(max_examples=300, deadline=None)
def test_what_is_written_at_once_is_what_is_redacted_part_by_part(
    key: str, place: str, data: st.DataObject
) -> None:
    """One search of the whole line finds what a search of each part does."""
    form = in_any_form(data.draw(st.sampled_from((key, "a plain text"))), data)
    body = data.draw(st.sampled_from(("", "\0", "\xff"))) + form
    at = dict.fromkeys(("uri", "header", "body", "reason"), "") | {place: form}
    request = RecordedRequest("GET", f"https://a.test/{at['uri']}", (("A", at["header"]),))
    response = RecordedResponse(
        200, at["reason"], (), body.encode("latin-1") if place == "body" else b""
    )
    empty = RecordedRequest("GET", "https://a.test/", (("A", ""),))
    around = interaction_text(Interaction(empty, RecordedResponse(200)))
    assume(not traces(around.encode(), key))
    redactor = Redactor([key])
    written = redactor.redacted_text(Interaction(request, response), interaction_text)

    assert written == interaction_text(redactor.interaction(Interaction(request, response)))
    assert traces(written.encode(), key) == []


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
        ("https://a.test/x?API%2DKEY=s3cret", "https://a.test/x?API%2DKEY=<API_KEY>"),
        ("https://a.test/x?%61pi_key=s3cret&n=1", "https://a.test/x?%61pi_key=<API_KEY>&n=1"),
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

    assert json.loads(written_response(body, redactor=Redactor()).body) == {
        "api_key": PLACEHOLDER,
        "next": f"https://a.test/?p=2&api_key={PLACEHOLDER}",
        "note": "key",
    }


@pytest.mark.parametrize(
    ("compress", "coding"),
    [(gzip.compress, "gzip"), (zlib.compress, "deflate"), (gzip.compress, "")],
)
@pytest.mark.parametrize("torn", [0, 4])
def test_a_compressed_body_with_the_key_is_kept_unpacked(
    compress: Callable[[bytes], bytes], coding: str, torn: int
) -> None:
    """The headers are made true to it, also where its end is missing."""
    body = compress(b'{"key": "' + KEY.encode() + b'"}' + b" " * 50)
    headers = (("Content-Encoding", coding), ("Content-Length", str(len(body))), ("A", "b"))
    redacted = written_response(body[: -torn or None], *headers)

    assert redacted.body.startswith(b'{"key": "<API_KEY>"}')
    assert redacted.headers == (("Content-Length", str(len(redacted.body))), ("A", "b"))


@pytest.mark.parametrize(
    ("coding", "body"),
    [("compress", b"\x1f\x9d\x90" + b"\xff" * 20), ("", b"\x1f\x8b\x08\xff\xff")],
)
def test_a_body_that_cannot_be_opened_is_not_stored(coding: str, body: bytes) -> None:
    """It may hide anything: only its size is kept, and the headers are made to fit that."""
    redacted = written_response(body, ("Content-Encoding", coding), ("Content-Length", "9"))

    assert redacted.body == f"<not searched: {len(body)} bytes>".encode()
    assert redacted.headers == (("Content-Length", str(len(redacted.body))),)


@pytest.mark.parametrize("key", ["200", "1", "GET", "a"])
def test_a_key_that_is_part_of_every_text_goes_only_from_where_credentials_stand(key: str) -> None:
    """No recording is refused for it, and no text made unreadable."""
    redactor = Redactor([key])
    request = RecordedRequest("GET", f"https://{key}:@a.test/?api_key={key}&n=200", (("A", key),))
    redacted = redactor.request(request)
    redactor.refuse_leak(json.dumps({"code": 200, "method": "GET"}))

    assert redacted.uri == f"https://{PLACEHOLDER}@a.test/?api_key={PLACEHOLDER}&n=200"
    assert redacted.headers == (("A", key),)


def test_keys_of_every_session_are_removed_also_of_one_opened_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recording may see any key of its process: those of others, and the environment's."""
    redactor, sessions = Redactor(), []
    text = "of-another-session, of-one-more, of-the-environment"
    counts = [redactor.text(text).count(PLACEHOLDER)]
    for key in ("of-another-session", "of-one-more"):
        sessions.append(ApiKey(key))
        counts.append(redactor.text(text).count(PLACEHOLDER))
    monkeypatch.setenv("DIRECTMAIL_API_KEY", "of-the-environment")
    sessions.clear()

    assert counts == [0, 1, 2]
    assert redactor.text(text) == ", ".join([PLACEHOLDER] * 3)


OWN = "kq83HfTr0Zp1"


@pytest.mark.parametrize(
    ("header", "echoed", "kept"),
    [
        ("Basic " + base64.b64encode(f"{OWN}:".encode()).decode(), OWN, PLACEHOLDER),
        ("Basic " + base64.b64encode(f"u:{OWN}".encode()).decode(), OWN, PLACEHOLDER),
        (f"Bearer {OWN}", OWN, PLACEHOLDER),
        (
            "AWS4-HMAC-SHA256 Credential=AKID/20261121/eu/s3/aws4_request, Signature=fe5f80f7",
            "aws4_request/20261121",
            "aws4_request/20261121",
        ),
        ('Digest username="customers", realm="users/me"', "users/me", "users/me"),
    ],
)
def test_a_callers_own_credential_is_learned_for_the_recording(
    header: str, echoed: str, kept: str
) -> None:
    """Of one part alone: what has several would take its pieces out of every address."""
    request = RecordedRequest("GET", "https://a.test/", (("Authorization", header),))
    response = RecordedResponse(401, "", (), f"no: {echoed}".encode())
    redactor = Redactor()
    learned = redactor.interaction(Interaction(request, response))

    assert learned.response.body == f"no: {kept}".encode()
    assert redactor.extended(["personal"]).text(echoed) == kept


def test_an_address_stays_one_even_where_a_key_with_slashes_is_in_it() -> None:
    """The whole path goes then, and no more."""
    request = RecordedRequest("GET", "https://a.test/v1/ab/cd?ef=gh;i")

    assert Redactor(["ab/cd?ef=gh;i"]).request(request).uri == f"https://a.test/{PLACEHOLDER}"


def test_a_number_that_is_the_key_becomes_text_in_json() -> None:
    """It cannot stay a number; the rest is as it was."""
    body = b'{"id": 12, "key": 1234567890, "keys": [ 1234567890 ], "x": "\\u00e9"}'
    redacted = written_response(body, redactor=Redactor(["1234567890"]))

    assert redacted.body == body.replace(b"1234567890", b'"<API_KEY>"')


def test_of_a_text_with_thousands_of_keys_nothing_is_left() -> None:
    """And JSON is still JSON."""
    text = json.dumps([{"key": f"{number} {KEY}", "n": number} for number in range(9000)])
    redacted = Redactor([KEY]).text(text)

    assert KEY[:8] not in redacted
    assert shape(redacted) == shape(text)
    assert KEY[:8] not in Redactor([KEY]).text(f"{KEY} " * 9000)


def test_an_entity_of_many_zeros_is_read() -> None:
    """Python refuses to read a number of more than 4,300 digits; a page may write one."""
    entities = "".join(f"&#{'0' * 5000}{ord(character)};" for character in KEY)

    assert KEY not in html.unescape(re.sub("&#0+", "&#", Redactor([KEY]).text(entities)))


@pytest.mark.parametrize("written", [KEY[3:11], "".join(f"\\u{ord(c):04x}" for c in KEY)])
@pytest.mark.parametrize("filler", [b"e", "é".encode(), b"\xff"], ids=["ascii", "text", "bytes"])
def test_a_key_that_stands_across_the_windows_of_a_long_body_is_found(
    filler: bytes, written: str
) -> None:
    """A long body is searched in parts, and no place between two of them hides a key."""
    for edge in (WINDOW, WINDOW + SHARED):
        before = (edge - len(written) // 2) // len(filler)
        body = filler * before + f" {written} ".encode() + filler * WINDOW
        redacted = written_response(body).body

        assert PLACEHOLDER.encode() in redacted
        assert written.encode() not in redacted


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["é abc ".encode(), "😀 abc".encode(), b"\xff%41&#65;", b"abc def"], ids=repr
)
def test_a_long_body_is_searched_in_at_most_three_times_its_memory(part: bytes) -> None:
    """Letters of many alphabets take four bytes each in memory, and each layer of escapes again."""
    body = part * (8_000_000 // len(part))
    tracemalloc.start()
    try:
        written = written_response(body)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert written.body == body
    assert most < 3.1 * len(body)


@pytest.mark.parametrize("form", [form for form in planted(KEY).values() if form.isascii()])
def test_a_leak_is_refused_with_nothing_of_it_in_the_error(form: bytes) -> None:
    """Not in its message, nor in the locals of any frame of its traceback."""
    written = json.dumps({"body": form.decode()})
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
