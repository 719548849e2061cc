"""Clipping by the global norm of all gradients, exact under any layout."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from ..comm.group import Group
from ..context import cpu
from ..gluon import Parameter, ParameterDict
from ..gluon.placement import part_of
from ..ndarray import NDArray
from ..optimizer.part import same_part, total_square
from .model import Weight
from .placement import LeafPart, workers_holding


def clip_global_norm(
    params: Mapping[str, Weight] | ParameterDict | Iterable[Weight],
    max_norm: float,
    pipeline: Group | None = None,
    shared: Collection[Weight] = (),
) -> np.float32:
    """Scale gradients so that their global norm is at most `max_norm`. Return the norm before scaling.

    Gradients must already be summed over the workers: call it between `trainer.allreduce_grads()` and
    `trainer.update(n)`. They are sums over samples at that point, so `max_norm` is n times the value for their mean.
    For a torch module, call it after backward. In a pipeline, `pipeline` is the group of all stages and `shared`
    lists the parameters that another stage counts.
    """
    params = list(params.values() if isinstance(params, (Mapping, ParameterDict)) else params)
    elsewhere = {id(param) for param in shared}
    weights = [_local(param, id(param) not in elsewhere) for param in params if _has_gradient(param)]
    square = total_square([gradient for gradient, counts in weights if counts])
    if pipeline is None:
        workers = workers_holding(params)
        pipeline = None if workers is None else workers.pipeline_group
    if pipeline is not None:
        square = pipeline.all_reduce_(square, what="the norm of the gradients")
    norm = float(square.sqrt())
    scale = max_norm / (norm + 1e-8)
    if weights and scale < 1.0:
        torch._foreach_mul_([gradient._data for gradient, _ in weights], scale)
    if not np.isfinite(norm):
        warnings.warn("nan or inf is detected. Clipping results will be undefined.", stacklevel=2)
    found: np.float32 = np.float32(norm)
    return found


def _has_gradient(param: Weight) -> bool:
    if isinstance(param, Parameter):
        return param.grad_req != "null" and param.placement.is_here
    return param.grad is not None


def _local(param: Weight, counts: bool) -> tuple[NDArray, bool]:
    """Return this worker's part of a gradient, and whether it counts. A gradient that stages share counts only once."""
    if isinstance(param, Parameter):
        weight, counts = part_of(param), param.placement.is_first
    else:
        weight = NDArray(param.detach(), cpu())
        if isinstance(param, DTensor):
            weight = LeafPart(NDArray(param, cpu()))
    return same_part(weight, _gradient(param, weight)), counts


def _gradient(param: Weight, weight: NDArray) -> NDArray:
    if weight._grad is not None:
        return weight._grad
    assert isinstance(param, torch.Tensor) and param.grad is not None
    return NDArray(param.grad, cpu())
