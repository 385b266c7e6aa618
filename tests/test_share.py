"""Sharing: the audit finds secrets and personal data, and the zip contains what a reader needs."""

import gzip
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import warnings
import zipfile
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
import pytest
from cassette_samples import (
    BASE_URL,
    answered,
    get,
    har,
    opened,
    recorded as write_cassette,
    theirs,
)
from IPython.core.ultratb import VerboseTB
from key_search import traces
from marks import rest_slow
from nbclient import NotebookClient
from tutorials import RECORDINGS

from directmail_lab import Session, __version__, connect
from directmail_lab.cassettes import read_cassette
from directmail_lab.cassettes.convert import redact
from directmail_lab.credentials import ApiKey
from directmail_lab.errors import DirectMailLabError, NotebookRunError
from directmail_lab.exchange.values import Interaction, Request
from directmail_lab.notebook.login import LoginWidget, SignInRequest
from directmail_lab.redaction.key import KeySearch
from directmail_lab.server.standin import STAND_IN_KEY, StandIn
from directmail_lab.share import package_files as package_files_module
from directmail_lab.share.audit import Finding, audit, find
from directmail_lab.share.package_files import package_files
from directmail_lab.share.packing import share

# Not `me`, for which each kernel would import pandas.
REPLAY = """\
import directmail_lab as dm
dm.replay('shared-tour')
name = dm.get('/v1/users/me').json()['name']"""


def notebook(path: str, *sources: str, **member: Any) -> Path:
    """Write a notebook; a source after a space is Markdown, and the last cell gets ``member``."""
    cells: list[dict[str, Any]] = []
    for source in sources:
        cell = {"cell_type": "code", "outputs": [], "execution_count": None}
        if source.startswith(" "):
            cell = {"cell_type": "markdown"}
        cells.append({**cell, "metadata": {}, "source": source.strip()})
    cells[-1] |= member
    whole = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    file = Path(path).resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(whole))
    return file


@pytest.fixture
def tour(service: StandIn) -> Path:
    """A cassette named shared-tour, where a notebook in this folder finds it."""
    path = Path("cassettes/shared-tour.yaml").resolve()
    with Session(service.base_url, ApiKey(service.api_key)) as session:
        session.record(path)
        session.me()
    return path


@pytest.fixture(autouse=True)
def a_small_wheel_if_no_test_looks_into_it(request: pytest.FixtureRequest) -> None:
    """The slow tests and those of a checkout install or build it."""
    is_slow = request.node.get_closest_marker("slow") is not None
    if "own_checkout" not in request.fixturenames and not is_slow:
        request.getfixturevalue("small_wheel")


def zipped(*notebooks: Path, **options: Any) -> dict[str, bytes]:
    """Share the notebooks without running them; return the zip's files by their path."""
    with zipfile.ZipFile(share(notebooks, "tour.zip", run=False, **options)) as packed:
        return {name.removeprefix("tour/"): packed.read(name) for name in packed.namelist()}


# -- what the audit finds ----------------------------------------------------------------------

# Concatenated, so that secret scanners do not report this file.
KEY = "dm_" + "live_" + "8fK2xQ9zLr7TtVb3nWm5YcHs1pAe"
BASIC = "Basic " + b64encode(f"{KEY}:".encode()).decode()

ODD = "hk_8fK2xQ9zLr7TtVb3nW"

SECRETS = [
    KEY,
    BASIC,
    '{\\"api_key\\": \\"3f9a77c1e2\\"}',
    "password = 'hunter2-hunter2'",
    "Bearer 3f9a77c1e2d84b0fa1",
    "-----BEGIN RSA " + "PRIVATE KEY-----",
    "ghp_" + "a1B2" * 9,
    "test_" + "0123456789abcdef" * 2,
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    'connect(\n    os.environ.get("URL"),\n    "¤",\n)',
    "token: str = f'¤'",
    "{&#x27;key&#x27;: &#x27;¤&#x27;}",
    "os.environ['DIRECTMAIL_API_KEY'] = '¤'",
    "%env DIRECTMAIL_API_KEY ¤",
    "auth=('¤', '')",
    "password: ¤",
    "https://¤@api.test/v1",
    "directmail --api-key ¤",
    "<apiKey>¤</apiKey>",
    "name     Ada\napi_key  ¤",
    "os.environ.get('DIRECTMAIL_API_KEY', '¤')",
    'api_key = """¤"""',
    'API_KEY: Final[str] = "¤"',
    "the_settings_of_the_client_for_the_second_account_api_key = '¤'",
]

SOUND = [
    "",
    f"&#{'9' * 5000}; is a number that Python refuses to read",
    "Authorization: Basic <API_KEY>",
    "Basic " + b64encode(f"{STAND_IN_KEY}:".encode()).decode(),
    f"connect(api_key='{STAND_IN_KEY}')",
    'connect(api_key="your-api-key-1234567890")',
    "https://<API_KEY>@api.test/?api_key=<API_KEY>",
    "secret_santa_is_a_word, live_chart, test_that_it_works_when_called_twice",
    "joe@example.com, git@github.com:a/b, person-1a2b3c4d@example.invalid called +999255945577",
    "sqlite3.connect('recordings-2026-11-21.db'); connect(address, 'my-api-key')",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "Authorization: Bearer TOKEN, Bearer <token>, Bearer YOUR_ACCESS_TOKEN_HERE",
    "key = os.environ['KEY_8fK2xQ9zLr7T']; token = response1.headers2",
    "{'key': 'first-look-2', 'author': 'j8K2xQ9zLr7TtVb3', 'monkey': 'a1b2c3d4e5f6a7b8'}",
    "live_newsletter_december, prod_campaign_results_q4_2026, secret_santa_mailing_2026",
    "test_template_winter2026, my_pk_test_list, key-accounts-2026, sk-spring-sale-for-customers",
    "Bearer authentication-is-required, hf_header_footer_of_letter, pat-na1-mailing, SG.news.q4",
    "key: f47ac10b-58cc-4372-a567-0e02b2c3d479, parent=f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "continuation_token='MTIzNDU2Nzg5MDEyMzQ1Ng=='; Key: uploads/6fad4bf7-87f0-471b/letter.pdf",
    '{"password_updated_at": "2026-01-01T00:00:00Z", "secret": "2026-01-01 10:00"}',
    "['client_secret', 'oauth2_token', 'api_key'], {'secret_version': 'v2026x01'}",
    "pip install git+ssh://git@github.com/a/b.git@v1.2; logo@2x.png",
]


HEX = "9f3a77c1e2d84b0fa16c5e38d7b2904f" * 2
MIXED = "8fK2xQ9zLr7TtVb3nWm5YcHs1pAeGd4JuR6oXi0Z" * 2
UUID = f"{HEX[:8]}-{HEX[8:12]}-{HEX[12:16]}-{HEX[16:20]}-{HEX[20:32]}"
# A key of each service, as its documentation shows it.
KEYS = {
    "SendGrid": [f"SG.{MIXED[:22]}.{MIXED[:43]}"],
    "Mailgun": [f"key-{HEX[:32]}", f"{HEX[:32]}-{HEX[:8]}-{HEX[8:16]}"],
    "Mailchimp": [f"{HEX[:32]}-us6", f"{HEX[:32]}-us21"],
    "Brevo": [f"xkeysib-{HEX}-{MIXED[:16]}", f"xsmtpsib-{HEX}-{MIXED[:16]}"],
    "Twilio": [f"SK{HEX[:32]}"],
    "Lob": [f"live_{HEX[:35]}", f"test_{HEX[:35]}", f"live_pub_{HEX[:31]}"],
    "Klaviyo": [f"pk_{HEX[:34]}", f"pk_{MIXED[:6]}_{HEX[:34]}"],
    "HubSpot": [f"pat-na1-{UUID}", f"pat-eu1-{UUID}"],
    "Stripe": [f"whsec_{MIXED[:32]}"],
    "Slack": [
        *(f"xox{kind}-123456789012-1234567890123-{MIXED[:24]}" for kind in "bp"),
        f"xapp-1-A0123456789-1234567890123-{HEX}",
        f"https://hooks.slack.com/services/T01234567/B01234567/{MIXED[:24]}",
    ],
    "Google": [f"AIza{MIXED[:35]}", f"GOCSPX-{MIXED[:28]}"],
    "GitHub": [f"ghp_{MIXED[:36]}", f"ghs_{MIXED[:36]}", f"github_pat_{MIXED[:22]}_{MIXED[:59]}"],
    "GitLab": [f"glpat-{MIXED[:20]}", f"glrt-{MIXED[:27]}.01.{MIXED[:9]}"],
    "npm": [f"npm_{MIXED[:36]}"],
    "Hugging Face": [f"hf_{MIXED[:34]}"],
    "AWS": ["AKIA" + "QYJ7ZK2LMNOP3RST", "ASIA" + "QYJ7ZK2LMNOP3RST"],
}
FORMS = [
    *((f"a key of {service}", key) for service, keys in KEYS.items() for key in keys),
    *(("a service's key, by its prefix", f"{prefix}{MIXED[:24]}") for prefix in ("live_", "prod_")),
    *(("a service's key, by its prefix", f"{kind}_live_{MIXED[:24]}") for kind in ("sk", "rk")),
    ("a service's key, by its prefix", f"sk-proj-{MIXED[:40]}"),
]


@pytest.mark.parametrize(("what", "key"), FORMS)
def test_a_key_of_each_service_is_found_by_its_form_and_can_be_removed(what, key):
    """In a body under any name, in an address, and in a cell of a notebook."""
    path = theirs(
        "tour.yaml",
        interaction(f"/v1/x?next={quote(key, safe='')}"),
        interaction(reply=json.dumps({"note": f"it is {key}", "list": [key]}).encode()),
    )
    before = {str(each) for each in audit(path)}
    in_cell = audit(notebook("a.ipynb", f"x = '{key}'"))
    redact(path, [])

    assert f"{path}, interaction 2, response body: {what}" in before
    assert what in {each.what for each in in_cell}
    assert audit(path) == []
    assert MIXED[:16] not in path.read_text()


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_found_and_not_repeated(text):
    found = find([("here", f"before {text.replace('¤', ODD)} after")], KeySearch())

    assert ("secret", "here") in {(finding.kind, finding.where) for finding in found}
    assert not re.search("8fK2|hunter2", str(found))
    assert traces(str(found).encode(), KEY) == []


@pytest.mark.parametrize("text", SOUND)
def test_values_that_may_be_shared_pass_the_audit(text):
    assert find([("here", text)], KeySearch()) == []


def interaction(
    path: str = "/v1/users/me", *, body: bytes = b"", reply: bytes = b"{}", **headers: str
) -> Interaction:
    return answered(Request("GET", BASE_URL + path, tuple(headers.items()), body), reply)


PERSON = gzip.compress(b'{"first_name": "Joe", "iban": "NL91ABNA0417164300"}')


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        (interaction(f"/{KEY}"), "address: a service's key, by its prefix"),
        (interaction(Authorization=BASIC), "request headers: credentials of HTTP Basic"),
        (interaction(Accept="*/*", Cookie="s=1"), "request headers: a credential in a header"),
        (
            interaction(**{"X-Vault-Token": "hvs.8fK2xQ9zLr7TtVb3nWm5"}),
            "request headers: a credential in a header",
        ),
        (interaction(body=f"a={KEY}".encode()), "request body: a service's key, by its prefix"),
        (
            interaction(reply=f'{{"k": "{KEY}"}}'.encode()),
            "response body: a service's key, by its prefix",
        ),
        (interaction(reply=PERSON), "response body: 1 name, 1 bank account"),
        (interaction(Authorization="Basic <API_KEY>"), ""),
        (interaction(**{"X-Next-Page-Token": "s=1"}), ""),
        (interaction(**{"WWW-Authenticate": "Bearer", "X-Transport": "max-age=0"}), ""),
    ],
)
def test_a_cassette_is_searched_in_every_part(recorded, found):
    """What stands in one header is no credential of the one before it. A body may be compressed."""
    path = theirs("tour.yaml", recorded)
    expected = [f"{path}, interaction 1, {found}"] if found else []

    assert list(map(str, audit(path)))[:1] == expected


def test_a_cassette_that_is_being_recorded_is_searched_once(tmp_path):
    """Between two cells of a notebook, its journal has no more than the file."""
    path = tmp_path / "tour.yaml"
    with opened(path) as cassette:
        cassette.record(answered(get(), '{"note": "ann@corp.com"}'))
        assert len(audit(path)) == 1
        cassette.fold()

        assert len(audit(path)) == 1


def test_a_file_that_is_no_cassette_is_searched_as_a_whole(tmp_path):
    """A damaged cassette is shared as text, so it is audited as text, each kind once."""
    path = tmp_path / "saved.har"
    text = f'{{"log": {{"x": "{BASIC}", "of": "joe@corp.com ann@corp.com +31 6 1234 5678"'
    path.write_text(text, encoding="utf-8")

    assert audit(path) == [
        Finding("secret", "credentials of HTTP Basic", str(path)),
        Finding("personal", "2 e-mail addresses, 1 telephone number", str(path)),
    ]


@pytest.mark.parametrize("text", ["[]", '{"cells": 5}', "\ud800", "[" * 100_000, None])
def test_an_invalid_notebook_is_our_error(tmp_path, text):
    path = tmp_path / "a.ipynb"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))

    with pytest.raises(DirectMailLabError, match=r"a\.ipynb (is not a notebook|cannot be read)"):
        audit(path)


# -- the zip -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_reader_installs_and_runs_the_zip_offline(tour, service, tmp_path, tmp_path_factory):
    code = "import directmail_lab\nprint(name, directmail_lab.__file__)"
    packed = share([notebook("nb/one.ipynb", REPLAY, code)], tmp_path / "tour.zip")
    service.close()
    elsewhere = tmp_path_factory.mktemp("reader")
    folder, installed = elsewhere / "tour", elsewhere / "installed"
    zipfile.ZipFile(packed).extractall(elsewhere)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
    options = ["--no-deps", "--target", installed, "-r", "requirements.txt"]
    subprocess.run([*pip, *options], cwd=folder, check=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DIRECTMAIL_")}
    environment["PYTHONPATH"] = str(installed)
    ran = nbformat.read(folder / "notebooks" / "one.ipynb", as_version=4)
    place = {"metadata": {"path": str(folder / "notebooks")}}
    NotebookClient(ran, startup_timeout=300, resources=place).execute(env=environment)
    code = """if True:
        from pathlib import Path
        from directmail_lab.share.tutorials import first_tutorial, shared_notebook
        print(shared_notebook(Path("tour")))
        try:
            first_tutorial(Path("elsewhere"))
        except OSError as error:
            print(error.strerror)"""
    words = [sys.executable, "-c", code]
    opened = subprocess.check_output(words, cwd=elsewhere, env=environment, text=True).splitlines()

    assert ran.cells[1].outputs[0].text.startswith(f"Stand-in User {installed}")
    assert (installed / "bin" / "directmail-lab").exists() or os.name == "nt"
    assert (installed / "share/jupyter/labextensions/directmail-lab/package.json").exists()
    assert Path(opened[0]) == Path("tour/notebooks/one.ipynb")
    assert opened[1] == "the package of a shared notebook has no tutorials"
    assert packed.stat().st_size < 1_000_000


def test_the_zip_contains_all_files_that_a_reader_needs(tour):
    source = notebook("one.ipynb", REPLAY, "import httpx")
    contents = zipped(source)
    Path("read.yaml").write_bytes(contents["cassettes/shared-tour.yaml"])
    wheel = f"directmail_lab-{__version__}-py3-none-any.whl"

    assert list(contents) == [
        "README.md",
        "cassettes/shared-tour.html",
        "cassettes/shared-tour.yaml",
        wheel,
        "notebooks/one.html",
        "notebooks/one.ipynb",
        "requirements.txt",
    ]
    assert list(read_cassette(Path("read.yaml"))) == list(read_cassette(tour))
    assert contents["cassettes/shared-tour.html"].startswith(b"<!DOCTYPE html>")
    readme = contents["README.md"].decode()
    assert re.search(
        r"\n- cassettes/shared-tour.html: .* kB\n- notebooks/one.html: .* kB\n", readme
    )
    assert "directmail-lab lab                # opens notebooks/one.ipynb" in readme
    own, other = contents["requirements.txt"].decode().split()
    assert own == f"./{wheel}"
    assert other.startswith("httpx==")


def test_a_page_that_is_too_large_is_left_out(tour, monkeypatch):
    """The README does not name it."""
    source = notebook("one.ipynb", REPLAY)
    monkeypatch.setattr("directmail_lab.share.cassette_page._MAX_BYTES", 1000)
    with pytest.warns(UserWarning, match=r"shared-tour.html is left out. The page of"):
        without = zipped(source)

    assert b"shared-tour.html" not in without["README.md"]
    assert [name for name in without if name.endswith(".html")] == ["notebooks/one.html"]


def outputs(*shown: dict[str, Any]) -> dict[str, Any]:
    """Return the member of a cell that has these outputs, each by its kinds."""
    made = [{"output_type": "display_data", "metadata": {}, "data": data} for data in shown]
    return {"outputs": made}


WIDGET = {
    "application/vnd.jupyter.widget-view+json": {"model_id": "1"},
    "text/plain": "A widget",
}
SHOWN = outputs({"text/html": "<table><tr><td>A table</td></tr></table>"}, WIDGET)


def test_a_page_of_a_notebook_loads_nothing_and_runs_no_script():
    source = notebook("report.ipynb", " # A title", "1", "2", **SHOWN)
    with pytest.warns(UserWarning, match="cell 3: a widget, which needs a running kernel"):
        page = share(source, "out/report.html", run=False).read_text("utf-8")

    assert [path.name for path in Path("out").iterdir()] == ["report.html"]
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert re.findall(r"""(?:src|href)=["'](?!data:|#)|@import|url\(["']?(?!data:)""", page) == []
    assert [text in page for text in ("A title", "A table", "a widget")] == [True] * 3


KEPT = [
    '<b class="x" id="y" title="z">bold</b>',
    '<a href="https://api.test/">a link</a>',
    '<img alt="dot" src="data:image/png;base64,AAAA">',
    '<table><tr><td style="text-align: left;" colspan="2">cell</td></tr></table>',
    "<details open><summary>more</summary></details>",
    "<style>#T_1 {background-color: yellow}</style>",
]
# Each of these asks for an address, sends a form, runs a script, or covers the page with a button.
LEADING = [
    '<meta http-equiv="refresh" content="0; url=¤">',
    '</div></main></body><meta http-equiv="refresh" content="0;¤">',
    "<META HTTP-EQUIV=refresh CONTENT=0;URL=¤>",
    '<svg><meta http-equiv="refresh" content="0;url=¤"></svg>',
    '<noscript><p title="</noscript><meta http-equiv=refresh content=0;url=¤>">',
    '<math><mtext><style><meta http-equiv="refresh" content="0;url=¤"></style></mtext></math>',
    '<table><meta http-equiv="refresh" content="0;url=¤"></table>',
    '<base href="¤"><link rel="prefetch" href="¤"><iframe src="¤"></iframe>',
    '<form action="¤"><button autofocus>Send</button></form>',
    '<img src="x" onerror="location = \'¤\'"><a href="javascript:location=\'¤\'">go</a>',
    '<object data="¤"></object><embed src="¤"><video poster="¤" autoplay></video>',
    "<script>location = '¤'</script>",
]


FORBIDDEN = "meta base link iframe form object embed svg script video button math noscript"


@pytest.mark.parametrize("place", ["markdown", "text/html", "text/markdown"])
@pytest.mark.filterwarnings("ignore:Not shown in")
def test_a_page_of_a_notebook_has_the_markup_that_is_allowed_and_no_other(place):
    """A policy stops requests of the page, but not that it leads elsewhere."""
    markup = "\n\n".join([*KEPT, *LEADING]).replace("¤", "https://api.test/")
    if place == "markdown":
        source = notebook("report.ipynb", f" {markup}")
    else:
        source = notebook("report.ipynb", "1", **outputs({place: markup}))
    page = share(source, "report.html", run=False).read_text("utf-8")
    body = page.partition("<main")[2]
    elements = {name.lower() for name in re.findall(r"<(\w+)", body)}
    cell = body.partition('id="y"')[2]

    for kept in (
        '<a href="https://api.test/"',
        '<img alt="dot" src="data:image/png;base64,AAAA"',
        '<td colspan="2" style="text-align: left;"',
        "<summary>more</summary>",
        "background-color: yellow",
    ):
        assert kept in cell
    assert not elements & set(FORBIDDEN.split())
    assert not re.search(r"<[^>]+ (on\w+|autofocus)=|javascript:", body)


@pytest.mark.filterwarnings("ignore:Not shown in")
def test_a_page_without_code_shows_text_and_outputs():
    """A manager reads no code, no numbers of cells, and signs in nowhere."""
    form = {
        "output_type": "display_data",
        "data": {"text/plain": repr(LoginWidget(SignInRequest()))},
        "metadata": {},
    }
    outputs = [*SHOWN["outputs"], form]
    source = notebook("report.ipynb", " # A title", "code = 1", **SHOWN | {"outputs": outputs})
    page = share(source, "report.html", run=False, has_code=False)
    text = page.read_text("utf-8").partition("<main")[2]

    assert "A table" in text
    assert "sign-in" not in text
    assert "code" not in re.sub("<[^>]*>", "", text)
    assert "In&nbsp;[" not in text


PLOTLY = '<div><script>window.Plotly = 1</script><div id="a"></div><script>Plotly.x</script></div>'
ALTAIR = "<style>#a {}</style><div id='a'></div><script>vegaEmbed('#a', {})</script>"
DOT = "iVBORw0KGgo="


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ({"text/html": PLOTLY}, 'a Plotly chart. fig.show("png") would show its picture.'),
        ({"application/vnd.plotly.v1+json": {}}, "a Plotly chart. "),
        ({"text/html": ALTAIR, "text/plain": "alt.Chart"}, "an Altair chart. alt.renderers."),
        ({"application/javascript": "1", "text/plain": "x"}, "an output that needs a script."),
        ({"text/html": "<iframe src='https://a.test'></iframe>"}, "an embedded page."),
        ({"text/html": "<svg><path d='M0'/></svg>"}, "a drawing in HTML."),
        ({"text/html": "<img src='https://a.test/a.png'>"}, "the picture https://a.test/a.png."),
        (" ![](images/no.png)", "the picture images/no.png."),
        (" [data](no%20data.csv)", "the file no%20data.csv."),
        (" <iframe src='a.html'></iframe>", "an embedded page."),
        ({"text/latex": "$1$", "text/plain": "x"}, "a formula, of which the LaTeX stands above."),
        (" $$1$$", "a formula, of which the LaTeX stands above."),
    ],
)
def test_what_a_page_cannot_show_is_named_in_its_place_and_in_a_warning(content, note):
    """The warning says in which cell."""
    if isinstance(content, str):
        source = notebook("one.ipynb", "1", content)
    else:
        source = notebook("one.ipynb", "1", "2", **outputs(content))
    with pytest.warns(UserWarning, match="Not shown in notebooks/one.html, cell 2: ") as warned:
        page = zipped(source)["notebooks/one.html"].decode()
    [shown] = re.findall(r'<em class="not-shown">(.*?)</em>', page)

    assert html.unescape(shown).startswith(f"Not shown here: {note}")
    assert note in str(warned[0].message)
    assert "vegaEmbed" not in page
    assert len(warned) == 1


@pytest.mark.parametrize(
    "beside",
    [
        {"text/html": PLOTLY, "application/vnd.plotly.v1+json": {}},
        {"application/vnd.vegalite.v6+json": {}},
        WIDGET,
    ],
)
def test_a_page_shows_the_picture_beside_a_script(beside):
    source = notebook("one.ipynb", "1", **outputs({**beside, "image/png": DOT}))
    page = zipped(source)["notebooks/one.html"].decode()

    assert f"data:image/png;base64,{DOT}" in page
    assert "Not shown" not in page


def test_files_that_a_notebook_names_are_in_the_zip_and_its_pictures_in_the_page(tmp_path):
    """Hidden files and other notebooks are not, and a single page says which files it lacks."""
    files = ["nb/my dot.png", "nb/data/a.csv", "up.csv", "nb/helper.py", "nb/.env", "nb/two.ipynb"]
    for name in (*files, "more/LICENSE"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"it is {name}")
    code = (
        f"import helper\nopen('data/a.csv'), open('../up.csv'), open('.env'), '{tmp_path}/up.csv'"
    )
    text = " ![a dot](my%20dot.png) <img src='my dot.png'> [data](data/a.csv) [two](two.ipynb)"
    source = notebook("nb/one.ipynb", code, text)
    with warnings.catch_warnings(record=True, action="always") as warned:
        contents = zipped(source, add=["more/LICENSE"])
        alone = share(source, "one.html", run=False).read_text("utf-8")
    said = [str(each.message) for each in warned]
    page = contents["notebooks/one.html"].decode()
    picture = f"data:image/png;base64,{b64encode(b'it is nb/my dot.png').decode()}"

    assert [name for name in contents if name.endswith((".csv", ".py", ".png", "LICENSE"))] == [
        "more/LICENSE",
        "notebooks/data/a.csv",
        "notebooks/helper.py",
        "notebooks/my dot.png",
        "up.csv",
    ]
    assert b"up.csv" in contents["up.csv"]
    assert page.count(picture) == alone.count(picture) == 2
    assert 'href="data/a.csv"' in page
    assert "Not shown here: the file data/a.csv." in alone
    assert said[0].endswith("up.csv' leads out of what can be shared.")
    assert "Not shown in notebooks/one.html, cell 2: the file two.ipynb." in said


def test_a_secret_in_a_file_beside_the_notebook_refuses_the_zip():
    Path("settings.py").write_text(f"API_KEY = '{KEY}'")
    with pytest.raises(DirectMailLabError, match=r"notebooks/settings.py: a key or password"):
        zipped(notebook("one.ipynb", "import settings"))


def test_the_head_of_a_page_and_the_readme_say_what_was_recorded_when_and_where(tour, service):
    """A chart of the author's own does not say so itself."""
    with Session(service.base_url, ApiKey(service.api_key)) as session:
        session.record("other")
        session.me()
    contents = zipped(notebook("one.ipynb", REPLAY), notebook("two.ipynb", "dm.replay('other')"))
    today = f"{datetime.now(UTC):%-d %B %Y}"
    fact = f"1 interaction, recorded on {today}, from {service.base_url}."
    page = contents["notebooks/one.html"].decode()
    readme = contents["README.md"].decode()

    assert f'<p class="about">Not run before. Data recorded in shared-tour, {fact}</p>' in page
    assert page.count(fact) == 1
    assert f"- cassettes/shared-tour.yaml: {fact}\n- cassettes/other.yaml: {fact}" in readme
    assert "- Personal data: none was found." in readme
    assert re.search(r"- notebooks/one.html: \d+\.\d kB\n", readme)


@pytest.mark.parametrize("length", [1, 100])
def test_a_long_page_has_a_table_of_contents(length):
    text = "words of a long text " * 2 * length
    source = notebook("one.ipynb", f" # A title\n\n{text}", f" ## B & `c`\n\n{text}", " ### D")
    page = zipped(source)["notebooks/one.html"].decode()
    links = re.findall(r'<a class="level-(\d)" href="#([^"]+)">(.*?)</a>', page)

    expected = [("1", "A-title", "A title"), ("2", "B-&amp;-c", "B &amp; c"), ("3", "D", "D")]
    assert links == (expected if length > 1 else [])
    assert all(f'id="{name}"' in page for _, name, _ in links)


@pytest.fixture
def own_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which this package seems to be, with the files of its wheel alone."""
    root, real = tmp_path / "checkout", Path(__file__).parents[1]
    others = [real / name for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore")]
    for path in (*package_files().values(), *others):
        copy = root / path.relative_to(real)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    monkeypatch.setattr(package_files_module, "_PACKAGE", root / "directmail_lab")
    return root


def wheel_in(contents: dict[str, bytes]) -> list[str]:
    [wheel] = (data for name, data in contents.items() if name.endswith(".whl"))
    return [n for n in zipfile.ZipFile(io.BytesIO(wheel)).namelist() if ".dist-info/" not in n]


@pytest.mark.slow
def test_a_build_and_share_pack_the_named_files_and_no_private_ones(own_checkout):
    """A checkout, which is what README installs, also has what its user records and writes."""
    private = ["cassettes/payroll.yaml", "notebooks/payroll.ipynb", "notebooks/customers.csv"]
    private += ["directmail_lab/customers.csv", "notebooks/images/me.png", "tests/cassettes/a.yaml"]
    for name in private:
        (own_checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (own_checkout / name).write_text("private")
    git = ["git", "-C", str(own_checkout)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", *private], check=True)  # a person commits, too
    shared = wheel_in(zipped(notebook("one.ipynb", "1")))
    build = [sys.executable, "-m", "hatchling", "build", "-d", "dist"]
    subprocess.run(build, cwd=own_checkout, check=True, capture_output=True)
    [wheel], [source] = (list((own_checkout / "dist").glob(each)) for each in ("*.whl", "*.gz"))
    built = [n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n]
    with tarfile.open(source) as archive:
        names = archive.getnames()

    tutorials = [name for name in built if name.startswith("directmail_lab/packaged/notebooks/")]
    assert sorted([*shared, *tutorials]) == sorted(built)
    assert "directmail_lab/packaged/notebooks/01-first-look.ipynb" in tutorials
    stems = [Path(name).name for name in private]
    assert [n for n in (*built, *names) if n.endswith(tuple(stems))] == []


def test_the_list_of_files_lacks_nothing(own_checkout):
    root = Path(__file__).parents[1]
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    listed = {path.relative_to(own_checkout).as_posix() for path in package_files().values()}
    code = {".py", ".pyi", ".typed", ".js", ".css", ".json", ".html"}
    expected = {
        *(each for each in (root / "directmail_lab").rglob("*") if {*each.suffixes} & code),
        root / "directmail_lab/py.typed",
        *(root / "notebooks").glob("[0-9][0-9]-*.ipynb"),
        *(root / f"cassettes/{name}.yaml" for name in RECORDINGS),
    }
    for text in (root / "README.md", *(root / "notebooks").glob("*.md")):
        links = re.findall(r"\]\(([\w./-]+\.(?:md|ipynb|png))\)", text.read_text(encoding="utf-8"))
        expected |= {(text.parent / link).resolve() for link in links}
    names = {each.relative_to(root).as_posix() for each in expected}
    needed = {n for n in names if not re.search(r"(^|/)(\.|__pycache__|src/)|^[A-Z]", n)}

    entries = settings["tool"]["hatch"]["build"]["include"]
    assert [each for each in entries if not [*root.glob(each.lstrip("/"))]] == []
    assert needed - listed == set()
    assert len(needed) > 100


def test_the_same_input_gives_the_same_zip_in_the_place_of_the_old(monkeypatch):
    """It depends on neither time nor order of files. The last line says if no key is known."""
    one, two, said = notebook("one.ipynb", "1"), notebook("two.ipynb", "1"), list[str]()
    first = share([one, two], "out/tour", run=False, notice=said.append).read_bytes()
    os.utime(one, (0, 0))
    share([one], "out/tour.zip", run=False)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", HIDDEN)
    second = share([one, two], "out/tour.zip", run=False, notice=said.append).read_bytes()

    assert first == second
    about, key = said[:6], said.pop(5)
    assert about[0].startswith("notebooks/one.html: ")
    assert about[2] == "Personal data: none was found."
    assert key.startswith("No key is known here, so")
    assert said[:5] == said[5:]
    assert [path.name for path in Path("out").iterdir()] == ["tour.zip"]


@pytest.mark.parametrize("suffix", [".yaml", ".har", ".json"])
def test_a_cassette_opened_by_path_has_the_same_path_in_the_zip(tour, suffix):
    """The path in the code must be valid in the zip too, where the file is one of ours."""
    interactions = list(read_cassette(tour))
    if suffix == ".har":
        har("own.har", *interactions)
    else:
        theirs(f"own{suffix}", *interactions, as_json=suffix == ".json")
    source = notebook("nb/one.ipynb", f"dm.replay(Path('../own{suffix}'))")
    Path(f"own{suffix}").write_bytes(zipped(source)[f"own{suffix}"])
    packed = read_cassette(Path(f"own{suffix}"))

    assert packed.layout == "lines"
    assert [each.response.body for each in packed] == [each.response.body for each in interactions]


# -- the run -----------------------------------------------------------------------------------

AUTHORS = """\
import os
import directmail_lab as dm
dm.login()
dm.record('shared-tour', live=True)
name = dm.me()['name'].item()
assert 'DIRECTMAIL_API_KEY' not in os.environ
open('left-behind', 'w').close()"""
LOCAL = """\
with dm.stand_in() as service, dm.Session(service.base_url, service.api_key) as session:
    session.get('/v1/users/me').raise_for_status()"""


@pytest.mark.slow
def test_share_runs_the_notebooks_as_a_reader_would(tour, account, monkeypatch):
    """The run has no key and uses copies elsewhere. The panel's rows are all there."""
    with Session(account.base_url, account.api_key) as session:
        for name, count in {"computed-1": 12, "other": 1}.items():
            session.record(Path(f"cassettes/{name}.yaml"))
            for page in range(count):
                session.get("/v1/users/me", params={"page": page})
    computed = "number = 1\ndm.browse(f'computed-{number}')"
    widget = "import ipywidgets\nipywidgets.IntSlider()"
    saved = {"output_type": "error", "ename": "AlreadySentError", "evalue": "", "traceback": []}
    response = "dm.get('/v1/users/me')"
    source = notebook("nb/one.ipynb", AUTHORS, computed, response, LOCAL, widget, outputs=[saved])
    sent = account.requests.total()
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    with pytest.warns(UserWarning, match="Not shown in .*html, cell 5: a widget, ") as warned:
        packed = zipfile.ZipFile(share(source, "out/tour.zip", add=["computed-1"]))
    names = {name for name in packed.namelist() if name.endswith(".yaml")}
    readme = packed.read("tour/README.md").decode()
    cells = json.loads(packed.read("tour/notebooks/one.ipynb"))["cells"]
    shown = [json.dumps(cell["outputs"]) for cell in cells]
    page = packed.read("tour/notebooks/one.html").decode()
    today = f"{datetime.now(UTC):%-d %B %Y}"

    assert names == {"tour/cassettes/shared-tour.yaml", "tour/cassettes/computed-1.yaml"}
    assert "All cells were run before they were shared, with no key" in readme
    assert len(cells) == 5
    [said] = [text for text in shown[0].splitlines() if "replay" in text.lower()]
    assert said.count("recorded on") == 1
    assert "page=11" in shown[1]
    assert "12 interactions" in shown[1]
    assert "200 OK" in shown[2]
    assert "Stand-in User" in shown[2]
    assert "AlreadySentError" not in shown[4]
    assert "widget-view" not in "".join(shown)
    assert page.count("Stand-in User") == 1
    assert "sign-in form" not in page
    assert f"Data replayed from shared-tour, 1 interaction, recorded on {today}, from " in page
    assert len(warned) == 1
    assert account.requests.total() == sent
    assert {path: path.read_bytes() for path in before} == before
    assert list(Path().rglob("left-behind")) == []


def test_the_report_and_the_readme_name_the_cells_with_older_data():
    """A cell that was not executed again has what it got then."""
    Path("cassettes").mkdir()
    first, second = (
        replace(answered(get(f"/v1/{cell}")), cell=cell, recorded_at=at)
        for cell, at in (
            ("old", datetime(2026, 3, 5, tzinfo=UTC)),
            ("new", datetime(2026, 5, 5, tzinfo=UTC)),
        )
    )
    write_cassette("cassettes/days.yaml", first, second)
    source = notebook("one.ipynb", " text", "dm.replay('days')", "dm.get('/v1/new')")
    whole = json.loads(source.read_text()) | {"nbformat_minor": 5}
    for cell, each in zip(whole["cells"], ("text", "old", "new"), strict=True):
        cell["id"] = each
    source.write_text(json.dumps(whole))
    said: list[str] = []
    files = zipped(source, notice=said.append)

    line = "notebooks/one.ipynb, cell 2: data of 5 March 2026."
    assert [each for each in said if "data of" in each] == [line]
    assert f"- {line}" in files["README.md"].decode()


SOCKET = "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=1)"


BROKEN = """\
class Broken:
    def __repr__(self):
        raise ValueError("no picture")
Broken()"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("dm.me()", r"(?s)fails where.*NotConnectedError: No session.*\s+Put\s+(dm\.)?record"),
        (
            "dm.record('shared-tour')\ndm.get('/v1/lists')",
            r"(?s)NotRecordedError: .*Nearest.*\s+Run",
        ),
        ("dm.replay(f'tour-{7 * 6}')", r"(?s)CassetteNotFoundError: .*--add\s+NAME\."),
        (SOCKET, r"NoNetworkError: No connection to 192\.0\.2\.1: a shared"),
        ("import httpx\nhttpx.get('https://api.test')", "ConnectError: No connection to api.test"),
        ("import os\nos._exit(1)", "ended its kernel"),
        ("import helper", r"(?s)ModuleNotFoundError: .*The\s+zip\s+has.*--add\s+FILE\."),
        (BROKEN, r"ValueError: no picture\s+Restart"),
    ],
)
def test_the_error_names_the_first_failing_cell_and_nothing_is_written(tour, cell, says):
    first = "import directmail_lab as dm\ndm.get"
    source = notebook("one.ipynb", first, cell, "raise ValueError('the next one')")
    with pytest.raises(NotebookRunError, match=says) as caught:
        share(source, "tour.zip")

    message = str(caught.value)
    assert message.startswith("Nothing was written: one.ipynb, cell 2, ")
    assert message.endswith("To share it as it is: --no-run.")
    assert caught.value.what.count("\n") <= 3  # where, and two lines of the error
    assert "\n" not in caught.value.advice
    assert not Path("tour.zip").exists()


@pytest.mark.slow
def test_personal_data_is_replaced_in_what_is_packed_alone():
    people = [{"first_name": f"Ada{n}", "email": f"ada{n}@lovelace.org"} for n in range(12)]
    path = Path("cassettes/shared-tour.yaml")
    asked = interaction("/v1/people?email=ada1@lovelace.org", reply=json.dumps(people).encode())
    write_cassette(path, asked)
    before = path.read_bytes()
    cell = "dm.get('/v1/people?email=ada1@lovelace.org').text"
    source = notebook(
        "one.ipynb",
        "import directmail_lab as dm\ndm.replay('shared-tour')",
        cell,
        "len(open('guests.csv').readlines()), open('guests.bin')",
    )
    source.with_name("guests.csv").write_text("no;Name;Street\n7;Ada Lovelace;5 Main\n")
    source.with_name("guests.bin").write_bytes(b"\xff\x00 lovelace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the cell's own address
        with pytest.warns(UserWarning, match=r"guests\.bin is packed as it is"):
            packed = zipfile.ZipFile(share(source, "tour.zip", redact=["personal"]))
    output = json.loads(packed.read("tour/notebooks/one.ipynb"))["cells"][1]["outputs"][0]

    assert path.read_bytes() == before
    assert b"lovelace" not in packed.read("tour/cassettes/shared-tour.yaml")
    assert b"lovelace" not in packed.read("tour/cassettes/shared-tour.html")
    shown = "".join(output["data"]["text/plain"])
    assert shown.count("@example.invalid") == 12
    assert "Ada" not in shown
    table = packed.read("tour/notebooks/guests.csv").decode()
    assert re.fullmatch("no;Name;Street\n7;<name-[0-9a-f]+>;<street-[0-9a-f]+>\n", table)


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sources", "options", "says"),
    [
        ({}, {}, "No notebook to share"),
        ({"a/one.ipynb": "1", "b/one.ipynb": "2"}, {}, r"would be notebooks/one\.ipynb"),
        ({"a/One.ipynb": "1", "b/one.ipynb": "2"}, {}, r"would be notebooks/one\.ipynb"),
        ({"nb/one.ipynb": "dm.replay(Path('¤'))"}, {}, "leads out of what can be shared"),
        ({"1.ipynb": "1", "2.ipynb": "2"}, {"target": "tour.html"}, "A page shows one notebook"),
        ({"1.ipynb": "1"}, {"target": "tour.pdf"}, "neither a .zip nor a .html page"),
        ({"1.ipynb": "1"}, {"redact": ["personal"]}, "outputs that you saved cannot be redacted"),
    ],
)
def test_what_could_not_run_or_be_shown_is_refused(tour, sources, options, says):
    """Two names that differ in case are one on the reader's Windows or macOS."""
    files = [notebook(name, text.replace("¤", str(tour))) for name, text in sources.items()]
    with pytest.raises(DirectMailLabError, match=says):
        share(files, **{"target": "tour.zip", "run": False, **options})

    assert list(Path().glob("tour.*")) == []


@pytest.mark.posix("a file's name with an escape")
def test_control_characters_in_a_name_are_not_shown():
    hostile = notebook("one\x1b[2J.ipynb", "1", **{"\x1b[2J\u202e": f"api_key='{ODD}'"})
    with pytest.raises(DirectMailLabError) as caught:
        share(hostile, "tour.zip")

    assert str(caught.value).replace("\n", "").isprintable()
    assert [each.where for each in audit(hostile)] == [f"{hostile}, cell 1, another member"]


def test_a_secret_in_source_output_or_cassette_refuses_the_zip(tour):
    source = notebook("one.ipynb", REPLAY, f"dm.connect(api_key='{KEY}')")
    printed = notebook("two.ipynb", "1", outputs=[{"text": [f"signed in with {KEY}\n"]}])
    tour.write_text(tour.read_text(encoding="utf-8").replace("Stand-in User", KEY))
    Path("tour.zip").write_bytes(b"the old one")
    with pytest.raises(DirectMailLabError, match="Nothing was written") as caught:
        share([source, printed], "tour.zip", run=False)

    message = str(caught.value)
    for place in ("cell 2, source: ", "cell 1, outputs: ", "interaction 1, response body: "):
        assert place in message
    assert KEY not in message
    assert Path("tour.zip").read_bytes() == b"the old one"


def test_the_users_own_key_refuses_the_zip_whatever_its_shape(tour, monkeypatch):
    """A key that looks like an ordinary word is found because it is known, also when encoded."""
    keys = {"horse-battery", "correct-horse"}
    forms = (b64encode(f"{key}:".encode()).decode() for key in sorted(keys))
    source = notebook("one.ipynb", *(f"headers = '{form}'" for form in forms))
    share(source, "before.zip", run=False)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", "horse-battery")
    connect("https://api.test", ApiKey("correct-horse"))
    with pytest.raises(DirectMailLabError) as caught:
        share(source, "tour.zip")
    # Skip this test's own frame: its source lines contain the keys.
    shown = VerboseTB().text(caught.type, caught.value, caught.tb.tb_next)

    assert str(caught.value).count("source: your key") == 2
    assert "refuse_secrets" in shown
    assert "horse" not in shown


# -- hiding places -----------------------------------------------------------------------------

HIDDEN = "Qx7mR2vK9pLw4TzB8nYd"


# A PNG with the key in its comment.
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\x1ctEXtComment\0" + HIDDEN.encode() + b"\xff\xfe"
B64 = b64encode(PNG).decode()


CELLS: dict[str, dict[str, Any]] = {
    "metadata": {"metadata": {"state": {"password": HIDDEN}}},
    "markdown": {"cell_type": "markdown", "source": [f"<!-- {HIDDEN} -->"]},
    "split over lines": {"source": [HIDDEN[:10], HIDDEN[10:]]},
    "cell member's name": {"other": {HIDDEN: 1}},
    "attachment": {"attachments": {"a.png": {"image/png": B64}}},
    "traceback": {"outputs": [{"output_type": "error", "traceback": [f"\x1b[0m{HIDDEN}"]}]},
    "json": outputs({"application/json": {"a": [HIDDEN]}}),
    "png by line": outputs({"image/png": [B64[:40] + "\n", B64[40:]]}),
}


FILES: dict[str, Callable[[str], str]] = {
    "comment": lambda text: text + f"# {HIDDEN}\n",
    "repeated field": lambda text: text.replace('"uri":', f'"uri": "{HIDDEN}", "uri":'),
    "reason": lambda text: text.replace('"message": "OK"', f'"message": "{HIDDEN}"'),
    "gzip": lambda text: re.sub(r'"string": ".*"', f'"string": !!binary "{GZIP}"', text),
    "torn end": lambda text: text.partition("# end")[0] + f"- recorded_at: {HIDDEN}",
}
GZIP = b64encode(gzip.compress(HIDDEN.encode())).decode()


def nothing_leaks(*notebooks: Path) -> None:
    """Check that sharing is refused without showing the key, or that the zip does not have it."""
    try:
        contents = zipped(*notebooks)
        # The wheel and the style of pages are large, and independent of what is shared.
        shared = b"\n".join(each for name, each in contents.items() if not name.endswith(".whl"))
        written = re.sub(rb"(?s)<style.*?</style>", b"", shared)
    except DirectMailLabError as error:
        written = str(error).encode()

    assert traces(written, HIDDEN) == []


@pytest.mark.parametrize("place", CELLS)
def test_a_key_in_any_part_of_a_cell_is_found(place, monkeypatch):
    """The cell may be of any kind, and the member may be unknown to nbformat."""
    path = notebook("one.ipynb", "1", "", **CELLS[place])
    monkeypatch.setenv("DIRECTMAIL_API_KEY", HIDDEN)
    findings = audit(path)

    assert "your key" in {finding.what for finding in findings}
    assert all(finding.where.startswith(f"{path}, cell 2, ") for finding in findings)


def test_an_unknown_key_is_found_by_its_name_but_not_in_a_picture():
    """The lines of a source are joined before the search, and base64 of a picture is skipped."""
    picture = {"data": {"image/png": "AKIA" + "A" * 16, "text/plain": "7"}}
    source = ["dm.connect(api_key=", '"3f9a77c1e2")']
    path = notebook("one.ipynb", "1", source=source, outputs=[picture])

    assert {finding.where for finding in audit(path)} == {f"{path}, cell 1, source"}


@pytest.mark.parametrize("place", rest_slow(FILES))
def test_a_key_anywhere_in_a_cassettes_file_is_not_shared(place, tour, monkeypatch):
    """Either the zip is refused, or the part with the key is not in it."""
    before = tour.read_text(encoding="utf-8")
    tour.write_text(FILES[place](before), encoding="utf-8")
    monkeypatch.setenv("DIRECTMAIL_API_KEY", HIDDEN)

    assert tour.read_text(encoding="utf-8") != before
    nothing_leaks(notebook("one.ipynb", REPLAY))
    assert "your key" in {each.what for each in audit(tour)}


MEMBERS = [f'"more": "{HIDDEN}"', f'"metadata": {{"a": "{HIDDEN}"}}', f'"{HIDDEN}": 0']


@pytest.mark.parametrize("member", rest_slow(MEMBERS))
def test_a_key_in_a_notebooks_other_members_or_its_name_is_not_shared(tour, monkeypatch, member):
    """The key may be in another member, or in a repeated one. The zip would have the name, too."""
    monkeypatch.setenv("DIRECTMAIL_API_KEY", HIDDEN)
    source = notebook("one.ipynb", REPLAY)
    source.write_text(source.read_text().replace('{"cells"', f'{{{member}, "cells"', 1))

    nothing_leaks(source)
    nothing_leaks(notebook(f"{HIDDEN}.ipynb", REPLAY))


def test_a_page_is_searched_for_personal_data_without_its_cassettes(tour):
    """They are not in it."""
    write_cassette(tour, answered(get("/v1/people"), '{"email": "ada@lovelace.org"}'))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        share(notebook("one.ipynb", REPLAY), "one.html", run=False)
    with pytest.warns(UserWarning, match="contains 1 e-mail address"):
        share("one.ipynb", "one.zip", run=False)


def test_personal_data_is_shared_with_one_warning(tour):
    """Personal data may be meant for the reader, so one warning counts it, each value once."""
    source = notebook("one.ipynb", REPLAY, "'write to ada@lovelace.org'", "'or ada@lovelace.org'")
    with pytest.warns(UserWarning, match="contains") as warned:
        share(source, "told.zip", run=False)

    assert [str(each.message) for each in warned] == [
        "told.zip contains 1 e-mail address.\nTo replace this in what is packed, and not in your "
        "files: --redact personal."
    ]
    assert Path("told.zip").exists()
