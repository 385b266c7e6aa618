"""How frames of sentences look in a notebook, how tables look in a terminal, and progress."""

import io
import itertools
import json
import pickle
import re
import subprocess
import sys

import httpx
import pandas as pd
import pytest
from cassette_samples import answered, get, recorded
from IPython.core.formatters import DisplayFormatter

import directmail_lab as dm
from directmail_lab.cli.output import show
from directmail_lab.display import Progress, as_table
from directmail_lab.errors import NotRecordedError
from directmail_lab.questions.cells import shown


def test_a_notebook_shows_whole_sentences_and_the_notes():
    plain = pd.DataFrame({"seen": ["word " * 40 + "<b>"], "n": [1]})
    frame = as_table(plain.copy())
    frame.attrs["notes"] = ["Not <i>sent</i>."]
    shown = DisplayFormatter().format(frame)[0]

    assert shown["text/html"].count("word") == 40
    assert "<b>" not in shown["text/html"]
    assert shown["text/html"].endswith("<p>Not &lt;i&gt;sent&lt;/i&gt;.</p>")
    assert shown["text/plain"] == repr(plain)
    assert type(frame) is pd.DataFrame
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(frame)), plain)


def test_a_terminal_shows_texts_wrapped_and_escaped_in_80_columns(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    at = pd.to_datetime(["2026-11-21T04:00:00.066803Z"] * 2)
    evil = "[bold]\x1b[2J\r\n\u202e"
    texts = ["word " * 30, evil]
    frame = pd.DataFrame({"a": texts, "b": [[evil], "\ud800"], "gone": [None, ""], "at": at})
    frame.attrs["notes"] = ["One.", "Two."]
    show(frame, ["a", "b", "gone", "at"])
    printed = capsys.readouterr().out
    lines = printed.splitlines()

    assert lines[0].split() == ["a", "b", "at"]
    assert max(map(len, lines)) <= 80
    assert printed.count("word") == 30
    assert printed.count("21 Nov 2026 04:00:00") == 1
    assert printed.count("04:00:00") == 2
    assert printed.count(r"[bold]\x1b[2J\r\n\u202e") == 1
    assert {"\x1b", "\r", "\u202e", "\ud800"}.isdisjoint(printed)
    assert lines[-1] == "One. Two."


def test_where_a_table_would_break_words_each_value_has_its_line(capsys, monkeypatch):
    """A terminal may be narrower than the words of one row."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    columns = ["number", "method", "path", "status", "at"]
    show(dm.interactions("explore-an-unknown-api").head(3).reset_index(), columns)
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()

    assert max(map(len, lines)) <= 40
    assert [line.split(":")[0] for line in lines[:5]] == columns
    assert lines[2:5] == ["path: /v1/users/me", "status: 200", "at: 21 Nov 2026 04:00:00"]


def test_a_record_of_many_fields_is_shown_field_by_field_and_stays_one_row(connected):
    """What is made of it is shown as pandas shows it."""
    record = dm.me()
    table = DisplayFormatter().format(record)[0]["text/html"]
    made = record[["id", "name", "email", "service", "phone", "company.name", "permissions"]]

    assert record.shape == (1, 10)
    assert table.count("<tr>") == 11
    assert [line.split()[0] for line in repr(record).splitlines()] == list(record.columns)
    assert repr(made) == repr(pd.DataFrame(made.to_dict("list")).astype(made.dtypes))


@pytest.mark.parametrize("path", ["/v1/a%0AError: pay%1B[2J", "/v1/a\nError: pay\x1b[2J\u202e"])
def test_what_a_strangers_cassette_contains_is_one_safe_line_wherever_it_is_named(path):
    """A path may neither look like a line of ours nor move a terminal's cursor."""
    file = recorded("cassettes/odd.yaml", answered(get(path)), answered(get("/v1/b?x%1B[2J=1")))
    dm.replay("odd")
    with pytest.raises(NotRecordedError) as caught:
        dm.get("/v1/b")
    tables = [question(file)["path"].to_string() for question in (dm.interactions, dm.rate_limits)]

    assert "Nearest: " in str(caught.value)
    for text in (str(caught.value), *tables):
        assert {"\x1b", "\u202e"}.isdisjoint(text)
        assert "\nError" not in text


def test_a_cell_shows_the_facts_and_the_first_lines_of_a_response(connected, service):
    """JSON is laid out, and everything is escaped. The response stays one of httpx."""
    service.fault(path="/v1/lists", body=json.dumps([{"name": "<b>"}] * 30))
    response = connected.get("/v1/lists")
    bundle = shown(response)

    head, *lines = bundle["text/plain"].splitlines()
    facts = head.split(" · ")
    assert facts[:3] == ["200 OK", "JSON", "510 bytes"]
    assert facts[-1] == "59 of 60 left"
    assert lines[:3] == ["[", "  {", '    "name": "<b>"']
    assert len(lines) == 21
    assert lines[-1] == "… 20 lines of 92; dm.browse() shows all."
    assert "<b>" not in bundle["text/html"]
    assert isinstance(response, httpx.Response)


def test_a_cell_shows_a_response_redacted_and_says_that_it_is_replayed(connected, service):
    """A saved notebook shows no more than the cassette beside it."""
    body = json.dumps({"you": service.api_key, "access_token": "tok_1234567890123456"})
    service.fault(path="/v1/login", body=body)
    with connected.record("tour"):
        live = connected.get("/v1/login")
    with connected.replay("tour"):
        replayed = connected.get("/v1/login")

    assert service.api_key in live.text
    for response, last in ((live, " left"), (replayed, "replayed from 'tour', ")):
        bundle = shown(response)
        assert last in bundle["text/plain"].splitlines()[0].rpartition("·")[2]
        assert service.api_key not in str(bundle)
        assert "tok_" not in str(bundle)


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("image/png", b"\x89PNG\r\n\x1a\n\x00", ""),
        ("image/svg+xml", b"<svg onload='alert(1)'/>", "<svg onload='alert(1)'/>"),
        ("application/pdf", b"%PDF\xff\xfe\x00", "(7 bytes, not text)"),
        (
            "text/csv",
            b"a,b\n1,2\n" * 100_000,
            "a,b\n1,2\n" * 10 + "… 20 lines; dm.browse() shows all.",
        ),
        ("text/plain", b"x" * 100_000, "x" * 2_000 + "\n… 1 line of 1; dm.browse() shows all."),
        ("text/plain", b"", ""),
    ],
)
def test_a_cell_shows_a_picture_as_one_and_other_bytes_as_their_size(
    connected, service, content_type, body, text
):
    """What it shows is bounded, and nothing of it is executed."""
    service.fault(path="/v1/file", body=body, headers={"Content-Type": content_type})
    bundle = shown(connected.get("/v1/file"))

    assert "\n".join(bundle["text/plain"].splitlines()[1:]) == text
    assert ("<img" in bundle["text/html"]) == (content_type == "image/png")
    assert "<svg" not in bundle["text/html"]


def test_a_cell_shows_a_streamed_response_without_a_body_and_no_other_clients_response(connected):
    with connected.client.stream("GET", "/v1/users/me") as response:
        bundle = shown(response)
        is_read = response.is_stream_consumed

    assert "its body was not read" in bundle["text/plain"]
    assert not is_read
    assert shown(httpx.Response(200)) is None


def test_progress_is_drawn_in_a_terminal_and_is_one_line_elsewhere(capsys, monkeypatch):
    """In a file, each update would be a line of its own. A terminal is left without it."""
    clock = itertools.count(0, 10)
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    with Progress("GET", 30, delay_s=0.0) as progress:
        progress.update()
    redirected = capsys.readouterr().err
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("GET /v1/lists", 1200, "record", delay_s=0.0) as progress:
        progress.update(480)
    shown = terminal.getvalue().split("\r")

    assert redirected == "GET …\n"
    assert re.fullmatch(
        r"GET /v1/lists: 480 of 1,200 records, about \d+\.0 s left\x1b\[K", shown[2]
    )
    assert shown[-1] == "\x1b[K"


def test_progress_of_a_script_does_not_load_ipython():
    """Importing IPython takes a second, in which other programs may use up the allowance."""
    program = "import sys; from directmail_lab.display import Progress\n"
    program += "with Progress('GET', 3, delay_s=0.0): print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert "IPython" not in done.stdout.decode().split()
