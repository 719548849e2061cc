"""Optimizers and schedules: twenty steps of each, on several parameters, with all that can be set."""

import logging
import warnings

import numpy as np

from parity.spec import CASES, family, outcome

case, program = family(__name__)

SHAPES = {"fc_weight": (4, 3), "fc_bias": (4,), "bn_gamma": (2, 3, 2), "bn_beta": (6,), "out_weight": (3, 2, 2, 2)}


def flat(state):
    """The arrays of a state."""
    if state is None:
        return []
    return [array for each in state for array in flat(each)] if isinstance(state, (list, tuple)) else [state]


def train(mx, optimizer, dtype="float32", steps=20, shapes=SHAPES, rescale=1 / 16, together=True):
    """Weights and states after some steps with gradients from a seed, the weights themselves entering them."""
    rng = np.random.RandomState(len(shapes))
    weights = [mx.nd.array(rng.uniform(-1, 1, shape)).astype(dtype) for shape in shapes.values()]
    noise = [[rng.uniform(-8, 8, shape) for shape in shapes.values()] for _ in range(steps)]
    optimizer.rescale_grad = rescale
    updater = mx.optimizer.get_updater(optimizer)
    middle = []
    for step in range(steps):
        grads = [mx.nd.array(each).astype(dtype) + weight for each, weight in zip(noise[step], weights)]
        if together:
            updater(list(range(len(weights))), grads, weights)
        else:
            for i, (grad, weight) in enumerate(zip(grads, weights)):
                updater(i, grad, weight)
        if step == 4:
            middle = [weight.copy() for weight in weights]
    states = [array for i in range(len(weights)) for array in flat(updater.states[i])]
    counts = [optimizer.num_update, optimizer._index_update_count.get(0, -1), len(states)]
    return [*middle, *weights, *states, np.array(counts), float(optimizer.learning_rate)]


def settings(mx, **more):
    """Names, decay, multipliers and a schedule."""
    names = dict(enumerate(SHAPES))
    schedule = mx.lr_scheduler.FactorScheduler(step=6, factor=0.5, base_lr=0.05, warmup_steps=3)
    return dict({"param_idx2name": names, "wd": 0.02, "learning_rate": 0.05, "lr_scheduler": schedule}, **more)


def made(mx, name, **more):
    optimizer = mx.optimizer.create(name, **settings(mx, **more))
    optimizer.set_lr_mult({"fc_bias": 2.0, 4: 0.5})
    optimizer.set_wd_mult({"bn_beta": 3.0, "fc_weight": 0.5})
    return optimizer


VARIANTS = {
    "sgd": [{}, {"momentum": 0.9}, {"momentum": 0.9, "lazy_update": False}],
    "ccsgd": [{"momentum": 0.9}],
    "nag": [{}, {"momentum": 0.9}],
    "signum": [{}, {"momentum": 0.0}, {"wd_lh": 0.01}],
    "ftml": [{}, {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}],
    "lars": [{}, {"momentum": 0.9}, {"momentum": 0.9, "momentum_correction": False, "eta": 0.1, "eps": 1e-2}],
    "lbsgd": [
        {},
        {"momentum": 0.9, "batch_scale": 3, "warmup_epochs": 2, "updates_per_epoch": 4},
        {"batch_scale": 2, "warmup_strategy": "power2", "warmup_epochs": 3, "updates_per_epoch": 4},
        {"batch_scale": 2, "warmup_strategy": "sqrt", "warmup_epochs": 3, "updates_per_epoch": 4, "begin_epoch": 1},
        {"batch_scale": 2, "momentum": 0.5, "warmup_strategy": "lars"},
        {"warmup_strategy": "none", "warmup_epochs": 0},
    ],
    "dcasgd": [{}, {"lamda": 0.5}],
    "lamb": [{}, {"bias_correction": False, "lower_bound": 0.5, "upper_bound": 1.5, "beta1": 0.8, "epsilon": 1e-3}],
    "adam": [{}, {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-2}, {"lazy_update": False}],
    "adagrad": [{}, {"eps": 1e-2}],
    "adadelta": [{}, {"rho": 0.5, "epsilon": 1e-3}],
    "adamax": [{}, {"beta1": 0.7, "beta2": 0.8}],
    "nadam": [{}, {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3, "schedule_decay": 0.1}],
    "rmsprop": [{}, {"centered": True}, {"gamma1": 0.5, "gamma2": 0.7, "centered": True, "clip_weights": 0.8}],
    "ftrl": [{}, {"lamda1": 0.3, "beta": 2}],
    "test": [{}],
}


def declare(name, variant, number):
    def steps(mx):
        return train(mx, made(mx, name, **variant))

    def clipped(mx):
        return train(mx, made(mx, name, clip_gradient=0.2, begin_num_update=2, **variant), together=False)

    def plain(mx):
        return train(mx, mx.optimizer.create(name, **variant), rescale=1.0, steps=8)

    for kind in (steps, clipped, plain):
        kind.__name__ = "%s_%d_%s" % (name, number, kind.__name__)
        program(kind)
        if name == "ftml":  # its z adds up numbers of some twenty that cancel
            CASES["optimizers"][kind.__name__].factor = 4


for _name, _variants in VARIANTS.items():
    for _number, _variant in enumerate(_variants):
        declare(_name, _variant, _number)


def declare_half(name, variant):
    def half(mx):
        """Weights in half precision agree to their last digit or two; what is kept in float32 is exact."""
        results = train(mx, made(mx, name, multi_precision=True, **variant), "float16", steps=10)
        return [r.astype("float32") if getattr(r, "dtype", None) == np.float16 else r for r in results]

    half.__name__ = name + "_in_half_precision"
    program(half)
    CASES["optimizers"][half.__name__].dtypes = ("float16",)


for _name in VARIANTS:
    declare_half(_name, VARIANTS[_name][-1 if _name != "lbsgd" else 1])


@program
def group_adagrad(mx):
    shapes = {"a": (4, 3), "b": (2, 5)}
    results = []
    for more in ({}, {"eps": 1e-2, "clip_gradient": 0.1}):
        optimizer = mx.optimizer.create("groupadagrad", learning_rate=0.1, **more)
        results += train(mx, optimizer, shapes=shapes)
    kind = mx.optimizer.contrib.GroupAdaGrad
    vector, cube, matrix = mx.nd.ones(3), mx.nd.ones((2, 2, 2)), mx.nd.ones((2, 2))
    decaying = kind(wd=0.1)
    return [
        *results,
        outcome(lambda: kind().create_state(0, vector)),
        outcome(lambda: kind().create_state(0, cube)),
        outcome(lambda: decaying.update(0, matrix, matrix, decaying.create_state(0, matrix))),
    ]


@program
def sgld_without_its_noise(mx):
    """The mean of many steps of one length is the step of gradient descent at half the rate."""
    optimizer = mx.optimizer.SGLD(learning_rate=0.0001, wd=20.0, clip_gradient=400.0)
    weight = mx.nd.ones((200, 200))
    optimizer.update(0, weight, mx.nd.ones((200, 200)) * 1000, optimizer.create_state(0, weight))
    values = weight.asnumpy()
    return [round(float(values.mean() - 1), 3), round(float(values.std()), 4)]


def rows(mx, values, indices, shape):
    return mx.nd.sparse.row_sparse_array((np.array(values, "float32"), np.array(indices)), shape=shape)


def train_sparse(mx, name, stype, **more):
    optimizer = mx.optimizer.create(name, **dict({"learning_rate": 0.1, "wd": 0.1, "rescale_grad": 0.5}, **more))
    updater = mx.optimizer.get_updater(optimizer)
    rng = np.random.RandomState(3)
    weight = mx.nd.array(rng.uniform(-1, 1, (5, 2))).tostype(stype)
    for step in range(6):
        indices = [[0, 2], [1], [0, 1, 4]][step % 3]
        updater(0, rows(mx, rng.uniform(-4, 4, (len(indices), 2)), indices, (5, 2)), weight)
    states = flat(updater.states[0])
    return [weight, *states, str([weight.stype] + [state.stype for state in states])]


@program
def sparse_gradients(mx):
    results = []
    for name, more in [
        ("sgd", {}),
        ("sgd", {"momentum": 0.9}),
        ("sgd", {"momentum": 0.9, "clip_gradient": 0.3}),
        ("adam", {}),
        ("adam", {"clip_gradient": 0.3}),
        ("ftrl", {}),
        ("adagrad", {"wd": 0.0}),
    ]:
        results += train_sparse(mx, name, "row_sparse", **more)
    for name, more in [
        ("sgd", {"lazy_update": False, "momentum": 0.9}),
        ("sgd", {"momentum": 0.9}),
        ("adam", {"lazy_update": False}),
        ("adam", {}),
        ("rmsprop", {}),
        ("nag", {"momentum": 0.9}),
    ]:
        results += train_sparse(mx, name, "default", **more)
    return results


@program
def group_adagrad_of_rows(mx):
    optimizer = mx.optimizer.create("groupadagrad", learning_rate=0.1, rescale_grad=0.5)
    updater = mx.optimizer.get_updater(optimizer)
    weight = mx.nd.array(np.arange(10).reshape(5, 2)).tostype("row_sparse")
    for step in range(3):
        updater(0, rows(mx, [[1, 2], [3, 4]], [step, 4], (5, 2)), weight)
    return [weight, updater.states[0]]


@program
def dense_and_sparse_and_half_together(mx):
    nd = mx.nd
    optimizer = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=0.01, multi_precision=True)
    updater = mx.optimizer.get_updater(optimizer)
    dense, table, half = nd.ones((2, 3)), nd.ones((4, 2)).tostype("row_sparse"), nd.ones(3).astype("float16")
    for _ in range(4):
        grads = [nd.ones((2, 3)) * 2, rows(mx, [[1, 2]], [3], (4, 2)), nd.ones(3).astype("float16")]
        updater([0, "table", 2], grads, [dense, table, half])
    states = [array for key in (0, "table", 2) for array in flat(updater.states[key])]
    return [dense, table, half.astype("float32"), *states, optimizer.num_update]


# ---- rates, decays, counts ----


@program
def multipliers(mx):
    names = {0: "a_weight", 1: "a_bias", 2: "b_gamma", 3: "b_beta", 4: "x", 5: "weight"}
    optimizer = mx.optimizer.SGD(param_idx2name=names, wd=0.1, learning_rate=0.2)
    results = [str(sorted(optimizer.wd_mult.items())), str(optimizer.lr_mult), np.array(optimizer._get_wds(range(8)))]
    optimizer.set_wd_mult({"a_bias": 2.0, "other": 1.0, 0: 7.0})
    optimizer.set_lr_mult({"a_bias": 2.0, 0: 5.0, 9: 3.0})
    results += [np.array(optimizer._get_wds([*range(8), "a_bias"])), np.array(optimizer._get_lrs([*range(10), "x"]))]
    optimizer.set_wd_mult({})
    lars = mx.optimizer.LARS(param_idx2name=names, wd=0.1)

    class Parameter:
        lr_mult, wd_mult = 3.0, 4.0

    own = mx.optimizer.Adam(param_idx2name=names, wd=0.1, param_dict={0: Parameter(), 3: Parameter()})
    own.set_lr_mult({0: 100.0, 1: 2.0})
    return [
        *results,
        np.array(optimizer._get_wds(range(8))),
        np.array(lars._get_wds(range(8))),
        np.array(own._get_lrs(range(4))),
        np.array(own._get_wds(range(4))),
        own._get_lr(1),
        own._get_wd(3),
    ]


@program
def multipliers_of_a_symbol(mx):
    class Symbol(mx.sym.Symbol if hasattr(mx, "sym") else object):
        def __init__(self):
            pass

        def __del__(self):
            pass

        def attr_dict(self):
            return {"a": {"__lr_mult__": "2", "__wd_mult__": "0.5"}, "b": {"__wd_mult__": "3", "shape": "(1,)"}}

        def list_arguments(self):
            return ["data", "a", "b"]

    optimizer = mx.optimizer.SGD(sym=Symbol(), param_idx2name={0: "a", 1: "b", 2: "c"}, wd=1.0, learning_rate=1.0)
    first = [np.array(optimizer._get_lrs([0, 1, 2])), np.array(optimizer._get_wds([0, 1, 2]))]
    optimizer.set_lr_mult({"a": 7})
    optimizer.set_wd_mult({})
    return [*first, np.array(optimizer._get_lrs([0, 1, 2])), np.array(optimizer._get_wds([0, 1, 2]))]


@program
def learning_rates(mx):
    plain = mx.optimizer.SGD(learning_rate=0.3)
    plain.set_learning_rate(0.7)
    schedules = [mx.lr_scheduler.FactorScheduler(10, base_lr=0.4) for _ in range(3)]
    by_schedule = mx.optimizer.SGD(lr_scheduler=schedules[0])
    given = mx.optimizer.SGD(lr_scheduler=schedules[1], learning_rate=0.6)
    default = mx.optimizer.Adam(lr_scheduler=schedules[2])
    function = mx.optimizer.SGD(lr_scheduler=lambda count: 1 / (1 + count))
    function.num_update = 3
    return [
        plain.learning_rate,
        str(by_schedule.lr),
        by_schedule.learning_rate,
        given.lr,
        given.learning_rate,
        schedules[1].base_lr,
        default.learning_rate,
        function.learning_rate,
        outcome(lambda: by_schedule.set_learning_rate(1.0)),
        outcome(lambda: plain.set_lr_scale({})),
        mx.optimizer.Optimizer().lr,
        mx.optimizer.SGD(momentum=0.5, begin_num_update=7).num_update,
    ]


@program
def default_rates_beside_a_schedule(mx):
    names = "sgd nag signum lars lbsgd dcasgd sgld adam adamax nadam adagrad adadelta rmsprop ftrl ftml lamb".split()
    rates = []
    for name in names:
        schedule = mx.lr_scheduler.FactorScheduler(10, base_lr=0.4)
        rates.append([name, mx.optimizer.create(name, lr_scheduler=schedule).learning_rate, schedule.base_lr])
    return [str(rates)]


@program
def counts_of_updates(mx):
    """Weights that join later, unequal counts under a schedule, and two devices."""
    nd = mx.nd
    results = []
    for name in ("sgd", "adam"):
        schedule = mx.lr_scheduler.MultiFactorScheduler([2, 4], 0.5, base_lr=0.1)
        optimizer = mx.optimizer.create(name, learning_rate=0.1, lr_scheduler=schedule)
        updater = mx.optimizer.get_updater(optimizer)
        weights = [nd.ones(2) * (i + 1) for i in range(7)]
        for step in range(6):
            used = [i for i in range(7) if step >= i // 2]
            updater(used, [weights[i] * 0.5 for i in used], [weights[i] for i in used])
        results += [*weights, optimizer.num_update, str(sorted(optimizer._index_update_count.items()))]
        other = nd.ones(2, ctx=mx.cpu(1))
        updater2 = mx.optimizer.get_updater(optimizer)
        updater2([0], [other], [other])
        results += [
            other,
            optimizer.num_update,
            str(sorted(optimizer._all_index_update_counts)),
            str(updater2.states[0]),
        ]
    return results


@program
def unequal_counts_without_a_schedule(mx):
    nd = mx.nd
    optimizer = mx.optimizer.Adam(learning_rate=0.1)
    updater = mx.optimizer.get_updater(optimizer)
    weights = [nd.ones(2) * (i + 1) for i in range(4)]
    for step in range(5):
        used = [i for i in range(4) if step >= i]
        updater(used, [weights[i] * 0.5 for i in used], [weights[i] for i in used])
    return [*weights, *[array for i in range(4) for array in flat(updater.states[i])]]


@program
def rates_that_change_on_the_way(mx):
    """lr, wd, multipliers, momentum, rescaling, and a state that is overwritten."""
    nd = mx.nd
    results = []
    for name in ("sgd", "adam", "nag"):
        more = {} if name == "adam" else {"momentum": 0.9}
        optimizer = mx.optimizer.create(name, learning_rate=0.1, **more)
        updater = mx.optimizer.get_updater(optimizer)
        weights = [nd.ones((2, 2)), nd.ones(3) * 2, nd.ones(1) * 3]
        for step in range(10):
            if step == 2:
                optimizer.set_learning_rate(0.02)
            if step == 3:
                optimizer.set_lr_mult({1: 0.0})
            if step == 4:
                optimizer.wd = 0.1
                optimizer.set_wd_mult({2: 2.0})
            if step == 5:
                optimizer.rescale_grad = 0.25
            if step == 6:
                flat(updater.states[0])[0][:] = 0.5
                optimizer.clip_gradient = 0.1
            if step == 7:
                optimizer.clip_gradient = None
                optimizer.rescale_grad = 0.125
            if step == 8:
                optimizer.rescale_grad = -0.5
            if step == 9:
                optimizer.rescale_grad = 0.0
            updater([0, 1, 2], [weight * 3 - 1 for weight in weights], weights)
            results += [weights[0].copy(), flat(updater.states[1])[0].copy()]
        results += weights + [array for i in range(3) for array in flat(updater.states[i])]
    return results


# ---- making and using ----


@program
def registry(mx):
    opt = mx.optimizer
    names = sorted(name for name in opt.Optimizer.opt_registry if name != "adamw")  # MXNet 1.9 has only its op
    created = [type(opt.create(name)).__name__ for name in names]

    @opt.register
    class MyOwn(opt.Optimizer):
        def create_state(self, index, weight):
            return mx.nd.zeros(weight.shape)

        def update(self, index, weight, grad, state):
            self._update_count(index)
            state += grad * self.rescale_grad
            weight -= self._get_lr(index) * state + self._get_wd(index) * weight

    own = opt.create("MYOWN", learning_rate=0.1, wd=0.01)
    trained = train(mx, own, rescale=0.1, steps=3)
    half = train(mx, opt.create("myown", learning_rate=0.1, multi_precision=True), "float16", rescale=0.1, steps=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        @opt.register
        class myown(opt.Optimizer):
            pass

    del opt.Optimizer.opt_registry["myown"]
    return [
        str(names),
        str(created),
        *trained,
        *[each.astype("float32") for each in half[5:10]],
        len(caught),
        outcome(lambda: opt.create("nothing")),
        outcome(lambda: opt.Optimizer.create_optimizer("sgd", foo=1)),
        outcome(lambda: opt.SGD(param_idx2name=["a"])),
        outcome(lambda: opt.Optimizer().update(0, None, None, None)),
        str(opt.Optimizer().create_state(0, None)),
        opt.NDabs(mx.nd.array([-1.0, 2.0])),
        opt.optimizer.SGD is opt.SGD,
        opt.Optimizer.opt_registry["ccsgd"] is opt.ccSGD,
        issubclass(opt.ccSGD, opt.SGD),
    ]


@program
def subclasses_of_optimizers(mx):
    """A program changes one thing of an optimizer; the rest still works."""
    opt = mx.optimizer

    class Slower(opt.SGD):
        def _get_lr(self, index):
            return super()._get_lr(index) / 2

        def _get_lrs(self, indices):
            return [lr / 2 for lr in super()._get_lrs(indices)]

    class Centered(opt.Adam):
        def update(self, index, weight, grad, state):
            super().update(index, weight, grad - grad.mean(), state)

    class Warm(opt.SGD):
        def create_state(self, index, weight):
            return mx.nd.ones(weight.shape)

    return [
        *train(mx, Slower(momentum=0.9, learning_rate=0.1), steps=4),
        *train(mx, Centered(learning_rate=0.1), steps=4),
        *train(mx, Warm(momentum=0.9, learning_rate=0.1), steps=4),
    ]


@program
def kinds_of_states(mx):
    """What create_state makes of a weight, by optimizer, precision and dtype."""
    lines = []

    def describe(state):
        if state is None or isinstance(state, (tuple, list)):
            return None if state is None else [describe(each) for each in state]
        return state.dtype.__name__ + state.stype + str(state.shape) + str(state.asnumpy().ravel()[0])

    for name in VARIANTS:
        for multi_precision in (False, True):
            for dtype in ("float32", "float16", "float64"):
                more = {"momentum": 0.9} if name in ("sgd", "nag", "lars", "lbsgd", "dcasgd", "ccsgd") else {}
                optimizer = mx.optimizer.create(name, multi_precision=multi_precision, **more)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    state = optimizer.create_state_multi_precision(0, mx.nd.ones(2).astype(dtype))
                lines.append((name, multi_precision, dtype, describe(state), len(caught) > 0, optimizer.aggregate_num))
    return [str(line) for line in lines]


@program
def methods_without_an_updater(mx):
    nd, opt = mx.nd, mx.optimizer
    results = []
    for name in VARIANTS:
        optimizer = opt.create(name, wd=0.1)
        weight = nd.array([1, -2, 3])
        state = optimizer.create_state(5, weight)
        for _ in range(2):
            optimizer.update(5, weight, nd.array([0.5, 1.5, -2]), state)
        half = nd.array([1, -2, 3]).astype("float16")
        optimizer = opt.create(name, multi_precision=True)
        state = optimizer.create_state_multi_precision("w", half)
        optimizer.update_multi_precision("w", half, nd.array([0.5, 1.5, -2]).astype("float16"), state)
        # MXNet's LAMB for a single weight leaves the float32 copy as it is, so that the weight stands still.
        kept = flat(state)[name == "lamb" :]
        results += [weight, half.astype("float32").asnumpy().round(2), *kept]
    return results


@program
def updaters(mx):
    nd = mx.nd
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    a, b = nd.ones(2), nd.ones(3)
    updater(3, nd.ones(2), a)
    updater(["x", 3], [nd.ones(3), nd.ones(2)], [b, a])
    moved = updater.sync_state_context((None, a, [b]), mx.cpu(1))
    copy = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
    copy.set_states(updater.get_states())
    unsynced = str(sorted(copy.states_synced.values()))
    copy(3, nd.ones(2), a)
    whole = mx.optimizer.get_updater(mx.optimizer.Adam())
    whole.set_states(updater.get_states(dump_optimizer=True))
    whole(["x"], [nd.ones(3)], [b])
    return [
        a,
        b,
        type(updater).__name__,
        str(updater.aggregate_updates),
        str(sorted(map(str, updater.states))),
        unsynced,
        str(copy.states_synced[3]),
        str(moved[1].context) + str(moved[2][0].context) + str(moved[0]),
        copy.states[3],
        type(whole.optimizer).__name__,
        whole.optimizer.num_update,
        whole.states["x"],
        outcome(lambda: updater.set_states(b"nothing")) is None,
    ]


# ---- schedules ----


def rates(mx, make):
    logging.disable(logging.INFO)
    try:
        return quiet_rates(mx, make)
    finally:
        logging.disable(logging.NOTSET)


def quiet_rates(mx, make):
    schedule = make(mx.lr_scheduler)
    forward = np.array([float(schedule(i)) for i in range(100)])
    attributes = {k: v for k, v in vars(schedule).items() if isinstance(v, (int, float))}
    again = np.array([float(schedule(i)) for i in (7, 3, 150, 40)])
    schedule = make(mx.lr_scheduler)
    jumps = np.array([float(schedule(i)) for i in (0, 37, 37, 90, 20)])
    schedule = make(mx.lr_scheduler)
    schedule.base_lr = 0.25
    return [forward, again, jumps, np.array([float(schedule(i)) for i in range(0, 100, 7)]), str(sorted(attributes))]


SCHEDULES = {
    "factor": lambda s: s.FactorScheduler(7, 0.8, base_lr=0.5),
    "factor_stop": lambda s: s.FactorScheduler(3, 0.5, stop_factor_lr=0.01, base_lr=0.5, warmup_steps=11),
    "factor_default": lambda s: s.FactorScheduler(9),
    "factor_constant_warmup": lambda s: s.FactorScheduler(9, 0.9, 1e-8, 0.1, 5, 0.02, "constant"),
    "multi": lambda s: s.MultiFactorScheduler([5, 30, 31, 80], 0.3, base_lr=0.5),
    "multi_warmup": lambda s: s.MultiFactorScheduler([5, 30], 0.1, 0.5, 20, 0.1, "linear"),
    "poly": lambda s: s.PolyScheduler(60),
    "poly_warmup": lambda s: s.PolyScheduler(90, 0.5, 3, 0.01, 10, 0.1, "linear"),
    "poly_constant_warmup": lambda s: s.PolyScheduler(90, pwr=1, warmup_steps=10, warmup_mode="constant"),
    "cosine": lambda s: s.CosineScheduler(60),
    "cosine_warmup": lambda s: s.CosineScheduler(90, 0.5, 0.01, 10, 0.1, "linear"),
    "cosine_constant_warmup": lambda s: s.CosineScheduler(90, base_lr=2.0, warmup_steps=10, warmup_mode="constant"),
}


def declare_schedule(name, make):
    def schedule(mx):
        return rates(mx, make)

    schedule.__name__ = "schedule_" + name
    program(schedule)


for _name, _make in SCHEDULES.items():
    declare_schedule(_name, _make)


@program
def schedules_refused(mx):
    s = mx.lr_scheduler
    calls = [
        lambda: s.LRScheduler()(1),
        lambda: s.LRScheduler(warmup_steps=-1),
        lambda: s.LRScheduler(warmup_begin_lr=1),
        lambda: s.LRScheduler(warmup_steps=2.5),
        lambda: s.LRScheduler(warmup_mode="x"),
        lambda: s.LRScheduler(warmup_steps=3).get_warmup_lr(5),
        lambda: s.LRScheduler(warmup_steps=4, base_lr=0.4).get_warmup_lr(1),
        lambda: s.FactorScheduler(0),
        lambda: s.FactorScheduler(1, 2),
        lambda: s.MultiFactorScheduler(3),
        lambda: s.MultiFactorScheduler([]),
        lambda: s.MultiFactorScheduler([3, 3]),
        lambda: s.MultiFactorScheduler((3, 4)),
        lambda: s.MultiFactorScheduler([0, 3]),
        lambda: s.MultiFactorScheduler([3], 2),
        lambda: s.PolyScheduler(0),
        lambda: s.PolyScheduler(2.5),
        lambda: s.CosineScheduler(0),
        lambda: s.CosineScheduler(2.5),
    ]
    return [outcome(call) for call in calls]
