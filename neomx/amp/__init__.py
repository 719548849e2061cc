"""`mx.amp`: mixed precision. It is also available under MXNet's name, `mx.contrib.amp`."""

from . import amp, lists, loss_scaler
from .amp import *  # noqa: F403
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "amp", "lists", "loss_scaler"]
__all__ += amp.__all__
