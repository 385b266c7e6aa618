"""A recording as one HTML file: what is in it, what never is, and when it is not written."""

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cassette_samples import answered, get, recorded, theirs, typed
from typer.testing import CliRunner

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.cli import app
from directmail_lab.errors import DirectMailLabError
from directmail_lab.share import cassette_page as page
from directmail_lab.share.cassette_page import save_page

KEY = "pg+7_Tw3X~planted~in-a-page"


def test_the_policy_forbids_every_load_and_there_is_no_script():
    path = recorded("tour.yaml", answered(body="</style><script>1</script><!--"))
    text = save_page(read_cassette(path), "a new folder/tour.html").read_text("utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)

    assert policy == (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    assert text.index(policy) < text.index("<style>")
    assert text.count("</style") == text.count("<style") == 1
    assert not re.search("<script|<!--", text)


def test_the_same_recording_gives_the_same_bytes_without_path_of_the_author(tmp_path):
    home = tmp_path / "home-of-someone"
    path = recorded(home / "cassettes" / "tour.yaml", *[answered(get(f"/v1/{n}")) for n in "abc"])
    first = save_page(read_cassette(path), "first.html").read_bytes()
    again = save_page(read_cassette(path), home / "again.html").read_bytes()

    assert first == again
    assert b"3 interactions, recorded on 21 November 2026, from https://api.example.test" in first
    assert home.name.encode() not in first


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        (answered(body=json.dumps({"a": KEY})), "tour"),
        (typed("text/plain", "", ("X-A", KEY)), "tour"),
        (answered(body=base64.b64encode(f"me:{KEY}".encode())), "tour"),
        (typed("application/octet-stream", b"\xff\0" + KEY.encode()), "tour"),
        (answered(get(f"/v1/x?a={KEY}")), "tour"),
        (answered(), KEY),
    ],
    ids=["body", "header", "base64", "binary", "address", "name"],
)
def test_a_planted_key_is_found_before_anything_is_written(monkeypatch, planted, name):
    path = recorded(f"{name}.yaml", answered(), planted)
    monkeypatch.setenv("DIRECTMAIL_API_KEY", KEY)
    Path("tour.html").write_text("before")
    with pytest.raises(DirectMailLabError, match=r"Nothing was written.*\n.*your key") as error:
        save_page(read_cassette(path), "tour.html")

    assert KEY not in str(error.value)
    assert Path("tour.html").read_text() == "before"


def test_other_credentials_are_refused_and_personal_data_gives_a_warning():
    refused = recorded("refused.yaml", answered(body='{"note": "sk-live-8fK2xQ9zLr7T5vBn3M"}'))
    bodies = [f'{{"email": "{name}@corp.com"}}' for name in ("joe", "ann", "joe")]
    personal = recorded("personal.yaml", *[answered(body=body) for body in bodies])
    with pytest.raises(DirectMailLabError, match="interaction 1, response body: a service's key"):
        save_page(read_cassette(refused), "refused.html")
    with pytest.warns(
        UserWarning, match=r"contains 2 e-mail addresses\. .*redact personal -r personal$"
    ) as caught:
        target = dm.browse(personal).save("personal.html")

    assert target.exists()
    assert caught[0].filename == __file__
    assert not target.with_name("refused.html").exists()


def test_a_page_has_nothing_that_is_redacted_when_it_is_read():
    """Another program's file contains its key; the page does not."""
    request = replace(get(), headers=(("Authorization", f"Bearer {KEY}"),))
    path = theirs("theirs.yaml", answered(request, json.dumps({"you_sent": KEY})))
    content = save_page(read_cassette(path), "theirs.html").read_text("utf-8")

    assert KEY in path.read_text()
    assert KEY not in content


def test_a_page_that_would_be_too_large_is_not_written(monkeypatch):
    recording = read_cassette(recorded("tour.yaml", *[answered()] * 3))
    monkeypatch.setattr(page, "_MAX_BYTES", 1_500)
    with pytest.raises(DirectMailLabError, match="larger than 1,500 bytes"):
        save_page(recording, "tour.html")

    assert not Path("tour.html").exists()


@pytest.mark.posix("a file's name with markup")
def test_a_hostile_cassette_is_escaped(tmp_path):
    """Every field and the name are shown as text; a picture of an odd type is no picture."""
    markup = "<img src=x onerror='hacked=1'>\u202e"
    one = answered(get(f"/v1/{markup}?q={markup}"), markup)
    headers = (("X-A", markup), ("X-RateLimit-Remaining", markup), ("Content-Type", markup))
    picture = typed(f'image/png"{markup}', b"\x89PNG")
    picture = replace(picture, request=get(f"https://{markup}/", base=""))
    response = replace(one.response, reason=markup, headers=headers)
    path = recorded(tmp_path / "tour.yaml", replace(one, response=response), picture)
    hostile = path.rename(tmp_path / f"a{markup}&c.yaml")
    text = save_page(read_cassette(hostile), "hostile.html").read_text("utf-8")

    assert "<title>a&lt;img src=x onerror=&#x27;hacked=1&#x27;&gt;\\u202e&amp;c</title>" in text
    assert text.count("&lt;img src=x") == 13
    assert "<img" not in text
    assert "\u202e" not in text


@pytest.mark.filterwarnings("ignore:The page contains")
def test_the_page_of_a_session_has_what_the_session_received(connected):
    """`browse` saves it, without the key. Later responses are not in it."""
    dm.me()
    view = dm.browse()
    content = view.save("session.html").read_text("utf-8")
    view.close()

    assert "<p>1 interaction" in content
    assert content.count("<summary>/v1/users/me</summary>") == 1
    assert "Stand-in User" in content


@pytest.mark.filterwarnings("ignore:The page contains")
@pytest.mark.usefixtures("tour")
def test_the_command_writes_a_page_and_keeps_an_existing_file():
    first, again = [CliRunner().invoke(app, ["cassette", "page", "tour"]) for _ in range(2)]

    assert "Wrote tour.html (" in first.output
    assert "tour.html already exists" in str(again.exception)


def test_a_page_never_replaces_its_own_recording(tour):
    """Also with ``--force``, which allows a file to be replaced, and through another path."""
    before = tour.read_bytes()
    alias = tour.with_name("alias.yaml")
    alias.hardlink_to(tour)
    result = CliRunner().invoke(app, ["cassette", "page", "tour", "--to", str(tour), "--force"])
    with pytest.raises(DirectMailLabError, match=r"such as alias\.html"):
        dm.browse(tour).save(alias)

    assert "is the recording itself" in str(result.exception)
    assert tour.read_bytes() == alias.read_bytes() == before
