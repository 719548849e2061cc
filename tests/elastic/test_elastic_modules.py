"""Each kind of Module goes on without a lost worker, to the weights of one process that has all samples."""

import pathlib

import numpy as np
import pytest
from cluster import Cluster
from forking import ForkServer
from workers import elastic_modules as program

import neomx as mx

pytestmark = pytest.mark.processes

TOLERANCE = 1e-6
WORKERS = 2


@pytest.fixture(scope="module")
def server():
    with ForkServer() as made:
        yield made


def weights(folder, server, kind, **variables):
    """Return the weights of worker 0, which goes on without worker 1."""
    options = {"workers": WORKERS, "output": folder, "popen": server.popen, **variables}
    with Cluster(pathlib.Path(program.__file__), [kind, folder], **options) as job:
        codes = job.wait()
    assert codes == {0: 0, 1: -9}, {path.name: path.read_text() for path in folder.glob("*.log")}
    return dict(np.load(folder / "weights-0.npz"))


def check_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values.asnumpy(), rtol=0, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("kind", program.KINDS)
def test_the_weights_are_those_of_one_process(tmp_path, server, kind):
    x, y = program.samples()
    whole = mx.io.NDArrayIter(x, {"label": y}, program.BATCH * WORKERS)
    check_equal(weights(tmp_path, server, kind), program.train(kind, whole, None))


def test_with_scale_batch_the_batch_and_the_rate_are_halved_with_the_workers(tmp_path, server):
    """One process makes the steps of both workers, and then those of the one that is left."""
    x, y = program.samples()
    mx.random.seed(1)
    made = program.module("fit")
    made.bind([("data", (program.BATCH, 8))], [("label", (program.BATCH, 1))])
    made.init_params(mx.init.Xavier())
    made.init_optimizer(None, "sgd", program.SGD)
    at, size = 0, program.BATCH * WORKERS
    while at < program.SAMPLES * program.EPOCHS:
        if at == program.DIES * size:
            size //= 2
            made.training.optimizer.set_learning_rate(program.RATE / 2)
        rows = [number % program.SAMPLES for number in range(at, at + size)]
        made.training.optimizer.rescale_grad = 1 / size
        made.forward_backward(mx.io.DataBatch([mx.nd.array(x[rows])], [mx.nd.array(y[rows])]))
        made.update()
        at += size
    found = weights(tmp_path, server, "fit", NEOMX_SCALE_BATCH="1")
    check_equal(found, made.get_params()[0])
