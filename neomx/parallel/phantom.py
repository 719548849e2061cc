"""A copy of a model that has shapes and types and no memory, to find out what it would need."""

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
    """Have all tensors that are made in the block be phantoms: ops on them only work out shapes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        yield mode


def tensor_like(given: Any) -> torch.Tensor:
    """A phantom of an array or a tensor, or of the shape that is given: of float32 then."""
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
    """Phantoms of a net's inputs: of one, or of a list of several."""
    several = isinstance(batch, (list, tuple)) and not all(type(size) is int for size in batch)
    return [tensor_like(each) for each in (batch if several else [batch])]


def phantom_of(net: Model, inputs: Sequence[torch.Tensor]) -> torch.nn.Module:
    """A copy of a net, a Block's twin or a torch module, whose parameters are phantoms; shapes follow from `inputs`."""
    tensors = _tensors(net)
    memo: dict[int, Any] = {id(tensor): _phantom(tensor) for tensor in tensors}
    copied: Model = copy.deepcopy(net, memo)
    if not isinstance(copied, Block):
        return copied.train()
    copied.hybridize(False)  # hooks must see the calls of children
    for param in copied.collect_params().values():
        if not has_values(param):
            begin_with_zeros(param)
    run(copied, *(NDArray(each, cpu()) for each in inputs))  # finds the shapes that are not known yet
    return copied.torch().train()


def _tensors(net: Model) -> list[torch.Tensor]:
    """All that takes memory in a net."""
    if not isinstance(net, Block):
        check_model(net)
        return [*net.parameters(), *net.buffers()]
    params = net.collect_params().values()
    if any(param.placement.holders is not None for param in params):
        raise MXNetError("the Block has a layout already: estimate a new one, which takes no memory")
    return [array._data for param in params if has_values(param) for array in param.list_data()]


def _phantom(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made


class Saved:
    """What autograd keeps for backward, each memory once; parameters and inputs, which are there anyway, not.

    Of parts that compute their activations again only the inputs are kept; `again` is the most that one of them keeps
    while it does so. `largest` is the largest memory of all.
    """

    def __init__(self, there: Sequence[torch.Tensor]) -> None:
        self._seen: dict[int, Any] = {}
        for tensor in there:
            self._is_new(tensor, self._seen)
        self._inside: dict[int, Any] | None = None  # what a part that computes again has kept
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
        seen[storage._cdata] = storage  # which lives on with it, so that no number is used twice
        return True

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor, unless its memory was counted or is there anyway."""
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
        """A part that will compute again begins."""
        for each in inputs:
            if isinstance(each, torch.Tensor):
                self.keep(each)
        self._inside, self._again = {}, 0

    def leave(self) -> None:
        """It ends."""
        self._inside, self.again = None, max(self.again, self._again)


def run(module: Callable[..., Any], *inputs: Any) -> Any:
    """Call a phantom; an error says that it was one."""
    try:
        return module(*inputs)
    except MXNetError:
        raise
    except Exception as error:
        raise MXNetError(
            f"the net cannot be run without memory: {type(error).__name__}: {error}. Its forward must not look at the "
            "values of arrays"
        ) from error
