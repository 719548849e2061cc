"""Support for torch modules under a layout: the whole state, and an optimizer with sharded states."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.tensor import DTensor

from ..base import MXNetError
from ..gluon import Block
from ..ndarray.distributed import whole
from .model import Model
from .placement import region, workers_holding
from .workers import LayoutWorkers

laid_out: WeakKeyDictionary[torch.nn.Module, LayoutWorkers] = WeakKeyDictionary()


def workers_of(net: Model) -> LayoutWorkers | None:
    """Return the workers over which a model is distributed, or None without a layout."""
    if isinstance(net, Block):
        return workers_holding(net.collect_params().values())
    return laid_out.get(net)


def state_dict(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the `state_dict` of the whole model, on the CPU of every worker. All workers must call it."""
    workers = laid_out.get(module)
    owners = {} if workers is None else workers.owners
    stages = None if workers is None else workers.pipeline_group
    values = {name: whole(value.detach()).cpu() for name, value in module.state_dict().items()}
    for name, (place, shape, kind) in owners.items():
        if values[name].shape != shape:
            values[name] = torch.empty(shape, dtype=kind)
        assert stages is not None  # tensors have owners only in a pipeline
        stages.broadcast_(values[name], place, name)
    return values


def load_state_dict(module: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Load this worker's part of the `state_dict` of the whole model."""
    workers = laid_out.get(module)
    owners = {} if workers is None else workers.owners
    own = module.state_dict()
    shapes = {name: owners[name][1] if name in owners else value.shape for name, value in own.items()}
    wrong = sorted(own.keys() ^ state.keys()) + [
        f"{name} {tuple(state[name].shape)} for {tuple(shape)}"
        for name, shape in shapes.items()
        if name in state and state[name].shape != shape
    ]
    if wrong:
        raise MXNetError(f"the state does not match the module: {', '.join(wrong[:10])}")
    with torch.no_grad():
        for name, value in own.items():
            if isinstance(value, DTensor):
                value.to_local().copy_(state[name][region(value)])
            elif value.shape == state[name].shape:  # otherwise it is in another stage of a pipeline
                value.copy_(state[name])


def optimizer(module: torch.nn.Module, kind: type[torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
    """Return a torch optimizer for a module with shard='optimizer'. Each worker holds the states of some parameters."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    workers = laid_out.get(module)
    if workers is None or workers.shard != "optimizer" or workers.layout.gradient_size == 1:
        return kind(module.parameters(), **options)
    return ZeroRedundancyOptimizer(
        module.parameters(), kind, process_group=workers.gradient_mesh.get_group(), **options
    )
