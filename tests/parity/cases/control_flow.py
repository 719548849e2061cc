"""foreach, while_loop and cond in symbols: their JSON, inference, values and gradients, and in hybridized Blocks."""

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def flat(results):
    return sum(map(flat, results), []) if isinstance(results, (list, tuple)) else [results]


def variables(mx, names="x y w s i"):
    return [mx.sym.var(name) for name in names.split()]


def arrays(mx, symbol, shapes, given):
    rng = np.random.RandomState(3)
    inferred = symbol.infer_shape_partial(**shapes)[0]
    made = {n: rng.uniform(-1, 1, size=s).astype("float32") for n, s in zip(symbol.list_arguments(), inferred)}
    return {name: mx.nd.array(given.get(name, value)) for name, value in made.items()}


def computed(mx, symbol, shapes, given=(), steps=None, backward=True):
    """Graph, inference, outputs and gradients. Rows after the last of `steps` are whatever memory held in MXNet."""
    arguments = arrays(mx, symbol, shapes, dict(given))
    grads = {name: mx.nd.zeros(a.shape) for name, a in arguments.items()} if backward else {}
    executor = symbol.bind(mx.cpu(), arguments, grads, "write" if backward else "null")
    outputs = executor.forward(is_train=backward)
    rng = np.random.RandomState(4)
    if backward:
        executor.backward([mx.nd.array(rng.uniform(-1, 1, size=o.shape)) for o in outputs])
    results = {"json": symbol.tojson(), "outputs": symbol.list_outputs()}
    if "_foreach" in symbol.tojson():
        results["shapes"] = symbol.infer_shape(**shapes)
    types = symbol.infer_type(**dict.fromkeys(shapes, "float32"))
    results["types"] = [[np.dtype(t).name for t in each] for each in types]
    results.update({"out%d" % i: o[: (steps or {}).get(i, len(o))] for i, o in enumerate(outputs)})
    results.update({"grad " + name: grad for name, grad in grads.items()})
    loaded = mx.sym.load_json(symbol.tojson())
    results["loaded"] = loaded.tojson() == symbol.tojson()
    results["loaded out"] = loaded.bind(mx.cpu(), arguments).forward()[-1]
    return results


@program
def foreach_of_a_layer(mx):
    x, _, w, s, _ = variables(mx)

    def body(data, state):
        out = mx.sym.FullyConnected(data, weight=w, no_bias=True, num_hidden=3, name="fc") + state
        return out, mx.sym.tanh(out)

    with mx.name.NameManager():
        symbol = mx.sym.Group(flat(mx.sym.contrib.foreach(body, x, s, name="fa")))
    return computed(mx, symbol, {"x": (4, 2, 5), "s": (2, 3)})


@program
def foreach_with_made_weights(mx):
    x, _, _, s, _ = variables(mx)
    with mx.name.NameManager():
        symbol = mx.sym.Group(
            flat(
                mx.sym.contrib.foreach(
                    lambda d, st: (mx.sym.FullyConnected(d, num_hidden=3, name="fc"), [st[0] * 0.5]), x, [s], name="fb"
                )
            )
        )
    return computed(mx, symbol, {"x": (4, 2, 5), "s": (2, 3)})


@program
def foreach_takes_from_outside(mx):
    x, y, w, s, _ = variables(mx)
    with mx.name.NameManager():
        outer, halves = mx.sym.tanh(s, name="outer"), mx.sym.split(y, num_outputs=2, name="halves")
        outs, states = mx.sym.contrib.foreach(
            lambda d, st: ([d[0] + d[1] * w + outer, outer, w, d[0]], [st[0] + d[0] * outer, [st[1][0]]]),
            [x * 2, halves[1]],
            [s + 1, [halves[0]]],
            name="fc",
        )
        symbol = mx.sym.Group(flat([outs, states]))
    shapes = {"x": (3, 2, 2), "y": (3, 4, 2), "w": (2, 2), "s": (2, 2)}
    return dict(
        computed(mx, symbol, shapes), nesting=str([type(outs).__name__, len(outs), len(states), len(states[1])])
    )


@program
def foreach_gives_what_it_got(mx):
    x, y, w, s, _ = variables(mx)
    with mx.name.NameManager():
        first = mx.sym.contrib.foreach(lambda d, st: (st, d), x, s, name="fd")
        second = mx.sym.contrib.foreach(lambda d, st: (lambda o: ([o, o], o))(d * st), first[0], s, name="fe")
        third = mx.sym.contrib.foreach(
            lambda d, st: (list(mx.sym.split(d, num_outputs=2, name="sp")), mx.sym.var("q") * d + st),
            second[0][0],
            s,
            name="ff",
        )
        symbol = mx.sym.Group(flat([first, second, third]))
    return computed(mx, symbol, {"x": (3, 2, 4), "s": (2, 4)})


@program
def foreach_without_outputs_or_states(mx):
    x, _, w, s, _ = variables(mx)
    with mx.name.NameManager():
        none, state = mx.sym.contrib.foreach(lambda d, st: ([], d * st), x, s, name="fg")
        outs, nothing = mx.sym.contrib.foreach(lambda d, st: (d * w, []), x, [], name="fh")
        symbol = mx.sym.Group([state, outs])
    return dict(computed(mx, symbol, {"x": (3, 2), "s": (2,), "w": (2,)}), nothing=str([none, nothing]))


@program
def foreach_in_foreach(mx):
    x, _, w, s, _ = variables(mx)

    def inner(row, state):
        return row * w + state, mx.sym.sin(state)

    with mx.name.NameManager(), mx.AttrScope(ctx_group="g"):
        symbol = mx.sym.Group(
            flat(
                mx.sym.contrib.foreach(
                    lambda d, st: mx.sym.contrib.foreach(inner, d, st, name="in"), mx.sym.exp(x), s, name="fi"
                )
            )
        )
    return computed(mx, symbol, {"x": (3, 2, 4), "s": (4,), "w": (4,)})


@program
def while_loops(mx):
    x, _, w, _, i = variables(mx)
    with mx.name.NameManager():
        outs, last = mx.sym.contrib.while_loop(
            lambda i, a: i < 5,
            lambda i, a: ([i + 1, a * w], [i + 1, a * mx.sym.sin(w)]),
            [i, x * 2],
            max_iterations=7,
            name="wa",
        )
        symbol = mx.sym.Group(flat([outs, last]))
    shapes = {"i": (1,), "x": (3,), "w": (3,)}
    full = computed(mx, symbol, shapes, {"i": [-9.0]})
    stopped = computed(mx, symbol, shapes, {"i": [0.0]}, {0: 5, 1: 5})
    full.update({key + " stopped": value for key, value in stopped.items()})
    return full


@program
def a_while_loop_takes_from_outside(mx):
    x, _, w, _, i = variables(mx)
    with mx.name.NameManager():
        limit = mx.sym.sum(w, name="limit")
        outs, last = mx.sym.contrib.while_loop(
            lambda i, a: i < limit * mx.sym.max(w),
            lambda i, a: ([i + limit, a * w], [i + 1, a * mx.sym.sin(w)]),
            [i, x * 2],
            max_iterations=3,
            name="we",
        )
        symbol = mx.sym.Group(flat([outs, last]))
    # MXNet has no gradient of a while_loop whose condition takes something from outside.
    shapes, given = {"i": (1,), "x": (3,), "w": (3,)}, {"i": [-9.0], "w": [1.5, 2.0, 0.7]}
    return computed(mx, symbol, shapes, given, backward=False)


@program
def while_loops_nest_their_variables(mx):
    x, _, w, _, i = variables(mx)
    with mx.name.NameManager():
        first = mx.sym.contrib.while_loop(lambda i: i < 3, lambda i: (i * 2, i + 1), i, max_iterations=4, name="wb")
        second = mx.sym.contrib.while_loop(
            lambda a, b: b[0], lambda a, b: ([[a]], [a, [b[0] - 1]]), [x, [first[1]]], max_iterations=5, name="wc"
        )
        third = mx.sym.contrib.while_loop(
            lambda a: a < 9, lambda a: (lambda o: ([o, o], [o]))(a + w), [second[1][1][0]], max_iterations=2, name="wd"
        )
        symbol = mx.sym.Group(flat([first, second, third]))
    return computed(mx, symbol, {"i": (1,), "x": (2, 2), "w": (1,)}, {"i": [0.0]}, {0: 3, 2: 3})


def each_way(mx, symbol, backward=True):
    """What a symbol gives for an `s` above, below and at 0."""
    shapes, results = {"x": (2, 3), "y": (2, 3), "w": (2, 3), "s": (1,)}, {}
    for value in (9.0, -9.0, 0.0):
        found = computed(mx, symbol, shapes, {"s": [value]}, backward=backward)
        # In MXNet the gradient of what a branch does not use is whatever memory held.
        results.update({"%s at %g" % (key, value): v for key, v in found.items() if key != "grad s"})
    return results


@program
def conds(mx):
    x, y, w, s, _ = variables(mx)
    with mx.name.NameManager():
        first = mx.sym.contrib.cond(s, lambda: [x * 2, w * y], lambda: [y + 1, y * w * x], name="ca")
        second = mx.sym.contrib.cond(s, lambda: [[x * w * y]], lambda: mx.sym.sin(y) * x * w, name="cb")
        symbol = mx.sym.Group(flat([first, second]))
    return each_way(mx, symbol)


@program
def conds_take_from_outside(mx):
    x, y, w, s, _ = variables(mx)
    with mx.name.NameManager():
        outer = mx.sym.exp(x, name="outer")
        first = mx.sym.contrib.cond(
            mx.sym.sum(x) < s, lambda: [x * 2 + outer, w], lambda: [y + 1, y * w * outer], name="cc"
        )
        second = mx.sym.contrib.cond(
            s, lambda: mx.sym.contrib.cond(s, lambda: x * 2, lambda: x * w, name="in"), lambda: y, name="cd"
        )
        symbol = mx.sym.Group([*first, second])
    return each_way(mx, symbol, backward=False)


@program
def what_is_refused(mx):
    x, y, w, s, i = variables(mx)
    contrib = mx.sym.contrib
    both = mx.sym.split(y, num_outputs=2)
    return [
        outcome(lambda: contrib.foreach(lambda d, st: d, x, s)),
        outcome(lambda: contrib.foreach(lambda d, st: (d, [st, st]), x, s)),
        outcome(lambda: contrib.foreach(lambda d, st: (d, [st]), x, s)),
        outcome(lambda: contrib.foreach(lambda d, st: (d, st), 3, s)),
        outcome(lambda: contrib.foreach(lambda d, st: (d, st), x, 3)),
        outcome(lambda: contrib.foreach(lambda d, st: (3, st), x, s)),
        outcome(lambda: contrib.foreach(lambda d, st: (st, st), x, s)),
        outcome(lambda: contrib.foreach(lambda d, st: (d, d), x, s)),
        outcome(lambda: contrib.foreach(lambda d, st: (d[0] + d[1], st), [x, x], s)),
        outcome(lambda: contrib.foreach(lambda d, st: (d, st), both, s)),
        outcome(lambda: contrib.while_loop(lambda a: a, lambda a: (a, a), i)),
        outcome(lambda: contrib.while_loop(lambda a: a, lambda a: (a, a), i, "many")),
        outcome(lambda: contrib.while_loop(lambda: i, lambda: (i, []), [], 3)),
        outcome(lambda: contrib.while_loop(lambda a: a, lambda a: (a, [a, a]), [i], 3)),
        outcome(lambda: contrib.while_loop(lambda a, b: a, lambda a, b: (a, [a, s]), [i, x], 3)),
        outcome(lambda: contrib.while_loop(lambda a, b: b, lambda a, b: (a, [a, s]), [i, x], 3)),
        outcome(lambda: contrib.while_loop(lambda a: 3, lambda a: (a, a), i, 3)),
        outcome(lambda: contrib.while_loop(lambda a: [a, a], lambda a: (a, a), i, 3)),
        outcome(lambda: contrib.while_loop(lambda a: a, lambda a: (3, a), i, 3)),
        outcome(lambda: contrib.while_loop(lambda a: a, lambda a: (a, a), 3, 3)),
        outcome(lambda: contrib.cond(s, lambda: [x, x], lambda: [y])),
        outcome(lambda: contrib.cond(both, lambda: x, lambda: y)),
        outcome(lambda: contrib.cond(1, lambda: x, lambda: y)),
        outcome(lambda: contrib.cond(s, lambda: 1, lambda: y)),
        outcome(lambda: mx.nd.contrib.foreach(lambda d, st: (d, st), 3, mx.nd.ones(1))),
        outcome(lambda: mx.nd.contrib.foreach(lambda d, st: (3, st), mx.nd.ones((2, 1)), mx.nd.ones(1))),
        outcome(lambda: mx.nd.contrib.while_loop(lambda a: a < 1, lambda a: (3, a), mx.nd.zeros(1), 2)),
    ]


def trained(mx, net, *inputs):
    """What a hybridized net gives and its gradients, for each set of inputs."""
    rng, results = np.random.RandomState(1), []
    net.initialize()
    net.hybridize()
    for arguments in inputs:
        arguments = [mx.nd.array(a) for a in arguments]
        net(*arguments)
        if not results:
            for _, param in sorted(net.collect_params().items()):
                param.set_data(mx.nd.array(rng.uniform(-0.5, 0.5, size=param.shape)))
        arguments[0].attach_grad()
        with mx.autograd.record():
            out = net(*arguments)
            out = out if isinstance(out, (list, tuple)) else [out]
            loss = sum((o * o).sum() for o in flat(out))
        loss.backward()
        results += [*flat(out), arguments[0].grad]
        results += [param.grad() for _, param in sorted(net.collect_params().items())]
    return results


def data(*shapes):
    rng = np.random.RandomState(2)
    return [rng.uniform(-1, 1, size=shape).astype("float32") for shape in shapes]


@program
def a_hybridized_net_loops(mx):
    class Net(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="loop_")
            with self.name_scope():
                self.cell = mx.gluon.rnn.GRUCell(4, input_size=3, prefix="gru_")
                self.out = mx.gluon.nn.Dense(2, in_units=4, prefix="out_")
                self.scale = self.params.get("scale", shape=(1, 4))

        def hybrid_forward(self, F, x, state, scale):
            def step(row, states):
                out, states = self.cell(row, states)
                return F.broadcast_mul(out, scale), states

            outs, states = F.contrib.foreach(step, x, [state])
            outs = F.contrib.foreach(lambda row, _: (self.out(row), []), outs, [])[0]
            return outs, states[0]

    return trained(mx, Net(), data((3, 2, 3), (2, 4)), data((5, 3, 3), (3, 4)))


@program
def a_hybridized_net_branches(mx):
    class Net(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="branch_")
            with self.name_scope():
                self.a = mx.gluon.nn.Dense(2, in_units=3, prefix="a_")
                self.b = mx.gluon.nn.Dense(2, in_units=3, prefix="b_")

        def hybrid_forward(self, F, x):
            return F.contrib.cond(F.sum(x) > 0, lambda: self.a(x), lambda: F.tanh(self.b(x)))

    x, y = data((2, 3), (4, 3))
    return trained(mx, Net(), [x], [-x], [y])


@program
def a_hybridized_net_repeats(mx):
    class Net(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="repeat_")
            with self.name_scope():
                self.a = mx.gluon.nn.Dense(3, in_units=3, prefix="a_")

        def hybrid_forward(self, F, x, i):
            outs, last = F.contrib.while_loop(
                lambda i, h: i < 2,
                lambda i, h: (F.broadcast_add(h, i), [i + 1, F.tanh(self.a(h))]),
                [i, x],
                max_iterations=3,
            )
            return last[1]

    x, y = data((2, 3), (4, 3))
    return trained(mx, Net(), [x, np.array([-1.0])], [-x, np.array([0.0])], [y, np.array([1.0])])


def unrolled(mx, make_cell, layout="NTC"):
    """A net whose cell begins with states of a batch that the graph does not know."""

    class Net(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="net_")
            with self.name_scope():
                self.cell = make_cell(mx.gluon.rnn)
                self.out = mx.gluon.nn.Dense(2, in_units=4, flatten=False, prefix="out_")

        def hybrid_forward(self, F, x):
            outputs, states = self.cell.unroll(3, x, layout=layout, merge_outputs=True)
            return self.out(outputs), states

    shapes = [(batch, 3, 3) if layout == "NTC" else (3, batch, 3) for batch in (2, 5, 2)]
    return trained(mx, Net(), *[data(shape) for shape in shapes])


@program
def lstm_unrolled_for_any_batch(mx):
    return unrolled(mx, lambda rnn: rnn.LSTMCell(4, input_size=3, prefix="lstm_"))


@program
def both_ways_unrolled_for_any_batch(mx):
    def cell(rnn):
        return rnn.BidirectionalCell(
            rnn.GRUCell(2, input_size=3, prefix="l_"), rnn.RNNCell(2, input_size=3, prefix="r_"), output_prefix="b_"
        )

    return unrolled(mx, cell, "TNC")
