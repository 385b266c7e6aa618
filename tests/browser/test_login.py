"""The sign-in form as a user sees it, in a real JupyterLab."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from directmail_lab import Session
from directmail_lab.cassettes import read_cassette

from .form import Form
from .jupyter import (
    App,
    Server,
    command,
    reopen_notebook,
    restart_kernel,
    run_cells,
    run_notebook,
    save,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from faulty_service import FaultyService
    from playwright.sync_api import Page

KEY_OF_NOBODY = "k-refused-0000"


def login_cell(service: FaultyService) -> str:
    """Return a cell that shows the form for a service."""
    return f"import directmail_lab as dm\ndm.login(base_url={service.base_url!r})"


def opened(page: Page, server: Server, *cells: str, app: App = "lab") -> Form:
    """Write a notebook, run it, and return its first form."""
    run_notebook(page, server, "login", *cells, app=app)
    return Form(page).ready()


def run_in_last_cell(page: Page, code: str) -> None:
    """Type code into the last cell and run it."""
    page.locator(".jp-Notebook .jp-Cell").last.locator(".cm-content").click()
    page.keyboard.insert_text(code)
    command(page, "notebook:run-cell")


@pytest.fixture
def form(page: Page, server: Server, service: FaultyService) -> Form:
    """A form that is ready, in JupyterLab, above an empty cell."""
    return opened(page, server, login_cell(service), "")


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_enter_signs_in_and_shows_the_user_and_the_allowance(
    page: Page, server: Server, service: FaultyService, app: App
) -> None:
    """The form works in JupyterLab and Notebook 7, and the next cell uses the session."""
    form = opened(page, server, login_cell(service), "", app=app)
    form.sign_in(service.api_key)
    expect(form.account).to_contain_text("Signed in as Stand-in User")
    expect(form.account).to_contain_text("299 of 300 left at sign-in")
    run_in_last_cell(page, "dm.me().name.item()")

    expect(page.locator(".jp-OutputArea-output").last).to_contain_text("Stand-in User")
    assert service.requests["GET /v1/users/me"] == 2


def test_a_key_is_refused_then_accepted_and_then_lost_with_the_kernel(
    page: Page, form: Form, service: FaultyService
) -> None:
    """The field with the problem gets the focus. A key that was not refused stays in its field.

    While a key is sent, its field is empty, and a second click or Enter does nothing.
    """
    form.sign_in(KEY_OF_NOBODY)
    expect(form.problem).to_contain_text("did not accept this key (status 401)")
    expect(form.key).to_be_focused()
    expect(form.key).to_have_value("")
    expect(form.key).to_have_attribute("aria-invalid", "true")
    form.address.fill("http://mail.example.com")
    form.sign_in(service.api_key)
    expect(form.problem).to_contain_text("would send the key unencrypted")
    expect(form.address).to_be_focused()
    expect(form.key).to_have_value(service.api_key)

    assert service.requests["GET /v1/users/me"] == 1
    form.address.fill(service.base_url)
    goes_on = threading.Event()
    with service.fault(until=goes_on):
        form.button.dblclick()
        page.keyboard.press("Enter")
        expect(form.button).to_be_disabled()
        expect(form.button).to_have_text("Signing in…")
        expect(form.key).to_have_value("")
        expect(form.key).to_be_disabled()
        goes_on.set()
        expect(form.account).to_be_visible()
    assert service.requests["GET /v1/users/me"] == 2
    restart_kernel(page)

    expect(form.account).to_be_hidden()
    expect(form.root).to_contain_text("run this cell again")
    expect(form.button).to_be_disabled()


def test_the_form_works_by_keyboard_and_triggers_no_jupyterlab_commands(
    page: Page, form: Form, service: FaultyService
) -> None:
    """Typing in the form must not trigger JupyterLab's commands, such as "d d" (delete cell)."""
    form.address.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(form.problem).to_contain_text("Type your API key")
    expect(form.key).to_be_focused()
    page.keyboard.type("ddaabxzm0")
    for control in (form.root.get_by_role("radio", name="Live"), form.button):
        control.focus()
        page.keyboard.type("aabddx")

    expect(form.key).to_have_value("ddaabxzm0")
    expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(2)
    assert not service.requests


def test_replaying_needs_no_key_and_no_service(form: Form, service: FaultyService) -> None:
    """The offline choice lists the cassettes, and clears an earlier problem."""
    form.button.click()
    expect(form.problem).to_contain_text("Type your API key")
    form.root.get_by_text("Replay").first.click()
    expect(form.problem).to_be_hidden()
    expect(form.key).to_be_hidden()
    form.root.get_by_role("combobox", name="Cassette").select_option("first-look")
    form.button.click()

    expect(form.account).to_contain_text("Replaying first-look")
    expect(form.account).to_contain_text("No key, no network")
    assert not service.requests


def test_a_reader_who_signs_in_records_from_then_on(
    page: Page, server: Server, service: FaultyService
) -> None:
    """Without a key, the notebook shows the cassette. With one, it shows the service of today."""
    path = server.notebooks / "cassettes" / "days.yaml"
    with Session(service.base_url, service.api_key) as session, session.record(path):
        session.me()
    cells = ('dm.record("days")', 'dm.me()["name"].item()')
    form = opened(page, server, login_cell(service), *cells, "")
    name = page.locator(".jp-Notebook .jp-Cell").nth(2).locator(".jp-OutputArea-output")
    expect(name).to_have_text("'Stand-in User'")
    with service.fault(body='{"name": "Of Today"}'):
        form.sign_in(service.api_key)
        expect(form.account).to_contain_text("recording to days")
        run_cells(page, 2)

        expect(name).to_have_text("'Of Today'")
    recorded = [each.response.body for each in read_cassette(path).interactions]
    assert recorded == [b'{"name": "Of Today"}']


def test_two_forms_show_the_same_state(page: Page, server: Server, service: FaultyService) -> None:
    """A form shown twice is one form; another form takes over; both notice a `logout()`."""
    shown = f"form = dm.login(base_url={service.base_url!r})\nform"
    again, another = "form", login_cell(service)
    first = opened(page, server, f"import directmail_lab as dm\n{shown}", again, another, "")
    same, other = Form(page, 1).ready(), Form(page, 2).ready()
    first.sign_in(service.api_key)
    expect(same.account).to_contain_text("Signed in as")
    expect(other.account).to_be_hidden()
    other.sign_in(service.api_key)
    expect(other.account).to_contain_text("Signed in as")
    expect(first.root).to_contain_text("another session is the current one")
    run_in_last_cell(page, "dm.logout()")

    expect(other.account).to_be_hidden()
    expect(other.root).to_contain_text("no session is open")


@pytest.mark.parametrize("automatically", [True, False], ids=["state saved", "state not saved"])
def test_a_reopened_notebook_does_not_say_signed_in(
    new_page: Callable[..., Page], server: Server, service: FaultyService, *, automatically: bool
) -> None:
    """The new kernel knows nothing about the widget, so the cell says what to run."""
    server.save_widget_state(automatically=automatically)
    page = new_page()
    form = opened(page, server, login_cell(service))
    form.sign_in(service.api_key)
    expect(form.account).to_be_visible()
    expect(page.get_by_text("Run this cell to get the sign-in form")).to_be_hidden()
    save(page)
    reopen_notebook(page, server, "login.ipynb")
    said = "run this cell again" if automatically else "Run this cell to get the sign-in form"

    expect(page.get_by_text(said)).to_be_visible()
    expect(Form(page).account).to_be_hidden()
    assert "Signed in as" not in (server.notebooks / "login.ipynb").read_text()
