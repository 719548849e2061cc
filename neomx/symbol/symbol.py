"""Symbol: a deferred computation, represented as a list of node outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

import numpy as np

from ..base import MXNetError, NotImplementedForSymbol, numeric_types
from ..context import Context
from ..ndarray.ndarray import NDArray
from ..ops.table import OPS
from .build import create
from .graph import ANNOTATIONS, Entry, Node, annotated, auxiliary, is_annotation, rebuilt, topological


def _method(op_name: str) -> Callable[..., Any]:
    """Return a method that creates a node of the op, with the symbol as its first input."""
    op, hint = OPS[op_name], op_name.lower()

    def method(self: Symbol, *args: Any, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        return create(op, hint, (self, *args), kwargs, Symbol, name, attr)

    method.__name__, method.__doc__ = op_name, f"Apply `sym.{op_name}` to this symbol."
    return method


def _operator(symbol_op: str, scalar_op: str) -> Callable[..., Any]:
    """Return a binary operator. The op names are the spellings that automatic node names are derived from."""

    def binary(self: Symbol, other: Any) -> Symbol:
        return combine(self, other, symbol_op, scalar_op)

    return binary


def combine(left: Symbol, right: Any, symbol_op: str, scalar_op: str) -> Symbol:
    """Combine `left` with a symbol or a number."""
    if isinstance(right, Symbol):
        return create(OPS[symbol_op], symbol_op.lower(), (left, right), {}, Symbol)
    if isinstance(right, numeric_types):
        return create(OPS[scalar_op], scalar_op.lower(), (left,), {"scalar": right}, Symbol)
    raise TypeError(f"expected a Symbol or a number as operand of a Symbol, received {type(right).__name__}")


def _only_arrays(name: str) -> Callable[..., NoReturn]:
    def method(self: Symbol, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedForSymbol(
            f"{name} is only available on NDArrays, because a Symbol has no values. Use bind or eval first"
        )

    method.__name__, method.__doc__ = name, "Only available on arrays; raises NotImplementedForSymbol."
    return method


class Symbol:
    """One or more outputs of a graph of ops. Use `bind` to compute them."""

    __slots__ = ("_outputs",)
    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]

    accepted: type[Symbol]  # the class that inputs of nodes of this class must have

    def __init__(self, outputs: Sequence[Entry]):
        self._outputs = list(outputs)

    # ---- inspection ----

    @property
    def name(self) -> str | None:
        """The name of the symbol's node, or None for a group."""
        first = self._outputs[0][0] if self._outputs else None
        return first.name if first and all(node is first for node, _ in self._outputs) else None

    @property
    def handle(self) -> list[Entry]:
        """The symbol's outputs. In MXNet, this is a C handle."""
        return self._outputs

    def __repr__(self) -> str:
        if self.name is None:
            return f"<{type(self).__name__} group [{', '.join(node.name for node, _ in self._outputs)}]>"
        return f"<{type(self).__name__} {self.name}>"

    def _nodes(self) -> list[Node]:
        return topological(node for node, _ in self._outputs)

    def _variables(self) -> tuple[list[str], list[str]]:
        """Return the names of arguments and of auxiliary states."""
        order = self._nodes()
        changed = auxiliary(order)
        variables = [node for node in order if node.op is None]
        return (
            [node.name for node in variables if id(node) not in changed],
            [node.name for node in variables if id(node) in changed],
        )

    def list_arguments(self) -> list[str]:
        """Return the names of the variables that the symbol depends on, without auxiliary states."""
        return self._variables()[0]

    def list_auxiliary_states(self) -> list[str]:
        """Return the names of the variables that the ops modify in place, such as moving averages."""
        return self._variables()[1]

    def list_inputs(self) -> list[str]:
        """Return the names of all variables that the symbol depends on."""
        return [node.name for node in self._nodes() if node.op is None]

    def list_outputs(self) -> list[str]:
        """Return the names of the outputs, e.g. `fc1_output`."""
        names = {node: node.output_names() for node in dict.fromkeys(node for node, _ in self._outputs)}
        return [names[node][index] for node, index in self._outputs]

    def get_internals(self) -> Symbol:
        """Return a symbol with all outputs of all nodes."""
        return type(self)([(node, i) for node in self._nodes() for i in range(node.count_outputs())])

    def get_children(self) -> Symbol | None:
        """Return the inputs of the symbol's nodes, or None for a variable."""
        heads = {id(node): node for node, _ in self._outputs}
        inputs = [entry for node in heads.values() for entry in node.inputs]
        return type(self)(inputs) if inputs else None

    def __len__(self) -> int:
        return len(self._outputs)

    def __iter__(self) -> Iterator[Symbol]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int | str | slice) -> Symbol:
        if isinstance(index, slice):
            return type(self)(self._outputs[index])
        if isinstance(index, str):
            return type(self)([self._outputs[self._position(index)]])
        if not isinstance(index, (int, np.integer)):
            raise TypeError(f"a Symbol index must be an int, str or slice, received {type(index).__name__}")
        if index >= len(self._outputs):
            raise IndexError(f"index {index} is out of range for a symbol with {len(self._outputs)} output(s)")
        if index < 0:
            raise MXNetError(f"a Symbol only accepts non-negative indices, received {index}")
        return type(self)([self._outputs[index]])

    def _position(self, name: str) -> int:
        names = self.list_outputs()
        if names.count(name) != 1:
            found = f"{names.count(name)} outputs are" if name in names else "no output is"
            raise ValueError(f"{found} named {name!r}. Outputs: {', '.join(names)}")
        return names.index(name)

    # ---- attributes ----

    def attr(self, key: str) -> str | None:
        """Return an attribute of the symbol's node as a string, or None."""
        attrs = {} if self.name is None else self._outputs[0][0].attrs
        return attrs.get(key, attrs.get(annotated(key)))

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """Return all attributes of the symbol's node, or of the first node of a group."""
        if recursive:
            raise DeprecationWarning("list_attr(recursive=True) is no longer supported. Use attr_dict")
        return _with_short_names(self._outputs[0][0].attrs) if self._outputs else {}

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Return {node name: attributes} for all nodes that have attributes."""
        return {node.name: _with_short_names(node.attrs) for node in self._nodes() if node.attrs}

    def _set_attr(self, **kwargs: str) -> None:
        node = self._node("_set_attr")
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise ValueError(f"attributes must be strings, received {key}={value!r}")
        changed = {**node.attrs, **{annotated(key): value for key, value in kwargs.items()}}
        if node.op is not None:
            graphs = {k: v for k, v in node.values.items() if k == "subgraphs"}  # which have no string form
            node.values = node.op.converted({k: v for k, v in changed.items() if not is_annotation(k)} | graphs)
        node.attrs = changed

    def _node(self, what: str) -> Node:
        if self.name is None:
            raise MXNetError(f"{what}: a group has no attributes. Use attr_dict, or select an output")
        return self._outputs[0][0]

    # ---- composition and copies ----

    def __call__(self, *args: Symbol, **kwargs: Any) -> Symbol:
        """Return a copy in which symbols replace variables: `net(data=other)`."""
        copy = self.__copy__()
        copy._compose(*args, **kwargs)
        return copy

    def _compose(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> None:
        if args and kwargs:
            raise TypeError("compose accepts symbols either by position or by name, not both")
        if args:
            raise MXNetError("compose requires symbols by name: net(data=other)")
        for key, value in kwargs.items():
            if not isinstance(value, Symbol):
                raise TypeError(f"compose expects symbols, received {key}={type(value).__name__}")
            if len(value) != 1:
                raise MXNetError(f"compose: {key} is a symbol with {len(value)} outputs, expected one")
        unknown = [key for key in kwargs if key not in self.list_inputs()]
        if unknown:
            raise MXNetError(f"unknown variable {', '.join(unknown)}. Variables: {', '.join(self.list_inputs())}")
        replacing = {key: symbol._outputs for key, symbol in kwargs.items()}
        self._outputs = rebuilt(self._outputs, lambda node, _: replacing.get(node.name) if node.op is None else None)
        if name is not None:
            self._node("compose").name = name

    def __copy__(self) -> Symbol:
        return type(self)(rebuilt(self._outputs))

    def __deepcopy__(self, memo: Any) -> Symbol:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        from .serialize import load_json

        return load_json, (self.tojson(remove_amp_cast=False),)

    # ---- files ----

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """Return the graph in MXNet's JSON format, without `amp_cast` nodes by default."""
        from .serialize import to_json

        return to_json(self, remove_amp_cast)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Write `tojson()` to a file, which MXNet can also load."""
        from .serialize import save

        save(fname, self, remove_amp_cast)

    def debug_str(self) -> str:
        """Return a human-readable listing of the graph."""
        lines = ["Symbol Outputs:"]
        lines += [f"\toutput[{i}]={n.name}({index})" for i, (n, index) in enumerate(self._outputs)]
        for node in self._nodes():
            if node.op is None:
                lines.append(f"Variable:{node.name}")
                continue
            lines += ["--------------------", f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
            lines += [f"\targ[{i}]={n.name}({index})" for i, (n, index) in enumerate(node.inputs)]
            if node.attrs:
                lines += ["Attrs:", *(f"\t{key}={value}" for key, value in sorted(node.attrs.items()))]
        return "\n".join(lines) + "\n"

    # ---- shapes and dtypes ----

    def infer_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Infer (argument shapes, output shapes, auxiliary shapes); (None, None, None) if some are unknown.

        Pass shapes in the order of `list_arguments`, or by name. A dimension of 0 is unknown.
        """
        from .infer import infer_shape

        return infer_shape(self, args, kwargs, partial=False)

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> Any:
        """Like `infer_shape`, but return () for shapes that are unknown."""
        from .infer import infer_shape

        return infer_shape(self, args, kwargs, partial=True)

    def infer_type(self, *args: Any, **kwargs: Any) -> Any:
        """Infer (argument dtypes, output dtypes, auxiliary dtypes); (None, None, None) if some are unknown."""
        from .infer import infer_type

        return infer_type(self, args, kwargs, partial=False)

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> Any:
        """Like `infer_type`, but return None for dtypes that are unknown."""
        from .infer import infer_type

        return infer_type(self, args, kwargs, partial=True)

    # ---- computing ----

    def bind(
        self,
        ctx: Context,
        args: Any,
        args_grad: Any = None,
        grad_req: Any = "write",
        aux_states: Any = None,
        group2ctx: dict[str, Context] | None = None,
        shared_exec: Any = None,
    ) -> Any:
        """Return an Executor that computes with the given arrays and writes gradients to `args_grad`."""
        from ..executor import bind

        return bind(self, ctx, args, args_grad, grad_req, aux_states, group2ctx)

    def simple_bind(
        self,
        ctx: Context,
        grad_req: Any = "write",
        type_dict: dict[str, Any] | None = None,
        stype_dict: dict[str, str] | None = None,
        group2ctx: dict[str, Context] | None = None,
        shared_arg_names: Sequence[str] | None = None,
        shared_exec: Any = None,
        shared_buffer: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return an Executor with newly allocated arrays, given input shapes: `net.simple_bind(ctx, data=(32, 10))`."""
        from ..executor import simple_bind

        return simple_bind(
            self, ctx, grad_req, type_dict, stype_dict, group2ctx, shared_arg_names, shared_exec, shared_buffer, kwargs
        )

    def eval(self, ctx: Context | None = None, **kwargs: Any) -> Any:
        """Return the outputs for arrays given by name."""
        from ..context import current_context

        return self.bind(ctx or current_context(), kwargs).forward()

    def gradient(self, wrt: Any) -> NoReturn:
        """Raise MXNetError. MXNet declares this method but does not implement it; use an executor's backward."""
        raise MXNetError("Symbol.gradient is not implemented, as in MXNet. Use bind(...).backward()")

    def optimize_for(self, backend: str, args: Any = None, aux: Any = None, ctx: Any = None, **kwargs: Any) -> Symbol:
        """Return the symbol itself, because torch is the only backend."""
        return self

    def get_backend_symbol(self, backend: str) -> Symbol:
        """Return the symbol itself, because torch is the only backend."""
        return self

    # ---- operators ----

    __add__ = __radd__ = _operator("_Plus", "_PlusScalar")
    __sub__ = _operator("_Minus", "_MinusScalar")
    __mul__ = __rmul__ = _operator("_Mul", "_MulScalar")
    __truediv__ = __div__ = _operator("_Div", "_DivScalar")
    __mod__ = _operator("_Mod", "_ModScalar")
    __pow__ = _operator("_Power", "_PowerScalar")
    __rsub__ = _operator("_Minus", "_RMinusScalar")
    __rtruediv__ = __rdiv__ = _operator("_Div", "_RDivScalar")
    __rmod__ = _operator("_Mod", "_RModScalar")
    __rpow__ = _operator("_Power", "_rpower_scalar")
    __eq__ = _operator("_equal", "_equal_scalar")
    __ne__ = _operator("_not_equal", "_not_equal_scalar")
    __gt__ = _operator("_greater", "_greater_scalar")
    __ge__ = _operator("_greater_equal", "_greater_equal_scalar")
    __lt__ = _operator("_lesser", "_lesser_scalar")
    __le__ = _operator("_lesser_equal", "_lesser_equal_scalar")
    __abs__ = _method("abs")

    def __neg__(self) -> Symbol:
        return self * -1.0

    def _not_in_place(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol("a Symbol cannot be modified in place. Use x = x + y")

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __idiv__ = __imod__ = __ipow__ = _not_in_place

    # ---- ops as methods; those that NDArray also has follow below ----

    reshape = _method("reshape")
    astype = _method("cast")

    def split_v2(self, *args: Any, **kwargs: Any) -> Symbol:
        """Apply `sym.split_v2` to this symbol."""
        from .utils import split_v2

        return split_v2(self, *args, **kwargs)

    def as_nd_ndarray(self) -> Symbol:
        """Return the symbol itself, because it already belongs to `mx.sym`."""
        return self

    def as_np_ndarray(self) -> Symbol:
        """Return this symbol as a symbol of `mx.sym.np`, with the operators of `mx.np`."""
        return import_module("neomx.numpy.symbol").NpSymbol(self._outputs)  # imported lazily: it imports this package

    asnumpy = _only_arrays("asnumpy")
    asscalar = _only_arrays("asscalar")
    wait_to_read = _only_arrays("wait_to_read")
    copy = _only_arrays("copy")
    as_in_context = _only_arrays("as_in_context")
    detach = _only_arrays("detach")
    backward = _only_arrays("backward")
    __bool__ = __nonzero__ = _only_arrays("bool")


Symbol.accepted = Symbol
for _name, _of_arrays in vars(NDArray).items():
    if _name not in vars(Symbol) and getattr(_of_arrays, "__name__", None) in OPS:
        setattr(Symbol, _name, _method(_of_arrays.__name__))


def _with_short_names(attrs: dict[str, str]) -> dict[str, str]:
    """Return attributes as MXNet lists them: with `lr_mult` in addition to `__lr_mult__`."""
    return {**attrs, **{key: attrs[annotated(key)] for key in ANNOTATIONS if annotated(key) in attrs}}
