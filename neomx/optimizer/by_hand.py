"""Gradients that a program hands to an optimizer itself: `set_aggregate(gradients, weights)`, then `update()`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..base import MXNetError
from ..ndarray import NDArray
from .base import Index, Optimizer
from .updater import Updater

Named = dict[Index, Any]


class ByHand:
    """The `update` of an optimizer that was given gradients. It applies them, or updates one weight as usual."""

    def __init__(self, optimizer: Optimizer, gradients: Any, weights: Any) -> None:
        self._optimizer = optimizer
        self._gradients = _named(gradients, "gradients", of_gradients=True)
        self._weights = _named(gradients if weights is None and _is_model(gradients) else weights, "weights")

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Apply the gradients to the weights, or to those given here, once; or do what the optimizer's class does."""
        if len(args) + len(kwargs) > 1:
            type(self._optimizer).update(self._optimizer, *args, **kwargs)
            return
        given = next(iter((*args, *kwargs.values())), None)
        weights = self._weights if given is None else _named(given, "weights")
        if weights is None:
            raise ValueError("update() does not know the weights. Pass them: update(weights), or to set_aggregate")
        assert self._gradients is not None
        if weights.keys() != self._gradients.keys():
            shown = [", ".join(map(repr, list(each)[:5])) for each in (self._gradients, weights)]
            raise ValueError(
                f"expected a weight for each gradient: the gradients are {shown[0]}, the weights {shown[1]}"
            )
        pairs = [(key, self._gradients[key], weight) for key, weight in weights.items()]
        for key, gradient, weight in pairs:
            if gradient.shape != weight.shape:
                raise ValueError(f"gradient {key!r} has shape {gradient.shape}, but its weight {weight.shape}")
        vars(self._optimizer).pop("update")  # first: the optimizer's own method applies them
        updater = self._optimizer._updater_by_hand
        if updater is None:
            updater = self._optimizer._updater_by_hand = Updater(self._optimizer)
        updater(*(list(each) for each in zip(*pairs, strict=True)))


def _is_model(given: Any) -> bool:
    """Whether Parameters are given, which have both gradients and weights. This package does not import gluon."""
    if hasattr(given, "collect_params") or hasattr(given, "list_grad"):
        return True
    values = _values(given)
    return bool(values) and all(hasattr(each, "list_grad") for each in values)


def _values(given: Any) -> list[Any]:
    if isinstance(given, NDArray) or not (hasattr(given, "values") or isinstance(given, Iterable)):
        return []
    return list(given.values() if hasattr(given, "values") else given)


def _named(given: Any, what: str, of_gradients: bool = False) -> Named | None:
    """Return arrays by name, or by position in a list: of arrays, of Parameters, or of a Block."""
    if given is None:
        return None
    if hasattr(given, "collect_params"):
        given = given.collect_params()
    if isinstance(given, NDArray) or hasattr(given, "list_grad"):
        given = [given]
    if not _values(given):
        raise TypeError(
            f"{what} must be an array, a list or dictionary of arrays or Parameters, or a Block, received "
            f"{type(given).__name__}"
        )
    items = given.items() if hasattr(given, "items") else enumerate(given)
    return {key: _array(value, what, of_gradients) for key, value in items if getattr(value, "grad_req", "") != "null"}


def _array(value: Any, what: str, of_gradients: bool) -> NDArray:
    if hasattr(value, "list_grad"):
        replicas: list[NDArray] = value.list_grad() if of_gradients else value.list_data()
        if len(replicas) > 1:
            raise MXNetError(f"Parameter {value.name!r} is on several contexts. Use gluon.Trainer, which combines them")
        return replicas[0]
    if not isinstance(value, NDArray):
        raise TypeError(f"{what} must contain arrays, received {type(value).__name__}")
    return value
