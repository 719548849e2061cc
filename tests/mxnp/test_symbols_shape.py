"""Creation, shape and search functions on symbols: inferred shapes and computed values match those of arrays."""

import numpy as onp
import pytest

import neomx as mx
from neomx import np


@pytest.fixture(autouse=True)
def np_mode():
    mx.npx.set_np()
    yield
    mx.npx.reset_np()


# Each is called with mx.np or mx.sym.np, and with arrays or symbols x (4, 6), y (4, 6), v (6,), i (2,) of int64.
CALLS = {
    "reshape": lambda m, x, y, v, i: m.reshape(x, (3, -1)),
    "ravel": lambda m, x, y, v, i: m.ravel(x),
    "transpose": lambda m, x, y, v, i: m.transpose(x),
    "transpose axes": lambda m, x, y, v, i: m.transpose(x, (1, 0)),
    "swapaxes": lambda m, x, y, v, i: m.swapaxes(x, 0, 1),
    "moveaxis": lambda m, x, y, v, i: m.moveaxis(x, 0, 1),
    "expand_dims": lambda m, x, y, v, i: m.expand_dims(x, 1),
    "squeeze": lambda m, x, y, v, i: m.squeeze(m.expand_dims(x, 1)),
    "broadcast_to": lambda m, x, y, v, i: m.broadcast_to(v, (2, 6)),
    "atleast_3d": lambda m, x, y, v, i: m.atleast_3d(x),
    "atleast_2d": lambda m, x, y, v, i: m.atleast_2d(x, v),
    "flip": lambda m, x, y, v, i: m.flip(x),
    "fliplr": lambda m, x, y, v, i: m.fliplr(x),
    "rot90": lambda m, x, y, v, i: m.rot90(x),
    "roll": lambda m, x, y, v, i: m.roll(x, 2, 1),
    "repeat": lambda m, x, y, v, i: m.repeat(x, 2, axis=0),
    "tile": lambda m, x, y, v, i: m.tile(x, (2, 1)),
    "pad": lambda m, x, y, v, i: m.pad(x, ((1, 1), (2, 0)), mode="reflect"),
    "concatenate": lambda m, x, y, v, i: m.concatenate([x, y], axis=1),
    "concatenate flat": lambda m, x, y, v, i: m.concatenate([x, v], axis=None),
    "stack": lambda m, x, y, v, i: m.stack([x, y], axis=1),
    "vstack": lambda m, x, y, v, i: m.vstack([x, v]),
    "hstack": lambda m, x, y, v, i: m.hstack([x, y]),
    "dstack": lambda m, x, y, v, i: m.dstack([x, y]),
    "column_stack": lambda m, x, y, v, i: m.column_stack([v, v]),
    "split": lambda m, x, y, v, i: m.split(x, 2, axis=1),
    "array_split": lambda m, x, y, v, i: m.array_split(x, 3),
    "hsplit": lambda m, x, y, v, i: m.hsplit(x, [1, 2]),
    "vsplit": lambda m, x, y, v, i: m.vsplit(x, 2),
    "insert": lambda m, x, y, v, i: m.insert(x, 1, v, axis=0),
    "insert number": lambda m, x, y, v, i: m.insert(x, 1, 9),
    "insert slice": lambda m, x, y, v, i: m.insert(v, slice(1, 4), 9),
    "insert positions": lambda m, x, y, v, i: m.insert(v, i, 9),
    "delete": lambda m, x, y, v, i: m.delete(x, 1, axis=1),
    "delete slice": lambda m, x, y, v, i: m.delete(v, slice(1, 3)),
    "tril": lambda m, x, y, v, i: m.tril(x, 1),
    "diag": lambda m, x, y, v, i: m.diag(v, 1),
    "diagonal": lambda m, x, y, v, i: m.diagonal(x, 1),
    "diagflat": lambda m, x, y, v, i: m.diagflat(v),
    "copy": lambda m, x, y, v, i: m.copy(x),
    "zeros": lambda m, x, y, v, i: m.zeros((2, 3)),
    "full": lambda m, x, y, v, i: m.full((2, 3), 5, dtype="int32"),
    "full of array": lambda m, x, y, v, i: m.full((2, 6), v),
    "full_like": lambda m, x, y, v, i: m.full_like(x, 5, dtype="int32"),
    "arange": lambda m, x, y, v, i: m.arange(2, 8, 2),
    "linspace": lambda m, x, y, v, i: m.linspace(0, 1, 5),
    "logspace": lambda m, x, y, v, i: m.logspace(0, 1, 5),
    "eye": lambda m, x, y, v, i: m.eye(3, 4, k=1),
    "identity": lambda m, x, y, v, i: m.identity(3),
    "indices": lambda m, x, y, v, i: m.indices((2, 3)),
    "sort": lambda m, x, y, v, i: m.sort(x, axis=0),
    "argsort": lambda m, x, y, v, i: m.argsort(x),
    "argmax": lambda m, x, y, v, i: m.argmax(x),
    "argmin": lambda m, x, y, v, i: m.argmin(x, axis=1),
    "where": lambda m, x, y, v, i: m.where(x, y, v),
    "where numbers": lambda m, x, y, v, i: m.where(x, 1, 2),
    "where number": lambda m, x, y, v, i: m.where(x, y, 2),
    "take": lambda m, x, y, v, i: m.take(x, i, axis=1),
    "take flat": lambda m, x, y, v, i: m.take(x, i, mode="wrap"),
}
# The result shapes depend on values, so they cannot be inferred.
UNKNOWN_SHAPES = {
    "unique": lambda m, x, y, v, i: m.unique(x),
    "unique all": lambda m, x, y, v, i: m.unique(x, return_index=True, return_counts=True),
    "bincount": lambda m, x, y, v, i: m.bincount(i),
    "delete positions": lambda m, x, y, v, i: m.delete(v, i),
}


def arguments():
    rng = onp.random.RandomState(1)
    x, y, v = (np.array(rng.randint(0, 4, size=shape), dtype="float32") for shape in ((4, 6), (4, 6), (6,)))
    return {"x": x, "y": y, "v": v, "i": np.array([3, 1], dtype="int64")}


def both(call):
    """Return the symbols and the arrays that a call returns."""
    arrays = arguments()
    symbols = [mx.sym.var(name).as_np_ndarray() for name in arrays]
    results = [call(mx.sym.np, *symbols), call(np, *arrays.values())]
    return [list(result) if isinstance(result, (list, tuple)) else [result] for result in results], arrays


def computed(symbol, arrays):
    inputs = {name: arrays[name] for name in symbol.list_arguments()}
    (result,) = symbol.bind(mx.cpu(), inputs).forward()
    return result


@pytest.mark.parametrize("name", CALLS)
def test_symbols_match_arrays(name):
    (symbols, expected), arrays = both(CALLS[name])
    assert len(symbols) == len(expected)
    for symbol, value in zip(symbols, expected, strict=True):
        inputs = symbol.list_arguments()
        assert symbol.infer_shape(**{n: arrays[n].shape for n in inputs})[1] == [value.shape]
        (dtype,) = symbol.infer_type(**{n: arrays[n].dtype for n in inputs})[1]
        assert onp.dtype(dtype) == onp.dtype(value.dtype)
        result = computed(symbol, arrays)
        assert onp.array_equal(result.asnumpy(), value.asnumpy())
        loaded = mx.sym.load_json(symbol.tojson())
        assert onp.array_equal(computed(loaded, arrays).asnumpy(), value.asnumpy())


@pytest.mark.parametrize("name", UNKNOWN_SHAPES)
def test_shapes_that_depend_on_values_are_unknown(name):
    (symbols, expected), arrays = both(UNKNOWN_SHAPES[name])
    for symbol, value in zip(symbols, expected, strict=True):
        run = mx.gluon.SymbolBlock(symbol, [mx.sym.var(n) for n in symbol.list_arguments()])
        assert onp.array_equal(run(*(arrays[n] for n in symbol.list_arguments())).asnumpy(), value.asnumpy())
