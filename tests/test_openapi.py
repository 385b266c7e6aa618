"""OpenAPI from recordings: valid, true of every interaction, and without recorded values."""

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from cassette_samples import BASE_URL, answered, get, post, recorded, theirs, typed
from hypothesis import example, given, settings, strategies as st
from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import validate
from tutorials import CASSETTES

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.exchange import contract
from directmail_lab.exchange.bodies import read_json_body
from directmail_lab.exchange.values import Interaction, Request, Response, header
from directmail_lab.questions.findings import in_words
from directmail_lab.questions.shapes import Components, resolved, schema_of

LOCAL = "http://127.0.0.1:8431"
LIKE_OURS: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100}


def described(*interactions: Interaction) -> dict[str, Any]:
    Path("any.yaml").unlink(missing_ok=True)  # otherwise, its old interactions would stay
    return dm.openapi(recorded(Path("any.yaml"), *interactions))


def schema_at(document: dict[str, Any], path: str = "/v1/users/me") -> dict[str, Any]:
    response = document["paths"][path]["get"]["responses"]["200"]
    return resolve(document, response["content"]["application/json"]["schema"])


def resolve(document: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    for name in value.get("$ref", "#").split("/")[1:]:
        value, document = document[name], document[name]
    return value


def template_of(templates: list[str], path: str) -> str | None:
    """Return the template of a path. In OpenAPI, concrete paths come before templated ones."""
    matches = [
        template
        for template in templates
        if re.fullmatch(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(template)), path)
    ]
    return min(matches, key=lambda match: (match.count("{"), ":" not in match), default=None)


def problem(document: dict[str, Any], interaction: Interaction) -> str | None:
    """Return what the document does not allow in an interaction, read as another program would."""
    request, response = interaction.request, interaction.response
    path = urlsplit(request.uri).path.replace("{", "%7B").replace("}", "%7D")
    if response.status == 404 and template_of(document.get("x-only-404", []), path):
        return None
    item = document["paths"][template_of(list(document["paths"]), path)]
    operation = item[request.method.lower()]
    described = resolve(document, operation["responses"][str(response.status)])
    query = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    headers = {
        name.lower(): resolve(document, at) for name, at in described.get("headers", {}).items()
    }
    body = operation.get("requestBody", {"required": False, "content": {}})
    sent, sent_schema = body_of(body["content"], request)
    received, schema = body_of(described.get("content", {}), response)
    instance = {
        "query": dict(parse_qsl(urlsplit(request.uri).query, keep_blank_values=True)),
        "headers": {k.lower(): int(v) if v.isdecimal() else v for k, v in response.headers},
        "received": received,
        **({"sent": sent} if request.body else {}),
    }
    schemas = {
        "query": {
            "properties": {each["name"]: {} for each in query},
            "required": [each["name"] for each in query if each["required"]],
            "additionalProperties": False,
        },
        "headers": {
            "properties": {name: about["schema"] for name, about in headers.items()},
            "required": [name for name, about in headers.items() if about["required"]],
        },
        "sent": sent_schema,
        "received": schema,
    }
    required, components = ["sent"] * body["required"], document["components"]
    whole = {"properties": schemas, "required": required, "components": components}
    errors = Draft202012Validator(whole, format_checker=FormatChecker()).iter_errors(instance)
    return next((f"{error.json_path}: {error.message}" for error in errors), None)


def body_of(content: dict[str, Any], message: Request | Response) -> Any:
    """Return a body as JSON or text, and the schema of its content type."""
    declared = (header(message.headers, "Content-Type") or "").partition(";")[0].lower()
    media = content.get(declared) or content.get("*/*")
    body = message.body or b""
    if not body or "form" in declared:
        return None, True
    value, fault = read_json_body(message)
    if media is None:
        return value, False
    if fault or ("json" not in declared and not isinstance(value, dict | list)):
        value = body.decode("utf-8", "replace")
    return value, media["schema"]


TEXTS = st.text(max_size=8) | st.sampled_from(["2026-11-21", "ada@example.org"])


def json_values(*names: str) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.sampled_from([None, True, 1, 0.5]) | TEXTS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=4)
        ),
        max_leaves=10,
    )


# -- the document ------------------------------------------------------------------------------


def test_every_interaction_of_the_tutorials_fits_a_valid_document():
    document = dm.openapi(CASSETTES)
    validate(document)
    interactions = [each for path in CASSETTES for each in read_cassette(path).interactions]

    assert len(interactions) > 200
    assert not [found for each in interactions if (found := problem(document, each))]
    assert document["servers"] == [{"url": LOCAL}]
    assert set(document["x-only-404"]) == {"/v1/nowhere", "/v2/users/me"}


def listed(path: str, *bodies: Any, status: int = 200) -> list[Interaction]:
    """Return one GET of the path for each body."""
    return [answered(get(path), json.dumps(body), status=status) for body in bodies]


ADA = {"id": 1, "name": "Ada", "company": {"name": "x", "city": "y"}}
BOB = {"id": 2, "name": "Bob", "company": None, "phone": "5"}


def test_an_operation_has_an_id_a_tag_and_named_parameters():
    paths = ["/v1/lists/7/members/8", "/v1/lists/7/members/8:copy", "/v1/a-b", "/v1/a_b", "/9"]
    tour = recorded("tour.yaml", *(answered(get(path)) for path in paths))
    document = dm.openapi(tour, title="Letters", version="2.1")
    operations = {path: item["get"] for path, item in document["paths"].items()}

    validate(document)
    assert (document["info"]["title"], document["info"]["version"]) == ("Letters", "2.1")
    assert {path: (each["operationId"], each.get("tags")) for path, each in operations.items()} == {
        "/v1/lists/{list_id}/members/{member_id}": (
            "get_v1_lists_list_id_members_member_id",
            ["lists"],
        ),
        "/v1/lists/{list_id}/members/{member_id}:copy": (
            "get_v1_lists_list_id_members_member_id_copy",
            ["lists"],
        ),
        "/v1/a-b": ("get_v1_a_b", ["a-b"]),
        "/v1/a_b": ("get_v1_a_b_2", ["a_b"]),
        "/{id}": ("get_id", None),
    }


def test_a_path_of_a_thousand_ids_is_described_in_linear_time():
    """The names of its ids are numbered. With a longer ending for each, this took minutes."""
    (path,) = described(*listed("/v1" + "/1" * 1_000, {}))["paths"]

    assert path.startswith("/v1/{id}/{id_2}/{id_3}/")
    assert path.endswith("/{id_1000}")


def test_equal_objects_share_one_component_named_after_where_they_occur():
    """Objects that differ only by null or optional fields are equal, also in errors and arrays."""
    error = {"error": {"message": "no"}}
    document = described(
        *listed("/v1/users", [ADA, BOB]),
        *listed("/v1/users/1", {**ADA, "company": None}, BOB),
        *listed("/v1/users/2", error, status=404),
        *listed("/v1/lists", {"data": [{"id": 7}], "page": 1}),
        *listed("/v1/lists/7", {"data": {"id": 7}}),
        *listed("/v1/lists/7/owner", {"id": 7, "since": "2026-01-01"}),
    )
    schemas = document["components"]["schemas"]
    company = {"$ref": "#/components/schemas/Company"}

    validate(document)
    assert list(schemas) == [
        *("List", "Lists", "ListResponse", "Owner", "Company", "User", "Users"),
        *("Error", "ErrorResponse"),
    ]
    assert schemas["Users"] == {"type": "array", "items": {"$ref": "#/components/schemas/User"}}
    assert schemas["User"]["required"] == ["id", "name", "company"]
    assert schemas["User"]["properties"]["company"] == {"anyOf": [company, {"type": "null"}]}
    assert schemas["User"]["properties"]["phone"] == {"type": "string"}
    assert schemas["ErrorResponse"]["properties"] == {
        "error": {"$ref": "#/components/schemas/Error"}
    }


def test_a_field_has_the_types_and_the_format_of_all_its_values():
    """A field that was always null has no type. An array has ``items``, or generators skip it."""
    first = {"id": 1, "phone": None, "born": "1815-12-10", "seen": "2026-01-01", "no": None}
    second = {"id": 2.5, "phone": "5", "seen": "never", "site": "https://x.test/", "no": None}
    bodies = [{**each, "rows": [None], "known": [[1], []], "tags": []} for each in (first, second)]
    document = described(*listed("/v1/users/me", *bodies))
    schema = schema_at(document)

    validate(document)
    assert schema["required"] == ["id", "phone", "seen", "no", "rows", "known", "tags"]
    assert schema["properties"] == {
        "id": {"type": "number"},
        "phone": {"type": ["string", "null"]},
        "born": {"type": "string", "format": "date"},
        "seen": {"type": "string"},
        "site": {"type": "string", "format": "uri"},
        "no": {},
        "rows": {"type": "array", "items": {}},
        "known": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "tags": {"type": "array", "items": {}},
    }


@pytest.mark.parametrize("writer", [recorded, theirs])
def test_the_most_requested_server_comes_first(writer):
    """A recording of several regions has several service addresses."""
    eu, us = "https://eu.example.test", "https://us.example.test"
    requests = [get("/v1/users/me", base=us), get("/v1/lists", base=us), get("/v1/lists", base=us)]
    requests += [get("/v1/users/me", base=eu), get("/v1/letters", base=eu)]
    document = dm.openapi(writer(Path("regions.yaml"), *map(answered, requests)))

    validate(document)
    assert document["servers"] == [{"url": us}, {"url": eu}]


def test_parameters_have_the_types_that_were_seen():
    request = get("/v1/lists/8f14e45f/members/12?page=2&tag=a&tag=b&q=1&in[]=a")
    other = get("/v1/lists/8f14e45f/members/12?page=3&tag=a&q=x&more=true")
    form = post(b"name=Ada&age=3", content_type="application/x-www-form-urlencoded")
    document = described(*map(answered, (request, other, form)))
    parameters = document["paths"]["/v1/lists/{list_id}/members/{member_id}"]["get"]["parameters"]
    sent = document["paths"]["/v1/letters"]["post"]["requestBody"]["content"]

    assert [(each["name"], each["required"], each["schema"]) for each in parameters] == [
        ("list_id", True, {"type": "string"}),
        ("member_id", True, {"type": "integer"}),
        ("in[]", False, {"type": "array", "items": {"type": "string"}}),
        ("more", False, {"type": "boolean"}),
        ("page", True, {"type": "integer"}),
        ("q", True, {"type": "string"}),
        ("tag", True, {"type": "array", "items": {"type": "string"}}),
    ]
    fields = resolve(document, sent["application/x-www-form-urlencoded"]["schema"])
    assert fields["properties"] == {"age": {"type": "integer"}, "name": {"type": "string"}}


def test_a_document_contains_no_personal_data():
    """A person's data may be in a body, but also be a field name or a path segment."""
    by = {"ada@lovelace.org": {"seen": 1}, "+49 30 123": {}, "Ann Lee": {}}
    friends = {"ada@lovelace.org": {"Eve": 1, "Bob": 2}, "bo%40x.org": {"Zoe": 3}, "Jo%20Po": {}}
    query = "q=Lovelace&ada@lovelace.org=1&%2B3161234=1"
    interactions = []
    for person, names in friends.items():
        request = get(f"/v1/people/{person}/letters?{query}")
        request = replace(request, headers=(("X-ada@lovelace.org", "1"),))
        body = {"name": "Ada Lovelace", "by": by, "friends": names}
        interactions.append(answered(request, json.dumps(body)))
    document = described(*interactions)
    text = json.dumps(document)

    assert [*document["paths"]] == ["/v1/people/{people_id}/letters"]
    assert not re.search("ovelace|ada@|123|bo%40|Po|Eve|Bob|Zoe|Ann", text)
    schema = schema_at(document, "/v1/people/{people_id}/letters")
    assert "additionalProperties" in schema["properties"]["by"]


def test_a_document_omits_a_key_that_another_program_recorded():
    """vcrpy does not redact, so the key may be in an address, a header, a field name or a body."""
    key = "sk_live_9f8e7d6c5b4a"
    basic = base64.b64encode(f"{key}:".encode()).decode()
    uri = f"{BASE_URL}/v1/keys/{key}/x?{key}=1&api_key={key}"
    body = json.dumps({key: key, "auth": basic})
    request = Request("GET", uri, (("Authorization", f"Basic {basic}"), ("X-Key", key)))
    response = Response(200, key, (("X-Key", key),), body.encode())
    theirs("foreign.yaml", Interaction(request, response))
    document = dm.openapi(Path("foreign.yaml"))
    text = json.dumps(document)

    validate(document)
    assert "x-key" in text
    assert not [each for each in (key, basic, key[4:], "api_key", "security") if each in text]
    assert described(answered())["security"] == [{"basic": []}]


def test_a_document_describes_what_openapi_can():
    odd = Request("PURGE", f"{BASE_URL}/v1/lists")
    document = described(
        *(answered(odd), answered(get("/v1/odd"), status=999), answered(get("/v1/cut"), '{"a')),
        typed("image/png", b"\x89PNG"),
    )

    assert [*document["paths"]] == ["/v1/cut", "/v1/x"]
    cut = document["paths"]["/v1/cut"]["get"]["responses"]["200"]["content"]["application/json"]
    assert cut == {"schema": {}}
    media = document["paths"]["/v1/x"]["get"]["responses"]["200"]["content"]
    assert media["image/png"]["schema"] == {"type": "string", "format": "binary"}
    validate(document)


# -- any service -------------------------------------------------------------------------------

SEGMENTS = st.sampled_from(["lists", "me", "v1", "12", "8f14e45f", "a%20b", "x@y.org", "{odd}", ""])
JSON_TYPES = ["application/json", "application/problem+json; charset=utf-8"]
TYPES = st.sampled_from([*JSON_TYPES, "text/html", "odd", "multipart/form-data; boundary=b"])
HEADERS = st.sampled_from([("X-RateLimit-Limit", "300"), ("Retry-After", "9"), ("X-Page", "a")])
NAMES = ("id", "name", "data", "a.b", "Zürich", "7", "x@y.org", "Ada Lovelace")
BODIES = json_values(*NAMES).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=9)


@st.composite
def exchanges(draw: st.DrawFn) -> Interaction:
    path = "/".join(draw(st.lists(SEGMENTS, min_size=1, max_size=3)))
    query = "&".join(draw(st.lists(st.sampled_from(["page=1", "page=x", "q=", "tag"]), max_size=3)))
    method = draw(st.sampled_from(["GET", "GET", "POST", "PUT", "DELETE", "HEAD"]))
    sent = draw(BODIES) if method in ("POST", "PUT") else b""
    headers = draw(st.sets(HEADERS | st.tuples(st.just("Content-Type"), TYPES), max_size=4))
    status = draw(st.sampled_from([200, 200, 201, 204, 404, 429, 500]))
    body = b"" if method == "HEAD" or status == 204 else draw(BODIES)
    request_headers = (("Content-Type", draw(TYPES)),)
    return Interaction(
        Request(method, f"{BASE_URL}/{path}?{query}", request_headers, sent),
        Response(status, "", tuple(headers), body),
    )


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(exchanges(), min_size=1, max_size=12))
def test_every_interaction_of_any_service_fits_its_valid_document(interactions):
    document = described(*interactions)
    validate(document)

    assert not [found for each in interactions if (found := problem(document, each))]


def test_a_document_is_saved_as_yaml_or_json(tour):
    document = dm.openapi(tour, paths=["/v1/{kind}/me"], title="Letters")
    document.save("api.yaml")
    document.save("api.json")

    saved = Path("api.yaml").read_text()
    assert json.loads(Path("api.json").read_text()) == yaml.safe_load(saved) == document
    assert saved == yaml.safe_dump(dict(document), **LIKE_OURS)
    assert "&id" not in saved


def test_a_notebook_shows_the_operations_with_their_statuses():
    odd = get("/v1/<i>x")
    nowhere = answered(get("/v1/no"), status=404)
    tour = recorded("tour.yaml", answered(odd), answered(), answered(status=404), nowhere)
    table = dm.openapi(tour)._repr_html_()

    assert ">GET /v1/users/me</td>" in table
    assert ">200, 404</td>" in table
    assert "Nothing but 404: /v1/no." in table
    assert "<i>" not in table


@given(st.lists(st.lists(json_values("a", "b"), min_size=1, max_size=3), min_size=2, max_size=4))
@example([[{"a": 1, "b": 1}], [{"a": 1, "b": 1}, {"a": 1}]])
@example([[{"a": 1, "b": "2026-11-21"}], [{"a": None, "b": "x"}]])
@example([[{"a": 1, "7": 1}], [{"a": 1, "8": "x"}]])
def test_every_value_conforms_to_its_schema_with_shared_components(groups):
    """Merging equal objects into components must not make any schema wrong."""
    components = Components()
    schemas = [components.refer(schema_of(values), "a", "Response") for values in groups]
    whole = {"schemas": schemas, "components": {"schemas": components}}
    document = resolved(whole)

    for number, values in enumerate(groups):
        schema = {**document["schemas"][number], "components": document["components"]}
        validator = Draft202012Validator(schema, format_checker=FormatChecker())
        assert all(map(validator.is_valid, values))


def test_the_size_of_a_schema_is_bounded():
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}

    assert in_words(schema_of([])) == "anything"
    assert in_words(schema_of([{f"k{n}": {"b": n} for n in range(100_000)}])) == "{id}.b integer"
    assert in_words(schema_of([deep])).count("a") <= 30


def test_each_header_of_the_contract_has_a_meaning():
    """A header that is added is described in a document, too."""
    names = {value for name, value in vars(contract).items() if name.endswith("_HEADER")}

    assert names == contract.MEANINGS.keys()
