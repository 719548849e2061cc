"""Programs as they were written for MXNet in 2015-2019, each using several rooms at once."""

import numpy as np

from parity.spec import family

case, program = family(__name__)


def regression(mx):
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="fc")
    return mx.sym.LogisticRegressionOutput(x, name="out")


def gradients_of_inputs(mx, grad_req):
    """The data's and the weight's gradients, after two steps."""
    module = mx.mod.Module(regression(mx), label_names=["out_label"])
    module.bind([("data", (2, 3))], [("out_label", (2, 1))], inputs_need_grad=True, grad_req=grad_req)
    module.init_params(mx.init.One())
    batch = mx.io.DataBatch([mx.nd.array([[1, 2, 3], [0, 0.5, 1]])], [mx.nd.zeros((2, 1))])
    for _ in range(2):
        module.forward(batch, is_train=True)
        module.backward()
    return [module.get_input_grads()[0].asnumpy(), module._exec_group.grad_arrays[0][0].asnumpy()]


@program
def gradients_of_inputs_added_up(mx):
    return gradients_of_inputs(mx, "add")


@program
def gradients_of_inputs_written(mx):
    return gradients_of_inputs(mx, "write")


@program
def features_of_a_trained_net(mx):
    """Train with BatchNorm and a schedule, then cut the net at a layer inside and take what it gives."""
    sym, rng = mx.sym, np.random.RandomState(3)
    x = sym.BatchNorm(
        sym.Convolution(sym.var("data"), kernel=(3, 3), num_filter=4, name="conv"),
        name="bn",
        fix_gamma=False,
        momentum=0.8,
        eps=1e-3,
    )
    x = sym.Pooling(sym.Activation(x, act_type="relu"), global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    x = sym.FullyConnected(x, num_hidden=3, name="fc")
    net = sym.SoftmaxOutput(x, name="softmax", use_ignore=True, ignore_label=2, normalization="valid")
    pictures = np.random.RandomState(0).randn(12, 2, 6, 6).astype("f")
    batches = mx.io.NDArrayIter(pictures, np.arange(12) % 3, 5)
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(5, 2, 6, 6))[0]))
    names = [name for name in net.list_arguments() if name not in ("data", "softmax_label")]
    module = mx.mod.Module(net)
    metric = mx.metric.create(["acc", "ce"])
    module.fit(
        batches,
        arg_params={name: mx.nd.array(rng.randn(*shapes[name]) * 0.3) for name in names},
        aux_params={"bn_moving_mean": mx.nd.zeros(4), "bn_moving_var": mx.nd.ones(4)},
        num_epoch=3,
        eval_metric=metric,
        optimizer="nag",
        optimizer_params={
            "learning_rate": 0.1,
            "momentum": 0.9,
            "wd": 1e-3,
            "lr_scheduler": mx.lr_scheduler.MultiFactorScheduler(step=[4, 6], factor=0.1, base_lr=0.1),
        },
    )
    args, aux = module.get_params()
    features = mx.mod.Module(net.get_internals()["pool_output"], label_names=None)
    features.bind([("data", (2, 2, 6, 6))], for_training=False)
    features.set_params(args, aux, allow_extra=True)
    features.forward(mx.io.DataBatch([mx.nd.array(pictures[:2])], None))
    arrays = [array.asnumpy() for group in (args, aux) for _, array in sorted(group.items())]
    return [np.array(metric.get()[1]), features.get_outputs()[0].asnumpy(), *arrays]


@program
def factors_of_users_and_items(mx):
    """Matrix factorisation by two embeddings and a metric of the script's own."""
    user = mx.sym.Embedding(mx.sym.var("user"), input_dim=5, output_dim=2, name="users")
    item = mx.sym.Embedding(mx.sym.var("item"), input_dim=6, output_dim=2, name="items")
    net = mx.sym.LinearRegressionOutput(mx.sym.sum(user * item, axis=1), mx.sym.var("score"), name="out")
    module = mx.mod.Module(net, data_names=["user", "item"], label_names=["score"])
    data = {"user": np.arange(10) % 5, "item": np.arange(10) % 6}
    metric = mx.metric.CustomMetric(lambda label, given: np.sqrt(((label - given.ravel()) ** 2).mean()), name="RMSE")
    module.fit(
        mx.io.NDArrayIter(data, {"score": np.arange(10.0)}, 5),
        num_epoch=2,
        eval_metric=metric,
        optimizer_params={"learning_rate": 0.05},
        initializer=mx.init.Constant(0.5),
    )
    args, _ = module.get_params()
    return [np.array(metric.get()[1]), args["users_weight"].asnumpy(), args["items_weight"].asnumpy()]


@program
def sequences_of_python_and_symbols(mx):
    """A module of a symbol, and after it a loss whose gradient is a function."""
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=5, name="fc")
    loss = mx.mod.PythonLossModule(grad_func=lambda s, label: s - mx.nd.one_hot(label, 5), data_names=["fc_output"])
    both = mx.mod.SequentialModule()
    both.add(mx.mod.Module(net, label_names=[])).add(loss, take_labels=True, auto_wiring=True)
    samples = np.random.RandomState(0).randn(12, 4).astype("f")
    batches = mx.io.NDArrayIter(samples, np.arange(12) % 3, 4)
    both.fit(batches, num_epoch=2, initializer=mx.init.Constant(0.1))
    return [both.get_params()[0][name].asnumpy() for name in ("fc_weight", "fc_bias")]
