"""The CPU: its features, which of torch's kernels work on it, threads, and limits on CPU time."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

from .. import onednn
from ..process import state
from . import cgroup
from .engine import Engine
from .finding import Finding, text_of

_X86 = "sse4_2 avx f16c fma avx2 avx512f avx512bw avx512vl avx512_vnni avx512_bf16 avx512_fp16 avx_vnni"
_AMX = "amx_tile amx_int8 amx_bf16 amx_fp16"
_ARM = "asimd asimdhp asimddp bf16 i8mm sve sve2"
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.05, "float16": 0.01}  # far above rounding, far below a wrong result


def check(engine: Engine, cpuinfo: str = "/proc/cpuinfo") -> Iterator[Finding]:
    """Yield features and kernels, then the numbers of CPUs and threads."""
    text = text_of(cpuinfo, 8192)
    yield from _features(text)
    yield from _torch(engine)
    yield from _kernels(engine)
    yield from _threads(engine)


def _fields(cpuinfo: str) -> dict[str, str]:
    """Return the entry of the first CPU."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def _features(cpuinfo: str) -> Iterator[Finding]:
    fields = _fields(cpuinfo)
    model = fields.get("model name") or platform.processor() or platform.machine()
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    features = [name for name in f"{_X86} {_AMX} {_ARM}".split() if name in flags]
    hidden = onednn.hides_tiles(cpuinfo)
    values = {"model": model, "architecture": platform.machine(), "features": features, "hides_amx_tiles": hidden}
    said = f"{model} ({platform.machine()}), features: {' '.join(features) or 'unknown'}"
    if hidden and state.onednn_limited:
        said += "; the virtual machine announces AMX but hides its tiles (CPUID leaf 0x1D), so neomx disables AMX"
        remedy = f"No action is needed for neomx. For torch programs without neomx set {_limit()} before Python starts"
        yield Finding("cpu.features", "warn", said, remedy, values)
    elif hidden:
        set_to = os.environ.get(onednn.VARIABLE)
        said += f"; AMX is announced but its tiles are hidden, and {onednn.VARIABLE}={set_to} was set by the user"
        yield Finding("cpu.features", "warn", said, f"Unset the variable, or set {_limit()}", values)
    elif flags and platform.machine() in ("x86_64", "AMD64") and "avx2" not in flags:
        remedy = (
            "Choose a machine, or a CPU model of the virtual machine, with AVX2: torch is then several times faster"
        )
        yield Finding("cpu.features", "warn", f"{said}; AVX2 is missing", remedy, values)
    else:
        yield Finding("cpu.features", "ok", said, values=values)


def _limit() -> str:
    return f"{onednn.VARIABLE}={onednn.WITHOUT_AMX}"


def _torch(engine: Engine) -> Iterator[Finding]:
    found = engine.facts("version")
    if not found:
        said = f"torch cannot be used: the process that tested it {engine.failure} during: {engine.trying}"
        remedy = f"Run this to see the error: python -c 'import torch'. Last output line: {engine.output or 'none'}"
        yield Finding("cpu.torch", "problem", said, remedy, {"version": None})
        return
    facts = {key: found[0][key] for key in ("version", "seconds", "capability", "onednn", "threads")}
    said = f"torch {facts['version']} uses {facts['capability']} kernels; it was imported in {facts['seconds']:.1f} s"
    if facts["onednn"]:
        yield Finding("cpu.torch", "ok", said, values=facts)
    else:
        remedy = "Convolutions will be slow: install an official torch wheel"
        yield Finding("cpu.torch", "warn", f"{said}; this build has no oneDNN", remedy, facts)


def _kernels(engine: Engine) -> Iterator[Finding]:
    """Yield the results of kernels on the CPU; those on devices are reported by devices.py."""
    results = [line for line in engine.facts("kernel") if " on " not in line["kernel"]]
    working = [line["kernel"] for line in results if works(line)]
    failing = {line["kernel"]: line["error"] or "wrong result" for line in results if not works(line)}
    if engine.failure and engine.facts("version") and not engine.facts("accelerator"):
        failing[engine.trying] = f"the process {engine.failure}"
    if not working and not failing:
        return  # torch cannot be imported; another finding reports it
    values = {"working": working, "failing": failing}
    if failing:
        said = "; ".join(f"{name} fails: {why}" for name, why in failing.items())
        remedy = f"If the CPU hides instructions (virtual machines do), set {_limit()} or {onednn.VARIABLE}=AVX2"
        yield Finding("cpu.kernels", "problem", said, remedy, values)
    else:
        yield Finding("cpu.kernels", "ok", f"correct results from: {', '.join(working)}", values=values)


def works(line: dict[str, object]) -> bool:
    """Return whether a kernel of the trial ran and its result was correct."""
    distance = line["distance"]
    return isinstance(distance, float) and distance <= _TOLERANCE[str(line["kernel"]).split()[0]]


def _threads(engine: Engine) -> Iterator[Finding]:
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    quota, _ = cgroup.limits()
    cpus = min(float(usable), quota or usable)
    found = engine.facts("threads")
    threads = int(found[0]["threads"]) if found else None
    values = {"total": total, "usable": usable, "quota": quota, "torch_threads": threads}
    limit = f" because of its cgroup's quota of {quota:g}" if quota and quota < usable else " because of CPU affinity"
    said = f"{total} CPUs" + (f", of which this process may use {cpus:g}{limit}" if cpus < total else "")
    said += f"; torch threads per process: {threads}" if threads else ""
    if threads and threads > max(1.0, cpus):
        remedy = f"Set OMP_NUM_THREADS={max(1, int(cpus))}: more threads than CPUs slow down every step"
        yield Finding("cpu.threads", "warn", said, remedy, values)
    else:
        yield Finding("cpu.threads", "ok", said, values=values)
