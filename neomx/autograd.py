"""Automatic differentiation with MXNet's API and rules, based on torch's autograd."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from importlib import import_module
from time import perf_counter
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from .base import Backward, MXNetError, modes
from .events import emit, heard
from .ndarray.history import step
from .ndarray.invoke import in_graph, join, on_tape, outside
from .ndarray.ndarray import Gradient, NDArray
from .onednn import explained
from .ops.table import Op

__all__ = [
    "Function",
    "NDArray",
    "backward",
    "get_symbol",
    "grad",
    "is_recording",
    "is_training",
    "mark_variables",
    "pause",
    "predict_mode",
    "record",
    "set_recording",
    "set_training",
    "train_mode",
]


def _uncomputable(name: str, what: str) -> Op:
    """Return the op that represents a recorded step that a graph cannot compute; `count` is its number of outputs."""

    def refuse(*data: torch.Tensor, count: int = 1) -> Any:
        raise MXNetError(what)

    return Op(refuse, (name,), same_dtype=False, may_alias=False, mutates=(), outputs=lambda attrs: attrs["count"])


_FUNCTION = _uncomputable(
    "_CustomFunction", "a graph cannot compute an autograd.Function. Write it as an mx.operator.CustomOp"
)
_GRADIENT = _uncomputable(
    "_gradient",
    "a graph cannot compute a gradient of autograd.grad(create_graph=True). Differentiate the graph instead",
)


class _Scope:
    """A `with` block that sets recording and training mode, and restores both on exit."""

    def __init__(self, recording: bool | None, training: bool | None):
        self._enter = recording, training
        self._previous: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self._previous.append((modes.recording, modes.training))
        recording, training = self._enter
        if recording is not None:
            modes.recording = recording
        if training is not None:
            modes.training = training

    def __exit__(self, *exc: Any) -> None:
        modes.recording, modes.training = self._previous.pop()


class _TimedScope(_Scope):
    """A recording scope that measures the duration of the forward pass for a listener."""

    inside = 0.0  # seconds spent in backward, which may be called inside the block

    def __enter__(self) -> None:
        super().__enter__()
        self._started = perf_counter() - _TimedScope.inside

    def __exit__(self, *exc: Any) -> None:
        seconds = perf_counter() - _TimedScope.inside - self._started
        super().__exit__(*exc)
        emit("forward", seconds=seconds)


def record(train_mode: bool = True) -> _Scope:
    """Record operations in the block for `backward`. Layers are in training mode by default."""
    timed = heard("forward") and not modes.recording
    return _TimedScope(True, train_mode) if timed else _Scope(True, train_mode)


def pause(train_mode: bool = False) -> _Scope:
    """Stop recording in the block. Layers are in prediction mode by default."""
    return _Scope(False, train_mode)


def train_mode() -> _Scope:
    """Put layers into training mode in the block. Recording does not change."""
    return _Scope(None, True)


def predict_mode() -> _Scope:
    """Put layers into prediction mode in the block. Recording does not change."""
    return _Scope(None, False)


def is_recording() -> bool:
    """Whether operations are being recorded."""
    return modes.recording


def is_training() -> bool:
    """Whether layers are in training mode."""
    return modes.training


def set_recording(is_record: bool) -> bool:
    """Turn recording on or off, and return the previous state."""
    previous, modes.recording = modes.recording, bool(is_record)
    return previous


def set_training(train_mode: bool) -> bool:
    """Turn training mode on or off, and return the previous state."""
    previous, modes.training = modes.training, bool(train_mode)
    return previous


def mark_variables(
    variables: NDArray | Sequence[NDArray],
    gradients: NDArray | Sequence[NDArray],
    grad_reqs: str | Sequence[str] = "write",
) -> None:
    """Mark arrays as variables whose gradients are stored in the given arrays."""
    if isinstance(variables, NDArray):
        variables, gradients = [variables], [gradients]  # type: ignore[list-item]
    if isinstance(grad_reqs, str):
        grad_reqs = [grad_reqs] * len(variables)
    for variable, gradient, grad_req in zip(variables, gradients, grad_reqs, strict=True):  # type: ignore[arg-type]
        Gradient.attach(variable, grad_req, buffer=gradient)


def _heads(heads: Any, head_grads: Any) -> tuple[list[NDArray], list[torch.Tensor], list[torch.Tensor | None]]:
    """Return the heads, their tensors, and the head gradients (ones if not given)."""
    heads = [heads] if isinstance(heads, NDArray) else list(heads)
    given = [None] * len(heads) if head_grads is None else head_grads
    given = [given] if isinstance(given, NDArray) else list(given)
    if len(given) != len(heads):
        raise ValueError(f"heads and head_grads must have the same length, received {len(heads)} and {len(given)}")
    for head, gradient in zip(heads, given, strict=True):
        if in_graph(head._data) is None:
            raise MXNetError(
                "cannot differentiate: the array is not in a computational graph. Compute it inside "
                "`with autograd.record():` from arrays with attach_grad(); to differentiate the same graph twice pass "
                "retain_graph=True to the first backward call"
            )
        if gradient is not None and gradient.shape != head.shape:
            raise MXNetError(f"a head gradient must have the shape {head.shape} of its head, received {gradient.shape}")
    last: dict[int, Any] = {id(head): gradient for head, gradient in zip(heads, given, strict=True)}
    heads = list({id(head): head for head in heads}.values())  # as in MXNet, a repeated head counts once
    tensors = [tensor for head in heads if (tensor := in_graph(head._data)) is not None]
    starts = [_start(head, tensor, last[id(head)]) for head, tensor in zip(heads, tensors, strict=True)]
    return heads, tensors, starts


def _start(head: NDArray, tensor: torch.Tensor, given: NDArray | None) -> torch.Tensor | None:
    """Return the head gradient for `tensor`: the given gradient of `head`, or ones.

    None represents a single one, which torch creates itself. If it were passed, torch would import SymPy to check it.
    """
    if given is None:
        return None if tensor.numel() == 1 else torch.ones_like(tensor)
    return given._data.to(head._data.dtype).to(tensor.dtype)


def _run(compute: Any, train_mode: bool, accumulating: bool) -> Any:
    previous = Backward.train_mode, Backward.accumulating
    Backward.train_mode, Backward.accumulating = train_mode, accumulating
    try:
        return compute()
    except MXNetError:
        raise  # such as PeerError: the message is complete, and programs may catch the type
    except RuntimeError as error:
        if "second time" in str(error):
            raise MXNetError(
                "this graph has already been differentiated and was freed. Pass retain_graph=True to the first backward"
            ) from error
        raise MXNetError(f"backward: {explained(str(error))}") from error
    finally:
        Backward.train_mode, Backward.accumulating = previous


def _release(heads: list[NDArray]) -> None:
    """Treat the arrays that a backward pass went through as constants from now on, as MXNet does.

    The state of a recurrent network can then be used in the next step without `detach`.
    """
    held: dict[Any, list[NDArray]] = {}  # by node of torch's graph
    for array in (*heads, *(reference() for reference in modes.tape)):
        if array is not None and (node := _node(array._data)) is not None:
            held.setdefault(node, []).append(array)
    nodes = [_node(head._data) for head in heads]
    seen: set[Any] = set()
    for node in nodes:  # breadth first: arrays that are still referenced are mostly near the heads
        if not held:
            break
        if node is None or node in seen:
            continue
        seen.add(node)
        for array in held.pop(node, ()):
            array._data, array._history = outside(array._data), None
        nodes.extend(following for following, _ in node.next_functions)
    modes.tape = [weakref.ref(array) for arrays in held.values() for array in arrays]


def _node(tensor: torch.Tensor) -> Any:
    """Return the node of torch's graph that computed a tensor, or its substitute; None for a leaf."""
    source = in_graph(tensor)
    return None if source is None else source.grad_fn


def _reaches(tensors: list[torch.Tensor], variable: torch.Tensor) -> bool:
    """Whether any of the tensors was computed from a variable."""
    nodes: list[Any] = [get_gradient_edge(tensor).node for tensor in tensors]
    wanted = get_gradient_edge(variable).node
    seen: set[Any] = set()
    for node in nodes:
        if node is wanted:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            nodes.extend(following for following, _ in node.next_functions)
    return False


def backward(heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
    """Compute the gradients of `heads` with respect to all variables that they depend on.

    A gradient overwrites that of the previous backward unless the variable has grad_req='add'.
    """
    started = perf_counter()
    _backward(heads, head_grads, retain_graph, train_mode)
    if heard("backward"):
        seconds = perf_counter() - started
        _TimedScope.inside += seconds
        emit("backward", seconds=seconds)


def _backward(heads: Any, head_grads: Any, retain_graph: bool, train_mode: bool) -> None:
    arrays, tensors, starts = _heads(heads, head_grads)
    with _Scope(False, train_mode):
        _run(lambda: torch.autograd.backward(tensors, starts, retain_graph=retain_graph), train_mode, accumulating=True)
    if not retain_graph:
        _release(arrays)


def grad(
    heads: Any,
    variables: Any,
    head_grads: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> list[NDArray]:
    """Return the gradients of `heads` with respect to `variables` as new arrays, without changing `.grad`.

    With `create_graph`, the gradients can be differentiated again. The derivative of a constant gradient is zero.
    """
    arrays, tensors, starts = _heads(heads, head_grads)
    variables = [variables] if isinstance(variables, NDArray) else list(variables)
    if not variables:
        raise ValueError("grad: expected at least one variable")
    for i, variable in enumerate(variables):
        if not variable._data.requires_grad:
            raise MXNetError(f"grad: variable {i} has no gradient buffer. Call attach_grad() on it before recording")
    with _Scope(create_graph, train_mode):
        results = _run(
            lambda: torch.autograd.grad(
                tensors,
                [variable._data for variable in variables],
                starts,
                retain_graph=create_graph if retain_graph is None else retain_graph,
                create_graph=create_graph,
                allow_unused=True,
            ),
            train_mode,
            accumulating=False,
        )
    return [
        _gradient(i, result, variable, arrays, create_graph)
        for i, (result, variable) in enumerate(zip(results, variables, strict=True))
    ]


def _gradient(
    i: int, result: torch.Tensor | None, variable: NDArray, heads: list[NDArray], create_graph: bool
) -> NDArray:
    """Return the gradient with respect to variable `i`, or zeros if it only passed through ops without a gradient."""
    if result is None:
        if not _reaches([tensor for head in heads if (tensor := in_graph(head._data)) is not None], variable._data):
            raise MXNetError(f"grad: variable {i} is not reachable from the heads")
        result = torch.zeros_like(variable._data, requires_grad=False)
    elif result.is_sparse:
        result = result.to_dense()
    if not create_graph:
        return variable._kind(result, variable._ctx)
    with torch.enable_grad():
        (result,) = join((result,), (variable._data,))
    return on_tape(variable._kind(result, variable._ctx), step(_GRADIENT, {}, (*heads, variable)))


def get_symbol(x: NDArray) -> Any:
    """Return the Symbol of the recorded computation of an array.

    Its arguments are the arrays that the computation started from: `var0`, `var1`, ... for arrays with a gradient,
    `null2`, ... for the others. They are numbered in order of first use.
    """
    if not isinstance(x, NDArray):
        raise AssertionError(f"get_symbol expects an NDArray, received {type(x).__name__}")
    return import_module("neomx.symbol.history").recorded_symbol(x)  # imported lazily: it imports this module


class Function:
    """An operation with a custom gradient: override `forward` and `backward`, then call the object.

    >>> class Double(Function):
    ...     def forward(self, x): return x * 2
    ...     def backward(self, dy): return dy * 2
    """

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Save arrays for `backward`, where they are available as `saved_tensors`."""
        self._saved = args

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The arrays passed to `save_for_backward`."""
        return self._saved

    def forward(self, *inputs: Any) -> Any:
        """Compute the outputs from arrays."""
        raise NotImplementedError("override forward")

    def backward(self, *output_grads: Any) -> Any:
        """Compute the gradient of each input from the gradient of each output."""
        raise NotImplementedError("override backward")

    def __call__(self, *inputs: NDArray) -> Any:
        """Apply `forward` to the inputs, and record the operation if autograd is recording."""
        with pause(train_mode=modes.training):
            outputs = self.forward(*inputs)
        single = isinstance(outputs, NDArray)
        if not modes.recording:
            return outputs
        results = [outputs] if single else list(outputs)
        with torch.enable_grad():
            tensors = _Bridge.apply(self, results, *[x._data for x in inputs])
        call = step(_FUNCTION, {"count": len(tensors)}, inputs)
        pairs = zip(tensors, results, strict=True)
        wrapped = [on_tape(r._kind(t, r._ctx), (call, number)) for number, (t, r) in enumerate(pairs)]
        return wrapped[0] if single else wrapped


class _Bridge(torch.autograd.Function):
    """Inserts a Function's outputs into torch's graph."""

    @staticmethod
    def forward(ctx: Any, function: Function, outputs: list[NDArray], *inputs: torch.Tensor) -> Any:
        ctx.function = function
        ctx.kinds = [(output._kind, output._ctx) for output in outputs]
        ctx.count = len(inputs)
        return tuple(output._data.detach().view_as(output._data) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        with pause(train_mode=modes.training):
            results = ctx.function.backward(
                *[kind(g.contiguous(), c) for g, (kind, c) in zip(grads, ctx.kinds, strict=True)]
            )
        results = [results] if isinstance(results, NDArray) else list(results)
        if len(results) != ctx.count:
            raise MXNetError(
                f"{type(ctx.function).__name__}.backward must return {ctx.count} gradient(s), one for each input of "
                f"forward, but returned {len(results)}"
            )
        return None, None, *[r if r is None else r._data for r in results]
