"""Record under real MXNet 1.9.1 what the networks of its model zoo are and compute.

    .venv-oracle/bin/python tests/parity/record_zoo.py

writes recorded/zoo_graphs.json.xz (names, shapes and graphs of all), zoo.npz (outputs and gradients of some, with the
weights of zoo_spec.py), and ../fixtures/zoo/ (a small `.params` file).
"""

import json
import lzma
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures" / "zoo"
sys.path.insert(0, str(HERE.parent))


def record_graphs(mx, spec):
    names = sorted(mx.gluon.model_zoo.model_store._model_sha1)
    graphs = {name: spec.describe(mx, name, 299 if name == "inceptionv3" else 224) for name in names}
    text = json.dumps(graphs, sort_keys=True).encode()
    (HERE / "recorded" / "zoo_graphs.json.xz").write_bytes(lzma.compress(text, preset=9))


def record_runs(mx, spec):
    recorded = {}
    for name, recipe in spec.NETS.items():
        net, x = spec.make(mx, recipe)
        out = net(x).asnumpy()
        print("%-22s predicts %s, std %.3g" % (name, out.shape, out.std()))
        assert 0.01 < out.std() < 1000, "of no meaningful size"
        recorded[name + ":predict"] = out
        if name in spec.NOT_TRAINED:
            continue
        out, held = spec.train(mx, net, x)
        recorded[name + ":train"] = out
        recorded[name + ":held"] = np.array([held[key] for key in sorted(held)])
    np.savez_compressed(HERE / "recorded" / "zoo.npz", **recorded)


def record_file(mx, spec):
    FIXTURES.mkdir(exist_ok=True)
    net, x = spec.make(mx, spec.SAVED)
    net.save_parameters(str(FIXTURES / "mobilenet0.125.params"))
    np.save(FIXTURES / "mobilenet0.125.npy", net(x).asnumpy())


def main():
    import mxnet as mx

    from parity import zoo_spec

    assert mx.__version__ == "1.9.1", mx.__version__
    record_graphs(mx, zoo_spec)
    record_runs(mx, zoo_spec)
    record_file(mx, zoo_spec)


if __name__ == "__main__":
    main()
