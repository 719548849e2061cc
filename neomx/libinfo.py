"""mx.libinfo: the version of MXNet's API, and the location of MXNet's compiled library."""

from __future__ import annotations

from typing import NoReturn

from .base import MXNetError

__version__ = "1.9.1"  # the version of MXNet's API, which libraries built on MXNet check


def _no_library(what: str) -> NoReturn:
    raise MXNetError(
        f"{what}: neomx does not include libmxnet, as ops run on PyTorch's engine. Programs that call it through "
        "ctypes or link against it must use the Python API instead"
    )


def find_lib_path(prefix: str = "libmxnet") -> list[str]:
    """Raise MXNetError, because there is no libmxnet."""
    _no_library("find_lib_path")


def find_include_path() -> str:
    """Raise MXNetError, because there are no headers of libmxnet."""
    _no_library("find_include_path")


def find_conf_path(prefix: str = "tvmop") -> str:
    """Raise MXNetError, because there are no ops compiled by TVM."""
    _no_library("find_conf_path")
