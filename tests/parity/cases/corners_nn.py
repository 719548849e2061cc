"""Edges of layers' ops: lengths of nothing, half precision, odd sizes, wrong sizes."""

import numpy as np

from parity.spec import const, f, family, outcome

case, program = family(__name__)

# ---- CTCLoss: labels of nothing, and labels that do not fit in the time given, whose gradient is left to chance ----
# A batch without any label is not here: what MXNet then gives is whatever lies in memory.
for blank, end in (("first", 0), ("last", -1)):
    a, b = (1, 2) if blank == "first" else (0, 1)
    labels = const([[a, b], [a, end], [b, b]])
    how = dict(blank_label=blank, _grad=False)
    case("CTCLoss", f(3, 2, 3), const([[a, a, end], [a, b, a]]), blank_label=blank, _grad=(0,))
    case("CTCLoss", f(1, 1, 3), const([[a]]), blank_label=blank, _grad=(0,))
    case("CTCLoss", f(4, 3, 3), labels, const([0, 1, 2]), use_label_lengths=True, blank_label=blank, _grad=(0,))
    case("CTCLoss", f(2, 2, 3), const([[a, b], [b, b]]), **how)
    case("CTCLoss", f(4, 3, 3), labels, const([0, 1, 2]), use_data_lengths=True, **how)
    lengths = const([1, 2, 1]), const([0, 0, 2])
    case("CTCLoss", f(4, 3, 3), labels, *lengths, use_data_lengths=True, use_label_lengths=True, **how)

# ---- softmax ----
for dtype in ("float16", "float32", "float64"):
    for op in ("softmax", "log_softmax", "softmin"):
        case(op, f(2, 3, 4, dtype=dtype), axis=1, temperature=0.5)
        case(op, f(2, 3, 4, dtype=dtype), axis=0, temperature=10.0, dtype="float64")
    for axis, length in ((1, [[0, 1, 2, 3], [3, 2, 1, 0]]), (-1, [[0, 1, 4], [2, 3, 0]]), (0, [[0, 1, 2, 1]] * 3)):
        for ldtype in ("int32", "int64"):
            case("softmax", f(2, 3, 4, dtype=dtype), const(length, ldtype), use_length=True, axis=axis)
    case("softmax", f(2, 3, dtype=dtype), const([1, 2], "int32"), use_length=True, dtype="float32", temperature=2.0)
for op in ("softmax", "log_softmax", "softmin"):
    case(op, f(3, 1), _factor=4)  # MXNet's logarithm of 1 is 1.4e-6
    case(op, f(2, 3), temperature=-1.0)

# ---- norms in half precision ----
for dtype in ("float16", "float64"):
    case("LayerNorm", f(2, 3, 4, dtype=dtype), f(4, dtype=dtype), f(4, dtype=dtype))
    case("LayerNorm", f(2, 3, 4, dtype=dtype), f(3, dtype=dtype), f(3, dtype=dtype), axis=1, eps=1e-3)
    case("LayerNorm", f(2, 3, 4, dtype=dtype), f(2, dtype=dtype), f(2, dtype=dtype), axis=0)
    case("GroupNorm", f(2, 4, 3, 2, dtype=dtype), f(2, dtype=dtype), f(2, dtype=dtype), num_groups=2)
    case("GroupNorm", f(2, 4, 3, dtype=dtype), f(4, dtype=dtype), f(4, dtype=dtype), num_groups=4, eps=1e-2)
case("LayerNorm", f(2, 300, dtype="float16", lo=0, hi=100), f(300, dtype="float16"), f(300, dtype="float16"))
case("LayerNorm", const([[5.0, 5.0, 5.0], [1.0, 2.0, 3.0]], "float16"), f(3, dtype="float16"), f(3, dtype="float16"))
case("LayerNorm", f(2, 3, 4), f(4), f(4), output_mean_var=True)
case("GroupNorm", f(2, 4, 3), f(2), f(2), num_groups=2, output_mean_var=True)
case("BatchNorm", f(2, 3, 4, dtype="float16"), f(3), f(3), f(3), f(3, lo=0.5), fix_gamma=False)
case("L2Normalization", f(2, 3, 4, dtype="float16"), mode="channel")

# ---- Correlation ----
for shape, how in [
    ((1, 2, 5, 7), dict(pad_size=1)),
    ((1, 2, 5, 7), dict(pad_size=2, max_displacement=2)),
    ((1, 1, 6, 5), dict(kernel_size=3, max_displacement=1, pad_size=2)),
    ((2, 3, 9, 8), dict(kernel_size=3, max_displacement=2, stride1=2, stride2=1, pad_size=3)),
    ((2, 3, 9, 8), dict(kernel_size=1, max_displacement=4, stride1=1, stride2=2, pad_size=4)),
    ((1, 2, 9, 11), dict(kernel_size=5, max_displacement=2, stride1=2, stride2=2, pad_size=4)),
    ((1, 2, 9, 9), dict(kernel_size=1, max_displacement=3, stride1=2, stride2=2, pad_size=3)),
    ((1, 2, 7, 7), dict(kernel_size=3, max_displacement=0, pad_size=0)),
    ((1, 2, 7, 7), dict(kernel_size=1, max_displacement=2, stride1=3, pad_size=2)),
]:
    for multiply in (True, False):
        case("Correlation", f(*shape), f(*shape), is_multiply=multiply, **how)
case("Correlation", f(1, 2, 5, 5, dtype="float64"), f(1, 2, 5, 5, dtype="float64"), pad_size=1)


# ---- PReLU's slope ----
for data, gamma in [
    ((2, 3), (3,)),
    ((2, 3), (1,)),
    ((2, 3, 4, 5), (3,)),
    ((2, 3, 4), (1, 1)),
    ((2, 3, 4), (1, 3)),
    ((4,), (4,)),
    ((4,), (1,)),
    ((2, 3, 4), (1, 3, 1)),
    ((2, 3, 4), (2, 3)),
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (3, 1)),
]:

    def prelu(mx, data=data, gamma=gamma):
        x, slope = mx.nd.arange(3 - np.prod(data), 3).reshape(data), mx.nd.arange(1, 1 + np.prod(gamma)).reshape(gamma)
        x.attach_grad()
        slope.attach_grad()

        def run():
            with mx.autograd.record():
                y = mx.nd.LeakyReLU(x, slope, act_type="prelu")
            y.backward()
            return y.asnumpy()

        return [outcome(run), x.grad, slope.grad]

    prelu.__name__ = "prelu_%s_%s" % (data, gamma)
    program(prelu)
case("LeakyReLU", f(2, 3, 4, dtype="float16"), f(3, dtype="float16"), act_type="prelu")


@program
def dropout_modes(mx):
    x = mx.nd.ones((40, 50))
    results = []
    for train in (False, True):
        for mode in ("training", "always"):
            for axes in ((), (0,), (1,)):
                x.attach_grad()
                with mx.autograd.record(train_mode=train):
                    y = mx.nd.Dropout(x, p=0.5, mode=mode, axes=axes)
                y.backward()
                y = y.asnumpy()
                results += [str(set(y.ravel().tolist())), (y == y[:1]).all(), (y == y[:, :1]).all()]
                results.append((x.grad.asnumpy() == y).all())
    for how in (dict(p=-0.1), dict(p=1.1), dict(p=0), dict(axes=(2,)), dict(axes=(-1,)), dict(mode="never")):
        results.append(outcome(lambda how=how: str(mx.nd.Dropout(x, **how).asnumpy().shape)))
    return results
