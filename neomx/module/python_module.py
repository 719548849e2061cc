"""PythonModule: a module that computes in Python, as a part of a chain of modules."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ..initializer import Uniform
from ..ndarray import NDArray
from ..ndarray import array as make_array
from .base_module import BaseModule

__all__ = ["PythonLossModule", "PythonModule"]


class PythonModule(BaseModule):
    """A module without parameters. Subclasses define `forward`, `get_outputs`, `backward` and `get_input_grads`."""

    def __init__(
        self,
        data_names: Sequence[str],
        label_names: Sequence[str] | None,
        output_names: Sequence[str],
        logger: Any = logging,
    ):
        super().__init__(logger=logger)
        self._data_names = list(data_names)
        self._label_names = None if label_names is None else list(label_names)
        self._output_names = output_names
        self._data_shapes: Any = None
        self._label_shapes: Any = None
        self._output_shapes: Any = None

    @property
    def data_names(self) -> Any:
        """The names of the data inputs."""
        return self._data_names

    @property
    def output_names(self) -> Any:
        """The names of the outputs."""
        return self._output_names

    @property
    def data_shapes(self) -> Any:
        """Names and shapes of the bound data."""
        return self._data_shapes

    @property
    def label_shapes(self) -> Any:
        """Names and shapes of the bound labels, or None if there are none."""
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        """Names and shapes of the outputs."""
        return self._output_shapes

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return two empty dictionaries, because the module has no parameters."""
        return {}, {}

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 - it keeps nothing
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Mark the module as initialized. It has no parameters."""
        self.params_initialized = True

    def update(self) -> None:
        """Do nothing, because the module has no parameters."""

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Update a metric with the outputs and the given labels, if the module was bound with labels."""
        if self._label_shapes is None:
            return
        if pre_sliced:
            raise RuntimeError("PythonModule does not support presliced labels")
        eval_metric.update(labels, self.get_outputs())

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
        """Set the shapes of data and labels. It can be called repeatedly, because there are no executors."""
        if grad_req != "write":
            raise AssertionError(f"Python module only support write gradient, received grad_req={grad_req!r}")
        _check_names("data", self._data_names, data_shapes)
        if label_shapes is not None:
            _check_names("label", self._label_names or [], label_shapes)
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._data_shapes, self._label_shapes = data_shapes, label_shapes
        self._output_shapes = self._compute_output_shapes()
        self.binded = True

    def _compute_output_shapes(self) -> Any:
        """Return (name, shape) for each output from `_data_shapes` and `_label_shapes`. Subclasses define it."""
        raise self._missing("_compute_output_shapes")

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Mark the optimizer as initialized. The module has no parameters."""
        self.optimizer_initialized = True


def _check_names(what: str, names: Sequence[str], shapes: Any) -> None:
    given = [each[0] for each in shapes]
    if given != list(names):
        raise AssertionError(f"{what}_shapes must match the names {list(names)}, received {given}")


class PythonLossModule(PythonModule):
    """A loss at the end of a chain of modules.

    Its outputs are its input scores. `grad_func(scores, labels)` returns their gradients as an NDArray or numpy array.
    """

    def __init__(
        self,
        name: str = "pyloss",
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] = ("softmax_label",),
        logger: Any = logging,
        grad_func: Callable[[NDArray, NDArray], Any] | None = None,
    ):
        super().__init__(data_names, label_names, [name + "_output"], logger=logger)
        self._name = name
        for what, names in (("data_names", data_names), ("label_names", label_names)):
            if len(names) != 1:
                raise AssertionError(f"PythonLossModule expects one name in {what}, received {list(names)}")
        if grad_func is not None and not callable(grad_func):
            raise AssertionError(f"grad_func must be callable, received {type(grad_func).__name__}")
        self._grad_func = grad_func
        self._scores: Any = None
        self._labels: Any = None
        self._scores_grad: Any = None

    def _compute_output_shapes(self) -> list[tuple[str, Any]]:
        return [(self._name + "_output", self._data_shapes[0][1])]

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Store the scores and, in training, the labels."""
        self._scores = data_batch.data[0]
        if self.for_training if is_train is None else is_train:
            self._labels = data_batch.label[0]

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the scores."""
        self._refuse_contexts(merge_multi_context)
        return [self._scores]

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradient of the scores."""
        if out_grads is not None:
            raise AssertionError("For a loss module, out_grads should be None")
        self._require("backward", "for_training")
        self._backward_impl()

    def _backward_impl(self) -> None:
        """Set `_scores_grad` from `_scores` and `_labels`. Subclasses may override it instead of passing grad_func."""
        if self._grad_func is None:
            raise NotImplementedError(
                "this PythonLossModule has no gradient. Pass grad_func=..., or define _backward_impl"
            )
        grad = self._grad_func(self._scores, self._labels)
        self._scores_grad = grad if isinstance(grad, NDArray) else make_array(grad)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradient of the scores."""
        self._refuse_contexts(merge_multi_context)
        return [self._scores_grad]

    @staticmethod
    def _refuse_contexts(merge_multi_context: bool) -> None:
        if merge_multi_context is not True:
            raise AssertionError("PythonLossModule runs on one context, so merge_multi_context must be True")
