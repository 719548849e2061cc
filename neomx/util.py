"""mx.util: NumPy semantics, environment variables, and information about GPUs."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .base import modes, py_str
from .context import Context, gpu_memory_info, num_gpus

__all__ = [
    "get_cuda_compute_capability",
    "get_gpu_count",
    "get_gpu_memory",
    "getenv",
    "is_np_array",
    "is_np_shape",
    "makedirs",
    "np_array",
    "np_shape",
    "py_str",
    "reset_np",
    "set_module",
    "set_np",
    "set_np_shape",
    "setenv",
    "use_np",
    "use_np_array",
    "use_np_shape",
]

Decorated = TypeVar("Decorated")


def is_np_shape() -> bool:
    """Whether NumPy shapes are on in this thread: () is a scalar and (0, 3) is empty, not unknown."""
    return modes.np_shape


def is_np_array() -> bool:
    """Whether Blocks, losses and datasets create mx.np arrays in this thread."""
    return modes.np_array


def set_np_shape(active: bool) -> bool:
    """Turn NumPy shapes on or off for this thread, and return the previous state."""
    if not isinstance(active, (bool, int)):
        raise TypeError(f"set_np_shape: expected True or False, received {active!r}")
    if modes.np_array and not active:
        raise ValueError(
            "NumPy shapes cannot be turned off while NumPy arrays are on. Call npx.reset_np() to turn both off"
        )
    before, modes.np_shape = modes.np_shape, bool(active)
    return before


def set_np(shape: bool = True, array: bool = True) -> None:
    """Turn NumPy shapes and arrays on or off for this thread. NumPy arrays require NumPy shapes."""
    if array and not shape:
        raise ValueError("NumPy shape semantics is required in using NumPy array semantics. Call set_np() for both")
    modes.np_array = bool(array)
    set_np_shape(shape)


def reset_np() -> None:
    """Turn NumPy semantics off."""
    set_np(shape=False, array=False)


class np_shape:
    """`with np_shape():` turns NumPy shapes on in the block; `np_shape(False)` turns them off."""

    def __init__(self, active: bool = True):
        self._active = active
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(set_np_shape(self._active))

    def __exit__(self, *exc: Any) -> None:
        set_np_shape(self._before.pop())


class np_array:
    """`with np_array():` makes Blocks, losses and datasets create mx.np arrays in the block; False turns that off."""

    def __init__(self, active: bool = True):
        self._active = active
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(modes.np_array)
        modes.np_array = bool(self._active)

    def __exit__(self, *exc: Any) -> None:
        modes.np_array = self._before.pop()


def _within(scope: Callable[[], Any], decorator: str, target: Any) -> Any:
    """Return a function that runs inside `scope()`. For a class, wrap all methods and properties that it defines."""
    if inspect.isclass(target):
        for name, member in list(vars(target).items()):
            if isinstance(member, property):
                fget, fset, fdel = (f and _within(scope, decorator, f) for f in (member.fget, member.fset, member.fdel))
                setattr(target, name, property(fget, fset, fdel, member.__doc__))
            elif isinstance(member, (staticmethod, classmethod)):
                setattr(target, name, type(member)(_within(scope, decorator, member.__func__)))
            elif inspect.isfunction(member):
                setattr(target, name, _within(scope, decorator, member))
        return target
    if not callable(target):
        raise TypeError(f"{decorator} can only decorate classes and callable objects, while received a {type(target)}")

    @functools.wraps(target)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with scope():
            return target(*args, **kwargs)

    return inside


def use_np_shape(func: Decorated) -> Decorated:
    """Decorator that turns NumPy shapes on in a function, or in all methods of a class."""
    return _within(np_shape, "use_np_shape", func)


def use_np_array(func: Decorated) -> Decorated:
    """Decorator that turns mx.np arrays on in a function, or in all methods of a class."""
    return _within(np_array, "use_np_array", func)


def use_np(func: Decorated) -> Decorated:
    """Decorator that turns NumPy shapes and arrays on in a function, or in all methods of a class."""
    return use_np_shape(use_np_array(func))


def set_module(module: str) -> Callable[[Decorated], Decorated]:
    """Decorator that sets `__module__`."""

    def decorate(target: Decorated) -> Decorated:
        target.__module__ = module
        return target

    return decorate


def getenv(name: str) -> str | None:
    """Return an environment variable, or None."""
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Set an environment variable; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def makedirs(d: str) -> None:
    """Create a directory and its parents if they do not exist."""
    os.makedirs(os.path.expanduser(d), exist_ok=True)


def get_gpu_count() -> int:
    """Return the number of GPUs that torch can use."""
    return num_gpus()


def get_gpu_memory(gpu_dev_id: int) -> tuple[int, int]:
    """Return (free, total) bytes of a GPU."""
    return gpu_memory_info(gpu_dev_id)


def get_cuda_compute_capability(ctx: Context) -> int:
    """Return a GPU's compute capability as one number: 86 for 8.6."""
    if not isinstance(ctx, Context) or ctx.device_type != "gpu":
        raise ValueError(f"Expecting a gpu context to get cuda compute capability, while received ctx {ctx}")
    major, minor = torch.cuda.get_device_capability(ctx.check().device)
    return 10 * major + minor
