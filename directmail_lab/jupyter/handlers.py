"""The handlers of the Jupyter server: they show recordings and make new notebooks.

Each handler needs the server's own token or cookie, and the permission to read (or write) contents.
An error is JSON with a sentence; neither it nor the log holds any value of a recording.
"""

from __future__ import annotations

import asyncio
import base64
import json
from functools import partial
from pathlib import Path
from typing import Any, Final

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.utils import ensure_async, url_path_join
from tornado.web import HTTPError, authenticated

from ..browsing import answer, page
from ..errors import CassetteError
from ..tutorials import EXPLORE, first_tutorial, notebook_of
from .files import file_of, others_beside, recording_in, root_of, version_of

_PLUGIN: Final = Path(__file__).with_name("plugin.js")
_TYPES: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


def handlers(base_url: str) -> list[tuple[str, type[JupyterHandler]]]:
    """Return the handlers, for `tornado.web.Application.add_handlers`."""
    of = {
        "recording": RecordingHandler,
        "(explore|tutorials)": NotebookHandler,
        r"(plugin\.js|browser\.js|browser\.css)": PageHandler,
    }
    return [(url_path_join(base_url, "directmail-lab", at), each) for at, each in of.items()]


class RecordingHandler(APIHandler):
    """Answers the questions of a page that shows a recording: some of its rows, one interaction."""

    auth_resource = "contents"

    @authenticated
    @authorized
    async def get(self) -> None:
        """Answer with JSON; the bodies that belong to it are in base64."""
        path, contents = self.get_query_argument("path"), self.contents_manager
        file = await file_of(contents, path)
        question = _parsed(self.get_query_argument("question"))
        compares = isinstance(question, dict) and question.get("ask") in ("others", "compare_with")
        others = await others_beside(contents, path) if compares else {}
        told = await asyncio.to_thread(_answer, file, question, others)
        self.finish(json.dumps(told))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _answer(file: Path, question: object, others: dict[str, Path]) -> dict[str, Any]:
    try:
        version = version_of(file)
        by_name = {name: partial(recording_in, other) for name, other in others.items()}
        told, bodies = answer(recording_in(file), question, by_name)
    except CassetteError as error:
        status = 415 if "is not a cassette" in str(error) else 422
        raise HTTPError(status, str(error)) from None
    except Exception as error:  # its message might hold a value, and would be logged
        said = f"{file.name} cannot be shown ({type(error).__name__})."
        raise HTTPError(500, said) from None
    buffers = [base64.b64encode(body).decode("ascii") for body in bodies]
    return {"answer": told, "buffers": buffers, "version": version}


class NotebookHandler(APIHandler):
    """Makes a notebook to start from, or copies the tutorials, and answers with the path."""

    auth_resource = "contents"

    @authenticated
    @authorized
    async def post(self, what: str) -> None:
        """Answer with the path of the notebook to open."""
        make = self._explore if what == "explore" else self._tutorials
        self.finish(json.dumps({"path": await make()}))

    async def _explore(self) -> str:
        contents, folder = self.contents_manager, self.get_query_argument("folder", "")
        name = "explore-direct-mail.ipynb"
        name = await ensure_async(contents.increment_filename(name, folder, insert="-"))
        model = {"type": "notebook", "format": "json", "content": notebook_of(EXPLORE)}
        made = await ensure_async(contents.new(model, f"{folder}/{name}"))
        return str(made["path"])

    async def _tutorials(self) -> str:
        root = root_of(self.contents_manager)
        try:
            first = await asyncio.to_thread(first_tutorial, root)
            return first.resolve().relative_to(root).as_posix()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "a link leads out of it"
            said = f"The tutorials cannot be copied to the server's folder ({why})."
            raise HTTPError(403, said) from None


class PageHandler(JupyterHandler):
    """Serves the front end: the extension's module, and the script and style of `browse`."""

    @authenticated
    async def get(self, name: str) -> None:
        """Answer with a file, which a web browser asks for anew each time (``no-cache``)."""
        script, style = page()
        texts = {"browser.js": script, "browser.css": style}
        text = texts.get(name) or _PLUGIN.read_text("utf-8")
        self.set_header("Content-Type", _TYPES[Path(name).suffix])
        self.set_header("Cache-Control", "no-cache")
        self.finish(text)
