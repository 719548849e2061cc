"""`mx.operator`: custom ops written in Python on NDArrays, called as `mx.nd.Custom(..., op_type=name)`.

The legacy classes NumpyOp and NDArrayOp work only on symbols and are called directly: `MyOp()(data, name="my")`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from . import name as naming
from . import symbol
from .autograd import pause
from .base import MXNetError, modes
from .context import Context
from .dtype import FLAG_OF_TORCH, NUMPY_OF_TORCH, to_torch
from .ndarray.ndarray import NDArray
from .ops.custom import REGISTERED, Registered
from .ops.table import OPS, get_op

__all__ = [
    "CustomOp",
    "CustomOpProp",
    "NDArrayOp",
    "NumpyOp",
    "OperatorArguments",
    "PythonOp",
    "get_all_registered_operators",
    "get_operator_arguments",
    "register",
]


class CustomOp:
    """The computation of a custom op. Override `forward` and, for gradients, `backward`. Write results by `assign`."""

    def forward(
        self, is_train: bool, req: list[str], in_data: list[NDArray], out_data: list[NDArray], aux: list[NDArray]
    ) -> None:
        """Fill `out_data` from `in_data`."""
        raise NotImplementedError(f"{type(self).__name__} must override forward")

    def backward(
        self,
        req: list[str],
        out_grad: list[NDArray],
        in_data: list[NDArray],
        out_data: list[NDArray],
        in_grad: list[NDArray],
        aux: list[NDArray],
    ) -> None:
        """Fill `in_grad` from `out_grad`."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")

    def assign(self, dst: NDArray, req: str, src: Any) -> None:
        """Write `src` into `dst` as requested by `req`: 'write', 'inplace', 'add' or 'null' (no write)."""
        if req in ("write", "inplace"):
            dst[:] = src
        elif req == "add":
            dst[:] += src


class CustomOpProp:
    """The interface of a custom op: names, shapes and types of inputs and outputs, and a factory for the CustomOp."""

    def __init__(self, need_top_grad: bool = True):
        self.need_top_grad_ = need_top_grad

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        """Return (input shapes, output shapes, auxiliary shapes). By default outputs have the first input's shape."""
        return in_shape, [in_shape[0]] * len(self.list_outputs()), []

    def infer_type(self, in_type: list[Any]) -> Any:
        """Return (input types, output types, auxiliary types). By default all have the type of the first input."""
        return in_type, [in_type[0]] * len(self.list_outputs()), [in_type[0]] * len(self.list_auxiliary_states())

    def infer_storage_type(self, in_stype: list[str]) -> Any:
        """Return the storage types, which are dense."""
        return in_stype, ["default"] * len(self.list_outputs()), ["default"] * len(self.list_auxiliary_states())

    def infer_storage_type_backward(self, *stypes: list[str]) -> Any:
        """Return the storage types in backward, which are dense."""
        return [["default"] * len(each) for each in stypes]

    def list_arguments(self) -> list[str]:
        """Return the names of the inputs."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Return the names of the outputs."""
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Return the names of the states that forward may change. Their arrays follow the inputs in a call."""
        return []

    def declare_backward_dependency(self, out_grad: Any, in_data: Any, out_data: Any) -> list[Any]:
        """Return the arrays that backward needs. This method is accepted but ignored: all arrays are kept."""
        return [*(out_grad if self.need_top_grad_ else []), *in_data, *out_data]

    def create_operator(self, ctx: Context, in_shapes: list[list[int]], in_dtypes: list[int]) -> CustomOp:
        """Return the CustomOp that does the computation."""
        raise NotImplementedError(f"{type(self).__name__} must override create_operator")


def register(reg_name: str) -> Callable[[type[CustomOpProp]], type[CustomOpProp]]:
    """Decorate a CustomOpProp to make it callable as `op_type=reg_name`."""

    def enter(prop_class: type[CustomOpProp]) -> type[CustomOpProp]:
        if not (isinstance(prop_class, type) and issubclass(prop_class, CustomOpProp)):
            raise MXNetError(f"register({reg_name!r}) expects a subclass of CustomOpProp, received {prop_class!r}")

        def make(parameters: dict[str, Any]) -> CustomOpProp:
            # MXNet passes parameters as strings, which props parse.
            words: dict[str, Any] = {k: str(v) for k, v in parameters.items()}
            return prop_class(**words)

        def run(
            tensors: Sequence[torch.Tensor], parameters: dict[str, Any], ctx: Context, memory: dict[str, Any]
        ) -> Sequence[torch.Tensor]:
            arrays = {k: v for k, v in parameters.items() if isinstance(v, NDArray)}
            prop = memory.get("prop") or make({k: v for k, v in parameters.items() if k not in arrays})
            if arrays:
                names = [*prop.list_arguments(), *prop.list_auxiliary_states()]
                tensors = [*tensors, *[arrays[name]._data for name in names[len(tensors) :] if name in arrays]]
            return _run(reg_name, prop, tensors, next((a._ctx for a in arrays.values()), ctx), memory)

        REGISTERED[reg_name] = Registered(run, make)
        return prop_class

    return enter


def _run(
    name: str, prop: CustomOpProp, tensors: Sequence[torch.Tensor], ctx: Context, memory: dict[str, Any]
) -> Sequence[torch.Tensor]:
    arguments, states = prop.list_arguments(), prop.list_auxiliary_states()
    if len(tensors) != len(arguments) + len(states):
        raise MXNetError(
            f"custom op {name!r} takes {len(arguments)} input(s) {arguments} and {len(states)} state(s) {states}, "
            f"received {len(tensors)} array(s)"
        )
    inputs, aux = tensors[: len(arguments)], tensors[len(arguments) :]
    shapes = prop.infer_shape([list(t.shape) for t in inputs])
    types = prop.infer_type([NUMPY_OF_TORCH[t.dtype] for t in inputs])
    outputs = prop.list_outputs()
    for what, found in (("infer_shape", shapes), ("infer_type", types)):
        if len(found) not in (2, 3) or len(found[1]) != len(outputs):
            raise MXNetError(
                f"custom op {name!r}: {what} must return (inputs, outputs[, states]) with {len(outputs)} output(s), "
                f"returned {found!r:.200}"
            )
    for argument, tensor, wanted in zip(arguments, inputs, shapes[0], strict=False):
        if tuple(wanted) != tuple(tensor.shape):
            raise MXNetError(
                f"custom op {name!r}: infer_shape expects {argument} of shape {tuple(wanted)}, "
                f"received {tuple(tensor.shape)}"
            )
    if "operator" not in memory:
        shapes_and_types = [list(t.shape) for t in tensors], [FLAG_OF_TORCH[t.dtype] for t in tensors]
        memory["operator"] = prop.create_operator(ctx, *shapes_and_types)
    made = [
        torch.zeros(
            tuple(np.atleast_1d(shape).tolist()),
            dtype=to_torch(dtype),
            device=tensors[0].device if tensors else ctx.device,
        )
        for shape, dtype in zip(shapes[1], types[1], strict=True)
    ]
    call = _Call(memory["operator"], [NDArray(t.detach(), ctx) for t in aux], ctx)
    return _Custom.apply(call, made, *inputs)


class _Call:
    """The data of one call of a custom op that backward needs."""

    def __init__(self, operator: CustomOp, aux: list[NDArray], ctx: Context):
        self.operator, self.aux, self.ctx, self.training = operator, aux, ctx, modes.training

    def wrap(self, tensors: Sequence[torch.Tensor]) -> list[NDArray]:
        return [NDArray(t.detach(), self.ctx) for t in tensors]

    @contextmanager
    def running(self, method: str) -> Iterator[None]:
        """Run a method of the operator as MXNet does: nothing is recorded, and any exception is an MXNetError."""
        try:
            with pause(train_mode=self.training):
                yield
        except (MXNetError, NotImplementedError):
            raise
        except Exception as error:
            name = f"{type(self.operator).__name__}.{method}"
            raise MXNetError(f"Custom: {name} raised {type(error).__name__}: {error}") from error


class _Custom(torch.autograd.Function):
    """Adds a custom op to torch's autograd graph."""

    @staticmethod
    def forward(ctx: Any, call: _Call, outputs: list[torch.Tensor], *inputs: torch.Tensor) -> Any:
        with call.running("forward"):
            call.operator.forward(
                call.training, ["write"] * len(outputs), call.wrap(inputs), call.wrap(outputs), call.aux
            )
        ctx.call = call
        ctx.count = len(inputs)
        ctx.save_for_backward(*inputs, *outputs)
        ctx.mark_non_differentiable(*[o for o in outputs if not o.is_floating_point()])
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        inputs, outputs = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        wanted = ctx.needs_input_grad[2:]
        made = [torch.zeros_like(t) for t in inputs]
        call = ctx.call
        arrays = call.wrap([g.contiguous() for g in grads]), call.wrap(inputs), call.wrap(outputs), call.wrap(made)
        with call.running("backward"):
            call.operator.backward(["write" if w else "null" for w in wanted], *arrays, call.aux)
        return None, None, *[g if w else None for g, w in zip(made, wanted, strict=True)]


class PythonOp:
    """The base class of NumpyOp and NDArrayOp. Override `forward`, `backward` and the defaults that do not apply."""

    _count = itertools.count()
    _hint = ""

    def __init__(self, need_top_grad: bool = True):
        kind = next(base.__name__ for base in type(self).__mro__ if base.__module__ == __name__)
        warnings.warn(f"{kind} has been deprecated. Please use CustomOp", stacklevel=2)
        self.need_top_grad_ = need_top_grad

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `get_symbol`."""
        return self.get_symbol(*args, **kwargs)

    def forward(self, in_data: list, out_data: list) -> None:
        """Fill `out_data` from `in_data`."""
        out_data[0][:] = in_data[0]

    def backward(self, out_grad: list, in_data: list, out_data: list, in_grad: list) -> None:
        """Fill `in_grad` from `out_grad`, which is empty unless `need_top_grad`."""
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        """Return (input shapes, output shapes). By default all have the shape of the first input."""
        return in_shape, [in_shape[0]]

    def list_arguments(self) -> list[str]:
        """Return the names of the inputs."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Return the names of the outputs."""
        return ["output"]

    def need_top_grad(self) -> bool:
        """Return whether backward needs `out_grad`. A loss does not."""
        return self.need_top_grad_

    def _call(self) -> CustomOp:
        """Return the CustomOp that runs this op."""
        raise NotImplementedError(f"{type(self).__name__} must derive from NumpyOp or NDArrayOp")

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """Return the op as a node of a graph, applied to symbols given by position or by name."""
        call = self._call()
        kind = f"{type(self).__name__}-{next(PythonOp._count)}"
        register(kind)(type(kind, (_PythonOpProp,), {"call": call, "python_op": self}))
        name = naming.current().get(kwargs.pop("name", None), self._hint)
        return symbol.Custom(*args, op_type=kind, name=name, **kwargs)


class NumpyOp(PythonOp):
    """An op whose `forward` and `backward` read and fill numpy arrays."""

    _hint = "_native"

    def _call(self) -> CustomOp:
        return _OnNumpy(self)


class NDArrayOp(PythonOp):
    """An op whose `forward` and `backward` read and fill NDArrays."""

    _hint = "_ndarray"

    def _call(self) -> CustomOp:
        return _OnNDArrays(self)

    def declare_backward_dependency(self, out_grad: list, in_data: list, out_data: list) -> list:
        """Return the arrays that backward needs. This method is accepted but ignored: all arrays are kept."""
        return [*(out_grad if self.need_top_grad() else []), *in_data, *out_data]


class _PythonOpProp(CustomOpProp):
    """A CustomOpProp for a PythonOp."""

    python_op: PythonOp
    call: CustomOp

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        return *self.python_op.infer_shape(in_shape), []

    def list_arguments(self) -> list[str]:
        return self.python_op.list_arguments()

    def list_outputs(self) -> list[str]:
        return self.python_op.list_outputs()

    def create_operator(self, ctx: Context, in_shapes: list[list[int]], in_dtypes: list[int]) -> CustomOp:
        return self.call


class _OnNDArrays(CustomOp):
    """Passes arrays to a PythonOp."""

    def __init__(self, python_op: PythonOp):
        self.python_op = python_op

    def forward(self, is_train: bool, req: Any, in_data: list, out_data: list, aux: Any) -> None:
        self.python_op.forward(in_data=in_data, out_data=out_data)

    def backward(self, req: Any, out_grad: list, in_data: list, out_data: list, in_grad: list, aux: Any) -> None:
        grads = out_grad if self.python_op.need_top_grad() else []
        self.python_op.backward(out_grad=grads, in_data=in_data, out_data=out_data, in_grad=in_grad)


class _OnNumpy(_OnNDArrays):
    """Passes NumPy copies to a PythonOp, and copies its results back."""

    def forward(self, is_train: bool, req: Any, in_data: list, out_data: list, aux: Any) -> None:
        written = _as_numpy(out_data)
        super().forward(is_train, req, _as_numpy(in_data), written, aux)
        _write(out_data, written)

    def backward(self, req: Any, out_grad: list, in_data: list, out_data: list, in_grad: list, aux: Any) -> None:
        written = _as_numpy(in_grad)
        super().backward(req, _as_numpy(out_grad), _as_numpy(in_data), _as_numpy(out_data), written, aux)
        _write(in_grad, written)


def _as_numpy(arrays: list[NDArray]) -> list[np.ndarray]:
    return [array.asnumpy() for array in arrays]


def _write(arrays: list[NDArray], values: list[np.ndarray]) -> None:
    for array, value in zip(arrays, values, strict=True):
        array[:] = value


def get_all_registered_operators() -> list[str]:
    """Return the names of all ops."""
    return sorted(OPS)


class OperatorArguments(NamedTuple):
    """The arguments of an op: their number, names and types."""

    narg: int
    names: list[str]
    types: list[str]


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """Return the tensor inputs of an op, followed by its attributes with their defaults."""
    op = get_op(op_name)
    # `ctx` is not an attribute of a call, and `multi_label` not one of MXNet, whose list this is.
    attributes = [name for name in op.attr_order if name not in ("ctx", "multi_label")]
    kinds = [f"optional, default={op.defaults[n]!r}" if n in op.defaults else "required" for n in attributes]
    names = [*op.inputs, *attributes]
    return OperatorArguments(len(names), names, ["NDArray-or-Symbol"] * len(op.inputs) + kinds)
