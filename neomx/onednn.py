"""Keep oneDNN, torch's CPU kernels, from using AMX on virtual machines that report it without its tile sizes.

Some hypervisors expose the CPU flag `amx_tile` but hide CPUID leaf 0x1D, which contains the size of the tiles. oneDNN
then generates kernels for tiles of size zero: larger bfloat16 products raise "could not create a primitive" or end the
process with an illegal instruction. After the first failure, every other oneDNN kernel of the process fails as well.

oneDNN reads its limit from the environment once, when its first kernel runs, so `import neomx` sets it before that.
This file must not import torch.
"""

import os
import sys

from .process import state

VARIABLE = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX10_1_512"  # all instruction sets of a CPU with AMX, except AMX
TILE_LEAF = 0x1D
FAILURES = ("could not create a primitive", "could not execute a primitive")  # oneDNN errors, as reported by torch


def hides_tiles(cpuinfo: str) -> bool:
    """Whether `cpuinfo`, the text of /proc/cpuinfo, describes a CPU that has AMX but does not describe its tiles."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())  # the first CPU's; all CPUs are alike
    level = fields.get("cpuid level", "")
    return level.isdigit() and int(level) < TILE_LEAF and "amx_tile" in fields.get("flags", "").split()


def limit(cpuinfo: str = "/proc/cpuinfo") -> None:
    """Limit oneDNN to instructions that work on this machine, unless the user has set a limit, and log it."""
    if sys.platform != "linux" or VARIABLE in os.environ:
        return
    try:
        with open(cpuinfo) as file:
            text = file.read(8192)  # more than the first CPU's entry; a large machine's whole file is slow to read
    except OSError:
        return
    if not hides_tiles(text):
        return
    os.environ[VARIABLE] = WITHOUT_AMX
    state.onednn_limited = True
    import logging

    message = (
        "This machine reports AMX but not the size of its tiles (CPUID leaf 0x1D), so bfloat16 kernels would fail. "
        f"Setting {VARIABLE}={WITHOUT_AMX}."
    )
    if "torch" in sys.modules:
        import faulthandler

        faulthandler.enable()  # if a kernel still executes an illegal instruction, this shows the op
        message += (
            " This comes too late if torch, imported before neomx, has already run a convolution or a matrix product: "
            "then import neomx first, or set the variable before Python starts."
        )
    logging.getLogger("neomx").warning(message)


def explained(message: str) -> str:
    """Return the error message, with a remedy if it was caused by AMX kernels that do not work on this machine."""
    if state.onednn_limited and any(failure in message for failure in FAILURES):
        return (
            f"{message}. oneDNN was used before neomx could limit it to instructions that work on this machine. Set "
            f"{VARIABLE}={WITHOUT_AMX} before Python starts, or import neomx before torch"
        )
    return message
