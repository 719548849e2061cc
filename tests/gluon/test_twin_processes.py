"""Twins in two processes over gloo: DDP, FSDP2 and tensor parallelism train like one process on all the data.

Tolerance: a mean over two halves is rounded differently from one over the whole, a few float32 roundings per step.
"""

import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from launching import LIMIT
from twin_models import ROWS, mlp, sgd_torch, sgd_trainer, train_block, train_torch

STEPS = 4


def _mean(losses):
    total = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(total)
    return total / dist.get_world_size()


def _ddp(half):
    net = mlp()
    model = torch.nn.parallel.DistributedDataParallel(net.torch())
    return _mean(train_torch(model, sgd_torch(model), half, STEPS))


def _sharded():
    from torch.distributed.fsdp import fully_shard

    net = mlp()
    for child in net.torch().children():
        fully_shard(child)
    fully_shard(net.torch())
    return net


def _fsdp(half):
    net = _sharded()
    return _mean(train_torch(net.torch(), sgd_torch(net.torch()), half, STEPS))


def _fsdp_block(half):
    """Use mx.autograd and torch.optim without zero_grad, because MXNet's gradients overwrite."""
    net = _sharded()
    return _mean(train_block(net, sgd_torch(net.torch()).step, half, STEPS))


def _fsdp_hybridized(half):
    net = _sharded()
    net.hybridize()
    return _mean(train_block(net, sgd_torch(net.torch()).step, half, STEPS))


def _tensor_parallel(_):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

    placements = {"0.weight": Shard(0), "0.bias": Shard(0), "1.weight": Shard(1), "1.bias": Replicate()}

    def split(name, module, mesh):
        for key, tensor in list(module.named_parameters(recurse=False)):
            shards = distribute_tensor(tensor.detach(), mesh, [placements[f"{name}.{key}"]])
            module.register_parameter(key, torch.nn.Parameter(shards))

    net = mlp()
    distribute_module(
        net.torch(),
        init_device_mesh("cpu", (2,)),
        split,
        lambda module, args, mesh: DTensor.from_local(args[0], mesh, [Replicate()]),
        lambda module, output, mesh: output.full_tensor(),
    )
    return _mean(train_torch(net.torch(), sgd_torch(net.torch()), ROWS, STEPS))


WAYS = [_ddp, _fsdp, _fsdp_block, _fsdp_hybridized, _tensor_parallel]


def _worker(rank, port, results):
    torch.set_num_threads(1)
    from datetime import timedelta

    dist.init_process_group(
        "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=timedelta(seconds=LIMIT)
    )
    try:
        for row, way in enumerate(WAYS):
            losses = way(ROWS[4 * rank : 4 * rank + 4])
            if rank == 0:
                results[row] = losses
    finally:
        dist.destroy_process_group()


def test_two_processes_train_like_one():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = torch.zeros(len(WAYS), STEPS, dtype=torch.float64).share_memory_()
    mp.spawn(_worker, (port, results), nprocs=2)
    net = mlp()
    expected = train_block(net, sgd_trainer(net), ROWS, STEPS)
    assert expected[-1] < expected[0]
    for way, found in zip(WAYS, results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=way.__name__)


def _train_copy(rank, net, results):
    torch.set_num_threads(1)
    results.copy_(torch.tensor(train_block(net, sgd_trainer(net), ROWS, STEPS)))


def test_block_can_be_sent_to_another_process():
    results = torch.zeros(STEPS).share_memory_()
    mp.spawn(_train_copy, (mlp(), results), nprocs=1)
    net = mlp()
    np.testing.assert_allclose(results, train_block(net, sgd_trainer(net), ROWS, STEPS), rtol=1e-6)
