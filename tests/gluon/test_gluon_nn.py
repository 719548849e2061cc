"""Layer behavior that recordings cannot cover: randomness, gradients that MXNet's CPU lacks, and error messages."""

import numpy as np
import pytest
import torch

import neomx as mx
from neomx import autograd, nd
from neomx.gluon import contrib, nn

NAMES = """Activation AvgPool1D AvgPool2D AvgPool3D BatchNorm BatchNormReLU Block Conv1D Conv1DTranspose Conv2D
    Conv2DTranspose Conv3D Conv3DTranspose Dense Dropout ELU Embedding Flatten GELU GlobalAvgPool1D GlobalAvgPool2D
    GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D GlobalMaxPool3D GroupNorm HybridBlock HybridLambda HybridSequential
    InstanceNorm Lambda LayerNorm LeakyReLU MaxPool1D MaxPool2D MaxPool3D PReLU ReflectionPad2D SELU Sequential Swish
    SymbolBlock activations basic_layers conv_layers""".split()  # noqa: SIM905
CONTRIB = """Concurrent HybridConcurrent Identity PixelShuffle1D PixelShuffle2D PixelShuffle3D SparseEmbedding
    SyncBatchNorm basic_layers""".split()  # noqa: SIM905


def values(*shape, seed=0):
    return nd.array(np.random.RandomState(seed).uniform(-1, 1, shape), dtype="float32")


def started(block, *inputs):
    block.initialize()
    block(*inputs)
    for i, parameter in enumerate(block.collect_params().values()):
        parameter.set_data(values(*parameter.shape, seed=i + 5))
    return block


def test_all_public_names_exist():
    assert [name for name in NAMES if not hasattr(nn, name)] == []
    assert [name for name in CONTRIB if not hasattr(contrib.nn, name)] == []
    assert hasattr(contrib.cnn, "DeformableConvolution") and hasattr(contrib.cnn, "ModulatedDeformableConvolution")


# ---- randomness ----


@pytest.mark.parametrize("hybrid", [False, True])
def test_dropout_zeroes_a_fraction_and_scales_the_rest(hybrid):
    mx.random.seed(1)
    block, x = nn.Dropout(0.25), nd.ones((200, 100))
    if hybrid:
        block.hybridize()
    x.attach_grad()
    with autograd.record():
        out = block(x)
    out.backward()
    kept = out.asnumpy() != 0
    assert kept.mean() == pytest.approx(0.75, abs=0.02)
    np.testing.assert_allclose(out.asnumpy()[kept], 1 / 0.75, rtol=1e-6)
    np.testing.assert_array_equal(x.grad.asnumpy(), out.asnumpy())
    np.testing.assert_array_equal(block(x).asnumpy(), x.asnumpy())


def test_dropout_shares_mask_along_axes():
    with autograd.train_mode():
        out = nn.Dropout(0.5, axes=(1,))(nd.ones((50, 6))).asnumpy()
    assert (out == out[:, :1]).all()
    assert 0 < (out[:, 0] == 0).mean() < 1


# ---- not available on MXNet's CPU ----


def test_modulated_deformable_convolution_gradient():
    x = values(1, 2, 4, 4)
    block = started(contrib.cnn.ModulatedDeformableConvolution(2, 3, padding=1), x)
    head = values(1, 2, 4, 4, seed=3)
    with autograd.record():
        loss = (block(x) * head).sum()
    loss.backward()
    for name in ("offset_weight", "offset_bias", "deformable_conv_weight", "deformable_conv_bias"):
        parameter = getattr(block, name)
        exact = parameter.grad().asnumpy()
        original, step = parameter.data().asnumpy(), 2e-3
        place = np.unravel_index(np.abs(exact).argmax(), exact.shape)
        around = []
        for sign in (1, -1):
            moved = original.copy()
            moved[place] += sign * step
            parameter.set_data(nd.array(moved))
            around.append((block(x) * head).sum().asscalar())
        parameter.set_data(nd.array(original))
        assert (around[0] - around[1]) / (2 * step) == pytest.approx(exact[place], rel=0.02), name


@pytest.mark.parametrize("cls", ["Conv2D", "Conv2DTranspose"])
def test_channels_last_equals_channels_first(cls):
    x = values(2, 3, 5, 6)
    first = started(getattr(nn, cls)(4, (3, 2), strides=2, padding=1), x)
    last = getattr(nn, cls)(4, (3, 2), strides=2, padding=1, layout="NHWC")
    last.initialize()
    moved = x.transpose((0, 2, 3, 1))
    last(moved)
    last.weight.set_data(first.weight.data().transpose((0, 2, 3, 1)))
    last.bias.set_data(first.bias.data())
    np.testing.assert_allclose(last(moved).transpose((0, 3, 1, 2)).asnumpy(), first(x).asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Dense(3, activation="relu"),
        lambda: nn.Conv2D(3, 3, activation="tanh"),
        lambda: nn.Conv2DTranspose(3, 2),
        lambda: nn.BatchNorm(),
        lambda: nn.LayerNorm(),
        lambda: nn.PReLU(),
        lambda: nn.AvgPool2D(),
        lambda: contrib.nn.PixelShuffle2D(2),
    ],
)
def test_layer_accepts_torch_tensors(make):
    x = values(2, 4, 5, 5)
    block = started(make(), x)
    tensor = torch.from_numpy(x.asnumpy()).requires_grad_()
    twin = block.torch()
    twin.eval()
    out = twin(tensor)
    np.testing.assert_allclose(out.detach().numpy(), block(x).asnumpy(), rtol=1e-5, atol=1e-6)
    out.sum().backward()
    assert tensor.grad.abs().sum() > 0


# ---- layers for sparse and distributed training ----


def test_sync_batchnorm_on_several_contexts_only_predicts():
    block = contrib.nn.SyncBatchNorm(in_channels=2, num_devices=2)
    block.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    x = values(4, 2)
    assert block(x).shape == block(x.as_in_context(mx.cpu(1))).shape == (4, 2)
    with (
        autograd.record(),
        pytest.raises(mx.MXNetError, match="2 contexts of one process.*Use one process for each device"),
    ):
        block(x)


def test_layer_subclass_keeps_its_op():
    class Mine(contrib.cnn.DeformableConvolution):
        pass

    class Wide(nn.Conv2D):
        pass

    x = values(1, 2, 4, 4)
    assert started(Mine(2, 3), x)(x).shape == started(Wide(2, 3), x)(x).shape == (1, 2, 2, 2)
    assert repr(Mine(2, 3)).startswith("Mine(None -> 2")


def test_lambda_accepts_any_callable():
    class Doubler:
        def __call__(self, x):
            return 2 * x

    assert nn.Lambda(Doubler())(nd.ones((1,))).asscalar() == 2
    assert "Doubler" in repr(nn.Lambda(Doubler()))


# ---- errors ----


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.Dense(-1), ValueError, "units must be an integer of at least 0, received -1"),
        (lambda: nn.Dense(2, in_units=-1), ValueError, "in_units must be an integer of at least 0, received -1"),
        (
            lambda: nn.Conv2D(2, 3, padding=1.5),
            AssertionError,
            "padding must be an integer or a sequence of 2 integers",
        ),
        (
            lambda: nn.Conv2D(2, 3, strides=(1,)),
            AssertionError,
            "strides must be an integer or a sequence of 2 integers",
        ),
        (lambda: nn.BatchNorm(in_channels=-3), ValueError, "in_channels must be an integer of at least 0"),
        (lambda: nn.Dense("a"), ValueError, "units must be an integer of at least 0, received 'a'"),
        (lambda: nn.Dense(2, activation=nd.relu), TypeError, "activation must be a name such as 'relu'"),
        (lambda: nn.Embedding(0, 3), ValueError, "input_dim must be an integer of at least 1, received 0"),
        (lambda: nn.Conv2D(0, 3), ValueError, "channels must be an integer of at least 1, received 0"),
        (lambda: nn.Conv2D(2, (3, 3, 3)), AssertionError, "kernel_size must be an integer or a sequence of 2 integers"),
        (lambda: nn.Conv2D(2, 3, layout="NCWH"), AssertionError, "Conv2D must be 'NCHW' or 'NHWC', received 'NCWH'"),
        (lambda: nn.Conv2D(3, 3, groups=2), mx.MXNetError, "channels must be a multiple of groups=2, received 3"),
        (lambda: nn.MaxPool1D(layout="NCHW"), AssertionError, "MaxPool1D must be 'NCW' or 'NWC', received 'NCHW'"),
        (lambda: nn.GroupNorm(0), ValueError, "num_groups must be an integer of at least 1"),
        (lambda: nn.Sequential().add(nd.relu), ValueError, "Sequential expects Blocks, received <function relu"),
        (lambda: nn.HybridSequential().add(3), ValueError, "HybridSequential expects Blocks, received 3 of type int"),
        (lambda: nn.Lambda("rellu"), AssertionError, "mx.nd has no function 'rellu'"),
        (lambda: nn.HybridLambda(3), ValueError, "expected a function or the name of one"),
        (lambda: nn.ReflectionPad2D((1, 2)), AssertionError, "padding must be an integer or 8 integers"),
        (lambda: contrib.nn.PixelShuffle2D((1, 2, 3)), AssertionError, "factor must be an integer or 2 integers"),
        (lambda: contrib.nn.PixelShuffle1D(0), ValueError, "factor must be an integer of at least 1, received 0"),
        (lambda: contrib.cnn.DeformableConvolution(2, adj=1), mx.MXNetError, "adj must be None"),
    ],
)
def test_errors_name_expected_values(call, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        call()


@pytest.mark.parametrize(
    ("block", "shape", "message"),
    [
        (nn.Conv2D(2, 3, in_channels=5), (1, 3, 8, 8), "channels"),
        (nn.Dense(2, in_units=5), (1, 3), "weight"),
        (nn.BatchNorm(in_channels=2), (1, 3, 8, 8), r"gamma of shape \(3,\)"),
        (nn.Activation("rellu"), (1, 3), "rellu"),
        (nn.Dropout(2.0), (1, 3), "2.0"),
    ],
)
def test_mismatched_input_raises(block, shape, message):
    block.initialize()
    with pytest.raises(mx.MXNetError, match=message):
        block(nd.ones(shape))


def test_second_derivatives_through_layers():
    """Compare the gradient of a gradient penalty with finite differences. MXNet's is wrong, so it was not recorded."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3, activation="tanh"), nn.Dense(1, in_units=4))
    net.initialize(mx.init.Xavier())
    net.cast("float64")
    x = mx.nd.array(np.random.RandomState(0).normal(size=(5, 3)), dtype="float64")
    x.attach_grad()

    def penalty():
        with mx.autograd.record():
            (gradient,) = mx.autograd.grad(net(x), [x], create_graph=True)
            return (gradient**2).sum()

    penalty().backward()
    weight = net[0].weight
    found, values, step = weight.grad().asnumpy(), weight.data().asnumpy(), 1e-6
    for at in np.ndindex(values.shape):
        both = []
        for sign in (1, -1):
            moved = values.copy()
            moved[at] += sign * step
            weight.set_data(mx.nd.array(moved, dtype="float64"))
            both.append(penalty().asnumpy()[0])
        np.testing.assert_allclose(found[at], (both[0] - both[1]) / (2 * step), rtol=1e-5, atol=1e-7)
