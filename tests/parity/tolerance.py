"""How far a result may be from MXNet's: one rule for all parity tests, whatever the CPU.

    |received - expected| <= factor * eps * (8 * |expected| + 4 * sqrt(terms) * max(1, peak)) + off

Instruction sets differ in the order in which they add, and in whether a product is rounded before it is added. The
error of a sum of n terms grows like sqrt(n) units of rounding, relative to the size of what was added. `peak`, the
largest expected value, stands for that size: the terms of a sum that cancels are as large as those of its neighbours.

- eps: of the coarsest floating-point dtype among inputs and results. float64 counts as float32, because MXNet keeps
  learning rates, epsilons and other attributes in float32. Integers must be equal.
- terms: how many numbers may have been added up for one result. A case takes the size of its largest input. Programs
  chain many ops, so they take PROGRAM. Half precision counts as one term: both sides add in float32 and round once.
- factor: 1, unless the case magnifies rounding, by dividing by a small difference, say.
- off: 0, unless results are rounded to whole numbers, such as grey levels.

This file needs numpy alone.
"""

import numpy as np

PROGRAM = 1024
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-23}
HALF = ("float16", "bfloat16")


def allowed(expected, dtypes=(), terms=PROGRAM, factor=1, off=0):
    """What each element of `expected` may be off by, where inputs have these dtypes."""
    if expected.dtype.kind != "f":
        return np.full(expected.shape, float(off))
    dtype = max((d for d in [str(expected.dtype)] + list(dtypes) if d in EPS), key=EPS.get)
    size = np.abs(np.where(np.isfinite(expected), expected, 0).astype("float64"))
    terms = 1 if dtype in HALF else terms
    return factor * EPS[dtype] * (8 * size + 4 * np.sqrt(terms) * max(1.0, size.max(initial=0))) + off


def used(received, expected, **how):
    """The largest part of its tolerance that any element uses: at most 1 is close enough."""
    received, expected = np.asarray(received), np.asarray(expected)
    assert received.shape == expected.shape, (received.shape, expected.shape)
    a, b = received.astype("float64"), expected.astype("float64")
    same = (received == expected) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        parts = np.where(same, 0, np.abs(a - b) / allowed(expected, **how))
    return float(np.where(np.isnan(parts), np.inf, parts).max(initial=0))


def check(received, expected, what="", **how):
    """Raise AssertionError, which shows the arrays, if `received` is not close enough to `expected`."""
    part = used(received, expected, **how)
    if part > 1:
        message = "%s: %.3g times its tolerance" % (what, part)
        np.testing.assert_array_equal(received, expected, err_msg=message)
        raise AssertionError(message)
