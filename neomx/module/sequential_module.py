"""SequentialModule: a chain of modules, each of which receives the outputs of the previous one."""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np

from ..initializer import Uniform
from ..io import DataDesc
from ..ndarray import NDArray
from .base_module import BaseModule

__all__ = ["SequentialModule"]


class SequentialModule(BaseModule):
    """A chain of modules, built with `add`. Forward runs through all modules, backward in reverse order."""

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Any = logging):
        super().__init__(logger=logger)
        self._modules: list[Any] = []
        self._metas: list[dict[str, Any]] = []
        self._data_shapes: Any = None
        self._label_shapes: Any = None

    def add(self, module: BaseModule, **kwargs: Any) -> SequentialModule:
        """Append a module, and return the chain.

        With `take_labels=True`, the module receives the labels of each batch. With `auto_wiring=True`, its data are the
        outputs of the previous module, whatever their names.
        """
        known = (self.META_TAKE_LABELS, self.META_AUTO_WIRING)
        for key in kwargs:
            if key not in known:
                raise AssertionError(f'Unknown meta "{key}", a typo? Known keys are {" and ".join(known)}')
        self._modules.append(module)
        self._metas.append(kwargs)
        self.binded = self.params_initialized = self.optimizer_initialized = False
        return self

    def _takes_labels(self, at: int) -> bool:
        return bool(self._metas[at].get(self.META_TAKE_LABELS))

    # ---- inspection ----

    @property
    def data_names(self) -> list[str]:
        """The names of the first module's data inputs."""
        return self._modules[0].data_names if self._modules else []

    @property
    def output_names(self) -> list[str]:
        """The names of the last module's outputs."""
        return self._modules[-1].output_names if self._modules else []

    @property
    def data_shapes(self) -> Any:
        """Names and shapes of the bound data."""
        self._require("data_shapes", "binded")
        return self._modules[0].data_shapes

    @property
    def label_shapes(self) -> Any:
        """Names and shapes of the bound labels, or None if no module takes labels."""
        self._require("label_shapes", "binded")
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        """Names and shapes of the last module's outputs."""
        self._require("output_shapes", "binded")
        return self._modules[-1].output_shapes

    # ---- parameters ----

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return the parameters and the auxiliary states of all modules."""
        self._require("get_params", "binded", "params_initialized")
        arguments: dict[str, NDArray] = {}
        states: dict[str, NDArray] = {}
        for module in self._modules:
            arg, aux = module.get_params()
            arguments.update(arg)
            states.update(aux)
        return arguments, states

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 - it keeps nothing
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Initialize the parameters of all modules."""
        if self.params_initialized and not force_init:
            return
        if not self.binded:
            raise AssertionError("call bind before initializing the parameters")
        for module in self._modules:
            module.init_params(
                initializer=initializer,
                arg_params=arg_params,
                aux_params=aux_params,
                allow_missing=allow_missing,
                force_init=force_init,
                allow_extra=allow_extra,
            )
        for kind in (0, 1):
            self._refuse_equal_names([module.get_params()[kind] for module in self._modules])
        self.params_initialized = True

    def _refuse_equal_names(self, names_of_modules: list[dict[str, NDArray]]) -> None:
        first: dict[str, int] = {}
        for at, names in enumerate(names_of_modules):
            for name in names:
                if name in first:
                    raise AssertionError(
                        f'Duplicated parameter names: name "{name}" in layer {at} ({type(self._modules[at])}) is '
                        f"already used in layer {first[name]} ({type(self._modules[first[name]])})."
                    )
                first[name] = at

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
        """Bind the first module to `data_shapes` and every other module to the outputs of the previous one."""
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise AssertionError("inputs_need_grad=True requires for_training=True")
        if shared_module is not None:
            raise AssertionError("Shared module is not supported")
        if not self._modules:
            raise AssertionError("Attempting to bind an empty SequentialModule")
        takes_labels = False
        shapes = data_shapes
        for at, module in enumerate(self._modules):
            takes_labels |= self._takes_labels(at)
            if self._metas[at].get(self.META_AUTO_WIRING):
                shapes = _renamed(module.data_names, shapes)
            module.bind(
                data_shapes=shapes,
                label_shapes=label_shapes if self._takes_labels(at) else None,
                for_training=for_training,
                inputs_need_grad=for_training and (inputs_need_grad or at > 0),
                force_rebind=force_rebind,
                shared_module=None,
                grad_req=grad_req,
            )
            shapes = module.output_shapes
        self._data_shapes, self._label_shapes = data_shapes, label_shapes if takes_labels else None
        self.for_training, self.inputs_need_grad, self.binded = for_training, inputs_need_grad, True

    def _await_workers(self) -> None:
        for module in self._modules:
            module._await_workers()

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Set the optimizer of every module."""
        self._require("init_optimizer", "binded", "params_initialized")
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        if self.joins_workers:
            kvstore = self._shared_store(kvstore, optimizer)
        for module in self._modules:
            module.init_optimizer(
                kvstore=kvstore, optimizer=optimizer, optimizer_params=optimizer_params, force_init=force_init
            )
        self.optimizer_initialized = True

    def install_monitor(self, mon: Any) -> None:
        """Install a Monitor on all modules."""
        self._require("install_monitor", "binded")
        for module in self._modules:
            module.install_monitor(mon)

    # ---- computing ----

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs of every module from those of the previous one."""
        self._require("forward", "binded", "params_initialized")
        batch = copy.copy(data_batch)  # do not modify the caller's batch
        for at, module in enumerate(self._modules):
            module.forward(batch, is_train=is_train)
            if at + 1 < len(self._modules):
                batch.data = module.get_outputs()
                if getattr(batch, "provide_data", None) is not None:
                    names = [each[0] for each in module.output_shapes]
                    batch.provide_data = [
                        DataDesc(name, array.shape) for name, array in zip(names, batch.data, strict=True)
                    ]

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients of every module from those of its outputs."""
        self._require("backward", "binded", "params_initialized")
        for at, module in reversed(list(enumerate(self._modules))):
            module.backward(out_grads=out_grads)
            if at > 0:
                out_grads = module.get_input_grads()

    def update(self) -> None:
        """Update the parameters of every module with its gradients."""
        self._require("update", "binded", "params_initialized", "optimizer_initialized")
        for module in self._modules:
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the last module's outputs."""
        self._require("get_outputs", "binded", "params_initialized")
        return self._modules[-1].get_outputs(merge_multi_context=merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the first module's data."""
        self._require("get_input_grads", "binded", "params_initialized", "inputs_need_grad")
        return self._modules[0].get_input_grads(merge_multi_context=merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update a metric with the outputs of every module that takes labels."""
        self._require("update_metric", "binded", "params_initialized")
        for at, module in enumerate(self._modules):
            if self._takes_labels(at):
                module.update_metric(eval_metric, labels, pre_sliced)


def _renamed(names: list[str], shapes: Any) -> list[Any]:
    """Return descriptions of outputs, renamed to the data inputs that they become."""
    if len(names) != len(shapes):
        raise AssertionError(f"auto_wiring: a module expects {len(names)} inputs, {names}, received {len(shapes)}")
    types = [each.dtype if isinstance(each, DataDesc) else np.float32 for each in shapes]
    return [DataDesc(name, each[1], dtype) for name, each, dtype in zip(names, shapes, types, strict=True)]
