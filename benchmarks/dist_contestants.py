"""Commands that start each contestant: torch's DDP, MXNet with its servers, and neomx with its launcher."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

from dist_team import Process, Team, free_port

WORKER = str(pathlib.Path(__file__).resolve().parent / "dist_worker.py")
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests"))

from netns import TwoMachines  # noqa: E402

TOO_LONG = "100"  # timeout for waiting on another process, in seconds
SHARED = "5e" * 16  # the secret of processes that are started without a launcher


def ddp(machines: TwoMachines | None = None, each: int = 2) -> Team:
    """Start workers of torch's DDP: `each` on this machine, or on each of two machines."""
    port = str(free_port())
    address = machines.addresses[0] if machines else "127.0.0.1"
    size = 2 * each if machines else each
    processes: list[Process] = []
    for rank in range(size):
        command = [sys.executable, WORKER, "train", "torch"]
        place = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": port}
        processes.append((machines.command(rank // each, command) if machines else command, place))
    return Team("torch DDP", processes, size)


def mxnet(oracle: str, kvstore: str, program: str = "train", workers: int = 2, servers: int = 2) -> Team:
    """Start MXNet: a scheduler, servers and workers."""
    place = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(servers),
        "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0",
    }
    command = [oracle, WORKER, program, "mxnet", kvstore]
    roles = ["scheduler", *["server"] * servers, *["worker"] * workers]
    return Team(f"MXNet {kvstore}", [(command, {**place, "DMLC_ROLE": role}) for role in roles], workers)


def neomx(
    kvstore: str,
    program: str = "train",
    workers: int = 2,
    servers: int = 0,
    package: str = "",
    name: str = "",
    replicas: int = 1,
) -> Team:
    """Start neomx on this machine, as a user would; of this checkout, or of another one in the folder `package`."""
    how = ["-n", str(workers), *(["-s", str(servers)] if servers else [])]
    how += ["--server-replicas", str(replicas)] if replicas > 1 else []
    name = name or (f"neomx {kvstore} by servers" if servers else "neomx all-reduce")
    command = [sys.executable, "-m", "neomx", "run", *how, WORKER, program, "neomx", kvstore]
    return Team(name, [(command, {"NEOMX_TIMEOUT": TOO_LONG, **_found_in(package)})], workers)


def neomx_on(
    machines: TwoMachines, each: int = 1, how: Sequence[str] = ("train", "neomx", "dist_sync"), package: str = ""
) -> Team:
    """Start neomx with some workers on each of two machines."""
    # One port per package, because two may run at the same time.
    port = 29401 if package else 29400
    processes: list[Process] = []
    for node in (0, 1):
        meeting = f"{machines.addresses[0]}:{port}"
        where = ["--nnodes", "2", "--node-rank", str(node), "--rdzv", meeting, "-n", str(each)]
        command = [sys.executable, "-m", "neomx", "run", *where, WORKER, *how]
        place = {"NEOMX_TIMEOUT": TOO_LONG, "NEOMX_SECRET": SHARED, **_found_in(package)}
        processes.append((machines.command(node, command), place))
    return Team("before" if package else "neomx all-reduce", processes, 2 * each)


def _found_in(package: str) -> dict[str, str]:
    return {"PYTHONPATH": package} if package else {}


def bare_copy() -> Team:
    """Start two processes that communicate over a socket."""
    port = {"BENCH_PORT": str(free_port())}
    commands = [[sys.executable, WORKER, "copy", "peer"], [sys.executable, WORKER, "copy", "bare"]]
    return Team("a bare socket", [(command, port) for command in commands], 1)
