"""Requests written in the browser of interactions, in a real JupyterLab."""

import json
import re
from dataclasses import replace
from urllib.parse import quote

import pytest
from cassette_samples import answered, get
from faulty_service import FaultyService
from playwright.sync_api import Locator, Page, expect

from directmail_lab.cassettes import read_cassette
from directmail_lab.server.standin import stand_in

from .jupyter import (
    App,
    Server,
    command,
    open_notebook,
    restart_kernel,
    run_cells,
    run_notebook,
    save,
    wait_for,
)
from .leaks import leaks
from .test_browse import MARKUP, opened, recorded, rows

KEY = "br+5/Nq8Z~sent~while-browsing"
TYPED = "typed and not sent"
PASTE = """(input, text) => { const clipboardData = new DataTransfer();
  clipboardData.setData('text/plain', text);
  const event = new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true });
  input.dispatchEvent(event) }"""


def explore(
    page: Page,
    server: Server,
    service: FaultyService,
    *cells: str,
    app: App = "lab",
    options: str = "",
) -> Locator:
    """Open a notebook that browses a live session, after other cells; return its browser."""
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


def address(root: Locator) -> Locator:
    return root.get_by_role("combobox", name="Address")


def fill(root: Locator, method: str, path: str) -> None:
    root.get_by_role("combobox", name="Method").select_option(method)
    address(root).fill(path)


def body_editor(root: Locator, kind: str) -> Locator:
    """Choose the kind of body, and return the editor once it is ready."""
    root.get_by_role("tab", name="Body").first.click()
    root.get_by_role("combobox", name="Body", exact=True).select_option(kind)
    return root.locator(".dml-e-body .cm-content")


def lines(editor: Locator) -> list[str]:
    return editor.locator(".cm-line").all_inner_texts()


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_request_is_composed_sent_and_recorded_by_keyboard_alone(page, server, service, app):
    """The request is recorded and can be sent again at once, and the inserted cell runs."""
    root = explore(page, server, service, f"dm.record('kept-{app}')", app=app)
    keyboard = page.keyboard
    keyboard.press("n")
    expect(address(root)).to_be_focused()
    keyboard.type("v1/lists")
    # The buttons, the tabs and the checkbox come before the parameter.
    for text in ("", "", "", "", "limit", "2"):
        keyboard.press("Tab")
        keyboard.type(text)
    expect(address(root)).to_have_value("v1/lists?limit=2")
    for number in (1, 2):
        keyboard.press("Control+Enter")
        response = root.get_by_role("region", name="Response")
        expect(response.get_by_role("heading")).to_have_text(f"{number} GET /v1/lists?limit=2")
    expect(root.get_by_label("Parameter 1 value")).to_be_focused()
    keyboard.press("Escape")
    expect(root.get_by_role("grid")).to_be_focused()
    keyboard.press("i")
    cell = page.locator(".jp-CodeCell").nth(1)
    expect(cell.locator(".cm-line")).to_have_text(
        ["response = dm.get('/v1/lists?limit=2')", "dm.frame(response)"]
    )
    keyboard.press("Shift+Enter")
    expect(cell.locator("td", has_text="lst_stand_in_1")).to_be_visible()
    expect(rows(root)).to_have_count(3)
    kept = read_cassette(server.notebooks / "cassettes" / f"kept-{app}.yaml")

    assert [each.request.uri for each in kept] == [f"{service.base_url}/v1/lists?limit=2"] * 3
    assert service.requests == {"GET /v1/lists": 3}


def test_a_write_needs_confirmation_and_is_sent_once(page, server, service):
    """A second Control+Enter, a repeated key, or a double click must not send another request."""
    root = explore(page, server, service, options=", allow_writes=True")
    page.keyboard.press("n")
    fill(root, "POST", "/v1/letters")
    page.keyboard.press("Control+Enter")
    host = service.base_url.partition("://")[2]
    expect(question(root)).to_have_accessible_name(
        f"Send POST to {host}/v1/letters with 0 bytes? It may change something there."
    )
    expect(question(root).get_by_role("button", name="Send POST")).to_be_focused()
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    expect(question(root)).to_be_hidden()
    root.get_by_role("button", name="Send", exact=True).dblclick()
    expect(question(root)).to_be_visible()
    page.keyboard.press("Escape")
    address(root).focus()
    for _ in range(5):
        page.keyboard.down("Enter")  # from the second time on, the event is a repeat
    expect(question(root)).to_be_visible()
    before = dict(service.requests)
    page.keyboard.up("Enter")
    question(root).get_by_role("button", name="Send POST").dblclick()
    response = root.get_by_role("region", name="Response")
    expect(response).to_contain_text("ltr_stand_in_1")

    assert before == {}
    assert service.requests == {"POST /v1/letters": 1}


def test_a_wait_counts_down_and_is_aborted(page, server, service):
    """The kernel stays free, nothing is sent, and no progress bar stays in a cell."""
    service.limit, service.window_s = 1, 600.0
    options = ", reset_unit='seconds_left', max_wait_s=900"
    root = explore(page, server, service, "dm.me()", options=options)
    page.keyboard.press("n")
    page.keyboard.type("/v1/users/me")
    page.keyboard.press("Control+Enter")
    waiting = re.compile(r"Waiting: the allowance renews in \d+ s")
    expect(root.get_by_text(waiting)).to_be_visible()
    run_cells(page, 1)
    root.get_by_role("grid").focus()
    page.keyboard.press("Escape")
    expect(root.get_by_role("alert").first).to_contain_text("Nothing was sent.")

    assert service.requests == {"GET /v1/users/me": 1}
    assert page.locator(".jp-OutputArea [role=progressbar]").count() == 0


def test_a_hostile_recording_cannot_put_markup_or_a_host_into_the_form(page, server, service):
    """The edited request goes below the session's own service address, and all text is escaped."""
    path = f"/v1/{quote(MARKUP, safe='')}?q={quote(MARKUP, safe='')}"
    headers = (("X-A", MARKUP), ("Host", "elsewhere.test"))
    body = json.dumps({MARKUP: [MARKUP], "__proto__": {"constructor": MARKUP}})
    name = recorded(server, "edited", answered(replace(get(path), headers=headers), body))
    play = f"dm.get({path!r}, headers={{'X-A': {MARKUP!r}}})"
    root = explore(page, server, service, f"dm.replay({name!r})", play, options=", pace='off'")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("e")
    expect(root.get_by_role("textbox", name="Parameter 1 value")).to_have_value(MARKUP)
    expect(root.get_by_role("textbox", name="Header 1 value", include_hidden=True)).to_have_value(
        MARKUP
    )
    expect(root.locator(".dml-b-response .cm-content")).to_contain_text("onerror")
    response = root.get_by_role("region", name="Response")
    for tab in ("Table", "Headers", "Request as sent"):
        response.get_by_role("tab", name=tab).click()
    expect(root.get_by_text(f"GET {service.base_url}/v1/")).to_be_visible()

    assert service.requests.total() == 0
    assert page.evaluate("() => typeof hacked") == "undefined"
    assert page.locator(".taken, .dml-browser img, .dml-browser script").count() == 0


def test_json_is_written_in_an_editor(page, server, service):
    """The editor marks errors, formats and undoes, and JupyterLab's shortcuts do not fire in it."""
    root = explore(page, server, service)
    page.keyboard.press("n")
    page.keyboard.type("/v1/lists")
    editor = body_editor(root, "JSON")
    editor.click()
    page.keyboard.type("{'a': 1,\n\"b\": [1.50, 12345678901234567890]}")
    expect(root.locator(".cm-lint-marker-error")).to_have_count(1)
    page.keyboard.press("Control+Enter")
    expect(root.get_by_role("alert").first).to_contain_text("Nothing was sent.")
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.type('{"b": [1.50, 12345678901234567890]}')
    expect(root.locator(".cm-lint-marker-error")).to_have_count(0)
    root.get_by_role("button", name="Format").click()
    laid_out = lines(editor)
    editor.click()
    page.keyboard.press("Control+z")
    undone = lines(editor)
    page.keyboard.press("Control+f")
    expect(root.get_by_role("textbox", name="Find")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.type("dd")  # in JupyterLab's command mode, this would delete the cell
    page.keyboard.press("Escape")
    expect(root.get_by_role("tab", name="Body: JSON")).to_be_focused()
    page.keyboard.press("Escape")
    expect(root.get_by_role("grid")).to_be_focused()

    assert laid_out == ["{", '  "b": [', "    1.50,", "    12345678901234567890", "  ]", "}"]
    assert undone == ['{"b": [1.50, 12345678901234567890]}']
    assert page.locator(".jp-Cell").count() == 2
    assert service.requests == {}


def test_addresses_are_completed_and_bodies_may_have_any_type(page, server, service):
    """A pasted curl command is refused: it may have credentials."""
    root = explore(page, server, service, "dm.get('/v1/lists?limit=2')")
    page.keyboard.press("n")
    expect(root.locator("option[value='/v1/lists']")).to_be_attached()
    expect(root.locator("option[value='limit']")).to_be_attached()
    address(root).fill("/v1/lists")
    root.get_by_role("tab", name="Body").first.click()
    kind = root.get_by_role("combobox", name="Body", exact=True)
    kind.select_option("Form")
    root.get_by_role("textbox", name="Field 1 name").fill("to")
    root.get_by_role("textbox", name="Field 1 value").fill("Zürich & Bern")
    root.get_by_role("tab", name="Headers").first.click()
    root.get_by_role("combobox", name="Header 1 name").fill("X-Off")
    root.get_by_role("checkbox", name="Send header 1").uncheck()
    page.keyboard.press("Control+Enter")
    response = root.get_by_role("region", name="Response")
    response.get_by_role("tab", name="Request as sent").click()
    expect(response.get_by_text("to=Z%C3%BCrich+%26+Bern")).to_be_visible()
    expect(response.get_by_text("application/x-www-form-urlencoded")).to_be_visible()
    expect(response.get_by_text("x-off")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.keyboard.type("/v1/lists")
    root.get_by_role("tab", name="Body").first.click()
    kind.select_option("File")
    file = {"name": "a.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2"}
    root.get_by_label("Body file").set_input_files(file)
    root.get_by_role("button", name="Send", exact=True).click()
    expect(response.get_by_text("text/csv")).to_be_visible()
    expect(response.locator(".cm-line", has_text="1,2")).to_be_visible()
    command = f"curl {service.base_url}/v1/lists -u {service.api_key}: -H 'X-A: b' --json '[1, 2]'"
    address(root).evaluate(PASTE, command)
    expect(root.get_by_role("alert").first).to_contain_text("Nothing was pasted")
    expect(address(root)).to_have_value("/v1/lists")


def test_a_recorded_body_is_sent_as_it_was_unless_it_is_changed(page, server, service):
    """A body that is not fully shown can be replaced; text keeps its charset and line ends."""
    latin = "headers={'Content-Type': 'text/plain; charset=latin-1'}"
    calls = [
        f"session.client.request('OPTIONS', '/a', content={body!r}, {latin})"
        for body in (b"\0\xff" * 50, "Zürich\r\n".encode("latin-1"))
    ]
    root = explore(page, server, service, "dm.record('bodies-sent')", *calls)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("e")
    expect(root.get_by_text("100 bytes, sent as recorded")).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(rows(root)).to_have_count(3)
    rows(root).nth(1).click()
    page.keyboard.press("Escape")
    page.keyboard.press("e")
    editor = root.locator(".dml-e-body .cm-content")
    expect(editor).to_contain_text("Zürich")
    editor.click()
    page.keyboard.press("Control+Home")
    page.keyboard.type("à ")
    page.keyboard.press("Control+Enter")
    expect(rows(root)).to_have_count(4)
    run_cells(page, 1)
    sent = [*read_cassette(server.notebooks / "cassettes" / "bodies-sent.yaml")][2:]

    assert [each.request.body for each in sent] == [
        b"\0\xff" * 50,
        "à Zürich\r\n".encode("latin-1"),
    ]


def test_a_long_recorded_body_is_edited_at_its_end(page, server, service):
    """A body of 2 MB scrolls in the form, and what is typed at its end is in view."""
    body = "json.dumps([{'id': n, 'name': f'Jürg {n}'} for n in range(50_000)])"
    kind = "headers={'Content-Type': 'application/json'}"
    send = f"import json\nsession.client.request('OPTIONS', '/a', content={body}, {kind})"
    page.set_viewport_size({"width": 1280, "height": 1200})
    root = explore(page, server, service, send)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("e")
    editor = root.locator(".dml-e-body .cm-content")
    expect(editor).to_contain_text('"id": 0')
    root.get_by_role("button", name="Format").click()
    first = editor.locator(".cm-line", has_text=re.compile('"id": 0,$'))
    expect(first).to_be_in_viewport()
    first.click()
    before = root.bounding_box()
    page.keyboard.press("Control+End")
    page.keyboard.type("  typed")
    expect(editor.locator(".cm-line", has_text="typed")).to_be_in_viewport()

    assert root.bounding_box() == before


def test_borders_are_moved_by_mouse_and_keys_and_stay(page, server, service):
    """A second browser in the notebook uses the same places."""
    root = explore(page, server, service)
    command(page, "application:toggle-left-area")
    borders = [
        root.get_by_role("separator", name=f"Border of the {part}") for part in ("list", "request")
    ]

    def places() -> list[int]:
        for each in borders:
            expect(each).to_have_attribute("aria-valuenow", re.compile(r"\d"))
        return [int(each.get_attribute("aria-valuenow") or 0) for each in borders]

    before = places()
    borders[0].press("ArrowRight")
    borders[1].drag_to(root.get_by_role("region", name="Response"))
    moved = places()
    root.evaluate("node => node.setAttribute('data-is-old', '')")
    run_cells(page, 0)
    expect(root).not_to_have_attribute("data-is-old", "")
    again = places()
    page.set_viewport_size({"width": 800, "height": 1000})
    expect(borders[0]).to_have_css("cursor", "row-resize")

    assert moved[0] == before[0] + 3
    assert moved[1] > before[1]
    assert again == moved


def test_a_key_that_was_sent_and_what_is_typed_are_in_no_file(new_page, server):
    """The key is also in no copy and not on the page, even if a caller put it into an address."""
    server.save_widget_state(automatically=True)
    page = new_page()
    (server.home / "key").write_text(KEY)
    with stand_in(api_key=KEY) as service:
        cells = (
            f"import directmail_lab as dm, pathlib\nkey = pathlib.Path('../key').read_text()\n"
            f"session = dm.connect({service.base_url!r}, key, pace='off')\n"
            "dm.get('/v1/lists', params={'k': key}, headers={'X-Again': key})\ndm.browse()"
        )
        run_notebook(page, server, "browse-key", cells)
        root = page.locator(".dml-browser")
        details = opened(root, 1)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        details.get_by_text("Copy as", exact=True).click()
        details.get_by_role("button", name="Copy as curl").click()
        expect(details.get_by_text("Copied to the clipboard.")).to_be_visible()
        copied = page.evaluate("() => navigator.clipboard.readText()")
        shown = details.locator(".dml-b-copied pre").inner_text()
        content = page.content()
        root.get_by_role("button", name="New request").click()
        address(root).fill(f"/v1/{TYPED}")
        root.get_by_role("tab", name="Headers").first.click()
        root.get_by_role("textbox", name="Header 1 value").fill(TYPED)
        body_editor(root, "JSON").fill(f'["{TYPED}"]')
        root.get_by_role("button", name="Format").click()
        wait_for(page, lambda: root.locator("option").count() > 0)
        save(page)
    (server.home / "key").unlink()

    assert copied == shown
    assert "DIRECTMAIL_API_KEY" in copied
    assert KEY not in content
    assert leaks(server.home, KEY, TYPED) == []


def test_nothing_of_the_head_is_cut_beside_jupyterlabs_list_of_files(page, server, service):
    """Its title may be: the rest is as wide as its text, and within the panel."""
    root = explore(page, server, service, "dm.me(); dm.get('/v1/nowhere')")
    expect(root.get_by_role("button", name="1 failed")).to_be_visible()
    cut = root.evaluate(
        "root => [...root.querySelectorAll('.dml-top > .dml-soft, .dml-top button')].filter("
        "each => each.scrollWidth > each.clientWidth ||"
        " each.getBoundingClientRect().right > root.getBoundingClientRect().right)"
        ".map(each => each.textContent)"
    )

    assert root.get_by_text("2 interactions").is_visible()
    assert cut == []


def test_a_draft_stays_until_it_is_replaced_twice(page, server, service):
    """Not even a moved cell, which shows the panel anew, loses it."""
    root = explore(page, server, service, "dm.me()")
    page.keyboard.press("n")
    fill(root, "POST", "/v1/letters")
    body_editor(root, "JSON").fill('{"draft": 1}')
    body = root.locator(".dml-e-body .cm-content")

    def is_kept() -> None:
        expect(address(root)).to_have_value("/v1/letters")
        expect(root.get_by_role("combobox", name="Method")).to_have_value("POST")
        expect(body).to_contain_text('{"draft": 1}')

    root.get_by_role("button", name="New request").click()
    expect(root.get_by_text("This draft was not sent.")).to_be_visible()
    is_kept()
    for _ in range(3):
        page.keyboard.press("Escape")
    root.get_by_role("grid").focus()
    rows(root).first.click()
    is_kept()
    command(page, "notebook:move-cell-down")
    expect(rows(root)).to_have_count(1)
    is_kept()
    rows(root).first.click()
    page.keyboard.press("e")
    expect(root.get_by_text("This draft was not sent.")).to_be_visible()
    is_kept()
    root.get_by_role("button", name="New request").click()
    expect(address(root)).to_have_value("")


def test_a_lost_kernel_is_reported(page, server, service):
    """The kernel that is started again knows nothing of the panel."""
    root = explore(page, server, service)
    restart_kernel(page)
    page.keyboard.press("n")
    address(root).fill("/v1/users/me")
    page.keyboard.press("Control+Enter")
    expect(root.get_by_text("The kernel was restarted. Run this cell again.")).to_be_visible()
    expect(root.get_by_text("Sending …")).to_have_count(0)
