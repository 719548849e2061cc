"""`mx.step`: how a training step meets other devices and workers. One strategy a file.

    OneDevice   gradients meet nobody
    Store       several contexts, or a key-value store of one's own
    AllReduce   workers that sum among themselves
    Servers     workers with parameter servers

`gluon.Trainer(..., kvstore=)` and `Module.fit(kvstore=)` take a strategy, or a name for which `choose` finds one.
"""

from __future__ import annotations

from ..comm.compress import Compressor
from ..comm.compress import register as register_compressor
from .allreduce import AllReduce
from .choose import Asked, choose, refuse_beside_layout, refuse_second_exchange, trains_alone
from .one_device import OneDevice
from .servers import Servers
from .store import Store
from .strategy import OptimizerWithStrategy, StepStrategy
from .trained import Trained, Training

__all__ = [
    "AllReduce",
    "Asked",
    "Compressor",
    "OneDevice",
    "OptimizerWithStrategy",
    "Servers",
    "StepStrategy",
    "Store",
    "Trained",
    "Training",
    "choose",
    "refuse_beside_layout",
    "refuse_second_exchange",
    "register_compressor",
    "trains_alone",
]
