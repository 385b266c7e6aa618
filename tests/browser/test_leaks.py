"""A key that is typed into the form is in no file that Jupyter writes."""

import pytest
from playwright.sync_api import expect

from directmail_lab.server.standin import stand_in

from .form import Form
from .jupyter import open_notebook, restart_kernel, run_cells, save
from .leaks import leaks

# The keys are distinct, so a leak shows which step caused it, and have characters that encodings
# change.
TYPED_ONLY = "ty+3/pqX8~only~never-sent"
ACCEPTED = "ac+9/Wk2Z~accepted~by-service"
REFUSED = "re+5/Vb7Q~refused~by-service"
AFTER_RESTART = "rs+1/Hm4T~typed-after~restart"
KEYS = (TYPED_ONLY, ACCEPTED, REFUSED, AFTER_RESTART)

# ipywidgets' password field leaks what is typed, so the search would find our leak, too.
LEAKING = "import ipywidgets\nipywidgets.Password()"
LEAKED = "lk+2/Jd6Y~of-ipywidgets~password"

# The usual ways to look at variables, while tracebacks show locals.
LOOKING_ROUND = """
import gc, pickle
from directmail_lab.sessions.session import Session
%who
%whos
print(vars(form), form.get_state(), dm.session(), vars(dm.session()), dm.session().client.headers)
print([vars(each) for each in gc.get_objects() if isinstance(each, Session)])
print(get_ipython().kernel.get_parent(), _, __, In, Out)
"""
BREAKING = """
def look_at(session, client):
    client.get('/v1/users/me')
    raise RuntimeError
look_at(dm.session(), dm.session().client)
"""


@pytest.mark.parametrize("automatically", [True, False], ids=["state saved", "state not saved"])
def test_no_file_contains_a_key(new_page, server, *, automatically):
    """The notebook is saved after typing, accepting, refusing, re-running and restarting."""
    server.save_widget_state(automatically=automatically)
    page = new_page()
    with stand_in(api_key=ACCEPTED) as service:
        show = f"import directmail_lab as dm\nform = dm.login(base_url={service.base_url!r})\nform"
        name = server.write(
            f"leaks-{automatically}.ipynb", show, "form", LOOKING_ROUND, BREAKING, LEAKING
        )
        open_notebook(page, server, name)
        run_cells(page, 0, 1)
        form = Form(page).ready()
        form.key.click()
        page.keyboard.type(TYPED_ONLY)
        save(page)
        form.key.fill("")
        form.sign_in(REFUSED)
        expect(form.problem).to_contain_text("did not accept")
        save(page)
        form.sign_in(ACCEPTED)
        expect(form.account).to_be_visible()
        run_cells(page, 2, 3)
        save(page)
        run_cells(page, 1)
        expect(Form(page, 1).account).to_be_visible()
        save(page)
        kept_in_page = page.evaluate("() => JSON.stringify([localStorage, sessionStorage])")
        restart_kernel(page)
        save(page)
        run_cells(page, 0)
        form = Form(page).ready()
        form.sign_in(AFTER_RESTART)
        expect(form.problem).to_contain_text("did not accept")
        form.sign_in(ACCEPTED)
        expect(form.account).to_be_visible()
        run_cells(page, 4)
        page.locator(".widget-text input[type=password]").click()
        page.keyboard.type(LEAKED)
        save(page)
    notebook = (server.notebooks / name).read_text()

    assert leaks(server.home, *KEYS) == []
    leaked = "".join(leaks(server.home, LEAKED))
    assert "server.log" in leaked
    assert (name in leaked) is automatically
    assert not any(key in kept_in_page for key in KEYS)
    assert ("application/vnd.jupyter.widget-state+json" in notebook) is automatically
    assert "Traceback" in notebook
    assert list(server.notebooks.glob(f".ipynb_checkpoints/leaks-{automatically}*"))
    assert (server.home / "ipython/profile_default/history.sqlite").exists()
