"""`mx.executor_manager`: executors on several contexts, each of which gets a part of every batch.

Programs based on FeedForward use it. `mx.mod.Module` offers the same and more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from .base import MXNetError
from .context import Context
from .executor import Executor
from .ndarray.ndarray import NDArray
from .symbol.symbol import Symbol

__all__ = ["DataParallelExecutorGroup", "DataParallelExecutorManager"]

Target = NDArray | Sequence[tuple[slice, NDArray]]


def _split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """Return the slice of a batch for each context, in proportion to the work loads."""
    if not work_load_list:
        raise ValueError("work_load_list is empty. Expected a number for each context")
    total = sum(work_load_list)
    sizes = [round(load * batch_size / total) for load in work_load_list]
    sizes[-1] += max(batch_size - sum(sizes), 0)
    slices, start = [], 0
    for size in sizes:
        stop = min(start + size, batch_size)
        if start >= stop:
            raise ValueError(
                f"Too many slices. Some splits are empty: {batch_size} sample(s) over work loads {list(work_load_list)}"
            )
        slices.append(slice(start, stop))
        start = stop
    return slices


def _check_arguments(symbol: Symbol) -> None:
    """Raise ValueError if two arguments or two auxiliary states have the same name."""
    for kind, names in (("argument", symbol.list_arguments()), ("auxiliary param", symbol.list_auxiliary_states())):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(
                f'Find duplicated {kind} name "{twice}", please make the weight name non-duplicated (using name '
                f"arguments), {kind}s are {names}"
            )


def _load_general(data: Sequence[NDArray], targets: Sequence[Target]) -> None:
    """Copy each array into its target: an array, or (slice, array) pairs for its parts."""
    for source, target in zip(data, targets, strict=False):
        if isinstance(target, NDArray):
            source.copyto(target)
            continue
        end = target[-1][0].stop
        if source.shape[0] != end:
            raise AssertionError(f"Batch size miss match. Expected {end}, got {source.shape[0]}")
        for part, array in target:
            source[part].copyto(array)


def _load_data(batch: Any, targets: Sequence[Target]) -> None:
    """Copy the data of a batch into targets."""
    _load_general(batch.data, targets)


def _load_label(batch: Any, targets: Sequence[Target]) -> None:
    """Copy the labels of a batch into targets."""
    _load_general(batch.label, targets)


def _bind_exec(
    sym: Symbol,
    ctx: Context,
    input_shapes: dict[str, Any],
    param_names: Sequence[str],
    need_grad: bool | set[str] = False,
    base_exec: Executor | None = None,
    shared_data_arrays: dict[str, NDArray] | None = None,
    input_types: dict[str, Any] | None = None,
    logger: Any = logging,
) -> Executor:
    """Return an executor that shares the parameters of `base_exec`, if given, and the input memory of its buckets.

    `need_grad` is the set of arguments that get a gradient; True means all of `param_names`.
    """
    wanted = need_grad if isinstance(need_grad, set) else set(param_names) if need_grad else set()
    return sym.simple_bind(
        ctx,
        grad_req={name: "write" if name in wanted else "null" for name in sym.list_arguments()},
        type_dict=input_types,
        shared_arg_names=list(param_names),
        shared_exec=base_exec,
        shared_buffer={} if shared_data_arrays is None else shared_data_arrays,
        **input_shapes,
    )


class DataParallelExecutorGroup:
    """Executors of one symbol on several contexts, each with its own parameters and a slice of each batch."""

    def __init__(
        self,
        sym: Symbol,
        arg_names: Sequence[str],
        param_names: Sequence[str],
        ctx: Sequence[Context],
        slices: Sequence[slice],
        train_data: Any,
        shared_group: DataParallelExecutorGroup | None = None,
    ):
        _check_arguments(sym)
        self.slices = list(slices)
        inputs = [*train_data.provide_data, *(train_data.provide_label or [])]
        self.data_names = [desc[0] for desc in train_data.provide_data]
        self.label_names = [desc[0] for desc in train_data.provide_label or []]
        self.aux_names = sym.list_auxiliary_states()
        self.param_idx = [i for i, name in enumerate(arg_names) if name in param_names]
        self.param_names = [arg_names[i] for i in self.param_idx]
        self.shared_data_arrays: list[dict[str, NDArray]] = (
            shared_group.shared_data_arrays if shared_group else [{} for _ in ctx]
        )
        types = {desc[0]: desc.dtype for desc in inputs if hasattr(desc, "dtype")}
        self.train_execs: list[Executor] = [
            _bind_exec(
                sym,
                where,
                {desc[0]: (part.stop - part.start, *desc[1][1:]) for desc in inputs},
                self.param_names,
                need_grad=True,
                base_exec=shared_group.train_execs[i] if shared_group else None,
                shared_data_arrays=self.shared_data_arrays[i],
                input_types=types,
            )
            for i, (where, part) in enumerate(zip(ctx, self.slices, strict=True))
        ]
        self.data_arrays = [self._parts(name) for name in self.data_names]
        self.label_arrays = [self._parts(name) for name in self.label_names]
        self.param_arrays = [[each.arg_arrays[i] for each in self.train_execs] for i in self.param_idx]
        self.grad_arrays = [[each.grad_dict[name] for each in self.train_execs] for name in self.param_names]
        self.aux_arrays = [[each.aux_dict[name] for each in self.train_execs] for name in self.aux_names]

    def _parts(self, name: str) -> list[tuple[slice, NDArray]]:
        return [(part, each.arg_dict[name]) for part, each in zip(self.slices, self.train_execs, strict=True)]

    def load_data_batch(self, data_batch: Any) -> None:
        """Copy each context's slice of a batch to that context."""
        _load_data(data_batch, self.data_arrays)
        _load_label(data_batch, self.label_arrays)

    def forward(self, is_train: bool = False) -> None:
        """Compute the outputs on every context."""
        for each in self.train_execs:
            each.forward(is_train=is_train)

    def backward(self) -> None:
        """Compute the gradients on every context."""
        for each in self.train_execs:
            each.backward()

    def update_metric(self, metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update a metric with each context's outputs and slice of the labels."""
        for i, (each, part) in enumerate(zip(self.train_execs, self.slices, strict=True)):
            metric.update(labels[i] if pre_sliced else [label[part] for label in labels], each.outputs)


class DataParallelExecutorManager:
    """An executor group for the batches of an iterator; with `sym_gen`, one for each of its buckets."""

    def __init__(
        self,
        symbol: Symbol,
        ctx: Sequence[Context],
        train_data: Any,
        arg_names: Sequence[str],
        param_names: Sequence[str],
        aux_names: Sequence[str],
        work_load_list: Sequence[float] | None = None,
        logger: Any = None,
        sym_gen: Any = None,
    ):
        loads = [1] * len(ctx) if work_load_list is None else work_load_list
        if not isinstance(loads, list) or len(loads) != len(ctx):
            raise AssertionError(f"Invalid settings for work load. Expected a list of {len(ctx)}, received {loads!r}")
        (logger or logging).info("Start training with %s", str(ctx))
        self.symbol, self.ctx, self.sym_gen = symbol, ctx, sym_gen
        self.arg_names, self.param_names, self.aux_names = arg_names, param_names, aux_names
        self.slices = _split_input_slice(train_data.batch_size, loads)
        self.execgrp = DataParallelExecutorGroup(symbol, arg_names, param_names, ctx, self.slices, train_data)
        self.curr_execgrp: DataParallelExecutorGroup | None = None  # set when a batch is loaded
        if sym_gen is not None:
            self.execgrp_bucket = {train_data.default_bucket_key: self.execgrp}

    def install_monitor(self, monitor: Any) -> None:
        """Install a Monitor on all executors."""
        if self.sym_gen is not None:
            raise NotImplementedError("Monitoring is not implemented for bucketing")
        for each in self.execgrp.train_execs:
            monitor.install(each)

    def set_params(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Copy values into the parameters and states of every context."""
        for each in self.execgrp.train_execs:
            each.copy_params_from(arg_params, aux_params)

    def copy_to(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Write the means over the contexts into the arrays of the two dictionaries."""
        groups = ((self.param_names, self.param_arrays, arg_params), (self.aux_names, self.aux_arrays, aux_params))
        for names, blocks, targets in groups:
            for name, block in zip(names, blocks, strict=True):
                home = block[0].context
                mean: Any = sum(each.as_in_context(home) for each in block) / len(block)
                mean.astype(targets[name].dtype).copyto(targets[name])

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """For each parameter, its arrays on all contexts."""
        return self.execgrp.param_arrays

    @property
    def grad_arrays(self) -> list[list[Any]]:
        """For each parameter, its gradients on all contexts."""
        return self.execgrp.grad_arrays

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """For each auxiliary state, its arrays on all contexts."""
        return self.execgrp.aux_arrays

    def load_data_batch(self, data_batch: Any) -> None:
        """Copy a batch to the contexts, using the executors of its bucket."""
        if self.sym_gen is not None:
            key = data_batch.bucket_key
            if key not in self.execgrp_bucket:
                symbol = self.sym_gen(key)
                self.execgrp_bucket[key] = DataParallelExecutorGroup(
                    symbol,
                    symbol.list_arguments(),
                    self.param_names,
                    self.ctx,
                    self.slices,
                    data_batch,
                    shared_group=self.execgrp,
                )
            self.curr_execgrp = self.execgrp_bucket[key]
        else:
            self.curr_execgrp = self.execgrp
        self.curr_execgrp.load_data_batch(data_batch)

    def _current(self) -> DataParallelExecutorGroup:
        if self.curr_execgrp is None:
            raise MXNetError("no batch is loaded. Call load_data_batch first")
        return self.curr_execgrp

    def forward(self, is_train: bool = False) -> None:
        """Compute the outputs of the loaded batch."""
        self._current().forward(is_train=is_train)

    def backward(self) -> None:
        """Compute the gradients of the loaded batch."""
        self._current().backward()

    def update_metric(self, metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update a metric with the loaded batch's outputs and the given labels."""
        self._current().update_metric(metric, labels, pre_sliced)
