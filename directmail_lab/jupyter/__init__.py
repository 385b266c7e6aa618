"""What JupyterLab and Notebook 7 show of this package: recordings as documents, launcher cards.

A Jupyter Server extension, and a labextension that needs no build. The files in ``labextension``
and ``server.json`` are data files of the wheel; ``pip install`` puts them where Jupyter looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "directmail_lab.jupyter"}]


def _load_jupyter_server_extension(server: ServerApp) -> None:
    from .handlers import handlers

    server.web_app.add_handlers(".*$", handlers(server.base_url))
