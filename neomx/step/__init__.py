"""`mx.step`: how a training step combines the gradients of several devices and workers. One strategy per file.

    OneDevice     no exchange: each context updates with its own gradients
    Store         several contexts, or a user-defined key-value store
    AllReduce     workers sum gradients among themselves
    DataParallel  the same, and each worker passes its own number of samples to `step`
    Servers       workers send gradients to parameter servers

`gluon.Trainer(..., kvstore=)` and `Module.fit(kvstore=)` accept a strategy, or a name that `choose` maps to one.
"""

from __future__ import annotations

from ..comm.compress import Compressor
from ..comm.compress import register as register_compressor
from .allreduce import AllReduce
from .choose import (
    Asked,
    choose,
    refuse_beside_layout,
    refuse_second_exchange,
    store_of_workers,
    take_own_strategy,
    trains_alone,
)
from .data_parallel import DataParallel
from .one_device import OneDevice
from .servers import Servers
from .store import Store
from .strategy import OptimizerWithStrategy, StepStrategy
from .trained import Trained, Training

__all__ = [
    "AllReduce",
    "Asked",
    "Compressor",
    "DataParallel",
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
    "store_of_workers",
    "take_own_strategy",
    "trains_alone",
]
