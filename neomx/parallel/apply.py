"""`apply`: lay a model out over the workers, in place; its training loop stays as it is."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import torch

from ..base import MXNetError
from ..comm.session import session
from ..gluon import Block
from ..gluon.nn import HybridSequential, Sequential
from .hollow import fill, hollow, is_uninitialised
from .layout import Layout, check_layout
from .module import laid_out
from .placement import Divided, Ensemble, tell_trainers

SHARDS = ("full", "grads", "optimizer")


def apply(
    net: Any,
    layout: Layout,
    shard: str | None = None,
    plan: Mapping[str, str] | str = "auto",
    checkpoint: Any = None,
    init: Any = None,
) -> Any:
    """Lay a Block or a torch module out over the workers, in place. All call it, and begin with worker 0's values.

    `shard` says what the workers that take different samples hold in parts: 'full' parameters, gradients and the
    optimizer's states; 'grads' the latter two; 'optimizer' the states alone. `plan` says how layers are cut where
    `layout.tensor` is more than 1, `checkpoint` which children compute their activations again in backward. A Block
    that is not initialised yet becomes so by `init`, parameter by parameter: no worker ever holds all of it.
    """
    shard = check(net, layout, shard)
    if layout.pipeline > 1:
        raise MXNetError(f"layout {layout}: a pipeline runs forward and backward by itself. Use mx.parallel.train_step")
    if layout.size == 1 and is_uninitialised(net):
        net.initialize(init)
    if not is_uninitialised(net):
        return place(net, layout, shard, plan, checkpoint)
    hollow(net)
    place(net, layout, shard, plan, checkpoint)
    fill(net, init)
    return net


def check(net: Any, layout: Layout, shard: str | None) -> str | None:
    """Refuse what cannot be laid out; how it is sharded."""
    if not isinstance(net, (Block, torch.nn.Module)):
        raise TypeError(f"expected a gluon Block or a torch module, received {type(net).__name__}")
    check_layout(layout)
    layout.check(session().world.size)
    if shard is not None and shard not in SHARDS:
        raise ValueError(f"shard must be one of {', '.join(map(repr, SHARDS))}, or None, received {shard!r}")
    if not isinstance(net, Block) and shard == "optimizer" and layout.tensor * layout.shard > 1:
        raise MXNetError(
            f"layout {layout}: ZeroRedundancyOptimizer, which serves shard='optimizer' for torch modules, takes "
            "workers that differ in their samples alone: data=N. Use shard='grads' or 'full'"
        )
    if net in laid_out or any(param.placement.holders is not None for param in _parameters(net).values()):
        raise MXNetError("the model has a layout already. Make a new one, and load its parameters")
    return "full" if shard is None and layout.shard > 1 else shard


def place(net: Any, layout: Layout, shard: str | None, plan: Any, checkpoint: Any) -> Any:
    """Do what `apply` says, which has been checked."""
    if layout.size == 1:
        return _checkpointed(net, checkpoint)
    module = net.torch() if isinstance(net, Block) else net
    ensemble = begin(net, module, layout, shard, plan, checkpoint)
    if layout.batch_size > 1 and shard in ("full", "grads"):
        shard_fully(net, module, ensemble, isinstance(net, Block))
    elif layout.batch_size > 1 and not isinstance(net, Block):
        replicate(module, ensemble)
    if not isinstance(net, Block):
        laid_out[net] = ensemble
    for param in _parameters(net).values():
        param.placement = Divided(ensemble)
        param._follow()
    tell_trainers(_parameters(net).values())
    return net


def begin(net: Any, module: torch.nn.Module, layout: Layout, shard: str | None, plan: Any, checkpoint: Any) -> Ensemble:
    """What every layout does first: workers begin alike, layers are divided, checkpointed blocks are marked."""
    tensors = [each for each in (*module.parameters(), *module.buffers()) if not each.is_meta]
    session().group.broadcast_all_(tensors, what="the parameters as they begin")
    ensemble = Ensemble(layout, shard)
    ensemble.synchronise_norms()
    if layout.tensor > 1:
        from .tensor import parallelize

        parallelize(net, ensemble.mesh["tensor"], plan)
    _checkpointed(net, checkpoint)
    return ensemble


def _checkpointed(net: Any, which: Any) -> Any:
    if which:
        from .checkpointing import checkpoint_blocks

        checkpoint_blocks(net, which)
    return net


def _parameters(net: Any) -> dict[str, Any]:
    return net._collect_params_with_prefix() if isinstance(net, Block) else {}


def shard_fully(net: Any, module: torch.nn.Module, ensemble: Ensemble, sums: bool) -> None:
    """Have each worker keep a part of the parameters: gathered block by block when they are needed, then freed.

    Gradients become sums over the workers, as a Block's, or means.
    """
    from torch.distributed.fsdp import fully_shard

    layout = ensemble.layout
    mesh = ensemble.mesh["data", "shard"] if layout.data > 1 and layout.shard > 1 else ensemble.batch_mesh
    for param in module.parameters():
        param.data = param.data.contiguous()  # torch shards no other; ours of convolutions are channels_last
    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": ensemble.shard == "full"}
    blocks: list[Any] = [fully_shard(unit, **options) for unit in units(net)]
    for block, following in pairwise(blocks):  # while one computes, the next is gathered; torch does so in backward
        block.set_modules_to_forward_prefetch([following])
    sharded: list[Any] = [*blocks, fully_shard(module, **options)]
    for each in sharded if sums else ():
        each.set_gradient_divide_factor(1.0)
        each.set_force_sum_reduction_for_comms(True)
    ensemble.sharded += sharded
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def units(net: Any) -> list[torch.nn.Module]:
    """The pieces of a model that are gathered one by one; those that share a parameter stay with the root."""
    pieces = [piece for piece in _pieces(net) if any(True for _ in piece.parameters())]
    holders = Counter(id(param) for piece in pieces for param in set(piece.parameters()))
    return [piece for piece in pieces if all(holders[id(param)] == 1 for param in piece.parameters())]


def _pieces(net: Any) -> Iterable[torch.nn.Module]:
    children = net._children.values() if isinstance(net, Block) else net.children()
    for child in children:
        if isinstance(child, (Sequential, HybridSequential, torch.nn.Sequential, torch.nn.ModuleList)):
            yield from _pieces(child)
        else:
            yield child.torch() if isinstance(child, Block) else child


def replicate(module: torch.nn.Module, ensemble: Ensemble) -> None:
    """Have a torch module's gradients averaged over the workers in backward."""
    from torch.distributed._composable.replicate import replicate as by_hooks
    from torch.distributed.fsdp import fully_shard

    if ensemble.layout.tensor == 1:
        by_hooks(module, device_mesh=ensemble.batch_mesh)
    else:  # those hooks know no divided parameters; a shard of one worker is a copy
        fully_shard(module, mesh=ensemble.mesh["data", "shard"], reshard_after_forward=False)
