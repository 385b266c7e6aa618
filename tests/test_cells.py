"""A reader's cell gets what the author's same cell got: in real kernels, which know the cells."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from cassette_samples import loaded_by_vcrpy
from cells import GET, KEY, CountingService, Kernel, Notebook, new_kernel, new_service

from directmail_lab.cassettes import read_cassette
from directmail_lab.exchange.values import Interaction
from directmail_lab.share.packing import share

pytestmark = pytest.mark.slow

STATUS = "print(dm.get('/v1/n').status_code)"
REFUSED = "print(dm.get('/v1/n', auth=None).status_code)"
POLL = "print([dm.get('/v1/n').json()['n'] for _ in range({})])"


author = pytest.fixture(scope="module")(new_kernel)
reader = pytest.fixture(scope="module")(new_kernel)
counting = pytest.fixture(new_service)


def refuses_without_key(_: str, headers: Any) -> int:
    return 0 if "Authorization" in headers else 401


def interactions(notebook: Notebook) -> Sequence[Interaction]:
    return read_cassette(notebook.cassette).interactions


def answers_in(notebook: Notebook) -> list[int]:
    return [json.loads(each.response.body)["n"] for each in interactions(notebook)]


def cells_in(notebook: Notebook) -> list[str]:
    """Return the name of the cell that each interaction of the cassette belongs to."""
    cells = [each.cell or "" for each in interactions(notebook)]
    return [each.removeprefix(f"{notebook.ids}-") for each in cells]


# -- one day ---------------------------------------------------------------------------------------


def test_a_cell_that_was_executed_thrice_plays_its_last_response(
    author, reader, counting, tmp_path
):
    """The next cell has the same request. The order in which a reader runs them does not matter."""
    notebook = Notebook(tmp_path, {"A": GET, "B": GET})
    notebook.open(author, counting)
    assert notebook.run(author, "A", "A", "A", "B") == ["1", "2", "3", "4"]

    assert notebook.read(reader) == {"A": "3", "B": "4"}
    assert notebook.read(reader, "B", "A") == {"A": "3", "B": "4"}
    again = [notebook.execute(reader, GET, name) for name in "ABBA"]
    assert again == ["3", "4", "4", "3"]
    assert cells_in(notebook) == ["A", "B"]
    assert loaded_by_vcrpy(notebook.cassette) == 2


def test_the_order_of_the_authors_executions_does_not_matter(author, reader, counting, tmp_path):
    """Without ids, a reader gets the recorded order; a replaced response keeps its place in it."""
    notebook = Notebook(tmp_path, {"A": GET, "B": GET})
    notebook.open(author, counting)
    notebook.run(author, "B", "A", "B")

    assert notebook.read(reader) == {"A": "2", "B": "3"}
    notebook.has_ids = False
    assert notebook.read(reader, "B", "A") == {"B": "3", "A": "2"}


def test_the_cell_that_begins_the_recording_has_its_id(author, reader, counting, tmp_path):
    """It has been executed before anybody could ask which cell runs."""
    notebook = Notebook(tmp_path, {"B": GET})
    author.restart()
    first = (
        f"import directmail_lab as dm, os; os.chdir({str(tmp_path)!r})\n"
        f"dm.connect({counting.url!r}, {KEY!r}, pace='off'); dm.record('tour')\n{GET}"
    )
    for _ in range(2):
        notebook.execute(author, first, "A")
    notebook.run(author, "B")
    notebook.cells = {"B": GET, "A": GET}

    assert notebook.read(reader) == {"B": "3", "A": "2"}
    assert cells_in(notebook) == ["A", "B"]


@pytest.mark.parametrize(
    "steps",
    ["KN", "NK", "KNK", "NKN", "KKN", "NNK", "KNNK", "BK", "KB", "BBK", "TN", "TTN", "NTK", "NTNT"],
)
def test_refusals_and_successes_are_played_by_the_cells_that_got_them(
    author, reader, counting, tmp_path, steps
):
    """K is sent with the key and N without; B gets both, and T the other way round."""
    both = "print(dm.get('/v1/n'{}).status_code, dm.get('/v1/n'{}).status_code)"
    cells = {
        "K": STATUS,
        "N": REFUSED,
        "B": both.format("", ", auth=None"),
        "T": both.format(", auth=None", ""),
    }
    notebook = Notebook(tmp_path, {name: cells[name] for name in sorted(set(steps))})
    counting.fails = refuses_without_key
    notebook.open(author, counting)
    notebook.run(author, *steps)

    assert notebook.read(reader) == notebook.shown
    assert notebook.read(reader, *reversed(notebook.cells)) == notebook.shown


def test_a_cell_that_polls_plays_all_its_responses_from_the_first_on(
    author, reader, counting, tmp_path
):
    """Its second execution asked fewer times."""
    notebook = Notebook(tmp_path, {"P": POLL.format(3), "Q": POLL.format(2)})
    notebook.open(author, counting)
    notebook.run(author, "P")
    notebook.cells["P"] = POLL.format(2)
    notebook.run(author, "Q", "P")

    assert notebook.read(reader, "Q", "P") == {"P": "[6, 7]", "Q": "[4, 5]"}
    assert notebook.execute(reader, notebook.cells["P"], "P") == "[6, 7]"
    notebook.has_ids = False
    assert notebook.read(reader) == {"P": "[6, 7]", "Q": "[4, 5]"}


def test_a_loop_that_is_interrupted_keeps_what_it_has_not_replaced(
    author, reader, counting, tmp_path
):
    """Its reader gets the new responses and then the old ones, so the loop ends."""
    loop = (
        "import itertools\nfor n in itertools.count(1):\n"
        "    if dm.get('/v1/n').json()['n'] % 5 == 3: break\n"
        "    if n == {}: raise KeyboardInterrupt\nprint(n)"
    )
    notebook = Notebook(tmp_path, {"P": loop.format(9)})
    notebook.open(author, counting)
    assert notebook.run(author, "P") == ["3"]
    counting.counts["GET"] = 3
    for _ in range(2):
        notebook.execute(author, loop.format(1), "P")
        assert notebook.read(reader) == {"P": "3"}
    assert answers_in(notebook) == [5, 2, 3]
    notebook.run(author, "P")

    assert notebook.read(reader) == notebook.shown == {"P": "3"}
    assert answers_in(notebook) == [6, 7, 8]


def test_what_an_execution_has_not_replaced_goes_at_its_end(author, reader, counting, tmp_path):
    """At its end, a failure takes the place of a success, if the cell has another one."""
    notebook = Notebook(tmp_path, {"P": POLL.format(4)})
    counting.fails = refuses_without_key
    notebook.open(author, counting)
    notebook.run(author, "P")
    notebook.cells["P"] = f"{STATUS}\n{REFUSED}"
    notebook.run(author, "P")

    assert notebook.read(reader) == notebook.shown == {"P": "200\n401"}
    assert [each.response.status for each in interactions(notebook)] == [200, 401]
    author.restart()
    notebook.open(author, counting)
    notebook.cells["P"] = f"{REFUSED}\n{STATUS}"
    notebook.run(author, "P")
    assert notebook.read(reader) == notebook.shown == {"P": "401\n200"}


def test_a_cell_without_responses_of_its_own_gets_those_of_all(author, reader, counting, tmp_path):
    """Such as a copy of a cell, or one that the author deleted."""
    notebook = Notebook(tmp_path, {"A": GET, "B": GET})
    notebook.open(author, counting)
    notebook.run(author, "A", "A", "B")
    notebook.cells["copy"] = GET

    assert notebook.read(reader, "copy", "A", "B") == {"copy": "2", "A": "2", "B": "3"}
    assert notebook.read(reader)["copy"] == "3"


def test_one_execution_may_record_in_several_blocks(author, reader, counting, tmp_path):
    """What it recorded in the first one is its own in the next one. It is replaced by the next."""
    blocks = (
        "for _ in range(2):\n    with dm.record('tour'):\n        "
        f"{GET}\n    with dm.live(): pass\n    {GET}"
    )
    notebook = Notebook(tmp_path, {"A": blocks, "B": GET})
    notebook.open(author, counting)
    notebook.run(author, "A", "B", "A")

    assert len(read_cassette(notebook.cassette)) == 5
    notebook.cells["A"] = f"for _ in range(4): {GET}"
    assert notebook.read(reader, "B", "A") == notebook.shown


def test_vs_codes_ids_are_known_and_not_written(author, reader, counting, tmp_path):
    """They are addresses with the path of the notebook."""
    notebook = Notebook(tmp_path, {"A": GET, "B": GET})
    notebook.ids = "vscode-notebook-cell:/home/ann/tour.ipynb#W1sZmlsZQ%3D%3D"
    notebook.open(author, counting)
    notebook.run(author, "A", "A", "B", "A")
    notebook.has_ids = False

    assert notebook.read(reader) == {"A": "4", "B": "3"}
    assert "ann" not in notebook.cassette.read_text()


# -- tasks, threads, widgets -----------------------------------------------------------------------

MANY = "print(sorted(each.json()['n'] for each in dm.get_many(['/v1/n'] * 2 + ['/v1/m'])))"
TASK = (
    "import asyncio\nasync def later():\n    await go.wait()\n"
    "    seen.append((await dm.session().async_client.get('/v1/n')).json()['n'])\n"
    "seen = []; go = asyncio.Event(); task = asyncio.create_task(later())"
)
THREAD = (
    "import threading\ndef later():\n    for _ in range(2):\n"
    "        seen.append(dm.get('/v1/n').json()['n']); ready.set(); go.wait()\n"
    "seen = []; go = threading.Event(); ready = threading.Event()\n"
    "thread = threading.Thread(target=later); thread.start(); ready.wait()"
)
BUTTON = (
    "from comm import create_comm; seen = []; button = create_comm(target_name='any')\n"
    "button.on_msg(lambda _: seen.append(dm.get('/v1/n').json()['n']))"
)


def test_get_many_belongs_to_the_cell_that_called_it(author, reader, counting, tmp_path):
    notebook = Notebook(tmp_path, {"A": MANY, "B": GET, "C": MANY})
    notebook.open(author, counting)
    notebook.run(author, "A", "B", "C", "A")

    assert notebook.read(reader, "C", "B", "A") == notebook.shown
    assert sorted(cells_in(notebook)) == list("AAABCCC")


@pytest.mark.parametrize(
    ("start", "wait", "executed", "recorded"),
    [
        (TASK, "go.set(); await task", "ABCACB", "AB"),
        (THREAD, "go.set(); thread.join()", "ABCBAC", "AAB"),
    ],
    ids=["task", "thread"],
)
def test_a_task_or_thread_belongs_to_the_cell_that_started_it(
    author, reader, counting, tmp_path, start, wait, executed, recorded
):
    notebook = Notebook(tmp_path, {"A": start, "B": GET, "C": f"{wait}; print(seen)"})
    notebook.open(author, counting)
    notebook.run(author, *executed)

    assert notebook.read(reader) == notebook.shown
    assert sorted(cells_in(notebook)) == list(recorded)


def test_a_widgets_messages_belong_to_the_cell_that_made_it(author, reader, counting, tmp_path):
    """The presses of a button are recorded and played in their order."""
    notebook = Notebook(tmp_path, {"A": BUTTON, "B": GET, "C": "print(seen)"})

    def press(kernel: Kernel) -> None:
        kernel.press(kernel.run("print(button.comm_id)"))

    notebook.open(author, counting)
    notebook.run(author, "A", "B")
    for _ in range(2):
        press(author)
    notebook.run(author, "B", "C")
    notebook.read(reader, "A", "B")
    for _ in range(2):
        press(reader)

    assert notebook.execute(reader, "print(seen)", "C") == notebook.shown["C"] == "[2, 3]"
    assert notebook.execute(reader, GET, "B") == notebook.shown["B"] == "4"
    assert cells_in(notebook) == ["B", "A", "A"]


# -- other days ------------------------------------------------------------------------------------


def test_on_another_day_some_cells_are_executed_and_some_are_new(
    author, reader, counting, tmp_path
):
    """Each plays what it got last, also cells that were moved."""
    notebook = Notebook(tmp_path, {"A": GET, "B": GET})
    notebook.open(author, counting)
    notebook.run(author, "A", "B")
    author.restart()
    notebook.open(author, counting)
    notebook.run(author, "A")
    assert notebook.read(reader) == {"A": "3", "B": "2"}
    notebook.cells = {"C": GET, "B": GET, "A": GET}
    author.restart()
    notebook.open(author, counting)
    notebook.run(author, "C")

    assert notebook.read(reader) == notebook.shown == {"A": "3", "B": "2", "C": "4"}
    assert cells_in(notebook) == ["A", "B", "C"]
    notebook.has_ids = False
    assert notebook.read(reader, "A", "B", "C") == notebook.shown


def test_on_a_day_of_failures_the_last_successes_stay(author, reader, counting, tmp_path):
    """A cell that has none plays its failure."""
    notebook = Notebook(tmp_path, {"A": GET, "B": POLL.format(2), "C": STATUS})
    notebook.open(author, counting)
    notebook.run(author, "A", "B")
    before = {**notebook.shown, "C": "503"}
    author.restart()
    notebook.open(author, counting)
    with counting.failing(503):
        notebook.run(author, "A", "B", "C")

    assert notebook.shown["A"] == "failed"
    assert notebook.read(reader) == before
    assert notebook.read(reader, "C", "B", "A") == before


def test_a_failure_and_then_a_success_of_one_cell(author, reader, counting, tmp_path):
    notebook = Notebook(tmp_path, {"A": GET})
    with counting.failing(503):
        notebook.open(author, counting)
        notebook.run(author, "A")
        assert notebook.read(reader) == {"A": "failed"}
    notebook.run(author, "A")
    with counting.failing(503):
        notebook.run(author, "A")

    assert notebook.read(reader) == {"A": "1"}
    assert len(read_cassette(notebook.cassette)) == 1


def test_the_failed_attempts_of_a_call_stay_with_its_success(author, reader, counting, tmp_path):
    """On the second day, its success replaces one that came at the first attempt."""
    limits = "print(dm.rate_limits()['status'].tolist())"
    notebook = Notebook(tmp_path, {"A": GET, "B": limits})
    failures: list[int] = []
    counting.fails = lambda _, __: failures.pop() if failures else 0
    for _ in range(2):
        author.restart()
        notebook.open(author, counting, pace="burst", retry=True)
        notebook.run(author, "A", "B")
        failures += [503, 429]
        notebook.run(author, "A", "B")

    assert notebook.shown["B"] == "[200, 429, 503, 200]"
    assert notebook.read(reader) == {"A": notebook.shown["A"], "B": "[429, 503, 200]"}


def test_a_report_that_breaks_after_half_of_its_cells(author, reader, counting, tmp_path):
    """Its reader gets the new responses of the first half, and the old ones of the second."""
    notebook = Notebook(tmp_path, dict.fromkeys("ABCD", GET))
    notebook.open(author, counting)
    notebook.run(author, *"ABCD")
    author.restart()
    notebook.open(author, counting)
    notebook.run(author, *"AB")
    author.kill()

    assert notebook.read(reader) == {"A": "5", "B": "6", "C": "3", "D": "4"}
    assert notebook.read(reader, *"DCBA") == {"A": "5", "B": "6", "C": "3", "D": "4"}


def test_a_kernel_that_is_killed_after_each_request_of_a_second_execution(
    author, reader, counting, tmp_path
):
    """The reader gets the new responses that came, and then the old ones."""
    notebook = Notebook(tmp_path, {"P": POLL.format(3), "Q": GET})
    notebook.open(author, counting)
    notebook.run(author, "P", "Q")
    expected = [1, 2, 3]
    for number in range(1, 4):
        counting.counts["GET"] = number * 10
        expected[:number] = [number * 10 + each + 1 for each in range(number)]
        author.restart()
        notebook.open(author, counting)
        reached = counting.holds_after(number * 11)
        author.start(POLL.format(number + 1), f"{notebook.ids}-P")
        assert reached.wait(120)
        author.kill()
        counting.release()

        assert notebook.read(reader, "Q", "P") == {"Q": "4", "P": str(expected)}
        notebook.has_ids = False
        assert notebook.read(reader) == {"P": str(expected), "Q": "4"}
        notebook.has_ids = True


# -- notebooks and front ends without ids ----------------------------------------------------------


def test_the_ids_of_a_notebook_that_keeps_none_change_each_day(author, reader, counting, tmp_path):
    """Then a new response replaces one of an earlier run, in their order."""
    notebook = Notebook(tmp_path, {"A": GET, "B": GET})
    for _ in range(2):
        author.restart()
        notebook.forget_ids()
        notebook.open(author, counting)
        notebook.run(author, "A", "B", "A")

        assert notebook.read(reader, "B", "A") == notebook.shown
        assert len(read_cassette(notebook.cassette)) == 2
    notebook.forget_ids()
    assert notebook.read(reader) == notebook.shown


def test_without_ids_a_run_replaces_the_responses_of_earlier_runs(
    author, reader, counting, tmp_path
):
    """A run begins with `record` as a statement."""
    notebook = Notebook(tmp_path, {"A": GET, "B": GET}, has_ids=False)
    for _ in range(2):
        notebook.open(author, counting)
        notebook.run(author, "A", "B")

    assert notebook.read(reader) == notebook.shown == {"A": "3", "B": "4"}
    assert len(read_cassette(notebook.cassette)) == 2


def as_file(notebook: Notebook, service: CountingService) -> Path:
    """Write the notebook as a file, whose first cell records or replays."""
    code = {
        "the-first-cell": "import directmail_lab as dm\n"
        f"dm.connect({service.url!r}, {KEY!r}, pace='off'); dm.record('tour')",
        **notebook.cells,
    }
    cells = [
        nbformat.v4.new_code_cell(text, id=f"{notebook.ids}-{name}") for name, text in code.items()
    ]
    path = notebook.folder / "tour.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


@pytest.mark.parametrize("runner", ["jupyter execute", "papermill", "script"])
def test_a_runner_without_ids_in_turn_with_the_notebook(author, reader, counting, tmp_path, runner):
    """Each of the two replaces what the other one recorded."""
    notebook = Notebook(tmp_path, {"A": GET, "B": GET})
    path = as_file(notebook, counting)
    commands = {
        "jupyter execute": ["-m", "jupyter", "execute", path.name],
        "papermill": ["-m", "papermill", "-k", "python3", path.name, "out.ipynb"],
        "script": ["-c", "\n".join(each.source for each in nbformat.read(path, 4).cells)],
    }
    if runner == "papermill":
        pytest.importorskip("papermill")
    notebook.open(author, counting)
    notebook.run(author, "A", "A", "B")
    for day in range(2):
        author.run("dm.logout()")
        subprocess.run([sys.executable, *commands[runner]], cwd=tmp_path, check=True)
        last = counting.counts["GET"]
        assert notebook.read(reader) == {"A": f"{last - 1}", "B": f"{last}"}
        assert len(read_cassette(notebook.cassette)) == 2
        author.restart()
        notebook.open(author, counting)
        notebook.run(author, "B", "A") if day else notebook.run(author, "A", "B")
        assert notebook.read(reader) == notebook.shown

    assert len(read_cassette(notebook.cassette)) == 2


# -- share -----------------------------------------------------------------------------------------


def test_what_is_shared_is_what_the_author_saw(author, counting, tmp_path, small_wheel):
    """`share` runs each cell with its id. The author executed the lower cell first."""
    notebook = Notebook(tmp_path, {"A": GET, "N": REFUSED, "B": GET})
    counting.fails = refuses_without_key
    notebook.open(author, counting)
    notebook.run(author, "B", "N", "A", "B")
    author.run("dm.logout()")
    path = as_file(notebook, counting)
    text = path.read_text().replace(f"dm.connect({counting.url!r}, {KEY!r}, pace='off'); ", "")
    path.write_text(text)
    target = share(path, tmp_path / "tour.zip")
    import zipfile

    with zipfile.ZipFile(target) as packed:
        shared = json.loads(packed.read("tour/notebooks/tour.ipynb"))
    texts = ["".join(o["text"]) for cell in shared["cells"][1:] for o in cell["outputs"]]
    shown = [notebook.shown[name] for name in notebook.cells]

    assert [each.strip() for each in texts] == shown
