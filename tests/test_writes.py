"""A write is sent once, whichever cell is run again: live, and while recording."""

import gc
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cassette_samples import answered, post, recorded
from faulty_service import FaultyService
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import start_new_kernel

import directmail_lab as dm
from directmail_lab import settings
from directmail_lab.cassettes import read_cassette
from directmail_lab.errors import AlreadySentError
from directmail_lab.exchange.values import Interaction
from directmail_lab.sessions.clients.refusals import check
from directmail_lab.sessions.transports import writes

GUIDE = (Path(__file__).parent.parent / "notebooks" / "writes.md").read_text(encoding="utf-8")
LETTERS = "POST /v1/letters"

Run = Callable[[str], Any]
MODES = pytest.mark.parametrize("mode", ["dm.live()", "dm.record('tour')"])


@pytest.fixture
def run(service: FaultyService) -> Iterator[Run]:
    """Run a cell in IPython; return its value, or raise its error."""
    shell = InteractiveShell.instance(user_ns={"dm": dm, "service": service})

    def in_shell(cell: str) -> Any:
        outcome = shell.run_cell(cell, store_history=True)
        outcome.raise_error()
        return outcome.result

    yield in_shell
    shell.restore_sys_module_state()
    InteractiveShell.clear_instance()


@pytest.fixture
def account(service: FaultyService, monkeypatch: pytest.MonkeyPatch) -> FaultyService:
    monkeypatch.setattr(settings, "_stand_ins", set())  # these take a write again
    dm.connect(service.base_url, service.api_key, allow_writes=True, pace="off")
    return service


POST = "dm.post('/v1/letters', json={'to': 'Ann'})"
KEEP = "dm.post('/v1/letters', json={'to': 'Ann'}, if_sent='keep')"
SEND = KEEP.replace("keep", "send")
LOST = "dm.errors.OutcomeUnknownError"


@MODES
def test_a_write_is_sent_once_however_often_its_cell_is_run(run, account, mode):
    run(mode)
    run(POST)
    connect = "dm.connect(service.base_url, service.api_key, allow_writes=True);"
    for cell in (POST, f"{mode}\n{POST}", f"{connect} {mode}\n{POST}", POST):
        with pytest.raises(AlreadySentError, match=r"\(201\).*by cell \[2\]") as refused:
            run(cell)
        assert (refused.value.cell, refused.value.status) == (2, 201)

    assert account.requests[LETTERS] == 1


@MODES
def test_what_one_execution_sends_twice_is_sent_twice(run, account, mode):
    """A loop, threads and tasks belong to the cell that started them."""
    run(f"import asyncio; from concurrent.futures import ThreadPoolExecutor\n{mode}")
    run(f"for _ in range(2):\n    {POST}")
    run(
        "def send(_):\n"
        "    return dm.post('/v1/letters', json={'to': 'Bob'})\n"
        "with ThreadPoolExecutor(2) as pool:\n"
        "    list(pool.map(send, range(2)))\n"
        "send(3)"
    )
    post = "dm.session().async_client.post('/v1/letters', json={'to': 'Cid'})"
    run(f"await asyncio.gather({post}, {post})")

    assert account.requests[LETTERS] == 7


@pytest.mark.parametrize(
    ("fault", "is_refused"),
    [
        *(({"status": status}, status in (303, 500)) for status in (303, 422, 429, 500)),
        ({"drop": "reset"}, True),
        ({"cut_after": 3}, True),
        ({"headers": {"Content-Encoding": "gzip, gzip"}}, True),
    ],
)
@MODES
def test_only_a_write_that_the_service_refused_may_be_sent_again(
    run, account, fault, mode, is_refused
):
    """A write without a whole response may have been carried out."""
    run(mode)
    with account.fault(**fault):
        run(f"try:\n    {POST}\nexcept {LOST}:\n    pass")
    if is_refused:
        with pytest.raises(AlreadySentError):
            run(POST)
    run(POST.replace(")", ", if_sent='send')") if is_refused else POST)

    assert account.requests[LETTERS] == 2


def test_pages_always_searches(run, account):
    path = "/v1/contacts/search"
    with account.fault(path=path, body='{"items": [{"id": 1}]}', status=200):
        for _ in range(2):
            run(f"list(dm.pages({path!r}, method='POST', json={{'name': 'Ann'}}))")

    assert account.requests[f"POST {path}"] == 2


SEARCH = r'It looks like a search: to send it each time, if_sent="send"\. To get its response back'
LETTER = (
    r"^POST [^ ]+ \(.*\) was sent .*\. It was not sent again\.\n"
    r'To get its [^.]*: if_sent="keep"\. To send'
)


@pytest.mark.parametrize(
    ("path", "status", "body", "said"),
    [
        ("contacts/search", 200, '{"id": 1}', SEARCH),
        ("_Search/", 200, "{}", SEARCH),
        ("contacts", 200, '{"items": [{"id": 1}], "total": 1}', SEARCH),
        ("contacts", 200, '[{"id": 1}]', SEARCH),
        ("contacts", 201, '[{"id": 1}]', LETTER),
        ("letters", 200, '{"id": 1, "tags": [], "pages": [{"n": 1}]}', LETTER),
        ("researchers", 200, "", LETTER),
    ],
)
def test_a_search_that_is_refused_says_first_how_to_send_it_each_time(
    run, account, path, status, body, said
):
    """A POST whose path or whose response says that it is a list is seldom a letter."""
    cell = f"dm.post('/v1/{path}', json={{'name': 'Ann'}})"
    with account.fault(path=f"/v1/{path}", status=status, body=body):
        run(cell)
    with pytest.raises(AlreadySentError, match=said):
        run(cell)


def test_a_write_that_was_not_sent_may_be_sent(run, account, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/missing.pem")
    with pytest.raises(dm.errors.DirectMailLabError, match="SSL_CERT_FILE"):
        run(POST)
    monkeypatch.delenv("SSL_CERT_FILE")
    run("dm.session().allow_writes = False")
    with pytest.raises(dm.errors.WriteRefusedError):
        run(POST)
    run("dm.session().allow_writes = True")
    run(POST)

    assert account.requests[LETTERS] == 1


@MODES
def test_keep_returns_the_earlier_response_and_sends_only_what_was_never_sent(
    run, account, mode, capsys
):
    letters = (
        "ids = []\n"
        "for name in ['Ann', 'Bob', 'Cid', 'Dan']:\n"
        "    letter = dm.post('/v1/letters', json={'to': name}, if_sent='keep')\n"
        "    ids.append(letter.json()['id'])\n"
    )
    run(mode)
    with pytest.raises(KeyError):
        run(f"{letters}    if name == 'Cid': raise KeyError(name)")
    broken = run("ids")
    capsys.readouterr()
    run(letters)
    said = capsys.readouterr().out
    again = run("ids")
    sources = run("dm.interactions()['source'].tolist()")

    sent = "recorded" if "record" in mode else "live"
    assert account.requests[LETTERS] == 4
    assert again[:3] == broken
    assert said == "4 writes: 3 kept, 1 sent. dm.interactions() lists them.\n"
    assert sources == [*[sent] * 3, *["kept"] * 3, sent]


def test_keep_returns_what_an_earlier_run_recorded(run, account):
    letters = "[{}(to).json()['id'] for to in {}]"
    run("def send(to): return dm.post('/v1/letters', json={'to': to}, if_sent='keep')")
    run("dm.record('tour')")
    first = run(letters.format("send", ["Ann", "Bob"]))
    run("dm.record('tour')")
    second = run(letters.format("send", ["Ann", "Bob", "Cid", "Dan"]))
    run("dm.live()")
    third = run(letters.format("send", ["Cid"]))

    assert account.requests[LETTERS] == 4
    assert second[:2] == first
    assert third == second[2:3]
    assert len(read_cassette(Path("cassettes/tour.yaml"))) == 4


WITH_TOKEN = """
def send(token):
    letter = {'to': 'Ann', 'access_token': token * 20}
    return dm.post('/v1/letters', json=letter, if_sent='keep').json()['id']
"""


def test_letters_that_differ_only_in_a_redacted_value_each_keep_their_own_response(run, account):
    """The process knows what it sent. A later one cannot know it, and refuses both."""
    run(WITH_TOKEN)
    ids = run("dm.record('tour')\n[send('ab'), send('cd')]")
    for mode in ("", "dm.record('tour')\n", "dm.live()\n"):
        assert run(f"{mode}[send('ab'), send('cd')]") == ids

    writes._sent.clear()  # as in a new process
    run("dm.record('tour')")
    for token in ("ab", "cd"):
        with pytest.raises(
            AlreadySentError, match=r"(?s)interaction 2 .* may be another"
        ) as refused:
            run(f"send({token!r})")
        assert refused.value.number == 2
    with pytest.raises(AlreadySentError, match="only in what redaction, ignore or match_on leave"):
        run(WITH_TOKEN.replace("if_sent='keep'", "") + "send('ab')")
    assert account.requests[LETTERS] == 2


def test_keep_sends_a_letter_once_within_a_cell_too(run, account):
    """A loop that tries again sends only what was never sent, and no letter without a response."""
    tries = (
        "sent = []\n"
        "for name in ['Ann', 'Bob'] * 3:\n"
        "    try:\n"
        "        dm.post('/v1/letters', json={'to': name}, if_sent='keep')\n"
        "        sent.append(name)\n"
        "    except dm.errors.DirectMailLabError:\n"
        "        pass"
    )
    with account.fault(drop="reset", times=1, path="/v1/letters"):
        run(tries)
    sent = run("sent")
    run(SEND)
    run(tries)

    assert sent == ["Bob"] * 3
    assert run("sent") == ["Ann", "Bob"] * 3
    assert account.requests[LETTERS] == 3


@pytest.mark.filterwarnings("ignore:Nothing was sent")
@pytest.mark.parametrize("fault", [{"status": 503}, {"drop": "reset"}])
@pytest.mark.parametrize(
    "mode", ["dm.live()", "dm.record('tour')", "dm.record('tour', record_mode='new_episodes')"]
)
def test_a_failed_letter_that_was_sent_again_is_kept_as_its_success(run, account, mode, fault):
    """The last success counts: in the same cell, in the next one, in the next run, in a replay."""
    run(mode)
    with account.fault(**fault):
        run(f"try:\n    {POST}\nexcept {LOST}:\n    pass")
    statuses = [run(f"{SEND}\n{KEEP}.status_code")]
    statuses += [run(f"{mode}\n{KEEP}.status_code"), run(f"{KEEP}.status_code")]
    if "record" in mode:
        run(f"{SEND}\n{mode}")
        run("dm.replay('tour')")
        statuses += [run(f"{KEEP}.status_code"), run(f"{POST}.status_code")]

    assert set(statuses) == {201}
    assert account.requests[LETTERS] == (3 if "record" in mode else 2)


@MODES
def test_a_whole_response_is_kept_if_a_later_one_broke_off(run, account, mode):
    """The later one has a status of success, too."""
    run(f"{mode}\n{POST}")
    with account.fault(cut_after=3):
        run(f"try:\n    {SEND}\nexcept {LOST}:\n    pass")
    kept = run(KEEP)

    assert kept.json()["state"] == "accepted"


def test_a_recorded_letter_is_sent_once_if_its_body_is_made_while_it_is_sent(run, account):
    post = "dm.post('/v1/letters', content=(part for part in [b'{}']))"
    run(f"dm.record('tour')\n{post}")
    for cell in (post, f"dm.record('tour')\n{post}"):
        with pytest.raises(AlreadySentError):
            run(cell)

    assert account.requests[LETTERS] == 1


def test_a_kept_failure_is_named_as_one(run, account, capsys):
    """The cell's line has its status and when it came; `check` says how to send it again."""
    with account.fault(status=503):
        run(POST)
    kept = run(KEEP)
    said = capsys.readouterr().out

    assert kept.status_code == 503
    assert re.search(r"sent before, on .* UTC \(503\), and failed\. Its response is ret", said)
    with pytest.raises(dm.errors.ServiceError, match='To send it again: if_sent="send"'):
        check(kept, account.base_url)


def test_a_cell_says_at_its_end_what_became_of_its_letters(run, account, capsys):
    loop = "for to in {}:\n    dm.post('/v1/letters', json={{'to': to}}, if_sent='keep')"
    run(loop.format(["Ann", "Bob"]))
    with account.fault(status=500, times=1):
        run(loop.format(["Cid", "Ann", "Dan"]))
    run(loop.format(["Cid", "Ann"]))

    assert capsys.readouterr().out.splitlines() == [
        "3 writes: 1 kept, 1 sent, 1 failed (500). dm.interactions() lists them.",
        "2 writes: 1 kept, 0 sent, 1 kept failure (500). dm.interactions() lists them.",
    ]


@MODES
def test_an_unknown_outcome_that_turned_out_counts_from_then_on(run, account, mode):
    """The response that found the letter is the letter's: in this run, the next one, a replay."""
    run(mode)
    with account.fault(drop="reset"):
        run(f"try:\n    {POST}\nexcept {LOST}:\n    pass")
    with pytest.raises(AlreadySentError, match=r"if_sent=RESPONSE"):
        run(KEEP)
    run("found = dm.get('/v1/lists/lst_stand_in_1')")
    counted = run("dm.post('/v1/letters', json={'to': 'Ann'}, if_sent=found)")
    found = run("found")
    kept = [run(f"{mode}\n{KEEP}")]
    if "record" in mode:
        kept.append(run(f"dm.replay('tour')\n{POST}"))

    assert account.requests[LETTERS] == 1
    assert {each.text for each in (counted, *kept)} == {found.text}


def test_a_response_that_counts_as_a_letters_is_none_of_its_operation(run, account):
    """It is that of a read, in the session, in the cassette and in a replay of it."""
    run("dm.record('tour')\nfound = dm.get('/v1/users/me')")
    with account.fault(drop="reset"):
        run(f"try:\n    {POST}\nexcept {LOST}:\n    pass")
    run(POST.replace(")", ", if_sent=found)"))
    run(KEEP)
    described = [(dm.openapi(source), dm.findings(source)) for source in (None, "tour")]
    run(f"dm.replay('tour')\n{POST}\ndm.get('/v1/users/me')")
    described.append((dm.openapi(), dm.findings()))

    for document, found in described:
        assert list(document["paths"]) == ["/v1/users/me"]
        assert not found["seen"].str.contains("/v1/letters").any()
    assert list(dm.interactions("tour")["attempt"]) == [1, 0]


def test_a_letter_is_named_by_its_number_and_its_body_without_what_a_cassette_hides(run, account):
    """What tells it from the others: ten letters of a loop have one path."""
    run("dm.record('tour', redact=['name'])")
    letter = "dm.post('/v1/letters', json={'template': 'spring', 'name': 'Ann'})"
    run(letter)
    with pytest.raises(AlreadySentError) as refused:
        run(letter)
    text = " ".join(str(refused.value).split())

    assert "spring" in text
    assert "Ann" not in text
    assert "number 1 in dm.interactions()" in text


FOUND_NOTHING = "httpx.Response(200, json={})"


@pytest.mark.parametrize(
    "found",
    [
        "dm.get('/v1/nowhere')",
        "dm.session().client.stream",
        *map(FOUND_NOTHING.format, ([], {"data": []}, {"letters": [], "total": 0})),
    ],
)
def test_only_a_success_that_was_read_counts_as_a_letters_response(run, account, found):
    """Nothing is sent, recorded or noted; a search that found nothing shows no letter."""
    run("import httpx")
    with pytest.raises(ValueError, match="if_sent"):
        run(f"dm.post('/v1/letters', json={{'to': 'Ann'}}, if_sent={found})")
    run(POST)

    assert account.requests[LETTERS] == 1


def test_counting_a_letter_that_is_not_known_warns(run, account):
    """It may have been sent elsewhere, or never: then a loop would leave it out unseen."""
    run("found = dm.get('/v1/users/me')")
    with pytest.warns(UserWarning, match="This POST is not known to have been sent"):
        run("dm.post('/v1/letters', json={'to': 'Ann'}, if_sent=found)")
    run(KEEP)

    assert account.requests[LETTERS] == 0


def test_a_letter_is_known_under_another_key_and_spelling_of_this_machine(run, account):
    """A new key may be the same account's."""
    localhost = account.base_url.replace("127.0.0.1", "localhost")
    run(POST)
    for base_url, key in ((account.base_url, "its-other-key"), (localhost, account.api_key)):
        dm.connect(base_url, key, allow_writes=True, pace="off")
        with pytest.raises(AlreadySentError):
            run(POST)

    assert account.requests[LETTERS] == 1


@MODES
@pytest.mark.parametrize("choice", ["keep", "refuse"])
def test_a_kept_redirect_is_not_followed_by_a_second_letter(run, account, mode, choice):
    """What a redirect leads to belongs to the write that led there, however often the cell runs."""
    follow = KEEP.replace("'keep'", f"{choice!r}, follow_redirects=True")
    run(mode)
    with account.fault(redirect_to=f"{account.base_url}/v1/other", status=307, path="/v1/letters"):
        for cell in (follow, follow, f"{mode}\n{follow}"):
            with pytest.raises(dm.errors.WriteRefusedError):
                run(cell)

    assert account.requests == {LETTERS: 1}


@pytest.mark.parametrize("record_mode", ["new_episodes", "any"])
def test_a_played_redirect_is_not_followed_by_a_second_letter(run, account, record_mode):
    follow = POST.replace(")", ", follow_redirects=True)")
    letter = replace(post(b'{"to": "Ann"}'), uri=f"{account.base_url}/v1/letters")
    redirect = answered(letter, status=307)
    to = ("Location", f"{account.base_url}/v1/other")
    recorded(
        "cassettes/tour.yaml",
        replace(redirect, response=replace(redirect.response, headers=(to,))),
        base_url=account.base_url,
    )
    run(f"dm.record('tour', record_mode={record_mode!r})")
    with (
        pytest.warns(UserWarning, match="Nothing was sent: this POST is replayed"),
        pytest.raises(dm.errors.WriteRefusedError),
    ):
        run(follow)

    assert account.requests.total() == 0


@MODES
@pytest.mark.parametrize("fault", [{"drop": "reset"}, {"cut_after": 3}])
def test_a_lost_letter_is_found_by_its_number(run, account, mode, fault):
    run(mode)
    run("dm.post('/v1/letters', json={'to': 'Bob'})")
    with (
        account.fault(**fault),
        pytest.raises(dm.errors.OutcomeUnknownError, match=r"It is number 2 in dm\.inter") as lost,
    ):
        run(POST)
    request = run(f"dm.session().recording.interaction({lost.value.number}).request")

    assert json.loads(request.body) == {"to": "Ann"}
    assert lost.value.what.startswith('POST /v1/letters ({"to":"Ann"}) was sent, and no')
    assert run("dm.interactions().path.tolist()") == ["/v1/letters"] * 2


def test_a_lost_letter_is_quoted_without_what_a_cassette_hides(run, account):
    run("dm.record('tour', redact=['name'])")
    letter = "dm.post('/v1/letters', json={'template': 'spring', 'name': 'Ann'})"
    with account.fault(drop="reset"), pytest.raises(dm.errors.OutcomeUnknownError) as lost:
        run(letter)

    assert "spring" in lost.value.what
    assert "Ann" not in str(lost.value)


def test_a_letter_that_was_sent_live_is_known_in_a_recording_with_other_rules(run, account):
    post = "dm.post('/v1/letters', json={'to': 'Ann', 'at': 1})"
    run(post)
    run("dm.record('tour', ignore=['body:at'])")
    with pytest.raises(AlreadySentError):
        run(post)

    assert account.requests[LETTERS] == 1


def test_a_letter_that_before_record_changes_is_known_to_the_next_run(account):
    def without_name(interaction: Interaction) -> Interaction:
        return replace(interaction, request=replace(interaction.request, body=b"{}"))

    for _ in range(2):
        dm.record("tour", before_record=without_name)
        with suppress(AlreadySentError):
            dm.post("/v1/letters", json={"to": "Ann"})

    assert account.requests[LETTERS] == 1


@pytest.mark.parametrize("is_block", [False, True])
def test_keep_returns_what_is_recorded_of_a_session_that_is_gone(account, is_block):
    """The process knows the letter without its response, which the cassette has."""
    sender = dm.Session(account.base_url, account.api_key, allow_writes=True)
    with sender.record("tour"):
        sent = sender.post("/v1/letters", json={"to": "Ann"}).json()
    sender.close()
    del sender
    gc.collect()
    recording = dm.record("tour")
    with recording if is_block else nullcontext(), pytest.warns(UserWarning, match="Nothing"):
        kept = dm.post("/v1/letters", json={"to": "Ann"}, if_sent="keep").json()

    assert kept == sent
    assert account.requests[LETTERS] == 1


@pytest.mark.filterwarnings("ignore:Nothing was sent")
def test_keep_sends_a_letter_that_differs_in_what_the_cassette_hides(account):
    """In the next block of the same script: the process knows both with all values."""
    for password in ("Ann's secret", "Bob's secret", "Ann's secret"):
        letter = {"to": "Ann", "password": password}
        with dm.record("tour"):
            dm.post("/v1/letters", json=letter, if_sent="keep")

    assert account.requests[LETTERS] == 2


def test_letters_that_before_record_makes_equal_are_not_taken_for_one_another(account):
    """After a restart, none gets the response to another one's letter."""

    def without_name(interaction: Interaction) -> Interaction:
        return replace(interaction, request=replace(interaction.request, body=b"{}"))

    dm.record("tour", before_record=without_name)
    dm.post("/v1/letters", json={"to": "Ann"})
    writes._sent.clear()
    dm.record("tour", before_record=without_name)
    with pytest.raises(AlreadySentError, match=r"It\s+may\s+be\s+another"):
        dm.post("/v1/letters", json={"to": "Bob"}, if_sent="keep")

    assert account.requests[LETTERS] == 1


def test_keep_sends_nothing_again_in_the_mode_that_sends_everything(run, account):
    run("dm.record('tour', record_mode='all')")
    run(KEEP)
    run(KEEP)
    run(POST)

    assert account.requests[LETTERS] == 2


def test_the_guides_mailing_goes_on_where_it_broke(run, account, capsys):
    mailing = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)[0]
    first_two, _, _ = mailing.partition("recipients[")
    run(first_two.replace('letters", recipients)', 'letters", recipients.head(2))'))
    first = run("mailing['response.id'].tolist()")
    capsys.readouterr()
    failed = run(mailing)
    frame = run("mailing")

    assert account.requests[LETTERS] == 3
    printed = capsys.readouterr().out
    assert "3 rows: 2 kept, 1 not sent. Nothing was sent." in printed
    assert "3 rows: 2 kept, 1 sent.\n" in printed
    assert frame["response.id"].tolist()[:2] == first
    assert frame["outcome"].tolist() == ["kept", "kept", "sent"]
    assert failed.empty


def test_a_mode_that_replays_a_letter_does_not_send_it_when_its_cell_is_run_again(run, account):
    """Each recorded response is replayed once; then the letter counts as sent before."""
    letter = replace(post(b'{"to": "Ann"}'), uri=f"{account.base_url}/v1/letters")
    recorded("cassettes/tour.yaml", answered(letter, status=201), base_url=account.base_url)
    run("dm.record('tour', record_mode='new_episodes')")
    with pytest.warns(UserWarning, match="Nothing was sent: this POST is replayed"):
        run(POST)
    with pytest.raises(AlreadySentError):
        run(POST)
    run(POST.replace(")", ", if_sent='send')"))

    assert account.requests[LETTERS] == 1


@pytest.mark.parametrize(
    "post",
    [
        "client.post('/v1/letters', json=letter)",
        "await async_client.post('/v1/letters', json=letter)",
    ],
)
def test_what_one_client_sent_is_known_to_the_others(run, account, post):
    """The block of mode ``"all"`` sends it again."""
    run("session = dm.session(); letter = {'to': 'Ann'}")
    run("client, async_client = session.client, session.async_client")
    run(post)
    for cell in (post, POST):
        with pytest.raises(AlreadySentError):
            run(cell)
    run(f"with dm.record('tour', record_mode='all'):\n    {post}")

    assert account.requests[LETTERS] == 2


def test_a_kept_response_says_nothing_new(run, account):
    """The monitor shows what is left since the last letter; `findings` counts each letter once."""
    findings = "dm.findings()['how_sure'].tolist()"
    left = "[each['remaining'] for each in dm.monitor().snapshot()['operations']]"
    run(POST)
    seen = run(findings)
    run(KEEP)
    seen_again = run(findings)
    run("dm.post('/v1/letters', json={'to': 'Bob'})")
    left_before = run(left)
    run(KEEP)

    assert seen_again == seen
    assert run(left) == left_before


# -- in a real kernel ------------------------------------------------------------------------------


class Notebook:
    """A real kernel, in which cells are run and messages to widgets are handled."""

    def __init__(self) -> None:
        self._manager, self._client = start_new_kernel(startup_timeout=300, kernel_name="python3")

    def run(self, cell: str) -> str:
        """Run a cell; return the name of its error, or an empty string."""
        reply = self._client.execute_interactive(cell, output_hook=lambda _: None, timeout=300)
        return str(reply["content"].get("ename", ""))

    def open(self, service: FaultyService, folder: Path) -> None:
        """Work in a folder, and connect to a service."""
        self.run(f"import directmail_lab as dm, os; os.chdir({str(folder)!r})")
        self.run(f"os.environ['DIRECTMAIL_API_KEY'] = {service.api_key!r}")
        self.run(f"dm.connect({service.base_url!r}, allow_writes=True, pace='off')")

    def restart(self) -> None:
        self._manager.restart_kernel(now=True)
        self._client.wait_for_ready(timeout=300)

    def press(self, comm_id: str) -> None:
        """Send a widget the message of its button, and wait until it was handled."""
        message = self._client.session.msg("comm_msg", {"comm_id": comm_id, "data": {}})
        self._client.session.send(self._client.shell_channel.socket, message)
        self.run("pass")

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Notebook]:
    with closing(Notebook()) as notebook:
        yield notebook


@pytest.fixture
def notebook(kernel: Notebook, service: FaultyService, tmp_path: Path) -> Notebook:
    kernel.open(service, tmp_path)
    return kernel


REFUSED = "AlreadySentError"


@pytest.mark.slow
def test_after_a_restart_and_in_another_notebook_a_recorded_letter_is_not_sent_again(
    notebook, service, tmp_path
):
    first = [notebook.run(cell) for cell in ("dm.record('tour')", KEEP, "dm.live()", POST)]
    notebook.restart()  # another notebook is another process, too
    notebook.open(service, tmp_path)
    again = [notebook.run(cell) for cell in ("dm.record('tour')", POST, KEEP, "dm.me()")]
    notebook.restart()
    notebook.run(f"import directmail_lab as dm, os; os.chdir({str(tmp_path)!r})")
    reader = [notebook.run(cell) for cell in ("dm.record('tour')", KEEP, KEEP, "dm.me()")]

    assert service.requests[LETTERS] == 1
    assert first == ["", "", "", REFUSED]
    assert again == ["", REFUSED, "", ""]
    assert reader == [""] * 4


@pytest.mark.slow
def test_a_letter_whose_task_was_cancelled_is_not_sent_again(notebook, service):
    """It may have been sent. The task belongs to the cell that started it."""
    post = "dm.session().async_client.post('/v1/letters', json={'to': 'Ann'})"
    with service.fault(latency_s=1.0):
        outcomes = [notebook.run(f"import asyncio; task = asyncio.create_task({post})")]
        while not service.requests[LETTERS]:
            time.sleep(0.01)
        outcomes.append(notebook.run("task.cancel(); await asyncio.wait([task])"))
        outcomes.append(notebook.run(f"await {post}"))

    assert outcomes == ["", "", REFUSED]
    assert service.requests[LETTERS] == 1


@pytest.mark.slow
def test_each_press_of_a_widgets_button_is_an_execution(notebook, service):
    notebook.run(
        "from comm import create_comm\n"
        "button = create_comm(target_name='any', comm_id='button')\n"
        f"button.on_msg(lambda _: {POST})"
    )
    for _ in range(2):
        notebook.press("button")
    outcome = notebook.run(POST)

    assert service.requests[LETTERS] == 1
    assert outcome == REFUSED
