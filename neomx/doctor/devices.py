"""Accelerators: which ones torch can use, their memory, and whether a kernel runs on each."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .cpu import works
from .engine import Engine
from .finding import Finding, amount

_HARDWARE = {"/dev/nvidia0": "an NVIDIA GPU", "/dev/kfd": "an AMD GPU", "/dev/accel/accel0": "an accelerator"}


def check(engine: Engine, hardware: dict[str, str] = _HARDWARE) -> Iterator[Finding]:
    """Yield a finding about accelerators in general, then one per device."""
    found = engine.facts("accelerator")
    if not found:
        if engine.facts("version") and engine.trying == "accelerator":
            said = f"torch could not detect accelerators: the process {engine.failure}"
            remedy = "Check the device's driver, for example with nvidia-smi or rocminfo"
            yield Finding("devices.accelerator", "problem", said, remedy, {"accelerator": None, "devices": 0})
        return
    kind, count = found[0]["accelerator"], int(found[0]["devices"])
    values = {"accelerator": kind, "devices": count}
    present = [f"{name} ({path})" for path, name in hardware.items() if os.path.exists(path)]
    if count:
        said = f"torch can use {count} device{'s' if count > 1 else ''} of {kind}: mx.gpu(0) is the first"
        yield Finding("devices.accelerator", "ok", said, values=values)
    elif present:
        version = engine.facts("version")[0]["version"]
        said = f"this machine has {', '.join(present)}, but torch {version} cannot use it"
        remedy = "Install a torch build for this device, and check its driver and CUDA_VISIBLE_DEVICES"
        yield Finding("devices.accelerator", "warn", said, remedy, values)
    else:
        yield Finding("devices.accelerator", "ok", "no accelerator: programs run on the CPU", values=values)
    for device in engine.facts("device"):
        yield _device(engine, device, str(kind))


def _device(engine: Engine, device: dict[str, object], kind: str) -> Finding:
    name = f"{kind}:{device['device']}"
    kernels = [line for line in engine.facts("kernel") if line["kernel"].endswith(f" on {name}")]
    failing = {line["kernel"]: line["error"] or "wrong result" for line in kernels if not works(line)}
    if engine.failure and engine.trying.endswith(name):
        failing[engine.trying] = f"the process {engine.failure}"
    free, total = device["free"], device["total"]
    values = {key: device[key] for key in ("device", "name", "free", "total")} | {"failing": failing}
    said = f"{name} is {device['name']}"
    if isinstance(free, int) and isinstance(total, int):
        said += f" with {amount(free)} free of {amount(total)}"
    check = f"devices.{kind}.{device['device']}"
    if failing:
        said += "; " + "; ".join(f"{kernel} fails: {why}" for kernel, why in failing.items())
        return Finding(check, "problem", said, "Check that the driver is new enough for this torch build", values)
    if isinstance(free, int) and isinstance(total, int) and free < total / 10:
        remedy = "End the other programs that use the device, or choose another one"
        return Finding(check, "warn", f"{said}: it is almost full", remedy, values)
    return Finding(check, "ok", said, values=values)
