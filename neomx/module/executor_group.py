"""DataParallelExecutorGroup: a symbol bound on several contexts, each of which gets a slice of every batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from ..base import MXNetError
from ..context import Context, cpu
from ..executor import Executor
from ..executor_manager import _split_input_slice
from ..io import DataDesc
from ..ndarray import NDArray

Row = list[Any]  # one array per context


class DataParallelExecutorGroup:
    """Executors of one symbol, one per context. They split the samples of a batch in proportion to `workload`.

    `param_arrays`, `grad_arrays` and `aux_arrays` contain, for each name, one array per context. With `shared_group`,
    parameters, their gradients and auxiliary states are the arrays of that group, and the inputs use its memory.
    """

    def __init__(
        self,
        symbol: Any,
        contexts: Sequence[Context],
        workload: Sequence[float],
        data_shapes: list[DataDesc],
        label_shapes: list[DataDesc] | None,
        param_names: Sequence[str],
        for_training: bool,
        inputs_need_grad: bool,
        shared_group: DataParallelExecutorGroup | None = None,
        logger: Any = logging,
        fixed_param_names: Sequence[str] | None = None,
        grad_req: Any = "write",
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
    ):
        self.symbol, self.contexts, self.workload, self.logger = symbol, list(contexts), workload, logger
        self.param_names, self.for_training = list(param_names), for_training
        self.inputs_need_grad, self.shared_group = inputs_need_grad, shared_group
        self.fixed_param_names, self.state_names = list(fixed_param_names or ()), list(state_names or ())
        self.arg_names, self.aux_names = symbol.list_arguments(), symbol.list_auxiliary_states()
        self.output_names = symbol.list_outputs()
        self.num_outputs = len(self.output_names)
        self.group2ctxs = _prepare_group2ctxs(group2ctxs, len(self.contexts))
        self.output_layouts = [DataDesc.get_batch_axis(symbol[name].attr("__layout__")) for name in self.output_names]
        self.data_names = [desc.name for desc in data_shapes]
        self.grad_req = self._grad_reqs(grad_req)
        self.shared_data_arrays: list[dict[str, NDArray]] = (
            [{} for _ in self.contexts] if shared_group is None else shared_group.shared_data_arrays
        )
        self.slices: list[slice] = []
        self.execs: list[Executor] = []
        self._bound: list[Executor] = []  # the executors before `reshape`
        self.bind_exec(data_shapes, label_shapes)

    def _grad_reqs(self, grad_req: Any) -> dict[str, str]:
        """Return the grad_req of each argument. A list or a dictionary also applies to fixed parameters."""
        if not self.for_training:
            return dict.fromkeys(self.arg_names, "null")
        if isinstance(grad_req, (list, tuple)):
            if len(grad_req) != len(self.arg_names):
                raise AssertionError(
                    f"grad_req must have one entry for each of {self.arg_names}, received {len(grad_req)}"
                )
            return dict(zip(self.arg_names, grad_req, strict=True))
        if not isinstance(grad_req, (str, dict)):
            raise ValueError("grad_req must be one of str, list, tuple, or dict.")
        wanted = {*self.param_names, *(self.data_names if self.inputs_need_grad else ())} - set(self.fixed_param_names)
        one = grad_req if isinstance(grad_req, str) else "write"
        given = grad_req if isinstance(grad_req, dict) else {}
        return {name: given.get(name, one if name in wanted else "null") for name in self.arg_names}

    # ---- binding ----

    def bind_exec(self, data_shapes: list[DataDesc], label_shapes: list[DataDesc] | None) -> None:
        """Create the executors for the given shapes."""
        self._describe(data_shapes, label_shapes)
        self.execs = self._bound = [self._bind_ith_exec(i) for i in range(len(self.contexts))]
        self._collect_arrays()

    def reshape(self, data_shapes: list[DataDesc], label_shapes: list[DataDesc] | None) -> None:
        """Change the shapes of data and labels. The parameter arrays do not change."""
        before = self.data_shapes, self.label_shapes
        try:
            self._describe(data_shapes, label_shapes)
            made = [
                executor.reshape(allow_up_sizing=True, **self._new_shapes(i, executor))
                for i, executor in enumerate(self._bound)
            ]
        except Exception:
            self._describe(*before)
            raise
        for new, old in zip(made, self.execs, strict=True):
            new._watched_like(old)
        self.execs = made
        self._collect_arrays()

    def _new_shapes(self, i: int, executor: Executor) -> dict[str, Any]:
        """Return the shapes of all arguments that are not parameters. Parameters must keep their shapes."""
        shapes = self._shapes_at(i)
        inferred = dict(zip(self.arg_names, self.symbol.infer_shape(**shapes)[0], strict=True))
        for name in self.param_names:
            if tuple(inferred[name]) != executor.arg_dict[name].shape:
                raise MXNetError(
                    f"data of shapes {shapes} require {name} of shape {tuple(inferred[name])}, but it has "
                    f"{executor.arg_dict[name].shape}. Pass data of the shapes that the module was bound to"
                )
        return {name: tuple(shape) for name, shape in inferred.items() if name not in set(self.param_names)}

    def _describe(self, data_shapes: list[DataDesc], label_shapes: list[DataDesc] | None) -> None:
        self.batch_size = -1
        self.data_layouts = self.decide_slices(data_shapes)
        self.label_layouts = self.decide_slices(label_shapes or [])
        self.data_shapes, self.label_shapes = data_shapes, label_shapes
        self.label_names = [desc.name for desc in label_shapes or ()]

    def decide_slices(self, data_shapes: list[DataDesc]) -> list[int]:
        """Determine the slice of samples for each context, and return the batch axis of each array."""
        axes = [DataDesc.get_batch_axis(desc.layout) for desc in data_shapes]
        for desc, axis in zip(data_shapes, axes, strict=True):
            if axis == -1:
                continue
            if self.batch_size == -1:
                self.batch_size = desc.shape[axis]
                self.slices = _split_input_slice(self.batch_size, self.workload)
            elif desc.shape[axis] != self.batch_size:
                raise AssertionError(
                    f"all data must have the same batch size: batch_size = {self.batch_size}, but {desc.name} has "
                    f"shape {desc.shape}"
                )
        return axes

    def _slice_of(self, shape: tuple[int, ...], axis: int, i: int) -> tuple[int, ...]:
        if axis < 0:
            return tuple(shape)
        own = self.slices[i]
        return (*shape[:axis], own.stop - own.start, *shape[axis + 1 :])

    def _inputs(self) -> list[tuple[DataDesc, int]]:
        """Return every description of data and labels, with its batch axis."""
        layouts = [*self.data_layouts, *self.label_layouts]
        return list(zip([*self.data_shapes, *(self.label_shapes or ())], layouts, strict=True))

    def _shapes_at(self, i: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs on a context."""
        known = set(self.arg_names)
        return {desc.name: self._slice_of(desc.shape, axis, i) for desc, axis in self._inputs() if desc.name in known}

    def _bind_ith_exec(self, i: int) -> Executor:
        shared = self.shared_group.execs[i] if self.shared_group is not None else None
        return self.symbol.simple_bind(
            self.contexts[i],
            grad_req=self.grad_req,
            type_dict=self._types(),
            group2ctx=self.group2ctxs[i],
            shared_arg_names=self.param_names,
            shared_exec=shared,
            shared_buffer=self.shared_data_arrays[i],
            **self._shapes_at(i),
        )

    def _types(self) -> dict[str, Any]:
        known = set(self.arg_names)
        return {desc.name: desc.dtype for desc, _ in self._inputs() if desc.name in known}

    def _collect_arrays(self) -> None:
        execs, args = self.execs, set(self.arg_names)
        self.data_arrays = [self._targets(desc.name) for desc in self.data_shapes]
        self.label_arrays = (
            [self._targets(desc.name) if desc.name in args else [] for desc in self.label_shapes]
            if self.label_shapes is not None
            else None
        )
        self.state_arrays = [[each.arg_dict[name] for each in execs] for name in self.state_names]
        self.param_arrays: list[Row] = [[each.arg_dict[name] for each in execs] for name in self.param_names]
        self.aux_arrays: list[Row] = [[each.aux_dict[name] for each in execs] for name in self.aux_names]
        self.grad_arrays: list[Row] | None = None
        self.input_grad_arrays: list[Row] | None = None
        if self.for_training:
            self.grad_arrays = [[each.grad_dict[name] for each in execs] for name in self.param_names]
        if self.inputs_need_grad:
            self.input_grad_arrays = [[each.grad_dict[name] for each in execs] for name in self.data_names]

    def _targets(self, name: str) -> list[tuple[slice, NDArray]]:
        return [(own, each.arg_dict[name]) for own, each in zip(self.slices, self.execs, strict=True)]

    # ---- parameters ----

    def set_params(
        self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray] | None, allow_extra: bool = False
    ) -> None:
        """Copy values into the arrays of all contexts."""
        for executor in self.execs:
            executor.copy_params_from(arg_params, aux_params, allow_extra_params=allow_extra)

    def get_params(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Copy the values, averaged over contexts, into the given arrays."""
        for names, rows, targets in (
            (self.param_names, self.param_arrays, arg_params),
            (self.aux_names, self.aux_arrays, aux_params),
        ):
            for name, row in zip(names, rows, strict=True):
                mean = row[0] if len(row) == 1 else nd.add_n(*[each.as_in_context(cpu()) for each in row]) / len(row)
                mean.astype(targets[name].dtype, copy=False).copyto(targets[name])

    def get_states(self, merge_multi_context: bool = True) -> list[Row]:
        """Return the states of each context."""
        if merge_multi_context:
            raise AssertionError(
                "merge_multi_context=True is not supported for get_states yet. Pass merge_multi_context=False"
            )
        return self.state_arrays

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set the states to arrays or to a single value."""
        if (states is None) == (value is None):
            raise AssertionError("At least one of states & value must be specified, and only one of them.")
        if states is not None:
            _check_count("state", self.state_names, states)
            for source, row in zip(states, self.state_arrays, strict=True):
                _load(source, list(zip(self.slices, row, strict=True)), 0, "state")
            return
        for row in self.state_arrays:
            for array in row:
                array[:] = value

    # ---- computing ----

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run a batch: each context gets its slice, or its own batch from a list."""
        self._load_batch(data_batch)
        training = self.for_training if is_train is None else is_train
        for executor in self.execs:
            executor.forward(is_train=training)

    def _load_batch(self, batch: Any) -> None:
        if isinstance(batch, list):
            data: Any = list(zip(*(each.data for each in batch), strict=True))
            labels: Any = list(zip(*(each.label or () for each in batch), strict=True))
        else:
            data, labels = batch.data, getattr(batch, "label", None)
        _check_count("data", self.data_names, data)
        for source, row, axis, name in zip(data, self.data_arrays, self.data_layouts, self.data_names, strict=True):
            _load(source, row, axis, f"data {name!r}")
        if not labels or self.label_arrays is None:
            return
        _check_count("label", self.label_names, labels)
        rows = zip(labels, self.label_arrays, self.label_layouts, self.label_names, strict=True)
        for source, row, axis, name in rows:
            if row:
                _load(source, row, axis, f"label {name!r}")

    def on_gradient(self, ready: Callable[[str], None] | None) -> None:
        """Call `ready(name)` in backward when a gradient is complete (one context only). None removes the callback."""
        for executor in self.execs:
            executor.on_gradient(ready if len(self.execs) == 1 else None)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients on every context."""
        if not self.for_training:
            raise AssertionError("re-bind with for_training=True to run backward")
        if out_grads is None:
            out_grads = []
        given = [out_grads] if isinstance(out_grads, NDArray) else list(out_grads)
        for i, executor in enumerate(self.execs):
            own = [self._slice_on(each, axis, i) for each, axis in zip(given, self.output_layouts, strict=False)]
            executor.backward(out_grads=own)

    def _slice_on(self, array: Any, axis: int, i: int) -> NDArray:
        """Return the slice of an array for a context, on that context."""
        if isinstance(array, (list, tuple)):
            return array[i].as_in_context(self.contexts[i])
        if len(self.contexts) > 1 and axis >= 0:
            own = self.slices[i]
            array = nd.slice_axis(array, axis=axis, begin=own.start, end=own.stop)
        return array.as_in_context(self.contexts[i])

    def release(self) -> None:
        """Free what the last forward kept for backward. A later backward recomputes it."""
        for executor in self.execs:
            executor._results, executor._leaves = [], {}

    def get_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return names and shapes of the outputs for whole batches."""
        rows = self.get_outputs(merge_multi_context=False)
        return [
            (name, _whole_shape([each.shape for each in row], axis))
            for name, row, axis in zip(self.output_names, rows, self.output_layouts, strict=True)
        ]

    def get_outputs(self, merge_multi_context: bool = True, begin: int = 0, end: int | None = None) -> list[Any]:
        """Return outputs `begin` to `end - 1`, merged over contexts or as one list per context."""
        end = self.num_outputs if end is None else end
        rows = [[executor.outputs[i] for executor in self.execs] for i in range(begin, end)]
        return _merge_multi_context(rows, self.output_layouts[begin:end]) if merge_multi_context else rows

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the data, merged over contexts or as one list per context."""
        if self.input_grad_arrays is None:
            raise AssertionError("get_input_grads: call bind(..., inputs_need_grad=True) first")
        if merge_multi_context:
            return _merge_multi_context(self.input_grad_arrays, self.data_layouts)
        return self.input_grad_arrays

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update a metric with each context's outputs and labels."""
        for i, executor in enumerate(self.execs):
            own = labels[i] if pre_sliced else self._labels_on(labels, i)
            outputs = dict(zip(self.output_names, executor.outputs, strict=True))
            eval_metric.update_dict(dict(zip(self.label_names, own, strict=False)), outputs)

    def _labels_on(self, labels: Any, i: int) -> list[Any]:
        if len(self.contexts) == 1:
            return list(labels or ())
        return [self._slice_on(label, axis, i) for label, axis in zip(labels or (), self.label_layouts, strict=False)]

    def install_monitor(self, mon: Any) -> None:
        """Install a Monitor on all executors."""
        for executor in self.execs:
            mon.install(executor)


def _prepare_group2ctxs(group2ctxs: Any, count: int) -> list[Any]:
    """Return a dictionary from groups to contexts for each of `count` executors."""
    if group2ctxs is None:
        return [None] * count
    if isinstance(group2ctxs, list):
        if len(group2ctxs) != count:
            raise AssertionError(
                f"group2ctxs must have an entry for each of {count} contexts, received {len(group2ctxs)}"
            )
        return group2ctxs
    if not isinstance(group2ctxs, dict):
        raise AssertionError(f"group2ctxs must be a dictionary or a list of them, received {group2ctxs!r:.80}")
    for group, places in group2ctxs.items():
        if isinstance(places, (list, tuple)) and len(places) not in (1, count):
            raise AssertionError(
                f"group2ctxs: {group!r} requires one context, or one for each of {count}, received {len(places)}"
            )
    return [{group: _at(places, i) for group, places in group2ctxs.items()} for i in range(count)]


def _at(places: Any, i: int) -> Context:
    if isinstance(places, Context):
        return places
    return places[0] if len(places) == 1 else places[i]


def _check_count(kind: str, names: Sequence[str], arrays: Sequence[Any]) -> None:
    if len(arrays) != len(names):
        raise MXNetError(
            f"the batch must have {len(names)} {kind} array(s), {', '.join(names)}; received {len(arrays)}"
        )


def _load(source: Any, targets: list[tuple[slice, NDArray]], axis: int, what: str) -> None:
    """Copy slices of an array along an axis into the arrays of the contexts. A list has one array per context."""
    for i, (own, target) in enumerate(targets):
        part = source[i] if isinstance(source, (list, tuple)) else source
        if isinstance(part, np.ndarray):
            part = nd.array(part, dtype=part.dtype)
        if part is source and len(targets) > 1 and axis >= 0:
            part = nd.slice_axis(part, axis=axis, begin=own.start, end=own.stop)
        if part.shape != target.shape:
            raise MXNetError(
                f"{what} was bound with shape {target.shape}{' on a context' if len(targets) > 1 else ''}, received "
                f"{part.shape}. Pass batches of the bound shapes, or call reshape first"
            )
        target._assign(part._data)


def _whole_shape(shapes: list[tuple[int, ...]], axis: int) -> tuple[int, ...]:
    """Return the shape of arrays concatenated along an axis, or the first shape if the axis is negative."""
    first = shapes[0]
    return first if axis < 0 else (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _merge_multi_context(rows: list[Row], axes: Sequence[int]) -> list[NDArray]:
    """Concatenate each output over contexts along its batch axis. Without a batch axis, use the first context's."""
    return [
        row[0]
        if len(row) == 1 or axis < 0
        else nd.concat(*[each.as_in_context(row[0].context) for each in row], dim=axis)
        for row, axis in zip(rows, axes, strict=True)
    ]
