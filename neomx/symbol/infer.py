"""Shapes and dtypes of a graph before anything is computed: each op runs on tensors without memory.

A dimension of 0 and a shape or dtype of None are unknown. Knowledge flows from inputs to outputs and, where an op's
facts in the table say how, to its other inputs and back from its outputs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..base import MXNetError, modes, suggest
from ..context import Context
from ..dtype import NAME_OF_TORCH, NUMPY_OF_TORCH, TORCH_OF_FLAG, to_torch
from ..ops.custom import MEMORY
from ..ops.table import OP_ERRORS, OPS, Op, numbers_in
from .graph import Entry, Node, auxiliary, rebuilt
from .lowering import Run, lower, node_error
from .symbol import Symbol

Shape = tuple[int, ...]


def _nowhere(device: str) -> Context:
    """A context that no program has, so that inference draws from no program's random numbers."""
    ctx = object.__new__(Context)
    ctx.device_type, ctx.device_id, ctx.device = "cpu", 0, torch.device(device)
    return ctx


_META, _CPU = _nowhere("meta"), _nowhere("cpu")
# Two lengths to try in place of an unknown one: where the results differ, they are unknown too.
_TRIALS = (24, 48)
_MOST_ZEROS = 1 << 27  # elements that inference allocates to try an op which reads values


# ---- what Symbol.infer_shape and Symbol.infer_type answer ----


def infer_shape(symbol: Symbol, args: Sequence[Any], kwargs: dict[str, Any], partial: bool) -> Any:
    """(argument shapes, output shapes, auxiliary shapes), or three times None if some stay unknown."""
    given = _by_name(symbol, args, kwargs, "shapes")
    for name, shape in given.items():
        if not isinstance(shape, tuple):
            raise TypeError(f"shapes must be tuples, received {name}={shape!r}")
    graph = Shapes(symbol, {name: shape or None for name, shape in given.items()})
    return _answer(symbol, graph, partial, _is_complete, "shape", lambda shape: shape or ())


def infer_type(symbol: Symbol, args: Sequence[Any], kwargs: dict[str, Any], partial: bool) -> Any:
    """(argument dtypes, output dtypes, auxiliary dtypes), or three times None if some stay unknown."""
    given = _by_name(symbol, args, kwargs, "dtypes")
    graph = Types(symbol, {name: to_torch(dtype) for name, dtype in given.items() if dtype is not None})
    return _answer(symbol, graph, partial, lambda dtype: dtype is not None, "dtype", NUMPY_OF_TORCH.get)


def _by_name(symbol: Symbol, args: Sequence[Any], kwargs: dict[str, Any], what: str) -> dict[str, Any]:
    if args and kwargs:
        raise ValueError(f"{what} are given by position or by name, not both")
    names = symbol.list_arguments()
    if len(args) > len(names):
        raise MXNetError(f"received {len(args)} {what} for the {len(names)} arguments {', '.join(names)}")
    unknown = [name for name in kwargs if name not in symbol.list_inputs()]
    if unknown:
        raise MXNetError(
            f"no argument is called {unknown[0]!r}.{suggest(unknown[0], names)} Arguments: {', '.join(names)}"
        )
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _answer(
    symbol: Symbol, graph: Any, partial: bool, known: Callable[[Any], bool], what: str, shown: Callable[[Any], Any]
) -> Any:
    changed = auxiliary(graph.order)
    variables = [node for node in graph.order if node.op is None]
    if not partial and not all(known(graph.of[id(n), i]) for n in graph.order for i in range(n.count_outputs())):
        missing = [f"{n.name}: {shown(graph.of[id(n), 0])}" for n in variables if not known(graph.of[id(n), 0])]
        if missing:
            warnings.warn(
                f"cannot decide the {what} of these arguments, consider giving them: {', '.join(missing)}", stacklevel=4
            )
        return None, None, None
    return (
        [shown(graph.of[id(n), 0]) for n in variables if id(n) not in changed],
        [shown(graph.of[id(n), i]) for n, i in symbol._outputs],
        [shown(graph.of[id(n), 0]) for n in variables if id(n) in changed],
    )


# ---- the two graphs of knowledge ----


class _Knowledge:
    """What is known of each output of each node; `of[id(node), index]`."""

    def __init__(self, symbol: Symbol, given: dict[str, Any]):
        self.order = symbol._nodes()
        self.of: dict[tuple[int, int], Any] = {(id(n), i): None for n in self.order for i in range(n.count_outputs())}
        for node in self.order:
            if node.op is None:
                self.of[id(node), 0] = self.merge(self.noted(node), given.get(node.name), node, node.name)
        operations = [node for node in self.order if node.op is not None]
        direction = operations
        while True:
            before = dict(self.of)
            for node in direction:
                try:
                    self.visit(node)
                except MXNetError:
                    raise
                except OP_ERRORS as error:
                    received = zip(node.input_names(), self.inputs(node), strict=False)
                    raise node_error(node, error, [f"{name}: {known}" for name, known in received]) from error
            if self.of == before and direction is not operations:
                break
            direction = operations[::-1] if direction is operations else operations

    def noted(self, node: Node) -> Any:
        """What a variable's own attributes say."""
        raise NotImplementedError

    def merge(self, old: Any, new: Any, node: Node, what: str) -> Any:
        """Both pieces of knowledge, or an error if they contradict each other."""
        raise NotImplementedError

    def visit(self, node: Node) -> None:
        """Learn what follows from what is known around a node."""
        raise NotImplementedError

    def inputs(self, node: Node) -> list[Any]:
        return [self.of[id(n), i] for n, i in node.inputs]

    def outputs(self, node: Node) -> list[Any]:
        return [self.of[id(node), i] for i in range(node.count_outputs())]

    def learn(self, node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        for name, (n, i), new in zip(node.input_names(), node.inputs, inputs, strict=True):
            self.of[id(n), i] = self.merge(self.of[id(n), i], new, node, name)
        for i, new in enumerate(outputs):
            self.of[id(node), i] = self.merge(self.of[id(node), i], new, node, f"output {i}")


class Types(_Knowledge):
    """The dtypes of a graph."""

    def noted(self, node: Node) -> torch.dtype | None:
        flag = node.attrs.get("__dtype__", "-1")
        try:
            return TORCH_OF_FLAG.get(int(flag)) if flag.removeprefix("-").isdecimal() else to_torch(flag)
        except (ValueError, MXNetError) as error:
            raise MXNetError(f"variable {node.name!r}: __dtype__ is {flag!r:.80}: {error!s:.200}") from None

    def merge(self, old: Any, new: Any, node: Node, what: str) -> Any:
        if old is not None and new is not None and old is not new:
            if node.op is None:
                return new
            raise node_error(
                node,
                f"expected {what} of {NAME_OF_TORCH[new]}, got {NAME_OF_TORCH[old]}. Use Cast",
                [
                    f"{name}: {NAME_OF_TORCH.get(t)}"
                    for name, t in zip(node.input_names(), self.inputs(node), strict=True)
                ],
            )
        return old or new

    def visit(self, node: Node) -> None:
        self.learn(node, *types_of(node, self.inputs(node), self.outputs(node)))


def types_of(node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The dtypes of a node's inputs and outputs, as far as those that are known tell them."""
    op = node.op
    assert op is not None
    if op.types is not None:
        return op.types(inputs, op.with_defaults(node.values))
    fixed = op.with_defaults(node.values).get("dtype")
    if isinstance(fixed, torch.dtype):
        return inputs, [fixed] * len(outputs)
    known = next((t for t in (*inputs, *outputs) if t is not None), None)
    if op.same_dtype or not inputs:
        return [known] * len(inputs), [known] * len(outputs)
    return [t or known for t in inputs], [inputs[0] or known] * len(outputs)


class Shapes(_Knowledge):
    """The shapes of a graph; dtypes matter little and are inferred beside."""

    def __init__(self, symbol: Symbol, given: dict[str, Any], types: Types | None = None):
        self.types = types or Types(symbol, {})
        self.run_on: dict[int, list[Any]] = {}  # by node: the input shapes that it ran with
        super().__init__(symbol, given)

    def noted(self, node: Node) -> Shape | None:
        text = node.attrs.get("__shape__")
        if text is None:
            return None
        try:
            return tuple(int(n or 0) for n in numbers_in(text)) or None
        except (ValueError, OverflowError):
            raise MXNetError(f"variable {node.name!r}: __shape__ is {text!r:.80}, expected a shape") from None

    def merge(self, old: Any, new: Any, node: Node, what: str) -> Any:
        if old is None or new is None or old == new:
            return old or new
        if len(old) != len(new) or any(a and b and a != b for a, b in zip(old, new, strict=True)):
            received = zip(node.input_names(), self.inputs(node), strict=True)
            if node.op is None:
                raise MXNetError(f"variable {what!r} is declared with shape {old}, received {new}")
            raise node_error(node, f"expected {what} of shape {new}, got {old}", [f"{n}: {s}" for n, s in received])
        return tuple(a or b for a, b in zip(old, new, strict=True))

    def visit(self, node: Node) -> None:
        op = node.op
        assert op is not None
        inputs = self.inputs(node)
        if op.infer == "same":
            one: Any = None
            for shape in (*inputs, *self.outputs(node)):
                one = self.merge(shape, one, node, "an input")
            self.learn(node, [one] * len(inputs), [one] * node.count_outputs())
            return
        if op.infer is not None:
            found = op.infer(inputs, self.outputs(node), op.with_defaults(node.values))
            if isinstance(found, tuple):
                self.learn(node, *found)
                return
            # A shape that is known stands, even if another is usual there.
            self.learn(node, [old if _is_complete(old) else new for old, new in zip(inputs, found, strict=True)], [])
            inputs = self.inputs(node)
        if None not in inputs and self.run_on.get(id(node)) != inputs:
            self.run_on[id(node)] = inputs
            self.learn(node, inputs, self._run(node, op, inputs))

    def _run(self, node: Node, op: Op, inputs: list[Shape]) -> list[Shape | None]:
        """Output shapes by running the op; twice where lengths are unknown."""
        if all(map(_is_complete, inputs)):
            try:
                return list(run_without_values(node, op, inputs, self._dtypes(node)))
            except OP_ERRORS as error:
                names = zip(node.input_names(), inputs, strict=True)
                raise node_error(node, error, [f"{name}: {list(shape)}" for name, shape in names]) from error
        tries = []
        for length in _TRIALS:
            shapes = [tuple(n or length for n in shape) for shape in inputs]
            try:
                tries.append(run_without_values(node, op, shapes, self._dtypes(node)))
            except OP_ERRORS:
                return [None] * node.count_outputs()
        return [
            tuple(a if a == b else 0 for a, b in zip(first, second, strict=True)) if len(first) == len(second) else None
            for first, second in zip(*tries, strict=True)
        ]

    def _dtypes(self, node: Node) -> list[torch.dtype]:
        return [dtype or torch.float32 for dtype in self.types.inputs(node)]


def run_without_values(node: Node, op: Op, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> list[Shape]:
    """The shapes of what an op gives for inputs of such shapes."""
    try:
        results = _call(node, op, shapes, dtypes, _META)
    except MXNetError:
        raise
    except (RuntimeError, NotImplementedError):
        if sum(map(math.prod, shapes)) > _MOST_ZEROS:
            raise
        results = _call(node, op, shapes, dtypes, _CPU)  # the op reads values: give it zeros
    return [tuple(result.shape) for result in results]


def _call(node: Node, op: Op, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype], ctx: Context) -> Any:
    tensors = [torch.zeros(s, dtype=t, device=ctx.device) for s, t in zip(shapes, dtypes, strict=True)]
    by_name = {}
    if not op.variadic:
        by_name, tensors = dict(zip(node.input_names(), tensors, strict=True)), []
    values = {**node.values, "ctx": ctx} if op.needs_ctx else node.values
    training, modes.training = modes.training, False
    try:
        with torch.no_grad():
            result = op.fn(*tensors, **by_name, **values)
    finally:
        modes.training = training
    return [result] if isinstance(result, torch.Tensor) else list(result)


def resolved(symbol: Symbol, shapes: Shapes) -> Symbol:
    """The symbol to run: `zeros(shape=(0, 5))` and the like get the shape that was inferred for them.

    Custom ops get a memory, as a bound graph keeps them from one run to the next.
    """

    def replace(node: Node, inputs: list[Entry]) -> list[Entry] | None:
        if node.op is OPS["Custom"]:
            kept = Node(node.op, node.name, inputs, node.attrs, {**node.values, MEMORY: {}})
            return [(kept, i) for i in range(node.count_outputs())]
        shape = shapes.of[id(node), 0] if _is_unfinished(node) else None
        if shape is None or 0 in shape:
            return None
        return [(Node(node.op, node.name, inputs, node.attrs, {**node.values, "shape": shape}), 0)]

    changes = any(_is_unfinished(node) or node.op is OPS["Custom"] for node in shapes.order)
    return type(symbol)(rebuilt(symbol._outputs, replace)) if changes else symbol


def run_for_any_shape(symbol: Symbol, names: Sequence[str], finish: Callable[[Run], Run] = lambda run: run) -> Run:
    """`lower(symbol, names)`; for each shape of the inputs anew where the graph has shapes that depend on them.

    `finish` is applied to what is lowered.
    """
    # RNN takes a state for a batch of 0 for zeros, whatever the batch.
    nodes = [node for node in symbol._nodes() if node.op is not OPS["RNN"]]
    used = [*symbol._outputs, *(entry for node in nodes for entry in node.inputs)]
    if not any(_is_unfinished(node) for node, _ in used):
        return finish(lower(symbol, names))
    runs: dict[Any, Run] = {}

    def run(ctx: Context, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        key = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if key not in runs:
            types = Types(symbol, dict(zip(names, (dtype for _, dtype in key), strict=True)))
            shapes = Shapes(symbol, {name: tuple(shape) for name, (shape, _) in zip(names, key, strict=True)}, types)
            runs[key] = finish(lower(resolved(symbol, shapes), names))
        return runs[key](ctx, tensors)

    return run


def _is_unfinished(node: Node) -> bool:
    """Whether a node makes an array of a shape that is not known yet."""
    shape = node.values.get("shape")  # `shape` of a gamma distribution is a number
    return node.op is not None and not node.inputs and isinstance(shape, tuple) and 0 in shape


def _is_complete(shape: Shape | None) -> bool:
    return shape is not None and 0 not in shape
