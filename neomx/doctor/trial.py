"""The program that `neomx doctor` runs in a separate process to test torch. It prints one line of JSON per result.

A kernel with instructions that this machine lacks kills the process, and a broken driver may hang it. The lines printed
before that show how far it got.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any


def say(**fields: Any) -> None:
    """Print a result immediately."""
    print(json.dumps(fields), flush=True)


def main() -> None:
    """Import torch, describe its configuration, and run kernels of each kind."""
    say(trying="import torch")
    began = time.monotonic()
    import torch

    from ..context import accelerator, num_gpus

    say(
        version=torch.__version__,
        seconds=round(time.monotonic() - began, 3),
        capability=torch.backends.cpu.get_cpu_capability(),
        onednn=torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        threads=torch.get_num_threads(),
    )
    for name, kernel in _kernels("cpu").items():
        _run(name, kernel)
    count = num_gpus()
    say(trying="accelerator")
    say(accelerator=accelerator() if count else None, devices=count)
    for number in range(count):
        say(device=number, trying=f"{accelerator()}:{number}", **_describe(number))
        for name, kernel in _kernels(f"{accelerator()}:{number}").items():
            _run(f"{name} on {accelerator()}:{number}", kernel)


def _kernels(device: str) -> dict[str, Callable[[], float]]:
    """Return kernels by name; each returns the error of its result, relative to the largest value."""
    import torch

    def inputs(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(shape, generator=generator) for shape in shapes]

    def distance(compute: Callable[..., torch.Tensor], dtype: torch.dtype, *shapes: tuple[int, ...]) -> float:
        given = [x.to(dtype) for x in inputs(*shapes)]
        expected = compute(*(x.double() for x in given))
        found = compute(*(x.to(device) for x in given)).cpu().double()
        return float((found - expected).abs().max() / expected.abs().max())

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y

    def convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(x, weight, padding=1)

    kernels: dict[str, Callable[[], float]] = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        # Large enough for oneDNN's kernels with matrix instructions; small products use other kernels.
        kernels[f"{name} matrix product"] = partial(distance, product, dtype, (256, 512), (512, 256))
        kernels[f"{name} convolution"] = partial(distance, convolution, dtype, (4, 16, 32, 32), (32, 16, 3, 3))
    return kernels


def _run(name: str, kernel: Callable[[], float]) -> None:
    say(trying=name)
    try:
        say(kernel=name, distance=kernel(), error="")
    except Exception as error:
        say(kernel=name, distance=None, error=f"{type(error).__name__}: {str(error):.300}")


def _describe(number: int) -> dict[str, Any]:
    """Return the name and the memory of an accelerator, as far as its backend reports them."""
    import torch

    from ..context import accelerator

    found: dict[str, Any] = {"name": accelerator(), "free": None, "total": None}
    try:
        found["free"], found["total"] = torch.accelerator.get_memory_info(number)
        found["name"] = torch.get_device_module(accelerator()).get_device_properties(number).name
    except Exception as error:
        found["unknown"] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    main()
