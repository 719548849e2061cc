"""Normalisation layers."""

import numpy as np

from parity.spec import const, f, family

case, program = family(__name__)


def batch_norm_inputs(*shape, channels=3, dtype="float32", parameters="float32"):
    vectors = [f(channels, lo=0.5, hi=1.5, dtype=parameters) for _ in range(4)]
    return [f(*shape, dtype=dtype)] + vectors


# Every flag in both modes; 2 to 5 dimensions. A case's backward is in train mode, also where its forward is not: then
# MXNet moves the averages towards themselves, and momentum 1 keeps its rounding out of that.
for train in (True, False):
    momentum = 0.7 if train else 1.0
    for fix_gamma in (True, False):
        for use_global_stats in (True, False):
            for output_mean_var in (True, False):
                case(
                    "BatchNorm",
                    *batch_norm_inputs(4, 3, 2, 3),
                    fix_gamma=fix_gamma,
                    use_global_stats=use_global_stats,
                    output_mean_var=output_mean_var,
                    momentum=momentum,
                    _train=train,
                )
    for shape in ((5, 3), (4, 3, 6), (2, 3, 2, 3, 2)):
        case("BatchNorm", *batch_norm_inputs(*shape), fix_gamma=False, eps=0.01, momentum=momentum, _train=train)
    case("BatchNorm", *batch_norm_inputs(4, 2, 5, 3), axis=-1, fix_gamma=False, momentum=momentum, _train=train)
    case("BatchNorm", *batch_norm_inputs(4, 5, 3), axis=2, output_mean_var=True, momentum=momentum, _train=train)
    case("BatchNorm", *batch_norm_inputs(3, 4, 5), axis=0, fix_gamma=False, momentum=momentum, _train=train)
    case("BatchNorm", *batch_norm_inputs(2, 4, 3, 2), axis=2, momentum=momentum, _train=train)
    case(
        "BatchNorm", *batch_norm_inputs(4, 3, 5, dtype="float64", parameters="float64"), momentum=momentum, _train=train
    )
    # float16: rounding to it at different moments
    inputs = batch_norm_inputs(4, 3, 5, dtype="float16")
    case("BatchNorm", *inputs, fix_gamma=False, momentum=momentum, _train=train)
    # Forward in predict mode leaves MXNet's mask of positive outputs unwritten, so there is no gradient to compare.
    case("_contrib_BatchNormWithReLU", *batch_norm_inputs(4, 3, 2, 3), fix_gamma=False, _train=train, _grad=train)
    case("_contrib_BatchNormWithReLU", *batch_norm_inputs(4, 3, 2, 3), output_mean_var=True, _train=train, _grad=train)
    case("_contrib_BatchNormWithReLU", *batch_norm_inputs(4, 3, 2, 3), use_global_stats=True, _train=train, _grad=train)
case("BatchNorm", *batch_norm_inputs(4, 3, 6), fix_gamma=False, _grad=(0,))
case("BatchNorm", *batch_norm_inputs(4, 3, 7), fix_gamma=False, _grad=(1, 2))
case("_contrib_SyncBatchNorm", *batch_norm_inputs(4, 3, 2, 3), key="a", fix_gamma=False, output_mean_var=True)
case("_contrib_SyncBatchNorm", *batch_norm_inputs(4, 3, 2, 3), key="b")
case("_contrib_SyncBatchNorm", *batch_norm_inputs(4, 3, 2, 3), key="c", use_global_stats=True)
case("_contrib_SyncBatchNorm", *batch_norm_inputs(4, 3, 6), key="d", fix_gamma=False, momentum=0.5, eps=0.1)


def batch_norm_arrays(mx):
    rng = np.random.RandomState(3)
    arrays = [mx.nd.array(rng.uniform(0.5, 1.5, size=s)) for s in ((4, 3, 5), 3, 3, 3, 3)]
    for array in arrays[:3]:
        array.attach_grad()
    return arrays, mx.nd.array(rng.uniform(-1, 1, size=(4, 3, 5)))


@program
def moving_averages_stay_without_backward(mx):
    arrays, _ = batch_norm_arrays(mx)
    with mx.autograd.record():
        out = mx.nd.BatchNorm(*arrays, fix_gamma=False)
    with mx.autograd.train_mode():
        out2 = mx.nd.BatchNorm(*arrays, fix_gamma=False)
    return [out, out2] + arrays


@program
def moving_averages_after_three_steps(mx):
    arrays, head = batch_norm_arrays(mx)
    for _ in range(3):
        with mx.autograd.record():
            out = mx.nd.BatchNorm(*arrays, fix_gamma=False, momentum=0.8)
        out.backward(head)
    return arrays + [mx.nd.BatchNorm(*arrays, fix_gamma=False)]


@program
def batch_norm_trained_but_differentiated_in_predict_mode(mx):
    arrays, head = batch_norm_arrays(mx)
    with mx.autograd.record():
        out = mx.nd.BatchNorm(*arrays, fix_gamma=False)
    out.backward(head, train_mode=False)
    return [out] + arrays + [a.grad for a in arrays[:3]]


@program
def batch_norm_predicted_and_differentiated_in_predict_mode(mx):
    arrays, head = batch_norm_arrays(mx)
    with mx.autograd.record(train_mode=False):
        out = mx.nd.BatchNorm(*arrays, fix_gamma=False)
    out.backward(head, train_mode=False)
    return [out] + arrays + [a.grad for a in arrays[:3]]


@program
def batch_norm_by_grad(mx):
    arrays, head = batch_norm_arrays(mx)
    with mx.autograd.record():
        out = mx.nd.BatchNorm(*arrays, fix_gamma=False)
    return mx.autograd.grad(out, arrays[:3], head) + arrays


def norm_inputs(*shape, channels, dtype="float32"):
    return [f(*shape, dtype=dtype), f(channels, lo=0.5, hi=1.5, dtype=dtype), f(channels, dtype=dtype)]


case("LayerNorm", *norm_inputs(2, 3, 8, channels=8))
case("LayerNorm", *norm_inputs(4, 8, channels=8), eps=0.1)
case("LayerNorm", *norm_inputs(2, 3, 4, channels=3), axis=1)
case("LayerNorm", *norm_inputs(3, 2, 4, channels=3), axis=0, output_mean_var=True)
case("LayerNorm", *norm_inputs(2, 3, 8, channels=8), output_mean_var=True)
case("LayerNorm", *norm_inputs(2, 3, 8, channels=8), axis=2, _train=False)
case("LayerNorm", *norm_inputs(3, 8, channels=8, dtype="float64"))
# float16: MXNet rounds on the way
case("LayerNorm", *norm_inputs(3, 8, channels=8, dtype="float16"), output_mean_var=True)

case("GroupNorm", *norm_inputs(2, 6, 4, channels=3), num_groups=3)
case("GroupNorm", *norm_inputs(2, 4, 3, 2, channels=2), num_groups=2, output_mean_var=True, eps=0.01)
case("GroupNorm", *norm_inputs(2, 4, 3, 2, channels=1))
case("GroupNorm", *norm_inputs(2, 4, 3, 2, 2, channels=4), num_groups=4)
case("GroupNorm", *norm_inputs(2, 4, 3, channels=2, dtype="float64"), num_groups=2, output_mean_var=True)

case("InstanceNorm", *norm_inputs(2, 3, 5, channels=3))
case("InstanceNorm", *norm_inputs(2, 3, 4, 3, channels=3), eps=0.1)
case("InstanceNorm", *norm_inputs(2, 3, 2, 3, 2, channels=3), _train=False)

for mode in ("instance", "channel", "spatial"):
    case("L2Normalization", f(2, 3, 4), mode=mode)
    case("L2Normalization", f(2, 3, 4, 2), mode=mode, eps=0.5)
case("L2Normalization", f(3, 5))
case("L2Normalization", f(4), eps=0.1)
case("L2Normalization", f(2, 3, 2, dtype="float64"))
case("L2Normalization", const([[0.0, 0.0], [3.0, 4.0]]))

case("LRN", f(2, 6, 3, 2), nsize=3)
case("LRN", f(2, 6, 3, 2), nsize=5, alpha=0.5, beta=0.6, knorm=1.5)
case("LRN", f(2, 6, 3, 2), nsize=5, alpha=0.5, _train=False)
case("LRN", f(2, 3, 3, 2), nsize=7, alpha=2.0)
case("LRN", f(3, 6), nsize=3, alpha=1.0)

for shape in ((1, 1, 1, 1), (1, 3, 1)):
    case(
        "GroupNorm", f(*shape), f(shape[1]), f(shape[1]), num_groups=shape[1], _factor=100
    )  # one element: it divides by sqrt(eps)
    case("InstanceNorm", f(*shape), f(shape[1]), f(shape[1]))
