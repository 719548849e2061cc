"""The programs of all libraries by family. A family is imported on first use."""

import importlib
import os

import numpy as np

os.environ.setdefault("MPLBACKEND", "Agg")  # draw figures without showing them


def _family(module):
    return lambda: {program.__name__: program for program in importlib.import_module(module).PROGRAMS}


FAMILIES = {name: _family("programs_" + name) for name in ("cv", "nlp", "board", "d2l")}


def found_by(program):
    """Return the results of a program as numpy arrays by name."""
    return {
        key: np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value) for key, value in program().items()
    }
