"""Activations, dropout and Embedding."""

from parity.spec import const, f, family, ints

case, program = family(__name__)

EDGES = [[-30.0, -5.0, -1.0, -0.25, 0.0], [0.25, 1.0, 5.0, 19.0, 30.0]]

for act_type in ("relu", "sigmoid", "softrelu", "softsign", "tanh"):
    case("Activation", const(EDGES), act_type=act_type)
    case("Activation", f(2, 3, 4, lo=-4, hi=4), act_type=act_type, _train=False)
    case("Activation", f(3, 4, dtype="float64"), act_type=act_type)
    # float16: MXNet rounds on the way
    case("Activation", f(3, 4, dtype="float16"), act_type=act_type)

for act_type in ("leaky", "elu", "selu", "gelu"):
    case("LeakyReLU", const(EDGES), act_type=act_type)
    case("LeakyReLU", f(2, 3, 4, lo=-4, hi=4), act_type=act_type, slope=0.7, _train=False)
    case("LeakyReLU", f(3, 4, dtype="float64"), act_type=act_type)
    case("LeakyReLU", f(3, 4, dtype="float16"), act_type=act_type)  # as above
case("LeakyReLU", const(EDGES), slope=-0.5)
case("LeakyReLU", f(2, 3, 4), f(3), act_type="prelu")
case("LeakyReLU", f(2, 3, 4), f(1, 3), act_type="prelu")
case("LeakyReLU", f(2, 3, 4, 2), f(1), act_type="prelu", _train=False)
case("LeakyReLU", const(EDGES), f(5), act_type="prelu")
case("LeakyReLU", f(3), f(3), act_type="prelu")
case("LeakyReLU", f(3), f(1), act_type="prelu")


@program
def rrelu_in_predict_mode(mx):
    # MXNet crashes in train mode, and its second output and gradient in predict mode are memory left uninitialised.
    x = mx.nd.array(EDGES)
    return [
        mx.nd.LeakyReLU(x, act_type="rrelu")[0],
        mx.nd.LeakyReLU(x, act_type="rrelu", lower_bound=0.5, upper_bound=0.7)[0],
    ]


case("Dropout", f(3, 4), p=0.5, _train=False)
case("Dropout", f(3, 4), p=0.5, axes=(0,), _train=False)
case("Dropout", f(3, 4), p=0.0)
case("Dropout", f(3, 4), p=0.0, mode="always")
case("Dropout", f(3, 4, dtype="float64"), p=1.0, _train=False)


@program
def dropout_gives_memory_of_its_own(mx):
    x = mx.nd.array([1.0, 2.0])
    y = mx.nd.Dropout(x)
    y[:] = 0
    return [x, y]


case("Embedding", ints(2, 3), f(5, 4), input_dim=5, output_dim=4, _grad=(1,))
case("Embedding", const([-1, -7, 5, 100, 1.7, -0.5, 4.99]), f(5, 2), input_dim=5, output_dim=2, _grad=(1,))
case("Embedding", const([1, 1, 1, 0]), f(3, 2), input_dim=3, output_dim=2, _grad=(1,), _train=False)
for dtype in ("int32", "int64", "uint8", "int8", "float16", "float64"):
    case("Embedding", ints(2, 3, dtype=dtype), f(5, 4), input_dim=5, output_dim=4, _grad=(1,))
case("Embedding", const([-1, 6, 2], "int32"), f(5, 2), input_dim=5, output_dim=2, _grad=(1,))
case("Embedding", const([-1, 6, 2], "int64"), f(5, 2), input_dim=5, output_dim=2, _grad=(1,))
case("Embedding", ints(3), f(5, 2, dtype="float64"), input_dim=5, output_dim=2, dtype="float64", _grad=(1,))
case("Embedding", ints(3), f(5, 2, dtype="float16"), input_dim=5, output_dim=2, dtype="float16", _grad=(1,))
case("Embedding", ints(3), f(5, 2), input_dim=5, output_dim=2, dtype="float16", _grad=False)
case("Embedding", ints(3), ints(5, 2, dtype="int32"), input_dim=5, output_dim=2, dtype="int32", _grad=False)
case("Embedding", ints(3), f(5, 2), input_dim=5, output_dim=2, sparse_grad=True, _grad=False)
