"""Where the configured regions are read from: the user's configuration folder and environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .environment import variable
from .errors import NotConnectedError
from .settings import REGIONS_VARIABLE, parse_regions

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["configured_regions", "regions_file"]


def regions_file() -> Path:
    """Return where the user's regions are kept; the file need not exist."""
    # Imported here: only a lookup without an address given needs it.
    from platformdirs import user_config_path

    return user_config_path("directmail-lab", appauthor=False) / "regions.toml"


def configured_regions() -> dict[str, str]:
    """Return the configured regions, name to base address; empty where none is.

    The user's ``regions.toml`` first, then ``DIRECTMAIL_REGIONS``, which wins.

    Raises
    ------
    NotConnectedError
        The file cannot be read, or is not TOML.
    InsecureAddressError
        An entry is not a safe base address.
    """
    return parse_regions(_read(regions_file()), variable(REGIONS_VARIABLE) or "")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise NotConnectedError(
            f"{path.name} cannot be read ({type(error).__name__}). Mend or remove {path}."
        ) from None
