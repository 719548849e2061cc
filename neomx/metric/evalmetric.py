"""EvalMetric, the base of all metrics; the registry; composite and custom metrics."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy
import torch

from .. import registry
from ..base import _as_list
from ..ndarray import NDArray

Tensor = torch.Tensor
Names = Sequence[str] | None


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Return labels and predictions, which must agree in number (with `shape`: in shape). `wrap` makes them lists."""
    received = (tuple(labels.shape), tuple(preds.shape)) if shape else (len(labels), len(preds))
    if received[0] != received[1]:
        what = "shape" if shape else "number"
        raise ValueError(f"the {what} of labels, {received[0]}, differs from that of predictions, {received[1]}")
    return (_as_list(labels), _as_list(preds)) if wrap else (labels, preds)


def tensor_of(array: Any) -> Tensor:
    """Return the values of an NDArray or a numpy array as a tensor."""
    if isinstance(array, NDArray):
        return array.to_torch().detach()
    if isinstance(array, numpy.ndarray):
        return torch.tensor(array)
    raise TypeError(f"metrics expect NDArrays, received {type(array).__name__}")


def pairs(labels: Any, preds: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate over pairs of label and prediction, both on the device of the prediction."""
    labels, preds = check_label_shapes(labels, preds, wrap=True)
    for label, pred in zip(labels, preds, strict=True):
        values = tensor_of(pred)
        yield tensor_of(label).to(values.device), values


class EvalMetric:
    """The base of all metrics. A subclass overrides `update`, which adds to `sum_metric` and `num_inst`.

    `output_names` and `label_names` select the arrays that `update_dict` uses.
    """

    def __init__(self, name: Any, output_names: Names = None, label_names: Names = None, **kwargs: Any):
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = kwargs.pop("has_global_stats", False)
        self._kwargs = kwargs
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """Return the class, names and arguments of this metric, from which `create` can recreate it."""
        names = {"name": self.name, "output_names": self.output_names, "label_names": self.label_names}
        return {**self._kwargs, "metric": type(self).__name__, **names}

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """Update with arrays by name: those in `label_names` and `output_names`, or all of them."""
        self.update(_chosen(label, self.label_names), _chosen(pred, self.output_names))

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch: a list of labels and a list of predictions."""
        raise NotImplementedError(f"{type(self).__name__} must override update")

    def _add(self, total: float, count: float) -> None:
        """Add to the local and the global sum."""
        self.sum_metric += total
        self.num_inst += count
        self.global_sum_metric += total
        self.global_num_inst += count

    def reset(self) -> None:
        """Clear the local and the global sum."""
        self.global_num_inst: float = 0
        self.global_sum_metric = 0.0
        self.reset_local()

    def reset_local(self) -> None:
        """Clear the local sum."""
        self.num_inst: float = 0
        self.sum_metric = 0.0

    def get(self) -> tuple[Any, Any]:
        """Return the name and the value since `reset_local`, which is NaN without data."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """Return the name and the value since `reset`. A metric without a global sum returns the result of `get`."""
        if not self._has_global_stats:
            return self.get()
        return self.name, self._value(self.global_sum_metric, self.global_num_inst)

    def _value(self, total: float, count: float) -> float:
        return total / count if count else math.nan

    def get_name_value(self) -> list[tuple[str, Any]]:
        """Return a list of (name, value) pairs."""
        return _listed(*self.get())

    def get_global_name_value(self) -> list[tuple[str, Any]]:
        """Return a list of (name, global value) pairs."""
        return _listed(*self.get_global())


def _chosen(arrays: Mapping[str, Any], names: Names) -> list[Any]:
    """Return the arrays with these names, or all arrays if `names` is None."""
    missing = [name for name in names or () if name not in arrays]
    if missing:
        raise KeyError(f"the metric needs an array {missing[0]!r}, received only {', '.join(arrays) or 'none'}")
    return list(arrays.values()) if names is None else [arrays[name] for name in names]


def _listed(names: Any, values: Any) -> list[tuple[str, Any]]:
    return list(zip(_as_list(names), _as_list(values), strict=False))


register = registry.get_register_func(EvalMetric, "metric")
alias = registry.get_alias_func(EvalMetric, "metric")
_create = registry.get_create_func(EvalMetric, "metric")


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """Return a metric from a name, a function of (label, prediction), a list of these, or a metric."""
    if isinstance(metric, type) and issubclass(metric, EvalMetric):
        raise TypeError(f"expected a metric, received the class {metric.__name__}. Use {metric.__name__}()")
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    if isinstance(metric, list):
        return CompositeEvalMetric([create(each, *args, **kwargs) for each in metric])
    return _create(metric, *args, **kwargs)


class Accumulator(Protocol):
    """The data from which a score over several batches is computed."""

    count: int

    def clear(self) -> None: ...
    def add(self, label: Tensor, pred: Tensor) -> None: ...


class Averaged(EvalMetric):
    """A score that is not a mean over values: averaged over batches (macro), or computed over all data (micro)."""

    def __init__(
        self,
        made: Callable[[], Any],
        score: Callable[[Any], float],
        average: str,
        name: str,
        output_names: Names,
        label_names: Names,
        has_global_stats: bool = True,
    ):
        if average not in ("macro", "micro"):
            raise ValueError(f"average must be 'macro' or 'micro', received {average!r}")
        self.average = average
        self._score = score
        self._local: Accumulator = made()
        self._global: Accumulator = made()
        super().__init__(name, output_names, label_names, has_global_stats=has_global_stats)

    def _collect(self, label: Tensor, pred: Tensor) -> None:
        self._local.add(label, pred)
        if self.average == "micro":
            self._global.add(label, pred)

    def _settle(self) -> None:
        """Update the sums with the collected data."""
        if self.average == "macro":
            self._add(self._score(self._local), 1)
            self._local.clear()
        else:
            self.num_inst, self.global_num_inst = self._local.count, self._global.count
            self.sum_metric = self._score(self._local) * self.num_inst
            self.global_sum_metric = self._score(self._global) * self.global_num_inst

    def reset(self) -> None:
        """Clear the local and the global data."""
        self._global.clear()
        super().reset()

    def reset_local(self) -> None:
        """Clear the local data."""
        self._local.clear()
        super().reset_local()


@alias("composite")
@register
class CompositeEvalMetric(EvalMetric):
    """Several metrics combined into one."""

    def __init__(
        self, metrics: Any = None, name: str = "composite", output_names: Names = None, label_names: Names = None
    ):
        self.metrics: list[EvalMetric] = []
        super().__init__(name, output_names, label_names, has_global_stats=True)
        self.metrics = [create(metric) for metric in _as_list(metrics or [])]  # keeps the sums of existing metrics

    def add(self, metric: Any) -> None:
        """Add a metric, or anything that `create` accepts."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """Return the metric at this index."""
        try:
            return self.metrics[index]
        except IndexError:
            raise ValueError(f"metric index {index} is out of range: there are {len(self.metrics)} metrics") from None

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """Update each metric with the arrays that it selects, out of those that the composite selects."""
        if self.label_names is not None:
            label = OrderedDict((name, array) for name, array in label.items() if name in self.label_names)
        if self.output_names is not None:
            pred = OrderedDict((name, array) for name, array in pred.items() if name in self.output_names)
        for metric in self.metrics:
            metric.update_dict(label, pred)

    def update(self, labels: Any, preds: Any) -> None:
        """Update each metric."""
        for metric in self.metrics:
            metric.update(labels, preds)

    def reset(self) -> None:
        """Reset each metric."""
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        """Reset the local sum of each metric."""
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[list[str], list[Any]]:
        """Return the names and the values of all metrics."""
        return _unzipped(pair for metric in self.metrics for pair in metric.get_name_value())

    def get_global(self) -> tuple[list[str], list[Any]]:
        """Return the names and the global values of all metrics."""
        return _unzipped(pair for metric in self.metrics for pair in metric.get_global_name_value())

    def get_config(self) -> dict[str, Any]:
        """Return the configuration, including those of all metrics."""
        return {**super().get_config(), "metrics": [metric.get_config() for metric in self.metrics]}


def _unzipped(pairs: Iterable[tuple[str, Any]]) -> tuple[list[str], list[Any]]:
    kept = list(pairs)
    return [name for name, _ in kept], [value for _, value in kept]


@register
class CustomMetric(EvalMetric):
    """The mean of a function of (label, prediction), which receives numpy arrays. It may return (sum, count)."""

    def __init__(
        self,
        feval: Callable[..., Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: Names = None,
        label_names: Names = None,
    ):
        if name is None:
            name = getattr(feval, "__name__", type(feval).__name__)
            name = f"custom({name})" if "<" in name else name
        arguments = {"feval": feval, "allow_extra_outputs": allow_extra_outputs}
        super().__init__(name, output_names, label_names, has_global_stats=True, **arguments)
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch: a list of labels and a list of predictions."""
        if not self._allow_extra_outputs:
            check_label_shapes(labels, preds)
        for label, pred in zip(_as_list(labels), _as_list(preds), strict=False):
            value = self._feval(_numpy(label), _numpy(pred))
            total, count = value if isinstance(value, tuple) else (value, 1)
            # NumPy 2 would sum float32 scalars in float32, and lose small values after many batches.
            self._add(float(total) if isinstance(total, numpy.floating) else total, count)

    def get_config(self) -> dict[str, Any]:
        """Raise an error, because a function cannot be part of a configuration."""
        raise NotImplementedError("a CustomMetric has no configuration, because it contains a function")


def _numpy(array: Any) -> numpy.ndarray:
    return array.asnumpy() if isinstance(array, NDArray) else numpy.asarray(array)


def np(numpy_feval: Callable[..., Any], name: str | None = None, allow_extra_outputs: bool = False) -> CustomMetric:
    """Return a CustomMetric of a function on numpy arrays. Can be used as a decorator."""

    def feval(label: numpy.ndarray, pred: numpy.ndarray) -> Any:
        return numpy_feval(label, pred)

    feval.__name__ = getattr(numpy_feval, "__name__", type(numpy_feval).__name__)
    return CustomMetric(feval, name, allow_extra_outputs)
