"""Optimizer steps: the new weight, and the states that change in place."""

import numpy as np

from parity.spec import const, f, family, find_op, outcome

case, program = family(__name__)

half = "float16"
W, G, M, V = f(3, 4), f(3, 4), f(3, 4), f(3, 4, lo=0.1, hi=2)
HW, HG = f(3, 4, dtype=half), f(3, 4, dtype=half)
RESCALE = const([0.5])

# Attributes that every rule must get right alone and together.
PLAIN = [
    {},
    {"wd": 0.1},
    {"rescale_grad": 0.5, "clip_gradient": 0.2},
    {"wd": 0.3, "rescale_grad": 2.0, "clip_gradient": 0.5},
]


names = set()


def in_place(op, *inputs, weights=(0,), shown=None, steps=2, **attrs):
    """A program: some steps of an op with `out=` its weights, at these positions; then the arrays `shown`, or all."""

    def run(mx):
        rng = np.random.RandomState(len(inputs))
        values = [i.make(rng) for i in inputs]
        arrays = [mx.nd.array(v, dtype=v.dtype) for v in values]
        out = [arrays[i] for i in weights]
        for _ in range(steps):
            find_op(mx, op)(*arrays, out=out if len(out) > 1 else out[0], **attrs)
        return arrays if shown is None else [arrays[i] for i in shown]

    run.__name__ = op + "_in_place"
    while run.__name__ in names:
        run.__name__ += "_"
    names.add(run.__name__)
    program(run)


def many(op, *inputs, **attrs):
    """Two steps on two weights, of which the second is the half of the arrays away."""
    in_place(op, *inputs, weights=(0, (len(inputs) - 2 * op.startswith("preloaded")) // 2), **attrs)


def step(op, *arrays, plain=PLAIN, _factor=1, **attrs):
    for extra in plain:
        case(op, *arrays, _grad=False, _factor=_factor, **dict(attrs, **extra))
    in_place(op, *arrays, **dict(attrs, **plain[-1]))
    double = [f(*a.shape, lo=a.lo, hi=a.hi, dtype="float64") for a in arrays]
    case(op, *double, _grad=False, **dict(attrs, **plain[-1]))


step("sgd_update", W, G, lr=0.1)
case("sgd_update", W, G, _grad=False, lr=0.1, lazy_update=False, clip_gradient=0.0)
case("sgd_update", HW, HG, _grad=False, lr=0.1, wd=0.1)
step("sgd_mom_update", W, G, M, lr=0.1, momentum=0.9)
case("sgd_mom_update", W, G, M, _grad=False, lr=0.1)
case("sgd_mom_update", HW, HG, f(3, 4, dtype=half), _grad=False, lr=0.1, momentum=0.9, wd=0.1)
# With a decay MXNet's momentum is another one when out= is not the weight; programs give the weight.
step("nag_mom_update", W, G, M, lr=0.1, momentum=0.9, plain=PLAIN[::2])
in_place("nag_mom_update", W, G, M, lr=0.1, momentum=0.9, wd=0.1)
in_place("nag_mom_update", W, G, M, lr=0.1, momentum=0.9, wd=0.3, rescale_grad=2.0, clip_gradient=0.5)
case("nag_mom_update", W, G, M, _grad=False, lr=0.1)
step("signsgd_update", W, G, lr=0.1)
step("signum_update", W, G, M, lr=0.1, momentum=0.9)
case("signum_update", W, G, M, _grad=False, lr=0.1, momentum=0.9, wd_lh=0.2)
for extra in PLAIN:
    case("mp_sgd_update", HW, HG, W, _grad=False, lr=0.1, **extra)
    case("mp_sgd_mom_update", HW, HG, M, W, _grad=False, lr=0.1, momentum=0.9, **extra)
    case("mp_nag_mom_update", HW, HG, M, W, _grad=False, lr=0.1, momentum=0.9, **extra)
in_place("mp_sgd_update", HW, HG, W, lr=0.1, wd=0.1)
in_place("mp_sgd_mom_update", HW, HG, M, W, lr=0.1, momentum=0.9, wd=0.1)
in_place("mp_nag_mom_update", HW, HG, M, W, lr=0.1, momentum=0.9, wd=0.1)

step("adam_update", W, G, M, V, lr=0.1)
case("adam_update", W, G, M, V, _grad=False, lr=0.01, beta1=0.5, beta2=0.9, epsilon=0.1, lazy_update=False)
case("adam_update", W, G, const([[0.0] * 4] * 3), const([[0.0] * 4] * 3), _grad=False, lr=0.01)
ADAMW = [{}, {"wd": 0.1}, {"wd": 0.1, "clip_gradient": 0.2, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}]
for extra in ADAMW:
    # MXNet leaves the gradient rescaled and clipped, which no other op does and no program can want.
    in_place("_adamw_update", W, G, M, V, RESCALE, shown=(0, 2, 3), steps=1, lr=0.1, eta=0.5, **extra)
    in_place("_mp_adamw_update", HW, HG, M, V, W, RESCALE, lr=0.1, eta=0.5, **extra)
    case("_mp_adamw_update", HW, HG, M, V, W, RESCALE, _grad=False, lr=0.1, eta=0.5, **extra)
step("rmsprop_update", W, G, V, lr=0.1)
case("rmsprop_update", W, G, V, _grad=False, lr=0.5, gamma1=0.5, epsilon=0.1, clip_weights=0.4)
step("rmspropalex_update", W, G, f(3, 4, lo=1.5, hi=2), M, f(3, 4), lr=0.1)
case(
    "rmspropalex_update",
    W,
    G,
    f(3, 4, lo=1.5, hi=2),
    M,
    f(3, 4),
    _grad=False,
    lr=0.5,
    gamma1=0.5,
    gamma2=0.3,
    epsilon=0.1,
    clip_weights=0.4,
)
step("ftrl_update", W, G, M, V, lr=0.1)
case("ftrl_update", W, G, M, V, _grad=False, lr=0.5, lamda1=0.5, beta=2.0, wd=0.1)
FTML = [{}, {"wd": 0.1}, {"wd": 0.3, "rescale_grad": 2.0, "clip_grad": 0.5}]
for t in (1, 3):
    # It divides by 1 - beta2**t, a difference of nearly equal numbers.
    step("ftml_update", W, G, V, V, M, plain=FTML, _factor=8, lr=0.1, t=t)
case("ftml_update", W, G, V, V, M, _grad=False, lr=0.1, t=2, beta1=0.9, beta2=0.99, epsilon=0.1)
# ---- LAMB ----

LAMB = [
    {"t": 1, "wd": 0.0},
    {"t": 5, "wd": 0.1, "bias_correction": False},
    {"t": 2, "wd": 0.1, "rescale_grad": 2.0, "clip_gradient": 0.5, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3},
]
for extra in LAMB:
    case("lamb_update_phase1", W, G, M, V, _grad=False, **extra)
    case("mp_lamb_update_phase1", HW, HG, M, V, W, _grad=False, **extra)
BOUNDS = [{}, {"lower_bound": 3.0}, {"upper_bound": 1.5}, {"lower_bound": 0.5, "upper_bound": 5.0}]
for extra in BOUNDS:
    case("lamb_update_phase2", W, G, const([2.0]), const([0.7]), _grad=False, lr=0.1, **extra)
case("lamb_update_phase2", W, G, const([0.0]), const([0.7]), _grad=False, lr=0.1)
case("lamb_update_phase2", W, G, const([2.0]), const([0.0]), _grad=False, lr=0.1)
case("lamb_update_phase2", W, G, const([0.0]), const([0.7]), _grad=False, lr=0.1, lower_bound=0.5)


@program
def mp_lamb_update_phase2(mx):
    """The weight alone: MXNet forgets to write the step to the master copy, without which no training goes on."""
    rng = np.random.RandomState(0)
    results = []
    for extra in BOUNDS:
        w32, g = (mx.nd.array(rng.uniform(-1, 1, size=(3, 4))) for _ in range(2))
        w = mx.nd.array(w32.asnumpy(), dtype="float16")
        mx.nd.mp_lamb_update_phase2(w, g, mx.nd.array([2.0]), mx.nd.array([0.7]), w32, out=w, lr=0.1, **extra)
        results.append(w)
    return results


# ---- many weights: MXNet wants `out=` here ----

P, Q = (f(3, 2), f(3, 2)), (f(4), f(4))
HP, HQ = (f(3, 2, dtype=half), f(3, 2, dtype=half)), (f(4, dtype=half), f(4, dtype=half))
MP, MQ = f(3, 2), f(4)
VP, VQ = f(3, 2, lo=0.1, hi=2), f(4, lo=0.1, hi=2)
LRS, WDS = const([0.1, 0.2]), const([0.0, 0.3])
for extra in ({}, {"rescale_grad": 2.0, "clip_gradient": 0.5}):
    mom = dict(extra, momentum=0.9)
    rates = {"lrs": (0.1, 0.2), "wds": (0.0, 0.3), "num_weights": 2}
    many("multi_sgd_update", *P, *Q, **rates, **extra)
    many("multi_sgd_mom_update", *P, MP, *Q, MQ, **rates, **mom)
    many("multi_mp_sgd_update", *HP, f(3, 2), *HQ, f(4), **rates, **extra)
    many("multi_mp_sgd_mom_update", *HP, MP, f(3, 2), *HQ, MQ, f(4), **rates, **mom)
for extra in ({}, {"clip_gradient": 0.2, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}):
    extra = dict(extra, lrs=(0.1, 0.2), wds=(0.0, 0.3), etas=(1.0, 0.5), num_weights=2)
    many("_multi_adamw_update", *P, MP, VP, *Q, MQ, VQ, RESCALE, **extra)
    many("_multi_mp_adamw_update", *HP, MP, VP, f(3, 2), *HQ, MQ, VQ, f(4), RESCALE, **extra)
for extra in (
    {},
    {"clip_gradient": 0.2, "rescale_grad": 2.0, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3, "bias_correction": False},
    {"lower_bound": 1.5, "upper_bound": 1.8},
):
    extra = dict(extra, learning_rates=(0.1, 0.2), wds=(0.0, 0.3), step_count=(1, 3), num_tensors=2)
    many("_multi_lamb_update", *P, MP, VP, *Q, MQ, VQ, **extra)
    many("_multi_mp_lamb_update", *HP, MP, VP, f(3, 2), *HQ, MQ, VQ, f(4), **extra)
for extra in ({"num_weights": 2}, {"num_weights": 2, "rescale_grad": 2.0, "clip_gradient": 0.5}):
    mom = dict(extra, momentum=0.9)
    many("preloaded_multi_sgd_update", *P, *Q, LRS, WDS, **extra)
    many("preloaded_multi_sgd_mom_update", *P, MP, *Q, MQ, LRS, WDS, **mom)
    many("preloaded_multi_mp_sgd_update", *HP, f(3, 2), *HQ, f(4), LRS, WDS, **extra)
    many("preloaded_multi_mp_sgd_mom_update", *HP, MP, f(3, 2), *HQ, MQ, f(4), LRS, WDS, **mom)
for extra in ({}, {"rescale_grad": 0.25}):
    case(
        "multi_lars",
        const([0.1, 0.2, 0.3, 0.4]),
        const([4.0, 0.0, 9.0, 1.0]),
        const([1.0, 1.0, 0.0, 0.25]),
        const([0.0, 0.1, 0.2, 0.3]),
        _grad=False,
        eta=0.01,
        eps=1e-3,
        **extra,
    )


# ---- as programs call them ----


def arrays(mx, *shapes, seed=0):
    rng = np.random.RandomState(seed)
    return [mx.nd.array(rng.uniform(-1, 1, size=s)) for s in shapes]


@program
def sgd_with_momentum_in_place(mx):
    w, g, m = arrays(mx, (3, 2), (3, 2), (3, 2))
    for lr in (0.1, 0.1, 0.01):
        returned = mx.nd.sgd_mom_update(w, g, m, out=w, lr=lr, momentum=0.9, wd=1e-4, rescale_grad=1 / 32)
    return [w, g, m, returned is w]


@program
def adam_in_place(mx):
    w, g, m, v = arrays(mx, (3, 2), (3, 2), (3, 2), (3, 2))
    m[:] = 0
    v[:] = 0
    for _ in range(3):
        mx.nd.adam_update(w, g, m, v, lr=0.01, out=w, wd=0.1)
    return [w, m, v]


@program
def a_weight_with_a_gradient_attached(mx):
    w, x, m = arrays(mx, (3, 2), (3, 2), (3, 2))
    w.attach_grad()
    for _ in range(2):
        with mx.autograd.record():
            loss = w * x * w
        loss.backward()
        mx.nd.sgd_mom_update(w, w.grad, m, out=w, lr=0.1, momentum=0.9)
    return [w, w.grad, m]


@program
def many_weights_in_place(mx):
    w0, g0, m0, w1, g1, m1 = arrays(mx, (3, 2), (3, 2), (3, 2), (4,), (4,), (4,))
    for _ in range(2):
        mx.nd.multi_sgd_mom_update(
            w0, g0, m0, w1, g1, m1, out=[w0, w1], num_weights=2, lrs=[0.1, 0.2], wds=[0.01, 0.0], momentum=0.9
        )
    mx.nd.multi_sgd_update(w0, g0, w1, g1, out=[w0, w1], num_weights=2, lrs=(0.1, 0.2), wds=(0.0, 0.0))
    lrs, wds = mx.nd.array([0.1, 0.2]), mx.nd.array([0.0, 0.1])
    mx.nd.preloaded_multi_sgd_mom_update(w0, g0, m0, w1, g1, m1, lrs, wds, out=[w0, w1], num_weights=2, momentum=0.5)
    return [w0, w1, m0, m1]


@program
def half_precision_with_a_master_copy(mx):
    w32, g, m = arrays(mx, (3, 2), (3, 2), (3, 2))
    w, g = (mx.nd.array(x.asnumpy(), dtype="float16") for x in (w32, g))
    for _ in range(3):
        mx.nd.mp_sgd_mom_update(w, g, m, w32, out=w, lr=0.1, momentum=0.9, wd=0.01)
    return [w, m, w32, str(np.dtype(w.dtype))]


@program
def an_overflow_skips_adamw(mx):
    w, g, m = arrays(mx, (3, 2), (3, 2), (3, 2))
    v = m * m
    for scale in (float("nan"), float("inf"), 0.0):
        mx.nd._internal._adamw_update(w, g, m, v, mx.nd.array([scale]), out=w, lr=0.1, eta=1.0, wd=0.1)
    return [w, m, v]


@program
def lamb_in_two_phases(mx):
    w, g, m = arrays(mx, (3, 2), (3, 2), (3, 2))
    v = m * m
    for t in (1, 2):
        direction = mx.nd.lamb_update_phase1(w, g, m, v, t=t, wd=0.01)
        r1 = mx.nd.sqrt(mx.nd.dot(w.reshape((-1,)), w.reshape((-1,))))
        r2 = mx.nd.sqrt(mx.nd.dot(direction.reshape((-1,)), direction.reshape((-1,))))
        mx.nd.lamb_update_phase2(w, direction, r1, r2, lr=0.1, out=w)
    return [w, m, v]


@program
def what_they_refuse(mx):
    w, g, m, short = arrays(mx, (3, 2), (3, 2), (3, 2), (3,))
    calls = [
        lambda: mx.nd.sgd_update(w, g),
        lambda: mx.nd.sgd_update(w, short, lr=0.1),
        lambda: mx.nd.sgd_mom_update(w, g, short, lr=0.1),
        lambda: mx.nd.sgd_update(w, g, lr="fast"),
        lambda: mx.nd.adam_update(w, g, m, lr=0.1),
        lambda: mx.nd.multi_sgd_update(w, g, m, lrs=(0.1,), wds=(0.0,), num_weights=2),
        lambda: mx.nd.multi_sgd_update(w, g, m, g, lrs=(0.1,), wds=(0.0,), num_weights=2),
    ]
    return [outcome(lambda call=call: str(call())[:0]) for call in calls]


def numbered(mx, *scales, dtype="float32"):
    return [mx.nd.array(np.linspace(0.1, 1, 4) * k, dtype=dtype) for k in scales]


@program
def adamw_of_contrib(mx):
    w, g, m, v = numbered(mx, 1, 2, 3, 4)
    mx.nd.contrib.adamw_update(w, g, m, v, rescale_grad=0.5, lr=0.1, eta=1.0, out=w)
    (g,) = numbered(mx, 2)  # MXNet leaves the gradient scaled
    mx.nd.contrib.adamw_update(w, g, m, v, mx.nd.array([0.5]), 0.1, 0.9, wd=0.01, out=w)
    h, hg = numbered(mx, 1, 2, dtype="float16")
    mx.nd.contrib.mp_adamw_update(h, hg, m, v, w, rescale_grad=0.5, lr=0.1, eta=1.0, out=h)
    return [w, m, v, h]


@program
def many_of_contrib(mx):
    ws, gs, ms, vs = numbered(mx, 1, 2), numbered(mx, 3, 4), numbered(mx, 5, 6), numbered(mx, 7, 8)
    mx.nd.contrib.multi_adamw_update(ws, gs, ms, vs, 0.5, lrs=[0.1, 0.2], wds=[0, 0.1], etas=[1, 0.9], out=ws)
    mx.nd.contrib.multi_lamb_update(ws, gs, ms, vs, step_count=[1, 2], lrs=[0.1, 0.2], wds=[0, 0.1], out=ws)
    hs, hgs = numbered(mx, 1, 2, dtype="float16"), numbered(mx, 3, 4, dtype="float16")
    mx.nd.contrib.multi_mp_adamw_update(hs, hgs, ms, vs, ws, 0.5, lrs=[0.1, 0.2], wds=[0, 0], etas=[1, 1], out=hs)
    mx.nd.contrib.multi_mp_lamb_update(hs, hgs, ms, vs, ws, step_count=[3, 4], lrs=[0.1, 0.2], wds=[0, 0.1], out=hs)
    return ws + ms + vs + [h.astype("float32") for h in hs]
