"""`share`: notebooks and the recordings that they replay, in one zip that needs no network.

No file is copied. Each one is parsed, searched for credentials and written anew, which leaves out
comments, repeated members and unknown fields. Then each file of the zip is searched once more.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import packages_distributions, version
from itertools import chain
from mimetypes import guess_type
from pathlib import Path, PurePosixPath
from typing import Any

from ..cassettes import (
    FileRecording,
    cassette_named,
    find_cassette,
    folded,
    read_cassette,
)
from ..cassettes.convert import convert, redact as redact_file
from ..cassettes.library import create
from ..errors import CassetteFormatError, DirectMailLabError
from ..exchange.bodies import plain_text
from ..exchange.values import Interaction, Request, Response
from ..redaction import Redactor
from ..redaction.key import KeySearch
from ..redaction.suspects import Part
from ..tracebacks import warn_caller
from . import audit
from .cassette_page import described, make_page
from .notebook_page import WIDGET, page_of, path_beside
from .package_files import WHEEL, wheel_contents
from .run import run_notebooks

_CASSETTE_SUFFIXES = (".yaml", ".yml", ".json", ".har")
_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,255})\1")
_IMPORT = re.compile(r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+)")
# What Markdown shows or links to, in brackets or in an attribute of an element.
_REFERENCE = re.compile(r"""\]\((?:<([^>\n]+)>|([^)\s]+))|(?:src|href)=["']([^"']+)""")
# The first date that a zip can have: equal contents give equal zips.
_DATE = (1980, 1, 1, 0, 0, 0)

_RAN = (
    "All cells were run before they were shared, with no key. Python's connections to other "
    "machines were refused, but not those of other programs. The outputs are those of that run."
)
_DID_NOT_RUN = "The notebooks were not run before, so cells may need a key or a network."
_NO_KEY = (
    "No key is known here, so this was searched only for what looks like a key.\n"
    "If a notebook was run with one, set DIRECTMAIL_API_KEY and share again."
)
_README = """\
# {title}

Nothing installed? Open one of these in a web browser:

{pages}

{was_run}

{facts}

You need Python 3.11 or later. Run these commands in this folder:

    python3 -m venv .venv             # Windows: py -m venv .venv
    . .venv/bin/activate              # Windows: .venv\\Scripts\\activate
    pip install --force-reinstall -r requirements.txt
    directmail-lab lab                # opens {first}

With a key of your own, `record` in a notebook asks the service; to read, use `replay`.
"""


def share(
    notebooks: str | Path | Iterable[str | Path],
    target: str | Path,
    *,
    add: Iterable[str | Path] = (),
    redact: Sequence[str] = (),
    run: bool = True,
    has_code: bool = True,
    notice: Callable[[str], object] = lambda _: None,
) -> Path:
    """Put notebooks and the cassettes they replay into one zip, and return its path.

    First it runs the notebooks as a reader will: in a copy of the shared folder, each in a fresh
    kernel, with no key and no network. The zip has the outputs of that run, and not those that you
    saved. Beside each notebook and each cassette is the same as an HTML page, which any web browser
    shows. It names what it cannot show, such as a widget.

    The zip contains each cassette and each file that the notebooks' code names in quotes, the
    modules that it imports from beside the notebook, and the pictures and files that its Markdown
    names. It also contains what a reader needs: a README, a requirements file and a wheel of this
    package. Equal files give equal zips.

    Parameters
    ----------
    notebooks
        The ``.ipynb`` file or files.
    target
        The zip to write or to replace; ``.zip`` is added if it is missing. With the suffix
        ``.html``, only the page of the one notebook is written.
    add
        More cassettes, such as those whose names the code computes, and more files. In the zip, a
        file stands where it is from the first notebook.
    redact
        What to replace in the packed cassettes and the files beside them, as `record` takes it:
        ``"personal"``, or names of fields. The outputs are those of a run with these, and your
        files stay unchanged.
    run
        Whether to run the notebooks. Otherwise, their outputs stay as you saved them.
    has_code
        Whether the notebooks' pages show their code.
    notice
        Called with each line of a report: before the file is written, how large its pages are, what
        was recorded when and where, which cells have older data, and how much personal data there
        is; then the files in the zip, and whether the notebooks were run. The last line says if no
        key is known.

    Warns
    -----
    UserWarning
        A file contains personal data, such as e-mail addresses. Or a page does not show something,
        such as a widget or a file that is missing, or a recording is too large for one.

    Raises
    ------
    NotebookRunError
        A cell does not run without a key; the message names the first one, and nothing is written.
    DirectMailLabError
        A notebook cannot be read, or a file contains a secret. Nothing is written, and the message
        says where it is.
    """
    if redact and not run:
        raise DirectMailLabError(
            "The outputs that you saved cannot be redacted.", "Leave out --no-run."
        )
    target = Path(target)
    is_page = target.suffix.lower() == ".html"
    if not target.suffix:
        target = target.with_name(f"{target.name}.zip")
    elif target.suffix.lower() not in (".html", ".zip"):
        raise DirectMailLabError(
            f"{target.name} is neither a .zip nor a .html page.", "Give a name with one of them."
        )
    paths = [notebooks] if isinstance(notebooks, str | Path) else notebooks
    packed = _Packed(map(Path, paths), add, redact, notice)
    if is_page and len(packed.notebooks) > 1:
        raise DirectMailLabError("A page shows one notebook.", "Give one, or write a .zip.")
    packed.refuse_secrets({})  # a notebook that cannot be shared is not run for minutes
    if run:
        packed.run()
    packed.add_pages(was_run=run, has_code=has_code, is_alone=is_page)
    was_run = _RAN if run else _DID_NOT_RUN
    personal = audit.personal_data(_parts_of(packed.notebooks) if is_page else packed.parts())
    facts = [
        *packed.recorded(),
        *packed.old_cells(),
        f"Personal data: {personal or 'none was found'}.",
    ]
    for line in (*packed.sizes(), *facts):
        notice(line)
    content = packed.page() if is_page else packed.zipped(target.stem, was_run, facts)
    if personal:
        warn_caller(
            f"{target.name} contains {personal}.",
            ""
            if "personal" in redact
            else "To replace this in what is packed, and not in your files: --redact personal.",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with create(target) as new:
        new.write_bytes(content)
    if is_page:
        notice(f"Wrote {target}.")
    else:
        notice("\n  ".join([f"Wrote {target}, with:", *zipfile.ZipFile(target).namelist()]))
    notice(was_run)
    if not packed.search().knows_a_key:
        notice(_NO_KEY)
    return target


class _Packed:
    """What the zip contains: the bytes of each file, by its place in the zip."""

    def __init__(
        self,
        notebooks: Iterable[Path],
        add: Iterable[str | Path],
        redact: Sequence[str],
        notice: Callable[[str], object],
    ) -> None:
        self.notebooks: dict[str, bytes] = {}
        self._cassettes: dict[str, bytes] = {}
        self._others: dict[str, bytes] = {}
        self._pages: dict[str, bytes] = {}
        self._redact = redact
        self._notice = notice
        self._recordings: dict[str, FileRecording] = {}
        self._code = ""
        # The places of the cassettes that each notebook replays.
        self._replayed = defaultdict[str, list[str]](list)
        notebooks = list(notebooks)
        for notebook in notebooks:
            self._add_notebook(notebook)
        if not self.notebooks:
            raise DirectMailLabError("No notebook to share.", "Name at least one .ipynb file.")
        folder = notebooks[0].parent
        for name in add:
            file = Path(name)
            if not file.is_file():
                self._add_cassette(find_cassette(name), f"cassettes/{name}", self.notebooks)
                continue
            path = Path(os.path.relpath(file, folder)).as_posix()
            if file.suffix in _CASSETTE_SUFFIXES:
                self._add_named(path, folder, self.notebooks)
            else:
                self._add_other(file, path)

    @property
    def files(self) -> dict[str, bytes]:
        """Return the notebooks, the cassettes, the pages of both, and the other files."""
        return {**self.notebooks, **self._cassettes, **self._pages, **self._others}

    def _add_notebook(self, path: Path) -> None:
        """Add a notebook, and the cassettes and files that it names."""
        notebook = audit.read_notebook(path)
        place = f"notebooks/{path.name}"
        self._add(self.notebooks, place, path, _written(notebook))
        code = _sources(notebook, "code")
        self._code += code
        for name in sorted({name for _, name in _QUOTED.findall(code)}):
            self._add_named(name, path.parent, [place])
        beside = {f"{module}.py" for module in _IMPORT.findall(code)}
        for groups in _REFERENCE.findall(_sources(notebook, "markdown")):
            beside.add(path_beside("".join(groups)))
        for name in sorted(beside):
            self._add_beside(name, path.parent)

    def _add_named(self, name: str, folder: Path, notebooks: Iterable[str]) -> None:
        """Add the cassette or file that a text in a notebook names, by its name or path, if any.

        Its place has the name as it is written there: on the reader's disk, ``Tour`` and ``tour``
        may be two names.
        """
        file = folder / name
        named = cassette_named(name, folder.resolve())
        if named:
            self._add_cassette(named, f"cassettes/{name}", notebooks)
            return
        if file.suffix in _CASSETTE_SUFFIXES and file.is_file():
            with suppress(CassetteFormatError):  # some other file
                self._add_cassette(file, _from_notebooks(name), notebooks)
                return
        self._add_beside(name, folder)

    def _add_beside(self, name: str, folder: Path) -> None:
        """Add a file that a notebook names, if there is one. It is not hidden, nor a notebook."""
        file = folder / name
        if file.suffix in ("", ".ipynb") or file.name.startswith("."):
            return
        with suppress(OSError):  # the text is no name
            if not file.is_file():
                return
            try:
                self._add_other(file, name)
            except DirectMailLabError as error:
                warn_caller(error.what)

    def _add_other(self, file: Path, name: str) -> None:
        """Add a file by its path from the notebooks' folder, redacted as a body of its type is."""
        content = file.read_bytes()
        if self._redact and file.suffix != ".py":
            kind = guess_type(file.name)[0] or ""
            body = Response(200, headers=(("Content-Type", kind),), body=content)
            read = Interaction(Request("GET", ""), body)
            content = Redactor(redact=self._redact).interaction(read).response.body
            if plain_text(content) is None and not kind.startswith("image/"):
                warn_caller(f"{name} is packed as it is: only text can be redacted.")
        self._add(self._others, _from_notebooks(name), file, content)

    def _add_cassette(self, file: Path, place: str, notebooks: Iterable[str]) -> None:
        """Add a cassette that these notebooks replay, written anew without its credentials.

        It keeps its suffix, which the notebook's code names: the layout is read from the content.
        """
        place = place.removesuffix(file.suffix) + file.suffix
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, PurePosixPath(place).name)
            convert(file, target)
            if self._redact:
                redact_file(target, self._redact, notice=self._notice)
            self._add(self._cassettes, place, file, target.read_bytes())
            self._recordings[place] = read_cassette(target)
        for notebook in notebooks:
            self._replayed[notebook].append(place)

    def _add(self, files: dict[str, bytes], place: str, file: Path, content: bytes) -> None:
        if place.startswith(("/", "../")) or "\\" in place:
            raise DirectMailLabError(
                f"{str(file)!r} leads out of what can be shared.",
                "Put it beside the notebook, or a cassette into a folder named cassettes beside or "
                "above it, and name it there.",
            )
        # Compared as Windows and macOS do, where a reader may unpack the zip.
        for other in files:
            if folded(other) == folded(place) and files[other] != content:
                raise DirectMailLabError(
                    f"Two files would be {place} in the zip, and {file} is one of them.",
                    "Rename it, or share it separately.",
                )
        files[place] = content

    def parts(self) -> Iterator[Part]:
        """Yield each part of the notebooks, the cassettes and the other files."""
        yield from _parts_of(self.notebooks)
        yield from self._others.items()
        for place, recording in self._recordings.items():
            yield from audit.parts_of_cassette(recording, f"{place}, ")

    def search(self) -> KeySearch:
        """Return a search for the keys that this computer knows, also for the recorded services."""
        recordings = self._recordings.values()
        return audit.search_for(chain.from_iterable(each.base_urls for each in recordings))

    def refuse_secrets(self, more: Mapping[str, bytes]) -> None:
        """Raise an error if the files of the zip contain a secret, or ``more`` files the key."""
        search = self.search()
        findings = audit.secrets_in(self.parts(), search)
        for place, content in {**self.files, **more}.items():
            if search.holds(place):
                findings.append(audit.Finding("secret", "your key", "the name of a file"))
            elif search.holds(str(content, "latin-1")):
                findings.append(audit.Finding("secret", "your key", place))
        audit.refuse_secrets(findings)

    def run(self) -> None:
        """Run the notebooks in a copy of what the zip contains, and keep their outputs."""
        with tempfile.TemporaryDirectory() as temporary:
            shared = Path(temporary).resolve() / "shared"
            for place, content in self.files.items():
                path = shared / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            run_notebooks(shared.parent, [shared / place for place in sorted(self.notebooks)])
            for place in self.notebooks:
                self.notebooks[place] = (shared / place).read_bytes()

    def add_pages(self, *, was_run: bool, has_code: bool, is_alone: bool) -> None:
        """Add a page of each notebook and of each cassette, and leave out widgets of a run."""
        places = [*self.files, *map(_page_of, self.notebooks)]
        files = {posixpath.relpath(place, "notebooks"): self._others.get(place) for place in places}
        for place, content in self.notebooks.items():
            used = [self._recordings[each] for each in self._replayed[place]]
            recorded = "; ".join(f"{each.name}, {described(each)}" for each in used)
            data = "Data replayed from" if was_run else "Not run before. Data recorded in"
            page, lost = page_of(
                content,
                PurePosixPath(place).stem,
                about=f"{data} {recorded}." if recorded else "",
                has_code=has_code,
                files=files,
                has_links=not is_alone,
            )
            self._pages[_page_of(place)] = page
            for what in lost:
                warn_caller(f"Not shown in {_page_of(place)}, {what}")
            if was_run:
                self.notebooks[place] = _without_widgets(content)
        for place, recording in self._recordings.items():
            try:
                self._pages[_page_of(place)] = make_page(recording, list(recording))
            except DirectMailLabError as error:
                warn_caller(f"{_page_of(place)} is left out. {error.what}")

    def sizes(self) -> list[str]:
        """Return the name and the size of each page."""
        pages = sorted(self._pages.items())
        return [f"{place}: {len(page) / 1000:,.1f} kB" for place, page in pages]

    def recorded(self) -> list[str]:
        """Return what each cassette contains: how much, from when and where."""
        return [f"{place}: {described(each)}." for place, each in self._recordings.items()]

    def old_cells(self) -> Iterator[str]:
        """Yield the cells whose data is of an earlier day than that of another cell."""
        for place, content in self.notebooks.items():
            ids = [cell.get("id") for cell in json.loads(content)["cells"]]
            days: dict[str, date] = {}
            for used in self._replayed[place]:
                for each in self._recordings[used]:
                    cell = each.cell or ""
                    if cell in ids and each.recorded_at:
                        day = each.recorded_at.date()
                        days[cell] = max(day, days.get(cell, day))
            for cell, day in days.items():
                if day < max(days.values()):
                    yield f"{place}, cell {ids.index(cell) + 1}: data of {day.day} {day:%B %Y}."

    def page(self) -> bytes:
        """Return the page of the only notebook."""
        [place] = self.notebooks
        self.refuse_secrets({})
        return self._pages[_page_of(place)]

    def zipped(self, title: str, was_run: str, facts: Iterable[str]) -> bytes:
        """Return all files in a zip, in a folder with this name."""
        wheel = wheel_contents()
        about = {
            "README.md": _README.format(
                title=title,
                pages=_listed(self.sizes()),
                was_run=was_run,
                facts=_listed(facts),
                first=min(self.notebooks),
            ).encode(),
            "requirements.txt": self._requirements().encode(),
        }
        self.refuse_secrets({**about, **wheel})
        files = {**self.files, **about, WHEEL: _zipped(wheel)}
        return _zipped({f"{title}/{place}": each for place, each in files.items()})

    def _requirements(self) -> str:
        """Return the wheel, and the packages that the notebooks import, in their versions here."""
        modules = set(_IMPORT.findall(self._code)) - {"directmail_lab"} - sys.stdlib_module_names
        # packages_distributions() looks at every installed file, which takes half a second.
        by_module = packages_distributions() if modules else {}
        packages = {name for module in modules for name in by_module.get(module, ())[:1]}
        pinned = sorted(f"{name}=={version(name)}" for name in packages)
        return "\n".join([f"./{WHEEL}", *pinned, ""])


def _parts_of(notebooks: Mapping[str, bytes]) -> Iterator[Part]:
    """Yield each part of these notebooks."""
    for place, content in notebooks.items():
        yield from audit.parts_of_notebook(json.loads(content), place)


def _page_of(place: str) -> str:
    return f"{place.removesuffix('.ipynb').removesuffix('.yaml')}.html"


def _written(notebook: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n".encode()


def _without_widgets(notebook: bytes) -> bytes:
    """Return a notebook without the outputs that need its kernel.

    A widget of this package has a second output, which needs none.
    """
    whole = json.loads(notebook)
    for cell in whole["cells"]:
        outputs = cell.get("outputs", [])
        for output in outputs:
            output.get("data", {}).pop(WIDGET, None)
        outputs[:] = [each for each in outputs if each.get("data", True)]
    return _written(whole)


def _sources(notebook: Mapping[str, Any], kind: str) -> str:
    """Return the text of a notebook's cells of one kind."""
    cells = [each for each in notebook["cells"] if each.get("cell_type") == kind]
    return "\n".join(["", *("".join(each.get("source", "")) for each in cells)])


def _from_notebooks(name: str) -> str:
    """Return the place in the zip that a path from the notebooks' folder leads to."""
    return posixpath.normpath(posixpath.join("notebooks", name))


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    """Return a zip of these files, by their places in it."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as packed:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return whole.getvalue()
