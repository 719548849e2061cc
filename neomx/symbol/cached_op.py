"""Run a graph on arrays as a single op, as hybridized Blocks and `mx.nd.CachedOp` do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _set_grad_enabled as set_grad_enabled

from .. import ndarray
from ..base import MXNetError, modes
from ..context import Context
from ..ndarray import NDArray
from ..ndarray.history import Inlined, step
from ..ndarray.invoke import in_graph, join, lend, on_tape, own, store
from .infer import run_for_any_shape
from .losses import is_loss, losses_inside
from .lowering import Run
from .symbol import Symbol


def outputs_to_copy(symbol: Symbol) -> list[int]:
    """Return the indices of outputs that may share memory with an input and must be copied before they are returned."""
    return [at for at, (node, _) in enumerate(symbol._outputs) if node.op is None or node.op.may_alias]


def with_losses(symbol: Symbol) -> Symbol:
    """Return the graph with its inner losses appended to its outputs, if backward has to reach any."""
    losses = [(node, 0) for node in symbol._nodes() if is_loss(node)]
    alone = len(symbol) == 1 and not losses_inside(symbol._outputs)
    return symbol if alone else type(symbol)([*symbol._outputs, *losses])


def run_as_one(
    run: Callable[[Context, list[torch.Tensor]], list[torch.Tensor]],
    ctx: Context,
    tensors: list[torch.Tensor],
    copied: Sequence[int],
    outputs: int,
) -> list[torch.Tensor]:
    """Call the function of a graph as an op, recording it if autograd is recording.

    The function returns the `outputs` followed by the inner losses of the graph. Backward also propagates from these.
    """
    recording = modes.recording
    previous = torch.is_grad_enabled()
    if previous is not recording:
        set_grad_enabled(recording)
    try:
        results = run(ctx, tensors)
        results, losses = results[:outputs], results[outputs:]
        for at in copied:
            results[at] = own(results[at], tensors)
        if len(results) > 1:
            results = _apart(results)
        if recording and not modes.plain and (losses or not all(r.requires_grad for r in results)):
            # Backward may also start at outputs that do not require a gradient.
            results = list(join(results, [*tensors, *losses], always=bool(losses)))
        if recording and copied:
            lend([results[at] for at in copied])
    finally:
        if previous is not recording:
            set_grad_enabled(previous)
    return results


def _apart(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the results, with a copy for each repeated tensor."""
    return [
        result.clone() if any(result is other for other in results[:at]) else result
        for at, result in enumerate(results)
    ]


def wrapped(
    results: list[torch.Tensor],
    ctx: Context,
    kind: type[NDArray],
    graph: Symbol,
    names: Sequence[str],
    arrays: Sequence[NDArray],
    parameters: Sequence[torch.Tensor] = (),
) -> list[NDArray]:
    """Wrap the results of a graph in arrays of a class, and put recorded results on the tape.

    The graph was called with `arrays` and then a Block's `parameters`, as values of its inputs `names`.
    """
    made = [kind(result, ctx) for result in results]
    if modes.recording and not modes.plain:
        call = step(graph, Inlined(names, parameters), arrays)
        for number, array in enumerate(made):
            if in_graph(array._data) is not None:
                on_tape(array, (call, number))
    return made


class CachedOp:
    """A symbol as a function of arrays, one for each name in `sym.list_inputs()`, in that order.

    `flags` tune the memory use of MXNet; they are accepted and ignored.
    """

    def __init__(self, sym: Symbol, flags: Any = ()):
        self._symbol, self._inputs = sym, sym.list_inputs()
        self._run: Run = run_for_any_shape(with_losses(sym), self._inputs)
        self._copied = outputs_to_copy(sym)

    def __call__(self, *args: NDArray, out: Any = None) -> Any:
        """Run the graph on the arrays; write the results to `out` if it is given."""
        if len(args) != len(self._inputs) or not all(isinstance(each, NDArray) for each in args):
            raise MXNetError(f"CachedOp: expected {len(self._inputs)} arrays {self._inputs}, received {len(args)}")
        ctx = args[0]._ctx.computing if args else Context("cpu", 0)
        tensors = [each._data for each in args]
        results = run_as_one(self._run, ctx, tensors, self._copied, len(self._symbol))
        if out is not None:
            return store("CachedOp", results, out)
        arrays = wrapped(results, ctx, NDArray, self._symbol, self._inputs, args)
        return arrays[0] if len(arrays) == 1 else arrays


ndarray.CachedOp = CachedOp  # type: ignore[attr-defined]  # it requires a symbol
