"""Load what neomx exported (recorded/exported) into MXNet 1.9.1 and keep what it computes; run by .venv-oracle."""

import pathlib
import sys

import mxnet as mx
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from parity import exports


def main():
    for name in exports.INPUTS:
        results = exports.computed(mx, exports.imported(mx, name), name)
        np.savez_compressed(str(exports.EXPORTED / (name + ".npz")), **results)
        print("%s: loaded and run, %d results" % (name, len(results)))


if __name__ == "__main__":
    main()
