"""All recurrent cells, in a module with MXNet's name."""

from .basic_cell import GRUCell, LSTMCell, RNNCell
from .composite_cell import BidirectionalCell, HybridSequentialRNNCell, SequentialRNNCell
from .modifier_cell import DropoutCell, ModifierCell, ResidualCell, ZoneoutCell
from .recurrent_cell import HybridRecurrentCell, RecurrentCell

__all__ = [
    "BidirectionalCell",
    "DropoutCell",
    "GRUCell",
    "HybridRecurrentCell",
    "HybridSequentialRNNCell",
    "LSTMCell",
    "ModifierCell",
    "RNNCell",
    "RecurrentCell",
    "ResidualCell",
    "SequentialRNNCell",
    "ZoneoutCell",
]
