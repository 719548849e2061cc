"""Outputs whose gradient MXNet defines."""

import itertools

from parity.spec import const, f, family, ints

case, program = family(__name__)

# ---- SoftmaxOutput: every pair of options meets; heads are random and must not matter ----
for normalization, use_ignore, smooth_alpha in itertools.product(("null", "batch", "valid"), (True, False), (0.0, 0.1)):
    options = dict(normalization=normalization, use_ignore=use_ignore, smooth_alpha=smooth_alpha, ignore_label=1)
    case("SoftmaxOutput", f(6, 4), ints(6, hi=4), **options)
    case("SoftmaxOutput", f(2, 3, 4), ints(2, 4, hi=3), multi_output=True, grad_scale=2.0, **options)
    case("SoftmaxOutput", f(2, 3, 4), ints(2, 3, hi=4), preserve_shape=True, grad_scale=0.5, **options)
    case("SoftmaxOutput", f(2, 3, 4), ints(2, 3, hi=4), **options)
for normalization in ("null", "batch", "valid"):
    for options in ({}, {"multi_output": True}, {"preserve_shape": True}):
        case("SoftmaxOutput", f(2, 3, 4), f(2, 3, 4, lo=0), normalization=normalization, grad_scale=2.0, **options)
for options in ({}, {"multi_output": True}, {"preserve_shape": True}):
    case("SoftmaxOutput", f(2, 3, 4), f(2, 3, 4, lo=0), out_grad=True, **options)
    case("SoftmaxOutput", f(2, 3, 4), f(2, 3, 4, lo=0), use_ignore=True, smooth_alpha=0.1, **options)
case("SoftmaxOutput", f(6, 4), ints(6, hi=4), out_grad=True)
case("SoftmaxOutput", f(6, 4), ints(6, hi=4), out_grad=True, normalization="valid", use_ignore=True, ignore_label=2)
case("SoftmaxOutput", f(2, 3, 4), ints(2, 4, hi=3), out_grad=True, multi_output=True)
case("SoftmaxOutput", f(2, 3, 2, 2), ints(2, 2, 2, hi=3), multi_output=True)
case("SoftmaxOutput", f(2, 3, 2, 2), ints(2, 4, hi=3), multi_output=True, normalization="batch")
case("SoftmaxOutput", f(2, 3, 2, 2), ints(2, 1, 2, 2, hi=3), multi_output=True, normalization="valid")
case("SoftmaxOutput", f(2, 3, 4), ints(2, 4, hi=3), multi_output=True, preserve_shape=True)
case("SoftmaxOutput", f(4, 3), ints(4, hi=3), multi_output=True, normalization="batch")
case("SoftmaxOutput", f(4, 3), ints(4, 1, hi=3), multi_output=True)
case("SoftmaxOutput", f(3), f(3))
case("SoftmaxOutput", f(4, 3), const([-1, 3, 100, 1.7]))
case("SoftmaxOutput", f(4, 3), const([-1, 3, -0.5, 1]), smooth_alpha=0.2)
case("SoftmaxOutput", f(4, 3), const([2, 2, 2, 2]), use_ignore=True, ignore_label=2, normalization="valid")
case("SoftmaxOutput", f(4, 3), const([-1, 0, -1, 2]), use_ignore=True)
case("SoftmaxOutput", f(4, 3), ints(4, hi=3), grad_scale=3.0, _train=False)
case("SoftmaxOutput", f(4, 3, dtype="float64"), ints(4, hi=3, dtype="float64"), smooth_alpha=0.1)
# float16: MXNet rounds on the way
case("SoftmaxOutput", f(4, 3, dtype="float16"), ints(4, hi=3, dtype="float16"))

# ---- regressions: the gradient is over how many outputs an example has ----
for name in ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"):
    case(name, f(3, 4), f(3, 4))
    case(name, f(3, 4), f(3, 4), grad_scale=2.5, _train=False)
    case(name, f(3, 1), f(3))
    case(name, f(3), f(3, 1), grad_scale=0.5)
    case(name, f(2, 3, 4), f(2, 12))
    case(name, const([1.0, 2.0, 3.0]), const([1.0, 1.0, 5.0]))
    case(name, f(3, 2, dtype="float64"), f(3, 2, dtype="float64"))

for normalization in ("null", "batch", "valid"):
    case("MakeLoss", f(2, 3), normalization=normalization)
    case("MakeLoss", f(2, 3), normalization=normalization, grad_scale=3.0, valid_thresh=0.3, _train=False)
case("MakeLoss", f(2, 3), normalization="valid", valid_thresh=100.0)
case("MakeLoss", f(4, dtype="float64"), normalization="valid")
for shape in ((4,), (4, 5, 1), (2, 3, 4)):
    case("MakeLoss", f(*shape), normalization="batch")

for use_linear in (True, False):
    case("SVMOutput", f(4, 5, lo=-2, hi=2), ints(4), use_linear=use_linear)
    case("SVMOutput", f(4, 5), ints(4), use_linear=use_linear, margin=0.4, regularization_coefficient=3.0, _train=False)
    case("SVMOutput", f(2, 3, 4, lo=-2, hi=2), ints(2, 3, hi=4), use_linear=use_linear)
    case("SVMOutput", f(3, 4), const([-1, 4, 2]), use_linear=use_linear)
    case("SVMOutput", const([[1.0, -1.0, 0.0]]), const([0]), use_linear=use_linear)
case("SVMOutput", f(3, 4, dtype="float64"), ints(3, hi=4, dtype="float64"))


@program
def heads_of_a_loss_do_not_matter(mx):
    x = mx.nd.array([[1.0, 2.0], [3.0, 5.0]])
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.SoftmaxOutput(x * 2, mx.nd.array([0, 1]))
    y.backward(mx.nd.array([[100.0, 0.0], [-1.0, 3.0]]))
    return [y, x.grad]
