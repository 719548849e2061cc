"""Distribute a model over the workers of a pipeline: which worker holds which stages, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from ..comm.group import Group
from ..gluon import Block, Parameter
from ..gluon.placement import follow, place, tell_trainers
from .apply import begin, shard_fully
from .checkpointing import Checkpointed
from .dimensions import Plan
from .layout import Layout
from .model import Home, Model, Weight, elements_of
from .module import laid_out
from .pipeline import Pipeline
from .placement import Divided, local_gradient
from .stages import Cut, Piece, StageModule, free_elsewhere
from .workers import Owned


def lay_out_stages(
    net: Model,
    cut: Cut,
    layout: Layout,
    shard: str | None,
    plan: Plan,
    checkpoint: Checkpointed,
    inputs: Sequence[torch.Tensor],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> tuple[Pipeline, list[Callable[[], None]]]:
    """Cut a model, keep this worker's stages, and return the pipeline and the functions that sum gradients."""
    workers = begin(net, layout, shard, plan, checkpoint)
    for piece in cut.pieces:
        piece.open()
    groups = cut.groups(inputs)
    here = layout.coordinates()["pipeline"]
    stages = {
        number: StageModule(pieces, cut.schedule.splits)
        for number, pieces in enumerate(groups)
        if cut.place(number) == here
    }
    holders = _holders(groups, cut)
    shared, described = _shared(stages, holders), _described(groups, cut)
    params = {param: places for param, places in holders.items() if isinstance(param, Parameter)}
    if isinstance(net, Block):
        for param, places in params.items():
            place(param, Divided(workers, places))
    else:
        laid_out[net], workers.owners = workers, _owners(net, groups, cut)
        free_elsewhere(net, stages.values())
    sharded = layout.gradient_size > 1 and shard in ("full", "grads")
    for stage in stages.values() if sharded else ():
        shard_fully(stage, stage, workers, isinstance(net, Block))
    follow(params)
    tell_trainers(params)
    pipeline = Pipeline(stages, cut, workers.mesh.get_group("pipeline"), loss, described)
    pipeline.borrowed = [home for home, places in shared if places[0] != here]
    adding: list[Callable[[], None]] = [partial(_add, home, workers.of_pipeline(places)) for home, places in shared]
    if layout.gradient_size > 1 and not sharded and not isinstance(net, Block):
        adding.append(partial(_average, list(stages.values()), workers.gradient_group))
    return pipeline, adding


def _holders(groups: list[list[Piece]], cut: Cut) -> dict[Weight, list[int]]:
    """Return the workers of the pipeline that hold each parameter, in order."""
    holders: dict[Weight, list[int]] = {}
    for number, pieces in enumerate(groups):
        for param in (each for piece in pieces for each in piece.holds()):
            places = holders.setdefault(param, [])
            if cut.place(number) not in places:
                places.append(cut.place(number))
    return {param: sorted(places) for param, places in holders.items()}


def _owners(net: torch.nn.Module, groups: list[list[Piece]], cut: Cut) -> dict[str, Owned]:
    """For each name in the state of a torch module: the worker of the pipeline that holds it, its shape and dtype."""
    places = {
        id(module): cut.place(number)
        for number, pieces in enumerate(groups)
        for piece in pieces
        for module in piece.modules()
    }
    return {
        name: (places.get(id(net.get_submodule(name.rpartition(".")[0])), 0), value.shape, value.dtype)
        for name, value in net.state_dict().items()
    }


# ---- parameters that several stages use ----


def _shared(stages: dict[int, StageModule], holders: dict[Weight, list[int]]) -> list[tuple[Home, list[int]]]:
    """Return the location of each parameter that this worker shares with others, and the workers that hold it."""
    homes: dict[int, Home] = {}
    for stage in stages.values():
        for module in stage.modules():
            for key, tensor in module._parameters.items():
                homes.setdefault(id(tensor), (module._parameters, key))
    found = []
    for param, places in holders.items():
        home = homes.get(id(_tensor(param)))
        if len(places) > 1 and home is not None and _tensor(param).requires_grad:
            found.append((home, places))
    return found


def _tensor(param: Weight) -> torch.Tensor:
    return param if isinstance(param, torch.Tensor) else param.list_data()[0]._data


def _add(home: Home, group: Group) -> None:
    """Sum the gradients of a parameter over all workers that hold it."""
    tensors, key = home
    leaf = tensors[key]
    assert leaf is not None
    group.all_reduce_(_gradient_of(leaf), "sum", f"the gradient of {key}, which several stages use")


def _gradient_of(leaf: torch.Tensor) -> torch.Tensor:
    """Return this worker's part of a gradient, or zeros if backward has not written one."""
    if leaf.grad is None:
        leaf.grad = torch.zeros_like(leaf)
    gradient = local_gradient(leaf)
    assert gradient is not None
    return gradient


def _average(stages: Sequence[StageModule], group: Group) -> None:
    """Average gradients over the workers with different samples, as is usual for torch modules."""
    by_type: dict[torch.dtype, list[torch.Tensor]] = {}
    for param in (each for stage in stages for each in stage.parameters() if each.requires_grad):
        by_type.setdefault(param.dtype, []).append(_gradient_of(param))
    for gradients in by_type.values():
        flat = group.all_reduce_(torch.cat([each.reshape(-1) for each in gradients]), "mean", "the gradients")
        for gradient, part in zip(gradients, torch.split(flat, [each.numel() for each in gradients]), strict=True):
            gradient.copy_(part.view(gradient.shape))


# ---- report ----


def _described(groups: list[list[Piece]], cut: Cut) -> list[str]:
    """Return one line of text per stage."""
    lines = []
    for number, pieces in enumerate(groups):
        first, last = pieces[0].name, pieces[-1].name
        size = sum(elements_of(param) for param in {id(p): p for piece in pieces for p in piece.holds()}.values())
        span = first if first == last else f"{first} to {last}"
        lines.append(f"stage {number} on worker {cut.place(number)} of the pipeline: {span}, {size:,} parameters")
    return lines
