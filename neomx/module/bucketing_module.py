"""BucketingModule: modules for different kinds of batches, e.g. sentence lengths, with shared parameters."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .. import ndarray as nd
from .. import symbol as sym
from ..initializer import Uniform
from ..io import DataDesc
from ..ndarray import NDArray
from .base_module import BaseModule, _check_input_names
from .module import Module

__all__ = ["BucketingModule"]


class BucketingModule(BaseModule):
    """Modules by `bucket_key` that share parameters and optimizer. Each is created for the first batch with its key.

    `sym_gen(bucket_key)` returns (symbol, data names, label names). `bind` and `init_params` apply to the module of
    `default_bucket_key`, whose symbol must have all parameters.
    """

    def __init__(
        self,
        sym_gen: Callable[[Any], Any],
        default_bucket_key: Any = None,
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: dict[str, Any] | None = None,
    ):
        super().__init__(logger=logger)
        if default_bucket_key is None:
            raise AssertionError(
                "BucketingModule requires default_bucket_key, the key of the bucket with all parameters"
            )
        self._default_bucket_key, self._sym_gen = default_bucket_key, sym_gen
        self._settings = {
            "logger": logger,
            "context": context,
            "work_load_list": work_load_list,
            "fixed_param_names": list(fixed_param_names or ()),
            "state_names": list(state_names or ()),
            "group2ctxs": group2ctxs,
            "compression_params": compression_params,
        }
        self._loaded: dict[Any, Any] = {}  # symbols from files, which replace those of sym_gen
        self._first_params: Any = None  # parameters from files, until `bind`
        symbol, data_names, label_names = self._call_sym_gen(default_bucket_key)
        for names, kind in ((data_names, "data"), (self._settings["state_names"], "state")):
            _check_input_names(symbol, list(names or ()), kind, True)
        _check_input_names(symbol, self._settings["fixed_param_names"], "fixed_param", True)
        _check_input_names(symbol, list(label_names or ()), "label", False)
        self._monitor: Any = None
        self._grad_req: Any = None
        self._reset_bind()

    def _reset_bind(self) -> None:
        self.binded = False
        self._buckets: dict[Any, Module] = {}
        self._curr_module: Any = None
        self._curr_bucket_key: Any = None

    def _call_sym_gen(self, key: Any) -> Any:
        made = self._sym_gen(key)
        if not isinstance(made, (tuple, list)) or len(made) != 3:
            raise ValueError(
                f"sym_gen({key!r}) must return (symbol, data names, label names), but returned {type(made).__name__}"
            )
        return (self._loaded.get(key, made[0]), *made[1:])

    # ---- inspection ----

    @property
    def data_names(self) -> list[str]:
        """The names of the current bucket's data inputs."""
        return self._curr_module.data_names if self.binded else self._call_sym_gen(self._default_bucket_key)[1]

    @property
    def output_names(self) -> list[str]:
        """The names of the current bucket's outputs."""
        if self.binded:
            return self._curr_module.output_names
        return self._call_sym_gen(self._default_bucket_key)[0].list_outputs()

    @property
    def data_shapes(self) -> list[DataDesc]:
        """Names and shapes of the current bucket's data."""
        return self._current("data_shapes").data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        """Names and shapes of the current bucket's labels."""
        return self._current("label_shapes").label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the current bucket's outputs."""
        return self._current("output_shapes").output_shapes

    @property
    def symbol(self) -> Any:
        """The current bucket's symbol."""
        return self._current("symbol").symbol

    def _current(self, what: str, *states: str) -> Module:
        """Return the module of the current bucket, after checking that the required calls have been made."""
        self._require(what, "binded", *states)
        return self._curr_module

    # ---- parameters ----

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return the parameters and the auxiliary states by name, as copies that the next call overwrites."""
        module = self._current("get_params", "params_initialized")
        module._params_dirty = True  # any bucket may have updated them
        return module.get_params()

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
        if self.params_initialized and not force_init:
            return
        if not self.binded:
            raise AssertionError("call bind before initializing the parameters")
        self._curr_module.init_params(
            initializer=initializer,
            arg_params=arg_params,
            aux_params=aux_params,
            allow_missing=allow_missing,
            force_init=force_init,
            allow_extra=allow_extra,
        )
        self.params_initialized = True

    def set_params(
        self,
        arg_params: dict[str, NDArray] | None,
        aux_params: dict[str, NDArray] | None,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Set the values of the parameters. With `allow_missing`, parameters that are not given keep their values."""
        if self.params_initialized and not force_init:
            warnings.warn("Parameters already initialized and force_init=False. set_params call ignored.", stacklevel=2)
            return
        self._current("set_params").set_params(
            arg_params, aux_params, allow_missing=allow_missing, force_init=force_init, allow_extra=allow_extra
        )
        self.params_initialized = True

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the current bucket's arrays of `state_names`."""
        return self._current("get_states", "params_initialized").get_states(merge_multi_context=merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set the current bucket's arrays of `state_names`."""
        self._current("set_states", "params_initialized").set_states(states, value)

    def whole(self) -> Module:
        """Return the module of the default bucket, whose arrays the others share."""
        self._require("whole", "binded")
        return self._buckets[self._default_bucket_key]

    # ---- buckets ----

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
        """Create the default bucket's module for the given shapes. Other modules are created when needed."""
        params = self._first_params
        if force_rebind:
            params = self.get_params() if self.binded and self.params_initialized else params
            self._reset_bind()
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if shared_module is not None:
            raise AssertionError("shared_module for BucketingModule is not supported")
        module = self._make(self._default_bucket_key)
        module.bind(data_shapes, label_shapes, for_training, inputs_need_grad, grad_req=grad_req)
        self.for_training, self.inputs_need_grad, self._grad_req = for_training, inputs_need_grad, grad_req
        self._buckets = {self._default_bucket_key: module}
        self._curr_module, self._curr_bucket_key, self.binded = module, self._default_bucket_key, True
        if self.params_initialized:
            module.set_params(*params)

    def _make(self, key: Any) -> Module:
        symbol, data_names, label_names = self._call_sym_gen(key)
        return Module(symbol, data_names, label_names, **self._settings)

    def switch_bucket(self, bucket_key: Any, data_shapes: Any, label_shapes: Any = None) -> None:
        """Switch to the bucket with the given key. A new bucket's module is created for the given shapes."""
        if not self.binded:
            raise AssertionError("call bind before switching bucket")
        self._add(bucket_key, data_shapes, label_shapes)
        self._enter(bucket_key)

    def _add(self, key: Any, data_shapes: Any, label_shapes: Any) -> None:
        """Create the module of a new bucket, sharing the parameters of the default bucket."""
        if key in self._buckets:
            return
        module = self._make(key)
        module.bind(
            data_shapes,
            label_shapes,
            self.for_training,
            self.inputs_need_grad,
            shared_module=self._buckets[self._default_bucket_key],
            grad_req=self._grad_req,
        )
        if self._monitor is not None:
            module.install_monitor(self._monitor)
        self._buckets[key] = module

    def _enter(self, key: Any) -> None:
        module = self._buckets[key]
        if module is not self._curr_module:
            self._curr_module._exec_group.release()  # do not keep a graph in memory for every bucket
        self._curr_module, self._curr_bucket_key = module, key

    def _bucket_of(self, batch: Any) -> Any:
        """Return the key of a batch, or the default key, after creating its module if necessary."""
        key = getattr(batch, "bucket_key", None)
        key = self._default_bucket_key if key is None else key
        if key not in self._buckets:
            data, labels = getattr(batch, "provide_data", None), getattr(batch, "provide_label", None)
            if data is None:
                _, data_names, label_names = self._call_sym_gen(key)
                data, labels = _described(data_names, batch.data), _described(label_names, batch.label)
            self._add(key, data, labels)
        return key

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Create the module for a new batch's bucket, without switching to it."""
        self._require("prepare", "binded", "params_initialized")
        self._buckets[self._bucket_of(data_batch)].prepare(data_batch, sparse_row_id_fn=sparse_row_id_fn)

    # ---- training ----

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Set the optimizer and the KVStore of all buckets."""
        self._require("init_optimizer", "binded", "params_initialized")
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        if self.joins_workers:
            kvstore = self._shared_store(kvstore, optimizer)
        self._curr_module.init_optimizer(kvstore, optimizer, optimizer_params, force_init=force_init)
        for module in self._buckets.values():
            if module is not self._curr_module:
                module.borrow_optimizer(self._curr_module)
        self.optimizer_initialized = True

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs of a batch with the module of its bucket."""
        self._require("forward", "binded", "params_initialized")
        self._enter(self._bucket_of(data_batch))
        self._curr_module.forward(data_batch, is_train=is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients. `out_grads` are the head gradients of outputs that are not losses."""
        self._current("backward", "params_initialized").backward(out_grads=out_grads)

    def update(self) -> None:
        """Update the parameters with the gradients of the last backward."""
        self._current("update", "params_initialized", "optimizer_initialized").update()

    def _await_workers(self) -> None:
        self._curr_module._await_workers()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the last forward, merged over contexts or as one list per context."""
        return self._current("get_outputs", "params_initialized").get_outputs(merge_multi_context=merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the data from the last backward, merged over contexts or as one list per context."""
        module = self._current("get_input_grads", "params_initialized", "inputs_need_grad")
        return module.get_input_grads(merge_multi_context=merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update a metric with the outputs of the last forward and the given labels."""
        self._current("update_metric", "params_initialized").update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Install a Monitor on all executors, including those of future buckets."""
        self._require("install_monitor", "binded")
        self._monitor = mon
        for module in self._buckets.values():
            module.install_monitor(mon)

    # ---- files ----

    def save_checkpoint(self, prefix: str, epoch: int, remove_amp_cast: bool = False) -> None:
        """Write the symbol of every bucket, the keys in `prefix`.buckets, and `prefix`-0003.params for epoch 3."""
        if not self._buckets:
            raise AssertionError("save_checkpoint: there are no buckets to save. Call bind first")
        keys = nd.array(list(self._buckets), dtype="int32")
        for key, module in self._buckets.items():
            module.symbol.save(f"{prefix}-{key}-symbol.json", remove_amp_cast=remove_amp_cast)
        self.save_params(f"{prefix}-{epoch:04d}.params")
        nd.save(f"{prefix}.buckets", keys)

    @staticmethod
    def load(
        prefix: str, epoch: int, sym_gen: Any = None, default_bucket_key: Any = None, **kwargs: Any
    ) -> BucketingModule:
        """Load a module written by `save_checkpoint`. The other arguments are those of BucketingModule."""
        from ..model import load_params

        _check_given("loading BucketingModule", sym_gen=sym_gen, default_bucket_key=default_bucket_key)
        keys = [_key_of(each) for each in nd.load(f"{prefix}.buckets")[0].asnumpy().tolist()]  # type: ignore[index]
        symbols = {key: sym.load(f"{prefix}-{key}-symbol.json") for key in keys}
        return BucketingModule.load_dict(symbols, sym_gen, default_bucket_key, *load_params(prefix, epoch), **kwargs)

    @staticmethod
    def load_dict(
        sym_dict: dict[Any, Any] | None = None,
        sym_gen: Any = None,
        default_bucket_key: Any = None,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """Return a module with symbols by bucket key, which replace those of `sym_gen`, and the given parameters."""
        what = "BucketingModule.load_dict"
        _check_given(what, sym_dict=sym_dict, sym_gen=sym_gen, default_bucket_key=default_bucket_key)
        _check_given(what, arg_params=arg_params, aux_params=aux_params)
        module = BucketingModule(sym_gen, default_bucket_key, **kwargs)
        module._loaded, module._first_params, module.params_initialized = (
            dict(sym_dict or {}),
            (arg_params, aux_params),
            True,
        )
        return module


def _check_given(what: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise AssertionError(f"{name} is required for {what}")


def _key_of(value: Any) -> Any:
    return tuple(map(_key_of, value)) if isinstance(value, list) else value


def _described(names: Any, arrays: Any) -> list[DataDesc]:
    return [DataDesc(name, tuple(array.shape)) for name, array in zip(names or (), arrays or (), strict=True)]
