"""A suite that replays where directmail_lab is installed without its dependencies.

`.ci/run` runs it in an environment with the packages that the README names, and nothing else.
"""

import subprocess
import sys
import urllib.request

import httpx
import pytest

import directmail_lab as dm

BODY = b'{"name": "Ada"}'


@pytest.fixture
def directmail_cassette():
    """All tests replay the same cassette."""
    return "account.yaml"


def test_the_fixture_replays_with_its_client(directmail):
    """The client of the session gets the recorded response."""
    assert directmail.get("/v1/users/me").content == BODY


@pytest.mark.directmail(patch=True)
def test_a_client_that_the_code_makes_itself_replays(directmail):
    """Such a client gets the recorded response."""
    assert httpx.get("https://api.example.test/v1/users/me").content == BODY


def test_a_server_replays_for_other_programs(directmail_server):
    """Any program gets the recorded response from a local server."""
    with urllib.request.urlopen(f"{directmail_server}/v1/users/me") as response:
        assert response.read() == BODY


@pytest.mark.parametrize(
    "call",
    [
        lambda: dm.session().me(),
        lambda: dm.me(),
        lambda: dm.login(),
        lambda: dm.browse(),
        lambda: dm.monitor(),
        lambda: dm.rate_limits(),
        lambda: dm.findings(),
        lambda: dm.frame({}),
        lambda: dm.chart_rate_limits(),
    ],
)
def test_what_needs_more_says_what_to_install(directmail, call):
    """A call that needs a package which is not installed names it; below is what to do."""
    with pytest.raises(dm.errors.MissingPackageError) as caught:
        call()

    assert str(caught.value).endswith("pip install directmail-lab.")
    assert str(caught.value).count("\n") <= 1


def test_help_needs_nothing_more(capsys):
    """The package's help lists the calls, and that of a call says what to install."""
    help(dm)
    help(dm.monitor)

    first, second = capsys.readouterr().out.split("Help on function monitor")
    assert "rate_limits()" in first
    assert "pip install directmail-lab." in second


@pytest.mark.parametrize("words", [["me"], ["lab"], ["share", "tour.ipynb"], ["cassette", "list"]])
def test_the_command_says_what_to_install(words):
    """The command prints two lines, and exits with 2."""
    ran = subprocess.run(
        [sys.executable, "-m", "directmail_lab", *words], capture_output=True, text=True
    )

    assert ran.returncode == 2
    assert ran.stderr.count("\n") <= 2
    assert "pip install directmail-lab" in ran.stderr
