"""Environment variables that affect neomx. Values of secrets are never shown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping

from ..base import MXNetError
from ..comm import secret, wire, world
from ..onednn import VARIABLE as ONEDNN
from ..process import state
from .finding import Finding

_JOB = "set by the launcher for the processes of a job"
# Every variable that neomx reads, and its meaning. Launchers' own (SLURM_*, OMPI_*, PMI_*) are read but not listed.
MEANING = {
    "NEOMX_SECRET": "the job's secret",
    "NEOMX_INSECURE": "1 allows jobs on several hosts without a secret",
    "NEOMX_SILENCE": "seconds without a heartbeat after which a process counts as lost",
    "NEOMX_TIMEOUT": "timeout for waiting on other processes, in seconds",
    "NEOMX_TLS": "the file with the job's certificate and key",
    "NEOMX_HOST": "the address that this machine listens on",
    "NEOMX_SSH": "the ssh command of neomx run --hosts",
    "NEOMX_MAX_PIXELS": "maximum number of pixels of an image to decode",
    "NEOMX_LAYOUT": "the layout that Layout.from_env() returns",
    "NEOMX_PROGRESS": "1 shows a progress bar, 0 hides it",
    "NEOMX_TENSORBOARD": "the directory for TensorBoard",
    "NEOMX_CHECKPOINT": "the directory in which programs save checkpoints by themselves",
    "NEOMX_CHECKPOINT_EVERY": "steps between two checkpoints",
    "NEOMX_CHECKPOINT_KEEP": "number of checkpoints that are kept",
    "NEOMX_RESUME": "the directory from which programs resume, or auto",
    "NEOMX_PEER_COPIES": "1 makes workers keep copies of checkpoints of each other in memory",
    **dict.fromkeys(
        ("NEOMX_STORE", "NEOMX_JOB", "NEOMX_ROLE", "NEOMX_NODE", "NEOMX_NODES", "NEOMX_SERVERS", "NEOMX_SERVER_ID")
        + ("NEOMX_ELASTIC", "NEOMX_ELASTIC_MIN", "NEOMX_ELASTIC_MAX", "NEOMX_SCALE_BATCH", "NEOMX_JOINS")
        + ("NEOMX_SERVER_REPLICAS",),
        _JOB,
    ),
    **dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"), _JOB),
    **dict.fromkeys(("GROUP_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID"), "set by torchrun"),
    **dict.fromkeys(
        ("DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_WORKER_ID")
        + ("DMLC_NODE_HOST",),
        "set by MXNet's launch.py",
    ),
    "MXNET_ELIMINATE_COMMON_EXPR": "0 disables merging of equal nodes in executors and hybridized Blocks",
    "MXNET_HOME": "the directory for downloaded models and datasets",
    "MXNET_GLUON_REPO": "where models and datasets are downloaded from",
    "MXNET_KVSTORE_BIGARRAY_BOUND": "elements above which an array is split over servers",
    "MXNET_OPTIMIZER_AGGREGATION_SIZE": "number of parameters that an optimizer updates in one call",
    "MXNET_PROFILER_AUTOSTART": "1 starts the profiler with the program",
    "MXNET_UPDATE_ON_KVSTORE": "whether a Trainer's key-value store updates the parameters",
    "OMP_NUM_THREADS": "threads of torch in one process; neomx run sets it to 1 for its workers unless it is set",
    "MKL_NUM_THREADS": "threads of MKL in one process",
    ONEDNN: "the newest CPU instructions that torch's oneDNN kernels use",
    "GLOO_SOCKET_IFNAME": "the network interface of gloo",
    "NCCL_SOCKET_IFNAME": "the network interface of NCCL",
    "CUDA_VISIBLE_DEVICES": "the GPUs that torch sees",
}
_PREFIXES = ("NEOMX_", "DMLC_", "MXNET_")
_SINK = "NEOMX_SINK_"
_SECRET = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|API_?KEY|PRIVATE")
_IN_URL = re.compile(r"//[^/@\s]+@")
_LAUNCHERS = ("NEOMX_STORE", "DMLC_ROLE", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def check(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each variable that is set, then one for the rank in a job that they define."""
    known = [name for name in MEANING if environ.get(name)]
    if state.onednn_limited:
        known = [name for name in known if name != ONEDNN]  # set by neomx itself; another finding reports it
    others = [name for name in environ if name.startswith(_PREFIXES) and name not in MEANING]
    if not known and not others:
        yield Finding("environment.variables", "ok", "no variables that affect neomx are set")
    for name in known:
        yield _known(name, environ[name], environ)
    for name in sorted(others):
        yield _other(name)
    if any(environ.get(name) for name in _LAUNCHERS):
        yield _place(environ)


def shown(name: str, value: str) -> str:
    """Return a value for the report, without secrets and passwords in addresses."""
    if _SECRET.search(name):
        return f"<{len(value.encode())} bytes, not shown>"
    return repr(_IN_URL.sub("//***@", value))[1:-1][:200]


def _known(name: str, value: str, environ: Mapping[str, str]) -> Finding:
    check, values = f"environment.{name}", {"name": name, "value": shown(name, value)}
    try:
        if name in _VALID:
            _VALID[name](environ)
    except (MXNetError, ValueError) as error:
        return Finding(check, "problem", f"{name} is invalid: {error}", f"Correct it or unset it: unset {name}", values)
    said = f"{name}={values['value']}: {MEANING[name]}"
    if name == "NEOMX_INSECURE" and value == "1":
        remedy = "Unset it and set NEOMX_SECRET: anyone who reaches the ports of a job can join, read and change it"
        return Finding(check, "warn", said, remedy, values)
    return Finding(check, "ok", said, values=values)


def _other(name: str) -> Finding:
    """Report an unknown variable with one of neomx's prefixes; its value is not shown, as it may be secret."""
    check, values = f"environment.{name}", {"name": name, "value": None}
    if name.startswith(_SINK):
        return Finding(check, "ok", f"{name} is set: it starts a sink in every process", values=values)
    if name.startswith("NEOMX_"):
        close = difflib.get_close_matches(name, MEANING, 1)
        remedy = f"Did you mean {close[0]}?" if close else f"Unset it: unset {name}"
        return Finding(check, "warn", f"{name} is set, but neomx has no such variable", remedy, values)
    said = f"{name} is set but has no effect: it is a variable of MXNet that neomx does not read"
    return Finding(check, "ok", said, values=values)


def _whole_number(name: str) -> Callable[[Mapping[str, str]], None]:
    def valid(environ: Mapping[str, str]) -> None:
        for part in environ[name].split(","):  # OpenMP accepts a number for each nesting level
            if not part.strip().isdecimal() or int(part) < 1:
                raise ValueError(f"expected an integer of at least 1, received {shown(name, environ[name])!r}")

    return valid


def _secret(environ: Mapping[str, str]) -> None:
    secret.checked(environ["NEOMX_SECRET"], "NEOMX_SECRET")


def _silence(environ: Mapping[str, str]) -> None:
    wire.silence(environ)


def _timeout(environ: Mapping[str, str]) -> None:
    world.timeout_of(environ)


def _tls(environ: Mapping[str, str]) -> None:
    try:
        wire.check_pem(environ["NEOMX_TLS"])
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from error


_VALID: dict[str, Callable[[Mapping[str, str]], None]] = {
    "NEOMX_SECRET": _secret,
    "NEOMX_SILENCE": _silence,
    "NEOMX_TIMEOUT": _timeout,
    "NEOMX_TLS": _tls,
    **{name: _whole_number(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NEOMX_MAX_PIXELS")},
}


def _place(environ: Mapping[str, str]) -> Finding:
    """Report the rank and size of a process started with these variables."""
    try:
        found = world.discover(environ)
    except MXNetError as error:
        remedy = "Unset variables left over from a launcher, or start the program with neomx run"
        return Finding("environment.job", "problem", f"the variables of a job are invalid: {error}", remedy)
    values = {"role": found.role, "rank": found.rank, "size": found.size, "servers": found.servers}
    said = f"a program started here is {found.name} of {found.size} workers"
    if found.is_alone:
        return Finding("environment.job", "ok", f"{said}: it runs alone", values=values)
    remedy = "If no job runs here, unset these variables: a program would wait for the other workers"
    return Finding("environment.job", "warn", f"{said} and {found.servers} servers", remedy, values)
