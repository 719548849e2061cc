"""Build graph nodes from calls such as `sym.Convolution(data, kernel=(3, 3))`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .. import attribute
from .. import name as naming
from ..base import MXNetError
from ..dtype import NAME_OF_TORCH
from ..ops.table import Op
from .graph import Entry, Node, annotated, is_annotation


def make_function(op: Op, name: str, cls: type[Any]) -> Callable[..., Any]:
    """Return the function `sym.<name>` for an op."""
    hint = name.lower()

    def function(*args: Any, name: str | None = None, attr: Any = None, out: Any = None, **kwargs: Any) -> Any:
        return create(op, hint, args, kwargs, cls, name, attr)

    function.op = op  # type: ignore[attr-defined]  # for tools: the signature of a call
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{inspect.getdoc(op.fn) or ''}\n\n{op.signature()}".strip()
    return function


def create(
    op: Op,
    hint: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    cls: type[Any],
    name: str | None = None,
    attr: dict[str, Any] | None = None,
) -> Any:
    """Return a symbol that applies `op`. Inputs that are not given become new variables."""
    by_name = {key: value for key, value in kwargs.items() if isinstance(value, cls.accepted)}
    others = {key: value for key, value in kwargs.items() if key not in by_name}
    inputs, given = op.sort(args, others, lambda value: isinstance(value, cls.accepted))
    if op.variadic and "num_args" in op.attrs and (inputs or by_name):
        given.setdefault("num_args", len(inputs) + len(by_name))
    given = {**attribute.current().get(attr), **given}
    values = op.converted({key: value for key, value in given.items() if not is_annotation(key)})
    attrs = {annotated(key): text_of(value) for key, value in given.items()}
    node = Node(op, naming.current().get(name, hint), attrs=attrs, values=values)
    node.inputs = _inputs(node, op, inputs, by_name, cls)
    if op.starts:
        hint_starts(node)
    if op.on_node is not None:
        node.inputs = op.on_node(node)
    return cls([(node, i) for i in range(op.visible_outputs(values))])


def _inputs(node: Node, op: Op, inputs: list[Any], by_name: dict[str, Any], cls: type[Any]) -> list[Entry]:
    """Return the inputs of the node, in the order that the op defines."""
    names = op.input_names(node.values, len(inputs) + len(by_name))
    given = dict(zip(names if op.variadic else op.inputs, inputs, strict=False))
    given = {key: value for key, value in given.items() if value is not None}
    for key, value in by_name.items():
        if key in given:
            raise MXNetError(f"{op.name}: argument {key} was given twice")
        given[key] = value
    unknown = [key for key in given if key not in names]
    if unknown or len(inputs) > max(len(names), len(op.inputs)):
        raise MXNetError(
            f"{op.name} {node.name!r} has no input {', '.join(unknown) or len(inputs)} with these attributes. "
            f"Expected {', '.join(names) or 'none'}"
        )
    return [entry_of(op, key, given[key], cls) if key in given else (made_variable(node, key), 0) for key in names]


def scope_attrs(attr: dict[str, str] | None = None) -> dict[str, str]:
    """Return the attributes of a new node: those of the enclosing AttrScope, updated with `attr`."""
    return {annotated(key): value for key, value in attribute.current().get(attr).items()}


def hint_starts(node: Node) -> None:
    """Set the initializer of input variables for which the op defines one, e.g. moving averages and PReLU slopes."""
    assert node.op is not None
    for key, (source, _) in zip(node.input_names(), node.inputs, strict=True):
        if key in node.op.starts and source.op is None:
            source.attrs.setdefault("__init__", node.op.starts[key])


def entry_of(op: Op, key: str, value: Any, cls: type[Any]) -> Entry:
    """Return the single output of a symbol that is passed as an input."""
    if not isinstance(value, cls.accepted):
        raise AssertionError(
            f"{op.name}: argument {key} must be a Symbol, received {type(value).__name__} {value!r:.80}"
        )
    if len(value._outputs) != 1:
        raise MXNetError(
            f"{op.name}: argument {key} is a symbol with {len(value._outputs)} outputs, expected one. "
            "Choose an output with [index]"
        )
    return value._outputs[0]


def made_variable(node: Node, key: str) -> Node:
    """Return a variable for an input that was not given. It gets the node's attributes, as in MXNet."""
    return Node(None, f"{node.name}_{key}", attrs=dict(node.attrs))


def text_of(value: Any) -> str:
    """Format an attribute's value as in MXNet's files."""
    if isinstance(value, (type, np.dtype)):
        return np.dtype(value).name
    if isinstance(value, torch.dtype):
        return NAME_OF_TORCH[value]
    if isinstance(value, (tuple, list)):
        return str(type(value)(v.item() if isinstance(v, np.generic) else v for v in value))
    return str(value)
