"""The command line as a user sees it, in its own process if that matters."""

import contextlib
import difflib
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
import vcr
import yaml
from cassette_samples import answered, get, har, opened, recorded
from key_search import traces
from tutorials import read, run
from typer.testing import CliRunner

import directmail_lab as dm
from directmail_lab import cli
from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.journal import journal_of
from directmail_lab.cli import app, programs
from directmail_lab.cli.output import error_message, show
from directmail_lab.errors import DirectMailLabError
from directmail_lab.server.standin import StandIn
from directmail_lab.share import tutorials

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "directmail_lab"]
# Concatenated, so that secret scanners do not report this file.
KEY = "dm_" + "live_" + "8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"


def invoke(*words: object) -> Any:
    """Run a command in this process; the result has the error that ``main`` would print."""
    return CliRunner().invoke(app, [*map(str, words)])


@contextlib.contextmanager
def started(folder: Path, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command in a folder, and end it when the block ends."""
    variables |= {"PYTHONUNBUFFERED": "1", "JUPYTER_RUNTIME_DIR": str(folder / "run")}
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, **variables},
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=300)
            process.kill()


def output_until(process: subprocess.Popen[str], last: str) -> str:
    lines = []
    while not lines or (lines[-1] and last not in lines[-1]):
        lines.append(process.stdout.readline())
    return "".join(lines)


TERMINATED = """
import time
from pathlib import Path
from directmail_lab import cli
from directmail_lab.cassettes.library import create, locked

def command():
    with locked(Path("tour.yaml")) as path, create(path):
        print("writing", flush=True)
        time.sleep(60)

cli.app = command
cli.main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process at once")
def test_a_command_that_is_terminated_leaves_no_temporary_file(tmp_path):
    """SIGTERM, and SIGHUP of a closed terminal, end a command as an error does."""
    (tmp_path / "tour.yaml").write_text("version: 1\n")
    words, pipe = [sys.executable, "-c", TERMINATED], subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path, stdout=pipe, text=True) as process:
        output_until(process, "writing")
        during = list(tmp_path.glob("*tour*"))
        process.terminate()

    assert (process.returncode, len(during)) == (128 + signal.SIGTERM, 3)
    assert list(tmp_path.glob("*tour*")) == [tmp_path / "tour.yaml"]


@pytest.mark.slow
def test_serve_says_what_it_assumes_and_ends_on_a_signal(tmp_path):
    """The address and key come first, the responses keep the contract, and Ctrl-C exits with 0."""
    words = ("serve", "--port", "0", "--limit", "7", "--reset-unit", "epoch_s")
    with started(tmp_path, *words) as serving:
        printed = output_until(serving, "Ctrl-C ends it")
        ((address, key),) = re.findall(r"listens on (\S+)\nIts key is (\S+),", printed)
        headers = httpx.get(f"{address}/v1/users/me", auth=(key, ""), timeout=300).headers
        serving.send_signal(signal.SIGINT)
        rest, _ = serving.communicate(timeout=300)

    assert headers["X-RateLimit-Limit"] == "7"
    assert int(headers["X-RateLimit-Reset"]) > 1_700_000_000
    assert "reset_unit='epoch_s'" in printed
    assert (serving.returncode, rest.strip()) == (0, "Stopped.")


def test_a_folder_that_is_not_there_is_made_for_jupyterlab(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_run_jupyterlab", lambda *_: None)
    result = invoke("lab", tmp_path / "new" / "reports")

    assert result.exit_code == 0
    assert (tmp_path / "new" / "reports").is_dir()


def test_a_pipe_gets_each_row_on_one_line(capsys):
    """A program that reads the output finds whole paths and values."""
    path = f"/v1/{'letters/' * 30}"
    show(pd.DataFrame({"path": [path], "change": ["removed"]}), ["path", "change"])

    printed = capsys.readouterr().out
    assert [line.split() for line in printed.splitlines()] == [
        ["path", "change"],
        [f"{path[:200]}…", "removed"],
    ]


NOWHERE = {"DIRECTMAIL_BASE_URL": "http://127.0.0.1:9", "DIRECTMAIL_API_KEY": "any-key-at-all"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("drift first-look", "No server responds at http://127.0.0.1:9"),
        ("cassette show first-look 0", "There is no interaction 0 in first-look"),
    ],
)
def test_a_failed_command_prints_one_message_and_exits_with_2(words, says, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["directmail-lab", *words.split()])
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()

    assert (ended.value.code, printed.out) == (2, "")
    assert printed.err.startswith(f"Error: {says}")
    assert "Traceback" not in printed.err
    assert max(map(len, printed.err.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("drift first-look", "Set DIRECTMAIL_BASE_URL and DIRECTMAIL_API_KEY."),
        ("drift nowhere", "To see all cassettes: directmail-lab cassette list."),
        ("cassette audit", "Nothing was named to look into.\nName cassettes, files or folders"),
        ("cassette show /no/tape.yaml", "There is no cassette 'tape' in /no.\nTo see all"),
        ("cassette convert first-look file", "file already exists.\nChoose another name"),
        ("share --no-run --to file/a.zip tour.ipynb", "file"),
        ("serve --cassette empty.yaml", "empty has no interactions"),
        ("serve --port {taken}", "Choose another port, or 0 for a free one."),
    ],
)
def test_an_error_says_what_to_do_at_a_terminal(words, says, service):
    Path("file").touch()
    Path("tour.ipynb").write_text('{"cells": [], "metadata": {}}')
    Path("empty.yaml").write_text("interactions: []\nversion: 1\n")
    done = invoke(*words.format(taken=service.base_url.rpartition(":")[2]).split())
    assert isinstance(done.exception, DirectMailLabError | OSError)
    message = error_message(done.exception)

    assert says in message
    assert message.count("\n") <= 1
    assert not re.search(r"\w\((?!s\))|pathlib|Errno", message)
    if words.startswith("share"):  # it says what it packs before it writes the file
        assert re.sub(r"[\d.]+ kB", "", done.stdout).splitlines() == [
            *("notebooks/tour.html: ", "Personal data: none was found.")
        ]
    else:
        assert done.stdout == ""


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"status": 401}, "Check DIRECTMAIL_API_KEY."),
        ({"status": 429, "headers": {"Retry-After": "1000"}}, "Try again later."),
    ],
)
def test_advice_at_a_terminal_has_no_call_of_python(account, fault, says):
    """The errors come from the service's responses."""
    with account.fault(**fault):
        done = invoke("drift", "first-look")
    message = error_message(done.exception)

    assert says in message
    assert not re.search(r"\w\(", message)


# -- data --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["list", "show odd", "show --full odd", "audit cassettes"])
def test_what_a_file_contains_reaches_no_terminal_raw(words):
    """A stranger's cassette may have names and texts that a terminal would obey."""
    odd = answered(get("/\u202ea\x1b[2J\nb"), body="\x1b[2J ada@lovelace.org")
    recorded("odd.yaml", replace(odd, response=replace(odd.response, reason="No\x1b[2J\nb")))
    Path("cassettes").mkdir(exist_ok=True)
    Path("cassettes/\x1b[2J\u202e.yaml").write_bytes(Path("odd.yaml").read_bytes())
    Path("odd.yaml").rename("cassettes/odd.yaml")
    printed = invoke("cassette", *words.split()).output

    assert "odd" in printed or "2J" in printed
    assert {"\x1b", "\u202e"}.isdisjoint(printed)
    assert "b" not in printed.splitlines()


def write_notebook(name: str, source: str) -> None:
    Path(name).write_text(
        json.dumps(tutorials.notebook_of(["import directmail_lab as dm", source]))
    )


@pytest.mark.usefixtures("small_wheel")
def test_share_makes_one_zip_and_never_replaces_one_unasked():
    write_notebook("tour.ipynb", "import directmail_lab as dm\ndm.replay('first-look')")
    words = ("share", "tour.ipynb", "--to", "tour.zip", "--no-run")
    first, again, forced = invoke(*words), invoke(*words), invoke(*words, "--force")
    names = zipfile.ZipFile("tour.zip").namelist()
    listed = "".join(f"  {name}\n" for name in names)

    assert f"Wrote tour.zip, with:\n{listed}The notebooks were not run before" in first.stdout
    assert "Wrote tour.zip" in forced.stdout
    assert "tour.zip already exists" in str(again.exception)
    for name in ("tour.ipynb", "first-look.yaml", "first-look.html"):
        assert name in listed


# A cassette by vcrpy, which writes no times: one response without a body.
BARE = """\
interactions:
- request: {body: null, headers: {}, method: GET, uri: https://api.test/v1/users/me}
  response: {body: {string: ''}, headers: {}, status: {code: 204, message: No Content}}
version: 1
"""


@pytest.mark.usefixtures("small_wheel")
@pytest.mark.parametrize(
    "words",
    [
        "cassette list",
        "cassette show bare",
        "cassette show bare 1",
        "cassette audit bare",
        "cassette redact bare --redact personal",
        "cassette repair bare",
        "cassette convert bare ours.yaml",
        "cassette page bare",
        "share tour.ipynb --no-run",
        "share tour.ipynb --no-run --no-code --to report.html",
    ],
)
def test_a_cassette_with_neither_times_nor_bodies_is_read_by_each_command(words):
    """It may come from vcrpy, which does not write when something was recorded."""
    Path("cassettes").mkdir()
    Path("cassettes/bare.yaml").write_text(BARE)
    write_notebook("tour.ipynb", "dm.replay('bare')")
    done = invoke(*words.split())

    assert (done.exit_code, done.exception) == (0, None)


# -- cassettes ---------------------------------------------------------------------------------


def cassette(*words: object) -> Any:
    return invoke("cassette", *words)


def test_list_says_which_cassettes_came_with_the_package(tour):
    """It also says how large each is; a damaged cassette is listed like any other."""
    (tour.parent / "broken.yaml").write_text("interactions: 7")
    listed = {
        line.split()[0]: " ".join(line.split()[1:]) for line in cassette("list").stdout.splitlines()
    }

    assert listed["broken"] == "cannot be read 15 bytes cassettes/broken.yaml"
    assert re.fullmatch(r"4 \d+ \w+ \d{4} \d\.\d kB cassettes/tour.yaml", listed["tour"])
    assert listed["first-look"] == "102 21 November 2026 100.1 kB package"


def test_show_prints_a_line_for_each_interaction_or_one_in_full(tour):
    """Numbers start at 1; a long path is wrapped."""
    whole = cassette("show", "tour", 3).stdout
    lines = cassette("show", tour).stdout.splitlines()

    assert max(map(len, lines)) <= 80
    assert [line.split()[:4] for line in lines] == [
        ["number", "method", "path", "query"],
        ["1", "GET", "/v1/users/me", "200"],
        ["2", "GET", "/v1/users/me", "200"],
        ["3", "GET", "/v1/lists/8f14e45f", "page=2"],
        ["4", "POST", "/v1/letters", "201"],
    ]
    assert whole.startswith("GET https://api.example.test/v1/lists/8f14e45f?page=2\nAccept: */*\n")
    assert "404 OK after 0.042 s" in whole


def test_a_cassette_in_full_changes_in_one_line_if_a_field_did(tour):
    """git compares this text: no times, values that vary, or order of recording are in it."""
    before = cassette("show", "--full", "tour").stdout.splitlines()
    first, second, third, fourth = list(read_cassette(tour))
    headers = {**dict(second.response.headers), "X-RateLimit-Remaining": "7"}
    response = replace(second.response, headers=tuple(headers.items()), body=b'{"name":"Ann"}')
    later = replace(second, recorded_at=None, elapsed_s=9.0, response=response)
    tour.unlink()
    recorded(tour, third, first, later, fourth)
    after = cassette("show", "--full", "tour").stdout.splitlines()
    changed = list(difflib.unified_diff(before, after, n=0, lineterm=""))[3:]

    assert changed == ['-  "name": "Jo"', '+  "name": "Ann"']


def test_a_cassette_with_a_conflict_is_shown_to_git_as_it_is(tour):
    """Otherwise git could show no difference of any file."""
    text = tour.read_text()
    tour.write_text(f"<<<<<<< ours\n{text}")
    done = cassette("show", "--full", tour)

    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "<<<<<<< ours")


def test_the_hook_refuses_credentials_alone(tour):
    """A commit of a cassette or a notebook with a credential fails, one with an address not."""
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    words = hook["entry"].split()[1:]
    write_notebook("tour.ipynb", "api_key = 'Wy5Nf0PtA3oVi7KzQm2ExRj8'")
    refused = invoke(*words, tour, "tour.ipynb")

    assert cassette("audit", tour).exit_code == 1
    assert invoke(*words, tour).exit_code == 0
    assert refused.exit_code == 1
    assert refused.stdout.count("a key or password in api_key") == 1
    assert "e-mail address" not in refused.stdout
    for name in (
        "cassettes/tour.yaml",
        "tests/cassettes/a/b.json",
        "cassettes/a.har",
        "tour.ipynb",
    ):
        assert re.search(hook["files"], name)
    assert not re.search(hook["files"], "settings.yaml")


def test_audit_exits_with_1_until_nothing_is_left_to_redact(tour):
    write_notebook("leak.ipynb", f'dm.connect(key="{KEY}")')
    both = cassette("audit", "tour", "leak.ipynb")
    done = cassette("redact", "tour", "--redact", "personal")

    assert both.exit_code == 1
    assert "interaction 1, response body: 1 e-mail address, 1 name\n" in both.stdout
    assert "cell 2, source: a service's key" in both.stdout
    assert KEY not in both.output
    assert (done.exit_code, done.stdout) == (0, f"Changed {tour}.\n")
    assert cassette("audit", "tour").exit_code == 0


TOKEN = "tok_3f9aK2xQ9zLr7T"
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiI4ZjE0ZTQ1ZiJ9.c2lnbmF0dXJlLW9mLWl0"


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"note": f"api_token={TOKEN}", "email": "joe@corp.com"}),
        json.dumps([{"seen": {"value": JWT}, "email": "joe@corp.com", "again": f"/{JWT}"}]),
        f"email joe@corp.com, secret_key = '{TOKEN}'",
    ],
    ids=["JSON", "a JWT", "text"],
)
def test_what_the_audit_finds_as_a_credential_redact_removes(body):
    """It is removed wherever it is, and personal data stays."""
    path = recorded("found.yaml", answered(body=body), answered(body='{"next_page_token": "t2"}'))
    found = cassette("audit", path)
    done = cassette("redact", path)
    again = cassette("audit", path)
    text = path.read_text()

    assert re.search("a key or password in|a signed token", found.stdout)
    assert done.exit_code == 0
    assert again.stdout.startswith(f"{path}, interaction 1, response body: 1 e-mail address\n")
    assert "interaction 2" not in again.stdout
    for secret in (TOKEN, JWT):
        assert secret not in text
    assert "t2" in text


@pytest.mark.parametrize(
    "secret",
    [
        "-----BEGIN "
        + "PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "password = 'this-is-only-made-of-words'",
        "password = '123456789012'",
    ],
)
def test_all_that_the_audit_names_can_be_removed(secret):
    """All lines of a private key; and words and numbers, which no recording removes by itself."""
    path = recorded("found.yaml", answered(body=json.dumps({"text": secret, "then": 1})))
    found = cassette("audit", path)
    done = cassette("redact", path)

    assert found.exit_code == 1
    assert (done.exit_code, done.output) == (0, f"Changed {path}.\n")
    assert cassette("audit", path).exit_code == 0
    assert "MII" not in path.read_text()
    assert json.loads(next(iter(read_cassette(path))).response.body)["then"] == 1


def test_audit_does_not_count_what_is_to_stay():
    body = json.dumps([{"city": "Ede", "name": "Ann"}])
    path = recorded("people.yaml", answered(body=body))
    found = cassette("audit", path, "--keep", "city")

    assert found.stdout.startswith(f"{path}, interaction 1, response body: 1 name\n")
    assert cassette("audit", path, "--keep", "city", "--keep", "name").exit_code == 0


@pytest.mark.parametrize("coding", ["br", "gzip", "lzma"])
def test_a_body_that_cannot_be_decompressed_is_named_and_redact_leaves_it_out(coding):
    """vcrpy records a compressed body unchanged."""
    start = b"\x1f\x8b\x08" if coding == "gzip" else b"\x00\x01"
    entry = {
        "request": {"method": "GET", "uri": "https://a.test/v1/x", "headers": {}, "body": None},
        "response": {
            "status": {"code": 200, "message": "OK"},
            "headers": {"Content-Encoding": [coding]},
            "body": {"string": start + b"\xffbroken"},
        },
    }
    path = Path("foreign.yaml")
    path.write_text(yaml.safe_dump({"version": 1, "interactions": [entry]}))
    found = cassette("audit", path)
    done = cassette("redact", path)

    assert "interaction 1, response body: it was not searched, since it is comp" in found.stdout
    assert (found.exit_code, done.exit_code) == (1, 0)
    assert cassette("audit", path).exit_code == 0


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935\nsize 12345\n"


def test_the_audit_reads_all_of_a_folder_that_may_have_a_credential(tour):
    """HAR files and notebooks, too; what it did not read, it names."""
    har = {"log": {"entries": [], "comment": KEY}}
    Path("suite/deep").mkdir(parents=True)
    Path("suite/deep/saved.HAR").write_text(json.dumps(har))
    write_notebook("suite/leak.ipynb", f"key = '{KEY}'")
    Path("suite/package.json").write_text('{"log": 1}')
    Path("suite/big.yaml").write_text(POINTER)
    done = cassette("audit", "suite")

    assert "saved.HAR: a service's key" in done.stdout
    assert "leak.ipynb, cell 2, source: a service's key" in done.stdout
    assert "suite/big.yaml was not searched: its content is in git-lfs." in done.output
    assert "in 2 files, and 1 file not searched." in done.output
    assert done.exit_code == 1


def test_what_was_not_read_is_no_all_clear():
    """A commit may contain a pointer of git-lfs, since that has nothing to leak."""
    Path("empty/cassettes").mkdir(parents=True)
    for words in (("audit", "empty"), ("redact", "empty")):
        assert "The folder empty has no cassette." in str(cassette(*words).exception)
    Path("empty/cassettes/big.yaml").write_text(POINTER)
    found, hook = (
        cassette("audit", "empty"),
        cassette("audit", "--secrets", "empty/cassettes/big.yaml"),
    )

    assert (found.exit_code, hook.exit_code) == (1, 0)
    for each in (found, hook):
        assert "big.yaml was not searched" in each.output
        assert "0 found in 0 files, and 1 file not searched." in each.output


def test_redact_spares_a_field_and_says_so():
    body = json.dumps({"address": {"city": "Ede", "zip": 1234}, "email": "joe@corp.com"})
    path = recorded("people.yaml", answered(body=body))
    done = cassette("redact", path, "--redact", "personal", "--keep", "address.city")
    got = json.loads(next(iter(read_cassette(path))).response.body)

    assert "people.yaml: As you asked, address.city was not replaced.\n" in done.stdout
    assert got["address"]["city"] == "Ede"
    assert got["address"]["zip"] != 1234
    assert got["email"].endswith("@example.invalid")


def test_a_damaged_cassette_is_not_called_clean(tour):
    """Only a person can repair a line that was edited. The audit searches its text."""
    tour.write_text(tour.read_text(encoding="utf-8").replace('"body": {', '"body": ', 1))
    repaired = cassette("repair", "tour")
    audited = cassette("audit", "tour")

    assert "line 4 cannot be read" in str(repaired.exception)
    assert "clean" not in repaired.output
    assert "tour.yaml is damaged" in audited.output
    assert audited.exit_code == 1


def test_repair_says_what_was_wrong(tour):
    """A clean cassette is unchanged; one whose recording was killed gets what its journal has."""
    clean = cassette("repair", "tour")
    with opened(tour) as recording:
        recording.record(answered(get("/left")))
        left = journal_of(tour).read_bytes()
        before = tour.read_bytes()
    tour.write_bytes(before)
    journal_of(tour).write_bytes(left)
    killed = cassette("repair", "tour")

    assert (clean.exit_code, clean.stdout) == (0, "tour is clean.\n")
    assert killed.exit_code == 0
    assert "1 interaction recovered" in killed.stdout
    assert read_cassette(tour).problem is None


@pytest.mark.usefixtures("tour")
def test_convert_writes_our_layout_alone():
    """``--force`` replaces a file."""
    har("mine.har", *read_cassette(Path("cassettes/tour.yaml")))
    done = cassette("convert", "./mine.har", "mine.yaml")
    again = cassette("convert", "./mine.har", "mine.yaml", "--force")

    assert "Wrote 4 interactions to mine.yaml.\n" in done.stdout
    assert (again.exit_code, read_cassette(Path("mine.yaml")).layout) == (0, "lines")
    for name in ("tour.har", "tour.json"):
        refused = cassette("convert", "tour", name)
        assert str(refused.exception).startswith("A recording is YAML.\nName it without .")
        assert not Path(name).exists()


def test_drift_exits_with_1_if_a_response_changed(account, live):
    """The reads are sent again with the environment's key; equal responses are no drift."""
    with live.record("mine"):
        live.me()
    same = invoke("drift", "mine")
    with account.fault(body='{"id": 7}'):
        changed = invoke("drift", "mine", "--ignore", "body:name")
    offline = invoke("drift", "mine", "--against", "first-look")

    assert (same.exit_code, same.stdout) == (0, "1 request sent. No difference.\n")
    assert changed.exit_code == 1
    assert re.search(r"^GET /v1/users/me +company +removed +1 of 1 ", changed.stdout, re.MULTILINE)
    assert " name " not in changed.stdout
    assert "1 request compared." in offline.stdout


# -- JupyterLab --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_demonstration_is_ready_to_sign_in(monkeypatch):
    """The user types nothing: the kernel's environment has the address and the key."""
    shown = []

    def run_instead(folder: Path, name: str, *_: object) -> None:
        notebook = read(folder / name)
        run(notebook, folder, environ=os.environ)
        shown.extend(cell.outputs for cell in notebook.cells if cell.cell_type == "code")

    monkeypatch.setattr(programs, "_run_jupyterlab", run_instead)
    for name in NOWHERE:
        monkeypatch.setenv(name, "")  # monkeypatch then restores what the command sets
    invoke("demo")
    kinds = [output.output_type for outputs in shown for output in outputs]

    assert "error" not in kinds
    assert kinds.count("display_data") + kinds.count("execute_result") >= 5


def test_lab_contacts_no_external_server(tmp_path):
    """The arguments switch off the news, update checks and the extension manager's listing."""
    given = programs.lab_arguments(tmp_path, "a.ipynb", None, no_browser=True)

    for switch in (
        "news_url=None",
        "check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "extension_manager=readonly",
    ):
        assert f"--LabApp.{switch}" in given


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "folder", "start"),
    [
        (["lab", "reports"], "reports", "/lab?token="),
        ([], "directmail-lab-tutorials", f"/lab/tree/notebooks/{tutorials.FIRST}?token="),
    ],
)
def test_the_lab_opens_a_folder_or_the_tutorials_and_prints_its_address_last(
    tmp_path, words, folder, start
):
    """JupyterLab already listens when the address is printed. No tutorials go to your folder."""
    reports = tmp_path / "reports"
    reports.mkdir()
    with started(tmp_path, *words, "--no-browser", "--port", "0") as process:
        printed = output_until(process, "?token=")
        address = printed.splitlines()[-1]
        response = httpx.get(address, timeout=300)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=300)

    assert f"Starting JupyterLab in {tmp_path / folder}; its address follows." in printed
    assert start in address
    assert response.status_code == 200
    assert "token=" not in rest
    assert list(reports.iterdir()) == []


# -- folders of vcrpy's cassettes --------------------------------------------------------------

SECRET = "Wy5Nf0PtA3oVi7KzQm2ExRj8"
ASKED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "header.yaml": ("GET", "/v1/users/me", {"auth": (KEY, "")}),
    "deep/body.yaml": ("POST", "/v1/letters", {"json": {"a": [{"sessionId": SECRET}]}}),
    "address.yml": ("GET", f"/v1/lists?session_id={SECRET}", {}),
    "as.json": ("GET", "/v1/lists", {"headers": {"X-Api-Key": SECRET}}),
    "plain.yaml": ("GET", "/v1/lists", {}),
    "test_without_a_path": ("GET", "/v1/users/me", {"headers": {"X-Api-Key": SECRET}}),
}


def ask(service: StandIn, name: str) -> dict[str, httpx.Response]:
    """Send a request of the suite under vcrpy, which replays or records its cassette."""
    method, target, options = ASKED[name]
    serializer = "json" if name.endswith(".json") else "yaml"
    with vcr.use_cassette(f"suite/{name}", serializer=serializer):
        return httpx.request(method, f"{service.base_url}{target}", **options)


@pytest.fixture
def suite(service: StandIn) -> dict[str, httpx.Response]:
    """Cassettes by vcrpy with a secret in each place, and their responses by name."""
    return {name: ask(service, name) for name in ASKED}


def contents(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.usefixtures("suite")
def test_the_audit_of_a_folder_has_a_line_for_each_finding():
    Path("suite/config.yaml").write_text("a: 1")
    plain = Path("suite/plain.yaml").read_text()
    Path("suite/merged.yaml").write_text(f"<<<<<<< ours\n{plain}")
    before = contents("suite")
    done = cassette("audit", "suite")

    assert contents("suite") == before
    assert done.exit_code == 1
    for said in (
        "suite/address.yml, interaction 1, address: a credential in a field",
        "suite/deep/body.yaml, interaction 1, request body: a credential in a field",
        "suite/header.yaml, interaction 1, request headers: credentials of HTTP Basic",
        "suite/as.json, interaction 1, request headers: a credential in a header",
        "suite/merged.yaml has a conflict",
        "found in 7 files.",
    ):
        assert said in done.output
    assert SECRET not in done.output


def test_redacting_a_folder_loses_no_response(suite, service):
    """The secrets are gone, and directmail_lab and vcrpy replay as before; JSON is refused."""
    Path("suite/config.yaml").write_text("a: 1")
    Path("suite/as.json").rename("suite/as_json")
    refused = cassette("redact", "suite")
    Path("suite/as_json").unlink()
    del suite["as.json"]
    second = cassette("redact", "suite")
    again = cassette("audit", "suite", "--secrets")
    service.close()

    assert refused.stdout.count("Changed suite/") == len(suite)
    assert str(refused.exception).startswith("suite/as_json is not YAML, so it cannot be redacted.")
    assert second.stdout == f"Nothing to change in {len(suite)} files.\n"
    assert again.exit_code == 0
    whole = b"".join(contents("suite").values())
    assert not traces(whole, KEY) + traces(whole, SECRET)
    for name, answer in suite.items():
        method, target, options = ASKED[name]
        with dm.replay(Path("suite") / name, repeat="strict"):
            client = dm.session().client
            ours = client.request(method, f"{service.base_url}{target}", **options)
        theirs = answer if name == "address.yml" else ask(service, name)
        wholes = [(each.status_code, each.content) for each in (ours, theirs, answer)]

        assert wholes == wholes[:1] * 3


@pytest.mark.posix("links")
@pytest.mark.usefixtures("suite")
def test_redacting_a_folder_leaves_what_is_outside_of_it_and_keeps_permissions(tmp_path):
    """A link out of the folder is not followed; a file that cannot be changed stops no other."""
    elsewhere, plain = tmp_path / "elsewhere", Path("suite/plain.yaml")
    elsewhere.write_bytes(plain.read_bytes())
    for name in ("test_link", "link.yaml"):
        Path("suite", name).symlink_to(elsewhere)
    plain.chmod(0o640)
    Path("suite/address.yml").write_text("interactions: 7")
    before = contents("suite")
    done = cassette("redact", "suite")
    changed = {name for name, data in contents("suite").items() if before[name] != data}

    assert "suite/address.yml is not a cassette" in str(done.exception)
    assert changed == {f"suite/{name}" for name in ASKED} - {"suite/address.yml", "suite/as.json"}
    assert plain.stat().st_mode & 0o777 == 0o640


# -- other machines ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "cp932"])
def test_output_to_a_file_is_utf_8_on_every_machine(encoding):
    """On Windows, Python would use the code page, which lacks most letters."""
    words = ["cassette", "show", "--full", "first-look"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    ran = subprocess.run([*COMMAND, *words], capture_output=True, env=environment)

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.decode("utf-8").replace("\r\n", "\n") == invoke(*words).stdout


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudoterminals of the os module")
def test_a_terminal_gets_replacement_characters():
    """A character that the terminal's encoding lacks does not end the command."""
    ours, terminal = os.openpty()
    environment = {**os.environ, "PYTHONIOENCODING": "cp932", "PYTHONUTF8": "0"}
    command = [*COMMAND, "cassette", "show", "first-look", "1"]
    ran = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, env=environment)
    printed = os.read(ours, 10_000)
    os.close(ours)
    os.close(terminal)

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b'"Z?rich"' in printed


def test_a_bug_does_not_exit_with_1(monkeypatch):
    """Exit code 1 says that a command found something."""
    monkeypatch.setattr("sys.argv", ["directmail-lab", "drift", "first-look"])
    monkeypatch.setattr(dm, "drift", lambda *_, **__: 1 / 0)
    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 2
