"""Take screenshots of our widgets: ``python -m browser.screenshots`` in the folder ``tests``."""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import FloatRect, Page, expect, sync_playwright

from directmail_lab.cassettes import read_cassette
from directmail_lab.server.standin import STAND_IN_KEY, stand_in
from directmail_lab.share.cassette_page import save_page
from directmail_lab.share.tutorials import first_tutorial

from .form import Form
from .jupyter import (
    Server,
    Theme,
    command,
    launch,
    new_tab,
    open_app,
    open_notebook,
    run_all,
    run_notebook,
    running_server,
)

IMAGES = Path(__file__).parents[2] / "notebooks" / "images"
LARGEST_BYTES = 150_000

# A frame for the screenshot of a widget, which a saved notebook shows in place of the widget.
# Without it, a reader may click the picture and type a key, and JupyterLab takes each letter for a
# command.
MARK_AS_PICTURE = """(form, [width, name]) => {
  const mark = document.createElement('div');
  const caption = document.createElement('div');
  caption.textContent = 'Only a picture: run this cell to get the ' + name + '.';
  caption.style.cssText = 'font: 600 14px system-ui, sans-serif; margin-bottom: 10px;' +
    ' color: #212121';
  mark.className = 'a-picture';
  mark.style.cssText = 'background: #f3f3f3; border: 2px dashed #757575; border-radius: 8px;' +
    ' box-sizing: border-box; padding: 12px 16px; width: ' + width + 'px';
  form.parentElement.style.maxWidth = 'none';
  form.replaceWith(mark);
  mark.append(caption, form);
  form.style.cssText = 'filter: grayscale(1); opacity: 0.45';
}"""

SIGN_IN = "import directmail_lab as dm\ndm.login(base_url={0!r})"
TESTS = Path(__file__).resolve().parent.parent
MONITOR = """import directmail_lab as dm, time
import sys; sys.path.append("{tests}")
from faulty_service import FaultyService
service = FaultyService(limit=60, limits={"/v1/lists": 30}, window_s=4)
dm.connect(service.base_url, service.api_key, pace="off", reset_unit="seconds_left")
dm.monitor()"""
EXPLORE = """import directmail_lab as dm
session = dm.connect({0.base_url!r}, {0.api_key!r}, allow_writes=True)
for path in ("/v1/users/me", "/v1/lists", "/v1/letters", "/v2/users/me", "/v1/lists"):
    dm.get(path)
dm.browse()"""
LETTER = '{"recipient": {"list": "lst_stand_in_1"}, "template": "spring", "test": true}'
TRAFFIC = """for n in range(230):
    dm.get("/v1/users/me")
    time.sleep(0.046 if n % 80 < 60 else 0.012)
    if n % 9 == 0:
        dm.get("/v1/lists")
    if n == 150:
        with service.fault(status=503):
            dm.get("/v1/lists")"""


def main() -> None:
    """Take each screenshot in the light and in the dark theme."""
    themes: tuple[Theme, ...] = ("Light", "Dark")
    with (
        tempfile.TemporaryDirectory() as home,
        running_server(Path(home)) as server,
        sync_playwright() as driver,
    ):
        browser = launch(driver.chromium)
        expect.set_options(timeout=30_000)
        for theme in themes:
            server.set_theme(theme)
            for take_picture, (width, height, scale) in PICTURES.items():
                page = new_tab(browser, server, width=width, height=height, scale=scale).page
                take_picture(page, server, IMAGES, theme.lower())
                page.context.close()
        browser.close()


def take_sign_in(page: Page, server: Server, folder: Path, theme: str) -> None:
    """Take the form, the panel after signing in, and the form marked as a picture."""
    with stand_in() as service:
        cell = SIGN_IN.format(service.base_url)
        run_notebook(page, server, f"sign-in-{theme}", cell)
        form = Form(page).ready()
        form.address.fill("https://eu.mail.example.com")
        form.key.fill("nothing but dots")
        take(page, ".dml-form", folder / f"sign-in-{theme}.png")
        form.address.fill(service.base_url)
        form.key.fill("")
        form.sign_in(STAND_IN_KEY)
        expect(form.account).to_be_visible()
        take(page, ".dml-account", folder / f"signed-in-{theme}.png")
        form.sign_out()
    if theme == "light":
        run_notebook(page, server, "picture", SIGN_IN.format(""))
        Form(page).ready()
        page.locator(".dml-form:visible").evaluate(MARK_AS_PICTURE, [464, "form"])
        take(page, ".a-picture", folder / "sign-in-picture.png")


def take_monitor(page: Page, server: Server, folder: Path, theme: str) -> None:
    run_notebook(page, server, f"monitor-{theme}", MONITOR.replace("{tests}", str(TESTS)), TRAFFIC)
    expect(page.locator(".dml-row")).to_have_count(2)
    take(page, ".dml-monitor", folder / f"monitor-{theme}.png")


def take_recording(page: Page, server: Server, folder: Path, theme: str) -> None:
    """Take a cassette that is open as a document."""
    cassettes = server.notebooks / "cassettes"
    own = shutil.ignore_patterns("my-*")
    shutil.copytree(IMAGES.parents[1] / "cassettes", cassettes, dirs_exist_ok=True, ignore=own)
    open_app(page, server)
    command(page, "filebrowser:go-to-path", path="/cassettes")
    command(page, "docmanager:open", path="cassettes/explore-an-unknown-api.yaml")
    page.get_by_role("grid", name="Interactions").get_by_role("row").nth(1).click()
    expect(page.locator(".dml-b-response .cm-content")).to_be_visible()
    take(page, "#jp-main-content-panel", folder / f"recording-{theme}.png")


def take_page(page: Page, server: Server, folder: Path, theme: str) -> None:
    """Take a cassette as a page that is opened from disk, with a failed interaction open."""
    recording = read_cassette(IMAGES.parents[1] / "cassettes" / "explore-an-unknown-api.yaml")
    page.emulate_media(color_scheme=theme)
    page.goto(save_page(recording, server.home / "page.html").as_uri())
    page.locator("summary").nth(6).click()
    page.locator("body").evaluate("body => body.style = 'height: 760px; overflow: hidden'")
    take(page, "body", folder / f"page-{theme}.png")


def take_browser(page: Page, server: Server, folder: Path, theme: str) -> None:
    """Take the browser of interactions, with a failed one open."""
    cell = "import directmail_lab as dm\ndm.browse('explore-an-unknown-api')"
    run_notebook(page, server, f"browse-{theme}", cell)
    command(page, "application:toggle-left-area")
    page.locator(".dml-b-row[aria-rowindex='9']").click()
    expect(page.locator(".dml-b-response .cm-content")).to_be_visible()
    take(page, ".dml-browser", folder / f"browse-{theme}.png")


def take_composer(page: Page, server: Server, folder: Path, theme: str) -> None:
    """Take a sent request above its response; for the tutorial, marked as a picture."""
    with stand_in() as service:
        run_notebook(page, server, f"compose-{theme}", EXPLORE.format(service))
        command(page, "application:toggle-left-area")
        root = page.locator(".dml-browser")
        root.get_by_role("grid").press("n")
        root.get_by_label("Method").select_option("POST")
        root.get_by_label("Address").fill("/v1/letters")
        root.get_by_role("tab", name="Body").first.click()
        root.get_by_role("combobox", name="Body", exact=True).select_option("JSON")
        root.locator(".dml-e-body .cm-content").fill(LETTER)
        root.get_by_role("button", name="Format").click()
        root.get_by_role("button", name="Send", exact=True).click()
        root.get_by_role("button", name="Send POST").click()
        response = root.get_by_role("textbox", name="Response body")
        expect(response).to_contain_text("ltr_stand_in")
        response.locator(".cm-line", has_text="ltr_stand_in").first.click()
        take(page, ".dml-browser", folder / f"composer-{theme}.png")
        if theme == "light":
            root.evaluate(MARK_AS_PICTURE, [1100, "panel"])
            take(page, ".a-picture", folder / "composer-picture.png")


def take_tutorials(page: Page, server: Server, folder: Path, theme: str) -> None:
    """Take each tutorial in JupyterLab after Run All, in the light theme alone."""
    first = first_tutorial(server.notebooks)
    for path in sorted(first.parent.glob("[0-9]*.ipynb")) if theme == "light" else ():
        open_notebook(page, server, path.relative_to(server.notebooks).as_posix())
        command(
            page, "filebrowser:go-to-path", path=f"/{path.parent.relative_to(server.notebooks)}"
        )
        run_all(page)
        heading = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) h2").nth(2)
        for _ in range(2):  # widgets above the heading grow when they come into view, and move it
            heading.evaluate("heading => heading.scrollIntoView()")
            page.wait_for_timeout(500)
        upper: FloatRect = {"x": 0, "y": 0, "width": 1360, "height": 850}
        page.screenshot(path=folder / f"{path.stem[3:]}.png", clip=upper)


# Width and height in CSS pixels, and the picture's pixels for each of them.
PICTURES = {
    take_sign_in: (900, 760, 2.0),
    take_monitor: (1160, 800, 2.0),
    take_recording: (1280, 560, 1.0),
    take_page: (1280, 800, 1.0),
    take_browser: (1400, 900, 1.0),
    take_composer: (1300, 900, 1.0),
    take_tutorials: (1360, 1000, 1.0),
}


def take(page: Page, selector: str, path: Path) -> None:
    """Take a screenshot of a part of the page, and print its size in kB."""
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)
    page.locator(selector).first.screenshot(path=path)
    size = path.stat().st_size
    sys.stdout.write(f"{path.name}: {size / 1000:.0f} kB\n")
    if size > LARGEST_BYTES:
        raise RuntimeError(f"{path.name} is too large for the repository")


if __name__ == "__main__":
    main()
