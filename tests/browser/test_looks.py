"""The look of the widgets: readable in every theme, and labelled for screen readers."""

import pytest
from faulty_service import FaultyService
from playwright.sync_api import Page, expect

from .form import Form
from .jupyter import Server, close_documents, command, run_notebook
from .test_browse import rows
from .test_composer import body_editor, explore, fill, question

READABLE = 4.5  # WCAG 2.2, success criterion 1.4.3

# Returns the contrast of each text with its background, and the text. Layers may be translucent.
CONTRASTS = """root => {
  const rgba = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, below) => top.slice(0, 3)
    .map((part, i) => part * top[3] + below[i] * (1 - top[3])).concat(1);
  const luminance = (color) => color.slice(0, 3)
    .map((part) => part / 255)
    .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    const layers = [];
    for (let each = node; each; each = each.parentElement) {
      layers.push(rgba(getComputedStyle(each).backgroundColor));
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const shown = [...root.querySelectorAll('*')].filter((node) => node.checkVisibility() &&
    ([...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()) ||
     node.matches('input, select')));
  return shown.filter((node) => node.clientWidth > 1).map((node) => {
    const paper = behind(node);
    const ink = over(rgba(getComputedStyle(node).color), paper);
    const [light, dark] = [luminance(ink), luminance(paper)].sort((a, b) => b - a);
    return [(light + 0.05) / (dark + 0.05), node.textContent || node.tagName];
  });
}"""


def unreadable(page: Page, selector: str) -> list[tuple[float, str]]:
    """Return the texts of a widget that have too little contrast."""
    found = page.locator(selector).first.evaluate(CONTRASTS)
    assert len(found) > 3
    return [(contrast, text) for contrast, text in found if contrast < READABLE]


@pytest.mark.parametrize("theme", ["Light", "Dark", "Dark High Contrast"])
def test_every_text_is_readable_in_every_theme(new_page, server, service, theme):
    """One page shows all widgets and outputs, because loading JupyterLab takes longest."""
    server.set_theme(theme)
    page = new_page(width=900, height=1400)
    form_monitor_and_browser_are_readable(page, server, service)
    close_documents(page)
    cells_are_readable(page, server)
    close_documents(page)
    the_composer_is_readable(page, server, service)


def form_monitor_and_browser_are_readable(
    page: Page, server: Server, service: FaultyService
) -> None:
    """Errors, the account, a used-up monitor and a copied request have enough contrast."""
    cells = f"import directmail_lab as dm\ndm.login(base_url={service.base_url!r}, pace='off')"
    monitor = "session = dm.connect({0!r}, {1!r}, pace='off')\ndm.monitor()"
    shown = monitor.format(service.base_url, service.api_key)
    run_notebook(page, server, "looks", cells, shown, "dm.browse('explore-an-unknown-api')")
    form = Form(page)
    expect(form.account).to_contain_text("Signed in")  # by the cell below it
    form.sign_out()
    form.sign_in("k-refused-0000")
    expect(form.problem).to_contain_text("did not accept")
    texts = unreadable(page, ".dml-login")
    form.sign_in(service.api_key)
    expect(form.account).to_be_visible()
    texts += unreadable(page, ".dml-login")
    with service.fault(status=429, headers={"X-RateLimit-Remaining": "0"}):
        page.evaluate(
            "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel"
            ".requestExecute({ code: \"dm.get('/v1/users/me')\" }).done.then(() => true)"
        )
        expect(page.locator(".dml-left")).to_contain_text("0 of 300 left")
    texts += unreadable(page, ".dml-monitor")
    browser = page.locator(".dml-browser")
    browser.locator(".dml-b-row[aria-rowindex='9']").click()
    browser.get_by_text("Copy as", exact=True).click()
    browser.get_by_role("button", name="Copy as curl").click()
    expect(browser.get_by_text("Copy as", exact=True)).to_be_focused()
    expect(browser.locator(".dml-b-copied pre")).to_be_visible()
    texts += unreadable(page, ".dml-browser")

    assert browser.evaluate("node => node.scrollWidth <= node.clientWidth")
    assert texts == []


def cells_are_readable(page: Page, server: Server) -> None:
    """The start of a body and a table of findings, whose sentences are whole."""
    replay = "import directmail_lab as dm\ndm.replay('explore-an-unknown-api')\ndm.get('/v1/lists')"
    run_notebook(page, server, "cells", replay, "dm.findings('explore-an-unknown-api')")
    outputs = page.locator(".jp-OutputArea-output")
    expect(outputs.first).to_contain_text("200 OK · JSON · 257 bytes")
    expect(outputs.nth(1).locator("td").nth(2)).to_have_css("text-align", "left")
    contrasts = [each for output in outputs.all() for each, _ in output.evaluate(CONTRASTS)]

    assert "GET /v1/lists/{id}: 200" in outputs.nth(1).inner_text()
    assert len(contrasts) > 50
    assert min(contrasts) >= READABLE


def the_composer_is_readable(page: Page, server: Server, service: FaultyService) -> None:
    """Editors, questions and tables, and nothing is wider than the page."""
    root = explore(page, server, service, "dm.get('/v1/lists')", options=", allow_writes=True")
    command(page, "application:toggle-left-area")
    for width in (1280, 800):
        page.set_viewport_size({"width": width, "height": 900})
        page.keyboard.press("n")
        fill(root, "POST", "/v1/letters")
        body_editor(root, "JSON").fill('{"a": [1, "b", true, null, {}]}')
        page.keyboard.press("Control+Enter")
        expect(question(root)).to_be_visible()
        texts = unreadable(page, ".dml-browser")
        page.keyboard.press("Escape")
        rows(root).first.click()
        expect(root.locator(".dml-b-response .cm-content")).to_contain_text("lst_stand_in_1")
        texts += unreadable(page, ".dml-browser")
        root.get_by_role("tab", name="Table").click()
        expect(root.get_by_role("cell", name="lst_stand_in_1")).to_be_visible()
        texts += unreadable(page, ".dml-browser")

        assert root.evaluate("node => node.scrollWidth <= node.clientWidth")
        assert texts == []


def test_a_screen_reader_announces_each_part(page, server, service):
    """Parts have names and roles, regions can be chosen, and an error belongs to its field."""
    regions = "import os; os.environ['DIRECTMAIL_REGIONS'] = 'eu=https://eu.example.com'\n"
    cells = f"{regions}import directmail_lab as dm\ndm.login()"
    run_notebook(page, server, "named", cells)
    form = Form(page).ready()
    region = form.root.get_by_role("combobox", name="Service address")
    expect(region).to_have_value("eu")
    expect(form.address).to_be_hidden()
    region.select_option("Another service address…")
    expect(form.address).to_be_visible()
    form.sign_in("k-refused-0000")
    expect(form.address).to_be_focused()

    expect(form.address).to_have_accessible_error_message("Type the service's address.")
    expect(form.key).to_have_accessible_description(
        "Kept in the kernel's memory, and not in the notebook."
    )
