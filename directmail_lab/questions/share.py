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
from importlib.metadata import distribution, packages_distributions, version
from itertools import chain, groupby
from numbers import Real
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

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
from ..package_files import package_files
from ..redaction.key import KeySearch
from ..settings import VERSION
from . import audit

_SearchFor = Callable[[Iterable[str]], KeySearch]
_MakePage = Callable[[Recording, KeySearch], bytes | None]

_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,255})\1")
_IMPORT = re.compile(r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+)")

_WHEEL: Final = f"directmail_lab-{VERSION}-py3-none-any.whl"
# The files that JupyterLab looks for: where pip installs them, as in pyproject.toml, and where they
# are in the wheel.
SHARED_DATA: Final = {
    "share/jupyter/labextensions/directmail-lab": "directmail_lab/jupyter/labextension",
    "etc/jupyter/jupyter_server_config.d/directmail-lab.json": "directmail_lab/jupyter/server.json",
}
_RAN: Final = "All cells were run before they were shared, with no key and no network."
_RAN_BUT_SOCKETS: Final = (
    "All cells were run before they were shared, with no key. Python's connections to other "
    "machines were refused. This system cannot refuse those of other programs."
)
_PAGES: Final = """
Nothing installed? Open this page in a web browser. It shows what was recorded:

{pages}

The notebooks:
"""
_NO_KEY: Final = (
    "No API key is known here, so the zip was searched only for what looks like a key.\n"
    "If a notebook was run with one, set DIRECTMAIL_API_KEY and share again."
)
_DID_NOT_RUN: Final = "The notebooks were not run before, so cells may need a key or a network."
_README: Final = """\
# {title}
{pages}
{notebooks}

They replay the recordings in `cassettes/`. {was_run}

You need Python 3.11 or later. Run these commands in this folder:

    python3 -m venv .venv             # Windows: py -m venv .venv
    . .venv/bin/activate              # Windows: .venv\\Scripts\\activate
    pip install -r requirements.txt
    directmail-lab                    # opens {first}

With a key of your own, `record` in a notebook asks the service; to read, use `replay`.
"""


def share(
    notebooks: str | Path | Iterable[str | Path],
    target: str | Path,
    *,
    cassettes: Iterable[str | Path] = (),
    secrets: Iterable[str] = (),
    run: bool = True,
    timeout_s: float = 600.0,
    notice: Callable[[str], object] = lambda _: None,
    make_page: _MakePage | None = None,
) -> Path:
    """Put notebooks and the cassettes they replay into one zip, and return its path.

    First it runs the notebooks as a reader will: in a copy of the shared folder, each in a fresh
    kernel, with no key and no network. The outputs in the notebooks stay as you saved them.

    The zip contains each cassette that the notebooks' code names in quotes, or that their run
    opened. It also contains what a reader needs: a README, a requirements file and a wheel of this
    package. It contains a picture only if the picture is attached to its cell. The same input gives
    the same zip.

    Parameters
    ----------
    notebooks
        The ``.ipynb`` file or files.
    target
        The zip to write or to replace; ``.zip`` is added if it is missing.
    cassettes
        More cassettes, such as those whose names the code computes, if it is not run.
    secrets
        More keys to look for. It always looks for the keys of this process and its keyring, and
        for what `audit` finds.
    run
        Whether to run the notebooks.
    timeout_s
        The most seconds that all notebooks together may run.
    notice
        Called with each line of a report: the files in the zip, whether the notebooks were run and
        without what, and the files in the zip's wheel. The last line says if no key is known.
    make_page
        Makes an HTML page of a recording, such as `directmail_lab.widgets.page.make_page`. The zip
        then has a page of each cassette.

    Warns
    -----
    UserWarning
        A file contains personal data, such as e-mail addresses. Or a recording is too large for a
        page, or a notebook was saved with an error.

    Raises
    ------
    NotebookRunError
        A cell does not run without a key; the message names the first one, and nothing is written.
    DirectMailLabError
        A notebook cannot be read, or a file contains a secret. Nothing is written, and the message
        says where it is.
    """
    check_number("timeout_s", timeout_s, least=1, kind=Real)
    target, bundle = Path(target), _Bundle()
    target = target if target.suffix.lower() == ".zip" else target.with_name(target.name + ".zip")
    for notebook in [notebooks] if isinstance(notebooks, str | Path) else notebooks:
        bundle.add_notebook(Path(notebook))
    if not bundle.contents:
        raise DirectMailLabError("No notebook to share.", "Name at least one .ipynb file.")
    for cassette in cassettes:
        file = find_cassette(cassette)
        bundle.add_cassette(file, f"cassettes/{file.name if Path(cassette).suffix else cassette}")
    search_for, was_run = _searching(secrets), _DID_NOT_RUN
    del secrets  # a traceback may print it
    if run:
        bundle.check(search_for)  # a notebook that cannot be shared is not run for minutes
        was_run = bundle.run(timeout_s)
    if make_page:
        bundle.add_pages(make_page, search_for)
    # With LC_ALL=C, Python may read a file's name as ASCII with surrogates, which no zip can store.
    title = os.fsencode(target.stem).decode(errors="replace")
    bundle.add_instructions(title, was_run)
    wheel = _wheel()
    findings = bundle.check(search_for, wheel)
    first_place = {each.what: each.where for each in reversed(findings)}
    for what, where in first_place.items():
        warnings.warn(f"The zip contains {what}, first in {where}.", stacklevel=2)
    contents = {**bundle.contents, _WHEEL: _zipped(wheel)}
    target.parent.mkdir(parents=True, exist_ok=True)
    with create(target) as new:
        new.write_bytes(_zipped({f"{title}/{name}": data for name, data in contents.items()}))
    names = [f"  {title}/{name}" for name in sorted(contents)]
    for line in (f"Wrote {target}, with:", *names, was_run, *_listed(wheel)):
        notice(line)
    if not search_for(bundle.base_urls).knows_a_key:
        notice(_NO_KEY)
    return target


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


def _searching(secrets: Iterable[str]) -> _SearchFor:
    """Return `audit.search_for` with these secrets, so that no frame of a traceback has them."""
    kept = tuple(secrets)
    return lambda base_urls: audit.search_for(base_urls, secrets=kept)


def _refuse_secrets(findings: list[audit.Finding]) -> None:
    if secrets := [str(each) for each in findings if each.kind == "secret"]:
        raise DirectMailLabError(
            "Nothing was written, because this must not be shared:\n  "
            + "\n  ".join(secrets)
            + "\nEdit those cells, clear their outputs, and record those cassettes again or clean "
            "them with: directmail-lab cassette redact."
        )


class _Bundle:
    """The contents of the zip: the bytes of each file by its path, and the parts to search."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.parts: list[audit.Part] = []
        self.base_urls: set[str] = set()
        self._code = ""
        self._available: dict[str, Path] = {}

    def add_notebook(self, path: Path) -> None:
        """Add a notebook, and the cassettes that its code names."""
        notebook, folder = audit.read_notebook(path), path.parent
        content = f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n".encode()
        parts = audit.parts_of_notebook(notebook, str(path))
        self._add(f"notebooks/{path.name}", path, content, parts)
        cells = (each for each in notebook["cells"] if each.get("cell_type") == "code")
        code = "\n".join("".join(cell.get("source", "")) for cell in cells)
        for name in sorted({name for _, name in _QUOTED.findall(code)}):
            self._add_named(name, folder)
        for number, cell in enumerate(notebook["cells"], 1):
            kinds = [out["ename"] for out in cell.get("outputs", ()) if out.get("ename")]
            if kinds and "raises-exception" not in cell.get("metadata", {}).get("tags", ()):
                warnings.warn(
                    f"{path}, cell {number} was saved with an error ({kinds[0]}), which the reader "
                    "sees. Run the notebook again and save it, then share it again.",
                    stacklevel=3,
                )
        # The same cassettes that the notebook's kernel finds.
        for name, file in cassettes_by_name(folder.resolve()).items():
            place = f"cassettes/{name}".removesuffix(file.suffix) + file.suffix
            self._available.setdefault(place, file)
        self._code += f"{code}\n"

    def _add_named(self, name: str, folder: Path) -> None:
        """Add the cassette that a text in a notebook names, by its name or its path, if any.

        Its place has the name as it is written there: on the reader's disk, ``Tour`` and ``tour``
        may be two names.
        """
        file = folder / name
        if named := cassette_named(name, folder.resolve()):
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
            cassette, content = read_cassette(target), target.read_bytes()
        self.base_urls.update(cassette.base_urls)
        self._add(place, file, content, audit.parts_of_cassette(cassette.interactions, str(file)))

    def _add(self, place: str, file: Path, content: bytes, parts: Iterable[audit.Part]) -> None:
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
        self.parts.extend(parts)

    @property
    def notebooks(self) -> list[str]:
        """Where the notebooks are in the zip; the command opens the first."""
        return sorted(place for place in self.contents if place.endswith(".ipynb"))

    def check(
        self, search_for: _SearchFor, wheel: Mapping[str, bytes] = MappingProxyType({})
    ) -> list[audit.Finding]:
        """Return findings of personal data; raise an error if a file contains a secret."""
        search = search_for(self.base_urls)
        findings = audit.find(self.parts, search)
        findings += _audit_wheel(search) if wheel else ()
        for place, content in chain(self.contents.items(), wheel.items()):
            if search.holds(str(content, "latin-1")):
                findings.append(audit.Finding("secret", "your API key", place))
        _refuse_secrets(findings)
        return findings

    def run(self, timeout_s: float) -> str:
        """Run the notebooks in a copy, add the cassettes they opened, and return a sentence."""
        from .running import run_notebooks

        others = {
            place: file for place, file in self._available.items() if place not in self.contents
        }
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary).resolve()
            shared = folder / "shared"
            for place in (*self.contents, *others):
                (shared / place).parent.mkdir(parents=True, exist_ok=True)
            for place, file in others.items():
                shutil.copyfile(file, shared / place)
            for place, content in self.contents.items():
                (shared / place).write_bytes(content)
            before = {_identity(path) for path in shared.rglob("*") if path.is_file()}
            notebooks = [shared / place for place in self.notebooks]
            opened, has_namespace = run_notebooks(folder, notebooks, timeout_s=timeout_s)
            used = {
                path.relative_to(shared).as_posix(): _identity(path)
                for path in opened
                if path.is_relative_to(shared) and path.is_file()
            }
            there = [place for place in (*self.contents, *others) if (shared / place).is_file()]
            packed = {_identity(shared / place): place for place in there}
        for place, identity in used.items():
            name = place if place in self.contents else packed.get(identity, "")
            if name in self.contents:
                self.contents[place] = self.contents[name]
            elif name:
                self.add_cassette(others[name], place)
            elif identity in before:
                raise DirectMailLabError(
                    f"Nothing was written: the run opened {place}, which was a file with another "
                    "name before.",
                    "Let the notebook open cassettes by the names they have.",
                )
        return _RAN if has_namespace else _RAN_BUT_SOCKETS

    def add_pages(self, make_page: _MakePage, search_for: _SearchFor) -> None:
        """Add a page of each cassette, which is searched for keys before it is compressed."""
        search = search_for(self.base_urls)
        for place, content in sorted(self.contents.items()):
            if place.endswith(".ipynb"):
                continue
            page = make_page(parse_cassette(content, Path(place)), search)
            if page is None:
                warnings.warn(f"{place} gets no page, because it is too large.", stacklevel=3)
            else:
                self.contents[f"{place.removesuffix('.yaml')}.html"] = page

    def add_instructions(self, title: str, was_run: str) -> None:
        """Add a README, and requirements that pin the packages which the notebooks import."""
        pages = [f"- `{place}`" for place in sorted(self.contents) if place.endswith(".html")]
        readme = _README.format(
            title=title,
            pages=_PAGES.format(pages="\n".join(pages)) if pages else "",
            notebooks="\n".join(f"- `{place}`" for place in self.notebooks),
            was_run=was_run,
            first=self.notebooks[0],
        )
        modules = set(_IMPORT.findall(self._code)) - {"directmail_lab"} - sys.stdlib_module_names
        # packages_distributions() looks at every installed file, which takes half a second.
        by_module = packages_distributions() if modules else {}
        packages = {name for module in modules for name in by_module.get(module, ())[:1]}
        pinned = sorted(f"{name}=={version(name)}" for name in packages)
        self.contents["README.md"] = readme.encode()
        self.contents["requirements.txt"] = "\n".join([f"./{_WHEEL}", *pinned, ""]).encode()


# -- the wheel and the zip ---------------------------------------------------------------------


def _wheel() -> dict[str, bytes]:
    """Return the files of this package's wheel as a build makes it, with the tutorials."""
    about = f"directmail_lab-{VERSION}.dist-info"
    contents = {place: path.read_bytes() for place, path in package_files().items()}
    for installed, source in SHARED_DATA.items():
        data = f"directmail_lab-{VERSION}.data/data/{installed}"
        contents |= {
            data + place.removeprefix(source): content
            for place, content in contents.items()
            if place.startswith(source)
        }
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        text = distribution("directmail-lab").read_text(name) or ""
        contents[f"{about}/{name}"] = text.encode()
    contents[f"{about}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: directmail-lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    # The checksums are left out: pip computes its own when it installs.
    record = "".join(f"{name},,\n" for name in (*contents, f"{about}/RECORD"))
    return {**contents, f"{about}/RECORD": record.encode()}


def _audit_wheel(search: KeySearch) -> Iterator[audit.Finding]:
    """Yield what the package's files contain. In a checkout, their user may have changed them."""
    for path in package_files().values():
        if path.suffix in (".ipynb", ".yaml"):
            yield from audit.audit(path)
        else:
            yield from audit.secrets_in(str(path), path.read_text("latin-1"), search)


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as packed:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(
                name
            )  # its date is always 1980, so equal content gives equal zips
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return whole.getvalue()
