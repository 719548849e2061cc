"""Pooling of every kind, the former pooling, adaptive pooling."""

import numpy as np

from parity.spec import const, f, family, ints, outcome

case, program = family(__name__)

SHAPES = [
    dict(kernel=(3, 3), stride=(2, 2), pad=(1, 1)),
    dict(kernel=(2, 2), stride=(2, 2)),
    dict(kernel=(2, 3)),
    dict(kernel=(3, 2), stride=(3, 1), pad=(0, 1)),
]
for shape in SHAPES:
    for convention in ("valid", "full"):
        for kind in ("max", "avg", "sum"):
            case("Pooling", f(1, 2, 6, 5), pool_type=kind, pooling_convention=convention, **shape)
            if kind != "max":
                case("Pooling", f(1, 2, 6, 5, dtype="float64"), pool_type=kind, pooling_convention=convention, **shape)
        case("Pooling", f(1, 2, 6, 5), pool_type="avg", count_include_pad=False, pooling_convention=convention, **shape)
        for p in (1, 2, 3):
            # Cube roots of sums near 0 have steep gradients.
            case(
                "Pooling",
                f(1, 2, 6, 5, lo=0.1),
                pool_type="lp",
                p_value=p,
                pooling_convention=convention,
                **shape,
            )
case("Pooling", f(1, 1, 4, 4), pool_type="lp", kernel=(2, 2), p_value=2)
case("Pooling", f(1, 1, 4, 4, dtype="float64"), pool_type="lp", kernel=(2, 2), p_value=3)
case("Pooling", const([[[[0, 0, 1], [0, 0, -2]]]]), pool_type="lp", kernel=(2, 2), p_value=2)

# Windows that lie in the padding: MXNet shows the least float for max, and 0 for the others. Its float32 gradient of
# these is 0 everywhere, its float64 one is right.
for kind in ("max", "avg", "sum"):
    for shape in (
        dict(kernel=(2, 2), stride=(3, 3), pad=(1, 1)),
        dict(kernel=(2, 2), stride=(2, 2), pad=(1, 1)),
        dict(kernel=(3, 3), stride=(3, 3), pad=(1, 1)),
    ):
        case("Pooling", f(1, 2, 5, 5, dtype="float64"), pool_type=kind, pooling_convention="full", **shape)
        case("Pooling", f(1, 2, 5, 5), pool_type=kind, pooling_convention="full", _grad=False, **shape)
    case("Pooling", f(1, 2, 5, 4, dtype="float64"), pool_type=kind, kernel=(2, 2), pad=(2, 2))
    case("Pooling", f(1, 2, 5, 4, dtype="float64"), pool_type=kind, kernel=(2, 2), pad=(3, 1), stride=(2, 1))

# Ties: the first maximum gets the gradient.
case("Pooling", ints(1, 2, 6, 6, hi=2), kernel=(2, 2), stride=(2, 2))
case("Pooling", ints(1, 2, 6, 6, hi=2), kernel=(3, 3), pad=(1, 1))
case("Pooling", ints(1, 2, 3, 3, hi=2), global_pool=True)

for kind in ("max", "avg", "sum", "lp"):
    p = dict(p_value=2) if kind == "lp" else {}
    for layout, shape in (
        ("NCW", (2, 3, 6)),
        ("NWC", (2, 6, 3)),
        ("NCHW", (2, 3, 5, 4)),
        ("NHWC", (2, 5, 4, 3)),
        ("NCDHW", (1, 2, 4, 5, 3)),
        ("NDHWC", (1, 4, 5, 3, 2)),
    ):
        rank = len(layout) - 2
        case("Pooling", f(*shape), pool_type=kind, kernel=(3, 2, 2)[:rank], stride=(2, 1, 2)[:rank], layout=layout, **p)
        case("Pooling", f(*shape), pool_type=kind, global_pool=True, layout=layout, **p)
    case("Pooling", f(1, 2, 6), pool_type=kind, kernel=(3,), stride=(2,), pad=(1,), pooling_convention="full", **p)
    # In float32 MXNet's gradient of this mean is wrong.
    case(
        "Pooling",
        f(1, 2, 5, 4, 4, dtype="float64"),
        pool_type=kind,
        kernel=(3, 2, 3),
        stride=(2, 2, 2),
        pad=(1, 0, 1),
        pooling_convention="full",
        **p,
    )
    case("Pooling", f(1, 2, 4, 4), pool_type=kind, global_pool=True, kernel=(2, 2), stride=(2, 2), pad=(1, 1), **p)
# 'same' exists for one dimension. MXNet wants a pad of three zeros for it, and its float32 max and avg mostly refuse.
for kind in ("sum", "lp"):
    for shape in (
        dict(kernel=(2,), stride=(2,)),
        dict(kernel=(3,), stride=(2,)),
        dict(kernel=(4,), stride=(1,)),
        dict(kernel=(2,), stride=(4,)),
        dict(kernel=(5,), stride=(2,)),
    ):
        case(
            "Pooling",
            f(1, 2, 9, lo=0.1),
            pool_type=kind,
            pooling_convention="same",
            pad=(0, 0, 0),
            p_value=2,
            **shape,
        )
for kind in ("max", "avg"):
    for shape in (dict(kernel=(2,), stride=(2,)), dict(kernel=(3,), stride=(2,)), dict(kernel=(4,), stride=(1,))):
        case("Pooling", f(1, 2, 9, dtype="float64"), pool_type=kind, pooling_convention="same", pad=(0, 0, 0), **shape)

for kind in ("max", "avg", "sum"):
    case("Pooling", f(1, 2, 5, 5, dtype="float16"), pool_type=kind, kernel=(2, 2))
    case(
        "Pooling",
        f(1, 2, 3, 5, 4, dtype="float16"),
        pool_type=kind,
        kernel=(2, 3, 2),
        pad=(1, 0, 1),
    )
    case("Pooling", f(1, 2, 5, 5, dtype="float16"), pool_type=kind, global_pool=True)
for kind in ("max", "avg", "sum"):
    case("Pooling", f(2, 1, 4, 2, 3), pool_type=kind, kernel=(4, 3, 1), pad=(2, 1, 0), stride=(2, 3, 3))
case("Pooling", f(1, 2, 5, 5), kernel="(2, 2)", stride="(2, 2)", global_pool="False", cudnn_off=True)

for shape in SHAPES + [dict(kernel=(2, 2), stride=(3, 3), pad=(1, 1)), dict(kernel=(2, 2), pad=(1, 1), stride=(2, 2))]:
    for convention in ("valid", "full"):
        for kind in ("max", "avg", "sum"):
            case("Pooling_v1", f(1, 2, 6, 5), pool_type=kind, pooling_convention=convention, **shape)
for kind in ("max", "avg", "sum"):
    case("Pooling_v1", ints(2, 2, 4, 4, hi=2), pool_type=kind, kernel=(2, 2))
    case("Pooling_v1", f(2, 2, 4, 4), pool_type=kind, global_pool=True, kernel=(2, 2), pad=(1, 1))
case("Pooling_v1", f(2, 2, 4, 4, dtype="float64"), kernel=(2, 2))

case("_contrib_AdaptiveAvgPooling2D", f(2, 3, 5, 7))
for size in (1, 2, (3, 2), (2,), (7, 7), (5, 1)):
    case("_contrib_AdaptiveAvgPooling2D", f(2, 2, 5, 6), output_size=size)
case("_contrib_AdaptiveAvgPooling2D", f(2, 2, 5, 6, dtype="float64"), output_size=2)
case("_contrib_AdaptiveAvgPooling2D", f(2, 2, 5, 6, dtype="float16"), output_size=2)


def ones(mx, shape, dtype="float32"):
    return mx.nd.array(np.ones(shape), dtype=dtype)


@program
def what_is_refused(mx):
    x, whole = ones(mx, (1, 2, 5, 5)), ones(mx, (1, 2, 5, 5), "int32")
    calls = [
        lambda: mx.nd.Pooling(x),
        lambda: mx.nd.Pooling(x, kernel=(7, 7)),
        lambda: mx.nd.Pooling(x, kernel=(7, 7), pooling_convention="full"),
        lambda: mx.nd.Pooling(x, kernel=(2,)),
        lambda: mx.nd.Pooling(x, kernel=(2, 2), stride=(2,)),
        lambda: mx.nd.Pooling(x, kernel=(2, 2), stride=(0, 0)),
        lambda: mx.nd.Pooling(x, kernel=(0, 2)),
        lambda: mx.nd.Pooling(x, kernel=(2, 2), layout="NCW"),
        lambda: mx.nd.Pooling(x, kernel=(2, 2), pool_type="lp"),
        lambda: mx.nd.Pooling(x, kernel=(2, 2), pool_type="lp", p_value=4),
        lambda: mx.nd.Pooling(x, kernel=(2, 2), pool_type="median"),
        lambda: mx.nd.Pooling(whole, kernel=(2, 2)),
        lambda: mx.nd.Pooling(x[0, 0], kernel=(2, 2)),
        lambda: mx.nd.Pooling_v1(x),
        lambda: mx.nd.Pooling_v1(x, kernel=(7, 7)),
        lambda: mx.nd.contrib.AdaptiveAvgPooling2D(x[0], output_size=2),
        lambda: mx.nd.contrib.AdaptiveAvgPooling2D(whole, output_size=2),
    ]
    return [outcome(lambda call=call: call().asnumpy()) for call in calls]
