"""mx.gluon.contrib.cnn: convolutions that learn where to look."""

from . import conv_layers
from .conv_layers import *  # noqa: F403

__all__ = conv_layers.__all__
