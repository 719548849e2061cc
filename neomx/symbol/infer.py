"""Infer shapes and dtypes of a graph by running each op on tensors without memory.

A dimension of -1 and a shape or dtype of None are unknown. Programs write 0 and () for these unless np_shape is on.
Shapes and dtypes propagate from inputs to outputs. Where the op table defines it, they also propagate to other inputs
and from outputs to inputs.
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
from ..ops.shapes import UNKNOWN, is_known, merged
from ..ops.table import OP_ERRORS, OPS, Op, numbers_in
from .graph import Entry, Node, auxiliary, rebuilt
from .lowering import Run, lower, node_error
from .rewrite import deduplicated
from .symbol import Symbol

Shape = tuple[int, ...]


def _nowhere(device: str) -> Context:
    """Return a context that programs cannot use, so that inference does not advance any random number generator."""
    ctx = object.__new__(Context)
    ctx.device_type, ctx.device_id, ctx.device = "cpu", 0, torch.device(device)
    return ctx


_META, _CPU = _nowhere("meta"), _nowhere("cpu")
# Two sizes that are substituted for an unknown dimension. Dimensions in which the results differ are unknown.
_TRIALS = (24, 48)
_MOST_DIMS = 32  # the same limit as in MXNet's array files
_MOST_ZEROS = 1 << 27  # limit on elements allocated to run an op that reads values


# ---- implementation of Symbol.infer_shape and Symbol.infer_type ----


def infer_shape(symbol: Symbol, args: Sequence[Any], kwargs: dict[str, Any], partial: bool) -> Any:
    """Return (argument shapes, output shapes, auxiliary shapes), or (None, None, None) if some are unknown."""
    given = _by_name(symbol, args, kwargs, "shapes")
    for name, shape in given.items():
        if not isinstance(shape, tuple):
            raise TypeError(f"shapes must be tuples, received {name}={shape!r}")
    graph = Shapes(symbol, {name: as_known(shape) for name, shape in given.items()})
    return _answer(symbol, graph, partial, is_known, "shape", _as_written)


def as_known(shape: Sequence[int] | None) -> Shape | None:
    """Convert a shape from a program. np_shape determines which dimensions are unknown."""
    if shape is None or not (shape or modes.np_shape):
        return None
    return tuple(n if n > 0 or (n == 0 and modes.np_shape) else UNKNOWN for n in shape)


def _as_written(shape: Shape | None) -> Shape | None:
    """Convert a shape to the form that programs use."""
    if modes.np_shape:
        return shape
    return tuple(max(n, 0) for n in shape or ())


def infer_type(symbol: Symbol, args: Sequence[Any], kwargs: dict[str, Any], partial: bool) -> Any:
    """Return (argument dtypes, output dtypes, auxiliary dtypes), or (None, None, None) if some are unknown."""
    given = _by_name(symbol, args, kwargs, "dtypes")
    graph = Types(symbol, {name: to_torch(dtype) for name, dtype in given.items() if dtype is not None})
    return _answer(symbol, graph, partial, lambda dtype: dtype is not None, "dtype", NUMPY_OF_TORCH.get)


def _by_name(symbol: Symbol, args: Sequence[Any], kwargs: dict[str, Any], what: str) -> dict[str, Any]:
    if args and kwargs:
        raise ValueError(f"pass {what} either by position or by name, not both")
    names = symbol.list_arguments()
    if len(args) > len(names):
        raise MXNetError(f"received {len(args)} {what} for the {len(names)} arguments {', '.join(names)}")
    unknown = [name for name in kwargs if name not in symbol.list_inputs()]
    if unknown:
        raise MXNetError(f"unknown argument {unknown[0]!r}.{suggest(unknown[0], names)} Arguments: {', '.join(names)}")
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
                f"cannot infer the {what} of these arguments, consider passing them: {', '.join(missing)}", stacklevel=4
            )
        return None, None, None
    return (
        [shown(graph.of[id(n), 0]) for n in variables if id(n) not in changed],
        [shown(graph.of[id(n), i]) for n, i in symbol._outputs],
        [shown(graph.of[id(n), 0]) for n in variables if id(n) in changed],
    )


# ---- inference of shapes and of dtypes ----


class _Knowledge:
    """What has been inferred for each output of each node: `of[id(node), index]`."""

    def __init__(self, symbol: Symbol, given: dict[str, Any]):
        self.order = symbol._nodes()
        self.of: dict[tuple[int, int], Any] = {(id(n), i): None for n in self.order for i in range(n.count_outputs())}
        for node in self.order:
            if node.op is None:
                self.of[id(node), 0] = self.start(node, given.get(node.name))
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

    def start(self, node: Node, given: Any) -> Any:
        """Return the initial value for a variable: `given`, or else its own attributes."""
        raise NotImplementedError

    def merge(self, old: Any, new: Any, node: Node, what: str) -> Any:
        """Merge two partial results, or raise an error if they contradict each other."""
        raise NotImplementedError

    def visit(self, node: Node) -> None:
        """Infer values for a node from those of its neighbors."""
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

    def start(self, node: Node, given: Any) -> torch.dtype | None:
        flag = node.attrs.get("__dtype__", "-1")
        try:
            noted = TORCH_OF_FLAG.get(int(flag)) if flag.removeprefix("-").isdecimal() else to_torch(flag)
        except (ValueError, MXNetError) as error:
            raise MXNetError(f"variable {node.name!r}: __dtype__ is {flag!r:.80}: {error!s:.200}") from None
        return noted if given is None else given

    def merge(self, old: Any, new: Any, node: Node, what: str) -> Any:
        if old is not None and new is not None and old is not new:
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
    """Return the dtypes of a node's inputs and outputs, as far as they follow from the known ones."""
    op = node.op
    assert op is not None
    if op.types is not None:
        attrs = op.with_defaults(node.values)
        if op is not OPS["Custom"] and "subgraphs" not in attrs:
            inputs = [t or _type_from_output(op, attrs, inputs, i, outputs) for i, t in enumerate(inputs)]
        return op.types(inputs, attrs)
    fixed = op.with_defaults(node.values).get("dtype")
    if isinstance(fixed, torch.dtype):
        return inputs, [fixed] * len(outputs)
    known = next((t for t in (*inputs, *outputs) if t is not None), None)
    if op.same_dtype or not inputs:
        return [known] * len(inputs), [known] * len(outputs)
    return [t or known for t in inputs], [inputs[0] or known] * len(outputs)


def _type_from_output(op: Op, attrs: dict[str, Any], inputs: Sequence[Any], i: int, outputs: Sequence[Any]) -> Any:
    """Return the first output's dtype if it always equals that of input i, else None."""
    assert op.types is not None
    if not outputs or outputs[0] is None:
        return None
    for dtype in (outputs[0], torch.float64 if outputs[0] is not torch.float64 else torch.float32):
        if op.types([*inputs[:i], dtype, *inputs[i + 1 :]], attrs)[1][0] is not dtype:
            return None
    return outputs[0]


class Shapes(_Knowledge):
    """The shapes of a graph. Dtypes are inferred along with them."""

    def __init__(self, symbol: Symbol, given: dict[str, Any], types: Types | None = None):
        self.types = types or Types(symbol, {})
        self.run_on: dict[int, list[Any]] = {}  # for each node id: the input shapes that it ran with
        super().__init__(symbol, given)

    def start(self, node: Node, given: Any) -> Shape | None:
        """Use the declared shape if the given one is missing or has unknown dimensions."""
        text = node.attrs.get("__shape__")
        if text is None or is_known(given):
            return given
        try:
            shape = [int(n or 0) for n in numbers_in(text)]
            if len(shape) > _MOST_DIMS or not all(-1 <= n < 1 << 63 for n in shape):
                raise ValueError("out of range")
            return as_known(shape)
        except (ValueError, OverflowError):
            raise MXNetError(f"variable {node.name!r}: __shape__ is {text!r:.80}, expected a shape") from None

    def merge(self, old: Any, new: Any, node: Node, what: str) -> Any:
        try:
            return merged(old, new)
        except ValueError:
            received = zip(node.input_names(), self.inputs(node), strict=True)
            raise node_error(
                node, f"expected {what} of shape {new}, got {old}", [f"{n}: {s}" for n, s in received]
            ) from None

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
            # A known shape takes precedence over the op's default.
            self.learn(node, [old if is_known(old) else new for old, new in zip(inputs, found, strict=True)], [])
            inputs = self.inputs(node)
        if _is_unfinished(node):
            self.learn(node, inputs, [as_known(node.values["shape"])])
        elif None not in inputs and self.run_on.get(id(node)) != inputs:
            self.run_on[id(node)] = inputs
            self.learn(node, inputs, self._run(node, op, inputs))

    def _run(self, node: Node, op: Op, inputs: list[Shape]) -> list[Shape | None]:
        """Infer output shapes by running the op, twice if dimensions are unknown."""
        if all(map(is_known, inputs)):
            try:
                return list(run_without_values(node, op, inputs, self._dtypes(node)))
            except OP_ERRORS as error:
                names = zip(node.input_names(), inputs, strict=True)
                raise node_error(node, error, [f"{name}: {list(shape)}" for name, shape in names]) from error
        tries = []
        for length in _TRIALS:
            shapes = _tried(node, op, inputs, length)
            try:
                tries.append(run_without_values(node, op, shapes, self._dtypes(node)))
            except OP_ERRORS:
                return [None] * node.count_outputs()
        return [
            tuple(a if a == b else UNKNOWN for a, b in zip(first, second, strict=True))
            if len(first) == len(second)
            else None
            for first, second in zip(*tries, strict=True)
        ]

    def _dtypes(self, node: Node) -> list[torch.dtype]:
        return [dtype or torch.float32 for dtype in self.types.inputs(node)]


def _tried(node: Node, op: Op, shapes: Sequence[Shape], length: int) -> list[Shape]:
    """Complete the shapes: `length` for unknown dimensions, and weights of the shapes that the data then requires."""
    tried = [tuple(length if n == UNKNOWN else n for n in shape) for shape in shapes]
    if op.infer is None or op.infer == "same" or len(tried) == 1 or is_known(shapes[0]):
        return tried
    unknown = [(UNKNOWN,) * len(shape) for shape in tried[1:]]
    found = op.infer([tried[0], *unknown], [None] * node.count_outputs(), op.with_defaults(node.values))
    found = found[0] if isinstance(found, tuple) else found
    return [new if is_known(new) and len(new) == len(old) else old for old, new in zip(tried, found, strict=True)]


def run_without_values(node: Node, op: Op, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> list[Shape]:
    """Return the shapes of an op's results for inputs of the given shapes."""
    try:
        results = _call(node, op, shapes, dtypes, _META)
    except MXNetError:
        raise
    except (RuntimeError, NotImplementedError):
        if sum(map(math.prod, shapes)) > _MOST_ZEROS:
            raise
        results = _call(node, op, shapes, dtypes, _CPU)  # the op reads values, so run it on zeros
        return [tuple(n or UNKNOWN for n in result.shape) for result in results]  # a size of 0 depends on the values
    return [tuple(result.shape) for result in results]


def _call(node: Node, op: Op, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype], ctx: Context) -> Any:
    tensors = [torch.zeros(s, dtype=t, device=ctx.device) for s, t in zip(shapes, dtypes, strict=True)]
    by_name = {}
    if not op.variadic:
        named = dict(zip(node.input_names(), tensors, strict=True))
        by_name = {name: tensor for i, (name, tensor) in enumerate(named.items()) if op.inputs[i] != name}
        tensors = [tensor for name, tensor in named.items() if name not in by_name]
    values = {**node.values, "ctx": ctx} if op.needs_ctx else node.values
    training, modes.training = modes.training, False
    try:
        with torch.no_grad():
            result = op.fn(*tensors, **by_name, **values)
    finally:
        modes.training = training
    return [result] if isinstance(result, torch.Tensor) else list(result)


def resolved(symbol: Symbol, shapes: Shapes) -> Symbol:
    """Return the symbol to run, in which ops such as `zeros(shape=(0, 5))` have their inferred shapes.

    Custom ops get persistent storage, because a bound graph keeps them between runs.
    """

    def replace(node: Node, inputs: list[Entry]) -> list[Entry] | None:
        if node.op is OPS["Custom"]:
            kept = Node(node.op, node.name, inputs, node.attrs, {**node.values, MEMORY: {}})
            return [(kept, i) for i in range(node.count_outputs())]
        shape = shapes.of[id(node), 0] if _is_unfinished(node) else None
        if not is_known(shape):
            return None
        return [(Node(node.op, node.name, inputs, node.attrs, {**node.values, "shape": shape}), 0)]

    changes = any(_is_unfinished(node) or node.op is OPS["Custom"] for node in shapes.order)
    return type(symbol)(rebuilt(symbol._outputs, replace)) if changes else symbol


def run_for_any_shape(symbol: Symbol, names: Sequence[str], finish: Callable[[Run], Run] = lambda run: run) -> Run:
    """Like `lower(symbol, names)`, but lower again for each input shape if shapes in the graph depend on it.

    `finish` is applied to each lowered function.
    """
    # RNN treats a state with batch size 0 as zeros of any batch size.
    nodes = [node for node in symbol._nodes() if node.op is not OPS["RNN"]]
    used = [*symbol._outputs, *(entry for node in nodes for entry in node.inputs)]
    if not any(_is_unfinished(node) for node, _ in used):
        return finish(lower(_deduplicated(symbol), names))
    runs: dict[Any, Run] = {}

    def run(ctx: Context, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        key = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if key not in runs:
            types = Types(symbol, dict(zip(names, (dtype for _, dtype in key), strict=True)))
            shapes = Shapes(symbol, {name: tuple(shape) for name, (shape, _) in zip(names, key, strict=True)}, types)
            runs[key] = finish(lower(_deduplicated(resolved(symbol, shapes)), names))
        return runs[key](ctx, tensors)

    return run


def _deduplicated(symbol: Symbol) -> Symbol:
    """Return the symbol with equal nodes merged."""
    return type(symbol)(deduplicated(symbol._outputs, with_heads=True))


def _is_unfinished(node: Node) -> bool:
    """Whether a node creates an array whose shape is not yet known."""
    shape = node.values.get("shape")  # a number for gamma distributions
    if node.op is None or node.inputs or not isinstance(shape, tuple) or not shape:
        return False
    return not is_known(as_known(shape))
