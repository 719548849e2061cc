"""Ops of no other family. fft, ifft and count_sketch, which MXNet has for GPUs alone: tests/contrib/test_contrib.py."""

from parity.spec import const, f, family, ints

case, program = family(__name__)

# The state's gradient is 0; MXNet refuses one of the times.
GRAD = (0, 1, 2, 3)
RATES = (f(2, 3, lo=0.5, hi=2), f(3, lo=0.1, hi=0.9), f(3, lo=0.5, hi=2))
EVENTS = (f(2, 5, lo=0.1), ints(2, 5, hi=3, dtype="int32"))
NONE = const([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
END = const([6.0, 7.5])
for state in (NONE, f(2, 3, lo=0)):
    for lengths in ([5, 3], [5, 5], [1, 0]):
        case("_contrib_hawkesll", *RATES, state, *EVENTS, const(lengths), END, _grad=GRAD)
case(
    "_contrib_hawkesll",
    f(1, 1, lo=0.5, hi=2),
    f(1, lo=0),
    f(1, lo=0.5),
    f(1, 1, lo=0),
    f(1, 4, lo=0.1),
    const([[0, 0, 0, 0]], "int32"),
    const([4]),
    const([8.0]),
    _grad=GRAD,
)


@program
def copyto(mx):
    source, target = mx.nd.array([[1.0, 2.0], [3.0, 4.0]]), mx.nd.array([[0.0, 0.0], [0.0, 0.0]])
    returned = mx.nd._internal._copyto(source, out=target)
    source[:] = 5
    return [target, returned is target]
