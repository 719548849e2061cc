"""CTCLoss. MXNet reads past its buffers for labels or lengths out of range, and refuses float16 and float64."""

from ..spec import const, f, family, outcome

case, program = family(__name__)

DATA = {"_grad": (0,)}

case("CTCLoss", f(5, 2, 4), const([[1, 2, 0], [3, 0, 0]]), **DATA)
case("CTCLoss", f(5, 2, 4), const([[1, 2, 0], [3, 0, 0]], "int32"), **DATA)
case("CTCLoss", f(5, 2, 4), const([[1, 0, 2], [2, 2, 3]]), **DATA)
case("CTCLoss", f(5, 2, 4), const([[0, 0, 0], [3, 3, 3]]), **DATA)
case("CTCLoss", f(5, 2, 4), const([[1, 2, -1], [0, -1, -1]]), blank_label="last", **DATA)
case("CTCLoss", f(5, 2, 4), const([[1, 0, 2], [0, -1, 2]]), blank_label="last", **DATA)
case("CTCLoss", f(5, 2, 4), const([[1, 2, 0], [3, 0, 0]]), const([3, 5]), use_data_lengths=True, **DATA)
case("CTCLoss", f(5, 2, 4), const([[1, 2, 3], [3, 1, 1]]), const([2, 1]), use_label_lengths=True, **DATA)
case(
    "CTCLoss",
    f(5, 2, 4),
    const([[1, 2, 0], [0, 1, 1]]),
    const([3, 4]),
    const([2, 1]),
    use_data_lengths=True,
    use_label_lengths=True,
    blank_label="last",
    **DATA,
)
case("CTCLoss", f(20, 3, 6, lo=-4, hi=4), const([[1, 2, 3, 4, 5], [5, 5, 1, 0, 0], [2, 1, 2, 1, 0]]), **DATA)


@program
def wrong_shapes(mx):
    x, y = mx.nd.array([[[0.1, 0.2], [0.3, 0.4]]] * 3), mx.nd.array([[1, 0], [1, 1]])
    return [
        outcome(lambda: mx.nd.CTCLoss(x[0], y).asnumpy()),
        outcome(lambda: mx.nd.CTCLoss(x, y[:1]).asnumpy()),
        outcome(lambda: mx.nd.CTCLoss(x, y[0]).asnumpy()),
        outcome(lambda: mx.nd.CTCLoss(x[:1], y).asnumpy()),
        outcome(lambda: mx.nd.CTCLoss(x, y, mx.nd.array([1, 1])).asnumpy()),
        mx.nd.ctc_loss(x, y, label_lengths=mx.nd.array([1, 2]), use_label_lengths=True),
        mx.nd.contrib.ctc_loss(x, y),
    ]
