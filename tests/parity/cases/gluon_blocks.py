"""What Blocks, Parameters, dictionaries of them, Trainers and stores do in less common calls."""

import copy
import json
import os
import pickle
import re
import tempfile
import threading
import warnings

import numpy as np

from parity.cases.gluon_core import data, fill, mlp
from parity.spec import family, outcome

case, program = family(__name__)


def dense(mx, units=2, in_units=3, **kwargs):
    """A Dense layer with values."""
    layer = mx.gluon.nn.Dense(units, in_units=in_units, **kwargs)
    layer.initialize()
    fill(mx, layer)
    return layer


def train(mx, net, trainer, x, steps=1, **kwargs):
    """Steps on the sum of the outputs."""
    for _ in range(steps):
        with mx.autograd.record():
            y = net(x)
        y.backward()
        trainer.step(x.shape[0], **kwargs)


def warned(call):
    """What a call warns of, by kind."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return sorted({each.category.__name__ for each in seen if "Block" in str(each.message) or each.message})


@program
def name_scopes(mx):
    nn = mx.gluon.nn

    class Outer(mx.gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.first = nn.Dense(1)
                self.bare = nn.Sequential(prefix="")
                with self.bare.name_scope():
                    self.bare.add(nn.Dense(1), nn.Dense(1, prefix=""), nn.Dense(1, prefix="own_"))
                self.inner = nn.Sequential()
                with self.inner.name_scope():
                    self.inner.add(nn.Dense(1))
                self.last = nn.Dense(1)
                self.w = self.params.get("w", shape=(1,))

    with mx.name.NameManager():
        results = []
        for kwargs in ({}, {"prefix": ""}, {"prefix": "p_"}, {"prefix": "p"}):
            net = Outer(**kwargs)
            results += [net.name, net.prefix, list(net.collect_params().keys()), net.inner.name, net.bare.name]
    return results


@program
def name_scopes_in_threads(mx):
    nn, names = mx.gluon.nn, {}
    net = nn.Sequential(prefix="net_")

    def work(number):
        with mx.name.NameManager():
            names[number] = [nn.Dense(1).name, nn.Dense(1).name]

    with net.name_scope():
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        inside = nn.Dense(1).name
    return [names[0], names[1], names[2], inside]


@program
def dictionaries_that_share(mx):
    Dict = mx.gluon.ParameterDict
    first = Dict("a_")
    w = first.get("w", shape=(2, 0), allow_deferred_init=True)
    second = Dict("a_", shared=first)
    results = [second.get("w") is w, list(second.keys()), second.get("v", shape=(1,)) is w, list(first.keys())]
    other = Dict("b_", first)
    results += [other.get("w") is w, other.get("w", shape=3).name, list(other.keys()), outcome(lambda: first["b_w"])]
    first.get("w", shape=(2, 3))
    results += [
        w.shape,
        outcome(lambda: first.get("w", dtype="float64")),
        outcome(lambda: first.get("w", init="zeros")),
    ]
    results += [outcome(lambda: first.get("w", grad_req="null")), outcome(lambda: first.get("w", shape=(2, 3, 4)))]
    third = Dict("c_")
    third.update(first)
    third.update(first)
    results += [list(third.keys()), third["a_w"] is w, third.prefix, repr(third), len(list(third.items()))]
    deep = Dict("a_", second)
    results += [deep.get("w") is w, repr(Dict())]
    constant = first.get_constant("c", mx.nd.array([[1, 2]]))
    results += [first.get_constant("c") is constant, first.get_constant("c", mx.nd.array([[1, 2]])) is constant]
    results += [
        outcome(lambda: first.get_constant("c", mx.nd.array([[1, 3]]))),
        outcome(lambda: first.get_constant("w", mx.nd.ones((1,)))),
    ]
    return results


@program
def collecting_by_regular_expression(mx):
    with mx.name.NameManager():
        net = mlp(mx)
        names = []
        for select in (".*weight", "weight", ".*", "hybridsequential0_dense[01]_bias", ".*gamma|.*beta", "", "x"):
            names.append(list(net.collect_params(select).keys()))
        net.collect_params(".*dense0").setattr("grad_req", "null")
        net.collect_params(".*bias").setattr("lr_mult", 0.5)
        settings = [(p.name, p.grad_req, p.lr_mult) for p in net.collect_params().values()]
        return names + [settings, outcome(lambda: net.collect_params("("))]


@program
def initialising_again(mx):
    net = dense(mx, weight_initializer="zeros", bias_initializer="ones")
    fill(mx, net)
    kept = net.weight.data().asnumpy()
    results = [warned(lambda: net.initialize(mx.init.Constant(3))), net.weight.data().asnumpy(), kept]
    net.initialize(mx.init.Constant(3), force_reinit=True)
    results += [net.weight.data().asnumpy(), net.bias.data().asnumpy()]
    net.weight.initialize(mx.init.Constant(4), force_reinit=True)
    results += [net.weight.data().asnumpy(), net.weight.grad().asnumpy()]
    net.collect_params().initialize(mx.init.Constant(5), ctx=[mx.cpu(1), mx.cpu(2)], force_reinit=True)
    results += [str(net.weight.list_ctx()), net.weight.data(mx.cpu(2)).asnumpy()]
    param = mx.gluon.Parameter("p", shape=(2,), init=mx.init.Constant(2))
    param.initialize(default_init=mx.init.Constant(7))
    results += [param.data().asnumpy()]
    plain = mx.gluon.Parameter("q_weight", shape=(2,))
    plain.initialize(default_init=mx.init.Constant(7))
    results += [plain.data().asnumpy()]
    mixed = mx.init.Mixed([".*bias", ".*"], [mx.init.Zero(), mx.init.One()])
    results += [outcome(lambda: mx.gluon.nn.Dense(2, in_units=2).initialize(mixed))]
    for init in ("zeros", "ones", mx.init.One()):
        layer = mx.gluon.nn.Dense(2, in_units=2, bias_initializer=None)
        layer.initialize(init)
        results += [layer.weight.data().asnumpy(), layer.bias.data().asnumpy()]
    deferred = mx.gluon.nn.Dense(2)
    deferred.initialize(mx.init.Constant(1))
    results += [warned(lambda: deferred.initialize(mx.init.Constant(2)))]
    deferred(mx.nd.ones((1, 2)))
    return results + [deferred.weight.data().asnumpy()]


@program
def writing_to_parameters(mx):
    layer = mx.gluon.nn.Dense(2, prefix="d_")
    layer.initialize()
    layer.weight.set_data(mx.nd.array([[1, 2, 3], [4, 5, 6]]))
    results = [
        layer.weight.shape,
        outcome(layer.weight.data),
        outcome(lambda: layer.weight.set_data(mx.nd.ones((2, 4)))),
    ]
    results += [layer(mx.nd.ones((1, 3))).asnumpy(), layer.weight.data().asnumpy()]
    layer.weight.set_data(np.full((2, 3), 7.0))
    results += [layer.weight.data().asnumpy(), layer.weight.data().dtype.__name__]
    held = layer.weight.data()
    layer.weight.set_data(mx.nd.ones((2, 3)) * 9)
    results += [held.asnumpy()]
    layer.weight.data()[:] = 3
    results += [layer.weight.data().asnumpy()]
    both = mx.gluon.Parameter("b", shape=(2,))
    both.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    both.set_data(mx.nd.array([1, 2]))
    both.data(mx.cpu(1))[:] = 5
    results += [both.data(mx.cpu(0)).asnumpy(), both.data(mx.cpu(1)).asnumpy(), [d.context for d in both.list_data()]]
    both.reset_ctx([mx.cpu(2), mx.cpu(3)])
    results += [[d.asnumpy().tolist() for d in both.list_data()], str(both.list_ctx()), len(both.list_grad())]
    results += [outcome(lambda: both.data(mx.cpu(0))), both.data(mx.cpu(3)).context]
    waiting = mx.gluon.Parameter("c", shape=(0, 2), allow_deferred_init=True)
    waiting.initialize(ctx=mx.cpu(0))
    waiting.reset_ctx(mx.cpu(1))
    return results + [str(waiting.list_ctx()), outcome(waiting.list_data), outcome(waiting.list_grad)]


@program
def gradients_of_parameters(mx):
    layer = dense(mx, prefix="d_")
    layer.weight.grad_req = "add"
    x = data(mx, 2, 3)
    for _ in range(3):
        with mx.autograd.record():
            y = layer(x)
        y.backward()
    results = [layer.weight.grad().asnumpy(), layer.bias.grad().asnumpy(), len(layer.weight.list_grad())]
    layer.collect_params().zero_grad()
    results += [layer.weight.grad().asnumpy(), layer.bias.grad().asnumpy()]
    layer.weight.grad_req = "null"
    results += [outcome(layer.weight.grad), layer.bias.grad().shape]
    with mx.autograd.record():
        y = layer(x)
    y.backward()
    layer.weight.grad_req = "write"  # the bias's gradient is not asked: MXNet's is 0 when the weight has none
    results += [layer.weight.grad().asnumpy()]
    still = mx.gluon.Parameter("s", shape=(2,), differentiable=False)
    still.initialize()
    still.grad_req = "write"
    results += [still.grad_req, outcome(still.grad)]
    layer.collect_params().setattr("grad_req", "add")
    layer.bias.grad()[:] = 5
    with mx.autograd.record():
        y = layer(x)
    y.backward()
    return results + [layer.bias.grad().asnumpy()]


@program
def symbols_of_parameters(mx):
    param = mx.gluon.Parameter("w", shape=(2, 3), dtype="float16", lr_mult=2.0, wd_mult=0.5, init="zeros")
    var = param.var()
    results = [var.name, sorted(var.attr_dict()["w"].items()), param.var() is var]
    unknown = mx.gluon.Parameter("u", shape=(0, 3), allow_deferred_init=True).var()
    results += [sorted(unknown.attr_dict()["u"].items())]
    constant = mx.gluon.Constant("c", mx.nd.array([1, 2]))
    facts = constant.var().attr_dict()["c"]
    return results + [sorted(key for key in facts), constant.grad_req, repr(constant), facts["__shape__"]]


@program
def constants_again(mx):
    constant = mx.gluon.Constant("c", [[1, 2], [3, 4]])
    constant.initialize()
    results = [
        constant.data().asnumpy(),
        constant.dtype.__name__,
        outcome(constant.grad),
        warned(lambda: setattr(constant, "grad_req", "write")),
    ]
    results += [constant.grad_req]
    integer = mx.gluon.Constant("i", mx.nd.array([1, 2], dtype="int32"))
    integer.initialize(mx.init.Constant(9))
    return results + [integer.data().asnumpy(), np.dtype(integer.dtype).name]


@program
def copies_of_blocks(mx):
    net = mlp(mx, prefix="net_")
    net.initialize()
    x = data(mx, 2, 4)
    net(x)
    fill(mx, net)
    other = copy.deepcopy(net)
    other[0].weight.set_data(other[0].weight.data() * 2)
    results = [net(x).asnumpy(), other(x).asnumpy(), list(other.collect_params().keys())]
    results += [other[0].weight is net[0].weight]
    param = dense(mx).weight
    again = copy.deepcopy(param)
    again.set_data(again.data() + 1)
    return results + [again.data().asnumpy() - param.data().asnumpy(), again.grad().shape]


@program
def moving_and_casting(mx):
    net = mlp(mx, prefix="net_")
    net.initialize()
    x = data(mx, 2, 4)
    net(x)
    fill(mx, net)
    expected = net(x).asnumpy()
    net.collect_params().reset_ctx([mx.cpu(1), mx.cpu(2)])
    results = [
        net(x.as_in_context(mx.cpu(2))).asnumpy() - expected,
        outcome(lambda: net(x)),
        str(net.collect_params().list_ctx()),
    ]
    net.collect_params().reset_ctx(mx.cpu(0))
    net.cast("float16")
    results += [
        [np.dtype(p.dtype).name for p in net.collect_params().values()],
        [np.dtype(p.data().dtype).name for p in net.collect_params().values()],
    ]
    net.cast(np.float64)
    results += [np.dtype(net[0].weight.grad().dtype).name, np.dtype(net(x.astype("float64")).dtype).name]
    waiting = mx.gluon.nn.Dense(2)
    waiting.cast("float64")
    waiting.initialize()
    results += [np.dtype(waiting(x.astype("float64")).dtype).name, np.dtype(waiting.weight.data().dtype).name]
    typed = mx.gluon.nn.Dense(2, dtype="float64")
    results += [outcome(lambda: typed.infer_type(x.astype("float16")))]
    typed.infer_type(x.astype("float64"))
    results += [np.dtype(typed.weight.dtype).name, np.dtype(typed.bias.dtype).name]
    return results


@program
def hybridizing(mx):
    calls = []

    class Net(mx.gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = mx.gluon.nn.Dense(2, in_units=3)

        def hybrid_forward(self, F, x):
            calls.append(F is mx.nd)
            return self.dense(x)

    net = Net(prefix="net_")
    net.initialize()
    fill(mx, net)
    x, results = data(mx, 2, 3), []
    for flags in (
        {},
        {"static_alloc": True},
        {"static_alloc": True, "static_shape": True},
        {"inline_limit": 3},
        {"active": False},
    ):
        net.hybridize(**flags)
        for _ in range(3):
            results.append(net(x).asnumpy())
        results.append(str(calls))
        calls.clear()
    net.hybridize()
    net(x)
    net.dense = mx.gluon.nn.Dense(2, in_units=3, prefix="fresh_")
    net.dense.initialize()
    fill(mx, net.dense, seed=5)
    results += [net(x).asnumpy(), net(data(mx, 5, 3)).shape, str(calls)]
    plain = mx.gluon.nn.Sequential()
    plain.add(net)
    warned(lambda: plain.hybridize(False))
    return results + [plain(x).asnumpy()]


@program
def hooks_and_handles(mx):
    seen = []
    net = mlp(mx, prefix="net_")
    net.initialize()
    x = data(mx, 2, 4)
    net(x)
    handles = [child.register_forward_hook(lambda block, inputs, out: seen.append(block.name)) for child in net]
    net(x)
    seen.append("-")
    handles[1].detach()
    handles[1].detach()
    net(x)
    seen.append("-")
    with net.register_forward_pre_hook(lambda block, inputs: seen.append("pre " + block.name)):
        net(x)
    seen.append("-")
    net(x)
    changed = net[2].register_forward_hook(lambda block, inputs, out: out * 0)
    ignored = net(x).asnumpy().any()
    changed.detach()
    return [seen, bool(ignored)]


@program
def op_hooks(mx):
    results = []
    for everything in (False, True):
        seen = []
        net = mlp(mx, prefix="net_")
        net.initialize()
        net.hybridize()
        net(data(mx, 2, 4))
        fill(mx, net)
        net.register_op_hook(
            lambda name, op, array, seen=seen: seen.append(name if isinstance(name, str) else name.decode()),
            monitor_all=everything,
        )
        net(data(mx, 2, 4))
        # MXNet alone calls the input of an Activation `input0`
        names = [re.sub(r"_input\d+$", "_data", name) for name in seen]
        results.append(sorted(re.sub(r"\d+", "#", name) for name in names))
    return results


@program
def blocks_in_files(mx):
    results = []
    for hybrid in (False, True):
        for cls in (mx.gluon.nn.Sequential, mx.gluon.nn.HybridSequential):

            def make(prefix, cls=cls):
                net = cls(prefix=prefix)
                with net.name_scope():
                    # known shapes: MXNet calls a Block hybridized that made a graph to find shapes
                    net.add(mx.gluon.nn.Dense(3, in_units=4), mx.gluon.nn.HybridSequential())
                    with net[1].name_scope():
                        net[1].add(mx.gluon.nn.Dense(5, activation="relu", in_units=3))
                        net[1].add(mx.gluon.nn.BatchNorm(in_channels=5))
                return net

            net, x = make("net_"), data(mx, 2, 4)
            net.initialize()
            if hybrid:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    net.hybridize()
            net(x)
            fill(mx, net)
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "m")
                net.save(path)
                results += [sorted(os.listdir(folder))]
                with open(path + "-model.json") as file:
                    results += [_outline(json.load(file))]
                other = make("other_")
                other.load(path)
                results += [other(x).asnumpy() - net(x).asnumpy(), [child._active for child in other]]
                small = cls()
                small.add(mx.gluon.nn.Dense(3, in_units=4))
                results += [outcome(lambda small=small, path=path: small.load(path)).startswith("raises")]
    return results


def _outline(content):
    """The JSON without its graphs, whose attributes need not be the same letter by letter."""
    if not isinstance(content, dict):
        return content if isinstance(content, (bool, int)) else type(content).__name__ if len(content) > 30 else content
    return sorted((key, _outline(value)) for key, value in content.items())


@program
def multipliers_of_parameters(mx):
    results = []
    for optimizer, options in (("sgd", {"momentum": 0.9}), ("adam", {}), ("adagrad", {})):
        layer = dense(mx, prefix="d_")
        layer.weight.lr_mult, layer.bias.wd_mult = 0.1, 3.0
        trainer = mx.gluon.Trainer(layer.collect_params(), optimizer, {"learning_rate": 0.1, "wd": 0.2, **options})
        train(mx, layer, trainer, data(mx, 2, 3), steps=2)
        layer.weight.lr_mult = 2.0
        train(mx, layer, trainer, data(mx, 2, 3))
        layer.collect_params().setattr("lr_mult", 0)
        train(mx, layer, trainer, data(mx, 2, 3))
        results += [layer.weight.data().asnumpy(), layer.bias.data().asnumpy()]
    return results


@program
def trainers_and_their_states(mx):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "states")
        for optimizer in ("sgd", "adam", "nag"):
            options = {"learning_rate": 0.1, **({} if optimizer == "adam" else {"momentum": 0.9})}
            layer = dense(mx, prefix="d_")
            trainer = mx.gluon.Trainer(layer.collect_params(), optimizer, dict(options))
            train(mx, layer, trainer, data(mx, 2, 3), steps=2)
            trainer.save_states(path)
            kept = {name: p.data().copy() for name, p in layer.collect_params().items()}
            train(mx, layer, trainer, data(mx, 2, 3), steps=2)
            results.append(layer.weight.data().asnumpy())
            for name, p in layer.collect_params().items():
                p.set_data(kept[name])
            again = mx.gluon.Trainer(layer.collect_params(), optimizer, {"learning_rate": 5})
            again.load_states(path)
            train(mx, layer, again, data(mx, 2, 3), steps=2)
            results += [layer.weight.data().asnumpy(), again.learning_rate, type(again.optimizer).__name__]
    return results


@program
def a_context_without_backward(mx):
    results, contexts = [], [mx.cpu(0), mx.cpu(1)]
    for on_store in (None, False):
        for ignore in (False, True):
            layer = mx.gluon.nn.Dense(2, in_units=3, prefix="d_")
            layer.initialize(ctx=contexts)
            fill(mx, layer)
            trainer = mx.gluon.Trainer(
                layer.collect_params(), "sgd", {"learning_rate": 0.1}, update_on_kvstore=on_store
            )
            for used in (2, 1, 2):
                with mx.autograd.record():
                    outputs = [layer(data(mx, 2, 3).as_in_context(ctx)) for ctx in contexts[:used]]
                mx.autograd.backward(outputs)
                results.append(
                    outcome(lambda trainer=trainer, ignore=ignore: trainer.step(4, ignore_stale_grad=ignore))
                )
                results += [each.asnumpy() for each in layer.weight.list_data()]
    return results


@program
def sparse_parameters(mx):
    results = []
    rows = mx.nd.array([1, 3], dtype="int64")
    param = mx.gluon.Parameter("w", shape=(5, 2), stype="row_sparse", grad_stype="row_sparse")
    results += [outcome(lambda: param.row_sparse_data(rows))]
    param.initialize(mx.init.One())
    trainer = mx.gluon.Trainer([param], "sgd")
    part = param.row_sparse_data(rows)
    results += [part.stype, part.asnumpy(), part.indices.asnumpy(), len(param.list_row_sparse_data(rows))]
    results += [param.grad().stype]
    plain = mx.gluon.Parameter("v", shape=(5, 2))
    plain.initialize()
    results += [outcome(lambda: plain.row_sparse_data(rows)), outcome(lambda: mx.gluon.Parameter("x", stype="other"))]
    del trainer
    return results


@program
def rows_of_sparse_parameters_are_trained(mx):
    param = mx.gluon.Parameter("w", shape=(6, 3), stype="row_sparse", grad_stype="row_sparse")
    param.initialize(mx.init.One())
    trainer = mx.gluon.Trainer([param], "sgd", {"learning_rate": 0.1})
    rows = mx.nd.array([1, 4, 1], dtype="int32")
    results = []
    for _ in range(2):
        with mx.autograd.record():
            part = param.row_sparse_data(rows)
            found = mx.nd.Embedding(rows, part, input_dim=6, output_dim=3, sparse_grad=True)
            loss = (found * found).sum()
        loss.backward()
        results += [part.stype, part.asnumpy(), param.grad().stype, param.grad().asnumpy()]
        trainer.step(1)
        results += [param.row_sparse_data(mx.nd.arange(6)).asnumpy()]
    with mx.autograd.record():
        loss = mx.nd.dot(mx.nd.ones((2, 6)), param.row_sparse_data(rows)).sum()
    loss.backward()  # rows that were left out are zero, and have a gradient
    return results + [loss.asnumpy(), param.grad().asnumpy()]


@program
def private_names_of_parameters(mx):
    param = mx.gluon.Parameter("w", shape=(2,))
    results = [param._data is None, param._grad is None, param._ctx_list is None]
    param.initialize(mx.init.One(), ctx=[mx.cpu(0), mx.cpu(1)])
    results += [[each.asnumpy() for each in param._data], [each.asnumpy() for each in param._grad]]
    results += [str(param._ctx_list), len(param._check_and_get(param._data, list))]
    results += [str(param._check_and_get(each, mx.cpu(1)).context) for each in (param._data, param._grad)]
    other = mx.gluon.Parameter("v", shape=(2,))
    other._data, other._grad = param._data, param._grad
    other._ctx_list, other._ctx_map = param._ctx_list, param._ctx_map
    other.set_data(mx.nd.array([3, 4]))
    results += [param.data(mx.cpu(1)).asnumpy(), str(other.list_ctx())]
    with mx.autograd.record():
        loss = (other.data(mx.cpu(0)) * 2).sum()
    loss.backward()
    return results + [param.grad(mx.cpu(0)).asnumpy()]


@program
def embeddings_with_sparse_gradients(mx):
    results = []
    for optimizer, options in (
        ("sgd", {"momentum": 0.9, "wd": 0.1}),
        ("adam", {}),
        ("sgd", {"lazy_update": False, "momentum": 0.5}),
    ):
        for hybrid in (False, True):
            layer = mx.gluon.nn.Embedding(6, 2, sparse_grad=True, prefix="e_")
            layer.initialize()
            fill(mx, layer)
            if hybrid:
                layer.hybridize()
            trainer = mx.gluon.Trainer(layer.collect_params(), optimizer, {"learning_rate": 0.1, **options})
            for indices in ([1, 3, 1], [0, 3, 5]):
                with mx.autograd.record():
                    y = (layer(mx.nd.array(indices)) ** 2).sum()
                y.backward()
                gradient = layer.weight.grad()
                results += [gradient.stype, gradient.asnumpy(), gradient.indices.asnumpy()]
                trainer.step(1)
            results += [layer.weight.data().asnumpy()]
    return results


@program
def stores(mx):
    kv = mx.kv.create("local")
    results = [kv.type, kv.rank, kv.num_workers, kv.is_capable("optimizer")]
    kv.init([1, 2], [mx.nd.ones((2, 2)), mx.nd.ones((3,)) * 2])
    out = mx.nd.zeros((2, 2))
    kv.push(1, [mx.nd.ones((2, 2)) * 4, mx.nd.ones((2, 2)) * 5])
    kv.pull(1, out=out)
    results.append(out.asnumpy())
    outs = [mx.nd.zeros((2, 2)), mx.nd.zeros((3,))]
    kv.pull([1, 2], out=outs)
    results += [each.asnumpy() for each in outs]
    kv.push([1, 2], [[mx.nd.ones((2, 2))] * 2, [mx.nd.ones((3,))] * 3])
    kv.pull([1, 2], out=outs)
    results += [each.asnumpy() for each in outs]
    kv.pushpull(2, mx.nd.ones((3,)) * 8, out=outs[1])
    results += [outs[1].asnumpy()]
    kv.broadcast(3, mx.nd.ones((1,)) * 6, out=[mx.nd.zeros((1,))])
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
    for _ in range(2):
        kv.push(1, mx.nd.ones((2, 2)))
    kv.pull(1, out=out)
    results += [out.asnumpy()]
    named = mx.kv.create("device")
    named.init("a", mx.nd.ones((4, 2)).tostype("row_sparse"))
    rows = mx.nd.sparse.zeros("row_sparse", (4, 2))
    named.row_sparse_pull("a", out=rows, row_ids=mx.nd.array([0, 2]))
    results += [rows.asnumpy(), rows.indices.asnumpy()]
    other = mx.kv.create("local")
    other.init("x", mx.nd.ones((2,)))
    other._set_updater(lambda key, pushed, stored: stored.__iadd__(pushed * 2))
    other.push("x", mx.nd.ones((2,)) * 3)
    two = mx.nd.zeros((2,))
    other.pull("x", out=two)
    results += [two.asnumpy(), outcome(lambda: other.init(7, two)), outcome(lambda: kv.push(99, two))]
    results += [outcome(lambda: kv.init(1, two)), outcome(lambda: kv.pull(98, out=two))]
    return results


@program
def blocks_without_forward(mx):
    class Nothing(mx.gluon.Block):
        pass

    class Hybrid(mx.gluon.HybridBlock):
        pass

    x = mx.nd.ones((1,))
    results = [outcome(lambda: Nothing()(x)), outcome(lambda: Hybrid()(x)), repr(Nothing(prefix="n_"))]
    results += [outcome(lambda: mx.gluon.nn.Dense(2, in_units=1)(x)), outcome(lambda: mx.gluon.nn.Dense(2)())]
    layer = dense(mx, in_units=3)
    results += [outcome(lambda: layer(mx.nd.ones((2, 3)), mx.nd.ones((1,)))), outcome(lambda: layer(None))]
    layer.hybridize()
    return results + [outcome(lambda: layer(mx.nd.ones((2, 5)))), layer(mx.nd.ones((2, 3))).shape]


@program
def blocks_in_plain_containers(mx):
    class Net(mx.gluon.Block):
        def __init__(self):
            super().__init__(prefix="net_")
            self.layers = [mx.gluon.nn.Dense(1), mx.gluon.nn.Dense(2)]
            self.table = {"a": mx.gluon.nn.Dense(3)}

    net = Net()
    results = [warned(net.collect_params)]
    for layer in net.layers:
        net.register_child(layer)
    net.register_child(net.table["a"], "named")
    return results + [warned(net.collect_params), list(net._collect_params_with_prefix()), list(net._children)]


@program
def applying_functions(mx):
    net = mlp(mx, prefix="net_")
    seen = []
    same = net.apply(lambda block: seen.append(type(block).__name__)) is net
    net.initialize()
    net(data(mx, 2, 4))

    def ones(block):
        if isinstance(block, mx.gluon.nn.Dense):
            block.weight.set_data(mx.nd.ones(block.weight.shape))

    net.apply(ones)
    return [seen, same, net[0].weight.data().asnumpy(), len(net), [type(b).__name__ for b in net[1:]], net[-1].name]


@program
def parameters_that_travel(mx):
    layer = dense(mx, prefix="d_")
    params = layer.collect_params()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p")
        params.save(path)
        whole = sorted(mx.nd.load(path))
        params.save(path, strip_prefix="d_")
        short = sorted(mx.nd.load(path))
        other = mx.gluon.nn.Dense(2, prefix="e_")
        other.collect_params().load(path, ctx=mx.cpu(1), restore_prefix="e_")
        results = [whole, short, str(other.weight.list_ctx()), other.weight.data().asnumpy()]
        results += [outcome(lambda: other.collect_params().load(path, restore_prefix="x_"))]
        results += [outcome(lambda: other.collect_params().load(path))]
        results += [outcome(lambda: other.collect_params().load(path, allow_missing=True))]
        results += [outcome(lambda: other.collect_params().load(path, ignore_extra=True))]
        results += [outcome(lambda: other.collect_params().load(path, allow_missing=True, ignore_extra=True))]
        other.collect_params().load_dict({"arg:e_weight": mx.nd.ones((2, 3)), "e_bias": mx.nd.ones((2,))})
        results += [other.weight.data().asnumpy(), other.bias.data().asnumpy()]
    return results


@program
def arrays_that_are_pickled(mx):
    layer = dense(mx)
    again = pickle.loads(pickle.dumps(layer.weight.data()))
    return [again.asnumpy() - layer.weight.data().asnumpy(), again.shape]
