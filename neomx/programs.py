"""What a launcher starts or puts in place by name. Importing this loads nothing: a launcher needs no torch."""

from __future__ import annotations

import pathlib
import sys

SERVER = [sys.executable, "-m", "neomx.kvstore.server"]  # a parameter server
STARTUP = str(pathlib.Path(__file__).parent / "compat" / "startup")  # on PYTHONPATH it makes `import mxnet` mean neomx
