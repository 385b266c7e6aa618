"""Personal data becomes pseudonyms: stable, of the same type, and only if the user asks."""

import json
import logging
import re
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path

import pytest
from cassette_samples import answered, get, opened

from directmail_lab.credentials import ApiKey
from directmail_lab.exchange.values import Interaction, Request, Response
from directmail_lab.redaction import Redactor
from directmail_lab.redaction.personal import count_personal
from directmail_lab.redaction.suspects import texts_of
from directmail_lab.server.standin import stand_in
from directmail_lab.sessions.session import Session

EMAIL = "joe.smith+mail@corp.com"
PHONE = "+31 6 1234 5678"
PERSONAL = Redactor(redact=["personal"])


def redacted(body: str, *redact: str) -> str:
    return Redactor(redact=redact).interaction(answered(body=body)).response.body.decode()


def counts_of(*interactions: Interaction) -> dict[str, int]:
    return count_personal(text for each in interactions for text in texts_of(each))


def test_addresses_and_numbers_are_replaced_wherever_they_are():
    request = Request(
        "POST",
        "https://api.test/v1/joe%40corp.com?phone=%2B31612345678",
        (("X-From", EMAIL),),
        b"email=joe%40corp.com&text=call+%2B31612345678",
    )
    response = Response(200, "", (("Reply-To", EMAIL),), f'{{"a": "{EMAIL}"}}'.encode())
    written = repr(astuple(PERSONAL.interaction(Interaction(request, response))))

    assert "joe" not in written
    assert "1234" not in written
    assert written.count("example.invalid") == 5


PEOPLE = 'id;Full Name;city;note;note\r\n1;"Lee, Ann";Ede;"a\n2;Bo Day";x\r\n2;Bo Day;Oss;;\r\n'


@pytest.mark.parametrize(
    ("redact", "written"),
    [
        (["full_name"], 'id;Full Name;city;note;note\r\n1;<fullname-@>;Ede;"a\n2;Bo Day";x\r\n2;<'),
        (["personal", "-city"], "1;<fullname-@>;Ede;"),
        (["note"], "1;Lee, Ann;Ede;<note-@>;<note-@>\r\n2;Bo Day;Oss;;\r\n"),
        (["nothing"], PEOPLE),
    ],
)
def test_the_columns_of_a_table_are_replaced_by_their_names(redact, written):
    """All else stays as it is, and the table is read as before."""
    headers = (("Content-Type", "text/csv"),)
    table = Interaction(get(), Response(200, "OK", headers, PEOPLE.encode()))
    redactor = Redactor(redact=redact)
    done = redactor.interaction(table)
    text = re.sub(r"-[0-9a-f]{8}>", "-@>", done.response.body.decode())

    assert written in text
    assert redactor.interaction(done) == done
    assert counts_of(table) == {"name": 2, "address line": 2}


@pytest.mark.parametrize("number", [PHONE, "+31612345678", "%2B31612345678", "+31(6)12345678"])
def test_equal_values_get_equal_pseudonyms_however_they_are_written(number):
    """A replay with other spaces or escapes must still find the recorded response."""
    pseudonym = PERSONAL.text("joe@corp.com")

    assert pseudonym == "person-9748fa7c@example.invalid"  # the same in every process
    assert PERSONAL.text("JOE@corp.com") == pseudonym
    assert PERSONAL.text("joe%40corp.com").replace("%40", "@") == pseudonym
    assert PERSONAL.text("jim@corp.com") != pseudonym
    assert PERSONAL.text(number)[-12:] == PERSONAL.text(PHONE)[-12:]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T04:00:00.123456Z",
        "01-02-2026 and 192.168.100.100",
        "8f14e45f-ceea-467f-9575-6a1b1c1f5a3e",
        "1763697600123, python-httpx/0.28.1, @decorator and a@b",
    ],
)
def test_dates_ids_and_addresses_of_machines_are_no_personal_data(text):
    assert PERSONAL.text(text) == text


def test_named_fields_and_dotted_paths_are_replaced_and_no_other_byte():
    body = (
        '{ "name":"Jo","n": 12.10, "n":1e400, "a":{"city": "Ede", "b":[{"city":"Ede"}]},'
        '\n"city":"\\u00e9", "x":"\\/", "name":null}'
    )
    written = redacted(body, "name", "a.city")

    name, city = (re.search(f'"({each}-.*?)"', written)[1] for each in ("<name", "<city"))
    assert written == body.replace('"Jo"', f'"{name}"').replace(
        '{"city": "Ede"', f'{{"city": "{city}"'
    )


def test_a_recipient_who_is_asked_for_by_name_is_replaced_in_any_form():
    assert "Ann" not in redacted('{"to": "Ann"}', "to")


def test_a_pseudonym_is_of_the_type_it_replaces():
    body = '{"v": 12, "w": 1.5, "x": null, "y": true, "z": {"q": ["a", 2]}, "e": "", "tel": "06"}'
    got = json.loads(redacted(body, "v", "w", "x", "y", "z", "e", "personal"))

    assert [type(got[name]) for name in "vwxy"] == [int, float, type(None), type(None)]
    assert got["v"] != 12
    assert got["z"]["q"][0].startswith("<z-")
    assert got["e"] == ""
    assert got["tel"].startswith("+999")


@pytest.mark.parametrize(
    "field",
    [
        "firstName",
        "LAST-NAME",
        "display_name",
        "company",
        "address_line_1",
        "city",
        "mobile",
        "dateOfBirth",
    ],
)
def test_personal_fields_are_known_by_their_names(field):
    texts = (
        json.dumps({"a": [{field: "Ada 1"}, {field: None}, {"b": {field: ["Ada 1"]}}]}),
        f"x=1&{field}=Ada+1",
        f"https://a.test/people?{field}=Ada%201",
        json.dumps({"sent": json.dumps({field: "Ada 1"})}),
        json.dumps({field: "Ada 1", "rest": "is torn"})[:-6],
        "data: " + json.dumps({"it": 1, field: "Ada 1"}) + "\n\n",
    )
    written = list(map(PERSONAL.text, texts))

    assert [text for text in written if "Ada" in text] == []
    assert [len(text.splitlines()) for text in written] == [len(t.splitlines()) for t in texts]


@pytest.mark.parametrize(
    "text",
    [
        *("joe%2540corp.com", "?next=%252Fa%253Fto%253Djoe%2540corp.com", "joe&#64;corp.com"),
        *("joe&amp;#x40;corp.com", "'joe\\u0040corp.com'", r"'\u003cjoe\\u0040corp.com\u003e'"),
    ],
)
def test_an_address_is_found_in_its_encodings(text):
    """In an address, in HTML or in JavaScript, also twice."""
    written = PERSONAL.text(text)
    pseudonym = re.search("person-9748fa7c(.{1,10})example.invalid", written)

    assert pseudonym
    assert written == text.replace(f"joe{pseudonym[1]}corp.com", pseudonym[0])
    assert PERSONAL.text(written) == written
    assert count_personal([], [text]) == {"e-mail address": 1}
    assert count_personal([], [written]) == {}


@pytest.mark.parametrize("field", ["to", "recipient", "recipients", "addressee"])
def test_a_recipient_is_a_person(field):
    """And ``to`` is none if it is the end of a period, an amount or a currency."""
    people = json.dumps({field: ["Ada Lovelace"], "first_line": "Quay 1"})
    written = redacted(people, "personal")
    others = '[{"to": "2026-12-31"}, {"to": "1 Jan 2026"}, {"to": "EUR"}, {"to": 9}]'

    assert f'["<{field}-' in written
    assert '"<firstline-' in written
    assert redacted('{"to": {"id": 7, "name": "Ada"}}', "personal").startswith(
        '{"to": {"id": 7, "name": "<'
    )
    assert redacted(others, "personal") == others
    assert count_personal([people]) == {"recipient": 1, "address line": 1}


def test_a_field_is_spared_with_all_that_is_in_it():
    """A table by city stays one; a field of the same name elsewhere is replaced."""
    body = (
        '{"address": {"city": "Ede", "zip": 1234}, "city": "Delft",'
        ' "reply": {"email": "joe@corp.com"}, "lines": {"name": ["Ada", {"city": "Ede"}]}}'
    )
    got = json.loads(redacted(body, "personal", "-address.city", "-reply", "-lines.name"))
    by_form = Redactor(redact=["personal", "-city"]).text("?city=Ede&zip=1234")

    assert got["address"]["city"] == "Ede"
    assert got["address"]["zip"] != 1234
    assert got["city"].startswith("<city-")
    assert got["reply"] == {"email": "joe@corp.com"}
    assert got["lines"] == {"name": ["Ada", {"city": "Ede"}]}
    assert by_form.startswith("?city=Ede&zip=%3Czip-")


def test_fields_below_an_address_or_a_name_are_personal():
    """A company's fields stay, because its id is not a person's."""
    body = (
        '{"address": {"country": "NL", "lines": ["Quay 1", "", 1234], "main": true},'
        ' "company": {"id": 7, "name": "Engines"}}'
    )
    got = json.loads(redacted(body, "personal"))

    assert got["address"]["country"].startswith("<address-")
    assert got["address"]["lines"][0].startswith("<address-")
    assert got["address"]["lines"][1] == ""
    assert got["address"]["lines"][2] > 1234
    assert got["address"]["main"] is True
    assert got["company"]["id"] == 7
    assert got["company"]["name"].startswith("<name-")


@pytest.mark.parametrize("before", ["Contact:\n", "\u00eb ", "\\"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_replacing_an_email_address_after_an_escape_keeps_json_valid(before, ascii_only):
    for address in ("john@corp.com", "zoë@corp.com"):
        body = json.dumps({"t": f"{before}{address}"}, ensure_ascii=ascii_only)

        assert json.loads(redacted(body, "personal"))["t"] == before + PERSONAL.text(address)
        assert PERSONAL.text(f"data: {body}") == f"data: {redacted(body, 'personal')}"


def test_different_values_of_each_kind_are_counted():
    """A repeated address counts once; examples and the stand-in's people do not count."""
    request = Request("GET", "https://a.test/?email=joe.smith%2Bmail%40corp.com")
    bodies = (
        f'["{EMAIL}", "ann@corp.com", "x@example.com", "{PHONE}"]',
        '{"name": "a list", "first_name": "Ada", "dob": "", "iban": "NL00"}',
        '{"name": "a list", "addr": {"city": "Ede", "zip": 1234}}',
        '{"name": "Stand-in User", "service": "stand-in", "city": "Ede"}',
    )
    interactions = [answered(request, body) for body in bodies]

    assert counts_of(*interactions, *interactions) == {
        "e-mail address": 2,
        "telephone number": 1,
        "name": 2,
        "address line": 2,
        "bank account": 1,
    }
    assert counts_of(*map(PERSONAL.interaction, interactions)) == {}


JOE = answered(body='{"email": "joe@corp.com", "phone": "+31 6 1234 5678"}')
NO_ONE = answered(body='{"email": "stand-in@example.com", "from": "no-reply@corp.com"}')


def notices(*interactions: Interaction, redact: Iterable[str] = ()) -> list[str]:
    lines: list[str] = []
    redactor = Redactor(redact=redact)
    with opened("tour", "any", redactor=redactor, notice=lines.append) as cassette:
        for interaction in interactions:
            cassette.record(interaction)
    return lines


def test_a_notice_after_recording_counts_personal_data_and_says_what_to_do():
    assert notices(JOE, JOE) == [
        "Cassette 'tour' contains 1 e-mail address, 1 telephone number. Before you share it: "
        "directmail-lab cassette redact tour --redact personal, or record it with "
        "redact=['personal']."
    ]


def test_a_notice_names_what_looks_like_a_credential_and_the_command_that_removes_it():
    """A recording keeps it, because only its form shows what it may be."""
    other = answered(body='{"note": "live_newsletter_december"}')
    assert notices(other, answered(body='{"note": "prod_3f9aK2xQ9zLr7Tb4"}')) == [
        "Cassette 'tour' contains what looks like a credential: a service's key, by its prefix "
        "(interaction 2, response body). To remove it: directmail-lab cassette redact tour."
    ]


def test_a_notice_names_the_fields_that_were_spared():
    place = answered(body='{"address": {"city": "Ede", "zip": 1234}}')
    (line,) = notices(place, redact=["personal", "-address.city"])

    assert line == "As you asked, address.city was not replaced."


def test_there_is_no_notice_where_nothing_personal_was_recorded():
    lines = notices(NO_ONE) + notices(JOE, redact=["personal"])
    with opened("tour", "any", notice=lines.append) as cassette:
        cassette.play(get())
    with opened("tour", "any", notice=lines.append) as cassette:
        cassette.record(JOE)
        assert lines == []
        # The notice is optional, so a missing file must not raise.
        Path("cassettes/tour.yaml").unlink()

    (line,) = lines
    assert "is gone" in line


@pytest.mark.parametrize(("count", "padding", "searched"), [(2500, 10, "834"), (4, 400_000, "2")])
def test_the_notice_for_a_large_recording_says_how_much_was_searched(count, padding, searched):
    """The sample is spread over the whole recording, and no larger than a megabyte."""
    texts = (f'"u{number}@corp.com {"x" * padding}"' for number in range(count))
    (line,) = notices(*(answered(body=text) for text in texts))

    assert f" in the first megabyte of {searched} of its interactions. " in line


def test_the_notice_for_a_large_body_counts_in_its_first_megabyte():
    people = json.dumps([f"u{number}@corp.com" for number in range(100_000)])
    (line,) = notices(answered(body=people))
    (count,) = re.findall("contains ([0-9,]+) e-mail addresses in the first megabyte of 1 ", line)

    assert 40_000 < int(count.replace(",", "")) < 60_000


def test_a_session_warns_of_personal_data_when_a_recording_ends(caplog):
    with (
        stand_in(user={"name": "Joe", "email": "joe@corp.com"}) as service,
        Session(service.base_url, ApiKey(service.api_key)) as session,
    ):
        with session.record("tour"):
            session.me()
        with session.replay("tour"):
            session.me()

    assert [(each.name, each.levelno) for each in caplog.records if "contains" in each.message] == [
        ("directmail_lab", logging.WARNING)
    ]
