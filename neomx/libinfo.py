"""mx.libinfo: the version of MXNet's API, and where its compiled library would be."""

from __future__ import annotations

from typing import NoReturn

from .base import MXNetError

__version__ = "1.9.1"  # of MXNet's API, which libraries built on MXNet ask for


def _no_library(what: str) -> NoReturn:
    raise MXNetError(
        f"{what}: there is no libmxnet here, as ops run on PyTorch's engine. What calls it through ctypes, or links "
        "against it, must use the Python API instead"
    )


def find_lib_path(prefix: str = "libmxnet") -> list[str]:
    """Raises: there is no libmxnet."""
    _no_library("find_lib_path")


def find_include_path() -> str:
    """Raises: there are no headers of libmxnet."""
    _no_library("find_include_path")


def find_conf_path(prefix: str = "tvmop") -> str:
    """Raises: there are no ops compiled by TVM."""
    _no_library("find_conf_path")
