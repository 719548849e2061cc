"""mx.model.FeedForward: weights, metrics, callbacks and predictions of its trainings."""

import os
import tempfile
import warnings

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def network(mx):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=5, name="fc1")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn", fix_gamma=False), act_type="tanh", name="act")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc2"), name="softmax")


def samples(count=50):
    data = np.random.RandomState(0).uniform(-1, 1, (count, 6)).astype("float32")
    return data, data[:, :3].argmax(1).astype("float32")


def batches(mx, size=10):
    return mx.io.NDArrayIter(*samples(), size)


def values(mx):
    """The first values of all parameters, by name."""
    net, rng = network(mx), np.random.RandomState(1)
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(10, 6))[0]))
    names = [name for name in net.list_arguments() if name not in ("data", "softmax_label")]
    return {name: mx.nd.array(rng.uniform(-0.7, 0.7, shapes[name])) for name in names}


def model(mx, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return mx.model.FeedForward(*args, **kwargs)


def weights(trained):
    found = [trained.arg_params[name] for name in sorted(trained.arg_params)]
    return found + [trained.aux_params[name] for name in sorted(trained.aux_params)]


def fitted(mx, fit, **kwargs):
    """A model trained without chance, and what its batch callbacks saw."""
    seen = []
    trained = model(mx, network(mx), arg_params=values(mx), initializer=mx.init.One(), **kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        trained.fit(
            batches(mx),
            batch_end_callback=lambda p: seen.append((p.epoch, p.nbatch, *np.ravel(p.eval_metric.get()[1]))),
            **fit,
        )
    return trained, [np.array(seen)]


@program
def trained_on_an_iterator(mx):
    trained, seen = fitted(mx, {}, num_epoch=3, learning_rate=0.3, momentum=0.9, wd=0.01)
    (scores, data, labels) = trained.predict(batches(mx, 15), return_data=True)
    first = trained.predict(batches(mx), num_batch=2)
    accuracy = trained.score(batches(mx))
    several = trained.score(batches(mx), ["acc", "ce"], num_batch=3)
    return [*seen, *weights(trained), scores, data, labels, first, accuracy, np.array(several)]


@program
def epochs_of_some_batches(mx):
    ends = []
    fit = {"epoch_end_callback": lambda epoch, symbol, arg, aux: ends.append(arg["fc1_weight"].asnumpy().sum())}
    short, seen = fitted(mx, fit, num_epoch=3, epoch_size=3, learning_rate=0.2)
    long, seen_too = fitted(mx, {}, num_epoch=2, epoch_size=7, learning_rate=0.2)
    return [*seen, *seen_too, *weights(short), *weights(long), np.array(ends)]


@program
def trained_on_two_contexts(mx):
    fit = {"work_load_list": [1, 4], "kvstore": "device", "eval_metric": ["acc", "ce"]}
    trained, seen = fitted(mx, fit, ctx=[mx.cpu(0), mx.cpu(1)], num_epoch=2, learning_rate=0.2)
    return [*seen, *weights(trained)]


@program
def trained_without_a_store_by_nag(mx):
    schedule = mx.lr_scheduler.FactorScheduler(4, 0.5)
    trained, seen = fitted(
        mx, {"kvstore": None}, num_epoch=2, optimizer="nag", learning_rate=0.05, lr_scheduler=schedule, momentum=0.8
    )
    return [*seen, *weights(trained)]


@program
def evaluated_between_epochs(mx):
    told = []
    fit = {
        "eval_data": batches(mx),
        "eval_end_callback": lambda p: told.append((p.epoch, p.nbatch, p.eval_metric.get()[1])),
        "eval_batch_end_callback": lambda p: told.append((p.epoch, p.nbatch, p.eval_metric.get()[1])),
    }
    trained, seen = fitted(mx, fit, num_epoch=2, learning_rate=0.3)
    return [*seen, np.array(told), *weights(trained)]


@program
def saved_and_resumed(mx):
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "model")
        first, _ = fitted(mx, {}, num_epoch=2, learning_rate=0.3)
        first.save(prefix)
        first.save(prefix, 7)
        files = sorted(os.listdir(folder))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            again = mx.model.FeedForward.load(prefix, 2, num_epoch=4, learning_rate=0.1)
        again.fit(batches(mx))
    return [str(files), again.begin_epoch, *weights(first), *weights(again)]


@program
def several_outputs(mx):
    net = network(mx)
    both = mx.sym.Group([net, mx.sym.BlockGrad(net.get_internals()["act_output"])])
    asked = model(mx, both, arg_params=values(mx), numpy_batch_size=20, aux_params=None)
    return asked.predict(samples()[0])


@program
def parameters_that_are_not_given(mx):
    kept = values(mx)
    given = {"fc1_weight": kept["fc1_weight"], "other": mx.nd.ones((2,))}
    made = model(mx, network(mx), arg_params=given, initializer=mx.init.One(), allow_extra_params=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        names = made._init_params([("data", (10, 6)), ("softmax_label", (10,))])
        first = weights(made)
        made._init_params([("data", (10, 6)), ("softmax_label", (10,))], overwrite=True)
    is_data = [made._is_data_arg(name) for name in ("data", "x_label", "fc_weight")]
    return [str(names), *first, *weights(made), str(is_data)]


@program
def arrays_for_iterators(mx):
    made = model(mx, network(mx), numpy_batch_size=20)
    data, labels = samples()

    def told(iterator):
        rows = [batch.label[0].shape[0] - batch.pad for batch in iterator]
        return str((iterator.provide_data, iterator.provide_label, rows))

    return [
        told(made._init_iter(data, labels, is_train=True)),
        told(made._init_iter(mx.nd.array(data), mx.nd.array(labels), is_train=True)),
        told(made._init_iter(data, labels.reshape((-1, 1)), is_train=True)),
        told(made._init_iter(data, None, is_train=False)),
        told(made._init_eval_iter((data.tolist(), labels.tolist()))),
        outcome(lambda: made._init_iter(data, None, is_train=True)),
        outcome(lambda: made._init_iter(data, labels[:3], is_train=True)),
        outcome(lambda: made._init_iter(data, np.ones((50, 2)), is_train=True)),
        outcome(lambda: made._init_iter(data.tolist(), labels, is_train=True)),
        outcome(lambda: made._init_eval_iter(data)),
        outcome(lambda: made._init_eval_iter((None, labels))),
        outcome(lambda: made.save("never")),
        outcome(lambda: made.fit(batches(mx))),
        outcome(lambda: model(mx, network(mx), arg_params={"zz": mx.nd.ones((1,))}, aux_params={}).predict(data)),
    ]
