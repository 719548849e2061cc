"""Sorting and searching mx.np arrays."""

from ..spec import const, f, family, ints, outcome, settled

case, program = family(__name__)

for axis in (0, 1, -1, None):
    case.np("np.sort", f(3, 4), axis=axis)
    case.np("np.argsort", f(3, 4), axis=axis, _grad=False)
    case.np("np.argmax", f(3, 4), axis=axis, _grad=False)
    case.np("np.argmin", f(3, 4), axis=axis, _grad=False)
for dtype in ("float64", "int32", "int64", "uint8"):
    values = const([3, 1, 2, 1, 3], dtype)
    for name in ("sort", "argsort", "argmax", "argmin", "unique", "nonzero"):
        case.np("np." + name, values, _grad=False)
for name in ("sort", "argsort"):
    case.np("np." + name, f(0), _grad=False)
    case.np("np." + name, f(0, 3), _grad=False)
for name in ("argmax", "argmin"):
    case.np("np." + name, f(), _grad=False)
    case.np("np." + name, f(), axis=0, _grad=False)
    case.np("np." + name, f(), axis=-1, _grad=False)
    case.np("np." + name, f(0, 3), axis=1, _grad=False)
    case.np("np." + name, const([3, float("nan"), 1]), _grad=False)
case.np("np.sort", const([3, float("nan"), 1]), _grad=False)
for values in ([0, 1, 2], [[0, 1], [2, 0]], [[0, 0]], 1, 0):
    case.np("np.nonzero", const(values))
    case.np("npx.nonzero", const(values))
    case.np("np.where", const(values), _grad=False)
case.np("np.nonzero", f(0, 3), _grad=False)
case.np("np.nonzero", const([True, False], "bool"))
for condition in (const([1, 0, 1]), const([True, False, True], "bool"), const([[1], [0]], "int32")):
    case.np("np.where", condition, f(3), f(3))
    case.np("np.where", condition, f(2, 3), f(3))
    case.np("np.where", condition, f(3), f(2, 1))
    # MXNet gives the gradient of a number's place to the array and the other way round.
    case.np("np.where", condition, f(3), 2.5, _grad=False)
    case.np("np.where", condition, 2, f(2, 1), _grad=False)
    case.np("np.where", condition, 1, 2.5)
    case.np("np.where", condition, ints(3, dtype="int32"), 2.5)
    case.np("np.where", condition, 2.5, ints(3, dtype="int64"))
    case.np("np.where", condition, ints(3, dtype="uint8"), ints(3, dtype="uint8"))
case.np("np.where", const(1), f(3), f(3))
case.np("np.where", True, f(3), f(3))
case.np("np.where", False, 1, 2)
case.np("np.where", f(0), f(0), f(0))
for choice in (dict(), dict(return_index=True), dict(return_inverse=True), dict(return_counts=True)):
    case.np("np.unique", const([3, 1, 1, 2]), _grad=False, **choice)
    case.np("np.unique", const([[3, 1], [3, 1], [1, 2]]), axis=0, _grad=False, **choice)
    case.np("np.unique", const([[3, 3, 1], [1, 1, 0]], "int64"), axis=-1, **choice)
everything = dict(return_index=True, return_inverse=True, return_counts=True)
case.np("np.unique", ints(4, 5), _grad=False, **everything)
case.np("np.unique", ints(20, 2, hi=3), axis=0, _grad=False, **everything)
case.np("np.unique", f(), _grad=False, **everything)
case.np("np.unique", f(0), _grad=False, **everything)
for index in (const([0, 2], "int32"), const([0, 2]), const([[0, 2], [1, 1]], "int64"), const(1, "int32")):
    for axis in (None, 0, 1, -1):
        case.np("np.take", f(3, 4), index, axis=axis, _grad=[0])
for mode in ("clip", "wrap"):
    case.np("np.take", f(3, 4), const([0, 7, -1], "int32"), axis=0, mode=mode)
    case.np("np.take", f(3, 4), const([5, 13, -2], "int32"), mode=mode)
case.np("np.take", f(3, 4), const([], "int32"), axis=0)
case.np("np.take", ints(3, 4, dtype="int32"), const([1], "int64"), axis=1)
for dtype in ("int32", "int64", "uint8"):
    case.np("np.bincount", const([0, 1, 1, 3], dtype))
    case.np("np.bincount", const([0, 1, 1, 3], dtype), minlength=6)
case.np("np.bincount", const([0, 1, 1], "int32"), f(3))
case.np("np.bincount", const([0, 1, 1], "int32"), weights=ints(3, dtype="int32"))
case.np("np.bincount", const([], "int32"), minlength=3)


@program
def found_positions_written_to_out(mx):
    mx.npx.set_np()
    try:
        m, results = mx.np, []
        x = m.array([[1, 5, 3], [4, 2, 6]])
        for function, shape, dtype in (
            (lambda out: m.argmax(x, axis=0, out=out), (3,), "int64"),
            (lambda out: m.argmin(x, axis=1, out=out), (2,), "int64"),
            (lambda out: m.take(x, m.array([1, 0]), axis=0, mode="clip", out=out), (2, 3), "float32"),
        ):
            out = m.zeros(shape, dtype=dtype)
            results += [function(out), out]
        return results
    finally:
        mx.npx.reset_np()


@program
def what_search_functions_refuse(mx):
    mx.npx.set_np()
    try:
        m, x = mx.np, mx.np.ones((2, 3))
        calls = [
            lambda: m.sort(x, order="a"),
            lambda: m.sort(x, axis=2),
            lambda: m.argsort(x, order="a"),
            lambda: m.argmax(m.zeros(0)),
            lambda: m.argmax(x, axis=2),
            lambda: m.where(x, m.ones(3), m.ones(2)),
            lambda: m.unique(m.ones(3), axis=1),
            lambda: m.take(x, m.array([7]), axis=0).asnumpy(),
            lambda: m.take(x, m.array([0]), axis=0, mode="x"),
            lambda: m.take(x, m.array([0]), axis=2),
            lambda: m.bincount([1, 2]),
            lambda: m.bincount(m.ones(2)),
            lambda: m.bincount(m.ones((1, 2), dtype="int32")),
            lambda: m.bincount(m.ones(2, dtype="int32"), minlength=-1),
            lambda: m.bincount(m.ones(2, dtype="int32"), m.ones(3)),
            lambda: m.bincount(m.array([-1], dtype="int32")),
        ]
        return [outcome(lambda: settled(call)) for call in calls]  # noqa: B023
    finally:
        mx.npx.reset_np()
