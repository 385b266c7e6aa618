"""WCAG 2.2 AA by axe-core, over every surface, in a light and in a dark theme."""

import json
import shutil
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from directmail_lab.cassettes import find_cassette, read_cassette
from directmail_lab.share.cassette_page import save_page
from directmail_lab.share.notebook_page import page_of

from .form import Form
from .jupyter import close_documents, command, run_notebook
from .test_browse import rows
from .test_composer import body_editor, explore, fill, question

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}


def violations(page: Page, selector: str) -> list[tuple[str, Any]]:
    """Return the rules that a part of the page breaks, each with its nodes."""
    page.mouse.move(0, 0)
    found = Axe().run(page, context=selector, options=RULES).response["violations"]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_no_surface_of_a_notebook_breaks_a_rule(new_page, server, service, theme):
    """The form, outputs of cells, the monitor, the panel in each of its states, and the viewer."""
    server.set_theme(theme)
    page = new_page(width=1300, height=1000)
    found = []
    sign_in = f"import directmail_lab as dm\ndm.login(base_url={service.base_url!r}, pace='off')"
    run_notebook(page, server, "form", sign_in)
    form = Form(page).ready()
    form.sign_in("k-refused-0000")
    expect(form.problem).to_contain_text("did not accept")
    found += violations(page, ".dml-login")
    form.sign_in(service.api_key)
    expect(form.account).to_be_visible()
    found += violations(page, ".dml-login")
    close_documents(page)
    connect = f"import directmail_lab as dm\ndm.connect({service.base_url!r}, {service.api_key!r})"
    shown = ["dm.me()", "dm.chart_rate_limits()", "dm.rate_limits()", "dm.get('/v1/nowhere')"]
    run_notebook(page, server, "cells", connect, *shown, "dm.findings()", "dm.monitor()")
    expect(page.locator(".dml-row").first).to_be_visible()
    found += violations(page, ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output")
    close_documents(page)
    options = ", allow_writes=True, pace='off'"
    root = explore(page, server, service, "dm.me(); dm.get('/v1/lists')", options=options)
    found += violations(page, ".dml-browser")
    rows(root).nth(1).click()
    expect(root.locator(".dml-b-response .cm-content")).to_be_visible()
    found += violations(page, ".dml-browser")
    root.get_by_role("grid").press("n")
    fill(root, "POST", "/v1/letters")
    body_editor(root, "JSON").fill(json.dumps({"a": 1}))
    page.keyboard.press("Control+Enter")
    expect(question(root)).to_be_visible()
    found += violations(page, ".dml-browser")
    page.keyboard.press("Escape")
    rows(root).first.click()
    rows(root).nth(1).click(modifiers=["Control"])
    expect(root.get_by_role("rowheader").first).to_be_visible()
    found += violations(page, ".dml-browser")
    close_documents(page)
    cassette = server.notebooks / "cassettes" / "seen.yaml"
    cassette.parent.mkdir(exist_ok=True)
    shutil.copyfile(find_cassette("first-look"), cassette)
    command(page, "docmanager:open", path="cassettes/seen.yaml")
    viewer = page.get_by_role("region", name="Recorded interactions")
    rows(viewer).first.click()
    expect(viewer.locator(".dml-b-response .cm-content")).to_be_visible()
    found += violations(page, ".dml-browser")

    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_from_disk_breaks_a_rule(browser, tmp_path, scheme):
    """A cassette's page and a notebook's, which have no script."""
    page = browser.new_context(color_scheme=scheme).new_page()
    recording = read_cassette(find_cassette("first-look"))
    page.goto(save_page(recording, tmp_path / "page.html").as_uri())
    page.locator("summary").first.click()
    found = violations(page, "body")
    text = json.dumps(NOTEBOOK)
    report, _ = page_of(text.encode(), "report", about="Data of May", files={})
    (tmp_path / "report.html").write_bytes(report)
    page.goto((tmp_path / "report.html").as_uri())
    found += violations(page, "main")

    page.context.close()
    assert found == []


NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [
        {
            "cell_type": "code",
            "id": "a",
            "execution_count": 1,
            "metadata": {},
            "source": "dm.me()",
            "outputs": [
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"text/html": "<p>One</p>", "text/plain": "One"},
                }
            ],
        }
    ],
}
