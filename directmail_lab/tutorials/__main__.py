"""``python -m directmail_lab.tutorials``: record the cassettes anew, and run the notebooks.

Run it in a checkout. The cassettes are recorded over real HTTP from the stand-in service, on a
clock of their own: a second run leaves no difference.
"""

from __future__ import annotations

import sys

from . import checkout
from .execute import execute
from .recordings import RECORDINGS, record


def main() -> None:
    root = checkout()
    if root is None:
        sys.exit("This is no checkout of directmail_lab: there is nothing to record into.")
    for name in RECORDINGS:
        record(name, root / "cassettes" / f"{name}.yaml")
        sys.stdout.write(f"recorded {name}\n")
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        execute(notebook)
        sys.stdout.write(f"ran {notebook.name}\n")


if __name__ == "__main__":
    main()
