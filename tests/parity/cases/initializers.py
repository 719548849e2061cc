"""Initializers whose values are fixed, the rules of names, and how initializers become text and come back."""

import os
import tempfile
import warnings

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)

NAMES = """x_weight weight aweight fc_bias bn_gamma bn_beta bn_running_mean bn_running_var bn_moving_mean bn_moving_var
bn_moving_inv_var bn_moving_avg x_min xmax max stn_loc_weight stn_loc_gamma stn_loc upsampled_weight foo X_WEIGHT
a_min_b fc_bias_quantize x_quantized_bias rnn_parameters""".split()


def filled(mx, init, desc, shape=(2, 3), dtype="float32"):
    """An array after `init(desc, array)`; plain strings are deprecated, which is not the point here."""
    array = mx.nd.full(shape, 7, dtype=dtype) if shape else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        init(desc, array)
    return array


def attempt(mx, *args):
    """What `filled` gives, or the kind of error it raises; errors come when the array is read."""
    return outcome(lambda: filled(mx, *args).asnumpy())


def texts(results):
    return ["%s" % (r if isinstance(r, str) else r.tolist()) for r in results]


@program
def names_say_what_to_do(mx):
    init = mx.init.Constant(5)
    by_desc = [attempt(mx, init, mx.init.InitDesc(name)) for name in NAMES]
    by_string = [attempt(mx, init, name) for name in NAMES]
    return texts(by_desc + by_string)


@program
def strings_with_rules_of_their_own(mx):
    init = mx.init.Constant(5)
    return [
        filled(mx, init, "upsampling0", (1, 2, 4, 4)),
        filled(mx, init, "upsampling_weight", (1, 1, 3, 3)),
        filled(mx, init, "stn_loc_bias", (6,)),
        attempt(mx, init, "stn_loc_bias", (7,)),
        attempt(mx, init, 3),
        attempt(mx, mx.init.Zero(), "x_weight", None),
    ]


@program
def fixed_values(mx):
    init, desc = mx.init, mx.init.InitDesc("x_weight")
    return [
        filled(mx, init.Zero(), desc),
        filled(mx, init.One(), desc, dtype="float16"),
        filled(mx, init.One(), desc, dtype="int32"),
        filled(mx, init.Constant(2.5), desc),
        filled(mx, init.Constant(True), desc),
        filled(mx, init.Constant([1, 2, 3]), desc),
        filled(mx, init.Constant(np.array([[1.5], [2.5]])), desc),
        filled(mx, init.Constant(mx.nd.array([1, 2, 3])), desc, dtype="float64"),
        filled(mx, init.create('["constant", {"value": [1, 2, 3]}]'), desc),
        attempt(mx, init.Constant([1, 2]), desc),
        attempt(mx, init.Initializer(), desc),
        filled(mx, init.Initializer(), init.InitDesc("x_bias")),
        *[filled(mx, init.Bilinear(), desc, s) for s in ((1, 1, 4, 4), (2, 3, 5, 5), (2, 1, 3, 5), (1, 2, 5, 3))],
        *[filled(mx, init.LSTMBias(2.5), desc, s) for s in ((12,), (10,), (8, 2))],
        filled(mx, init.LSTMBias(2.5), init.InitDesc("x_bias"), (8,)),
        filled(mx, init.Uniform(0), desc),
    ]


@program
def refusals(mx):
    init, desc = mx.init, mx.init.InitDesc("x_weight")
    calls = [(i, (8,), "float32") for i in (init.Xavier(), init.MSRAPrelu(), init.Orthogonal())]
    wrong = (init.Xavier(rnd_type="other"), init.Xavier(factor_type="other"), init.Uniform(-1), init.Normal(0))
    calls += [(i, (2, 3), "float32") for i in wrong]
    calls += [(i, (2, 3), "int32") for i in (init.Uniform(), init.Normal(), init.Xavier())]
    return [attempt(mx, i, desc, shape, dtype) for i, shape, dtype in calls]


@program
def the_attribute_of_a_variable_goes_first(mx):
    init = mx.init
    lstm = init.InitDesc("x_i2h_bias", {"__init__": init.LSTMBias(2.5).dumps()})
    named = init.InitDesc("w_weight", attrs={"__init__": "ones"})
    empty = init.InitDesc("w_weight", {"__init__": ""}, init.One())
    plain, given = init.InitDesc("w_weight"), init.Zero()
    results = [
        filled(mx, given, lstm, (8,)),
        filled(mx, given, named),
        filled(mx, given, empty),
        filled(mx, given, plain),
    ]
    return results + [
        str([lstm, lstm.attrs, plain.attrs, lstm == "x_i2h_bias", {lstm: 1}["x_i2h_bias"]]),
        plain.global_init is given,
        type(empty.global_init).__name__,
    ]


@program
def own_initializers(mx):
    class Mine(mx.init.Initializer):
        def __init__(self, value, spread=0.5):
            super(Mine, self).__init__(value=value, spread=spread)
            self.value, self.spread = value, spread

        def _init_weight(self, name, arr):
            arr[:] = self.value + len(name)

        def _init_bias(self, name, arr):
            arr[:] = self.spread

        def _init_default(self, name, arr):
            arr[:] = -1

    class Whole(mx.init.Initializer):
        def __call__(self, name, arr):
            arr[:] = len(name)

    mx.init.register(Mine)
    mx.init.alias("my_other", "MyThird")(Whole)
    mine = mx.init.create("mine", 3)
    names = "x_weight x_bias x_gamma x_beta x_foo x_max".split()
    return [filled(mx, mine, mx.init.InitDesc(n)) for n in names] + [
        filled(mx, mx.init.create("mythird"), "abc"),
        filled(mx, mx.init.Zero(), mx.init.InitDesc("w", {"__init__": mine.dumps()})),
        mine.dumps(),
        mx.init.create("my_other").dumps(),
        outcome(lambda: mx.init.create("whole")),
        outcome(lambda: mx.init.register(int)),
    ]


@program
def as_text(mx):
    i = mx.init
    made = [
        i.Zero(),
        i.One(),
        i.Constant(3),
        i.Constant(mx.nd.array([1, 2])),
        i.Constant(np.array([1, 2])),
        i.Uniform(),
        i.Uniform(1),
        i.Normal(),
        i.Orthogonal(),
        i.Xavier(),
        i.Xavier("gaussian", "in", 2),
        i.MSRAPrelu(),
        i.MSRAPrelu("out", 0.5),
        i.Bilinear(),
        i.LSTMBias(),
        i.LSTMBias(2.0),
        i.Initializer(a=1, b="c"),
        i.FusedRNN(None, 4, 1, "lstm"),
        i.FusedRNN(i.Xavier(), 4, 1, "lstm", True, 2.0),
    ]
    again = [i.create(m.dumps()).dumps() for m in made[:3] + made[5:-3]]
    return [m.dumps() for m in made] + again + [str(vars(i.MSRAPrelu("in", 0.5)))]


@program
def made_by_name(mx):
    create, registered = mx.init.create, mx.registry.get_registry(mx.init.Initializer).items()
    names = "zero zeros ZEROS one ones uniform normal orthogonal xavier msraprelu bilinear lstmbias".split()
    return [create(n).dumps() for n in names] + [
        create("xavier", magnitude=2).dumps(),
        create("constant", 3).dumps(),
        create('["normal", {"sigma": 0.5}]').dumps(),
        create('{"initializer": "normal", "sigma": 0.5}').dumps(),
        create(initializer="normal", sigma=3).dumps(),
        create(initializer=mx.init.Normal(3)).dumps(),
        create({"initializer": "normal", "sigma": 3}).dumps(),
        create(mx.init.Normal(3)).dumps(),
        outcome(lambda: create("constant")),
        outcome(lambda: create("load")),
        outcome(lambda: create("msra")),
        outcome(lambda: create('["normal", {"sigma": 0.5}]', sigma=2)),
        outcome(lambda: create(mx.init.Normal(3), 4)),
        outcome(lambda: create(mx.init.Normal)),
        outcome(lambda: create(None)),
        ",".join(sorted(n for n, c in registered if c.__module__.endswith(".initializer"))),
    ]


@program
def equality(mx):
    i = mx.init
    return [
        i.Zero() == i.Zero(),
        i.Xavier() == i.Xavier(),
        i.Xavier() == i.Xavier(magnitude=3.0),
        i.Xavier() == i.Xavier(magnitude=2),
        i.One() == i.Zero(),
        i.MSRAPrelu() == i.Xavier("gaussian", "avg", 2 / (1 + 0.25**2)),
        i.Zero() == 3,
        i.Zero() == i.Constant(0),
        outcome(lambda: hash(i.Zero())),
    ]


@program
def load_saved(mx):
    one = mx.nd.ones((2, 3))
    params = {"arg:fc_weight": one, "aux:bn_mean": one * 2, "plain": one * 3}
    init = mx.init.Load(params)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p.params")
        mx.nd.save(path, params)
        from_file = mx.init.Load(path, default_init=mx.init.Zero(), verbose=True)
        mx.nd.save(path, [one])
        no_names = outcome(lambda: mx.init.Load(path))
    return [filled(mx, init, n) for n in ("fc_weight", "bn_mean", "plain")] + [
        filled(mx, from_file, "plain"),
        filled(mx, from_file, mx.init.InitDesc("z_gamma")),
        str(sorted(from_file.param)),
        no_names,
        attempt(mx, init, "zz"),
        attempt(mx, init, "plain", (3, 2)),
    ]


@program
def mixed(mx):
    i = mx.init
    init = i.Mixed(["bias", ".*bias", "fc.*_weight", ".*"], [i.One(), i.Zero(), i.Constant(4), i.One()])
    names = ("fc_bias", "bias", "fc1_weight", "conv_fc_weight", "bn_gamma")
    results = [filled(mx, init, i.InitDesc(n)) for n in names] + [filled(mx, init, n) for n in names]
    return results + [
        attempt(mx, i.Mixed(["bias"], [i.Zero()]), "fc_weight"),
        outcome(lambda: i.Mixed(["bias"], [])),
    ]


@program
def packed_parameters(mx):
    class Numbered(mx.init.Initializer):
        def _init_weight(self, name, arr):
            self.told.append("%s %s" % (name, arr.shape))
            arr[:] = 10 * len(self.told) + mx.nd.arange(arr.size).reshape(arr.shape)

        def _init_bias(self, name, arr):
            self._init_weight(name, arr)

    results = []
    for mode, gates in (("lstm", 4), ("gru", 3), ("rnn_relu", 1), ("rnn_tanh", 1)):
        for layers, directions in ((1, 1), (1, 2), (3, 1), (2, 2)):
            size = sum((((2 * directions if layer else 3) + 2) * 2 + 4) * gates * directions for layer in range(layers))
            init, array = Numbered(), mx.nd.zeros(size)
            init.told = []
            fused = mx.init.FusedRNN(None, 2, layers, mode, directions == 2, forget_bias=7.0)
            init(mx.init.InitDesc("rnn_parameters", {"__init__": fused.dumps()}), array)
            results += [np.sort(array.asnumpy()), ",".join(sorted(init.told))]
    constant = mx.nd.zeros(56, dtype="float16")
    mx.init.FusedRNN(mx.init.Constant(5), 2, 1, "lstm")(mx.init.InitDesc("x_weight"), constant)
    bad = mx.init.FusedRNN(mx.init.One(), 2, 1, "lstm")
    return results + [constant, outcome(lambda: bad(mx.init.InitDesc("x_weight"), mx.nd.zeros(57)))]


@program
def registries(mx):
    class Thing(object):
        def __init__(self, **kwargs):
            self.kwargs = kwargs

    class Sub(Thing):
        pass

    get = mx.registry.get_registry
    register = mx.registry.get_register_func(Thing, "thing")
    alias = mx.registry.get_alias_func(Thing, "thing")
    create = mx.registry.get_create_func(Thing, "thing")
    before = str(get(Thing))
    register(Sub)
    register(Sub, "Bee")
    alias("u", "V")(Sub)
    return [
        before,
        str(sorted(get(Thing))),
        get(Thing) is get(Thing),
        str(create("bee", x=1).kwargs),
        str(create(thing="SUB", y=2).kwargs),
        str(create('{"thing": "u", "z": 1}').kwargs),
        str(create('["v", {"z": 1}]').kwargs),
        outcome(lambda: create("nope")),
        outcome(lambda: register(int)),
        type(create(Sub())).__name__,
    ]
