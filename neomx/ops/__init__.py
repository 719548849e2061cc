"""The op table. Importing this package imports all of its modules, which register their ops in the table.

See `table.py` for the description of a row.
"""

import importlib
import pkgutil

from .table import OPS, Op, get_op, op

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["OPS", "Op", "get_op", "op"]
