"""A request to which no response came: how a file keeps it, and what each reader makes of it."""

import socket
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from cassette_samples import BASE_URL, NOON, answered, get, opened, post, recorded, theirs
from vcr.persisters.filesystem import FilesystemPersister
from vcr.serializers import yamlserializer

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.convert import convert
from directmail_lab.errors import OutcomeUnknownError
from directmail_lab.exchange.httpx_values import httpx_error, kind_of_failure
from directmail_lab.exchange.values import (
    CUTS,
    Cut,
    Interaction,
    Request,
    Response,
)
from directmail_lab.server.loopback import cassette_server
from directmail_lab.sessions.session import Session

REASON = "the connection broke\u2028"


def unanswered(kind: Cut, request: Request | None = None) -> Interaction:
    response = Response(0, cut=kind, error=REASON)
    return Interaction(request or get(), response, NOON, 0.042, attempt=2)


@pytest.fixture
def lost() -> Path:
    """A cassette with a read, and with a read and a write to which no response came."""
    return recorded(
        Path("cassettes/lost.yaml"),
        answered(get("/v1/lists"), "[]"),
        replace(unanswered("read_timeout"), attempt=1),
        replace(unanswered("read_error", post(b'{"a": 1}')), attempt=1),
    )


@pytest.mark.parametrize("kind", CUTS[1:])
def test_a_failure_without_response_comes_back_from_its_file(kind):
    path = recorded(Path("tour.yaml"), answered(get("/other")), unanswered(kind))
    _, (_, vcrs) = FilesystemPersister.load_cassette(path, yamlserializer)

    assert read_cassette(path).problem is None
    assert read_cassette(path).interaction(2) == unanswered(kind)
    assert vcrs["status"] == {"code": 599, "message": REASON}


@pytest.mark.parametrize("kind", CUTS[1:])
def test_an_httpx_error_becomes_a_kind_and_the_kind_an_error(kind):
    request = httpx.Request("GET", BASE_URL)
    error = httpx_error(kind, REASON, request)

    assert kind_of_failure(error) == ("read_error" if kind in ("aborted", "interrupted") else kind)
    assert (str(error), error.request) == (REASON, request)


def test_errors_that_say_nothing_of_the_network_are_of_no_kind():
    """A full pool and a refusing proxy are failures of the connection, a bug is not."""
    errors = (
        httpx.PoolTimeout(""),
        httpx.ProxyError(""),
        httpx.UnsupportedProtocol(""),
        KeyError(),
    )
    assert [*map(kind_of_failure, errors)] == ["connect_timeout", "connect_error", None, None]


def test_an_unknown_kind_is_ignored():
    path = recorded(Path("tour.yaml"), unanswered("read_error"))
    for kind in ("lost_error", "true", "[1]"):
        path.write_text(path.read_text().replace("no_response: read_error", f"no_response: {kind}"))
        response = read_cassette(path).interaction(1).response

        assert (response.status, response.cut) == (599, None)


def test_a_failure_survives_an_edit_and_a_conversion(lost):
    """YAML that a person or vcrpy wrote anew has it as ours."""
    there = theirs("there.yaml", *read_cassette(lost))
    convert(there, Path("back.yaml"))

    assert [each.response.cut for each in read_cassette(there)] == [
        *(None, "read_timeout", "read_error")
    ]
    assert list(read_cassette(Path("back.yaml")))[1:] == [
        replace(each, recorded_at=None, elapsed_s=None) for each in list(read_cassette(lost))[1:]
    ]


def test_a_replay_raises_the_clients_error(lost):
    with Session(BASE_URL) as session:
        session.replay(lost)
        with pytest.raises(httpx.ReadTimeout):
            session.get("/v1/users/me")
        with pytest.raises(OutcomeUnknownError):
            session.post("/v1/letters", json={"a": 1})
        table, rows = dm.rate_limits(session), dm.interactions(session)

    assert list(table["status"]) == [0, 0]
    assert list(table["problem"]) == list(rows["problem"])
    assert rows["problem"][1] == "no response came (read timeout)"


def test_no_mode_that_can_send_replays_a_failure(lost):
    with opened(lost, "new_episodes") as cassette:
        assert not cassette.play(get())
        assert len(cassette.play(get("/v1/lists"))) == 1


def test_questions_count_no_response_as_none(lost):
    for table in (dm.rate_limits(lost), dm.interactions(lost)):
        assert list(table["status"]) == [200, 0, 0]
    assert "599" not in dm.findings(lost).to_csv()
    assert list(dm.openapi(lost)["paths"]) == ["/v1/lists"]
    assert set(dm.check_contract(lost)["responses"]) == {1}
    shown = str(dm.interactions(lost, number=3))
    assert "no response came (read error): the connection broke" in shown


def test_drift_sends_no_read_that_had_no_response(connected, lost):
    assert dm.drift(lost).attrs["notes"][-2:] == [
        "1 request sent.",
        "Not compared: GET /v1/users/me (no response was recorded), "
        "POST /v1/letters (it may write).",
    ]


def test_a_served_failure_closes_the_connection(lost):
    with cassette_server([lost]) as server:
        host, port = server.base_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /v1/users/me HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = client.recv(100)

        assert received == b""
        assert httpx.get(f"{server.base_url}/v1/lists").json() == []
