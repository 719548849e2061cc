"""Model parallelism: where the parts of a graph lie, and that their numbers are those of one device."""

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def contexts(mx):
    return {"dev1": mx.cpu(1), "dev2": mx.cpu(2)}


def inside(mx, group, make):
    with mx.AttrScope(ctx_group=group):
        return make()


def filled(arrays):
    """Values that do not depend on where the arrays lie."""
    rng = np.random.RandomState(3)
    for array in arrays:
        array[:] = rng.uniform(-1, 1, array.shape)


def places(bound):
    """The context of every array of an executor, as text."""
    names = bound._symbol.list_arguments()
    grads = ["-" if g is None else str(g.context) for g in bound.grad_arrays]
    return str(
        [
            list(zip(names, [str(a.context) for a in bound.arg_arrays], grads)),
            [str(a.context) for a in bound.aux_arrays],
            [str(o.context) for o in bound.outputs],
        ]
    )


def trained(bound):
    """Places, outputs and gradients of one step."""
    filled(bound.arg_arrays)
    bound.forward(is_train=True)
    bound.backward([mx_ones_like(o) for o in bound.outputs])
    return [places(bound), *bound.outputs, *(g for g in bound.grad_arrays if g is not None)]


def mx_ones_like(array):
    return array * 0 + 1


def where(mx, symbol, **shapes):
    """Where each output of each node is when nothing asks for gradients."""
    internals = symbol.get_internals()
    given = {name: (2, 2) for name in symbol.list_arguments()}
    given.update(shapes)
    bound = internals.simple_bind(mx.cpu(5), grad_req="null", group2ctx=contexts(mx), **given)
    filled(bound.arg_arrays)
    return [str([str(o.context) for o in bound.forward()]), *bound.outputs]


@program
def layers_in_two_groups(mx):
    net = inside(mx, "dev1", lambda: mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, name="first"))
    last = inside(mx, "dev2", lambda: mx.sym.FullyConnected(net, num_hidden=2, name="last"))
    both = mx.sym.Group([last, net])
    return trained(both.simple_bind(mx.cpu(), group2ctx=contexts(mx), x=(4, 5)))


@program
def states_lie_with_their_op(mx):
    net = inside(mx, "dev1", lambda: mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, name="first"))
    net = inside(mx, "dev2", lambda: mx.sym.BatchNorm(net, name="bn", fix_gamma=False))
    bound = net.simple_bind(mx.cpu(), group2ctx=contexts(mx), x=(4, 5))
    return [*trained(bound), *bound.aux_arrays]


@program
def an_op_in_no_group_runs_where_its_first_input_is(mx):
    u, v = mx.sym.var("u"), mx.sym.var("v", attr={"ctx_group": "dev1"})
    first = inside(mx, "dev1", lambda: u * 2)
    second = inside(mx, "dev2", lambda: u * 3)
    results = []
    for symbol in (u + v, v + u, first * 3, first + second, second + first, (u * 2 + v) * 3, mx.sym.zeros((2, 2)) + v):
        results += where(mx, symbol)
    return results


@program
def spellings_of_the_group(mx):
    x = mx.sym.var("x")
    by_attr = mx.sym.broadcast_add(x, x, attr={"ctx_group": "dev2"})
    by_long_attr = mx.sym.broadcast_add(x, x, attr={"__ctx_group__": "dev2"})
    with mx.AttrScope(__ctx_group__="dev1"):
        by_long_scope = x + 1
    with mx.AttrScope(ctx_group="dev1"):
        with mx.AttrScope(ctx_group="dev2"):
            nested = x + 1
        after = x + 2
    read_again = mx.sym.load_json(nested.tojson())
    results = []
    for symbol in (by_attr, by_long_attr, by_long_scope, nested, after, read_again):
        results += where(mx, symbol)
    return results


@program
def groups_without_contexts(mx):
    net = inside(mx, "dev1", lambda: mx.sym.var("x") * 2)
    return [
        places(net.simple_bind(mx.cpu(3), x=(2,))),
        places(net.simple_bind(mx.cpu(3), x=(2,), group2ctx={})),
        outcome(lambda: net.simple_bind(mx.cpu(3), x=(2,), group2ctx={"dev2": mx.cpu(1)})),
        outcome(lambda: net.simple_bind(mx.cpu(), x=(2,), group2ctx={"dev1": mx.cpu(1), "unused": mx.cpu(2)}) and 1),
    ]


@program
def arrays_given_to_bind_stay_where_they_are(mx):
    y = mx.sym.var("y")
    grouped = inside(mx, "dev1", lambda: y * 2)
    array = mx.nd.array([1, 2], ctx=mx.cpu(4))
    results = []
    for symbol in (grouped, y * 2, grouped * 3):
        bound = symbol.bind(mx.cpu(), [array], grad_req="null", group2ctx=contexts(mx))
        (out,) = bound.forward()
        results += [str(out.context), str(bound.arg_arrays[0].context), out]
    results.append(outcome(lambda: (y * 2).bind(mx.cpu(), [array])))
    return results


@program
def reshaped(mx):
    net = inside(mx, "dev1", lambda: mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, name="first"))
    net = inside(mx, "dev2", lambda: mx.sym.tanh(net))
    bound = net.simple_bind(mx.cpu(), group2ctx=contexts(mx), x=(4, 5))
    return trained(bound.reshape(x=(2, 5)))


@program
def matrix_factorisation(mx):
    """Embeddings on one context, layers on another; every step's loss and the weights at the end."""
    with mx.AttrScope(ctx_group="dev1"):
        user = mx.sym.Embedding(mx.sym.var("user"), input_dim=20, output_dim=8, name="user_factors")
        item = mx.sym.Embedding(mx.sym.var("item"), input_dim=15, output_dim=8, name="item_factors")
    with mx.AttrScope(ctx_group="dev2"):
        user = mx.sym.FullyConnected(mx.sym.relu(user), num_hidden=6, name="user_layer")
        item = mx.sym.FullyConnected(mx.sym.relu(item), num_hidden=6, name="item_layer")
        score = mx.sym.Flatten(mx.sym.sum(user * item, axis=1))
        net = mx.sym.LinearRegressionOutput(score, mx.sym.var("score"), name="out")
    reqs = {n: "null" if n in ("user", "item", "score") else "write" for n in net.list_arguments()}
    bound = net.simple_bind(mx.cpu(), grad_req=reqs, group2ctx=contexts(mx), user=(10,), item=(10,), score=(10,))
    filled(bound.arg_arrays)
    rng, losses = np.random.RandomState(5), []
    users, items = rng.randint(0, 20, (6, 10)), rng.randint(0, 15, (6, 10))
    scores = np.sin(users) * np.cos(items)
    optimizer = mx.optimizer.SGD(learning_rate=0.02, momentum=0.9)
    update = mx.optimizer.get_updater(optimizer)
    for step in range(12):
        batch = step % 6
        out = bound.forward(
            is_train=True,
            user=mx.nd.array(users[batch]),
            item=mx.nd.array(items[batch]),
            score=mx.nd.array(scores[batch]),
        )[0].asnumpy()
        losses.append(float(((out.ravel() - scores[batch]) ** 2).mean()))
        bound.backward()
        for i, (weight, grad) in enumerate(zip(bound.arg_arrays, bound.grad_arrays)):
            if grad is not None:
                update(i, grad, weight)
    return [places(bound), np.array(losses), *bound.arg_arrays]
