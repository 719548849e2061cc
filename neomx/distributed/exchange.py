"""Sums and broadcasts in place, of everything that holds arrays: lists, dictionaries, Blocks, torch modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from numbers import Real
from typing import Any

import numpy as np
import torch

from .. import dist
from ..dist import Workers
from ..gluon import Block, Parameter, ParameterDict
from ..ndarray import NDArray

OPERATIONS = ("sum", "mean", "max", "min", "prod")
_SPELLED = {"avg": "mean", "average": "mean", "product": "prod"}


def reduce_values(x: Any, op: str, group: Workers | None = None) -> Any:
    """Reduce all arrays in `x` over the workers, in place, and return `x`. Of a model, these are the gradients."""
    name = _SPELLED.get(str(op).lower(), str(op).lower())
    if name not in OPERATIONS:
        raise ValueError(f"op must be one of {', '.join(map(repr, OPERATIONS))}, received {op!r}")

    def act(array: Any) -> Any:
        return dist.all_reduce(array, name, inplace=True, group=group)

    return _each(x, act, _gradients, keeps_integers=name != "mean")


def broadcast_values(x: Any, root: int, group: Workers | None = None) -> Any:
    """Replace all arrays in `x` by those of the worker `root`, and return `x`. Of a model, these are the parameters."""

    def act(array: Any) -> Any:
        return dist.broadcast(array, root, inplace=True, group=group)

    return _each(x, act, _values)


def _each(
    x: Any, act: Callable[[Any], Any], of_model: Callable[[Any], Iterator[Any]], keeps_integers: bool = True
) -> Any:
    """Apply `act` to everything in `x`, in the order in which `x` has it. Return `x`, with new numbers."""
    if isinstance(x, (NDArray, torch.Tensor)):
        return act(x)
    if isinstance(x, Real):
        is_integer = keeps_integers and not isinstance(x, (float, np.floating))
        return act(torch.tensor([x], dtype=torch.int64 if is_integer else torch.float64)).item()
    if isinstance(x, np.ndarray):
        if not x.flags.writeable:
            raise ValueError("cannot change a read-only NumPy array. Pass a copy: x.copy()")
        act(torch.from_numpy(x))
    elif isinstance(x, (Block, Parameter, ParameterDict, torch.nn.Module)):
        for array in of_model(x):
            act(array)
    elif isinstance(x, MutableMapping):
        for key in sorted(x, key=repr):  # in the same order on all workers
            x[key] = _each(x[key], act, of_model, keeps_integers)
    elif isinstance(x, (list, tuple)):
        found = [_each(each, act, of_model, keeps_integers) for each in x]
        if isinstance(x, tuple):
            return tuple(found)
        x[:] = found
    else:
        raise TypeError(
            "expected an array, a number, a list or dictionary of arrays, a gluon Block, its Parameters or a torch "
            f"module, received {type(x).__name__}"
        )
    return x


def _parameters(model: Any) -> list[Parameter]:
    if isinstance(model, Parameter):
        return [model]
    params = model.collect_params() if isinstance(model, Block) else model
    return list(params.values())


def _gradients(model: Any) -> Iterator[Any]:
    if isinstance(model, torch.nn.Module):
        for leaf in model.parameters():
            if leaf.requires_grad:
                if leaf.grad is None:  # on this worker: the others must not wait for it
                    leaf.grad = torch.zeros_like(leaf)
                yield leaf.grad
        return
    for param in _parameters(model):
        if param.grad_req != "null":
            yield from param.list_grad()


def _values(model: Any) -> Iterator[Any]:
    if isinstance(model, torch.nn.Module):
        yield from model.parameters()
        yield from model.buffers()
        return
    for param in _parameters(model):
        yield from param.list_data()
