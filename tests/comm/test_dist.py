"""mx.dist, in a single process and among several."""

import pathlib

import pytest
import torch
from test_group import Workers

import neomx as mx
from neomx import dist
from neomx.base import MXNetError

HERE = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("n", [2, 4])
def test_collectives_among_workers(n):
    with Workers(HERE / "dist_worker.py", n=n) as workers:
        found = workers.results()
    for rank, each in enumerate(found):
        assert "splits must be" in each["ordered"]
        assert each["open after import"] == []
        assert each["left"] >= max(other["came"] for other in found)  # by the machine's clock
        assert each["place"] == [rank, n, rank, n, 0, 1]
        if rank % 2 == 0:
            assert each["subgroups"] == [
                f"ValueError: root must be the rank of a worker among {list(range(0, n, 2))}, received 1"
            ]
        else:
            assert f"MXNetError: this worker, rank {rank}, is not in the group" in each["subgroups"][0]


@pytest.fixture
def alone():
    yield
    dist.shutdown()


def same(x, values):
    return isinstance(x, mx.nd.NDArray) and x.asnumpy().tolist() == values


@pytest.mark.usefixtures("alone")
def test_collectives_in_a_single_process():
    assert not dist.is_initialized()
    x = mx.nd.array([[1, 2], [3, 4]], dtype="float16")
    for op in ("sum", "mean", "min", "max", "prod"):
        assert same(dist.all_reduce(x, op), [[1, 2], [3, 4]]) and same(dist.reduce_scatter(x, op), [[1, 2], [3, 4]])
    assert dist.is_initialized()
    assert dist.all_reduce(x) is not x and dist.all_reduce(x, inplace=True) is x
    assert dist.all_reduce(x).context == x.context and dist.all_reduce(x).dtype == x.dtype
    assert same(dist.broadcast(x), [[1, 2], [3, 4]]) and same(dist.all_to_all(x), [[1, 2], [3, 4]])
    assert dist.all_to_all(x, splits=[2])[1] == [2]
    assert len(dist.all_gather(torch.ones(2))) == 1
    dist.barrier()
    group = dist.new_group([0])
    assert group.ranks == [0] and group.rank == 0 and repr(group) == "<workers [0]>"
    handle = dist.all_reduce(x, group=group, async_op=True)
    assert same(handle.wait(), [[1, 2], [3, 4]]) and handle.is_done()
    assert [dist.rank(), dist.size(), dist.local_rank(), dist.local_size()] == [0, 1, 0, 1]
    assert [dist.node(), dist.nodes()] == [0, 1]
    dist.shutdown()
    assert not dist.is_initialized()


@pytest.mark.usefixtures("alone")
def test_collectives_are_not_recorded_and_refuse_in_place_while_recording():
    x = mx.nd.ones((2,))
    x.attach_grad()
    with mx.autograd.record():
        y = x * 2
        assert same(dist.all_reduce(y), [2, 2])
        with pytest.raises(MXNetError, match="while recording"):
            dist.all_reduce(y, inplace=True)
    y.backward()
    assert same(x.grad, [2, 2])
    dist.all_reduce(x, inplace=True)
    assert same(dist.all_reduce(x.grad), [2, 2])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            lambda x: dist.all_reduce(x, "avg"),
            ValueError,
            "op must be one of sum, mean, min, max, prod, received 'avg'",
        ),
        (lambda x: dist.broadcast(x, root=3), ValueError, r"root must be the rank of a worker among \[0\], received 3"),
        (lambda x: dist.send(x, 0), ValueError, "another worker"),
        (lambda x: dist.all_reduce([1.0]), TypeError, "expected an NDArray or a torch tensor, received list"),
        (lambda x: dist.all_reduce(x.tostype("row_sparse")), MXNetError, "storage type row_sparse"),
        (lambda x: dist.all_reduce(x, group=[0]), TypeError, "group must come from mx.dist.new_group"),
        (lambda x: dist.new_group([0, 9]), ValueError, r"ranks from 0 to 0, received \[0, 9\]"),
        (lambda x: dist.all_to_all(x, splits=[5]), ValueError, "splits must be"),
    ],
)
def test_wrong_arguments(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong(mx.nd.ones((2, 2)))
