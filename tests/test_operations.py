"""Operations: which segments of a path are ids, judged from one path or from a recording."""

from __future__ import annotations

import random
import re
import uuid
from typing import Any

import pytest
from cassette_samples import answered, get, recorded

import directmail_lab as dm
from directmail_lab.exchange.operations import operation_of, operations_of

WORDS = """
acme globex initech umbrella wayne hooli soylent tyrell aperture wonka oscorp vandelay dunder bluth
sterling pearson massive octan zorin monarch gringotts sirius nakatomi weyland rekall
"""
SLUGS = "spring-sale summer-offer winter-launch autumn-letter happy-welcome golden-stone quick-fox"
REST = """
/v1/users/me /v1/lists /v1/lists/{n} /v1/lists/{n}/members /v1/lists/{n}/members/{uuid}
/v1/lists/{n}/members/search /v1/letters/{token} /v1/letters/{token}/cancel /v1/domains
/v1/domains/{domain} /v1/domains/{domain}/verify /v1/campaigns/{slug} /v1/campaigns/{slug}/stats
/v1/campaigns/{slug}/letters /v1/campaigns/{slug}/letters/{uuid} /v1/reports/daily
/v1/reports/monthly /v1/settings/profile /v1/billing/invoices /v1/billing/invoices/{n}
"""
CLOUD = """
/v1beta/models /v1beta/models/{model} /v1beta/models/{model}:generateContent
/v1beta/models/{model}:countTokens /v1beta1/models:batchEmbed /oauth2/token /v2.6.1/status
/2013-04-01/zones /2013-04-01/zones/{token} /v1/projects/{slug} /v1/projects/{slug}:undelete
/v1/projects/{slug}/locations /v1/projects/{slug}/locations/{slug}/keyRings
/v1/projects/{slug}/locations/{slug}/keyRings/{n} /v1/s3-buckets/{slug}/objects /v1/base64/encode
/v1/k8s-clusters /v1/k8s-clusters/{uuid} /v1/k8s-clusters/{uuid}/nodes /v1/k8s-clusters/{uuid}:drain
"""
FORGE = """
/user /user/repos /users/{slug} /users/{slug}/repos /orgs/{slug} /orgs/{slug}/members
/orgs/{slug}/teams/{slug} /repos/{slug}/{slug} /repos/{slug}/{slug}/issues
/repos/{slug}/{slug}/issues/{n} /repos/{slug}/{slug}/issues/{n}/comments
/repos/{slug}/{slug}/commits/{hash} /repos/{slug}/{slug}/branches
/repos/{slug}/{slug}/releases/latest /repos/{slug}/{slug}/releases/{n} /search/issues /search/code
/gists/{hash} /works/{doi} /rate_limit
"""


def value(kind: str, draw: random.Random) -> str:
    """Return an id of this kind."""
    word, slug = draw.choice(WORDS.split()), draw.choice(SLUGS.split())
    bits = draw.getrandbits(128)
    return {
        "n": str(draw.randint(1, 99_999)),
        "uuid": str(uuid.UUID(int=bits)),
        "hash": f"{bits:032x}",
        "token": f"let_{bits % 36**8:x}7q",
        "domain": f"{word}.{draw.choice(['com', 'org', 'io', 'co.uk', 'de'])}",
        "doi": f"10.{draw.randint(1000, 9999)}%2F{bits:x}",
        "model": f"{word}-{draw.randint(1, 9)}.{draw.randint(0, 9)}-pro",
        "slug": draw.choice([word, slug, f"{slug}-{draw.randint(1, 2030)}"]),
    }[kind]


def recorded_paths(service: str, each: int, seed: int) -> dict[str, str]:
    """Return paths for a service's templates, ``each`` per template, with their operations."""
    draw = random.Random(seed)
    return {
        re.sub(r"\{(\w+)\}", lambda match: value(match[1], draw), template): re.sub(
            r"\{\w+\}", "{id}", template
        )
        for template in service.split()
        for _ in range(each)
    }


def right(expected: dict[str, str]) -> set[str]:
    """Return the operations that were recognized for all of their paths."""
    pairs = operations_of(expected).items()
    return {*expected.values()} - {expected[path] for path, told in pairs if told != expected[path]}


# -- one path ----------------------------------------------------------------------------------

NAMES = """
oauth2 v1beta v1beta1 v2.6.1 base64 s3-bucket k8s-clusters sha256 i18n 2fa mp3 ipv6 users @me
auth.test users.info index.html models:batchGet rate_limit serverInfo v1 lists :id
"""
IDS = """
12 8f14e45f lst_8f3kq2 cus_9s6XKzkNRiz8i3 dQw4w9WgXcQ 3fa85f64-5717-4562-b3fc-2c963f66afa6 ABC-1
example.com shop.acme.co.uk 10.1038%2Fnature12373 10.0.0.1 2026-11-21 gpt-4 us-east-1 order-1001
ada%40example.org Ann%20Lee +49301234567 %3CAPI_KEY%3E sha256:9f86d081884c7d65
"""


@pytest.mark.parametrize(
    ("segments", "operation"), [(NAMES.split(), "/v1/x/{}/y"), (IDS.split(), "/v1/x/{{id}}/y")]
)
def test_a_segment_alone_is_a_name_or_an_id(segments: list[str], operation: str) -> None:
    """Words with digits, and versions, are names; numbers, tokens, domains and e-mails are ids."""
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
        ("/works/10.1038/nature12373", "/works/{id}/{id}"),
        ("/apis/networking.k8s.io/v1/ingresses", "/apis/networking.k8s.io/v1/ingresses"),
        ("/v1beta/models/gemini-2.0:generateContent", "/v1beta/models/{id}:generateContent"),
        ("/admin/api/2024-01/products/632910392.json", "/admin/api/2024-01/products/{id}.json"),
    ],
)
def test_versions_are_recognized_by_their_place_and_verbs_are_preserved(
    path: str, operation: str
) -> None:
    """Versions are at the start or after `api`. A verb after an id stays, as it is the action."""
    assert operation_of(path) == operation


# -- all paths of a recording ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "each", "share"),
    [
        *((REST, 1, 0.8), (CLOUD, 1, 0.75), (FORGE, 1, 0.45)),
        *((REST, 3, 0.98), (CLOUD, 3, 0.95), (FORGE, 3, 0.85)),
        *((REST, 30, 0.98), (CLOUD, 30, 0.98), (FORGE, 30, 0.95)),
    ],
)
def test_most_operations_of_a_service_are_recognized(service: str, each: int, share: float) -> None:
    """Each operation of a service has one, three or thirty recorded paths."""
    counts = [len(right(recorded_paths(service, each, seed))) for seed in range(10)]

    assert sum(counts) >= len(counts) * len(service.split()) * share


@pytest.mark.parametrize("service", [REST, CLOUD, FORGE])
def test_an_id_is_still_recognized_when_more_paths_are_added(service: str) -> None:
    """A path that was recognized correctly stays so."""
    expected = recorded_paths(service, 30, seed=1)
    paths = random.Random(1).sample([*expected], len(expected))
    known: set[str] = set()
    for count in range(1, len(paths), 20):
        operations = operations_of(paths[:count])
        told = {path for path in operations if operations[path] == expected[path]}

        assert known <= told
        known = told


def test_many_words_below_a_list_are_ids_except_for_actions() -> None:
    """If nothing follows the words, eight are enough; seven may be actions."""
    words = [f"/v1/tags/{word}" for word in WORDS.split()[:8]]
    asking = ["/v1/tags/search", "/v1/tags/me", "/v1/tags/v2", "/v1/tags/sendAll"]

    assert {*operations_of(words).values()} == {"/v1/tags/{id}"}
    assert {*operations_of(words[:7]).values()} == {*words[:7]}
    assert {*operations_of(words + asking).values()} == {"/v1/tags/{id}", *asking}


@pytest.mark.parametrize(
    ("paths", "ids"),
    [
        ("/shops/acme/orders /shops/globex/orders /shops/hooli/orders", "acme globex hooli"),
        ("/shops/acme/orders /shops/globex/orders", ""),
        ("/at/acme/orders /at/globex/orders /at/hooli/orders /at/wayne/orders", ""),
        ("/shops/17/eu/orders /shops/acme/us/orders", "17 acme"),
        ("/shops/17/settings /shops/acme/settings", "17 acme"),
        ("/shops/17/orders /shops/17 /shops/acme/orders /shops/initech", "17 acme initech"),
        ("/shops/17/orders /shops/initech", "17"),
        ("/analysis/acme/orders /analysis/globex/orders /analysis/hooli/orders", ""),
    ],
)
def test_a_word_is_an_id_by_what_follows_it_and_its_siblings(paths: str, ids: str) -> None:
    """Each rule by its example; two words alike, and words not below a list, are not enough."""
    told = operations_of(paths.split())
    found = {path.split("/")[2] for path, operation in told.items() if "/{id}" in operation}

    assert found == set(ids.split())


COLLECTIONS = "list letter campaign template contact segment tag folder invoice report domain file"
RPC = "auth.test chat.post chat.update users.info users.list files.list pins.add team.info dnd.end"


@pytest.mark.parametrize("ending", ["", "s"])
def test_collection_names_with_the_same_subpaths_are_not_ids(ending: str) -> None:
    """Many collections have the same paths below them, and a list may have actions beside ids."""
    lists = [f"/v1/{name}{ending}" for name in COLLECTIONS.split()]
    tails = ["", "/{id}", "/{id}/events", "/{id}/events/{id}", "/search", "/export", "/count"]
    expected = {
        (each + tail).replace("{id}", "417"): each + tail for each in lists for tail in tails
    }
    calls = {f"/api/{name}": f"/api/{name}" for name in RPC.split()}

    assert operations_of(expected | calls) == expected | calls


def test_the_callers_templates_come_first(connected: dm.Session) -> None:
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
def test_an_invalid_template_is_refused_at_once(paths: Any) -> None:
    """The error contains an example."""
    with pytest.raises(ValueError, match=r"in paths is not a template\. Give a list such as"):
        dm.connect("https://api.example.test", "key", templates=paths)
