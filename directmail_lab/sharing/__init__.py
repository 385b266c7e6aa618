"""Notebooks and the recordings that they replay, in one zip that runs offline and holds no key.

Nothing is copied unread: the zip is written from what was parsed and audited, so comments, members
named twice and fields that no one reads stay behind. Then each of its files is searched once more.
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
from contextlib import chdir, suppress
from dataclasses import dataclass, field
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

# Zip has no time zones, and starts here: the same content gives the same file at any time.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_CODE_SUFFIXES: Final = (".py", ".js", ".css", ".typed")


class PersonalDataWarning(UserWarning):
    """What was shared holds personal data, such as e-mail addresses."""


class UnresolvedCassetteWarning(UserWarning):
    """A notebook names a cassette in a way that only running it would tell."""


@dataclass(slots=True)
class _Bundle:
    """What goes into the zip, by its place there."""

    notebooks: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[PurePosixPath, Path] = field(default_factory=dict)
    loaded: dict[PurePosixPath, LoadedCassette] = field(default_factory=dict)

    def add_notebook(self, path: Path) -> None:
        """Add a notebook, its pictures, and the cassettes that its code names."""
        self.notebooks[path.name] = notebook = read_notebook(path)
        self._add(PurePosixPath("notebooks", path.name), path)
        for picture in _pictures(notebook, path.parent):
            self._add(PurePosixPath("notebooks", picture), path.parent / picture)
        with chdir(path.parent):  # where its kernel will run: names are looked up from there
            known = {name: file.absolute() for name, file in cassettes_by_name().items()}
        named: set[str] = set()
        missing: dict[str, int] = {}
        for number, code in _code_cells(notebook):
            quoted = {name.removesuffix(".yaml") for _, name in _QUOTED.findall(code)}
            named |= quoted & known.keys() | self._add_files(code, path.parent)
            missing |= {name: number for _, name in _READS.findall(code) if name not in missing}
            _warn_of_computed(path.name, number, code, notebook)
        for name in sorted(named & known.keys()):
            self.add_cassette(known[name], PurePosixPath("cassettes", name))
        code = "\n".join(code for _, code in _code_cells(notebook))
        made = {name for _, name in _MAKES.findall(code)}
        lacking = [n for n in missing if n.removesuffix(".yaml") not in named and n not in made]
        if lacking:
            where = ", ".join(f"{n!r} ({path.name}, cell {missing[n]})" for n in lacking)
            raise DirectMailLabError(
                f"Nothing was written: there is no cassette {where}. Record it, or correct the "
                "name: it is looked up from the notebook's folder, as replay() does."
            )

    def _add_files(self, code: str, folder: Path) -> set[str]:
        """Add the cassettes that code names as files, and return how it names them."""
        found = set()
        for _, name in _QUOTED.findall(code):
            file = folder / name
            if file.suffix not in (".yaml", ".yml", ".json") or not file.is_file():
                continue
            place = PurePosixPath(os.path.normpath(PurePosixPath("notebooks", name)))
            if place.is_absolute() or place.parts[0] == "..":
                raise DirectMailLabError(
                    f"{name!r} leads out of what can be shared. Put the cassette into a folder "
                    "named cassettes beside or above the notebook, and name it there."
                )
            with suppress(CassetteFormatError):  # some other file
                self.add_cassette(file, place)
                found.add(name.removesuffix(".yaml"))
        return found

    def add_cassette(self, file: Path, place: PurePosixPath) -> None:
        """Add a cassette, parsed."""
        place = place.with_name(place.name.removesuffix(file.suffix) + file.suffix)
        self.loaded[place] = read_cassette(file)
        self._add(place, file)

    def findings(self, holds_key: HoldsKey) -> Iterator[Finding]:
        """Yield what must not be shared in what was parsed."""
        for place, file in sorted(self.sources.items()):
            if place.suffix == ".ipynb":
                yield from find_in_notebook(self.notebooks[file.name], str(file), holds_key)
            elif place in self.loaded:
                loaded = self.loaded[place]
                yield from find_in_interactions(
                    loaded.metadata, loaded.interactions, str(file), holds_key
                )
            else:
                yield from find_in_bytes(file.read_bytes(), "", str(file), holds_key)

    def contents(self) -> dict[str, bytes]:
        """Return the files of the zip, written anew from what was parsed."""
        contents: dict[str, bytes] = {}
        for place, file in self.sources.items():
            if place.suffix == ".ipynb":
                text = json.dumps(self.notebooks[file.name], indent=1, ensure_ascii=False)
                contents[str(place)] = f"{text}\n".encode()
            elif place in self.loaded:
                with tempfile.TemporaryDirectory() as folder:
                    target = Path(folder, place.name)
                    convert(file, target, layout_of(target))
                    contents[str(place)] = target.read_bytes()
            else:
                contents[str(place)] = file.read_bytes()
        return contents

    def _add(self, place: PurePosixPath, file: Path) -> None:
        other = self.sources.setdefault(place, file)
        if other.resolve() != file.resolve():
            raise DirectMailLabError(
                f"Two files would be {place} in the zip: {other} and {file}. "
                "Rename one, or share them separately."
            )


def share(
    notebooks: str | Path | Iterable[str | Path],
    target: str | Path,
    *,
    cassettes: Iterable[str | Path] = (),
    secrets: Iterable[str] = (),
) -> Path:
    """Put notebooks and the cassettes they replay into one zip, and return its path.

    Any cassette comes along whose name stands in quotes in the notebooks' code, and the pictures
    that their text shows. A README, a requirements file and this package itself, as a wheel of its
    code, say how to open it. The same input gives the same zip.

    Parameters
    ----------
    notebooks
        The ``.ipynb`` file or files.
    target
        The zip to write, or to replace; ``.zip`` is added where it is missing.
    cassettes
        More cassettes, such as those whose names the code puts together.
    secrets
        Keys to look for, beside those of this process and its keyring, and whatever
        `audit_notebook` and `audit_cassette` find by its shape or its place.

    Warns
    -----
    PersonalDataWarning
        Where a file holds personal data, such as e-mail addresses.
    UnresolvedCassetteWarning
        Where only running a notebook would tell which cassette it replays.

    Raises
    ------
    DirectMailLabError
        A notebook cannot be read, a cassette that it replays is not there, or a file holds a
        secret: then nothing is written, and the message says where it is.
    """
    secrets = Hidden(secrets)
    bundle = _Bundle()
    for notebook in [notebooks] if isinstance(notebooks, str | Path) else notebooks:
        bundle.add_notebook(Path(notebook))
    if not bundle.notebooks:
        raise DirectMailLabError("No notebook to share. Name at least one .ipynb file.")
    for cassette in cassettes:
        file = find_cassette(cassette)
        name = file.name if isinstance(cassette, Path) else cassette
        bundle.add_cassette(file, PurePosixPath("cassettes", name))
    addresses = [each.base_url or "" for each in bundle.loaded.values()]
    holds_key = key_search(secrets, addresses=addresses)
    _refuse_secrets(list(bundle.findings(holds_key)))
    target = Path(target)
    target = target if target.suffix.lower() == ".zip" else target.with_name(target.name + ".zip")
    contents = bundle.contents() | _surroundings(target.stem, bundle.notebooks)
    for place, content in contents.items():
        if holds_key(content.decode("latin-1")):
            _refuse_secrets([Finding("secret", "your API key", place)])
    _write(target, {**contents, _wheel_name(): _wheel()})
    return target


def _refuse_secrets(found: list[Finding]) -> None:
    if grave := [str(each) for each in found if each.kind == "secret"]:
        raise DirectMailLabError(
            "Nothing was written, because this must not be shared:\n  "
            + "\n  ".join(grave)
            + "\nEdit those cells, clear their outputs, and record those cassettes again or clean "
            "them with: directmail-lab cassette redact."
        )
    if found:
        warnings.warn(
            "The zip holds personal data:\n  " + "\n  ".join(map(str, found)),
            PersonalDataWarning,
            stacklevel=3,
        )


# -- what a notebook names ---------------------------------------------------------------------


def _code_cells(notebook: Mapping[str, Any]) -> list[tuple[int, str]]:
    return [
        (number, "".join(cell.get("source", "")))
        for number, cell in enumerate(notebook["cells"], 1)
        if cell.get("cell_type") == "code"
    ]


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


def _warn_of_computed(name: str, cell: int, code: str, notebook: Mapping[str, Any]) -> None:
    whole = "\n".join(code for _, code in _code_cells(notebook))
    for call, variable in _COMPUTED.findall(code):
        if variable and re.search(rf"\b{variable}\s*=\s*[\"']", whole):
            continue
        warnings.warn(
            f"{name}, cell {cell}: {call}(…) names its cassette by a value that only running it "
            "would tell. If it is not in the zip, add it with share(…, cassettes=[…]).",
            UnresolvedCassetteWarning,
            stacklevel=4,
        )


# -- what comes with it ------------------------------------------------------------------------


def _surroundings(title: str, notebooks: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    names = "\n".join(f"- `notebooks/{name}`" for name in notebooks)
    readme = f"""# {title}

{names}

These notebooks replay recorded answers from `cassettes/`: they run with no key and no network.

With Python 3.11 or newer, in this folder:

    python -m venv .venv
    . .venv/bin/activate              # Windows: .venv\\Scripts\\activate
    pip install -r requirements.txt
    jupyter lab "notebooks/{next(iter(notebooks))}"

Then choose Run, Run All Cells.
"""
    codes = [code for each in notebooks.values() for _, code in _code_cells(each)]
    return {"README.md": readme.encode(), "requirements.txt": _requirements(codes).encode()}


def _requirements(codes: Iterable[str]) -> str:
    """Return the distributions that code imports, in the versions that are here."""
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
    # Beside the target and then in its place: a reader never finds half a zip.
    with tempfile.TemporaryDirectory(dir=target.parent) as beside:
        whole = Path(beside, target.name)
        whole.write_bytes(_zipped({f"{target.stem}/{n}": data for n, data in contents.items()}))
        whole.replace(target)
