"""mx.rtc: runtime compilation of CUDA source, which is not supported."""

from __future__ import annotations

from collections.abc import Sequence

from .base import MXNetError


class CudaModule:
    """Raises MXNetError when created, because neomx does not compile CUDA source."""

    def __init__(self, source: str, options: Sequence[str] = (), exports: Sequence[str] = ()):
        raise MXNetError(
            "mx.rtc does not compile CUDA source. Write the kernel with Triton (triton.jit), which comes with PyTorch "
            "for CUDA, or compile it with torch.utils.cpp_extension.load_inline, and call it from an "
            "mx.operator.CustomOp on the arrays' tensors (x._data)"
        )


class CudaKernel:
    """A kernel of a CudaModule. It cannot be created."""
