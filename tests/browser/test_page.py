"""A recording as one HTML file, opened from disk in a real Chromium without a network."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import NOON, answered, get, post, recorded, typed
from playwright.sync_api import Page, expect

from directmail_lab.cassettes import read_cassette
from directmail_lab.exchange.bodies import missing_body
from directmail_lab.exchange.values import Interaction, Request, Response, no_response
from directmail_lab.notebook.browser_data import handle_request
from directmail_lab.server.loopback import LoopbackServer
from directmail_lab.share.cassette_page import save_page

from .jupyter import new_context, wait_for
from .test_browse import MARKUP, PNG, opened, rows
from .test_looks import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.filterwarnings("ignore:The page contains")

ABOUT = "Recorded HTTP requests · api.example.test · 21 November 2026"
ASK = """async (request) => {
  const { buffers = [], ...answer } = await (await directmailLab.opened)(request);
  const text = (bytes) => Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  const encoded = buffers.map((bytes) => btoa(text(bytes)));
  return [answer, encoded];
}"""


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a file. Each request of its page is in ``page.requested``."""
    contexts = []

    def opened(path: Path, *, script: str = "", **options: Any) -> tuple[Page, list[str]]:
        context = new_context(browser, **options)
        contexts.append(context)
        page, requested = context.new_page(), []
        page.on("request", lambda request: requested.append(request.url))
        page.add_init_script(script)
        page.goto(path.as_uri())
        return page, requested

    yield opened
    for context in contexts:
        context.close()


def page_of(path: Path, *interactions: Interaction) -> Path:
    """Record a cassette, and return its page."""
    return save_page(read_cassette(recorded(path, *interactions)), path.with_suffix(".html"))


def nasty() -> list[Interaction]:
    """Return interactions of every kind; the one in the middle gets unreadable."""
    lost = no_response("read_timeout", "timed out")
    assert lost is not None
    absent = replace(answered().response, body=missing_body(5000))
    packed = gzip.compress("Zürich, gzip".encode(), mtime=0)
    return [
        answered(body='{"city": "Z\\u00fcrich \\ud83d\\ude00", "n": 12345678901234567890}'),
        answered(post('{"city": "Zürich"}'.encode()), "[1, 2.50]", status=201),
        answered(get("/v1/Zu\u0308rich?q=ü"), '{"nfd": "Zu\u0308rich"}'),
        answered(body='[{"id": 1, "a": {"b": [1]}}, {"id": null}]'),
        typed("text/plain", packed, ("Content-Encoding", "gzip")),
        typed("text/plain; charset=utf-16", "Zürich, UTF-16".encode("utf-16")),
        typed("text/plain; charset=latin-1", "Zürich, Latin-1".encode("latin-1")),
        typed("application/octet-stream", bytes(range(256)) * 3),
        typed("application/json", b"\xef\xbb\xbf{}"),
        typed("image/png", PNG),
        typed("text/html", MARKUP),
        typed("text/plain", ""),
        typed("text/plain", "x" * (2 * 1024**2 + 7) + "Zürich"),
        replace(answered(), response=absent),
        Interaction(get("/v1/slow"), lost, NOON, 5.0),
        replace(
            answered(get("/v1/again"), status=429), recorded_at=None, elapsed_s=None, attempt=2
        ),
        answered(get("/unreadable"), '{"cut": "off"}', status=299),
        *[answered(get(f"/v1/{n}"), f'{{"n": {n}}}') for n in range(190)],
    ]


def test_every_answer_of_the_page_equals_that_of_the_kernel(
    tmp_path: Path, open_file: Callable[..., Page]
) -> None:
    """For every interaction of a nasty cassette, on both sides of the end of a part."""
    path = recorded(tmp_path / "nasty.yaml", *nasty())
    path.write_text(path.read_text().replace('"code": 299', '"code": "x"'))
    recording = read_cassette(path)
    page, requested = open_file(save_page(recording, tmp_path / "nasty.html"))
    requests = [{"action": "list", "first": first, "limit": 200} for first in (1, 201)]
    for number in range(1, len(recording) + 1):
        about = {"number": number}
        requests += [{"action": "detail", **about, "whole": False}, {"action": "table", **about}]
        requests += [{"action": "body", **about, "message": m} for m in ("request", "response")]
        kinds = ("curl", "request")
        requests += [{"action": "copy", **about, "format": k, "has_key": False} for k in kinds]
    words = [
        "zürich",
        "zu\u0308rich",
        "😀",
        "utf-16",
        "gzip",
        "\ufffd",
        "png",
        "not recorded",
        "off",
    ]
    headers = ["content-type=png", "x-ratelimit-reset", "content-encoding=gzip", "accept=*/*", "no"]
    search = {"action": "search", "words": words, "headers": headers}
    requests += [{**search, "first": first, "limit": 2000} for first in (1, 17, 201, 999)]
    requests += [{**search, "words": [], "first": 150, "limit": 60}]
    ask = f"requests => Promise.all(requests.map({ASK}))"

    assert len(recording) > 201
    for request, answer in zip(requests, page.evaluate(ask, requests), strict=True):
        expected, bodies = handle_request(recording, request)
        encoded = [base64.b64encode(body).decode() for body in bodies]
        assert answer == [json.loads(json.dumps(expected)), encoded], request
    assert any(handle_request(recording, {**search, "first": 1, "limit": 300})[0]["found"][2])
    assert len(requested) == 1


def test_interactions_are_found_opened_and_copied_by_keyboard(
    tmp_path: Path, open_file: Callable[..., Page]
) -> None:
    """Keys and accessible names are those of the notebook. What a page cannot do is not there."""
    path = page_of(tmp_path / "tour.yaml", *nasty())
    page, requested = open_file(path, permissions=["clipboard-read", "clipboard-write"])
    root = page.get_by_role("region", name="Recorded interactions")
    list_ = root.get_by_role("grid", name="Interactions")
    expect(list_).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("zürich -is:failed")
    expect(list_).to_have_attribute("aria-rowcount", "7")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    response = root.get_by_role("region", name="Response")
    expect(response).to_be_focused()
    body = response.get_by_role("textbox", name="Response body")
    expect(body).to_contain_text('"city": "Zürich 😀",\n  "n": 12345678901234567890')
    response.get_by_role("button", name="Raw").press("Enter")
    expect(body).to_contain_text("\\u00fcrich")
    response.get_by_text("Copy as", exact=True).press("Enter")
    response.get_by_role("button", name="Copy as curl").press("Enter")
    expect(response.get_by_text("Copied to the clipboard.")).to_be_visible()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    response.get_by_role("tab", name="Body").press("ArrowRight")
    expect(response.get_by_role("table")).to_contain_text("1 row, 2 columns")
    with page.expect_download() as download:
        response.get_by_role("tab", name="Table").press("ArrowLeft")
        response.get_by_role("button", name="Save body").first.press("Enter")
    page.keyboard.press("Escape")
    expect(list_).to_be_focused()
    page.keyboard.press("Escape")
    expect(response).to_be_hidden()
    buttons = root.get_by_role("button").all_inner_texts()

    assert copied.startswith("# The key is left out")
    assert download.value.suggested_filename == "tour-1-response.json"
    assert not {"New request", "Send", "Edit", "Insert cell", "Find", "Fold", "Expand"} & {*buttons}
    assert len(requested) == 1


def test_an_interaction_without_a_response_and_a_large_one_are_shown(
    tmp_path: Path, open_file: Callable[..., Page]
) -> None:
    """The page says what is missing. All of a large body can be saved."""
    page, _ = open_file(page_of(tmp_path / "tour.yaml", *nasty()))
    root = page.locator(".dml-browser")
    expect(opened(root, 15)).to_contain_text("no response came (read timeout)")
    expect(opened(root, 14)).to_contain_text("This body was not kept.")
    expect(opened(root, 10).get_by_role("img")).to_be_visible()
    large = opened(root, 13)
    expect(large).to_contain_text("Only the start of 2,097,166 bytes is shown.")
    expect(large.get_by_role("button", name="Show all")).to_have_count(0)
    with page.expect_download() as download:
        large.get_by_role("button", name="Save body").first.click()

    assert download.value.path().read_text("utf-8").endswith("xZürich")


def test_a_hostile_cassette_is_escaped(tmp_path: Path, open_file: Callable[..., Page]) -> None:
    """Every field and the name are shown as text."""
    name = MARKUP.replace("/", "\u2215")
    one = answered(get(f"/v1/{MARKUP}?q={MARKUP}"), f'{{"{MARKUP}": ["{MARKUP}"], "__proto__": 1}}')
    headers = (("X-A", MARKUP), ("X-RateLimit-Reset", MARKUP), ("Content-Type", MARKUP))
    response = replace(one.response, reason=MARKUP, headers=headers)
    path = recorded(tmp_path / "tour.yaml", replace(one, response=response))
    path = save_page(read_cassette(path.rename(tmp_path / f"{name}.yaml")), tmp_path / "tour.html")
    for script in (True, False):
        page, requested = open_file(path, java_script_enabled=script)
        expect(page.locator(".dml-title")).to_have_text(name)
        if script:
            details = opened(page.locator(".dml-browser"), 1)
            for tab in ("Headers", "Request as sent", "Body"):
                details.get_by_role("tab", name=tab).click()
            for kind in ("curl", "dm"):
                details.get_by_text("Copy as", exact=True).click()
                details.get_by_role("button", name=f"Copy as {kind}").click()
                expect(details.locator(".dml-b-copied pre")).to_contain_text("img")

            assert page.evaluate("() => typeof hacked") == "undefined"
        assert page.title() == name
        assert page.locator(".taken, img, script:not([type]) ~ script").count() == 0
        assert len(requested) == 1


class Witness(LoopbackServer):
    """A server that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        super().__init__()

    def response_to(self, request: Request) -> Response:
        self.asked.add(request.uri)
        return Response(404, "Not Found", (), b"")


ADDED = """
<script>hacked = 1</script><script src="{0}/a.js"></script>
<img src="{0}/a.png" onerror="hacked = 1"><iframe src="{0}/"></iframe>
<link rel="stylesheet" href="{0}/a.css">
<style>@font-face {{ font-family: added; src: url({0}/a.woff) }}</style>
<p style="font-family: added">text</p>
<form action="{0}/form"><button id="sends">Send</button></form>
"""


@pytest.mark.parametrize("has_policy", [True, False], ids=["policy", "control"])
def test_nothing_that_is_added_to_a_page_loads_or_runs(
    tmp_path: Path, open_file: Callable[..., Page], has_policy: bool
) -> None:
    """The control, without the policy, runs the script and sends each of the requests."""
    path = page_of(tmp_path / "tour.yaml", answered())
    with Witness() as witness:
        added = ADDED.format(witness.base_url)
        text = path.read_text("utf-8").replace("</main>", f"</main>{added}")
        path.write_text(text if has_policy else re.sub("<meta http-equiv[^>]+>", "", text), "utf-8")
        page, _ = open_file(path)
        expect(rows(page.locator(".dml-browser"))).to_have_count(1)
        hacked = page.evaluate("() => typeof hacked")
        page.wait_for_load_state("networkidle")
        page.locator("#sends").dispatch_event("click")
        page.wait_for_load_state("networkidle")
        expected = {"/a.js", "/a.png", "/", "/a.css", "/a.woff", "/form?"}
        if not has_policy:
            wait_for(page, lambda: witness.asked >= expected)

    assert (hacked, witness.asked) == (("undefined", set()) if has_policy else ("number", expected))


@pytest.mark.parametrize(
    "options",
    [
        {"java_script_enabled": False},
        {"script": "delete globalThis.DecompressionStream"},
        {"script": "CSS.supports = () => false"},
    ],
    ids=["no script", "no DecompressionStream", "no light-dark"],
)
def test_without_script_or_in_an_old_browser_the_first_rows_and_a_sentence_are_shown(
    tmp_path: Path, open_file: Callable[..., Page], options: dict[str, Any]
) -> None:
    """The sentence says which browsers show more."""
    path = page_of(tmp_path / "tour.yaml", *[answered(get(f"/v1/{n}")) for n in range(12)])
    page, _ = open_file(path, **options)

    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.get_by_text("you need JavaScript and Chrome or Edge 123")).to_be_visible()
    expect(page.get_by_text("tour, 12 interactions, recorded on 21 November 2026")).to_be_visible()
    expect(page.locator(".dml-p-about")).to_have_text(ABOUT)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 800, 1920])
def test_every_text_is_readable_and_nothing_is_cut(
    tmp_path: Path, open_file: Callable[..., Page], scheme: str, width: int
) -> None:
    """In light and dark, from a telephone's width to that of a large screen."""
    size = {"width": width, "height": 900}
    path = page_of(tmp_path / "tour.yaml", *nasty())
    page, _ = open_file(path, color_scheme=scheme, viewport=size)
    root = page.locator(".dml-browser")
    response = opened(root, 1)
    for tab in ("Table", "Headers", "Request as sent", "Body"):
        response.get_by_role("tab", name=tab).click()
        box = response.bounding_box()
        overflow = page.evaluate("""() => [document.documentElement.scrollWidth - innerWidth,
            document.documentElement.scrollHeight - innerHeight]""")

        assert unreadable(page, ".dml-browser") == []
        assert overflow == [0, 0]
        assert box is not None
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 900


def test_an_opened_response_is_printed_whole(
    tmp_path: Path, open_file: Callable[..., Page]
) -> None:
    """On paper, nothing can be scrolled: 300 lines take about five sheets."""
    lines = "\n".join(f"line {number}" for number in range(300))
    page, _ = open_file(page_of(tmp_path / "tour.yaml", typed("text/plain", lines)))
    rows(page.get_by_role("region", name="Recorded interactions")).first.click()
    expect(page.get_by_text("line 299")).to_be_attached()

    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) >= 4


@pytest.mark.parametrize(
    "unit",
    ['{"id": 12345, "text": "名刺 日本語の文字 500枚"}, ', "名刺日本語の文字" * 30],
    ids=["json", "no spaces"],
)
def test_two_megabytes_on_one_line_are_laid_out_in_parts_and_copied_as_they_are(
    tmp_path: Path, open_file: Callable[..., Page], unit: str
) -> None:
    """As one part, they would take minutes and gigabytes if no font has their characters."""
    text = "first\n\n" + unit * (2_000_000 // len(unit.encode()))
    page, _ = open_file(page_of(tmp_path / "tour.yaml", typed("text/plain", text)))
    rows(page.get_by_role("region", name="Recorded interactions")).first.click()
    body = page.get_by_role("textbox", name="Response body")
    expect(body).to_contain_text("first")
    longest = body.evaluate("body => Math.max(...[...body.children].map(e => e.innerText.length))")
    copied = """body => {
      while (body.children.length > 4) body.lastChild.remove();
      getSelection().selectAllChildren(body);
      return [body.textContent, getSelection().toString()];
    }"""

    assert body.text_content() == text
    assert longest < 10_000
    whole, selected = body.evaluate(copied)
    assert len(whole) > longest
    assert selected.rstrip() == whole.rstrip()


def test_the_number_of_failed_ones_is_that_of_the_rows_which_the_filter_then_shows(
    tmp_path: Path, open_file: Callable[..., Page]
) -> None:
    """A call of several attempts is one row until its attempts are shown."""
    tries = [replace(answered(get("/v1/a"), status=503), attempt=number) for number in range(1, 4)]
    again = [
        replace(answered(get("/v1/b"), status=503)),
        replace(answered(get("/v1/b")), attempt=2),
    ]
    single = answered(get("/v1/c"), status=500)
    page, _ = open_file(page_of(tmp_path / "tour.yaml", answered(), *tries, *again, single))
    root = page.get_by_role("region", name="Recorded interactions")
    failed = root.get_by_role("button", name="failed")
    expect(failed).to_have_text("▲ 2 failed")
    failed.click()
    expect(rows(root)).to_have_count(2)
    rows(root).first.get_by_role("button", name="3 attempts").click()
    expect(rows(root)).to_have_count(4)
    expect(failed).to_have_text("▲ 4 failed")


def test_the_timeline_says_its_span_in_days_hours_minutes_or_seconds(
    tmp_path: Path, open_file: Callable[..., Page]
) -> None:
    """The span begins with the first request."""
    spans = {
        1.25: "1.29 s",
        59.5: "59.5 s",
        125.0: "2 min 5 s",
        7200.0: "2 h",
        86_400.0: "1 day",
        180_000.0: "2 days 2 h",
    }
    page, _ = open_file(page_of(tmp_path / "tour.yaml", answered()))
    for seconds, span in spans.items():
        later = replace(answered(), recorded_at=NOON + timedelta(seconds=seconds))
        page.goto(page_of(tmp_path / f"{seconds}.yaml", answered(), later).as_uri())

        timeline = page.get_by_role("columnheader", name="Timeline")
        expect(timeline).to_have_text(f"Timeline, {span}")


def test_a_page_says_what_it_is_with_hosts_and_days_and_what_to_do(
    tmp_path: Path, open_file: Callable[..., Page]
) -> None:
    """More than three hosts are counted, and an address shows no user."""
    others = [answered(get(base=f"https://me:secret@{n}.example.test:8443")) for n in range(4)]
    later = replace(answered(), recorded_at=NOON + timedelta(days=1))
    path = page_of(tmp_path / "tour.yaml", answered(), *others, later)
    page, _ = open_file(path)
    one, _ = open_file(page_of(tmp_path / "one.yaml", answered()))

    expect(one.locator(".dml-browser .dml-p-about")).to_have_text(
        f"{ABOUT} · select a row to see it"
    )
    expect(page.locator(".dml-p-about")).to_have_text(
        "Recorded HTTP requests · api.example.test, 0.example.test:8443, 1.example.test:8443 and "
        "2 more · from 21 November 2026 to 22 November 2026 · select a row to see it"
    )
