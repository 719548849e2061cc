"""Blocks, Parameters, Trainer: names, files, sharing, hooks, errors."""

import io
import os
import tempfile
from contextlib import redirect_stdout

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def fill(mx, block, seed=0):
    """Give every parameter values from a numpy seed, in the order of the names."""
    rng = np.random.RandomState(seed)
    params = block.collect_params()
    for name in sorted(params.keys()):
        value = rng.uniform(-0.5, 0.5, params[name].shape).astype("float32")
        params[name].set_data(mx.nd.array(np.abs(value) if name.endswith("var") else value))


def mlp(mx, **kwargs):
    nn = mx.gluon.nn
    net = nn.HybridSequential(**kwargs)
    with net.name_scope():
        net.add(nn.Dense(5, activation="relu"), nn.BatchNorm(), nn.Dense(3, in_units=5))
    return net


def data(mx, *shape, seed=1):
    return mx.nd.array(np.random.RandomState(seed).uniform(-1, 1, shape))


@program
def names_of_nested_blocks(mx):
    nn = mx.gluon.nn

    class Net(mx.gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.features = nn.HybridSequential(prefix="features_")
                with self.features.name_scope():
                    self.features.add(nn.Conv2D(2, 3), nn.BatchNorm(), nn.Conv2D(2, 1))
                self.plain = nn.HybridSequential(prefix="")
                with self.plain.name_scope():
                    self.plain.add(nn.Dense(2), nn.Dense(3))
                self.head = nn.Dense(4)
                self.extra = self.params.get("extra", shape=(2, 3))
            self.outside = nn.Dense(1)

        def hybrid_forward(self, F, x, extra):
            return self.head(x)

    with mx.name.NameManager():
        first, second, named = Net(), Net(), Net(prefix="mine_")
        results = []
        for net in (first, second, named):
            results += [net.prefix, net.name, " ".join(net.collect_params().keys()), " ".join(net.params.keys())]
            results += [" ".join(net._collect_params_with_prefix())]
        results += [" ".join(first.collect_params(".*weight|.*gamma").keys())]
        results += [" ".join(first.collect_params("net0_features_.*").keys()), first.features.name, first.head.prefix]
    return results


@program
def what_a_block_prints(mx):
    with mx.name.NameManager():
        net = mlp(mx)
        before = repr(net)
        net.initialize()
        net(data(mx, 2, 4))
        params = net.collect_params()
        return [before, net, params, params["hybridsequential0_dense0_weight"], mx.gluon.ParameterDict("a_")]


@program
def summary(mx):
    text = io.StringIO()
    with mx.name.NameManager(), redirect_stdout(text):
        net = mlp(mx)
        net.initialize()
        net(data(mx, 2, 4))
        net.summary(data(mx, 2, 4))
        shared = mx.gluon.nn.Dense(4, in_units=4)
        twice = mx.gluon.nn.Sequential()
        twice.add(shared, shared)
        twice.initialize()
        twice.summary(data(mx, 2, 4))
        net.hybridize()
        refused = outcome(lambda: net.summary(data(mx, 2, 4)))
    return [text.getvalue(), refused]


@program
def deferred_shapes(mx):
    net = mlp(mx, prefix="net_")
    net.initialize()
    weight = net[0].weight
    results = [weight.shape, outcome(weight.data), outcome(weight.grad), weight.list_ctx(), outcome(weight.list_data)]
    net(data(mx, 2, 7))
    results += [weight.shape, weight.data().shape, weight.grad(), net[1].gamma.shape, net[1].running_mean.grad_req]
    results += [outcome(net[1].running_mean.grad)]
    dense = mx.gluon.nn.Dense(4)
    dense.infer_shape(data(mx, 2, 9))
    results += [dense.weight.shape, outcome(lambda: dense(data(mx, 2, 9)))]
    convs = mx.gluon.nn.HybridSequential()
    convs.add(mx.gluon.nn.Conv2D(4, 3), mx.gluon.nn.Conv2D(2, 3, groups=2), mx.gluon.nn.Dense(3))
    convs.initialize()
    convs.hybridize()
    convs(data(mx, 2, 3, 8, 8))
    return results + [[p.shape for p in convs._collect_params_with_prefix().values()]]


@program
def parameter_errors(mx):
    Parameter, Dict = mx.gluon.Parameter, mx.gluon.ParameterDict
    known, unknown = Parameter("w", shape=(3, 2)), Parameter("u", shape=(3, 0))
    results = [outcome(known.data), outcome(known.list_ctx), outcome(unknown.initialize)]
    results += [outcome(lambda: known.set_data(mx.nd.ones((3, 2)))), outcome(lambda: known.reset_ctx(mx.cpu(1)))]
    known.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    results += [outcome(lambda: known.data(mx.cpu(2))), known.data().context, known.data(mx.cpu(1)).context]
    results += [outcome(lambda: setattr(known, "shape", (4, 2))), outcome(lambda: known.set_data(mx.nd.ones((5, 5))))]
    results += [outcome(lambda: setattr(known, "grad_req", "other"))]
    known.grad_req = "null"
    results += [outcome(known.grad), outcome(known.list_grad)]
    params = Dict("net_")
    params.get("w", shape=(2, 3))
    results += [outcome(lambda: params.get("w", shape=(2, 0))), outcome(lambda: params.get("w", shape=(3, 3)))]
    results += [outcome(lambda: params.get("w", lr_mult=3)), outcome(lambda: params["x"])]
    results += [outcome(lambda: params.get_constant("c")), params.get_constant("c", mx.nd.array([1, 2]))]
    results += [outcome(lambda: params.update({"net_w": Parameter("other")})), list(params.keys()), params.prefix]
    params.initialize()
    with tempfile.TemporaryDirectory() as folder:
        results += [outcome(lambda: params.save(os.path.join(folder, "p"), strip_prefix="foo"))]
    return results


@program
def attributes_of_blocks(mx):
    class Net(mx.gluon.Block):
        def __init__(self):
            super().__init__(prefix="net_")
            self.a = mx.gluon.nn.Dense(2)
            self.p = self.params.get("q", shape=(1,))

    net = Net()
    results = [outcome(lambda: setattr(net, "a", 3)), outcome(lambda: setattr(net, "p", mx.gluon.Parameter("x")))]
    results += [outcome(lambda: setattr(net, "p", None)), net, outcome(lambda: net(mx.nd.ones((1,))))]
    net.a = mx.gluon.nn.Dense(5, prefix="other_")
    results += [net, " ".join(net.collect_params().keys())]
    hybrid = mx.gluon.nn.HybridSequential()
    results += [outcome(lambda: hybrid.add(mx.gluon.nn.Sequential()))]
    return results


@program
def shared_parameters(mx):
    nn = mx.gluon.nn
    with mx.name.NameManager():
        first = nn.Dense(3, in_units=4, prefix="shared_")
        second = nn.Dense(3, in_units=4, params=first.params)
    third = nn.Dense(3, in_units=4, prefix="other_", params=first.params)
    first.initialize()
    fill(mx, first)
    x = data(mx, 2, 4)
    with mx.autograd.record():
        y = first(x) + 2 * second(x)
    y.backward()
    net = nn.Sequential(prefix="net_")
    net.add(first, second)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p.params")
        net.save_parameters(path)
        every = list(mx.nd.load(path))
        net.save_parameters(path, deduplicate=True)
        once = list(mx.nd.load(path))
        net.load_parameters(path)
    return [
        first.weight is second.weight,
        second.prefix,
        third.prefix,
        third.weight.name,
        first.weight.grad(),
        every,
        once,
    ]


@program
def files_and_what_is_wrong_with_them(mx):
    nn = mx.gluon.nn
    net = mlp(mx, prefix="net_")
    net.initialize()
    x = data(mx, 2, 4)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path, old = os.path.join(folder, "p.params"), os.path.join(folder, "old.params")
        results.append(outcome(lambda: net.save_parameters(path)))
        net(x)
        fill(mx, net)
        expected = net(x)
        net.save_parameters(path)
        net.collect_params().save(old, strip_prefix=net.prefix)
        results += [list(mx.nd.load(path)), list(mx.nd.load(old)), expected]
        for file in (path, old):
            other = mlp(mx, prefix="second_")
            other.load_parameters(file)
            results.append(other(x))
        renamed = mlp(mx, prefix="third_")
        renamed.collect_params().load(old, restore_prefix="third_")
        results.append(renamed(x))
        less, more, wrong = nn.HybridSequential(), nn.HybridSequential(), nn.HybridSequential()
        less.add(nn.Dense(5))
        more.add(nn.Dense(5), nn.BatchNorm(), nn.Dense(3), nn.Dense(2))
        wrong.add(nn.Dense(5, in_units=7), nn.BatchNorm(), nn.Dense(3))
        for each in (less, more, wrong):
            results.append(outcome(lambda each=each: each.load_parameters(path)))
        less.load_parameters(path, ignore_extra=True)
        more.initialize()
        more.load_parameters(path, allow_missing=True)
        half = mlp(mx)
        half.cast("float16")
        results += [less(x), more[0].weight.data(), outcome(lambda: half.load_parameters(path))]
        half.load_parameters(path, cast_dtype=True)
        results += [str(np.dtype(half[0].weight.dtype)), half[0].weight.data().dtype.__name__]
        half.load_parameters(path, cast_dtype=True, dtype_source="saved")
        results += [half[0].weight.data().dtype.__name__]
        results += [outcome(lambda: half.load_parameters(path, ctx=mx.cpu(3), cast_dtype=True))]
    return results


@program
def export_and_imports(mx):
    net = mlp(mx, prefix="net_")
    net.initialize()
    x = data(mx, 2, 4)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        results.append(outcome(lambda: net.export(path)))
        net.hybridize()
        net(x)
        fill(mx, net)
        net.export(path, epoch=7)
        with open(path + "-symbol.json") as file:
            results += [sorted(os.listdir(folder)), file.read()]
        results += [list(mx.nd.load(path + "-0007.params")), net(x)]
        imported = mx.gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0007.params")
        results += [imported, imported(x), list(imported.collect_params().keys())]
        results += [outcome(lambda: mx.gluon.SymbolBlock.imports(path + "-symbol.json", ["x"], path + "-0007.params"))]
        imported.save_parameters(path + ".again")
        results += [list(mx.nd.load(path + ".again"))]
        every = mx.sym.load(path + "-symbol.json").get_internals()
        heads = [every["net_dense0_fwd_output"], every["net_dense1_fwd_output"]]
        part = mx.gluon.SymbolBlock(heads, mx.sym.var("data"), params=net.collect_params())
        results += [*part(x), list(part.collect_params().keys())]
        with mx.autograd.record():
            y = imported(x)
        y.backward()
        params = imported.collect_params()
        results += [params[name].grad() for name in sorted(params.keys()) if params[name].grad_req != "null"]
        composed = imported(mx.sym.var("other"))
        results += [composed.list_arguments(), composed.list_outputs()]
    return results


@program
def nested_arguments(mx):
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x, states, extra=None):
            total = x + states[0] * states[1][0]
            return total if extra is None else total * extra, [states[0], [total + 1]]

    results = []
    for hybrid in (False, True):
        for extra in ((), (mx.nd.array([2.0, 3]),)):
            net = Net()
            if hybrid:
                net.hybridize()
            first, (second, (third,)) = net(
                mx.nd.array([1.0, 2]), [mx.nd.array([3.0, 4]), [mx.nd.array([5.0, 6])]], *extra
            )
            results += [first, second, third]
    net = Net()
    results += [outcome(lambda: net(3, [1])), outcome(lambda: net([1, 2], 3))]
    return results


@program
def blocks_fed_with_symbols(mx):
    with mx.name.NameManager():
        net = mlp(mx)
        out = net(mx.sym.var("x"))
        pair = mx.sym.Group([net[0](mx.sym.var("a")), net[2](mx.sym.var("b"))])
        results = [
            out.name,
            out.list_arguments(),
            out.list_auxiliary_states(),
            out.list_outputs(),
            pair.list_arguments(),
        ]
        results += [out.infer_shape(x=(2, 4))]
        return results + [out.tojson()]


@program
def hooks(mx):
    seen = []
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    before = net.register_forward_pre_hook(lambda block, inputs: seen.append("pre %s %d" % (block is net, len(inputs))))
    net.register_forward_hook(lambda block, inputs, out: seen.append("post %s %s" % (inputs[0].shape, out.shape)))
    net(mx.nd.ones((1, 3)))
    before.detach()
    net(mx.nd.ones((4, 3)))
    order = []
    tree = mlp(mx, prefix="net_")
    tree.apply(lambda block: order.append(block.name))
    return [seen, order]


@program
def training_with_several_contexts(mx):
    nn, contexts = mx.gluon.nn, [mx.cpu(0), mx.cpu(1)]
    results = []
    for on_store in (None, False, True):
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(nn.Dense(5, activation="relu", in_units=4), nn.Dense(3, in_units=5))
        net.initialize(ctx=contexts)
        fill(mx, net)
        options = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", options, update_on_kvstore=on_store)
        x, y = data(mx, 7, 4), data(mx, 7, 3, seed=2)
        loss = mx.gluon.loss.L2Loss()
        for step in range(3):
            xs = mx.gluon.utils.split_and_load(x, contexts, even_split=False)
            ys = mx.gluon.utils.split_and_load(y, contexts, even_split=False)
            with mx.autograd.record():
                losses = [loss(net(a), b) for a, b in zip(xs, ys)]
            mx.autograd.backward(losses)
            results += [each.sum() for each in losses]
            if on_store is False and step == 1:
                trainer.allreduce_grads()
                results += [net[0].weight.grad(ctx).asnumpy() for ctx in contexts]
                trainer.update(7)
            else:
                trainer.step(7)
        results += [net[1].weight.data(ctx).asnumpy() for ctx in contexts] + [str(net[0].weight.list_ctx())]
        results += [
            outcome(trainer.allreduce_grads) if on_store is not False else "",
            outcome(lambda trainer=trainer: trainer.step(7)),
        ]
        net.collect_params().reset_ctx(mx.cpu(2))
        results += [net(x.as_in_context(mx.cpu(2))), str(net.collect_params().list_ctx())]
    return results


@program
def trainer_rules(mx):
    net = mx.gluon.nn.Dense(2, in_units=3, prefix="d_")
    net.initialize()
    fill(mx, net)
    Trainer = mx.gluon.Trainer
    results = [outcome(lambda: Trainer([1], "sgd")), outcome(lambda: Trainer("x", "sgd"))]
    results += [outcome(lambda: Trainer(net.collect_params(), "unheard"))]
    results += [outcome(lambda: Trainer(net.collect_params(), mx.optimizer.SGD(), {"learning_rate": 1}))]
    trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    results += [outcome(lambda: trainer.step(1)), trainer.learning_rate]
    trainer.set_learning_rate(0.25)
    with mx.autograd.record():
        out = net(data(mx, 2, 3))
    out.backward()
    trainer.step(2)
    results += [trainer.learning_rate, outcome(lambda: trainer.step(1)), net.weight.data(), net.bias.data()]
    trainer.step(1, ignore_stale_grad=True)
    results += [net.weight.data()]
    net.bias.grad_req = "null"
    net.weight.lr_mult, net.weight.wd_mult = 0.5, 2.0
    other = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "wd": 0.1})
    with mx.autograd.record():
        out = net(data(mx, 2, 3))
    out.backward()
    other.step(1)
    results += [net.weight.data(), net.bias.data(), other.optimizer.learning_rate]
    net.collect_params().setattr("grad_req", "add")
    net.collect_params().zero_grad()
    for _ in range(2):
        with mx.autograd.record():
            out = net(data(mx, 2, 3))
        out.backward()
    results += [net.weight.grad(), net.bias.grad()]
    net.collect_params().zero_grad()
    return results + [net.weight.grad()]


@program
def constants(mx):
    class Net(mx.gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.scale = self.params.get_constant("scale", mx.nd.array([[1.0, 2], [3, 4]]))
                self.dense = mx.gluon.nn.Dense(2, in_units=2)

        def hybrid_forward(self, F, x, scale):
            return self.dense(F.dot(x, scale))

    results = []
    for hybrid in (False, True):
        net = Net(prefix="net_")
        net.initialize()
        fill(mx, net.dense)
        if hybrid:
            net.hybridize()
        x = data(mx, 3, 2)
        x.attach_grad()
        with mx.autograd.record():
            out = net(x)
        out.backward()
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        trainer.step(3)
        results += [out, x.grad, net.scale.data(), net.scale.grad_req, net.dense.weight.data(), repr(net.scale)]
    return results


@program
def casting(mx):
    net = mlp(mx, prefix="net_")
    net.initialize()
    net(data(mx, 2, 4))
    fill(mx, net)
    net.cast("float64")
    out = net(data(mx, 2, 4).astype("float64"))
    net.hybridize()
    again = net(data(mx, 2, 4).astype("float64"))
    return [out, again, out.dtype.__name__, net[0].weight.data().dtype.__name__, outcome(lambda: net(data(mx, 2, 4)))]
