"""The command ``directmail-lab``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command; a deliberate error becomes its message and exit code 2."""
    from directmail_lab.errors import DirectMailLabError

    from .app import app
    from .output import Exit

    try:
        app()
    except DirectMailLabError as error:
        sys.stderr.write(f"directmail-lab: {error}\n")
        sys.exit(Exit.FAILED)
