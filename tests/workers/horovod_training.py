"""Training with Horovod's API on two workers, compared with one process on the samples of both."""

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

STEPS, GLOBAL = 8, 12
SGD = {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def data(seed=0, count=GLOBAL):
    random = np.random.default_rng(seed)
    return nd.array(random.standard_normal((count, 1, 6, 6))), nd.array(random.integers(0, 4, count))


def mine(batch):
    share = GLOBAL // hvd.size()
    return [each[hvd.rank() * share : (hvd.rank() + 1) * share] for each in batch]


def network():
    """A network with deferred initialization, with other weights on each worker."""
    mx.random.seed(hvd.rank())
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(3, 3, activation="tanh"), gluon.nn.Dense(8, activation="tanh"))
    net.add(gluon.nn.Dense(4, in_units=8))
    net.initialize(mx.init.Xavier())
    return net


def backward(net, batch):
    with autograd.record():
        loss = LOSS(net(batch[0]), batch[1])
    loss.backward()


def pair(hybridize=False):
    """Return the network of all workers, which starts with worker 0's weights, and a copy to train alone."""
    together, alone = network(), network()
    hvd.broadcast_parameters(together.collect_params(), root_rank=0)
    for net in (together, alone):
        if hybridize:
            net.hybridize()
        net(data()[0])
    for ours, single in zip(together.collect_params().values(), alone.collect_params().values(), strict=True):
        single.set_data(hvd.broadcast(ours.data(), 0))
    return together, alone


def alike(together, alone, tolerance=2e-6):
    for ours, single in zip(together.collect_params().values(), alone.collect_params().values(), strict=True):
        np.testing.assert_allclose(ours.data().asnumpy(), single.data().asnumpy(), rtol=0, atol=tolerance)


def trainer():
    for optimizer, how in (("sgd", SGD), ("adam", {"learning_rate": 0.01})):
        for extra in ({}, {"gradient_predivide_factor": 4.0, "num_groups": 2, "prefix": "p"}):
            together, alone = pair(hybridize=optimizer == "adam")
            ours = hvd.DistributedTrainer(together.collect_params(), optimizer, how, **extra)
            single = gluon.Trainer(alone.collect_params(), optimizer, how)
            for step in range(STEPS):
                backward(together, mine(data(step)))
                ours.step(GLOBAL // 2)
                backward(alone, data(step))
                single.step(GLOBAL)
            alike(together, alone)


def optimizer_object_and_half_size_gradients():
    together, alone = pair()
    optimizer = mx.optimizer.create("sgd", **SGD)
    ours = hvd.DistributedTrainer(together.collect_params(), optimizer, compression=hvd.Compression.fp16)
    single = gluon.Trainer(alone.collect_params(), "sgd", SGD)
    for step in range(STEPS):
        backward(together, mine(data(step)))
        ours.step(GLOBAL // 2)
        backward(alone, data(step))
        single.step(GLOBAL)
    alike(together, alone, 2e-3)


def clipped_between_sum_and_update():
    together, alone = pair()
    ours = hvd.DistributedTrainer(together.collect_params(), "sgd", SGD)
    single = gluon.Trainer(alone.collect_params(), "sgd", SGD, update_on_kvstore=False)
    for step in range(STEPS):
        for net, trainer, batch, count in (
            (together, ours, mine(data(step)), GLOBAL // 2),
            (alone, single, data(step), GLOBAL),
        ):
            backward(net, batch)
            trainer.allreduce_grads()
            gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], 2.0)
            trainer.update(count)
    alike(together, alone)


def optimizer():
    for wrapped in (lambda o: hvd.DistributedOptimizer(o), lambda o: hvd.DistributedOptimizer(o, 4.0, num_groups=1)):
        together, alone = pair()
        shared = wrapped(mx.optimizer.create("sgd", rescale_grad=2 / GLOBAL, **SGD))
        assert isinstance(shared, mx.optimizer.Optimizer)
        updaters = (
            mx.optimizer.get_updater(shared),
            mx.optimizer.get_updater(mx.optimizer.create("sgd", rescale_grad=1 / GLOBAL, **SGD)),
        )
        for step in range(STEPS):
            if step == STEPS // 2:
                for updater in updaters:
                    updater.optimizer.set_learning_rate(0.05)
            for net, updater, batch in ((together, updaters[0], mine(data(step))), (alone, updaters[1], data(step))):
                backward(net, batch)
                for i, param in enumerate(net.collect_params().values()):
                    updater(i, param.grad(), param.data())
        assert shared.learning_rate == 0.05 and shared.num_update == STEPS
        alike(together, alone)


def module():
    """A Module with Horovod's optimizer; its gradients are sent during backward."""
    weights = []
    for shared in (True, False):
        net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")
        trained = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
        size = GLOBAL // hvd.size() if shared else GLOBAL
        trained.bind([("data", (size, 1, 6, 6))], [("softmax_label", (size,))])
        trained.init_params(mx.init.Constant(0.1))
        inner = mx.optimizer.create("sgd", rescale_grad=1 / size, **SGD)
        optimizer = hvd.DistributedOptimizer(inner, gradient_predivide_factor=2.0) if shared else inner
        trained.init_optimizer(kvstore=None, optimizer=optimizer)
        assert isinstance(trained._strategy, mx.step.AllReduce) == shared
        for step in range(STEPS):
            x, y = mine(data(step)) if shared else data(step)
            trained.forward_backward(mx.io.DataBatch([x], [y]))
            trained.update()
        weights.append(trained.get_params()[0]["fc_weight"].asnumpy())
    np.testing.assert_allclose(*weights, rtol=0, atol=2e-6)


def uneven(join):
    """Worker 0 has eight batches, worker 1 five, of other sizes; then both have some more, worker 1 most."""
    together, alone = pair()
    ours = hvd.DistributedTrainer(together.collect_params(), "adam", {"learning_rate": 0.01})
    single = gluon.Trainer(alone.collect_params(), "adam", {"learning_rate": 0.01})
    for epoch, sizes in enumerate((([6] * 7 + [2], [4] * 5), ([3], [5, 5, 5]))):
        seen = 0.0
        for step, count in enumerate(sizes[hvd.rank()]):
            backward(together, data(1000 * epoch + 100 * hvd.rank() + step, count))
            ours.step(count)
            seen += count
            if join == "in the loop":
                hvd.allreduce(nd.array([1.0]), name="seen")
        if join:
            assert hvd.join() == (0, 1)[epoch]
        total = hvd.allreduce(nd.array([seen]), average=False)
        assert total.asscalar() == sum(map(sum, sizes))
        for step in range(max(map(len, sizes))):
            parts = [
                data(1000 * epoch + 100 * rank + step, each[step])
                for rank, each in enumerate(sizes)
                if step < len(each)
            ]
            batch = [nd.concat(*arrays, dim=0) for arrays in zip(*parts, strict=True)]
            backward(alone, batch)
            single.step(len(batch[1]))
        alike(together, alone)


def main():
    trainer()
    optimizer_object_and_half_size_gradients()
    clipped_between_sum_and_update()
    optimizer()
    module()
    for join in (False, True, "in the loop"):
        uneven(join)
    print(f"worker {hvd.rank()} trained", flush=True)
