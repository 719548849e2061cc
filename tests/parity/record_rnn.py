"""Make the checkpoints of recurrent networks under real MXNet 1.9.1, or check that it loads those that neomx wrote.

.venv-oracle/bin/python tests/parity/record_rnn.py               write tests/fixtures/rnn
.venv/bin/python -m pytest tests/module/test_mx_rnn.py --basetemp=DIR
.venv-oracle/bin/python tests/parity/record_rnn.py check DIR     load what was saved below DIR
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures" / "rnn"
sys.path.insert(0, str(HERE.parent))


def cells(mx):
    """Two networks of the same weights' names: one op, and its cells."""
    fused = mx.rnn.FusedRNNCell(3, num_layers=2, mode="lstm", bidirectional=True, prefix="net_")
    return {"fused": fused, "single": fused.unfuse()}


def network(mx, cell):
    outputs, _ = cell.unroll(4, mx.sym.Variable("data"), layout="NTC", merge_outputs=True)
    return mx.sym.FullyConnected(outputs, num_hidden=2, flatten=False, name="out")


def values(mx, net):
    """Weights that differ, and no data."""
    shapes, _, _ = net.infer_shape(data=(2, 4, 5))
    rng = np.random.RandomState(3)
    named = zip(net.list_arguments(), shapes)
    return {name: mx.nd.array(rng.uniform(-1, 1, shape)) for name, shape in named if name != "data"}


def outputs(mx, net, args):
    """What the network gives for one batch."""
    data = mx.nd.array(np.random.RandomState(4).uniform(-1, 1, (2, 4, 5)))
    return net.bind(mx.cpu(), {**args, "data": data}).forward()[0].asnumpy()


def write(mx, directory):
    """A checkpoint of each network, and what it gives."""
    results = {}
    for name, cell in cells(mx).items():
        net = network(mx, cell)
        args = values(mx, net)
        mx.rnn.save_rnn_checkpoint(cell, str(directory / name), 3, net, args, {})
        results[name] = outputs(mx, net, args)
    np.savez_compressed(str(directory / "outputs.npz"), **results)


def read(mx, directory):
    """{which wrote it, which reads it: (outputs now, outputs then)}."""
    compared = {}
    with np.load(str(directory / "outputs.npz")) as expected:
        for written in cells(mx):
            for reader, cell in cells(mx).items():
                net, args, _ = mx.rnn.load_rnn_checkpoint(cell, str(directory / written), 3)
                net = net if written == reader else network(mx, cell)
                compared[written, reader] = outputs(mx, net, args), expected[written]
    return compared


def main(arguments):
    import mxnet as mx

    assert mx.__version__ == "1.9.1", mx.__version__
    if arguments:
        for path in pathlib.Path(arguments[1]).rglob("outputs.npz"):
            for which, (now, then) in read(mx, path.parent).items():
                np.testing.assert_allclose(now, then, rtol=1e-5, atol=1e-6, err_msg=str(which))
            print("%s: loaded and found right" % path.parent)
    else:
        FIXTURES.mkdir(exist_ok=True)
        write(mx, FIXTURES)


if __name__ == "__main__":
    main(sys.argv[1:])
