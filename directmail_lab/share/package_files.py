"""The files of this package and its tutorials, by a list: never all that a folder contains."""

from __future__ import annotations

import glob
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from ..settings import VERSION

_PACKAGE = Path(__file__).resolve().parents[1]
_TUTORIALS = "directmail_lab/packaged/"

WHEEL = f"directmail_lab-{VERSION}-py3-none-any.whl"
# The files that JupyterLab looks for: where pip installs them, as in pyproject.toml, and where they
# are in the wheel.
_SHARED_DATA = {
    "share/jupyter/labextensions/directmail-lab": "directmail_lab/jupyter/labextension",
    "etc/jupyter/jupyter_server_config.d/directmail-lab.json": "directmail_lab/jupyter/server.json",
}


def checkout() -> Path | None:
    """Return the root of the repository that this package runs from; None if installed."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() else None


def package_files() -> dict[str, Path]:
    """Return each file of this package's wheel, by its place in the wheel.

    They are those that pip wrote down when it installed the package; in a checkout, those that
    ``include`` in pyproject.toml names, which a build also reads.
    """
    found: dict[str, Path] = {}
    root = checkout()
    if root is None:
        for file in distribution("directmail-lab").files or ():
            if file.parts[0] == "directmail_lab" and file.suffix != ".pyc":
                found[file.as_posix()] = Path(str(file.locate()))
        return found
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    build = settings["tool"]["hatch"]["build"]
    moved: dict[str, str] = build["targets"]["wheel"]["sources"]
    for pattern in build["include"]:
        # Not Path.glob, which also finds hidden folders, such as Jupyter's checkpoints.
        for name in sorted(glob.glob(pattern.lstrip("/"), root_dir=root)):  # noqa: PTH207
            folder, *rest = Path(name).parts
            found[Path(moved.get(folder, folder), *rest).as_posix()] = root / name
    return found


def wheel_contents() -> dict[str, bytes]:
    """Return the files of this package's wheel as a build makes it, but for the tutorials.

    Their pictures are nine tenths of it.
    """
    contents = {
        place: path.read_bytes()
        for place, path in package_files().items()
        if not place.startswith(f"{_TUTORIALS}notebooks")
    }
    for installed, source in _SHARED_DATA.items():
        data = f"directmail_lab-{VERSION}.data/data/{installed}"
        for place in [place for place in contents if place.startswith(source)]:
            contents[data + place.removeprefix(source)] = contents[place]
    about = f"directmail_lab-{VERSION}.dist-info"
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        contents[f"{about}/{name}"] = (
            distribution("directmail-lab").read_text(name) or ""
        ).encode()
    contents[f"{about}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: directmail-lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    # The checksums are left out: pip computes its own when it installs.
    record = "".join(f"{name},,\n" for name in (*contents, f"{about}/RECORD"))
    return {**contents, f"{about}/RECORD": record.encode()}


def tutorial_files() -> dict[str, Path]:
    """Return each file of the tutorials, by its place such as ``notebooks/README.md``."""
    return {
        place.removeprefix(_TUTORIALS): path
        for place, path in package_files().items()
        if place.startswith(_TUTORIALS)
    }
