"""Symbol: a computation to be, as a list of outputs of nodes."""

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
    """A method that makes a node of the op, with the symbol as its first input."""
    op, hint = OPS[op_name], op_name.lower()

    def method(self: Symbol, *args: Any, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        return create(op, hint, (self, *args), kwargs, Symbol, name, attr)

    method.__name__, method.__doc__ = op_name, f"`sym.{op_name}` of this symbol."
    return method


def _operator(symbol_op: str, scalar_op: str) -> Callable[..., Any]:
    """A binary operator. The ops go by the spelling that their automatic names come from."""

    def binary(self: Symbol, other: Any) -> Symbol:
        return combine(self, other, symbol_op, scalar_op)

    return binary


def combine(left: Symbol, right: Any, symbol_op: str, scalar_op: str) -> Symbol:
    """`left` with a symbol, or with a number."""
    if isinstance(right, Symbol):
        return create(OPS[symbol_op], symbol_op.lower(), (left, right), {}, Symbol)
    if isinstance(right, numeric_types):
        return create(OPS[scalar_op], scalar_op.lower(), (left,), {"scalar": right}, Symbol)
    raise TypeError(f"a Symbol cannot be combined with {type(right).__name__}. Expected a Symbol or a number")


def _only_arrays(name: str) -> Callable[..., NoReturn]:
    def method(self: Symbol, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedForSymbol(f"{name} is for NDArrays: a Symbol has no values. Use bind or eval first")

    method.__name__, method.__doc__ = name, "Of arrays only: raises NotImplementedForSymbol."
    return method


class Symbol:
    """One or more outputs of a graph of ops, which `bind` makes computable."""

    __slots__ = ("_outputs",)
    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]

    accepted: type[Symbol]  # what may be an input of a node that is made as this class

    def __init__(self, outputs: Sequence[Entry]):
        self._outputs = list(outputs)

    # ---- what it is ----

    @property
    def name(self) -> str | None:
        """The name of its node; None for a group."""
        first = self._outputs[0][0] if self._outputs else None
        return first.name if first and all(node is first for node, _ in self._outputs) else None

    @property
    def handle(self) -> list[Entry]:
        """What stands behind the symbol; MXNet's C handle, here the outputs' nodes."""
        return self._outputs

    def __repr__(self) -> str:
        if self.name is None:
            return f"<{type(self).__name__} group [{', '.join(node.name for node, _ in self._outputs)}]>"
        return f"<{type(self).__name__} {self.name}>"

    def _nodes(self) -> list[Node]:
        return topological(node for node, _ in self._outputs)

    def _variables(self) -> tuple[list[str], list[str]]:
        """The names of arguments and of auxiliary states."""
        order = self._nodes()
        changed = auxiliary(order)
        variables = [node for node in order if node.op is None]
        return (
            [node.name for node in variables if id(node) not in changed],
            [node.name for node in variables if id(node) in changed],
        )

    def list_arguments(self) -> list[str]:
        """The names of the variables it is computed from, without auxiliary states."""
        return self._variables()[0]

    def list_auxiliary_states(self) -> list[str]:
        """The names of the variables that its ops change, such as moving averages."""
        return self._variables()[1]

    def list_inputs(self) -> list[str]:
        """The names of all variables it is computed from."""
        return [node.name for node in self._nodes() if node.op is None]

    def list_outputs(self) -> list[str]:
        """The names of its outputs: `fc1_output`."""
        names = {node: node.output_names() for node in dict.fromkeys(node for node, _ in self._outputs)}
        return [names[node][index] for node, index in self._outputs]

    def get_internals(self) -> Symbol:
        """All outputs of all nodes."""
        return type(self)([(node, i) for node in self._nodes() for i in range(node.count_outputs())])

    def get_children(self) -> Symbol | None:
        """What its nodes are computed from; None for a variable."""
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
            raise TypeError(f"a Symbol is indexed by int, str or slice, received {type(index).__name__}")
        if index >= len(self._outputs):
            raise IndexError(f"output {index} of a symbol with {len(self._outputs)} output(s)")
        if index < 0:
            raise MXNetError(f"a Symbol only accepts non-negative indices, received {index}")
        return type(self)([self._outputs[index]])

    def _position(self, name: str) -> int:
        names = self.list_outputs()
        if names.count(name) != 1:
            found = f"{names.count(name)} outputs are" if name in names else "no output is"
            raise ValueError(f"{found} called {name!r}. Outputs: {', '.join(names)}")
        return names.index(name)

    # ---- attributes ----

    def attr(self, key: str) -> str | None:
        """An attribute of its node as a string, or None."""
        attrs = {} if self.name is None else self._outputs[0][0].attrs
        return attrs.get(key, attrs.get(annotated(key)))

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """All attributes of its node; of a group's first."""
        if recursive:
            raise DeprecationWarning("list_attr(recursive=True) is no longer offered. Use attr_dict")
        return _with_short_names(self._outputs[0][0].attrs) if self._outputs else {}

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """{node name: its attributes}, for all nodes that have some."""
        return {node.name: _with_short_names(node.attrs) for node in self._nodes() if node.attrs}

    def _set_attr(self, **kwargs: str) -> None:
        node = self._node("_set_attr")
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise ValueError(f"attributes must be strings, received {key}={value!r}")
        changed = {**node.attrs, **{annotated(key): value for key, value in kwargs.items()}}
        if node.op is not None:
            graphs = {k: v for k, v in node.values.items() if k == "subgraphs"}  # which no text tells
            node.values = node.op.converted({k: v for k, v in changed.items() if not is_annotation(k)} | graphs)
        node.attrs = changed

    def _node(self, what: str) -> Node:
        if self.name is None:
            raise MXNetError(f"{what}: a group has no attributes of its own. Use attr_dict, or choose an output")
        return self._outputs[0][0]

    # ---- composition and copies ----

    def __call__(self, *args: Symbol, **kwargs: Any) -> Symbol:
        """A copy in which symbols stand in place of variables: `net(data=other)`."""
        copy = self.__copy__()
        copy._compose(*args, **kwargs)
        return copy

    def _compose(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> None:
        if args and kwargs:
            raise TypeError("compose takes symbols by position or by name, not both")
        if args:
            raise MXNetError("compose takes symbols by name: net(data=other)")
        for key, value in kwargs.items():
            if not isinstance(value, Symbol):
                raise TypeError(f"compose takes symbols, received {key}={type(value).__name__}")
            if len(value) != 1:
                raise MXNetError(f"compose: {key} is a symbol with {len(value)} outputs, expected one")
        unknown = [key for key in kwargs if key not in self.list_inputs()]
        if unknown:
            raise MXNetError(f"no variable is called {', '.join(unknown)}. Variables: {', '.join(self.list_inputs())}")
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
        """The graph in MXNet's JSON; `amp_cast` nodes are left out unless told."""
        from .serialize import to_json

        return to_json(self, remove_amp_cast)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Write `tojson()` to a file, which MXNet can load too."""
        from .serialize import save

        save(fname, self, remove_amp_cast)

    def debug_str(self) -> str:
        """A listing of the graph, for people."""
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
        """(argument shapes, output shapes, auxiliary shapes) from the shapes given; (None, None, None) if too few.

        Shapes are given in the order of `list_arguments`, or by name. A dimension of 0 is unknown.
        """
        from .infer import infer_shape

        return infer_shape(self, args, kwargs, partial=False)

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> Any:
        """infer_shape that also answers when some shapes stay unknown: those are ()."""
        from .infer import infer_shape

        return infer_shape(self, args, kwargs, partial=True)

    def infer_type(self, *args: Any, **kwargs: Any) -> Any:
        """(argument dtypes, output dtypes, auxiliary dtypes) from the dtypes given; (None, None, None) if too few."""
        from .infer import infer_type

        return infer_type(self, args, kwargs, partial=False)

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> Any:
        """infer_type that also answers when some dtypes stay unknown: those are None."""
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
        """An Executor that computes with the given arrays, and leaves gradients in `args_grad`."""
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
        """An Executor with arrays of its own, from the shapes of its inputs: `net.simple_bind(ctx, data=(32, 10))`."""
        from ..executor import simple_bind

        return simple_bind(
            self, ctx, grad_req, type_dict, stype_dict, group2ctx, shared_arg_names, shared_exec, shared_buffer, kwargs
        )

    def eval(self, ctx: Context | None = None, **kwargs: Any) -> Any:
        """The outputs for arrays given by name."""
        from ..context import current_context

        return self.bind(ctx or current_context(), kwargs).forward()

    def gradient(self, wrt: Any) -> NoReturn:
        """MXNet announces this method and does not implement it: use an executor's backward."""
        raise MXNetError("Symbol.gradient is not implemented, neither in MXNet. Use bind(...).backward()")

    def optimize_for(self, backend: str, args: Any = None, aux: Any = None, ctx: Any = None, **kwargs: Any) -> Symbol:
        """The symbol itself: there is one backend, torch."""
        return self

    def get_backend_symbol(self, backend: str) -> Symbol:
        """The symbol itself: there is one backend, torch."""
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
        raise NotImplementedForSymbol("a Symbol cannot be changed in place. Write x = x + y")

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __idiv__ = __imod__ = __ipow__ = _not_in_place

    # ---- ops as methods, besides those that NDArray has too (below) ----

    reshape = _method("reshape")
    astype = _method("cast")

    def split_v2(self, *args: Any, **kwargs: Any) -> Symbol:
        """`sym.split_v2` of this symbol."""
        from .utils import split_v2

        return split_v2(self, *args, **kwargs)

    def as_nd_ndarray(self) -> Symbol:
        """This symbol, which belongs to `sym` already."""
        return self

    def as_np_ndarray(self) -> Symbol:
        """This computation as a symbol of `mx.sym.np`, whose operators are those of `mx.np`."""
        return import_module("neomx.numpy.symbol").NpSymbol(self._outputs)  # a room above this one

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
    """Attributes as MXNet lists them: `lr_mult` beside `__lr_mult__`."""
    return {**attrs, **{key: attrs[annotated(key)] for key in ANNOTATIONS if annotated(key) in attrs}}
