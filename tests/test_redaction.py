"""Redaction removes the key in every encoding and changes nothing else."""

from __future__ import annotations

import base64
import copy
import gzip
import html
import json
import pickle
import traceback
import zlib
from dataclasses import astuple
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given, settings, strategies as st
from key_search import traces

from directmail_lab.cassettes.files import foreign_recording
from directmail_lab.cassettes.layout import interaction_text
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import CassetteError, CredentialError
from directmail_lab.exchange.values import Interaction, Request, Response
from directmail_lab.redaction import PLACEHOLDER, REDACTED, Redactor, has_placeholder
from directmail_lab.redaction.key import KeySearch
from directmail_lab.redaction.personal import count_personal
from directmail_lab.redaction.suspects import credentials_in

if TYPE_CHECKING:
    pass

KEY = "dm_live_8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
CREDENTIAL = base64.b64encode(f"{KEY}:".encode()).decode()
PRINTABLE = "".join(chr(code) for code in range(33, 127) if chr(code) != ":")

keys = st.text(PRINTABLE, min_size=8, max_size=60)
words = st.text(max_size=40)

ESCAPES = ("%%%02x", "%%%02X", "\\u%04x", "\\u%04X", "\\x%02x", "&#%d;", "&#00%d;", "&#x%x;")


def in_any_form(key: str, data: st.DataObject) -> str:
    """Return the key as it is, with some characters escaped, or encoded as hex or base64."""
    around = st.binary(max_size=9)
    kind = data.draw(st.sampled_from(("itself", "escaped", "hex", "base64", "base64url")))
    change_case = data.draw(st.sampled_from((str, str.upper, str.lower, str.swapcase)))
    if kind == "hex":
        return change_case(key.encode().hex())
    if kind.startswith("base64"):
        encode = base64.b64encode if kind == "base64" else base64.urlsafe_b64encode
        return encode(data.draw(around) + key.encode() + data.draw(around)).decode()
    formats = ("%c",) if kind == "itself" else ("%c", *ESCAPES)
    choices = [data.draw(st.sampled_from(formats)) for _ in key]
    return "".join(form % ord(char) for form, char in zip(choices, change_case(key), strict=True))


def written_response(
    body: bytes, *headers: tuple[str, str], redactor: Redactor | None = None
) -> Response:
    """Return a response as a recording writes it."""
    response = Response(200, "", headers, body)
    exchange = Interaction(Request("GET", "/"), response)
    return (redactor or Redactor([KEY])).interaction(exchange).response


@given(key=keys, before=words, after=words, data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_key_in_any_form_is_removed(key, before, after, data):
    search, text = KeySearch([key]), before + in_any_form(key, data) + after
    assume(not key.startswith("<") and not search.holds(before + after))
    cleaned = search.removed_from(text)

    assert search.holds(text)
    assert not search.holds(cleaned)
    assert PLACEHOLDER in cleaned
    assert traces(cleaned.encode("utf-8", "surrogatepass"), key) == []


@pytest.mark.parametrize(
    "key", ["a+b/c=d&e,f;g", "$(x).^*|[y]{2}?", """q"'<t>#@!~`z\\""", "-_.-_.-_.1"]
)
def test_a_key_of_punctuation_is_removed_from_what_is_written(key):
    """It is escaped in an address, in JSON, in markup and in a header's base64."""
    texts = [key, quote(key, safe=""), json.dumps(key), html.escape(key), repr(key)]
    texts.append(base64.b64encode(f"{key}:".encode()).decode())
    body = json.dumps({f"m{at}": f"a {text} b" for at, text in enumerate(texts)})
    request = Request("GET", f"https://h.test/{quote(key)}?q={quote(key, safe='')}", (), b"")
    response = Response(200, key, (("X-Echo", key),), body.encode())
    written, _ = Redactor([key]).redacted_text(Interaction(request, response), interaction_text)

    assert traces(written.encode(), key) == []
    assert written.count(PLACEHOLDER) == 4 + len(texts)


WRAPPED = base64.b64encode(b"Here is your key, keep it well: " + KEY.encode() + b"x" * 99).decode()


def form_of(format_: str) -> str:
    return "".join(format_ % ord(character) for character in KEY)


FORMS = {
    "itself": KEY,
    "percent": form_of("%%%02x"),
    "JSON": form_of("\\u%04X"),
    "JavaScript": form_of("\\x%02x"),
    "JSON in JSON": form_of("\\\\u%04x"),
    "HTML": form_of("&#%d;"),
    "HTML in hex": form_of("&#x%x;"),
    "hex": KEY.encode().hex(),
    **{f"base64 at {n}": base64.b64encode(b"user:"[n:] + KEY.encode()).decode() for n in range(3)},
    **{
        f"wrapped at {width}, {end!r}": end.join(wrap(WRAPPED, width))
        for width in (60, 76)
        for end in ("\\n", "\\r\\n", "\\\\n", "%0A", "%0D%0A")
    },
    "Basic": CREDENTIAL,
    "base64url": base64.urlsafe_b64encode(b"\xff" + KEY.encode() + b"\xff").decode(),
}
PLACES = ("path", "query", "fragment", "name", "value", "sent", "reason", "received")


def exchange_with(form: str, *places: str) -> Interaction:
    at = {place: form if place in places else "x" for place in PLACES}
    request = Request(
        "POST",
        f"https://a.test/v1/{at['path']}/x?q={at['query']}&r=1#{at['fragment']}",
        ((f"X-{at['name']}", f"a {at['value']} b"),),
        at["sent"].encode(),
    )
    response = Response(401, at["reason"], (), f'{{"e": "{at["received"]}"}}'.encode())
    return Interaction(request, response)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_key_is_replaced_in_each_place(form, place):
    """A placeholder replaces the key, and the rest of the interaction is unchanged."""
    given = exchange_with(FORMS[form], place)
    written, _ = Redactor([KEY]).redacted_text(given, interaction_text)
    redacted = Redactor([KEY]).interaction(given)

    assert written == interaction_text(redacted)
    assert traces(repr(astuple(redacted)).encode(), KEY) == []
    assert repr(astuple(redacted)).count(PLACEHOLDER) == 1
    # The digits of base64 beside the key's own are those of the text around it, too.
    is_base64 = form.startswith(("base64", "wrapped", "Basic"))
    assert redacted == exchange_with(PLACEHOLDER, place) or place == "name" or is_base64


SECRET = "s3cret-of-another-service"
LONG = "t0k3nOf16Ch4rs9Z"


ME = "https://a.test/"
REPEATED = "hk8fK2xQ9zLr7TtVb3n"


def answered_with(uri: str, body: bytes, *headers: tuple[str, str]) -> Interaction:
    response = Response(200, "", headers, body)
    return Interaction(Request("GET", uri, headers), response)


MARKED = 'a"b\\c/d+e-f&g%h'


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (KEY.encode("utf-16-le"), "text/plain"),
        (f"é{KEY}".encode("latin-1"), "text/plain; charset=latin-1"),
        (gzip.compress(KEY.encode()), "application/octet-stream"),
        (b"\xff" + KEY.encode(), "image/png"),
        (b"https://us\x01er@host/", "text/plain"),
        ("https://us\u00e0er@host/".encode(), "text/plain"),
        (b"https://user@host/", "text/plain"),
        (b'{"password": "x"}', "text/plain; charset=UTF-8"),
        (json.dumps(json.dumps(MARKED)).encode(), "text/plain"),
        (MARKED.encode(), "text/plain"),
    ],
)
def test_the_fast_search_writes_the_same_as_a_full_redaction(body, media_type):
    """Most interactions are only searched once, in their written form, because this is fast.

    The bodies here need more, and the search must notice it.
    """
    given = answered_with(ME, body, ("Content-Type", media_type))
    redactor = Redactor([KEY, MARKED])
    redacted = redactor.interaction(given)

    assert redacted != given
    assert redactor.redacted_text(given, interaction_text) == (interaction_text(redacted), redacted)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (f"the key ***{KEY}*** is unknown", f"the key ***{PLACEHOLDER}*** is unknown"),
        (f"a-{CREDENTIAL}, c", f"a-{PLACEHOLDER}Og==, c"),
        (f"https://a.test/{CREDENTIAL}/b?c=/d", f"https://a.test/{PLACEHOLDER}Og==/b?c=/d"),
        (f"x{KEY.encode().hex()}0f;", f"x{PLACEHOLDER}0f;"),
        (f'["\\u00e9{KEY.encode().hex()}"]', f'["\\u00e9{PLACEHOLDER}"]'),
        (KEY[:-1], KEY[:-1]),
    ],
)
def test_what_is_around_a_key_stays(text, cleaned):
    """Also around an encoded one; a part of a key is not a key."""
    assert KeySearch([KEY]).removed_from(text) == cleaned


@pytest.mark.slow
@given(key=keys, around=st.binary(max_size=99), width=st.sampled_from((60, 64, 76)))
@settings(max_examples=150, deadline=None)
def test_a_key_of_any_characters_is_found_in_each_form(key, around, width):
    """A key may be escaped for an address, JSON or HTML, or be in base64, even wrapped."""
    assume(REDACTED not in key)
    digits = base64.b64encode(around + key.encode() + around).decode()
    forms = (
        key,
        quote(key),
        json.dumps(key)[1:-1],
        json.dumps(json.dumps(key)[1:-1])[1:-1],
        "".join(f"&#{ord(char)};" for char in key),
        html.escape(key),
        digits,
        "\n".join(wrap(digits, width)),
        json.dumps("\r\n".join(wrap(digits, width))),
    )
    search = KeySearch([key])

    assert [form for form in forms if not search.holds(form)] == []
    assert [form for form in forms if search.holds(search.removed_from(form))] == []


def test_a_credential_of_any_letters_is_known_by_its_place():
    """In another program's cassette, the place shows it: HTTP Basic, an address or a header."""
    secret = "pässwörd-für-жизнь"
    basic = base64.b64encode(f"me:{secret}".encode()).decode()
    for request in (
        Request("GET", ME, (("Authorization", f"Basic {basic}"),)),
        Request("GET", f"https://me:{quote(secret)}@a.test/"),
        Request("GET", f"{ME}?api_key={quote(secret)}"),
        Request("GET", ME, (("X-Api-Key", secret),)),
    ):
        echo = Response(200, "", (), json.dumps([secret, quote(secret)]).encode())
        redacted = foreign_recording([Interaction(request, echo)], Path("x.yaml")).interactions[0]

        assert redacted.response.body == f'["{REDACTED}", "{REDACTED}"]'.encode()


@given(key=keys, text=st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_a_text_without_the_key_stays_as_it_is(key, text):
    assume(not traces(text.encode("utf-8", "surrogatepass"), key))
    assume("@" not in text and "=" not in text)

    assert Redactor([key]).text(text) == text


@given(body=st.binary(max_size=300))
def test_a_body_without_the_key_stays_as_it_is(body):
    starts = (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"\xfe\xff")
    assume(b"@" not in body and not body.startswith(starts))
    headers = ("Content-Type", "image/png")

    assert written_response(body, headers) == Response(200, "", (headers,), body)


json_texts = st.text(max_size=20) | st.sampled_from(
    (f"key: {KEY}\n", "\\" + KEY, "Contact:\njohn@corp.com", "zoë@exämple.nl", "\\n+31612345678")
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
    """Return JSON's lists, the values of its objects in order, and the type of each leaf."""

    def shape_of(value: object) -> object:
        if isinstance(value, list):
            return list(map(shape_of, value))
        names = {int: "number", float: "number", bool: "null", type(None): "null"}
        return names.get(type(value), "text")

    return shape_of(json.loads(text, object_pairs_hook=lambda pairs: [v for _, v in pairs]))


def text_of(value: object) -> str:
    """Return all texts in JSON, including names, one on each line."""
    if isinstance(value, dict):
        return "\n".join(f"{name}\n{text_of(each)}" for name, each in value.items())
    return "\n".join(map(text_of, value)) if isinstance(value, list) else str(value)


@given(
    value=json_values,
    redact=st.lists(st.sampled_from(("personal", "a", "address.a")), unique=True),
    ascii_only=st.booleans(),
)
@settings(max_examples=150)
def test_redacted_json_is_json_of_the_same_shape(value, redact, ascii_only):
    """No escape is cut in two, no text becomes a number, and nothing is lost."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    redactor = Redactor([KEY], redact=redact)
    once = written_response(text.encode(), redactor=redactor).body.decode()
    assume(REDACTED not in once)  # a credential that is a number becomes a text

    assert shape(once) == shape(text)
    assert traces(once.encode(), KEY) == []
    if "personal" in redact:
        assert count_personal([], [text_of(json.loads(once))]) == {}
    assert redactor.text(once) == once


NEVER_RECORDED = "Authorization Proxy-Authorization Cookie"
# With a short value.
OF_CREDENTIALS = """
    X-Api-Key api_key DD-APPLICATION-KEY X-Auth-Token X-Amz-Security-Token X-JWT X-Password
    Ocp-Apim-Subscription-Key X-Functions-Key X-Auth-Key X-Client-Secret X-Forwarded-Authorization
    X-Session-Id X-Auth apiToken APIKEY access_token accessToken refresh_token id_token auth_token
    session_token bearerToken oauth_token oauth_signature X-Amz-Signature X-Goog-Signature
    private_key secret_key aws_secret_access_key AccountKey master-key signing_key stripe_api_key
    client_secret clientSecret secret webhook_secret client_assertion password passwd pwd Passwort
    newPassword current_password password_confirmation password2 j_password id_token_2 app_token
    resetToken encryption_key license-key SharedKey passcode passphrase PHPSESSID JSESSIONID
    sessionid ASP.NET_SessionId id_token_hint PRIVATE-TOKEN X-Telegram-Bot-Api-Secret-Token
    user_pass DB_PASS otp totp signature_key connectionString
"""
# With a long and random value.
OF_RANDOM_VALUES = """
    token Token X-Vault-Token user_token key X-Key auth session signature sig X-Hub-Signature-256
    laravel_session assertion credential device_code code_verifier X-Insert-Key X-Query-Key
    X-Honeycomb-Team OK-ACCESS-SIGN Authentication
"""
# Even with a long and random value.
NOT_OF_CREDENTIALS = """
    X-CSRFToken X-CSRF-Token xsrf_token Next-Page-Token next_page_token nextPageToken pageToken
    nextToken x-ms-continuationtoken continuation_token continuation cursor next_cursor sync_token
    syncToken cursor_token paginationToken skip_token delta_token nextForwardToken scroll_token
    authenticity_token __RequestVerificationToken traceToken correlation_token X-Correlation-ID
    traceparent X-Trace-Id policy parent thoughtSignature code state
    Idempotency-Key idempotencyKey Sec-WebSocket-Key public_key
    publishable_key sort_key primary_key foreign_key cache-key object_key partitionKey issue_key
    key_id keyName api_key_id keyboard monkey turkey keys token_count max_tokens token_type tokens
    X-RateLimit-Remaining-Tokens tokenizer expires_token_at author Author authority authenticated
    auth_url X-Session-Name sessions session_count password_changed_at passwordless pass compass
    secretary signatures design sign cvc_check hotpot
    jwtAlgorithm ETag X-Request-Id Access-Control-Allow-Origin id
"""


def headers_of(names: str, value: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name in names.split())


def test_headers_of_credentials_are_dropped_or_masked_on_both_sides():
    """A replay has no key, but may write a cassette, so names must be enough."""
    others = headers_of(NOT_OF_CREDENTIALS, LONG)
    headers = (*headers_of(NEVER_RECORDED + OF_CREDENTIALS, SECRET), *others)
    given = answered_with(ME, b"", *headers)
    redacted = Redactor().interaction(given)
    # A value this short is removed nowhere else.
    short = Redactor().interaction(answered_with(ME, b"", *headers_of(OF_CREDENTIALS, "s3")))

    assert [name for name, value in short.request.headers if value != REDACTED] == []
    assert redacted.request.headers == (*headers_of(OF_CREDENTIALS, REDACTED), *others)
    assert redacted.response.headers == redacted.request.headers
    assert Redactor().interaction(redacted) == redacted
    assert Redactor([SECRET]).interaction(given) == redacted


IN_PLACES: dict[str, str] = {
    "query": "https://a.test/?n=1&{name}={value}",
    "form": "n=1&{name}={value}",
    "multipart": '--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n--b--',
    "JSON": '{{"a": [{{"{name}": "{value}", "n": 1}}]}}',
    "link": '{{"next": "https://a.test/?p=2\\u0026{name}={value}"}}',
    "JSON in JSON": '{{"a": "{{\\"{name}\\": \\"{value}\\"}}"}}',
    "element": "<a><{name}>{value}</{name}></a>",
    "attribute": '<a {name}="{value}"/>',
}


@pytest.mark.parametrize("place", IN_PLACES)
def test_one_table_of_names_counts_in_all_places(place):
    """The same names as in headers, and the same names are none."""
    form = IN_PLACES[place]
    wrong = []
    for names, value, is_replaced in (
        (OF_CREDENTIALS, "s3", True),
        (OF_RANDOM_VALUES, LONG, True),
        (OF_RANDOM_VALUES, "color", False),
        (OF_RANDOM_VALUES, "en", False),
        (NOT_OF_CREDENTIALS, LONG, False),
    ):
        for name in names.split():
            redacted = written_response(form.format(name=name, value=value).encode()).body.decode()
            written = html.unescape(redacted) if "<a" in form else redacted
            if written != form.format(name=name, value=REDACTED if is_replaced else value):
                wrong.append((name, value, redacted))

    assert wrong == []


def test_a_header_is_redacted_by_its_name_on_both_sides():
    """Equal values get equal pseudonyms, so a replay with the same rules finds the response."""
    given = answered_with(ME, b"", ("X-Customer", "Ada"), ("X-Other", "x"))
    redacted = Redactor(redact=["x-customer", "personal"]).interaction(given)
    customer, other = (value for _, value in redacted.request.headers)

    assert redacted.request.headers == redacted.response.headers
    assert customer.startswith("<xcustomer-")
    assert other == "x"


@pytest.mark.parametrize(
    ("uri", "redacted"),
    [
        ("?%61pi_key=s3cret&n=1", "?%61pi_key=<REDACTED>&n=1"),
        ("?apikey=%3CAPI_KEY%3E&a=%3cREDACTED%3e", "?apikey=%3CAPI_KEY%3E&a=%3cREDACTED%3e"),
        (
            "?client_secret=a&access_token=b;c=d",
            "?client_secret=<REDACTED>&access_token=<REDACTED>;c=d",
        ),
        (f"?key={LONG[1:]}&token=2", f"?key={LONG[1:]}&token=2"),
        ("?Signature=U0HqEiRPU0zA0ME8nJmYCfTZXGc%3D&Expires=1", "?Signature=<REDACTED>&Expires=1"),
        ("?signature=With+our+kind+regards&sig=1", "?signature=With+our+kind+regards&sig=1"),
        ("?sig=%2F8Qm3nVx9Kq2LzR7TbYw1A%3D&n=1", "?sig=<REDACTED>&n=1"),
        (f"?code=4%2F{LONG}&state=x", "?code=<REDACTED>&state=x"),
        (f"?state=x&scope=a+b&code={LONG}", "?state=x&scope=a+b&code=<REDACTED>"),
        (f"?code={LONG}&page=1", f"?code={LONG}&page=1"),
        ("?code=1011AB&state=CA", "?code=1011AB&state=CA"),
        (f"?password={KEY}&q={KEY}", "?password=<REDACTED>&q=<API_KEY>"),
        ("?has_password=true&reset_password=False", "?has_password=true&reset_password=False"),
    ],
)
def test_a_parameter_of_a_credential_is_removed_by_its_name(uri, redacted):
    """Addresses, links and forms are redacted; the rest is unchanged, also the second time."""
    redactor = Redactor([KEY])
    once = redactor.request(Request("GET", f"https://a.test/x{uri}"))

    assert once.uri == f"https://a.test/x{redacted}"
    assert redactor.request(once) == once
    assert redactor.text(f'<a href="{uri}">') == f'<a href="{redacted}">' or "%3" in uri
    assert redactor.text(uri[1:]) == redacted[1:] or "%3" in uri


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        (
            f"sid={SECRET}; Path=/a; HttpOnly; secure; SameSite=Lax",
            "sid=<REDACTED>; Path=/a; HttpOnly; secure; SameSite=Lax",
        ),
        (
            f"sid={SECRET}; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Max-Age=-1",
            "sid=<REDACTED>; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Max-Age=-1",
        ),
        (
            "sid=; expires=Thu, 01-Jan-1970 00:00:01 GMT; Path=/",
            "sid=; expires=Thu, 01-Jan-1970 00:00:01 GMT; Path=/",
        ),
        ('sid=""; Max-Age=0', 'sid=""; Max-Age=0'),
        (f"sid={SECRET}; Domain=a.test; Note={SECRET}; Path={SECRET}", "sid=<REDACTED>"),
        (f"a={SECRET}, b={SECRET}; Path=/, c={SECRET}", "a=<REDACTED>"),
        (f"a=, b={SECRET}; Path=/", "a=<REDACTED>; Path=/"),
        (SECRET, REDACTED),
    ],
)
def test_a_cookie_is_written_with_its_name_and_attributes_but_not_its_value(sent, written):
    """So a client of a replay has the cookie where it had it live, and none after a logout."""
    redacted = Redactor().interaction(answered_with(ME, b"", ("set-cookie", sent)))

    assert redacted.response.headers == (("set-cookie", written),)
    assert Redactor().interaction(redacted) == redacted


@pytest.mark.parametrize(
    ("key", "is_kept"),
    [
        *((f"{name}.pdf", True) for name in ("uploads/2026/report-of-may", "a-long-name-of-may")),
        ("uploads/${filename}/and-more", True),
        *((each, True) for each in ("0e104a90-853e-44d0-b929-9706ad816600", "D2FD00050D/cit38/1")),
        *((key, False) for key in ("7fK2xQ9zLr8TtVb3nWm5YcHs", "AbC/dEfGhIjKlMnOpQrStUv==")),
    ],
)
def test_the_key_of_an_object_is_no_credential(key, is_kept):
    """Storage services call the name of an object its key, and others the id of a record."""
    form = Request("POST", ME, (), f"key={quote(key, safe='')}&n=1".encode())

    assert (Redactor().request(form).body == form.body) is is_kept


@pytest.mark.parametrize(
    "text",
    [
        *("/v1/<API_KEY>", "?a=%3CREDACTED%3E", "Bearer <REDACTED>", "?q=%3cname-1a2b3c4d%3e"),
        *("/person-9748fa7c%40example.invalid", "/call/%2B999123456789"),
    ],
)
def test_a_placeholder_or_a_pseudonym_is_distinguished_from_other_text(text):
    """A request with a placeholder or a pseudonym in it must not reach the service."""
    assert has_placeholder(text)
    assert not any(map(has_placeholder, ("?next=%2Fx", "?id=999123456789")))


@pytest.mark.parametrize(
    ("compress", "coding"),
    [(gzip.compress, "gzip"), (zlib.compress, "deflate"), (gzip.compress, "")],
)
@pytest.mark.parametrize("torn", [0, 4])
def test_a_compressed_body_with_the_key_is_recorded_decompressed(compress, coding, torn):
    """The headers then describe the unpacked body, also if the compressed data is cut off."""
    body = compress(b'{"is": "' + KEY.encode() + b'"}' + b" " * 50)
    headers = (("Content-Encoding", coding), ("Content-Length", str(len(body))), ("A", "b"))
    redacted = written_response(body[: -torn or None], *headers)

    assert redacted.body.startswith(b'{"is": "<API_KEY>"}')
    assert redacted.headers == (("Content-Length", str(len(redacted.body))), ("A", "b"))


@pytest.mark.parametrize(
    ("coding", "charset", "body"),
    [
        ("compress", "utf-8", b"\x1f\x9d\x90" + b"\xff" * 20),
        ("", "utf-8", b"\x1f\x8b\x08\xff\xff"),
        ("", "utf-8", KEY.encode("utf-16-be")),
        ("", "utf-16", b"pla\0n"),
        ("", "utf-33", b"any text \xff"),
        ("gzip, gzip, gzip", "utf-8", gzip.compress(gzip.compress(gzip.compress(b"text")))),
    ],
)
def test_a_body_that_cannot_be_searched_is_not_stored(coding, charset, body):
    """Such a body may contain anything, so only its size is kept, with matching headers."""
    kind = ("Content-Type", f"text/plain; charset={charset}")
    redacted = written_response(body, ("Content-Encoding", coding), ("Content-Length", "9"), kind)

    assert redacted.body == f"<not searched: {len(body)} bytes>".encode()
    assert redacted.headers == (("Content-Length", str(len(redacted.body))), kind)


@pytest.mark.parametrize("body", [gzip.compress(bytes(65 * 1024**2), 1), bytes(65 * 1024**2)])
def test_a_body_over_the_limit_is_not_recorded(body):
    """The limit applies to the received and the decompressed size.

    The caller gets the whole body.
    """
    assert written_response(body).body == f"<not recorded: {len(body)} bytes>".encode()


@pytest.mark.parametrize(
    ("charset", "declared"),
    [
        ("utf-16", "utf-8"),  # a byte order mark counts
        ("utf-16", "utf-16"),
        ("utf-16-be", "UTF-16BE"),
        ("cp037", "cp037"),
        ("utf-8", "utf-16"),  # not what the header says
        *((charset, charset) for charset in ("utf-8", "latin-1", '"shift_jis"')),
    ],
)
def test_a_text_is_searched_in_its_own_charset(charset, declared):
    """Without the key, in whichever of its charsets that is found; all else is unchanged."""
    charset = charset.strip('"')
    kind = ("Content-Type", f"text/plain; charset={declared}")
    name = "日本" if charset == "shift_jis" else "zoë"
    texts = [f"{name} 1 {each}!" for each in (KEY, PLACEHOLDER, "simple")]
    with_key, redacted, plain = (each.encode(charset) for each in texts)

    assert written_response(with_key, kind).body == redacted
    assert written_response(plain, kind).body == plain


@pytest.mark.parametrize("key", ["200", "a"])
def test_a_key_that_occurs_everywhere_is_removed_only_from_credentials(key):
    """A key such as ``200`` must neither make texts unreadable nor block the recording."""
    redactor = Redactor([key])
    request = Request(
        "GET", f"https://{key}:@a.test/?api_key={key}&n=200", (("A", key), ("X-Api-Token", key))
    )
    redacted = redactor.request(request)
    redactor.refuse_leak(json.dumps({"code": 200, "method": "GET"}))

    assert redacted.uri == "https://<REDACTED>@a.test/?api_key=<REDACTED>&n=200"
    assert redacted.headers == (("A", key), ("X-Api-Token", REDACTED))


def test_keys_of_every_session_are_removed_also_of_one_opened_later(monkeypatch):
    """A recording may contain any key of its process: other sessions' and the environment's."""
    redactor, text = Redactor(), "of-another-session, of-the-environment"
    before = redactor.text(text)
    session = [ApiKey("of-another-session")]
    during = redactor.text(text)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", "of-the-environment")
    session.clear()

    assert before == text
    assert during == f"{PLACEHOLDER}, of-the-environment"
    assert redactor.text(text) == f"{PLACEHOLDER}, {PLACEHOLDER}"


OWN = "kq83HfTr0Zp1"


@pytest.mark.parametrize(
    ("header", "echoed", "kept"),
    [
        ("Authorization: Basic " + base64.b64encode(f"u:{OWN}".encode()).decode(), OWN, REDACTED),
        (f"Authorization: Bearer {OWN}", OWN, REDACTED),
        (f"Authorization: {OWN}", OWN, REDACTED),
        (f"X-Auth-Token: {OWN}", OWN, REDACTED),
        (f"Cookie: lang=de-CH; session={OWN}{OWN}", OWN + OWN, REDACTED),
        ('Authorization: Digest username="customers", realm="users/me"', "users/me", "users/me"),
        ("Cookie: theme=contrast-1; lang=de-CH", "contrast-1", "contrast-1"),
        ("X-Token-Type: personal", "personal", "personal"),
    ],
)
def test_a_callers_own_credential_is_redacted_throughout_the_recording(header, echoed, kept):
    """Only whole credentials are learned: parts such as a user name are in many addresses."""
    name, _, value = header.partition(": ")
    request = Request("GET", "https://a.test/", ((name, value),))
    response = Response(401, "", (), f"no: {echoed}".encode())
    redactor, both = Redactor(), Interaction(request, response)
    learned = redactor.interaction(both)
    text, _ = Redactor().redacted_text(both, lambda each: each.response.body.decode())

    assert learned.response.body.decode() == text == f"no: {kept}"
    assert redactor.extended(["personal"]).text(echoed) == kept


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_leak_is_refused_with_nothing_of_it_in_the_error(form):
    """The key is neither in the message nor in the locals of any frame of the traceback."""
    with pytest.raises(CassetteError, match="nothing was written") as caught:
        Redactor([KEY]).refuse_leak(json.dumps({"body": form}))

    inside = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    for frame in inside.stack[1:]:
        assert traces(repr(frame.locals).encode(), KEY) == []


def test_an_error_while_redacting_shows_no_locals():
    with pytest.raises(AttributeError) as caught:
        Redactor([KEY]).text(7)  # type: ignore[arg-type]

    inside = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert traces("".join(inside.format()).replace(f"{KEY!r}", "").encode(), KEY) == []


def test_a_redactor_shows_no_key_and_cannot_be_pickled_or_copied():
    redactor = Redactor([KEY], redact=["email"])
    shown = [repr(redactor)]
    shown += [repr(getattr(redactor, name)) for name in dir(redactor) if name != "__doc__"]

    assert traces("".join(shown).encode(), KEY) == []
    assert redactor.redact == ("email",)
    for hand_on in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(CredentialError, match="cannot be pickled or copied"):
            hand_on(redactor)  # type: ignore[operator]
    with pytest.raises(TypeError):
        vars(redactor)


def test_a_cookie_is_removed_elsewhere_if_its_name_is_one_of_a_credential():
    """A load balancer sets a new cookie with each response, and each value slows each search."""
    redactor = Redactor()
    for number in range(20):
        cookies = f"lb=server-{number:032x}; Path=/", f"PHPSESSID={SECRET}{number}"
        headers = tuple(("Set-Cookie", each) for each in cookies)
        redactor.interaction(Interaction(Request("GET", ME), Response(200, "", headers, b"{}")))

    assert redactor.text(f"server-{1:032x} {SECRET}1") == f"server-{1:032x} <REDACTED>"


@pytest.mark.parametrize(
    "name", ["sid", "connect.sid", "csrftoken", "XSRF-TOKEN", ".AspNetCore.A", "password"]
)
def test_the_cookie_of_a_session_is_removed_from_later_bodies(name):
    """Its value may be escaped there as in the header, or not."""
    redactor = Redactor()
    cookie = ("Set-Cookie", f"{name}=s%3A{REPEATED}; Path=/")
    redactor.interaction(answered_with(ME, b"", cookie))
    later = answered_with(ME, f'{{"session": {{"value": "s:{REPEATED}"}}}}'.encode())

    assert redactor.interaction(later).response.body == b'{"session": {"value": "<REDACTED>"}}'
    assert redactor.text(f"s%3A{REPEATED}") == REDACTED


@pytest.mark.parametrize("user_info", [f"{REPEATED}:", REPEATED, f"ann:{REPEATED}"])
def test_the_credential_of_an_address_is_removed_from_later_bodies(user_info):
    redactor = Redactor()
    redactor.interaction(answered_with(f"https://{user_info}@a.test/", b""))
    later = answered_with(ME, f'{{"user": "ann", "seen": "{REPEATED}"}}'.encode())

    assert redactor.interaction(later).response.body == b'{"user": "ann", "seen": "<REDACTED>"}'


def test_what_a_later_response_names_is_removed_from_the_earlier_ones_of_another_program():
    bodies = [f'{{"{name}": "{REPEATED}"}}'.encode() for name in ("seen", "access_token")]
    given = [answered_with(ME, body) for body in bodies]

    redacted = foreign_recording(given, Path("x.yaml")).interactions
    assert [each.response.body for each in redacted] == [
        b'{"seen": "<REDACTED>"}',
        b'{"access_token": "<REDACTED>"}',
    ]


UUID_HEX = "6fa459eaee8a4ca4894edb77e160355e"


def test_the_key_of_a_record_is_no_credential_in_json_but_in_a_query():
    record = f'[{{"key": "{UUID_HEX}"}}]'
    found = list(credentials_in(f'key = "{UUID_HEX}"'))

    assert Redactor().text(record) == record
    assert Redactor().text(f'<r key="{UUID_HEX}"/>') == f'<r key="{UUID_HEX}"/>'
    assert Redactor().text(f"https://a.test/v1?key={UUID_HEX}").endswith("?key=<REDACTED>")
    assert list(credentials_in(record, is_body=True)) == []
    assert found == ["a key or password in key"]


def test_a_column_of_a_table_that_has_passwords_is_redacted():
    body = b"user;password\r\nann;hunter2-of-may\r\nbo;\r\n"
    redactor = Redactor()
    done = redactor.interaction(answered_with(ME, body, ("Content-Type", "text/csv")))

    assert done.response.body == b"user;password\r\nann;<REDACTED>\r\nbo;\r\n"
    assert redactor.text("hunter2-of-may") == REDACTED


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (f"it is {REPEATED}, and x{REPEATED}y", "it is <REDACTED>, and x<REDACTED>y"),
        ("letters-2026a or letters-2026ab", "<REDACTED> or letters-2026ab"),
        ("?next=%2Fa%3Dletters-2026a%26", "?next=%2Fa%3D<REDACTED>%26"),
        *((text, text) for text in ('{"letters-2026a" : 1}', "letters-2026a=1", "<letters-2026a>")),
        (r'["\\sl4shés-1", "letters-2026a-b"]', '["<REDACTED>", "<REDACTED>"]'),
        ("invalid_token, 20261121, en", "invalid_token, 20261121, en"),
        ("[1.2345e+16, 'text/csv']", "[1.2345e+16, 'text/csv']"),
    ],
)
def test_a_value_is_removed_where_it_is_repeated(text, written):
    """A random one anywhere, another one where it stands whole; no names, words and numbers."""
    redactor = Redactor()
    names = [REPEATED, "letters-2026a", "invalid_token", "20261121", "en"]
    names += ["letters-2026a-b", "\\sl4shés-1", "1.2345e+16", "text/csv"]
    redactor.request(Request("POST", ME, (), json.dumps([{"password": n} for n in names]).encode()))

    assert redactor.text(text) == written


JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"


def test_a_jwt_stays_one_without_its_claims():
    """So code that decodes it runs, with no claim to see."""
    redacted = written_response(json.dumps({"id_token": JWT, "t": JWT}).encode()).body
    header, claims, _ = json.loads(redacted)["id_token"].split(".")

    assert json.loads(redacted)["t"] == json.loads(redacted)["id_token"]
    assert header == JWT.partition(".")[0]
    assert base64.urlsafe_b64decode(claims + "=") == b"{}"
    assert written_response(redacted).body == redacted


@pytest.mark.parametrize(
    "markup",
    [
        '<a xmlns:n="x"><n:password>{0}</n:password><b api-key="{0}">{0}</b></a>',
        '<Secret type="x"><![CDATA[{0}]]></Secret>',
        '<a href="?api_key={0}">x</a>',
        "<a>{1}</a>",
    ],
)
@pytest.mark.parametrize("media_type", ["text/xml", "text/html", ""])
def test_what_is_replaced_in_markup_is_escaped(markup, media_type):
    """A parser reads it, and redaction changes it once."""
    text = markup.format(SECRET, KEY)
    redacted = written_response(text.encode(), ("Content-Type", media_type)).body
    parsed = "".join(ElementTree.fromstring(redacted).itertext())

    assert SECRET.encode() not in redacted
    assert (parsed + redacted.decode()).count(">") >= 2
    assert b"&lt;REDACTED&gt;" in redacted or b"&lt;API_KEY&gt;" in redacted
    assert written_response(redacted, ("Content-Type", media_type)).body == redacted
