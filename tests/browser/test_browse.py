"""The browser of interactions in a real JupyterLab: finding, reading, copying and saving."""

import json
import re
from dataclasses import replace

import cassette_samples
import pytest
from cassette_samples import answered, get, post, typed
from playwright.sync_api import Locator, Page, expect

from directmail_lab.exchange.values import Interaction

from .jupyter import (
    App,
    Server,
    command,
    new_tab,
    open_lab,
    open_notebook,
    run_cells,
    run_notebook,
    started,
)
from .test_monitor import start_cell

BROWSE = "import directmail_lab as dm\ndm.browse({0!r})"
MARKUP = "<img src=x onerror='hacked=1'><script>hacked=1</script><b class=taken>&lt;i&gt;"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060"
    "0000000500017a5eab3f0000000049454e44ae426082"
)


def recorded(server: Server, name: str, *interactions: Interaction) -> str:
    path = server.notebooks / "cassettes" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    cassette_samples.recorded(path, *interactions)
    return name


def browse(page: Page, server: Server, name: str, *, app: App = "lab") -> Locator:
    """Open a notebook that browses a cassette, and wait for its list."""
    run_notebook(page, server, f"browse-{name}-{app}", BROWSE.format(name), app=app)
    root = page.locator(".dml-browser")
    expect(root.get_by_role("row").nth(1)).to_be_visible()
    return root


def view(page: Page, server: Server, name: str) -> Locator:
    """Open a cassette as a document, which needs no kernel, and wait for its list."""
    open_lab(page, server)
    command(page, "docmanager:open", path=f"cassettes/{name}.yaml")
    root = page.locator(".dml-browser")
    expect(root.get_by_role("row").nth(1)).to_be_visible()
    return root


def rows(root: Locator) -> Locator:
    """Return the rows on screen, without the header row."""
    return root.locator(".dml-b-row:has([role=gridcell]):not([hidden])")


def opened(root: Locator, number: int) -> Locator:
    """Click an interaction, and return the region with its response."""
    root.locator(f".dml-b-row[aria-rowindex='{number + 1}']").click()
    response = root.get_by_role("region", name="Response")
    expect(response.get_by_role("heading")).to_contain_text(f"{number} ")
    return response


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_interactions_are_filtered_sorted_and_opened_by_keyboard(page, server, app):
    """The arrows, Enter, `/` and Escape work as in a browser's network panel."""
    root = browse(page, server, "explore-an-unknown-api", app=app)
    list_ = root.get_by_role("grid")
    expect(root.locator(".dml-title")).to_have_text("explore-an-unknown-api")
    expect(root.get_by_role("status").first).to_contain_text("69 interactions")
    list_.focus()
    page.keyboard.press("/")
    page.keyboard.type("status:4xx -is:refused")
    expect(rows(root)).to_have_count(3)
    expect(list_).to_have_attribute("aria-rowcount", "4")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    details = root.get_by_role("region", name="Response")
    expect(details).to_be_focused()
    expect(details.get_by_role("heading")).to_have_text("7 GET /v1/nowhere")
    page.keyboard.press("Escape")
    expect(list_).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(details.get_by_role("heading")).to_have_text("6 GET /v1/lists/lst_404")
    selected = root.get_by_role("row", selected=True)
    expect(selected.get_by_role("gridcell", name="404 failed")).to_be_visible()
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(list_).to_have_attribute("aria-rowcount", "70")
    root.get_by_role("searchbox").fill("bogus:1")
    expect(root.get_by_text("Unknown filter: bogus:1. It is searched as text.")).to_be_visible()
    root.get_by_role("searchbox").fill("path:lists")
    root.get_by_role("button", name="failed").click()
    expect(root.get_by_role("searchbox")).to_have_value("path:lists is:failed")
    expect(root.get_by_role("button", name="failed", pressed=True)).to_be_visible()
    expect(list_).to_have_attribute("aria-rowcount", "2")
    root.get_by_role("button", name="failed").click()
    expect(root.get_by_role("searchbox")).to_have_value("path:lists")
    for text, count in (("bytes:>0.25k", 63), ("ms:<20 -method:post", 18)):
        root.get_by_role("searchbox").fill(text)
        expect(list_).to_have_attribute("aria-rowcount", str(count + 1))
    root.get_by_role("searchbox").fill("nothing-has-this")
    expect(root.get_by_text("No interaction matches this filter.")).to_be_visible()
    root.get_by_role("searchbox").fill("")
    root.get_by_role("columnheader", name="ms").get_by_role("button").press("Enter")
    expect(root.get_by_role("columnheader", name="ms")).to_have_attribute("aria-sort", "ascending")
    shown = [float(text) for text in rows(root).locator(".dml-c-elapsed").all_inner_texts()]

    assert shown == sorted(shown)
    # Typing "d d" or "b" must not change the notebook's cells.
    assert page.locator(".jp-Cell").count() == 1


def test_each_body_is_shown_according_to_its_content(page, server):
    """JSON folds and keeps its digits, pictures are shown, and binary data can be saved."""
    name = recorded(
        server,
        "bodies",
        typed("application/json", '{"id": 12345678901234567890, "a": {"b": {"c": [1.50]}}}'),
        typed("text/plain; charset=latin-1", "Zürich".encode("latin-1")),
        typed("image/png", PNG),
        typed("application/octet-stream", bytes(range(256)) * 40),
        typed("text/html", MARKUP),
        typed("application/pdf", b"%PDF-1.4 of text"),
    )
    root = view(page, server, name)
    details = opened(root, 1)
    shown = details.locator(".cm-line")
    expect(shown.filter(has_text="12345678901234567890,")).to_be_visible()
    expect(shown.filter(has_text="1.50")).to_be_visible()
    details.get_by_role("button", name="Fold", exact=True).click()
    expect(shown).to_have_text(re.compile(r"\{… 2\}"))
    details.get_by_role("button", name="Expand").click()
    expect(shown).to_have_count(10)
    expect(opened(root, 2).get_by_text("Zürich")).to_be_visible()
    picture = opened(root, 3).get_by_role("img")
    expect(picture).to_have_attribute("src", re.compile("^blob:"))
    details = opened(root, 4)
    expect(details.get_by_text("This body is not text.")).to_be_visible()
    expect(opened(root, 5).get_by_text(MARKUP)).to_be_visible()
    names = {5: "bodies-5-response.html", 6: "bodies-6-response.pdf"}
    for number, name in names.items():
        with page.expect_download() as saved:
            opened(root, number).get_by_role("button", name="Save as a file").first.click()
        assert saved.value.suggested_filename == name
        assert saved.value.path().read_text() == {5: MARKUP, 6: "%PDF-1.4 of text"}[number]
    expect(details.get_by_text("This is a PDF file. To see it, save it")).to_be_visible()
    expect(details.locator(".cm-content:visible")).to_have_count(0)

    assert page.evaluate("() => typeof hacked") == "undefined"


def test_large_json_is_shown_in_part(page, server):
    members = json.dumps([{"id": n, "name": f"Jürg {n}", "at": ["Zürich"]} for n in range(40_000)])
    large = answered(get("/v1/members"), members)
    other = answered(get("/v1/other"), json.dumps([{"n": n} for n in range(500)]))
    root = view(page, server, recorded(server, "large", large, other, answered()))
    response = opened(root, 1)
    expect(response.get_by_text("Only the start of 2,")).to_be_visible()
    response.get_by_role("button", name="Show all").click()
    expect(response).to_be_focused()
    expect(response.locator(".cm-line", has_text='"Jürg 0"')).to_be_visible()
    response.locator(".cm-content").click()
    page.keyboard.press("Control+End")
    expect(response.locator(".cm-line", has_text='"Jürg 39999"')).to_be_visible()
    expect(opened(root, 2).locator(".cm-line", has_text='"n": 0')).to_be_visible()


def long_bodies(server: Server, name: str) -> str:
    """Record bodies of 20 kB and of 2 MB, each as a request and as its response."""
    bodies = [
        json.dumps([{"id": n, "name": f"Jürg {n}"} for n in range(count)])
        for count in (600, 50_000)
    ]
    last = ',{"last": "n\\u00e4del"}]'
    both = [f"{body[:-1]}{last}".encode() for body in bodies]
    return recorded(server, name, *(answered(post(body), body) for body in both))


def scrolls_and_is_searched(root: Locator, *numbers: int) -> None:
    """Check that the end of each body can be seen and found, and that the page stays in place."""
    keyboard = root.page.keyboard
    for number in numbers:
        response = opened(root, number)
        for tab, label in (("Body", "Response body"), ("Request as sent", "Request body")):
            response.get_by_role("tab", name=tab, exact=True).click()
            body = response.get_by_role("textbox", name=label)
            expect(body.locator(".cm-line", has_text='"Jürg 0"')).to_be_in_viewport()
            body.locator(".cm-line").first.click()
            before = root.bounding_box()
            keyboard.press("Control+End")
            expect(body.locator(".cm-line", has_text="nädel")).to_be_in_viewport()
            keyboard.press("Control+Home")
            expect(body.locator(".cm-line", has_text='"Jürg 0"')).to_be_in_viewport()
            response.get_by_role("button", name="Find").locator("visible=true").click()
            keyboard.type("nädel")
            keyboard.press("Enter")
            expect(response.locator(".cm-searchMatch-selected:visible")).to_be_in_viewport()
            keyboard.press("Escape")

            assert root.bounding_box() == before


@pytest.mark.parametrize(("app", "numbers"), [("lab", (1, 2)), ("notebook", (1,))])
def test_a_body_longer_than_its_pane_scrolls_and_is_searched(page, server, app, numbers):
    """The response and the request, at 20 kB and in JupyterLab also at 2 MB."""
    page.set_viewport_size({"width": 1280, "height": 1200})
    root = browse(page, server, long_bodies(server, f"long-{app}"), app=app)

    scrolls_and_is_searched(root, *numbers)


def test_a_body_longer_than_its_pane_scrolls_and_is_searched_in_marimo(browser, server, tmp_path):
    """In marimo, the browser is in a shadow root."""
    pytest.importorskip("marimo")
    cell = f"    import directmail_lab as dm\n    dm.browse({long_bodies(server, 'long')!r})\n"
    code = f"import marimo\napp = marimo.App()\n@app.cell\ndef _():\n{cell}    return\n"
    (server.notebooks / "long.py").write_text(code)
    arguments = ["run", "long.py", "--headless", "--no-token", "--no-sandbox", "--port", "0"]
    with started(tmp_path, "marimo", *arguments, at=server.notebooks) as marimo:
        tab = new_tab(browser, marimo, height=1200)
        tab.page.goto(marimo.url)
        scrolls_and_is_searched(tab.page.locator(".dml-browser"), 1)
        tab.page.context.close()

    assert tab.foreign == []


def test_a_value_and_its_path_are_copied(page, server):
    """The cursor selects the value, and a text is copied without its quotes."""
    body = '{"data": [{"id": 1}, {"a b": {"name": "Z\\u00fcrich", "n": 1.50}}]}'
    root = view(page, server, recorded(server, "paths", answered(get(), body)))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    response = opened(root, 1)
    copied = []
    for text in ("Zürich", "1.50"):
        response.locator(".cm-line", has_text=text).click()
        for name in ("Copy path", "Copy value"):
            response.get_by_role("button", name=name).click()
            expect(response.get_by_text("Copied to the clipboard.")).to_be_visible()
            copied.append(page.evaluate("() => navigator.clipboard.readText()"))

    assert copied == ['data[1]["a b"].name', "Zürich", 'data[1]["a b"].n', "1.50"]


def test_a_row_shows_the_end_of_its_path(page, server):
    """The beginning of a long path is cut, and a response in CSV has a table."""
    table = typed("text/csv", "id,name\n1,Joe\n")
    name = recorded(server, "again", answered(get(f"/v1/contacts/{'1' * 150}-the-end")), table)
    root = view(page, server, name)
    end = rows(root).nth(0).locator(".dml-c-end")
    expect(end).to_have_text("1111-the-end")
    opened(root, 2).get_by_role("tab", name="Table").click()
    expect(root.get_by_role("cell", name="Joe")).to_be_visible()

    assert end.evaluate("span => span.scrollWidth <= span.clientWidth")
    assert end.evaluate(
        "span => span.previousSibling.scrollWidth > span.previousSibling.clientWidth"
    )


def test_no_cell_is_cut_while_there_is_room(page, server):
    """Each column is as wide as its contents, and an empty column is hidden."""
    long = answered(get("/v1/campaigns/summer/letters"), "x" * 1_234_567)
    bare = replace(long, recorded_at=None, elapsed_s=None)
    page.set_viewport_size({"width": 800, "height": 900})
    root = browse(page, server, recorded(server, "wide", bare, bare))
    command(page, "application:toggle-left-area")
    opened(root, 1)
    heads = root.get_by_role("columnheader")
    expect(heads).to_have_text(["#", "Method", "Path", "Status", "Left", "Bytes"])
    cut = "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth).length"

    assert root.locator("[role=gridcell], [role=gridcell] span").evaluate_all(cut) == 0


def test_a_hostile_cassette_is_escaped_in_the_page(page, server):
    one = answered(get(f"/v1/{MARKUP}?q={MARKUP}"), f'{{"{MARKUP}": ["{MARKUP}"], "__proto__": 1}}')
    headers = (("X-A", MARKUP), ("X-RateLimit-Reset", MARKUP))
    response = replace(one.response, reason=MARKUP, headers=headers)
    name = recorded(server, "hostile", replace(one, response=response))
    page.set_viewport_size({"width": 1280, "height": 1400})
    root = browse(page, server, name)
    details = opened(root, 1)
    for kind in ("curl", "dm"):
        details.get_by_text("Copy as", exact=True).click()
        details.get_by_role("button", name=f"Copy as {kind}").click()
        expect(details.locator(".dml-b-copied pre")).to_contain_text("img")
    for tab in ("Table", "Headers", "Request as sent", "Body"):
        details.get_by_role("tab", name=tab).click()

    assert page.evaluate("() => typeof hacked") == "undefined"
    assert page.locator(".taken, .jp-OutputArea img, .jp-OutputArea script").count() == 0


def test_the_list_shows_new_interactions_while_the_cell_runs(page, server, service):
    connect = f"session = dm.connect({service.base_url!r}, {service.api_key!r}, pace='off')"
    busy = """
import pathlib, time
with dm.record("seen-live"):
    dm.me()
while not pathlib.Path("rows seen").exists():
    time.sleep(0.05)
"""
    shown = f"import directmail_lab as dm\n{connect}\ndm.get('/v1/lists')\ndm.browse()"
    open_notebook(page, server, server.write("live.ipynb", shown, busy, connect))
    run_cells(page, 0)
    root = page.locator(".dml-browser")
    expect(rows(root)).to_have_count(1)
    start_cell(page, 1)
    expect(rows(root)).to_have_count(2)
    response = opened(root, 1)
    response.get_by_role("tab", name="Headers").click()
    expect(response.get_by_text("x-ratelimit-limit")).to_be_visible()
    response.get_by_role("tab", name="Body").click()
    expect(opened(root, 2).get_by_text('"usr_stand_in_1"')).to_be_visible()
    expect(page.get_by_text("[*]:")).to_have_count(1)
    (server.notebooks / "rows seen").touch()
    expect(page.get_by_text("[*]:")).to_have_count(0)
    run_cells(page, 2)  # another session

    expect(rows(root)).to_have_count(0)


def test_the_page_stays_small_for_any_number_of_interactions(page, server):
    """The page draws only the visible rows."""
    path = server.notebooks / "cassettes" / f"{recorded(server, 'many', answered(get('/0')))}.yaml"
    head, line = path.read_text().split("interactions:\n")
    lines = (line.replace("example.test/0", f"example.test/{n}") for n in range(20_000))
    path.write_text("".join([head, "interactions:\n", *lines]))
    root = browse(page, server, "many")
    status = root.get_by_role("status").first
    expect(status).to_contain_text("20,000 interactions")
    expect(status).not_to_contain_text("read")
    root.get_by_role("grid").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    heading = root.get_by_role("region", name="Response").get_by_role("heading")
    expect(heading).to_have_text("20000 GET /19999")
    root.get_by_role("searchbox").fill("path:/19998")
    expect(rows(root)).to_have_count(1)

    assert page.locator(".dml-b-row").count() < 100
