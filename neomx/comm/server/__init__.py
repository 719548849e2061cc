"""The parameter server: arrays sharded over server processes, to which workers push and from which they pull.

`shard` decides when pushes are applied, `arena` manages memory shared by the processes of one host, `service` handles
requests of workers, `client` is the worker's side. This package works on tensors; optimizers are part of the kvstore.
"""

from .allocation import KeyAllocator
from .client import Client, open_client
from .messages import KeySpec, Segment, Settings, SparseRows, host_of, service_name
from .service import Service
from .shard import Gradient, Rule, Shard

__all__ = [
    "Client",
    "KeySpec",
    "Gradient",
    "Segment",
    "KeyAllocator",
    "SparseRows",
    "Rule",
    "Service",
    "Settings",
    "Shard",
    "host_of",
    "open_client",
    "service_name",
]
