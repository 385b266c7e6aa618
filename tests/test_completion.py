"""Tab, as JupyterLab asks a kernel for it, with Jedi on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from cassette_samples import answered, get, recorded
from jupyter_client.manager import start_new_kernel

import directmail_lab as dm
from directmail_lab.notebook.completion import complete

HOSTILE_PATHS = (
    """/v1/a"+str(__import__("os").system("id"))+\"""",
    "/v1/b'+c()+'",
    "/v1/c{d()}",
    "/v1/d\\",
    "/v1/e\u202ef\x1b[2J",
    "/v1/é",
)
HOSTILE_NAMES = ("it's", "a{b}", "c\u202ed", "e\x1b[2J")
KINDS: dict[str, str] = {}
"""What JupyterLab shows beside each name that was offered."""
QUOTES = ('"', "'", 'f"')


@pytest.fixture(scope="module")
def tab() -> Iterator[Callable[[str], list[str]]]:
    manager, client = start_new_kernel(startup_timeout=300, kernel_name="python3")
    setup = """if True:
        import directmail_lab as dm
        dm.replay("first-look")
        session = dm.session()
        assert get_ipython().Completer.use_jedi"""

    def ask(text: str) -> list[str]:
        reply: Any = client.complete(text, reply=True, timeout=300)
        shown = reply["content"]["metadata"]["_jupyter_types_experimental"]
        KINDS.update({each["text"]: each["type"] for each in shown})
        return sorted(reply["content"]["matches"])

    try:
        done = client.execute_interactive(setup, timeout=300, output_hook=lambda _: None)
        assert done["content"]["status"] == "ok", done
        yield ask
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_tab_after_the_package_shows_its_public_names(tab):
    """Those that are imported on first use, too."""
    assert set(tab("dm.")) == set(dm.__all__)
    kinds = [KINDS[name] for name in ("get", "Session", "errors")]
    assert kinds == ["function", "class", "module"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ('dm.get("/v1/', ["/v1/lists", "/v1/users/me"]),
        ('dm.request("GET", "/v1/u', ["/v1/users/me"]),
        ('session.get_many(["/v1/lists", "/v1/u', ["/v1/users/me"]),
        ('dm.replay("first-l', ["first-look"]),
    ],
)
def test_tab_completes_paths_and_cassettes(tab, text, offered):
    assert tab(text) == offered


@pytest.mark.posix("names")
def test_what_tab_offers_of_a_strangers_file_runs_nothing():
    """A cell that takes it has a path or a name and no code, whatever quotes it has."""

    def offered(text: str) -> list[str]:
        context: Any = SimpleNamespace(text_until_cursor=text)
        return [each.text for each in complete(context)["completions"]]

    Path("cassettes").mkdir()
    for name in HOSTILE_NAMES:
        Path(f"cassettes/{name}.yaml").write_text("interactions: []\n")
    recorded("cassettes/hostile.yaml", *(answered(get(path)) for path in HOSTILE_PATHS))
    dm.replay("hostile")
    names = offered('dm.replay("')
    paths = offered('dm.get("/')

    assert "hostile" in names
    assert set(names).isdisjoint(HOSTILE_NAMES)
    assert sorted(map(unquote, paths)) == sorted(HOSTILE_PATHS)
    for path in paths:
        assert [eval(f"{quotes}{path}{quotes[-1]}", {}) for quotes in QUOTES] == [path] * 3
