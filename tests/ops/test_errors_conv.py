"""Error messages of convolution, pooling, resizing and sampling ops for invalid input."""

import numpy as np
import pytest

import neomx as mx


def ones(*shape, dtype="float32"):
    return mx.nd.array(np.ones(shape), dtype=dtype)


X, W, B = ones(2, 4, 5, 5), ones(6, 4, 3, 3), ones(6)
CONV = dict(kernel=(3, 3), num_filter=6)
FC = dict(num_hidden=3)
SPATIAL = dict(transform_type="affine", sampler_type="bilinear")
nd, contrib = mx.nd, mx.nd.contrib

CALLS = {
    "fc weight": (lambda: nd.FullyConnected(X, ones(3, 99), ones(3), **FC), "weight of shape (3, 100)"),
    "fc num_hidden": (lambda: nd.FullyConnected(X, ones(3, 100), ones(3), num_hidden=4), "weight of shape (4, 100)"),
    "fc bias": (lambda: nd.FullyConnected(X, ones(3, 100), ones(3, 2), **FC), "bias of shape (3,)"),
    "fc no bias": (lambda: nd.FullyConnected(X, ones(3, 100), **FC), "pass no_bias=True to omit it"),
    "fc two biases": (lambda: nd.FullyConnected(X, ones(3, 100), ones(3), no_bias=True, **FC), "expected no bias"),
    "fc dtype": (lambda: nd.FullyConnected(X, ones(3, 100, dtype="float64"), ones(3), **FC), "one dtype"),
    "fc missing": (lambda: nd.FullyConnected(X, ones(3, 100)), "missing argument num_hidden"),
    "conv weight": (lambda: nd.Convolution(X, ones(6, 4, 2, 3), B, **CONV), "(6, 4, 3, 3)"),
    "conv bias": (lambda: nd.Convolution(X, W, ones(5), **CONV), "bias of shape (6,)"),
    "conv no bias": (lambda: nd.Convolution(X, W, **CONV), "expected a bias"),
    "conv kernel": (lambda: nd.Convolution(X, W, B, kernel=(3,), num_filter=6), "2 more dimensions"),
    "conv zero kernel": (lambda: nd.Convolution(X, W, B, kernel=(0, 3), num_filter=6), "at least 1"),
    "conv stride": (lambda: nd.Convolution(X, W, B, stride=(2,), **CONV), "stride to be 2 integer(s)"),
    "conv zero stride": (lambda: nd.Convolution(X, W, B, stride=(0, 1), **CONV), "at least 1"),
    "conv pad": (lambda: nd.Convolution(X, W, B, pad=(-1, 0), **CONV), "pad to be 2 integer(s) of at least 0"),
    "conv group": (lambda: nd.Convolution(X, W, B, num_group=3, **CONV), "num_group to divide data's channels 4"),
    "conv group 0": (lambda: nd.Convolution(X, W, B, num_group=0, **CONV), "num_group"),
    "conv layout": (lambda: nd.Convolution(X, W, B, layout="NCW", **CONV), "layout for 2 spatial"),
    "conv unknown layout": (lambda: nd.Convolution(X, W, B, layout="CHWN", **CONV), "'NCHW'"),
    "conv small": (lambda: nd.Convolution(X, ones(6, 4, 7, 7), B, kernel=(7, 7), num_filter=6), "Kernel size"),
    "deconv bias": (lambda: nd.Deconvolution(X, ones(4, 6, 3, 3), B, **CONV), "expected no bias"),
    "deconv weight": (lambda: nd.Deconvolution(X, W, **CONV), "(4, 6, 3, 3)"),
    "deconv adj": (lambda: nd.Deconvolution(X, ones(4, 6, 3, 3), adj=(1, 1), **CONV), "less than stride (1, 1)"),
    "deconv target": (lambda: nd.Deconvolution(X, ones(4, 6, 3, 3), target_shape=(9, 9), **CONV), "at most (7, 7)"),
    "deconv pad": (lambda: nd.Deconvolution(X, ones(4, 6, 3, 3), pad=(9, 9), **CONV), "Deconvolution"),
    "deformable offset": (
        lambda: contrib.DeformableConvolution(X, ones(2, 9, 3, 3), W, B, **CONV),
        "offset of shape (2, 18, 3, 3)",
    ),
    "deformable weight": (
        lambda: contrib.DeformableConvolution(X, ones(2, 18, 3, 3), ones(6, 2, 3, 3), B, **CONV),
        "weight of shape (6, 4, 3, 3)",
    ),
    "deformable mask": (
        lambda: contrib.ModulatedDeformableConvolution(X, ones(2, 18, 3, 3), ones(2, 18, 3, 3), W, B, **CONV),
        "mask of shape (2, 9, 3, 3)",
    ),
    "deformable kernel": (
        lambda: contrib.DeformableConvolution(X, ones(2, 98, 1, 1), W, B, kernel=(7, 7), num_filter=6),
        "within the padded data",
    ),
    "correlation shapes": (lambda: nd.Correlation(X, ones(2, 4, 5, 4)), "two arrays of the same shape"),
    "correlation kernel": (lambda: nd.Correlation(X, X, kernel_size=2), "odd kernel_size"),
    "correlation small": (lambda: nd.Correlation(X, X, max_displacement=3), "padded data larger"),
    "pool no kernel": (lambda: nd.Pooling(X), "kernel"),
    "pool kernel": (lambda: nd.Pooling(X, kernel=(7, 7)), "within the padded data"),
    "pool stride": (lambda: nd.Pooling(X, kernel=(2, 2), stride=(0, 0)), "at least 1"),
    "pool type": (lambda: nd.Pooling(X, kernel=(2, 2), pool_type="median"), "'max'"),
    "pool lp": (lambda: nd.Pooling(X, kernel=(2, 2), pool_type="lp"), "p_value of 1, 2 or 3"),
    "pool int": (lambda: nd.Pooling(ones(1, 1, 4, 4, dtype="int32"), kernel=(2, 2)), "floats"),
    "pool layout": (lambda: nd.Pooling(X, kernel=(2, 2), layout="NWC"), "layout for 2 spatial"),
    "pool rank": (lambda: nd.Pooling(ones(2, 2), global_pool=True), "2 more dimensions"),
    "pool same": (lambda: nd.Pooling(X, kernel=(2, 2), pad=(1, 1), pooling_convention="same"), "no pad"),
    "pool v1": (lambda: nd.Pooling_v1(X, kernel=(7, 7)), "within the padded data"),
    "pool v1 rank": (lambda: nd.Pooling_v1(ones(1, 2, 5), kernel=(2,)), "kernel of 2 integers"),
    "adaptive rank": (lambda: contrib.AdaptiveAvgPooling2D(ones(2, 5, 5), output_size=2), "(batch, channel"),
    "adaptive size": (lambda: contrib.AdaptiveAvgPooling2D(X, output_size=(1, 2, 3)), "at most 2 integers"),
    "adaptive negative": (lambda: contrib.AdaptiveAvgPooling2D(X, output_size=-2), "AdaptiveAvgPooling2D"),
    "upsampling scale": (lambda: nd.UpSampling(X, scale=0, sample_type="nearest"), "at least 1"),
    "upsampling rank": (lambda: nd.UpSampling(ones(2, 4, 4), scale=2, sample_type="nearest"), "(batch, channel"),
    "upsampling sizes": (lambda: nd.UpSampling(X, ones(2, 4, 3, 3), scale=2, sample_type="nearest"), "divide [10, 10]"),
    "upsampling sum": (
        lambda: nd.UpSampling(X, ones(2, 3, 5, 5), scale=2, sample_type="nearest", multi_input_mode="sum"),
        "same number of channels",
    ),
    "upsampling weight": (
        lambda: nd.UpSampling(X, ones(4, 1, 3, 3), scale=2, sample_type="bilinear", num_filter=4),
        "(4, 1, 4, 4)",
    ),
    "upsampling filter": (lambda: nd.UpSampling(X, ones(4, 1, 4, 4), scale=2, sample_type="bilinear"), "num_filter"),
    "upsampling no weight": (
        lambda: nd.UpSampling(X, scale=2, sample_type="bilinear", num_filter=4),
        "and weight",
    ),
    "resize size": (lambda: contrib.BilinearResize2D(X, height=0, width=3), "at least 1 x 1"),
    "resize scale": (lambda: contrib.BilinearResize2D(X, scale_height=2), "both scale_height and scale_width"),
    "resize odd": (lambda: contrib.BilinearResize2D(X, mode="odd_scale"), "both scale_height and scale_width"),
    "resize like": (lambda: contrib.BilinearResize2D(X, mode="like"), "`like`"),
    "resize not like": (lambda: contrib.BilinearResize2D(X, X), "`like`"),
    "resize rank": (lambda: contrib.BilinearResize2D(ones(2, 3), height=2, width=2), "(batch, channel"),
    "grid affine": (
        lambda: nd.GridGenerator(ones(2, 5), transform_type="affine", target_shape=(3, 3)),
        "shape (batch, 6)",
    ),
    "grid shape": (lambda: nd.GridGenerator(ones(2, 6), transform_type="affine"), "target_shape"),
    "grid warp": (lambda: nd.GridGenerator(ones(2, 3, 4, 4), transform_type="warp"), "(batch, 2"),
    "sampler grid": (lambda: nd.BilinearSampler(X, ones(2, 3, 4, 4)), "grid (batch, 2"),
    "sampler batch": (lambda: nd.BilinearSampler(X, ones(1, 2, 4, 4)), "grid (batch, 2"),
    "transformer": (lambda: nd.SpatialTransformer(X, ones(2, 5), target_shape=(3, 3), **SPATIAL), "(batch, 6)"),
    "transformer batch": (
        lambda: nd.SpatialTransformer(X, ones(1, 6), target_shape=(3, 3), **SPATIAL),
        "grid (batch, 2",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_error_states_what_was_expected(name):
    call, message = CALLS[name]
    with pytest.raises(mx.MXNetError) as error:
        call()
    assert message in str(error.value)
