"""Requests written in the browser of interactions, in a real JupyterLab: sent, kept, run again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from cassette_samples import answered, get
from playwright.sync_api import Locator, Page, expect

from directmail_lab.cassettes import read_cassette

from .jupyter import App, Server, Theme, command, open_notebook, run_cells, save, wait_for
from .leaks import leaks
from .test_browse import MARKUP, recorded, rows
from .test_looks import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from faulty_service import FaultyService

TYPED = "typed and not sent"


def explore(
    page: Page,
    server: Server,
    service: FaultyService,
    *cells: str,
    app: App = "lab",
    options: str = "",
) -> Locator:
    """Open a notebook that browses a live session, after other cells, and return its browser."""
    connect = f"session = dm.connect({service.base_url!r}, {service.api_key!r}{options})"
    name = f"explore-{service.base_url[-5:]}-{app}"
    first = "\n".join(
        ["import directmail_lab as dm", connect, *cells, "view = dm.browse()", "view"]
    )
    name = server.write(f"{name}.ipynb", first, "session.live()")
    open_notebook(page, server, name, app=app)
    run_cells(page, 0)
    root = page.locator(".dml-browser")
    expect(root.get_by_role("button", name="New request")).to_be_visible()
    root.get_by_role("grid").focus()
    return root


def question(root: Locator) -> Locator:
    return root.get_by_role("alertdialog")


def fill(root: Locator, method: str, path: str) -> None:
    """Write a request without a body."""
    root.get_by_role("combobox", name="Method").select_option(method)
    root.get_by_role("textbox", name="Path").fill(path)


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_request_is_written_sent_kept_and_run_by_keyboard_alone(
    page: Page, server: Server, service: FaultyService, app: App
) -> None:
    """It is recorded while the session records, its row is shown, and its cell runs."""
    root = explore(page, server, service, f"dm.record('kept-{app}')", app=app)
    keyboard = page.keyboard
    keyboard.press("n")
    expect(root.get_by_role("textbox", name="Path")).to_be_focused()
    keyboard.type("/v1/lists")
    for text in ("", "limit", "2"):
        keyboard.press("Tab")
        keyboard.type(text)
    keyboard.press("Control+Enter")
    details = root.get_by_role("region", name="Details")
    expect(details).to_be_focused()
    expect(details.get_by_role("heading")).to_have_text("1 GET /v1/lists?limit=2")
    expect(root.get_by_role("row", selected=True)).to_have_count(1)
    keyboard.press("Tab")
    keyboard.press("Tab")
    expect(root.get_by_role("button", name="Insert cell")).to_be_focused()
    keyboard.press("Enter")
    cell = page.locator(".jp-CodeCell").nth(1)
    expect(cell.locator(".cm-line")).to_have_text(
        ['response = dm.request("GET", "/v1/lists", params={"limit": "2"})', "dm.frame(response)"]
    )
    keyboard.press("Shift+Enter")
    expect(cell.locator("td", has_text="lst_stand_in_1")).to_be_visible()
    expect(rows(root)).to_have_count(2)
    kept = read_cassette(server.notebooks / "cassettes" / f"kept-{app}.yaml")

    assert [each.request.uri for each in kept] == [f"{service.base_url}/v1/lists?limit=2"] * 2
    assert service.requests == {"GET /v1/lists": 2}


def test_a_write_is_refused_or_confirmed_and_sent_once(
    page: Page, server: Server, service: FaultyService
) -> None:
    """Neither Control+Enter twice nor a double click sends a second one."""
    allowed = f"session = dm.connect({service.base_url!r}, session.api_key, allow_writes=True)"
    root = explore(page, server, service)
    page.keyboard.press("n")
    fill(root, "POST", "/v1/letters")
    page.keyboard.press("Control+Enter")
    expect(root.get_by_role("alert")).to_contain_text("POST would change something")
    page.evaluate(
        "code => jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        ".requestExecute({ code }).done.then(() => true)",
        allowed,
    )
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Control+Enter")
    address = f"{service.base_url}/v1/letters"
    expect(question(root)).to_have_accessible_name(
        f"Send POST to {address}? The service may act on it."
    )
    expect(root.get_by_role("button", name="Do not send")).to_be_focused()
    page.keyboard.press("Escape")
    expect(question(root)).to_be_hidden()
    root.get_by_role("button", name="Send POST").dblclick()
    expect(question(root)).to_be_visible()
    before = dict(service.requests)
    question(root).get_by_role("button", name="Send POST").dblclick()
    details = root.get_by_role("region", name="Details")
    expect(details).to_contain_text("ltr_stand_in_1")

    assert before == {}
    assert service.requests == {"POST /v1/letters": 1}


def test_a_wait_counts_down_and_is_cancelled(
    page: Page, server: Server, service: FaultyService
) -> None:
    """Nothing is sent later; the kernel stays free meanwhile, and no bar is left in a cell."""
    service.limit, service.window_s = 1, 6.0
    root = explore(page, server, service, "dm.me()", options=", reset_unit='seconds_left'")
    page.keyboard.press("n")
    page.keyboard.type("/v1/users/me")
    page.keyboard.press("Control+Enter")
    expect(root.get_by_text("Waits until the allowance renews, 3 s")).to_be_visible()
    run_cells(page, 1)
    root.get_by_role("textbox", name="Path").focus()
    page.keyboard.press("Escape")
    expect(root.get_by_role("alert")).to_contain_text("The request was cancelled while it waited.")
    sent = dict(service.requests)
    page.keyboard.press("Escape")
    expect(root.get_by_role("region", name="Request")).to_be_hidden()
    page.keyboard.press("n")
    page.keyboard.press("Control+Enter")
    expect(rows(root)).to_have_count(2, timeout=20_000)

    assert sent == {"GET /v1/users/me": 1}
    assert service.requests == {"GET /v1/users/me": 2}
    assert page.locator(".jp-OutputArea [role=progressbar]").count() == 0


def test_a_hostile_recording_fills_the_form_with_text_and_no_host(
    page: Page, server: Server, service: FaultyService
) -> None:
    """What is edited goes below the session's own base address; nothing of it is markup."""
    path = f"/v1/{quote(MARKUP, safe='')}?q={quote(MARKUP, safe='')}"
    headers = (("X-A", MARKUP), ("Host", "elsewhere.test"))
    name = recorded(server, "edited", answered(replace(get(path), headers=headers)))
    play = f"dm.get({path!r}, headers={{'X-A': {MARKUP!r}}})"
    root = explore(page, server, service, f"dm.replay({name!r})", play, options=", pace='off'")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("e")
    expect(root.get_by_role("textbox", name="Parameter 1 value")).to_have_value(MARKUP)
    expect(root.get_by_role("textbox", name="Header 1 value")).to_have_value(MARKUP)
    expect(root.get_by_text(f"Below {service.base_url}")).to_be_visible()
    run_cells(page, 1)
    expect(root.locator(".dml-title")).to_have_text("Live")
    root.get_by_role("textbox", name="Path").focus()
    nothing_yet = dict(service.requests)
    page.keyboard.press("Control+Enter")
    details = root.get_by_role("region", name="Details")
    expect(details).to_contain_text("404")
    details.get_by_role("button", name="Insert cell").click()
    expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text("dm.request(")

    assert nothing_yet == {}
    assert sum(service.requests.values()) == 1
    assert page.evaluate("() => typeof hacked") == "undefined"
    assert page.locator(".taken, .dml-browser img, .dml-browser script").count() == 0


def test_a_body_is_of_any_kind(page: Page, server: Server, service: FaultyService) -> None:
    """JSON that is none is said; a form and a file are sent as what they are."""
    root = explore(page, server, service, "dm.get('/v1/lists/lst_stand_in_1')")
    page.keyboard.press("n")
    page.keyboard.type("/v1/lists")
    body = root.get_by_role("combobox", name="Body")
    body.select_option("JSON")
    root.get_by_role("textbox", name="Text of the body").fill("{'a': 1}")
    page.keyboard.press("Control+Enter")
    expect(root.get_by_role("alert")).to_contain_text("Nothing was sent.")
    body.select_option("Form")
    root.get_by_role("textbox", name="Field 1 name").fill("to")
    root.get_by_role("textbox", name="Field 1 value").fill("Zürich & Bern")
    root.get_by_role("textbox", name="Header 1 name").fill("X-Off")
    root.get_by_role("checkbox", name="Send header 1").uncheck()
    page.keyboard.press("Control+Enter")
    details = root.get_by_role("region", name="Details")
    details.get_by_text("Request body").click()
    expect(details.get_by_text("to=Z%C3%BCrich+%26+Bern")).to_be_visible()
    expect(details.get_by_text("application/x-www-form-urlencoded")).to_have_count(2)
    expect(details.get_by_text("x-off")).to_have_count(0)
    page.keyboard.press("n")
    page.keyboard.type("/v1/lists")
    body.select_option("File")
    file = {"name": "a.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2"}
    root.get_by_label("File of the body").set_input_files(file)
    root.get_by_role("button", name="Send GET").click()
    details.get_by_text("Request body (text/csv").click()  # not that of the request before
    expect(details.get_by_text("a,b\n1,2")).to_be_visible()


def test_values_that_are_typed_stay_out_of_every_file(
    new_page: Callable[..., Page], server: Server, service: FaultyService
) -> None:
    """Of the notebook, its checkpoint and the logs, also where widget state is saved."""
    server.save_widget_state(automatically=True)
    page = new_page()
    root = explore(page, server, service)
    page.keyboard.press("n")
    root.get_by_role("textbox", name="Path").fill(f"/v1/{TYPED}")
    root.get_by_role("textbox", name="Header 1 value").fill(TYPED)
    wait_for(page, lambda: root.locator("option").count() > 0)
    save(page)
    server.save_widget_state(automatically=False)

    assert leaks([server.home], TYPED) == []


def test_a_screen_reader_is_told_what_each_control_of_the_form_is(
    page: Page, server: Server, service: FaultyService
) -> None:
    """Names and roles, in the order of the Tab key."""
    root = explore(page, server, service)
    page.keyboard.press("n")

    expect(root.get_by_role("region", name="Request")).to_match_aria_snapshot(
        """
        - region "Request":
          - button "Send GET"
          - status
          - button "Close"
          - text: /Below http/
          - combobox "Method"
          - combobox "Path"
          - group "Parameters":
            - checkbox "Send parameter 1" [checked]
            - combobox "Parameter 1 name"
            - textbox "Parameter 1 value"
          - group "Headers":
            - checkbox "Send header 1" [checked]
            - textbox "Header 1 name"
            - textbox "Header 1 value"
          - combobox "Body"
        """
    )


@pytest.mark.parametrize("theme", ["Light", "Dark", "Dark High Contrast"])
@pytest.mark.parametrize("width", [800, 1280])
def test_every_text_of_the_form_is_readable(
    new_page: Callable[..., Page], server: Server, service: FaultyService, theme: Theme, width: int
) -> None:
    """Its question and its table too, and nothing is wider than the page."""
    server.set_theme(theme)
    page = new_page(width=width)
    root = explore(page, server, service, "dm.get('/v1/lists')", options=", allow_writes=True")
    server.set_theme("Light")
    command(page, "application:toggle-left-area")
    page.keyboard.press("n")
    fill(root, "POST", "/v1/letters")
    root.get_by_label("Parameter 1 name").fill("a")
    page.keyboard.press("Control+Enter")
    expect(question(root)).to_be_visible()
    texts = unreadable(page, ".dml-browser")
    rows(root).first.click()
    root.get_by_role("button", name="Table").click()
    expect(root.get_by_role("cell", name="lst_stand_in_1")).to_be_visible()
    texts += unreadable(page, ".dml-browser")

    assert root.evaluate("node => node.scrollWidth <= node.clientWidth")
    assert texts == []
