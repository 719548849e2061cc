"""Comparisons of arrays with tolerances by dtype; errors report the location of the largest difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..symbol import Symbol

_EXACT = ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64")
_RTOLS = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-5, **dict.fromkeys(_EXACT, 0)}
_ATOLS = {"float16": 1e-1, "float32": 1e-3, "float64": 1e-20, **dict.fromkeys(_EXACT, 0)}
_STEPS = {"float16": 1.0 / 2**6, "float32": 1.0 / 2**9, "float64": 1.0 / 2**14}

Tolerance = float | dict[Any, float] | None


def default_rtols() -> dict[np.dtype, float]:
    """Return the default relative tolerance of each dtype."""
    return {np.dtype(name): value for name, value in _RTOLS.items()}


def default_atols() -> dict[np.dtype, float]:
    """Return the default absolute tolerance of each dtype."""
    return {np.dtype(name): value for name, value in _ATOLS.items()}


def default_numeric_eps() -> dict[np.dtype, float]:
    """Return the default step of numeric gradients of each dtype."""
    return {np.dtype(name): value for name, value in _STEPS.items()}


def get_rtol(rtol: float | None = None, dtype: Any = np.float64) -> float:
    """Return `rtol`, or the default relative tolerance of a dtype."""
    return default_rtols()[np.dtype(dtype)] if rtol is None else rtol


def get_atol(atol: float | None = None, dtype: Any = np.float64) -> float:
    """Return `atol`, or the default absolute tolerance of a dtype."""
    return default_atols()[np.dtype(dtype)] if atol is None else atol


def get_etol(etol: float | None = None) -> float:
    """Return `etol`, the fraction of elements that may differ, or 0."""
    return 0 if etol is None else etol


def effective_dtype(dat: Any) -> np.dtype:
    """Return the dtype whose tolerances apply to an array."""
    return np.dtype(getattr(dat, "dtype", None) or np.asarray(dat).dtype)


def get_tolerance(dat: Any, tol: Tolerance, default_tol: dict[np.dtype, float]) -> float:
    """Return `tol` if it is a number, else its entry (or that of `default_tol`) for the dtype of the array."""
    if tol is not None and not isinstance(tol, dict):
        return tol
    dtype = effective_dtype(dat)
    return (tol or {}).get(dtype, default_tol.get(dtype, 0))


def get_tols(x: Any, y: Any, rtol: Tolerance, atol: Tolerance) -> tuple[float, float]:
    """Return (rtol, atol) for comparing two arrays: those of the less precise dtype."""
    relative = max(get_tolerance(array, rtol, default_rtols()) for array in (x, y))
    return relative, max(get_tolerance(array, atol, default_atols()) for array in (x, y))


def _values(array: Any) -> np.ndarray:
    return array.asnumpy() if hasattr(array, "asnumpy") else np.asarray(array)


def same(a: Any, b: Any) -> bool:
    """Return whether two arrays have the same shape and values."""
    return np.array_equal(_values(a), _values(b))


def checkShapes(a: Any, b: Any) -> None:
    """Raise AssertionError if the shapes of two arrays differ."""
    if np.shape(a) != np.shape(b):
        text = f"Items are not equal: a.shape = {np.shape(a)} and b.shape = {np.shape(b)} are not equal"
        raise AssertionError(_message(text, _values(a), _values(b)))


def almost_equal(
    a: Any, b: Any, rtol: Tolerance = None, atol: Tolerance = None, equal_nan: bool = False, use_broadcast: bool = True
) -> bool:
    """Return whether |a - b| <= atol + rtol * |b| everywhere; tolerances default to those of the dtypes."""
    rtol, atol = get_tols(a, b, rtol, atol)
    a, b = _values(a), _values(b)
    if not use_broadcast:
        checkShapes(a, b)
    return bool(np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan))


def _violations(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> np.ndarray:
    """Return the elementwise difference of two arrays as a multiple of the tolerance."""
    a, b = (each if each.dtype.kind == "f" else each.astype(np.float64) for each in (a, b))  # avoid unsigned wraparound
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(a - b) / (atol + rtol * np.abs(b) + 1e-20))


def _find_max_violation(a: Any, b: Any, rtol: Tolerance, atol: Tolerance) -> tuple[tuple[int, ...], float]:
    """Return the index of the largest difference, and its size as a multiple of the tolerance."""
    relative, absolute = get_tols(a, b, rtol, atol)
    violations = _violations(_values(a), _values(b), relative, absolute)
    place = np.unravel_index(np.argmax(violations), violations.shape)
    return tuple(int(each) for each in place), violations[place]


def locationError(a: Any, b: Any, index: tuple[int, ...], names: tuple[str, str], maxError: bool = False) -> str:
    """Return a line with the location of a difference and both values there."""
    what = "maximum " if maxError else ""
    return f"Location of {what}error: {index}, {names[0]}={a[index]:.8f}, {names[1]}={b[index]:.8f}"


def _message(text: str, actual: Any, desired: Any) -> str:
    lines = ["\n" + text]
    for name, value in (("ACTUAL", actual), ("DESIRED", desired)):
        with np.printoptions(threshold=4, suppress=True):
            shown = repr(value)
        if shown.count("\n") > 3:
            shown = "\n".join(shown.splitlines()[:3]) + "..."
        lines.append(f" {name}: {shown}")
    return "\n".join(lines)


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """Raise AssertionError if arrays are not `almost_equal`; the message locates the largest difference.

    Prints up to `mismatches[0]` of the largest differences, and counts up to `mismatches[1]`.
    """
    relative, absolute = get_tols(a, b, rtol, atol)
    a, b = _values(a), _values(b)
    if not use_broadcast:
        checkShapes(a, b)
    if a.dtype == b.dtype == np.dtype("bool"):
        np.testing.assert_array_equal(a, b)
        return
    if not np.allclose(a, b, rtol=relative, atol=absolute, equal_nan=equal_nan):
        raise AssertionError(_difference(a, b, relative, absolute, names, equal_nan, mismatches))


def _difference(
    a: np.ndarray,
    b: np.ndarray,
    rtol: float,
    atol: float,
    names: tuple[str, str],
    equal_nan: bool,
    mismatches: tuple[int, int],
) -> str:
    """Describe how two arrays differ: print the largest differences, and return a message about the largest."""
    bounds = f"exceeds tolerance rtol={rtol:e}, atol={atol:e}"
    shown_a, shown_b = np.broadcast_arrays(a, b)
    violations = _violations(shown_a, shown_b, rtol, atol)
    if a.ndim == 0 and b.ndim == 0:
        return _message(f"Items are not equal:\nError {float(violations):f} {bounds}.\n", a.item(), b.item())
    different = ~np.isclose(shown_a, shown_b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    # Largest first, NaN before all others; ties in array order.
    order = np.argsort(-np.where(np.isnan(violations), np.inf, violations), axis=None, kind="stable")
    worst = order[different.flat[order]]
    places = [tuple(map(int, np.unravel_index(at, violations.shape))) for at in worst[: max(1, *mismatches) + 1]]
    print(f"\n*** Maximum errors for vector of size {a.size}:  rtol={rtol}, atol={atol}\n")
    for number, place in enumerate(places[: mismatches[0]], 1):
        print(f"{number:3d}: Error {violations[place]:f}  {locationError(shown_a, shown_b, place, names)}")
    counted = min(len(worst), mismatches[1] + 1)
    part = f"{'at least ' if counted > mismatches[1] else ''}{100 * counted / a.size:f}%"
    where = locationError(shown_a, shown_b, places[0], names, maxError=True)
    return _message(f"Items are not equal:\nError {violations[places[0]]:f} {bounds} (mismatch {part}).\n{where}", a, b)


def assert_allclose(a: Any, b: Any, rtol: float = 1e-07, atol: float = 0, equal_nan: bool = True) -> None:
    """Call `assert_almost_equal` with the default tolerances of `numpy.testing.assert_allclose`."""
    assert_almost_equal(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Tolerance = None, atol: Tolerance = None, names: tuple[str, str] = ("a", "b")
) -> None:
    """Call `assert_almost_equal` on the elements at which neither array is NaN."""
    a, b = np.copy(_values(a)), np.copy(_values(b))
    nan = np.isnan(a) | np.isnan(b)
    a[nan] = b[nan] = 0
    assert_almost_equal(a, b, rtol, atol, names)


def assert_almost_equal_with_err(
    a: Any,
    b: Any,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    etol: float | None = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """Call `assert_almost_equal`, but accept a fraction of up to `etol` of differing elements."""
    relative, absolute = get_tols(a, b, rtol, atol)
    different = ~np.isclose(_values(a), _values(b), rtol=relative, atol=absolute, equal_nan=equal_nan)
    if np.mean(different) > get_etol(etol):
        assert_almost_equal(a, b, rtol, atol, names, equal_nan, mismatches=mismatches)


def assert_exception(f: Callable[..., Any], exception_type: type[BaseException], *args: Any, **kwargs: Any) -> None:
    """Raise AssertionError if a function does not raise this type of exception."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"expected {exception_type.__name__} from {getattr(f, '__name__', f)}, but it raised nothing")


def same_array(array1: Any, array2: Any) -> bool:
    """Return whether two arrays share memory, so that changing one changes the other."""
    first, second = array1._data, array2._data
    return first.shape == second.shape and first.data_ptr() == second.data_ptr()


def same_symbol_structure(sym1: Symbol, sym2: Symbol) -> bool:
    """Return whether two symbols have the same ops and connections, regardless of names and attributes."""
    first, second = sym1._nodes(), sym2._nodes()

    def shape_of(nodes: list[Any]) -> list[Any]:
        number = {id(node): i for i, node in enumerate(nodes)}
        return [(node.op and node.op.name, [(number[id(n)], i) for n, i in node.inputs]) for node in nodes]

    return shape_of(first) == shape_of(second)


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Tolerance = None, atol: Tolerance = None) -> None:
    """Call `assert_almost_equal` on arrays, or on arrays nested in tuples; None matches anything."""
    if t1 is None or t2 is None:
        return
    if isinstance(t1, tuple):
        for first, second in zip(t1, t2, strict=True):
            compare_ndarray_tuple(first, second, rtol, atol)
    else:
        assert_almost_equal(t1, t2, rtol, atol)
