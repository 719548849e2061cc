"""Collectives among real processes: results against closed forms, and errors after the loss of a process."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from launching import LIMIT, SOON

from neomx.comm.group import Group, open_group
from neomx.comm.network import Broken, interface_of
from neomx.comm.store import PeerError, StoreServer
from neomx.comm.torch_store import TorchStore
from neomx.comm.world import World

HERE = pathlib.Path(__file__).parents[1]
SECRET = "s" * 32


class Workers:
    """Some processes of a job whose store is in this process."""

    def __init__(self, script, *arguments, n, nodes=1):
        self.store = StoreServer("127.0.0.1", 0, SECRET.encode()).start()
        self.processes = [self._start([script, *arguments], rank, n, nodes) for rank in range(n)]

    def _start(self, command, rank, n, nodes):
        local = n // nodes
        place = {"RANK": rank, "WORLD_SIZE": n, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local}
        place |= {"NEOMX_NODE": rank // local, "NEOMX_NODES": nodes, "NEOMX_STORE": self.store.address}
        place |= {"NEOMX_SECRET": SECRET, "NEOMX_TIMEOUT": LIMIT, "OMP_NUM_THREADS": 1, "PYTHONPATH": HERE.parent}
        environ = {**os.environ, **{key: str(value) for key, value in place.items()}}
        command = [sys.executable, *map(str, command)]
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def results(self):
        """The last line of each process, parsed as JSON; None for a killed process."""
        outputs = [process.communicate(timeout=LIMIT) for process in self.processes]
        for process, (_, err) in zip(self.processes, outputs, strict=True):
            assert process.returncode in (0, -signal.SIGKILL), err[-3000:]
        return [json.loads(out.splitlines()[-1]) if out else None for out, _ in outputs]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.store.close()


@pytest.mark.parametrize(("n", "nodes"), [(2, 1), (4, 1), (4, 2)])
def test_all_collectives(n, nodes):
    with Workers(HERE / "group_worker.py", "everything", n=n, nodes=nodes) as workers:
        found = workers.results()
    for rank, each in enumerate(found):
        assert each["shared"] is (nodes == 1) and each["fallback shared"] is False
        assert each["bits"] == [True, True] and each["fallback bits"] == [True, True]
        for calls in (each["mismatch"], each["fallback mismatch"]):
            assert "worker 0: all_reduce w sum torch.float32 (5,)" in calls[0]
            assert "worker 1: all_reduce w sum torch.float32 (6,)" in calls[0]
            assert "worker 0: broadcast" in calls[1] and "worker 1: barrier" in calls[1]
        chosen = list(range(n - 1, -1, -2))
        assert each["half"] == (chosen if rank in chosen else None)
        assert each["torch"] == [n] * 3
        assert each["listening"] and set(each["listening"]) == {"0100007F"}  # 127.0.0.1


def test_remaining_workers_learn_which_is_lost_and_continue():
    with Workers(HERE / "group_worker.py", "losses", n=4) as workers:
        stopped = workers.processes[1]
        workers.processes[0].wait(LIMIT)
        stopped.kill()
        found = workers.results()
    assert found[3] is None and [process.returncode for process in workers.processes] == [0, -9, -9, -9]
    for rank in (0, 1):
        message, seconds = found[rank]["killed"]
        assert "all_reduce of the gradients of dense1" in message and "worker 3 on " in message, message
        assert "is gone" in message and "worker 2" not in message and seconds < SOON
        message, seconds = found[rank]["killed without memory"]
        assert "all_reduce of dense3_weight" in message and "worker 2 on " in message, message
        assert "is gone" in message and seconds < SOON
        assert "needs new staging" in found[rank]["old staging"]
    for which, name in (("stopped", "dense4_weight"), ("stopped without memory", "dense5_weight")):
        message, seconds = found[0][which]
        assert f"all_reduce of {name}" in message and "within 3 s" in message, message
        assert "worker 1 on " in message and "silent" in message and 3 <= seconds < SOON
    assert found[0]["sums"] == 3.0


def test_program_ends_while_gloo_still_waits():
    with Workers(HERE / "group_worker.py", "ends", n=2) as workers:
        worker = workers.processes[0]
        assert worker.stdout.readline() == '"begun"\n'
        start = time.monotonic()
        workers.store.mark_gone("worker 1", None, "it was stopped")
        _, err = worker.communicate(timeout=LIMIT)
    assert worker.returncode == 1 and "PeerError" in err and "dense6_weight" in err, err
    assert "is gone: it was stopped" in err and time.monotonic() - start < SOON


@pytest.fixture
def two():
    """Two groups of one job in this process, as two workers would have them, and the job's store."""
    server = StoreServer("127.0.0.1", 0, SECRET.encode()).start()
    stores = [TorchStore(server.address, SECRET.encode(), LIMIT) for _ in range(2)]

    def made(rank):
        stores[rank].join(f"worker {rank}")
        return Group(World(rank=rank, size=2, timeout=LIMIT), stores[rank], {0: 0, 1: 0})

    with ThreadPoolExecutor(2) as pool:
        groups = list(pool.map(made, range(2)))
    yield groups, server
    for each in (*groups, *stores, server):
        each.close()


@pytest.mark.parametrize("message", ["send to", "recv from"])
def test_failed_message_names_the_lost_worker_before_the_roll_call(two, message):
    (group, other), server = two
    tensor = torch.ones(3)
    received = other.start_recv(torch.zeros(3), 0)
    group.send(tensor, 1)
    received()
    network = group._messages._network
    other.close()  # the connections end, as if the process died, before the roll call knows it
    with pytest.raises(Broken):
        network.send(tensor, 1, 0)()  # gloo has detected it
    late = threading.Timer(0.5, lambda: server.mark_gone("worker 1", -9))
    late.start()
    start = {"send to": group.start_send, "recv from": group.start_recv}[message]
    with pytest.raises(PeerError, match=f"{message} worker 1 of gradients .*Connection.*: worker 1 .*gone: .* code -9"):
        start(tensor, 1, what="gradients")
    late.join()


def test_group_of_one():
    group = open_group(World(), None)
    tensor = torch.arange(6.0).view(2, 3)
    for op in ("sum", "mean", "min", "max", "prod"):
        assert torch.equal(group.all_reduce_(tensor.clone(), op), tensor)
        assert torch.equal(group.reduce_scatter(tensor, op), tensor)
    assert torch.equal(group.broadcast_(tensor.clone(), 0), tensor)
    assert torch.equal(group.all_gather(tensor)[0], tensor)
    assert torch.equal(group.all_gather_small(tensor), tensor.unsqueeze(0))
    got, splits = group.all_to_all(tensor, [2])
    assert torch.equal(got, tensor) and splits == [2]
    staging = group.staging(3)
    staging.local.fill_(2)
    assert staging.reduce().tolist() == [2, 2, 2]
    group.barrier()
    assert group.subgroup([0]).size == group.clone("x").size == 1
    group.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda g, t: g.all_reduce_(t, "average"), "op must be one of sum, mean, min, max, prod, received 'average'"),
        (lambda g, t: g.all_reduce_(t.bool(), "mean"), "mean is not defined for booleans"),
        (lambda g, t: g.all_reduce_(t.to(torch.complex64), "max"), "max is not defined for complex numbers"),
        (lambda g, t: g.broadcast_(t, 1), "root must be a rank from 0 to 0, received 1"),
        (lambda g, t: g.send(t, 0), "to must be another worker"),
        (lambda g, t: g.recv(t, 5), "from_ must be a rank from 0 to 0, received 5"),
        (
            lambda g, t: g.all_to_all(t, [1]),
            r"splits must be 1 row counts whose sum is the first dimension of \(2, 3\)",
        ),
        (lambda g, t: g.reduce_scatter(t[0, 0]), r"received the shape \(\)"),
        (lambda g, t: g.subgroup([0, 0]), r"distinct ranks from 0 to 0, received \[0, 0\]"),
        (lambda g, t: g.all_gather_small(torch.empty(1 << 20)), "expected a small CPU tensor"),
    ],
)
def test_wrong_arguments(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong(open_group(World(), None), torch.ones(2, 3))


def test_interface_of_an_address():
    assert interface_of("127.0.0.1") == interface_of("localhost") == "lo"
    assert interface_of("203.0.113.77") is None
