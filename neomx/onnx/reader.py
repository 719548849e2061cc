"""Conversion of an ONNX graph to a Symbol: each node is converted by the function registered for its operator."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import symbol as sym
from ..base import MXNetError
from ..convert.onnx_file import onnx_package, reading
from ..ndarray import NDArray, array
from ..symbol import Symbol
from .lengths import lengths_of
from .sizes import elements_of

Translator = Callable[["Call"], Any]
TRANSLATORS: dict[str, Translator] = {}


def translates(*names: str) -> Callable[[Translator], Translator]:
    """Register a function as the translator of the ONNX operators with these names."""

    def register(function: Translator) -> Translator:
        TRANSLATORS.update(dict.fromkeys(names, function))
        return function

    return register


class Graph:
    """The state of a conversion: symbols and constants by their ONNX names, and static shapes."""

    def __init__(self, model: Any):
        onnx = onnx_package()
        self.opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
        self.symbols: dict[str, Symbol] = {}
        self.constants = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
        # Limit on what is computed from constants, in elements.
        self.elements_left = (1 << 24) + 8 * sum(each.size for each in self.constants.values())
        self.partial: dict[str, np.ndarray] = {}  # lists of dimensions, some of which are symbolic
        self.params: dict[str, np.ndarray] = {}
        self.shapes = _static_shapes(model)
        self.node_names: set[str] = set()
        for value in model.graph.input:
            if value.name not in self.constants:
                self.symbols[value.name] = sym.var(value.name)

    def symbol(self, name: str) -> Symbol:
        """Return the symbol of a value; a constant becomes a variable whose array is added to the parameters."""
        if name not in self.symbols:
            if name not in self.constants:
                raise MXNetError(f"the value {name!r}, a dynamic shape, cannot be used in computations")
            self.symbols[name] = self.parameter(name, self.constants[name])
        return self.symbols[name]

    def parameter(self, name: str, value: np.ndarray) -> Symbol:
        """Add a parameter and return its variable."""
        self.params[name] = value.reshape(1) if value.ndim == 0 else value  # MXNet has no 0-dimensional arrays
        return sym.var(name)

    def check_size(self, node: Any, elements: int) -> None:
        """Raise MXNetError if the results of constant nodes are too large for a model of this size."""
        if elements > self.elements_left:
            raise MXNetError(
                f"ONNX operator {node.op_type} of node {node.name!r}: its constant results are too large for a "
                "model of this size"
            )

    def add(self, node: Any) -> None:
        """Convert a node, or compute it if all of its inputs are constant."""
        call = Call(self, node)
        results: Sequence[Any]
        if (lengths := lengths_of(call)) is not None:
            results = [lengths]
        elif node.op_type == "Constant" or node.input and all(not n or n in self.constants for n in node.input):
            results = _computed(node, self)
        elif node.op_type in TRANSLATORS and node.domain in ("", "ai.onnx"):
            made = call.translated()
            results = made if isinstance(made, (list, tuple)) else [made]
        else:
            known = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            raise MXNetError(f"ONNX operator {known} of node {call.name!r} is not supported")
        for name, result in zip(node.output, results, strict=False):
            if isinstance(result, Symbol):
                self.symbols[name] = result
            elif result.dtype == object and any(isinstance(n, str) for n in result.reshape(-1)):
                self.partial[name] = result
            else:
                self.constants[name] = result.astype(np.int64) if result.dtype == object else result


class Call:
    """An ONNX node as translators see it: attributes, inputs as symbols or constants, and shapes."""

    def __init__(self, graph: Graph, node: Any):
        onnx = onnx_package()
        self.graph, self.node, self.op, self.opset = graph, node, node.op_type, graph.opset
        self.attrs = {each.name: _value(onnx.helper.get_attribute_value(each)) for each in node.attribute}
        self.name = node.name or node.output[0]
        self.count = len(node.input)

    def translated(self) -> Any:
        """Return the result of the translator; its errors name the node."""
        try:
            return TRANSLATORS[self.op](self)
        except MXNetError as error:
            raise MXNetError(f"ONNX operator {self.op} of node {self.name!r}: {error}") from None

    def fail(self, problem: str) -> MXNetError:
        """Return an error; `translated` adds the operator and the node."""
        return MXNetError(problem)

    def has(self, index: int) -> bool:
        """Return whether an optional input is given."""
        return index < self.count and bool(self.node.input[index])

    def __getitem__(self, index: int) -> Symbol:
        return self.graph.symbol(self.node.input[index])

    def all(self) -> list[Symbol]:
        """Return all inputs, as symbols."""
        return [self[i] for i in range(self.count)]

    def constant(self, index: int) -> np.ndarray | None:
        """Return the value of an input if it is constant, else None."""
        return self.graph.constants.get(self.node.input[index]) if self.has(index) else None

    def known(self, index: int, what: str) -> np.ndarray:
        """Return the value of an input that must be constant."""
        value = self.constant(index)
        if value is None:
            raise self.fail(f"{what} must be constant, but the model computes it")
        return value

    def numbers(self, index: int, attr: str) -> list[int] | None:
        """Return integers that old opsets have as an attribute and new ones as a constant input; None if not given."""
        if attr in self.attrs:
            return list(self.attrs[attr])
        return [int(n) for n in self.known(index, attr).reshape(-1)] if self.has(index) else None

    def shape(self, index: int) -> tuple[int, ...] | None:
        """Return the shape of an input if all dimensions are known, else None."""
        shape = self.dims(self.node.input[index])
        return shape if shape is not None and all(isinstance(n, int) for n in shape) else None  # type: ignore[return-value]

    def rank(self, index: int) -> int:
        """Return the number of dimensions of an input."""
        shape = self.dims(self.node.input[index])
        if shape is None:
            raise self.fail(f"the number of dimensions of its input {self.node.input[index]!r} is unknown")
        return len(shape)

    def dims(self, name: str) -> tuple[int | str | None, ...] | None:
        """Return the dimensions of a value: integers, names of symbolic dimensions, or None."""
        if name in self.graph.constants:
            return self.graph.constants[name].shape
        return self.graph.shapes.get(name)

    def unique_name(self) -> str | None:
        """Return the name for this node's symbol; None if the name is already used."""
        name = self.name if self.name not in self.graph.node_names else self.node.output[0]
        if name in self.graph.node_names or name in self.graph.symbols:
            return None
        self.graph.node_names.add(name)
        return name

    def make(self, op: Callable[..., Symbol], *inputs: Symbol, **attrs: Any) -> Symbol:
        """Return the node's symbol, created under its name."""
        return op(*inputs, name=self.unique_name(), **attrs)

    def parameter(self, suffix: str, value: np.ndarray) -> Symbol:
        """Add a parameter named after the node, and return its variable."""
        return self.graph.parameter(f"{self.name}_{suffix}", value)


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return onnx_package().numpy_helper.to_array(value) if hasattr(value, "raw_data") else value


def _static_shapes(model: Any) -> dict[str, tuple[int | str | None, ...]]:
    """Return the shapes of all values as far as onnx can infer them."""
    onnx = onnx_package()
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_propagation=True)
    except Exception:  # over 2 GB, or rejected by the checks: use the shapes in the file
        inferred = model
    shapes: dict[str, tuple[int | str | None, ...]] = {}
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            shapes[value.name] = tuple(
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim
            )
    return shapes


def _computed(node: Any, graph: Graph) -> list[np.ndarray]:
    """Compute a node of constants by onnx's reference implementation."""
    reference = onnx_package("onnx.reference")
    fed = {name: graph.constants[name] for name in node.input if name}
    if node.op_type in ("Loop", "Scan", "SequenceMap"):
        raise MXNetError(f"ONNX operator {node.op_type} of node {node.name!r} is not supported")
    graph.check_size(node, elements_of(node, [fed.get(name) for name in node.input]))
    try:
        evaluator = reference.ReferenceEvaluator(node, opsets={"": graph.opset, node.domain: graph.opset})
        results = [np.asarray(each) for each in evaluator.run(None, fed)]
    except Exception as error:  # the reference implementation may raise anything
        raise MXNetError(f"ONNX operator {node.op_type} of node {node.name!r}, of constants: {error!s:.200}") from error
    graph.check_size(node, sum(each.size for each in results))
    graph.elements_left -= sum(each.size for each in results)
    return results


def read(model_file: str | os.PathLike[str]) -> Any:
    """Return the model in a file."""
    onnx = onnx_package()
    path = os.fspath(model_file)
    if not os.path.isfile(path):
        raise MXNetError(f"cannot read {path}: no such file")
    with reading(path):
        return onnx.load(path)


def to_symbol(model: Any) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """Return the symbol of a model, and the arrays of its arguments and auxiliary states."""
    from . import layers, tensors  # noqa: F401  the translators

    graph = Graph(model)
    for node in model.graph.node:
        graph.add(node)
    outputs = [graph.symbol(value.name) for value in model.graph.output]
    symbol = outputs[0] if len(outputs) == 1 else sym.Group(outputs)
    states = set(symbol.list_auxiliary_states())
    used = {
        name: array(graph.params[name], dtype=graph.params[name].dtype)
        for name in symbol.list_inputs()
        if name in graph.params
    }
    return (
        symbol,
        {name: value for name, value in used.items() if name not in states},
        {name: value for name, value in used.items() if name in states},
    )
