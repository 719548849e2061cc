"""Derivatives of derivatives, of every op of one array for which MXNet has them; gradients that are constant or that
go through integers.

MXNet's second derivatives of arcsinh and arccosh have the wrong sign, so these two are not here.
"""

from parity.spec import family, outcome

case, program = family(__name__)

EVERYWHERE, INSIDE, ABOVE = [-1.3, -0.4, 0.3, 0.9, 2.1], [-0.9, -0.2, 0.1, 0.5, 0.7], [1.1, 1.7, 2.5, 4.0, 9.0]
UNARY = {
    **dict.fromkeys(
        "BlockGrad abs arctan cbrt ceil cos cosh exp expm1 fix floor logical_not make_loss ones_like radians relu rint"
        " round sigmoid sin sinh square tan tanh trunc zeros_like".split(),
        EVERYWHERE,
    ),
    **dict.fromkeys("arccos arcsin arctanh".split(), INSIDE),
    **dict.fromkeys("log log10 log1p log2 rcbrt reciprocal rsqrt sqrt".split(), ABOVE),
}


def derivatives(mx, function, values, times_x):
    """A function of an array, its derivative, and the derivative of that, or of x times that."""
    x = mx.nd.array(values)
    x.attach_grad()
    x.grad[:] = 7  # is overwritten, also with zeros
    with mx.autograd.record(train_mode=False):
        y = function(x)
        (first,) = mx.autograd.grad(y, [x], create_graph=True, retain_graph=True)
        z = first * x if times_x else first * 2
    z.backward()
    return [y, first, x.grad]


def enter(name, function, values):
    def run(mx):
        return derivatives(mx, lambda x: function(mx.nd, x), values, False) + derivatives(
            mx, lambda x: function(mx.nd, x), values, True
        )

    run.__name__ = name
    program(run)


for _name, _values in UNARY.items():
    enter("second_derivative_of_" + _name, lambda nd, x, name=_name: getattr(nd, name)(x), _values)
enter("second_derivative_of_clip", lambda nd, x: nd.clip(x, -1, 1), EVERYWHERE)
enter("second_derivative_of_argmax", lambda nd, x: nd.argmax(x, axis=0), EVERYWHERE)
enter("second_derivative_of_dropout_in_predict_mode", lambda nd, x: nd.Dropout(x, p=0.5), EVERYWHERE)


@program
def linear_functions_times_x(mx):
    functions = [
        lambda x: x + 2,
        mx.nd.identity,
        mx.nd.contrib.round_ste,
        lambda x: mx.nd.add_n(x, x, x),
        lambda x: mx.nd.gather_nd(x, mx.nd.array([[0, 1, 2, 3, 4]])),
        lambda x: x.astype("float64").astype("float32"),
        lambda x: x.astype("float16").astype("float32"),
        lambda x: x.astype("int32").astype("float32"),
    ]
    return [result for function in functions for result in derivatives(mx, function, EVERYWHERE, True)]


@program
def grad_of_constants_is_zero(mx):
    functions = [
        lambda x: x > 0,
        lambda x: x == x,
        lambda x: (x > 0) * 3,
        mx.nd.BlockGrad,
        mx.nd.zeros_like,
        lambda x: mx.nd.one_hot(x, 4),
        lambda x: mx.nd.topk(x, ret_typ="mask"),
        lambda x: mx.nd.broadcast_like(mx.nd.ones(1), x),
        lambda x: mx.nd.reshape_like(mx.nd.ones(3), x),
        lambda x: mx.nd.pick(mx.nd.ones((3, 4)), x),
        lambda x: mx.nd.sample_normal(x, mx.nd.ones(3)),
        lambda x: mx.nd.contrib.arange_like(x),
        lambda x: mx.nd.where(mx.nd.zeros(3), x, mx.nd.ones(3)),
    ]
    results = []
    for function in functions:
        x, other = mx.nd.array([-1.0, 2.0, 3.0]), mx.nd.ones(3)
        x.attach_grad()
        other.attach_grad()
        with mx.autograd.record():
            y = function(x)
        results += [
            mx.autograd.grad(y, [x], retain_graph=True)[0],
            outcome(lambda y=y, other=other: mx.autograd.grad(y, [other], retain_graph=True)[0]),
        ]
    return results


@program
def gradients_through_integers(mx):
    results = []
    for through in (
        ["int32"],
        ["uint8"],
        ["int64"],
        ["bool"],
        ["int64", "int8"],
        ["float16", "int32"],
        ["int32", "float64"],
    ):
        x = mx.nd.array([-1.5, 2.7, 3.2])
        x.attach_grad()
        with mx.autograd.record():
            y = mx.nd.abs(x)
            for dtype in through:
                y = y.astype(dtype)
            y = y.astype("float32") * 2.5 * x
        y.backward()
        results += [y, x.grad]
    return results


@program
def integers_are_constants_after_backward(mx):
    x = mx.nd.array([-1.5, 2.7, 3.2])
    x.attach_grad()
    with mx.autograd.record():
        integers = (x * 2).astype("int32")
        y = integers.astype("float32") * x
    y.backward()
    results = [x.grad.copy()]
    with mx.autograd.record():
        y = integers.astype("float32") * x
    y.backward()
    return [*results, x.grad, integers.astype("float32") * x]
