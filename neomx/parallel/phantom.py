"""A copy of a model with shapes and dtypes but no memory, used to measure what the model would need."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..base import MXNetError
from ..context import cpu
from ..dtype import to_torch
from ..gluon import Block
from ..gluon.placement import begin_with_zeros, has_values
from ..ndarray import NDArray
from .model import Model, check_model


@contextmanager
def without_memory() -> Iterator[Any]:
    """Create all tensors in the block as phantoms, on which ops compute only shapes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        yield mode


def tensor_like(given: Any) -> torch.Tensor:
    """Return a phantom of an array or a tensor, or of a shape with dtype float32."""
    if isinstance(given, NDArray):
        given = given._data
    if isinstance(given, np.ndarray):
        return torch.empty(given.shape, dtype=to_torch(given.dtype))
    if isinstance(given, torch.Tensor):
        return torch.empty(given.shape, dtype=given.dtype)
    if isinstance(given, (tuple, list)) and given and all(type(size) is int and size > 0 for size in given):
        return torch.empty(tuple(given))
    raise TypeError(
        f"expected an array, a tensor, or a shape such as (32, 784), received {given!r:.80}. Several inputs are a list "
        "of those"
    )


def inputs_like(batch: Any) -> list[torch.Tensor]:
    """Phantoms of the inputs of a net: one input, or a list of several."""
    several = isinstance(batch, (list, tuple)) and not all(type(size) is int for size in batch)
    return [tensor_like(each) for each in (batch if several else [batch])]


def phantom_of(net: Model, inputs: Sequence[torch.Tensor]) -> torch.nn.Module:
    """Return a copy of a net (the twin of a Block, or a torch module) with phantom parameters, for these inputs."""
    tensors = _tensors(net)
    memo: dict[int, Any] = {id(tensor): _phantom(tensor) for tensor in tensors}
    copied: Model = copy.deepcopy(net, memo)
    if not isinstance(copied, Block):
        return copied.train()
    copied.hybridize(False)  # hooks must see calls of children
    for param in copied.collect_params().values():
        if not has_values(param):
            begin_with_zeros(param)
    run(copied, *(NDArray(each, cpu()) for each in inputs))  # infers unknown shapes
    return copied.torch().train()


def _tensors(net: Model) -> list[torch.Tensor]:
    """Return all tensors of a net."""
    if not isinstance(net, Block):
        check_model(net)
        return [*net.parameters(), *net.buffers()]
    params = net.collect_params().values()
    if any(param.placement.holders is not None for param in params):
        raise MXNetError("the Block already has a layout. Pass a new Block, which needs no memory")
    return [array._data for param in params if has_values(param) for array in param.list_data()]


def _phantom(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made


class Saved:
    """What autograd keeps for backward, without duplicates and without parameters and inputs.

    Parts that recompute their activations keep only their inputs; `again` is the most that one of them keeps during
    recomputation. `largest` is the size of the largest tensor.
    """

    def __init__(self, there: Sequence[torch.Tensor]) -> None:
        self._seen: dict[int, Any] = {}
        for tensor in there:
            self._is_new(tensor, self._seen)
        self._inside: dict[int, Any] | None = None  # what a recomputing part has kept
        self._again = 0
        self.nbytes = self.again = self.largest = 0

    def __enter__(self) -> Saved:
        self._hooks: Any = torch.autograd.graph.saved_tensors_hooks(self.keep, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    @staticmethod
    def _is_new(tensor: torch.Tensor, seen: dict[int, Any]) -> bool:
        storage = tensor.untyped_storage()
        if storage._cdata in seen:
            return False
        seen[storage._cdata] = storage  # kept alive, so that its address is not reused
        return True

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor, unless its memory is already counted or excluded."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._seen:
            return tensor
        self.largest = max(self.largest, storage.nbytes())
        if self._inside is None:
            self.nbytes += storage.nbytes() if self._is_new(tensor, self._seen) else 0
        else:
            self._again += storage.nbytes() if self._is_new(tensor, self._inside) else 0
        return tensor

    def enter(self, inputs: Sequence[Any]) -> None:
        """Enter a part that recomputes its activations."""
        for each in inputs:
            if isinstance(each, torch.Tensor):
                self.keep(each)
        self._inside, self._again = {}, 0

    def leave(self) -> None:
        """Leave the part that recomputes its activations."""
        self._inside, self.again = None, max(self.again, self._again)


def run(module: Callable[..., Any], *inputs: Any) -> Any:
    """Call a phantom. An error states that the model ran without memory."""
    try:
        return module(*inputs)
    except MXNetError:
        raise
    except Exception as error:
        raise MXNetError(
            f"the net cannot run without memory: {type(error).__name__}: {error}. Its forward must not depend on the "
            "values of arrays"
        ) from error
