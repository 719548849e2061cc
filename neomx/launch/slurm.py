"""The place of a node in a Slurm allocation, read from its environment."""

from __future__ import annotations

from collections.abc import Mapping

from ..comm.world import node_names
from .errors import ConfigurationError

PORTS = range(20000, 30000)  # below the usual ephemeral ports


def place(environ: Mapping[str, str]) -> tuple[int, int, str] | None:
    """Return (nodes, node, rendezvous) in an allocation of several nodes, else None. All nodes get the same address."""
    nodes = int(environ.get("SLURM_NNODES") or environ.get("SLURM_JOB_NUM_NODES") or 1)
    if "SLURM_JOB_NODELIST" not in environ or nodes == 1:
        return None
    if int(environ.get("SLURM_LOCALID", 0)) > 0:
        raise ConfigurationError(
            "Slurm started neomx run several times on this node; start it once: "
            "srun --ntasks-per-node=1 neomx run -n WORKERS ..."
        )
    names = node_names(environ["SLURM_JOB_NODELIST"])
    if len(names) < nodes:
        raise ConfigurationError(f"Slurm reports {nodes} nodes but lists {len(names)}: {environ['SLURM_JOB_NODELIST']}")
    port = PORTS[int(environ.get("SLURM_JOB_ID", 0)) % len(PORTS)]
    return nodes, int(environ.get("SLURM_NODEID", 0)), f"{names[0]}:{port}"
