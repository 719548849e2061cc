"""mx.contrib.svrg_optimization: metrics and weights of trainings, batch by batch."""

import importlib

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)

NAMES = (["data"], ["label"])


def module_class(mx):
    return importlib.import_module(mx.__name__ + ".contrib.svrg_optimization.svrg_module").SVRGModule


def regression(mx):
    dense = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="fc")
    return mx.sym.LinearRegressionOutput(dense, mx.sym.var("label"), name="out")


def data(mx, batch_size):
    rng = np.random.RandomState(0)
    x = rng.randn(20, 3).astype("float32")
    return mx.io.NDArrayIter(x, (x @ np.array([1, -2, 3.0]) + 0.5).astype("float32"), batch_size, label_name="label")


def trained(mx, update_freq, batch_size, kvstore, optimizer, params, epochs):
    module, seen = module_class(mx)(regression(mx), *NAMES, update_freq=update_freq), []
    module.fit(
        data(mx, batch_size),
        eval_data=data(mx, batch_size),
        eval_metric="mse",
        optimizer=optimizer,
        optimizer_params=params,
        kvstore=kvstore,
        num_epoch=epochs,
        arg_params={"fc_weight": mx.nd.array([[0.1, 0.2, 0.3]]), "fc_bias": mx.nd.zeros(1)},
        batch_end_callback=lambda param: seen.append(param.eval_metric.get()[1]),
    )
    weights = module.get_params()[0]
    return [np.array(seen, "float32"), weights["fc_weight"], weights["fc_bias"]]


@program
def trainings(mx):
    results = trained(mx, 1, 4, "local", "sgd", {"learning_rate": 0.1}, 3)
    results += trained(mx, 2, 4, None, "sgd", (("learning_rate", 0.1),), 4)
    results += trained(mx, 3, 6, "device", "sgd", {"learning_rate": 0.1, "wd": 0.01}, 4)
    results += trained(mx, 2, 4, "local", "sgd", {"learning_rate": 0.05, "momentum": 0.9}, 3)
    return results + trained(mx, 2, 4, "local", "adam", {"learning_rate": 0.1}, 3)


@program
def refusals(mx):
    make, net = module_class(mx), regression(mx)
    return [outcome(lambda freq=freq: make(net, *NAMES, update_freq=freq)) for freq in (None, 0, -1, 1.5)]
