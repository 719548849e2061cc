"""The parameter server: shards of arrays in server processes, to which workers push and from which they pull.

`shard` decides when pushes become updates, `arena` keeps memory that processes of one host share, `service` answers
workers, `client` is a worker's side. Only tensors are known here; what an optimizer is, is the kvstore's business.
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
