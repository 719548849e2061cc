"""torch.compile, torch.export and ONNX on a Block's twin, and hybridize(backend=...), against the plain Block.

Tolerance: a traced convolution of one channel runs another kernel, and inductor fuses sums in another order, so losses
and weights agree to about ten times float32's rounding error. After updates through BatchNorm, inductor's agree to
about a hundred times.
"""

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters
from twin_models import IMAGES, lenet, sgd_torch, sgd_trainer, train_block, train_torch, values

import neomx as mx
from neomx import nd
from neomx.base import MXNetError

RTOL, ATOL = 1e-5, 1e-5
# A graph uses another kernel for one-channel convolutions. Four training steps amplify the rounding differences.
BACKENDS = pytest.mark.parametrize(("backend", "tolerance"), [("aot_eager", 5e-5), ("inductor", 2e-4)])

# torch's own warnings, on the way to inductor and to ONNX
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def assert_close(one, other, tolerance=ATOL):
    for a, b in zip(values(one), values(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def graphs():
    return counters["stats"]["unique_graphs"]


@BACKENDS
def test_compiled_twin_trains_like_block(backend, tolerance):
    block, other = lenet(), lenet()
    expected = train_block(block, sgd_trainer(block), IMAGES)
    twin = other.torch()
    compiled = torch.compile(twin, fullgraph=True, backend=backend)
    np.testing.assert_allclose(train_torch(compiled, sgd_torch(twin), IMAGES), expected, rtol=tolerance)
    assert_close(other, block, tolerance)
    assert graphs() == 1  # four steps, one graph, no breaks
    twin.eval()
    with torch.no_grad():
        found = compiled(torch.tensor(IMAGES))
    np.testing.assert_allclose(found, block(nd.array(IMAGES)).asnumpy(), rtol=tolerance, atol=tolerance)
    assert graphs() == 2 and not counters["graph_break"]


def test_compiled_twin_is_retraced_only_for_new_shapes():
    net = lenet()
    twin = net.torch().eval()
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")
    for size, expected in ((6, 1), (6, 1), (4, 2), (5, 2), (3, 2)):  # the second size makes the dimension dynamic
        rows = torch.tensor(IMAGES[:size])
        torch.testing.assert_close(compiled(rows), twin(rows), rtol=RTOL, atol=ATOL)
        assert graphs() == expected


def test_dropout_in_a_compiled_twin():
    net = lenet(dropout=0.5)
    compiled = torch.compile(net.torch(), fullgraph=True, backend="aot_eager")

    def seeded(seed):
        mx.random.seed(seed)
        return compiled(torch.tensor(IMAGES)).detach()

    assert torch.equal(seeded(1), seeded(1))
    assert not torch.equal(seeded(1), seeded(2))


@BACKENDS
def test_hybridize_with_backend_trains_like_block(backend, tolerance):
    block, other = lenet(), lenet()
    other.hybridize(backend=backend, fullgraph=True)
    expected = train_block(block, sgd_trainer(block), IMAGES)
    np.testing.assert_allclose(train_block(other, sgd_trainer(other), IMAGES), expected, rtol=tolerance)
    assert_close(other, block, tolerance)
    assert graphs() == 1
    found, wanted = other(nd.array(IMAGES)).asnumpy(), block(nd.array(IMAGES)).asnumpy()
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    assert graphs() == 2 and not counters["graph_break"]


def test_optimize_for_backend():
    block, other = lenet(), lenet()
    other.optimize_for(nd.array(IMAGES), backend="aot_eager")
    found, wanted = other(nd.array(IMAGES)).asnumpy(), block(nd.array(IMAGES)).asnumpy()
    np.testing.assert_allclose(found, wanted, rtol=RTOL, atol=ATOL)
    assert graphs() == 1


def test_unknown_backend_raises():
    with pytest.raises(MXNetError, match="Did you mean inductor"):
        lenet().hybridize(backend="inducto")


@pytest.mark.parametrize("varying", [False, True])
def test_export(varying):
    twin = lenet(dropout=0.5).torch().eval()
    shapes = {"args": ({0: torch.export.Dim("batch", min=2)},)} if varying else None
    program = torch.export.export(twin, (torch.tensor(IMAGES),), dynamic_shapes=shapes)
    rows = torch.tensor(IMAGES[: 3 if varying else 6])
    torch.testing.assert_close(program.module()(rows), twin(rows), rtol=RTOL, atol=ATOL)
    assert set(program.graph_signature.buffers) == {"1.running_mean", "1.running_var"}
    assert set(program.state_dict) == set(twin.state_dict())


def test_onnx(tmp_path):
    import onnxruntime as runtime

    twin = lenet(dropout=0.5).torch().eval()
    path = str(tmp_path / "net.onnx")
    torch.onnx.export(twin, (torch.tensor(IMAGES),), path, dynamo=True, verbose=False)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: IMAGES})
    np.testing.assert_allclose(found, twin(torch.tensor(IMAGES)).detach(), rtol=RTOL, atol=ATOL)
