"""The commands that print data: as a table, JSON or CSV, with exit codes that scripts can use."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from typer.testing import CliRunner

from directmail_lab.cli import app
from directmail_lab.errors import DirectMailLabError
from directmail_lab.standin import stand_in

if TYPE_CHECKING:
    from directmail_lab.standin import StandIn

RUN = CliRunner()


@pytest.mark.parametrize("command", ["me", "rate-limits", "check", "findings"])
def test_a_cassettes_data_is_printed_as_json_csv_and_a_table(command: str) -> None:
    """The three forms hold the same rows; JSON and CSV parse."""
    as_json = RUN.invoke(app, [command, "--cassette", "first-look", "--json"])
    as_csv = RUN.invoke(app, [command, "--cassette", "first-look", "--csv"])
    table = RUN.invoke(app, [command, "--cassette", "first-look"])

    rows = json.loads(as_json.stdout)
    assert [as_json.exit_code, as_csv.exit_code, table.exit_code] == [0, 0, 0]
    assert len(rows) == len(list(csv.DictReader(io.StringIO(as_csv.stdout)))) > 0
    assert list(rows[0]) == as_csv.stdout.splitlines()[0].split(",")
    assert str(rows[0].get("path") or next(iter(rows[0].values()))) in table.stdout


def test_both_forms_at_once_are_a_usage_error() -> None:
    """--json with --csv exits with 2."""
    assert RUN.invoke(app, ["me", "--cassette", "first-look", "--json", "--csv"]).exit_code == 2


def test_a_value_stays_as_it_came() -> None:
    """A leading zero, a null and an accent survive the way through JSON."""
    (row,) = json.loads(RUN.invoke(app, ["me", "--cassette", "first-look", "--json"]).stdout)

    assert row["company.address.postcode"] == "01234"
    assert row["company.address.city"] == "Zürich"
    assert row["phone"] is None
    assert row["permissions"] == ["read", "write"]


def test_the_live_service_is_asked_where_no_cassette_is_named(account: StandIn) -> None:
    """The environment's address and key are used, one request each."""
    me = RUN.invoke(app, ["me", "--json"])
    limits = RUN.invoke(app, ["rate-limits", "--json"])

    assert json.loads(me.stdout)[0]["name"] == "Stand-in User"
    assert [row["remaining"] for row in json.loads(limits.stdout)][-1] == 298
    assert account.requests["GET /v1/users/me"] == 2


def test_a_violated_rule_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a header is missing, `check` says so, and a script can tell."""
    with stand_in() as service, service.fault(headers={"X-RateLimit-Reset": None}):
        monkeypatch.setenv("DIRECTMAIL_BASE_URL", service.base_url)
        monkeypatch.setenv("DIRECTMAIL_API_KEY", service.api_key)
        checked = RUN.invoke(app, ["check", "--json"])

    assert checked.exit_code == 1
    assert "violated" in [row["verdict"] for row in json.loads(checked.stdout)]


@pytest.mark.parametrize("command", ["me", "rate-limits", "check", "findings"])
def test_a_cassette_may_be_named_as_a_file(command: str, tour: Path) -> None:
    """Wherever it lies: as `cassette show` takes it."""
    elsewhere = tour.rename(tour.parent.parent / "moved.yaml")

    assert RUN.invoke(app, [command, "--cassette", str(elsewhere)]).exit_code in (0, 1)


def test_share_makes_one_zip_and_never_replaces_one_unasked() -> None:
    """The notebook and its cassette are in it; a second time needs --force."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("import directmail_lab as dm\ndm.replay('first-look')")]
    )
    nbformat.write(notebook, "tour.ipynb")
    first = RUN.invoke(app, ["share", "tour.ipynb", "--to", "tour.zip"])
    again = RUN.invoke(app, ["share", "tour.ipynb", "--to", "tour.zip"])
    forced = RUN.invoke(app, ["share", "tour.ipynb", "--to", "tour.zip", "--force"])

    names = zipfile.ZipFile("tour.zip").namelist()
    assert (first.exit_code, forced.exit_code) == (0, 0)
    assert isinstance(again.exception, DirectMailLabError)
    assert any(name.endswith("tour.ipynb") for name in names)
    assert any(name.endswith("first-look.yaml") for name in names)


def test_share_refuses_a_notebook_with_a_secret() -> None:
    """It says where the secret is, does not repeat it, and writes nothing."""
    secret = "sk-live_4fQ9zLr7TtVb3nWm5YcHs1p"
    cell = nbformat.v4.new_code_cell(f"api_key = {secret!r}")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), "leaky.ipynb")
    refused = RUN.invoke(app, ["share", "leaky.ipynb", "--to", "leaky.zip"])

    assert "leaky.ipynb" in str(refused.exception)
    assert secret not in f"{refused.exception}{refused.output}"
    assert not Path("leaky.zip").exists()
