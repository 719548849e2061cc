"""Run the programs under real MXNet and save their results. Use the Python of an environment with MXNet."""

import os
import sys

import mxnet as mx
import numpy as np
from programs import FAMILIES, found_by

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    """Record the families named on the command line, or all."""
    assert mx.__version__ == "1.9.1" and mx.__name__ == mx.nd.__name__.split(".")[0], "this must be MXNet 1.9.1"
    for family in sys.argv[1:] or FAMILIES:
        found = {}
        for name, program in FAMILIES[family]().items():
            found.update((f"{name}.{key}", value) for key, value in found_by(program).items())
        np.savez_compressed(os.path.join(HERE, "recorded", family + ".npz"), **found)


if __name__ == "__main__":
    main()
