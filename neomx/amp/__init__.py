"""`mx.amp`: mixed precision. MXNet calls it `mx.contrib.amp`, where it is too."""

from . import amp, lists, loss_scaler
from .amp import autocast, init, init_trainer, scale_loss, unscale
from .convert import convert_bucketing_module, convert_hybrid_block, convert_model, convert_symbol
from .grad_scaler import GradScaler
from .lists import (
    list_conditional_fp32_ops,
    list_fp32_ops,
    list_loss_output_functions,
    list_lp16_fp32_ops,
    list_lp16_ops,
    list_lp16_use_fp32_params,
    list_widest_type_cast,
)
from .loss_scaler import LossScaler

__all__ = [
    "GradScaler",
    "LossScaler",
    "amp",
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
    "lists",
    "loss_scaler",
    "scale_loss",
    "unscale",
]
