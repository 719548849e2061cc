"""Laying a model out over the workers of a pipeline: who has which stages, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ..comm.session import session
from ..gluon import Block
from .apply import begin, shard_fully
from .layout import Layout
from .module import laid_out
from .pipeline import Pipeline
from .placement import keep_only, local_gradient, tell_trainers
from .stages import Cut, Piece, Stage, free_elsewhere


def lay_out(
    net: Any,
    cut: Cut,
    layout: Layout,
    shard: str | None,
    plan: Any,
    checkpoint: Any,
    inputs: Sequence[torch.Tensor],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> tuple[Pipeline, list[Callable[[], None]]]:
    """Cut a model and keep this worker's stages: the pipeline, and what adds up gradients when it has run."""
    ensemble = begin(net, net.torch() if isinstance(net, Block) else net, layout, shard, plan, checkpoint)
    for piece in cut.pieces:
        piece.open()
    groups = cut.groups(inputs)
    here = layout.place().pipeline
    stages = {
        number: Stage(pieces, cut.schedule.splits) for number, pieces in enumerate(groups) if cut.place(number) == here
    }
    holders = _holders(groups, cut)
    shared, described = _shared(stages, holders), _described(groups, cut)
    if isinstance(net, Block):
        keep_only(holders, ensemble)
    else:
        laid_out[net], ensemble.owners = ensemble, _owners(net, groups, cut)
        free_elsewhere(net, stages.values())
    sharded = layout.batch_size > 1 and shard in ("full", "grads")
    for stage in stages.values() if sharded else ():
        shard_fully(stage, stage, ensemble, isinstance(net, Block))
    for param in holders if isinstance(net, Block) else ():
        param._follow()
    tell_trainers(holders if isinstance(net, Block) else ())
    pipeline = Pipeline(stages, cut, ensemble.mesh.get_group("pipeline"), loss, described)
    pipeline.borrowed = [home for home, places in shared if places[0] != here]
    adding: list[Callable[[], None]] = [partial(_add, home, _group(layout, places)) for home, places in shared]
    if layout.batch_size > 1 and not sharded and not isinstance(net, Block):
        adding.append(partial(_average, list(stages.values()), ensemble.batch_group))
    return pipeline, adding


def _holders(groups: list[list[Piece]], cut: Cut) -> dict[Any, list[int]]:
    """The workers of the pipeline that have each parameter, in their order."""
    holders: dict[Any, list[int]] = {}
    for number, pieces in enumerate(groups):
        for param in (each for piece in pieces for each in piece.holds()):
            places = holders.setdefault(param, [])
            if cut.place(number) not in places:
                places.append(cut.place(number))
    return {param: sorted(places) for param, places in holders.items()}


def _owners(net: torch.nn.Module, groups: list[list[Piece]], cut: Cut) -> dict[str, Any]:
    """By the names of a torch module's state: the worker of the pipeline that has it, its shape and its type."""
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

Home = tuple[dict[str, Any], str]


def _shared(stages: dict[int, Stage], holders: dict[Any, list[int]]) -> list[tuple[Home, list[int]]]:
    """Where torch has each parameter of this worker that others have too, and who has it."""
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


def _tensor(param: Any) -> torch.Tensor:
    return param if isinstance(param, torch.Tensor) else param.list_data()[0]._data


def _group(layout: Layout, places: Sequence[int]) -> Any:
    """The workers at these places of this worker's pipeline."""
    rank, step = session().world.rank, layout.data * layout.shard * layout.tensor
    return session().group.subgroup([place * step + rank % step for place in places])


def _add(home: Home, group: Any) -> None:
    """Give each worker the sum of the gradients that all have for a parameter."""
    tensors, key = home
    leaf = tensors[key]
    if leaf.grad is None:
        leaf.grad = torch.zeros_like(leaf)
    group.all_reduce_(local_gradient(leaf), "sum", f"the gradient of {key}, which several stages use")


def _average(stages: Sequence[Stage], group: Any) -> None:
    """Give workers with other samples the mean of their gradients, as torch's modules have it."""
    by_type: dict[torch.dtype, list[torch.Tensor]] = {}
    for param in (each for stage in stages for each in stage.parameters() if each.requires_grad):
        if param.grad is None:
            param.grad = torch.zeros_like(param)
        by_type.setdefault(param.dtype, []).append(local_gradient(param))  # type: ignore[arg-type]
    for gradients in by_type.values():
        flat = group.all_reduce_(torch.cat([each.reshape(-1) for each in gradients]), "mean", "the gradients")
        for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(part.view(gradient.shape))


# ---- what is said ----


def _described(groups: list[list[Piece]], cut: Cut) -> list[str]:
    """A line for each stage."""
    lines = []
    for number, pieces in enumerate(groups):
        first, last = pieces[0].name, pieces[-1].name
        size = sum(_elements(param) for param in {id(p): p for piece in pieces for p in piece.holds()}.values())
        span = first if first == last else f"{first} to {last}"
        lines.append(f"stage {number} on worker {cut.place(number)} of the pipeline: {span}, {size:,} parameters")
    return lines


def _elements(param: Any) -> int:
    return int(torch.Size(param.shape).numel())
