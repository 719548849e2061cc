"""A Block that is too large for any worker: distributed without memory, then filled one parameter at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule

from .. import autograd, initializer
from ..base import MXNetError
from ..context import cpu
from ..dtype import to_torch
from ..gluon import Block
from ..gluon.placement import has_values, hollow_out, is_waiting, put_whole
from ..gluon.utils import shape_is_known
from ..ndarray import NDArray
from .module import workers_of


def is_uninitialised(net: Block) -> bool:
    """Return whether `initialize` has not been called on a Block."""
    params = net.collect_params().values()
    return bool(params) and not any(has_values(param) or is_waiting(param) for param in params)


def hollow(net: Block) -> None:
    """Give the Parameters their shapes without allocating memory."""
    unknown = [param.name for param in net.collect_params().values() if not shape_is_known(param.shape)]
    if unknown:
        raise MXNetError(
            f"the Block is not initialized, and the shape of {', '.join(unknown[:5])} is unknown. Pass in_units, "
            "in_channels, etc., or call initialize() and run one batch through the Block"
        )
    for param in net.collect_params().values():
        hollow_out(param)


def fill(net: Block, init: initializer.Initializer | str | None) -> None:
    """Initialize the distributed Parameters with the values of `initialize(init)`. Each worker keeps its part."""
    _allocate(net.torch())
    workers = workers_of(net)
    default = initializer.create(initializer.Uniform() if init is None else init)
    for param in net.collect_params().values():
        whole = NDArray(torch.zeros(param.shape, dtype=to_torch(param.dtype)), cpu())
        described = initializer.InitDesc(param.name, {"__init__": default if param.init is None else param.init})
        with autograd.pause():
            default(described, whole)
        if workers is not None:
            workers.model_group.broadcast_(whole._data, what="an initial parameter")
        put_whole(param, whole)


def _allocate(module: torch.nn.Module) -> None:
    """Allocate memory for this worker's parts. Tensors that Blocks share stay shared."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    made: dict[int, Any] = {}
    for each in module.modules():
        for tensors in (each._parameters, each._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and tensor.is_meta and id(tensor) not in made:
                    empty: Any = torch.empty_like(tensor, device=device)
                    made[id(tensor)] = empty
                    if isinstance(tensor, torch.nn.Parameter):
                        made[id(tensor)] = torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
                tensors[name] = made.get(id(tensor), tensor)
    for each in module.modules():
        if isinstance(each, FSDPModule):
            for group in each._get_fsdp_state()._fsdp_param_groups:
                for param in group.fsdp_params:
                    param.reset_sharded_param()  # type: ignore[no-untyped-call]
