"""What our Jupyter server extension returns, to whom, and what it never returns."""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import nbformat
import pytest
from browser.jupyter import Server, free_port, started
from cassette_samples import answered, get, recorded, theirs

import directmail_lab
from directmail_lab import jupyter
from directmail_lab.notebook.browser_data import Row
from directmail_lab.share.tutorials import first_tutorial

pytestmark = pytest.mark.slow  # a Jupyter server starts

Ask = Callable[[str, object], httpx.Response]

TOKEN = "token-of-the-jupyter-server"
KEY = "hk_live_Zx81kQ0pLm27Vt"  # no words, which are kept
LIST = {"action": "list", "first": 1, "limit": 100}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Jupyter server that needs a token, with a recording in its folder."""
    home = tmp_path_factory.mktemp("jupyter")
    work = home / "work"
    recorded(work / "cassettes" / "tour.yaml", *[answered(body=f'{{"n": {n}}}') for n in range(30)])
    arguments = ("--no-browser", "--allow-root", f"--IdentityProvider.token={TOKEN}")
    # JupyterLab itself is not needed, and takes twice as long to start.
    port = f"--port={free_port()}"
    with started(home, "jupyter_server", *arguments, port, at=work) as server:
        yield server


def call(server: Server, verb: str, name: str, **parameters: str) -> httpx.Response:
    headers = {"Authorization": f"token {TOKEN}"}
    url = f"{server.url}/directmail-lab/{name}"
    return httpx.request(verb, url, params=parameters, headers=headers, timeout=60)


@pytest.fixture
def ask(server: Server) -> Ask:
    get_ = partial(call, server, "GET", "recording")
    return lambda path, request: get_(path=path, request=json.dumps(request))


@pytest.mark.parametrize("method", ["GET recording", "POST explore", "POST tutorials"])
@pytest.mark.parametrize("headers", [{}, {"Authorization": "token wrong"}], ids=["no", "wrong"])
def test_a_request_without_the_servers_token_gets_403(server, method, headers):
    verb, name = method.split()
    before = set(server.notebooks.iterdir())
    address = f"{server.url}/directmail-lab/{name}?path=cassettes/tour.yaml&request=1"
    with httpx.Client(headers=headers, timeout=60) as client:
        client.get(f"{server.url}/login")  # without this cookie, every POST is refused
        known = {"X-XSRFToken": client.cookies["_xsrf"]}
        response = client.request(verb, address, headers=known)

    assert response.status_code == 403
    assert "users" not in response.text
    assert set(server.notebooks.iterdir()) == before


@pytest.mark.parametrize("name", ["plugin.js", "browser.js", "browser.css"])
def test_only_signed_in_users_get_the_front_end(server, name):
    """Others are redirected to the login page."""
    address = f"{server.url}/directmail-lab/{name}"
    response = call(server, "GET", name)
    media_type = "text/css" if name.endswith("css") else "text/javascript"

    assert response.headers["content-type"] == f"{media_type}; charset=utf-8"
    assert len(response.text) > 1000
    assert httpx.get(address, timeout=60).status_code == 302


def test_a_recording_is_sent_in_parts(ask):
    part = ask("cassettes/tour.yaml", LIST | {"first": 29}).json()["response"]
    detail = ask("cassettes/tour.yaml", {"action": "detail", "number": 8}).json()

    assert part["total"] == 30
    rows = [Row(*values) for values in part["rows"]]
    assert [(row.number, row.path, row.status) for row in rows] == [
        (number, "/v1/users/me", 200) for number in (29, 30)
    ]
    assert base64.b64decode(detail["buffers"][1]) == b'{"n": 7}'
    assert ask("cassettes/tour.yaml", None).json()["response"]["problem"].endswith(".")


@pytest.mark.posix("links")
def test_no_path_leads_out_of_the_servers_folder(server, ask):
    outside = server.home / "outside.yaml"
    recorded(outside, answered())
    recorded(server.notebooks / ".hidden" / "cassettes" / "tour.yaml", answered())
    for link, target in (
        ("link.yaml", outside),
        ("folder", server.home),
        ("hidden.yaml", server.notebooks / ".hidden" / "cassettes" / "tour.yaml"),
        ("nowhere.yaml", server.home / "nowhere"),
        ("itself.yaml", server.notebooks / "itself.yaml"),
    ):
        (server.notebooks / link).symlink_to(target)
    paths = [
        *("../outside.yaml", "cassettes/../../outside.yaml", str(outside), "link.yaml"),
        *("folder/outside.yaml", ".hidden/cassettes/tour.yaml", "hidden.yaml", "nowhere.yaml"),
        *("itself.yaml", "cassettes", "", "not-there.yaml", "nul\0.yaml", "x" * 3000),
    ]
    answers = [ask(path, LIST) for path in paths]

    assert {each.status_code for each in answers} == {404}
    assert {each.text for each in answers} == {answers[0].text}
    assert answers[0].json()["message"] == "There is no such file in the server's folder."


@pytest.mark.parametrize(
    ("name", "text", "status"),
    [
        ("notes.yaml", "a: 1", 415),
        ("object.yaml", "interactions: !!python/object/apply:os.system [id]", 415),
        ("broken.har", "{", 422),
    ],
)
def test_a_file_that_is_not_a_recording_gets_415_or_422(server, ask, name, text, status):
    """With 415 the front end opens the file as text. The error names the file, not its folder."""
    (server.notebooks / "cassettes" / name).write_text(text)
    response = ask(f"cassettes/{name}", LIST)

    assert response.status_code == status
    assert str(server.home) not in response.text


def test_a_change_of_the_file_is_seen(server, ask):
    """The server caches recordings, and must notice that a file changed."""
    path = server.notebooks / "grows.yaml"
    recorded(path, answered())
    before = ask("grows.yaml", LIST).json()
    recorded(path, answered(), answered(get("/v1/lists")))
    after = ask("grows.yaml", LIST).json()

    assert (before["response"]["total"], after["response"]["total"]) == (1, 2)
    assert before["version"] != after["version"]


def test_credentials_of_another_program_are_in_no_response_and_no_log(server, ask):
    """The log contains no value of a recording either, even at debug level."""
    request = replace(get("/v1/x"), headers=(("Authorization", f"Bearer {KEY}"),))
    body = f'{{"echo": "{KEY}", "name": "value-of-a-body"}}'
    foreign = theirs(server.notebooks / "foreign.yaml", answered(request, body), as_json=True)
    detail = ask("foreign.yaml", {"action": "detail", "number": 1})
    texts = [
        detail.text,
        base64.b64decode(detail.json()["buffers"][1]).decode(),
        ask("foreign.yaml", {"action": "copy", "number": 1, "format": "curl"}).text,
    ]
    foreign.write_text(foreign.read_text().replace('"code": 200', f'"code": "{KEY}"'))
    texts.append(ask("foreign.yaml", LIST).text)
    log = server.log.read_text()

    assert "value-of-a-body" in texts[1]
    assert not any(KEY in text for text in texts)
    assert "foreign.yaml" in log
    assert not any(value in log for value in (KEY, "value-of-a-body"))


def test_a_new_notebook_signs_in_records_and_opens_the_explorer(server):
    """Each has a cassette of its own, so that two can be open at the same time."""
    (server.notebooks / "mine").mkdir()
    paths = [call(server, "POST", "explore", folder="mine").json()["path"] for _ in range(2)]
    notebook = nbformat.read(server.notebooks / paths[1], 4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    nbformat.validate(notebook)

    assert paths == ["mine/explore-direct-mail.ipynb", "mine/explore-direct-mail-1.ipynb"]
    assert code[:2] == [
        "import directmail_lab as dm\n\ndm.login()",
        'dm.record("explore-direct-mail-1")',
    ]
    assert [each.partition("(")[0] for each in code[2:]] == [
        *("dm.me", "dm.browse", "dm.rate_limits", "dm.chart_rate_limits")
    ]


@pytest.mark.parametrize("folder", ["../above", ".hidden", "not-there", "cassettes/tour.yaml"])
def test_a_notebook_is_not_created_in_an_outside_hidden_or_missing_folder(server, folder):
    (server.notebooks / ".hidden").mkdir(exist_ok=True)
    response = call(server, "POST", "explore", folder=folder)

    assert response.status_code == 404
    assert str(server.home) not in response.text


def test_the_tutorials_are_copied_to_the_servers_folder(server):
    path = call(server, "POST", "tutorials").json()["path"]

    assert path == "directmail-lab-tutorials/notebooks/01-first-look.ipynb"
    assert (server.notebooks / path).is_file()
    assert call(server, "POST", "tutorials").json()["path"] == path


@pytest.mark.posix("links")
def test_the_tutorials_are_not_copied_through_a_link(tmp_path):
    """A symlink could lead the copy out of the server's folder."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "directmail-lab-tutorials").symlink_to(tmp_path / "outside")

    with pytest.raises(ValueError, match="not in the subpath"):
        first_tutorial(tmp_path / "root")
    assert not list((tmp_path / "outside").iterdir())


def test_the_labextension_is_of_this_version():
    package = Path(jupyter.__path__[0], "labextension", "package.json")

    assert json.loads(package.read_text())["version"] == directmail_lab.__version__
