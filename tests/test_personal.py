"""Personal data becomes pseudonyms: stable, of the same kind, and only where it was asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directmail_lab.interaction import Interaction, RecordedRequest, RecordedResponse
from directmail_lab.redaction import Redactor
from directmail_lab.redaction.json_places import leaves
from directmail_lab.redaction.personal import personal_notice, summarise_personal

JOE = "joe.smith+mail@corp.com"
PHONE = "+31 6 1234 5678"


def redacted(body: str, *redact: str) -> str:
    """Return a response's body as it is written with these fields redacted."""
    response = RecordedResponse(200, "", (), body.encode())
    return Redactor(redact=redact).response(response).body.decode()


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

    assert redactor.text(number)[-12:] == redactor.text(PHONE)[-12:]
    assert redactor.text("JOE@corp.com") == redactor.text("joe@corp.com")
    assert redactor.text("joe%40corp.com").replace("%40", "@") == redactor.text("joe@corp.com")
    assert redactor.text("jim@corp.com") != redactor.text("joe@corp.com")


def test_another_process_gives_the_same_pseudonym() -> None:
    """What was recorded yesterday is found today."""
    code = (
        "from directmail_lab.redaction import Redactor;"
        f"import sys; sys.stdout.write(Redactor(redact=['personal']).text({JOE!r}))"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert there.stdout == Redactor(redact=["personal"]).text(JOE)


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


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(value=values, spaced=st.booleans(), ascii_only=st.booleans())
def test_the_leaves_of_json_are_where_they_are_said_to_be(
    value: object, spaced: bool, ascii_only: bool
) -> None:
    """Each leaf's place holds its text, and there are as many as json sees."""
    text = json.dumps(value, indent=2 if spaced else None, ensure_ascii=ascii_only)
    found = list(leaves(text))

    assert all(json.loads(text[leaf.start : leaf.end]) == leaf.value for leaf in found)
    assert len(found) == count_leaves(value)


def count_leaves(value: object) -> int:
    if isinstance(value, dict):
        return sum(map(count_leaves, value.values()))
    return sum(map(count_leaves, value)) if isinstance(value, list) else 1


def test_a_summary_counts_different_values_and_says_what_to_do() -> None:
    """One line at close: the same address twice is one person, examples are none."""
    request = RecordedRequest("GET", "https://a.test/?email=joe.smith%2Bmail%40corp.com")
    body = f'["{JOE}", "ann@corp.com", "x@example.com", "{PHONE}"]'.encode()
    counts = summarise_personal([Interaction(request, RecordedResponse(200, "", (), body))])

    assert counts == {"email": 2, "phone": 1}
    assert personal_notice(counts, "tour").startswith(
        "Cassette 'tour' holds 2 e-mail addresses and 1 telephone number."
    )
    assert personal_notice({}, "tour") == ""


def test_a_redacted_recording_has_nothing_to_summarise() -> None:
    """Pseudonyms are no one's data."""
    body = f'["{JOE}", "{PHONE}"]'.encode()
    exchange = Interaction(RecordedRequest("GET", "/"), RecordedResponse(200, "", (), body))

    assert summarise_personal([Redactor(redact=["personal"]).interaction(exchange)]) == {}


def test_a_megabyte_without_any_is_searched_in_one_pass() -> None:
    """The patterns are bounded: a long run of letters is no reason to search it again."""
    redactor = Redactor(redact=["personal"])
    text = "a1" * 500_000

    assert redactor.text(text) == text
