"""The sign-in form as a user sees it, in a real JupyterLab."""

import threading

import pytest
from faulty_service import FaultyService
from playwright.sync_api import Page, expect

from .form import Form
from .jupyter import (
    App,
    Server,
    command,
    reopen_notebook,
    restart_kernel,
    run_all,
    run_cells,
    run_notebook,
    save,
)

KEY_OF_NOBODY = "k-refused-0000"

# Makes a file the machine's keyring.
KEYRING = """
import json, pathlib, keyring, keyring.backend
kept = pathlib.Path("ring.json")
class Ring(keyring.backend.KeyringBackend):
    priority = 9
    def _all(self):
        return json.loads(kept.read_text()) if kept.exists() else {}
    def get_password(self, service, name):
        return self._all().get(name)
    def set_password(self, service, name, password):
        kept.write_text(json.dumps({**self._all(), name: password}))
    def delete_password(self, service, name):
        kept.unlink()
keyring.set_keyring(Ring())
"""


def login_cell(service: FaultyService) -> str:
    return f"import directmail_lab as dm\ndm.login(base_url={service.base_url!r})"


def opened(page: Page, server: Server, *cells: str, app: App = "lab") -> Form:
    run_notebook(page, server, "login", *cells, app=app)
    return Form(page).ready()


def run_in_last_cell(page: Page, code: str) -> None:
    page.locator(".jp-Notebook .jp-Cell").last.locator(".cm-content").click()
    page.keyboard.insert_text(code)
    command(page, "notebook:run-cell")


@pytest.fixture
def form(page: Page, server: Server, service: FaultyService) -> Form:
    """A form that is ready, in JupyterLab, above an empty cell."""
    return opened(page, server, login_cell(service), "")


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_enter_signs_in_and_shows_the_user_and_the_allowance(page, server, service, app):
    form = opened(page, server, login_cell(service), "", app=app)
    form.sign_in(service.api_key)
    expect(form.account).to_contain_text("Signed in as Stand-in User")
    expect(form.account).to_contain_text("299 of 300 left at sign-in")
    run_in_last_cell(page, "dm.me().name.item()")

    expect(page.locator(".jp-OutputArea-output").last).to_contain_text("Stand-in User")
    assert service.requests["GET /v1/users/me"] == 2


def test_a_key_is_refused_then_accepted_and_then_lost_with_the_kernel(page, form, service):
    """While a key is sent, its field is empty, and a second click or Enter does nothing."""
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


def test_the_form_works_by_keyboard_and_triggers_no_jupyterlab_commands(page, form, service):
    """Tab stops at the button that shows the key, and sending hides it. No keyring works in these
    kernels, and the form says so."""
    expect(form.root).to_contain_text("No keyring works on this machine.")
    expect(form.root.get_by_label("Remember")).to_be_hidden()
    form.address.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(form.key).to_have_attribute("type", "text")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(form.problem).to_contain_text("Type your key")
    expect(form.key).to_be_focused()
    expect(form.key).to_have_attribute("type", "password")
    page.keyboard.type("ddaabxzm0")
    form.button.focus()
    page.keyboard.type("aabddx")

    expect(form.key).to_have_value("ddaabxzm0")
    expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(2)
    assert not service.requests


def test_a_remembered_key_signs_in_by_one_click_and_needs_none_for_run_all(page, server, service):
    """After a restart, the address is filled in. The form shows what the cells below opened."""
    (server.notebooks / "ring.py").write_text(KEYRING)
    first = "import ring\nimport directmail_lab as dm\ndm.login()"
    form = opened(page, server, first, "dm.record('day')\ndm.me()")
    form.address.fill(service.base_url)
    form.root.get_by_label("Remember this key and address").check()
    expect(form.root).to_contain_text("Kept in this computer's keyring")
    form.sign_in(service.api_key)
    expect(form.account).to_contain_text("Signed in as Stand-in User")
    restart_kernel(page)
    run_cells(page, 0)
    form.ready()
    expect(form.address).to_have_value(service.base_url)
    expect(form.root).to_contain_text("Leave it empty to use the key in the keyring.")
    form.button.click()
    expect(form.account).to_contain_text("Signed in as Stand-in User")
    restart_kernel(page)
    run_all(page)
    expect(form.account).to_contain_text("Signed in")
    form.sign_out()

    assert not (server.notebooks / "ring.json").exists()
    assert not list(server.home.rglob("remembered.txt"))
    assert service.requests["GET /v1/users/me"] == 3


@pytest.mark.parametrize("missing", ["anywidget", "@jupyter-widgets/jupyterlab-manager"])
def test_without_the_widgets_extension_the_outputs_say_what_to_install(
    new_page, server, service, missing
):
    """JupyterLab runs in one environment, and the kernel in another."""
    server.disable_extensions(missing)
    page = new_page()
    connect = f"dm.connect({service.base_url!r}, {service.api_key!r})\ndm.me()"
    cells = (login_cell(service), connect, "dm.browse()", "dm.monitor()")
    run_notebook(page, server, "no-widgets", *cells)
    outputs = page.locator(".jp-Notebook .jp-Cell")
    for number in (0, 2, 3):
        expect(outputs.nth(number).get_by_text("No form? Install anywidget")).to_be_visible()

    expect(outputs.nth(2).locator("td", has_text="/v1/users/me")).to_be_visible()
    expect(outputs.nth(3).locator("img")).to_have_count(0)


@pytest.mark.parametrize("automatically", [True, False], ids=["state saved", "state not saved"])
def test_a_reopened_notebook_does_not_say_signed_in(new_page, server, service, *, automatically):
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
