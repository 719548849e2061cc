"""BaseModule: the interface of all modules, and their common training and prediction loops."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import metric
from .. import ndarray as nd
from ..base import MXNetError, _as_list  # noqa: F401  # programs import the second from here
from ..gluon.data.shard import ShardedDataset
from ..initializer import Uniform
from ..io import DataBatch, DataDesc, DataIter
from ..model import BatchEndParam
from ..model import _multiple_callbacks as _call
from ..ndarray import NDArray
from ..process import state
from ..step import OptimizerWithStrategy, store_of_workers
from .progress import Fit
from .shards import ShardIter, is_divided

if TYPE_CHECKING:
    from .module import Module

__all__ = ["BaseModule"]

_PARAMETER_ENDINGS = ("_weight", "_bias", "_gamma", "_beta")
_STEPS_BEFORE = {
    "binded": "bind(data_shapes, label_shapes)",
    "params_initialized": "init_params()",
    "optimizer_initialized": "init_optimizer()",
    "inputs_need_grad": "bind(..., inputs_need_grad=True)",
    "for_training": "bind(..., for_training=True)",
}


class BaseModule:
    """A computation with parameters that can be bound to input shapes, trained and used for prediction.

    Subclasses define `bind`, `init_params`, `init_optimizer`, `forward`, `backward`, `update`, `update_metric`,
    `get_outputs`, `get_params`, and others. `fit`, `score` and `predict` are built on them.
    """

    joins_workers = False  # whether a store of one process is replaced with one that all workers share

    def __init__(self, logger: Any = logging):
        self.logger = logger
        self.binded = self.params_initialized = self.optimizer_initialized = False
        self.for_training = self.inputs_need_grad = False
        self._symbol: Any = None
        self._total_exec_bytes = 0

    def _require(self, what: str, *states: str) -> None:
        """Raise AssertionError if a required earlier call is missing."""
        for each in states:
            if not getattr(self, each):
                raise AssertionError(f"{what}: call {_STEPS_BEFORE[each]} first")

    # ---- the loops ----

    def forward_backward(self, data_batch: Any) -> None:
        """Run `forward` in training mode, then `backward`."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def score(
        self,
        eval_data: Any,
        eval_metric: Any,
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        score_end_callback: Any = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Any = None,
    ) -> list[tuple[str, Any]]:
        """Return (name, value) pairs of a metric over an iterator's batches, or over the first `num_batch` of them."""
        self._require("score", "binded", "params_initialized")
        eval_data = self._iterator(eval_data)
        if reset:
            eval_data.reset()
        if not isinstance(eval_metric, metric.EvalMetric):
            eval_metric = metric.create(eval_metric)
        eval_metric.reset()
        actual_num_batch = 0
        # Callbacks receive this function's local variables, so these have the same names as in MXNet.
        for nbatch, eval_batch in enumerate(eval_data):
            if num_batch is not None and nbatch == num_batch:
                break
            self.prepare(eval_batch, sparse_row_id_fn=sparse_row_id_fn)
            self.forward(eval_batch, is_train=False)
            self._update_metric(eval_metric, eval_batch)
            _call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
            actual_num_batch += 1
        _call(score_end_callback, BatchEndParam(epoch, actual_num_batch, eval_metric, locals()))
        return eval_metric.get_name_value()

    def _update_metric(self, eval_metric: Any, batch: Any) -> None:
        if isinstance(batch, list):
            self.update_metric(eval_metric, [each.label for each in batch], pre_sliced=True)
        else:
            self.update_metric(eval_metric, batch.label)

    def iter_predict(
        self, eval_data: Any, num_batch: int | None = None, reset: bool = True, sparse_row_id_fn: Any = None
    ) -> Iterator[tuple[list[NDArray], int, Any]]:
        """Yield (outputs, batch number, batch) for each batch of an iterator, without padding samples."""
        self._require("iter_predict", "binded", "params_initialized")
        if reset:
            eval_data.reset()
        for nbatch, eval_batch in enumerate(eval_data):
            if num_batch is not None and nbatch == num_batch:
                break
            self.prepare(eval_batch, sparse_row_id_fn=sparse_row_id_fn)
            self.forward(eval_batch, is_train=False)
            kept = -(eval_batch.pad or 0) or None
            yield [output[:kept] for output in self.get_outputs()], nbatch, eval_batch

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Any = None,
    ) -> Any:
        """Return the outputs for an iterator, concatenated over its batches, or for a single array.

        A single output is returned without a list unless `always_output_list`. Without `merge_batches`, the result is a
        list with the outputs of each batch.
        """
        self._require("predict", "binded", "params_initialized")
        if isinstance(eval_data, (NDArray, np.ndarray)):
            array = eval_data if isinstance(eval_data, NDArray) else nd.array(eval_data)
            self.forward(DataBatch([array]), is_train=False)
            return self.get_outputs()[0]
        if not isinstance(eval_data, DataIter):
            raise ValueError(
                f"eval_data must be of type NDArray or DataIter, received {type(eval_data).__name__}. Wrap it: "
                "mx.io.NDArrayIter(data, batch_size=...)"
            )
        batches = self.iter_predict(eval_data, num_batch, reset, sparse_row_id_fn)
        outputs = [[each.copy() for each in found] for found, _, _ in batches]
        if not outputs or not merge_batches:
            return outputs
        merged = _merged(outputs)
        return merged[0] if len(merged) == 1 and not always_output_list else merged

    def fit(
        self,
        train_data: Any,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
        initializer: Any = Uniform(0.01),  # noqa: B008 - it keeps nothing
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_rebind: bool = False,
        force_init: bool = False,
        begin_epoch: int = 0,
        num_epoch: int | None = None,
        validation_metric: Any = None,
        monitor: Any = None,
        sparse_row_id_fn: Any = None,
    ) -> None:
        """Train on the batches of an iterator for epochs `begin_epoch` to `num_epoch - 1`.

        The data may also be a shard (`mx.dist.shard`). Then all workers train one model, with the store 'dist_sync'
        unless `kvstore` names another one that workers share.

        Bind and initialize the parameters and the optimizer if that has not been done yet. Log the metric of each epoch
        on the training data and on `eval_data`. Callbacks receive a `BatchEndParam` after a batch, and (epoch, symbol,
        arguments, auxiliary states) after an epoch.
        """
        if num_epoch is None:
            raise AssertionError("please specify number of epochs: fit(..., num_epoch=...)")
        train_data, eval_data = self._iterator(train_data), self._iterator(eval_data)
        if is_divided(train_data):
            kvstore = self._shared_store(kvstore, optimizer)
        self.bind(
            data_shapes=train_data.provide_data,
            label_shapes=train_data.provide_label,
            for_training=True,
            force_rebind=force_rebind,
        )
        if monitor is not None:
            self.install_monitor(monitor)
        self.init_params(
            initializer=initializer,
            arg_params=arg_params,
            aux_params=aux_params,
            allow_missing=allow_missing,
            force_init=force_init,
        )
        self.init_optimizer(kvstore=kvstore, optimizer=optimizer, optimizer_params=optimizer_params)
        if validation_metric is None:
            validation_metric = eval_metric
        if not isinstance(eval_metric, metric.EvalMetric):
            eval_metric = metric.create(eval_metric)

        # This stays one function: batch callbacks receive its local variables, which have the same names as in MXNet.
        run = Fit(self, train_data, begin_epoch, num_epoch)
        for epoch in range(run.epoch, num_epoch):
            tic = time.time()
            eval_metric.reset()
            self._begin_epoch(epoch, train_data)
            with run.begin(epoch) as shown:
                nbatch, eval_name_vals = shown.batches, []
                data_iter = iter(train_data)
                next_data_batch = next(data_iter, None)
                end_of_batch = next_data_batch is None
                while not end_of_batch:
                    data_batch = next_data_batch
                    if monitor is not None:
                        monitor.tic()
                    self.forward_backward(data_batch)
                    self.update()
                    self._update_metric(eval_metric, data_batch)
                    shown.trained()
                    next_data_batch = next(data_iter, None)
                    end_of_batch = next_data_batch is None
                    if end_of_batch:  # before callbacks may reset the metric
                        eval_name_vals = eval_metric.get_global_name_value()
                    else:
                        self.prepare(next_data_batch, sparse_row_id_fn=sparse_row_id_fn)
                    if monitor is not None:
                        monitor.toc_print()
                    _call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
                    shown.done(data_batch, eval_metric)
                    nbatch += 1
            self._await_workers()
            for name, val in eval_name_vals:
                self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, val)
            toc = time.time()
            self.logger.info("Epoch[%d] Time cost=%.3f", epoch, (toc - tic))

            arg_params, aux_params = self.get_params()
            self.set_params(arg_params, aux_params)
            _call(epoch_end_callback, epoch, self.symbol, arg_params, aux_params)
            if eval_data is not None:
                self._validate(epoch, eval_data, validation_metric, eval_end_callback, eval_batch_end_callback)
            train_data.reset()

    def _validate(self, epoch: int, data: Any, eval_metric: Any, end_callback: Any, batch_end_callback: Any) -> None:
        """Log the metric over the validation data."""
        found = self.score(
            data, eval_metric, score_end_callback=end_callback, batch_end_callback=batch_end_callback, epoch=epoch
        )
        for name, val in found:
            self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, val)

    def _iterator(self, data: Any) -> Any:
        """Return the data itself, or an iterator over the batches of a shard."""
        if not isinstance(data, ShardedDataset):
            return data
        bound = {"batch_size": self.data_shapes[0][1][0]} if self.binded else {}
        return ShardIter(data, self.data_names, getattr(self, "label_names", ["softmax_label"]), **bound)

    @staticmethod
    def _shared_store(kvstore: Any, optimizer: Any) -> Any:
        """Return a store that all workers share, unless the optimizer itself combines their gradients."""
        return kvstore if isinstance(optimizer, OptimizerWithStrategy) else store_of_workers(kvstore)

    def _begin_epoch(self, epoch: int, train_data: Any) -> None:
        """Hook for subclasses, called before the batches of an epoch."""

    def _await_workers(self) -> None:
        """Wait until all workers of a distributed training have reached the end of their epoch."""

    # ---- inspection ----

    @property
    def data_names(self) -> list[str]:
        """The names of the data inputs."""
        raise self._missing("data_names")

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs."""
        raise self._missing("output_names")

    @property
    def data_shapes(self) -> list[Any]:
        """Names and shapes of the bound data."""
        raise self._missing("data_shapes")

    @property
    def label_shapes(self) -> Any:
        """Names and shapes of the bound labels."""
        raise self._missing("label_shapes")

    @property
    def output_shapes(self) -> list[Any]:
        """Names and shapes of the outputs."""
        raise self._missing("output_shapes")

    @property
    def symbol(self) -> Any:
        """The symbol of the module, if it has one."""
        return self._symbol

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} does not implement {what}. Subclasses of BaseModule must define it"
        )

    # ---- parameters ----

    def whole(self) -> Module:
        """Return the Module with all parameters and the optimizer, for a checkpoint."""
        raise MXNetError(
            f"checkpoints of a {type(self).__name__} are not supported: use Module or BucketingModule, or save its "
            "parameters with save_params"
        )

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return the parameters and the auxiliary states by name, as copies."""
        raise self._missing("get_params")

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 - it keeps nothing
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Initialize the parameters from the values given by name, or else with the initializer."""
        raise self._missing("init_params")

    def set_params(
        self,
        arg_params: dict[str, NDArray] | None,
        aux_params: dict[str, NDArray] | None,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Set the values of the parameters."""
        self.init_params(
            initializer=None,
            arg_params=arg_params,
            aux_params=aux_params,
            allow_missing=allow_missing,
            force_init=force_init,
            allow_extra=allow_extra,
        )

    def save_params(self, fname: str) -> None:
        """Write the parameters to a file."""
        state.saved.append(fname)
        arg_params, aux_params = self.get_params()
        arrays = {f"arg:{name}": array for name, array in arg_params.items()}
        nd.save(fname, {**arrays, **{f"aux:{name}": array for name, array in aux_params.items()}})

    def load_params(self, fname: str) -> None:
        """Load the parameters from a file written by `save_params` or `save_checkpoint`."""
        loaded = nd.load(fname)
        if not isinstance(loaded, dict):
            raise ValueError(
                f"Invalid param file {fname}: expected names arg:NAME and aux:NAME, but its arrays have no names"
            )
        kinds: dict[str, dict[str, NDArray]] = {"arg": {}, "aux": {}}
        for key, array in loaded.items():
            kind, _, name = key.partition(":")
            if kind not in kinds or not name:
                raise ValueError(f"Invalid param file {fname}: expected arg:NAME and aux:NAME, found {key!r}")
            kinds[kind][name] = array
        self.set_params(kinds["arg"], kinds["aux"])

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the arrays of `state_names`. A module without states returns an empty list."""
        self._require("get_states", "binded", "params_initialized")
        if merge_multi_context:
            raise AssertionError(
                f"{type(self).__name__} has no states to merge. Call get_states(merge_multi_context=False)"
            )
        return []

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set the arrays of `state_names` to arrays or to a single value."""
        self._require("set_states", "binded", "params_initialized")
        if states or value:
            raise AssertionError(f"{type(self).__name__} has no states to set")

    # ---- computing ----

    def install_monitor(self, mon: Any) -> None:
        """Install a Monitor on all executors."""
        raise self._missing("install_monitor")

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Prepare for a batch: switch buckets, and fetch the rows of sparse parameters that the batch needs."""
        if sparse_row_id_fn is not None:
            warnings.warn(UserWarning(f"sparse_row_id_fn is not invoked for {type(self).__name__}."), stacklevel=2)

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs of a batch. `is_train` defaults to the mode that `bind` was called with."""
        raise self._missing("forward")

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients. `out_grads` are the head gradients of outputs that are not losses."""
        raise self._missing("backward")

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the last forward, merged over contexts or as one list per context."""
        raise self._missing("get_outputs")

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the data from the last backward, merged over contexts or as one list per context."""
        raise self._missing("get_input_grads")

    def update(self) -> None:
        """Update the parameters with the gradients of the last backward."""
        raise self._missing("update")

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update a metric with the outputs of the last forward and the given labels."""
        raise self._missing("update_metric")

    # ---- setting up ----

    def bind(
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: BaseModule | None = None,
        grad_req: Any = "write",
    ) -> None:
        """Create executors for data and labels of the given shapes."""
        raise self._missing("bind")

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Set the optimizer, and the KVStore that aggregates gradients over contexts and workers."""
        raise self._missing("init_optimizer")


def _merged(batches: list[list[NDArray]]) -> list[NDArray]:
    """Concatenate each output over batches."""
    if len({len(outputs) for outputs in batches}) > 1:
        raise AssertionError(
            "Cannot merge batches, as num of outputs is not the same in mini-batches. Maybe bucketing is used? Call "
            "predict(..., merge_batches=False)"
        )
    return [nd.concat(*parts, dim=0) for parts in zip(*batches, strict=True)]


def _check_input_names(symbol: Any, names: list[str], typename: str, throw: bool) -> None:
    """Raise ValueError or warn if a symbol does not have inputs with these names."""
    arguments = symbol.list_arguments()
    for name in names:
        if name in arguments:
            continue
        candidates = [arg for arg in arguments if not arg.endswith(_PARAMETER_ENDINGS)]
        message = (
            f"You created Module with Module(..., {typename}_names={names}) but input with name '{name}' is not found "
            "in symbol.list_arguments(). Did you mean one of:\n\t" + "\n\t".join(candidates)
        )
        if throw:
            raise ValueError(message)
        warnings.warn(message, stacklevel=3)


def _check_names_match(data_names: list[str], data_shapes: list[Any], name: str, throw: bool) -> None:
    """Raise ValueError or warn if the descriptions do not match the input names."""
    if sorted(data_names) != sorted(each[0] for each in data_shapes):
        message = (
            f"Data provided by {name}_shapes don't match names specified by {name}_names "
            f"({data_shapes} vs. {data_names})"
        )
        if throw:
            raise ValueError(message)
        warnings.warn(message, stacklevel=3)


def _parse_data_desc(
    data_names: list[str], label_names: list[str], data_shapes: Any, label_shapes: Any
) -> tuple[list[DataDesc], list[DataDesc] | None]:
    """Return the descriptions of data and labels as DataDescs, after checking their names."""
    data = [each if isinstance(each, DataDesc) else DataDesc(*each) for each in data_shapes]
    _check_names_match(data_names, data, "data", True)
    if label_shapes is None:
        _check_names_match(label_names, [], "label", False)
        return data, None
    labels = [each if isinstance(each, DataDesc) else DataDesc(*each) for each in label_shapes]
    _check_names_match(label_names, labels, "label", False)
    return data, labels
