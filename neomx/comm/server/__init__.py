"""The parameter server: arrays sharded over server processes, to which workers push and from which they pull.

`shard` decides when pushes are applied to the `slot` of each segment, `arena` manages memory shared by the processes of
one host, `service` handles requests of workers, `client` is the worker's side. If several processes hold the arrays of
a server, a `replica` is what one of them holds, its `log` passes each operation on to the next, and its `keeper` agrees
with the others on which of them leads. This package works on tensors; optimizers are part of the kvstore.
"""

from .allocation import KeyAllocator
from .client import Client, open_client
from .directory import Directory
from .elastic_shard import Generation
from .messages import KeySpec, Segment, Settings, SparseRows, service_name
from .process import Process
from .replica import Replica
from .service import Service
from .shard import Rule, Shard
from .slot import Gradient

__all__ = [
    "Client",
    "Directory",
    "KeySpec",
    "Generation",
    "Gradient",
    "Segment",
    "KeyAllocator",
    "SparseRows",
    "Process",
    "Replica",
    "Rule",
    "Service",
    "Settings",
    "Shard",
    "open_client",
    "service_name",
]
