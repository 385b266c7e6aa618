"""Two responses side by side, in JupyterLab's viewer."""

import hashlib
import json
from dataclasses import replace

from cassette_samples import answered, get, post, typed
from playwright.sync_api import Locator, expect

from directmail_lab.exchange.bodies import missing_body
from directmail_lab.exchange.values import Interaction
from directmail_lab.notebook.browser_data import MAX_SHOWN_BYTES

from .test_browse import MARKUP, PNG, recorded, rows, view

DEEP = "[" * 900 + "{}" + "]" * 900
LONG = "x" * 1000
SHOWN = "a line of a text\n" * (MAX_SHOWN_BYTES // 17 + 1)


def json_of(first: str, second: str) -> tuple[Interaction, Interaction]:
    return answered(get("/v1/a"), first), answered(get("/v1/b"), second)


def texts_of(first: str, second: str) -> tuple[Interaction, Interaction]:
    return typed("text/plain", first), typed("text/plain", second)


def with_headers(each: Interaction, *headers: tuple[str, str]) -> Interaction:
    return replace(each, response=replace(each.response, headers=headers))


def described(kind: str, body: bytes) -> str:
    digest = hashlib.sha256(body).hexdigest()[:16]
    return f"{kind}, {len(body):,} bytes, SHA-256 {digest}…"


# Two responses, and the differences that are shown: the field and both values.
PAIRS: list[tuple[tuple[Interaction, Interaction], list[list[str]]]] = [
    (json_of('{"a": 1, "b": [2]}', '{"b": [2], "a": 1}'), []),
    (  # types, and numbers that JavaScript rounds
        json_of(
            '{"n": 12345678901234567890, "p": 1.50, "code": "01234", "x": null}',
            '{"n": 12345678901234567891, "p": 1.5, "code": 1234, "x": false}',
        ),
        [
            ["n", "12345678901234567890", "12345678901234567891"],
            ["p", "1.50", "1.5"],
            ["code", '"01234"', "1234"],
            ["x", "null", "false"],
        ],
    ),
    (
        json_of(
            '{"data": [{"a b": "\\"1\\\\"}, 2], "__proto__": 1, "c": {"d": [1]}}',
            '{"data": [{"a b": "Zürich"}], "__proto__": 2, "c": {"d": {"0": 1}}}',
        ),
        [
            ['data[0]["a b"]', '"\\"1\\\\"', '"Zürich"'],
            ["data[1]", "2", "absent"],
            ["__proto__", "1", "2"],
            ["c.d", "[1]", '{"0":1}'],
        ],
    ),
    (json_of("[1]", '"1"'), [["(all)", "[1]", '"1"']]),
    (json_of(DEEP, DEEP.replace("{}", "1")), [["[0]" * 900, "{}", "1"]]),
    (
        json_of(f'"{LONG}a{LONG}"', f'"{LONG}b"'),
        [["(all)", f"…{'x' * 60}a{'x' * 139}…", f'…{"x" * 60}b"']],
    ),
    (json_of(f'{{"{MARKUP}": 1}}', "{}"), [[f'["{MARKUP}"]', "1", "absent"]]),
    (texts_of("a\nb\nc\nd", "a\nB\nc\nd"), [["line 2", "b", "B"]]),
    (texts_of("a\nb\nc", "a\nc"), [["line 2", "b", "absent"]]),
    (texts_of("a", ""), [["line 1", "a", ""]]),
    (
        (typed("image/png", PNG + b"\0"), typed("image/png", PNG + b"\1")),
        [["(all)", described("image", PNG + b"\0"), described("image", PNG + b"\1")]],
    ),
    (
        (typed("text/plain", "a"), typed("text/plain", missing_body(5000))),
        [["(all)", described("text", b"a"), "not kept"]],
    ),
    # Nobody can call two bodies equal that were not kept.
    ((answered(body=missing_body(5000)),) * 2, [["(all)", "not kept", "not kept"]]),
    # The part of a large text that the response does not show at first.
    (texts_of(f"{SHOWN}a", f"{SHOWN}b"), [[f"line {SHOWN.count(chr(10)) + 1}", "a", "b"]]),
    (  # a text that begins as numbers are marked
        json_of('{"n": "\\u00001", "t": "\\u0000\\"2"}', '{"n": 1, "t": "\\u0000\\"3"}'),
        [["n", '"\\u00001"', "1"], ["t", '"\\u0000\\"2"', '"\\u0000\\"3"']],
    ),
    # What is not seen: the form of a letter, line ends and spaces.
    (json_of('"Zu\u0308rich"', '"Z\u00fcrich"'), [["(all)", '"Zu\\u0308rich"', '"Z\\u00fcrich"']]),
    (texts_of("a\r\nb\nc ", "a\nb\nc"), [["line 1", "a\\u000d", "a"], ["line 3", "c\\u0020", "c"]]),
    (
        (
            with_headers(answered(), ("X-A", "1"), ("Set", "a"), ("Set", "b"), ("X-C", "")),
            with_headers(answered(status=201), ("x-a", "2"), ("set", "a"), ("x-c", "")),
        ),
        [["status", "200 OK", "201 OK"], ["x-a", "1", "2"], ["set", "a, b", "a"]],
    ),
]


def compared(root: Locator) -> Locator:
    panel = root.get_by_role("tabpanel", name="Compare")
    expect(panel.get_by_role("table")).to_be_visible()
    return panel


def differences(root: Locator) -> list[list[str]]:
    """Return the rows of the comparison: the field and both values."""
    found: list[list[str]] = compared(root).evaluate(
        "panel => [...panel.querySelectorAll('tr:has(td)')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return found


def test_two_responses_are_compared(new_page, server):
    """JSON is compared by path, and text by line. What is equal is called so."""
    interactions = [each for pair, _ in PAIRS for each in pair]
    many = [json.dumps([{"n": n, "m": n + more} for n in range(2_000)]) for more in (0, 1)]
    interactions += [answered(post(b"{}"), body) for body in many]
    page = new_page(height=1800)  # for all rows
    root = view(page, server, recorded(server, "pairs", *interactions))
    found = []
    for number in range(len(PAIRS)):
        rows(root).nth(2 * number).click()
        rows(root).nth(2 * number + 1).click(modifiers=["Control"])
        heading = compared(root).get_by_role("columnheader").last
        expect(heading).to_contain_text(f"{2 * number + 2} ")
        found.append(differences(root))
        if number == 0:
            expect(compared(root)).to_contain_text("Status: equalHeaders: equalBody: equal")
    rows(root).nth(-2).click()
    rows(root).nth(-1).click(modifiers=["Control"])
    expect(compared(root).get_by_text("The first 500 differences.")).to_be_visible()
    last = differences(root)
    hacked = page.evaluate("() => typeof hacked")

    assert found == [expected for _, expected in PAIRS]
    assert (len(last), last[-1]) == (500, ["[499].m", "499", "500"])
    assert hacked == "undefined"


def test_a_row_is_compared_with_the_one_that_was_selected_before(page, server):
    """The key c or Control+click on the second row compares; the next selection ends that."""
    first, second = json_of('{"a": 1}', '{"a": 2}')
    root = view(page, server, recorded(server, "compared", first, second, answered(status=404)))
    root.get_by_role("grid").focus()
    page.keyboard.press("c")
    expect(root.get_by_text("Select another row first")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("c")
    by_key = differences(root)
    expect(root.get_by_role("row", selected=True)).to_have_count(2)
    expect(root.get_by_role("grid")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(root.get_by_role("heading", name="3 GET")).to_be_visible()
    expect(root.get_by_role("tab", name="Body")).to_have_attribute("aria-selected", "true")
    root.get_by_role("tab", name="Compare").click()
    expect(root.get_by_text("by Control+click, or select it and press c")).to_be_visible()
    expect(root.get_by_role("row", selected=True)).to_have_count(1)
    rows(root).first.click(modifiers=["Control"])
    by_click = differences(root)

    assert by_key == [["a", "1", "2"]]
    assert by_click[0] == ["status", "404 OK", "200 OK"]
