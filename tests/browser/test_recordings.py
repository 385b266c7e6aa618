"""Recordings as documents, and the launcher's cards, in a real JupyterLab and Notebook 7."""

import shutil
from pathlib import Path

import pytest
from cassette_samples import har, theirs
from playwright.sync_api import Locator, Page, Response, expect

from directmail_lab.cassettes import read_cassette
from directmail_lab.share.package_files import checkout
from directmail_lab.share.tutorials import FIRST

from .form import Form
from .jupyter import (
    Server,
    command,
    open_lab,
    run_cells,
    shown_documents,
    wait_for,
    wait_for_kernel,
)

ROOT = checkout()
assert ROOT is not None


@pytest.fixture
def folder(server: Server) -> Path:
    """A folder with recordings, and with files that look like recordings."""
    cassettes = server.notebooks / "seen" / "cassettes"
    cassettes.mkdir(parents=True, exist_ok=True)
    tour = cassettes / "tour.yaml"
    shutil.copyfile(ROOT / "cassettes" / "first-look.yaml", tour)
    interactions = list(read_cassette(tour))
    theirs(cassettes / "one.json", *interactions, as_json=True)
    har(cassettes.parent / "tour.har", *interactions)
    shutil.copyfile(tour, cassettes.parent / "tour.yaml")
    (cassettes / "notes.yaml").write_text("plain: text\n")
    return cassettes


def listed(page: Page, path: str) -> Locator:
    """Go to a file's folder in JupyterLab's file browser, and return the file's entry."""
    folder, _, name = path.rpartition("/")
    command(page, "filebrowser:go-to-path", path=f"/{folder}")
    return page.locator(f'.jp-DirListing-item[title*="Name: {name}"][title*="Path: {folder}"]')


def double_click(page: Page, path: str) -> None:
    listed(page, path).locator(".jp-DirListing-itemText").dblclick()


def test_a_double_click_on_a_recording_opens_the_browser(page, server, folder):
    """No kernel starts, and neither the file nor its folder changes."""
    open_lab(page, server)
    before = {path: path.read_bytes() for path in folder.parent.rglob("*.*") if path.is_file()}
    for path in ("cassettes/tour.yaml", "cassettes/one.json", "tour.har"):
        double_click(page, f"seen/{path}")
        viewer = page.get_by_role("region", name="Recorded interactions")
        expect(viewer).to_contain_text("102 interactions")
        viewer.get_by_role("row", name="/v1/users/me").first.click()
        response = viewer.get_by_role("region", name="Response")
        expect(response).to_contain_text("299 of 300 left")
        expect(response.locator(".cm-content")).to_contain_text("usr_stand_in_1")
        saved = "jupyterapp.shell.currentWidget.context.save().then(() => 'saved', () => 'refused')"

        assert page.evaluate(saved) == "refused"
        assert shown_documents(page) == [[path.rpartition("/")[2], "directmail-lab:recording"]]
        page.get_by_role("dialog").get_by_role("button").click()
        command(page, "application:close-all")
    assert page.evaluate("jupyterapp.serviceManager.sessions.running().next().done")
    assert {p: p.read_bytes() for p in folder.parent.rglob("*.*") if p.is_file()} == before


def test_open_with_editor_gives_the_text(page, server, folder):
    open_lab(page, server)
    double_click(page, "seen/cassettes/tour.yaml")
    expect(page.get_by_role("grid", name="Interactions")).to_be_visible()
    listed(page, "seen/cassettes/tour.yaml").click(button="right")
    page.get_by_text("Open With").click()
    page.locator(".lm-Menu-item").get_by_text("Editor", exact=True).click()

    expect(page.locator(".cm-content:visible")).to_contain_text("recorded_with")


def test_a_damaged_recording_says_what_to_do_until_it_is_corrected(page, server, folder):
    """Its tab reads the file again when it is shown."""
    tour = folder / "tour.yaml"
    whole = tour.read_text()
    tour.write_text(whole.replace("\n  request:", "\n request:", 1))
    open_lab(page, server)
    double_click(page, "seen/cassettes/tour.yaml")
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("If you edited it, correct that")
    double_click(page, "seen/cassettes/one.json")
    expect(problem).to_be_hidden()
    tour.write_text(whole)
    double_click(page, "seen/cassettes/tour.yaml")

    viewer = page.get_by_role("region", name="Recorded interactions").filter(visible=True)
    expect(viewer).to_contain_text("102 interactions")
    expect(problem).to_have_count(0)


def test_a_file_that_is_not_a_cassette_opens_as_usual(page, server, folder):
    """The contents decide, and a cassette outside a `cassettes` folder opens as text."""
    open_lab(page, server)
    shown = []
    for path in ("cassettes/notes.yaml", "tour.yaml"):
        double_click(page, f"seen/{path}")
        name = path.rpartition("/")[2]
        usual = page.evaluate(
            "name => jupyterapp.docRegistry.defaultWidgetFactory(name).modelName", name
        )
        shown.append([name, usual])
        wait_for(page, lambda: shown_documents(page) == shown)

    expect(page.get_by_role("grid", name="Interactions")).to_have_count(0)


def has_saved_the_layout(response: Response) -> bool:
    request = response.request
    is_layout = request.method == "PUT" and "/api/workspaces/" in request.url
    return is_layout and "tour.har" in (request.post_data or "")


def test_a_page_that_is_reloaded_shows_the_recording_again(page, server, folder):
    """JupyterLab restores every document in this way."""
    open_lab(page, server)
    with page.expect_response(has_saved_the_layout):
        double_click(page, "seen/tour.har")
        expect(page.get_by_role("grid", name="Interactions")).to_be_visible()
    page.reload()

    expect(page.get_by_role("grid", name="Interactions")).to_be_visible()


def test_notebook_7_shows_recordings_too(new_page, server, folder):
    """Notebook's file list opens this address. Other YAML files open in the editor."""
    page = new_page()
    page.goto(f"{server.url}/edit/seen/cassettes/tour.yaml")
    expect(page.get_by_role("grid", name="Interactions")).to_be_visible()
    page.goto(f"{server.url}/edit/seen/cassettes/notes.yaml")
    expect(page.locator(".cm-content")).to_contain_text("plain: text")


def test_the_launchers_cards_open_notebooks(page, server):
    """One card creates a notebook with the explorer, each time another; one opens the tutorials."""
    open_lab(page, server)
    launcher = page.locator(".jp-Launcher:visible")
    for name in ("explore-direct-mail", "explore-direct-mail-1"):
        command(page, "launcher:create")
        launcher.get_by_text("Explore a direct mail API").click()
        expect(page.get_by_role("tab", name=f"{name}.ipynb")).to_be_visible()
        wait_for_kernel(page)
    run_cells(page, 1)
    Form(page).ready()
    command(page, "launcher:create")
    launcher.get_by_text("Tutorials").click()
    page.wait_for_function("n => jupyterapp.shell.currentWidget.title.label === n", arg=FIRST)
