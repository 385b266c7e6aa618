"""Notebooks and the recordings that they replay, in one zip that runs offline and holds no key."""

from __future__ import annotations

import tempfile
import warnings
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from ..errors import DirectMailLabError
from ..settings import API_KEY_VARIABLE, variable
from .audit import audit_cassette, audit_notebook
from .bundle import PICTURE_SUFFIXES, Bundle, UnresolvedCassetteWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .audit import Finding

__all__ = ["PersonalDataWarning", "UnresolvedCassetteWarning", "share"]

# Zip has no time zones, and starts here: the same content gives the same file at any time.
_TIME: Final = (1980, 1, 1, 0, 0, 0)


class PersonalDataWarning(UserWarning):
    """What was shared holds e-mail addresses or telephone numbers."""


def share(
    notebooks: str | Path | Iterable[str | Path],
    target: str | Path,
    *,
    cassettes: Iterable[str | Path] = (),
    secrets: Iterable[str] = (),
) -> Path:
    """Put notebooks and the cassettes they replay into one zip, and return its path.

    The cassettes are read from the notebooks' code: ``replay("tour")``, ``record("tour")``,
    ``connect(cassette="tour")`` and the like. Pictures that the text shows come along, and a short
    README and a requirements file say how to open it. The same input gives the same zip.

    Parameters
    ----------
    notebooks
        The ``.ipynb`` file or files.
    target
        The zip to write, or to replace; ``.zip`` is added where it is missing.
    cassettes
        More cassettes, such as those whose names the code puts together.
    secrets
        Keys to look for, beside ``DIRECTMAIL_API_KEY``, the current session's, and whatever
        `audit_notebook` and `audit_cassette` find by its shape.

    Warns
    -----
    PersonalDataWarning
        Where a file holds e-mail addresses or telephone numbers.
    UnresolvedCassetteWarning
        Where only running a notebook would tell which cassette it replays.

    Raises
    ------
    DirectMailLabError
        A notebook cannot be read, a cassette that it replays is not there, or a file holds a
        secret: then nothing is written, and the message says where it is.
    """
    # As a function from here on: of that, a traceback which prints values shows no key.
    known, secrets = _held(tuple(secrets)), ()
    bundle = Bundle()
    for notebook in [notebooks] if isinstance(notebooks, str | Path) else notebooks:
        bundle.add_notebook(Path(notebook))
    if not bundle.notebooks:
        raise DirectMailLabError("No notebook to share. Name at least one .ipynb file.")
    for cassette in cassettes:
        bundle.add_cassette(cassette, None, Path.cwd())
    bundle.check()
    _refuse_secrets(bundle.files, known)
    return _written(bundle, Path(target))


# -- what must not go in -----------------------------------------------------------------------


def _refuse_secrets(
    files: Mapping[PurePosixPath, Path], secrets: Callable[[], Sequence[str]]
) -> None:
    found = [
        finding
        for _, file in sorted(files.items())
        if file.suffix.lower() not in PICTURE_SUFFIXES
        for finding in _audited(file, secrets)
    ]
    if grave := [str(each) for each in found if each.kind == "secret"]:
        raise DirectMailLabError(
            "Nothing was written: there is what must not be shared in\n  "
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


def _audited(file: Path, secrets: Callable[[], Sequence[str]]) -> list[Finding]:
    audit = audit_notebook if file.suffix == ".ipynb" else audit_cassette
    try:
        return audit(file, secrets=secrets())
    except DirectMailLabError as error:
        failure = error
    raise failure.with_traceback(None)  # the frames below hold the keys


def _held(given: tuple[str, ...]) -> Callable[[], Sequence[str]]:
    """Return what gives the keys to look for: those given, and those of this user at hand."""

    def keys() -> list[str]:
        from ..current import current_session

        session = current_session()
        held = session.api_key if session is not None else None
        own = (variable(API_KEY_VARIABLE), held and held.reveal())
        return [*given, *(key for key in own if key)]

    return keys


# -- the zip -----------------------------------------------------------------------------------


def _written(bundle: Bundle, target: Path) -> Path:
    target = target if target.suffix.lower() == ".zip" else target.with_name(target.name + ".zip")
    contents = {place: file.read_bytes() for place, file in bundle.files.items()}
    contents[PurePosixPath("README.md")] = _readme(target.stem, bundle).encode()
    contents[PurePosixPath("requirements.txt")] = _requirements(bundle.imports).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target and then in its place: a reader never finds half a zip.
    with tempfile.TemporaryDirectory(dir=target.parent) as beside:
        whole = Path(beside, target.name)
        with zipfile.ZipFile(whole, "w") as packed:
            for place, content in sorted(contents.items()):
                entry = zipfile.ZipInfo(f"{target.stem}/{place}", _TIME)
                entry.external_attr = 0o644 << 16
                entry.create_system = 3  # Unix, wherever this runs
                packed.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
        return whole.replace(target)


def _readme(title: str, bundle: Bundle) -> str:
    names = "\n".join(f"- `notebooks/{name}`" for name in bundle.notebooks)
    return f"""# {title}

{names}

These notebooks replay recorded answers from `cassettes/`: they run with no key and no network.

With Python 3.11 or newer, in this folder:

    python -m venv .venv
    . .venv/bin/activate              # Windows: .venv\\Scripts\\activate
    pip install -r requirements.txt
    jupyter lab "notebooks/{bundle.notebooks[0]}"

Then choose Run, Run All Cells.
"""


def _requirements(imports: Iterable[str]) -> str:
    """Return the distributions that the notebooks import, in the versions that are here."""
    from importlib.metadata import packages_distributions, version

    from .. import __version__

    by_module = packages_distributions()
    names = {name for module in imports for name in by_module.get(module, ())[:1]}
    pinned = {f"directmail-lab=={__version__}"}
    pinned |= {f"{name}=={version(name)}" for name in names if name != "directmail-lab"}
    return "\n".join(sorted(pinned, key=str.lower)) + "\n"
