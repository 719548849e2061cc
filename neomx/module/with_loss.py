"""The graph that `FeedForward(symbol, loss=...)` trains: the outputs of the symbol, and the loss as its head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import metric
from .. import symbol as sym
from ..symbol import Symbol
from ..symbol.losses import is_loss

_LOSS = "loss"


def with_loss(network: Symbol, loss: Callable[..., Any], label: str) -> Symbol:
    """Return a symbol whose outputs are the prediction, without a gradient, and the loss of each sample.

    `loss` is called with the symbols of the prediction and of the label: a gluon loss, an `mx.autodiff.Loss`, or a
    function.
    """
    if len(network.list_outputs()) != 1:
        raise ValueError(f"loss= expects a symbol with one output, received {', '.join(network.list_outputs())}")
    (head, _) = network._outputs[0]
    if head.op is not None and is_loss(head) and head.op.name != "Custom":
        raise ValueError(
            f"loss= expects a symbol without a loss, but it ends in {head.op.name} {head.name!r}. Leave out one of them"
        )
    found = loss(network, sym.var(label))
    if not isinstance(found, Symbol):
        raise TypeError(f"loss(pred, label) must return a Symbol for symbols, returned {type(found).__name__}")
    return sym.Group([sym.BlockGrad(network, name="prediction"), sym.MakeLoss(found, name=_LOSS)])


def check_shape(trained: Symbol, shapes: dict[str, Any], samples: int) -> None:
    """Raise unless the loss has a value for each sample: its sum is divided by the number of samples."""
    shape = trained.infer_shape(**shapes)[1][-1]
    if shape[0] != samples:
        raise ValueError(
            f"the loss must have one value per sample, shape ({samples}, ...), but it has shape {shape}. Take the mean "
            "over all axes but the first, as gluon's losses do"
        )


def metric_of(given: Any, trained: Symbol) -> metric.EvalMetric:
    """Return a metric of the prediction, or of the loss for None."""
    prediction, loss = trained.list_outputs()
    if given is None:
        return metric.Loss(output_names=[loss], label_names=[])
    made = given if isinstance(given, metric.EvalMetric) else metric.create(given)
    for each in (made, *getattr(made, "metrics", ())):
        if each.output_names is None:
            each.output_names = [prediction]
    return made
