"""Arrays on pretend devices: copies, writes, errors, random numbers, files, data, metrics."""

import copy
import pickle

import numpy as np
import pretend
import pytest
import torch

import neomx as mx
from neomx import autograd, gluon, nd

ONE, TWO = mx.gpu(1), mx.gpu(2)


# ---- the devices themselves ----


def test_gpu_is_the_accelerator_of_torch():
    assert mx.context.num_gpus() == pretend.COUNT
    assert ONE.device == torch.device("pretend", 1)
    with pytest.raises(mx.MXNetError, match=r"cannot allocate on gpu\(6\): this machine has 6 GPU"):
        nd.zeros((2,), ctx=mx.gpu(6))


def test_devices_have_separate_memory_and_refuse_to_mix():
    on_cpu = torch.ones(3)
    there = on_cpu.to("pretend:1")
    on_cpu += 1
    assert there.cpu().tolist() == [1, 1, 1]
    assert (there + torch.tensor(2.0)).device == there.device  # a number may come from the CPU, as on CUDA
    for other in (on_cpu, there.to("pretend:2")):
        for op in (torch.add, torch.dot, torch.maximum, torch.bucketize, lambda a, b: torch.cat((a, b))):
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
                op(there, other)
    with pytest.raises(TypeError, match="can't convert pretend:1 device type tensor to numpy"):
        there.numpy()


def test_waitall_synchronizes_every_device(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: waited.append(device))
    nd.waitall()
    assert waited == list(range(pretend.COUNT))
    nd.zeros((2,), ctx=ONE).wait_to_read()
    nd.zeros((2,)).wait_to_read()
    assert waited[pretend.COUNT :] == [torch.device("pretend", 1)]


# ---- copies and writes ----


def test_copies_between_devices():
    x = nd.array([[1.0, 2.0], [3.0, 4.0]], ctx=ONE)
    for ctx in (TWO, mx.cpu(), ONE):
        y = x.copyto(ctx)
        assert (y.context, y.to_torch().device) == (ctx, ctx.device)
        y += 1
        np.testing.assert_array_equal(y.asnumpy(), [[2, 3], [4, 5]])
    assert x.as_in_context(ONE) is x
    target = nd.zeros((2, 2), ctx=TWO)
    assert x.copyto(target) is target
    np.testing.assert_array_equal(target.asnumpy(), x.asnumpy())
    assert nd.array(x).context == mx.cpu()  # the default context, as in MXNet
    assert nd.zeros_like(x).context == nd.ones_like(x).context == x.astype("int32").context == ONE
    np.testing.assert_array_equal(x.asnumpy(), [[1, 2], [3, 4]])


def test_writes_accept_values_from_any_device():
    x = nd.zeros((3, 2), ctx=ONE)
    x[0] = nd.ones((2,), ctx=TWO)
    x[1] = nd.full((2,), 2.0)
    x[2] = np.array([3, 4])
    np.testing.assert_array_equal(x.asnumpy(), [[1, 1], [2, 2], [3, 4]])
    x[nd.array([0, 2], ctx=ONE)] = 7
    x[[1]] = 8
    np.testing.assert_array_equal(x.asnumpy(), [[7, 7], [8, 8], [7, 7]])
    row = x[1]
    row[:] = 9
    np.testing.assert_array_equal(x[1].asnumpy(), [9, 9])  # a view of the same memory
    np.testing.assert_array_equal(x[nd.array([2, 0])].asnumpy(), [[7, 7], [7, 7]])  # indices may be on the CPU
    nd.broadcast_add(nd.ones((3, 2), ctx=ONE), nd.ones((1, 2), ctx=ONE), out=x)
    np.testing.assert_array_equal(x.asnumpy(), np.full((3, 2), 2))


def test_ops_reject_arrays_of_two_devices():
    a, b = nd.ones((2, 2), ctx=ONE), nd.ones((2, 2), ctx=TWO)
    for call in (lambda: a + b, lambda: nd.dot(a, b), lambda: a.__iadd__(b), lambda: nd.concat(a, b)):
        with pytest.raises(
            mx.MXNetError, match=r"on the same device, received gpu\(1\) and gpu\(2\). Use as_in_context"
        ):
            call()


def test_gradients_cross_devices():
    x = nd.array([1.0, 2.0], ctx=ONE)
    x.attach_grad()
    with autograd.record():
        y = (x * x).as_in_context(TWO) * 3
        z = y.as_in_context(mx.cpu()).sum()
    z.backward()
    assert (y.context, x.grad.context) == (TWO, ONE)
    np.testing.assert_array_equal(x.grad.asnumpy(), [6, 12])
    with autograd.record():
        y = nd.exp(x)
    (slope,) = autograd.grad(y, [x], head_grads=nd.ones((2,), ctx=ONE), retain_graph=True)
    assert slope.context == ONE
    np.testing.assert_allclose(slope.asnumpy(), np.exp([1, 2]), rtol=1e-6)


def test_autograd_functions_stay_on_the_device():
    class Square(autograd.Function):
        def forward(self, x):
            self.save_for_backward(x)
            return x * x

        def backward(self, grad):
            (x,) = self.saved_tensors
            return 2 * x * grad

    x = nd.array([3.0], ctx=ONE)
    x.attach_grad()
    with autograd.record():
        y = Square()(x)
    y.backward()
    assert (y.context, x.grad.context, x.grad.asscalar()) == (ONE, ONE, 6)


def test_copies_by_pickle_and_deepcopy():
    x = nd.array([1.0, 2.0], ctx=TWO)
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.context == TWO
        np.testing.assert_array_equal(y.asnumpy(), [1, 2])


def test_torch_tensors_of_the_accelerator():
    tensor = torch.ones(2, device="pretend:2")
    assert nd.from_torch(tensor).context == TWO
    assert nd.from_torch(tensor).to_torch() is tensor


# ---- random numbers ----


def test_random_numbers_are_drawn_on_the_device_and_repeat():
    def draw(ctx):
        with ctx:
            return [
                nd.random.uniform(shape=(50,)),
                nd.random.normal(shape=(50,)),
                nd.random.poisson(3, shape=(50,)),
                nd.random.gamma(2, 1, shape=(50,)),
                nd.random.randint(0, 9, shape=(50,)),
                nd.random.multinomial(nd.array([0.2, 0.8]), shape=50),
                nd.random.shuffle(nd.arange(50)),
                nd.random.exponential(nd.ones((50,))),
                nd.random.negative_binomial(3, 0.5, shape=(50,)),
                nd.Dropout(nd.ones((50,)), mode="always"),
            ]

    def values(arrays):
        return np.stack([array.asnumpy().astype("float64") for array in arrays])

    mx.random.seed(7)
    first = draw(ONE)
    assert {array.context for array in first} == {ONE}
    other = values(draw(TWO))
    assert (values(first) != other).any(1).all()
    mx.random.seed(7, ctx=ONE)
    np.testing.assert_array_equal(values(draw(ONE)), values(first))


# ---- files ----


def test_loaded_arrays_return_to_their_devices(tmp_path):
    path = str(tmp_path / "arrays.params")
    given = {"a": nd.array([1.0, 2.0], ctx=ONE), "b": nd.array([3], dtype="int32", ctx=TWO), "c": nd.ones((2,))}
    given["s"] = nd.array([[0, 1], [0, 0], [2, 3]], ctx=ONE).tostype("row_sparse")
    given["t"] = nd.array([[0, 1], [0, 0], [2, 3]], ctx=TWO).tostype("csr")
    nd.save(path, given)
    for name, array in nd.load(path).items():
        assert (array.context, array.stype) == (given[name].context, given[name].stype), name
        np.testing.assert_array_equal(array.asnumpy(), given[name].asnumpy())


def test_arrays_of_a_missing_device_are_loaded_to_the_cpu(tmp_path, monkeypatch):
    path = str(tmp_path / "arrays.params")
    nd.save(path, [nd.array([1.0, 2.0], ctx=mx.gpu(3))])
    monkeypatch.setattr(pretend.Module, "device_count", lambda self: 2)
    (array,) = nd.load(path)
    assert array.context == mx.cpu()
    np.testing.assert_array_equal(array.asnumpy(), [1, 2])


def test_parameters_move_between_devices(tmp_path):
    path = str(tmp_path / "net.params")
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize(ctx=[ONE, TWO])
    net.save_parameters(path)
    values = net.weight.data(ONE).asnumpy()
    for contexts in ([mx.cpu()], [TWO], [mx.gpu(0), mx.gpu(3)]):
        other = gluon.nn.Dense(2, in_units=3)
        other.load_parameters(path, ctx=contexts)
        assert other.weight.list_ctx() == contexts
        for array in other.weight.list_data():
            np.testing.assert_array_equal(array.asnumpy(), values)
        other.collect_params().reset_ctx([ONE])
        np.testing.assert_array_equal(other.weight.data(ONE).asnumpy(), values)
        other.weight.set_data(nd.zeros((2, 3), ctx=TWO))
        assert not other.weight.data(ONE).asnumpy().any()


def test_an_exported_network_runs_on_a_device(tmp_path):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(3, activation="relu"), gluon.nn.Dense(2))
    net.initialize(ctx=ONE)
    net.hybridize()
    x = nd.array(np.random.RandomState(0).uniform(-1, 1, (4, 5)), ctx=ONE)
    expected = net(x).asnumpy()
    net.export(str(tmp_path / "net"))
    back = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"), ctx=TWO
    )
    result = back(x.as_in_context(TWO))
    assert result.context == TWO
    np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-5)


# ---- data and metrics ----


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_with_pinned_memory(workers):
    data = gluon.data.ArrayDataset(np.arange(12, dtype="float32").reshape(6, 2), np.arange(6))
    loader = gluon.data.DataLoader(data, 3, num_workers=workers, pin_memory=True, thread_pool=True)
    for start, (x, y) in zip((0, 3), loader, strict=True):
        assert x.context == y.context == mx.Context("cpu_pinned", 0)
        assert x.to_torch().was_pinned
        assert (x * 2).context == mx.cpu()
        np.testing.assert_array_equal(y.as_in_context(ONE).asnumpy(), np.arange(start, start + 3))


def test_batches_are_on_the_current_context_or_by_workers_on_the_cpu():
    numbers, items = np.arange(4), [1, 2, 3, 4]
    with ONE:
        for dataset in (gluon.data.ArrayDataset(numbers, nd.arange(4)), gluon.data.ArrayDataset(items, items)):
            for x, y in gluon.data.DataLoader(dataset, 2):
                assert x.context == y.context == ONE
        for x, _ in gluon.data.DataLoader(gluon.data.ArrayDataset(items, items), 2, num_workers=1):
            assert x.context == mx.cpu()


def test_an_iterator_over_arrays_of_a_device():
    x = nd.arange(10, ctx=ONE).reshape((5, 2))
    for data in (x, x.tostype("csr")):
        handle = "discard" if data.stype == "csr" else "pad"
        batches = [b.data[0] for b in mx.io.NDArrayIter(data, batch_size=2, last_batch_handle=handle)]
        assert {b.context for b in batches} == {ONE}
        np.testing.assert_array_equal(batches[1].asnumpy(), [[4, 5], [6, 7]])


@pytest.mark.parametrize(
    "name",
    ["acc", "top_k_accuracy", "f1", "mcc", "ce", "nll_loss", "perplexity", "mae", "mse", "rmse", "pearsonr", "loss"],
)
def test_metrics_accept_arrays_of_any_device(name):
    settings = {"top_k_accuracy": {"top_k": 2}, "perplexity": {"ignore_label": None}}.get(name, {})
    rng = np.random.RandomState(0)
    if name in ("mae", "mse", "rmse", "pearsonr"):
        labels, preds = rng.uniform(size=(6, 1)), rng.uniform(size=(6, 1))
    else:
        scores = rng.uniform(size=(6, 2 if name in ("f1", "mcc") else 4))
        labels, preds = rng.randint(0, 2, 6), scores / scores.sum(1, keepdims=True)
    found = []
    for place_of_labels, place_of_preds in ((mx.cpu(), mx.cpu()), (ONE, ONE), (mx.cpu(), ONE), (TWO, ONE)):
        metric = mx.metric.create(name, **settings)
        for _ in range(2):
            metric.update([nd.array(labels, ctx=place_of_labels)], [nd.array(preds, ctx=place_of_preds)])
        found.append(metric.get()[1])
    assert found == pytest.approx([found[0]] * 4, rel=1e-6)


# ---- sparse arrays ----


def test_sparse_arrays_keep_their_device():
    dense = nd.array([[0, 1], [0, 0], [2, 3]], ctx=ONE)
    for stype in ("row_sparse", "csr"):
        x = dense.tostype(stype)
        for result in (x, x * 2, x + x, nd.sqrt(x), x.copyto(ONE), x[:], x.astype("float64"), x.tostype("default")):
            assert result.context == ONE
        assert x.copyto(TWO).context == TWO
        assert x.data.context == x.indices.context == ONE
        np.testing.assert_array_equal((x + x).asnumpy(), 2 * dense.asnumpy())
        assert nd.sparse.zeros(stype, (3, 2), ctx=TWO).context == TWO
    kept = nd.sparse.retain(dense.tostype("row_sparse"), nd.array([2], ctx=ONE))
    np.testing.assert_array_equal(kept.asnumpy(), [[0, 0], [0, 0], [2, 3]])
    made = nd.sparse.csr_matrix(([1.0, 2.0], [1, 0], [0, 1, 2]), shape=(2, 2), ctx=TWO)
    assert made.context == TWO
    np.testing.assert_array_equal(made.asnumpy(), [[0, 1], [2, 0]])


def test_lazy_updates_by_rows_on_a_device():
    results = []
    for ctx in (mx.cpu(), ONE):
        weight, grad = nd.ones((3, 2), ctx=ctx), nd.array([[0, 0], [1, 2], [0, 0]], ctx=ctx).tostype("row_sparse")
        for name in ("sgd", "adam", "adagrad", "ftrl"):
            optimizer = mx.optimizer.create(name, learning_rate=0.1)
            mx.optimizer.get_updater(optimizer)(0, grad, weight)
        assert weight.context == ctx
        results.append(weight.asnumpy())
    np.testing.assert_allclose(*results, rtol=1e-6)
