"""`mx.gluon.nn`: neural network layers."""

from ..block import Block, HybridBlock, SymbolBlock
from . import activations, basic_layers, conv_layers
from .activations import *  # noqa: F403
from .basic_layers import *  # noqa: F403
from .conv_layers import *  # noqa: F403

__all__ = ["Block", "HybridBlock", "SymbolBlock"]
__all__ += activations.__all__ + basic_layers.__all__ + conv_layers.__all__
