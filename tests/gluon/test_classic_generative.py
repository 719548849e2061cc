"""A stacked autoencoder and a GAN, as MXNet programs build them with symbols and modules."""

import numpy as np
import pytest

import neomx as mx


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(11)
    np.random.seed(11)


LAYERS = [(784, 64), (64, 16)]


def encoder(net, number):
    net = mx.sym.FullyConnected(net, num_hidden=LAYERS[number][1], name=f"encoder{number}")
    return mx.sym.Activation(net, act_type="relu") if number + 1 < len(LAYERS) else net


def decoder(net, number):
    net = mx.sym.FullyConnected(net, num_hidden=LAYERS[number][0], name=f"decoder{number}")
    return mx.sym.Activation(net, act_type="relu") if number else net


def fitted(net, inputs, params, epochs, rate):
    """Train a network to reproduce its inputs. Return the module and its parameters."""
    data = mx.io.NDArrayIter({"data": inputs}, {"target": inputs}, 100, shuffle=True)
    module = mx.mod.Module(mx.sym.LinearRegressionOutput(net, mx.sym.var("target")), label_names=["target"])
    module.fit(
        data,
        num_epoch=epochs,
        eval_metric="mse",
        optimizer="adam",
        optimizer_params={"learning_rate": rate},
        initializer=mx.init.Xavier(),
        arg_params=params,
        allow_missing=True,
    )
    return module.score(data, "mse")[0][1], module.get_params()[0]


def outputs(net, inputs, params):
    module = mx.mod.Module(net, label_names=None)
    data = mx.io.NDArrayIter(inputs, batch_size=100)
    module.bind(data.provide_data, for_training=False)
    module.set_params(params, {}, allow_extra=True)
    return module.predict(data).asnumpy()


def test_stacked_autoencoder():
    """Train layer by layer, each on the output of the previous one, then all layers together."""
    pictures = mx.test_utils.get_mnist(sample=True)["train_data"][:1000].reshape(1000, 784)
    params, inputs = {}, pictures
    for number in range(len(LAYERS)):
        alone = decoder(encoder(mx.sym.var("data"), number), number)
        _, found = fitted(alone, inputs, None, 6, 0.005)
        params.update(found)
        inputs = outputs(encoder(mx.sym.var("data"), number), inputs, found)
    net = mx.sym.var("data")
    for number in range(len(LAYERS)):
        net = encoder(net, number)
    for number in reversed(range(len(LAYERS))):
        net = decoder(net, number)
    before = np.mean((outputs(net, pictures, params) - pictures) ** 2)
    after, _ = fitted(net, pictures, params, 6, 0.002)
    assert before < 0.06 < np.var(pictures), "the layers trained one by one fit together"
    assert after < 0.85 * before


NOISE, BATCH = 4, 64


def module_of(net, inputs, **bind):
    module = mx.mod.Module(net, data_names=list(inputs), label_names=bind.pop("label_names", None))
    module.bind(list(inputs.items()), inputs_need_grad=True, **bind)
    module.init_params(mx.init.Normal(0.2))
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01, "beta1": 0.5})
    return module


def test_gan():
    """The generator trains with the discriminator's input gradient and learns to imitate points of a shifted cloud."""
    net = mx.sym.FullyConnected(mx.sym.var("noise"), num_hidden=16, name="g1")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="tanh"), num_hidden=2, name="g2")
    generator = module_of(net, {"noise": (BATCH, NOISE)}, label_shapes=None)
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=32, name="d1")
    net = mx.sym.FullyConnected(mx.sym.LeakyReLU(net, slope=0.2), num_hidden=1, name="d2")
    judge = mx.sym.LogisticRegressionOutput(net, mx.sym.var("label"), name="judge")
    discriminator = module_of(judge, {"data": (BATCH, 2)}, label_shapes=[("label", (BATCH, 1))], label_names=["label"])
    real, fake = mx.nd.ones((BATCH, 1)), mx.nd.zeros((BATCH, 1))
    rng = np.random.RandomState(0)

    def noise():
        return mx.io.DataBatch([mx.nd.array(rng.normal(0, 1, (BATCH, NOISE)))], [])

    middles = []
    for _ in range(300):
        generator.forward(noise(), is_train=True)
        made = generator.get_outputs()[0].copy()
        middles.append(made.asnumpy().mean(0))
        discriminator.forward(mx.io.DataBatch([made], [fake]), is_train=True)
        discriminator.backward()
        kept = [[grad.copy() for grad in grads] for grads in discriminator._exec_group.grad_arrays]
        cloud = mx.nd.array(rng.normal([2.0, -1.0], 0.5, (BATCH, 2)))
        discriminator.forward(mx.io.DataBatch([cloud], [real]), is_train=True)
        discriminator.backward()
        for grads, others in zip(discriminator._exec_group.grad_arrays, kept, strict=True):
            for grad, other in zip(grads, others, strict=True):
                grad += other
        discriminator.update()
        discriminator.forward(mx.io.DataBatch([made], [real]), is_train=True)
        discriminator.backward()
        generator.backward(discriminator.get_input_grads())
        generator.update()
    middle = np.mean(middles[100:], axis=0)  # the center around which the generated points oscillate
    np.testing.assert_allclose(middle, [2.0, -1.0], atol=0.3)
