"""Entry point of `python -m neomx`: the `neomx` command, or a script as in `python -m neomx train.py`."""

import sys

from .launch.cli import main

if __name__ == "__main__":
    sys.exit(main())
