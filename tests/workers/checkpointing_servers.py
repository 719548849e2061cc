"""Trains with servers that run the optimizer, then resumes; run by tests/checkpoint/test_checkpoint_workers.py.

Arguments: directory, what trains: "trainer", "module" or "async". Raises if a resumed run ends with other weights.
"""

import pathlib
import shutil
import sys

import numpy as np

import neomx as mx
from neomx import gluon

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checkpoint"))
from training import loader_of, network

RANK, SIZE = mx.dist.rank(), mx.dist.size()


class Stopped(Exception):
    pass


def with_trainer(directory, stop):
    """An Embedding with row-sparse gradients, whose momentum is lazy, and a network with running averages."""
    store = mx.kv.create("dist_async" if what == "async" else "dist_sync")
    net = network(dropout=0.3)
    words = gluon.nn.Embedding(8, 2, sparse_grad=True, prefix="words_")
    words.initialize()
    net(mx.nd.zeros((1, 4)))
    params = {**net.collect_params(), **words.collect_params()}
    schedule = mx.lr_scheduler.FactorScheduler(3, 0.7, base_lr=0.05)
    options = {"momentum": 0.9, "lr_scheduler": schedule}
    trainer = gluon.Trainer(params, "sgd", options, kvstore=store)
    loader = loader_of("shard", 2)
    ckpt = mx.checkpoint.Checkpointer(directory, trainer=trainer, loader=loader, every=4, keep=None, signals=False)
    restored = ckpt.restore()
    rows = np.random.RandomState(5).randint(0, 8, (20, 3))
    for _ in ckpt.epochs(2):
        for x, y in loader:
            with mx.autograd.record():
                loss = gluon.loss.L2Loss()(net(x), y).sum() + words(mx.nd.array(rows[ckpt.steps])).sum()
            loss.backward()
            trainer.step(4)
            ckpt.step()
            if ckpt.steps == stop:
                break
        if ckpt.steps == stop:
            break
    ckpt.close()
    assert trainer._update_on_kvstore
    return restored, {name: param.data().asnumpy() for name, param in params.items()} | {"lr": trainer.learning_rate}


def with_module(directory, stop):
    mx.random.seed(1)
    np.random.seed(1)
    hidden = mx.sym.Dropout(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="first"), p=0.3)
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=2, name="second"), name="softmax")
    rng = np.random.RandomState(3 + RANK)
    data = mx.io.NDArrayIter(rng.rand(20, 4), rng.randint(0, 2, 20), 4, shuffle=True)
    module = mx.mod.Module(symbol)
    ckpt = mx.checkpoint.Checkpointer(directory, module=module, loader=data, every=4, keep=None, signals=False)
    restored = ckpt.restore()

    def end(param):
        if ckpt.steps == stop:
            raise Stopped

    try:
        options = {"learning_rate": 0.1, "momentum": 0.9}
        module.fit(data, num_epoch=2, kvstore="dist_sync", optimizer_params=options, batch_end_callback=end)
    except Stopped:
        pass
    ckpt.close()
    assert module._update_on_kvstore
    return restored, {name: array.asnumpy() for name, array in module.get_params()[0].items()}


if __name__ == "__main__":
    directory, what = sys.argv[1:]
    train = with_module if what == "module" else with_trainer
    restored, expected = train(directory, 10)
    assert not restored
    mx.dist.barrier()
    if RANK == 0:
        shutil.rmtree(f"{directory}/step-00000008")
    mx.dist.barrier()
    restored, found = train(directory, 10)
    assert restored
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name
    print("resumed exactly", flush=True)
