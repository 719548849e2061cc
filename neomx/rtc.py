"""mx.rtc: CUDA source compiled while a program runs, which PyTorch and Triton do in their own way."""

from __future__ import annotations

from collections.abc import Sequence

from .base import MXNetError


class CudaModule:
    """Raises when made: CUDA source is not compiled here."""

    def __init__(self, source: str, options: Sequence[str] = (), exports: Sequence[str] = ()):
        raise MXNetError(
            "mx.rtc does not compile CUDA source. Write the kernel with Triton (triton.jit), which comes with PyTorch "
            "for CUDA, or compile it with torch.utils.cpp_extension.load_inline, and call it from an "
            "mx.operator.CustomOp on the arrays' tensors (x._data)"
        )


class CudaKernel:
    """A kernel of a CudaModule: none can be made here."""
