"""A worker of the race in `elastic.py`: `elastic_worker.py ENGINE FOLDER`, with neomx, torch (DDP) or torchft.

All train the MLP of dist_worker.py, 10M parameters, on 8 samples per worker. A worker writes the time of each committed
step, and the number of workers that made it, to FOLDER/PID. With BENCH_CONTROL, it times steps for a team instead.
"""

import json
import os
import pathlib
import socket
import sys
import time

import numpy as np
from dist_worker import CLASSES, HIDDEN, INPUT, MOMENTUM, RATE

BATCH, SAMPLES, EPOCHS = 8, 4096, 10**6


def arrays():
    rng = np.random.RandomState(0)
    return rng.uniform(0, 1, (SAMPLES, INPUT)).astype("float32"), rng.randint(0, CLASSES, SAMPLES)


def neomx_steps():
    """Train with Gluon. Yield the number of workers after each committed step."""
    import neomx as mx

    x, y = arrays()
    net = mx.gluon.nn.HybridSequential()
    for before, units in zip((INPUT, *HIDDEN), HIDDEN, strict=False):
        net.add(mx.gluon.nn.Dense(units, activation="relu", in_units=before))
    net.add(mx.gluon.nn.Dense(CLASSES, in_units=HIDDEN[-1]))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize()
    how = {"learning_rate": RATE, "momentum": MOMENTUM}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", how, kvstore="dist_sync")
    shard = mx.dist.shard(mx.gluon.data.ArrayDataset(x, y.astype("float32")), shuffle=True, seed=1)
    loader = mx.gluon.data.DataLoader(shard, BATCH)
    batch = BATCH * int(os.environ["WORLD_SIZE"])
    transaction = mx.process.state.transaction
    for _ in mx.elastic.epochs(EPOCHS):
        for a, b in loader:
            steps = transaction.steps if transaction else -1
            with mx.autograd.record():
                loss = loss_of(net(a), b)
            loss.backward()
            trainer.step(batch)
            if transaction is None or transaction.steps > steps:
                yield mx.dist.size()


def torch_model():
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    widths = zip((INPUT, *HIDDEN), HIDDEN, strict=False)
    layers = [layer for before, units in widths for layer in (torch.nn.Linear(before, units), torch.nn.ReLU())]
    return torch, torch.nn.Sequential(*layers, torch.nn.Linear(HIDDEN[-1], CLASSES))


def torch_batches(torch):
    x, y = (torch.from_numpy(each) for each in arrays())
    while True:
        for at in range(0, SAMPLES, BATCH):
            yield x[at : at + BATCH], y[at : at + BATCH]


def torch_steps():
    """Train with DDP under torchrun. A restart begins with new weights: reading a checkpoint would take longer."""
    torch, plain = torch_model()
    torch.distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(plain, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, fused=True)
    loss_of = torch.nn.CrossEntropyLoss()
    lost = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for x, y in torch_batches(torch):
        optimizer.zero_grad()
        loss_of(net(x), y).backward()
        optimizer.step()
        yield torch.distributed.get_world_size() - lost  # as if the restarted job had one worker less


def torchft_steps():
    """Train with a replica group of one worker for each process."""
    from datetime import timedelta

    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    torch, plain = torch_model()
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    seconds = timedelta(seconds=float(os.environ.get("FT_SECONDS", "10")))
    inner = torch.optim.SGD(plain.parameters(), lr=RATE, momentum=MOMENTUM, fused=True)

    def load(state):
        plain.load_state_dict(state["net"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=seconds),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"net": plain.state_dict(), "optimizer": inner.state_dict()},
        replica_id=f"replica_{os.environ['RANK']}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        timeout=seconds,
    )
    net = DistributedDataParallel(manager, plain)
    optimizer = Optimizer(manager, inner)
    loss_of = torch.nn.CrossEntropyLoss()
    for x, y in torch_batches(torch):
        step = manager.current_step()
        optimizer.zero_grad()
        loss_of(net(x), y).backward()
        optimizer.step()
        if manager.current_step() > step:
            yield manager.num_participants()


def write(steps, folder):
    path = pathlib.Path(folder, str(os.getpid()))
    with open(path, "a", buffering=1) as file:
        file.write(json.dumps({"rank": int(os.environ["RANK"])}) + "\n")
        for workers in steps:
            file.write(json.dumps([time.time(), workers]) + "\n")


def serve(steps):
    """Time steps for a team (`dist_team.py`)."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(os.environ["BENCH_CONTROL"])
        for line in control.makefile():
            moments = [time.perf_counter()]
            for _ in range(json.loads(line)["count"]):
                next(steps)
                moments.append(time.perf_counter())
            control.sendall(json.dumps(moments).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    made = {"neomx": neomx_steps, "torch": torch_steps, "torchft": torchft_steps}[sys.argv[1]]()
    if "BENCH_CONTROL" in os.environ:
        serve(made)
    else:
        write(made, sys.argv[2])
