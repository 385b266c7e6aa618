"""The extension of JupyterLab and Notebook 7: cassettes as documents, and cards in the launcher.

It is a Jupyter Server extension, and a labextension that needs no build. The files in
``labextension`` and ``server.json`` are data files of the wheel; ``pip install`` puts them where
Jupyter looks for them.

Each handler needs the server's own token or cookie, and the permission to read (or write) contents.
An error is JSON with a sentence. Neither the error nor the log contains a value of a recording.
"""

from __future__ import annotations

import asyncio
import base64
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.contents.filemanager import FileContentsManager
from jupyter_server.services.contents.manager import ContentsManager
from jupyter_server.utils import ApiPath, ensure_async, to_os_path, url_path_join
from tornado.web import HTTPError, authenticated

from ..cassettes import FileRecording, read_cassette
from ..errors import CassetteError, CassetteFormatError
from ..notebook.browser_data import handle_request, read_static
from ..share.tutorials import explore_cells, first_tutorial, notebook_of

_PLUGIN = Path(__file__).with_name("plugin.js")


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "directmail_lab.jupyter"}]


def _load_jupyter_server_extension(server: ServerApp) -> None:
    handlers: dict[str, type[JupyterHandler]] = {
        "recording": RecordingHandler,
        "(explore|tutorials)": NotebookHandler,
        r"(plugin\.js|browser\.js|browser\.css|codemirror\.js)": PageHandler,
    }
    for path, handler in handlers.items():
        url = url_path_join(server.base_url, "directmail-lab", path)
        server.web_app.add_handlers(".*$", [(url, handler)])


class RecordingHandler(APIHandler):
    """Responds to the page that shows a recording, with some of its rows or one interaction."""

    auth_resource = "contents"

    @authenticated
    @authorized
    async def get(self) -> None:
        """Respond with JSON. Bodies are encoded in base64."""
        file = await _find_file(self.contents_manager, self.get_query_argument("path"))
        try:
            request = json.loads(self.get_query_argument("request"))
        except (ValueError, RecursionError):
            request = None
        self.finish(json.dumps(await asyncio.to_thread(_respond, file, request)))


def _respond(file: Path, request: object) -> dict[str, Any]:
    """Return the response of `handle_request`. Messages name the file without its folder."""
    try:
        stat = file.stat()
        # It changes whenever the file does.
        version = f"{stat.st_ino}-{stat.st_mtime_ns}-{stat.st_size}"
        response, bodies = handle_request(_open(file, version), request)
    except CassetteError as error:
        message = str(error).replace(str(file), file.name)
        is_other = isinstance(error, CassetteFormatError) and not error.is_cassette
        raise HTTPError(415 if is_other else 422, message) from None
    except Exception as error:  # its message is not used: it may contain a value, and is logged
        message = f"{file.name} cannot be shown ({type(error).__name__})."
        raise HTTPError(500, message) from None
    buffers = [base64.b64encode(body).decode("ascii") for body in bodies]
    return {"response": response, "buffers": buffers, "version": version}


class NotebookHandler(APIHandler):
    """Creates a notebook to start from, or copies the tutorials, and responds with the path."""

    auth_resource = "contents"

    @authenticated
    @authorized
    async def post(self, name: str) -> None:
        """Respond with the path of the notebook to open."""
        make = self._explore if name == "explore" else self._tutorials
        self.finish(json.dumps({"path": await make()}))

    async def _explore(self) -> str:
        contents = self.contents_manager
        folder = self.get_query_argument("folder", "")
        if not await ensure_async(contents.dir_exists(folder)):
            raise HTTPError(404, "There is no such folder on this server.")
        name = "explore-direct-mail.ipynb"
        name = await ensure_async(contents.increment_filename(name, folder, insert="-"))
        cells = explore_cells(name.removesuffix(".ipynb"))
        model = {"type": "notebook", "format": "json", "content": notebook_of(cells)}
        created = await ensure_async(contents.new(model, f"{folder}/{name}"))
        return str(created["path"])

    async def _tutorials(self) -> str:
        root = _root_of(self.contents_manager)
        try:
            first = await asyncio.to_thread(first_tutorial, root)
            return first.resolve().relative_to(root).as_posix()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "a link leads out of it"
            message = f"The tutorials cannot be copied to the server's folder ({why})."
            raise HTTPError(403, message) from None


class PageHandler(JupyterHandler):
    """Serves the front end: the extension's module, and the files of `browse`."""

    @authenticated
    async def get(self, name: str) -> None:
        """Respond with a file. Web browsers check for a new version each time (``no-cache``)."""
        media_type = "text/css" if name.endswith(".css") else "text/javascript"
        self.set_header("Content-Type", f"{media_type}; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")
        self.finish(_PLUGIN.read_text("utf-8") if name == _PLUGIN.name else read_static(name))


# -- files of the server -----------------------------------------------------------------------


def _root_of(contents: ContentsManager) -> Path:
    if not isinstance(contents, FileContentsManager):
        raise HTTPError(501, "This server does not keep its files on its disk.")
    return Path(contents.root_dir).resolve()


async def _find_file(contents: ContentsManager, path: str) -> Path:
    """Return the file at a path.

    Raises
    ------
    HTTPError
        404 if the file does not exist, if the contents manager hides it, or if it is outside the
        server's folder (through a link, for example). The message is the same in all three cases.
    """
    root = _root_of(contents)
    missing = HTTPError(404, "There is no such file in the server's folder.")
    try:
        file = Path(to_os_path(ApiPath(path), str(root))).resolve(strict=True)
        inside = file.relative_to(root).as_posix()
    except (OSError, RuntimeError, ValueError):
        raise missing from None
    hidden = [await ensure_async(contents.is_hidden(name)) for name in (path, inside)]
    if not file.is_file() or (any(hidden) and not contents.allow_hidden):
        raise missing
    return file


@lru_cache(maxsize=2)
def _open(file: Path, _version: str) -> FileRecording:
    recording = read_cassette(file)
    if recording.layout == "empty":
        message = f"{file.name} is not a cassette: it is empty."
        raise CassetteFormatError(message, is_cassette=False)
    return recording
