"""mx.contrib.autograd: the first version of mx.autograd, in which training and recording were one mode."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import autograd
from ..ndarray import NDArray, zeros_like

mark_variables = autograd.mark_variables


def set_is_training(is_train: bool) -> bool:
    """Turn training and recording on or off; return whether training was on."""
    autograd.set_recording(is_train)
    return autograd.set_training(is_train)


class TrainingStateScope:
    """A context manager that turns training and recording on, or both off."""

    def __init__(self, enter_state: bool):
        self._scope = autograd.record() if enter_state else autograd.pause()

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._scope.__exit__(*exc)


def train_section() -> TrainingStateScope:
    """Return a `with` block in which operations are recorded and layers are in training mode."""
    return TrainingStateScope(True)


def test_section() -> TrainingStateScope:
    """Return a `with` block in which operations are not recorded and layers are in prediction mode."""
    return TrainingStateScope(False)


def backward(
    outputs: Sequence[NDArray], out_grads: Sequence[NDArray | None] | None = None, retain_graph: bool = False
) -> None:
    """Compute the gradients of `outputs` with respect to the marked variables."""
    assert isinstance(outputs, (list, tuple)), "outputs must be a list or tuple of NDArrays"
    if out_grads is not None:
        same_length = isinstance(out_grads, (list, tuple)) and len(out_grads) == len(outputs)
        assert same_length, "outputs and out_grads must have the same length"
    autograd.backward(outputs, out_grads, retain_graph)


def compute_gradient(outputs: Sequence[NDArray]) -> None:
    """Compute gradients; the old name of `backward`."""
    backward(outputs)


def grad_and_loss(
    func: Callable[..., Any], argnum: int | Sequence[int] | None = None
) -> Callable[..., tuple[list[NDArray], Any]]:
    """Return a function that computes gradients of `func` for its arguments, or those in `argnum`, and its result."""

    @functools.wraps(func)
    def wrapped(*args: Any) -> tuple[list[NDArray], Any]:
        numbers = range(len(args)) if argnum is None else [argnum] if isinstance(argnum, int) else argnum
        variables = [args[number] for number in numbers]
        assert all(isinstance(x, NDArray) for x in variables), "type of autograd input should NDArray."
        gradients = [zeros_like(x) for x in variables]
        mark_variables(variables, gradients)
        with train_section():
            outputs = func(*args)
        compute_gradient([outputs] if isinstance(outputs, NDArray) else outputs)
        return gradients, outputs

    return wrapped


def grad(func: Callable[..., Any], argnum: int | Sequence[int] | None = None) -> Callable[..., list[NDArray]]:
    """Return a function that computes the gradients of `func` for its arguments, or for those in `argnum`."""
    gradients_and_loss = grad_and_loss(func, argnum)

    @functools.wraps(func)
    def wrapped(*args: Any) -> list[NDArray]:
        return gradients_and_loss(*args)[0]

    return wrapped
