"""The models that layouts support: gluon Blocks and torch modules."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch

from ..gluon import Block, Parameter

Model: TypeAlias = Block | torch.nn.Module
Weight: TypeAlias = Parameter | torch.nn.Parameter  # of a Block, of a torch module
Home: TypeAlias = tuple[dict[str, torch.nn.Parameter | None], str]  # the `_parameters` of a module, and a key in it


def check_model(net: object) -> None:
    """Raise if `net` is neither a Block nor a torch module."""
    if not isinstance(net, (Block, torch.nn.Module)):
        raise TypeError(f"expected a gluon Block or a torch module, received {type(net).__name__}")


def module_of(net: Model) -> torch.nn.Module:
    """Return the torch module of a model: the twin of a Block, or the module itself."""
    return net.torch() if isinstance(net, Block) else net


def elements_of(weight: Weight) -> int:
    """Return the number of elements of a parameter over all workers."""
    return math.prod(weight.shape or ())


def parameters_of(net: Model) -> list[Parameter]:
    """Return the Parameters of a Block, without duplicates. A torch module has none."""
    return list(dict.fromkeys(net._collect_params_with_prefix().values())) if isinstance(net, Block) else []
