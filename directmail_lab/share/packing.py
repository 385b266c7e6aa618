"""`share`: notebooks and the recordings that they replay, in one zip that runs offline.

No file is copied. Each one is parsed, searched for credentials and written anew, which leaves out
comments, repeated members and unknown fields. Then each file of the zip is searched once more.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from itertools import chain, groupby
from numbers import Real
from pathlib import Path, PurePosixPath
from typing import Any

from ..arguments import check_number
from ..cassettes import (
    Recording,
    cassette_named,
    cassettes_by_name,
    find_cassette,
    folded,
    read_cassette,
)
from ..cassettes.convert import convert, layout_of
from ..cassettes.files import parse_cassette
from ..cassettes.library import create
from ..errors import CassetteFormatError, DirectMailLabError
from ..redaction.key import KeySearch
from ..redaction.suspects import Part
from . import audit
from .package_files import WHEEL, checkout, tutorial_files, wheel_contents

_MakePage = Callable[[Recording, KeySearch], bytes | None]

_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,255})\1")
_IMPORT = re.compile(r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+)")
_WIDGET = "application/vnd.jupyter.widget-view+json"
# A zip has no dates before 1980 and after 2107.
_FIRST_DATE = datetime(1980, 1, 1, tzinfo=UTC)
_LAST_DATE = datetime(2107, 1, 1, tzinfo=UTC)

_RAN = "All cells were run before they were shared, with no key and no network."
_RAN_BUT_SOCKETS = (
    "All cells were run before they were shared, with no key. Python's connections to other "
    "machines were refused. This system cannot refuse those of other programs."
)
_OUTPUTS = "The outputs are those of that run."
_NO_KEY = (
    "No API key is known here, so this was searched only for what looks like a key.\n"
    "If a notebook was run with one, set DIRECTMAIL_API_KEY and share again."
)
_DID_NOT_RUN = "The notebooks were not run before, so cells may need a key or a network."
_README = """\
# {title}

Nothing installed? Open {pages} in a web browser.
{recorded}
The notebooks:

{notebooks}

They replay the recordings in `cassettes/`. {was_run}

You need Python 3.11 or later. Run these commands in this folder:

    python3 -m venv .venv             # Windows: py -m venv .venv
    . .venv/bin/activate              # Windows: .venv\\Scripts\\activate
    pip install -r requirements.txt
    directmail-lab lab                # opens {first}

With a key of your own, `record` in a notebook asks the service; to read, use `replay`.
"""
_RECORDED = """
What was recorded, as pages for a web browser:

{pages}
"""


def share(
    notebooks: str | Path | Iterable[str | Path],
    target: str | Path,
    *,
    cassettes: Iterable[str | Path] = (),
    run: bool = True,
    timeout_s: float = 600.0,
    notice: Callable[[str], object] = lambda _: None,
    verbose: bool = False,
    make_page: _MakePage | None = None,
) -> Path:
    """Put notebooks and the cassettes they replay into one zip, and return its path.

    First it runs the notebooks as a reader will: in a copy of the shared folder, each in a fresh
    kernel, with no key and no network. The zip has the outputs of that run, and not those that you
    saved. Beside each notebook is the same as an HTML page, which any web browser shows.

    The zip contains each cassette that the notebooks' code names in quotes, or that their run
    opened. It also contains what a reader needs: a README, a requirements file and a wheel of this
    package. It contains a picture only if the picture is attached to its cell. Its files have the
    date of the last recording.

    Parameters
    ----------
    notebooks
        The ``.ipynb`` file or files.
    target
        The zip to write or to replace; ``.zip`` is added if it is missing. With the suffix
        ``.html``, only the page of the one notebook is written.
    cassettes
        More cassettes, such as those whose names the code computes, if it is not run.
    run
        Whether to run the notebooks. Otherwise, their outputs stay as you saved them.
    timeout_s
        The most seconds that all notebooks together may run.
    notice
        Called with each line of a report: the files in the zip, and whether the notebooks were run
        and without what. The last line says if no key is known.
    verbose
        Report the files in the zip's wheel, too.
    make_page
        Makes an HTML page of a recording: `directmail_lab.share.cassette_page.make_page`. The zip
        then has a page of each cassette.

    Warns
    -----
    UserWarning
        A file contains personal data, such as e-mail addresses. Or a recording is too large for a
        page, or an output is not what you saved: a widget's picture is not made without a browser.

    Raises
    ------
    NotebookRunError
        A cell does not run without a key; the message names the first one, and nothing is written.
    DirectMailLabError
        A notebook cannot be read, or a file contains a secret. Nothing is written, and the message
        says where it is.
    """
    check_number("timeout_s", timeout_s, least=1, kind=Real)
    target = Path(target)
    is_page = target.suffix.lower() == ".html"
    if not is_page and target.suffix.lower() != ".zip":
        target = target.with_name(f"{target.name}.zip")
    bundle = _gathered(notebooks, cassettes, keeps_outputs=not run)
    if is_page and len(bundle.notebooks) > 1:
        raise DirectMailLabError("A page shows one notebook.", "Give one, or write a .zip.")
    bundle.check()  # a notebook that cannot be shared is not run for minutes
    was_run = bundle.run(timeout_s) if run else bundle.show_as_saved()
    # With LC_ALL=C, Python may read a file's name as ASCII with surrogates, which no zip can store.
    title = os.fsencode(target.stem).decode(errors="replace")
    if is_page:
        bundle.keep_only_page()
    else:
        bundle.add_pages(make_page)
        bundle.add_instructions(title, was_run)
        bundle.wheel = wheel_contents()
    for found in audit.first_places(bundle.check()):
        warnings.warn(f"{target.name} contains {found}.", stacklevel=2)
    target.parent.mkdir(parents=True, exist_ok=True)
    content = bundle.page if is_page else bundle.zipped(title)
    with create(target) as new:
        new.write_bytes(content)
    lines = [f"Wrote {target}."]
    if not is_page:
        lines = [f"Wrote {target}, with:"]
        lines += [f"  {title}/{place}" for place in sorted(bundle.contents)]
    lines.append(was_run)
    if verbose:
        lines += _listed(bundle.wheel)
    if not audit.search_for(bundle.base_urls).knows_a_key:
        lines.append(_NO_KEY)
    for line in lines:
        notice(line)
    return target


def _gathered(
    notebooks: str | Path | Iterable[str | Path],
    cassettes: Iterable[str | Path],
    *,
    keeps_outputs: bool,
) -> _Bundle:
    """Return the notebooks, with the cassettes that they or the caller name."""
    bundle = _Bundle(keeps_outputs=keeps_outputs)
    for notebook in [notebooks] if isinstance(notebooks, str | Path) else notebooks:
        bundle.add_notebook(Path(notebook))
    if not bundle.notebooks:
        raise DirectMailLabError("No notebook to share.", "Name at least one .ipynb file.")
    for cassette in cassettes:
        file = find_cassette(cassette)
        bundle.add_cassette(file, f"cassettes/{file.name if Path(cassette).suffix else cassette}")
    return bundle


def _listed(wheel: Iterable[str]) -> Iterator[str]:
    """Yield a line for each folder in the wheel, with its files."""
    yield "The wheel contains this package and its tutorials:"
    places = sorted(map(posixpath.split, wheel))
    for folder, inner in groupby(places, key=lambda place: place[0]):
        yield f"  {folder}: {', '.join(name for _, name in inner)}"


def _identity(path: Path) -> tuple[int, int]:
    """Return what the file system knows a file by, whatever form its name has in a path."""
    status = path.stat()
    return status.st_dev, status.st_ino


class _Bundle:
    """The contents of the zip: the bytes of each file by its path, and the parts to search."""

    def __init__(self, *, keeps_outputs: bool) -> None:
        self.contents: dict[str, bytes] = {}
        self.wheel: dict[str, bytes] = {}
        self.base_urls: set[str] = set()
        self._saved_at = _FIRST_DATE
        self._recorded_at = _FIRST_DATE
        self._keeps_outputs = keeps_outputs
        self._parts: dict[str, list[Part]] = {}
        self._saved: dict[str, tuple[Path, dict[str, Any]]] = {}
        self._code = ""
        self._available: dict[str, Path] = {}

    def add_notebook(self, path: Path) -> None:
        """Add a notebook, and the cassettes that its code names."""
        notebook = audit.read_notebook(path)
        place = f"notebooks/{path.name}"
        shared = notebook if self._keeps_outputs else _without_outputs(notebook)
        self._add(place, path, _written(shared), audit.parts_of_notebook(shared, str(path)))
        self._saved[place] = path, notebook
        saved_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        self._saved_at = max(self._saved_at, saved_at)
        cells = [each for each in notebook["cells"] if each.get("cell_type") == "code"]
        code = "\n".join("".join(cell.get("source", "")) for cell in cells)
        for name in sorted({name for _, name in _QUOTED.findall(code)}):
            self._add_named(name, path.parent)
        # The same cassettes that the notebook's kernel finds.
        for name, file in cassettes_by_name(path.parent.resolve()).items():
            file_place = f"cassettes/{name}".removesuffix(file.suffix) + file.suffix
            self._available.setdefault(file_place, file)
        self._code += f"{code}\n"

    def _add_named(self, name: str, folder: Path) -> None:
        """Add the cassette that a text in a notebook names, by its name or its path, if any.

        Its place has the name as it is written there: on the reader's disk, ``Tour`` and ``tour``
        may be two names.
        """
        file = folder / name
        named = cassette_named(name, folder.resolve())
        if named:
            self.add_cassette(named, f"cassettes/{name}")
        elif file.suffix in (".yaml", ".yml", ".json", ".har") and file.is_file():
            with suppress(CassetteFormatError):  # some other file
                self.add_cassette(file, posixpath.normpath(posixpath.join("notebooks", name)))

    def add_cassette(self, file: Path, place: str) -> None:
        """Add a cassette, written anew without its credentials."""
        place = place.removesuffix(file.suffix) + file.suffix
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, PurePosixPath(place).name)
            convert(file, target, layout_of(target))
            cassette = read_cassette(target)
            content = target.read_bytes()
        self.base_urls.update(cassette.base_urls)
        times = [each.recorded_at for each in cassette.interactions if each.recorded_at]
        self._recorded_at = max(self._recorded_at, *times)
        self._add(place, file, content, audit.parts_of_cassette(cassette.interactions, str(file)))

    def _add(self, place: str, file: Path, content: bytes, parts: Iterable[Part]) -> None:
        if place.startswith(("/", "../")) or "\\" in place:
            raise DirectMailLabError(
                f"{str(file)!r} leads out of what can be shared.",
                "Put the cassette into a folder "
                "named cassettes beside or above the notebook, and name it there.",
            )
        # Compared as Windows and macOS do, where a reader may unpack the zip.
        for other in self.contents:
            if folded(other) == folded(place) and self.contents[other] != content:
                raise DirectMailLabError(
                    f"Two files would be {place} in the zip, and {file} is one of them.",
                    "Rename it, or share it separately.",
                )
        self.contents[place] = content
        self._parts[place] = list(parts)

    @property
    def notebooks(self) -> list[str]:
        """Where the notebooks are in the zip; the command opens the first."""
        return sorted(place for place in self.contents if place.endswith(".ipynb"))

    def check(self) -> list[audit.Finding]:
        """Return findings of personal data; raise an error if a file contains a secret."""
        search = audit.search_for(self.base_urls)
        findings = audit.find(chain.from_iterable(self._parts.values()), search)
        if self.wheel and checkout() is not None:
            for path in tutorial_files().values():
                # The user of a checkout may have tried a tutorial with a key.
                if path.suffix in (".ipynb", ".yaml"):
                    findings += audit.audit(path)
        for place, content in chain(self.contents.items(), self.wheel.items()):
            if search.holds(place):
                findings.append(audit.Finding("secret", "your API key", "the name of a file"))
            elif search.holds(str(content, "latin-1")):
                findings.append(audit.Finding("secret", "your API key", place))
        audit.refuse_secrets(findings)
        return findings

    def run(self, timeout_s: float) -> str:
        """Run the notebooks in a copy, keep their outputs and pages, and return a sentence.

        The cassettes that they opened are added.
        """
        from .running import run_notebooks

        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary).resolve()
            shared = folder / "shared"
            places = [*self._available, *self.contents]
            for place in places:
                path = shared / place
                path.parent.mkdir(parents=True, exist_ok=True)
                if place in self.contents:
                    path.write_bytes(self.contents[place])
                else:
                    shutil.copyfile(self._available[place], path)
            before = {_identity(path) for path in shared.rglob("*") if path.is_file()}
            notebooks = [shared / place for place in self.notebooks]
            ran = run_notebooks(folder, notebooks, timeout_s=timeout_s)
            there = [place for place in places if (shared / place).is_file()]
            known = {_identity(shared / place): place for place in there}
            for path in ran.opened:
                if path.is_relative_to(shared) and path.is_file():
                    identity = _identity(path)
                    place = path.relative_to(shared).as_posix()
                    self._add_opened(place, known.get(identity), was_there=identity in before)
        for place, (notebook, page) in zip(self.notebooks, ran.made, strict=True):
            self._set_outputs(place, json.loads(notebook), page)
        return f"{_RAN if ran.has_namespace else _RAN_BUT_SOCKETS} {_OUTPUTS}"

    def _add_opened(self, place: str, name: str | None, *, was_there: bool) -> None:
        """Add a file that the run opened, under the name that it used.

        ``name`` is where the file was put before the run, if it is still there.
        """
        if place in self.contents:
            return
        if name in self.contents:
            self.contents[place] = self.contents[name]
        elif name:
            self.add_cassette(self._available[name], place)
        elif was_there:
            raise DirectMailLabError(
                f"Nothing was written: the run opened {place}, which was a file with another name "
                "before.",
                "Let the notebook open cassettes by the names they have.",
            )

    def _set_outputs(self, place: str, notebook: dict[str, Any], page: bytes) -> None:
        """Replace a notebook by one that was run, and say which outputs it cannot have."""
        path, saved = self._saved[place]
        for number, cell in enumerate(notebook["cells"], 1):
            before = saved["cells"][number - 1].get("outputs", ())
            if _drop_widgets(cell) or (_has_picture(before) and not _has_picture(cell["outputs"])):
                warnings.warn(
                    f"{path}, cell {number} shows a widget or a picture that only a browser makes, "
                    "so what is shared does not have it.",
                    stacklevel=4,
                )
        self.contents[place] = _written(notebook)
        self._parts[place] = list(audit.parts_of_notebook(notebook, str(path)))
        self._add_page(place, page)

    def show_as_saved(self) -> str:
        """Add pages of the notebooks as they were saved, and return a sentence."""
        from .notebook_page import page_of

        for place in self.notebooks:
            path, notebook = self._saved[place]
            for number, cell in enumerate(notebook["cells"], 1):
                kinds = [out["ename"] for out in cell.get("outputs", ()) if out.get("ename")]
                if kinds and "raises-exception" not in cell.get("metadata", {}).get("tags", ()):
                    warnings.warn(
                        f"{path}, cell {number} was saved with an error ({kinds[0]}), which the "
                        "reader sees. Run the notebook again and save it, then share it again.",
                        stacklevel=3,
                    )
            self._add_page(place, page_of(self.contents[place], path.stem))
        return _DID_NOT_RUN

    def _add_page(self, place: str, page: bytes) -> None:
        self._add(_page_of(place), self._saved[place][0], page, ())

    def keep_only_page(self) -> None:
        """Leave out all that is not the page of the only notebook."""
        [place] = self.notebooks
        self.contents = {place: b"", _page_of(place): self.page}
        self._parts = {place: self._parts[place]}

    @property
    def page(self) -> bytes:
        """The page of the only notebook."""
        return self.contents[_page_of(self.notebooks[0])]

    def zipped(self, title: str) -> bytes:
        """Return all files in a zip, in a folder with this name."""
        date = self._recorded_at
        if date == _FIRST_DATE:  # without a recording, the notebooks have a date
            date = self._saved_at
        date = min(date, _LAST_DATE)
        self.contents[WHEEL] = _zipped(self.wheel, date)
        return _zipped({f"{title}/{place}": each for place, each in self.contents.items()}, date)

    def add_pages(self, make_page: _MakePage | None) -> None:
        """Add a page of each cassette, which is searched for keys before it is compressed."""
        search = audit.search_for(self.base_urls)
        for place, content in sorted(self.contents.items()):
            if make_page is None or place.endswith((".ipynb", ".html")):
                continue
            recording = parse_cassette(content, Path(place))
            page = make_page(recording, list(recording))
            if page is None:
                warnings.warn(f"{place} gets no page, because it is too large.", stacklevel=3)
            else:
                self._add(f"{place.removesuffix('.yaml')}.html", Path(place), page, ())

    def add_instructions(self, title: str, was_run: str) -> None:
        """Add a README, and requirements that pin the packages which the notebooks import."""
        pages = sorted(place for place in self.contents if place.endswith(".html"))
        own = [_page_of(place) for place in self.notebooks]
        recorded = [place for place in pages if place not in own]
        about_recorded = _RECORDED.format(pages=_list(recorded)) if recorded else ""
        readme = _README.format(
            title=title,
            pages=" or ".join(f"`{place}`" for place in own),
            recorded=about_recorded,
            notebooks=_list(self.notebooks),
            was_run=was_run,
            first=self.notebooks[0],
        )
        modules = set(_IMPORT.findall(self._code)) - {"directmail_lab"} - sys.stdlib_module_names
        # packages_distributions() looks at every installed file, which takes half a second.
        by_module = packages_distributions() if modules else {}
        packages = {name for module in modules for name in by_module.get(module, ())[:1]}
        pinned = sorted(f"{name}=={version(name)}" for name in packages)
        self.contents["README.md"] = readme.encode()
        self.contents["requirements.txt"] = "\n".join([f"./{WHEEL}", *pinned, ""]).encode()


def _page_of(notebook: str) -> str:
    return f"{notebook.removesuffix('.ipynb')}.html"


def _list(places: Iterable[str]) -> str:
    return "\n".join(f"- `{place}`" for place in places)


# -- notebooks ---------------------------------------------------------------------------------


def _written(notebook: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n".encode()


def _without_outputs(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notebook without what a run makes anew."""
    cells = [dict(cell) for cell in notebook["cells"]]
    for cell in cells:
        if cell.get("cell_type") == "code":
            cell["outputs"] = []
            cell["execution_count"] = None
    metadata = dict(notebook.get("metadata", {}))
    metadata.pop("widgets", None)
    return {**notebook, "cells": cells, "metadata": metadata}


def _drop_widgets(cell: dict[str, Any]) -> bool:
    """Remove the outputs that need the kernel; return whether nothing is left of one of them.

    A widget of this package has a second output, which needs none.
    """
    kept = []
    has_lost = False
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        is_widget = data.pop(_WIDGET, None) is not None
        has_lost = has_lost or (is_widget and list(data) == ["text/plain"])
        if data or not is_widget:
            kept.append(output)
    if "outputs" in cell:
        cell["outputs"] = kept
    return has_lost


def _has_picture(outputs: Iterable[Mapping[str, Any]]) -> bool:
    kinds = chain.from_iterable(output.get("data", ()) for output in outputs)
    return any(kind.startswith("image/") for kind in kinds)


# -- the wheel and the zip ---------------------------------------------------------------------


def _zipped(contents: Mapping[str, bytes], date: datetime) -> bytes:
    """Return a zip, whose files all have one date: equal contents give equal zips."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as packed:
        for name, content in sorted(contents.items()):
            # A zip has no time zone, so the time of day is left out.
            entry = zipfile.ZipInfo(name, (date.year, date.month, date.day, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return whole.getvalue()
