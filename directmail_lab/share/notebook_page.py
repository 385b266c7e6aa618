"""A notebook as an HTML page, by nbconvert: text, code, tables and pictures, without a script."""

from __future__ import annotations

import logging
import re
import warnings

from ..errors import DirectMailLabError, naming_what_is_missing

# What a browser shows without a kernel, the best first. A widget needs one, and a script is not
# allowed: each is shown as what a saved notebook has beside it.
_SHOWN = [
    *("text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg"),
    "text/plain",
]
# JupyterLab's style sheets name in comments where they are from.
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# nbconvert's page, without the addresses of MathJax, require.js, Mermaid and the widgets' scripts.
_TEMPLATE = """\
{% extends 'lab/index.html.j2' %}
{% block html_head_js %}
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
img-src data:; font-src data:; base-uri 'none'; form-action 'none'">
<link rel="icon" href="data:,">
{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
"""


def page_of(notebook: bytes, title: str) -> bytes:
    """Return a notebook as an HTML page, which loads nothing and runs no script."""
    with naming_what_is_missing():
        import nbformat
        from nbconvert.exporters.html import HTMLExporter
        from traitlets.config import Config

    config = Config({"NbConvertBase": {"display_data_priority": _SHOWN}})
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        config=config, raw_template=_TEMPLATE, log=logging.Logger("page", logging.CRITICAL)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as: cells have no ids
        read = nbformat.reads(notebook.decode(), as_version=4)  # type: ignore[no-untyped-call]
        try:
            nbformat.validate(read)
        except nbformat.ValidationError:
            raise DirectMailLabError(
                f"{title}.ipynb is not a valid notebook of format 4.",
                "Save it in JupyterLab, and try again.",
            ) from None
        page, _ = exporter.from_notebook_node(read, {"metadata": {"name": title}})
    head, body = page.split("<body", 1)
    return f"{_COMMENT.sub('', head)}<body{body}".encode()
