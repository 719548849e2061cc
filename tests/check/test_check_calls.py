"""Calls of MXNet's functions: keywords, literals, and strings that name optimizers and other classes."""

import pytest
from reading import findings, names

from neomx.check import calls, package


def signature(name):
    return calls.signature(package.find(name.replace("mx.", "mxnet.", 1)))


def test_unknown_keywords_are_reported_with_the_nearest_known_one():
    text = """
        import mxnet as mx
        from mxnet.gluon import nn
        nn.Dense(10, activaton="relu", prefix="a_")
        mx.sym.Convolution(data=x, kernel=(3, 3), num_filter=8, strides=(2, 2), name="c", lr_mult=2, __layout__="NCHW")
        mx.nd.Concat(a, b, dim=1, axis=1)
        mx.mod.Module(s).fit(data, num_epochs=3)
        mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, lr=1)
        mx.nd.zeros((2,), anything=1)
        nn.Dense(10, **settings)
    """
    assert [(line, name, message) for line, _, name, message in findings(text)] == [
        (3, "mx.gluon.nn.Dense(activaton)", "there is no such keyword. Did you mean activation?"),
        (4, "mx.sym.Convolution(strides)", "there is no such keyword. Did you mean stride?"),
        (5, "mx.nd.Concat(axis)", "there is no such keyword."),
        (6, "mx.mod.Module.fit(num_epochs)", "there is no such keyword. Did you mean num_epoch or begin_epoch?"),
        (7, "mx.optimizer.SGD(lr)", "there is no such keyword."),
    ]


def test_keywords_ignored_by_file_iterators_are_notes():
    text = "import mxnet as mx\nmx.io.ImageRecordIter(path_imgrec=p, data_shape=s, batch_size=4, shufle=True)\n"
    ((line, kind, name, message),) = findings(text)
    assert (line, kind, name) == (2, "note", "mx.io.ImageRecordIter(shufle)")
    assert message.startswith("this keyword is ignored, as in MXNet. Did you mean shuffle")


def test_calls_of_f_accept_keywords_of_arrays_and_symbols():
    text = """
        import mxnet as mx
        def hybrid_forward(F, x):
            return F.zeros((2,), ctx=mx.cpu(), name="x")
    """
    assert findings(text) == []


@pytest.mark.parametrize(
    ("name", "keyword", "taken"),
    [
        ("mx.gluon.nn.Conv2D", "prefix", True),  # passed on to Block
        ("mx.gluon.nn.Conv2D", "kernal_size", False),
        ("mx.gluon.rnn.LSTM", "input_size", True),
        ("mx.optimizer.Adam", "wd", True),
        ("mx.optimizer.Adam", "weight_decay", False),
        ("mx.image.ImageIter", "rand_crop", True),  # passed on to CreateAugmenter
        ("mx.gluon.model_zoo.vision.resnet18_v1", "classes", True),
        ("mx.sym.var", "anything", True),  # an attribute of the variable
        ("mx.nd.Custom", "anything", True),
        ("mx.nd.random.uniform", "low", True),
        ("mx.nd.random.uniform", "lo", False),
        ("mx.metric.TopKAccuracy", "top_k", True),
        ("mx.io.NDArrayIter", "batchsize", False),
        ("mx.gluon.Trainer", "compression_params", True),
        ("mx.nd.zeros_like", "dtype", True),  # ignored, as in MXNet
    ],
)
def test_forwarded_keywords_are_looked_up_in_the_receiver(name, keyword, taken):
    assert signature(name).takes(keyword) is taken


def test_invalid_literals_are_reported():
    text = """
        import mxnet as mx
        mx.sym.Activation(data=x, act_type="rellu")
        mx.nd.Pooling(x, kernel=(2, 2), pool_type="avg")
        mx.nd.sum(x, "rows")
    """
    assert [(line, name, message.partition(": expected")[2]) for line, _, name, message in findings(text)] == [
        (
            2,
            "mx.sym.Activation(act_type)",
            " one of 'relu', 'sigmoid', 'softrelu', 'softsign', 'tanh', received 'rellu'",
        ),
        (4, "mx.nd.sum(axis)", " an int or a tuple of ints, received 'rows'"),
    ]


def test_arguments_of_f_are_checked_once():
    text = """
        import mxnet as mx
        class Net(mx.gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return F.softmax(F.Activation(x, act_type="rellu", attr={}), axs=1)
        mx.gluon.nn.Dense(3, activation="rellu"), mx.gluon.nn.Dense(3, activation="relu")
    """
    assert sorted((line, name) for line, _, name, _ in findings(text)) == [
        (4, "mx.nd.Activation(act_type)"),
        (4, "mx.nd.softmax(axs)"),
        (5, "activation 'rellu'"),
    ]


def test_unknown_class_names_in_strings_are_reported():
    text = """
        import mxnet as mx
        trainer = mx.gluon.Trainer(params, "sdg", kvstore="dist_synch")
        mx.optimizer.create("adam"), mx.optimizer.create("addam")
        mx.mod.Module(s).fit(data, eval_metric=["acc", "acuracy"], optimizer="nag", initializer="xaveir")
        mx.metric.create("top_k_accuracy", top_k=5)
        mx.gluon.nn.Dense(3, weight_initializer="normal", bias_initializer='["zeros", {}]')
        mx.gluon.model_zoo.vision.get_model("resnet18_v7")
        mx.gluon.model_zoo.vision.get_model("ResNet18_v2"), mx.kv.create("local"), mx.kv.create(name)
    """
    assert names(text) == {
        "optimizer 'sdg'": [2],
        "kvstore 'dist_synch'": [2],
        "optimizer 'addam'": [3],
        "metric 'acuracy'": [4],
        "initializer 'xaveir'": [4],
        "network 'resnet18_v7'": [7],
    }
    assert findings(text)[0][3] == "neomx has no optimizer of this name. Did you mean sgd?"


def test_names_registered_by_the_script_are_known():
    text = """
        import mxnet as mx

        @mx.optimizer.register
        class Mine(mx.optimizer.Optimizer): pass

        @mx.metric.register
        @mx.metric.alias("other", "another")
        class Score(mx.metric.EvalMetric): pass

        class Late(mx.init.Initializer): pass
        mx.init.register(Late)
        mx.gluon.Trainer(params, "mine"), mx.metric.create("Another"), mx.gluon.nn.Dense(3, weight_initializer="late")
    """
    assert findings(text) == []


def test_name_that_an_import_may_register_is_a_note():
    text = 'import gluonnlp, mxnet as mx\nmx.gluon.Trainer(params, "bertadam")\n'
    ((line, kind, name, message),) = findings(text)
    assert (line, kind, name) == (2, "note", "optimizer 'bertadam'")
    assert message.endswith("The script must register it, or one of its imports: gluonnlp.")


def test_settings_of_an_optimizer_given_by_name_are_checked():
    text = """
        import mxnet as mx
        mx.gluon.Trainer(params, "sgd", {"learning_rate": 0.1, "momentm": 0.9, key: 1, **others})
        mx.mod.Module(s).fit(data, optimizer="adam", optimizer_params={"momentum": 0.9, "beta1": 0.9})
        mx.gluon.Trainer(params, optimizer, {"anything": 1})
    """
    assert names(text) == {"mx.optimizer.SGD(momentm)": [2], "mx.optimizer.Adam(momentum)": [3]}
