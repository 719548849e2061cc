"""Module: a symbol, its parameters and its optimizer, trained on one or several contexts."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Sequence
from typing import Any

from .. import optimizer as opt
from ..base import MXNetError
from ..comm.transaction import transaction
from ..context import Context, cpu
from ..events import emit, heard
from ..executor import check_array
from ..formats.atomic import replacing
from ..initializer import InitDesc, Uniform
from ..io import DataDesc
from ..kvstore import KVStoreBase
from ..model import load_checkpoint
from ..ndarray import NDArray
from ..step import Asked, StepStrategy, choose, refuse_second_exchange, take_own_strategy, trains_alone
from .base_module import BaseModule, _check_input_names, _parse_data_desc
from .executor_group import DataParallelExecutorGroup
from .training import ArrayTraining

__all__ = ["Module"]

_EMBEDDINGS = ("Embedding", "_contrib_SparseEmbedding")
_ROW_SPARSE = "1"  # the value of the attribute set by sym.Variable(stype='row_sparse')


class Module(BaseModule):
    """Trains a symbol: `bind`, `init_params` and `init_optimizer`, then `forward`, `backward` and `update` per batch.

    `fit` does all of that. Batches provide the arguments of the symbol in `data_names` and `label_names`, and
    `set_states` provides those in `state_names`. All other arguments are parameters, which are trained unless they are
    in `fixed_param_names`. Several contexts split each batch in proportion to `work_load_list`.
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Sequence[str] | None = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Context | list[Context] | None = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: dict[str, Any] | None = None,
    ):
        super().__init__(logger=logger)
        self._context = _contexts(context)
        self._work_load_list = list(work_load_list or [1] * len(self._context))
        if len(self._work_load_list) != len(self._context):
            raise AssertionError(
                f"work_load_list must have a value for each of {len(self._context)} contexts, received {work_load_list}"
            )
        self._group2ctxs = group2ctxs
        self._symbol = symbol
        self._data_names, self._label_names = list(data_names or ()), list(label_names or ())
        self._state_names, self._fixed_param_names = list(state_names or ()), list(fixed_param_names or ())
        _check_input_names(symbol, self._data_names, "data", True)
        _check_input_names(symbol, self._label_names, "label", False)
        _check_input_names(symbol, self._state_names, "state", True)
        _check_input_names(symbol, self._fixed_param_names, "fixed_param", True)
        inputs = {*self._data_names, *self._label_names, *self._state_names}
        self._param_names = [name for name in symbol.list_arguments() if name not in inputs]
        self._aux_names, self._output_names = symbol.list_auxiliary_states(), symbol.list_outputs()
        self._row_sparse = _row_sparse_gradients(symbol) & set(self._param_names)
        self._arg_params: Any = None  # copies of the executors' parameters by name
        self._aux_params: Any = None
        self._params_dirty = False
        self._compression_params = compression_params
        self._alone = False  # whether the workers of the job train independent models
        self._strategy: StepStrategy | None = None  # how gradients are aggregated over contexts and workers
        self._training: ArrayTraining | None = None
        self._preload_opt_states: str | None = None
        self._grad_req: Any = None
        self._reset_bind()

    # ---- files ----

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """Load a module written by `save_checkpoint`. The other arguments are those of Module."""
        symbol, args, auxs = load_checkpoint(prefix, epoch)
        module = Module(symbol=symbol, **kwargs)
        module._arg_params, module._aux_params, module.params_initialized = args, auxs, True
        if load_optimizer_states:
            module._preload_opt_states = f"{prefix}-{epoch:04d}.states"
        return module

    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        """Write `prefix`-symbol.json, `prefix`-0003.params (for epoch 3) and optionally the optimizer states."""
        self._symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
        path = f"{prefix}-{epoch:04d}.params"
        self.save_params(path)
        logging.info('Saved checkpoint to "%s"', path)
        if save_optimizer_states:
            states = f"{prefix}-{epoch:04d}.states"
            self.save_optimizer_states(states)
            logging.info('Saved optimizer state to "%s"', states)

    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer states to a file."""
        strategy, training = self._optimizing("save_optimizer_states")
        if not strategy.save_states(fname, dump_optimizer=False):
            with replacing(fname) as file:
                file.write(training.updater().get_states())

    def load_optimizer_states(self, fname: str) -> None:
        """Load the optimizer states from a file."""
        strategy, training = self._optimizing("load_optimizer_states")
        with training.own_keys(fname) as own:
            if not strategy.load_states(own):
                training.take_updater(training.updater().restored(own, dict.fromkeys(training.indices())))

    def _optimizing(self, call: str) -> tuple[StepStrategy, ArrayTraining]:
        self._require(call, "optimizer_initialized")
        assert self._strategy is not None and self._training is not None
        if self._exec_group is not None:
            self._training.use(self._exec_group)
        return self._strategy, self._training

    # ---- inspection ----

    @property
    def data_names(self) -> list[str]:
        """The names of the data inputs."""
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """The names of the label inputs."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs."""
        return self._output_names

    @property
    def data_shapes(self) -> list[DataDesc]:
        """Names and shapes of the bound data."""
        self._require("data_shapes", "binded")
        return self._data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        """Names and shapes of the bound labels, or None if there are none."""
        self._require("label_shapes", "binded")
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the outputs."""
        self._require("output_shapes", "binded")
        return self._exec_group.get_output_shapes()

    # ---- parameters ----

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return the parameters and the auxiliary states by name, as copies that the next call overwrites."""
        self._require("get_params", "binded", "params_initialized")
        if self._params_dirty:
            self._sync_params_from_devices()
        return self._arg_params, self._aux_params

    def _sync_params_from_devices(self) -> None:
        self._exec_group.get_params(self._arg_params, self._aux_params)
        self._params_dirty = False

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 - it keeps nothing
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Initialize the parameters from the values given by name, or else with the initializer.

        A parameter that is missing from a given dictionary is an error unless `allow_missing`. As in MXNet, values of
        unknown parameters are ignored.
        """
        if self.params_initialized and not force_init:
            warnings.warn(
                "Parameters already initialized and force_init=False. init_params call ignored.", stacklevel=2
            )
            return
        if not self.binded:
            raise AssertionError("call bind before initializing the parameters")
        self._have_copies()
        attributes = self._symbol.attr_dict()
        for arrays, given in ((self._arg_params, arg_params), (self._aux_params, aux_params)):
            for name in sorted(arrays):
                desc = InitDesc(name, attributes.get(name))
                _initialize(desc, arrays[name], given, initializer, allow_missing)
        self.params_initialized, self._params_dirty = True, False
        self._exec_group.set_params(self._arg_params, self._aux_params)

    def _have_copies(self) -> None:
        """Create the arrays that `get_params` returns, if they do not exist."""
        if self._arg_params is None or self._aux_params is None:
            self._arg_params = _copies(self._param_names, self._exec_group.param_arrays)
            self._aux_params = _copies(self._aux_names, self._exec_group.aux_arrays)

    def set_params(
        self,
        arg_params: dict[str, NDArray] | None,
        aux_params: dict[str, NDArray] | None,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Set the values of the parameters. With `allow_missing`, parameters that are not given keep their values."""
        if not allow_missing:
            self.init_params(
                initializer=None,
                arg_params=arg_params,
                aux_params=aux_params,
                allow_missing=allow_missing,
                force_init=force_init,
                allow_extra=allow_extra,
            )
            return
        if self.params_initialized and not force_init:
            warnings.warn("Parameters already initialized and force_init=False. set_params call ignored.", stacklevel=2)
            return
        self._exec_group.set_params(arg_params or {}, aux_params, allow_extra=allow_extra)
        self._have_copies()
        self._params_dirty = self.params_initialized = True

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the arrays of `state_names`, as one list per state with an array for each context."""
        self._require("get_states", "binded", "params_initialized")
        return self._exec_group.get_states(merge_multi_context=merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set the arrays of `state_names` to arrays, nested as in `get_states`, or to a single value."""
        self._require("set_states", "binded", "params_initialized")
        self._exec_group.set_states(states, value)

    # ---- binding ----

    def _reset_bind(self) -> None:
        self.binded = False
        self._exec_group: Any = None
        self._data_shapes: Any = None
        self._label_shapes: Any = None

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
        """Create executors for data and labels of the given shapes, with the parameters of `shared_module` if given."""
        if force_rebind:
            self._keep_params()
            self._reset_bind()
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise AssertionError("bind: inputs_need_grad=True requires for_training=True")
        data, labels = _parse_data_desc(self.data_names, self.label_names, data_shapes, label_shapes)
        shared = self._shared_group(shared_module)
        self._exec_group = DataParallelExecutorGroup(
            self._symbol,
            self._context,
            self._work_load_list,
            data,
            labels,
            self._param_names,
            for_training,
            inputs_need_grad,
            shared,
            logger=self.logger,
            fixed_param_names=self._fixed_param_names,
            grad_req=grad_req,
            group2ctxs=self._group2ctxs,
            state_names=self._state_names,
        )
        self.for_training, self.inputs_need_grad, self._grad_req = for_training, inputs_need_grad, grad_req
        self._data_shapes, self._label_shapes, self.binded = data, labels, True
        if isinstance(shared_module, Module):
            self._arg_params, self._aux_params = shared_module._arg_params, shared_module._aux_params
            self.params_initialized = shared_module.params_initialized
            if shared_module.optimizer_initialized:
                self.borrow_optimizer(shared_module)
        elif self.params_initialized:
            self._exec_group.set_params(self._arg_params, self._aux_params)

    def _keep_params(self) -> None:
        """Copy the trained values from executors that are about to be replaced."""
        if self.binded and self.params_initialized and self._params_dirty:
            self._sync_params_from_devices()

    def _shared_group(self, shared_module: BaseModule | None) -> DataParallelExecutorGroup | None:
        if shared_module is None:
            return None
        if not (isinstance(shared_module, Module) and shared_module.binded and shared_module.params_initialized):
            raise AssertionError("bind: shared_module must be a bound Module with initialized parameters")
        if len(shared_module._context) < len(self._context):
            raise AssertionError(
                f"bind: shared_module has {len(shared_module._context)} context(s), expected {len(self._context)}"
            )
        return shared_module._exec_group

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Change the shapes of data and labels."""
        self._require("reshape", "binded")
        data, labels = _parse_data_desc(self.data_names, self.label_names, data_shapes, label_shapes)
        self._exec_group.reshape(data, labels)
        self._data_shapes, self._label_shapes = data, labels

    # ---- the optimizer ----

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Set the optimizer, and the KVStore that aggregates gradients over contexts and workers.

        Gradients are divided by the batch size, summed over all workers that step together, unless `optimizer_params`
        sets `rescale_grad`.
        """
        self._require("init_optimizer", "binded", "params_initialized")
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        if self._params_dirty:
            self._sync_params_from_devices()
        if self.joins_workers:
            kvstore = self._shared_store(kvstore, optimizer)
        asked = Asked(kvstore, None, self._compression_params)
        refuse_second_exchange(asked, optimizer)
        optimizer = take_own_strategy(asked, optimizer, len(self._context))
        asked.open()
        largest = max((array.size for array in self._arg_params.values()), default=0)
        strategy = choose(asked, len(self._context), largest)
        self._alone = trains_alone(asked, strategy, optimizer)
        made = self._make_optimizer(optimizer, optimizer_params, strategy)
        training = ArrayTraining(
            self._param_names, len(self._context), made, not strategy.splits, self._row_sparse & set(self._param_names)
        )
        training.use(self._exec_group)
        strategy.bind(training)
        strategy.serve_while_lives(self)
        strategy.begin_alike(training.everything(), training.everything_named())
        strategy.follow()
        if self._strategy is not None:
            self._strategy.close()
        self._strategy, self._training, self._params_dirty = strategy, training, True
        self.optimizer_initialized = True
        if self._preload_opt_states is not None:
            self.load_optimizer_states(self._preload_opt_states)
            self._preload_opt_states = None
        emit("trainer", trainer=self)

    def _make_optimizer(self, optimizer: Any, params: Any, strategy: StepStrategy) -> opt.Optimizer:
        # In an elastic job, the batch of all workers is that of its start, even if some were lost before this call.
        workers = transaction().shares if strategy.survives and transaction().shares else strategy.workers
        scale = 1.0 / (self._exec_group.batch_size * workers)
        count = len(self._context) if strategy.splits else 1
        names: dict[Any, str] = {i * count + k: name for k in range(count) for i, name in enumerate(self._param_names)}
        if isinstance(optimizer, str):
            settings = {"rescale_grad": scale, **dict(params)}
            return opt.create(optimizer, sym=self._symbol, param_idx2name=names, **settings)
        if not isinstance(optimizer, opt.Optimizer):
            raise AssertionError(f"optimizer must be a name or an Optimizer, received {type(optimizer).__name__}")
        if optimizer.rescale_grad != scale:
            warnings.warn(
                "Optimizer created manually outside Module but rescale_grad is not normalized to "
                f"1.0/batch_size/num_workers ({optimizer.rescale_grad} vs. {scale}). Is this intended?",
                stacklevel=3,
            )
        if not optimizer.idx2name:
            optimizer.idx2name = dict(names)
        return optimizer

    def borrow_optimizer(self, shared_module: BaseModule) -> None:
        """Share the optimizer, its states and the KVStore of another module with the same parameters."""
        if not isinstance(shared_module, Module) or not shared_module.optimizer_initialized:
            raise AssertionError(
                "borrow_optimizer: the other module must be a Module with an optimizer. Call its init_optimizer first"
            )
        assert shared_module._training is not None
        unknown = sorted(set(self._param_names) - set(shared_module._training.names))
        if unknown:
            raise MXNetError(
                f"borrow_optimizer: the other module does not have the parameters {', '.join(unknown)}, so they would "
                "not be trained"
            )
        self._strategy, self._training = shared_module._strategy, shared_module._training
        self.optimizer_initialized = True

    # ---- computing ----

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs of a batch, or of a list with one batch per context. Shapes may differ between calls."""
        self._require("forward", "binded", "params_initialized")
        began = time.perf_counter() if heard("forward") else 0.0
        self._follow_shapes(data_batch)
        self._exec_group.forward(data_batch, is_train)
        if began:
            emit("forward", seconds=time.perf_counter() - began)

    def _follow_shapes(self, batch: Any) -> None:
        """Reshape if the data of a batch have new shapes."""
        if isinstance(batch, list):
            if not batch:
                raise AssertionError("forward: received an empty list of batches")
            return
        new = [tuple(array.shape) for array in batch.data]
        if new == [tuple(desc.shape) for desc in self._data_shapes] or len(new) != len(self._data_shapes):
            return
        self.reshape(*_described(batch, self._data_shapes, self._label_shapes))

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients. `out_grads` are the head gradients of outputs that are not losses."""
        self._require("backward", "binded", "params_initialized")
        began = time.perf_counter() if heard("backward") else 0.0
        if self._training is not None:
            self._training.use(self._exec_group)
            self._exec_group.on_gradient(self._training.ready if self._training.listeners else None)
        self._exec_group.backward(out_grads=out_grads)
        if began:
            emit("backward", seconds=time.perf_counter() - began)

    def update(self) -> None:
        """Update the parameters with the gradients of the last backward, aggregated over all workers."""
        self._require("update", "binded", "params_initialized", "optimizer_initialized", "for_training")
        began = time.perf_counter()
        self._params_dirty = True
        strategy, training = self._optimizing("update")
        strategy.step(1.0, ignore_stale=True)  # `rescale_grad` divides by the batch size
        emit("step", trainer=self, samples=training.batch_size, seconds=time.perf_counter() - began, alone=self._alone)

    def _await_workers(self) -> None:
        if self._strategy is not None:
            self._strategy.await_others()

    # ---- for checkpoints ----

    def whole(self) -> Module:
        """Return this Module."""
        return self

    @property
    def executors(self) -> DataParallelExecutorGroup:
        """The executors, with the arrays of all parameters."""
        self._require("executors", "binded")
        found: DataParallelExecutorGroup = self._exec_group
        return found

    @property
    def strategy(self) -> StepStrategy:
        """The strategy that combines gradients over contexts and workers."""
        return self._optimizing("strategy")[0]

    @property
    def training(self) -> ArrayTraining:
        """The optimizer and the parameters as strategies see them."""
        return self._optimizing("training")[1]

    def parameters_were_set(self) -> None:
        """Called after the arrays of the executors were written."""
        self._params_dirty = True

    # ---- private names of MXNet that programs use ----

    @property
    def _optimizer(self) -> opt.Optimizer | None:
        return None if self._training is None else self._training.optimizer

    @property
    def _updater(self) -> opt.Updater | None:
        return None if self._training is None or self._update_on_kvstore else self._training.updater()

    @property
    def _kvstore(self) -> KVStoreBase | None:
        return None if self._strategy is None else self._strategy.store

    @property
    def _update_on_kvstore(self) -> bool | None:
        return None if self._strategy is None else not self._strategy.splits

    # ---- results ----

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the last forward, merged over contexts or as one list per context."""
        self._require("get_outputs", "binded", "params_initialized")
        return self._exec_group.get_outputs(merge_multi_context=merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the data from the last backward, merged over contexts or as one list per context."""
        self._require("get_input_grads", "binded", "params_initialized", "inputs_need_grad")
        return self._exec_group.get_input_grads(merge_multi_context=merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update a metric with the last outputs and the given labels. `pre_sliced` labels are one list per context."""
        self._require("update_metric", "binded")
        self._exec_group.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Install a Monitor on all executors."""
        self._require("install_monitor", "binded")
        self._exec_group.install_monitor(mon)

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Prepare for a batch. Every context has all rows of sparse weights, so none have to be fetched."""
        self._require("prepare", "binded")
        if sparse_row_id_fn is None:
            return
        if self._kvstore is None or not self._update_on_kvstore:
            warnings.warn(
                UserWarning("Parameters are not updated in the KVStore. No need to call sparse_row_id_fn."),
                stacklevel=2,
            )
            return
        rows = sparse_row_id_fn(data_batch)
        if not isinstance(rows, dict):
            raise AssertionError(
                f"sparse_row_id_fn must return a dictionary of row ids by parameter, but returned {type(rows).__name__}"
            )


def _contexts(context: Any) -> list[Context]:
    contexts = [cpu()] if context is None else [context] if isinstance(context, Context) else list(context)
    for each in contexts:
        if not isinstance(each, Context):
            raise TypeError(f"context must be a Context or a list of them, received {each!r:.80}")
    return contexts


def _row_sparse_gradients(symbol: Any) -> set[str]:
    """Return the variables whose gradients are row-sparse in MXNet: declared as such, or sparse embedding weights."""
    found = {
        name for name, attributes in symbol.attr_dict().items() if attributes.get("__storage_type__") == _ROW_SPARSE
    }
    ops = [node for node in symbol._nodes() if node.op is not None]
    sparse = [n for n in ops if n.op.name == "_contrib_SparseEmbedding" or n.values.get("sparse_grad")]
    return found | {node.inputs[1][0].name for node in sparse if node.op.name in _EMBEDDINGS}


def _copies(names: list[str], rows: list[list[NDArray]]) -> dict[str, NDArray]:
    return {name: row[0].copyto(cpu()) for name, row in zip(names, rows, strict=True)}


def _initialize(
    desc: InitDesc, array: NDArray, given: dict[str, NDArray] | None, initializer: Any, allow_missing: bool
) -> None:
    """Write the initial value of a parameter: the given value, or else the initializer's."""
    if given is not None and desc in given:
        value = given[desc]
        if value is array:
            return
        check_array(desc, value)
        if value.shape != array.shape:
            raise MXNetError(f"parameter {desc} has shape {array.shape}, but the given value has {value.shape}")
        value.astype(array.dtype, copy=False).copyto(array)
    elif given is not None and not allow_missing:
        raise RuntimeError(f"{desc} is not presented. Pass its value, or allow_missing=True to initialize it")
    elif initializer is not None:
        initializer(desc, array)


def _described(batch: Any, data: list[DataDesc], labels: list[DataDesc] | None) -> tuple[Any, Any]:
    """Return descriptions of a batch's data and labels: its own, or the previous ones with the shapes of its arrays."""
    new_data = getattr(batch, "provide_data", None) or _like(data, batch.data)
    if getattr(batch, "provide_label", None):
        return new_data, batch.provide_label
    given = getattr(batch, "label", None)
    if given and labels:
        return new_data, _like(labels, given)
    return new_data, _without_labels(new_data, data, labels)


def _like(descs: list[DataDesc], arrays: Sequence[Any]) -> list[DataDesc]:
    return [
        DataDesc(desc.name, tuple(array.shape), desc.dtype, desc.layout)
        for desc, array in zip(descs, arrays, strict=False)
    ]


def _without_labels(new: Any, data: list[DataDesc], labels: list[DataDesc] | None) -> list[DataDesc] | None:
    """Return the labels' descriptions with the batch size of the new data."""
    if not labels:
        return labels
    axis = DataDesc.get_batch_axis(data[0].layout)
    size = new[0][1][axis]
    made = []
    for desc in labels:
        own = DataDesc.get_batch_axis(desc.layout)
        shape = desc.shape if own < 0 else (*desc.shape[:own], size, *desc.shape[own + 1 :])
        made.append(DataDesc(desc.name, shape, desc.dtype, desc.layout))
    return made
