"""All cells, under the module name that programs import them from."""

from .base_cell import BaseRNNCell, RNNParams
from .basic_cell import GRUCell, LSTMCell, RNNCell
from .composite_cell import BidirectionalCell, SequentialRNNCell
from .conv_cell import BaseConvRNNCell, ConvGRUCell, ConvLSTMCell, ConvRNNCell
from .dropout_cell import DropoutCell
from .fused_cell import FusedRNNCell
from .modifier_cell import ModifierCell, ResidualCell, ZoneoutCell

__all__ = [
    "BaseConvRNNCell",
    "BaseRNNCell",
    "BidirectionalCell",
    "ConvGRUCell",
    "ConvLSTMCell",
    "ConvRNNCell",
    "DropoutCell",
    "FusedRNNCell",
    "GRUCell",
    "LSTMCell",
    "ModifierCell",
    "RNNCell",
    "RNNParams",
    "ResidualCell",
    "SequentialRNNCell",
    "ZoneoutCell",
]
