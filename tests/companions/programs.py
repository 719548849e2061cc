"""The programs of all libraries, by family; a family is imported when it is wanted."""

import importlib
import os

import numpy as np

os.environ.setdefault("MPLBACKEND", "Agg")  # figures are drawn and not shown


def _family(module):
    return lambda: {program.__name__: program for program in importlib.import_module(module).PROGRAMS}


FAMILIES = {name: _family("programs_" + name) for name in ("cv", "nlp", "board", "d2l")}


def found_by(program):
    """What a program gives, as numpy arrays by name."""
    return {
        key: np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value) for key, value in program().items()
    }
