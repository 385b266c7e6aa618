"""A session with an OpenAPI document: its templates, and which responses it does not describe."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import directmail_lab as dm
from directmail_lab.exchange.api_document import ApiDocument
from directmail_lab.exchange.values import Interaction, Request, Response

BASE = "https://api.example.com/eu"
LETTER = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": {"type": "integer"},
    "properties": {
        "id": {"type": "integer", "exclusiveMinimum": 0},
        "zip": {"$ref": "#/components/schemas/Zip"},
        "pattern": {"type": "string", "pattern": "("},
    },
}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://api.example.com/eu/v1/"}],
    "paths": {
        "/letters/{letter-id}": {
            "get": {
                "responses": {
                    "200": {"content": {"application/json; charset=utf-8": {"schema": LETTER}}},
                    "4XX": {"$ref": "#/components/responses/Problem"},
                }
            }
        },
        "/letters/latest": {
            "get": {
                "responses": {
                    200: {"content": {"*/*": {"schema": {"type": "array"}}}},
                    "default": {"description": ""},
                }
            }
        },
        "/lists": {"$ref": "#/components/pathItems/Lists"},
    },
    "components": {
        "schemas": {"Zip": {"type": ["string", "null"], "maxLength": 5}},
        "responses": {"Problem": {"content": {"application/json": {"schema": {"type": "object"}}}}},
        "pathItems": {"Lists": {"post": {"responses": {"201": {"description": "made"}}}}},
    },
}


def response(body: str = "", status: int = 200, media_type: str = "application/json") -> Response:
    return Response(status, "", (("Content-Type", media_type),), body.encode())


@pytest.mark.parametrize(
    ("request_line", "given", "said"),
    [
        ("GET /v1/letters/7", response('{"id": 7, "zip": null}'), None),
        ("GET /v1/letters/7", response('{"id": "7"}'), "$.id: '7' is not of type 'integer'"),
        ("GET /v1/letters/7", response("{}"), "$: 'id' is a required property"),
        ("GET /v1/letters/7", response('{"id": 0}'), "$.id: 0 is less than or equal to"),
        ("GET /v1/letters/7", response('{"id": 7, "zip": "030010"}'), "$.zip: '030010' is too lo"),
        ("GET /v1/letters/7", response("<p>"), "The body is not JSON"),
        ("GET /v1/letters/7", response("<p>", media_type="text/html"), "no content type text/html"),
        ("GET /v1/letters/7", response("[]", 404), "$: [] is not of type 'object'"),
        ("GET /v1/letters/7", response("", 404), None),
        ("GET /v1/letters/7", response("{}", 500), "The document has no status 500 here."),
        ("GET /v1/letters/7", response('{"id": 7, "pattern": ""}'), "schema cannot be used"),
        ("GET /v1/letters/7", response('{"id": 7, "\\u001bk": ""}'), ": '' is not of type 'int"),
        ("GET /v1/letters/7", Response(0, "", no_response="read_error"), None),
        ("GET /v1/letters/latest", response("{}"), "$: {} is not of type 'array'"),
        ("GET /v1/letters/latest", response("{}", 500), None),
        ("POST /v1/lists", response("{}", 201), None),
        ("GET /v1/lists", response("{}"), "The document has no GET of this path."),
        ("GET /letters/7", response("{}"), "The document has no GET of this path."),
    ],
)
def test_a_mismatch_says_what_the_document_does_not_describe(request_line, given, said):
    """The line can be printed, whatever a response has."""
    method, path = request_line.split()
    request = Request(method, f"{BASE}{path}")
    found = ApiDocument(DOCUMENT, BASE).mismatch(path, Interaction(request, given))

    assert found is None if said is None else said in str(found)
    assert found is None or found.isprintable()


def test_a_reference_to_another_place_is_not_requested(service):
    """Whoever opens a stranger's document would tell that place."""
    content = {"application/json": {"schema": {"$ref": f"{service.base_url}/v1/users/me"}}}
    paths = {"/v1/n": {"get": {"responses": {"200": {"content": content}}}}}
    document = ApiDocument({"openapi": "3.1.0", "paths": paths}, BASE)
    found = document.mismatch("/v1/n", Interaction(Request("GET", f"{BASE}/v1/n"), response("1")))

    assert "schema cannot be used" in str(found)
    assert service.requests.total() == 0


def test_null_and_exclusive_bounds_are_those_of_version_3_0():
    """They are written in another way there."""
    schema = {"type": "integer", "nullable": True, "minimum": 0, "exclusiveMinimum": True}
    content = {"application/json": {"schema": schema}}
    paths = {"/v1/n": {"get": {"responses": {"200": {"content": content}}}}}
    document = ApiDocument({"openapi": "3.0.3", "servers": [], "paths": paths}, BASE)
    request = Request("GET", f"{BASE}/v1/n")

    for body, fits in {"null": True, "1": True, "-1": False, '"1"': False}.items():
        assert (document.mismatch("/v1/n", Interaction(request, response(body))) is None) == fits


def test_the_paths_of_a_document_are_the_templates_of_a_session():
    """They are below the session's address, plain words before ids, after the caller's own."""
    (Path("api.yaml")).write_text(yaml.safe_dump(DOCUMENT), "utf-8")
    (Path("api.json")).write_text(json.dumps(DOCUMENT, indent="\t"), "utf-8")
    for given in (DOCUMENT, "api.yaml", Path("api.json")):
        session = dm.Session(BASE, templates=["/v1/x/{x}"], openapi=given)

        assert session.templates == (
            *("/v1/x/{x}", "/v1/letters/latest", "/v1/lists", "/v1/letters/{letter_id}"),
        )


def test_what_was_recorded_fits_the_document_that_was_made_of_it(service):
    """It has no path with nothing but 404. A response that did not come has no value."""
    dm.openapi("explore-an-unknown-api").save("api.yaml")
    assert "mismatch" not in dm.interactions("explore-an-unknown-api")
    dm.connect(service.base_url, service.api_key, openapi="api.yaml", retry=False)
    recorded = dm.interactions(["explore-an-unknown-api"])
    dm.get("/v1/users/me")
    with service.fault(body='{"id": "\\u001b[1mx", "email": 5}'):
        dm.get("/v1/users/me")
    with service.fault(drop="reset"), pytest.raises(Exception, match="broke"):
        dm.get("/v1/users/me")
    frame = dm.interactions()

    assert set(recorded.dropna(subset="mismatch")["path"]) == {"/v1/nowhere", "/v2/users/me"}
    assert frame["mismatch"].dtype == "string"
    assert frame["mismatch"].isna().tolist()[:2] == [True, False]
    assert "\x1b" not in frame["mismatch"].iloc[1]
    assert frame["operation"].eq("/v1/users/me").all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("no.yaml", "No such file or directory: 'no.yaml'"),
        ("api.yaml", "line 1, column 5"),
        ("list.json", "it is no OpenAPI document of version 3"),
        ({"swagger": "2.0", "paths": {}}, "it is no OpenAPI document of version 3"),
        ({"openapi": "3.1.0", "paths": []}, "it is no OpenAPI document of version 3"),
    ],
)
def test_what_is_no_document_is_refused(given, said):
    Path("api.yaml").write_text("a: [", "utf-8")
    Path("list.json").write_text("[1]", "utf-8")
    with pytest.raises(dm.DirectMailLabError) as caught:
        dm.connect(BASE, "key", openapi=given)

    assert said in str(caught.value)
    assert "Give the path of a file in YAML or JSON" in str(caught.value)


def test_without_jsonschema_an_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "directmail_lab.exchange.api_document")
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    dm.Session(BASE)
    with pytest.raises(dm.DirectMailLabError, match=r"needs jsonschema.*pip install"):
        dm.Session(BASE, openapi=DOCUMENT)
