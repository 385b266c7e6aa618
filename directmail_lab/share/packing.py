"""`share`: notebooks and the recordings that they replay, in one zip that runs offline.

No file is copied. Each one is parsed, searched for credentials and written anew, which leaves out
comments, repeated members and unknown fields. Then each file of the zip is searched once more.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import packages_distributions, version
from itertools import chain
from numbers import Real
from pathlib import Path, PurePosixPath
from typing import Any

from ..arguments import check_number
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
from ..redaction.key import KeySearch
from ..redaction.suspects import Part
from ..tracebacks import warn_caller
from . import audit
from .cassette_page import make_page
from .notebook_page import page_of
from .package_files import WHEEL, wheel_contents
from .run import run_notebooks

_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,255})\1")
_IMPORT = re.compile(r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+)")
_WIDGET = "application/vnd.jupyter.widget-view+json"
# The first date that a zip can have: equal contents give equal zips.
_DATE = (1980, 1, 1, 0, 0, 0)

_RAN = (
    "All cells were run before they were shared, with no key. Python's connections to other "
    "machines were refused, but not those of other programs. The outputs are those of that run."
)
_DID_NOT_RUN = "The notebooks were not run before, so cells may need a key or a network."
_NO_KEY = (
    "No API key is known here, so this was searched only for what looks like a key.\n"
    "If a notebook was run with one, set DIRECTMAIL_API_KEY and share again."
)
_README = """\
# {title}

Nothing installed? Open one of these in a web browser:

{pages}

The notebooks replay the recordings in `cassettes/`. {was_run}

You need Python 3.11 or later. Run these commands in this folder:

    python3 -m venv .venv             # Windows: py -m venv .venv
    . .venv/bin/activate              # Windows: .venv\\Scripts\\activate
    pip install -r requirements.txt
    directmail-lab lab                # opens {first}

With a key of your own, `record` in a notebook asks the service; to read, use `replay`.
"""


def share(
    notebooks: str | Path | Iterable[str | Path],
    target: str | Path,
    *,
    cassettes: Iterable[str | Path] = (),
    redact: Sequence[str] = (),
    run: bool = True,
    has_code: bool = True,
    timeout_s: float = 600.0,
    notice: Callable[[str], object] = lambda _: None,
) -> Path:
    """Put notebooks and the cassettes they replay into one zip, and return its path.

    First it runs the notebooks as a reader will: in a copy of the shared folder, each in a fresh
    kernel, with no key and no network. The zip has the outputs of that run, and not those that you
    saved. Beside each notebook and each cassette is the same as an HTML page, which any web browser
    shows.

    The zip contains each cassette that the notebooks' code names in quotes. It also contains what a
    reader needs: a README, a requirements file and a wheel of this package. It contains a picture
    only if the picture is attached to its cell. Equal files give equal zips.

    Parameters
    ----------
    notebooks
        The ``.ipynb`` file or files.
    target
        The zip to write or to replace; ``.zip`` is added if it is missing. With the suffix
        ``.html``, only the page of the one notebook is written.
    cassettes
        More cassettes, such as those whose names the code computes.
    redact
        What to replace in the packed cassettes, as `record` takes it: ``"personal"``, or names of
        fields. The outputs are those of a run with these cassettes, and your files stay unchanged.
    run
        Whether to run the notebooks. Otherwise, their outputs stay as you saved them.
    has_code
        Whether the notebooks' pages show their code.
    timeout_s
        The most seconds that all notebooks together may run.
    notice
        Called with each line of a report: the files in the zip, and whether the notebooks were run.
        The last line says if no key is known.

    Warns
    -----
    UserWarning
        A file contains personal data, such as e-mail addresses. Or a recording is too large for a
        page, or a widget needs a browser, so that the notebook does not have its picture.

    Raises
    ------
    NotebookRunError
        A cell does not run without a key; the message names the first one, and nothing is written.
    DirectMailLabError
        A notebook cannot be read, or a file contains a secret. Nothing is written, and the message
        says where it is.
    """
    check_number("timeout_s", timeout_s, least=1, kind=Real)
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
    packed = _Packed(map(Path, paths), cassettes, redact, notice)
    if is_page and len(packed.notebooks) > 1:
        raise DirectMailLabError("A page shows one notebook.", "Give one, or write a .zip.")
    packed.refuse_secrets({})  # a notebook that cannot be shared is not run for minutes
    if run:
        packed.run(timeout_s)
    packed.add_pages(has_code=has_code)
    was_run = _RAN if run else _DID_NOT_RUN
    content = packed.page() if is_page else packed.zipped(target.stem, was_run)
    personal = audit.personal_data(_parts_of(packed.notebooks) if is_page else packed.parts())
    if personal:
        warn_caller(
            f"{target.name} contains {personal}.",
            "To replace this in what is packed, and not in your files: --redact personal.",
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
        cassettes: Iterable[str | Path],
        redact: Sequence[str],
        notice: Callable[[str], object],
    ) -> None:
        self.notebooks: dict[str, bytes] = {}
        self._cassettes: dict[str, bytes] = {}
        self._pages: dict[str, bytes] = {}
        self._redact = redact
        self._notice = notice
        self._recordings: dict[str, FileRecording] = {}
        self._code = ""
        for notebook in notebooks:
            self._add_notebook(notebook)
        if not self.notebooks:
            raise DirectMailLabError("No notebook to share.", "Name at least one .ipynb file.")
        for name in cassettes:
            file = find_cassette(name)
            self._add_cassette(file, f"cassettes/{file.name if Path(name).suffix else name}")

    @property
    def files(self) -> dict[str, bytes]:
        """Return the notebooks, the cassettes, and the pages of both."""
        return {**self.notebooks, **self._cassettes, **self._pages}

    def _add_notebook(self, path: Path) -> None:
        """Add a notebook, and the cassettes that its code names."""
        notebook = audit.read_notebook(path)
        sources = [
            "".join(cell.get("source", ""))
            for cell in notebook["cells"]
            if cell.get("cell_type") == "code"
        ]
        code = "\n".join(["", *sources])
        self._add(self.notebooks, f"notebooks/{path.name}", path, _written(notebook))
        self._code += code
        for name in sorted({name for _, name in _QUOTED.findall(code)}):
            self._add_named(name, path.parent)

    def _add_named(self, name: str, folder: Path) -> None:
        """Add the cassette that a text in a notebook names, by its name or its path, if any.

        Its place has the name as it is written there: on the reader's disk, ``Tour`` and ``tour``
        may be two names.
        """
        file = folder / name
        named = cassette_named(name, folder.resolve())
        if named:
            self._add_cassette(named, f"cassettes/{name}")
        elif file.suffix in (".yaml", ".yml", ".json", ".har") and file.is_file():
            with suppress(CassetteFormatError):  # some other file
                self._add_cassette(file, posixpath.normpath(posixpath.join("notebooks", name)))

    def _add_cassette(self, file: Path, place: str) -> None:
        """Add a cassette, written anew in our layout, without its credentials.

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

    def _add(self, files: dict[str, bytes], place: str, file: Path, content: bytes) -> None:
        if place.startswith(("/", "../")) or "\\" in place:
            raise DirectMailLabError(
                f"{str(file)!r} leads out of what can be shared.",
                "Put the cassette into a folder named cassettes beside or above the notebook, and "
                "name it there.",
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
        """Yield each part of the notebooks and the cassettes."""
        yield from _parts_of(self.notebooks)
        for place, recording in self._recordings.items():
            yield from audit.parts_of_cassette(recording, f"{place}, ")

    def search(self) -> KeySearch:
        """Return a search for the keys that this computer knows, also for the recorded services."""
        recordings = self._recordings.values()
        return audit.search_for(chain.from_iterable(each.base_urls for each in recordings))

    def refuse_secrets(self, more: Mapping[str, bytes]) -> None:
        """Raise an error if the files of the zip, or ``more`` files, contain a secret.

        In a checkout, the author may have tried a tutorial of the wheel with a key.
        """
        search = self.search()
        findings = list(audit.secrets_in(chain(self.parts(), _parts_of(more)), search))
        for place, content in {**self.files, **more}.items():
            if search.holds(place):
                findings.append(audit.Finding("secret", "your API key", "the name of a file"))
            elif search.holds(str(content, "latin-1")):
                findings.append(audit.Finding("secret", "your API key", place))
        audit.refuse_secrets(dict.fromkeys(findings))

    def run(self, timeout_s: float) -> None:
        """Run the notebooks in a copy of what the zip contains, and keep their outputs."""
        with tempfile.TemporaryDirectory() as temporary:
            shared = Path(temporary).resolve() / "shared"
            for place, content in self.files.items():
                path = shared / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            notebooks = [shared / place for place in sorted(self.notebooks)]
            run_notebooks(shared.parent, notebooks, timeout_s=timeout_s)
            for place in self.notebooks:
                notebook = json.loads((shared / place).read_bytes())
                for number, cell in enumerate(notebook["cells"], 1):
                    if _drop_widgets(cell):
                        warn_caller(
                            f"{place}, cell {number} shows a widget that only a browser draws, so "
                            "what is shared does not have it."
                        )
                self.notebooks[place] = _written(notebook)

    def add_pages(self, *, has_code: bool) -> None:
        """Add a page of each notebook and of each cassette."""
        for place, content in self.notebooks.items():
            page = page_of(content, PurePosixPath(place).stem, has_code=has_code)
            self._pages[_page_of(place)] = page
        for place, recording in self._recordings.items():
            page_place = f"{place.removesuffix('.yaml')}.html"
            try:
                self._pages[page_place] = make_page(recording, list(recording))
            except DirectMailLabError as error:
                warn_caller(f"{page_place} is left out. {error.what}")

    def page(self) -> bytes:
        """Return the page of the only notebook."""
        [place] = self.notebooks
        self.refuse_secrets({})
        return self._pages[_page_of(place)]

    def zipped(self, title: str, was_run: str) -> bytes:
        """Return all files in a zip, in a folder with this name."""
        wheel = wheel_contents()
        about = {
            "README.md": self._readme(title, was_run).encode(),
            "requirements.txt": self._requirements().encode(),
        }
        self.refuse_secrets({**about, **wheel})
        files = {**self.files, **about, WHEEL: _zipped(wheel)}
        return _zipped({f"{title}/{place}": each for place, each in files.items()})

    def _readme(self, title: str, was_run: str) -> str:
        return _README.format(
            title=title,
            pages="\n".join(f"- `{place}`" for place in sorted(self._pages)),
            was_run=was_run,
            first=min(self.notebooks),
        )

    def _requirements(self) -> str:
        """Return the wheel, and the packages that the notebooks import, in their versions here."""
        modules = set(_IMPORT.findall(self._code)) - {"directmail_lab"} - sys.stdlib_module_names
        # packages_distributions() looks at every installed file, which takes half a second.
        by_module = packages_distributions() if modules else {}
        packages = {name for module in modules for name in by_module.get(module, ())[:1]}
        pinned = sorted(f"{name}=={version(name)}" for name in packages)
        return "\n".join([f"./{WHEEL}", *pinned, ""])


def _parts_of(notebooks: Mapping[str, bytes]) -> Iterator[Part]:
    """Yield each part of these files that are notebooks."""
    for place, content in notebooks.items():
        if place.endswith(".ipynb"):
            yield from audit.parts_of_notebook(json.loads(content), place)


def _page_of(notebook: str) -> str:
    return f"{notebook.removesuffix('.ipynb')}.html"


def _written(notebook: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n".encode()


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


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    """Return a zip of these files, by their places in it."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as packed:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return whole.getvalue()
