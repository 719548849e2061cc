"""`mx.sym.contrib`: the `_contrib_...` ops of the op table, and control flow."""

from __future__ import annotations

import math

from ..ops.table import OPS
from .build import create
from .control_flow import cond, foreach, while_loop  # noqa: F401
from .random import uniform
from .symbol import Symbol


def rand_zipfian(true_classes: Symbol, num_sampled: int, range_max: int) -> tuple[Symbol, Symbol, Symbol]:
    """Draw classes from a log-uniform (Zipfian) distribution: P(c) = (log(c + 2) - log(c + 1)) / log(range_max + 1).

    Returns the drawn classes, the expected count of each true class, and the expected count of each drawn class.
    """
    width = math.log(range_max + 1)
    drawn = uniform(0, width, shape=(num_sampled,), dtype="float64")
    sampled = (_of("exp", drawn) - 1).astype("int64") % range_max

    def expected(classes: Symbol) -> Symbol:
        wide = classes.astype("float64")
        return _of("log", (wide + 2.0) / (wide + 1.0)) / width * num_sampled

    return sampled, expected(true_classes), expected(sampled)


def _of(name: str, symbol: Symbol) -> Symbol:
    return create(OPS[name], name, (symbol,), {}, Symbol)
