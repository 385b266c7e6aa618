"""A recorded web page from `serve`, in a real Chromium."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cassette_samples import answered, get, post, recorded

from directmail_lab.server.loopback import cassette_server

from .jupyter import new_context

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LETTER = post(b"{}")
SEND = """fetch('/v1/letters', {
  method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'
}).then((response) => response.text())"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_the_server_may_fetch_from_it_but_runs_no_script(
    browser: Browser, tmp_path: Path, host: str
) -> None:
    """A person can try requests in the page's console, but a stranger's page runs nothing."""
    page = answered(get("/page"), "<title>still</title><script>document.title = 'ran'</script>")
    page = replace(page, response=replace(page.response, headers=(("Content-Type", "text/html"),)))
    path = recorded(
        tmp_path / "a.yaml", page, answered(get("/v1/me"), "me"), answered(LETTER, "sent")
    )
    with cassette_server([path]) as server, new_context(browser) as context:
        tab = context.new_page()
        tab.goto(f"{server.base_url.replace('127.0.0.1', host)}/page")
        read = tab.evaluate("fetch('/v1/me').then((response) => response.text())")

        assert (read, tab.evaluate(SEND), tab.title()) == ("me", "sent", "still")
