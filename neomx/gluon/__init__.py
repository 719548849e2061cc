"""`mx.gluon`: Blocks (models and layers), Parameters, losses, data loading and training."""

from .. import optimizer as optimizers
from . import block, contrib, data, distributed, loss, model_zoo, nn, parameter, rnn, trainer, utils
from .block import Block, HybridBlock, SymbolBlock
from .parameter import Constant, DeferredInitializationError, Parameter, tensor_types
from .parameter_dict import ParameterDict
from .trainer import Trainer

__all__ = [
    "Block",
    "Constant",
    "DeferredInitializationError",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "Trainer",
    "block",
    "contrib",
    "data",
    "distributed",
    "loss",
    "model_zoo",
    "nn",
    "optimizers",
    "parameter",
    "rnn",
    "tensor_types",
    "trainer",
    "utils",
]
