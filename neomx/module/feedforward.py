"""FeedForward (`mx.model.FeedForward`): MXNet's training and prediction class before Module."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np

from .. import metric
from .. import ndarray as nd
from ..callback import LogValidationMetricsCallback
from ..context import Context, current_context
from ..executor import Executor
from ..executor_manager import _check_arguments, _load_data
from ..gluon.data.shard import ShardedDataset
from ..initializer import InitDesc, Uniform
from ..io import DataDesc, DataIter, NDArrayIter
from ..model import BatchEndParam, load_checkpoint, save_checkpoint
from ..ndarray import NDArray
from ..symbol import Symbol
from .base_module import BaseModule, _call
from .bucketing_module import BucketingModule
from .module import Module
from .progress import Fit
from .shards import ShardIter, is_divided
from .with_loss import check_shape, metric_of, with_loss

__all__ = ["FeedForward"]

_NOT_DATA = "X must be DataIter, NDArray or numpy.ndarray"


class FeedForward:
    """A symbol with its parameters, trained by `fit` and used by `predict`. Deprecated in favor of Module.

    `kwargs` are passed to the optimizer. `symbol` may be a function that returns the symbol for a bucket. Arrays given
    instead of iterators are split into batches of `numpy_batch_size`.

    If the symbol has no loss, pass one as `loss`, which MXNet does not have: a gluon loss, an `mx.autodiff.Loss`, or a
    function of the symbols (prediction, label). It has a value for each sample. `predict` and `save` leave it out.
    """

    joins_workers = False  # whether `fit` trains one model on all workers; set by mx.parallel.data_parallel

    def __init__(
        self,
        symbol: Any,
        ctx: Context | Sequence[Context] | None = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = Uniform(0.01),  # noqa: B008 - it keeps nothing
        numpy_batch_size: int = 128,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_extra_params: bool = False,
        begin_epoch: int = 0,
        loss: Callable[..., Any] | None = None,
        **kwargs: Any,
    ):
        if loss is not None and not callable(loss):
            raise TypeError(f"loss must be a gluon loss, an mx.autodiff.Loss or a function, received {loss!r:.80}")
        warnings.warn(
            "mx.model.FeedForward has been deprecated. Please use mx.mod.Module instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.symbol: Any = symbol if isinstance(symbol, Symbol) else None
        self.sym_gen: Any = symbol if self.symbol is None else None
        contexts = current_context() if ctx is None else ctx
        self.ctx = [contexts] if isinstance(contexts, Context) else list(contexts)
        self.num_epoch, self.epoch_size, self.begin_epoch = num_epoch, epoch_size, begin_epoch
        self.optimizer, self.initializer, self.kwargs = optimizer, initializer, dict(kwargs)
        self.numpy_batch_size, self.allow_extra_params = numpy_batch_size, allow_extra_params
        self.arg_params, self.aux_params, self.loss = arg_params, aux_params, loss
        self._pred_exec: Executor | None = None
        if self.symbol is not None:
            self._check_arguments()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the executor, which a copy creates again."""
        return {**vars(self), "_pred_exec": None}

    def _check_arguments(self) -> None:
        """Raise an error if names in the symbol are repeated. Drop unknown parameters if that is allowed."""
        _check_arguments(self.symbol)
        if self.allow_extra_params:
            names, states = set(self.symbol.list_arguments()), set(self.symbol.list_auxiliary_states())
            self.arg_params = self.arg_params and {k: v for k, v in self.arg_params.items() if k in names}
            self.aux_params = self.aux_params and {k: v for k, v in self.aux_params.items() if k in states}

    @staticmethod
    def _is_data_arg(name: str) -> bool:
        """Whether a name belongs to data or labels."""
        return name.endswith(("data", "label"))

    def _init_params(self, inputs: Any, overwrite: bool = False) -> tuple[list[str], list[str], list[str]]:
        """Initialize missing parameters, or all of them.

        Returns the names of all arguments, of the parameters and of the auxiliary states.
        """
        descs = [each if isinstance(each, DataDesc) else DataDesc(*each) for each in inputs]
        names = self.symbol.list_arguments()
        # The label belongs to `loss` then.
        given = {each.name: each.shape for each in descs if self.loss is None or each.name in names}
        states = self.symbol.list_auxiliary_states()
        arg_shapes, _, aux_shapes = self.symbol.infer_shape(**given)
        if arg_shapes is None:
            raise ValueError(f"cannot infer the shapes of all parameters of {names} from the shapes of {given}")
        types = {each.name: each.dtype for each in descs if each.name in given}
        arg_types, _, aux_types = self.symbol.infer_type(**types)
        wanted = {n: (shape, t) for n, shape, t in zip(names, arg_shapes, arg_types, strict=True) if n not in given}
        wanted_states = {n: (shape, t) for n, shape, t in zip(states, aux_shapes, aux_types, strict=True)}
        self.arg_params = self._values(wanted, {} if overwrite else self.arg_params or {})
        self.aux_params = self._values(wanted_states, {} if overwrite else self.aux_params or {})
        return names, list(wanted), states

    def _values(self, wanted: dict[str, Any], given: dict[str, NDArray]) -> dict[str, NDArray]:
        found, attrs = {}, self.symbol.attr_dict()
        for name, (shape, dtype) in wanted.items():
            found[name] = nd.zeros(shape, dtype=dtype)
            if name not in given:
                self._begin(name, attrs.get(name, {}), found[name])
            elif given[name].shape != shape:
                raise ValueError(f"{name} has shape {given[name].shape}, but the symbol requires {shape}")
            else:
                found[name][:] = given[name]
        return found

    def _begin(self, name: str, attrs: dict[str, str], array: NDArray) -> None:
        """Initialize with the variable's own initializer, or by name. A plain string also matches moving averages."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.initializer(InitDesc(name, attrs) if "__init__" in attrs else name, array)

    # ---- data ----

    def _init_iter(self, X: Any, y: Any, is_train: bool) -> Any:
        """Return the iterator itself, or an iterator over arrays, shuffled for training, or over a shard."""
        if isinstance(X, ShardedDataset):
            names = ["data"] if self.symbol is None else self.symbol.list_arguments()
            inputs, targets = ([name for name in names if name.endswith(end)] for end in ("data", "label"))
            return ShardIter(
                X, inputs or ["data"], targets or ["softmax_label"], self.numpy_batch_size, pads=not is_train
            )
        if not isinstance(X, (np.ndarray, NDArray)):
            if not isinstance(X, DataIter):
                raise TypeError(f"{_NOT_DATA}, received {type(X).__name__}")
            return X
        if y is None and is_train:
            raise ValueError("y must be specified when X is numpy.ndarray")
        labels = np.zeros(X.shape[0]) if y is None else y.asnumpy() if isinstance(y, NDArray) else np.asarray(y)
        if X.shape[0] != labels.shape[0]:
            raise ValueError(f"The numbers of data points and labels are not equal: {X.shape[0]} and {labels.shape[0]}")
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels.flatten()
        if labels.ndim != 1 and self.loss is None:
            raise ValueError(
                f"Label must be 1D or 2D (with 2nd dimension being 1), received shape {labels.shape}. For several "
                "labels per sample, such as one per time step, pass an iterator, mx.io.NDArrayIter(X, y, batch_size), "
                "or create the model with loss="
            )
        size = min(X.shape[0], self.numpy_batch_size)
        last = "roll_over" if is_train else "pad"
        return NDArrayIter(X, labels, size, shuffle=is_train, last_batch_handle=last)

    def _init_eval_iter(self, eval_data: Any) -> Any:
        """Return an iterator for `eval_data`, which is an iterator or a pair of arrays or lists."""
        if eval_data is None or isinstance(eval_data, DataIter):
            return eval_data
        if isinstance(eval_data, ShardedDataset):
            return self._init_iter(eval_data, None, is_train=True)
        if not isinstance(eval_data, (tuple, list)) or len(eval_data) != 2:
            raise TypeError(
                "Eval data must be DataIter, or NDArray/numpy.ndarray/list pair (i.e. tuple/list of length 2)"
            )
        data, labels = eval_data
        if data is None:
            raise ValueError("Eval data is NONE")
        if isinstance(data, DataIter) and labels is None:
            return data
        data, labels = (np.array(each) if isinstance(each, list) else each for each in (data, labels))
        return self._init_iter(data, labels, is_train=True)

    # ---- prediction ----

    def _init_predictor(self, input_shapes: Any, type_dict: dict[str, Any] | None = None) -> Executor:
        """Return an executor with the parameters. It is reused while the shapes stay the same."""
        shapes: dict[str, Any] = {each[0]: tuple(each[1]) for each in input_shapes}
        kept = self._pred_exec
        if kept is None or any(kept.arg_dict[name].shape != shape for name, shape in shapes.items()):
            if self.arg_params is None:
                raise ValueError("this model has no parameters yet. Call fit, or pass arg_params and aux_params")
            labels = self._unknown_labels(shapes)
            kept = self.symbol.simple_bind(self.ctx[0], grad_req="null", type_dict=type_dict, **shapes, **labels)
            kept.copy_params_from(self.arg_params, self.aux_params)
            _check_arguments(self.symbol)
            self._pred_exec = kept
        return kept

    def _unknown_labels(self, shapes: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return shapes for labels that prediction does not use but that the graph does not determine, as of Mixup."""
        names = self.symbol.list_arguments()
        found, _, _ = self.symbol.infer_shape_partial(**shapes)
        batch = next(iter(shapes.values()))[0]
        unknown = [name for name, shape in zip(names, found, strict=True) if not shape or 0 in shape]
        return {name: (batch,) for name in unknown if name.endswith("label") and name not in (self.arg_params or {})}

    def _predicting(self, X: Any, reset: bool, y: Any = None) -> tuple[Any, Executor, list[NDArray]]:
        """Return an iterator, an executor for its batches, and the executor's data arrays."""
        data = self._init_iter(X, y, is_train=False)
        if reset:
            data.reset()
        types = {each[0]: each.dtype for each in data.provide_data if isinstance(each, DataDesc)}
        bound = self._init_predictor(data.provide_data, types)
        return data, bound, [bound.arg_dict[each[0]] for each in data.provide_data]

    def predict(self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True) -> Any:
        """Return the outputs for an iterator or an array as numpy arrays; with `return_data`, also the data and labels.

        Several outputs are returned as a list.
        """
        data, bound, inputs = self._predicting(X, reset)
        outputs: list[Any] = []
        seen: list[Any] = []
        labels: list[Any] = []
        for i, batch in enumerate(data):
            if num_batch is not None and i == num_batch:
                break
            _load_data(batch, inputs)
            bound.forward(is_train=False)
            real = data.batch_size - (batch.pad or 0)
            outputs.append([each[:real].asnumpy() for each in bound.outputs])
            if return_data:
                seen.append([each[:real].asnumpy() for each in batch.data])
                labels.append([each[:real].asnumpy() for each in batch.label])
        return (_joined(outputs), _joined(seen), _joined(labels)) if return_data else _joined(outputs)

    def score(
        self,
        X: Any,
        eval_metric: Any = None,
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        reset: bool = True,
        label: Any = None,
    ) -> Any:
        """Return the value of a metric over an iterator, or a list of values for several metrics.

        The default metric is the accuracy, or the mean of the loss if the model was created with one. MXNet takes an
        iterator. Here, `score(data, label)` with two arrays works as well.
        """
        if _are_labels(eval_metric):
            if label is not None:
                raise TypeError("score received labels twice: as the second argument and as label=")
            eval_metric, label = None, eval_metric
        if self.loss is not None and eval_metric is None:
            eval_metric = metric.Loss()
            for i, (batch, losses) in enumerate(self._losses(X, label, reset)):
                if num_batch is not None and i == num_batch:
                    break
                eval_metric.update(batch.label, [losses])
                _call(batch_end_callback, BatchEndParam(0, i, eval_metric, locals()))
            return eval_metric.get()[1]
        eval_metric = _metric(eval_metric)
        data, bound, inputs = self._predicting(X, reset, label)
        for i, batch in enumerate(data):
            if num_batch is not None and i == num_batch:
                break
            _load_data(batch, inputs)
            bound.forward(is_train=False)
            kept = None if isinstance(X, DataIter) else data.batch_size - (batch.pad or 0)  # MXNet counts padding
            eval_metric.update(*([each[:kept] for each in arrays] for arrays in (batch.label, bound.outputs)))
            _call(batch_end_callback, BatchEndParam(0, i, eval_metric, locals()))
        return eval_metric.get()[1]

    def score_array(self, X: Any, label: Any = None, eval_metric: Any = None) -> np.ndarray:
        """Return one value per sample of arrays, an iterator or a shard: its loss, or its value of a metric.

        The default metric is the accuracy, which is 1 for a correct prediction and 0 for others, unless the model was
        created with a loss. Several metrics give a row for each sample. MXNet does not have this method.
        """
        if self.loss is not None and eval_metric is None:
            found = [losses.asnumpy() for _, losses in self._losses(X, label, reset=True)]
            return np.concatenate([each.reshape(len(each), -1).mean(axis=1) for each in found])
        made = _metric(eval_metric)
        outputs, _, labels = self.predict(self._init_iter(X, label, is_train=False), return_data=True)
        outputs, labels = ([each] if isinstance(each, np.ndarray) else each for each in (outputs, labels))
        values = []
        for i in range(len(labels[0])):
            made.reset()
            made.update(*([nd.array(each[i : i + 1]) for each in arrays] for arrays in (labels, outputs)))
            values.append(made.get()[1])
        return np.array(values)

    def _losses(self, X: Any, y: Any, reset: bool) -> Iterator[tuple[Any, NDArray]]:
        """Yield each batch and the losses of its samples, without padding."""
        if self.arg_params is None:
            raise ValueError("this model has no parameters yet. Call fit, or pass arg_params and aux_params")
        if y is None and isinstance(X, (np.ndarray, NDArray)):
            raise ValueError("the loss needs labels: call score(data, label)")
        data = self._init_iter(X, y, is_train=False)
        if reset:
            data.reset()
        inputs = [*data.provide_data, *data.provide_label]
        graph = self._with_loss(self.symbol, data)
        bound = graph.simple_bind(self.ctx[0], grad_req="null", **{each[0]: tuple(each[1]) for each in inputs})
        bound.copy_params_from(self.arg_params, self.aux_params)
        for batch in data:
            for array, each in zip([*batch.data, *batch.label], inputs, strict=True):
                array.copyto(bound.arg_dict[each[0]])
            bound.forward(is_train=False)
            losses = bound.outputs[-1]
            yield batch, losses[: len(losses) - (batch.pad or 0)]

    def _with_loss(self, symbol: Any, data: Any) -> Any:
        """Return the graph for training on an iterator: the symbol, with the loss if the model has one."""
        if self.loss is None:
            return symbol
        if len(data.provide_label) != 1:
            raise ValueError(f"loss= expects one label, but the data have {len(data.provide_label)}")
        return with_loss(symbol, self.loss, data.provide_label[0][0])

    # ---- training ----

    def fit(
        self,
        X: Any,
        y: Any = None,
        eval_data: Any = None,
        eval_metric: Any = None,
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: list[float] | None = None,
        monitor: Any = None,
        eval_end_callback: Any = LogValidationMetricsCallback(),  # noqa: B008 - it keeps nothing
        eval_batch_end_callback: Any = None,
    ) -> None:
        """Train on an iterator or on arrays, for epochs `begin_epoch` to `num_epoch - 1`.

        An epoch is a pass over the data, or `epoch_size` batches, across the end of the data if necessary. Callbacks
        are called as in `Module.fit`, with batches counted from 1. The default metric is that of `score`. For a shard
        (`mx.dist.shard`), all workers train one model, as in `Module.fit`.
        """
        if not isinstance(self.num_epoch, int):
            raise TypeError(
                f"num_epoch must be an integer, received {self.num_epoch!r}. Pass it: FeedForward(..., num_epoch=10)"
            )
        logger = logger or logging
        data = self._init_iter(X, y, is_train=True)
        eval_data = self._init_eval_iter(eval_data)
        if self.sym_gen is not None:
            self.symbol = self.sym_gen(data.default_bucket_key)
            self._check_arguments()
        inputs = [*data.provide_data, *data.provide_label]
        self._init_params(inputs)
        module = self._module(data, logger, work_load_list)
        module.joins_workers = self.joins_workers or is_divided(data)
        logger.info("Start training with %s", str(self.ctx))
        module.bind(data.provide_data, data.provide_label)
        module.init_params(None, self.arg_params, self.aux_params)
        module.init_optimizer(kvstore, self.optimizer, self.kwargs)
        if monitor is not None:
            module.install_monitor(monitor)
        if self.loss is None:
            eval_metric = _metric(eval_metric)
        else:
            check_shape(module.symbol, {each[0]: tuple(each[1]) for each in inputs}, inputs[0][1][0])
            eval_metric = metric_of(eval_metric, module.symbol)
        run = Fit(module, data, self.begin_epoch, self.num_epoch, resets=False)
        for epoch in range(run.epoch, self.num_epoch):
            started = time.time()
            eval_metric.reset()
            with run.begin(epoch) as shown:
                batches = self._batches(data, epoch, logger, shown.batches)
                for nbatch, data_batch in enumerate(batches, shown.batches + 1):
                    _step(module, data_batch, monitor)
                    module._update_metric(eval_metric, data_batch)
                    shown.trained()
                    _call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
                    shown.done(data_batch, eval_metric)
            module._await_workers()
            logger.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - started)
            self._take(*module.get_params())
            _call(epoch_end_callback, epoch, self.symbol, self.arg_params, self.aux_params)
            if eval_data is not None:
                module.score(eval_data, eval_metric, None, eval_batch_end_callback, eval_end_callback, epoch=epoch)

    def _module(self, data: Any, logger: Any, work_load_list: list[float] | None) -> BaseModule:
        names, labels = ([each[0] for each in descs] for descs in (data.provide_data, data.provide_label))
        options: dict[str, Any] = {"logger": logger, "context": self.ctx, "work_load_list": work_load_list}
        if self.sym_gen is None:
            return Module(self._with_loss(self.symbol, data), names, labels, **options)

        def graph_of(key: Any) -> Any:
            return self._with_loss(self.sym_gen(key), data), names, labels

        return BucketingModule(graph_of, data.default_bucket_key, **options)

    def _batches(self, data: Any, epoch: int, logger: Any, count: int = 0) -> Any:
        """Yield the batches of an epoch, after the first `count`. The iterator is reset whenever it ends."""
        has_batches = count > 0
        while count != self.epoch_size:
            for batch in data:
                count, has_batches = count + 1, True
                yield batch
                if count == self.epoch_size:
                    return
            logger.info("Epoch[%d] Resetting Data Iterator", epoch)
            data.reset()
            if self.epoch_size is None:
                return
            if not has_batches:
                raise ValueError(f"epoch_size is {self.epoch_size}, but the iterator has no batches")
            has_batches = False

    def _take(self, arguments: dict[str, NDArray], states: dict[str, NDArray]) -> None:
        """Copy the trained values into the existing arrays, which the program may reference."""
        for found, kept in ((arguments, self.arg_params), (states, self.aux_params)):
            for name, array in found.items():
                array.copyto(kept[name])  # type: ignore[index]
        self._pred_exec = None

    # ---- files ----

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Write `prefix`-symbol.json and `prefix`-0003.params. The epoch defaults to the last one."""
        epoch = self.num_epoch if epoch is None else epoch
        if epoch is None:
            raise AssertionError(
                "save requires an epoch for the file name, as this model has no num_epoch. Call save(prefix, epoch)"
            )
        if self.arg_params is None:
            raise AssertionError("this model has no parameters yet. Call fit first")
        save_checkpoint(prefix, epoch, self.symbol, self.arg_params, self.aux_params or {}, remove_amp_cast)

    @staticmethod
    def load(prefix: str, epoch: int, ctx: Any = None, **kwargs: Any) -> FeedForward:
        """Load a model written by `save`. Training continues at `epoch`."""
        symbol, arguments, states = load_checkpoint(prefix, epoch)
        return FeedForward(symbol, ctx, arg_params=arguments, aux_params=states, begin_epoch=epoch, **kwargs)

    @staticmethod
    def create(
        symbol: Any,
        X: Any,
        y: Any = None,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = Uniform(0.01),  # noqa: B008 - it keeps nothing
        eval_data: Any = None,
        eval_metric: Any = None,
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: list[float] | None = None,
        eval_end_callback: Any = LogValidationMetricsCallback(),  # noqa: B008 - it keeps nothing
        eval_batch_end_callback: Any = None,
        **kwargs: Any,
    ) -> FeedForward:
        """Create a model and train it."""
        model = FeedForward(
            symbol,
            ctx=ctx,
            num_epoch=num_epoch,
            epoch_size=epoch_size,
            optimizer=optimizer,
            initializer=initializer,
            **kwargs,
        )
        model.fit(
            X,
            y,
            eval_data=eval_data,
            eval_metric=eval_metric,
            epoch_end_callback=epoch_end_callback,
            batch_end_callback=batch_end_callback,
            kvstore=kvstore,
            logger=logger,
            work_load_list=work_load_list,
            eval_end_callback=eval_end_callback,
            eval_batch_end_callback=eval_batch_end_callback,
        )
        return model


def _step(module: BaseModule, batch: Any, monitor: Any) -> None:
    if monitor is not None:
        monitor.tic()
    module.forward_backward(batch)
    module.update()
    if monitor is not None:
        monitor.toc_print()


def _metric(given: Any) -> metric.EvalMetric:
    """Return a metric, by default the accuracy."""
    return given if isinstance(given, metric.EvalMetric) else metric.create("acc" if given is None else given)


def _are_labels(value: Any) -> bool:
    """Whether the second argument of `score` is an array of labels instead of a metric."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(each, (Real, list, tuple)) for each in value)
    return isinstance(value, (np.ndarray, NDArray))


def _joined(batches: list[list[Any]]) -> Any:
    """Concatenate each array over batches. A single array is returned without a list."""
    joined = [np.concatenate(parts) for parts in zip(*batches, strict=True)]
    return joined[0] if len(joined) == 1 else joined
