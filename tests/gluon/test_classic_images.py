"""An image classification program as MXNet users write it: arguments, `fit`, checkpoints, resuming."""

import argparse
import logging
import re

import numpy as np
import pytest

import neomx as mx


def arguments(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="mlp", choices=["mlp", "lenet"])
    parser.add_argument("--gpus", help="device numbers such as 0,1 (default: the CPU)")
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--kv-store", default="device")
    parser.add_argument("--num-examples", type=int, default=2000)
    parser.add_argument("--num-epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--lr-factor", type=float, default=0.1)
    parser.add_argument("--lr-step-epochs", default="")
    parser.add_argument("--mom", type=float, default=0.9)
    parser.add_argument("--wd", type=float, default=1e-4)
    parser.add_argument("--disp-batches", type=int, default=10)
    parser.add_argument("--model-prefix")
    parser.add_argument("--load-epoch", type=int)
    parser.add_argument("--monitor", type=int, default=0)
    parser.add_argument("--top-k", type=int, default=0)
    return parser.parse_args(words)


def network(name):
    net = mx.sym.var("data")
    if name == "lenet":
        for number, filters in enumerate((8, 16), 1):
            net = mx.sym.Convolution(net, kernel=(5, 5), num_filter=filters, name=f"conv{number}")
            net = mx.sym.Activation(net, act_type="tanh")
            net = mx.sym.Pooling(net, pool_type="max", kernel=(2, 2), stride=(2, 2))
    net = mx.sym.Flatten(net)
    net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=64, name="fc1"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10, name="fc2"), name="softmax")


def iterators(args):
    mnist = mx.test_utils.get_mnist(sample=True)
    train = mx.io.NDArrayIter(
        mnist["train_data"][: args.num_examples], mnist["train_label"][: args.num_examples], args.batch_size
    )
    return train, mx.io.NDArrayIter(mnist["test_data"][:500], mnist["test_label"][:500], args.batch_size)


def schedule(args, kv):
    """Return the initial learning rate and the remaining steps."""
    per_epoch = args.num_examples // args.batch_size // kv.num_workers
    begin = args.load_epoch or 0
    epochs = [int(epoch) for epoch in args.lr_step_epochs.split(",") if epoch]
    rate = args.lr * args.lr_factor ** sum(epoch <= begin for epoch in epochs)
    steps = [per_epoch * (epoch - begin) for epoch in epochs if epoch > begin]
    return rate, mx.lr_scheduler.MultiFactorScheduler(steps, args.lr_factor) if steps else None


def fit(args):
    kv = mx.kvstore.create(args.kv_store)
    train, test = iterators(args)
    devices = [mx.gpu(int(i)) for i in args.gpus.split(",")] if args.gpus else [mx.cpu(i) for i in range(args.cpus)]
    symbol, arg_params, aux_params = network(args.network), None, None
    if args.load_epoch is not None:
        symbol, arg_params, aux_params = mx.model.load_checkpoint(args.model_prefix, args.load_epoch)
    model = mx.mod.Module(context=devices, symbol=symbol)
    rate, scheduler = schedule(args, kv)
    options = {"learning_rate": rate, "wd": args.wd, "lr_scheduler": scheduler, "momentum": args.mom}
    metrics = [mx.metric.create("accuracy")]
    if args.top_k:
        metrics.append(mx.metric.create("top_k_accuracy", top_k=args.top_k))
    model.fit(
        train,
        begin_epoch=args.load_epoch or 0,
        num_epoch=args.num_epochs,
        eval_data=test,
        eval_metric=metrics,
        kvstore=kv,
        optimizer=args.optimizer,
        optimizer_params=options,
        initializer=mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2),
        arg_params=arg_params,
        aux_params=aux_params,
        batch_end_callback=[mx.callback.Speedometer(args.batch_size, args.disp_batches)],
        epoch_end_callback=mx.callback.do_checkpoint(args.model_prefix) if args.model_prefix else None,
        allow_missing=True,
        monitor=mx.mon.Monitor(args.monitor, pattern=".*weight") if args.monitor else None,
    )
    return dict(model.score(test, mx.metric.create("accuracy"))), model


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(7)
    np.random.seed(7)


def weights(model):
    return {name: array.asnumpy() for name, array in model.get_params()[0].items()}


def test_training_converges_and_logs(caplog, tmp_path):
    caplog.set_level(logging.INFO)
    words = f"--network lenet --num-epochs 2 --lr-step-epochs 1 --top-k 3 --monitor 20 --model-prefix {tmp_path / 'm'}"
    score, _ = fit(arguments(words.split()))
    assert score["accuracy"] > 0.85
    lines = [record.getMessage() for record in caplog.records]
    speed = [line for line in lines if "samples/sec" in line]
    assert re.match(r"Epoch\[0\] Batch \[0-10\]\s+Speed: [\d.]+ samples/sec\s+accuracy=", speed[0])
    assert len(speed) == 6  # after batches 10, 20 and 30 of each epoch's 40
    assert any(re.match(r"Epoch\[1\] Validation-top_k_accuracy_3=0\.9", line) for line in lines)
    assert any(re.match(r"Update\[41\]: .*learning rate.* 1\.0+e-02", line) for line in lines)
    assert any(re.match(r"Batch: +\d+ conv1_weight +[\d.]+", line) for line in lines)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m-0001.params", "m-0002.params", "m-symbol.json"]


def test_resumed_training_equals_uninterrupted(tmp_path):
    """Without momentum, because these checkpoints do not contain its state."""
    words = f"--num-epochs 3 --lr-step-epochs 1,2 --lr-factor 0.5 --mom 0 --model-prefix {tmp_path / 'm'}"
    _, through = fit(arguments(words.split()))
    _, resumed = fit(arguments([*words.split(), "--load-epoch", "1"]))
    expected = weights(through)
    for name, value in weights(resumed).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7, err_msg=name)


def test_two_contexts_train_like_one(tmp_path):
    first, _ = fit(arguments(f"--num-epochs 1 --num-examples 500 --model-prefix {tmp_path / 'm'}".split()))
    words = f"--load-epoch 1 --num-epochs 2 --num-examples 500 --model-prefix {tmp_path / 'm'}"
    one, model = fit(arguments(words.split()))
    two, model_too = fit(arguments(f"{words} --cpus 2 --kv-store local".split()))
    expected = weights(model)
    for name, value in weights(model_too).items():  # gradients are summed in another order
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert one["accuracy"] == pytest.approx(two["accuracy"], abs=0.01)
    assert one["accuracy"] > first["accuracy"] > 0.3
