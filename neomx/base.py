"""Errors, and what programs import from mxnet.base."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .process import Backward as Backward  # every room takes its modes from here
from .process import modes as modes

# What programs and libraries import from mxnet.base.
string_types = (str,)
integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)
mx_real_t = np.float32
long = int
basestring = str


class _NullType:
    """The type of _Null, MXNet's placeholder for an argument that was not given."""

    def __repr__(self) -> str:
        return "_Null"


_Null = _NullType()


def data_dir() -> str:
    """Where datasets and models are kept: MXNET_HOME, or .mxnet in the home directory."""
    return os.environ.get("MXNET_HOME", os.path.join(os.path.expanduser("~"), ".mxnet"))


def py_str(text: Any) -> str:
    """Bytes as a string; a string as it is."""
    return text if isinstance(text, str) else text.decode("utf-8")


def _as_list(value: Any) -> Any:
    """A list or a tuple as it is, anything else in a list."""
    return value if isinstance(value, (list, tuple)) else [value]


class MXNetError(RuntimeError):
    """What neomx raises for anything a program did wrong. A RuntimeError, as in MXNet."""


class OutOfBoundsError(MXNetError, IndexError):
    """An index beyond the data: an IndexError where MXNet raises that, and an MXNetError as all errors of ops are."""


class InvalidValueError(MXNetError, ValueError):
    """A value that cannot be used, such as a shape of another size: a ValueError as in MXNet, and an MXNetError too."""


class InvalidDTypeError(MXNetError, TypeError):
    """A dtype that does not exist or does not fit: a TypeError as in MXNet, and an MXNetError too."""


class NotImplementedForSymbol(MXNetError):
    """A Symbol was asked for what only an NDArray has: values."""


class NotSupportedForSparseNDArray(MXNetError):
    """A sparse array was asked for what only a dense one does."""


error_types: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (ValueError, TypeError, AttributeError, IndexError, NotImplementedError, NotImplementedForSymbol)
}


def register_error(func_name: Any = None, cls: type[Exception] | None = None) -> Any:
    """Add a kind of error to `error_types`: as a decorator, with or without a name, or with both name and class."""
    if isinstance(func_name, type):
        return register_error(func_name.__name__, func_name)
    if cls is None:
        return lambda kind: register_error(func_name, kind)
    error_types[func_name] = cls
    return cls


class _NoLibrary:
    """Stands for libmxnet, so that `from mxnet.base import _LIB` works: calling anything of it is an error."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            raise MXNetError(
                f"{name} is a function of libmxnet, which is not here: ops run on PyTorch's engine. Use the Python API"
            )

        return call


# For programs that call libmxnet through ctypes: they may be imported, and fail where they call it.
_LIB: Any = _NoLibrary()
mx_int, mx_uint, mx_int64 = ctypes.c_int, ctypes.c_uint, ctypes.c_int64
mx_float = ctypes.c_float
mx_float_p = ctypes.POINTER(mx_float)
NDArrayHandle = SymbolHandle = ExecutorHandle = KVStoreHandle = OpHandle = CachedOpHandle = ctypes.c_void_p
DataIterHandle = DataIterCreatorHandle = RecordIOHandle = FunctionHandle = ProfileHandle = ctypes.c_void_p


def check_call(ret: int) -> None:
    """Raise MXNetError for what a C function returned in error."""
    if ret != 0:
        raise MXNetError(f"a C function returned the error {ret}")


def c_str(string: str) -> ctypes.c_char_p:
    """A C string."""
    return ctypes.c_char_p(string.encode("utf-8"))


def c_str_array(strings: Sequence[str]) -> Any:
    """A C array of strings."""
    return (ctypes.c_char_p * len(strings))(*(string.encode("utf-8") for string in strings))


def c_array(ctype: Any, values: Sequence[Any]) -> Any:
    """A C array of values."""
    return (ctype * len(values))(*values)


def c_array_buf(ctype: Any, buf: Any) -> Any:
    """A C array in the memory of a buffer."""
    return (ctype * len(buf)).from_buffer(buf)


def c_handle_array(objs: Sequence[Any]) -> Any:
    """Raises: arrays have no handles of libmxnet."""
    raise MXNetError("c_handle_array: arrays and symbols have no handles of libmxnet here. Use the Python API")


def suggest(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' for a name that is close to a known one, else ''."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=3)
    return f" Did you mean {' or '.join(close)}?" if close else ""
