"""A graph run on arrays as one op: what a hybridized Block does, and `mx.nd.CachedOp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _set_grad_enabled as set_grad_enabled

from .. import ndarray
from ..base import MXNetError, modes
from ..context import Context
from ..ndarray import NDArray
from ..ndarray.invoke import join, on_tape, own, store
from .infer import run_for_any_shape
from .lowering import Run
from .symbol import Symbol


def outputs_to_copy(symbol: Symbol) -> list[int]:
    """The outputs that may share memory with an input: they must be copied before a program gets them."""
    return [at for at, (node, _) in enumerate(symbol._outputs) if node.op is None or node.op.may_alias]


def run_as_one(
    run: Callable[[Context, list[torch.Tensor]], list[torch.Tensor]],
    ctx: Context,
    tensors: list[torch.Tensor],
    copied: Sequence[int],
) -> list[torch.Tensor]:
    """Call a graph's function as an op is called: recorded if the program records."""
    recording = modes.recording
    previous = torch.is_grad_enabled()
    if previous is not recording:
        set_grad_enabled(recording)
    try:
        results = run(ctx, tensors)
        for at in copied:
            results[at] = own(results[at], tensors)
        if recording and not modes.plain and not all(r.requires_grad for r in results):
            results = list(join(results, tensors))  # backward may start at those without a gradient too
    finally:
        if previous is not recording:
            set_grad_enabled(previous)
    return results


def wrapped(results: list[torch.Tensor], ctx: Context, kind: type[NDArray] = NDArray) -> list[NDArray]:
    """A graph's results as arrays of a class; those that are recorded are on the tape."""
    arrays = [kind(result, ctx) for result in results]
    for array in arrays if modes.recording else ():
        if array._data.requires_grad:
            on_tape(array)
    return arrays


class CachedOp:
    """A symbol as a function on arrays, one for each of `sym.list_inputs()`, in that order.

    `flags`, with which MXNet tunes its memory, change nothing.
    """

    def __init__(self, sym: Symbol, flags: Any = ()):
        self._inputs = sym.list_inputs()
        self._run: Run = run_for_any_shape(sym, self._inputs)
        self._copied = outputs_to_copy(sym)

    def __call__(self, *args: NDArray, out: Any = None) -> Any:
        if len(args) != len(self._inputs) or not all(isinstance(each, NDArray) for each in args):
            raise MXNetError(f"CachedOp: expected {len(self._inputs)} arrays {self._inputs}, received {len(args)}")
        ctx = args[0]._ctx.computing if args else Context("cpu", 0)
        results = run_as_one(self._run, ctx, [each._data for each in args], self._copied)
        if out is not None:
            return store("CachedOp", results, out)
        arrays = wrapped(results, ctx)
        return arrays[0] if len(arrays) == 1 else arrays


ndarray.CachedOp = CachedOp  # type: ignore[attr-defined]  # there is no use for it without a symbol
