"""Two machines (network namespaces joined by a link), a launcher on each: the training equals that of one process.

This file is also the script that the workers run. The tolerance accounts for rounding: a sum over workers is rounded
differently from a sum over the whole batch, by a few units of float32 per step.
"""

import os
import pathlib
import secrets
import signal
import subprocess
import sys
import time

import netns
import numpy as np
import pytest
from launching import LIMIT, SOON

import neomx as mx

BATCH, STEPS, WIDTH = 24, 20, 64
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3},
    "adam": {"learning_rate": 0.01},
    "lamb": {"learning_rate": 0.01},
}
GRADIENTS = 4 * (WIDTH * 64 + 64 + 64 * 4 + 4)  # bytes


def network():
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(64, activation="tanh", in_units=WIDTH), mx.gluon.nn.Dense(4, in_units=64))
    net.initialize()
    values = np.random.RandomState(7)
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(values.uniform(-0.2, 0.2, parameter.shape)))
    return net


def train(optimizer, kvstore, rank, size):
    """Return the weights after some steps on this worker's rows of every batch."""
    net, loss_of = network(), mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), optimizer, dict(OPTIMIZERS[optimizer]), kvstore=kvstore)
    values = np.random.RandomState(11)
    for _ in range(STEPS):
        x, y = values.normal(size=(BATCH, WIDTH)), values.randint(0, 4, BATCH)
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(x[rank::size])), mx.nd.array(y[rank::size]))
        loss.backward()
        trainer.step(BATCH)
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


def main(folder, victim=""):
    """Train with every optimizer and save the weights. With a victim, then train until that worker dies."""
    kvstore = mx.kv.create("dist_sync")
    rank, size = kvstore.rank, kvstore.num_workers
    weights = {f"{name} {i}": w for name in OPTIMIZERS for i, w in enumerate(train(name, "dist_sync", rank, size))}
    np.savez(pathlib.Path(folder, f"{rank}.npz"), **weights)
    while victim:
        train("sgd", "dist_sync", rank, size)
        if str(rank) == victim:
            pathlib.Path(folder, "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def machines():
    if reason := netns.why_not():
        pytest.skip(reason)
    with netns.TwoMachines() as made:
        yield made


@pytest.fixture(scope="module")
def alone():
    """The weights of a single process."""
    return {f"{name} {i}": w for name in OPTIMIZERS for i, w in enumerate(train(name, "local", 0, 1))}


def launch(machines, workers, *words):
    """Run the job's command on both machines. Return the exit codes and all output."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            map(str, (pathlib.Path(mx.__file__).parents[1], pathlib.Path(__file__).parents[1]))
        ),
        "NEOMX_SECRET": secrets.token_hex(16),
        "OMP_NUM_THREADS": "1",
    }
    place = ["--nnodes", "2", "--rdzv", f"{machines.addresses[0]}:29400", "-n", str(workers), "--timeout", str(LIMIT)]
    jobs = []
    for node in (0, 1):
        command = [sys.executable, "-m", "neomx", "run", *place, "--node-rank", str(node), *words]
        where = machines.command(node, command)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        jobs.append(subprocess.Popen(where, env=environment, text=True, **pipes))
    try:
        written = [job.communicate(timeout=LIMIT)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    return [job.returncode for job in jobs], "\n".join(written)


def check_weights(folder, workers, alone):
    for rank in range(workers):
        weights = np.load(folder / f"{rank}.npz")
        assert set(weights) == set(alone)
        for name, value in alone.items():
            np.testing.assert_allclose(weights[name], value, rtol=1e-4, atol=1e-5, err_msg=f"{name} of rank {rank}")


@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (1, 2)], ids=["2 workers each", "servers"])
def test_training_on_two_machines_equals_one_process(machines, alone, tmp_path, workers, servers):
    before = machines.sent(0), machines.sent(1)
    codes, written = launch(machines, workers, "-s", str(servers), __file__, str(tmp_path))
    assert codes == [0, 0], written
    assert [machines.processes(machine) for machine in (0, 1)] == [[], []]
    for machine in (0, 1):  # the gradients did cross the link
        assert machines.sent(machine) - before[machine] > STEPS * len(OPTIMIZERS) * GRADIENTS / 2
    check_weights(tmp_path, 2 * workers, alone)


def test_death_of_a_worker_ends_the_job_on_both_machines(machines, alone, tmp_path):
    codes, written = launch(machines, 1, __file__, str(tmp_path), "1")
    took = time.time() - (tmp_path / "died").stat().st_mtime
    check_weights(tmp_path, 2, alone)
    assert codes == [128 + signal.SIGKILL] * 2, written
    assert [machines.processes(machine) for machine in (0, 1)] == [[], []]
    assert written.count(f"worker 1 on {machines.names[1]} failed first, with signal SIGKILL") == 2, written
    assert took < SOON, f"{took} s"


if __name__ == "__main__":
    main(*sys.argv[1:])
