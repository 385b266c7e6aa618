"""What an error says of a response with an error status, in the words of the service."""

import json
import re
from typing import Any

import pytest
from faulty_service import FaultyService

import directmail_lab as dm
from directmail_lab.errors import NotJSONError, ServiceError
from directmail_lab.sessions.clients.refusals import check
from directmail_lab.sessions.session import Session

LONG = "x" * 3_000
FIVE = "f0: No; f1: No; f2: No; f3: No; f4: No"


def refusal(service: FaultyService, session: Session, body: Any, **fault: Any) -> ServiceError:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with (
        service.fault(**{"status": 400, "body": content, **fault}),
        pytest.raises(ServiceError) as caught,
    ):
        check(session.get("/v1/users/me"), session.base_url)
    return caught.value


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "No such list."}, "No such list"),
        ({"message": "Too long"}, "Too long"),
        ({"error": {"status": 400, "message": "Bad date"}}, "Bad date"),
        ({"title": "Invalid", "detail": "Bad date", "status": 422}, "Invalid; Bad date"),
        ({"errors": [{"detail": "Bad date"}, {"detail": "No name"}]}, "Bad date; No name"),
        ({"detail": [{"loc": ["body", 0, "name"], "msg": "required"}]}, "body.0.name: required"),
        (
            {
                "message": "1 wrong",
                "errors": [{"field": "zip", "code": "e", "message": "Too long"}],
            },
            "1 wrong; zip: Too long",
        ),
        ({"errors": [{"field": "zip", "code": "too_long"}]}, "zip: too_long"),
        ({"title": "A", "invalid-params": [{"name": "zip", "reason": "No"}]}, "A; zip: No"),
        ({"error": {"message": "A", "status": 422, "fields": {"zip": ["No"]}}}, "A; zip: No"),
        (
            {"error": {"message": "A", "details": [{"path": "a.zip", "issue": "No"}]}},
            "A; a.zip: No",
        ),
        (
            {"errors": [{"title": "A", "detail": "B", "source": {"pointer": "/data/zip"}}]},
            "/data/zip: A; /data/zip: B",
        ),
        ({"errors": {"zip": ["Long", "No"], "to": "No"}}, "zip: Long; zip: No; to: No"),
        ({"errors": [{"field": f"f{n}", "message": "No"} for n in range(9)]}, FIVE),
        ({"errors": {f"f{n}": "No" for n in range(9)}}, FIVE),
        (
            {"code": "E1", "id": "req_1", "at": {"field": "zip"}},
            "{'code': 'E1', 'id': 'req_1', 'at': {'field': 'zip'}}",
        ),
        (
            {"fehler": [{"stelle": "contact_id", "grund": "fehlt"}]},
            "{'fehler': [{'stelle': 'contact_id', 'grund': 'fehlt'}]}",
        ),
        (
            {"result": {"problems": {"list": [{"at": "address.zip"}]}}},
            "{'result': {'problems': {'list': [{'at': 'address.zip'}]}}}",
        ),
        ({"api_key": "live4", "at": "zip"}, "{'api_key': '<REDACTED>', 'at': 'zip'}"),
        ({"error": "invalid", "error_description": "Old token"}, "invalid; Old token"),
        ([{"message": "Bad date"}, {"message": "Bad date"}], "Bad date"),
        ({"errors": {"a": {"error": 5}}}, "{'errors': {'a': {'error': 5}}}"),
        ({"user": "ada@example.com"}, "{'user': 'person-739160f0@example.invalid'}"),
        ("Bad date", "'Bad date'"),
        (b"<p>Bad date</p>", ""),
        (b"", ""),
    ],
    ids=str,
)
def test_an_error_quotes_what_the_service_says_to_people(service, unpaced, body, said):
    """It takes the usual members alone, also nested ones. Other parts of a body are data."""
    error = refusal(service, unpaced, body)
    quoted = f'400 Bad Request: "{said}".' if said else "400 Bad Request."

    assert error.said == said
    assert f"GET /v1/users/me responded with {quoted}\nCorrect the request." in str(error)
    assert ("dm.interactions(number=1)" in error.advice) == bool(body and not said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("key {key} is old", "key <API_KEY> is old"),
        ("key {key[0]}\\u{escaped} is old", "key <API_KEY> is old"),
        (f"{'-' * 195}{{key}}", f"{'-' * 195}<API…"),
        ("No account for joe@corp.com", "No account for person-9748fa7c@example.invalid"),
        ("Call +49 171 1234567", "Call +999249303641"),
        ("See https://u:p@a.test/?api_key=abcdefgh", "See https://<REDACTED>@a.test/?api_key="),
        ("a\\r\\nb\\u001b[31mc\\u202ed\\ud800e\\u0000f", "a b\\x1b[31mc\\u202ed\\ud800e\\x00f"),
        ('say \\"no\\" to <script>', "say 'no' to <script>"),
        (LONG, f"{LONG[:199]}…"),
    ],
)
def test_a_quoted_message_is_redacted_printable_and_short(service, unpaced, text, said):
    key = service.api_key
    escaped = f"{ord(key[1]):04x}{key[2:]}"
    text = text.replace("{key[0]}", key[0]).replace("{escaped}", escaped).replace("{key}", key)
    error = refusal(service, unpaced, f'{{"message": "{text}"}}'.encode())

    assert error.said.startswith(said)
    assert len(error.said) <= 200
    assert error.said.isprintable()
    assert key not in f"{error}{vars(error)}"


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": ' * 50_000,
        json.dumps({"error": "big", "data": LONG * 700}).encode(),
        b'{"error": "\xff"}',
    ],
    ids=["cut", "2 MB", "not UTF-8"],
)
def test_a_body_that_is_not_a_short_message_is_not_quoted(service, unpaced, body):
    error = refusal(service, unpaced, body)

    assert error.said == ""
    assert error.advice.endswith("To see the whole response: dm.interactions(number=1).")


def test_a_long_body_of_another_shape_is_quoted_in_part(service, unpaced):
    """The advice names the call that shows the rest of it."""
    body = b'{"error": ' * 900 + b'"deep"' + b"}" * 900
    error = refusal(service, unpaced, body)

    assert error.said == "{'error': " * 19 + "{'error':…"
    assert error.advice.endswith("To see the whole response: dm.interactions(number=1).")


def test_a_failed_read_says_how_often_it_was_sent(service, live):
    """A gateway's page is not JSON either way, so there is no advice to keep it."""
    with service.fault(html=True, headers={"Retry-After": "0"}):
        response = live.get("/v1/users/me")
    with pytest.raises(ServiceError, match="responded with 502 Bad Gateway after 4 att") as caught:
        dm.frame(response)

    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(NotJSONError, match=r"502 Bad Gateway after 4 attempts \(content"):
        dm.frame(response, on_error="keep")


def test_a_404_says_which_address_was_tried(service):
    """A service address with a wrong prefix is seen at once, and so is a wrong port."""
    with (
        dm.Session(f"{service.base_url}/eu", service.api_key) as session,
        pytest.raises(ServiceError, match=f"service address: {service.base_url}/eu/v1/users/me."),
    ):
        session.me()


@pytest.mark.parametrize(
    ("unit", "headers", "said"),
    [
        (None, {"Retry-After": "7"}, "The service asks to wait for 7 s"),
        (None, {}, "X-RateLimit-Reset is 9, in a unit that is not known yet: dm.findings"),
        (None, {"X-RateLimit-Reset": None}, "The service does not say when it renews"),
        ("seconds_left", {}, "It renews at 20.* UTC, 9 s after this response"),
    ],
)
def test_a_429_says_when_the_allowance_renews_if_that_is_known(service, unit, headers, said):
    """Retry-After comes first. If the unit is not known, the error names what finds it out."""
    options: dict[str, Any] = {"pace": "off", "reset_unit": unit}
    with dm.Session(service.base_url, service.api_key, **options) as session:
        more = {"X-RateLimit-Reset": "9", "X-RateLimit-Remaining": "0", **headers}
        error = refusal(service, session, {}, status=429, headers=more)

    assert re.match(f"The allowance is used up. {said}", error.advice)


@pytest.mark.parametrize(
    ("remaining", "said"),
    [
        ("6", "The service refused it although 6 requests were left: send fewer at once. "),
        (None, "The service refused it, and does not say how many requests are left. "),
    ],
)
def test_a_429_is_not_called_used_up_if_it_does_not_say_so(service, unpaced, remaining, said):
    more = {"X-RateLimit-Remaining": remaining}
    error = refusal(service, unpaced, {}, status=429, headers=more)

    assert error.advice.startswith(said)


@pytest.mark.parametrize(
    ("location", "leads"),
    [
        ("/v2/users?token=abc", "a redirect to {base}/v2/users."),
        ("https://u:p@b.test/{key}/x?a#b", "a redirect to https://b.test/<API_KEY>/x."),
    ],
)
def test_a_redirect_without_a_body_says_where_it_leads(service, live, location, leads):
    """The address is shown without user info and query, which may contain credentials."""
    target = location.replace("{key}", service.api_key)
    with service.fault(status=302, body=b"", headers={"Location": target}):
        response = live.get("/v1/users/me")
    with pytest.raises(NotJSONError) as caught:
        dm.frame(response)

    leads = leads.replace("{base}", service.base_url)
    assert f"responded with 302 Found, {leads}\n" in str(caught.value)
    assert "follow_redirects=True" in caught.value.advice
