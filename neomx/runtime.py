"""mx.runtime: the features of this installation, by the names of MXNet's build options."""

from __future__ import annotations

import collections
import importlib.util
import platform
from typing import NamedTuple

import torch


class Feature(NamedTuple):
    """A build option of MXNet: its `name`, and whether the feature is available (`enabled`)."""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


def feature_list() -> list[Feature]:
    """Return all features in MXNet's order: those of PyTorch on this machine, and those of neomx."""
    cuda, built = torch.cuda.is_available(), torch.__config__.show()
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    vectors = torch.backends.cpu.get_cpu_capability() if x86 else ""
    avx2 = vectors.startswith(("AVX2", "AVX512"))
    here = {
        "CUDA": cuda,
        "CUDNN": cuda and torch.backends.cudnn.is_available(),
        "NCCL": cuda and "USE_NCCL=ON" in built,
        "CUDA_RTC": False,
        "TENSORRT": False,
        **dict.fromkeys(("CPU_SSE", "CPU_SSE2", "CPU_SSE3"), x86),
        **dict.fromkeys(("CPU_SSE4_1", "CPU_SSE4_2"), avx2),
        "CPU_SSE4A": False,
        **dict.fromkeys(("CPU_AVX", "CPU_AVX2"), avx2),
        "OPENMP": torch.backends.openmp.is_available(),
        "SSE": x86,
        "F16C": avx2,
        "JEMALLOC": False,
        "BLAS_OPEN": "BLAS_INFO=open" in built,
        "BLAS_ATLAS": False,
        "BLAS_MKL": torch.backends.mkl.is_available(),
        "BLAS_APPLE": "BLAS_INFO=accelerate" in built,
        "LAPACK": torch._C.has_lapack,
        "MKLDNN": torch.backends.mkldnn.is_available(),
        "OPENCV": importlib.util.find_spec("cv2") is not None,
        "CAFFE": False,
        "PROFILER": True,
        "DIST_KVSTORE": True,
        "CXX14": False,
        "INT64_TENSOR_SIZE": True,
        "SIGNAL_HANDLER": False,
        "DEBUG": False,
        "TVM_OP": False,
    }
    return [Feature(name, bool(enabled)) for name, enabled in here.items()]


class Features(collections.OrderedDict[str, Feature]):
    """All features by name. It is a singleton."""

    instance: Features | None = None

    def __new__(cls) -> Features:
        """Return the only instance."""
        if cls.instance is None:
            cls.instance = super().__new__(cls)
            collections.OrderedDict.__init__(cls.instance, ((feature.name, feature) for feature in feature_list()))
        return cls.instance

    def __init__(self) -> None:
        """Do nothing: `__new__` has filled the dictionary."""

    def __repr__(self) -> str:
        return str(list(self.values()))

    def is_enabled(self, feature_name: str) -> bool:
        """Whether a feature is enabled. The name is not case-sensitive."""
        name = feature_name.upper()
        if name not in self:
            raise RuntimeError(f"Feature '{name}' is unknown, known features are: {list(self)}")
        return self[name].enabled
