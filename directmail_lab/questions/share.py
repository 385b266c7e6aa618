"""Notebooks and the recordings that they replay, in one zip that runs offline and holds no key.

No file is copied as it is: the zip is written from what was parsed and searched, without comments,
repeated members and unknown fields. Then each of its files is searched once more.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import distribution, packages_distributions, version
from pathlib import Path, PurePosixPath
from typing import Final

from ..cassettes import cassettes_by_name, find_cassette, read_cassette
from ..cassettes.convert import convert, layout_of
from ..errors import CassetteFormatError, DirectMailLabError
from ..settings import VERSION
from . import audit

_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,255})\1")
# In a line that is no comment, a call that reads a cassette, with the cassette's name or the start
# of what computes it; and a call that makes one.
_READS = re.compile(
    r"(?m)^[^#\n]*?\b(replay|(?:chart_)?rate_limits|interactions|browse|check_contract|findings"
    r"|openapi|drift)\(\s*(?:(?:cassette|source)\s*=\s*)?(?:Path\(\s*)?"
    r"(?:([\"'])([^\"'\n]+)\2|[^\s)])"
)
_MAKES = re.compile(r"(?:\brecord\(\s*|\bcassette\s*=\s*)([\"'])([^\"'\n]+)\1")
# A cell that calls one of these needs a service and a key, unless it starts the stand-in itself.
_SENDS = re.compile(
    r"(?m)^[^#\n]*\b(?:login|connect|record|live|drift|explore)\((?!\s*cassette\s*=)"
)
_IMPORT = re.compile(r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+)")

_WHEEL: Final = f"directmail_lab-{VERSION}-py3-none-any.whl"
_README: Final = """\
# {title}

{notebooks}

What they replay is in `cassettes/`: all other cells run with no key and no network.

With Python 3.11 or newer, in this folder:

    python -m venv .venv
    . .venv/bin/activate              # Windows: .venv\\Scripts\\activate
    pip install -r requirements.txt
    jupyter lab "{first}"
"""


def share(
    notebooks: str | Path | Iterable[str | Path],
    target: str | Path,
    *,
    cassettes: Iterable[str | Path] = (),
    secrets: Iterable[str] = (),
) -> Path:
    """Put notebooks and the cassettes they replay into one zip, and return its path.

    The zip has each cassette whose name is in quotes in the notebooks' code, and what is needed to
    open it: a README, a requirements file and a wheel of this package. A picture is in it where it
    is attached to its cell. The same input gives the same zip.

    Parameters
    ----------
    notebooks
        The ``.ipynb`` file or files.
    target
        The zip to write, or to replace; ``.zip`` is added where it is missing.
    cassettes
        More cassettes, such as those whose names the code computes.
    secrets
        More keys to look for, besides those of this process and its keyring, and besides what
        `audit` finds by its form or its place.

    Warns
    -----
    UserWarning
        A file holds personal data, such as e-mail addresses; or a notebook computes the name of a
        cassette, so it may be missing from the zip.

    Raises
    ------
    DirectMailLabError
        A notebook cannot be read, a cassette that it replays is not there, or a file holds a
        secret: then nothing is written, and the message says where it is.
    """
    target, bundle = Path(target), _Bundle()
    target = target if target.suffix.lower() == ".zip" else target.with_name(target.name + ".zip")
    for notebook in [notebooks] if isinstance(notebooks, str | Path) else notebooks:
        bundle.add_notebook(Path(notebook))
    if not bundle.contents:
        raise DirectMailLabError("No notebook to share.", "Name at least one .ipynb file.")
    for cassette in cassettes:
        file = find_cassette(cassette)
        bundle.add_cassette(file, f"cassettes/{file.name if Path(cassette).suffix else cassette}")
    bundle.add_instructions(target.stem)
    search = audit.search_for(bundle.base_urls, secrets=secrets)
    del secrets  # a traceback may print it
    findings = audit.find(bundle.parts, search)
    for place, content in bundle.contents.items():
        if search.holds(str(content, "latin-1")):
            findings.append(audit.Finding("secret", "your API key", place))
    _refuse_secrets(findings)
    contents = {**bundle.contents, _WHEEL: _wheel()}
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written beside the target and then moved there, so that a reader never finds half a zip.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        whole = Path(folder, target.name)
        whole.write_bytes(_zipped({f"{target.stem}/{n}": data for n, data in contents.items()}))
        whole.replace(target)
    return target


def _refuse_secrets(findings: list[audit.Finding]) -> None:
    """Raise an error if any is a secret; warn of each kind of personal data once."""
    if secrets := [str(each) for each in findings if each.kind == "secret"]:
        raise DirectMailLabError(
            "Nothing was written, because this must not be shared:\n  "
            + "\n  ".join(secrets)
            + "\nEdit those cells, clear their outputs, and record those cassettes again or clean "
            "them with: directmail-lab cassette redact."
        )
    first_place = {each.what: each.where for each in reversed(findings)}
    for what, where in first_place.items():
        warnings.warn(f"The zip holds {what}, first in {where}.", stacklevel=3)


class _Bundle:
    """What the zip will hold: for each path in it a file's bytes, written anew, and its parts."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.parts: list[audit.Part] = []
        self.base_urls: set[str | None] = set()
        self._code = ""
        self._listed: list[str] = []

    def add_notebook(self, path: Path) -> None:
        """Add a notebook, and the cassettes that its code names."""
        notebook, folder = audit.read_notebook(path), path.parent
        content = f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n".encode()
        parts = audit.parts_of_notebook(notebook, str(path))
        self._add(f"notebooks/{path.name}", path, content, parts)
        cells = {
            f"{path.name}, cell {number}": "".join(cell.get("source", ""))
            for number, cell in enumerate(notebook["cells"], 1)
            if cell.get("cell_type") == "code"
        }
        sending = [
            where.rpartition(" ")[2]
            for where, cell in cells.items()
            if _SENDS.search(cell) and "stand_in(" not in cell
        ]
        needs = f": needs a service and a key in cell {', '.join(sending)}" if sending else ""
        self._listed.append(f"- `notebooks/{path.name}`{needs}")
        code = "\n".join(cells.values())
        names = {name for _, name in _QUOTED.findall(code)}
        by_name = cassettes_by_name(folder.resolve())  # as the notebook's kernel finds them
        available = {name for name in sorted(names) if self._add_named(name, folder, by_name)}
        available |= {name for _, name in _MAKES.findall(code)}
        for where, cell in cells.items():
            _check_names(cell, where, available)
        self._code += f"{code}\n"

    def _add_named(self, name: str, folder: Path, by_name: Mapping[str, Path]) -> bool:
        """Add the cassette that a text in a notebook names or leads to; return whether it does."""
        if named := by_name.get(name.removesuffix(".yaml")):
            self.add_cassette(named, f"cassettes/{name}")
            return True
        file = folder / name
        if file.suffix in (".yaml", ".yml", ".json", ".har") and file.is_file():
            with suppress(CassetteFormatError):  # some other file
                self.add_cassette(file, posixpath.normpath(posixpath.join("notebooks", name)))
                return True
        return False

    def add_cassette(self, file: Path, place: str) -> None:
        """Add a cassette, as it is written anew without its credentials."""
        place = place.removesuffix(file.suffix) + file.suffix
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, PurePosixPath(place).name)
            convert(file, target, layout_of(target))
            cassette, content = read_cassette(target), target.read_bytes()
        self.base_urls.add(cassette.base_url)
        self._add(place, file, content, audit.parts_of_cassette(cassette.interactions, str(file)))

    def _add(self, place: str, file: Path, content: bytes, parts: Iterable[audit.Part]) -> None:
        if place.startswith(("/", "../")) or "\\" in place:
            raise DirectMailLabError(
                f"{str(file)!r} leads out of what can be shared.",
                "Put the cassette into a folder "
                "named cassettes beside or above the notebook, and name it there.",
            )
        if self.contents.setdefault(place, content) != content:
            raise DirectMailLabError(
                f"Two files would be {place} in the zip, and {file} is one of them.",
                "Rename it, or share it separately.",
            )
        self.parts.extend(parts)

    def add_instructions(self, title: str) -> None:
        """Add a README, and the requirements that pip installs: what is imported, pinned."""
        notebooks = [name for name in self.contents if name.endswith(".ipynb")]
        readme = _README.format(title=title, notebooks="\n".join(self._listed), first=notebooks[0])
        modules = set(_IMPORT.findall(self._code)) - {"directmail_lab"} - sys.stdlib_module_names
        # It looks at every file that is installed, which takes half a second.
        by_module = packages_distributions() if modules else {}
        packages = {name for module in modules for name in by_module.get(module, ())[:1]}
        pinned = sorted(f"{name}=={version(name)}" for name in packages)
        self.contents["README.md"] = readme.encode()
        self.contents["requirements.txt"] = "\n".join([f"./{_WHEEL}", *pinned, ""]).encode()


# -- what a notebook names ---------------------------------------------------------------------


def _check_names(cell: str, where: str, available: set[str]) -> None:
    """Refuse a cell that reads a cassette which a reader would not have; warn if it may be one."""
    for call, quote, name in _READS.findall(cell):
        if quote and name not in available:
            raise DirectMailLabError(
                f"Nothing was written: there is no cassette {name!r} ({where}).",
                "Record it, or "
                "correct the name: it is looked up from the notebook's folder, as replay() does.",
            )
        if not quote and call == "replay":
            warnings.warn(
                f"{where}: replay(…) names its cassette by a value that only running it would "
                "tell. If it is not in the zip, add it with share(…, cassettes=[…]).",
                stacklevel=4,
            )


# -- the wheel and the zip ---------------------------------------------------------------------


def _wheel() -> bytes:
    """Return this package's code as a wheel; no tutorials, which a reader may have changed."""
    package = Path(__file__).parents[1]
    contents = {
        f"{package.name}/{file.relative_to(package).as_posix()}": file.read_bytes()
        for file in package.rglob("*")
        if file.suffix in (".py", ".pyi", ".js", ".css", ".json", ".typed")
        and package / "widgets" / "src" not in file.parents  # the bundles are in static
    }
    about = f"directmail_lab-{VERSION}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        text = distribution("directmail-lab").read_text(name) or ""
        contents[f"{about}/{name}"] = text.encode()
    contents[f"{about}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: directmail-lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    # Checksums are left out: pip makes its own of what it installs.
    record = "".join(f"{name},,\n" for name in (*contents, f"{about}/RECORD"))
    return _zipped({**contents, f"{about}/RECORD": record.encode()})


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as packed:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(name)  # of 1980: equal content gives equal files
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return whole.getvalue()
