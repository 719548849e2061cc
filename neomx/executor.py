"""`mx.executor`: an Executor computes a symbol and its gradients on bound arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from .base import Backward, MXNetError, modes, suggest
from .context import Context
from .dtype import to_torch
from .ndarray.invoke import own
from .ndarray.ndarray import GradientBuffer, NDArray
from .ndarray.sparse import zeros as sparse_zeros
from .ndarray.utils import array as make_array
from .onednn import explained
from .ops.shapes import is_known
from .symbol.graph import Node
from .symbol.infer import Shapes, Types, as_known, resolved
from .symbol.losses import is_loss, losses_inside
from .symbol.lowering import Run, lower
from .symbol.placement import Groups, check_states
from .symbol.rewrite import deduplicated
from .symbol.storage import declared, gradient_storage, infer_storage
from .symbol.symbol import Symbol

__all__ = ["Executor"]

Arrays = dict[str, NDArray]


class NodeName(str):
    """A name passed to a monitor callback. MXNet passes bytes, so programs for MXNet may call `decode`."""

    __slots__ = ()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the name itself."""
        return str(self)


class Executor:
    """Computes a symbol on bound arrays: `forward`, then `backward`.

    `arg_dict`, `grad_dict`, `aux_dict` and `output_dict` map names to arrays. `outputs` always has the same arrays,
    which each forward overwrites.
    """

    def __init__(
        self,
        symbol: Symbol,
        ctx: Context,
        args: Arrays,
        grads: Arrays | None,
        grad_req: dict[str, str],
        aux: Arrays,
        group2ctx: dict[str, Context] | None = None,
    ):
        self._symbol, self._ctx, self._groups = symbol, ctx.check(), Groups(group2ctx)
        self.arg_dict, self.aux_dict = args, aux
        self.grad_dict: dict[str, NDArray | None] = {name: (grads or {}).get(name) for name in args}
        self.arg_arrays, self.aux_arrays = list(args.values()), list(aux.values())
        self.grad_arrays = None if grads is None else list(self.grad_dict.values())
        self._grad_req = {name: req if self.grad_dict[name] is not None else "null" for name, req in grad_req.items()}
        self._ready: Callable[[str], None] | None = None
        self._stored: set[str] = set()  # arguments whose gradients the current backward has already stored
        self._monitor: Callable[[str, NDArray], None] | None = None
        self._monitor_all = False
        self._results: list[torch.Tensor] = []
        self._leaves: dict[str, torch.Tensor] = {}
        self._was_training = False
        self._prepare()

    def _prepare(self) -> None:
        """Check that arrays and graph match, and lower the graph."""
        names, arrays = [*self.arg_dict, *self.aux_dict], [*self.arg_arrays, *self.aux_arrays]
        for name, array in zip(names, arrays, strict=True):
            if not self._groups and array._ctx is not self._ctx:
                raise MXNetError(
                    f"{name} is on {array._ctx}, but the symbol is bound to {self._ctx}. Copy it there with "
                    "as_in_context, or assign parts of the symbol to other contexts with group2ctx"
                )
        types = Types(self._symbol, {name: a._data.dtype for name, a in zip(names, arrays, strict=True)})
        shapes = Shapes(self._symbol, {name: a.shape for name, a in zip(names, arrays, strict=True)}, types)
        self._graph = resolved(self._symbol, shapes)
        if any(req != "null" for req in self._grad_req.values()):
            self._graph = Symbol(deduplicated(self._graph._outputs, with_heads=False))
        self._computed = Symbol([*self._graph._outputs, *losses_inside(self._graph._outputs)])
        self._run: Run = lower(self._computed, names, self._places if self._groups else None)
        self.outputs = []
        places = self._places(self._symbol._nodes())
        stored = infer_storage(shapes, {name: a.stype for name, a in zip(names, arrays, strict=True)}, self._ctx)
        for node, index in self._symbol._outputs:
            shape, dtype = shapes.of[id(node), index], types.of[id(node), index] or torch.float32
            where = places[id(node)]
            if stored[id(node), index] != "default":
                self.outputs.append(sparse_zeros(stored[id(node), index], shape, where, dtype))
                continue
            self.outputs.append(_zeros(shape if is_known(shape) else (0,), dtype, where, f"an output of {node.name!r}"))
        self.output_dict = dict(zip(self._symbol.list_outputs(), self.outputs, strict=True))
        self._shares = [node.op is None or node.op.may_alias for node, _ in self._symbol._outputs]

    def _places(self, order: Sequence[Node]) -> dict[int, Context]:
        """Return the contexts of nodes by id."""
        if not self._groups:
            return dict.fromkeys(map(id, order), self._ctx)
        arrays = {**self.arg_dict, **self.aux_dict}
        places = self._groups.places(order, {name: array._ctx for name, array in arrays.items()}, self._ctx)
        check_states(order, places)
        return places

    # ---- computing ----

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Copy arrays given by name into the arguments, compute the outputs and return them."""
        for name, value in kwargs.items():
            self._set_argument(name, value)
        self._compute(is_train, with_graph=is_train)
        for output, result, shares in zip(self.outputs, self._results, self._shares, strict=False):
            data = result.detach()
            output._data = own(data, [a._data for a in (*self.arg_arrays, *self.aux_arrays)]) if shares else data
        return self.outputs

    def _set_argument(self, name: str, value: Any) -> None:
        if not isinstance(value, (NDArray, np.ndarray)):
            raise ValueError(f"arguments must be NDArrays or numpy arrays, received {name}={type(value).__name__}")
        if name not in self.arg_dict:
            raise TypeError(f"unknown argument {name!r}.{suggest(name, self.arg_dict)}")
        target = self.arg_dict[name]
        if value.shape != target.shape:
            raise ValueError(f"argument {name} has shape {target.shape}, received {value.shape}")
        target._assign(value._data if isinstance(value, NDArray) else make_array(value)._data)

    def _compute(self, is_train: bool, with_graph: bool) -> None:
        """Run the graph, building torch's autograd graph if gradients may be needed."""
        self._was_training = is_train
        self._results = []  # frees the memory of the previous graph
        tensors = {name: a._data.detach() for name, a in (*self.arg_dict.items(), *self.aux_dict.items())}
        self._leaves = {}
        if with_graph:
            wanted = [name for name, req in self._grad_req.items() if req != "null"]
            self._leaves = {name: tensors[name] for name in wanted if tensors[name].is_floating_point()}
            for leaf in self._leaves.values():
                leaf.requires_grad_()
        previous = modes.training, modes.recording
        modes.training, modes.recording = bool(is_train), False
        try:
            with torch.set_grad_enabled(bool(self._leaves)):
                if self._monitor is None:
                    self._results = self._run(self._ctx, list(tensors.values()))
                else:
                    self._results = self._run_monitored(tensors)
        finally:
            modes.training, modes.recording = previous

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Compute gradients and store them in `grad_arrays` according to each argument's grad_req.

        Outputs that are not losses require a head gradient in `out_grads`.
        """
        if not self._results or not self._leaves:
            self._compute(self._was_training, with_graph=True)
        heads, starts = [], []
        given = self._starts(out_grads)
        for i, result in enumerate(self._results):
            if result.requires_grad:
                heads.append(result)
                starts.append(self._start(i, result, given[i]) if i < len(given) else torch.zeros_like(result))
        if not self._leaves:
            return
        self._stored = set()
        grads = self._gradients(heads, starts, is_train)
        for (name, leaf), grad in zip(self._leaves.items(), grads, strict=True):
            if name not in self._stored:
                _store(self.grad_dict[name], leaf, grad, self._grad_req[name])

    def _starts(self, out_grads: Any) -> list[NDArray | None]:
        if isinstance(out_grads, dict):
            out_grads = [out_grads.get(name) for name in self.output_dict]
        given = [out_grads] if isinstance(out_grads, NDArray) else list(out_grads or [])
        for grad in given:
            if grad is not None and not isinstance(grad, NDArray):
                raise TypeError(f"out_grads must be NDArrays, received {type(grad).__name__}")
        return [*given, *[None] * len(self.outputs)][: len(self.outputs)]

    def _start(self, i: int, result: torch.Tensor, start: NDArray | None) -> torch.Tensor:
        node = self._symbol._outputs[i][0]
        if start is None:
            if not is_loss(node):
                raise MXNetError(
                    f"backward: output {node.name!r} is not a loss, so it requires a head gradient: "
                    "backward(out_grads). To minimize it, wrap it in MakeLoss"
                )
            return torch.ones_like(result)
        if start.shape != tuple(result.shape):
            raise MXNetError(
                f"backward: {node.name!r} has shape {tuple(result.shape)}, received out_grads {start.shape}"
            )
        return start._data.to(result)

    def _gradients(self, heads: list[torch.Tensor], starts: list[torch.Tensor], is_train: bool) -> Sequence[Any]:
        if not heads:
            return [None] * len(self._leaves)
        previous = Backward.train_mode, Backward.accumulating
        Backward.train_mode, Backward.accumulating = bool(is_train), False
        try:
            leaves = list(self._leaves.values())
            with self._telling():
                return torch.autograd.grad(heads, leaves, starts, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            raise MXNetError(f"backward: {explained(str(error))}") from error
        finally:
            Backward.train_mode, Backward.accumulating = previous

    def on_gradient(self, ready: Callable[[str], None] | None) -> None:
        """Call `ready(name)` during backward as soon as an argument's gradient is stored; None removes the callback."""
        self._ready = ready

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """While the context manager is active, store gradients as they arrive and call the `on_gradient` callback."""
        if self._ready is None:
            yield
            return
        hooks = [leaf.register_hook(partial(self._tell, name)) for name, leaf in self._leaves.items()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _tell(self, name: str, gradient: torch.Tensor) -> None:
        assert self._ready is not None
        if self._grad_req[name] == "write":
            with torch.no_grad():
                _store(self.grad_dict[name], self._leaves[name], gradient, "write")
                self._stored.add(name)
                self._ready(name)

    # ---- monitoring ----

    def set_monitor_callback(self, callback: Callable[[str, NDArray], None], monitor_all: bool = False) -> None:
        """Call `callback(name, array)` for each node's output in forward; with `monitor_all`, also for the inputs."""
        self._monitor, self._monitor_all = callback, monitor_all

    def _watched_like(self, other: Executor) -> None:
        """Use the monitor callback of another executor."""
        self._monitor, self._monitor_all = other._monitor, other._monitor_all

    def _run_monitored(self, tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        assert self._monitor is not None
        internals = self._computed.get_internals()
        run = lower(internals, list(tensors), self._places if self._groups else None)
        values, places = run(self._ctx, list(tensors.values())), self._places(internals._nodes())
        found = {}
        for (node, index), name, value in zip(internals._outputs, internals.list_outputs(), values, strict=True):
            found[id(node), index] = value
            if node.op is not None or self._monitor_all:
                self._monitor(NodeName(name), NDArray(value.detach(), places[id(node)]))
        return [found[id(node), index] for node, index in self._computed._outputs]

    def get_optimized_symbol(self) -> Symbol:
        """Return the symbol as it is run."""
        return self._graph

    def debug_str(self) -> str:
        """Return a human-readable listing of the graph and the memory of its arrays."""
        arrays = [
            a for a in (*self.arg_arrays, *(self.grad_arrays or ()), *self.aux_arrays, *self.outputs) if a is not None
        ]
        size = sum(a._data.numel() * a._data.element_size() for a in arrays)
        return f"{self._symbol.debug_str()}Total {size / 2**20:.4f} MB allocated\n"

    # ---- other arrays ----

    def copy_params_from(
        self, arg_params: Arrays, aux_params: Arrays | None = None, allow_extra_params: bool = False
    ) -> None:
        """Copy values into the arguments and auxiliary states with the same names."""
        for given, own_arrays, what in (
            (arg_params, self.arg_dict, "arguments"),
            (aux_params or {}, self.aux_dict, "auxiliary states"),
        ):
            for name, value in given.items():
                if name in own_arrays:
                    target = own_arrays[name]
                    check_array(name, value)
                    if value.shape != target.shape:
                        raise MXNetError(f"copy_params_from: {name} has shape {target.shape}, received {value.shape}")
                    target._assign(value._data.to(target._data))
                elif not allow_extra_params:
                    raise ValueError(f"{name!r} is not in the {what}.{suggest(name, own_arrays)}")

    def reshape(self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Any) -> Executor:
        """Return an executor for inputs of other shapes, which shares arrays whose shapes do not change.

        Shapes of other arguments may only change with `partial_shaping`. Arrays may only grow with `allow_up_sizing`.
        """
        unknown = [name for name in kwargs if name not in self.arg_dict]
        if unknown:
            raise MXNetError(f"reshape: unknown argument {unknown[0]!r}.{suggest(unknown[0], self.arg_dict)}")
        types = Types(self._symbol, {name: a._data.dtype for name, a in self.arg_dict.items()})
        shapes = Shapes(self._symbol, {name: as_known(shape) for name, shape in kwargs.items()}, types)
        shape_of = {node.name: shapes.of[id(node), 0] for node in shapes.order if node.op is None}
        args: Arrays = {}
        grads: Arrays = {}
        aux: Arrays = {}
        for name, array in (*self.arg_dict.items(), *self.aux_dict.items()):
            shape = shape_of[name] or array.shape
            if shape != array.shape:
                if name not in kwargs and not partial_shaping:
                    raise MXNetError(
                        f"reshape: {name} is not specified, but its shape changes from {array.shape} to {shape}. "
                        "Specify it, or set partial_shaping=True"
                    )
                if math.prod(shape) > array.size and not allow_up_sizing:
                    raise MXNetError(
                        f"reshape: {name} grows from {array.shape} to {shape}. Bind the largest shape first, or set "
                        "allow_up_sizing=True"
                    )
            same = shape == array.shape
            (aux if name in self.aux_dict else args)[name] = array if same else _resized(array, shape)
            grad = self.grad_dict.get(name)
            if grad is not None and self._grad_req[name] != "null":  # MXNet drops gradients that would never be written
                grads[name] = grad if same else _resized(grad, shape)
        reqs = {name: self._grad_req[name] for name in args}
        has_grads = self.grad_arrays is not None
        made = Executor(self._symbol, self._ctx, args, grads if has_grads else None, reqs, aux, self._groups.contexts)
        made._watched_like(self)
        return made


def check_array(name: str, value: Any) -> None:
    """Raise TypeError if the value of a parameter is not an NDArray, e.g. a numpy array."""
    if not isinstance(value, NDArray):
        raise TypeError(
            f"the value of {name} must be an NDArray, received {type(value).__name__}. Use mx.nd.array(value)"
        )


def _resized(array: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Return an array of another shape that uses this array's memory if it fits, as in MXNet."""
    if array._sparse:
        return sparse_zeros(array.stype, shape, array._ctx, array.dtype)
    size = math.prod(shape)
    if size > array.size or not array._data.is_contiguous():
        return NDArray(array._data.new_zeros(shape), array._ctx)
    return NDArray(array._data.detach().view(-1)[:size].view(shape), array._ctx)


def _store(target: NDArray | None, leaf: torch.Tensor, grad: torch.Tensor | None, req: str) -> None:
    assert target is not None
    if grad is not None and grad.is_sparse:
        grad = grad.to_dense()
    if req == "add":
        if grad is not None:
            target._assign(target._data + grad)
        return
    target._assign(torch.zeros_like(leaf) if grad is None else grad)


# ---- binding ----


def bind(
    symbol: Symbol,
    ctx: Context,
    args: Any,
    args_grad: Any,
    grad_req: Any,
    aux_states: Any,
    group2ctx: dict[str, Context] | None,
) -> Executor:
    """Implementation of Symbol.bind."""
    if not isinstance(ctx, Context):
        raise TypeError(f"bind expects a Context, received {type(ctx).__name__}")
    names = symbol.list_arguments()
    _check_unique(names)
    arguments = _by_name(names, args, "args")
    states = _by_name(symbol.list_auxiliary_states(), aux_states, "aux_states")
    grads = None if args_grad is None else _by_name(names, args_grad, "args_grad", optional=True)
    return Executor(symbol, ctx, arguments, grads, grad_reqs(names, grad_req), states, group2ctx)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, where: Context, what: str) -> NDArray:
    try:
        return NDArray(torch.zeros(shape, dtype=dtype, device=where.device), where)
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:
        raise MXNetError(f"cannot allocate {what} of shape {shape}: {error!s:.200}") from error


def simple_bind(
    symbol: Symbol,
    ctx: Context,
    grad_req: Any,
    type_dict: dict[str, Any] | None,
    stype_dict: dict[str, str] | None,
    group2ctx: dict[str, Context] | None,
    shared_arg_names: Iterable[str] | None,
    shared_exec: Executor | None,
    shared_buffer: Arrays | None,
    shapes: dict[str, Any],
) -> Executor:
    """Implementation of Symbol.simple_bind."""
    names, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    _check_unique(names)
    known = {*names, *states}
    types = Types(symbol, {name: to_torch(dtype) for name, dtype in (type_dict or {}).items() if name in known})
    inferred = Shapes(symbol, {name: as_known(tuple(shape)) for name, shape in shapes.items() if name in known}, types)
    variables = {node.name: node for node in inferred.order if node.op is None}
    unknown = [name for name, node in variables.items() if not is_known(inferred.of[id(node), 0])]
    if unknown:
        raise MXNetError(
            f"simple_bind cannot infer the shapes of {', '.join(unknown)} from {shapes or 'nothing'}. "
            f"Specify more shapes: simple_bind(ctx, {unknown[0]}=(...))"
        )
    groups = Groups(group2ctx)
    stypes = dict.fromkeys(variables, "default")
    if shared_buffer is None:  # the buffer is dense
        stypes = {name: (stype_dict or {}).get(name) or declared(node) for name, node in variables.items()}
    stored = infer_storage(inferred, stypes, ctx)

    def make(name: str) -> NDArray:
        node = variables[name]
        shape, dtype = inferred.of[id(node), 0], types.of[id(node), 0] or torch.float32
        where = groups.of(node) or ctx.check()
        if stypes[name] != "default":
            return sparse_zeros(stypes[name], shape, where, dtype)
        return _zeros(shape or (), dtype, where, repr(name))

    try:
        reqs = grad_reqs(names, grad_req)
    except ValueError as error:  # as in MXNet, `bind` raises ValueError and simple_bind MXNetError
        raise MXNetError(f"simple_bind: {error}") from error
    arrays = _Arrays(make, shared_buffer, set(shared_arg_names or ()), shared_exec)
    args = {name: arrays.argument(name) for name in names}
    of_gradients = dict.fromkeys(names, "default")
    if shared_buffer is None:
        of_gradients = gradient_storage(inferred.order, symbol._outputs, stored)
    grads = {name: arrays.gradient(name, of_gradients[name]) for name in names if reqs[name] != "null"}
    return Executor(symbol, ctx, args, grads, reqs, {name: arrays.state(name) for name in states}, group2ctx)


class _Arrays:
    """The arrays of a simple_bind: new arrays, or memory shared between executors, as in MXNet's bucketing.

    With a buffer, `shared` arguments, their gradients and the states are taken from another executor. All other arrays
    are in the buffer, by name, and grow there.
    """

    def __init__(
        self, make: Callable[[str], NDArray], buffer: Arrays | None, shared: set[str], executor: Executor | None
    ):
        self.make, self.buffer = make, buffer
        self.shared, self.executor = shared, executor if buffer is not None else None

    def argument(self, name: str) -> NDArray:
        others = self.executor.arg_dict if self.executor and name in self.shared else {}
        return self._shared(name, others) if name in others else self._pooled(name, name)

    def gradient(self, name: str, stype: str) -> NDArray:
        if stype != "default":
            like = self.make(name)
            return sparse_zeros(stype, like.shape, like._ctx, like.dtype)
        others = self.executor.grad_dict if self.executor and name in self.shared else {}
        there = others.get(name) is not None
        found = self._shared(name, others) if there else self._pooled(name, f"grad of {name}")
        return found if isinstance(found, GradientBuffer) else GradientBuffer(found._data, found._ctx)

    def state(self, name: str) -> NDArray:
        others = self.executor.aux_dict if self.executor else {}
        return self._shared(name, others) if name in others else self.make(name)

    def _shared(self, name: str, others: Mapping[str, Any]) -> NDArray:
        made, other = self.make(name), others[name]
        if (other.shape, other.dtype) != (made.shape, made.dtype):
            raise MXNetError(
                f"simple_bind: {name} would be {made.dtype.__name__}{list(made.shape)}, but in shared_exec it is "
                f"{other.dtype.__name__}{list(other.shape)}. Only arrays with equal shapes and dtypes can be shared"
            )
        return other

    def _pooled(self, name: str, key: str) -> NDArray:
        made = self.make(name)
        if self.buffer is None or name in self.shared:
            return made
        held = self.buffer.get(key)
        if held is None or held.size < made.size or (held.dtype, held._ctx) != (made.dtype, made._ctx):
            held = self.buffer[key] = made
        return held if held.shape == made.shape else _resized(held, made.shape)


def grad_reqs(names: Sequence[str], grad_req: Any) -> dict[str, str]:
    """Return {argument: 'write', 'add' or 'null'} from a string, a list, or a dictionary (default 'null')."""
    if isinstance(grad_req, str):
        reqs = dict.fromkeys(names, grad_req)
    elif isinstance(grad_req, (list, tuple)):
        reqs = {**dict.fromkeys(names, "null"), **dict(zip(names, grad_req, strict=False))}
    elif isinstance(grad_req, dict):
        reqs = {name: grad_req.get(name, "null") for name in names}
    else:
        raise TypeError(f"grad_req must be a string, a list or a dictionary, received {type(grad_req).__name__}")
    for req in reqs.values():
        if req not in ("write", "add", "null"):
            raise ValueError(f"grad_req must be 'write', 'add' or 'null', received {req!r}")
    return reqs


def _by_name(names: Sequence[str], given: Any, what: str, optional: bool = False) -> Arrays:
    """Return arrays by name, from a list in order or from a dictionary, which may contain other names."""
    if given is None:
        given = []
    if isinstance(given, dict):
        missing = [name for name in names if name not in given]
        if missing and not optional:
            raise ValueError(f"{what} is missing {', '.join(missing)}")
        arrays = {name: given[name] for name in names if name in given}
    elif isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise ValueError(f"{what} must be {len(names)} array(s), {', '.join(names)}; received {len(given)}")
        arrays = dict(zip(names, given, strict=True))
    else:
        raise TypeError(f"{what} must be a list or a dictionary of NDArrays, received {type(given).__name__}")
    for name, value in arrays.items():
        if not isinstance(value, NDArray) and not (optional and value is None):
            raise TypeError(f"{what} must contain NDArrays, received {name}={type(value).__name__}")
    return arrays


def _check_unique(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MXNetError(f"cannot bind: argument names must be unique, but these are repeated: {', '.join(twice)}")
