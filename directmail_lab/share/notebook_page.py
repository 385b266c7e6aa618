"""A notebook as an HTML page, by nbconvert: text, code, tables and pictures, without a script."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any, cast

from ..display import RUN_FOR_FORM
from ..errors import DirectMailLabError, naming_what_is_missing

# What a browser shows without a kernel, the best first. A widget needs one, and a script is not
# allowed: each is shown as what a saved notebook has beside it.
_SHOWN = [
    *("text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg"),
    "text/plain",
]
# What Markdown and outputs may contain. All other markup is left out: a page that a notebook may
# have from a stranger must not lead elsewhere by itself, which a policy alone does not prevent.
_ELEMENTS = """
a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure
h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre s small span strong style sub summary sup
table tbody td tfoot th thead tr u ul
"""
_ATTRIBUTES = {
    "*": ["align", "class", "colspan", "id", "rowspan", "style", "title", "valign"],
    "a": ["href"],
    "details": ["open"],
    "img": ["alt", "height", "src", "width"],
    "ol": ["start"],
    "table": ["border"],
}
_PROTOCOLS = ["data", "http", "https", "mailto"]
# nbconvert's page, without the addresses of MathJax, require.js, Mermaid and the widgets' scripts,
# and with JupyterLab's dark theme where the reader prefers that. Pictures keep a light background,
# for which charts are drawn.
_TEMPLATE = """\
{% extends 'lab/index.html.j2' %}
{% block html_head_js %}
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
img-src data:; font-src data:; base-uri 'none'; form-action 'none'">
<link rel="icon" href="data:,">
{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block notebook_css %}
{{ super() }}
<style>
@media (prefers-color-scheme: dark) {
{{ resources.include_css("static/theme-dark.css") | striptags | safe }}
:root { color-scheme: dark; }
.jp-RenderedImage img, .jp-RenderedSVG img { background: white; }
}
</style>
{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
"""


def import_nbformat() -> Any:
    """Return the module ``nbformat``."""
    # For web addresses, which notebooks do not check, jsonschema would load a grammar: 1 s.
    sys.modules.setdefault("rfc3987_syntax", cast("Any", None))
    import nbformat

    return nbformat


def import_exporter() -> Any:
    """Return nbconvert's exporter of HTML."""
    with naming_what_is_missing():
        import_nbformat()
        from nbconvert.exporters.html import HTMLExporter

    return HTMLExporter


def page_of(notebook: bytes, title: str, *, has_code: bool = True) -> bytes:
    """Return a notebook as an HTML page, which loads nothing and runs no script."""
    exporter_class = import_exporter()
    nbformat = import_nbformat()
    from traitlets.config import Config

    config = Config({"NbConvertBase": {"display_data_priority": _SHOWN}})
    exporter = exporter_class(
        config=config,
        exclude_input=not has_code,
        exclude_output_prompt=not has_code,
        filters={"clean_html": _allowed},
        log=logging.Logger("page", logging.CRITICAL),
        raw_template=_TEMPLATE,
        sanitize_html=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as: cells have no ids
        read = nbformat.reads(notebook.decode(), as_version=4)
        try:
            nbformat.validate(read)
        except nbformat.ValidationError:
            raise DirectMailLabError(
                f"{title}.ipynb is not a valid notebook of format 4.",
                "Save it in JupyterLab, and try again.",
            ) from None
        for cell in () if has_code else read.cells:
            outputs = cell.get("outputs", ())
            cell["outputs"] = [
                each for each in outputs if RUN_FOR_FORM not in str(each.get("data"))
            ]
        page, _ = exporter.from_notebook_node(read, {"metadata": {"name": title}})
    return str(page).encode()


def _allowed(markup: object) -> str:
    """Return markup with the allowed elements and attributes alone; nbconvert needs bleach, too."""
    import bleach
    from bleach.css_sanitizer import CSSSanitizer

    allowed: str = bleach.clean(
        str(markup),
        tags=_ELEMENTS.split(),
        attributes=_ATTRIBUTES,
        protocols=_PROTOCOLS,
        css_sanitizer=CSSSanitizer(),
        strip=True,
    )
    return allowed
