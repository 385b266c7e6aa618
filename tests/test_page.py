"""A recording as one HTML file: what is in it, what never is, and when it is not written."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cassette_samples import BASE_URL, answered, get, opened, recorded, theirs, typed
from typer.testing import CliRunner

import directmail_lab as dm
from directmail_lab.cassettes import read_cassette
from directmail_lab.cli import app
from directmail_lab.errors import DirectMailLabError
from directmail_lab.redaction.key import KeySearch
from directmail_lab.settings import trust_origin
from directmail_lab.share import cassette_page as page
from directmail_lab.share.cassette_page import make_page, save_page

if TYPE_CHECKING:
    from pathlib import Path

    from directmail_lab.exchange.values import Interaction
    from directmail_lab.sessions.session import Session

KEY = "pg+7/Tw3X~planted~in-a-page"


def unpacked(page: bytes) -> list[Any]:
    """Return the data of a page: the list, then the parts."""
    packed = re.findall(rb'<script type="text/plain">(.+?)</script>', page)
    compressed = [base64.b64decode(each) for each in packed]
    assert {each[4:8] for each in compressed} == {bytes(4)}  # gzip writes the time there
    return [json.loads(gzip.decompress(each)) for each in compressed]


def texts(page: bytes) -> str:
    """Return all that is in a page as one text."""
    return page.decode() + json.dumps(unpacked(page), ensure_ascii=False)


def saved(*interactions: Interaction) -> bytes:
    """Return the page of a new cassette."""
    path = recorded("tour.yaml", *interactions)
    return save_page(read_cassette(path), "tour.html").read_bytes()


def test_the_policy_allows_the_page_s_own_script_alone() -> None:
    """The policy has the script's hash, and neither script nor style can end their element."""
    content = saved(answered())
    text = content.decode()
    (script,) = re.findall(r"<script>(.+?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)

    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}'; ")
    assert text.index(policy) < text.index("<style>") < text.index("<script")
    assert text.count("</script") == text.count("<script") == len([script, *unpacked(content)])
    assert text.count("</style") == text.count("<style")
    assert "<!--" not in text


def test_the_same_recording_gives_the_same_bytes_without_path_or_address_of_the_author(
    tmp_path: Path,
) -> None:
    """The page tells neither when nor where it was made."""
    home = tmp_path / "home-of-someone"
    path = recorded(home / "cassettes" / "tour.yaml", *[answered(get(f"/v1/{n}")) for n in "abc"])
    first = save_page(read_cassette(path), "first.html").read_bytes()
    again = save_page(read_cassette(path), home / "again.html").read_bytes()

    assert first == again
    assert home.name not in texts(first)


def test_code_in_a_page_never_offers_the_key() -> None:
    """The author connected to this address, but the reader of the page did not."""
    trust_origin(BASE_URL)
    recording = read_cassette(recorded("tour.yaml", answered()))
    _, (one,) = unpacked(save_page(recording, "tour.html").read_bytes())
    copied = one["copy"]

    assert "--user" not in copied["curl"]["text"]
    assert "auth=" not in copied["httpx"]["text"]
    assert copied["curl"]["text"].startswith("# The key is left out. If the service needs one")
    assert "import os" not in copied["httpx"]["text"]
    assert (
        "--user"
        in page.handle_request(recording, {"action": "copy", "number": 1, "format": "curl"})[0][
            "text"
        ]
    )


@pytest.mark.parametrize("place", ["body", "header", "base64", "binary", "address", "name"])
def test_a_planted_key_is_found_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The message says where, without the key. A file that was there stays."""
    planted = {
        "body": answered(body=json.dumps({"a": KEY})),
        "header": typed("text/plain", "", ("X-A", KEY)),
        "base64": answered(body=base64.b64encode(f"me:{KEY}".encode())),
        "binary": typed("application/octet-stream", b"\xff\0" + KEY.encode()),
        "address": answered(get(f"/v1/x?a={KEY}")),
    }
    name = KEY.replace("/", "_") if place == "name" else "tour"
    path = recorded(f"{name}.yaml", answered(), planted.get(place, answered()))
    monkeypatch.setenv("DIRECTMAIL_API_KEY", KEY.replace("/", "_") if place == "name" else KEY)
    path.with_name("tour.html").write_text("before")
    with pytest.raises(DirectMailLabError, match="Nothing was written") as error:
        save_page(read_cassette(path), "tour.html")

    assert KEY not in str(error.value)
    assert "your API key" in str(error.value)
    assert path.with_name("tour.html").read_text() == "before"


@pytest.mark.parametrize("body", [KEY.encode(), b"\xff\0" + KEY.encode()], ids=["text", "binary"])
def test_each_part_is_searched_before_it_is_compressed(body: bytes) -> None:
    """`share` relies on this for its pages."""
    recording = read_cassette(recorded("tour.yaml", typed("a/b", body)))

    assert make_page(recording, KeySearch()) is not None
    with pytest.raises(DirectMailLabError, match="interactions 1-1: your API key"):
        make_page(recording, KeySearch([KEY]))


def test_other_credentials_are_refused_and_personal_data_gives_a_warning() -> None:
    """The warning has the command that replaces the data."""
    refused = recorded("refused.yaml", answered(body='{"note": "sk-live-8fK2xQ9zLr7T5vBn3M"}'))
    personal = recorded("personal.yaml", answered(), answered(body='{"email": "joe@corp.com"}'))
    with pytest.raises(DirectMailLabError, match="interaction 1, response body: a service's key"):
        save_page(read_cassette(refused), "refused.html")
    with pytest.warns(
        UserWarning, match="interaction 2, response body.*redact personal -r personal$"
    ) as caught:
        target = dm.browse(personal).save("personal.html")

    assert target.exists()
    assert caught[0].filename == __file__
    assert not target.with_name("refused.html").exists()


def test_a_page_has_nothing_that_is_redacted_when_it_is_read() -> None:
    """Another program's file contains its key; the page does not."""
    request = replace(get(), headers=(("Authorization", f"Bearer {KEY}"),))
    path = theirs("theirs.yaml", answered(request, json.dumps({"you_sent": KEY})))
    content = save_page(read_cassette(path), "theirs.html").read_bytes()

    assert KEY in path.read_text()
    assert KEY not in texts(content)


def test_what_a_newer_run_replaced_is_not_in_the_page() -> None:
    """Until a recording is closed, it is still in the file."""
    path = recorded("tour.yaml", answered(body='{"version": "replaced-value"}'))
    with opened(path, "update") as cassette:
        cassette.record(answered(body='{"version": "newer-value"}'))
        content = save_page(read_cassette(path), "tour.html").read_bytes()
        written = path.read_text()

    assert "replaced-value" in written
    assert "replaced-value" not in texts(content)
    assert "newer-value" in texts(content)


def test_a_page_that_would_be_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence says what to do instead."""
    path = recorded("tour.yaml", *[answered()] * 3)
    recording = read_cassette(path)
    monkeypatch.setattr(page, "_MAX_BYTES", 50_000)

    with pytest.raises(DirectMailLabError, match="larger than 50,000 bytes"):
        save_page(recording, "tour.html")
    assert not path.with_suffix(".html").exists()


def test_a_hostile_name_is_escaped(tmp_path: Path) -> None:
    """The name is the page's title, and is in its table."""
    path = recorded(tmp_path / "tour.yaml", answered(get("/<script>x</script>")))
    hostile = path.rename(tmp_path / "a<b>&c\u202e.yaml")
    text = save_page(read_cassette(hostile), "hostile.html").read_text("utf-8")

    assert "<title>a&lt;b&gt;&amp;c </title>" in text
    assert "<b>" not in text
    assert "\u202e" not in text
    assert "<script>x" not in text


def test_the_page_of_a_session_has_what_the_session_received(connected: Session) -> None:
    """`browse` saves it, without the key. Later responses are not in it."""
    dm.me()
    view = dm.browse()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        content = view.save("session.html").read_bytes()
    dm.me()
    head, (_,) = unpacked(content)

    assert head["head"]["total"] == 1
    assert '"/v1/users/me"' in texts(content)
    view.close()


def test_the_command_writes_a_page_and_keeps_an_existing_file(tour: Path) -> None:
    """By default, the page has the cassette's name. The command exits with 2 if it fails."""
    run = CliRunner().invoke
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = run(app, ["cassette", "page", "tour"])
    again = run(app, ["cassette", "page", "tour"])

    assert "Wrote tour.html (" in result.output
    assert "tour.html already exists" in str(again.exception)


def test_a_page_never_replaces_its_own_recording(tour: Path) -> None:
    """Also with ``--force``, which allows a file to be replaced, and through another path."""
    before = tour.read_bytes()
    alias = tour.with_name("alias.yaml")
    alias.hardlink_to(tour)
    result = CliRunner().invoke(app, ["cassette", "page", "tour", "--to", str(tour), "--force"])
    with pytest.raises(DirectMailLabError, match=r"such as alias\.html"):
        dm.browse(tour).save(alias)

    assert "is the recording itself" in str(result.exception)
    assert tour.read_bytes() == alias.read_bytes() == before


@pytest.mark.filterwarnings("ignore:The page contains:UserWarning")
def test_a_missing_folder_is_made_for_a_page(tour: Path) -> None:
    """As for a zip of ``directmail-lab share``."""
    target = save_page(read_cassette(tour), "for/the ticket/tour.html")

    assert target.read_bytes().startswith(b"<!DOCTYPE html>")


def test_evidence_is_computed_once_for_a_file() -> None:
    """Each opened interaction asks for it, and it takes the first thousand readings."""
    recording = read_cassette(recorded("tour.yaml", *[answered()] * 3))

    assert recording.evidence is recording.evidence
