"""The workers of tests/comm/test_group.py. Each prints its results as one line of JSON."""

import errno
import json
import os
import pathlib
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import torch

torch.set_num_threads(1)

from launching import LIMIT, until  # noqa: E402

from neomx.base import MXNetError  # noqa: E402
from neomx.comm.group import Group  # noqa: E402
from neomx.comm.session import session  # noqa: E402
from neomx.comm.store import PeerError  # noqa: E402

REDUCED = {
    "sum": lambda stack: stack.sum(0),
    "mean": lambda stack: stack.sum(0) / len(stack),
    "min": lambda stack: stack.amin(0),
    "max": lambda stack: stack.amax(0),
    "prod": lambda stack: stack.prod(0),
}
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16]
DTYPES += [torch.int32, torch.int64]


def values(rank, shape, dtype):
    """Return small integers, so that all sums and products are exact."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * (rank + 3) + rank) % 3 + 1).to(dtype).view(shape)


def same(got, wanted, what):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, f"{what}: {got.dtype} {got.shape}"
    assert torch.equal(got, wanted), f"{what}: {got} is not {wanted}"


def reductions(group):
    for op, function in REDUCED.items():
        for dtype in DTYPES:
            for shape in [(), (7,), (300, 101), (0, 3)]:
                stack = torch.stack([values(rank, shape, torch.float64) for rank in range(group.size)])
                wanted = function(stack)
                wanted = (wanted if dtype.is_floating_point else wanted.trunc()).to(dtype)
                tensor = values(group.rank, shape, dtype)
                assert group.all_reduce_(tensor, op) is tensor
                same(tensor, wanted, f"all_reduce {op} {dtype} {shape}")
        stack = torch.stack([values(rank, (4 * group.size, 50), torch.float64) for rank in range(group.size)])
        for dtype in (torch.float32, torch.int64, torch.int16, torch.bfloat16):
            wanted = function(stack)
            wanted = (wanted if dtype.is_floating_point else wanted.trunc()).to(dtype).split(4)[group.rank]
            got = group.reduce_scatter(values(group.rank, (4 * group.size, 50), dtype), op)
            same(got, wanted, f"reduce_scatter {op} {dtype}")
    scattered = values(group.rank, (40, 30), torch.float32).t()
    group.all_reduce_(scattered)
    same(scattered, sum(values(rank, (40, 30), torch.float32).t() for rank in range(group.size)), "a transposed tensor")
    truth = torch.tensor([True, False, group.rank == 0])
    same(group.all_reduce_(truth.clone()), torch.tensor([True, False, True]), "any")
    same(group.all_reduce_(truth.clone(), "prod"), torch.tensor([True, False, group.size == 1]), "all")
    complex_ = torch.full((3,), complex(group.rank, 1))
    total = complex(sum(range(group.size)), group.size)
    same(group.all_reduce_(complex_), torch.full((3,), total), "complex numbers")


def exchanges(group):
    root = group.size - 1
    for dtype in (torch.float32, torch.bool, torch.int16, torch.complex64):
        got = group.broadcast_(values(group.rank, (30, 11), dtype), root)
        same(got, values(root, (30, 11), dtype), "broadcast")
    for rows in ([3] * group.size, [rank * 5 for rank in range(group.size)], [0] * group.size):
        outs = group.all_gather(values(group.rank, (rows[group.rank], 4), torch.float16))
        for rank, out in enumerate(outs):
            same(out, values(rank, (rows[rank], 4), torch.float16), f"all_gather {rows}")
    assert [out.item() for out in group.all_gather(torch.tensor(group.rank))] == list(range(group.size))

    def between(source, target, equal):
        return torch.full((2 if equal else (source + 2 * target) % 4, 3), 10.0 * source + target)

    for equal in (True, False):
        parts = [between(group.rank, target, equal) for target in range(group.size)]
        wanted = [between(source, group.rank, equal) for source in range(group.size)]
        got, splits = group.all_to_all(torch.cat(parts), None if equal else [len(part) for part in parts])
        same(got, torch.cat(wanted), "all_to_all")
        assert splits == [len(part) for part in wanted]
    table = group.all_gather_small(torch.tensor([group.rank, 7], dtype=torch.float64))
    assert table.tolist() == [[rank, 7] for rank in range(group.size)]
    long = group.all_gather_small(torch.full((400,), group.rank))
    assert long[:, -1].tolist() == list(range(group.size))
    group.barrier()


def direct(group):
    """Send and receive around a ring, even ranks first."""
    right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    received = torch.empty(5, 2, dtype=torch.int16).t()
    for sends in (group.rank % 2 == 0, group.rank % 2 == 1):
        if sends:
            group.send(values(group.rank, (2, 5), torch.int16), right, tag=3)
        else:
            group.recv(received, left, tag=3)
    same(received, values(left, (2, 5), torch.int16), "send and recv")


def stagings(group):
    for dtype, count in ((torch.float32, 100_003), (torch.bfloat16, 5), (torch.int64, 1000)):
        staging = group.staging(count, dtype)
        for turn in range(4):
            staging.local.copy_(values(group.rank + turn, (count,), dtype))
            if group.rank == turn % group.size:
                time.sleep(0.005)
            result = []
            thread = threading.Thread(target=lambda: result.append(staging.reduce()))  # noqa: B023
            thread.start()
            assert group.all_gather_small(torch.tensor([turn])).sum() == turn * group.size  # other calls still work
            thread.join(LIMIT)
            wanted = sum(values(rank + turn, (count,), dtype) for rank in range(group.size))
            same(result[0], wanted, f"a bucket of {dtype}")
            assert result[0].data_ptr() == staging.result.data_ptr()


def bits(group):
    """Sum random numbers: the results must be bitwise equal on all workers."""
    tensor = torch.randn(70_000, generator=torch.Generator().manual_seed(group.rank))
    staging = group.staging(tensor.numel())
    staging.local.copy_(tensor)
    sums = [staging.reduce().clone(), group.all_reduce_(tensor)]
    return [all(torch.equal(each, other) for other in group.all_gather(each)) for each in sums]


def mismatch(group):
    try:
        group.all_reduce_(torch.ones(5 + group.rank % 2), "sum", what="w")
    except MXNetError as error:
        message = str(error)
    try:
        group.barrier()
    except PeerError as error:
        assert "must be rebuilt" in str(error)
    group.rebuild()
    group.barrier()
    try:
        group.barrier() if group.rank else group.broadcast_(torch.ones(2), 0)
    except MXNetError as error:
        return [message, str(error)]


@contextmanager
def no_memory():
    """Simulate a full /dev/shm on one worker."""
    real = os.posix_fallocate

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    os.posix_fallocate = full if session().world.local_rank == 0 else real
    yield
    os.posix_fallocate = real


def listening():
    """Return the addresses that this process listens on, as the kernel writes them."""
    mine = {os.path.realpath(link) for link in pathlib.Path("/proc/self/fd").iterdir()}
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and any(link.endswith(f"socket:[{fields[9]}]") for link in mine):
                addresses.add(fields[1].split(":")[0])
    return sorted(addresses)


def exercise(group):
    for part in (reductions, exchanges, direct, stagings):
        part(group)


def everything():
    """Run all collectives, with shared memory if available, then without."""
    group = session().group
    assert group.ranks == list(range(group.size)) and group.rank == session().world.rank
    exercise(group)
    found = {"shared": group._channel is not None, "bits": bits(group)}
    with no_memory():
        fallback = group.clone("fallback")
        exercise(fallback)
    found["fallback shared"] = fallback._channel is not None
    found["fallback bits"] = bits(fallback)
    found["mismatch"] = mismatch(group.clone("mismatch"))
    with no_memory():
        found["fallback mismatch"] = mismatch(group.clone("mismatch without memory"))
    half = group.subgroup(range(group.size - 1, -1, -2))
    found["half"] = half and half.ranks
    if half is not None:
        exchanges(half) if half.size > 1 else reductions(half)
    tensor = torch.ones(3)
    torch.distributed.all_reduce(tensor)  # torch's own group also works
    found["torch"] = tensor.tolist()
    found["listening"] = listening()
    group.barrier()
    return found


def caught(action):
    """Return the error and the seconds until it was raised."""
    start = time.monotonic()
    try:
        action()
    except PeerError as error:
        return [str(error), time.monotonic() - start]
    return ["nothing was raised", time.monotonic() - start]


def has_stopped(name):
    """Return whether a worker's process is stopped."""
    pid = session().store.roster()[name]["pid"]
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def losses():
    """Lose the last worker; the others continue without it. By shared memory and gloo, killed and stopped."""
    group = session().group
    rank, world = group.rank, session().world.rank
    tensor = torch.ones(1000)
    staging = group.staging(1000)
    staging.reduce()
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    found = {"killed": caught(lambda: staging.reduce("the gradients of dense1"))}
    group.rebuild([0, 1, 2])
    group.all_reduce_(tensor)
    try:
        staging.reduce()
    except MXNetError as error:
        found["old staging"] = str(error)
    with no_memory():
        plain = group.clone("plain")
        aside = plain.staging(1000)
    assert plain._channel is None and aside.local is not None
    plain.barrier()
    if rank == 2:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    found["killed without memory"] = caught(lambda: plain.all_reduce_(tensor, what="dense3_weight"))
    group.rebuild([0, 1])
    hurried = replace(session().world, timeout=3.0)
    group = Group(hurried, group.store, dict(zip(group.ranks, group.hosts, strict=True)), "hurried")
    with no_memory():
        plain = group.clone("plain again")
    group.barrier()
    if rank == 1:
        print(json.dumps(found), flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    until(lambda: has_stopped("worker 1"))
    found["stopped"] = caught(lambda: group.all_reduce_(tensor, what="dense4_weight"))
    found["stopped without memory"] = caught(lambda: plain.all_reduce_(tensor, what="dense5_weight"))
    plain.close()
    found["sums"] = tensor[0].item()
    found["rank"] = world
    return found


def ends():
    """The other worker stops in the middle of a sum: this one must not wait for it at exit."""
    with no_memory():
        group = session().group.clone("plain")
    group.barrier()
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    print(json.dumps("begun"), flush=True)
    group.all_reduce_(torch.ones(1 << 20), what="dense6_weight")


if __name__ == "__main__":
    scenario = {"everything": everything, "losses": losses, "ends": ends}[sys.argv[1]]
    print(json.dumps(scenario()), flush=True)
    if sys.argv[1] == "losses":
        os._exit(0)  # the store is in another process, and the other workers are gone
