"""Softmax and its relatives."""

from parity.spec import const, f, family, ints

case, program = family(__name__)

for name in ("softmax", "log_softmax", "softmin"):
    case(name, f(3, 4, lo=-5, hi=5))
    for axis in (0, 1, -2):
        case(name, f(2, 3, 4), axis=axis)
    case(name, f(2, 3, 4), temperature=2.0)
    case(name, f(2, 3, 4), temperature=0.3, axis=1, _train=False)
    case(name, f(4), _factor=4)  # as below
    case(name, const([[100.0, 0.0, -100.0]]), _factor=4)  # MXNet's logarithm of 1 is 1.4e-6
    case(name, f(2, 3, dtype="float64"))
    case(name, f(2, 3), dtype="float64")
    # float16: MXNet sums in it
    case(name, f(2, 3, dtype="float16"))
    case(name, f(2, 3, dtype="float16"), dtype="float32")
    case(name, f(2, 3), dtype="float16")

# Lengths stay within the axis: beyond it MXNet writes to memory that is not its own.
case("softmax", f(2, 3, 4), const([[1, 2, 3], [4, 0, 4]], "int32"), use_length=True)
case("softmax", f(2, 3, 4), const([[1, 2, 3], [4, 0, 4]], "int64"), use_length=True, temperature=0.5)
case("softmax", f(2, 3, 4), const([[1, 2, 3, 0], [3, 1, 2, 2]], "int32"), use_length=True, axis=1)
case("softmax", f(2, 3), const([2, 3], "int32"), use_length=True, axis=-1, _train=False)

case("SoftmaxActivation", f(2, 3, 4), _grad=False)  # MXNet's gradient is along another axis than its output
for mode, shape in (("instance", (3, 4)), ("channel", (2, 3, 4)), ("channel", (2, 3, 2, 2))):
    case("SoftmaxActivation", f(*shape), mode=mode)

case("softmax_cross_entropy", f(4, 5), ints(4), _grad=(0,))
case("softmax_cross_entropy", f(4, 5, dtype="float64"), ints(4, dtype="float64"), _grad=(0,))
# No labels beyond the classes: MXNet reads what lies there in memory.
case("softmax_cross_entropy", const([[100.0, 0.0]]), const([1]), _grad=(0,))
