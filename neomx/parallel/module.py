"""What a torch module under a layout needs beside torch: its whole state, and an optimizer in shares."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.tensor import DTensor

from ..base import MXNetError
from ..ndarray.ndarray import whole
from .placement import Ensemble, region

laid_out: WeakKeyDictionary[torch.nn.Module, Ensemble] = WeakKeyDictionary()


def state_dict(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The `state_dict` that one process would have, on every worker's CPU. All workers call it."""
    ensemble = laid_out.get(module)
    owners = {} if ensemble is None else ensemble.owners
    values = {name: whole(value.detach()).cpu() for name, value in module.state_dict().items()}
    for name, (place, shape, kind) in owners.items():
        if values[name].shape != shape:
            values[name] = torch.empty(shape, dtype=kind)
        ensemble.pipeline_group.broadcast_(values[name], place, name)  # type: ignore[union-attr]
    return values


def load_state_dict(module: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Take this worker's part of the `state_dict` of one process."""
    ensemble = laid_out.get(module)
    owners = {} if ensemble is None else ensemble.owners
    own = module.state_dict()
    shapes = {name: owners[name][1] if name in owners else value.shape for name, value in own.items()}
    wrong = sorted(own.keys() ^ state.keys()) + [
        f"{name} {tuple(state[name].shape)} for {tuple(shape)}"
        for name, shape in shapes.items()
        if name in state and state[name].shape != shape
    ]
    if wrong:
        raise MXNetError(f"the state is not of this module: {', '.join(wrong[:10])}")
    with torch.no_grad():
        for name, value in own.items():
            if isinstance(value, DTensor):
                value.to_local().copy_(state[name][region(value)])
            elif value.shape == state[name].shape:  # else it is in another stage of a pipeline
                value.copy_(state[name])


def optimizer(module: torch.nn.Module, kind: type[torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
    """A torch optimizer for a module laid out with shard='optimizer': each worker has the states of some parameters."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ensemble = laid_out.get(module)
    if ensemble is None or ensemble.shard != "optimizer" or ensemble.layout.batch_size == 1:
        return kind(module.parameters(), **options)
    return ZeroRedundancyOptimizer(module.parameters(), kind, process_group=ensemble.batch_mesh.get_group(), **options)
