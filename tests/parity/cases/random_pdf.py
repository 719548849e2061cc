"""Densities. MXNet does not look at a distribution's support, so samples stay within it."""

from ..spec import const, f, family, ints, outcome

case, program = family(__name__)

positive = {"lo": 0.2, "hi": 2.5}
inner = {"lo": 0.2, "hi": 0.8}

for is_log in (False, True):
    for shape in ((3,), (3, 4), (2, 3, 2)):
        param = shape[: max(1, len(shape) - 1)]
        case("_random_pdf_uniform", f(*shape), f(*param, lo=-3, hi=-1), f(*param, lo=1, hi=4), is_log=is_log)
        case("_random_pdf_normal", f(*shape), f(*param), f(*param, **positive), is_log=is_log)
        case("_random_pdf_gamma", f(*shape, **positive), f(*param, **positive), f(*param, **positive), is_log=is_log)
        case("_random_pdf_exponential", f(*shape, **positive), f(*param, **positive), is_log=is_log)
        case("_random_pdf_poisson", ints(*shape), f(*param, **positive), is_log=is_log)
        case("_random_pdf_negative_binomial", ints(*shape), f(*param, **positive), f(*param, **inner), is_log=is_log)
        case(
            "_random_pdf_generalized_negative_binomial",
            ints(*shape),
            f(*param, **positive),
            f(*param, **inner),
            is_log=is_log,
            _factor=4,  # differences of logarithms of the gamma function
        )
    parts = [[[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], [[0.4, 0.4, 0.2], [0.7, 0.2, 0.1]]]
    case("_random_pdf_dirichlet", const(parts), f(2, 3, **positive), is_log=is_log)
    case("_random_pdf_dirichlet", const(parts), f(2, 2, 3, **positive), is_log=is_log)
    case("_random_pdf_dirichlet", const(parts[0][0]), f(3, **positive), is_log=is_log)

case("_random_pdf_normal", f(2, 3, dtype="float64"), f(2, dtype="float64"), f(2, dtype="float64", **positive))
case(
    "_random_pdf_normal",
    f(2, 3, dtype="float16"),
    f(2, dtype="float16"),
    f(2, dtype="float16", **positive),  # half precision
)


@program
def wrong_shapes(mx):
    a, b = mx.nd.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]), mx.nd.array([1.0, 2.0, 3.0])
    c = mx.nd.array([1.0, 2.0], dtype="float64")
    return [
        outcome(lambda: mx.nd.random_pdf_normal(a, b, b).asnumpy()),
        outcome(lambda: mx.nd.random_pdf_normal(a, c, c).asnumpy()),
        outcome(lambda: mx.nd.random_pdf_normal(b, a, a).asnumpy()),
    ]
