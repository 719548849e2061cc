"""mx.gluon.contrib.nn: branches side by side, pixel shuffles, layers for sparse and distributed training."""

from . import basic_layers
from .basic_layers import *  # noqa: F403

__all__ = basic_layers.__all__
