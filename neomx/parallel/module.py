"""What a torch module under a layout needs beside torch: its whole state, and an optimizer in shares."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.tensor import DTensor

from ..base import MXNetError
from .placement import Ensemble, full, region

laid_out: WeakKeyDictionary[torch.nn.Module, Ensemble] = WeakKeyDictionary()


def state_dict(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The `state_dict` that one process would have, on every worker's CPU. All workers call it."""
    ensemble = laid_out.get(module)
    owners = {} if ensemble is None else ensemble.owners
    whole = {name: full(value.detach()).cpu() for name, value in module.state_dict().items()}
    for name, (place, shape, kind) in owners.items():
        if whole[name].shape != shape:
            whole[name] = torch.empty(shape, dtype=kind)
        ensemble.pipeline_group.broadcast_(whole[name], place, name)  # type: ignore[union-attr]
    return whole


def load_state_dict(module: torch.nn.Module, whole: dict[str, torch.Tensor]) -> None:
    """Take this worker's part of a whole `state_dict`."""
    ensemble = laid_out.get(module)
    owners = {} if ensemble is None else ensemble.owners
    own = module.state_dict()
    shapes = {name: owners[name][1] if name in owners else value.shape for name, value in own.items()}
    wrong = sorted(own.keys() ^ whole.keys()) + [
        f"{name} {tuple(whole[name].shape)} for {tuple(shape)}"
        for name, shape in shapes.items()
        if name in whole and whole[name].shape != shape
    ]
    if wrong:
        raise MXNetError(f"the state is not of this module: {', '.join(wrong[:10])}")
    with torch.no_grad():
        for name, value in own.items():
            if isinstance(value, DTensor):
                value.to_local().copy_(whole[name][region(value)])
            elif value.shape == whole[name].shape:  # else it is in another stage of a pipeline
                value.copy_(whole[name])


def optimizer(module: torch.nn.Module, kind: type[torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
    """A torch optimizer for a module laid out with shard='optimizer': each worker has the states of some parameters."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ensemble = laid_out.get(module)
    if ensemble is None or ensemble.shard != "optimizer" or ensemble.layout.batch_size == 1:
        return kind(module.parameters(), **options)
    return ZeroRedundancyOptimizer(module.parameters(), kind, process_group=ensemble.batch_mesh.get_group(), **options)
