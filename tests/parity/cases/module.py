"""mx.mod.Module: whole trainings step by step, what it answers, logs and refuses."""

import numpy as np

from parity.cases.callbacks import Lines
from parity.spec import family, outcome

case, program = family(__name__)


def lenet(mx, norm=False):
    """A small LeNet that ends in a softmax."""
    sym = mx.sym
    x = sym.Convolution(sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv1")
    x = sym.Pooling(sym.Activation(x, act_type="tanh"), pool_type="max", kernel=(2, 2), stride=(2, 2))
    x = sym.BatchNorm(x, fix_gamma=False, name="norm") if norm else x
    x = sym.Convolution(x, kernel=(3, 3), num_filter=6, name="conv2")
    x = sym.Flatten(sym.Pooling(sym.Activation(x, act_type="tanh"), pool_type="max", kernel=(2, 2), stride=(2, 2)))
    x = sym.Activation(sym.FullyConnected(x, num_hidden=16, name="fc1"), act_type="tanh")
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=5, name="fc2"), name="softmax")


def mlp(mx):
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="fc1")
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="relu", name="act"), num_hidden=3, name="fc2")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def samples(count, shape, classes):
    """Noisy samples whose class can be learned."""
    rng = np.random.RandomState(5)
    prototypes = rng.uniform(-1, 1, (classes, *shape))
    labels = rng.randint(0, classes, count)
    return (prototypes[labels] + rng.normal(0, 0.3, (count, *shape))).astype("float32"), labels.astype("float32")


def weights(mx, symbol, **shapes):
    """Parameters by name, the same everywhere."""
    arg_shapes, _, aux_shapes = symbol.infer_shape(**shapes)
    rng = np.random.RandomState(11)
    made = {
        name: mx.nd.array(rng.uniform(-0.3, 0.3, shape))
        for name, shape in zip(symbol.list_arguments(), arg_shapes)
        if name not in shapes
    }
    aux = {
        name: (mx.nd.ones if name.endswith("var") else mx.nd.zeros)(shape)
        for name, shape in zip(symbol.list_auxiliary_states(), aux_shapes)
    }
    return made, aux


PICTURES = {"data": (8, 1, 12, 12), "softmax_label": (8,)}


def fit(mx, symbol, count=20, epochs=2, contexts=1, bound=8, shape=(1, 12, 12), metric="ce", **options):
    """Metrics after each batch, and all parameters after each epoch."""
    module_options = {k: options.pop(k) for k in ("work_load_list", "fixed_param_names") if k in options}
    data, labels = samples(count, shape, 5)
    iterator = mx.io.NDArrayIter(data, labels, bound)
    module = mx.mod.Module(symbol, context=[mx.cpu(i) for i in range(contexts)], **module_options)
    arg_params, aux_params = weights(mx, symbol, data=(bound, *shape), softmax_label=(bound,))
    metrics, after = [], []
    module.fit(
        iterator,
        eval_metric=metric,
        num_epoch=epochs,
        arg_params=arg_params,
        aux_params=aux_params,
        batch_end_callback=lambda p: metrics.append(np.array(p.eval_metric.get()[1])),
        epoch_end_callback=lambda epoch, sym, args, auxs: after.append(
            {k: v.asnumpy() for k, v in list(args.items()) + list(auxs.items())}
        ),
        **options,
    )
    results = {"metrics": np.array(metrics)}
    for epoch, params in enumerate(after):
        results.update({"%d %s" % (epoch, name): value for name, value in params.items()})
    return results


@program
def fit_lenet_by_sgd(mx):
    return fit(mx, lenet(mx), optimizer_params={"learning_rate": 0.2, "momentum": 0.9, "wd": 0.01})


@program
def fit_lenet_by_adam(mx):
    return fit(mx, lenet(mx), optimizer="adam", optimizer_params={"learning_rate": 0.01, "wd": 0.001}, metric="acc")


@program
def fit_lenet_by_schedule(mx):
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5)
    options = {"learning_rate": 0.3, "lr_scheduler": schedule, "clip_gradient": 0.5}
    return fit(mx, lenet(mx), optimizer="nag", optimizer_params=options, metric=["acc", "ce"])


@program
def fit_lenet_on_two_contexts(mx):
    return fit(mx, lenet(mx), contexts=2, optimizer_params={"learning_rate": 0.2, "momentum": 0.9, "wd": 0.01})


@program
def fit_lenet_on_three_contexts_of_unequal_load(mx):
    return fit(
        mx,
        lenet(mx),
        contexts=3,
        work_load_list=[1, 4, 3],
        kvstore="device",
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01},
    )


@program
def fit_without_a_store_on_two_contexts(mx):
    return fit(mx, lenet(mx), contexts=2, kvstore=None, optimizer_params={"learning_rate": 0.2, "momentum": 0.9})


@program
def fit_with_a_store_of_ones_own(mx):
    store = mx.kv.create("local")
    return fit(mx, lenet(mx), kvstore=store, optimizer_params={"learning_rate": 0.2, "momentum": 0.9, "wd": 0.1})


@program
def fit_with_fixed_parameters(mx):
    fixed = ["conv1_weight", "fc1_bias"]
    return fit(mx, lenet(mx), fixed_param_names=fixed, optimizer_params={"learning_rate": 0.2, "momentum": 0.9})


@program
def fit_with_batch_norm(mx):
    return fit(mx, lenet(mx, norm=True), count=16, optimizer_params={"learning_rate": 0.1})


def small(mx, for_training=True, batch=4, **options):
    """A bound module of a small network with parameters."""
    symbol = options.pop("symbol") if "symbol" in options else mlp(mx)
    bind_options = {k: options.pop(k) for k in ("inputs_need_grad", "grad_req") if k in options}
    module = mx.mod.Module(symbol, **options)
    module.bind([("data", (batch, 5))], [("softmax_label", (batch,))], for_training=for_training, **bind_options)
    args, auxs = weights(mx, symbol, data=(batch, 5), softmax_label=(batch,))
    module.init_params(arg_params=args, aux_params=auxs)
    return module


def iterator(mx, count=10, batch=4, **options):
    data, labels = samples(count, (5,), 3)
    return mx.io.NDArrayIter(data, labels, batch, **options)


def batch(mx, count=4, seed=0):
    rng = np.random.RandomState(seed)
    return mx.io.DataBatch([mx.nd.array(rng.rand(count, 5))], [mx.nd.array(rng.randint(0, 3, count))])


@program
def predict(mx):
    module = small(mx)
    listed = module.predict(iterator(mx), always_output_list=True)
    apart = module.predict(iterator(mx), merge_batches=False)
    discarded = module.predict(iterator(mx, last_batch_handle="discard"))
    each = [(len(out), out[0].shape, i, b.pad) for out, i, b in module.iter_predict(iterator(mx), num_batch=3)]
    return [
        module.predict(iterator(mx)),
        len(listed),
        listed[0],
        [[out.shape for out in outs] for outs in apart],
        apart[2][0],
        discarded,
        module.predict(iterator(mx), num_batch=2),
        module.predict(iterator(mx), num_batch=0),
        each,
        module.predict(mx.nd.ones((4, 5))),
        module.predict(np.full((4, 5), 0.5, "float32")),
        module.output_shapes,
    ]


@program
def predict_several_outputs(mx):
    network = mlp(mx)
    symbol = mx.sym.Group([network.get_internals()["fc2_output"], network])
    module = small(mx, symbol=symbol, for_training=False)
    outputs = module.predict(iterator(mx))
    return [*outputs, module.output_names, module.output_shapes]


@program
def score(mx):
    module = small(mx)
    lines = []

    def note(param):
        lines.append("%d %d %.5f" % (param.epoch, param.nbatch, param.eval_metric.get()[1]))

    metric = mx.metric.create("ce")
    return [
        module.score(iterator(mx), "acc"),
        "%s %.5f" % module.score(iterator(mx), metric, num_batch=2, batch_end_callback=note)[0],
        "%s %.5f" % module.score(iterator(mx), "ce", score_end_callback=[note, note], epoch=3)[0],
        lines,
        [name for name, _ in module.score(iterator(mx), ["acc", "ce"])],
        [name for name, _ in module.score(iterator(mx), mx.metric.np(lambda label, pred: pred.sum()))],
    ]


@program
def steps_by_hand(mx):
    module = small(mx)
    module.init_optimizer(optimizer="sgd", optimizer_params=(("learning_rate", 0.5), ("momentum", 0.5)))
    outputs = []
    for seed in range(4):
        module.forward(batch(mx, seed=seed), is_train=True)
        outputs.append(module.get_outputs()[0].asnumpy())
        module.backward()
        module.update()
    args, _ = module.get_params()
    return [*outputs, *[args[name] for name in sorted(args)]]


@program
def batches_of_other_sizes(mx):
    module = small(mx)
    module.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    results = []
    for count in (4, 2, 7, 4, 1, 9):
        module.forward(batch(mx, count, seed=count))
        results += [module.get_outputs()[0].asnumpy(), module.data_shapes, module.output_shapes]
        module.backward()
        module.update()
    module.reshape([("data", (3, 5))], [("softmax_label", (3,))])
    module.forward(batch(mx, 3))
    return [*results, module.get_outputs()[0], module.get_params()[0]["fc1_weight"]]


@program
def batches_of_other_sizes_on_two_contexts(mx):
    module = small(mx, context=[mx.cpu(0), mx.cpu(1)])
    module.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    for count in (4, 2, 7, 4):
        module.forward_backward(batch(mx, count, seed=count))
        module.update()
    rows = module.get_outputs(merge_multi_context=False)
    return [[[out.shape for out in row] for row in rows], module.get_outputs()[0], module.get_params()[0]["fc1_weight"]]


@program
def gradients_of_inputs(mx):
    results = []
    for contexts in ([mx.cpu()], [mx.cpu(0), mx.cpu(1)]):
        module = small(mx, inputs_need_grad=True, context=contexts)
        module.forward(batch(mx))
        module.backward()
        grads = module.get_input_grads(merge_multi_context=False)
        results += [module.get_input_grads()[0], [[each.shape for each in row] for row in grads]]
    return results


@program
def gradients_that_add_up(mx):
    module = small(mx, grad_req="add")
    module.init_optimizer(optimizer_params={"learning_rate": 0.5})
    for seed in range(3):
        module.forward_backward(batch(mx, seed=seed))
    module.update()
    return [module.get_params()[0]["fc1_weight"], module._exec_group.grad_arrays[0][0]]


@program
def gradients_from_outside(mx):
    symbol = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    results = []
    for contexts in ([mx.cpu()], [mx.cpu(0), mx.cpu(1)]):
        module = mx.mod.Module(symbol, label_names=None, context=contexts)
        module.bind([("data", (4, 3))], inputs_need_grad=True)
        module.init_params(arg_params=weights(mx, symbol, data=(4, 3))[0])
        module.forward(mx.io.DataBatch([mx.nd.array(np.arange(12).reshape(4, 3))]))
        module.backward([mx.nd.array(np.arange(8).reshape(4, 2))])
        results += [module.get_input_grads()[0], *[row[0] for row in module._exec_group.grad_arrays]]
    return results


@program
def several_data_and_labels(mx):
    sym = mx.sym
    a = sym.FullyConnected(sym.Variable("a"), num_hidden=3, name="fa")
    b = sym.FullyConnected(sym.Variable("b"), num_hidden=3, name="fb")
    heads = [
        sym.SoftmaxOutput(a + b, sym.Variable("x"), name="sx"),
        sym.LinearRegressionOutput(a - b, sym.Variable("y")),
    ]
    symbol = sym.Group(heads)
    rng = np.random.RandomState(4)
    data = {"b": rng.rand(10, 4).astype("float32"), "a": rng.rand(10, 2).astype("float32")}
    labels = {"y": rng.rand(10, 3).astype("float32"), "x": rng.randint(0, 3, 10).astype("float32")}
    module = mx.mod.Module(symbol, data_names=["a", "b"], label_names=["x", "y"])
    args, _ = weights(mx, symbol, a=(5, 2), b=(5, 4), x=(5,), y=(5, 3))
    metric = mx.metric.MSE(output_names=[symbol.list_outputs()[1]], label_names=["y"])
    iterator = mx.io.NDArrayIter(data, labels, 5)
    module.fit(iterator, eval_metric=metric, arg_params=args, num_epoch=2, optimizer_params={"learning_rate": 0.3})
    arguments = module.get_params()[0]
    return [*[arguments[name] for name in sorted(arguments)], module.score(iterator, metric)[0][1], module.label_names]


@program
def states(mx):
    sym = mx.sym
    state = sym.FullyConnected(sym.Variable("data"), num_hidden=3, name="i", no_bias=True) + sym.Variable("state")
    symbol = sym.Group([sym.tanh(state, name="out"), sym.BlockGrad(state, name="next")])
    module = mx.mod.Module(symbol, label_names=None, state_names=["state"])
    module.bind([("data", (2, 3))])
    module.init_params(arg_params=weights(mx, symbol, data=(2, 3), state=(2, 3))[0])
    module.set_states(value=0.5)
    results = [module.get_states(merge_multi_context=False)[0][0].asnumpy()]
    for _ in range(2):
        module.forward(mx.io.DataBatch([mx.nd.ones((2, 3))]))
        outputs = module.get_outputs(merge_multi_context=False)
        module.set_states(states=[outputs[1]])
        results.append(module.get_outputs()[0].asnumpy())
    kinds = [outcome(lambda: module.set_states()), outcome(lambda: module.get_states())]
    return [*results, module.get_states(False)[0][0], *kinds]


@program
def batches_along_another_axis(mx):
    symbol = mx.sym.sum(mx.sym.Variable("data") * 2, axis=0, name="total")
    module = mx.mod.Module(symbol, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    module.bind([mx.io.DataDesc("data", (3, 4), layout="TN")], for_training=False)
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.array(np.arange(12).reshape(3, 4))]))
    return [module.get_outputs()[0], [each.shape for each in module.get_outputs(False)[0]]]


@program
def dtypes_of_data(mx):
    symbol = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(symbol, label_names=None)
    module.bind([mx.io.DataDesc("data", (2, 3), "float64")], for_training=False)
    module.init_params(mx.init.One())
    module.forward(mx.io.DataBatch([mx.nd.ones((2, 3), dtype="float64")]))
    return [str(module.get_params()[0]["fc_weight"].dtype), module.get_outputs()[0]]


@program
def shared_modules(mx):
    first = small(mx)
    second = mx.mod.Module(mlp(mx))
    second.bind([("data", (2, 5))], [("softmax_label", (2,))], shared_module=first)
    first.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    second.borrow_optimizer(first)
    for seed in range(2):
        for module, count in ((first, 4), (second, 2)):
            module.forward_backward(batch(mx, count, seed=seed))
            module.update()
    first.forward(batch(mx), is_train=False)
    out = first.get_outputs()[0].asnumpy()
    second.forward(batch(mx, 2), is_train=False)
    return [out, second.get_outputs()[0], second.get_params()[0]["fc1_weight"]]


@program
def optimizers_of_ones_own(mx):
    optimizer = mx.optimizer.SGD(learning_rate=0.5, momentum=0.5, rescale_grad=0.25)
    optimizer.set_lr_mult({"fc1_weight": 0.1})
    optimizer.set_wd_mult({"fc2_weight": 0.5})
    module = small(mx)
    module.init_optimizer(optimizer=optimizer)
    for seed in range(3):
        module.forward_backward(batch(mx, seed=seed))
        module.update()
    args, _ = module.get_params()
    return [*[args[name] for name in sorted(args)], optimizer.num_update, module._optimizer is optimizer]


@program
def multipliers_in_symbols(mx):
    weight = mx.sym.Variable("w", lr_mult=0.1, wd_mult=2.0)
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), weight=weight, num_hidden=3, name="fc")
    module = small(mx, symbol=mx.sym.SoftmaxOutput(x, name="softmax"))
    module.init_optimizer(optimizer_params={"learning_rate": 0.5, "wd": 0.1})
    for seed in range(3):
        module.forward_backward(batch(mx, seed=seed))
        module.update()
    args, _ = module.get_params()
    return [args["w"], args["fc_bias"]]


def sparse_training(mx, symbol, data, optimizer, **settings):
    """A weight of which batches touch a few rows: what lazy updates leave."""
    iterator = mx.io.NDArrayIter(data, mx.nd.array([0, 2, 1, 1, 0, 2]), 2, last_batch_handle="discard")
    module = mx.mod.Module(symbol)
    args = {
        name: array for name, array in weights(mx, symbol, data=(2, *data.shape[1:]), softmax_label=(2,))[0].items()
    }
    settings["learning_rate"] = 0.3
    module.fit(iterator, arg_params=args, num_epoch=2, optimizer=optimizer, optimizer_params=settings)
    return module.get_params()[0]["weight"].tostype("default")


def embedding(mx, **options):
    weight = mx.sym.Variable("weight", shape=(8, 3), **options)
    x = mx.sym.Embedding(mx.sym.Variable("data"), weight, input_dim=8, output_dim=3, sparse_grad=True)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")


def sparse_linear(mx):
    weight = mx.sym.Variable("weight", shape=(8, 3), stype="row_sparse")
    x = mx.sym.sparse.dot(mx.sym.Variable("data", stype="csr"), weight)
    return mx.sym.SoftmaxOutput(mx.sym.broadcast_add(x, mx.sym.Variable("bias", shape=(3,))), name="softmax")


@program
def sparse_gradients(mx):
    rng = np.random.RandomState(8)
    rows = mx.nd.sparse.csr_matrix((rng.rand(6, 8) * (rng.rand(6, 8) > 0.7)).astype("float32"), dtype="float32")
    words = mx.nd.array([0, 1, 2, 3, 1, 2])
    return [
        sparse_training(mx, embedding(mx), words, "sgd", momentum=0.9, wd=0.1),
        sparse_training(mx, embedding(mx, stype="row_sparse"), words, "adam", wd=0.1),
        sparse_training(mx, embedding(mx), words, "sgd", momentum=0.9, wd=0.1, lazy_update=False),
        sparse_training(mx, sparse_linear(mx), rows, "sgd", momentum=0.9, wd=0.1),
        sparse_training(mx, sparse_linear(mx), rows, "adagrad"),
    ]


@program
def parameters(mx):
    module = small(mx)
    given = {name: mx.nd.ones(array.shape) for name, array in module.get_params()[0].items()}
    results = []
    module.set_params(given, {})
    results.append(module.get_params()[0]["fc1_weight"].asnumpy())
    module.set_params({"fc1_bias": mx.nd.full((6,), 3)}, {}, allow_missing=True)
    results.append(module.get_params()[0]["fc1_bias"].asnumpy())
    module.init_params(mx.init.Constant(0.5), force_init=True)
    results.append(module.get_params()[0]["fc2_weight"].asnumpy())
    partly = {"fc1_weight": mx.nd.full((6, 5), 7)}
    module.init_params(mx.init.One(), arg_params=partly, allow_missing=True, force_init=True)
    results += [module.get_params()[0][name].asnumpy() for name in ("fc1_weight", "fc2_weight", "fc2_bias")]
    return [*results, sorted(module.get_params()[0]), module.get_params()[1]]


@program
def parameters_set_and_never_initialised(mx):
    module = mx.mod.Module(mlp(mx))
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    args, _ = weights(mx, mlp(mx), data=(4, 5), softmax_label=(4,))
    module.set_params({**args, "other": mx.nd.ones((2,))}, None, allow_missing=True, allow_extra=True)
    before = {name: array.asnumpy() for name, array in module.get_params()[0].items()}
    module.init_optimizer()
    module.forward_backward(batch(mx))
    module.update()
    return [before, {name: array.asnumpy() for name, array in module.get_params()[0].items()}]


@program
def gradients_by_name(mx):
    def kept(grad_req, **options):
        fixed = options.pop("fixed", None)
        module = mx.mod.Module(mlp(mx), fixed_param_names=fixed)
        module.bind([("data", (4, 5))], [("softmax_label", (4,))], grad_req=grad_req, **options)
        return sorted(name for name, grad in module._exec_group.execs[0].grad_dict.items() if grad is not None)

    each = ["write", "null", "add", "write", "null", "write"]
    return [
        kept("write", fixed=["fc1_bias"]),
        kept({"fc1_bias": "write"}, fixed=["fc1_bias", "fc2_bias"]),
        kept({"data": "write", "softmax_label": "add", "fc1_weight": "null"}),
        kept({"data": "null"}, inputs_need_grad=True),
        kept(each),
        kept(each, fixed=["fc1_bias"], inputs_need_grad=True),
        kept(["write"], for_training=False),
        outcome(lambda: kept(["write"])),
        outcome(lambda: kept("sometimes")),
    ]


@program
def refusals(mx):
    def module(**options):
        return mx.mod.Module(mlp(mx), **options)

    bound = small(mx)
    untrained = small(mx, for_training=False)
    return [
        outcome(lambda: module(data_names=["x"])),
        outcome(lambda: module(fixed_param_names=["x"])),
        outcome(lambda: module(state_names=["x"])),
        outcome(lambda: module(context=[mx.cpu(0), mx.cpu(1)], work_load_list=[1])),
        outcome(lambda: module().bind([("x", (2, 3))])),
        outcome(lambda: module().bind([("data", (4, 5))], [("softmax_label", (3,))])),
        outcome(lambda: module().bind([("data", (4, 5))], [("softmax_label", (4,))], grad_req=3)),
        outcome(lambda: module(context=[mx.cpu(0), mx.cpu(1)]).bind([("data", (1, 5))], [("softmax_label", (1,))])),
        outcome(lambda: module().forward(batch(mx))),
        outcome(lambda: module().init_params()),
        outcome(lambda: module().get_params()),
        outcome(lambda: module().init_optimizer()),
        outcome(lambda: module().predict(iterator(mx))),
        outcome(lambda: module().score(iterator(mx), "acc")),
        outcome(lambda: module().save_optimizer_states("nowhere")),
        outcome(lambda: module().borrow_optimizer(bound)),
        outcome(lambda: bound.update()),
        outcome(lambda: bound.get_input_grads()),
        outcome(lambda: bound.init_optimizer(optimizer="none such")),
        outcome(lambda: bound.init_optimizer(kvstore=3)),
        outcome(lambda: bound.fit(iterator(mx))),
        outcome(lambda: bound.predict([1])),
        outcome(lambda: bound.set_params({}, {})),
        outcome(lambda: bound.set_params({"none": mx.nd.ones(1)}, {}, allow_missing=True)),
        outcome(lambda: bound.set_params({"fc1_weight": mx.nd.ones((1, 2))}, {}, allow_missing=True)),
        outcome(lambda: bound.forward(mx.io.DataBatch([mx.nd.ones((4, 5))], [mx.nd.ones((4, 7))]))),
        outcome(lambda: bound.forward(mx.io.DataBatch([mx.nd.ones((4, 6))], [mx.nd.ones((4,))]))),
        outcome(lambda: (untrained.forward(batch(mx)), untrained.backward())),
    ]


@program
def logged(mx):
    symbol = mlp(mx)
    args, _ = weights(mx, symbol, data=(4, 5), softmax_label=(4,))
    with Lines() as log:
        module = mx.mod.Module(symbol)
        module.fit(
            iterator(mx, 18),
            iterator(mx),
            eval_metric=["acc", "ce"],
            arg_params=args,
            num_epoch=3,
            begin_epoch=1,
            batch_end_callback=[mx.callback.Speedometer(4, 2), mx.callback.log_train_metric(3)],
            eval_end_callback=mx.callback.LogValidationMetricsCallback(),
            eval_batch_end_callback=mx.callback.log_train_metric(2),
            optimizer_params={"learning_rate": 0.3},
        )
        module.bind([("data", (4, 5))])
        module.init_optimizer()
    return [log.text()]


def watched(mx, **options):
    """What a Monitor tells of a training, but for gradients."""
    notes = []

    class Noted(mx.mon.Monitor):
        def toc(self):
            found = super().toc()
            forward = [each for each in found if "backward" not in each[1]]
            notes.append([(step, name, ["%.4f" % float(v) for v in text.split()]) for step, name, text in forward])
            return found

    symbol = mlp(mx)
    args, _ = weights(mx, symbol, data=(4, 5), softmax_label=(4,))
    monitor, options = Noted(2, lambda a: a.abs().sum(), **options), {"learning_rate": 0.1}
    mx.mod.Module(symbol).fit(iterator(mx), arg_params=args, num_epoch=1, monitor=monitor, optimizer_params=options)
    return notes


@program
def monitored(mx):
    return [watched(mx), watched(mx, pattern="fc1.*", sort=True)]


@program
def monitored_through_other_sizes(mx):
    module, monitor = small(mx), mx.mon.Monitor(1, pattern="fc1.*|softmax.*")
    module.install_monitor(monitor)

    def names(size):
        monitor.tic()
        module.forward(batch(mx, size), is_train=False)
        return [name for _, name, _ in monitor.toc()]

    found = [names(size) for size in (4, 2, 6)]
    module.install_monitor(monitor)
    return [*found, names(4), names(3)]
