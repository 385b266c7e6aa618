"""Tab, as JupyterLab asks a kernel for it, with Jedi on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import start_new_kernel

import directmail_lab as dm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

# For each call, a name of what it returns; None if it returns nothing that has names.
RESULTS = {
    "login()": "add_traits",
    'connect("https://api.example.com", "key")': "record",
    "session()": "allow_writes",
    'Session("https://api.example.com")': "async_client",
    "me()": "describe",
    'get("/v1/users/me")': "status_code",
    'post("/v1/lists")': "status_code",
    'request("GET", "/v1/users/me")': "status_code",
    'get_many(["/v1/users/me"])': "append",
    'pages("/v1/lists")': None,
    "frame([])": "describe",
    'record("my-tour")': "is_on",
    'replay("first-look")': "is_on",
    "live()": "is_on",
    "logout()": None,
    'put("/v1/lists")': "status_code",
    'patch("/v1/lists")': "status_code",
    'delete("/v1/lists")': "status_code",
    "rate_limits()": "describe",
    "chart_rate_limits()": "savefig",
    "monitor()": "close",
    "browse()": "close",
    "interactions()": "describe",
    "findings()": "describe",
    "openapi()": "keys",
    "check_contract()": "describe",
    'drift("first-look")': "describe",
    "stand_in()": "api_key",
    'DirectMailLabError("what")': "args",
}


@pytest.fixture(scope="module")
def tab() -> Iterator[Callable[[str], tuple[list[str], float]]]:
    """A function that returns what Tab offers after a text, and the CPU time of the kernel in s."""
    manager, client = start_new_kernel(startup_timeout=300, kernel_name="python3")
    setup = """if True:
        import time
        import httpx
        import pandas as pd
        import directmail_lab as dm
        dm.replay("first-look")
        session = dm.session()
        dm.chart_rate_limits("first-look"), dm.login(), dm.monitor(), dm.browse("first-look")
        assert get_ipython().Completer.use_jedi"""

    def cpu_s() -> float:
        asked = {"cpu_s": "time.process_time()"}
        reply: Any = client.execute("", user_expressions=asked, reply=True, timeout=300)
        return float(reply["content"]["user_expressions"]["cpu_s"]["data"]["text/plain"])

    def ask(text: str) -> tuple[list[str], float]:
        began_s = cpu_s()
        reply: Any = client.complete(text, reply=True, timeout=300)
        return reply["content"]["matches"], cpu_s() - began_s

    try:
        done = client.execute_interactive(setup, timeout=300, output_hook=lambda _: None)
        assert done["content"]["status"] == "ok", done
        yield ask
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_tab_after_the_package_is_as_fast_as_after_httpx(tab: Any) -> None:
    """The first time, too, and without an import of what was not used."""
    _, httpx_s = tab("httpx.")
    names, seconds = tab("dm.")

    assert set(names) == set(dm.__all__)
    assert seconds <= httpx_s


def test_tab_after_a_session_shows_what_its_help_explains(tab: Any) -> None:
    """A variable with the session, the call that returns it, and the class show the same."""
    names, _ = tab("session.")
    of_call, _ = tab("dm.session().")
    of_connect, _ = tab('dm.connect("https://api.example.com", "key").')

    assert set(names) == set(of_call) == set(of_connect)
    assert {"me", "get", "record", "client", "base_url", "allow_writes"} <= set(names)
    assert len(names) <= 25


def test_tab_after_a_call_names_what_it_returns(tab: Any) -> None:
    """It takes little more CPU time than after a frame of pandas.

    If nothing has a public name, IPython asks Jedi, which finds nothing either.
    """
    tab("pd.DataFrame().")
    _, frame_s = tab("pd.DataFrame().")
    offered = {call: tab(f"dm.{call}.") for call, name in RESULTS.items() if name is not None}

    assert [call for call in offered if RESULTS[call] not in offered[call][0]] == []
    slow = {call: took_s for call, (_, took_s) in offered.items() if took_s > 2 * frame_s + 0.5}
    assert slow == {}


def test_every_public_call_is_tried() -> None:
    """A new call belongs to the list above."""
    assert {call.partition("(")[0] for call in RESULTS} | {"errors"} == set(dm.__all__)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ('dm.get("/v1/', ["/v1/lists", "/v1/users/me"]),
        ('dm.request("GET", "/v1/u', ["/v1/users/me"]),
        ('session.get_many(["/v1/lists", "/v1/u', ["/v1/users/me"]),
        ('dm.replay("first-l', ["first-look"]),
        ('dm.post("/v1/letters", if_sent="', ["keep", "refuse", "send"]),
        ('dm.record("tour", record_mode="n', ["new_episodes", "none"]),
        ("session.me().head", ["head"]),
    ],
)
def test_tab_completes_paths_cassettes_and_choices(tab: Any, text: str, offered: list[str]) -> None:
    """The paths are those that the replayed cassette has."""
    assert sorted(tab(text)[0]) == offered
