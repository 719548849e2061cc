"""Parameters: handles on torch parameters, with one replica per context, initialized when their shape is known."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from .. import autograd, initializer, symbol
from .. import ndarray as nd
from ..base import MXNetError, modes, mx_real_t
from ..context import Context, cpu, current_context
from ..dtype import NAME_OF_TORCH, NUMPY_OF_TORCH, to_torch
from ..ndarray import NDArray
from ..ndarray.ndarray import Gradient, inherit_overwriting
from ..step.gradients import is_fresh
from .kinds import of_kind
from .placement import WHOLE
from .private_names import PrivateNames
from .sparse_rows import rows_of
from .utils import contexts, shape_is_known

__all__ = ["Constant", "DeferredInitializationError", "Parameter", "tensor_types"]

tensor_types = (symbol.Symbol, NDArray)


def __getattr__(name: str) -> Any:
    if name == "ParameterDict":  # MXNet has it here, but its own module imports this one
        from .parameter_dict import ParameterDict

        return ParameterDict
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DeferredInitializationError(MXNetError):
    """Raised when a parameter is accessed before its shape is known."""


class Owner(Protocol):
    """The interface through which a Parameter notifies its Trainer."""

    def begin_alike(self, params: list[Parameter]) -> None:
        """Called after these Parameters have been initialized."""

    def parameter_was_set(self) -> None:
        """Called before the program writes new values into a Parameter."""

    def take_layout(self) -> None:
        """Called after a layout has placed the Parameters."""

    def join_workers(self) -> None:
        """Called when all workers of the job train the Parameters from now on."""


class Parameter(PrivateNames):
    """A weight of a Block, with one array for each context that it is initialized on.

    With `allow_deferred_init`, a Parameter with unknown dimensions (0) is initialized at the first forward.
    """

    def __init__(
        self,
        name: str,
        grad_req: str = "write",
        shape: int | Sequence[int] | None = None,
        dtype: Any = mx_real_t,
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ):
        for kind, value in (("stype", stype), ("grad_stype", grad_stype)):
            if value not in ("default", "row_sparse", "csr"):
                raise AssertionError(
                    f"{kind} of Parameter {name!r} must be 'default', 'row_sparse' or 'csr', received {value!r}"
                )
        self.name = name
        self._shape = None if shape is None else _as_shape(shape)
        self._dtype = dtype
        self.lr_mult, self.wd_mult = lr_mult, wd_mult
        self.init = init
        self._allow_deferred_init, self._differentiable = allow_deferred_init, differentiable
        self._stype, self._grad_stype = stype, grad_stype
        self._arrays: dict[Context, NDArray] | None = None
        self._as_np: dict[Context, NDArray] = {}  # the same arrays, as `mx.np` arrays
        self._deferred_init: tuple[Any, ...] = ()  # (init, contexts, default_init, data or None) until initialized
        self._homes: list[tuple[dict[str, Any], str]] = []  # where twins hold the tensor of the first context
        self._var: symbol.Symbol | None = None
        self._owner: weakref.ReferenceType[Owner] | None = None
        self.placement = WHOLE  # where its values are stored; set by `mx.parallel`
        self._grad_req = "null"
        self.grad_req = grad_req

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy or pickle: it includes the tensors but no Trainer."""
        arrays = None if self._arrays is None else {array._ctx: array._data for array in self._list()}
        return {**vars(self), "_arrays": arrays, "_as_np": {}, "_var": None, "_owner": None, "placement": WHOLE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._arrays is not None:
            self._arrays = {ctx: NDArray(tensor, ctx) for ctx, tensor in state["_arrays"].items()}
            self._init_grad()

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.name} (shape={self.shape}, dtype={self.dtype})"

    # ---- properties ----

    @property
    def grad_req(self) -> str:
        """How backward stores the gradient: 'write', 'add', or 'null' for no gradient."""
        return self._grad_req

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req not in ("write", "add", "null"):
            raise AssertionError(f"grad_req must be one of 'write', 'add', or 'null', but got {req!r}")
        if not self._differentiable:
            req = "null"
        if req != self._grad_req:
            self._grad_req = req
            if self._arrays is not None:
                self._init_grad()

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        if self._homes and self._arrays is not None:  # torch's `.to(dtype)` does not notify us
            return self._list()[0].dtype
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self.cast(dtype)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape, or None if unknown. Unknown dimensions are 0 (-1 with NumPy shape semantics)."""
        if modes.np_shape and self._shape is not None:
            return tuple(size or -1 for size in self._shape)
        return self._shape

    @shape.setter
    def shape(self, new: int | Sequence[int]) -> None:
        new = _as_shape(new)
        if self._shape is None:
            self._shape = tuple(max(size, 0) for size in new)
            return
        if not _shapes_agree(self._shape, new):
            raise AssertionError(
                f"Expected shape {new} is incompatible with given shape {self._shape} ({self.name!r})."
            )
        self._shape = tuple(max(old, dim) for old, dim in zip(self._shape, new, strict=True))

    @property
    def stype(self) -> str:
        """The storage type of the values."""
        return self._stype

    @property
    def grad_stype(self) -> str:
        """The storage type of the gradient."""
        return self._grad_stype

    def var(self) -> symbol.Symbol:
        """Return the variable that represents this Parameter in a graph."""
        if self._var is None:
            self._var = symbol.var(
                self.name,
                shape=self.shape,
                dtype=self.dtype,
                lr_mult=self.lr_mult,
                wd_mult=self.wd_mult,
                init=self.init,
                stype=self._stype,
            )
        return self._var

    # ---- initialization ----

    def initialize(
        self,
        init: Any = None,
        ctx: Context | Sequence[Context] | None = None,
        default_init: Any = None,
        force_reinit: bool = False,
    ) -> None:
        """Initialize by `init`, `self.init` or `default_init`, in this order; deferred while the shape is unknown."""
        if self._arrays is not None and not force_reinit:
            warnings.warn(
                f"Parameter {self.name!r} is already initialized, ignoring. Set force_reinit=True to re-initialize.",
                stacklevel=2,
            )
            return
        default_init = initializer.create(initializer.Uniform() if default_init is None else default_init)
        if init is None:
            init = default_init if self.init is None else self.init
        if not shape_is_known(self._shape) and not self._allow_deferred_init:
            raise ValueError(
                f"Cannot initialize Parameter {self.name!r} because it has invalid shape: {self._shape}. "
                "Specify the full shape, or set allow_deferred_init=True"
            )
        before = self._deferred_init
        self._deferred_init = (init, contexts(ctx), default_init, None)
        if shape_is_known(self._shape):
            try:
                self._finish_deferred_init()
            except BaseException:
                self._deferred_init = before  # the arrays are unchanged
                raise

    def _finish_deferred_init(self) -> None:
        """Initialize now if initialization was deferred."""
        if not self._deferred_init:
            return
        init, ctx, default_init, data = self._deferred_init
        if self._shape is None or not shape_is_known(self._shape):
            raise ValueError(
                f"Cannot initialize Parameter {self.name!r} because it has invalid shape: {self._shape}. "
                "Please specify in_units, in_channels, etc for `Block`s."
            )
        self._deferred_init = ()
        with autograd.pause():
            if data is None:
                data = NDArray(torch.zeros(self._shape, dtype=to_torch(self._dtype)), cpu())
                described = initializer.InitDesc(self.name, {"__init__": init})
                default_init(described, data)
            self._init_impl(data, ctx)
        if (trainer := self._trainer) is not None:
            trainer.begin_alike([self])

    def _init_impl(self, data: NDArray, ctx: Sequence[Context]) -> None:
        """Create the replicas from `data`."""
        self._arrays = {each: NDArray(self._leaf(data._data, each.check().device), each) for each in ctx}
        self._init_grad()
        self._move_in()

    def _leaf(self, values: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Create a torch parameter without a gradient, or a plain tensor if the Parameter is not trainable."""
        tensor = torch.empty(values.shape, dtype=to_torch(self._dtype), device=device).copy_(values.detach())
        if tensor.dim() == 4 and tensor.is_cpu:  # the layout of convolutions, which otherwise copy it in each step
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        return torch.nn.Parameter(tensor, requires_grad=False) if self._differentiable else tensor

    def _init_grad(self) -> None:
        assert self._arrays is not None
        self._as_np.clear()
        stype = None if self._grad_stype == "default" else self._grad_stype
        for array in self._arrays.values():
            Gradient.attach(array, self._grad_req, stype=stype)

    def _load_init(self, data: NDArray, ctx: Any, cast_dtype: bool = False, dtype_source: str = "current") -> None:
        """Load values from a file."""
        problem = self._mismatch(data, ctx, cast_dtype, dtype_source)
        if problem:
            raise AssertionError(f"Failed loading Parameter {self.name!r} from saved params: {problem}")
        if cast_dtype and dtype_source == "current":
            data = data.astype(self.dtype, copy=False)
        elif cast_dtype:
            self.cast(data.dtype)
        self._shape = data.shape
        if self._arrays is not None:
            self.set_data(data)
            return
        listed = self.list_ctx() if self._deferred_init else [cpu()] if ctx is None else contexts(ctx)
        self._deferred_init = ()
        self._init_impl(data, listed)

    def _mismatch(self, data: NDArray, ctx: Any, cast_dtype: bool, dtype_source: str) -> str:
        """The reason why `data` cannot be loaded, or ''."""
        if dtype_source not in ("current", "saved"):
            raise ValueError(f"dtype_source must be 'current' or 'saved', received {dtype_source!r}")
        shape = self._shape
        if shape is not None and (
            len(shape) != len(data.shape) or any(a > 0 and a != b for a, b in zip(shape, data.shape, strict=True))
        ):
            return f"shape incompatible expected {shape} vs saved {data.shape}"
        if not cast_dtype and to_torch(self.dtype) is not data._data.dtype:
            return (
                f"dtype incompatible expected {_name(self.dtype)} vs saved {_name(data.dtype)}. "
                "Set cast_dtype=True to cast the dtype of saved params."
            )
        wanted = [] if ctx is None else [each.check() for each in contexts(ctx)]
        initialized = self._arrays is not None or self._deferred_init
        if wanted and initialized and set(wanted) != set(self.list_ctx()):
            return (
                f"ctx={wanted}, but it was previously initialized on {self.list_ctx()}. Omit ctx, or call "
                "reset_ctx first"
            )
        return ""

    # ---- reading and writing ----

    def data(self, ctx: Context | None = None) -> NDArray:
        """Return the array on `ctx`. By default this is the only array, or the one on the current context."""
        arrays = self._arrays
        if arrays is not None and ctx in arrays and not self._homes:
            return self._shown(arrays[ctx])  # type: ignore[index]
        return self._shown(self._find(ctx))

    def _shown(self, array: NDArray) -> NDArray:
        """The array as programs see it: an `mx.np` array in NumPy mode."""
        if not modes.np_array:
            return array
        shown = self._as_np.get(array._ctx)
        if shown is None or shown._data is not array._data:
            shown = self._as_np[array._ctx] = of_kind(array)
        return shown

    def _find(self, ctx: Context | None) -> NDArray:
        if self._arrays is None:
            raise self._not_initialized()
        self.placement.refuse_elsewhere(self.name)
        self._follow()
        if ctx is None:
            if len(self._arrays) == 1:
                (array,) = self._arrays.values()
                return array
            ctx = current_context()
        found = self._arrays.get(ctx if ctx in self._arrays else ctx.computing)
        if found is None:
            raise RuntimeError(
                f"Parameter {self.name!r} was not initialized on context {ctx}. It was only initialized on "
                f"{list(self._arrays)}. Use reset_ctx, or move the input there with as_in_context"
            )
        return found

    def _not_initialized(self) -> Exception:
        if self._deferred_init:
            return DeferredInitializationError(
                f"Parameter {self.name!r} has not been initialized yet because initialization was deferred: its shape "
                f"{self._shape} becomes known at the first forward. Run one batch through the network before reading, "
                "or specify in_units, in_channels, etc. in the layers."
            )
        return RuntimeError(
            f"Parameter {self.name!r} has not been initialized. Call initialize() on the outermost Block, or on its "
            "collect_params(), which includes the parameters of its children (`params` does not)"
        )

    def _list(self) -> list[NDArray]:
        if self._arrays is None:
            raise self._not_initialized()
        self._follow()
        return list(self._arrays.values())

    def list_data(self) -> list[NDArray]:
        """Return the arrays on all contexts."""
        return [self._shown(array) for array in self._list()]

    def grad(self, ctx: Context | None = None) -> NDArray:
        """Return the gradient on `ctx`."""
        if self._arrays is not None and self._grad_req == "null":
            raise self._no_gradient()
        return self._shown(self._find(ctx))._grad  # type: ignore[return-value]

    def list_grad(self) -> list[NDArray]:
        """Return the gradients on all contexts."""
        if self._arrays is not None and self._grad_req == "null":
            raise self._no_gradient()
        return [array._grad for array in self.list_data()]  # type: ignore[misc]

    def _no_gradient(self) -> Exception:
        return RuntimeError(f"Cannot get gradient array for Parameter {self.name!r} because grad_req='null'")

    def list_ctx(self) -> list[Context]:
        """Return the contexts that the Parameter is, or will be, initialized on."""
        if self._arrays is None:
            if self._deferred_init:
                return self._deferred_init[1]
            raise self._not_initialized()
        return list(self._arrays)

    def set_data(self, data: Any) -> None:
        """Copy `data` into every replica."""
        if not hasattr(data, "shape"):
            raise TypeError(f"set_data of Parameter {self.name!r} expects an array, received {data!r:.80}")
        self.shape = data.shape
        if self._arrays is None:
            if not self._deferred_init:
                raise AssertionError(str(self._not_initialized()))
            self._deferred_init = (*self._deferred_init[:3], _as_array(data))
            return
        if (trainer := self._trainer) is not None:
            trainer.parameter_was_set()
        self.placement.settle()
        for array in self._list():
            self.placement.put(array, data)

    def zero_grad(self) -> None:
        """Set the gradients on all contexts to zero."""
        if self._arrays is not None:
            for array in self._list():
                leaf = array._data
                # A used gradient is dropped. An unused one becomes zeros, which the next step applies, as in MXNet.
                leaf.grad = torch.zeros_like(leaf.grad) if leaf.grad is not None and is_fresh(array) else None

    def row_sparse_data(self, row_id: NDArray) -> NDArray:
        """Return the rows `row_id` of a row-sparse parameter, on the context of `row_id`."""
        return self._rows(self._find(row_id.context), row_id)

    def list_row_sparse_data(self, row_id: NDArray) -> list[NDArray]:
        """Return the rows `row_id` of a row-sparse parameter, on all contexts."""
        return [self._rows(array, row_id.as_in_context(array.context)) for array in self._list()]

    def _rows(self, array: NDArray, row_id: NDArray) -> NDArray:
        if self._stype != "row_sparse":
            raise RuntimeError(
                f"Cannot return a copy of Parameter {self.name} via row_sparse_data() because its storage type is "
                f"{self._stype}. Please use data() instead."
            )
        return rows_of(array, row_id)

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Move the Parameter to other contexts."""
        self._refuse_placed("reset_ctx")
        listed = contexts(ctx)
        if self._arrays is not None:
            self._dtype = self.dtype
            self._init_impl(self._reduce(), listed)
        elif self._deferred_init:
            self._deferred_init = (self._deferred_init[0], listed, *self._deferred_init[2:])
        else:
            raise ValueError(f"Cannot reset context: {self._not_initialized()}")

    def cast(self, dtype: Any) -> None:
        """Cast the values to `dtype`. Gradients are reset to zero."""
        self._refuse_placed("cast")
        self._dtype = NUMPY_OF_TORCH.get(to_torch(dtype), dtype)
        self._var = None
        if self._arrays is not None:
            listed = list(self._arrays)
            self._init_impl(self._list()[0].detach(), listed)

    def _refuse_placed(self, call: str) -> None:
        if self.placement.holders is not None:
            raise MXNetError(f"{call} of Parameter {self.name!r}, which a layout has placed: call it before the layout")

    def _reduce(self) -> NDArray:
        """The mean of the replicas, on the CPU. If workers share it: the whole value on the first, else empty."""
        if self._arrays is None:
            raise self._not_initialized()
        self.placement.settle()
        self._follow()
        return self.placement.whole(list(self._arrays.values()))

    def _local(self, ctx: Context | None) -> NDArray:
        """The array that a Trainer in this process updates: the one on `ctx`, or this worker's part of it."""
        return self.placement.part(self._find(ctx))  # subclasses may override `data`

    @property
    def _trainer(self) -> Owner | None:
        """The Trainer that was created last for this Parameter, or None if it no longer exists."""
        return None if self._owner is None else self._owner()

    def _set_trainer(self, trainer: Owner) -> None:
        before = None if self._owner is None else self._owner()
        if self._stype != "default" and before not in (None, trainer):
            raise RuntimeError(
                f"Parameter {self.name!r} already has a Trainer. {self._stype} parameters can have only one"
            )
        self._owner = weakref.ref(trainer)

    # ---- twins ----

    def _live_in(self, tensors: dict[str, Any], key: str) -> None:
        """Store the tensor in `tensors`, a twin's `_parameters` or `_buffers`, under `key`."""
        self._homes.append((tensors, key))
        self._move_in()

    def _move_in(self) -> None:
        if self._homes and self._arrays is not None:
            tensor = next(iter(self._arrays.values()))._data
            for tensors, key in self._homes:
                tensors[key] = tensor

    def _follow(self) -> None:
        """Use the tensor that replaced ours in the twin, if any (FSDP2 and DTensor replace tensors)."""
        if self._homes and self._arrays is not None:
            array = next(iter(self._arrays.values()))
            for tensors, key in self._homes:
                tensor = tensors.get(key)
                if tensor is not None and tensor is not array._data:
                    self._adopt(array, tensor)
                    return

    def _adopt(self, array: NDArray, tensor: torch.Tensor) -> None:
        """Replace the tensor of `array` wherever the Parameter is used."""
        before, array._data = array._data, tensor
        if array._grad is not None:
            array._grad._leaf = tensor  # type: ignore[attr-defined]  # in place: a Trainer may hold this object
            if isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad:
                inherit_overwriting(tensor, before)
        self._move_in()


def _as_array(data: Any) -> NDArray:
    return data if isinstance(data, NDArray) else nd.array(data)


def _as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _shapes_agree(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two shapes have the same number of dimensions and agree where both are known."""
    return len(one) == len(other) and all(a == b or a <= 0 or b <= 0 for a, b in zip(one, other, strict=True))


def _name(dtype: Any) -> str:
    return NAME_OF_TORCH[to_torch(dtype)]


class Constant(Parameter):
    """A parameter that is not trained and has the given `value` on every context."""

    def __init__(self, name: str, value: Any):
        value = _as_array(value)
        self.value = value
        super().__init__(name, grad_req="null", shape=value.shape, dtype=value.dtype, init=_ConstantValue(name, value))

    @property
    def grad_req(self) -> str:
        """Always 'null'."""
        return "null"

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req != "null":
            warnings.warn(
                f'Constant parameter "{self.name}" does not support grad_req other than "null", and new value "{req}" '
                "is ignored.",
                stacklevel=2,
            )


class _ConstantValue(initializer.Initializer):
    """Initializes a Constant with its value."""

    def __init__(self, name: str, value: NDArray):
        super().__init__()
        self.name, self.value = name, value

    def _init_weight(self, _: str, array: NDArray) -> None:
        self.value.as_nd_ndarray().copyto(array)

    def dumps(self) -> str:
        """Return the name for the attributes of a graph."""
        return f"Constant_{self.name}"
