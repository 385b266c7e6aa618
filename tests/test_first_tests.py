"""`directmail-lab cassette test`: the file passes at once, and fails if a field is renamed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cassette_samples import BASE_URL, answered, get, letter, recorded, theirs
from typer.testing import CliRunner

from directmail_lab.cassettes import read_cassette
from directmail_lab.cli import app
from directmail_lab.cli.first_tests import fields, first_tests

RECORD = b'{"data": [{"id": 7, "first_name": "Ann", "none": null}, {"ratio": 0.5}], "more": []}'
LONG = f"/v1/others?after={'x' * 60}"
FILE = Path("test_tour.py")


@pytest.fixture
def tour() -> Path:
    """A cassette with reads, a write, failures, and what must not be in a test."""
    Path("cassettes").mkdir()
    page = answered(get("/v1/lists"), RECORD)
    private = answered(get("/v1/contacts?email=ann@firm.de"), RECORD)
    cut = answered(get("/v1/cut"), RECORD)
    return theirs(
        "cassettes/tour.yaml",
        page,
        answered(get("/v1/lists"), "7"),
        answered(get(LONG), "7"),
        answered(get("/v1/lists/1"), '{"a": 1}', status=404),
        answered(get("/v1/it's"), '{"ann@firm.de": 1, "it\'s": "x", "say \\"\\"": true}'),
        answered(get("/v1/text"), "<p>"),
        answered(get("/v1/busy"), "{}", status=429),
        answered(get("/v1/down"), "{}", status=503),
        replace(cut, response=replace(cut.response, cut="read_error")),
        private,
        letter("Ann"),
    )


@pytest.fixture
def replayed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run tests in a file, with this plugin alone."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def replayed(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_tour=text)
        loaded = ("-pdirectmail_lab", "-p", "no:cacheprovider", "-W", "ignore:Module already")
        return pytester.runpytest("-W", "error", *loaded, *options)

    return replayed


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["cassette", "test", *map(str, words)])


def test_the_file_passes_at_once_and_sees_a_renamed_field_and_a_changed_type(replayed, tour):
    """An added field is none."""
    text = run("tour").stdout
    replayed(text).assert_outcomes(passed=5)
    recording = read_cassette(tour)
    for old, new, missing in (
        (b'"id"', b'"added": 1, "id"', None),
        (b'"id"', b'"number"', "data[].id: number"),
        (b'"first_name": "Ann"', b'"first_name": 5', "data[].first_name: str"),
        (b'"none"', b'"some"', "data[].none"),
    ):
        changed = [
            replace(
                each, response=replace(each.response, body=each.response.body.replace(old, new))
            )
            for each in recording
        ]
        theirs(tour, *changed)
        result = replayed(text, "-k", "test_get_v1_lists")

        failed = int(missing is not None)
        result.assert_outcomes(passed=2 - failed, failed=failed, deselected=3)
        if missing:
            result.stdout.fnmatch_lines([f"*'{missing.replace('[', '[[]')}'*"])


@pytest.mark.usefixtures("tour")
def test_the_file_has_no_value_and_says_what_is_left_out():
    text = run("tour").stdout

    assert "Ann" not in text
    assert "firm.de" not in text
    assert "# Left out: interactions 7-11. They are" in text
    assert '        "data[].first_name: str",\n        "data[].id: number",\n' in text


@pytest.mark.usefixtures("tour")
def test_the_file_is_formatted_as_ruff_does():
    run("tour", "--to", FILE)
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--check", FILE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_exists_is_kept_and_a_folder_gets_a_file_for_each_cassette(tour):
    FILE.write_text("mine")
    refused = run("tour", "--to", FILE)
    recorded(tour.with_name("other-tour.yaml"), answered())
    tour.with_name("a-broken.yaml").write_text("interactions:\n- 1\n")
    Path("suite").mkdir()
    done = run("cassettes", "--to", "suite")

    assert "test_tour.py already exists." in str(refused.exception)
    assert FILE.read_text() == "mine"
    assert "a-broken.yaml is not a cassette" in str(done.exception)
    assert [each.name for each in sorted(Path("suite").iterdir())] == [
        *("test_other_tour.py", "test_tour.py")
    ]
    assert 'directmail(cassette="other-tour")' in Path("suite/test_other_tour.py").read_text()


def test_a_map_of_many_names_gives_its_first_fields(replayed):
    Path("cassettes").mkdir()
    many = {f"name-{chr(97 + n % 26)}{'x' * (n // 26)}": {"price": n} for n in range(5_000)}
    path = recorded("cassettes/tour.yaml", answered(get("/v1/prices"), json.dumps(many)))
    text = first_tests(read_cassette(path), "tour")

    replayed(text).assert_outcomes(passed=1)
    assert "    # The first 500 fields:\n    assert" in text
    assert text.count(".price: number") == 500


def test_a_recording_of_several_services_has_tests_of_each(replayed):
    """vcrpy's cassettes have no service address. What is asked first is played first."""
    Path("cassettes").mkdir()
    elsewhere = get("/v1/lists", base="https://other.test:8443/eu")
    path = theirs("cassettes/both.yaml", answered(get("/v1/lists")), answered(elsewhere, "[1]"))
    text = first_tests(read_cassette(path), "both")

    replayed(text).assert_outcomes(passed=2)
    assert 'directmail.get("https://other.test:8443/eu/v1/lists")' in text
    assert BASE_URL not in text


def test_fields_are_the_paths_of_a_body_with_their_types():
    assert fields([{"a": {"b.c": True}, "n": 1}, {"n": 1.5, "x": None}]) == {
        *("", "[]", "[].a", "[].a.b.c", "[].a.b.c: bool", "[].n", "[].n: number", "[].x")
    }
