"""mx.np arrays out of nothing, out of Python data, or with the shape of another; triangles and diagonals."""

import numpy as np

from ..spec import f, family, ints, outcome, settled

case, program = family(__name__)

for name in ("zeros", "ones"):
    case.np("np." + name, (2, 3))
    case.np("np." + name, 3)
    case.np("np." + name, ())
    case.np("np." + name, (0, 2), dtype="int32")
    for dtype in ("float16", "float64", "int64", "uint8", "bool"):
        case.np("np." + name, (2,), dtype=dtype)
    case.np("np.%s_like" % name, f(2, 3))
    case.np("np.%s_like" % name, f(2, 3), dtype="int32")
    case.np("np.%s_like" % name, ints(2, dtype="int64"))
    case.np("np.%s_like" % name, f())
case.np("np.full", (2,), 7)
case.np("np.full", (2,), 2.5)
case.np("np.full", (2,), True)
case.np("np.full", (), 7, dtype="float64")
case.np("np.full", (2,), 2.7, dtype="int32")
case.np("np.full", (2,), 300, dtype="uint8")
case.np("np.full", (2, 3), f(3))
case.np("np.full", (2, 3), f(2, 1))
case.np("np.full_like", f(2, 3), 3.5)
case.np("np.full_like", ints(2, 3, dtype="int32"), 3.7)
case.np("np.full_like", f(2), 2, dtype="bool")
for arguments in ((5,), (2, 5), (2, 8, 3), (5, 2, -1), (5, 2), (0,), (-3,), (5.5,), (0, 2, 0.25)):
    case.np("np.arange", *arguments)
for dtype in ("float16", "float64", "int32", "int64", "int8", "uint8"):
    case.np("np.arange", 1, 6, 2, dtype=dtype)
    case.np("np.linspace", 0, 8, 5, dtype=dtype)
    case.np("np.eye", 2, 3, dtype=dtype)
    case.np("np.identity", 2, dtype=dtype)
    case.np("np.indices", (2, 3), dtype=dtype)
for num in (0, 1, 2, 7):
    case.np("np.linspace", -1, 3.5, num)
    case.np("np.linspace", -1, 3.5, num, endpoint=False)
    case.np("np.logspace", -1, 1.5, num)
    case.np("np.logspace", 0, 3, num, endpoint=False, base=2.0)
case.np("np.linspace", 0, 1)
case.np("np.linspace", 0, 1, 5, retstep=True)
case.np("np.logspace", 0, 2, 3, dtype="float64")
for window in ("hanning", "hamming", "blackman"):
    for length in (0, 1, 2, 9):
        case.np("np." + window, length)
case.np("np.eye", 3)
case.np("np.eye", 0)
for k in (-3, -1, 1, 4):
    case.np("np.eye", 2, 4, k)
    case.np("np.eye", 4, M=2, k=k)
case.np("np.identity", 3)
case.np("np.identity", 2, dtype="bool")
case.np("np.indices", (2, 3))
case.np("np.indices", ())
case.np("np.indices", (0, 2))
case.np("np.meshgrid", f(2), f(3))
case.np("np.meshgrid", f(2), f(3), indexing="ij")
case.np("np.meshgrid", f(2))
case.np("np.meshgrid", f(2), f(3), f(4))
case.np("np.meshgrid", f(), f(2, 2))
for k in (-2, 0, 1):
    case.np("np.tril", f(3, 4), k)
    case.np("np.tril", f(2, 3, 3), k=k)
    case.np("np.diag", f(3), k)
    case.np("np.diag", f(3, 4), k=k)
    case.np("np.diagflat", f(2, 2), k)
    case.np("np.diagonal", f(3, 4), k)
    case.np("np.diagonal", f(2, 3, 4), k, 1, 2)
case.np("np.tril", f(3))
case.np("np.tril", ints(3, 3, dtype="int32"))
case.np("np.tril", f(0, 3))
case.np("np.diag", f(3, 4), -5)
case.np("np.diag", f(0))
case.np("np.diag", ints(3, dtype="int64"))
case.np("np.diagonal", f(3, 4), 5)
case.np("np.diagonal", f(2, 3, 4), axis1=-1, axis2=0)
case.np("np.diag_indices_from", f(3, 3))
case.np("np.diag_indices_from", f(2, 2, 2))
case.np("np.copy", f(2, 3))
case.np("np.copy", ints(2, dtype="uint8"))


@program
def arrays_of_python_data(mx):
    mx.npx.set_np()
    try:
        make = mx.np.array
        given = [
            [1, 2],
            1,
            True,
            [True, False],
            np.array([1, 2]),
            np.float64(2.5),
            np.int32(2),
            np.array([True, False]),
            [np.array([1, 2]), np.array([3, 4])],
            [make([1, 2]), make([3, 4])],
            [make(1.0), [2.0]][0],
            make([1, 2], dtype="int32"),
            [],
            [[]],
            range(3),
            None,
            2**40,
        ]
        made = [make(data) for data in given]
        made += [make([1, 2], dtype=dtype) for dtype in (int, float, bool, "float16", "uint8")]
        return [value for array in made for value in (array, str(array.asnumpy().dtype))]
    finally:
        mx.npx.reset_np()


@program
def what_creation_refuses(mx):
    mx.npx.set_np()
    try:
        m = mx.np
        calls = [
            lambda: m.array(mx.nd.ones(2)),
            lambda: m.array([[1, 2], [3]]),
            lambda: m.array("a"),
            lambda: m.array({1}),
            lambda: m.array(1j),
            lambda: m.zeros((2,), order="F"),
            lambda: m.ones((2,), order="F"),
            lambda: m.full((2,), 1, order="F"),
            lambda: m.zeros_like(m.ones(2), order="F"),
            lambda: m.empty((2,), order="F"),
            lambda: m.empty_like(m.ones(2), subok=True),
            lambda: m.arange(0, 5, 0),
            lambda: m.linspace([0, 1], 2, 3),
            lambda: m.linspace(0, 1, 3, axis=1),
            lambda: m.linspace(0, 1, -1),
            lambda: m.logspace(m.ones(2), 2, 3),
            lambda: m.eye(-1),
            lambda: m.eye(2, order="F"),
            lambda: m.identity(-1),
            lambda: m.identity((2, 3)),
            lambda: m.indices(3),
            lambda: m.meshgrid(m.ones(2), indexing="zz"),
            lambda: m.meshgrid(m.ones(2), sparse=True),
            lambda: m.meshgrid(m.ones(2), unknown=1),
            lambda: m.diag(m.ones((2, 2, 2))),
            lambda: m.diagonal(m.ones(3)),
            lambda: m.diag_indices_from(m.ones((3, 4))),
        ]
        return [outcome(lambda: settled(call)) for call in calls]  # noqa: B023
    finally:
        mx.npx.reset_np()


@program
def filled_arrays_written_to_out(mx):
    mx.npx.set_np()
    try:
        m, results = mx.np, []
        for function in (
            lambda out: m.full((2,), 7, out=out),
            lambda out: m.full_like(m.ones(2), 3, out=out),
            lambda out: m.ones_like(m.zeros(2), out=out),
            lambda out: m.copy(m.array([4, 5]), out=out),
        ):
            out = m.zeros(2)
            results += [function(out), out]
        return results + [m.empty((2, 3), dtype="int32").shape, str(m.empty_like(m.ones(2)).asnumpy().dtype)]
    finally:
        mx.npx.reset_np()
