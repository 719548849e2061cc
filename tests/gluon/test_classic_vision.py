"""Fine-tuning a new head on a frozen network, and segmentation by deconvolution."""

import numpy as np
import pytest

import neomx as mx

MNIST = mx.test_utils.get_mnist(sample=True)


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(13)
    np.random.seed(13)


def body():
    net = mx.sym.Convolution(mx.sym.var("data"), kernel=(5, 5), stride=(2, 2), num_filter=8, name="conv1")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn1", fix_gamma=False), act_type="relu")
    net = mx.sym.Flatten(mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max"), name="flat")
    return mx.sym.FullyConnected(net, num_hidden=10, name="old")


def of_classes(wanted, kind, count):
    labels = MNIST[f"{kind}_label"]
    rows = np.flatnonzero(np.isin(labels, wanted))[:count]
    return mx.io.NDArrayIter(MNIST[f"{kind}_data"][rows], np.searchsorted(wanted, labels[rows]), 50)


def test_fine_tuning_from_internals(tmp_path):
    prefix = str(tmp_path / "base")
    first = mx.mod.Module(mx.sym.SoftmaxOutput(body(), name="softmax"))
    options = {"learning_rate": 0.1, "momentum": 0.9}
    data = of_classes([0, 1, 2, 3, 4], "train", 1000)
    checkpoint = mx.callback.module_checkpoint(first, prefix, save_optimizer_states=True)
    first.fit(data, num_epoch=1, optimizer_params=options, epoch_end_callback=checkpoint, initializer=mx.init.Xavier())

    symbol, arg_params, aux_params = mx.model.load_checkpoint(prefix, 1)
    features = symbol.get_internals()["flat_output"]
    new = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(features, num_hidden=5, name="new"), name="softmax")
    kept = {name: array for name, array in arg_params.items() if not name.startswith("old")}
    fixed = [name for name in features.list_arguments() if name != "data"]
    module = mx.mod.Module(new, fixed_param_names=fixed)
    module.fit(
        of_classes([5, 6, 7, 8, 9], "train", 1000),
        num_epoch=2,
        arg_params=kept,
        aux_params=aux_params,
        allow_missing=True,
        optimizer_params=options,
        initializer=mx.init.Xavier(),
    )
    assert module.score(of_classes([5, 6, 7, 8, 9], "test", 300), "acc")[0][1] > 0.8
    found = module.get_params()[0]
    assert fixed == ["conv1_weight", "conv1_bias", "bn1_gamma", "bn1_beta"]
    for name in fixed:
        np.testing.assert_array_equal(found[name].asnumpy(), kept[name].asnumpy())


def squares(count):
    """Return noisy images of a bright square, and the mask of its pixels."""
    rng = np.random.RandomState(0)
    data, masks = rng.normal(0, 0.3, (count, 1, 16, 16)), np.zeros((count, 16, 16))
    for i, (y, x) in enumerate(rng.randint(0, 9, (count, 2))):
        data[i, 0, y : y + 7, x : x + 7] += 1
        masks[i, y : y + 7, x : x + 7] = 1
    return mx.io.NDArrayIter(data, masks, 20)


def test_segmentation_by_deconvolution():
    data = mx.sym.var("data")
    coarse = data
    for number in range(2):
        coarse = mx.sym.Convolution(
            coarse, kernel=(3, 3), stride=(2, 2), pad=(1, 1), num_filter=8, name=f"conv{number}"
        )
        coarse = mx.sym.Activation(coarse, act_type="relu")
    scores = mx.sym.Convolution(coarse, kernel=(1, 1), num_filter=2, name="score")
    up = mx.sym.Deconvolution(
        scores, kernel=(8, 8), stride=(4, 4), pad=(2, 2), num_filter=2, no_bias=True, name="upsampling"
    )
    skip = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=2, name="skip")
    net = mx.sym.Crop(up, data, name="cropped") + skip
    net = mx.sym.SoftmaxOutput(net, multi_output=True, normalization="valid", name="softmax")
    module, train = mx.mod.Module(net), squares(200)
    start = mx.init.Mixed(["upsampling.*", ".*"], [mx.init.Bilinear(), mx.init.Xavier()])
    module.fit(train, num_epoch=4, optimizer="adam", optimizer_params={"learning_rate": 0.02}, initializer=start)
    found = module.predict(train).asnumpy().argmax(1)
    masks = train.label[0][1].asnumpy()
    shared = np.logical_and(found, masks).sum() / np.logical_or(found, masks).sum()
    assert shared > 0.75, "intersection over union"
