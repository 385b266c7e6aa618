"""``directmail-lab cassette …``: what each command prints, and the exit code it ends with."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from directmail_lab.cassettes import read_cassette
from directmail_lab.cli import app, main
from directmail_lab.errors import CassetteError

if TYPE_CHECKING:
    from click.testing import Result

    from directmail_lab.sessions import Session
    from directmail_lab.standin import StandIn

ROOT = Path(__file__).parent.parent
# Put together here, so that no scanner takes this file for a leak.
KEY = "dm_" + "live_" + "8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"


def run(*words: object) -> Result:
    """Run a command; a deliberate error comes out as `directmail_lab.cli.main` gets it."""
    return CliRunner().invoke(app, ["cassette", *map(str, words)])


def test_list_names_each_cassette_and_what_is_wrong_with_it(tour: Path) -> None:
    """As JSON; a file that is none is a line, not the end of the list."""
    (tour.parent / "broken.yaml").write_text("interactions: 7")
    done = run("list", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}

    assert done.exit_code == 0
    assert (rows["tour"]["interactions"], rows["tour"]["layout"]) == (4, "lines")
    assert rows["tour"]["problem"] is None
    assert "broken" in rows["broken"]["problem"]


def test_show_prints_a_line_for_each_interaction(tour: Path) -> None:
    """As a table, JSON and CSV: the same rows, numbered from 1."""
    table, as_json, as_csv = (
        run("show", "tour"),
        run("show", tour, "--json"),
        run("show", "tour", "--csv"),
    )
    rows: list[dict[str, Any]] = json.loads(as_json.stdout)

    assert [done.exit_code for done in (table, as_json, as_csv)] == [0, 0, 0]
    assert [(row["number"], row["path"], row["status"]) for row in rows] == [
        (1, "/v1/users/me", 200),
        (2, "/v1/users/me", 200),
        (3, "/v1/lists/8f14e45f", 404),
        (4, "/v1/letters", 201),
    ]
    assert rows[0]["at"] == "2026-11-21T12:00:00.123456Z"
    assert [row["query"] for row in csv.DictReader(io.StringIO(as_csv.stdout))][2] == "page=2"
    assert "/v1/users/me" in table.stdout


def test_show_of_one_number_prints_it_in_full(tour: Path) -> None:
    """The request, the answer, their headers and bodies; a number that is not there is refused."""
    done = run("show", "tour", "--number", 3)

    assert done.exit_code == 0
    assert done.stdout.startswith(
        "GET https://api.example.test/v1/lists/8f14e45f?page=2\nAccept: */*\n"
    )
    assert "404 OK after 0.042 s" in done.stdout
    assert run("show", "tour", "-n", 1, "--json").exit_code == 2
    assert isinstance(run("show", "tour", "-n", 5).exception, CassetteError)


def test_audit_exits_with_1_where_it_finds_anything(tour: Path) -> None:
    """A planted key, personal data, and with --secrets-only not the latter; it repeats neither."""
    leaking = Path("leak.ipynb")
    cell = {"cell_type": "code", "source": f'key = "{KEY}"', "outputs": []}
    leaking.write_text(json.dumps({"cells": [cell], "metadata": {}}))
    both = run("audit", "tour", leaking)

    assert both.exit_code == 1
    assert "interaction 1, response body: an e-mail address" in both.stdout
    assert "cell 1, source: a service's key" in both.stdout
    assert KEY not in both.output
    assert run("audit", "tour", "--secrets-only").exit_code == 0
    assert run("audit", leaking, "--secrets-only").exit_code == 1


def test_audit_passes_the_tutorials() -> None:
    """Their cassettes and notebooks are what everyone is given."""
    files = [*(ROOT / "notebooks").glob("*.ipynb")]
    names = ("first-look", "rate-limits", "record-and-replay", "test-with-recordings")
    files += [ROOT / "cassettes" / f"{name}.yaml" for name in names]
    done = run("audit", *files)

    assert (done.exit_code, done.stdout) == (0, "")


def test_redact_takes_personal_data_and_named_fields(tour: Path) -> None:
    """The audit passes afterwards; a second time changes nothing."""
    done = run("redact", "tour")

    assert (done.exit_code, done.stdout) == (0, "Changed 2 interactions of tour.\n")
    assert run("audit", "tour").exit_code == 0
    assert run("redact", "tour", "-r", "personal").stdout == "Changed 0 interactions of tour.\n"


def test_repair_says_what_was_wrong(tour: Path) -> None:
    """A clean cassette stays as it is; of a torn one every whole interaction is kept."""
    tour.write_text(tour.read_text().replace("application/json", "text/plain"))
    run("repair", "tour")
    clean = run("repair", "tour")
    tour.write_bytes(tour.read_bytes()[:-120])
    torn = run("repair", "tour")

    assert (clean.exit_code, clean.stdout) == (0, "tour is clean.\n")
    assert torn.exit_code == 0
    assert "3 interactions recovered" in torn.stdout
    assert read_cassette(tour).problem is None


def test_convert_writes_another_layout_and_replaces_nothing_unasked(tour: Path) -> None:
    """The layout is that of the name, or the one given."""
    target = Path("tour.har")
    done = run("convert", "tour", target)

    assert (done.exit_code, done.stdout) == (0, "Wrote 4 interactions to tour.har.\n")
    assert json.loads(target.read_text())["log"]["version"] == "1.2"
    assert isinstance(run("convert", "tour", target).exception, CassetteError)
    assert run("convert", "tour", target, "--force", "--to", "vcrpy").exit_code == 0
    assert target.read_text().startswith("interactions:")
    assert run("convert", "tour", "other.txt", "--to", "word").exit_code == 2


def test_verify_exits_with_1_where_an_answer_changed(
    service: StandIn, live: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are sent again with the key of the environment; the same answers are nothing."""
    with live.record("mine"):
        live.me()
    monkeypatch.setenv("DIRECTMAIL_API_KEY", service.api_key)
    monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
    same = run("verify", "mine")
    with service.fault(body='{"id": 7}', headers={"Content-Type": "application/json"}):
        changed = run("verify", "mine", "--json")

    assert (same.exit_code, same.stdout) == (
        0,
        "1 request sent, all answered as recorded.\n",
    )
    assert changed.exit_code == 1
    assert len(json.loads(changed.stdout)) > 0


@pytest.mark.parametrize("command", ["show", "audit", "redact", "repair", "convert"])
def test_a_cassette_that_is_not_there_could_not_be_done(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message and exit code 2, no traceback; so is a command without its cassette."""
    more = ["out.har"] if command == "convert" else []
    monkeypatch.setattr(sys, "argv", ["directmail-lab", "cassette", command, "nowhere", *more])
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("directmail-lab: ")
    assert run(command).exit_code == 2


def test_json_and_csv_at_once_are_refused(tour: Path) -> None:
    """No one can read both."""
    assert run("show", "tour", "--json", "--csv").exit_code == 2
