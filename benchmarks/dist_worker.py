"""One worker of a team (`dist_team.py`): `dist_worker.py PROGRAM ENGINE [KVSTORE [COMPRESSION]]`.

`train`, the same for all engines: an MLP of 10M parameters (784-2048-2048-2048-10), 32 samples per worker, SGD with
momentum. `module` trains the same network with a Module, `layout` with a layout. `copy`: 100 MB pushed and pulled, or
sent through a bare socket and back. It also runs with the old interpreter of MXNet.
"""

import json
import os
import socket
import sys
import time

import numpy as np

INPUT, HIDDEN, CLASSES, BATCH, BATCHES = 784, (2048, 2048, 2048), 10, 32, 4
RATE, MOMENTUM = 0.01, 0.9
COPIED = 100_000_000  # bytes
PARAMETERS = sum((i + 1) * o for i, o in zip((INPUT, *HIDDEN), (*HIDDEN, CLASSES)))  # noqa: B905


def batches():
    return [
        (np.random.uniform(0, 1, (BATCH, INPUT)).astype("float32"), np.random.randint(0, CLASSES, BATCH))
        for _ in range(BATCHES)
    ]


def in_turn(each, do):
    turn = iter(range(10**9))
    return lambda: do(*each[next(turn) % len(each)])


def torch_ddp():
    """Train as an expert torch user would: DDP with bucket views and a fused optimizer."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    widths = (INPUT, *HIDDEN)
    layers = [f(i, o) for i, o in zip(widths, HIDDEN) for f in (torch.nn.Linear, lambda i, o: torch.nn.ReLU())]  # noqa: B905
    plain = torch.nn.Sequential(*layers, torch.nn.Linear(HIDDEN[-1], CLASSES))
    net = torch.nn.parallel.DistributedDataParallel(plain, gradient_as_bucket_view=True)
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, fused=True)
    data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches()]
    flat = torch.ones(PARAMETERS)

    def step(x, y):
        optimizer.zero_grad()
        loss_of(net(x), y).backward()
        optimizer.step()

    def compute(x, y):
        with net.no_sync():
            step(x, y)

    return {
        "step": in_turn(data, step),
        "compute": in_turn(data, compute),
        "communicate": lambda: dist.all_reduce(flat),
        "wait": lambda: None,
        "end": dist.destroy_process_group,
    }


def gluon(mx, kvstore, compression=""):
    """Run the Gluon program, with MXNet or neomx."""
    nn = mx.gluon.nn
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize(static_alloc=True, static_shape=True)
    data = [(mx.nd.array(x), mx.nd.array(y)) for x, y in batches()]

    def training(kvstore):
        net = nn.HybridSequential()
        for units in HIDDEN:
            net.add(nn.Dense(units, activation="relu"))
        net.add(nn.Dense(CLASSES))
        net.initialize(mx.init.Xavier())
        net.hybridize(static_alloc=True, static_shape=True)
        net(data[0][0])
        how = {"learning_rate": RATE, "momentum": MOMENTUM}
        bits = {"compression_params": {"type": compression}} if compression and kvstore else {}
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", how, kvstore=kvstore, **bits)

        def step(x, y):
            with mx.autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(BATCH)

        return in_turn(data, step)

    return {"step": training(kvstore), "compute": training(None), "wait": mx.nd.waitall}


def neomx_gluon(mx, kvstore, compression=""):
    flat = mx.nd.ones(PARAMETERS)
    return {**gluon(mx, kvstore, compression), "communicate": lambda: mx.dist.all_reduce(flat, inplace=True)}


def module(mx, kvstore):
    """Train the same network as a symbol, with the loop of `Module.fit`."""
    net = mx.sym.var("data")
    for units in HIDDEN:
        net = mx.sym.relu(mx.sym.FullyConnected(net, num_hidden=units))
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=CLASSES), name="softmax")
    trained = mx.mod.Module(net)
    trained.bind([("data", (BATCH, INPUT))], [("softmax_label", (BATCH,))])
    trained.init_params(mx.init.Xavier())
    how = {"learning_rate": RATE, "momentum": MOMENTUM}
    trained.init_optimizer(kvstore=kvstore, optimizer="sgd", optimizer_params=how)
    data = [(mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)]),) for x, y in batches()]

    def step(batch):
        trained.forward_backward(batch)
        trained.update()

    return {"step": in_turn(data, step), "wait": mx.nd.waitall}


def under_layout(mx, layout):
    """Train the same network with a layout."""
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    for at, units in enumerate(HIDDEN):
        net.add(nn.Dense(units, activation="relu", in_units=(INPUT, *HIDDEN)[at]))
    net.add(nn.Dense(CLASSES, in_units=HIDDEN[-1]))
    net.initialize(mx.init.Xavier())
    mx.parallel.apply(net, mx.parallel.Layout.parse(layout))
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": RATE, "momentum": MOMENTUM})
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    def step(x, y):
        with mx.autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(BATCH)

    return {"step": in_turn([(mx.nd.array(x), mx.nd.array(y)) for x, y in batches()], step), "wait": mx.nd.waitall}


def through_kvstore(mx, kvstore):
    store = mx.kv.create(kvstore)
    gradient, weight = mx.nd.ones(COPIED // 4), mx.nd.zeros(COPIED // 4)
    store.init(0, weight)

    def copy():
        store.push(0, gradient)
        store.pull(0, out=weight)
        weight.wait_to_read()

    return {"copy": copy, "wait": mx.nd.waitall}


def send_and_take_back():
    """Run the worker's side of the bare copy."""
    peer = socket.create_connection(("127.0.0.1", int(os.environ["BENCH_PORT"])), timeout=30)
    sent, back = memoryview(bytes(COPIED)), memoryview(bytearray(COPIED))

    def copy():
        peer.sendall(sent)
        fill(peer, back)

    return {"copy": copy, "wait": lambda: None, "end": peer.close}


def give_back():
    """Run the other side: send back what was received, once it is complete."""
    with socket.create_server(("127.0.0.1", int(os.environ["BENCH_PORT"]))) as listener:
        peer, _ = listener.accept()
    held = memoryview(bytearray(COPIED))
    while fill(peer, held):
        peer.sendall(held)


def fill(peer, held):
    """Receive bytes until `held` is full; return whether it is."""
    at = 0
    while at < len(held):
        count = peer.recv_into(held[at:])
        if not count:
            return False
        at += count
    return True


def real_mxnet():
    import mxnet as mx

    return mx


def our_mxnet():
    import torch

    import neomx as mx

    torch.set_num_threads(1)
    return mx


PROGRAMS = {
    ("train", "torch"): torch_ddp,
    ("train", "mxnet"): lambda kvstore: gluon(real_mxnet(), kvstore),
    ("train", "neomx"): lambda *how: neomx_gluon(our_mxnet(), *how),
    ("module", "neomx"): lambda kvstore: module(our_mxnet(), kvstore),
    ("layout", "neomx"): lambda layout: under_layout(our_mxnet(), layout),
    ("copy", "mxnet"): lambda kvstore: through_kvstore(real_mxnet(), kvstore),
    ("copy", "neomx"): lambda kvstore: through_kvstore(our_mxnet(), kvstore),
    ("copy", "bare"): send_and_take_back,
}


def timed(step, wait, count):
    """Return the times at the boundaries of `count` steps; unfinished work counts toward the last step."""
    moments = [time.perf_counter()]
    for _ in range(count):
        step()
        moments.append(time.perf_counter())
    wait()
    moments[-1] = time.perf_counter()
    return moments


def serve(programs):
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(os.environ["BENCH_CONTROL"])
        for line in control.makefile():
            order = json.loads(line)
            moments = timed(programs[order["run"]], programs["wait"], order["count"])
            control.sendall(json.dumps(moments).encode() + b"\n")


def main(program, engine, *rest):
    np.random.seed(0)
    programs = PROGRAMS[program, engine](*rest)
    serve(programs)
    programs.get("end", lambda: None)()


if __name__ == "__main__":
    if sys.argv[1:] == ["copy", "peer"]:
        give_back()
    else:
        main(*sys.argv[1:])
