"""The live monitor in a real JupyterLab: it updates while code runs, and leaves a picture."""

import re

import nbformat
import pytest
from faulty_service import FaultyService
from playwright.sync_api import Page, expect

from directmail_lab.notebook.browser_data import read_static

from .jupyter import command, open_notebook, reopen_notebook, run_cells, save, wait_for

# Each cell makes its requests, and then keeps the kernel busy until the test has seen them.
LOOP = """
for _ in range(30):
    dm.get("/v1/users/me")
wait_for("loop seen")
"""
TASK = """
for _ in range(30):
    await session.me_async()
asking = threading.Thread(target=lambda: [dm.get("/v1/users/me") for _ in range(30)])
asking.start()
asking.join()
wait_for("task seen")
"""
WAIT_FOR = """
import pathlib, threading
def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.05)
"""


def show(service: FaultyService) -> str:
    return (
        "import time\nimport directmail_lab as dm\n"
        "from directmail_lab.server.standin import STAND_IN_KEY as key\n"
        f"session = dm.connect({service.base_url!r}, key, pace='off', reset_unit='seconds_left')\n"
        "monitor = dm.monitor()\nmonitor"
    )


def start_cell(page: Page, number: int) -> None:
    page.evaluate(
        "n => { jupyterapp.shell.currentWidget.content.activeCellIndex = n;"
        " jupyterapp.commands.execute('notebook:run-cell') }",
        number,
    )


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_the_monitor_updates_while_a_loop_a_thread_and_a_task_make_requests(
    page, server, service, app
):
    folder = server.notebooks / app
    name = server.write(f"{app}/moves.ipynb", show(service), WAIT_FOR, LOOP, TASK)
    open_notebook(page, server, name, app=app)
    run_cells(page, 0, 1)
    expect(page.locator(".dml-foot")).to_contain_text("No responses yet")
    for number, what, responses in ((2, "loop", 30), (3, "task", 90)):
        start_cell(page, number)
        expect(page.locator(".dml-count")).to_have_text(f"{responses} responses")
        expect(page.get_by_text("[*]:")).to_have_count(1)
        (folder / f"{what} seen").touch()
        expect(page.get_by_text("[*]:")).to_have_count(0)

    expect(page.locator(".dml-left")).to_have_text("210 of 300 left")
    expect(page.locator(".dml-renews")).to_contain_text("renews in")


def test_the_monitor_counts_down_for_a_waiting_request(page, server):
    cell = (
        "import directmail_lab as dm\nservice = dm.stand_in(limit=2, window_s=600)\n"
        "dm.connect(service.base_url, service.api_key, max_wait_s=900)\ndm.monitor()"
    )
    waits = 'dm.get_many(["/v1/users/me"] * 3)'
    open_notebook(page, server, server.write("waits.ipynb", cell, waits))
    run_cells(page, 0)
    start_cell(page, 1)
    wait = page.get_by_role("timer")

    def seconds() -> int:
        return int(re.findall(r"\d+", wait.inner_text())[0])

    expect(wait).to_have_text(re.compile(r"^A request waits: \d+ s until the allowance renews$"))
    first = seconds()

    assert 300 < first <= 600
    wait_for(page, lambda: seconds() < first)
    command(page, "notebook:interrupt-kernel")
    expect(wait).to_have_text("")


@pytest.mark.parametrize(
    ("unit", "left", "when"),
    [
        ("'seconds_left'", "8 of 9 were left", "the window has ended"),
        ("None", "8 of 9 left", re.compile(r"\d s ago")),
    ],
)
def test_what_was_left_is_not_shown_as_live_later(page, server, unit, left, when):
    """Until the unit of Reset is known, nobody knows when the window ends."""
    cell = (
        "import directmail_lab as dm\nservice = dm.stand_in(limit=9, window_s=3)\n"
        f"dm.connect(service.base_url, service.api_key, reset_unit={unit})\ndm.monitor()"
    )
    open_notebook(page, server, server.write("ends.ipynb", cell, "dm.me();"))
    run_cells(page, 0, 1)

    expect(page.locator(".dml-left")).to_have_text(left)
    expect(page.locator(".dml-renews")).to_have_text(when)


# A widget without a kernel that answers, at each status that JupyterLab may tell.
UNANSWERED = """async ([script, statuses]) => {
  const page = await import(URL.createObjectURL(new Blob([script], { type: 'text/javascript' })));
  for (const status of statuses) {
    const model = { send() {}, on() {}, off() {}, widget_manager: { kernel: { status } } };
    page.default.render({ model, el: document.body });
  }
}"""


def test_a_widget_that_waits_for_the_kernel_says_why(new_page):
    """A kernel that runs a cell has not stopped. Other programs than JupyterLab have no status."""
    page = new_page()
    page.evaluate(UNANSWERED, [read_static("monitor.js"), ["busy", "dead", "idle", None]])

    expect(page.locator(".dml-foot")).to_have_text(
        [
            "A cell is running. This goes on when it ends.",
            "The kernel has stopped. Restart it, and run this cell again.",
            "The kernel was restarted. Run this cell again.",
            "The kernel is busy or has stopped. Wait, or run this cell again.",
        ]
    )


def test_refused_and_failed_responses_are_marked(page, server, service):
    """The text and the graph mark it, for eyes and for screen readers."""
    name = server.write("marks.ipynb", show(service), "dm.get('/v1/users/me')")
    open_notebook(page, server, name)
    run_cells(page, 0)
    with service.fault(status=429):
        run_cells(page, 1)
    with service.fault(status=500):
        run_cells(page, 1)
    course = page.get_by_role("img", name="GET /v1/users/me")

    expect(page.locator(".dml-marks")).to_have_text("2 responses · × 1 refused · ▲ 1 failed")
    expect(course).to_have_attribute("aria-label", re.compile("1 refused"))
    assert course.evaluate(
        "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size > 3"
    )


def test_stopping_leaves_a_picture_in_the_notebook(page, server, service):
    """A live monitor hides the picture, and a notebook that is opened again shows it."""
    name = server.write("stays.ipynb", show(service), "for _ in range(9): dm.get('/v1/users/me')")
    open_notebook(page, server, name)
    run_cells(page, 0)
    run_cells(page, 1)
    expect(page.locator(".dml-count")).to_have_text("9 responses")
    expect(page.locator(".jp-OutputArea img")).to_have_count(1)
    expect(page.locator(".jp-OutputArea img")).to_be_hidden()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".dml-monitor")).to_have_count(0)
    expect(page.locator(".jp-OutputArea img")).to_be_visible()
    save(page)
    reopen_notebook(page, server, name)
    outputs = nbformat.read(server.notebooks / name, 4).cells[0].outputs

    expect(page.locator(".jp-OutputArea img")).to_be_visible()
    assert len(outputs) == 2
    assert len(outputs[1]["data"]["image/png"]) < 150_000
