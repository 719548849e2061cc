"""The op table. An op is one decorated function on torch tensors.

    @op("Pooling", "pool", outputs=_output_names, visible=1)
    def pooling(data, *, kernel: Shape = (), pool_type: Literal["max", "avg"] = "max"):
        "One line that describes the result."

Positional parameters are tensors: required, optional (`bias=None`) or variadic (`*data`). Keyword-only parameters are
attributes. Their annotations define the accepted values and spellings, and the error messages. The nd, sym and np front
ends are generated from this table.
"""

from __future__ import annotations

import ast
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, NoReturn, Protocol

import torch

from ..base import InvalidDTypeError, MXNetError, suggest
from ..context import Context, current_context
from ..dtype import to_torch
from .shapes import Shapes

OPS: dict[str, Op] = {}
# The exceptions that an op or torch raises for invalid input. Programs get an MXNetError that describes the call.
OP_ERRORS = (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, MemoryError)

# The kinds of attributes besides int, float, bool, str and Literal[...]. `| None` may follow each.
Shape = Annotated[tuple[int, ...], "shape"]  # an int means a tuple of one
Axis = Annotated[tuple[int, ...] | None, "axis"]  # None, an int or a tuple; the op receives a tuple or None
Pairs = Annotated[tuple[tuple[int, ...], ...], "pairs"]  # a pair means a tuple of one pair, an int means a pair
Floats = Annotated[tuple[float, ...], "floats"]
DType = Annotated[torch.dtype, "dtype"]
Ctx = Annotated[Context, "ctx"]
FILLED_IN: Any = None  # the default of a Ctx, which the front end sets before the call
Any_ = Annotated[Any, "anything"]  # passed unchanged

# The types of facts about symbols. A dimension of -1, and a shape or dtype of None, are unknown.
Outputs = int | tuple[str, ...]
Types = Sequence[torch.dtype | None]
Condition = Callable[[dict[str, Any]], bool]


class Accepting(Protocol):
    """An array class that decides which objects its ops accept as inputs."""

    @classmethod
    def accepts(cls, value: Any) -> bool:
        """Return whether `value` may be an input."""

    @classmethod
    def refuse(cls, value: Any, argument: str) -> NoReturn:
        """Raise an error for an input that is not accepted; `argument` names the op and the input."""


class Op:
    """A row of the table: the function, its names, and its arguments as declared by its signature."""

    __slots__ = (
        "fn",
        "name",
        "names",
        "inputs",
        "required_inputs",
        "most_inputs",
        "variadic",
        "attrs",
        "required_attrs",
        "defaults",
        "unchanged",
        "same_dtype",
        "may_alias",
        "fresh",
        "owned",
        "mutates",
        "needs_ctx",
        "input_index",
        "attr_order",
        "takes_any",
        "checks_names",
        "takes",
        "states",
        "starts",
        "outputs",
        "visible",
        "infer",
        "types",
        "on_arrays",
        "on_node",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        names: Sequence[str],
        same_dtype: bool,
        may_alias: bool,
        mutates: Sequence[str],
        takes: dict[str, Condition] | Callable[[dict[str, Any]], Sequence[str]] | None = None,
        states: Callable[[dict[str, Any]], Sequence[str]] | None = None,
        starts: dict[str, str] | None = None,
        outputs: Outputs | Callable[[dict[str, Any]], Outputs] = 1,
        visible: int | Callable[[dict[str, Any]], int] | None = None,
        infer: Literal["same"] | Callable[..., Shapes] | None = None,
        types: Callable[..., tuple[Types, Types]] | None = None,
        fresh: Callable[..., Any] | None = None,
    ):
        self.fn, self.name, self.names = fn, names[0], tuple(names)
        self.takes, self.states, self.starts = takes, states, starts or {}
        self.outputs, self.visible = outputs, visible
        self.infer, self.types = infer, types
        # Hooks of mixed precision: they convert the arrays and attributes of a call, and the inputs of a new node.
        self.on_arrays: Callable[[Sequence[Any], dict[str, Any]], tuple[Sequence[Any], dict[str, Any]]] | None = None
        self.on_node: Callable[[Any], list[Any]] | None = None
        self.same_dtype, self.may_alias, self.mutates = same_dtype, may_alias, tuple(mutates)
        self.fresh = fresh
        self.owned = fresh is not None or not may_alias  # `fresh or fn` never returns a view of an input
        parameters = inspect.signature(fn, eval_str=True).parameters.values()
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        tensors = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
        keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        self.inputs = tuple(p.name for p in tensors)
        self.input_index = {} if self.variadic else {name: i for i, name in enumerate(self.inputs)}
        self.most_inputs = sys.maxsize if self.variadic else len(self.inputs)
        self.required_inputs = 0 if self.variadic else sum(p.default is p.empty for p in tensors)
        self.attrs = {p.name: _converter(p.annotation) for p in keywords}
        self.attr_order = tuple(self.attrs)
        self.defaults = {p.name: p.default for p in keywords if p.default is not p.empty}
        self.required_attrs = frozenset(self.attrs) - frozenset(self.defaults)
        self.unchanged = {p.name: p.default for p in keywords}  # `Parameter.empty`, which is not a value, if required
        self.needs_ctx = "ctx" in self.attrs
        self.takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        # An op without attributes accepts any keyword, as in MXNet: `zeros_like(x, dtype=...)` ignores `dtype`.
        self.checks_names = self.variadic or bool(self.attrs.keys() - {"ctx"})

    def bind(
        self, args: Sequence[Any], kwargs: dict[str, Any], array_type: type[Accepting]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Sort a call's arguments into tensors (arrays of `array_type`, or None) and converted attributes."""
        # Fast path for the common call: arrays by position, attributes by name. Other and invalid calls are slower.
        if self.required_inputs <= len(args) <= self.most_inputs:
            attrs: dict[str, Any] = {}
            try:
                for name, value in kwargs.items():
                    attrs[name] = self.attrs[name](value)
            except (KeyError, TypeError, ValueError, SyntaxError):
                return self._bind_anything(args, kwargs, array_type)
            if not self.required_attrs or self.required_attrs <= attrs.keys():
                for arg in args:
                    if type(arg) is not array_type and not array_type.accepts(arg):
                        break
                else:
                    return args, attrs
        return self._bind_anything(args, kwargs, array_type)

    def _bind_anything(
        self, args: Sequence[Any], kwargs: dict[str, Any], array_type: type[Accepting]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        arrays, given = self.sort(args, kwargs, array_type.accepts)
        attrs = self.converted(given)
        for i, array in enumerate(arrays):
            if not array_type.accepts(array) and (array is not None or i < self.required_inputs):
                array_type.refuse(array, f"{self.name}: argument {self.inputs[0 if self.variadic else i]}")
        if len(arrays) < self.required_inputs:
            missing = ", ".join(self.inputs[len(arrays) : self.required_inputs])
            raise MXNetError(f"{self.name}: missing argument {missing}. Signature: {self.signature()}")
        return arrays, attrs

    def sort(
        self, args: Sequence[Any], kwargs: dict[str, Any], accepts: Callable[[Any], bool]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Sort a call's arguments into inputs by position, None if not given, and attributes, not yet converted.

        `accepts` distinguishes inputs from attributes in a call of a variadic op.
        """
        count = len(self.inputs)
        if self.variadic:
            count = next((i for i, arg in enumerate(args) if not accepts(arg)), len(args))
        arrays, extra = list(args[:count]), args[count:]
        if len(extra) > len(self.attr_order):
            raise MXNetError(f"{self.name}: too many arguments. Signature: {self.signature()}")
        given = dict(zip(self.attr_order, extra, strict=False))
        for name, value in kwargs.items():
            index = self.input_index.get(name)
            if index is None:
                given[name] = value
                continue
            if index < len(arrays) and arrays[index] is not None:
                raise MXNetError(f"{self.name}: argument {name} was given twice")
            arrays.extend([None] * (index + 1 - len(arrays)))
            arrays[index] = value
        return arrays, given

    def converted(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes converted for the op's function. Raise for unknown and for missing names."""
        attrs = {}
        for name, value in given.items():
            if name in self.attrs:
                attrs[name] = self.convert(name, value)
            elif self.takes_any:
                attrs[name] = value
            elif self.checks_names and name != "name" and not (name.startswith("__") and name.endswith("__")):
                raise MXNetError(
                    f"{self.name}: unknown argument {name!r}.{suggest(name, (*self.inputs, *self.attrs))} "
                    f"Signature: {self.signature()}"
                )
        if not self.required_attrs <= attrs.keys():
            missing = ", ".join(sorted(self.required_attrs - attrs.keys()))
            raise MXNetError(f"{self.name}: missing argument {missing}. Signature: {self.signature()}")
        return attrs

    def convert(self, name: str, value: Any) -> Any:
        """Convert the value of an attribute for the op's function, from any spelling that MXNet accepts."""
        try:
            return self.attrs[name](value)
        except (TypeError, ValueError, SyntaxError) as error:
            kind = InvalidDTypeError if isinstance(error, InvalidDTypeError) else MXNetError
            raise kind(f"{self.name}: argument {name}: {error}, received {value!r:.200}") from None

    def with_defaults(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return all attributes: those given, and the defaults of the others."""
        return {**self.defaults, **attrs}

    def input_names(self, attrs: dict[str, Any], count: int = 0) -> Sequence[str]:
        """Return the names of the inputs of a symbol of this op. `count` is the number of inputs of a variadic op."""
        if callable(self.takes):
            return self.takes(self.with_defaults(attrs))
        if self.variadic:
            return [f"arg{i}" for i in range(max(count, attrs.get("num_args", 0)))]
        if self.takes is None:
            return self.inputs[: self.required_inputs]
        attrs = self.with_defaults(attrs)
        optional = self.inputs[self.required_inputs :]
        return (
            *self.inputs[: self.required_inputs],
            *(n for n in optional if n in self.takes and self.takes[n](attrs)),
        )

    def state_names(self, attrs: dict[str, Any]) -> Sequence[str]:
        """Return the names of the inputs that are auxiliary states."""
        return self.mutates if self.states is None else self.states(self.with_defaults(attrs))

    def output_names(self, attrs: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of all outputs. A program sees the first `visible_outputs`."""
        outputs = self.outputs(self.with_defaults(attrs)) if callable(self.outputs) else self.outputs
        if isinstance(outputs, tuple):
            return outputs
        return ("output",) if outputs == 1 else tuple(f"output{i}" for i in range(outputs))

    def visible_outputs(self, attrs: dict[str, Any]) -> int:
        """Return the number of outputs that a program sees."""
        if self.visible is None:
            return len(self.output_names(attrs))
        return self.visible(self.with_defaults(attrs)) if callable(self.visible) else self.visible

    def signature(self) -> str:
        """Return the call as a program would write it: `Pooling(data, kernel=(), pool_type='max')`."""
        parts = ["*" + self.inputs[0]] if self.variadic else list(self.inputs)
        for name in self.attr_order:
            if name == "ctx" and self.inputs:
                continue  # filled in by the front end
            parts.append(f"{name}={self.defaults[name]!r}" if name in self.defaults else name)
        return f"{self.name}({', '.join(parts)})"

    def __repr__(self) -> str:
        return f"<Op {self.signature()}>"


def op(
    *names: str, same_dtype: bool = False, may_alias: bool = False, mutates: Sequence[str] = (), **of_symbols: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function in the table under `names`. Messages use the first name.

    same_dtype  the tensors must have the same dtype, as MXNet requires for arithmetic
    may_alias   the result may be a view of an input; front ends that guarantee a new array copy it
    fresh       for an op with may_alias: the same computation with a result that never shares memory. It is faster than
                copying a view, and is called where autograd does not take part
    mutates     the inputs that the function changes in place (optimizer states, moving averages)

    The other arguments describe symbols before computation. Functions get the attributes, including defaults.

    takes       {optional input: function that returns whether a node has it}; for a variadic op, a function that
                returns the names of the inputs
    states      attributes -> names of the inputs that are auxiliary states; `mutates` by default
    starts      {input: initializer as JSON}, a hint for variables that are these inputs
    outputs     the number of outputs, or their names; several unnamed outputs are output0, output1, ...
    visible     the number of outputs that a program sees, by default all; the function returns only these
    infer       (input shapes, output shapes, attributes) -> input shapes, with unknown ones inferred where possible;
                with a second list, of output shapes, the op is not run; "same": all shapes are equal
    types       (input dtypes, attributes) -> (input dtypes, output dtypes), None where unknown; by default all are
                equal, and outputs have the attribute `dtype` if there is one
    """

    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        row = Op(fn, names, same_dtype, may_alias, mutates, **of_symbols)
        for name in names:
            assert name not in OPS, f"two ops have the name {name}"
            OPS[name] = row
        return fn

    return enter


def typed(
    outputs: Sequence[torch.dtype | int], inputs: Sequence[torch.dtype | int | None] = ()
) -> Callable[[Types, dict[str, Any]], tuple[Types, Types]]:
    """`types=` for an op whose dtypes are fixed, or equal to that of the input with a given index. None: any dtype."""

    def types(given: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
        known = list(given)
        for i, dtype in enumerate(inputs[: len(known)]):
            if dtype is not None and known[i] is None:
                known[i] = known[dtype] if isinstance(dtype, int) else dtype
        return known, [known[dtype] if isinstance(dtype, int) else dtype for dtype in outputs]

    return types


def by_data(rule: Callable[[tuple[int, ...], dict[str, Any]], Sequence[tuple[int, ...]]]) -> Callable[..., Shapes]:
    """`infer=` from a rule that returns the shapes of the other inputs given the shape of the first."""

    def infer(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
        if shapes[0] is None:
            return shapes
        try:
            return [shapes[0], *rule(shapes[0], attrs)][: len(shapes)]
        except (LookupError, ArithmeticError, ValueError, TypeError):
            return shapes  # the op reports the error with more context

    return infer


def get_op(name: str) -> Op:
    """Return the op with that name, or raise an error that suggests one."""
    try:
        return OPS[name]
    except KeyError:
        raise MXNetError(f"no op is called {name!r}.{suggest(name, OPS)}") from None


# ---- attribute values: converted from every spelling in programs and JSON files for the function ----


def _converter(annotation: Any) -> Callable[[Any], Any]:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _BY_KIND[annotation.__metadata__[0]]
    if origin in (typing.Union, types.UnionType):
        (inner,) = [a for a in typing.get_args(annotation) if a is not type(None)]
        return _optional(_converter(inner))
    if origin is Literal:
        return _choice(typing.get_args(annotation))
    return _BY_TYPE[annotation]


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        pass
    if isinstance(value, str):
        return _of_64_bits(int(value))
    raise TypeError("expected an int")


def _of_64_bits(value: int) -> int:
    if value.bit_length() > 64:
        raise ValueError("expected a 64-bit integer")
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError("expected a number") from None


def _bool(value: Any) -> bool:
    if isinstance(value, str):
        if value in ("True", "true", "1"):
            return True
        if value in ("False", "false", "0"):
            return False
        raise TypeError("expected True or False")
    return bool(value)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value


def _sequence(value: Any) -> Iterable[Any]:
    if isinstance(value, str):
        return numbers_in(value)
    if isinstance(value, (int, float)) or not hasattr(value, "__iter__") or getattr(value, "ndim", 1) == 0:
        return (value,)
    return value


def numbers_in(text: str) -> tuple[int | float | None, ...]:
    """Parse numbers as written in JSON files of 1.x: "(1, 2)", "[1,2]", "3", and longs "1L".

    None is kept, for slice.
    """
    text = text.strip()
    bracketed = text[:1] + text[-1:] in ("()", "[]")
    words = (text[1:-1] if bracketed else text).split(",")
    if bracketed or len(words) > 1:
        words = words if words[-1].strip() else words[:-1]
    return tuple(_number(word.strip()) for word in words)


def _number(word: str) -> int | float | None:
    if word == "None":
        return None
    try:
        value = int(word.removesuffix("L"))
    except ValueError:
        return float(word)
    return _of_64_bits(value)


def _shape(value: Any) -> tuple[int | None, ...]:
    if type(value) is int:
        return (value,)
    try:
        if type(value) is not tuple:
            value = tuple(_sequence(value))
        for v in value:
            if type(v) is not int and v is not None:
                return tuple(v if v is None else _int(v) for v in value)
        return value
    except (TypeError, ValueError):
        raise TypeError("expected an int or a tuple of ints") from None


def _axis(value: Any) -> tuple[int | None, ...] | None:
    if value is None or (type(value) is str and value == "None"):
        return None
    return (value,) if type(value) is int else _shape(value)


def _pairs(value: Any) -> tuple[tuple[int, ...], ...]:
    try:
        value = ast.literal_eval(value) if isinstance(value, str) else value
        if not hasattr(value, "__iter__"):
            value = (value, value)
        if all(not hasattr(item, "__iter__") for item in value):
            value = (value,)
        pairs = [tuple(map(_int, pair)) for pair in value]
    except (TypeError, ValueError, SyntaxError):
        raise TypeError("expected a tuple of pairs of ints") from None
    return tuple(pair * 2 if len(pair) == 1 else pair for pair in pairs)


def _floats(value: Any) -> tuple[float, ...]:
    try:
        return tuple(float(v) for v in _sequence(value))
    except (TypeError, ValueError):
        raise TypeError("expected a number or a tuple of numbers") from None


def _ctx(value: Any) -> Context:
    if isinstance(value, Context):
        return value
    if value is None:
        return current_context()
    if isinstance(value, str):
        kind, _, rest = value.partition("(")
        return Context(kind, int(rest.rstrip(")") or 0))
    raise TypeError("expected a Context")


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None or (type(value) is str and value == "None") else convert(value)


def _choice(choices: tuple[Any, ...]) -> Callable[[Any], Any]:
    by_text = {str(choice): choice for choice in choices}

    def convert(value: Any) -> Any:
        try:
            return by_text[value.__name__ if isinstance(value, type) else str(value)]  # numpy.float32 is "float32"
        except KeyError:
            raise TypeError(f"expected one of {', '.join(map(repr, choices))}") from None

    return convert


_BY_TYPE: dict[Any, Callable[[Any], Any]] = {int: _int, float: _float, bool: _bool, str: _str}
_BY_KIND: dict[str, Callable[[Any], Any]] = {
    "shape": _shape,
    "axis": _axis,
    "pairs": _pairs,
    "floats": _floats,
    "dtype": to_torch,
    "ctx": _ctx,
    "anything": lambda value: value,
}
