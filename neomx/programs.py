"""Programs that a launcher starts or puts on a path. Importing this module does not load torch."""

from __future__ import annotations

import pathlib
import sys

SERVER = [sys.executable, "-m", "neomx.kvstore.server"]  # the command of a parameter server
STARTUP = str(pathlib.Path(__file__).parent / "compat" / "startup")  # on PYTHONPATH, makes `import mxnet` load neomx
