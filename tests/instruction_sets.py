"""Run the numeric tests with the kernels of each instruction set that this CPU supports: `make test-isa`.

torch selects kernels by CPU in three libraries: ATen, oneDNN and MKL. Each is limited by an environment variable.
"""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# The CPU flag that each level needs, and the limits of ATen, oneDNN and MKL.
LEVELS = {
    "SSE": ("sse4_2", "default", "SSE41", "SSE4_2"),
    "AVX2": ("avx2", "avx2", "AVX2", "AVX2"),
    "AVX-512": ("avx512bw", "avx512", "AVX512_CORE", "AVX512"),
    "AVX-512 bfloat16": ("avx512_bf16", "avx512", "AVX512_CORE_BF16", "AVX512"),
    "AVX10.1": ("avx512_fp16", "avx512", "AVX10_1_512", "AVX512"),
}
# Tests that compare values with MXNet's, or with another computation, and start no processes.
NUMERIC = """
    amp autograd boxes conv executor gluon_block gluon_loss gluon_nn gluon_rnn kvstore layers math model_zoo module
    ndarray optimizer parity rnn sparse symbol symbol_cases transformer twin
"""


def flags() -> set[str]:
    """Return the flags of this CPU; empty if unknown."""
    path = pathlib.Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not path.exists():
        return set()
    found = [line for line in path.read_text().splitlines() if line.startswith("flags")]
    return set(found[0].partition(":")[2].split()) if found else set()


def levels() -> dict[str, dict[str, str]]:
    """Return the variables that select each level that this CPU supports, lowest first."""
    names = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
    here = flags()
    return {name: dict(zip(names, limits, strict=True)) for name, (flag, *limits) in LEVELS.items() if flag in here}


def run(arguments: list[str], variables: dict[str, str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run pytest with these variables set."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=HERE.parent, env={**os.environ, **variables}, text=True, **options)  # type: ignore[call-overload]


def main() -> int:
    arguments = sys.argv[1:] or ["-n", "2", *(str(next(HERE.rglob(f"test_{name}.py"))) for name in NUMERIC.split())]
    failed = []
    for name, variables in {**levels(), "as the CPU is": {}}.items():
        print(f"--- {name} {variables or ''}", flush=True)
        began = time.monotonic()
        if run(arguments, variables).returncode:
            failed.append(name)
        print(f"    {time.monotonic() - began:.0f} s", flush=True)
    print(f"failed with: {', '.join(failed)}" if failed else "all passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
