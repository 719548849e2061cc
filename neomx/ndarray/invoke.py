"""Call an op of the op table on arrays: unwrap the inputs, call the op, and wrap the results."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, is_autocast_enabled, is_grad_enabled
from torch._C import _set_grad_enabled as set_grad_enabled
from torch.compiler import is_compiling

from ..base import InvalidDTypeError, InvalidValueError, MXNetError, OutOfBoundsError, modes
from ..context import Context, current_context
from ..dtype import NAME_OF_TORCH
from ..onednn import explained
from ..ops.precision import set_stand_in, stand_in
from ..ops.table import OP_ERRORS, Accepting, Op
from . import distributed
from .history import Source, Step, step
from .integers import nothing_like, place_of_result

# Exception types that are kept when `apply` adds the call to the message of an op's error.
_KEPT_ERRORS = (OutOfBoundsError, InvalidValueError, InvalidDTypeError)


def apply(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any, cls: type[Any]) -> Any:
    """Call `op` on arrays (or None) and converted attributes, and wrap the results in `cls`."""
    if out is None and op.owned and op.on_arrays is None and not modes.recording:
        inputs = _alone(op, arrays, cls)
        if inputs is not None:  # a short path for the most common calls
            place = arrays[0]._ctx.computing if arrays else (attrs.get("ctx") or current_context()).check()
            if op.needs_ctx:
                attrs["ctx"] = place
            fn = op.fresh or op.fn
            try:
                result = fn(*inputs, **attrs) if attrs else fn(*inputs)
            except OP_ERRORS as error:
                raise _with_call(op, arrays, attrs, error) from error
            return cls(result, place) if isinstance(result, Tensor) else [cls(each, place) for each in result]
    if op.on_arrays is not None:
        arrays, attrs = op.on_arrays(arrays, attrs)
    ctx: Context | None = None
    tensors: list[Any] = []
    graph = modes.recording  # whether autograd may be involved; if not, use the fast path
    for array in arrays:
        if (
            array is None
            or array._sparse
            or (tensors and (array._ctx is not ctx or (op.same_dtype and array._data.dtype is not tensors[0].dtype)))
        ):
            if any(each is not None and each._sparse for each in arrays):
                return _apply_sparse(op, arrays, attrs, out, cls)
            (tensors, ctx), graph = _unwrapped(op, arrays, attrs), True
            break
        ctx, tensor = array._ctx, array._data
        graph = graph or tensor.requires_grad
        tensors.append(tensor)
    ctx = (attrs.get("ctx") or current_context()).check() if ctx is None else ctx.computing
    if op.needs_ctx:
        attrs["ctx"] = ctx
    try:
        if graph:
            return _recorded(op, arrays, tensors, attrs, out, ctx, cls)
        if op.fresh is not None and out is None:
            return cls(op.fresh(*tensors, **attrs), ctx)
        result = op.fn(*tensors, **attrs) if attrs else op.fn(*tensors)
        if out is None and isinstance(result, torch.Tensor):
            if op.may_alias and not is_compiling():
                result = _unshared(result, tensors)
            return cls(result, ctx)
        return _delivered(op, result, _results(op, result, tensors), out, ctx, cls)
    except OP_ERRORS as error:
        raise _with_call(op, arrays, attrs, error) from error


def _alone(op: Op, arrays: Sequence[Any], cls: type[Any]) -> tuple[Tensor, ...] | None:
    """Return the tensors of at most two dense arrays outside the autograd graph, None for other arrays."""
    if len(arrays) == 1:
        data = arrays[0]._data if type(arrays[0]) is cls else None
        return None if data is None or data.requires_grad else (data,)
    if len(arrays) != 2:
        return None if arrays else ()
    array, other = arrays
    if type(array) is not cls or type(other) is not cls or array._ctx is not other._ctx:
        return None
    data, second = array._data, other._data
    if data.requires_grad or second.requires_grad or (op.same_dtype and data.dtype is not second.dtype):
        return None
    return data, second


def _with_call(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], error: Exception) -> MXNetError:
    kind = type(error) if isinstance(error, _KEPT_ERRORS) else MXNetError
    return failure(op, arrays, attrs, str(error), kind)


def _apply_sparse(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], out: Any, cls: type[Any]) -> Any:
    from .sparse_ops import apply_sparse

    return apply_sparse(op, arrays, attrs, out, cls)


def _unwrapped(op: Op, arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[list[Any], Context | None]:
    """Return the tensors of dense arrays, and the context of the first. Raise an error for mixed devices or dtypes."""
    given = [array for array in arrays if array is not None]
    for array in given:
        if array._ctx.device != given[0]._ctx.device:
            contexts = f"{given[0]._ctx} and {array._ctx}"
            raise failure(
                op, arrays, attrs, f"all arrays must be on the same device, received {contexts}. Use as_in_context"
            )
        if (
            op.same_dtype
            and array._data.dtype is not given[0]._data.dtype
            and not is_autocast_enabled(array._ctx.device.type)
        ):
            raise failure(op, arrays, attrs, "expected arrays of one dtype. Use astype")
    tensors = [None if array is None else array._data for array in arrays]
    return tensors, given[0]._ctx if given else None


def _recorded(
    op: Op,
    arrays: Sequence[Any],
    tensors: Sequence[torch.Tensor | None],
    attrs: dict[str, Any],
    out: Any,
    ctx: Context,
    cls: type,
) -> Any:
    """The part of `apply` for calls that involve autograd: while recording, or with an input in a graph."""
    recording, recorded = modes.recording, False
    for tensor in tensors:
        if tensor is not None and (tensor.requires_grad or (recording and stand_in(tensor) is not None)):
            recorded = True
            break
    # Only inputs that depend on a variable extend a graph, so set torch's grad mode only for those.
    switch = recorded and is_grad_enabled() is not recording
    if switch:
        set_grad_enabled(recording)
    try:
        returned = op.fn(*tensors, **attrs)
        results = _results(op, returned, tensors)
        taped = (
            recording
            and not modes.plain
            and (recorded or (isinstance(returned, torch.Tensor) and returned.requires_grad))
        )
        if taped:
            results = join(results, tensors, op, attrs)
            if op.may_alias:
                lend(results)
        call = step(op, attrs, arrays) if taped or (recording and out is not None) else None
        return _delivered(op, returned, results, out, ctx, cls, call)
    finally:
        if switch:
            set_grad_enabled(not recording)


def _results(op: Op, returned: Any, inputs: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor]:
    """Return an op's result, one tensor or several, as a sequence of tensors that do not share memory with inputs."""
    results: Sequence[torch.Tensor] = (returned,) if isinstance(returned, torch.Tensor) else returned
    return [own(result, inputs) for result in results] if op.may_alias else results


def _delivered(
    op: Op,
    returned: Any,
    results: Sequence[torch.Tensor],
    out: Any,
    ctx: Context,
    cls: type,
    call: Step | None = None,
) -> Any:
    """Return the results: in `out`, as one array if the op returned a tensor, or as a list of arrays.

    `call` becomes the history of recorded arrays.
    """
    if out is not None:
        return store(op.name, results, out, converts=op.on_arrays is not None, call=call)
    if isinstance(returned, torch.Tensor):
        array = cls(results[0], ctx)
        return array if call is None else on_tape(array, call)
    if call is None:
        return [cls(result, ctx) for result in results]
    return [on_tape(cls(result, ctx), (call, number)) for number, result in enumerate(results)]


def own(result: torch.Tensor, inputs: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Return `result`, copied if it shares memory with an input, because MXNet's ops return new memory.

    A result in the autograd graph may be a view, because writing to it while recording is an error.
    """
    return result if is_compiling() or result.grad_fn is not None else _unshared(result, inputs)


def lend(results: Sequence[torch.Tensor]) -> None:
    """Mark results in the autograd graph that may be views of an input. `outside` copies them."""
    if not is_compiling():
        for result in results:
            if result.grad_fn is not None:
                result._lent = True  # type: ignore[attr-defined]


def is_lent(tensor: torch.Tensor) -> bool:
    """Whether a tensor in the autograd graph may be a view of an op's input."""
    return getattr(tensor, "_lent", False)


def outside(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor outside the autograd graph, where writes must not change an op's input."""
    return tensor.detach().clone() if is_lent(tensor) else tensor.detach()


def _unshared(result: torch.Tensor, inputs: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Return `result`, copied if it shares memory with an input."""
    base = result._base  # for a view, this is faster than comparing addresses
    for tensor in inputs:
        if tensor is not None and (tensor is base or _memory(tensor) == _memory(result)):
            # Passing the memory format would be slower.
            return result.clone() if result.is_contiguous() else result.clone(memory_format=torch.contiguous_format)
    return result


def _memory(tensor: torch.Tensor) -> int:
    """Return the address of the local memory of a tensor."""
    if type(tensor) is not torch.Tensor:
        tensor = distributed.local(tensor)
    return tensor.untyped_storage().data_ptr()


class _Joined(torch.autograd.Function):
    """Joins the results of an op in one node of the autograd graph, above the nodes that computed them."""

    @staticmethod
    def forward(ctx: Any, inputs: int, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.inputs = inputs
        return tuple(result.view_as(result) for result in tensors[inputs:])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        # No zeros for the inputs: they would require a backward pass, and could turn into NaN, e.g. for 1 / 0.
        return None, *(None,) * ctx.inputs, *grads


def join(
    results: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor | None],
    op: Op | None = None,
    attrs: dict[str, Any] | None = None,
    always: bool = False,
) -> Sequence[torch.Tensor]:
    """Put an op's results into the autograd graph as MXNet does.

    They are in the graph even if the op has no gradient (x > 0, argmax), so that backward may start there. After
    backward has gone through one of them, all are released. With `always`, backward continues to each of the inputs.
    """
    if len(results) == 1 and results[0].requires_grad and not always:
        return results
    if is_compiling():
        return results if len(results) == 1 and not results[0].is_floating_point() else _joined(results, inputs)
    places = [tensor if tensor is None or (place := stand_in(tensor)) is None else place for tensor in inputs]
    if len(results) > 1 or results[0].is_floating_point():
        known = [stand_in(result) for result in results]
        results = _joined(results, places)
        for result, place in zip(results, known, strict=True):
            if place is not None:
                set_stand_in(result, place)
    through = op is not None and any(place is not tensor for place, tensor in zip(places, inputs, strict=True))
    for number, result in enumerate(results):
        if result.is_floating_point() or stand_in(result) is not None:
            continue
        if op is not None and through:
            call = partial(_one_output, op, attrs or {}, number)
            set_stand_in(result, place_of_result(result, call, inputs, places))
        else:
            set_stand_in(result, _joined((nothing_like(result),), places)[0])
    return results


def _one_output(op: Op, attrs: dict[str, Any], number: int, *tensors: Any) -> torch.Tensor:
    """Return one of the outputs of an op."""
    results = op.fn(*tensors, **attrs)
    output: torch.Tensor = results if isinstance(results, torch.Tensor) else results[number]
    return output


def _joined(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor]:
    joined: Sequence[torch.Tensor] = _Joined.apply(len(inputs), *inputs, *results)
    return joined


def in_graph(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor from which backward starts for `tensor`, or None if it was not recorded."""
    return tensor if tensor.requires_grad else stand_in(tensor)


def is_recorded(array: Any) -> bool:
    """Whether autograd is recording and the array is in its graph."""
    return modes.recording and in_graph(array._data) is not None


def on_tape(array: Any, history: Source) -> Any:
    """Return `array` after registering it as recorded for backward. This is not needed if torch runs backward."""
    if modes.plain:
        return array
    array._history = history
    tape = modes.tape
    if len(tape) > modes.tape_limit:
        tape[:] = [reference for reference in tape if reference() is not None]
        modes.tape_limit = 2 * len(tape) + 10_000
    tape.append(weakref.ref(array))
    return array


def store(
    name: str, results: Sequence[torch.Tensor], out: Any, converts: bool = False, call: Step | None = None
) -> Any:
    """Write results into the arrays of `out=`, which must have the same dtype unless mixed precision `converts` them.

    Arrays that join the autograd graph in this way get `call` as their history.
    """
    targets = out if isinstance(out, (list, tuple)) else (out,)
    if len(targets) != len(results) or not all(hasattr(t, "_assign") for t in targets):
        raise MXNetError(f"{name}: out= must be {len(results)} array(s), received {out!r:.80}")
    for number, (target, result) in enumerate(zip(targets, results, strict=True)):
        if target.shape != tuple(result.shape):
            raise MXNetError(f"{name}: out= has shape {target.shape}, but the result has shape {tuple(result.shape)}")
        if target._data.dtype is not result.dtype and not converts:
            expected, received = NAME_OF_TORCH[result.dtype], NAME_OF_TORCH[target._data.dtype]
            raise InvalidDTypeError(f"{name}: out= must have the dtype of the result, {expected}, received {received}")
        target._assign(result)
        if call is not None and in_graph(target._data) is not None:
            on_tape(target, call if len(results) == 1 else (call, number))
    return out


def _describe(op: Op, attrs: dict[str, Any], out: Any) -> None:
    """For an op that creates an array, take shape, dtype and context from `out=` if they are not given."""
    first = out[0] if isinstance(out, (list, tuple)) else out
    if hasattr(first, "_data"):
        for name, value in (("shape", first.shape), ("dtype", NAME_OF_TORCH[first._data.dtype]), ("ctx", first._ctx)):
            if name in op.attrs and attrs.get(name) is None:
                attrs[name] = op.convert(name, value)


def failure(
    op: Op, arrays: Sequence[Any], attrs: dict[str, Any], message: str, kind: type[MXNetError] = MXNetError
) -> MXNetError:
    """Return an error that names the op and all of its inputs."""
    received = []
    for i, array in enumerate(arrays):
        if array is not None:
            name = f"{op.inputs[0]}[{i}]" if op.variadic else op.inputs[i]
            received.append(f"{name}: {NAME_OF_TORCH[array._data.dtype]}{list(array.shape)}")
    received += [f"{name}={value!r}" for name, value in attrs.items() if name != "ctx"]
    message = distributed.explained(explained(message.removeprefix(op.name + ": ")))
    return kind(f"{op.name}: {message} (received {', '.join(received) or 'nothing'})")


def make_function(op: Op, name: str, cls: type, inputs: type[Accepting] | None = None) -> Callable[..., Any]:
    """Return the function `nd.<name>` of an op. It returns arrays of `cls`, and accepts `inputs`, by default `cls`."""
    accepting = cls if inputs is None else inputs

    def function(*args: Any, out: Any = None, name: Any = None, **kwargs: Any) -> Any:  # `name` is only used by symbols
        arrays, attrs = op.bind(args, kwargs, accepting)
        if out is not None and op.needs_ctx and not arrays:
            _describe(op, attrs, out)
        return apply(op, arrays, attrs, out, cls)

    function.op = op  # type: ignore[attr-defined]  # for tools: the signature of a call
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{inspect.getdoc(op.fn) or ''}\n\n{op.signature()}".strip()
    return function
