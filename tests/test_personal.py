"""Personal data becomes pseudonyms: stable, of the same kind, and only where it was asked for."""

from __future__ import annotations

import json
from dataclasses import astuple

import pytest
from hypothesis import given, settings, strategies as st

from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse
from directmail_lab.redaction import Redactor
from directmail_lab.redaction.personal import count_personal, personal_notice, texts_of

JOE = "joe.smith+mail@corp.com"
PHONE = "+31 6 1234 5678"


def redacted(body: str, *redact: str) -> str:
    """Return a response's body as it is written with these fields redacted."""
    exchange = Interaction(
        RecordedRequest("GET", "/"), RecordedResponse(200, "", (), body.encode())
    )
    return Redactor(redact=redact).interaction(exchange).response.body.decode()


def counts_of(*interactions: Interaction) -> dict[str, int]:
    return count_personal(text for each in interactions for text in texts_of(each))


def test_addresses_and_numbers_are_replaced_wherever_they_are() -> None:
    """In an address's path and query, in headers both ways, and in bodies."""
    request = RecordedRequest(
        "POST",
        "https://api.test/v1/joe%40corp.com?phone=%2B31612345678",
        (("X-From", JOE),),
        b"email=joe%40corp.com&text=call+%2B31612345678",
    )
    response = RecordedResponse(200, "", (("Reply-To", JOE),), f'{{"a": "{JOE}"}}'.encode())
    redacted_one = Redactor(redact=["personal"]).interaction(Interaction(request, response))
    written = repr(astuple(redacted_one))

    assert "joe" not in written
    assert "1234" not in written
    assert written.count("example.invalid") == 5


@pytest.mark.parametrize("number", [PHONE, "+31612345678", "%2B31612345678", "+31(6)12345678"])
def test_equal_values_get_equal_pseudonyms_however_they_are_written(number: str) -> None:
    """A replay that asks with other spaces or escapes still finds what was recorded."""
    redactor = Redactor(redact=["personal"])

    assert redactor.text("joe@corp.com") == "person-9748fa7c@example.invalid"  # in any process
    assert redactor.text(number)[-12:] == redactor.text(PHONE)[-12:]
    assert redactor.text("JOE@corp.com") == redactor.text("joe@corp.com")
    assert redactor.text("joe%40corp.com").replace("%40", "@") == redactor.text("joe@corp.com")
    assert redactor.text("jim@corp.com") != redactor.text("joe@corp.com")


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T04:00:00.123456Z",
        "01-02-2026 and 2026-11-21",
        "192.168.100.100 and 10.0.0.1:8080",
        "8f14e45f-ceea-467f-9575-6a1b1c1f5a3e",
        "1763697600 and 1763697600123",
        "python-httpx/0.28.1",
        "@decorator and a@b and x@",
        "limit 300, remaining 299, reset 0",
    ],
)
def test_dates_ids_and_addresses_of_machines_are_no_personal_data(text: str) -> None:
    """What merely looks like a number to call stays as it is."""
    assert Redactor(redact=["personal"]).text(text) == text


def test_named_fields_and_dotted_paths_are_replaced_and_no_other_byte() -> None:
    """Spaces, escapes, order and long numbers of the rest stay as they came."""
    body = '{ "name":"Jo","n": 1.10, "a":{"city": "Ede", "b":[{"city":"Ede"}]},\n"city":"\\u00e9"}'
    written = redacted(body, "name", "a.city")

    name, city = json.loads(written)["name"], json.loads(written)["a"]["city"]
    assert written == body.replace('"Jo"', f'"{name}"').replace(
        '{"city": "Ede"', f'{{"city": "{city}"'
    )
    assert name.startswith("<name-")
    assert city.startswith("<city-")


def test_a_pseudonym_is_of_the_type_it_replaces() -> None:
    """A number stays a number and null stays null; a truth value can only become null."""
    body = '{"v": 12, "w": 1.5, "x": null, "y": true, "z": {"q": ["a", 2]}, "e": ""}'
    got = json.loads(redacted(body, "v", "w", "x", "y", "z", "e"))

    assert [type(got[name]) for name in "vwxy"] == [int, float, type(None), type(None)]
    assert got["v"] != 12
    assert got["z"]["q"][0].startswith("<z-")
    assert got["e"] == ""


@pytest.mark.parametrize(
    "body",
    [
        "name=Jo+Smith&b=1",
        '--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nJo Smith\r\n--b--',
    ],
)
def test_form_fields_are_replaced_by_name(body: str) -> None:
    """A letter's recipient is sent as a form as often as in JSON."""
    written = redacted(body, "name")

    assert "Jo" not in written
    assert len(written.splitlines()) == len(body.splitlines())


def test_numbers_in_telephone_fields_are_replaced_in_any_notation() -> None:
    """In a field named for it, digits alone are a telephone number."""
    got = json.loads(redacted('{"mobile": "0612345678", "phone_number": 612345678}', "personal"))

    assert got["mobile"].startswith("+999")
    assert str(got["phone_number"]).startswith("999")


@given(text=st.text(max_size=60))
@settings(deadline=None)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    """A cassette that is rewritten keeps its pseudonyms, or no replay would match."""
    redactor = Redactor(redact=["personal", "name", "n"])
    body = json.dumps({"name": text, "t": f"{text} {JOE} {PHONE}", "n": [1, 2.5, text]})
    request = RecordedRequest("POST", f"https://a.test/?q={JOE}&name=jo", (), body.encode())
    once = redactor.request(request)

    assert redactor.request(once) == once


@pytest.mark.parametrize(
    "field",
    [
        *("firstName", "first_name", "LAST-NAME", "fullName", "company", "organisation"),
        *("address_line_1", "street", "city", "postcode", "zip", "mobile", "dateOfBirth", "IBAN"),
    ],
)
def test_personal_fields_are_known_by_their_names(field: str) -> None:
    """In JSON at any depth, in a form and in a query, however the name is spelled."""
    redactor = Redactor(redact=["personal"])
    texts = (
        json.dumps({"a": [{field: "Ada 1"}, {field: None}, {"b": {field: ["Ada 1"]}}]}),
        f"x=1&{field}=Ada+1&contact[{field}]=Ada+1",
        f"https://a.test/people?{field}=Ada%201",
        f'--b\r\nContent-Disposition: form-data; name="{field}"\r\n\r\nAda 1\r\n--b--\r\n',
        json.dumps({"sent": json.dumps({field: "Ada 1"})}),
        json.dumps({field: "Ada 1", "rest": "is torn"})[:-6],
    )

    assert [text for text in texts if "Ada" in redactor.text(text)] == []


def test_all_that_is_below_an_address_or_a_name_is_part_of_it() -> None:
    """But not what is below a company: its number is none of a person's."""
    body = (
        '{"address": {"country": "NL", "lines": ["Quay 1", "", [], 1234], "lat": 52.1,'
        ' "main": true}, "name": {"title": "Dr"},'
        ' "company": {"id": 7, "name": "Engines", "plan": "free"}}'
    )
    got = json.loads(redacted(body, "personal"))

    assert got["address"]["country"].startswith("<address-")
    assert got["address"]["lines"][0].startswith("<address-")
    assert got["address"]["lines"][1:3] == ["", []]
    assert got["address"]["lines"][3] > 1234
    assert type(got["address"]["lat"]) is float
    assert got["address"]["main"] is True
    assert got["name"]["title"].startswith("<name-")
    assert got["company"] == {"id": 7, "name": got["company"]["name"], "plan": "free"}
    assert got["company"]["name"].startswith("<name-")


@pytest.mark.parametrize("before", ["Contact:\n", "a\t", "\u00eb ", "\\", "\u2028"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_an_address_that_follows_an_escape_leaves_json_whole(before: str, ascii_only: bool) -> None:
    """The escape is not taken for a letter of the address, nor half of it for another escape."""
    for address in ("john@corp.com", "zoë@corp.com"):
        body = json.dumps({"t": f"{before}{address}"}, ensure_ascii=ascii_only)
        got = json.loads(redacted(body, "personal"))["t"]
        redactor = Redactor(redact=["personal"])

        assert got == before + redactor.text(address)
        assert redactor.text(f"data: {body}") == f"data: {redacted(body, 'personal')}"


def test_a_summary_counts_different_values_and_says_what_to_do() -> None:
    """One line at close: the same address twice is one person, examples are none."""
    request = RecordedRequest("GET", "https://a.test/?email=joe.smith%2Bmail%40corp.com")
    body = f'["{JOE}", "ann@corp.com", "x@example.com", "{PHONE}"]'.encode()
    exchange = Interaction(request, RecordedResponse(200, "", (), body))
    counts = counts_of(exchange)

    assert counts == {"e-mail address": 2, "telephone number": 1}
    assert counts_of(Redactor(redact=["personal"]).interaction(exchange)) == {}
    assert personal_notice(
        {"e-mail address": 1, "telephone number": 2, "name": 3}, "tour"
    ).startswith("Cassette 'tour' holds 1 e-mail address, 2 telephone numbers and 3 names. Before")
    assert personal_notice(counts, "tour").startswith(
        "Cassette 'tour' holds 2 e-mail addresses and 1 telephone number."
    )
    assert personal_notice({}, "tour") == ""


def test_a_summary_counts_by_the_names_of_fields_too() -> None:
    """A recording of an account is names and addresses; the stand-in's are made up."""
    body = b'{"name": "Ada L", "addr": {"city": "Ede", "zip": 1234}, "iban": "NL00", "x": [1]}'
    made_up = b'{"name": "Stand-in User", "service": "stand-in", "city": "Ede"}'
    interactions = [
        Interaction(RecordedRequest("GET", "/"), RecordedResponse(200, "", (), each))
        for each in (body, body, made_up)
    ]

    assert counts_of(*interactions) == {"name": 1, "address line": 2, "bank account": 1}
