"""The files of this package and its tutorials, by a list: never all that a folder contains."""

from __future__ import annotations

import glob
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from ..errors import DirectMailLabError
from ..settings import VERSION

_PACKAGE = Path(__file__).resolve().parents[1]
_TUTORIALS = "directmail_lab/packaged/"

WHEEL = f"directmail_lab-{VERSION}-py3-none-any.whl"
# The files that JupyterLab looks for: where pip installs them, as in pyproject.toml, and where they
# are in the wheel.
SHARED_DATA = {
    "share/jupyter/labextensions/directmail-lab": "directmail_lab/jupyter/labextension",
    "etc/jupyter/jupyter_server_config.d/directmail-lab.json": "directmail_lab/jupyter/server.json",
}


def checkout() -> Path | None:
    """Return the root of the repository that this package runs from; None if installed."""
    root = _PACKAGE.parent
    if (_PACKAGE / "packaged").is_dir() or not (root / "pyproject.toml").is_file():
        return None
    return root


def package_files() -> dict[str, Path]:
    """Return each file of this package's wheel, by its place in the wheel.

    In a checkout, these are the files that ``include`` in pyproject.toml names, which a build also
    reads. Otherwise, they are the files that pip wrote down when it installed the package.
    """
    root = checkout()
    if root is None:
        files = distribution("directmail-lab").files
        if files is None:
            raise DirectMailLabError(
                "The list of directmail_lab's files is missing.", "Install directmail-lab again."
            )
        installed = {}
        for file in files:
            if file.parts[0] == "directmail_lab" and file.suffix != ".pyc":
                installed[file.as_posix()] = Path(str(file.locate()))
        return installed
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    build = settings["tool"]["hatch"]["build"]
    moved: dict[str, str] = build["targets"]["wheel"]["sources"]
    found: dict[str, Path] = {}
    for pattern in build["include"]:
        # Not Path.glob, which also finds hidden folders, such as Jupyter's checkpoints.
        for name in sorted(glob.glob(pattern.lstrip("/"), root_dir=root)):  # noqa: PTH207
            path = Path(name)
            folder, *rest = path.parts
            place = Path(moved.get(folder, folder), *rest)
            found[place.as_posix()] = root / path
    return found


def wheel_contents() -> dict[str, bytes]:
    """Return the files of this package's wheel as a build makes it, with the tutorials."""
    about = f"directmail_lab-{VERSION}.dist-info"
    files = package_files()
    contents = {place: path.read_bytes() for place, path in files.items()}
    for installed, source in SHARED_DATA.items():
        data = f"directmail_lab-{VERSION}.data/data/{installed}"
        for place, path in files.items():
            if place.startswith(source):
                contents[data + place.removeprefix(source)] = path.read_bytes()
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        text = distribution("directmail-lab").read_text(name) or ""
        contents[f"{about}/{name}"] = text.encode()
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
