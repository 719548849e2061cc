"""Error types, and the names that programs import from mxnet.base."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .process import Backward as Backward  # all packages import the modes from here
from .process import modes as modes

# Names that programs and libraries import from mxnet.base.
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
    """Return the directory of datasets and models: MXNET_HOME, or .mxnet in the home directory."""
    return os.environ.get("MXNET_HOME", os.path.join(os.path.expanduser("~"), ".mxnet"))


def py_str(text: Any) -> str:
    """Decode bytes to a string; return a string unchanged."""
    return text if isinstance(text, str) else text.decode("utf-8")


def _as_list(value: Any) -> Any:
    """Return a list or a tuple unchanged, and any other value in a list."""
    return value if isinstance(value, (list, tuple)) else [value]


class MXNetError(RuntimeError):
    """The base class of neomx errors. It is a RuntimeError, as in MXNet."""


class OutOfBoundsError(MXNetError, IndexError):
    """An index is out of bounds. It is an IndexError, as in MXNet, and also an MXNetError."""


class InvalidValueError(MXNetError, ValueError):
    """An invalid value, such as a shape of the wrong size. It is a ValueError, as in MXNet, and also an MXNetError."""


class InvalidDTypeError(MXNetError, TypeError):
    """An unknown or unsupported dtype. It is a TypeError, as in MXNet, and also an MXNetError."""


class NotImplementedForSymbol(MXNetError):
    """An operation that requires values, which a Symbol does not have."""


class NotSupportedForSparseNDArray(MXNetError):
    """An operation that sparse arrays do not support."""


error_types: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (ValueError, TypeError, AttributeError, IndexError, NotImplementedError, NotImplementedForSymbol)
}


def register_error(func_name: Any = None, cls: type[Exception] | None = None) -> Any:
    """Register an error type in `error_types`: as a decorator, with or without a name, or with both name and class."""
    if isinstance(func_name, type):
        return register_error(func_name.__name__, func_name)
    if cls is None:
        return lambda kind: register_error(func_name, kind)
    error_types[func_name] = cls
    return cls


class _NoLibrary:
    """A placeholder for libmxnet, so that `from mxnet.base import _LIB` works. Calling its functions is an error."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            raise MXNetError(f"{name} is a function of libmxnet, which neomx does not include. Use the Python API")

        return call


# Programs that call libmxnet through ctypes can be imported. They fail when they call it.
_LIB: Any = _NoLibrary()
mx_int, mx_uint, mx_int64 = ctypes.c_int, ctypes.c_uint, ctypes.c_int64
mx_float = ctypes.c_float
mx_float_p = ctypes.POINTER(mx_float)
NDArrayHandle = SymbolHandle = ExecutorHandle = KVStoreHandle = OpHandle = CachedOpHandle = ctypes.c_void_p
DataIterHandle = DataIterCreatorHandle = RecordIOHandle = FunctionHandle = ProfileHandle = ctypes.c_void_p


def check_call(ret: int) -> None:
    """Raise MXNetError if a C function returned an error code."""
    if ret != 0:
        raise MXNetError(f"a C function returned error code {ret}")


def c_str(string: str) -> ctypes.c_char_p:
    """Return a C string."""
    return ctypes.c_char_p(string.encode("utf-8"))


def c_str_array(strings: Sequence[str]) -> Any:
    """Return a C array of strings."""
    return (ctypes.c_char_p * len(strings))(*(string.encode("utf-8") for string in strings))


def c_array(ctype: Any, values: Sequence[Any]) -> Any:
    """Return a C array of values."""
    return (ctype * len(values))(*values)


def c_array_buf(ctype: Any, buf: Any) -> Any:
    """Return a C array that uses the memory of a buffer."""
    return (ctype * len(buf)).from_buffer(buf)


def c_handle_array(objs: Sequence[Any]) -> Any:
    """Raise MXNetError, because arrays have no libmxnet handles."""
    raise MXNetError("c_handle_array: arrays and symbols have no libmxnet handles. Use the Python API")


def suggest(name: str, known: Iterable[str], most: int = 3) -> str:
    """Return ' Did you mean ...?' with at most `most` known names that are similar, or '' if there are none."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=most)
    return f" Did you mean {' or '.join(close)}?" if close else ""
