"""A session over real sockets: its modes, what it records, and what it refuses."""

import asyncio
import gc
import logging
import pickle
import traceback
import warnings
import weakref
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import httpx
import pandas as pd
import pytest
from cassette_samples import BASE_URL, answered, recorded

import directmail_lab as dm
from directmail_lab.cassettes import Matching
from directmail_lab.credentials import ApiKey, known_keys
from directmail_lab.exchange.values import Response
from directmail_lab.readings.reading import Reading
from directmail_lab.server.standin import STAND_IN_KEY, stand_in
from directmail_lab.sessions.session import Session, bind_to_test, on_reading


def text_of(cassette: str) -> str:
    return Path("cassettes", f"{cassette}.yaml").read_text(encoding="utf-8")


def test_me_is_one_row_of_the_users_record(live):
    async def me_async() -> pd.DataFrame:
        async with Session(live.base_url, ApiKey(STAND_IN_KEY)) as session:
            return await session.me_async()

    me = live.me()
    assert (len(me), me.loc[0, "name"]) == (1, "Stand-in User")
    assert me.loc[0, "company.address.postcode"] == "01234"
    assert me.attrs["path"] == "/v1/users/me"
    assert asyncio.run(me_async()).equals(me)


def test_an_event_loop_that_ends_closes_its_connections(live):
    gc.collect()  # what earlier tests left
    for _ in range(3):
        assert len(asyncio.run(live.me_async())) == 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gc.collect()

        assert [str(w.message) for w in caught if w.category is ResourceWarning] == []


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (401, "UnauthorizedError", "Check the key"),
        (403, "UnauthorizedError", "Check the key"),
        (404, "ServiceError", "Check the path"),
        (422, "ServiceError", "Correct the request"),
        (429, "ServiceError", "The service refused it although"),
        (502, "ServiceError", "try again"),
    ],
)
def test_an_error_status_is_a_service_error(service, unpaced, status, kind, advice):
    said = f"(?s)GET /v1/users/me responded with {status}.*{advice}"
    with (
        service.fault(status=status, echo_key=True),
        pytest.raises(dm.errors.ServiceError, match=said) as caught,
    ):
        unpaced.me()

    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error).__name__ == kind
    assert (error.status, error.operation) == (status, "GET /v1/users/me")
    assert error.reading.limit == 300
    assert "<API_KEY>" in error.excerpt
    assert service.api_key not in f"{error}{error!r}{vars(error)}"


def test_a_mode_ends_with_its_block_or_with_the_next(live):
    modes = [live.mode]
    with live.record("tour"):
        live.me()
        with suppress(ZeroDivisionError), live.live():
            modes.append(live.mode)
            _ = 1 / 0
        modes.append(live.mode)
        live.me()
    live.record("tour")
    modes.append(live.mode)
    live.replay("tour")
    modes.append(live.mode)

    assert live.cassette == "tour"
    assert modes == ["live", "live", "record", "record", "replay"]
    assert text_of("tour").count("- recorded_at") == 2


def test_a_change_of_mode_that_fails_changes_nothing(live):
    with pytest.raises(dm.errors.CassetteNotFoundError, match="no-such"):
        live.replay("no-such")
    assert live.mode == "live"
    with live.record("tour"):
        live.me()
        with pytest.raises(dm.errors.CassetteError, match="name"):
            live.record("../up")
        live.me()

    assert text_of("tour").count("- recorded_at") == 2


def test_a_replay_keeps_its_own_readings(live):
    live.me()
    with live.record("tour"):
        live.me()
    for _ in range(2):
        with live.replay("tour"):
            live.me()
            replayed = dm.rate_limits(live)
    own = dm.rate_limits(live)

    assert own[["source", "remaining"]].values.tolist() == [["live", 299], ["recorded", 298]]
    assert own["cassette"].isna().tolist() == [True, False]
    assert replayed[["source", "cassette_number"]].values.tolist() == [["replayed", 1]]
    assert abs((replayed["at"][1] - own["at"][2]).total_seconds()) < 1


@pytest.mark.filterwarnings("ignore:Cassette 'tour' has the responses of")
def test_a_stated_unit_applies_to_recordings_of_the_same_address(live):
    """A recording of another address has its unit inferred, unless the session can only replay."""
    with live.record("tour"):
        live.me()
    units = []
    eu, us = ("https://eu.test", "a-key"), ("https://us.test", None)
    for address, key in ((live.base_url, "a-key"), eu, us):
        with Session(address, key, reset_unit="seconds_left") as session:
            session.replay("tour")
            session.me()
            units.append(dm.rate_limits(session).attrs["reset_unit"])

    assert units == ["seconds_left", "undetermined", "seconds_left"]


def test_the_known_allowance_carries_over_to_the_next_mode():
    with (
        stand_in(limit=3, window_s=1.0, reset_unit="milliseconds_left") as few,
        Session(few.base_url, ApiKey(few.api_key), reset_unit="milliseconds_left") as session,
    ):
        for _ in range(3):
            session.me()
        with session.record("tour"):
            session.me()

        assert dm.rate_limits(session)["status"].tolist() == [200] * 4


def test_a_replayed_response_does_not_wait_or_count_as_usage():
    with (
        stand_in(limit=2, window_s=3600) as few,
        Session(few.base_url, ApiKey(few.api_key), max_wait_s=0.0) as session,
    ):
        with session.record("tour"):
            session.me()
        session.get("/v1/users/me?n=2")
        with session.record("tour", record_mode="new_episodes"):
            session.me()
            with pytest.raises(dm.errors.AllowanceExhaustedError):
                session.me()

    assert few.requests.total() == 2


def test_an_allowed_write_is_sent_once_and_replays_without_permission(service):
    with Session(service.base_url, ApiKey(service.api_key)) as session:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with pytest.raises(dm.errors.WriteRefusedError, match="allow_writes = True"):
                session.request(method, "/v1/letters")
        session.allow_writes = True
        with session.record("letter"):
            sent = session.post("/v1/letters", json={"to": "x"})
        session.allow_writes = False
        with pytest.raises(dm.errors.WriteRefusedError):
            session.post("/v1/letters")
        with dm.replay("letter"):
            played = dm.session().post("/v1/letters", json={"to": "x"})
        bind_to_test(session, folders=[], matching=Matching(), advice="Run pytest -w.")
        with pytest.raises(dm.DirectMailLabError, match=r"Run pytest -w\."):
            session.allow_writes = True

    assert service.requests["POST /v1/letters"] == 1
    assert (played.status_code, played.json()) == (sent.status_code, sent.json())


@pytest.mark.parametrize(
    ("elapsed_s", "timing", "slept"),
    [(0.5, "recorded", [0.5]), (0.5, 2.0, [1.0]), (1e9, 1.0, [30.0]), (0.5, "instant", [])],
)
def test_a_replay_in_recorded_time_waits_as_long_as_the_service_took(
    monkeypatch, elapsed_s, timing, slept
):
    """A factor scales the wait, and 30 s limit it, in case the cassette is a stranger's."""
    failed = answered(status=503)
    again = replace(answered(), elapsed_s=elapsed_s, attempt=2)
    path, pauses = recorded(Path("slow.yaml"), failed, again), list[float]()

    async def sleep_async(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("directmail_lab.sessions.transports.mode.time.sleep", pauses.append)
    monkeypatch.setattr("directmail_lab.sessions.transports.mode.asyncio.sleep", sleep_async)
    with Session(BASE_URL) as session, session.replay(path, timing=timing):
        session.me()
        asyncio.run(session.me_async())

    assert pauses == slept * 2


@pytest.mark.parametrize("retry", [True, False])
def test_a_request_that_the_caller_sends_again_is_another_call(service, retry):
    """SDKs send the same request object again; a replay returns to each call what it got."""
    with Session(service.base_url, service.api_key, retry=retry) as session:
        request = session.client.build_request("GET", "/v1/users/me")
        service.fault(status=503, times=1, headers={"Retry-After": "0"})
        with session.record("again", record_mode="new_episodes"):
            seen = [session.client.send(request).status_code for _ in range(2)]
        with session.replay("again", repeat="strict"):
            replayed = [session.client.send(request).status_code for _ in range(2)]
            attempts = dm.interactions(session)["attempt"].tolist()

    assert seen == replayed == [200 if retry else 503, 200]
    assert attempts == ([1, 2, 1] if retry else [1, 1])
    assert service.requests == {"GET /v1/users/me": 3 if retry else 2}


def test_a_read_without_a_response_replays_until_one_came(service, unpaced):
    """A notebook handles it, `try: … except httpx.ReadError`, and its reader's run does, too."""
    unpaced.record("tour")
    with service.fault(drop="reset"), pytest.raises(httpx.ReadError):
        unpaced.me()
    lost = unpaced.recording.readings()
    with unpaced.replay("tour"), pytest.raises(httpx.ReadError):
        unpaced.me()
    unpaced.record("tour")
    unpaced.me()
    unpaced.record("tour")
    with service.fault(drop="reset"), pytest.raises(httpx.ReadError):
        unpaced.me()
    unpaced.replay("tour")

    assert [reading.status for reading in lost] == [0]
    assert unpaced.me()["name"].item() == "Stand-in User"
    assert len(unpaced.recording) == 1


def test_an_error_in_a_callback_loses_no_response(live, caplog):
    heard: list[Reading] = []

    def broken(_: Reading) -> None:
        raise RuntimeError("a listener's own fault")

    on_reading(live, broken)
    stop = on_reading(live, heard.append)
    live.me()
    stop()
    live.me()

    assert len(heard) == 1
    assert len(live.recording) == 2
    assert "on_reading" in caplog.text


def test_both_clients_have_the_same_cookies_until_the_mode_changes(live, service):
    """So a recording does not depend on what was sent before it, and no replay leaves a cookie."""
    with service.fault(headers={"Set-Cookie": "a=1"}):
        live.get("/v1/users/me")
    kept = [dict(live.async_client.cookies)]
    sent = [live.get("/v1/users/me").request.headers["Cookie"]]
    live.client.cookies = {"a": "2"}
    sent.append(asyncio.run(live.async_client.get("/v1/users/me")).request.headers["Cookie"])
    with live.record("tour"):
        kept.append(dict(live.async_client.cookies))
        live.client.cookies.set("lang", "de")
        kept.append(dict(live.client.cookies))
    kept.append(dict(live.client.cookies))

    assert sent == ["a=1", "a=2"]
    assert kept == [{"a": "1"}, {}, {"lang": "de"}, {}]


def test_a_block_of_a_client_leaves_it_open(live):
    with live.client as client:
        statuses = [client.get("/v1/users/me").status_code]
    statuses.append(live.get("/v1/users/me").status_code)

    async def ask() -> None:
        async with live.async_client as client:
            statuses.append((await client.get("/v1/users/me")).status_code)
        statuses.append((await live.async_client.get("/v1/users/me")).status_code)

    asyncio.run(ask())
    assert statuses == [200] * 4


def test_a_key_in_a_reason_phrase_or_a_cookie_is_not_shown(service, live):
    """httpx shows the phrase in the repr of a response, and keeps the cookie in its jar."""
    cookies = [f"id={service.api_key}", "theme=dark"]
    with service.fault(headers={"Set-Cookie": cookies}):
        response = live.get("/v1/lists")
    kept = dict(live.client.cookies)
    refused = Response(403, f"No {service.api_key}")
    with mock.patch.object(service, "response_to", return_value=refused):
        shown = repr(live.get("/v1/users/me"))

    hostile = replace(answered(), response=Response(403, "No\x1b[2J"))
    with Session(BASE_URL) as replayed, replayed.replay(recorded("hostile.yaml", hostile)):
        harmless = repr(replayed.get("/v1/users/me"))

    assert service.api_key not in f"{kept}{response.headers.get('set-cookie')}"
    assert harmless == r"<Response [403 No\x1b[2J]>"
    assert shown == "<Response [403 No <API_KEY>]>"


def test_the_key_goes_to_the_base_address_alone(service, live):
    """Neither an absolute URL nor a redirect gets it, nor a request with ``auth=None``."""
    without = live.client.get("/v1/users/me", auth=None)
    with stand_in() as other:
        absolute = live.request("GET", f"{other.base_url}/v1/users/me")
        with service.fault(redirect_to=f"{other.base_url}/v1/users/me"):
            stayed = live.request("GET", "/v1/users/me")
            followed = live.request("GET", "/v1/users/me", follow_redirects=True)

    responses = (without, absolute, stayed, followed)
    assert [each.status_code for each in responses] == [401, 401, 302, 401]


@pytest.mark.parametrize(
    ("address", "said"),
    [("http://secret:word@127.0.0.1:1/me", "user name"), ("http://example.com/", "not encrypted")],
)
def test_an_address_with_a_user_name_or_without_encryption_is_refused(live, address, said):
    with pytest.raises(dm.errors.AddressError, match=said) as caught:
        live.request("GET", address)

    assert "secret" not in str(caught.value)


def test_a_redacted_recording_replays_and_stays_redacted(service, live):
    params = {"email": "reader@example.org"}
    with live.record("private"):
        live.request("GET", "/v1/nowhere", params=params)
    with live.record("private", redact=["personal"]):
        live.request("GET", "/v1/lists", params=params)
    with live.record("private", record_mode="new_episodes"):
        live.request("GET", "/v1/lists", params=params)
        live.request("GET", "/v1/users/me", params=params)
    with live.replay("private", repeat="strict"):
        live.request("GET", "/v1/lists", params=params)
        live.request("GET", "/v1/users/me", params=params)

    assert "reader@example.org" not in text_of("private")
    assert service.requests["GET /v1/lists"] == 1


def test_no_traceback_frame_contains_the_key(live, service, monkeypatch):
    """httpcore and h11 have the headers in their locals, which ``%xmode Verbose`` would print."""

    def broken(_: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        event = [value.decode() for _, value in request.headers.raw]
        raise httpx.WriteTimeout(f"after {len(event)} headers")

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", broken)
    with live.record("tour"), pytest.raises(httpx.WriteTimeout, match=" headers") as caught:
        live.me()

    summary = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    encoded = httpx.BasicAuth(service.api_key, "")._auth_header.split()[1]
    assert encoded not in "".join(summary.format())


def test_a_response_does_not_keep_the_key_in_memory(service):
    """A notebook keeps the results of its cells, so they must not keep the key in memory."""
    session = Session(service.base_url, "a-key-of-its-own", pace="off")
    once = {"Connection": "close"}  # leaves no socket open
    responses = [session.get("/v1/lists", headers=once)]
    responses.append(asyncio.run(session.async_client.get("/v1/lists", headers=once)))
    is_known = "a-key-of-its-own" in known_keys()
    del session
    gc.collect()

    assert is_known
    assert all(each.is_closed for each in responses)
    assert "a-key-of-its-own" not in known_keys()


@pytest.mark.parametrize("mode", ["live", "record", "replay"])
def test_a_response_that_was_read_is_freed_without_the_garbage_collector(live, mode):
    """httpx's stream refers to its response, which costs a twentieth of a replay's time."""
    if mode != "live":
        live.record("tour")
        live.get("/v1/users/me")
    if mode == "replay":
        live.replay("tour")
    gc.disable()
    try:
        response = live.get("/v1/users/me")
        held = weakref.ref(response)
        del response

        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_session_that_is_dropped_leaves_no_filter_on_the_loggers(service, is_closed):
    """The filter has a reference to the key, so it must go with its session, closed or not."""
    gc.collect()  # removes sessions that earlier tests dropped
    before = list(logging.getLogger("httpx").filters)
    session = Session(service.base_url, ApiKey(service.api_key))
    during = list(logging.getLogger("httpx").filters)
    if is_closed:
        session.close()
    else:
        del session
    gc.collect()

    assert len(during) == len(before) + 1
    assert logging.getLogger("httpx").filters == before


def test_tab_after_a_session_shows_what_its_user_needs(live):
    """What only this package needs are functions of its module."""
    calls = "get get_many pages post post_many put patch delete request me me_async"
    modes = "live record replay close"
    facts = "base_url templates client async_client recording mode cassette allow_writes"
    shown = [name for name in dir(live) if not name.startswith("_")]
    assert shown == sorted(f"{calls} {modes} {facts}".split())
