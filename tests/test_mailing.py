"""`post_many`: each row of a table is sent once, and its outcome is known."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pytest
from faulty_service import FaultyService

import directmail_lab as dm
from directmail_lab import settings
from directmail_lab.errors import DirectMailLabError, WriteRefusedError
from directmail_lab.exchange.values import Request, Response

LETTERS = "POST /v1/letters"
PATH = "/v1/letters"
ROWS = [{"to": name} for name in ("Ann", "Bob", "Cid", "Dan", "Eve")]
TABLE = pd.DataFrame({"to.name": ["Ann", None], "n": [1, None], "score": [2.0, 3.5]}, ["a", "b"])


@pytest.fixture
def account(service: FaultyService, monkeypatch: pytest.MonkeyPatch) -> FaultyService:
    monkeypatch.setattr(settings, "_stand_ins", set())  # these take a write again
    dm.connect(service.base_url, service.api_key, allow_writes=True)
    dm.record("mailing", redact=[])
    return service


def outcomes(rows: Any = ROWS, **options: Any) -> list[str]:
    return list(dm.post_many(PATH, rows, **options)["outcome"])


def test_each_row_is_sent_once_and_its_response_is_beside_it(account):
    planned = dm.post_many(PATH, TABLE, dry_run=True)
    assert account.requests[LETTERS] == 0
    sent = dm.post_many(PATH, TABLE)
    dm.record("mailing")
    kept = dm.post_many(PATH, TABLE)
    dm.replay("mailing")

    assert account.requests[LETTERS] == 2
    assert planned["body"].tolist() == [
        '{"to":{"name":"Ann"},"n":1,"score":2}',
        '{"to":{"name":null},"n":null,"score":3.5}',
    ]
    assert planned["outcome"].tolist() == ["not sent", "not sent"]
    assert sent["outcome"].to_dict() == {"a": "sent", "b": "sent"}
    assert sent["response"]["a"]["id"] == sent["response.id"]["a"]
    assert kept["outcome"].tolist() == ["kept", "kept"]
    assert kept["response.id"].equals(sent["response.id"])
    assert outcomes(TABLE) == outcomes(TABLE, dry_run=True) == ["replayed", "replayed"]
    assert outcomes([{"to": "new"}], dry_run=True) == ["not sent"]


def test_some_rows_of_a_table_are_the_letters_that_they_were(account):
    """pandas makes floats of whole numbers beside an empty cell, and only there."""
    sent = outcomes(TABLE)
    again = outcomes(TABLE.loc[["a"]])

    assert (sent, again) == (["sent", "sent"], ["kept"])
    assert account.requests[LETTERS] == 2


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pd.DataFrame({"to": ["Ann", object()]}, ["a", "b"]), "row 'b' .* column 'to'"),
        ([ROWS[0], {"a": 1, "a.b": 2}], "row 1 .* column 'a.b'"),
        (pd.DataFrame([[1, 2]], columns=["to", "to"]), "row 0 .* column 'to'"),
        (pd.DataFrame([[1]]), "row 0 .* column 0"),
        (["Ann"], "a dict for each row"),
    ],
)
def test_a_body_that_cannot_be_made_is_an_error_before_the_first_is_sent(account, rows, said):
    with pytest.raises(ValueError, match=said):
        dm.post_many(PATH, rows)

    assert account.requests[LETTERS] == 0


def test_nothing_is_sent_without_a_recording_or_unless_writes_are_allowed(account):
    dm.session().allow_writes = False
    with pytest.raises(WriteRefusedError):
        dm.post_many(PATH, ROWS)
    dm.live()
    with pytest.raises(DirectMailLabError, match="only a recording knows"):
        dm.post_many(PATH, ROWS)

    assert account.requests[LETTERS] == 0


def test_three_new_failures_in_a_row_stop_and_those_of_before_do_not_count(account):
    body = '{"errors": {"to": ["is missing"]}}'
    with account.fault(status=422, body=body):
        with pytest.warns(UserWarning, match="5 rows: 3 refused, 2 not sent. Stopped after 3 fail"):
            stopped = dm.post_many(PATH, ROWS)
        assert account.requests[LETTERS] == 3
        with pytest.warns(UserWarning, match="5 refused"):
            assert outcomes() == ["refused"] * 5

    assert stopped["error"].tolist()[0] == "to: is missing"
    assert "response.id" not in stopped
    assert stopped["status"].tolist() == [422, 422, 422, pd.NA, pd.NA]
    assert outcomes(dry_run=True) == ["refused"] * 5
    assert outcomes() == ["sent"] * 5


@pytest.mark.parametrize(
    ("fault", "status"), [({"drop": "reset"}, pd.NA), ({"status": 503, "html": True}, 503)]
)
def test_a_row_without_an_outcome_is_settled_by_itself_alone(account, fault, status):
    """It is not sent again, and the other rows are."""
    with account.fault(times=1, **fault), pytest.warns(UserWarning, match="4 sent"):
        mailing = dm.post_many(PATH, ROWS)
    with pytest.warns(UserWarning, match="1 unknown"):
        again = outcomes()
    found = dm.get("/v1/lists/lst_stand_in_1")
    unknown = pd.DataFrame(ROWS)[mailing["outcome"] == "unknown"]
    with pytest.raises(ValueError, match="only that one"):
        dm.post_many(PATH, ROWS, if_sent=found)
    settled = dm.post_many(PATH, unknown, if_sent=found)
    with pytest.raises(ValueError, match=r"outcome is unknown\. This row is kept"):
        dm.post_many(PATH, unknown, if_sent=found)

    assert mailing["status"].tolist()[0] is status or mailing["status"].tolist()[0] == status
    assert again == ["unknown", "kept", "kept", "kept", "kept"]
    assert settled["outcome"].tolist() == ["kept"]
    assert outcomes() == ["kept"] * 5
    assert account.requests[LETTERS] == 5


def test_a_row_that_is_refused_for_the_rate_waits_and_is_sent_again(account):
    headers = {"Retry-After": "1", "X-RateLimit-Remaining": "0"}
    with account.fault(path=PATH, times=2, status=429, headers=headers):
        assert outcomes() == ["sent"] * 5

    assert account.requests[LETTERS] == 7
    assert outcomes() == ["kept"] * 5
    dm.replay("mailing")
    assert outcomes() == ["replayed"] * 5


def test_a_server_that_is_down_costs_three_attempts(account):
    account.close()
    with pytest.warns(UserWarning, match="5 not sent. Stopped after 3 failures in a row: "):
        assert outcomes() == ["not sent"] * 5


MAILING = """
import directmail_lab as dm
dm.connect(allow_writes=True)
dm.record("mailing", redact=[])
print(*dm.post_many("/v1/letters", [{"n": n} for n in range(40)])["outcome"])
"""


@dataclass(kw_only=True, eq=False, repr=False)
class CountingService(FaultyService):
    """Counts each letter, and kills its sender before the response to one of them."""

    letters: Counter[bytes] = field(default_factory=Counter)
    sender: Any = None
    last: int = 0

    def response_to(self, request: Request) -> Response:
        self.letters[request.body] += 1
        if self.letters.total() == self.last:
            self.sender.kill()
            self.sender.wait()
        return super().response_to(request)


@pytest.mark.slow
def test_a_mailing_that_is_killed_again_and_again_sends_each_letter_once():
    """The letters whose responses did not come are unknown, and the others are known as sent."""
    with CountingService() as service:
        known = {"DIRECTMAIL_BASE_URL": service.base_url, "DIRECTMAIL_API_KEY": service.api_key}
        command = [sys.executable, "-W", "ignore", "-c", MAILING]
        for service.last in (5, 6, 17, 38, 0):
            service.sender = subprocess.Popen(
                command, env=os.environ | known, stdout=subprocess.PIPE, text=True
            )
            said = service.sender.communicate()[0].split()

    assert set(service.letters.values()) == {1}
    assert len(service.letters) == 40
    assert Counter(said) == {"kept": 34, "unknown": 4, "sent": 2}
