"""A notebook as an HTML page, by nbconvert: text, code, tables and pictures, without a script.

What such a page cannot show is named in its place.
"""

from __future__ import annotations

import html
import logging
import mimetypes
import posixpath
import re
import sys
import warnings
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from ..display import RUN_FOR_FORM
from ..errors import DirectMailLabError, naming_what_is_missing

WIDGET = "application/vnd.jupyter.widget-view+json"
_PICTURES = ("image/svg+xml", "image/png", "image/jpeg")
# What a browser shows without a kernel, the best first. A widget needs one, and a script is not
# allowed: each is shown as what a saved notebook has beside it.
_SHOWN = ["text/html", "text/markdown", *_PICTURES, "text/latex", "text/plain"]
# Parts of markup that a page cannot show, and that would leave their text or nothing.
_LOST = re.compile(r"(?is)<(script|iframe|svg|video|audio|canvas|object)\b.*?(?:</\1\s*>|\Z)")
# What they are, by a word in them or in the kind of an output.
_NAMES = {
    "plotly": 'a Plotly chart. fig.show("png") would show its picture',
    "vega": 'an Altair chart. alt.renderers.enable("png") would show its picture',
    "widget": "a widget, which needs a running kernel",
    "<iframe": "an embedded page",
    "<svg": "a drawing in HTML",
    "<video": "a video",
    "<audio": "a sound",
    "": "an output that needs a script",
}
_ATTRIBUTE = r'(?:[^>"]|"[^"]*")*?'
_IMAGE = re.compile(f'<img {_ATTRIBUTE}src="([^"]*)"{_ATTRIBUTE}>')
_LINK = re.compile(f'(?s)<a {_ATTRIBUTE}href="([^"]*)"{_ATTRIBUTE}>(.*?)</a>')
_NOTE = re.compile('<em class="not-shown">Not shown here: (.*?)</em>')
_FORMULA = re.compile(r"\$\$|\\begin\{")
_HEADING = re.compile(r'(?s)<h([1-3]) id="([^"]+)">(.*?)<a class="anchor-link"')
# Characters of a page that has a table of contents, and those that a picture stands for.
_TWO_SCREENS = 4000
_PICTURE_CHARACTERS = 750
_STYLE = Path(__file__).with_suffix(".css")
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
@media screen and (prefers-color-scheme: dark) {
{{ resources.include_css("static/theme-dark.css") | striptags | safe }}
}
{{ resources.style }}</style>
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


def page_of(
    notebook: bytes,
    title: str,
    *,
    about: str,
    has_code: bool = True,
    files: Mapping[str, bytes | None],
    has_links: bool = True,
) -> tuple[bytes, list[str]]:
    """Return a notebook as an HTML page, which loads nothing and runs no script.

    Parameters
    ----------
    about
        What stands at the head of the page.
    files
        What the reader has, by its path from the notebook's folder, with the bytes of pictures.
    has_links
        Whether the reader has these files beside the page.

    Returns
    -------
    bytes, list of str
        The page, and what it does not show: ``"cell 5: a Plotly chart."``.
    """
    exporter_class = import_exporter()
    nbformat = import_nbformat()
    from traitlets.config import Config

    config = Config({"NbConvertBase": {"display_data_priority": _SHOWN}})
    exporter = exporter_class(
        config=config,
        exclude_input=not has_code,
        exclude_output_prompt=not has_code,
        filters={"clean_html": partial(_allowed, files=files, has_links=has_links)},
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
        for cell in read.cells:
            if cell.cell_type == "markdown" and _FORMULA.search(cell.source):
                cell.source += f"\n\n{_LATEX_ONLY}"
            for output in cell.get("outputs", ()):
                _choose_what_is_shown(output.get("data", {}))
        resources = {"metadata": {"name": title}, "style": _STYLE.read_text("utf-8")}
        page, _ = exporter.from_notebook_node(read, resources)
    head, main, body = page.partition("<main>")
    about = f'<p class="about">{html.escape(about)}</p>' if about else ""
    whole = f"{head}{main}{about}{_contents(body)}{body}"
    numbers = [number for number, cell in enumerate(read.cells, 1) if cell.cell_type != "raw"]
    lost = []
    for number, cell in zip(numbers, body.split('class="jp-Cell ')[1:], strict=False):
        lost += [f"cell {number}: {html.unescape(what)}" for what in _NOTE.findall(cell)]
    return whole.encode(), lost


def _choose_what_is_shown(data: dict[str, Any]) -> None:
    """Leave of an output what the page shows: its picture, if it has one beside a script.

    If it has nothing that can be shown, a note says what it is.
    """
    kinds = set(data) - {"text/plain"}
    is_ours = data.keys() == {WIDGET}  # the next output is its picture
    if not kinds.isdisjoint(_PICTURES) and _LOST.search(data.get("text/html", "")):
        del data["text/html"]
    elif kinds and not is_ours and kinds.isdisjoint(_SHOWN):
        data["text/html"] = _note(" ".join(kinds))
    elif kinds.intersection(_SHOWN) == {"text/latex"}:
        data["text/html"] = f"<p>{html.escape(data['text/latex'])}</p>{_LATEX_ONLY}"
    elif RUN_FOR_FORM in data.get("text/plain", ""):
        data.clear()


def _note(lost: str) -> str:
    """Return the note for markup that the page cannot show, or for an output of these kinds."""
    lower = lost.lower()
    return _not_shown(next(name for word, name in _NAMES.items() if word in lower))


def _not_shown(what: str) -> str:
    return f'<em class="not-shown">Not shown here: {html.escape(what)}.</em>'


_LATEX_ONLY = _not_shown("a formula, of which the LaTeX stands above")


def _allowed(markup: object, files: Mapping[str, bytes | None], has_links: bool) -> str:
    """Return markup with the allowed elements and attributes alone; nbconvert needs bleach, too.

    Pictures among the ``files`` are put into it.
    """
    import bleach
    from bleach.css_sanitizer import CSSSanitizer

    notes: list[str] = []

    def name_once(lost: re.Match[str]) -> str:
        notes.append(_note(lost[0]))
        return notes[-1] if notes.count(notes[-1]) == 1 else ""

    def with_picture(image: re.Match[str]) -> str:
        address = html.unescape(image[1])
        if address.startswith("data:"):
            return image[0]
        content = files.get(path_beside(address))
        if content is None:
            return _not_shown(f"the picture {address}")
        kind, _ = mimetypes.guess_type(address)
        return image[0].replace(image[1], f"data:{kind};base64,{b64encode(content).decode()}")

    def with_note(link: re.Match[str]) -> str:
        address = html.unescape(link[1])
        path = path_beside(address)
        if not path or (has_links and path in files):
            return link[0]
        return f"{link[2]} {_not_shown(f'the file {address}')}"

    allowed = bleach.clean(
        _LOST.sub(name_once, str(markup)),
        tags=_ELEMENTS.split(),
        attributes=_ATTRIBUTES,
        protocols=_PROTOCOLS,
        css_sanitizer=CSSSanitizer(),
        strip=True,
    )
    return _LINK.sub(with_note, _IMAGE.sub(with_picture, allowed))


def path_beside(address: str) -> str:
    """Return the path from the notebook's folder that an address in it names, if any."""
    with suppress(ValueError):  # an address that is not valid
        parts = urlsplit(address)
        if parts.path and not (parts.scheme or parts.netloc):
            return posixpath.normpath(unquote(parts.path))
    return ""


def _contents(body: str) -> str:
    """Return a table of contents, if the page is longer than two screens."""
    text = re.sub("<[^>]*>", "", body)
    headings = _HEADING.findall(body)
    length = len(text) + _PICTURE_CHARACTERS * body.count("<img")
    if length < _TWO_SCREENS or len(headings) < 3:
        return ""
    links = [
        f'<a class="level-{level}" href="#{name}">{re.sub("<[^>]*>", "", title)}</a>'
        for level, name, title in headings
    ]
    return f'<nav aria-label="Contents">{"".join(links)}</nav>'
