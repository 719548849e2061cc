"""The workers of tests/comm/test_dist.py. Each prints its results as one line of JSON."""

import json
import os
import pathlib
import time

import torch

torch.set_num_threads(1)

import neomx as mx  # noqa: E402
from neomx import dist  # noqa: E402

KINDS = {"nd": lambda values: mx.nd.array(values), "torch": lambda values: torch.tensor(values, dtype=torch.float32)}


def listed(x):
    return x.asnumpy().tolist() if isinstance(x, mx.nd.NDArray) else x.tolist()


def collectives(make):
    rank, size = dist.rank(), dist.size()
    total = sum(range(1, size + 1))
    x = make([rank + 1.0, 2.0])
    y = dist.all_reduce(x)
    assert type(y) is type(x) and listed(y) == [total, 2 * size] and listed(x) == [rank + 1, 2]
    assert listed(dist.all_reduce(x, op="mean")) == [total / size, 2]
    assert listed(dist.all_reduce(x, "max")) == [size, 2] and listed(dist.all_reduce(x, "min")) == [1, 2]
    assert listed(dist.all_reduce(x, "prod"))[1] == 2**size
    assert dist.all_reduce(x, inplace=True) is x and listed(x) == [total, 2 * size]

    x = make([[rank, 1.0]])
    assert listed(dist.broadcast(x, root=size - 1)) == [[size - 1, 1]] and listed(x) == [[rank, 1]]
    assert dist.broadcast(x, root=1, inplace=True) is x and listed(x) == [[1, 1]]

    rows = make([[float(rank)]] * (rank + 1))
    gathered = dist.all_gather(rows)
    assert [listed(each) for each in gathered] == [[[other]] * (other + 1) for other in range(size)]
    assert all(type(each) is type(x) for each in gathered)

    x = make([[float(row), float(rank)] for row in range(size)])
    assert listed(dist.reduce_scatter(x)) == [[rank * size, sum(range(size))]]
    assert listed(dist.all_to_all(x)) == [[rank, other] for other in range(size)]
    got, counts = dist.all_to_all(x, splits=[size] + [0] * (size - 1))
    assert counts == [size if rank == 0 else 0] * size
    assert got.shape[0] == (size * size if rank == 0 else 0)

    right, left = (rank + 1) % size, (rank - 1) % size
    sending = dist.send(make([rank + 0.5]), right, tag=7, async_op=True)
    x, y = make([0.0]), make([0.0, 0.0])
    later = dist.recv(y, right, async_op=True)
    assert dist.recv(x, left, tag=7) is x and listed(x) == [left + 0.5]
    sending.wait()
    dist.send(make([rank, 8.0]), left)
    assert later.wait() is y and listed(y) == [right, 8]


def ordered():
    """Run many calls concurrently, and wait for one among them."""
    rank, size = dist.rank(), dist.size()
    arrays = [mx.nd.full((1000,), rank + k) for k in range(10)]
    handles = [dist.all_reduce(x, async_op=True) for x in arrays]
    now = dist.all_reduce(mx.nd.ones((2,)))
    assert listed(now) == [size, size] and all(handle.is_done() for handle in handles)
    for k, handle in enumerate(handles):
        assert listed(handle.wait()) == [sum(other + k for other in range(size))] * 1000
    in_place = dist.all_reduce(arrays[0], inplace=True, async_op=True)
    assert in_place.wait() is arrays[0]
    failing = dist.all_to_all(mx.nd.ones((2,)), splits=[1], async_op=True)
    try:
        failing.wait()
    except ValueError as error:
        return str(error)


def subgroups():
    rank, size = dist.rank(), dist.size()
    evens = dist.new_group(range(0, size, 2))
    assert (rank in evens) == (rank % 2 == 0) == (evens.rank >= 0) and evens.size == (size + 1) // 2
    last = evens.ranks[-1]
    if rank in evens:
        assert listed(dist.all_reduce(mx.nd.array([rank]), group=evens)) == [sum(evens.ranks)]
        assert listed(dist.broadcast(mx.nd.array([rank]), root=last, group=evens)) == [last]
        dist.barrier(group=evens)
        said = [raised(lambda: dist.broadcast(mx.nd.ones((1,)), root=1, group=evens))]
    else:
        said = [raised(lambda: dist.all_reduce(mx.nd.ones((1,)), group=evens))]
    return said


def raised(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main():
    assert not dist.is_initialized()
    opened = [name for name in map(os.path.realpath, pathlib.Path("/proc/self/fd").iterdir()) if "socket:" in name]
    dist.init()
    assert dist.is_initialized()
    for make in KINDS.values():
        collectives(make)
    found = {"open after import": opened, "ordered": ordered(), "subgroups": subgroups()}
    if dist.rank() == 0:
        time.sleep(0.3)
    found["came"] = time.monotonic()
    dist.barrier()
    found["left"] = time.monotonic()
    dist.shutdown()
    assert not dist.is_initialized()
    assert listed(dist.all_reduce(mx.nd.ones((1,)))) == [dist.size()]  # reconnected
    found["place"] = [dist.rank(), dist.size(), dist.local_rank(), dist.local_size(), dist.node(), dist.nodes()]
    return found


if __name__ == "__main__":
    print(json.dumps(main()), flush=True)
