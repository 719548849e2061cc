"""NDArray: MXNet's array, which wraps a torch tensor and its context."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
import torch

from ..base import Backward, MXNetError, modes, numeric_types
from ..context import Context, cpu, current_context
from ..dtype import NUMPY_OF_TORCH, to_torch
from ..ops.shape import infer_reshape
from ..ops.table import OPS
from .distributed import whole
from .history import READ, Read, Source, step
from .indexing import Index
from .integers import derived
from .invoke import apply, in_graph, is_lent, lend, on_tape
from .private_names import PrivateNames
from .tracing import check_key, check_value

WIDE = (torch.float32, torch.float64)


def _method(name: str) -> Callable[..., Any]:
    """Return a method that calls the op `name` with the array as its first argument."""

    def method(self: NDArray, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        op = OPS[name]
        arrays, attrs = op.bind((self, *args), kwargs, NDArray)
        return apply(op, arrays, attrs, out, NDArray)

    method.__name__, method.__doc__ = name, f"Apply `nd.{name}` to this array."
    return method


def _operator(array_op: str, scalar_op: str) -> Callable[..., Any]:
    """Return a binary operator, with one op for two arrays and another for an array and a number."""

    def binary(self: NDArray, other: Any) -> Any:
        # Looked up on each call, because torch.compile can trace a global but not a closure variable.
        if isinstance(other, NDArray):
            return apply(OPS[array_op], (self, other), {}, None, NDArray)
        if isinstance(other, numeric_types):
            return apply(OPS[scalar_op], (self,), {"scalar": other}, None, NDArray)
        return _not_supported(other)

    return binary


def _in_place(array_op: str, scalar_op: str, direct: Callable[..., torch.Tensor] | None = None) -> Callable[..., Any]:
    """Return an in-place operator. It uses `direct` where torch's operation equals MXNet's, otherwise `out=`."""
    with_array, with_scalar = OPS[array_op], OPS[scalar_op]

    def binary(self: NDArray, other: Any) -> Any:
        op, arrays, attrs, value = with_array, [self], {}, other
        if isinstance(other, NDArray):
            arrays, value = [self, other], other._data
        elif isinstance(other, numeric_types):
            op, attrs = with_scalar, {"scalar": other}
        else:
            return _not_supported(other)
        data = self._data
        if value is other and data.dtype not in WIDE:  # torch rounds a number differently to narrow floats
            return apply(op, arrays, attrs, self, NDArray)
        if direct is None or self._sparse or not data.is_floating_point() or modes.recording:
            return apply(op, arrays, attrs, self, NDArray)
        if value is not other:
            if (
                other._sparse
                or value.dtype is not data.dtype
                or value.shape != data.shape
                or other._ctx is not self._ctx
            ):
                return apply(op, arrays, attrs, self, NDArray)
            value = value.detach() if value.requires_grad else value
        try:
            direct(self._writable_data(), value)
        except (RuntimeError, OverflowError):  # overlapping arrays, booleans, an int of more than 64 bits
            return apply(op, arrays, attrs, self, NDArray)
        return self

    return binary


def _not_supported(other: Any) -> Any:
    raise TypeError(
        f"expected an NDArray or a number as operand of an NDArray, received {type(other).__name__}. "
        "Convert it with mx.nd.array(...)"
    )


class NDArray(PrivateNames):
    """An n-dimensional array on a context.

    It wraps a torch tensor, which `mx.nd.from_torch` and `.to_torch()` exchange without a copy.
    """

    __slots__ = ("_data", "_ctx", "_grad", "_history", "__weakref__")
    __array_priority__ = 1000.0
    _sparse = False  # whether ops must use the rules in `sparse_ops`
    _kind: type[NDArray]  # the class of arrays created from this one: NDArray, or mx.np.ndarray
    _gradient_kind: type[Gradient]  # the class of the gradient

    def __init__(self, data: torch.Tensor, ctx: Context | None = None):
        self._data = data
        self._ctx = current_context() if ctx is None else ctx
        self._grad: NDArray | None = None
        self._history: Source = None  # the call that computed it, if it was recorded

    @classmethod
    def accepts(cls, value: Any) -> bool:
        """Whether `value` may be an input of an op on this kind of array."""
        return isinstance(value, NDArray) and value._kind is cls._kind

    @classmethod
    def refuse(cls, value: Any, argument: str) -> NoReturn:
        """Raise an error for an input that is not accepted; `argument` names the op and the input."""
        if isinstance(value, NDArray):
            expected, received = ("nd", "np") if cls._kind is NDArray else ("np", "nd")
            raise TypeError(
                f"{argument} must be an mx.{expected} array, received an mx.{received} array. "
                f"Use x.as_{expected}_ndarray(), which shares memory, or the function of the other namespace"
            )
        raise MXNetError(f"{argument} must be an {cls.__name__}, received {type(value).__name__} {value!r:.80}")

    # ---- attributes ----

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return tuple(self._data.shape)

    @property
    def dtype(self) -> Any:
        """The numpy type of the elements, such as `numpy.float32`."""
        return NUMPY_OF_TORCH[self._data.dtype]

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._data.numel()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._data.dim()

    @property
    def context(self) -> Context:
        """The device of the array."""
        return self._ctx

    ctx = context

    @property
    def stype(self) -> str:
        """The storage type: 'default', 'row_sparse' or 'csr'."""
        return "default"

    @property
    def T(self) -> NDArray:
        """A copy with the dimensions in reverse order."""
        return self.transpose()

    @property
    def writable(self) -> bool:
        """Whether the array may be written to: always True."""
        return True

    @property
    def handle(self) -> torch.Tensor:
        """The torch tensor. In MXNet, this is a C handle."""
        return self._data

    @property
    def grad(self) -> NDArray | None:
        """The gradient buffer created by `attach_grad`, or None."""
        return self._grad

    # ---- conversion ----

    def to_torch(self) -> torch.Tensor:
        """Return the wrapped tensor. It shares memory with the array, and gradients flow through it."""
        return self._data

    def asnumpy(self) -> np.ndarray:
        """Return a numpy copy. A sharded array is gathered, so all workers with a shard must call this."""
        if modes.tracing is not None:
            check_value(self._data)
        return self._printable()

    def _printable(self) -> np.ndarray:
        """Return a numpy copy to print, also while the function that computes the array is traced."""
        data = whole(self._data.detach())
        if data.dtype is torch.bfloat16:
            data = data.float()
        try:
            return np.array(data.numpy(force=True), order="C")
        except ValueError as error:  # a file may have empty arrays of any shape
            raise MXNetError(f"numpy does not support shape {self.shape}: {error}") from error

    def asscalar(self) -> Any:
        """Return the value of an array with one element."""
        if self.size != 1:
            raise ValueError(f"The current array is not a scalar: it has shape {self.shape}")
        return self.asnumpy().reshape(-1)[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        result = self.asnumpy()
        return result if dtype is None else result.astype(dtype, copy=False)

    def __dlpack__(self, **kwargs: Any) -> Any:
        check_value(self._data)
        return self._data.detach().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()

    def to_dlpack_for_read(self) -> Any:
        """Return a DLPack capsule of the array's memory."""
        check_value(self._data)
        return torch.utils.dlpack.to_dlpack(self._data.detach())

    to_dlpack_for_write = to_dlpack_for_read

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.asnumpy(), self._data.dtype, self._ctx, self._kind)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the values from a pickle of MXNet, which creates an empty object and then calls this method."""
        from .serialize import array_frombuffer

        read = array_frombuffer(state["handle"])
        self._data, self._ctx, self._grad, self._history = read._data, read._ctx, None, None

    def __deepcopy__(self, memo: Any) -> NDArray:
        return self.copy()

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"\n{self._printable()}\n<NDArray {shape} @{self._ctx}>"

    # ---- copies and views ----

    def copy(self) -> NDArray:
        """Return a copy on the same context."""
        return self.copyto(self._ctx)

    def copyto(self, other: NDArray | Context) -> NDArray:
        """Copy into another array, or to a new array on a context."""
        if isinstance(other, Context):
            data, device = self._data, other.check().device
            if modes.recording and not modes.plain and in_graph(data) is not None:
                return self._recorded(lambda data: data.to(device, copy=True), other, OPS["_copyto"], {})
            if not data.requires_grad:
                return self._kind(data.clone() if data.device == device else data.to(device), other)
            with torch.set_grad_enabled(modes.recording):
                return self._kind(data.to(device, copy=True), other)
        if isinstance(other, NDArray):
            if other is not self:
                if other.shape != self.shape:
                    raise MXNetError(f"copyto: expected a target of shape {self.shape}, received {other.shape}")
                other._assign(self._data)
                if modes.recording and in_graph(other._data) is not None:
                    on_tape(other, step(OPS["_copyto"], {}, (self,)))
            return other
        raise TypeError(f"copyto expects an NDArray or a Context, received {type(other).__name__}")

    def as_in_context(self, context: Context) -> NDArray:
        """Return this array if it is on the context, otherwise a copy on that context."""
        return self if context is self._ctx else self.copyto(context)

    as_in_ctx = as_in_context

    def as_nd_ndarray(self) -> NDArray:
        """Return this array, which is already an `mx.nd` array."""
        return self

    def as_np_ndarray(self) -> NDArray:
        """Return an `mx.np` array that shares this array's memory, gradient and position in the autograd graph."""
        return self._as_kind(import_module("neomx.numpy").ndarray)  # imported lazily: it imports this package

    def _as_kind(self, kind: type[NDArray]) -> NDArray:
        twin = kind(self._data, self._ctx)
        if isinstance(self._grad, Gradient):
            twin._grad = kind._gradient_kind(self._grad._leaf, self._ctx)
        twin._history = self._history
        return on_tape(twin, self._history) if modes.recording and self._history is not None else twin

    def astype(self, dtype: Any, copy: bool = True) -> NDArray:
        """Return a copy with elements of `dtype`; with `copy=False`, the array itself if it already has that dtype."""
        wanted = to_torch(dtype)
        if not copy and wanted is self._data.dtype:
            return self
        return apply(OPS["cast"], (self,), {"dtype": wanted}, None, NDArray)

    def detach(self) -> NDArray:
        """Return an array with the same memory, outside the autograd graph.

        It is a copy if this array is a recorded view of another one, such as a transpose.
        """
        data = self._data.data
        return self._kind(data.clone() if is_lent(self._data) else data, self._ctx)

    def tostype(self, stype: str) -> NDArray:
        """Return this array with storage type 'default', 'row_sparse' or 'csr'."""
        if stype == "default":
            return self
        from .sparse_array import cast_storage

        return cast_storage(self, stype)

    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray:
        """Return a view with another shape. It may contain MXNet's codes 0 to -4, read from the right if `reverse`."""
        if kwargs and (unknown := kwargs.keys() - {"shape", "reverse"}):
            raise TypeError(f"Got unknown keywords in reshape: {', '.join(unknown)}. Expected shape or reverse.")
        if not shape and not kwargs.get("shape"):
            raise AssertionError("Shape must be provided: reshape((2, 3)), reshape(2, 3) or reshape(shape=(2, 3))")
        if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)):
            wanted = tuple(map(int, shape[0]))
        else:
            wanted = tuple(map(int, shape or _as_tuple(kwargs["shape"])))
        data = self._data
        if (wanted and min(wanted) <= 0) or math.prod(wanted) != data.numel():
            wanted = infer_reshape(self.shape, wanted, bool(kwargs.get("reverse", False)))
        if modes.recording or data.requires_grad or not data.is_contiguous():
            return self._view(lambda data: data.reshape(wanted), OPS["Reshape"], {"shape": wanted})
        return self._kind(data.view(wanted), self._ctx)

    def expand_dims(self, axis: int, inplace: bool = False) -> NDArray:
        """Apply `nd.expand_dims` to this array; with `inplace`, return a view."""
        if not inplace:
            return apply(OPS["expand_dims"], (self,), {"axis": axis}, None, NDArray)
        if not -self.ndim - 1 <= axis <= self.ndim:
            raise AssertionError(f"expand_dims: axis must be between {-self.ndim - 1} and {self.ndim}, received {axis}")
        place = axis + self.ndim + 1 if axis < 0 else axis
        return self.reshape((*self.shape[:place], 1, *self.shape[place:]))

    def flatten(self, inplace: bool = False) -> NDArray:
        """Apply `nd.flatten` to this array; with `inplace`, return a view."""
        return self.reshape((0, -1)) if inplace else apply(OPS["flatten"], (self,), {}, None, NDArray)

    def squeeze(self, axis: Any = None, inplace: bool = False) -> NDArray:
        """Apply `nd.squeeze` to this array; with `inplace`, return a view."""
        if not inplace:
            op = OPS["squeeze"]
            return apply(op, (self,), {"axis": op.convert("axis", axis)}, None, NDArray)
        axes = [i for i, n in enumerate(self.shape) if n == 1] if axis is None else _as_tuple(axis)
        for i in axes:
            if not -self.ndim <= i < self.ndim or self.shape[i] != 1:
                raise AssertionError(f"squeeze: expected axes of size 1, received {axis} for shape {self.shape}")
        left = {i % self.ndim for i in axes}
        return self.reshape(tuple(n for i, n in enumerate(self.shape) if i not in left) or (1,))

    def _view(self, of: Callable[[torch.Tensor], torch.Tensor], how: Any, attrs: Any) -> NDArray:
        """Apply `of` to the tensor. The result shares memory outside the autograd graph, and is recorded inside it.

        Its history contains `how` and `attrs`. For READ, `attrs` is the key.
        """
        data = self._data
        if modes.plain:
            return self._kind(of(data), self._ctx)
        if modes.recording and in_graph(data) is not None:
            return self._recorded(of, self._ctx, how, attrs)
        if not data.is_contiguous():
            data.data = data.data.contiguous()
        return self._kind(of(data.data if data.requires_grad else data), self._ctx)

    def _recorded(self, of: Callable[[torch.Tensor], torch.Tensor], ctx: Context, how: Any, attrs: Any) -> NDArray:
        """Apply `of` to the array's tensor, which is in the autograd graph, and return a recorded array on `ctx`."""
        data = self._data
        with torch.enable_grad():
            result = derived(data, of)
        if is_lent(data) or not result.is_contiguous():  # outside the graph, a piece that is not contiguous is a copy
            lend((result,))
        attrs = Read(attrs, data.shape, result.shape) if how is READ else attrs
        return on_tape(self._kind(result, ctx), step(how, attrs, (self,)))

    def wait_to_read(self) -> None:
        """Wait until the array is computed."""
        if self._ctx.device_type == "gpu":
            torch.accelerator.synchronize(self._data.device)

    wait_to_write = wait_to_read

    # ---- reading and writing elements ----

    def __getitem__(self, key: Any) -> NDArray:
        if type(key) is int and -self._data.shape[0] <= key < self._data.shape[0] and self._data.dim() > 1:
            return self._view(lambda data: data[key], READ, key)  # a row: fast path for the common case
        if type(key) is slice and key == slice(None):
            return self
        if modes.tracing is not None:
            check_key(key)
        index = Index(key, self.shape, self._data.device)
        result = self._view(index.read, READ, index)
        if not result._data.is_contiguous() and in_graph(result._data) is None:
            result._data = result._data.contiguous()  # MXNet only shares contiguous memory
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.shape and isinstance(key, slice) and key == slice(None):
            key = ()  # x[:] = v writes the whole array, including a scalar
        if modes.tracing is not None:
            check_key(key)
        index = Index(key, self.shape, self._data.device)
        target = self._writable_data(value)
        if isinstance(value, NDArray):
            value = value._data.detach()
        elif not isinstance(value, (int, float)):
            value = torch.as_tensor(np.asarray(value))
        elif not target.is_floating_point():
            value = torch.tensor(int(value))  # truncate to an integer, which wraps around in a narrow dtype
        if isinstance(value, torch.Tensor):
            value = value.to(target.device, target.dtype)
        try:
            index.write(target, value)
        except RuntimeError as error:
            raise ValueError(
                f"x[{key!r}] = value: cannot assign a value of shape {tuple(np.shape(value))} to that part of an array "
                f"of shape {self.shape}: {error}"
            ) from error

    def _writable_data(self, *values: Any) -> torch.Tensor:
        """Return the tensor for in-place writes: its `.data`, whose version counter torch's backward does not check.

        As in MXNet, backward reads the current contents of memory.
        """
        data = self._data
        if modes.recording and (
            data.requires_grad or any(isinstance(v, NDArray) and v._data.requires_grad for v in values)
        ):
            raise MXNetError(
                "in-place operations (+=, -=, x[:]=, out=) on or with arrays of a computational graph are not "
                "supported while recording with autograd. Do them outside `autograd.record()`, or write x = x + y"
            )
        if data.requires_grad and data._is_view():
            data.data = data.data.clone(memory_format=torch.contiguous_format)  # results of ops do not share memory
        return data.data

    def _assign(self, result: torch.Tensor) -> None:
        """Overwrite the whole array with a tensor of its shape. If the tensor is in the graph, the array joins it."""
        if modes.recording and in_graph(result) is not None and in_graph(self._data) is None:
            self._data = result.to(self._data.dtype)
            return
        self._writable_data().copy_(result.detach() if result.requires_grad else result)

    def __len__(self) -> int:
        if not self._data.dim():
            raise TypeError("len() of an array with zero dimensions")
        return self._data.shape[0]

    def __iter__(self) -> Iterator[NDArray]:
        for i in range(len(self)):
            yield self[i]

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError("The truth value of an NDArray with multiple elements is ambiguous.")
        return bool(self.size and self.asscalar())

    __nonzero__ = __bool__

    def __float__(self) -> float:
        return float(np.squeeze(self.asscalar()))

    def __int__(self) -> int:
        return int(np.squeeze(self.asscalar()))

    # ---- autograd ----

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Make the array a variable. `backward` writes ('write') or adds ('add') to `.grad`, or ignores it ('null')."""
        Gradient.attach(self, grad_req, stype=stype)

    def backward(self, out_grad: NDArray | None = None, retain_graph: bool = False, train_mode: bool = True) -> None:
        """Compute the gradients of this array with respect to the variables that it depends on."""
        from ..autograd import backward

        backward([self], None if out_grad is None else [out_grad], retain_graph, train_mode)

    # ---- operators ----

    __add__ = __radd__ = _operator("broadcast_add", "_plus_scalar")
    __sub__ = _operator("broadcast_sub", "_minus_scalar")
    __mul__ = __rmul__ = _operator("broadcast_mul", "_mul_scalar")
    __truediv__ = __div__ = _operator("broadcast_div", "_div_scalar")
    __mod__ = _operator("broadcast_mod", "_mod_scalar")
    __pow__ = _operator("broadcast_power", "_power_scalar")
    __rsub__ = _operator("broadcast_sub", "_rminus_scalar")
    __rtruediv__ = __rdiv__ = _operator("broadcast_div", "_rdiv_scalar")
    __rmod__ = _operator("broadcast_mod", "_rmod_scalar")
    __rpow__ = _operator("broadcast_power", "_rpower_scalar")
    __iadd__ = _in_place("broadcast_add", "_plus_scalar", torch.Tensor.add_)
    __isub__ = _in_place("broadcast_sub", "_minus_scalar", torch.Tensor.sub_)
    __imul__ = _in_place("broadcast_mul", "_mul_scalar", torch.Tensor.mul_)
    __itruediv__ = __idiv__ = _in_place("broadcast_div", "_div_scalar", torch.Tensor.div_)
    __imod__ = _in_place("broadcast_mod", "_mod_scalar")
    __eq__ = _operator("broadcast_equal", "_equal_scalar")
    __ne__ = _operator("broadcast_not_equal", "_not_equal_scalar")
    __gt__ = _operator("broadcast_greater", "_greater_scalar")
    __ge__ = _operator("broadcast_greater_equal", "_greater_equal_scalar")
    __lt__ = _operator("broadcast_lesser", "_lesser_scalar")
    __le__ = _operator("broadcast_lesser_equal", "_lesser_equal_scalar")
    __neg__ = _method("negative")
    __abs__ = _method("abs")
    __hash__ = object.__hash__

    # ---- ops as methods ----

    abs = _method("abs")
    arccos = _method("arccos")
    arccosh = _method("arccosh")
    arcsin = _method("arcsin")
    arcsinh = _method("arcsinh")
    arctan = _method("arctan")
    arctanh = _method("arctanh")
    argmax = _method("argmax")
    argmax_channel = _method("argmax_channel")
    argmin = _method("argmin")
    argsort = _method("argsort")
    broadcast_axes = _method("broadcast_axes")
    broadcast_like = _method("broadcast_like")
    broadcast_to = _method("broadcast_to")
    cbrt = _method("cbrt")
    ceil = _method("ceil")
    clip = _method("clip")
    cos = _method("cos")
    cosh = _method("cosh")
    degrees = _method("degrees")
    depth_to_space = _method("depth_to_space")
    diag = _method("diag")
    exp = _method("exp")
    expm1 = _method("expm1")
    fix = _method("fix")
    flip = _method("flip")
    floor = _method("floor")
    log = _method("log")
    log10 = _method("log10")
    log1p = _method("log1p")
    log2 = _method("log2")
    log_softmax = _method("log_softmax")
    max = _method("max")
    mean = _method("mean")
    min = _method("min")
    nanprod = _method("nanprod")
    nansum = _method("nansum")
    norm = _method("norm")
    one_hot = _method("one_hot")
    ones_like = _method("ones_like")
    pad = _method("pad")
    pick = _method("pick")
    prod = _method("prod")
    radians = _method("radians")
    rcbrt = _method("rcbrt")
    reciprocal = _method("reciprocal")
    relu = _method("relu")
    repeat = _method("repeat")
    reshape_like = _method("reshape_like")
    rint = _method("rint")
    round = _method("round")
    rsqrt = _method("rsqrt")
    shape_array = _method("shape_array")
    sigmoid = _method("sigmoid")
    sign = _method("sign")
    sin = _method("sin")
    sinh = _method("sinh")
    size_array = _method("size_array")
    slice = _method("slice")
    slice_axis = _method("slice_axis")
    slice_like = _method("slice_like")
    softmax = _method("softmax")
    softmin = _method("softmin")
    sort = _method("sort")
    space_to_depth = _method("space_to_depth")
    split = _method("split")

    def split_v2(self, *args: Any, **kwargs: Any) -> Any:
        """Apply `nd.split_v2` to this array."""
        from .utils import split_v2

        return split_v2(self, *args, **kwargs)

    sqrt = _method("sqrt")
    square = _method("square")
    sum = _method("sum")
    swapaxes = _method("swapaxes")
    take = _method("take")
    tan = _method("tan")
    tanh = _method("tanh")
    tile = _method("tile")
    topk = _method("topk")
    transpose = _method("transpose")
    trunc = _method("trunc")
    zeros_like = _method("zeros_like")
    slice_assign = _method("_slice_assign")
    slice_assign_scalar = _method("_slice_assign_scalar")


class GradientBuffer(NDArray):
    """A gradient buffer that counts writes by the program, because a sent gradient that changed must be sent again."""

    __slots__ = ()

    def _count_write(self) -> None:
        gradient = self._data
        gradient._writes = getattr(gradient, "_writes", 0) + 1  # type: ignore[attr-defined]

    def _writable_data(self, *values: Any) -> torch.Tensor:
        self._count_write()
        return super()._writable_data(*values)

    # Writes through arrays that share this memory are not counted, so creating such an array counts as a write.

    def __getitem__(self, key: Any) -> Any:
        self._count_write()
        return super().__getitem__(key)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """Apply `nd.reshape` to this array. The result shares its memory."""
        self._count_write()
        return super().reshape(*shape, **kwargs)

    def detach(self) -> NDArray:
        """Return an array with the same memory, outside the autograd graph."""
        self._count_write()
        return super().detach()


class Gradient(GradientBuffer):
    """The gradient of a variable, which wraps the `.grad` of its tensor.

    MXNet overwrites a gradient on each backward, but torch adds to it. For 'write', a hook therefore drops the old
    gradient when the new one arrives.
    """

    __slots__ = ("_leaf",)

    def __init__(self, leaf: torch.Tensor, ctx: Context):
        self._leaf = leaf
        self._ctx = ctx
        self._grad = self._history = None

    @property
    def _data(self) -> torch.Tensor:  # type: ignore[override]
        if self._leaf.grad is None:
            self._leaf.grad = torch.zeros_like(self._leaf)
        elif self._leaf.grad.is_sparse:
            self._leaf.grad = self._leaf.grad.to_dense()
        return self._leaf.grad

    @_data.setter
    def _data(self, value: torch.Tensor) -> None:
        self._leaf.grad = value

    @staticmethod
    def attach(array: NDArray, grad_req: str, buffer: NDArray | None = None, stype: str | None = None) -> None:
        """Make `array` a variable whose gradient goes to `buffer`, or to new memory with storage type `stype`."""
        if grad_req not in ("write", "add", "null"):
            raise ValueError(f"grad_req must be 'write', 'add' or 'null', received {grad_req!r}")
        if buffer is not None and buffer._sparse:
            raise MXNetError("a sparse array cannot be a gradient buffer. Use x.attach_grad(stype=...)")
        leaf = array._data
        if isinstance(leaf, torch.nn.Parameter):  # other objects reference it, so it must stay the same object
            leaf.grad = None
            for key in _overwrites(leaf):
                del leaf._backward_hooks[key]  # type: ignore[union-attr]
            leaf.requires_grad_(False)
        else:
            leaf = leaf.detach()
        array._data, array._grad, array._history = leaf, None, None
        if grad_req == "null":
            return
        if leaf.is_floating_point():
            leaf.requires_grad_()
            if grad_req == "write":
                _Overwrite(in_place=buffer is not None).watch(leaf)
        if buffer is not None:
            leaf.grad = buffer._data
        if stype in (None, "default"):
            array._grad = array._gradient_kind(leaf, array._ctx)
        else:
            from .sparse_array import gradient

            array._grad = gradient(leaf, array._ctx, stype)


NDArray._kind, NDArray._gradient_kind = NDArray, Gradient


class _Overwrite:
    """A hook that makes each backward replace a gradient, or overwrite it in place if the program references it."""

    __torch_unserializable__ = True  # unpickling the tensor attaches a new one

    def __init__(self, in_place: bool):
        self.in_place = in_place
        self.keepers: list[weakref.ref[torch.Tensor]] = []  # tensors of one variable, any of which may get the gradient

    def __call__(self, _: torch.Tensor) -> None:
        if Backward.accumulating:
            for reference in self.keepers:
                keeper = reference()
                if keeper is not None:
                    if not self.in_place:
                        keeper.grad = None
                    elif keeper.grad is not None:
                        keeper.grad.zero_()

    def watch(self, leaf: torch.Tensor) -> None:
        """Run this hook when the gradient of `leaf` is ready."""
        self.keepers = [reference for reference in self.keepers if reference() is not None] + [weakref.ref(leaf)]
        leaf.register_hook(self)


def _overwrites(leaf: torch.Tensor) -> dict[int, _Overwrite]:
    return {key: hook for key, hook in (leaf._backward_hooks or {}).items() if isinstance(hook, _Overwrite)}


def inherit_overwriting(leaf: torch.Tensor, before: torch.Tensor) -> None:
    """Make gradients of `leaf` overwrite as those of `before`, which it replaces."""
    if not _overwrites(leaf):
        for hook in _overwrites(before).values():
            hook.watch(leaf)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value,)


def _unpickle(data: np.ndarray, dtype: torch.dtype, ctx: Context, kind: type[NDArray] = NDArray) -> NDArray:
    """Restore a pickled array on its context, or on the CPU if that device is not available."""
    try:
        ctx.check()
    except MXNetError:
        ctx = cpu(0)
    return kind(torch.as_tensor(data).to(ctx.device, dtype), ctx)


def __getattr__(name: str) -> Any:
    """Provide the functions of MXNet's `ndarray.ndarray` that neomx defines in `utils`, which imports this module."""
    from . import private_names, utils

    if name in utils.__all__:
        return getattr(utils, name)
    if not name.startswith("__") and hasattr(private_names, name):
        return getattr(private_names, name)
    raise AttributeError(f"module 'mx.nd.ndarray' has no attribute {name!r}")
