"""``python -m directmail_lab`` is the command ``directmail-lab``."""

from .cli import main

if __name__ == "__main__":
    main()
