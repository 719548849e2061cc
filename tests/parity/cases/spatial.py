"""Upsampling, resizing, grids and samplers."""

import numpy as np

from parity.spec import const, f, family, outcome

case, program = family(__name__)

# ---- UpSampling ----
case("UpSampling", f(2, 3, 3, 4), scale=2, sample_type="nearest")
case("UpSampling", f(1, 2, 2, 3), scale=3, sample_type="nearest", num_args=1)
case("UpSampling", f(1, 2, 2, 3, dtype="float64"), scale=7, sample_type="nearest")
case("UpSampling", f(1, 2, 2, 3, dtype="float16"), scale=2, sample_type="nearest")
case("UpSampling", f(1, 2, 4, 4), f(1, 3, 2, 2), scale=2, sample_type="nearest", num_args=2)
case("UpSampling", f(1, 2, 2, 2), f(1, 3, 4, 4), f(1, 1, 1, 1), scale=2, sample_type="nearest", num_args=3)
case("UpSampling", f(1, 2, 4, 4), f(1, 2, 2, 2), scale=2, sample_type="nearest", num_args=2, multi_input_mode="sum")
case(
    "UpSampling",
    f(1, 2, 4, 4),
    f(1, 2, 2, 2),
    f(1, 2, 8, 8),
    scale=2,
    sample_type="nearest",
    num_args=3,
    multi_input_mode="sum",
)
case("UpSampling", f(2, 3, 3, 4), f(3, 1, 4, 4), scale=2, sample_type="bilinear", num_filter=3, num_args=2)
case("UpSampling", f(1, 2, 3, 4), f(2, 1, 5, 5), scale=3, sample_type="bilinear", num_filter=2, num_args=2)

# ---- BilinearResize2D ----
for corners in (True, False):
    for height, width in ((5, 7), (2, 3), (3, 4), (1, 5), (1, 1)):
        case("_contrib_BilinearResize2D", f(2, 2, 3, 4), height=height, width=width, align_corners=corners)
    case("_contrib_BilinearResize2D", f(1, 2, 3, 4), f(1, 1, 5, 6), mode="like", align_corners=corners)
    case("_contrib_BilinearResize2D", f(1, 2, 3, 4), scale_height=2, scale_width=1.6, align_corners=corners)
case("_contrib_BilinearResize2D", f(1, 2, 3, 4))
case("_contrib_BilinearResize2D", f(1, 2, 6, 5), scale_height=0.5, scale_width=0.5, height=3, width=3)
case("_contrib_BilinearResize2D", f(1, 2, 6, 5), f(3, 1, 2, 9), mode="like")
for mode in ("to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
    case("_contrib_BilinearResize2D", f(1, 2, 3, 4), mode=mode)
    case("_contrib_BilinearResize2D", f(1, 2, 6, 5), mode=mode, height=2, width=2)
for scales in ((2, 2), (1.5, 0.5), (0.6, 3)):
    case("_contrib_BilinearResize2D", f(1, 2, 3, 4), mode="odd_scale", scale_height=scales[0], scale_width=scales[1])
    case("_contrib_BilinearResize2D", f(1, 2, 6, 5), mode="odd_scale", scale_height=scales[0], scale_width=scales[1])
case("_contrib_BilinearResize2D", f(1, 2, 3, 4, dtype="float64"), height=5, width=7)
case("_contrib_BilinearResize2D", f(1, 2, 3, 4, dtype="float16"), height=5, width=7)

# ---- GridGenerator, BilinearSampler, SpatialTransformer ----
case("GridGenerator", f(2, 6), transform_type="affine", target_shape=(3, 4))
case("GridGenerator", f(1, 6), transform_type="affine", target_shape=(5, 2))
case("GridGenerator", f(2, 2, 3, 4, lo=-2, hi=2), transform_type="warp")
case("BilinearSampler", f(2, 3, 4, 5), f(2, 2, 3, 3))
case("BilinearSampler", f(2, 3, 4, 5), f(2, 2, 6, 7, lo=-1.6, hi=1.6))
case("BilinearSampler", f(1, 2, 3, 3, dtype="float64"), f(1, 2, 4, 4, lo=-1.5, hi=1.5, dtype="float64"))
case("BilinearSampler", f(1, 1, 3, 3), const([[[[-1, 0, 1]], [[0, 1, -1]]]]), cudnn_off=True)
SPATIAL = dict(transform_type="affine", sampler_type="bilinear")
case("SpatialTransformer", f(2, 3, 4, 5), f(2, 6), target_shape=(3, 4), **SPATIAL)
case("SpatialTransformer", f(2, 3, 4, 5), f(2, 6, lo=-2, hi=2), target_shape=(6, 5), **SPATIAL)
case("SpatialTransformer", f(1, 2, 5, 4, dtype="float64"), f(1, 6, dtype="float64"), target_shape=(3, 3), **SPATIAL)


def ones(mx, shape, dtype="float32"):
    return mx.nd.array(np.ones(shape), dtype=dtype)


@program
def what_is_refused(mx):
    x, whole = ones(mx, (1, 2, 4, 4)), ones(mx, (1, 2, 4, 4), "int32")
    resize = mx.nd.contrib.BilinearResize2D
    calls = [
        lambda: mx.nd.UpSampling(x, scale=0, sample_type="nearest"),
        lambda: mx.nd.UpSampling(x[0], scale=2, sample_type="nearest"),
        lambda: mx.nd.UpSampling(x, scale=2, sample_type="cubic"),
        lambda: mx.nd.UpSampling(x, ones(mx, (1, 2, 3, 3)), scale=2, sample_type="nearest", num_args=2),
        lambda: mx.nd.UpSampling(
            x, ones(mx, (1, 1, 4, 4)), scale=2, sample_type="nearest", num_args=2, multi_input_mode="sum"
        ),
        lambda: mx.nd.UpSampling(x, scale=2, sample_type="bilinear", num_filter=2, num_args=1),
        lambda: resize(x, height=0, width=3),
        lambda: resize(x, scale_height=2),
        lambda: resize(x, mode="odd_scale"),
        lambda: resize(x, mode="like"),
        lambda: resize(x, x),
        lambda: resize(x[0], height=3, width=3),
        lambda: resize(whole, height=3, width=3),
        lambda: mx.nd.GridGenerator(ones(mx, (2, 5)), transform_type="affine", target_shape=(3, 3)),
        lambda: mx.nd.GridGenerator(ones(mx, (2, 6)), transform_type="shear", target_shape=(3, 3)),
        lambda: mx.nd.GridGenerator(ones(mx, (2, 3, 4, 4)), transform_type="warp"),
        lambda: mx.nd.BilinearSampler(x, ones(mx, (1, 3, 4, 4))),
        lambda: mx.nd.BilinearSampler(x, ones(mx, (2, 2, 4, 4))),
        lambda: mx.nd.SpatialTransformer(x, ones(mx, (1, 5)), target_shape=(3, 3), **SPATIAL),
    ]
    return [outcome(lambda call=call: call().asnumpy()) for call in calls]
