"""Clipping by the norm of all gradients together, exact under any layout."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from ..context import cpu
from ..gluon import Parameter, ParameterDict
from ..ndarray import NDArray
from ..optimizer.part import same_part, total_square
from .placement import LeafPart, ensemble_of


def clip_global_norm(params: Any, max_norm: float, pipeline: Any = None, shared: Collection[Any] = ()) -> np.float32:
    """Scale the gradients of Parameters so that the norm of all of them is at most `max_norm`; the norm it was.

    Gradients must be summed over the workers: call it between `trainer.allreduce_grads()` and `trainer.update(n)`:
    they are sums over samples then, so `max_norm` is n times that for their mean. Of a torch module, after backward;
    in a pipeline it is told the group of all stages, and which parameters are counted by another stage.
    """
    params = list(params.values() if isinstance(params, (dict, ParameterDict)) else params)
    elsewhere = {id(param) for param in shared}
    weights = [_local(param, id(param) not in elsewhere) for param in params if _has_gradient(param)]
    square = total_square([gradient for gradient, counts in weights if counts])
    if pipeline is None:
        ensemble = ensemble_of(params)
        pipeline = None if ensemble is None else ensemble.pipeline_group
    if pipeline is not None:
        square = pipeline.all_reduce_(square, what="the norm of the gradients")
    norm = float(square.sqrt())
    scale = max_norm / (norm + 1e-8)
    if weights and scale < 1.0:
        torch._foreach_mul_([gradient._data for gradient, _ in weights], scale)
    if not np.isfinite(norm):
        warnings.warn("nan or inf is detected. Clipping results will be undefined.", stacklevel=2)
    return np.float32(norm)


def _is_placed(param: Any) -> bool:
    return isinstance(param, Parameter) and param.placement.holders is not None


def _has_gradient(param: Any) -> bool:
    if isinstance(param, Parameter):
        return param.grad_req != "null" and param.placement.is_here
    return param.grad is not None


def _local(param: Any, counts: bool) -> tuple[NDArray, bool]:
    """This worker's part of a gradient, and whether it counts: in a pipeline, once for all stages that share it."""
    if isinstance(param, Parameter):
        weight, counts = param._local(None), param.placement.is_first
    else:
        weight = NDArray(param.detach(), cpu())
        if isinstance(param, DTensor):
            weight = LeafPart(NDArray(param, cpu()))
    gradient = NDArray(param.grad, cpu()) if weight._grad is None else weight._grad
    return same_part(weight, gradient), counts
