"""Notebooks and the recordings that they replay, in one zip that runs offline and holds no key.

No file is copied as it is: the zip is written from what was parsed and audited, without comments,
repeated members and unknown fields. Then each of its files is searched once more.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import distribution, packages_distributions, version
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

from ..cassettes import cassettes_by_name, find_cassette, read_cassette
from ..cassettes.convert import convert, layout_of
from ..errors import CassetteFormatError, DirectMailLabError
from ..redaction.key import KeySearch
from .audit import (
    Finding,
    Part,
    find,
    learn_known_keys,
    parts_of_notebook,
    parts_of_recording,
    read_notebook,
)

_PICTURE = re.compile(
    r"(?<![^\s()<>\"'`])[^\s()<>\"'`]+\.(?:png|jpe?g|gif|svg|webp)\b", re.IGNORECASE
)
_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,255})\1")
# A call that reads a cassette, with the cassette's name or the start of what computes it; comments
# are left out. And a call that makes one.
_READS = re.compile(
    r"(?m)^[^#\n]*?\b(replay|rate_limits|interactions|check_contract|findings|drift)"
    r"\(\s*(?:cassette\s*=\s*)?(?:Path\(\s*)?(?:([\"'])([^\"'\n]+)\2|[^\s)])"
)
_MAKES = re.compile(r"(?:\brecord\(\s*|\bcassette\s*=\s*)([\"'])([^\"'\n]+)\1")
_IMPORT = re.compile(r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+)")

# The earliest time that a zip can hold. With a fixed time, equal content gives equal files.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_CODE_SUFFIXES: Final = (".py", ".pyi", ".js", ".css", ".typed")

_README: Final = """\
# {title}

{names}

These notebooks replay recorded answers from `cassettes/`: they run with no key and no network.

With Python 3.11 or newer, in this folder:

    python -m venv .venv
    . .venv/bin/activate              # Windows: .venv\\Scripts\\activate
    pip install -r requirements.txt
    jupyter lab "{first}"

Then choose Run, Run All Cells.
"""


class PersonalDataWarning(UserWarning):
    """What was shared holds personal data, such as e-mail addresses."""


class UnresolvedCassetteWarning(UserWarning):
    """The name of a cassette in a notebook is computed, so it is known only when the code runs."""


class _Bundle:
    """The content of the zip: for each path in it, a file's bytes, written anew, and its parts."""

    def __init__(self, search: KeySearch) -> None:
        self.contents: dict[str, bytes] = {}
        self.parts: list[Part] = []
        self.code: dict[str, str] = {}
        self._sources: dict[str, Path] = {}
        self._search = search

    def add_notebook(self, path: Path) -> None:
        """Add a notebook, its pictures, and the cassettes that its code names."""
        notebook, folder = read_notebook(path), path.parent
        content = f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n".encode()
        self._add(f"notebooks/{path.name}", path, content, parts_of_notebook(notebook, str(path)))
        for picture in _pictures(notebook, folder):
            file = folder / picture
            content = file.read_bytes()
            self._add(f"notebooks/{picture}", file, content, [Part(str(file), content)])
        cells = _code_cells(notebook)
        code = self.code[f"notebooks/{path.name}"] = "\n".join(cells.values())
        by_name = cassettes_by_name(folder.resolve())  # as the notebook's kernel finds them
        available = {name for _, name in _MAKES.findall(code)}
        for name in sorted({name for _, name in _QUOTED.findall(code)}):
            cassette = by_name.get(name.removesuffix(".yaml"))
            if cassette:
                self.add_cassette(cassette, f"cassettes/{name}")
            if cassette or self._add_file(folder, name):
                available.add(name)
        for number, cell in cells.items():
            _check_names(cell, f"{path.name}, cell {number}", available)

    def _add_file(self, folder: Path, name: str) -> bool:
        """Add a cassette by its path from the notebook's folder; return whether it is one."""
        file, place = folder / name, os.path.normpath(f"notebooks/{name}")
        if file.suffix not in (".yaml", ".yml", ".json") or not file.is_file():
            return False
        if file == Path(name) or place.startswith(".."):
            raise DirectMailLabError(
                f"{name!r} leads out of what can be shared. Put the cassette into a folder "
                "named cassettes beside or above the notebook, and name it there."
            )
        with suppress(CassetteFormatError):  # some other file
            self.add_cassette(file, Path(place).as_posix())
            return True
        return False

    def add_cassette(self, file: Path, name: str) -> None:
        """Add a cassette, and learn the keys that the keyring has for its address."""
        cassette = read_cassette(file)
        learn_known_keys(self._search, [cassette.base_url])
        place = name.removesuffix(file.suffix) + file.suffix
        with tempfile.TemporaryDirectory() as temporary:
            target = Path(temporary, PurePosixPath(place).name)
            convert(file, target, layout_of(target))
            content = target.read_bytes()
        parts = parts_of_recording(cassette.metadata, cassette.interactions, str(file))
        self._add(place, file, content, parts)

    def _add(self, place: str, file: Path, content: bytes, parts: Iterable[Part]) -> None:
        other = self._sources.setdefault(place, file)
        if other.resolve() != file.resolve():
            raise DirectMailLabError(
                f"Two files would be {place} in the zip: {other} and {file}. "
                "Rename one, or share them separately."
            )
        if place not in self.contents:
            self.contents[place] = content
            self.parts.extend(parts)

    def add_instructions(self, title: str) -> None:
        """Add a README, and the requirements that pip installs."""
        names = "\n".join(f"- `{name}`" for name in self.code)
        readme = _README.format(title=title, names=names, first=next(iter(self.code)))
        requirements = [f"./{_wheel_name()}", *_requirements("\n".join(self.code.values())), ""]
        self.contents["README.md"] = readme.encode()
        self.contents["requirements.txt"] = "\n".join(requirements).encode()


def share(
    notebooks: str | Path | Iterable[str | Path],
    target: str | Path,
    *,
    cassettes: Iterable[str | Path] = (),
    secrets: Iterable[str] = (),
) -> Path:
    """Put notebooks and the cassettes they replay into one zip, and return its path.

    The zip has each cassette whose name is in quotes in the notebooks' code, and the pictures that
    their text shows. It also has what is needed to open it: a README, a requirements file and a
    wheel of this package. The same input gives the same zip.

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
        `audit_notebook` and `audit_cassette` find by its form or its place.

    Warns
    -----
    PersonalDataWarning
        Where a file holds personal data, such as e-mail addresses.
    UnresolvedCassetteWarning
        A notebook computes the name of a cassette, so it may be missing from the zip.

    Raises
    ------
    DirectMailLabError
        A notebook cannot be read, a cassette that it replays is not there, or a file holds a
        secret: then nothing is written, and the message says where it is.
    """
    search = KeySearch(secrets)
    del secrets  # a traceback may print it
    learn_known_keys(search)
    bundle = _Bundle(search)
    for notebook in [notebooks] if isinstance(notebooks, str | Path) else notebooks:
        bundle.add_notebook(Path(notebook))
    if not bundle.code:
        raise DirectMailLabError("No notebook to share. Name at least one .ipynb file.")
    for cassette in cassettes:
        file = find_cassette(cassette)
        name = file.name if isinstance(cassette, Path) else cassette
        bundle.add_cassette(file, f"cassettes/{name}")
    _refuse_secrets(find(bundle.parts, search))
    target = Path(target)
    target = target if target.suffix.lower() == ".zip" else target.with_name(target.name + ".zip")
    bundle.add_instructions(target.stem)
    _refuse_secrets(
        Finding("secret", "your API key", place)
        for place, content in bundle.contents.items()
        if search.holds(content.decode("latin-1"))
    )
    contents = {**bundle.contents, _wheel_name(): _wheel()}
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written beside the target and then moved there, so that a reader never finds half a zip.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        whole = Path(folder, target.name)
        whole.write_bytes(_zipped({f"{target.stem}/{n}": data for n, data in contents.items()}))
        whole.replace(target)
    return target


def _refuse_secrets(findings: Iterable[Finding]) -> None:
    findings = list(findings)
    if secrets := [str(each) for each in findings if each.kind == "secret"]:
        raise DirectMailLabError(
            "Nothing was written, because this must not be shared:\n  "
            + "\n  ".join(secrets)
            + "\nEdit those cells, clear their outputs, and record those cassettes again or clean "
            "them with: directmail-lab cassette redact."
        )
    if findings:
        message = "The zip holds personal data:\n  " + "\n  ".join(map(str, findings))
        warnings.warn(message, PersonalDataWarning, stacklevel=3)


# -- what a notebook names ---------------------------------------------------------------------


def _code_cells(notebook: Mapping[str, Any]) -> dict[int, str]:
    return {
        number: "".join(cell.get("source", ""))
        for number, cell in enumerate(notebook["cells"], 1)
        if cell.get("cell_type") == "code"
    }


def _pictures(notebook: Mapping[str, Any], folder: Path) -> list[PurePosixPath]:
    """Return the picture files below the notebook's folder that its cells name."""
    names = {
        PurePosixPath(unquote(name))
        for cell in notebook["cells"]
        for name in _PICTURE.findall("".join(cell.get("source", "")))
    }
    return sorted(
        name
        for name in names
        if (folder / name).is_file() and (folder / name).resolve().is_relative_to(folder.resolve())
    )


def _check_names(cell: str, where: str, available: set[str]) -> None:
    """Refuse a cell that reads a cassette which a reader would not have; warn if it may be one."""
    for call, quote, name in _READS.findall(cell):
        if quote and name not in available:
            raise DirectMailLabError(
                f"Nothing was written: there is no cassette {name!r} ({where}). Record it, or "
                "correct the name: it is looked up from the notebook's folder, as replay() does."
            )
        if not quote and call == "replay":
            warnings.warn(
                f"{where}: replay(…) names its cassette by a value that only running it would "
                "tell. If it is not in the zip, add it with share(…, cassettes=[…]).",
                UnresolvedCassetteWarning,
                stacklevel=4,
            )


def _requirements(code: str) -> list[str]:
    """Return the distributions that code imports, pinned to the versions installed here."""
    modules = set(_IMPORT.findall(code)) - {"directmail_lab"} - sys.stdlib_module_names
    # It looks at every file that is installed, which takes half a second.
    by_module = packages_distributions() if modules else {}
    names = {name for module in modules for name in by_module.get(module, ())[:1]}
    return sorted(f"{name}=={version(name)}" for name in names)


# -- the wheel and the zip ---------------------------------------------------------------------


def _wheel_name() -> str:
    from .. import __version__

    return f"directmail_lab-{__version__}-py3-none-any.whl"


def _wheel() -> bytes:
    """Return this package's code as a wheel; no tutorials, which a reader may have changed."""
    package = Path(__file__).parents[1]
    contents = {
        f"{package.name}/{file.relative_to(package).as_posix()}": file.read_bytes()
        for file in package.rglob("*")
        if file.suffix in _CODE_SUFFIXES
    }
    about = f"{'-'.join(_wheel_name().split('-')[:2])}.dist-info"
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
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, wherever this runs
            packed.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return whole.getvalue()
