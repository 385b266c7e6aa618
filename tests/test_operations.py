"""Operations: which segments of a path are ids."""

import re

import pytest
from cassette_samples import answered, get, recorded

import directmail_lab as dm
from directmail_lab.exchange.operations import operation_of, operations_of

NAMES = """
oauth2 v1beta v1beta1 v2.6.1 base64 s3-bucket k8s-clusters sha256 i18n 2fa mp3 ipv6 users @me
auth.test users.info index.html models:batchGet rate_limit serverInfo v1 lists :id
"""
IDS = """
12 8f14e45f lst_8f3kq2 cus_9s6XKzkNRiz8i3 dQw4w9WgXcQ 3fa85f64-5717-4562-b3fc-2c963f66afa6 ABC-1
example.com shop.acme.co.uk 10.0.0.1 2026-11-21 gpt-4 us-east-1 order-1001
ada%40example.org Ann%20Lee +49301234567 %3CAPI_KEY%3E sha256:9f86d081884c7d65
"""


@pytest.mark.parametrize(
    ("segments", "operation"), [(NAMES.split(), "/v1/x/{}/y"), (IDS.split(), "/v1/x/{{id}}/y")]
)
def test_a_segment_alone_is_a_name_or_an_id(segments, operation):
    found = {segment: operation_of(f"/v1/x/{segment}/y") for segment in segments}

    assert found == {segment: operation.format(segment) for segment in segments}


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/2013-04-01/hostedzone/Z12ABC34", "/2013-04-01/hostedzone/{id}"),
        ("/reports/2013-04-01/rows", "/reports/{id}/rows"),
        ("/rest/api/2/issue/ABC-1", "/rest/api/2/issue/{id}"),
        ("/3/movie/550", "/3/movie/{id}"),
        ("/12", "/{id}"),
        ("/v1beta/models/gemini-2.0:generateContent", "/v1beta/models/{id}:generateContent"),
        ("/admin/api/2024-01/products/632910392.json", "/admin/api/2024-01/products/{id}.json"),
    ],
)
def test_versions_are_recognized_by_their_place_and_verbs_are_preserved(path, operation):
    """Versions are at the start or after `api`. A verb after an id stays, as it is the action."""
    assert operation_of(path) == operation


def test_a_word_is_a_name_however_many_stand_in_its_place():
    """Only a template says otherwise."""
    words = [f"/shops/{word}/orders" for word in ("acme", "globex", "initech", "umbrella")]

    assert operations_of(words) == {path: path for path in words}
    assert {*operations_of(words, ["/shops/{shop}/orders"]).values()} == {"/shops/{shop}/orders"}


def test_the_callers_templates_come_first(connected):
    """Templates apply to every question about a session or a document, but not to pacing."""
    paths = ["/v1/shops/{shop}", "/v1/{kind}"]
    sent = ["/v1/shops/acme", "/v1/shops/acme/orders", "/v1/lists"]
    named = ["/v1/shops/{shop}", "/v1/shops/acme/orders", "/v1/{kind}"]
    tour = recorded("tour.yaml", *(answered(get(path)) for path in sent))
    document = dm.openapi(tour, paths=paths)
    connected.templates = tuple(paths)

    assert [*document["paths"]] == sorted(named)
    assert document["paths"][named[0]]["get"]["parameters"][0]["name"] == "shop"
    assert dm.openapi(tour) == document
    for frame in (dm.rate_limits(tour), dm.interactions(tour), dm.rate_limits([tour])):
        assert frame["operation"].tolist() == named
    others = dm.findings(tour).set_index("part").loc["other operations", "seen"]
    assert re.findall("GET (.+?):", others) == sorted(named)


@pytest.mark.parametrize("paths", [["v1/lists"], "/v1/lists", ["/v1/{a b}"], ["/v1/{id"]])
def test_an_invalid_template_is_refused_at_once(paths):
    with pytest.raises(ValueError, match=r"in templates is not a template\. Give a list such as"):
        dm.connect("https://api.example.test", "key", templates=paths)
