"""The command ``directmail-lab``, also as ``python -m directmail_lab``."""

import sys

from .errors import MissingPackageError, naming_what_is_missing


def main() -> None:
    """Run the command, if the packages that it needs are installed."""
    try:
        with naming_what_is_missing():
            from .cli import main as run
    except MissingPackageError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
