"""The twin of a Block: a torch module that holds the Block's tensors, for use with torch's APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..base import modes
from ..context import Context, context_of, cpu
from ..ndarray import NDArray
from .kinds import array_type
from .parameter import Parameter
from .placement import follow
from .utils import shape_is_known


class Twin(torch.nn.Module):
    """A torch module that runs a Block on torch tensors, with torch's grad mode and its own `training` flag."""

    def __init__(self, block: Any):
        super().__init__()
        self._block = block
        self.entered = False  # True between a call of the Block and `forward`: keep the Block's modes

    def forward(self, *args: Any) -> Any:
        """Return the output of the Block."""
        if self.entered:
            self.entered = False
            return unwrap(self._block._run(wrap(args)))
        before = modes.recording, modes.training, modes.plain
        modes.recording, modes.training, modes.plain = torch.is_grad_enabled(), self.training, True
        try:
            return unwrap(self._block._run(wrap(args)))
        finally:
            modes.recording, modes.training, modes.plain = before

    def has_hooks(self) -> bool:
        """Whether torch has hooks on calls of the Block."""
        return bool(self._forward_pre_hooks or self._forward_hooks or self._backward_hooks or self._backward_pre_hooks)

    def has_hooks_inside(self) -> bool:
        """Whether torch has hooks on calls of the Block's children."""
        return any(each.has_hooks() for each in self.modules() if isinstance(each, Twin) and each is not self)

    def extra_repr(self) -> str:
        """Return the name of the Block."""
        return self._block.name


def make_twin(block: Any) -> Twin:
    """Create the twin of a Block whose parameters are all initialized."""
    waiting = [
        f"{name} {param.shape}"
        for name, param in block.collect_params().items()
        if param._arrays is None and not (param._deferred_init and shape_is_known(param.shape))
    ]
    if waiting:
        raise RuntimeError(
            f"{block.name}.torch(): not initialized yet: {', '.join(waiting)}. Call initialize() and run one batch "
            "through the Block, or specify in_units, in_channels, etc."
        )
    twin = Twin(block)
    for name, param in block._reg_params.items():
        house(twin, name, param)
    registered = {id(param) for param in block._reg_params.values()}
    for name, param in block.params.items():
        if id(param) not in registered:
            house(twin, name.removeprefix(block.params.prefix), param)
    for name, child in block._children.items():
        twin._modules[name] = child.torch()
    return twin


def house(twin: Twin, name: str, param: Parameter) -> None:
    """Store a Parameter's tensor in the twin: as a parameter, or as a buffer if it is not trainable."""
    param._live_in(twin._parameters if param._differentiable else twin._buffers, name)


def follow_inside(module: torch.nn.Module) -> None:
    """Update the Parameters of all twins in a module whose tensors torch has replaced."""
    for each in module.modules():
        if isinstance(each, Twin):
            follow(each._block._reg_params.values())


def call_through(twin: Twin, args: Any) -> Any:
    """Call a Block through its twin, so that torch's hooks receive tensors."""
    for block in twin._block._walk():  # update Parameters before hooks replace their tensors temporarily
        for param in block._reg_params.values():
            param._follow()
    contexts: list[Context] = []
    tensors = unwrap(args, contexts)
    previous = torch.is_grad_enabled()
    torch.set_grad_enabled(modes.recording)
    twin.entered = True
    try:
        return wrap(twin(*tensors), contexts[0] if contexts else cpu())
    finally:
        twin.entered = False
        torch.set_grad_enabled(previous)
        reshard: Any = getattr(twin, "reshard", None)
        if reshard is not None and not modes.recording:
            reshard()  # fully_shard reshards after backward, which does not happen here


def wrap(value: Any, ctx: Context | None = None) -> Any:
    """Convert tensors in nested lists, tuples and dictionaries to arrays."""
    return _map(value, torch.Tensor, lambda tensor: array_type()(tensor, ctx or context_of(tensor.device)))


def unwrap(value: Any, contexts: list[Context] | None = None) -> Any:
    """Convert arrays in nested lists, tuples and dictionaries to tensors. Append their contexts to `contexts`."""

    def tensor_of(array: NDArray) -> torch.Tensor:
        if contexts is not None:
            contexts.append(array._ctx)
        return array._data

    return _map(value, NDArray, tensor_of)


def _map(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_map(item, kind, change) for item in value])
    if isinstance(value, dict):
        return {key: _map(item, kind, change) for key, item in value.items()}
    return value
