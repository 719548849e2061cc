"""Tensor parallelism for phantoms: layers get one worker's part of the weights and count the bytes exchanged."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch.distributed.tensor.placement_types import Shard

from ..gluon.twin import Twin, follow_inside
from .crossing import Crossing
from .dimensions import Plan
from .styles import layer_of
from .tensor import Target, targets_of


def rehearse(module: torch.nn.Module, plan: Plan, degree: int, exchanged: Counter[str]) -> None:
    """Make the layers of a phantom compute as on one of `degree` workers. `exchanged` counts bytes by kind of call."""
    targets = targets_of(module, plan, degree)
    parts: dict[int, torch.nn.Parameter] = {}
    inputs: dict[str, torch.Tensor] = {}
    for target in targets:
        _take_part(target, degree, parts)
    for target in targets:
        target.module.register_forward_pre_hook(partial(_enter, target, degree, exchanged, inputs))
        target.module.register_forward_hook(partial(_leave, target, degree, exchanged))
    follow_inside(module)


def _take_part(target: Target, degree: int, parts: dict[int, torch.nn.Parameter]) -> None:
    for name, tensor, placement in list(target.weights()):
        if id(tensor) not in parts:
            part = tensor.detach()
            if isinstance(placement, Shard):
                part = part.narrow(placement.dim, 0, -(-part.shape[placement.dim] // degree)).clone()
            made = parts[id(tensor)] = torch.nn.Parameter(part, requires_grad=tensor.requires_grad)
            parts[id(made)] = made
        target.module._parameters[name] = parts[id(tensor)]
    layer, weight = layer_of(target.module), target.module._parameters.get("weight")
    if isinstance(target.module, Twin) and weight is not None:  # ops check the shapes of weights against the layer
        sizes = {"num_hidden": weight.shape[0]}
        if target.style.layer == "embedding":
            sizes = {"input_dim": weight.shape[0], "output_dim": weight.shape[1]}
        layer._kwargs = layer._kwargs | sizes


def _enter(
    target: Target,
    degree: int,
    exchanged: Counter[str],
    inputs: dict[str, torch.Tensor],
    module: torch.nn.Module,
    args: tuple[Any, ...],
) -> tuple[Any, ...]:
    style, given = target.style, args[0]
    if target.chosen == "sequence_region":
        exchanged["all-gather"] += given.nbytes  # in backward
        return _part_of(given, degree), *args[1:]
    if inputs.get("given") is given and style.enter is not None:  # query, key and value share their input
        return inputs["taken"], *args[1:]
    taken = given
    if style.enter is Crossing.join_copy:
        taken = torch.cat([given] * degree, 1)
        exchanged["all-gather"] += taken.nbytes
        exchanged["reduce-scatter"] += taken.nbytes
    elif style.enter is Crossing.copy and given.requires_grad:
        exchanged["all-reduce"] += given.nbytes  # of its gradient
    inputs.update(given=given, taken=taken)
    return taken, *args[1:]


def _leave(
    target: Target,
    degree: int,
    exchanged: Counter[str],
    module: torch.nn.Module,
    args: tuple[Any, ...],
    output: torch.Tensor,
) -> torch.Tensor:
    style = target.style
    if target.chosen == "sequence_region":
        return _gathered(output, degree, 1, exchanged)
    if style.leave is Crossing.sum_split:
        exchanged["reduce-scatter"] += output.nbytes
        exchanged["all-gather"] += output.nbytes
        return _part_of(output, degree)
    if style.leave is Crossing.sum or target.chosen == "vocabulary":
        exchanged["all-reduce"] += output.nbytes
    elif style.leave is Crossing.join_features:
        return _gathered(output, degree, -1, exchanged)
    return output


def _part_of(whole: torch.Tensor, degree: int) -> torch.Tensor:
    return whole.narrow(1, 0, whole.shape[1] // degree).clone()


def _gathered(part: torch.Tensor, degree: int, axis: int, exchanged: Counter[str]) -> torch.Tensor:
    whole = torch.cat([part] * degree, axis)
    exchanged["all-gather"] += whole.nbytes
    return whole
