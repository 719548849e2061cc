"""From an op of the table to a call on arrays: unwrap, call, wrap."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import is_grad_enabled
from torch._C import _set_grad_enabled as set_grad_enabled
from torch.compiler import is_compiling

from ..base import MXNetError, OutOfBoundsError, modes
from ..context import Context, current_context
from ..dtype import NAME_OF_TORCH
from ..onednn import explained
from ..ops.precision import cast_from
from ..ops.table import OP_ERRORS, Accepting, Op
from . import distributed


def apply(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any, cls: type) -> Any:
    """Call `op` on arrays (or None) and converted attributes; wrap what it returns in `cls`."""
    if op.on_arrays is not None:
        arrays, attrs = op.on_arrays(arrays, attrs)
    ctx: Context | None = None
    tensors: list[torch.Tensor | None] = []
    recorded, same_dtype, dtype = False, op.same_dtype, None
    for array in arrays:
        if array is None:
            tensors.append(None)
            continue
        if array._sparse:
            from .sparse_ops import apply_sparse

            return apply_sparse(op, arrays, attrs, out, cls)
        tensor = array._data
        tensors.append(tensor)
        if tensor.requires_grad or (modes.recording and _place(tensor) is not None):
            recorded = True
        if same_dtype:
            if dtype is None:
                dtype = tensor.dtype
            elif tensor.dtype is not dtype and not torch.is_autocast_enabled(tensor.device.type):
                raise failure(op, arrays, attrs, "expected arrays of one dtype. Use astype")
        if array._ctx is not ctx:
            if ctx is None:
                ctx = array._ctx.computing
            elif array._ctx.device != ctx.device:
                raise failure(op, arrays, attrs, f"arrays on two devices, {ctx} and {array._ctx}. Use as_in_context")
    if ctx is None:
        ctx = (attrs.get("ctx") or current_context()).check()
    if op.needs_ctx:
        attrs["ctx"] = ctx
    # Only what comes from a variable can build a graph: just then torch's grad mode must be ours.
    switch = recorded and is_grad_enabled() is not modes.recording
    if switch:
        set_grad_enabled(modes.recording)
    try:
        result = op.fn(*tensors, **attrs)
        if type(result) is torch.Tensor or isinstance(result, torch.Tensor):
            if op.may_alias:
                result = own(result, tensors)
            if modes.recording and (recorded or result.requires_grad) and not modes.plain:
                (result,) = join((result,), tensors)
                if out is None:
                    return on_tape(cls(result, ctx))
            if out is None:
                return cls(result, ctx)
            return store(op.name, (result,), out, converts=op.on_arrays is not None)
        return _several(op, result, tensors, recorded, out, ctx, cls)
    except OP_ERRORS as error:
        kind = OutOfBoundsError if isinstance(error, OutOfBoundsError) else MXNetError
        raise failure(op, arrays, attrs, str(error), kind) from error
    finally:
        if switch:
            set_grad_enabled(not modes.recording)


def _several(
    op: Op,
    results: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor | None],
    recorded: bool,
    out: Any,
    ctx: Context,
    cls: type,
) -> Any:
    """Wrap the results of an op that has several."""
    if op.may_alias:
        results = [own(result, inputs) for result in results]
    recorded = recorded and modes.recording and not modes.plain
    if recorded:
        results = join(results, inputs)
    if out is not None:
        return store(op.name, results, out, converts=op.on_arrays is not None)
    return [on_tape(cls(result, ctx)) if recorded else cls(result, ctx) for result in results]


def own(result: torch.Tensor, inputs: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """`result`, copied if it shares memory with an input: an op of MXNet returns memory of its own.

    A result in the autograd graph may stay a view: nothing may be written to it while recording.
    """
    if not is_compiling() and result.grad_fn is None:
        memory = _memory(result)
        for tensor in inputs:
            if tensor is not None and _memory(tensor) == memory:
                return result.clone(memory_format=torch.contiguous_format)
    return result


def _memory(tensor: torch.Tensor) -> int:
    """Where the memory begins that this process has of a tensor."""
    return int(distributed.local(tensor).untyped_storage().data_ptr())


class _Joined(torch.autograd.Function):
    """Makes one node of an op's results in the autograd graph, above what they were computed from."""

    @staticmethod
    def forward(ctx: Any, inputs: int, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.inputs = inputs
        return tuple(result.view_as(result) for result in tensors[inputs:])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        # No zeros for the inputs: those would cost a backward, and make NaN of 1 / 0 on their way.
        return None, *(None,) * ctx.inputs, *grads


def join(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor]:
    """An op's results as MXNet records them.

    They are in the graph also where the op has no gradient (x > 0, argmax), so that backward may start there, and when
    backward has gone through one of them, it has gone through all.
    """
    if len(results) == 1 and results[0].requires_grad:
        return results
    if is_compiling():
        return results if len(results) == 1 and not results[0].is_floating_point() else _joined(results, inputs)
    inputs = [tensor if tensor is None or (place := _place(tensor)) is None else place for tensor in inputs]
    if len(results) > 1 or results[0].is_floating_point():
        return _joined(results, inputs)
    if cast_from(results[0]) is None:
        (results[0]._place,) = _joined((torch.empty(0),), inputs)  # type: ignore[attr-defined]
    return results


def _joined(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor]:
    joined: Sequence[torch.Tensor] = _Joined.apply(len(inputs), *inputs, *results)
    return joined


def _place(tensor: torch.Tensor) -> torch.Tensor | None:
    """What stands in the graph for integers or booleans that were recorded: torch keeps only floats there."""
    return None if is_compiling() or tensor.is_floating_point() else getattr(tensor, "_place", None)


def in_graph(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor from which backward starts for `tensor`; None if it was not recorded."""
    if tensor.requires_grad:
        return tensor
    source = None if tensor.is_floating_point() else cast_from(tensor)
    return _place(tensor) if source is None else source


def on_tape(array: Any) -> Any:
    """`array`, of which backward will know that it was recorded; where torch drives, it need not."""
    if modes.plain:
        return array
    tape = modes.tape
    if len(tape) > modes.tape_limit:
        tape[:] = [reference for reference in tape if reference() is not None]
        modes.tape_limit = 2 * len(tape) + 10_000
    tape.append(weakref.ref(array))
    return array


def store(name: str, results: Sequence[torch.Tensor], out: Any, converts: bool = False) -> Any:
    """Write results into the arrays of `out=`, which must have their dtype unless mixed precision `converts` them."""
    targets = out if isinstance(out, (list, tuple)) else (out,)
    if len(targets) != len(results) or not all(hasattr(t, "_assign") for t in targets):
        raise MXNetError(f"{name}: out= must be {len(results)} array(s), received {out!r:.80}")
    for target, result in zip(targets, results, strict=True):
        if target.shape != tuple(result.shape):
            raise MXNetError(f"{name}: out= has shape {target.shape}, the result has {tuple(result.shape)}")
        if target._data.dtype is not result.dtype and not converts:
            expected, received = NAME_OF_TORCH[result.dtype], NAME_OF_TORCH[target._data.dtype]
            raise MXNetError(f"{name}: out= must have the dtype of the result, {expected}, received {received}")
        target._assign(result)
    return out


def _describe(op: Op, attrs: dict[str, Any], out: Any) -> None:
    """Let an op that creates an array learn from `out=` what the call did not say: shape, dtype, context."""
    first = out[0] if isinstance(out, (list, tuple)) else out
    if hasattr(first, "_data"):
        for name, value in (("shape", first.shape), ("dtype", NAME_OF_TORCH[first._data.dtype]), ("ctx", first._ctx)):
            if name in op.attrs and attrs.get(name) is None:
                attrs[name] = op.convert(name, value)


def failure(
    op: Op, arrays: Sequence[Any], attrs: dict[str, Any], message: str, kind: type[MXNetError] = MXNetError
) -> MXNetError:
    """An error that names the op and everything it received."""
    received = []
    for i, array in enumerate(arrays):
        if array is not None:
            name = f"{op.inputs[0]}[{i}]" if op.variadic else op.inputs[i]
            received.append(f"{name}: {NAME_OF_TORCH[array._data.dtype]}{list(array.shape)}")
    received += [f"{name}={value!r}" for name, value in attrs.items() if name != "ctx"]
    message = distributed.explained(explained(message.removeprefix(op.name + ": ")))
    return kind(f"{op.name}: {message} (received {', '.join(received) or 'nothing'})")


def make_function(op: Op, name: str, cls: type, inputs: type[Accepting] | None = None) -> Callable[..., Any]:
    """The function `nd.<name>` of an op. It returns arrays of `cls`, and takes those too unless `inputs` says other."""
    accepting = cls if inputs is None else inputs

    def function(*args: Any, out: Any = None, name: Any = None, **kwargs: Any) -> Any:  # a name is for symbols
        arrays, attrs = op.bind(args, kwargs, accepting)
        if out is not None and op.needs_ctx and not arrays:
            _describe(op, attrs, out)
        return apply(op, arrays, attrs, out, cls)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{inspect.getdoc(op.fn) or ''}\n\n{op.signature()}".strip()
    return function
