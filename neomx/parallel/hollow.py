"""A Block that no worker could hold whole: laid out without memory, then filled parameter by parameter."""

from __future__ import annotations

from typing import Any

import torch

from .. import autograd, initializer
from ..base import MXNetError
from ..comm.session import session
from ..context import cpu
from ..dtype import to_torch
from ..gluon import Block
from ..gluon.utils import shape_is_known
from ..ndarray import NDArray


def is_uninitialised(net: Any) -> bool:
    """Whether nobody has called `initialize` on a Block."""
    params = net.collect_params().values() if isinstance(net, Block) else ()
    return bool(params) and all(param._arrays is None and not param._deferred_init for param in params)


def hollow(net: Block) -> None:
    """Give its Parameters their shapes, without memory."""
    unknown = [param.name for param in net.collect_params().values() if not shape_is_known(param.shape)]
    if unknown:
        raise MXNetError(
            f"the Block is not initialised, and the shape of {', '.join(unknown[:5])} is not known. Give in_units, "
            "in_channels, etc., or initialize() it and pass one batch through it"
        )
    for param in net.collect_params().values():
        values: Any = torch.empty(param.shape, dtype=to_torch(param.dtype), device="meta")
        if param._differentiable:
            values = torch.nn.Parameter(values, requires_grad=False)
        param._arrays = {cpu(): NDArray(values, cpu())}
        param._init_grad()


def fill(net: Block, init: Any) -> None:
    """Initialise what was laid out: the values that `initialize(init)` gives, of which each worker keeps its part."""
    module, device = net.torch(), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    homes = [(each, name) for each in module.modules() for name in each._parameters]
    tensors = {home: home[0]._parameters[home[1]] for home in homes}
    module.to_empty(device=device)
    made: dict[int, Any] = {}
    for (each, name), before in tensors.items():  # a tensor that Blocks share is one again
        each._parameters[name] = made.setdefault(id(before), each._parameters[name])
    default = initializer.create(initializer.Uniform() if init is None else init)
    for param in net.collect_params().values():
        param._follow()
        whole = NDArray(torch.zeros(param.shape, dtype=to_torch(param.dtype)), cpu())
        described = initializer.InitDesc(param.name, {"__init__": default if param.init is None else param.init})
        with autograd.pause():
            default(described, whole)
        session().group.broadcast_(whole._data, what=f"{param.name} as it begins")
        param._placement.put(next(iter(param._arrays.values())), whole._data)
