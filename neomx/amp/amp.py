"""Mixed precision with the API of MXNet's `contrib.amp`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..context import Context, current_context
from ..dtype import NAME_OF_TORCH
from ..gluon.trainer import Trainer
from ..ndarray import NDArray
from ..ops.table import OPS, Op
from .convert import convert_bucketing_module, convert_hybrid_block, convert_model, convert_symbol
from .graph import on_node
from .lists import (
    list_conditional_fp32_ops,
    list_fp32_ops,
    list_loss_output_functions,
    list_lp16_fp32_ops,
    list_lp16_ops,
    list_lp16_use_fp32_params,
    list_widest_type_cast,
    low_precision,
)
from .loss_scaler import LossScaler
from .policy import Policy, on_arrays

__all__ = [  # MXNet has all of these in this module as well
    "LossScaler",
    "autocast",
    "convert_bucketing_module",
    "convert_hybrid_block",
    "convert_model",
    "convert_symbol",
    "init",
    "init_trainer",
    "list_conditional_fp32_ops",
    "list_fp32_ops",
    "list_loss_output_functions",
    "list_lp16_fp32_ops",
    "list_lp16_ops",
    "list_lp16_use_fp32_params",
    "list_widest_type_cast",
    "scale_loss",
    "unscale",
]


class _State:
    """The state of this process, set by `init`."""

    policy: Policy | None = None
    asked: Any = None  # the arguments of init
    scaler: LossScaler | None = None  # for losses that compute their own gradient
    scaler_is_taken = False


def init(
    target_dtype: Any = "float16",
    target_precision_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Sequence[tuple[str, str, Sequence[str]]] | None = None,
    fp32_ops: Sequence[str] | None = None,
) -> None:
    """Enable mixed precision: from now on, each op computes in a suitable precision. Call it before creating networks.

    The lists replace MXNet's: ops that compute in `target_dtype`, (op, attribute, values) that compute in float32, and
    ops that compute in float32. Weights keep their dtype and are cast at each use.
    """
    target = low_precision(target_dtype)
    asked = target, target_precision_ops, conditional_fp32_ops, fp32_ops
    if _State.policy is not None:
        if asked != _State.asked:
            logging.warning("mixed precision is already enabled with other arguments: this call of amp.init is ignored")
        return
    policy = Policy.of(target, target_precision_ops, fp32_ops, conditional_fp32_ops)
    logging.info("Using AMP: %s", NAME_OF_TORCH[target])
    _State.policy, _State.asked, _State.scaler = policy, asked, LossScaler()
    for op in policy.ops():
        op.on_arrays, op.on_node = on_arrays(policy, op), on_node(policy, op)
    for name in list_loss_output_functions(target):
        _scale_own_gradient(OPS[name])


def __getattr__(name: str) -> Any:
    """Provide MXNet's private name `_amp_initialized`, which other libraries read: whether `init` was called."""
    if name == "_amp_initialized":
        return _State.policy is not None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _scale_own_gradient(op: Op) -> None:
    """Multiply the loss's own gradient by the scale. This is not possible in a graph, because the scale changes."""
    cast, cast_node = op.on_arrays or (lambda arrays, attrs: (arrays, attrs)), op.on_node or (lambda node: node.inputs)

    def on_call(arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        arrays, attrs = cast(arrays, attrs)
        scale = _State.scaler.loss_scale  # type: ignore[union-attr]
        return arrays, {**attrs, "grad_scale": attrs.get("grad_scale", 1.0) * scale}

    def on_new_node(node: Any) -> list[Any]:
        logging.warning("%s does not support dynamic loss scaling in symbolic and hybridized execution.", op.name)
        return cast_node(node)

    op.on_arrays, op.on_node = on_call, on_new_node


def _reset() -> None:
    """Undo `init`, for tests."""
    for op in {*OPS.values(), *(_State.policy.ops() if _State.policy else ())}:
        op.on_arrays = op.on_node = None
    _State.policy = _State.asked = _State.scaler = None
    _State.scaler_is_taken = False


def init_trainer(optimizer_or_trainer: Any) -> None:
    """Add a loss scale to a Trainer. All workers skip a step if gradients overflow on any of them."""
    if _State.policy is None:
        raise AssertionError("mixed precision is not enabled. Call amp.init() first, before creating networks")
    trainer = _trainer(optimizer_or_trainer)
    trainer.keep_updates_here()
    trainer._amp_loss_scaler = LossScaler() if _State.scaler_is_taken else _State.scaler
    trainer._amp_original_scale = trainer._scale
    _State.scaler_is_taken = True


def _trainer(given: Any) -> Any:
    if not isinstance(given, Trainer):
        raise TypeError(f"amp expects a gluon.Trainer, received {type(given).__name__} {given!r:.80}")
    return given


@contextlib.contextmanager
def scale_loss(loss: Any, optimizer_or_trainer: Any) -> Iterator[Any]:
    """Scale a loss: `with amp.scale_loss(loss, trainer) as scaled: autograd.backward(scaled)`.

    The step divides the gradients by the scale. A list of losses yields a list of scaled losses.
    """
    trainer = _trainer(optimizer_or_trainer)
    scaler = trainer._amp_loss_scaler
    if scaler is None:
        raise AssertionError("this Trainer has no loss scale. Call amp.init_trainer(trainer) first")
    trainer._scale = trainer._amp_original_scale / scaler.loss_scale
    if isinstance(loss, (list, tuple)):
        yield [each * scaler.loss_scale for each in loss]
    else:
        yield loss * scaler.loss_scale


def unscale(optimizer_or_trainer: Any) -> None:
    """Divide the gradients by the scale now, to clip or inspect them. The step then does not divide them again."""
    trainer = _trainer(optimizer_or_trainer)
    scaler = trainer._amp_loss_scaler
    if scaler is None:
        return
    _multiply(trainer.trained_gradients(), 1 / scaler.loss_scale)
    trainer._scale = trainer._amp_original_scale


def _multiply(gradients: list[NDArray], factor: float) -> None:
    for gradient in gradients:
        gradient[:] = gradient * factor


def autocast(dtype: Any = "bfloat16", ctx: Context | None = None) -> torch.autocast:
    """Return torch's autocast for the device of a context, for torch modules and twins of Blocks, without `init`."""
    device = (ctx or current_context()).check().device
    return torch.autocast(device.type, dtype=low_precision(dtype))
