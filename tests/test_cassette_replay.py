"""Replay: which recorded response a request gets, in which order, and the error if none fits."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from cassette_samples import (
    BASE_URL,
    answered,
    count_calls,
    get,
    opened,
    post,
    recorded,
    theirs,
)
from hypothesis import given, settings, strategies as st

from directmail_lab.cassettes import DEFAULT_MATCH_ON, Cassette, Matching
from directmail_lab.errors import NotRecordedError
from directmail_lab.exchange.values import Request
from directmail_lab.redaction import Redactor
from directmail_lab.sessions.session import Session

if TYPE_CHECKING:
    from pathlib import Path

EU, US = "https://eu.test/api", "https://us.test"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tour.yaml"


def bodies(cassette: Cassette, *requests: Request) -> list[bytes | None]:
    """Return the bodies that a cassette plays for the requests; None if it has none yet."""
    answers = [cassette.play(each) for each in requests]
    return [answer[-1].response.body if answer else None for answer in answers]


def with_headers(request: Request, **headers: str) -> Request:
    return replace(request, headers=tuple(headers.items()))


def refusal(cassette: Cassette, request: Request) -> NotRecordedError:
    with pytest.raises(NotRecordedError) as caught:
        cassette.play(request)
    return caught.value


def test_responses_replay_in_recorded_order_and_then_the_last_repeats(path):
    """A cell that runs again gets the last response, while a strict replay, as in tests, raises."""
    recorded(path, answered(body="1"), answered(get("/other"), body="x"), answered(body="2"))
    lenient, strict = Cassette(path), Cassette(path, repeat="strict")

    assert bodies(lenient, *[get()] * 4) == [b"1", b"2", b"2", b"2"]
    assert bodies(lenient, *[get("/other")] * 2) == [b"x", b"x"]
    assert bodies(strict, get(), get()) == [b"1", b"2"]
    error = refusal(strict, get())
    assert error.reason == "nothing_left"
    assert "GET /v1/users/me" in str(error)
    assert "played" in str(error)


def test_the_error_for_an_unknown_request_names_the_nearest_requests(path):
    """The error names the three nearest requests, what is unplayed, and the call, but no values."""
    paths = ("/v1/lists", "/v1/users/me?fields=name", "/v1/users", *["/v2"] * 3, "/v1/users/me")
    recorded(path, *(answered(get(each)) for each in paths))
    cassette = Cassette(path, matching=Matching([*DEFAULT_MATCH_ON, "headers"]))
    assert cassette.play(get("/v1/lists"))
    other = replace(get("/v1/users/me?fields=secret"), headers=(("X-Mine", "secret"),))
    error = refusal(cassette, other)
    names = "query: fields, header: x-mine, header: accept"

    assert repr(cassette) == "<Cassette 'tour', none>"
    assert error.reason == "no_match"
    assert str(error).splitlines() == [
        "GET /v1/users/me?fields=… is not in cassette 'tour' (7 interactions, all for other "
        "requests).",
        f"Nearest: GET /v1/users/me, which differs in {names};",
        "         GET /v1/users, which differs in path;",
        "         GET /v1/lists, which differs in path.",
        "Record it with dm.record('tour').",
    ]


def test_the_parameters_of_an_unknown_request_are_named_without_their_values(path):
    """A parameter without a name may be a value, so it is not shown; long queries are truncated."""
    recorded(path, answered(get("/v1/lists")))
    for query, shown in (
        ("page=2&size=secret&page=3", "?page=…&size=… "),
        ("secret", "?… "),
        ("a=secret&&secret&b=", "?a=…&…&b=… "),
        (f"{'n' * 1000}=secret", f"?{'n' * 200} "),
        ("", " "),
    ):
        error = refusal(Cassette(path), get(f"/v1/letters?{query}"))
        said = str(error)

        assert said.startswith(f"GET /v1/letters{shown}is not in cassette 'tour'")
        assert "secret" not in said
        assert error.request == "GET /v1/letters"


LETTER = post(b'{"to": {"first": "Jo"}, "pages": [1]}')


@pytest.mark.parametrize(
    ("sent", "names"),
    [
        (post(b'{"to": {"first": "A"}, "pages": [1]}'), ["body: to.first"]),
        (post(b'{"to": {"first": "Jo"}, "pages": []}'), ["body: pages.0"]),
        (post(b"a", content_type="text/plain"), ["kind of body"]),
        (replace(post(b"{}"), method="PUT"), ["method"]),
        (replace(post(b"{}"), uri="https://other.test/v1/letter"), ["host", "path"]),
        (replace(LETTER, uri="https://api.example.test:81/v1/%6Cetters"), ["port"]),
    ],
)
def test_differences_are_named_by_field(path, sent, names):
    recorded(path, answered(LETTER), answered(get()))
    (title, differing), *_ = refusal(Cassette(path), sent).nearest

    assert title == "POST /v1/letters"
    assert list(differing) == names


@pytest.mark.parametrize("base", [US, "http://127.0.0.1:8/x/y", f"{US}/a%3Ab"])
def test_a_cassette_of_one_region_replays_under_any_base_address(path, base):
    """Paths are compared relative to the recording's service address and to the session's."""
    recorded(path, answered(get(base=EU), "me"), answered(get(base=f"{EU}x")), base_url=EU)
    cassette = Cassette(path, base_url=base)

    assert cassette.base_url == EU
    assert bodies(cassette, get(base=base.replace("%3A", ":"))) == [b"me"]
    for elsewhere in (get("/api/v1/users/me", base=base), get(base=EU[:-4]), get(base=f"{base}x")):
        assert refusal(cassette, elsewhere).reason == "no_match"


def test_an_exact_address_comes_before_a_path_below_the_base(path):
    """A cassette of two regions plays each region's own responses, however often they repeat."""
    recorded(path, *(answered(get(base=base), body=base) for base in (EU, US)), base_url=EU)
    requests = [get(base=base) for base in (US, US, US, EU)]

    assert bodies(Cassette(path, base_url=US), *requests) == [US.encode()] * 3 + [EU.encode()]


def test_without_metadata_the_base_address_is_the_first_requests_origin(path):
    """A user name or key in that request's address is not part of it."""
    first = Request("GET", "https://key:@api.example.test:8443/v1/users/me", (), b"")
    cassette = Cassette(theirs(path, answered(first)), base_url=US)

    assert cassette.base_url == "https://api.example.test:8443"
    assert cassette.play(get(base=US))


def multipart(boundary: str, name: str = "letter.pdf", quote: str = "") -> Request:
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: application/pdf\r\n\r\n%PDF \xff\r\n--{boundary}--\r\n"
    )
    content_type = f"multipart/form-data; boundary={quote}{boundary}{quote}"
    return post(body.encode("latin-1"), content_type=content_type)


def test_multipart_bodies_are_compared_by_their_parts(path):
    """Clients choose a random boundary for each request, so it must not count; a part does."""
    recorded(path, answered(multipart("0123abcd"), body="sent"))
    cassette = Cassette(path)

    assert bodies(cassette, multipart("fedc9876"), multipart("x y", quote='"')) == [b"sent"] * 2
    assert "differs in body: file name of file." in str(
        refusal(cassette, multipart("fedc9876", "other.pdf"))
    )
    with opened(path, "new_episodes") as cassette:
        assert bodies(cassette, multipart("77"), multipart("88")) == [b"sent", None]


@pytest.mark.parametrize("beside", ["*", "?", "[ab]", "[!a]"])
def test_a_character_beside_a_replaced_value_stands_for_itself(path, beside):
    recorded(path, answered(post(f'{{"to": "{beside} <REDACTED>"}}'.encode()), body="sent"))
    cassette = Cassette(path)

    assert bodies(cassette, post(f'{{"to": "{beside} 7"}}'.encode())) == [b"sent"]
    refusal(cassette, post(b'{"to": "a 7"}'))
    refusal(cassette, post(b'{"to": "b 7"}'))


def test_a_body_is_compared_as_it_is_where_its_headers_are_wrong(path):
    """One says that it is compressed and is not, the other names no boundary of its parts."""
    plain = post(b'\x1f\x8b\x08{"to": "Ann"}')
    coded = replace(plain, headers=(*plain.headers, ("Content-Encoding", "gzip")))
    parts = post(multipart("b").body or b"", content_type="multipart/form-data")
    recorded(path, answered(coded, body="1"), answered(parts, body="2"))
    cassette = Cassette(path)

    assert bodies(cassette, parts, coded) == [b"2", b"1"]
    refusal(cassette, replace(coded, body=b'{"to": "Bob"}'))
    refusal(cassette, replace(parts, body=b"--b--"))


FORM = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data; boundary=b"
A, KEY = (f'Content-Disposition: form-data; name="{name}"\r\n\r\n1' for name in ("a", "key"))


def as_form(text: str) -> Request:
    return post(text.encode(), content_type=FORM)


def of_type(media_type: str, body: str) -> Request:
    return post(body.encode(), content_type=media_type)


def parted(*parts: str) -> Request:
    return of_type(PARTS, "".join(f"--b\r\n{each}\r\n" for each in parts) + "--b--\r\n")


@pytest.mark.parametrize(
    ("ignore", "kept", "sent", "other"),
    [
        (["query:key"], get("/v1/x?a=1"), get("/v1/x?key=K&a=1&key=L"), get("/v1/x?key=K&a=2")),
        (["query:a b"], get("/v1/x?a+b=1#c"), get("/v1/x?a%20b=2"), get("/v1/x?a=2")),
        (["body:key"], as_form("a=1"), as_form("key=K&a=1"), as_form("key=K&a=2")),
        (["body:key"], parted(A), parted(A, KEY), parted(A.replace("1", "2"))),
        (["body:key"], post(b'{"a": 1, "key": 2}'), post(b'{"a":1}'), post(b'{"a": 2, "key": 2}')),
        (
            ["body:to.key"],
            post(b'{"to": [{"key": 1}, {}]}'),
            post(b'{"to": [{}, {"key": 2}]}'),
            post(b'{"to": [{"a": 1}, {}]}'),
        ),
        (
            ["body:to.0.key"],
            post(b'[{"to": [{"key": 1}, {"key": 2}]}]'),
            post(b'[{"to": [{}, {"key": 2}]}]'),
            post(b'[{"to": [{"key": 1}, {"key": 3}]}]'),
        ),
        (
            ["header:X-Request-Id"],
            get(),
            with_headers(get(), **{"Accept": "*/*", "x-request-id": "7"}),
            with_headers(get(), Accept="text/html"),
        ),
    ],
)
def test_ignored_parts_are_not_compared_in_requests_or_recordings(
    path,
    ignore,
    kept,
    sent,
    other,
):
    """The ignored part may be in the recording or in the request. The rest still counts."""
    for one, another in ((kept, sent), (sent, kept)):
        path.unlink(missing_ok=True)
        recorded(path, answered(one, body="1"), answered(one, body="2"))
        match_on = [*DEFAULT_MATCH_ON, "headers"]
        ignoring = Matching(match_on, ignore)
        cassette = Cassette(path, repeat="strict", matching=ignoring)

        assert bodies(cassette, another, one) == [b"1", b"2"]
        ((_, differing), *_) = refusal(Cassette(path, matching=ignoring), other).nearest
        assert not any(ignore[0].partition(":")[2].lower() in name for name in differing)
        with pytest.raises(NotRecordedError):
            Cassette(path, matching=Matching(match_on)).play(another)


def test_matching_is_on_the_redacted_form_on_both_sides(path):
    """A recording with one key in an address must replay with another key."""
    first, second = "dm_live_8fK2xQ9zLr7TtVb3", "dm_test_nWm5YcHs1pAe0123"
    recorded(path, answered(get(f"/a/{first}")), redactor=Redactor([first]))
    assert Cassette(path, redactor=Redactor([second])).play(get(f"/a/{second}"))

    theirs(path, answered(get("/a?api_key=sesame")), answered(post(first.encode())))
    assert Cassette(path).play(get("/a?api_key=open"))
    assert Cassette(path, redactor=Redactor([first])).play(post(first.encode()))


def test_a_function_of_match_on_gets_the_recorded_body(tmp_path):
    path = recorded(
        tmp_path / "tour.yaml", answered(post(b"[1]"), "1"), answered(post(b"[2]"), "2")
    )

    def same_body(sent: Any, kept: Any) -> bool:
        return bool(sent.body == kept.body)

    cassette = Cassette(path, matching=Matching(["method", same_body]))

    assert cassette.play(post(b"[2]"))[-1].number == 2


def test_a_custom_matcher_may_return_or_assert(path):
    """Like vcrpy's, the function gets two of vcrpy's requests: the sent and the recorded one."""

    def same_last_segment(request: Any, other: Any) -> None:
        assert request.path.rsplit("/", 1)[-1] == other.path.rsplit("/", 1)[-1]

    def same_host(request: Any, other: Any) -> bool:
        return bool(request.host == other.host)

    recorded(path, *(answered(get(f"/v1/{name[0]}"), name) for name in ("b", "a", "a again")))
    cassette = Cassette(path, matching=Matching(["method", same_last_segment, same_host]))
    requests = [get("/v2/b"), get("/v2/a"), get("/v3/a"), get("/v2/a")]

    assert bodies(cassette, *requests) == [b"b", b"a", b"a again", b"a again"]
    (_, differing), *_ = refusal(cassette, get("/v2/a", base="https://other.test")).nearest
    assert list(differing) == ["match_on: same_host"]
    assert refusal(cassette, get("/v2/c")).reason == "no_match"


def test_once_records_into_a_missing_or_empty_cassette(path):
    path.write_text("")
    assert refusal(Cassette(path), get()).reason == "no_match"

    with opened(path, "once") as cassette:
        assert not cassette.play(get())
        cassette.record(answered())
        assert not cassette.play(get())  # each is sent while it is recorded
    with opened(path, "once") as cassette:
        assert cassette.play(get())
        assert refusal(cassette, get("/new")).reason == "no_match"


def test_playing_takes_as_long_in_a_large_cassette_as_in_a_small_one(tmp_path):
    steps = {}
    request = get("/same")
    for size in (50, 5000):
        path = tmp_path / f"{size}.yaml"
        cassette = Cassette(recorded(path, *(answered(request, str(i)) for i in range(size))))
        bodies(cassette, *[request] * (size - 10))
        steps[size] = count_calls(partial(cassette.play, request))

        assert bodies(cassette, request) == [b"%d" % (size - 9)]
    assert steps[50] == steps[5000]
    assert steps[5000] < 150


# -- which requests are the same -------------------------------------------------------------------


def of_range(value: str) -> Request:
    return with_headers(get(), Range=value)


def packed(data: bytes, at: int) -> Request:
    """Return a request whose body was compressed at a time, which gzip writes into its header."""
    request = post(gzip.compress(data, mtime=at))
    return replace(request, headers=(*request.headers, ("Content-Encoding", "gzip")))


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (get("/l"), get("/l?archived="), "query: archived"),
        (get("/l?123"), get("/l?456"), "query: 123"),
        (get("/l?a=1&a=2"), get("/l?a=1"), "query: a"),
        (as_form("to=ann"), as_form("to=ann&note="), "body: note"),
        (post(b'{"x": "1"}'), post(b'{"x": 1}'), "body: x"),
        (post(b'{"x": null}'), post(b"{}"), "body: x"),
        (post(b'{"x": 1, "x": 2}'), post(b'{"x": 2, "x": 1}'), "body: x"),
        (packed(b'{"n": 1}', 1), packed(b'{"n": 2}', 2), "body: n"),
        (replace(get(), body=b'{"q": 1}'), replace(get(), body=b'{"q": 2}'), "body: q"),
        (of_range("bytes=0-9"), of_range("bytes=10-19"), "header: range"),
        (of_range("bytes=0-9"), get(), "header: range"),
        # As sent by ``curl -d``: a form parser reads it as one name without a value.
        (as_form('{"n": 1}'), as_form('{"n": 2}'), 'body: {"n": '),
    ],
)
def test_two_requests_of_different_forms_are_never_the_same(path, one, other, difference):
    """Each gets its own response in any order, and one that was not recorded says what differs."""
    recorded(path, answered(one, "one"), answered(other, "other"))
    strict = Cassette(path, repeat="strict")
    assert bodies(strict, other, one) == [b"other", b"one"]

    path.unlink()
    recorded(path, answered(one, "one"))
    error = refusal(Cassette(path), other)
    assert error.reason == "no_match"
    assert any(name.startswith(difference) for name in error.nearest[0][1])


# The rule: JSON is equal if its values and their types are, numbers by their digits, members in any
# order, but those of one name in theirs. In a query and a form, the order of one name's values
# counts. A path is equal however it is escaped, but for what would mean something else without its
# escape.
numbers = st.sampled_from(["0", "-0.0", "1", "1.0", "10e-1", "1e400", "1e401", "0.1", "9" * 30])
scalars = numbers | st.sampled_from(['"a"', '"1"', '"\\u0061"', "true", "false", "null", '"<a>"'])
json_texts = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]")
        | st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=4).map(
            lambda members: "{" + ",".join(f'"{name}": {value}' for name, value in members) + "}"
        )
    ),
    max_leaves=4,
)
queries = st.lists(st.sampled_from(["a=1", "a=2", "b=", "b", "%61=1", "c=+", "c=%20", "a=%2B"]))
paths = st.lists(
    st.sampled_from(
        ["é", "%C3%A9", "%c3%a9", "%3B", ";", "%2F", "/", "a", "%61", "%3a", ":", "%25"]
    )
)


def meaning(text: str) -> object:
    """Return what JSON means, as a value that is equal only to the same."""

    def of(value: object) -> object:
        if isinstance(value, list):
            return ["array", *map(of, value)]
        if isinstance(value, tuple):
            return sorted(((name, of(inner)) for name, inner in value), key=itemgetter(0))
        return type(value), value

    return of(json.loads(text, object_pairs_hook=tuple, parse_int=Fraction, parse_float=Fraction))


@given(one=json_texts, other=json_texts)
@settings(max_examples=500, deadline=None)
def test_json_is_compared_by_value_and_type(one, other):
    forms = [Matching().form(post(each.encode())) for each in (one, other)]

    assert (forms[0] == forms[1]) is (meaning(one) == meaning(other))


@given(one=queries, other=queries)
@settings(max_examples=500, deadline=None)
def test_a_query_and_a_form_are_compared_by_the_values_of_each_name(one, other):
    is_same = parse_qs("&".join(one), True) == parse_qs("&".join(other), True)

    for make in (lambda each: get(f"/l?{each}"), as_form):
        forms = [Matching().form(make("&".join(each))) for each in (one, other)]
        assert (forms[0] == forms[1]) is (is_same or (make is as_form and not one + other))


@given(one=paths, other=paths)
@settings(max_examples=500, deadline=None)
def test_a_path_is_compared_by_what_it_means(one, other):
    spelled = {"%c3%a9": "é", "%C3%A9": "é", "%61": "a", "%3a": ":"}
    meant = [[spelled.get(each, each) for each in path] for path in (one, other)]
    forms = [Matching().form(get(f"/{''.join(each)}")) for each in (one, other)]

    assert (forms[0] == forms[1]) is (meant[0] == meant[1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *((of_type(kind, "[1]"), of_type(kind, "[ 1 ]")) for kind in ("text/plain", "text/xml")),
        (parted("\r\none"), parted("\r\ntwo")),
        (parted("A: 1\r\n\r\none"), parted("A: 2\r\n\r\none")),
        (of_type(PARTS, "x\r\n\r\none"), of_type(PARTS, "y\r\n\r\none")),
        (of_type("application/json", "[1"), of_type("application/json", "[2")),
        (of_type("application/json", "[NaN]"), of_type("application/json", "[Infinity]")),
        (get("/x?sort=name&sort=-date"), get("/x?sort=-date&sort=name")),
    ],
)
def test_bodies_of_other_kinds_are_compared_by_their_bytes(one, other):
    """Even if they happen to be JSON; what cannot be read is no form and no JSON."""
    assert Matching().form(one) != Matching().form(other)
    assert Matching(["uri", "raw_body"]).form(post(b"[1]")) != Matching(["uri", "raw_body"]).form(
        post(b"[ 1 ]")
    )


@pytest.mark.parametrize(
    ("old", "new", "rules"),
    [
        (get("/x?timestamp=1764322083&a=1"), get("/x?timestamp=1764322999&a=1"), "query:timestamp"),
        (
            post(b'{"to": {"at": "2026-11-28T09:28:03Z"}, "n": "7fK2xQ9zLr8T"}'),
            post(b'{"to": {"at": "2026-11-29T10:00:00Z"}, "n": "Qx81kQ0pLm27"}'),
            '"body:n", "body:to.at"',
        ),
        (
            as_form("id=123e4567-e89b-12d3-a456-426614174000"),
            as_form("id=00000000-e89b-12d3-a456-426614174000"),
            "body:id",
        ),
        (get("/x?timestamp=1764322083&a=1"), get("/x?timestamp=1764322999&a=2"), None),
        (get("/x?page=1"), get("/x?page=2"), None),
    ],
)
def test_a_request_that_changes_with_each_run_names_what_to_ignore(path, old, new, rules):
    """Recording it again would not help; if anything else differs, it is another request."""
    recorded(path, answered(old, "1"))
    error = str(refusal(Cassette(path), new))

    assert ("ignore=[" in error) is (rules is not None)
    if rules is not None:
        assert rules in error
        ignored = [each.strip('"') for each in rules.split(", ")]
        assert bodies(Cassette(path, matching=Matching(ignore=ignored)), new) == [b"1"]


@pytest.mark.parametrize(
    ("one", "other", "match_on"),
    [
        (get("/?a=1"), get("/?a=2"), ["method", "path"]),
        (get("/a"), get("/b"), ["method"]),
        (of_range("bytes=0-1"), of_range(" Bytes= 0-1 "), None),
        # httpx sends paths as given, aiohttp sends them unescaped.
        (get("/a%3Ab%2C%40%7E|%7Bid%7D"), get("/a:b,@~%7c{id}"), None),
        (post(b'{"a": 1, "b": [2.0, {}]}'), post(b'{"b":[2,{ }],"a":1.0}'), None),
        (packed(b'{"n": 1}', 1), packed(b'{"n":1}', 2), None),
        (packed(b"text", 1), post(b"text"), None),
        (as_form("a=b+c"), as_form("a=b%20c"), None),
        (get("/l"), get("/l?"), None),
        (get("/?a=b+%7E"), get("/?a=b%20~"), None),
        (get("/l?a=1&b="), get("/l?b=&a=1"), None),
        (get(base="https://api.example.test:443"), get(), None),
    ],
)
def test_two_requests_of_one_form_are_the_same_in_recorded_order(path, one, other, match_on):
    """The order of a JSON object, the time in a gzip header and a default port do not count."""
    recorded(path, answered(one, "1"), answered(other, "2"))
    cassette = Cassette(path, matching=Matching(match_on))

    assert bodies(cassette, other, one, one) == [b"1", b"2", b"2"]


def test_what_is_accepted_counts_where_one_address_has_several_forms(path):
    """A type that was never asked for gets the responses in their order."""
    table, text, any_type = (
        with_headers(get("/report"), Accept=each) for each in ("text/csv", "text/plain", "*/*")
    )
    recorded(path, answered(table, "csv"), answered(text, "txt"))

    assert bodies(Cassette(path), text, table) == [b"txt", b"csv"]
    assert bodies(Cassette(path), any_type) == [b"csv"]
    assert bodies(Cassette(path), with_headers(get("/report"))) == [b"csv"]


def test_attempts_of_two_threads_belong_to_their_own_requests(path):
    """Both get 503, then both get 200: each 200 is played, also with others between them."""
    second = [replace(answered(body=body), attempt=2) for body in ("a", "b")]
    failed = answered(body="", status=503)
    other = answered(get("/other"))
    recorded(path, failed, failed, other, second[0], answered(body="c"), second[1])
    cassette = Cassette(path, repeat="strict")
    calls = [[each.response.status for each in cassette.play(get())] for _ in range(3)]

    assert sorted(calls) == [[200], [503, 200], [503, 200]]
    assert cassette.unplayed() == [3]


def test_an_empty_reason_phrase_stays_empty(path):
    """For HTTP/2, which has none, the recording has the usual one of httpx."""
    silent = answered()
    recorded(path, replace(silent, response=replace(silent.response, reason="")))
    with Session(BASE_URL) as session, session.replay(path):
        assert session.client.get(get().uri).reason_phrase == ""
