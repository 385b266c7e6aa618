"""Notebooks and the recordings that they replay, in one zip that runs offline and holds no key.

No file is copied as it is: the zip is written from what was parsed and audited, without comments,
repeated members and unknown fields. Then each of its files is searched once more.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import distribution, packages_distributions, version
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

from ..cassettes import LoadedCassette, cassettes_by_name, find_cassette, read_cassette
from ..cassettes.convert import convert, layout_of
from ..errors import CassetteFormatError, DirectMailLabError
from .audit import (
    Finding,
    Hidden,
    HoldsKey,
    find_in_bytes,
    find_in_interactions,
    find_in_notebook,
    key_search,
    read_notebook,
)

_PICTURE = re.compile(r"!\[[^\]]*\]\(\s*<?([^)\s>]+)|<img[^>]+src=[\"']([^\"']+)", re.IGNORECASE)
_PICTURE_SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp")
_QUOTED = re.compile(r"([\"'])([^\"'\n]{1,255})\1")
# Calls that read a cassette, and those that make one; comments are left out.
_READS = re.compile(
    r"(?m)^[^#\n]*?\b(?:replay|rate_limits|interactions|check_contract|findings|drift)"
    r"\(\s*(?:cassette\s*=\s*)?(?:Path\(\s*)?([\"'])([^\"'\n]+)\1"
)
_MAKES = re.compile(r"(?:\brecord\(\s*|\bcassette\s*=\s*)([\"'])([^\"'\n]+)\1")
_COMPUTED = re.compile(r"(?m)^[^#\n]*?\b(replay|record)\(\s*(?:f[\"']|(\w+)\s*[,)])")
_IMPORT = re.compile(r"(?m)^\s*(?:from\s+(\w+)|import\s+([\w., ]+))")

# The earliest time that a zip can hold. With a fixed time, equal content gives equal files.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_CODE_SUFFIXES: Final = (".py", ".js", ".css", ".typed")


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

_Read = dict[str, Any] | LoadedCassette | bytes
"""What was read: a notebook, a cassette, or any other file."""


class PersonalDataWarning(UserWarning):
    """What was shared holds personal data, such as e-mail addresses."""


class UnresolvedCassetteWarning(UserWarning):
    """The name of a cassette in a notebook is computed, so it is known only when the code runs."""


class _Bundle:
    """The content of the zip: for each place in it, a file and what was read from that file."""

    def __init__(self) -> None:
        self.parts: dict[PurePosixPath, tuple[Path, _Read]] = {}

    def add_notebook(self, path: Path) -> None:
        """Add a notebook, its pictures, and the cassettes that its code names."""
        notebook = read_notebook(path)
        self._add(PurePosixPath("notebooks", path.name), path, notebook)
        for picture in _pictures(notebook, path.parent):
            file = path.parent / picture
            self._add(PurePosixPath("notebooks", picture), file, file.read_bytes())
        known = cassettes_by_name(path.parent.resolve())  # as the notebook's kernel finds them
        cells = _code_cells(notebook)
        code = "\n".join(cells.values())
        there = {name for _, name in _MAKES.findall(code)}
        for name in sorted({name for _, name in _QUOTED.findall(code)}):
            if bare := known.get(name.removesuffix(".yaml")):
                self.add_cassette(bare, PurePosixPath("cassettes", name.removesuffix(".yaml")))
            if bare or self._add_file(path.parent, name):
                there.add(name)
        lacking = [
            f"{name!r} ({path.name}, cell {number})"
            for number, cell in cells.items()
            for _, name in _READS.findall(cell)
            if name not in there
        ]
        if lacking:
            raise DirectMailLabError(
                f"Nothing was written: there is no cassette {', '.join(lacking)}. Record it, or "
                "correct the name: it is looked up from the notebook's folder, as replay() does."
            )
        for number, cell in cells.items():
            _warn_of_computed(f"{path.name}, cell {number}", cell, code)

    def _add_file(self, folder: Path, name: str) -> bool:
        """Add the cassette if the name is that of a file; return whether one was added."""
        file = folder / name
        if file.suffix not in (".yaml", ".yml", ".json") or not file.is_file():
            return False
        place = PurePosixPath(os.path.normpath(PurePosixPath("notebooks", name)))
        if place.is_absolute() or place.parts[0] == "..":
            raise DirectMailLabError(
                f"{name!r} leads out of what can be shared. Put the cassette into a folder "
                "named cassettes beside or above the notebook, and name it there."
            )
        with suppress(CassetteFormatError):  # some other file
            self.add_cassette(file, place)
        return place in self.parts

    def add_cassette(self, file: Path, place: PurePosixPath) -> None:
        """Add a cassette, parsed."""
        place = place.with_name(place.name.removesuffix(file.suffix) + file.suffix)
        self._add(place, file, read_cassette(file))

    def _add(self, place: PurePosixPath, file: Path, read: _Read) -> None:
        other, _ = self.parts.setdefault(place, (file, read))
        if other.resolve() != file.resolve():
            raise DirectMailLabError(
                f"Two files would be {place} in the zip: {other} and {file}. "
                "Rename one, or share them separately."
            )

    def addresses(self) -> list[str]:
        """Return where the cassettes were recorded."""
        read = (read for _, read in self.parts.values())
        return [each.base_url or "" for each in read if isinstance(each, LoadedCassette)]

    def findings(self, holds_key: HoldsKey) -> Iterator[Finding]:
        """Yield what must not be shared."""
        for file, read in self.parts.values():
            if isinstance(read, LoadedCassette):
                held = read.metadata, read.interactions
                yield from find_in_interactions(*held, str(file), holds_key)
            elif isinstance(read, bytes):
                yield from find_in_bytes(read, "", str(file), holds_key)
            else:
                yield from find_in_notebook(read, str(file), holds_key)

    def contents(self) -> dict[str, bytes]:
        """Return the files of the zip, written anew from what was read."""
        contents: dict[str, bytes] = {}
        for place, (file, read) in self.parts.items():
            if isinstance(read, LoadedCassette):
                with tempfile.TemporaryDirectory() as folder:
                    target = Path(folder, place.name)
                    convert(file, target, layout_of(target))
                    read = target.read_bytes()
            elif isinstance(read, dict):
                read = f"{json.dumps(read, indent=1, ensure_ascii=False)}\n".encode()
            contents[str(place)] = read
        return contents


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
    secrets, target, bundle = Hidden(secrets), Path(target), _Bundle()
    for notebook in [notebooks] if isinstance(notebooks, str | Path) else notebooks:
        bundle.add_notebook(Path(notebook))
    if not bundle.parts:
        raise DirectMailLabError("No notebook to share. Name at least one .ipynb file.")
    for cassette in cassettes:
        file = find_cassette(cassette)
        name = file.name if isinstance(cassette, Path) else cassette
        bundle.add_cassette(file, PurePosixPath("cassettes", name))
    holds_key = key_search(secrets, addresses=bundle.addresses())
    _refuse_secrets(bundle.findings(holds_key))
    target = target if target.suffix.lower() == ".zip" else target.with_name(target.name + ".zip")
    contents = bundle.contents() | _surroundings(target.stem, bundle)
    _refuse_secrets(
        Finding("secret", "your API key", place)
        for place, content in contents.items()
        if holds_key(content.decode("latin-1"))
    )
    _write(target, {**contents, _wheel_name(): _wheel()})
    return target


def _refuse_secrets(findings: Iterable[Finding]) -> None:
    found = list(findings)
    if grave := [str(each) for each in found if each.kind == "secret"]:
        raise DirectMailLabError(
            "Nothing was written, because this must not be shared:\n  "
            + "\n  ".join(grave)
            + "\nEdit those cells, clear their outputs, and record those cassettes again or clean "
            "them with: directmail-lab cassette redact."
        )
    if found:
        told = "The zip holds personal data:\n  " + "\n  ".join(map(str, found))
        warnings.warn(told, PersonalDataWarning, stacklevel=3)


# -- what a notebook names ---------------------------------------------------------------------


def _code_cells(notebook: Mapping[str, Any]) -> dict[int, str]:
    return {
        number: "".join(cell.get("source", ""))
        for number, cell in enumerate(notebook["cells"], 1)
        if cell.get("cell_type") == "code"
    }


def _pictures(notebook: Mapping[str, Any], folder: Path) -> list[PurePosixPath]:
    """Return the picture files below the notebook's folder that its text shows."""
    found = {
        PurePosixPath(unquote(first or second))
        for cell in notebook["cells"]
        for first, second in _PICTURE.findall("".join(cell.get("source", "")))
    }
    return sorted(
        picture
        for picture in found
        if picture.suffix.lower() in _PICTURE_SUFFIXES
        and (folder / picture).resolve().is_relative_to(folder.resolve())
        and (folder / picture).is_file()
    )


def _warn_of_computed(where: str, cell: str, code: str) -> None:
    for call, variable in _COMPUTED.findall(cell):
        if not variable or not re.search(rf"\b{variable}\s*=\s*[\"']", code):
            warnings.warn(
                f"{where}: {call}(…) names its cassette by a value that only running it would "
                "tell. If it is not in the zip, add it with share(…, cassettes=[…]).",
                UnresolvedCassetteWarning,
                stacklevel=4,
            )


# -- what comes with it ------------------------------------------------------------------------


def _surroundings(title: str, bundle: _Bundle) -> dict[str, bytes]:
    notebooks = {str(at): read for at, (_, read) in bundle.parts.items() if isinstance(read, dict)}
    names = "\n".join(f"- `{name}`" for name in notebooks)
    readme = _README.format(title=title, names=names, first=next(iter(notebooks)))
    codes = [code for each in notebooks.values() for code in _code_cells(each).values()]
    return {"README.md": readme.encode(), "requirements.txt": _requirements(codes).encode()}


def _requirements(codes: Iterable[str]) -> str:
    """Return the distributions that code imports, pinned to the versions installed here."""
    modules = {
        part.split()[0].partition(".")[0]
        for code in codes
        for module, several in _IMPORT.findall(code)
        for part in (module or several).split(",")
        if part.strip()
    }
    by_module = packages_distributions()
    names = {name for module in modules for name in by_module.get(module, ())[:1]}
    pinned = [f"{name}=={version(name)}" for name in names if name != "directmail-lab"]
    return "\n".join([f"./{_wheel_name()}", *sorted(pinned, key=str.lower)]) + "\n"


def _wheel_name() -> str:
    from .. import __version__

    return f"directmail_lab-{__version__}-py3-none-any.whl"


def _wheel() -> bytes:
    """Return this package's code as a wheel; no tutorials, which a reader may have changed."""
    from .. import __version__

    package = Path(__file__).parents[1]
    contents = {
        f"{package.name}/{file.relative_to(package).as_posix()}": file.read_bytes()
        for file in package.rglob("*")
        if file.suffix in _CODE_SUFFIXES
    }
    about = f"directmail_lab-{__version__}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        contents[f"{about}/{name}"] = (
            distribution("directmail-lab").read_text(name) or ""
        ).encode()
    contents[f"{about}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: directmail-lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(
        f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in contents.items()
    )
    contents[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    return _zipped(contents)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as packed:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, wherever this runs
            packed.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return whole.getvalue()


def _write(target: Path, contents: Mapping[str, bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written beside the target and then moved there, so that a reader never finds half a zip.
    with tempfile.TemporaryDirectory(dir=target.parent) as beside:
        whole = Path(beside, target.name)
        whole.write_bytes(_zipped({f"{target.stem}/{n}": data for n, data in contents.items()}))
        whole.replace(target)
