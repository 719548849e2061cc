"""`apply`: distribute a model over the workers, in place. The training loop does not change."""

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
from .replicas import check_elastic
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
    """Distribute a Block or a torch module over the workers, in place. All workers must call it.

    All workers of a model start with the values of the first worker. `shard` selects what is sharded over the workers
    whose gradients are summed: 'full' shards parameters, gradients and optimizer states; 'grads' shards gradients and
    optimizer states; 'optimizer' shards only the optimizer states. `plan` describes how layers are split if
    `layout.tensor` is greater than 1. `checkpoint` selects children that recompute their activations in backward. A
    Block that is not initialized is initialized with `init`, one parameter at a time, so that no worker ever holds the
    whole model.
    """
    shard = check(net, layout, shard)
    if layout.pipeline > 1:
        raise MXNetError(
            f"layout {layout}: a pipeline schedules forward and backward itself. Use mx.parallel.train_step"
        )
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
    """Raise if the layout does not suit the model. Return what is sharded."""
    check_model(net)
    check_layout(layout)
    layout.check(session().world.initial)
    shard = check_shard(layout, shard)
    check_elastic(net, layout, shard)
    if not isinstance(net, Block) and shard == "optimizer" and any(each.divides_parameters for each in layout.used):
        raise MXNetError(
            f"layout {layout}: for torch modules, shard='optimizer' uses ZeroRedundancyOptimizer, which supports only "
            "data=N. Use shard='grads' or 'full'"
        )
    if net in laid_out or any(param.placement.holders is not None for param in parameters_of(net)):
        raise MXNetError("the model already has a layout. Create a new model and load its parameters")
    return shard


def check_shard(layout: Layout, shard: str | None) -> str | None:
    """Raise if `shard` is invalid. Return what is sharded: everything by default, if the layout shards."""
    if shard is not None and shard not in SHARDS:
        raise ValueError(f"shard must be one of {', '.join(map(repr, SHARDS))}, or None, received {shard!r}")
    return "full" if shard is None and layout.degree(*layout.part_dimensions) > 1 else shard


def lay_out(net: Model, layout: Layout, shard: str | None, plan: Plan, checkpoint: Checkpointed) -> None:
    """Do what `apply` describes, after its checks."""
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
    """Start any layout: broadcast the values, let dimensions change the model, and mark checkpointed parts."""
    module, workers = module_of(net), LayoutWorkers(layout, shard)
    tensors = [each for each in (*module.parameters(), *module.buffers()) if not each.is_meta]
    workers.model_group.broadcast_all_(tensors, what="the initial parameters")
    workers.synchronise_norms()
    for dimension in layout.used:
        dimension.divide(net, workers.mesh[dimension.name], plan)
    _checkpoint(net, checkpoint)
    return workers


def _checkpoint(net: Model, which: Checkpointed) -> None:
    if which:
        checkpoint_blocks(net, which)


def shard_fully(net: Model, module: torch.nn.Module, workers: LayoutWorkers, sums: bool) -> None:
    """Shard the parameters over the workers. They are gathered block by block when needed, then freed.

    Gradients are sums over the workers, as for Blocks, if `sums`; otherwise they are means.
    """
    from torch.distributed.fsdp import fully_shard

    layout = workers.layout
    both = layout.degree(*layout.copy_dimensions) > 1 and layout.degree(*layout.part_dimensions) > 1
    mesh = workers.copies_and_parts_mesh if both else workers.gradient_mesh
    for param in module.parameters():
        param.data = param.data.contiguous()  # torch requires it; weights of convolutions are channels_last
    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": workers.shard == "full"}
    blocks: list[Any] = [fully_shard(unit, **options) for unit in units(net)]
    for block, following in pairwise(blocks):  # prefetch the next block; torch already does so in backward
        block.set_modules_to_forward_prefetch([following])
    sharded: list[Any] = [*blocks, fully_shard(module, **options)]
    for each in sharded if sums else ():
        each.set_gradient_divide_factor(1.0)
        each.set_force_sum_reduction_for_comms(True)
    workers.sharded += sharded
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def units(net: Model) -> list[torch.nn.Module]:
    """Return the parts of a model that are gathered separately. Parts that share a parameter stay with the root."""
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
    """Average the gradients of a torch module over the workers during backward."""
    from torch.distributed._composable.replicate import replicate as by_hooks
    from torch.distributed.fsdp import fully_shard

    if not any(isinstance(param, DTensor) for param in module.parameters()):
        by_hooks(module, device_mesh=workers.gradient_mesh)
    else:  # DDP's hooks do not support sharded parameters; sharding over one worker replicates
        fully_shard(module, mesh=workers.copies_and_parts_mesh, reshard_after_forward=False)
