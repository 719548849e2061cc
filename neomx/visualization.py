"""mx.viz: draw a network (`plot_network`, by graphviz) or print it as a table (`print_summary`)."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .base import MXNetError
from .symbol import Symbol
from .symbol.graph import Entry, Node

__all__ = ["plot_network", "print_summary"]

_WEIGHTS = ("_weight", "_bias", "_beta", "_gamma", "_moving_var", "_moving_mean", "_running_var", "_running_mean")
_VARIABLE, _OTHER = "#8dd3c7", "#fccde5"
_COLOURS = {
    "Convolution": "#fb8072",
    "FullyConnected": "#fb8072",
    "BatchNorm": "#bebada",
    "Activation": "#ffffb3",
    "LeakyReLU": "#ffffb3",
    "Pooling": "#80b1d3",
    "Concat": "#fdb462",
    "Flatten": "#fdb462",
    "Reshape": "#fdb462",
}
_BOX = {"shape": "box", "fixedsize": "true", "width": "1.3", "height": "0.8034", "style": "filled"}


def _op(node: Node) -> str:
    return "null" if node.op is None else node.op.name


def _numbers(text: str) -> list[int]:
    """Return the integers of an attribute such as (3, 3)."""
    return list(map(int, re.findall(r"\d+", text)))


def _by(sizes: Sequence[int]) -> str:
    """Format sizes as 3x16x16."""
    return "x".join(map(str, sizes))


def _complete(what: str, infer: Callable[..., Any], given: dict[str, Any]) -> Sequence[Any]:
    """Return what is inferred of the outputs; if incomplete, raise an error with the warnings of the inference."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        outputs = infer(**given)[1]
    if outputs is None:
        raise ValueError(". ".join([f"Input {what} is incomplete", *(str(each.message) for each in said)]))
    return outputs


class _Inferred:
    """Inferred shapes and dtypes of the outputs of all nodes."""

    def __init__(self, symbol: Symbol):
        self._internals = symbol.get_internals()
        self._shapes: dict[tuple[int, int], tuple[int, ...]] = {}
        self._types: dict[tuple[int, int], Any] = {}

    def _each(self, values: Sequence[Any]) -> dict[tuple[int, int], Any]:
        return {(id(node), i): value for (node, i), value in zip(self._internals._outputs, values, strict=True)}

    def infer_shapes(self, given: dict[str, Any]) -> None:
        """Infer shapes from those of some variables."""
        self._shapes = self._each(_complete("shape", self._internals.infer_shape, given))

    def infer_types(self, given: dict[str, Any]) -> None:
        """Infer dtypes from those of some variables."""
        self._types = self._each(_complete("type", self._internals.infer_type, given))

    def sizes(self, entry: Entry) -> tuple[int, ...]:
        """Return the shape of an output without its first dimension, the batch; () if unknown."""
        return self._shapes.get((id(entry[0]), entry[1]), ())[1:]

    def label(self, entry: Entry) -> str:
        """Return 3x16x16(float32), or the part of it that is known."""
        dtype = self._types.get((id(entry[0]), entry[1]))
        return _by(self.sizes(entry)) + ("" if dtype is None else f"({np.dtype(dtype).name})")


# ---- the drawing ----


def _is_weight(node: Node) -> bool:
    return node.op is None and node.name.endswith(_WEIGHTS)


def _label(node: Node) -> str:
    """Return the text on a node: kind and sizes for some ops, else the name."""
    op, attrs = _op(node), node.attrs
    if op == "Convolution":
        return f"{op}\n{_window(attrs)}, {attrs['num_filter']}"
    if op == "FullyConnected":
        return f"{op}\n{attrs['num_hidden']}"
    if op in ("Activation", "LeakyReLU"):
        return f"{op}\n{attrs.get('act_type', 'leaky')}"
    if op == "Pooling":
        return f"{op}\n{attrs.get('pool_type', 'max')}, {_window(attrs)}"
    return attrs["op_type"] if op == "Custom" else node.name


def _window(attrs: dict[str, str]) -> str:
    """Return kernel and stride: 3x3/2x2."""
    kernel = _by(_numbers(attrs["kernel"])) if "kernel" in attrs else "[]"
    return f"{kernel}/{_by(_numbers(attrs.get('stride', '1')))}"


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: dict[str, Any] | None = None,
    dtype: dict[str, Any] | None = None,
    node_attrs: dict[str, str] | None = None,
    hide_weights: bool = True,
) -> Any:
    """Return the network as a `graphviz.Digraph`; `.render()` and `.view()` write it in `save_format`.

    Given the `shape` (and `dtype`) of some variables by name, edges are labeled with sizes, without the batch
    dimension. `node_attrs` are graphviz attributes of all nodes. Weights, recognized by the suffix of their names, are
    hidden unless `hide_weights=False`. Needs the package graphviz, and its program `dot` for rendering.
    """
    if not isinstance(symbol, Symbol):
        raise TypeError(f"symbol must be a Symbol, received {type(symbol).__name__}")
    try:
        from graphviz import Digraph
    except ImportError as error:
        raise MXNetError('plot_network needs the package graphviz: pip install "neomx[viz]"') from error
    inferred = _Inferred(symbol)
    if shape is not None:
        inferred.infer_shapes(shape)
    if dtype is not None:
        inferred.infer_types(dtype)
    dot, style, nodes = Digraph(name=title, format=save_format), {**_BOX, **(node_attrs or {})}, symbol._nodes()
    for node in nodes:
        if node.op is None and not _is_weight(node):
            dot.node(node.name, node.name, **{**style, "shape": "oval", "fillcolor": _VARIABLE})
        elif node.op is not None:
            dot.node(node.name, _label(node), **style, fillcolor=_COLOURS.get(_op(node), _OTHER))
    for node in nodes:
        for entry in node.inputs:
            if not (hide_weights and _is_weight(entry[0])):
                dot.edge(node.name, entry[0].name, label=inferred.label(entry), dir="back", arrowtail="open")
    return dot


# ---- the table ----


def _parameters(node: Node, channels: int, inferred: _Inferred) -> int:
    """Return the number of parameters of a layer as MXNet counts them, from its input `channels` and attributes."""
    op, attrs = _op(node), node.attrs
    has_bias = attrs.get("no_bias", "False") not in ("True", "1")
    if op == "Convolution":
        filters, groups = int(attrs["num_filter"]), int(attrs.get("num_group", "1"))
        return channels * filters * math.prod(_numbers(attrs["kernel"])) // groups + has_bias * filters
    if op == "FullyConnected":
        return (channels + has_bias) * int(attrs["num_hidden"])
    if op == "BatchNorm":
        return 2 * (inferred.sizes((node, 0)) or (0,))[0]
    if op == "Embedding":
        return int(attrs["input_dim"]) * int(attrs["output_dim"])
    return 0


class _Table:
    """Lines of fields that begin at given positions."""

    def __init__(self, line_length: int, positions: Sequence[float]):
        if len(positions) < 4:
            raise IndexError(f"positions must be the ends of 4 columns, received {list(positions)}")
        self._length = line_length
        scale = line_length if positions[-1] <= 1 else 1
        self._ends = [int(scale * position) for position in positions]

    def rule(self, character: str) -> None:
        """Print a line from end to end."""
        print(character * self._length)

    def row(self, *fields: object) -> None:
        """Print one line of fields."""
        line = ""
        for field, end in zip(fields, self._ends, strict=False):
            line = f"{line}{field}"[:end].ljust(end)
        print(line)


def print_summary(
    symbol: Symbol,
    shape: dict[str, Any] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print a table of the network's layers: output sizes (given the `shape` of inputs, by name), parameters, inputs.

    `positions` are the ends of the columns, as fractions of `line_length` or in characters. As in MXNet, only the
    parameters of Convolution, FullyConnected (by its input channels), BatchNorm and Embedding are counted.
    """
    if not isinstance(symbol, Symbol):
        raise TypeError(f"symbol must be Symbol, received {type(symbol).__name__}")
    inferred, table, nodes, total = _Inferred(symbol), _Table(line_length, positions), symbol._nodes(), 0
    if shape is not None:
        inferred.infer_shapes(shape)
    table.rule("_")
    table.row("Layer (type)", "Output Shape", "Param #", "Previous Layer")
    table.rule("=")
    # Only the first variable counts as a layer; the others are weights and labels.
    layers = [node for node in nodes if node.op is not None or node is nodes[0]]
    for node in layers:
        entries = [entry for entry in node.inputs if entry[0].op is not None or entry[0] is nodes[0]]
        channels = sum(inferred.sizes(entry)[0] for entry in entries if inferred.sizes(entry))
        count = _parameters(node, channels, inferred)
        total += count
        names = [entry[0].name for entry in entries]
        # As in MXNet, no shape is shown for a layer with several outputs (name_output0, ...).
        sizes = inferred.sizes((node, 0)) if node.output_names()[0] in (node.name, f"{node.name}_output") else ()
        table.row(f"{node.name}({_op(node)})", _by(sizes), count, *(names[:1] or [""]))
        for name in names[1:]:
            table.row("", "", "", name)
        table.rule("=" if node is layers[-1] else "_")
    print(f"Total params: {total}")
    table.rule("_")
