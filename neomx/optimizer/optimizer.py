"""All optimizers, under the module name that MXNet uses."""

from ..ndarray import abs as NDabs
from .adaptive import FTML, AdaDelta, AdaGrad, Adam, Adamax, AdamW, Ftrl, Nadam, RMSProp
from .base import Optimizer, create, register
from .layerwise import LAMB, LARS, LBSGD
from .part import Part, total_norm, total_square
from .sgd import DCASGD, NAG, SGD, SGLD, Signum, Test, ccSGD
from .updater import Updater, get_updater
from .whole import cut_states, gather_states

__all__ = [
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "DCASGD",
    "FTML",
    "Ftrl",
    "LAMB",
    "LARS",
    "LBSGD",
    "NAG",
    "NDabs",
    "Nadam",
    "Optimizer",
    "Part",
    "RMSProp",
    "SGD",
    "SGLD",
    "Signum",
    "Test",
    "Updater",
    "ccSGD",
    "create",
    "cut_states",
    "gather_states",
    "get_updater",
    "register",
    "total_norm",
    "total_square",
]
