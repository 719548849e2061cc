"""Scopes of names and attributes, mx.util's shapes, mx.contrib.autograd."""

import importlib

from parity.spec import family, outcome

case, program = family(__name__)


def attributes(symbol):
    return sorted((name, sorted(of.items())) for name, of in symbol.attr_dict().items())


@program
def attribute_scopes(mx):
    scope = mx.attribute.AttrScope
    outer, results = scope(ctx_group="g", lr_mult="2"), []
    with outer:
        with scope(ctx_group="h", __x__="y") as inner:
            data = mx.sym.var("data", lr_mult=3)
            results += [scope.current is inner, inner.get({"__x__": "q", "z": "1"}), attributes(data)]
            net = mx.sym.FullyConnected(data, num_hidden=3, name="fc", attr={"__mood__": "so"})
            results += [attributes(net), net.tojson()]
        results += [inner.get(None), scope.current is outer, attributes(mx.sym.var("b"))]
    results += [outer.get(None), scope.current.get(None), scope().get({}), attributes(mx.sym.var("c"))]
    return results + [outcome(lambda: scope(x=1)), outcome(lambda: mx.sym.var("a", attr={"x": 1}))]


@program
def names_by_managers(mx):
    manager, prefix = mx.name.NameManager, mx.name.Prefix

    class Mine(manager):
        def get(self, name, hint):
            return "mine_" + super().get(name, hint)

    def dense(**kwargs):
        return mx.sym.FullyConnected(mx.sym.var("q"), num_hidden=1, **kwargs)

    with manager() as names:
        results = [names.get(None, "fc"), names.get(None, "fc"), names.get("", "fc"), names.get("a", "fc")]
        results += [manager.current is names, dense().name]
        with prefix("pre_") as before:
            results += [before.get(None, "fc"), before.get("x", "fc"), dense().name, mx.sym.var("q").name]
            results += [dense(name="me").list_arguments()]
            with prefix("b_"):
                results.append((mx.sym.var("x") + 1).name)
            results.append((mx.sym.var("x") + 1).name)
        with names:
            results.append(names.get(None, "fc"))
        with Mine():
            results.append((mx.sym.var("x") + 1).name)
        return results + [manager.current is names, dense().name]


@program
def shapes_as_numpy_has_them(mx):
    x, y = mx.nd.arange(3), mx.nd.ones((2, 3))
    results = [mx.is_np_shape(), mx.is_np_array(), x[0].shape]
    with mx.np_shape():
        arrays = [x[0], y[0, 1], x[0] + 1, y[1][1], x.sum(), y.mean(axis=(0, 1)), mx.nd.dot(x, x), x.max()]
        arrays += [x[mx.nd.array([0])], x[0].reshape(1), mx.nd.zeros((0, 3)), mx.nd.zeros(()), y[0:0]]
        arrays += [mx.nd.concat(y, mx.nd.zeros((0, 3)), dim=0), mx.nd.array([[1, 2]])[0, 0]]
        results += [[array.shape for array in arrays], x[2].asscalar(), mx.is_np_shape()]
        with mx.np_shape(False):
            results.append(x[0].shape)
    before = mx.set_np_shape(True)
    return results + [before, mx.is_np_shape(), mx.set_np_shape(False), mx.is_np_shape(), x[0].shape]


@program
def scalars_under_np_shape(mx):
    x, one = mx.nd.array([[1, 2, 3], [4, 5, 6.0]]), mx.nd.array([7.0])
    random = mx.nd.random
    with mx.np_shape():
        index, filled = mx.nd.ones(()), mx.nd.full((), 2)
        index[:] = 1
        drawn = [random.uniform(shape=()), random.normal(shape=()), random.gamma(shape=()), random.poisson(shape=())]
        drawn += [random.exponential(shape=()), random.randint(0, 5, shape=()), random.uniform(shape=(0, 2))]
        arrays = [mx.nd.take(x, index), mx.nd.take(x[0], index), mx.nd.take(x, index, axis=1), filled, one.reshape(())]
        arrays += [*mx.nd.split(x[0], 3, axis=0, squeeze_axis=True), index.reshape((1, 1))]
        shapes = [array.shape for array in drawn + arrays]
        values = [array.asnumpy() for array in arrays]
        refused = [outcome(lambda: x.reshape(())), outcome(lambda: one.reshape(shape=()))]
    refused += [outcome(lambda: one.reshape()), outcome(lambda: random.uniform(shape=()))]
    return [*values, shapes, one.reshape(()).shape, refused]


@program
def decorated_for_shapes(mx):
    @mx.util.use_np_shape
    class Reader:
        at_start = None

        def __init__(self):
            self.at_start = mx.is_np_shape()

        def method(self):
            return mx.is_np_shape()

        @property
        def attribute(self):
            return mx.is_np_shape()

    class Child(Reader):
        def own(self):
            return mx.is_np_shape()

    child = Child()
    results = [child.at_start, child.method(), child.attribute, child.own(), mx.is_np_shape()]
    refused = [outcome(lambda: mx.util.use_np(3)), outcome(lambda: mx.util.use_np_shape(3))]
    return results + refused + [outcome(lambda: mx.util.set_np(shape=False)), outcome(lambda: mx.set_np_shape("on"))]


@program
def bulk_sizes(mx):
    first = mx.engine.set_bulk_size(10)
    with mx.engine.bulk(3):
        inside = mx.engine.set_bulk_size(4)
    return [first, inside, mx.engine.set_bulk_size(0)]


@program
def gradients_of_the_first_autograd(mx):
    old, now = importlib.import_module(mx.__name__ + ".contrib.autograd"), mx.autograd
    x, g = mx.nd.array([1, 2, 3.0]), mx.nd.zeros(3)
    modes, results = [], []

    def look():
        modes.append((now.is_recording(), now.is_training()))

    for state in (True, False):
        modes.append(old.set_is_training(state))
        look()
    with old.train_section():
        look()
        with old.test_section():
            look()
        look()
    look()
    old.mark_variables([x], [g])
    for heads in (None, [mx.nd.array([1, 0, 2.0])]):
        with old.train_section():
            y = x * x * 2
        old.backward([y], heads)
        results.append(g.copy())
    with old.train_section():
        y = x * x * 3
    refused = [outcome(lambda: old.backward(y)), outcome(lambda: old.backward([y], mx.nd.ones(3)))]
    old.compute_gradient([y])
    results.append(g.copy())
    a, b = mx.nd.array([1.0, 2]), mx.nd.array([3.0, 4])
    for argnum in (None, 0, [1]):
        gradients, loss = old.grad_and_loss(lambda a, b: a * a + b, argnum)(a, b)
        results += [*gradients, loss]
    results += old.grad(lambda a: [a * 2, a * a])(a)
    refused += [outcome(lambda: old.grad(lambda a: a)(1)), outcome(lambda: old.grad(lambda a: a, 5)(a))]
    return results + [modes, refused]
