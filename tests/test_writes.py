"""A write is sent once, whichever cell is run again: live, and while recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_service import FaultyService
from IPython.core.interactiveshell import InteractiveShell

import directmail_lab as dm
from directmail_lab import settings
from directmail_lab.cassettes import read_cassette
from directmail_lab.errors import AlreadySentError

LETTERS = "POST /v1/letters"

Run = Callable[[str], Any]


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
    """A service at which the current session may write."""
    monkeypatch.setattr(settings, "_stand_ins", set())  # these take a write again
    dm.connect(service.base_url, service.api_key, allow_writes=True, pace="off")
    return service


POST = "dm.post('/v1/letters', json={'to': 'Ann'})"
KEEP = "dm.post('/v1/letters', json={'to': 'Ann'}, if_sent='keep')"


@pytest.mark.parametrize("mode", ["dm.live()", "dm.record('tour')"])
def test_a_write_is_sent_once_however_often_its_cell_is_run(
    run: Run, account: FaultyService, mode: str
) -> None:
    """The error names the cell that sent it. A new session of the same account knows it too."""
    run(mode)
    run(POST)
    errors = []
    connect = "dm.connect(service.base_url, service.api_key, allow_writes=True);"
    for cell in (POST, f"{mode}\n{POST}", f"{connect} {mode}\n{POST}", POST):
        with pytest.raises(AlreadySentError, match=r"\(201\).*by cell \[2\]") as refused:
            run(cell)
        errors.append(refused.value)

    assert account.requests[LETTERS] == 1
    assert {each.cell for each in errors} == {2}
    assert {each.status for each in errors} == {201}


@pytest.mark.parametrize("mode", ["dm.live()", "dm.record('tour')"])
def test_what_one_execution_sends_twice_is_sent_twice(
    run: Run, account: FaultyService, mode: str
) -> None:
    """A loop, threads and tasks belong to the cell that started them."""
    run(mode)
    run(f"for _ in range(2):\n    {POST}")
    run(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def send(_):\n"
        "    return dm.post('/v1/letters', json={'to': 'Bob'})\n"
        "with ThreadPoolExecutor(2) as pool:\n"
        "    list(pool.map(send, range(2)))\n"
        "send(3)"
    )
    run(
        "import asyncio\n"
        "client = dm.session().async_client\n"
        "posts = [client.post('/v1/letters', json={'to': 'Cid'}) for _ in range(2)]\n"
        "await asyncio.gather(*posts)"
    )

    assert account.requests[LETTERS] == 7


@pytest.mark.parametrize(
    ("fault", "is_refused"),
    [
        ({"status": 303}, True),
        ({"status": 500}, True),
        ({"drop": "reset"}, True),
        ({"cut_after": 3}, True),
        ({"status": 422}, False),
        ({"status": 429}, False),
    ],
)
@pytest.mark.parametrize("mode", ["dm.live()", "dm.record('tour')"])
def test_only_a_write_that_the_service_refused_may_be_sent_again(
    run: Run, account: FaultyService, fault: dict[str, Any], mode: str, is_refused: bool
) -> None:
    """A write without a whole response may have been carried out."""
    run(mode)
    with account.fault(**fault):
        run(f"try:\n    {POST}\nexcept dm.errors.OutcomeUnknownError:\n    pass")
    if is_refused:
        with pytest.raises(AlreadySentError):
            run(POST)
    run(POST.replace(")", ", if_sent='send')"))

    assert account.requests[LETTERS] == 2


def test_a_write_that_was_not_sent_may_be_sent(run: Run, account: FaultyService) -> None:
    """It was not allowed, or no connection could be made."""
    run("dm.session().allow_writes = False")
    with pytest.raises(dm.errors.WriteRefusedError):
        run(POST)
    run("dm.session().allow_writes = True")
    run(POST)

    assert account.requests[LETTERS] == 1


@pytest.mark.parametrize("mode", ["dm.live()", "dm.record('tour')"])
def test_keep_returns_the_earlier_response_and_sends_only_what_was_never_sent(
    run: Run, account: FaultyService, mode: str
) -> None:
    """The letters that a loop sent before it broke are kept, and `interactions` shows which."""
    letters = (
        "ids = []\n"
        "for name in ['Ann', 'Bob', 'Ann', 'Cid', 'Dan']:\n"
        "    letter = dm.post('/v1/letters', json={'to': name}, if_sent='keep')\n"
        "    ids.append(letter.json()['id'])\n"
    )
    run(mode)
    with pytest.raises(KeyError):
        run(f"{letters}    if name == 'Cid': raise KeyError(name)")
    broken = run("ids")
    with pytest.warns(UserWarning, match="Nothing was sent: this POST was sent before on"):
        run(letters)
    again = run("ids")
    sources = run("dm.interactions()['source']").tolist()

    sent = "recorded" if "record" in mode else "live"
    assert account.requests[LETTERS] == 5
    assert again[:4] == broken
    assert sources == [*[sent] * 4, *["kept"] * 4, sent]


def test_keep_returns_what_an_earlier_run_recorded(run: Run, account: FaultyService) -> None:
    """The recording goes on where the last one broke, and has each letter once."""
    letters = "[{}(to).json()['id'] for to in {}]"
    run("def send(to): return dm.post('/v1/letters', json={'to': to}, if_sent='keep')")
    run("dm.record('tour')")
    first = run(letters.format("send", ["Ann", "Ann", "Bob"]))
    run("dm.record('tour')")
    with pytest.warns(UserWarning, match="Nothing was sent"):
        second = run(letters.format("send", ["Ann", "Ann", "Bob", "Cid", "Bob"]))
    run("dm.live()")
    with pytest.warns(UserWarning, match="Nothing was sent"):
        third = run(letters.format("send", ["Cid"]))

    assert account.requests[LETTERS] == 5
    assert second[:3] == first
    assert third == second[3:4]
    assert len(read_cassette(Path("cassettes/tour.yaml"))) == 5
