"""`apply`: lay a model out over the workers, in place; its training loop stays as it is."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch.distributed.tensor import DTensor

from .. import initializer
from ..base import MXNetError
from ..comm.session import session
from ..gluon import Block
from ..gluon.nn import HybridSequential, Sequential
from ..gluon.placement import follow, place, tell_trainers
from .checkpointing import Checkpointed, checkpoint_blocks
from .dimensions import Plan
from .hollow import fill, hollow, is_uninitialised
from .layout import Layout, check_layout
from .model import Model, check_model, module_of, parameters_of
from .module import laid_out
from .placement import Divided
from .workers import LayoutWorkers

SHARDS = ("full", "grads", "optimizer")
Net = TypeVar("Net", bound=Model)


def apply(
    net: Net,
    layout: Layout,
    shard: str | None = None,
    plan: Plan = "auto",
    checkpoint: Checkpointed = None,
    init: initializer.Initializer | str | None = None,
) -> Net:
    """Lay a Block or a torch module out over the workers, in place. All of them call it.

    The workers of one model begin with the values of the first of them. `shard` says what the workers whose gradients
    are summed hold in parts: 'full' parameters, gradients and the optimizer's states; 'grads' the latter two;
    'optimizer' the states alone. `plan` says how layers are divided where `layout.tensor` is more than 1, `checkpoint`
    which children compute their activations again in backward. A Block that is not initialised yet is initialised by
    `init`, parameter by parameter: no worker ever holds all of it.
    """
    shard = check(net, layout, shard)
    if layout.pipeline > 1:
        raise MXNetError(f"layout {layout}: a pipeline runs forward and backward by itself. Use mx.parallel.train_step")
    if not isinstance(net, Block) or not is_uninitialised(net):
        lay_out(net, layout, shard, plan, checkpoint)
        return net
    if layout.size == 1:
        net.initialize(init)
        _checkpoint(net, checkpoint)
        return net
    hollow(net)
    lay_out(net, layout, shard, plan, checkpoint)
    fill(net, init)
    return net


def check(net: Model, layout: Layout, shard: str | None) -> str | None:
    """Raise if a model cannot be laid out so; what is sharded."""
    check_model(net)
    check_layout(layout)
    layout.check(session().world.size)
    shard = check_shard(layout, shard)
    if not isinstance(net, Block) and shard == "optimizer" and any(each.divides_parameters for each in layout.used):
        raise MXNetError(
            f"layout {layout}: ZeroRedundancyOptimizer, which serves shard='optimizer' for torch modules, takes "
            "workers that differ in their samples alone: data=N. Use shard='grads' or 'full'"
        )
    if net in laid_out or any(param.placement.holders is not None for param in parameters_of(net)):
        raise MXNetError("the model has a layout already. Make a new one, and load its parameters")
    return shard


def check_shard(layout: Layout, shard: str | None) -> str | None:
    """Raise if `shard` has another value; what is sharded: by default everything, where a dimension is for that."""
    if shard is not None and shard not in SHARDS:
        raise ValueError(f"shard must be one of {', '.join(map(repr, SHARDS))}, or None, received {shard!r}")
    return "full" if shard is None and layout.degree(*layout.part_dimensions) > 1 else shard


def lay_out(net: Model, layout: Layout, shard: str | None, plan: Plan, checkpoint: Checkpointed) -> None:
    """Do what `apply` says, once it has been checked."""
    if layout.size == 1:
        _checkpoint(net, checkpoint)
        return
    module = module_of(net)
    workers = begin(net, layout, shard, plan, checkpoint)
    if layout.gradient_size > 1 and shard in ("full", "grads"):
        shard_fully(net, module, workers, isinstance(net, Block))
    elif layout.gradient_size > 1 and not isinstance(net, Block):
        replicate(module, workers)
    if not isinstance(net, Block):
        laid_out[net] = workers
    params = parameters_of(net)
    for param in params:
        place(param, Divided(workers))
    follow(params)
    tell_trainers(params)


def begin(net: Model, layout: Layout, shard: str | None, plan: Plan, checkpoint: Checkpointed) -> LayoutWorkers:
    """What every layout does first: workers begin alike, dimensions change the model, checkpointed parts are marked."""
    module, workers = module_of(net), LayoutWorkers(layout, shard)
    tensors = [each for each in (*module.parameters(), *module.buffers()) if not each.is_meta]
    workers.model_group.broadcast_all_(tensors, what="the parameters as they begin")
    workers.synchronise_norms()
    for dimension in layout.used:
        dimension.divide(net, workers.mesh[dimension.name], plan)
    _checkpoint(net, checkpoint)
    return workers


def _checkpoint(net: Model, which: Checkpointed) -> None:
    if which:
        checkpoint_blocks(net, which)


def shard_fully(net: Model, module: torch.nn.Module, workers: LayoutWorkers, sums: bool) -> None:
    """Have each worker keep a part of the parameters: gathered block by block when they are needed, then freed.

    Gradients become sums over the workers, as a Block's, or means.
    """
    from torch.distributed.fsdp import fully_shard

    layout = workers.layout
    both = layout.degree(*layout.copy_dimensions) > 1 and layout.degree(*layout.part_dimensions) > 1
    mesh = workers.copies_and_parts_mesh if both else workers.gradient_mesh
    for param in module.parameters():
        param.data = param.data.contiguous()  # torch shards no other; ours of convolutions are channels_last
    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": workers.shard == "full"}
    blocks: list[Any] = [fully_shard(unit, **options) for unit in units(net)]
    for block, following in pairwise(blocks):  # while one computes, the next is gathered; torch does so in backward
        block.set_modules_to_forward_prefetch([following])
    sharded: list[Any] = [*blocks, fully_shard(module, **options)]
    for each in sharded if sums else ():
        each.set_gradient_divide_factor(1.0)
        each.set_force_sum_reduction_for_comms(True)
    workers.sharded += sharded
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def units(net: Model) -> list[torch.nn.Module]:
    """The pieces of a model that are gathered one by one; those that share a parameter stay with the root."""
    pieces = [piece for piece in _pieces(net) if any(True for _ in piece.parameters())]
    holders = Counter(id(param) for piece in pieces for param in set(piece.parameters()))
    return [piece for piece in pieces if all(holders[id(param)] == 1 for param in piece.parameters())]


def _pieces(net: Model) -> Iterable[torch.nn.Module]:
    children = net._children.values() if isinstance(net, Block) else net.children()
    for child in children:
        if isinstance(child, (Sequential, HybridSequential, torch.nn.Sequential, torch.nn.ModuleList)):
            yield from _pieces(child)
        else:
            yield module_of(child)


def replicate(module: torch.nn.Module, workers: LayoutWorkers) -> None:
    """Have a torch module's gradients averaged over the workers in backward."""
    from torch.distributed._composable.replicate import replicate as by_hooks
    from torch.distributed.fsdp import fully_shard

    if not any(isinstance(param, DTensor) for param in module.parameters()):
        by_hooks(module, device_mesh=workers.gradient_mesh)
    else:  # those hooks know no divided parameters; a shard of one worker is a copy
        fully_shard(module, mesh=workers.copies_and_parts_mesh, reshard_after_forward=False)
