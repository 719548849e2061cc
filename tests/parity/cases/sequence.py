"""Sequences of different lengths in one batch."""

import numpy as np

from parity.spec import const, f, family, ints, outcome

case, program = family(__name__)


def zeros(mx, shape):
    return mx.nd.array(np.zeros(shape))


def ones(mx, shape):
    return mx.nd.array(np.ones(shape))


for _name in ("SequenceMask", "SequenceLast", "SequenceReverse"):
    case(_name, f(4, 3, 2), _grad=_name != "SequenceLast")  # whose backward crashes MXNet without lengths
    case(_name, f(4, 3, 2), const([2, 4, 1]), use_sequence_length=True)
    case(_name, f(4, 3), const([2, 4, 1]), use_sequence_length=True)
    case(_name, f(4, 3, 2, 2), const([1.5, 2.7, 3.2]), use_sequence_length=True)
    case(_name, f(4, 3, 2), const([1, 2, 3], "int32"), use_sequence_length=True)
    case(_name, f(4, 3, 2, dtype="float64"), const([1, 2, 3], "float64"), use_sequence_length=True)
    case(_name, ints(4, 3, 2, dtype="int32"), const([1, 2, 3]), use_sequence_length=True, _grad=False)
case("SequenceMask", f(4, 3, 2), const([0, 2, 9]), use_sequence_length=True)
case("SequenceMask", f(4, 3, 2), const([0, 2, 3]), use_sequence_length=True, value=-2.5)
case("SequenceMask", f(3, 4, 2), const([1, 2, 3]), use_sequence_length=True, axis=1, value=1)
case("SequenceMask", f(3, 4, 2), axis=1)
case("SequenceMask", ints(3, 2, dtype="int32"), const([1, 2]), use_sequence_length=True, value=-1.5, _grad=False)
case("SequenceLast", f(3, 4, 2), const([1, 2, 4]), use_sequence_length=True, axis=1)
case("SequenceLast", f(3, 4), axis=1, _grad=False)
# SequenceReverse reads foreign memory for a length beyond the data; SequenceLast for that and for 0.


@program
def sequence_refusals(mx):
    nd = mx.nd
    x, lengths = zeros(mx, (4, 3, 2)), nd.array([1, 2, 3])
    calls = []
    for op in (nd.SequenceMask, nd.SequenceLast, nd.SequenceReverse):
        calls += [
            lambda op=op: op(x, lengths),
            lambda op=op: op(x, use_sequence_length=True),
            lambda op=op: op(x, nd.array([1, 2]), use_sequence_length=True),
            lambda op=op: op(x, lengths, use_sequence_length=True, axis=2),
            lambda op=op: op(zeros(mx, 4), nd.array([1]), use_sequence_length=True),
        ]
    calls.append(lambda: nd.SequenceReverse(x, ones(mx, 4), use_sequence_length=True, axis=1))
    return [str(outcome(lambda call=call: call().asnumpy().shape)) for call in calls]
