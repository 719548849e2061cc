"""`python -m neomx` is the `neomx` command, and runs scripts: `python -m neomx train.py`."""

import sys

from .launch.cli import main

if __name__ == "__main__":
    sys.exit(main())
