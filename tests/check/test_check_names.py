"""Names of MXNet in scripts: how they are resolved, and the messages for missing ones."""

import pytest
from reading import findings, names

import neomx as mx


def test_every_kind_of_import_is_resolved():
    text = """
        import mxnet
        import mxnet as mx
        import mxnet.ndarray as nd
        from mxnet import gluon as g, sym
        from mxnet.gluon import nn
        from mxnet.gluon.rnn import *
        arrays = mx.nd
        mxnet.nd.zeros, nd.ones, g.Trainer, sym.var, nn.Dense, LSTM, arrays.dot, mx.gluon.model_zoo.vision.get_model
        mxnet.nd.zeroes, nd.onez, g.Trainr, sym.vaar, nn.Dnse, arrays.dott, mx.gluon.model_zoo.vision.get_modell
    """
    expected = "mx.nd.zeros mx.ndarray.ones mx.gluon.Trainer mx.sym.var mx.gluon.nn.Dense mx.gluon.rnn.LSTM mx.nd.dot"
    runs = [name for name, lines in names(text, "runs").items() if 8 in lines]
    assert runs == [*expected.split(), "mx.gluon.model_zoo.vision.get_model"]
    missing = [(name, message.partition("; ")[2]) for _, _, name, message in findings(text, "missing")]
    assert missing == [
        ("mx.nd.zeroes", "it has mx.nd.zeros."),
        ("mx.ndarray.onez", "it has mx.ndarray.ones."),
        ("mx.gluon.Trainr", "it has mx.gluon.Trainer."),
        ("mx.sym.vaar", "it has mx.sym.var."),
        ("mx.gluon.nn.Dnse", "it has mx.gluon.nn.Dense."),
        ("mx.nd.dott", "it has mx.nd.dot."),
        ("mx.gluon.model_zoo.vision.get_modell", "it has mx.gluon.model_zoo.vision.get_model."),
    ]


def test_suggestions_for_moved_and_misspelled_names():
    text = """
        import mxnet as mx
        mx.gluon.metric.Accuracy, mx.gluon.nn.MaxPool2d, mx.sym.MultiProposal, mx.gluon.nn.L1Loss, mx.nd.nothing_like_it
    """
    told = {name: message for _, _, name, message in findings(text)}
    assert told == {
        "mx.gluon.metric": "neomx has no such name; it has mx.metric.",
        "mx.gluon.nn.MaxPool2d": "neomx has no such name; it has mx.gluon.nn.MaxPool2D.",
        "mx.sym.MultiProposal": "neomx has no such name; it has mx.sym.contrib.MultiProposal.",
        "mx.gluon.nn.L1Loss": "neomx has no such name; it has mx.gluon.loss.L1Loss.",
        "mx.nd.nothing_like_it": "neomx has no such name.",
    }


def test_missing_modules_are_reported_at_their_import():
    text = """
        import mxnet.nothing
        from mxnet.gluon import nn, nothing
        from horovod.mxnet import mpi_ops
        import horovod.torch
        import byteps.mxnet as bps
        bps.init(), bps.suspend()
    """
    missing = {"mx.nothing": [1], "mx.gluon.nothing": [2], "horovod.mxnet.mpi_ops": [3], "horovod.torch": [4]}
    assert names(text) == {**missing, "byteps.mxnet.suspend": [6]}


def test_f_means_arrays_or_symbols():
    text = """
        import mxnet as mx

        class Net(mx.gluon.HybridBlock):
            def hybrid_forward(self, functions, x, F=None):
                return functions.relu(x) + functions.rellu(x) + functions.contrib.box_nms(x) + functions.contrib.bx(x)

        def helper(F, x):
            return F.array(x), F.Variable(x), F.np.sum(x), F.nothing(x)

        class Other:
            def forward(self, functions, x):
                return functions.anything(x)

        both = mx.nd if eager else mx.sym
        both.array, both.Variable, both.nothing
    """
    assert names(text) == {"mx.nd.rellu": [5], "mx.nd.contrib.bx": [5], "mx.nd.nothing": [8, 15]}


def test_names_bound_by_the_script_are_ignored():
    text = """
        import mxnet as mx
        from mxnet import nd

        def f(nd, mx):
            nd.anything, mx.anything
            return [nd.anything for nd in mx]

        for nd in range(3):
            nd.anything

        class C:
            mx = None
            def method(self):
                return mx.nothing

        mx.nd.my_own = f
        mx.nd.my_own(1)
    """
    assert names(text) == {"mx.nothing": [14]}


def test_missing_names_that_the_script_handles_are_notes():
    text = """
        import mxnet as mx
        try:
            from mxnet.nothing import Thing
        except ImportError:
            from mxnet.nowhere import Thing
        if hasattr(mx.nd, "nowhere"):
            mx.nd.nowhere()
        getattr(mx.nd, "absent", None)
        if mx.__version__.startswith("2"):
            mx.device.gpu()
        try:
            mx.nd.elsewhere()
        except ValueError:
            pass
        try:
            mx.library.load("x.so")
        except Exception:
            pass
    """
    found = findings(text)
    notes = [(line, name) for line, kind, name, message in found if kind == "note" and "script handles" in message]
    assert notes == [(3, "mx.nothing"), (5, "mx.nowhere"), (7, "mx.nd.nowhere"), (8, "mx.nd.absent"), (10, "mx.device")]
    assert [(line, name) for line, kind, name, _ in found if kind == "missing"] == [(12, "mx.nd.elsewhere")]


def test_imports_in_try_blocks_are_resolved():
    text = """
        try:
            import mxnet as mx
        except ImportError:
            mx = None
        mx.nd.zeroz
    """
    assert names(text) == {"mx.nd.zeroz": [5]}


def test_compat_import_must_come_first():
    late = "import mxnet as mx\nimport neomx.compat.mxnet\n"
    message = "`import neomx.compat.mxnet` must come before this line, not in line 2."
    assert findings(late) == [(1, "missing", "mxnet", message)]
    assert findings("import neomx.compat.mxnet\nimport mxnet as mx\n") == []


def test_too_deeply_nested_expression_is_an_error():
    deep = "import mxnet as mx\nx = " + "+".join(["1"] * 900) + "\n"
    assert findings(deep) == [(1, "error", "", "an expression is nested too deeply to be checked")]


def test_string_names_in_getattr_are_checked():
    text = """
        import mxnet as mx
        getattr(mx.nd, "relu"), getattr(mx.nd, "rellu"), getattr(mx.nd, name)
    """
    assert names(text) == {"mx.nd.rellu": [2]}


def test_methods_are_checked_if_the_class_is_known():
    text = """
        import mxnet as mx
        from mxnet import nd

        x = nd.zeros((2, 3))
        y = (x + 1)[0].reshape((3,))
        x.asnumpy(), x.asnumpyy(), y.asnumpyy(), nd.softmax(x).assnumpy()
        x.indices, x.retain  # methods of a sparse array
        x.note = 3
        x.note
        trainer = mx.gluon.Trainer(params, "sgd")
        trainer.stepp(1), trainer.step(1), trainer.learning_rate, trainer._optimizer
        s = mx.sym.var("s")
        s.list_argument()
    """
    assert names(text) == {
        "mx.ndarray.NDArray.asnumpyy": [6, 6],
        "mx.ndarray.NDArray.assnumpy": [6],
        "mx.gluon.Trainer.stepp": [11],
        "mx.symbol.Symbol.list_argument": [13],
    }


@pytest.mark.parametrize(
    "statement",
    [
        "x = x.asnumpy()",
        "for x in y: pass",
        "x, y = f(), 2",
        "with f() as x: pass",
        "import x",
        "x = nd.split(x, 2)",  # a list of arrays
        "x = load('x')",
        "def x(): pass",
        "def g():\n    global x\n    x = 1",
        "if (x := f()): pass",
        "try: pass\nexcept E as x: pass",
        "match y:\n    case [x, *z]: pass",
    ],
)
def test_methods_are_not_checked_if_the_class_is_uncertain(statement):
    text = f"from mxnet import nd\nx = nd.zeros((2,))\n{statement}\nx.anything()\n"
    assert names(text) == {}
    assert names(text.replace(statement, "")) == {"mx.ndarray.NDArray.anything": [4]}


def test_methods_of_user_classes_and_unknown_objects_are_ignored():
    text = """
        import mxnet as mx
        import numpy as np

        class Net(mx.gluon.Block):
            pass

        net = Net()
        net.anything(), net(1).anything(), np.finfo(float).eps, np.zeros(3).anything
        kv = mx.kv.create("local")
        kv.anything_of_another_kind_of_store
    """
    assert names(text) == {}


def test_file_without_mxnet_is_not_checked():
    assert findings("import numpy as np\nnp.float, xrange\ndef f(F): return F.anything\n") == []


def test_differences_are_reported_for_every_kind_of_import():
    text = """
        import mxnet as mx
        from mxnet import random as r
        mx.random.seed(1), r.seed(2), mx.rnd.seed(3)
        from mxnet.base import _LIB, check_call
        check_call(_LIB.MXRandomSeed(1))
        m = mx.mod.Module(s)
        m.fit(data, kvstore="dist_async"), m.fit(data, kvstore="dist_sync")
        mx.io.ImageRecordIter(shuffle=False), mx.io.ImageRecordIter(shuffle=True)
        mx.nd.contrib.dgl_adjacency(x)
    """
    assert [(line, kind, name) for line, kind, name, _ in findings(text)] == [
        (3, "differs", "mx.random.seed"),
        (3, "differs", "mx.random.seed"),
        (3, "differs", "mx.rnd.seed"),
        (4, "missing", "mx.base._LIB"),
        (5, "missing", "mx.base._LIB"),
        (7, "differs", "mx.mod.Module.fit(kvstore)"),
        (8, "differs", "mx.io.ImageRecordIter(shuffle)"),
        (9, "missing", "mx.nd.contrib.dgl_adjacency"),
    ]


def test_names_are_looked_up_in_neomx(monkeypatch):
    text = "import mxnet as mx\nmx.nd.brand_new(1)\n"
    assert names(text) == {"mx.nd.brand_new": [2]}
    monkeypatch.setattr(mx.nd, "brand_new", print, raising=False)
    assert names(text) == {}


def test_removed_numpy_names_are_reported():
    uses = "import numpy as np\nnp.float, np.Inf, np.asscalar, np.random.nothing, np.linalg.norm\n"
    assert list(names("import mxnet as mx\n" + uses)) == ["numpy.asscalar", "numpy.random.nothing"]
    told = {name: message for _, _, name, message in findings("import neomx as mx\n" + uses)}
    assert list(told) == ["numpy.float", "numpy.Inf", "numpy.asscalar", "numpy.random.nothing"]
    assert "Use the builtin `float`. `import mxnet` restores it" in told["numpy.float"]


def test_python_2_names_are_reported():
    text = """
        import mxnet as mx
        import cPickle
        for i in xrange(3):
            print(unicode(i), long)
        try:
            reduce
        except NameError:
            from functools import reduce
        def f(basestring): return basestring
        if sys.version_info[0] < 3: raw_input()
    """
    assert names(text) == {"cPickle": [2], "xrange": [3], "unicode": [4], "long": [4]}
