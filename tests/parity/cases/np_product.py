"""Products of mx.np arrays."""

from ..spec import const, f, family, ints

case, program = family(__name__)

DOTS = [((3,), (3,)), ((2, 3), (3, 4)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3, 4), (4,)), ((2, 3, 4), (4, 2))]
DOTS += [((4,), (2, 4, 3)), ((2, 4), (2, 4, 3)), ((2, 3, 4), (2, 4, 3)), ((), (2, 3)), ((2, 3), ()), ((), ())]
EMPTY = [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((0,), (0,))]
for a, b in DOTS + EMPTY:
    case.np("np.dot", f(*a), f(*b))
MATRICES = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((3,), (5, 3, 4))]
MATRICES += [((5, 2, 3), (3,)), ((5, 2, 3), (5, 3, 4)), ((2, 3), (5, 3, 4)), ((0, 2, 3), (3, 4))]
for a, b in MATRICES + EMPTY:
    case.np("np.matmul", f(*a), f(*b))
case.np("np.matmul", f(2, 1, 2, 3), f(5, 3, 4), _grad=False)  # MXNet's gradient adds up the wrong batches
for a, b in [((3,), (3,)), ((2, 3), (4, 3)), ((2, 3), (3,)), ((2, 2, 3), (4, 3)), ((0,), (0,)), ((2, 0), (3, 0))]:
    case.np("np.inner", f(*a), f(*b))
for a, b in [((3,), (4,)), ((2, 3), (2, 2)), ((), (3,))]:
    case.np("np.outer", f(*a), f(*b))
for a, b in [((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), (3, 2))]:
    case.np("np.vdot", f(*a), f(*b))
for name in ("dot", "matmul", "inner", "vdot", "outer"):
    case.np("np." + name, f(3, 3, dtype="float64"), f(3, 3, dtype="float64"))
case.np("np.tensordot", f(2, 3, 4), f(3, 4, 5))
for a, b, axes in [
    ((2, 3), (3, 4), 1),
    ((2, 3), (4, 5), 0),
    ((2, 3, 4), (4, 3, 5), ([1, 2], [1, 0])),
    ((2, 3, 4), (4, 3, 5), (1, 1)),
    ((2, 3, 4), (4, 3, 5), ((-1,), (0,))),
    ((2, 3), (2, 3), 2),
    ((), (), 0),
    ((2, 0), (0, 4), 1),
    ((0, 3), (3, 4), 1),
    ((2, 3), (3, 4), ([], [])),
]:
    case.np("np.tensordot", f(*a), f(*b), axes=axes)
for subscripts, *shapes in [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba,cb", (2, 3), (4, 2)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("ij->ji", (2, 3)),
    ("ji", (2, 3)),
    ("ij->", (2, 3)),
    ("...j,j->...", (2, 2, 3), (3,)),
    ("...ij->...ji", (2, 2, 3)),
    ("i...->...", (2, 2, 3)),
    ("i,j", (2,), (3,)),
    (",ij", (), (2, 3)),
    ("ij, jk -> ik", (2, 3), (3, 4)),
    ("iij->j", (3, 3, 2)),
    ("ii,ii->i", (3, 3), (3, 3)),
    ("", ()),
    ("ijk->ik", (2, 3, 4)),
    ("bij,bjk->bik", (2, 3, 2), (2, 2, 3)),
    ("ij,jk->ik", (2, 0), (0, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("Ab,bC->AC", (2, 3), (3, 2)),
]:
    case.np("np.einsum", subscripts, *[f(*shape) for shape in shapes])
case.np("np.einsum", "ij,jk,kl->il", f(2, 3), f(3, 4), f(4, 2), optimize=True)
case.np("np.einsum", "ij,jk,kl->il", f(2, 3), f(3, 4), f(4, 2), optimize=False)
# MXNet's gradients of what is broadcast leave out terms.
case.np("np.einsum", "...ij,...jk", f(4, 2, 3), f(1, 3, 2), _grad=False)
case.np("np.einsum", "ij,ij->ij", f(1, 3), f(2, 3), _grad=False)
for dtype in ("int32", "int64", "uint8"):
    case.np("np.einsum", "ij,jk->ik", ints(2, 3, dtype=dtype), ints(3, 4, dtype=dtype))
    case.np("np.trace", ints(3, 4, dtype=dtype))
case.np("np.einsum", "ij->i", const([[True, False], [False, False]], "bool"))
case.np("np.einsum", "ij,jk->ik", f(2, 3, dtype="float16"), f(3, 4, dtype="float16"), _factor=4)  # MXNet adds in halves
case.np("np.trace", f(3, 3))
case.np("np.trace", f(3, 3, dtype="float16"))
for offset in (1, -2, 5):
    case.np("np.trace", f(3, 4), offset=offset)
case.np("np.trace", f(3, 4, 2), axis1=0, axis2=2)
case.np("np.trace", f(3, 4, 2), axis1=-1, axis2=-2)
case.np("np.trace", f(0, 0))
case.np("np.trace", f(2, 3, 3), offset=-1, axis1=1, axis2=2)


@program
def np_out_of_products(mx):
    mx.npx.set_np()
    try:
        a = mx.np.array([[1, 2], [3, 4]], dtype="float32")
        results = []
        for call in (
            lambda out: mx.np.dot(a, a, out=out),
            lambda out: mx.np.matmul(a, a, out=out),
            lambda out: mx.np.einsum("ij,kj->ik", a, a, out=out),
        ):
            out = mx.np.zeros((2, 2))
            results += [call(out) is out, out]
        out = mx.np.zeros(())
        results += [mx.np.trace(a, out=out) is out, out]
        return results
    finally:
        mx.npx.reset_np()
