"""mx.np arrays in another shape or order, joined, parted, repeated, extended."""

from ..spec import const, f, family, ints, outcome, settled

case, program = family(__name__)

# ---- another shape ----
for shape in ((3, 2), (3, -1), 6, [2, 3], (1, 6, 1)):
    case.np("np.reshape", f(2, 3), shape)
case.np("np.reshape", f(1, 1), ())
case.np("np.reshape", f(0, 3), (-1,))
case.np("np.reshape", f(0, 3), (0, 5))
case.np("np.reshape", ints(2, 3, dtype="int32"), (3, 2))
for shape, codes in (
    ((2, 3, 4), (-2, -2, -2)),
    ((2, 3, 4), (6, -1)),
    ((1, 3, 4), (-3, -4)),
    ((2, 3, 4), (-5, -2)),
    ((2, 12), (-2, -6, 3, -1)),
    ((2, 12), (-2, -6, -1, 4)),
    ((2, 3, 4), (-1, -4)),
    ((2, 3, 4), (-1, -2)),
    ((2, 3, 4), (2, -4)),
    ((2, 3, 4), (-4, -1)),
    ((8, 1, 2, 2), (-2, -3, -1)),
    ((0, 3, 4), (-2, -5)),
    ((0, 3, 4), (-6, -1, 2, -4)),
    ((1,), ()),
    ((2, 3), -1),
):
    case.np("npx.reshape", f(*shape), codes)
case.np("npx.reshape", f(8, 3, 3, 3, 3, 8), (-4, -5), reverse=True)
case.np("npx.reshape", f(8, 3, 2, 4, 8), (-4, -1, 2, -6), reverse=True)
case.np("npx.reshape", f(8, 3, 4), (4, -1, -2), reverse=True)
for shape in ((2, 3), (), (0, 3), (4,)):
    # The gradients of atleast_*d are 0 in MXNet.
    some = 0 not in shape  # MXNet cannot reduce gradients without elements
    case.np("np.ravel", f(*shape))
    case.np("np.transpose", f(*shape))
    case.np("np.expand_dims", f(*shape), 0)
    case.np("np.expand_dims", f(*shape), -1)
    case.np("np.atleast_1d", f(*shape), _grad=False)
    case.np("np.atleast_2d", f(*shape), _grad=False)
    case.np("np.atleast_3d", f(*shape), _grad=False)
    case.np("np.flip", f(*shape), _grad=some)
    case.np("np.roll", f(*shape), 1, _grad=some)
    case.np("np.repeat", f(*shape), 2, _grad=some)
    case.np("np.tile", f(*shape), 2, _grad=some)
    case.np("np.broadcast_to", f(*shape), (2,) + shape, _grad=some)
case.np("np.ravel", ints(2, 3, dtype="uint8"))
case.np("np.atleast_2d", f(), f(2), f(2, 3), _grad=False)
case.np("np.squeeze", f(1, 3, 1))
case.np("np.squeeze", f(1, 3, 1), 0)
case.np("np.squeeze", f(1, 3, 1), (0, -1))
case.np("np.squeeze", f(1, 1))
case.np("np.squeeze", f(0, 1))
case.np("np.squeeze", f(1, 3, 1), ())
case.np("np.squeeze", f(), 0)
case.np("np.squeeze", f(), -1)
case.np("np.broadcast_to", f(3, 1), (2, 3, 4))
case.np("np.broadcast_to", f(1, 3), (0, 3))
case.np("np.broadcast_to", f(3), 3)
case.np("np.broadcast_to", f(), ())
case.np("np.broadcast_to", 5, (2, 3))
case.np("np.broadcast_arrays", f(3), f(2, 1))
case.np("np.broadcast_arrays", f(3))

# ---- another order ----
case.np("np.transpose", f(2, 3, 4), (1, 0, 2))
case.np("np.transpose", f(2, 3, 4), [-1, 0, 1])
case.np("np.transpose", ints(2, 3, dtype="int64"))
case.np("np.swapaxes", f(2, 3, 4), 0, 2)
case.np("np.swapaxes", f(2, 3, 4), -1, 0)
case.np("np.moveaxis", f(2, 3, 4), 0, -1)
case.np("np.moveaxis", f(2, 3, 4), [0, 1], [-1, -2])
case.np("np.flip", f(2, 3), 0)
case.np("np.flip", f(2, 3, 2), (0, 2))
case.np("np.flip", ints(4, dtype="int32"), 0)
case.np("np.flip", f(2, 3), ())
case.np("np.fliplr", f(2, 3))
case.np("np.flipud", f(2, 3))
for k in (-1, 0, 1, 2, 3, 4):
    case.np("np.rot90", f(2, 3), k, _grad=k % 2 == 0)  # MXNet turns gradients forwards, not back
case.np("np.rot90", f(2, 3, 4), 1, (1, 2), _grad=False)
case.np("np.rot90", f(2, 3, 4), 1, (2, 1), _grad=False)
case.np("np.roll", f(2, 3), -1, 1)
case.np("np.roll", f(2, 3), (1, 2), (0, 1))
case.np("np.roll", f(2, 3), 1, (0, 1))
case.np("np.roll", f(2, 3), 100)
case.np("np.roll", ints(3, dtype="int32"), 1)

# ---- repeated and extended ----
case.np("np.repeat", f(2, 3), 2, 0)
case.np("np.repeat", f(2, 3), 3, axis=-1)
case.np("np.repeat", ints(2, 3, dtype="int64"), 0)
for reps in ((2, 1), (2, 1, 1), (), 0, [2, 2]):
    case.np("np.tile", f(2, 3), reps)
case.np("np.tile", 1.5, 3)
case.np("np.flip", 1.5)
case.np("np.ravel", 1)
case.np("np.pad", f(2, 3), ((1, 2), (0, 1)))
case.np("np.pad", f(3), (1, 2))
case.np("np.pad", f(0, 3), ((1, 1), (0, 0)))
case.np("np.pad", ints(2, 3, dtype="int32"), ((1, 1), (0, 0)))
case.np("np.pad", f(2, 3, 2), ((1, 0), (0, 1), (2, 2)))
for mode in ("edge", "reflect", "symmetric", "maximum", "minimum"):  # MXNet differentiates the mode constant alone
    case.np("np.pad", f(2, 3), ((1, 1), (2, 2)), mode=mode, _grad=False)
    case.np("np.pad", f(3, 4, 2), ((1, 0), (0, 2), (1, 1)), mode=mode, _grad=False)
    case.np("np.pad", ints(2, 3, dtype="int32"), ((1, 1), (2, 2)), mode=mode)
case.np("np.resize", f(2, 3), (3, 3), _grad=False)  # no gradient in MXNet
case.np("np.resize", f(2, 3), 4, _grad=False)
case.np("np.resize", f(2, 3), (0, 2), _grad=False)
case.np("np.resize", f(0), (2, 2), _grad=False)

# ---- joined ----
case.np("np.concatenate", [f(2, 3), f(1, 3)])
case.np("np.concatenate", [f(2, 3), f(2, 1)], axis=-1)
case.np("np.concatenate", [f(2, 3), f(2, 1)], axis=None)
case.np("np.concatenate", [f(0, 3), f(2, 3)])
case.np("np.append", f(2, 3), f(1, 3), axis=0)
case.np("np.append", f(2, 3), f(4))
for axis in (0, 1, -1):
    case.np("np.stack", [f(2, 3), f(2, 3)], axis=axis)
case.np("np.stack", [f(), f()])
for name in ("vstack", "row_stack", "hstack", "dstack", "column_stack"):
    case.np("np." + name, [f(3), f(3)])
    case.np("np." + name, [f(), f()])
    case.np("np." + name, [f(2, 3), f(2, 3)])
case.np("np.vstack", [f(3), f(2, 3)])
case.np("np.hstack", [f(2, 3), f(2, 1)])
case.np("np.hstack", [f(), f(2)])
case.np("np.dstack", [f(2, 3, 4), f(2, 3, 1)])
case.np("np.column_stack", [f(3), f(3, 2)])
for dtype in ("float64", "float16", "int32", "uint8"):
    case.np("np.concatenate", [ints(2, dtype=dtype), ints(3, dtype=dtype)], _grad=False)
    case.np("np.stack", [ints(2, dtype=dtype), ints(2, dtype=dtype)], _grad=False)
    case.np("np.vstack", [ints(2, dtype=dtype), ints(2, dtype=dtype)], _grad=False)

# ---- parted ----
for parts in (2, 1, (1, 3), [1, 3], []):
    case.np("np.split", f(4, 3), parts)
case.np("np.split", f(4, 3), 3, axis=-1)
case.np("np.split", f(0, 3), 2)
case.np("np.split", f(1, 0), [1], axis=1)
case.np("np.split", f(1, 0), [1, 3], axis=1)
case.np("np.array_split", f(7), 3)
case.np("np.array_split", f(7, 2), [1, 3], axis=0)
case.np("np.array_split", f(2), 3)
case.np("np.hsplit", f(4), 2)
case.np("np.hsplit", f(2, 6), 3)
case.np("np.hsplit", f(2, 6), [1, 3])
case.np("np.hsplit", f(2, 6), 4)
case.np("np.vsplit", f(4, 2), 2)
case.np("np.vsplit", f(4, 2), [1])
case.np("np.dsplit", f(1, 2, 4), 2)
case.np("np.dsplit", f(1, 2, 4), (1, 2))

# ---- inserted and deleted: without gradients in MXNet ----
for index in (0, 1, -1, 4):
    case.np("np.insert", f(4), index, 9, _grad=False)
case.np("np.insert", f(2, 3), 1, 9, _grad=False)
case.np("np.insert", f(2, 3), 1, f(2), axis=1, _grad=False)
case.np("np.insert", f(2, 3), 1, f(3), axis=0, _grad=False)
case.np("np.insert", f(2, 3), 1, f(2, 1), axis=1, _grad=False)
case.np("np.insert", f(4), 1, f(2), _grad=False)
case.np("np.insert", f(2, 3), 1, f(), axis=0, _grad=False)
case.np("np.insert", ints(4, dtype="int32"), 1, 9.7, _grad=False)
case.np("np.insert", f(6), const([1, 1, 4], "int64"), f(3), _grad=False)
case.np("np.insert", f(6), const([4, 1], "int64"), f(2), _grad=False)
case.np("np.insert", f(6), const([-1], "int64"), f(1), _grad=False)
case.np("np.insert", f(2, 3), const([1, 2], "int64"), f(2, 2), axis=1, _grad=False)
case.np("np.insert", f(2, 3), const([1], "int64"), f(2, 1), axis=1, _grad=False)
case.np("np.insert", f(4), const(1, "int64"), 9, _grad=False)
case.np("np.insert", f(6), slice(1, 4, 2), f(2), _grad=False)
case.np("np.insert", f(6), slice(None, None, -2), f(3), _grad=False)
for index in (1, -1, slice(1, 4), slice(None, None, 2), slice(None, None, -2), slice(4, 1)):
    case.np("np.delete", f(6), index, _grad=False)
case.np("np.delete", f(2, 3), 1, _grad=False)
case.np("np.delete", f(2, 3), 1, 0, _grad=False)
case.np("np.delete", f(2, 3), -1, -1, _grad=False)
case.np("np.delete", f(2, 3), slice(0, 2), axis=1, _grad=False)
case.np("np.delete", f(6), const([1, 3, 3], "int64"), _grad=False)
case.np("np.delete", ints(6, dtype="int32"), 0, _grad=False)

# ---- positions ----
case.np("np.unravel_index", 7, (3, 4))
for dtype in ("int32", "int64"):
    case.np("np.unravel_index", const([[7, 11]], dtype), (3, 4))
case.np("np.unravel_index", const(7, "int64"), (3, 4))
case.np("np.shape", f(2, 3))


@program
def memory_that_is_shared(mx):
    mx.npx.set_np()
    try:
        m = mx.np
        x = m.ones((2, 3))
        pairs = [(x, x), (x, x[0]), (x[0], x[1]), (x, m.reshape(x, 6)), (x, m.ones((2, 3)))]
        return [m.shares_memory(a, b) for a, b in pairs] + [m.may_share_memory(a, b) for a, b in pairs]
    finally:
        mx.npx.reset_np()


@program
def shapes_written_to_out(mx):
    mx.npx.set_np()
    try:
        m, results = mx.np, []
        x = m.array([[1, 2, 3], [4, 5, 6]])
        for function, shape in (
            (lambda out: m.reshape(x, (3, 2), out=out), (3, 2)),
            (lambda out: m.squeeze(x[0:1], out=out), (3,)),
            (lambda out: m.flip(x, 0, out=out), (2, 3)),
            (lambda out: m.concatenate([x, x], out=out), (4, 3)),
            (lambda out: m.stack([x, x], axis=1, out=out), (2, 2, 3)),
        ):
            out = m.zeros(shape)
            results += [function(out), out]
        return results
    finally:
        mx.npx.reset_np()


@program
def what_shape_functions_refuse(mx):
    mx.npx.set_np()
    try:
        m, x = mx.np, mx.np.ones((2, 3))
        calls = [
            lambda: m.reshape(x, (4, 2)),
            lambda: m.reshape(x, (-1, -1)),
            lambda: m.reshape(x, (-2, 2)),
            lambda: mx.npx.reshape(x, (-3, -4)),
            lambda: mx.npx.reshape(x, (-2, -2, -2)),
            lambda: mx.npx.reshape(x, (-7,)),
            lambda: m.ravel(x, order="F"),
            lambda: m.transpose(x, (0,)),
            lambda: m.transpose(x, (0, 3)),
            lambda: m.swapaxes(x, 3, 0),
            lambda: m.moveaxis(x, 0, 5),
            lambda: m.moveaxis(x, (0, 0), (1, 0)),
            lambda: m.expand_dims(x, 4),
            lambda: m.squeeze(x, 1),
            lambda: m.squeeze(x, 5),
            lambda: m.broadcast_to(x, (2, 4)),
            lambda: m.broadcast_to(x, (3,)),
            lambda: m.broadcast_arrays(x, m.ones(2)),
            lambda: m.flip(x, 2),
            lambda: m.fliplr(m.ones(3)),
            lambda: m.rot90(m.ones(3)),
            lambda: m.rot90(x, 1, (0, 0)),
            lambda: m.rot90(x, 1, (0,)),
            lambda: m.roll(x, (1, 2), 0),
            lambda: m.roll(x, (1, 2)),
            lambda: m.roll(x, 1, 3),
            lambda: m.repeat(x, -1),
            lambda: m.repeat(x, 2, 2),
            lambda: m.pad(x),
            lambda: m.pad(x, ((1, 1), (2, 2)), mode="mean"),
            lambda: m.pad(x, ((1, 1), (2, 2)), unknown=1),
            lambda: m.pad(x, ((1, 1), (2, 2)), mode="reflect", reflect_type="odd"),
            lambda: m.pad(x, ((1, 1), (2, 2)), constant_values=(1, 2)),
            lambda: m.concatenate(()),
            lambda: m.concatenate((x, m.ones((2, 1)))),
            lambda: m.concatenate((x, m.ones(3))),
            lambda: m.concatenate((x, m.ones((2, 3), dtype="int32"))),
            lambda: m.stack([x, m.ones(3)]),
            lambda: m.stack([]),
            lambda: m.stack([x, x], axis=3),
            lambda: m.vstack([m.ones(3), m.ones(2)]),
            lambda: m.hstack([m.ones(3), x]),
            lambda: m.split(x, 2, axis=1),
            lambda: m.split(x, [1, 7]),
            lambda: m.split(x, 1.5),
            lambda: m.split(x, 1, axis=2),
            lambda: m.hsplit(m.array(1.0), 1),
            lambda: m.vsplit(m.ones(4), 2),
            lambda: m.dsplit(x, 2),
            lambda: m.insert(m.ones(4), 5, 9),
            lambda: m.insert(x, 1, 9, axis=2),
            lambda: m.delete(m.ones(4), 7),
            lambda: m.delete(x, 0, 2),
            lambda: m.delete(1, 0),
            lambda: m.unravel_index(m.ones(2, dtype="int64"), (3, 4), order="F"),
        ]
        return [outcome(lambda: settled(call)) for call in calls]  # noqa: B023
    finally:
        mx.npx.reset_np()
