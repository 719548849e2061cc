"""The op table: importing this package imports every module in it, and so fills the table.

See `table.py` for what a row is.
"""

import importlib
import pkgutil

from .table import OPS, Op, get_op, op

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["OPS", "Op", "get_op", "op"]
