"""`mx.autodiff`: losses that define their own gradient, for Gluon, Symbol, Module and FeedForward."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

from . import name as naming
from . import ndarray as nd
from . import operator
from .base import MXNetError
from .context import Context
from .gluon.kinds import front_of, symbol_front_of
from .ndarray import NDArray
from .symbol import Symbol

__all__ = ["Loss"]

_numbers = itertools.count()


class Loss:
    """A loss with its own gradient: define `forward(pred, label)` and `backward(dpred, pred, label)`, then call it.

    A label with as many values as the prediction has arrives in the shape of the prediction.

    `loss(pred, label)` returns an array for arrays, recorded by autograd, and a Symbol for symbols. Without `label`, a
    symbol gets the variable `<name>_label`. It is a custom op (`mx.operator`) of this process, so a Symbol with it can
    be saved, but only loaded where an equal op is registered.

    >>> class Squared(mx.autodiff.Loss):
    ...     def forward(self, pred, label): return ((pred - label) ** 2).mean(axis=1)
    ...     def backward(self, dpred, pred, label): dpred[:] = 2 * (pred - label) / pred.shape[1]
    """

    __kind: str | None = None  # the name under which the op of this object is registered

    def forward(self, pred: NDArray, label: NDArray) -> NDArray:
        """Return the loss: one value per sample, one value for the batch, or one for each element of `pred`."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(pred, label)")

    def backward(self, dpred: NDArray, pred: NDArray, label: NDArray) -> Any:
        """Write the gradient of the sum of the losses into `dpred`, which has zeros and the shape of `pred`.

        The gradient may also be returned. It is then multiplied by the gradient that arrives at the loss, which is 1
        unless the program scales the loss.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define backward(dpred, pred, label). If the gradient is the derivative of the "
            "loss, derive from gluon.loss.Loss instead"
        )

    def __call__(self, pred: Any, label: Any = None, name: str | None = None) -> Any:
        """Return the loss of arrays or symbols."""
        if isinstance(pred, Symbol):
            given = {"pred": pred} if label is None else {"pred": pred, "label": label}
            called = naming.current().get(name, type(self).__name__.lower())
            return symbol_front_of(pred).Custom(**given, op_type=self._registered(), name=called)
        for what, array in (("pred", pred), ("label", label)):
            if not isinstance(array, NDArray):
                raise TypeError(f"{type(self).__name__}: {what} must be an array, received {type(array).__name__}")
        return front_of(pred).Custom(pred, label, op_type=self._registered())

    def _registered(self) -> str:
        """Return the name of the custom op that calls this object, and register it at the first call."""
        if self.__kind is None:
            self.__kind = f"{type(self).__name__}-{next(_numbers)}"
            operator.register(self.__kind)(type(self.__kind, (_LossProp,), {"loss": self, "shapes": {}}))
        return self.__kind

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_Loss__kind"}


class _LossProp(operator.CustomOpProp):
    """The custom op of a Loss. Its output has the shape that `forward` returns for zeros."""

    loss: Loss
    shapes: dict[tuple[tuple[int, ...], ...], tuple[int, ...]]  # of the loss, by the shapes of pred and label

    def list_arguments(self) -> list[str]:
        return ["pred", "label"]

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        pred, label = (tuple(shape) for shape in in_shape)
        if label:
            return self._inferred(pred, label)
        with suppress(Exception):  # a label that is not given: the number of a class, or else like the prediction
            return self._inferred(pred, pred[:1])
        return self._inferred(pred, pred)

    def _inferred(self, pred: tuple[int, ...], label: tuple[int, ...]) -> Any:
        if (pred, label) not in self.shapes:
            made = self.loss.forward(*_aligned(nd.zeros(pred), nd.zeros(label)))
            self.shapes[pred, label] = _checked(self.loss, made).shape
        return [list(pred), list(label)], [list(self.shapes[pred, label])], []

    def create_operator(self, ctx: Context, in_shapes: list[list[int]], in_dtypes: list[int]) -> operator.CustomOp:
        return _LossOp(self.loss)


class _LossOp(operator.CustomOp):
    """Calls a Loss."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def forward(self, is_train: bool, req: Any, in_data: list, out_data: list, aux: Any) -> None:
        self.assign(out_data[0], req[0], _checked(self.loss, self.loss.forward(*_aligned(*in_data))))

    def backward(self, req: Any, out_grad: list, in_data: list, out_data: list, in_grad: list, aux: Any) -> None:
        pred, label = _aligned(*in_data)
        dpred = nd.zeros(pred.shape, ctx=pred.context, dtype=pred.dtype)
        returned = self.loss.backward(dpred, pred, label)
        dpred = dpred if returned is None else returned
        if not isinstance(dpred, NDArray) or dpred.shape != pred.shape:
            shown = dpred.shape if isinstance(dpred, NDArray) else type(dpred).__name__
            raise MXNetError(
                f"{type(self.loss).__name__}.backward must write to dpred or return an array of the shape of pred, "
                f"{pred.shape}, returned {shown}"
            )
        self.assign(in_grad[0], req[0], dpred * _spread(out_grad[0], pred.shape, self.loss))


def _aligned(pred: NDArray, label: NDArray) -> tuple[NDArray, NDArray]:
    """Return the label in the shape of the prediction if it has as many values, as Gluon's losses do."""
    return pred, label.reshape(pred.shape) if label.size == pred.size else label


def _checked(loss: Loss, value: Any) -> NDArray:
    if not isinstance(value, NDArray):
        raise MXNetError(f"{type(loss).__name__}.forward must return an array, returned {type(value).__name__}")
    return value


def _spread(grad: NDArray, shape: tuple[int, ...], loss: Loss) -> NDArray:
    """Return the gradient of the loss for every element of the prediction."""
    if grad.size == 1:
        return grad.reshape((1,) * len(shape)).broadcast_to(shape)
    if grad.shape != shape[: grad.ndim]:
        raise MXNetError(
            f"{type(loss).__name__}.forward must return one value, or the first dimensions of pred, {shape}, returned "
            f"shape {grad.shape}"
        )
    return grad.reshape((*grad.shape, *[1] * (len(shape) - grad.ndim))).broadcast_to(shape)
