"""Calls the names of docs/guide-names.md and trains with them, without naming a store: `PROGRAM OUT`.

Each process saves the trained weights to OUT-<rank>.npz. One process gives the expected ones: the global batches are
the same.
"""

import sys
import warnings

import mxnet as mx
import mxnet.distributed
import numpy as np
import torch
from mxnet import autograd, gluon, nd, sym
from mxnet.gluon import distributed, nn, optimizers
from mxnet.parallel.datashard import ScatterDataShard

torch.set_num_threads(1)
warnings.simplefilter("ignore", DeprecationWarning)  # of FeedForward
RANK, SIZE = mxnet.parallel.rank(), mxnet.parallel.size()
GLOBAL, SAMPLES, EPOCHS = 8, 21, 2  # the last batch has 5 samples: 3 on worker 0 and 2 on worker 1
random = np.random.default_rng(0)
DATA = random.standard_normal((SAMPLES, 5)).astype("float32")
LABELS = DATA[:, :3].argmax(1).astype("float32")
SGD = {"learning_rate": 0.5, "momentum": 0.9}

# ---- calls ----


def collectives():
    assert mx.parallel_rank() == mx.parallel.local_rank() == mx.dist.rank() == RANK
    mean, total = (SIZE - 1) / 2, SIZE * (SIZE - 1) // 2
    x = nd.array([RANK, 1.0])
    assert mx.comm_allreduce(x) is x and x.asnumpy().tolist() == [mean, 1]  # before comm_init
    mx.comm_init()
    assert mx.comm_allreduce(RANK) == mean and mx.comm_allreduce_sum(RANK) == total
    assert mx.comm_allreduce([RANK * 1.0, {"a": np.ones(2) * RANK}], "max")[0] == SIZE - 1
    assert mx.comm_allreduce() is None
    assert mx.comm_broadcast(np.full(2, RANK), root=SIZE - 1).tolist() == [SIZE - 1] * 2

    backend = mxnet.distributed.backend
    for op, expected in (("SUM", total), ("AVG", mean), ("MAX", SIZE - 1), ("MIN", 0)):
        tensor = torch.full((2,), float(RANK))
        assert backend.all_reduce(tensor, op=getattr(backend.ReduceOp, op)) is tensor
        assert tensor.tolist() == [expected] * 2
    assert [int(each.asscalar()) for each in backend.all_gather(nd.array([RANK]))] == list(range(SIZE))
    assert backend.broadcast(nd.array([RANK]), SIZE - 1).asscalar() == SIZE - 1
    assert (backend.get_rank(), backend.get_world_size()) == (RANK, SIZE)


def models():
    net = nn.Conv2D(2, 3, in_channels=2)  # its weight is not contiguous
    net.initialize(mx.init.Constant(RANK))
    mx.parallel.broadcast(net, root=SIZE - 1)
    assert net.weight.data().asnumpy().tolist() == np.full(net.weight.shape, SIZE - 1).tolist()
    with autograd.record():
        loss = net(nd.full((1, 2, 3, 3), RANK)).sum()
    loss.backward()
    mx.parallel.allreduce(net)
    np.testing.assert_array_equal(net.weight.grad().asnumpy(), (SIZE - 1) / 2)
    twin = torch.nn.Linear(2, 1)
    mx.parallel.allreduce(twin)  # without gradients
    assert twin.weight.grad.tolist() == [[0, 0]]
    assert mx.parallel.broadcast(twin) is twin


def groups():
    assert mx.parallel.get_group().ranks == list(range(SIZE)) and mx.parallel.get_group_rank() == RANK
    mine = mx.parallel.init_group("mine", [0])
    if SIZE > 1:
        mx.parallel.init_group("other", [1])
    assert mx.parallel.init_group("mine", [0]) is mine  # again
    assert mx.parallel.get_group().ranks == [RANK] and mx.parallel.get_group_rank() == 0
    assert mx.parallel.get_group_rank("mine") == (0 if RANK == 0 else -1)
    assert mx.parallel.allreduce(RANK) == RANK  # within the group
    both = mx.parallel.init_group()  # nested: the one opened last counts
    assert both.size == SIZE and mx.parallel.allreduce(RANK, "max") == SIZE - 1
    assert mx.parallel.allreduce() is None and mx.comm_allreduce(RANK, "max") == SIZE - 1
    for name in ("group0" if SIZE == 1 else None, *(["other"] if SIZE > 1 else []), "mine"):
        mx.parallel.finalize_group(name) if name else mx.parallel.finalize_group()
    assert mx.parallel.get_group().size == SIZE
    raises(ValueError, f"distinct ranks from 0 to {SIZE - 1}", lambda: mx.parallel.init_group(ranks=[SIZE]))
    if SIZE > 1:
        words = "init_group(name=None, ranks=[0]) on worker 0; init_group(name=None, ranks=[1]) on worker 1"
        raises(mx.MXNetError, words, lambda: mx.parallel.init_group(ranks=[RANK]))
        words = "init_group(name='x', ranks=[0]) on worker 0; init_group(name='x', ranks=[7]) on worker 1"
        raises(mx.MXNetError, words, lambda: mx.parallel.init_group("x", [7 * RANK]))  # 7 is not a rank
        raises(mx.MXNetError, "no group is open. Call init_group first", mx.parallel.finalize_group)
        wrong_ends_of_groups()
        first = mx.parallel.init_group("first", [0])
        if RANK == 1:
            raises(mx.MXNetError, "in none of the open groups: 'first' with workers", mx.parallel.get_group)
            raises(mx.MXNetError, "in none of the open groups", lambda: mx.parallel.allreduce(nd.ones(1)))
            assert mx.parallel.get_group_rank() == first.rank == -1
        mx.parallel.finalize_group()


def wrong_ends_of_groups():
    """Each call raises on both workers, and both groups stay open."""
    names = ["one", "two"]
    for name in names:
        mx.parallel.init_group(name)
    words = "finalize_group('one') on worker 0; finalize_group('two') on worker 1"
    raises(mx.MXNetError, words, lambda: mx.parallel.finalize_group(names[RANK]))
    raises(mx.MXNetError, words, lambda: mx.parallel.finalize_group("one" if RANK == 0 else None))
    words = "finalize_group('two') on worker 0; finalize_group('three') on worker 1"
    raises(mx.MXNetError, words, lambda: mx.parallel.finalize_group("two" if RANK == 0 else "three"))
    words = "finalize_group('two') on worker 0; init_group(name='three', ranks=[0, 1]) on worker 1"
    raises(mx.MXNetError, words, lambda: mx.parallel.init_group("three") if RANK else mx.parallel.finalize_group())
    raises(mx.MXNetError, "no group 'three' is open", lambda: mx.parallel.finalize_group("three"))
    assert mx.parallel.allreduce(RANK, "sum") == SIZE * (SIZE - 1) // 2
    mx.parallel.finalize_group(None if RANK == 0 else "two")  # the same group
    mx.parallel.finalize_group("one")


def raises(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"expected {kind.__name__}: {words}")


# ---- training ----


def shard():
    return ScatterDataShard(DATA, LABELS, batch_size=GLOBAL // SIZE, shuffle=True, seed=3)


def loader():
    return gluon.data.DataLoader(shard(), batch_size=GLOBAL // SIZE)


def block():
    """A Block whose shapes are unknown, with different values on every worker."""
    mx.random.seed(RANK + 1)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(8, activation="tanh"), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    return net


def stepped(net, trainer):
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(EPOCHS):
        for x, y in loader():
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(len(x))
    return {name: param.data().asnumpy() for name, param in net.collect_params().items()}


def prepared_block():
    net = mx.parallel.data_parallel(block())
    return stepped(net, gluon.Trainer(net.collect_params(), optimizers.SGD(**SGD)))


def hybridized_block_with_half_gradients():
    net = distributed.DDP(block())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", SGD, compression_params={"type": "fp16"})
    found = stepped(net, trainer)
    assert SIZE == 1 or trainer.strategy.compressor is not None
    return found


def prepared_trainer():
    net = block()
    net(nd.array(DATA[:2]))  # the shapes are known, and the values differ
    trainer = gluon.Trainer(net.collect_params(), "sgd", SGD)
    assert distributed.DDP(trainer) is trainer
    return stepped(net, trainer)


def prepared_optimizer():
    net = block()
    return stepped(net, gluon.Trainer(net.collect_params(), distributed.DDP(mx.optim.SGD(**SGD))))


def gradients_by_hand():
    net = block()
    net(nd.array(DATA[:2]))
    mx.parallel.broadcast(net)
    rule = distributed.DDP(mx.optim.SGD(rescale_grad=SIZE / GLOBAL, **SGD))
    x, y = (nd.array(each[RANK:GLOBAL:SIZE]) for each in (DATA, LABELS))
    for _ in range(3):
        with autograd.record():
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(x), y)
        loss.backward()
        rule.set_aggregate(net)
        rule.update()
    return {name: param.data().asnumpy() for name, param in net.collect_params().items()}


def network():
    x = sym.Activation(sym.FullyConnected(sym.var("data"), num_hidden=8, name="fc1"), act_type="tanh")
    return sym.FullyConnected(x, num_hidden=3, name="fc2")


def values(arrays):
    return {name: array.asnumpy() for name, array in arrays.items()}


class CrossEntropy(mx.autodiff.Loss):
    """The cross entropy of a softmax, with its gradient."""

    def forward(self, pred, label):
        return -nd.pick(nd.log_softmax(pred), label)

    def backward(self, dpred, pred, label):
        dpred[:] = nd.softmax(pred) - nd.one_hot(label, pred.shape[1])


def feedforward():
    mx.random.seed(RANK + 1)
    model = mx.model.FeedForward(
        network(), num_epoch=EPOCHS, initializer=mx.init.Xavier(), numpy_batch_size=99, loss=CrossEntropy(), **SGD
    )
    model.fit(shard())
    scores = model.score_array(DATA, LABELS)
    assert scores.shape == (SAMPLES,)
    np.testing.assert_allclose(model.score(DATA, LABELS), scores.mean(), rtol=1e-6)
    return {**values(model.arg_params), "scores": scores}


def module_on_shard():
    mx.random.seed(RANK + 1)
    module = mx.mod.Module(sym.SoftmaxOutput(network(), name="softmax"))
    module.fit(shard(), num_epoch=EPOCHS, optimizer_params=SGD, initializer=mx.init.Xavier())
    return values(module.get_params()[0])


def module_on_parts_of_batches():
    """An iterator whose last batch of 8 is padded with 3 samples."""
    mx.random.seed(RANK + 1)
    batches = ScatterDataShard(mx.io.NDArrayIter(DATA, LABELS, GLOBAL))
    assert batches.batch_size == GLOBAL // SIZE and batches.provide_data[0].shape == (GLOBAL // SIZE, 5)
    pads = [batch.pad for batch in batches]
    assert mx.comm_allreduce_sum(pads) == [0, 0, 3]
    batches.reset()
    module = mx.mod.Module(sym.SoftmaxOutput(network(), name="softmax"))
    module.fit(batches, num_epoch=EPOCHS, optimizer_params=SGD, initializer=mx.init.Xavier())
    return values(module.get_params()[0])


def prepared_module():
    mx.random.seed(RANK + 1)
    module = mx.parallel.data_parallel(mx.mod.Module(sym.SoftmaxOutput(network(), name="softmax")))
    mine = slice(RANK, 2 * GLOBAL, SIZE)
    batches = mx.io.NDArrayIter(DATA[mine], LABELS[mine], GLOBAL // SIZE)
    module.fit(batches, num_epoch=EPOCHS, optimizer_params=SGD, initializer=mx.init.Xavier())
    return values(module.get_params()[0])


def prepared_buckets_and_feedforward():
    """Both keep their default store, 'local'."""
    mine = slice(RANK, 2 * GLOBAL, SIZE)
    batches = mx.io.NDArrayIter(DATA[mine], LABELS[mine], GLOBAL // SIZE)
    batches.default_bucket_key = 0
    head = sym.SoftmaxOutput(network(), name="softmax")
    buckets = mx.mod.BucketingModule(lambda key: (head, ["data"], ["softmax_label"]), default_bucket_key=0)
    options = {"num_epoch": EPOCHS, "initializer": mx.init.Xavier()}
    mx.random.seed(RANK + 1)
    mx.parallel.data_parallel(buckets)
    buckets.bind(batches.provide_data, batches.provide_label)
    buckets.init_params(mx.init.Xavier())
    buckets.init_optimizer(optimizer_params=SGD)
    for batch in batches:
        batch.bucket_key, batch.provide_data, batch.provide_label = 0, batches.provide_data, batches.provide_label
        buckets.forward_backward(batch)
        buckets.update()
    batches.reset()
    mx.random.seed(RANK + 1)
    model = mx.parallel.data_parallel(mx.model.FeedForward(head, **options, **SGD))
    model.fit(batches)
    found = {"buckets": values(buckets.get_params()[0]), "feedforward": values(model.arg_params)}
    return {f"{kind}/{name}": each for kind, arrays in found.items() for name, each in arrays.items()}


def named_stores_win():
    net = mx.parallel.data_parallel(block())
    trainer = gluon.Trainer(net.collect_params(), "sgd", SGD, kvstore="dist_sync")
    assert not isinstance(trainer.strategy, mx.step.DataParallel)
    if SIZE > 1:
        words = "every worker updates a data parallel model itself"
        raises(ValueError, words, lambda: gluon.Trainer(net.collect_params(), "sgd", SGD, update_on_kvstore=True))
        whole = gluon.Trainer(net.collect_params(), "sgd", SGD, update_on_kvstore=False)
        assert isinstance(whole.strategy, mx.step.DataParallel)
    return {}


def torch_module():
    torch.manual_seed(RANK + 1)
    model = mx.parallel.data_parallel(torch.nn.Linear(5, 3))
    assert mx.parallel.data_parallel(model) is model  # again
    rule = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for step in range(2):
        mine = slice(step * GLOBAL + RANK, (step + 1) * GLOBAL, SIZE)
        rule.zero_grad()
        outputs = model(torch.from_numpy(DATA[mine]))
        torch.nn.functional.cross_entropy(outputs, torch.from_numpy(LABELS[mine]).long()).backward()
        rule.step()
    return {name: each.detach().numpy() for name, each in model.named_parameters()}


TRAININGS = (
    prepared_block,
    hybridized_block_with_half_gradients,
    prepared_trainer,
    prepared_optimizer,
    gradients_by_hand,
    feedforward,
    module_on_shard,
    module_on_parts_of_batches,
    prepared_module,
    prepared_buckets_and_feedforward,
    named_stores_win,
    torch_module,
)

if __name__ == "__main__":
    collectives()
    models()
    groups()
    found = {f"{train.__name__}/{name}": each for train in TRAININGS for name, each in train().items()}
    np.savez(f"{sys.argv[1]}-{RANK}.npz", **found)
    mx.comm_finalize()
