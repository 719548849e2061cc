"""Load the graphs of `mx.sym`'s networks into MXNet 1.9.1 and keep what it computes; run by .venv-oracle."""

import pathlib
import sys

import mxnet as mx
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from parity import networks


def main():
    results = {}
    mx.random.seed(3)
    for name, text in networks.read().items():
        graph = mx.sym.load_json(text)
        arguments, outputs = networks.shapes(graph, name)
        results["%s:shapes" % name] = np.array(str((sorted(arguments.items()), outputs)))
        if name in networks.NOT_ON_A_CPU:
            try:
                networks.computed(mx, graph, name)
                raise SystemExit("%s ran" % name)
            except RuntimeError as error:
                results["%s:error" % name] = np.array(str(error).strip().splitlines()[-1])
            continue
        found = networks.computed(mx, graph, name)
        if name in networks.RANDOM:
            found.update(networks.drawn(mx, graph, name))
        results.update({"%s:%s" % (name, what): array for what, array in found.items()})
        print("%s: loaded and run, %d results" % (name, len(found)))
    np.savez_compressed(str(networks.RESULTS), **results)


if __name__ == "__main__":
    main()
