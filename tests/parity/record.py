"""Run the cases under real MXNet 1.9.1 and keep what it gave: `make record`, or for some families

.venv-oracle/bin/python tests/parity/record.py [family ...]
"""

import importlib
import os
import pathlib
import sys

import numpy as np

os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")  # hundreds of lines otherwise
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def load(name):
    importlib.import_module("parity.cases." + name)


def main(names):
    import mxnet as mx

    from parity import spec

    assert mx.__version__ == "1.9.1", mx.__version__
    for name in names or sorted(p.stem for p in (HERE / "cases").glob("[a-z]*.py")):
        load(name)
        recorded, failed = {}, 0
        for case in spec.CASES[name].values():
            mx.random.seed(0)
            np.random.seed(0)
            try:
                results = case.run(mx)
            except Exception as error:
                failed += 1
                print("MXNet refuses %s: %s" % (case.id, str(error)[:600]))
                continue
            for key, value in results.items():
                recorded[case.id + "|" + key] = value
        if failed:
            sys.exit("%s: %d case(s) that MXNet refuses; nothing written" % (name, failed))
        np.savez_compressed(str(HERE / "recorded" / (name + ".npz")), **recorded)
        print("%s: %d cases, %d arrays" % (name, len(spec.CASES[name]), len(recorded)))


if __name__ == "__main__":
    main(sys.argv[1:])
