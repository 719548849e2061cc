"""Devices. A Context identifies the device of an array: cpu(0), gpu(1), ..."""

from __future__ import annotations

import threading
from typing import Any

import torch

from .base import MXNetError


class _Current(threading.local):
    def __init__(self) -> None:
        self.stack: list[Context] = []


_current = _Current()


class _ContextType(type):
    """Metaclass that provides `Context.default_ctx`, which programs can read and set."""

    @property
    def default_ctx(cls) -> Context:
        return current_context()

    @default_ctx.setter
    def default_ctx(cls, ctx: Context) -> None:
        _current.stack[-1:] = [ctx]


class Context(metaclass=_ContextType):
    """A device: `Context('gpu', 1)`. Equal arguments return the same object, so `is` compares devices.

    As a context manager, it sets the default device for arrays created in the block.
    """

    devtype2str = {1: "cpu", 2: "gpu", 3: "cpu_pinned", 5: "cpu_shared"}
    devstr2type = {name: number for number, name in devtype2str.items()}
    _made: dict[tuple[str, int], Context] = {}

    device_type: str
    device_id: int
    device: torch.device
    computing: Context  # the context of op results: itself, or the CPU for pinned and shared memory

    def __new__(cls, device_type: str | Context, device_id: int = 0) -> Context:
        """Return the context of a device, the same object for equal arguments."""
        if isinstance(device_type, Context):
            return device_type
        key = (device_type, int(device_id))
        made = cls._made.get(key)
        if made is None:
            if device_type not in cls.devstr2type:
                raise MXNetError(f"unknown device type {device_type!r}. Expected one of {', '.join(cls.devstr2type)}")
            made = super().__new__(cls)
            made.device_type, made.device_id = key
            # Programs see cpu(0) and cpu(1) as two devices; for torch, they are the same device.
            made.device = torch.device(accelerator(), key[1]) if device_type == "gpu" else torch.device("cpu")
            made.computing = cls("cpu", key[1]) if device_type in ("cpu_pinned", "cpu_shared") else made
            cls._made[key] = made
        return made

    @property
    def device_typeid(self) -> int:
        """The number of the device type in files."""
        return self.devstr2type[self.device_type]

    def check(self) -> Context:
        """Return this context, or raise MXNetError if the machine does not have the device."""
        if self.device_type == "gpu" and self.device_id >= num_gpus():
            raise MXNetError(
                f"cannot allocate on {self}: this machine has {num_gpus()} GPU(s) that torch can use. "
                "Use mx.cpu(), or install a torch build for your GPU."
            )
        return self

    def empty_cache(self) -> None:
        """Release cached device memory that is not in use."""
        if self.device_type == "gpu":
            torch.accelerator.empty_cache()

    def __enter__(self) -> Context:
        _current.stack.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _current.stack.pop()

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Context, (self.device_type, self.device_id))


def accelerator() -> str:
    """Return the torch device type that `gpu()` refers to: torch's current accelerator, such as cuda, mps or xpu."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return "cuda" if found is None else found.type


def num_gpus() -> int:
    """Return the number of GPUs that torch can use."""
    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def context_of(device: torch.device) -> Context:
    """Return the context for a torch device. The meta device maps to the CPU."""
    return cpu() if device.type in ("cpu", "meta") else gpu(device.index or 0)


def cpu(device_id: int = 0) -> Context:
    """Return a CPU context. Ids above 0 are additional logical devices in the same memory."""
    return Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """Return a GPU context. It can be created on any machine; allocating on a missing GPU is an error."""
    return Context("gpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Return the context of pinned CPU memory, from which copies to a GPU are fast."""
    return Context("cpu_pinned", device_id)


def cpu_shared(device_id: int = 0) -> Context:
    """Return the context of CPU memory that processes can share."""
    return Context("cpu_shared", device_id)


_CPU0 = cpu(0)


def current_context() -> Context:
    """Return the context of the innermost `with ctx:` block, or cpu(0)."""
    return _current.stack[-1] if _current.stack else _CPU0


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """Return (free, total) bytes of a GPU."""
    gpu(device_id).check()
    return torch.accelerator.get_memory_info(device_id)
