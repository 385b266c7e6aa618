"""A letter whose cell is run again, in a real JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from .jupyter import Server, open_notebook, restart_kernel, run_all, run_cells

if TYPE_CHECKING:
    from faulty_service import FaultyService
    from playwright.sync_api import Page

LETTER = "dm.post('/v1/letters', json={'to': 'Ann'})"


@pytest.mark.parametrize("mode", ["dm.live()", "dm.record('letters')"])
def test_the_server_gets_a_letter_once_however_often_it_is_run(
    page: Page, server: Server, service: FaultyService, mode: str
) -> None:
    """The cell three times, Run All, and in a recording Run All after a restart, too."""
    connect = f"dm.connect({service.base_url!r}, {service.api_key!r}, allow_writes=True)"
    first = f"import directmail_lab as dm\n{connect}\n{mode}"
    name = server.write(f"letters-{service.base_url[-5:]}.ipynb", first, LETTER)
    open_notebook(page, server, name)
    run_cells(page, 0, 1, 1, 1)
    output = page.locator(".jp-Notebook .jp-Cell").last.locator(".jp-OutputArea-output")
    expect(output).to_contain_text("AlreadySentError: POST /v1/letters was sent before, on")
    expect(output).to_contain_text("by cell [2]")
    expect(output).to_contain_text('if_sent="keep"')
    run_all(page)
    if "record" in mode:
        restart_kernel(page)
        run_all(page)
        expect(output).to_contain_text("interaction 1 of cassette 'letters'")

    assert service.requests["POST /v1/letters"] == 1
