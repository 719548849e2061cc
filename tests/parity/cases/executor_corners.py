"""Executors: gradients that are known to be zero, arrays that are shared or missing, classes drawn by a symbol."""

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def numbers(array):
    return None if array is None else array.asnumpy().round(4).tolist()


def trained(mx, symbol, grad_req="write", grads=None, heads=None):
    """Outputs and gradients, with 9 in the gradients before."""
    args = {name: mx.nd.array(np.arange(1, 4) + i) for i, name in enumerate(symbol.list_arguments())}
    grads = {name: mx.nd.full(value.shape, 9) for name, value in args.items()} if grads is None else grads
    executor = symbol.bind(mx.cpu(), args, args_grad=grads, grad_req=grad_req)
    outputs = executor.forward(is_train=True)
    executor.backward([mx.nd.ones(output.shape) for output in outputs] if heads is None else heads)
    gradients = sorted((name, numbers(grad)) for name, grad in executor.grad_dict.items())
    return [numbers(output) for output in outputs], gradients


@program
def gradients_known_to_be_zero(mx):
    s = mx.sym
    a, b = s.var("a"), s.var("b")
    steep = s.sqrt(a * 0)  # whose derivative is infinite
    results = {
        "blocked": trained(mx, s.BlockGrad(a) * b),
        "blocked and added": trained(mx, s.BlockGrad(a) * b, grad_req="add"),
        "blocked root": trained(mx, s.BlockGrad(steep) + b),
        "zeros_like": trained(mx, s.zeros_like(steep) * b),
        "ones_like": trained(mx, s.ones_like(steep) * b),
        "compared": trained(mx, (steep > 1) + b),
        "argmax": trained(mx, s.argmax(steep, axis=0) * s.sum(b), heads=[mx.nd.ones(1)]),
        "null": trained(mx, steep + b, grad_req={"b": "write"}),
        "steep": trained(mx, steep + b),
    }
    for name in ("floor", "ceil", "rint", "round", "fix", "trunc", "sign"):
        results[name] = trained(mx, getattr(s, name)(steep) + b)
    return results


@program
def gradients_of_equal_nodes(mx):
    s = mx.sym
    a = s.var("a")
    loss = s.MakeLoss(s.square(a))
    twice = s.Group([s.MakeLoss(s.square(a), name="x"), s.MakeLoss(s.square(a), name="y")])
    return [
        trained(mx, twice, heads=[]),
        trained(mx, s.Group([loss, loss]), heads=[]),
        trained(mx, s.exp(a) * s.exp(a)),
        trained(mx, s.Group([s.square(a, name="p"), s.square(a, name="q")])),
        sorted(s.Group([s.square(a, name="p"), s.square(a, name="q")]).simple_bind(mx.cpu(), a=(2,)).output_dict),
    ]


@program
def gradients_that_are_not_asked_for(mx):
    s, nd = mx.sym, mx.nd
    net = s.var("a") * s.var("b")
    plain = net.bind(mx.cpu(), {"a": nd.ones(3), "b": nd.ones(3)})
    late = net.bind(mx.cpu(), {"a": nd.ones(3), "b": nd.ones(3)}, args_grad={"a": nd.ones(3) * 7})
    late.forward(is_train=False)
    late.backward(nd.ones(3))
    return [
        trained(mx, net, grads={}),
        trained(mx, net, grads={"a": nd.ones(3)}),
        trained(mx, net, grads=[None, nd.ones(3)]),
        trained(mx, net, grads={"a": nd.ones(3), "other": nd.ones(3)}),
        trained(mx, net, grad_req=["write", "null"]),
        trained(mx, net, grad_req={"a": "write"}),
        outcome(lambda: trained(mx, net, grad_req="x")),
        str(plain.grad_arrays),
        str(plain.backward(nd.ones(3))),
        numbers(late.grad_dict["a"]),
        outcome(lambda: net.bind(mx.cpu(), {"a": nd.ones(3)})),
        outcome(lambda: net.bind(mx.cpu(), [nd.ones(3)])),
    ]


@program
def memory_that_reshape_shares(mx):
    nd = mx.nd
    net = mx.sym.FullyConnected(mx.sym.var("a"), num_hidden=2, name="fc")
    whole = net.simple_bind(mx.cpu(), a=(4, 3))
    whole.arg_dict["a"][:] = nd.arange(12).reshape((4, 3))
    small = whole.reshape(a=(2, 3))
    results = [numbers(small.arg_dict["a"])]
    small.arg_dict["a"][:] = 7
    small.arg_dict["fc_weight"][:] = 5
    small.grad_dict["fc_weight"][:] = 4
    small.grad_dict["a"][:] = 3
    results += [numbers(whole.arg_dict[name]) for name in ("a", "fc_weight")]
    results += [numbers(whole.grad_dict[name]) for name in ("a", "fc_weight")]
    large = whole.reshape(a=(8, 3), allow_up_sizing=True)
    large.arg_dict["fc_weight"][:] = 9
    narrow = whole.reshape(partial_shaping=True, a=(4, 2))
    narrow.arg_dict["fc_weight"][:] = 3
    results += [large.arg_dict["a"].shape, narrow.arg_dict["fc_weight"].shape, numbers(whole.arg_dict["fc_weight"])]
    results += [outcome(lambda: whole.reshape(a=(8, 3))), outcome(lambda: whole.reshape(a=(4, 2)))]
    results += [outcome(lambda: whole.reshape(other=(4, 2))), numbers(small.forward()[0]), whole.outputs[0].shape]
    return results + [whole.reshape(a=(2, 3, 1), partial_shaping=True).arg_dict["a"].shape]


@program
def memory_that_executors_share(mx):
    net = mx.sym.var("a") * mx.sym.var("b")
    first = net.simple_bind(mx.cpu(), a=(3,), b=(3,))
    shared = net.simple_bind(mx.cpu(), a=(3,), shared_exec=first, shared_arg_names=["b"], shared_buffer={})
    alone = net.simple_bind(mx.cpu(), a=(3,), shared_exec=first)
    first.arg_dict["a"][:], first.arg_dict["b"][:] = 4, 5
    results = [numbers(each.arg_dict[name]) for each in (shared, alone) for name in ("a", "b")]
    dtypes = net.simple_bind(mx.cpu(), a=(3,), type_dict={"a": "float64"}).arg_arrays
    return results + [
        [str(np.dtype(array.dtype)) for array in dtypes],
        str(net.simple_bind(mx.cpu(), a=(3,), grad_req="null").grad_arrays),
        [numbers(grad) for grad in net.simple_bind(mx.cpu(), a=(3,), grad_req={"a": "write"}).grad_arrays],
        outcome(lambda: net.simple_bind(mx.cpu())),
        outcome(lambda: net.simple_bind(mx.cpu(), a=(2,), shared_exec=first, shared_arg_names=["b"], shared_buffer={})),
    ]


@program
def classes_drawn_by_a_symbol(mx):
    with mx.name.NameManager():
        drawn = mx.sym.contrib.rand_zipfian(mx.sym.var("true"), 4, 10)
    net = mx.sym.Group(list(drawn))
    outputs = net.bind(mx.cpu(), {"true": mx.nd.array([1, 2])}).forward()
    sampled, expected = outputs[0].asnumpy(), outputs[2].asnumpy()
    right = np.log((sampled + 2.0) / (sampled + 1.0)) / np.log(11) * 4
    return [
        net.tojson(),
        [(output.shape, str(np.dtype(output.dtype))) for output in outputs],
        outputs[1],
        bool(((sampled >= 0) & (sampled < 10)).all() and np.allclose(expected, right)),
    ]
