"""A reader's cell gets what the author's same cell got, in a real JupyterLab."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import nbformat
import pytest
from cells import GET, KEY, CountingService, new_service

from directmail_lab.cassettes import read_cassette

from .jupyter import (
    Server,
    command,
    evaluate,
    open_notebook,
    reopen_notebook,
    restart_kernel,
    run_all,
    run_cells,
    save,
    wait_for,
)

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

_OUTPUTS = """() => jupyterapp.shell.currentWidget.content.widgets.map((cell) =>
  cell.model.outputs.toJSON().filter((each) => each.name === 'stdout' || each.evalue)
  .map((each) => [each.text ?? each.evalue].flat().join('')).join('').trim())"""


counting = pytest.fixture(new_service)


def first_cell(service: CountingService, name: str) -> str:
    """Return the code of a first cell that records if the service's address is known."""
    return (
        "import directmail_lab as dm, os\nif os.path.exists('sign-in'):\n"
        f"    dm.connect({service.url!r}, {KEY!r}, pace='off')\ndm.record({name!r})"
    )


def become(server: Server, who: str) -> None:
    """Let the first cells that are executed from now on be those of an author, or of a reader."""
    mark = server.notebooks / "sign-in"
    mark.touch() if who == "author" else mark.unlink()


def shown(page: Page) -> list[str]:
    """Return what each cell has printed, or its error, without the first, which prints nothing."""
    first, *texts = evaluate(page, _OUTPUTS)
    assert first == "", "the first cell failed"
    return texts


def select(page: Page, number: int) -> None:
    page.evaluate("n => { jupyterapp.shell.currentWidget.content.activeCellIndex = n }", number)


def as_reader(page: Page, server: Server, name: str) -> list[str]:
    """Open the saved notebook again, run all cells as a reader, and return what they print."""
    save(page)
    become(server, "reader")
    reopen_notebook(page, server, name)
    before = shown(page)
    run_all(page)
    become(server, "author")
    assert before != [""] * len(before), "the author's outputs were saved"
    wait_for(page, lambda: "" not in shown(page))
    return shown(page)


@pytest.fixture
def open_author(page: Page, server: Server, counting: CountingService) -> Iterator[object]:
    """A function that writes a notebook of three equal cells, and opens it as its author."""
    become(server, "author")

    def open_as_author(name: str) -> str:
        file = server.write(f"{name}.ipynb", first_cell(counting, name), GET, GET, GET)
        open_notebook(page, server, file)
        return file

    yield open_as_author
    become(server, "reader")


def test_cells_that_were_executed_again_out_of_order(page, server, open_author):
    """The saved outputs are what a reader gets, whose cells run from top to bottom."""
    name = open_author("executed-again")
    run_cells(page, 0, 3, 1, 1, 2, 1)
    author = shown(page)

    assert author == ["5", "4", "1"]
    assert as_reader(page, server, name) == author


def test_cells_that_were_moved_split_or_merged_with_others(page, server, open_author, counting):
    """A moved cell keeps its id. Each half of a cell that is split is executed again."""
    name = open_author("moved")
    run_cells(page, 0, 1, 2, 3)
    select(page, 3)
    command(page, "notebook:move-cell-up")
    assert shown(page) == ["1", "3", "2"]
    assert as_reader(page, server, name) == ["1", "3", "2"]
    restart_kernel(page)
    run_cells(page, 0)
    select(page, 1)
    page.evaluate(
        "code => jupyterapp.shell.currentWidget.content.activeCell.model.sharedModel"
        ".setSource(code)",
        f"{GET}\n{GET}",
    )
    run_cells(page, 1)
    select(page, 1)
    command(page, "notebook:enter-edit-mode")
    page.evaluate(
        "() => jupyterapp.shell.currentWidget.content.activeCell.editor.setCursorPosition("
        "{line: 1, column: 0})"
    )
    command(page, "notebook:split-cell-at-cursor")
    run_cells(page, 1, 2)
    author = shown(page)

    assert author == ["6", "7", "3", "2"]
    assert as_reader(page, server, name) == author


def test_cells_that_were_duplicated_or_cut_and_pasted(page, server, open_author):
    """They have new ids, and are executed as such; one that was not plays what others got."""
    name = open_author("copied")
    run_cells(page, 0, 1, 2)
    select(page, 1)
    command(page, "notebook:duplicate-below")
    run_cells(page, 2)
    select(page, 3)
    command(page, "notebook:cut-cell")
    select(page, 1)
    command(page, "notebook:paste-cell-above")
    run_cells(page, 1, 4)
    author = shown(page)

    assert author == ["4", "1", "3", "5"]
    assert as_reader(page, server, name) == author


def test_a_file_without_ids_plays_the_order(page, server, open_author, counting):
    """JupyterLab gives the cells of a file of nbformat 4.4 new ids whenever it opens the file."""
    open_author("old-format")
    path = server.notebooks / "old-format.ipynb"
    for day in range(2):
        notebook = json.loads(path.read_text())
        notebook["nbformat_minor"] = 4
        for cell in notebook["cells"]:
            cell.pop("id", None)
        path.write_text(json.dumps(notebook))
        nbformat.validate(json.loads(path.read_text()))
        reopen_notebook(page, server, path.name)
        run_all(page)
        author = shown(page)

        assert author == [f"{day * 3 + number}" for number in (1, 2, 3)]
        cassette: Path = server.notebooks / "cassettes" / "old-format.yaml"
        assert len(read_cassette(cassette)) == 3
    assert as_reader(page, server, path.name) == author


def test_two_tabs_with_one_notebook(page, new_page, server, open_author):
    """Both run in one kernel, in which each cell has one id."""
    name = open_author("tabs")
    run_cells(page, 0, 1)
    other = new_page()
    open_notebook(other, server, name)
    run_cells(other, 2, 1)
    run_cells(page, 3, 2)
    author = [shown(other)[0], *shown(page)[1:]]
    run_cells(page, 1)
    author[0] = shown(page)[0]

    assert author == ["6", "5", "4"]
    assert as_reader(page, server, name) == author
