"""`mx.amp`: mixed precision. MXNet calls it `mx.contrib.amp`, where it is too."""

from . import amp, lists, loss_scaler
from .amp import *  # noqa: F403
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "amp", "lists", "loss_scaler"]
__all__ += amp.__all__
