"""Gluon in NumPy mode: layers, losses, cells, trainings and files on mx.np arrays."""

import os
import tempfile

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def batch(mx, *shape, seed=0, low=-1.0):
    return mx.np.array(np.random.RandomState(seed).uniform(low, 1, shape).astype("float32"))


def fill(mx, block, seed=1):
    """Give every parameter known values: positive, as variances must be."""
    rng = np.random.RandomState(seed)
    for parameter in block.collect_params().values():
        low = 0.5 if parameter.name.endswith("var") else -1
        parameter.set_data(mx.np.array(rng.uniform(low, 1, parameter.shape).astype("float32")))


def is_np(array):
    """Whether it is an array of mx.np."""
    return bool(hasattr(array, "as_np_ndarray") and array.as_np_ndarray() is array)


def layer(name, make, *shapes, trains=True):
    """A layer, deferred: outputs and gradients as built and hybridized, and the kinds of arrays."""

    def run(mx):
        results = []
        for hybrid in (False, True):
            block = make(mx.gluon)
            block.initialize()
            if hybrid:
                block.hybridize()
            inputs = [batch(mx, *shape, seed=i) for i, shape in enumerate(shapes)]
            block(*inputs)
            fill(mx, block)
            for x in inputs:
                x.attach_grad()
            with mx.autograd.record(train_mode=trains):
                out = block(*inputs)
            out.backward(batch(mx, *out.shape, seed=7))
            results += [out] + [x.grad for x in inputs]
            for p in block.collect_params().values():
                results.append(p.data() if p.grad_req == "null" else p.grad())
            results += [is_np(out), str([tuple(p.shape) for p in block.collect_params().values()])]
        return results

    run.__name__ = "layer_" + name
    program.np(run)


layer("dense", lambda g: g.nn.Dense(3, activation="relu"), (2, 4))
layer("dense_not_flattened", lambda g: g.nn.Dense(3, flatten=False), (2, 5, 4))
layer("conv", lambda g: g.nn.Conv2D(3, 3, padding=1, activation="sigmoid"), (2, 2, 5, 5))
layer("conv1d", lambda g: g.nn.Conv1D(3, 3, strides=2), (2, 2, 9))
layer("conv_transpose", lambda g: g.nn.Conv2DTranspose(3, 3, strides=2), (2, 2, 4, 4))
layer("max_pool", lambda g: g.nn.MaxPool2D(2), (2, 2, 6, 6))
layer("average_pool", lambda g: g.nn.AvgPool2D(3, 1, 1), (2, 2, 6, 6))
layer("global_pool", lambda g: g.nn.GlobalAvgPool2D(), (2, 2, 6, 6))
layer("batch_norm", lambda g: g.nn.BatchNorm(), (4, 3, 2, 2))
layer("layer_norm", lambda g: g.nn.LayerNorm(), (4, 3, 5))
layer("leaky_relu", lambda g: g.nn.LeakyReLU(0.1), (4, 3))
layer("elu", lambda g: g.nn.ELU(), (4, 3))
layer("selu", lambda g: g.nn.SELU(), (4, 3))
layer("gelu", lambda g: g.nn.GELU(), (4, 3))
layer("swish", lambda g: g.nn.Swish(), (4, 3))
layer("prelu", lambda g: g.nn.PReLU(), (4, 3))
layer("flatten", lambda g: g.nn.Flatten(), (4, 3, 2))
layer("dropout_in_predict_mode", lambda g: g.nn.Dropout(0.5), (4, 3), trains=False)
layer("lstm", lambda g: g.rnn.LSTM(3, 2), (4, 2, 3))
layer("gru", lambda g: g.rnn.GRU(3, bidirectional=True), (4, 2, 3))
layer("rnn", lambda g: g.rnn.RNN(3, layout="NTC"), (2, 4, 3))


def network(g):
    net = g.nn.HybridSequential()
    net.add(g.nn.Conv2D(4, 3), g.nn.BatchNorm(), g.nn.Activation("relu"), g.nn.MaxPool2D(2), g.nn.Flatten())
    net.add(g.nn.Dense(5, activation="tanh"), g.nn.Dense(3))
    return net


layer("network", network, (2, 2, 8, 8))


def loss(name, make, *inputs):
    """A loss with its gradient; inputs are functions of mx."""

    def run(mx):
        arrays = [each(mx) for each in inputs]
        arrays[0].attach_grad()
        with mx.autograd.record():
            out = make(mx.gluon.loss)(*arrays)
        out.backward()
        return [out, arrays[0].grad, is_np(out)]

    run.__name__ = "loss_" + name
    program.np(run)


def classes(mx):
    return mx.np.array([0, 2, 1, 1])


def of(*shape, seed=0, low=-1.0):
    return lambda mx: batch(mx, *shape, seed=seed, low=low)


loss("softmax_ce", lambda ls: ls.SoftmaxCrossEntropyLoss(), of(4, 3), classes)
loss("softmax_ce_dense", lambda ls: ls.SoftmaxCrossEntropyLoss(sparse_label=False), of(4, 3), of(4, 3, seed=1))
loss("softmax_ce_axis", lambda ls: ls.SoftmaxCrossEntropyLoss(axis=1), of(2, 3, 2), lambda mx: mx.np.ones((2, 2)))
loss("softmax_ce_weights", lambda ls: ls.SoftmaxCrossEntropyLoss(weight=0.5), of(4, 3), classes, of(4, 1, seed=1))
loss("l2", lambda ls: ls.L2Loss(), of(4, 3), of(4, 3, seed=1))
loss("l1", lambda ls: ls.L1Loss(), of(4, 3), of(4, 3, seed=1))
loss("sigmoid_bce", lambda ls: ls.SigmoidBinaryCrossEntropyLoss(), of(4, 3), of(4, 3, seed=1, low=0))
loss("sigmoid_bce_probabilities", lambda ls: ls.SigmoidBCELoss(from_sigmoid=True), of(4, 3, low=0.1), of(4, 3, low=0))


@program.np
def parameters_and_gradients_are_np_arrays(mx):
    net = mx.gluon.nn.Dense(3)
    net.initialize()
    shown = [str(net.weight.shape), repr(net)]
    net(mx.np.ones((2, 4)))
    arrays = [net.weight.data(), net.weight.grad(), net.weight.list_data()[0], net.weight.list_grad()[0]]
    return shown + [is_np(array) for array in arrays] + [str(net.weight.shape)]


@program.np
def batches_are_np_arrays(mx):
    data = mx.gluon.data.ArrayDataset(np.arange(12.0).reshape(6, 2), np.arange(6))
    results = []
    for x, y in mx.gluon.data.DataLoader(data, 4):
        results += [x, y, is_np(x), is_np(y)]
    parts = mx.gluon.utils.split_and_load(np.arange(8.0).reshape(4, 2), [mx.cpu(0), mx.cpu(1)])
    return results + parts + [is_np(part) for part in parts]


@program.np
def pictures_are_np_arrays(mx):
    picture = mx.np.array(np.random.RandomState(0).randint(0, 255, (6, 8, 3)), dtype="uint8")
    transforms = mx.gluon.data.vision.transforms
    steps = [transforms.ToTensor(), transforms.Resize(4), transforms.CenterCrop(4), transforms.Cast("float32")]
    results = [step(picture) for step in steps]
    results.append(transforms.Normalize(0.5, 0.2)(results[0]))
    results += [
        mx.image.imresize(picture, 4, 3),
        mx.npx.image.to_tensor(picture),
        mx.npx.image.flip_left_right(picture),
    ]
    return results + [is_np(each) for each in results]


def trained(optimizer, **settings):
    """Ten steps of a small network: losses and weights."""

    def run(mx):
        net = mx.gluon.nn.HybridSequential()
        net.add(mx.gluon.nn.Dense(6, activation="tanh", in_units=4), mx.gluon.nn.Dense(3, in_units=6))
        net.initialize()
        fill(mx, net)
        net.hybridize()
        trainer = mx.gluon.Trainer(net.collect_params(), optimizer, settings)
        error = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        losses = []
        for step in range(10):
            x = batch(mx, 8, 4, seed=step)
            y = mx.np.array(np.random.RandomState(step).randint(0, 3, 8))
            with mx.autograd.record():
                value = error(net(x), y).mean()
            value.backward()
            trainer.step(1)
            losses.append(float(value))
        return [np.array(losses, dtype="float32")] + [p.data() for p in net.collect_params().values()]

    run.__name__ = "trained_by_" + optimizer
    program.np(run)


trained("sgd", learning_rate=0.1, momentum=0.9)
trained("adam", learning_rate=0.01)
trained("rmsprop", learning_rate=0.01)
trained("adagrad", learning_rate=0.1)
trained("nag", learning_rate=0.1, momentum=0.9)
trained("lamb", learning_rate=0.01)
trained("ftrl", learning_rate=0.1)


@program.np
def own_layer_with_F_np_and_F_npx(mx):
    class Layer(mx.gluon.HybridBlock):
        def __init__(self, **kwargs):
            super(Layer, self).__init__(**kwargs)
            with self.name_scope():
                self.scale = self.params.get("scale", shape=(3,), init="ones")

        def hybrid_forward(self, F, x, scale):
            y = F.np.sum(x * scale, axis=1, keepdims=True) / 2 + F.npx.relu(x)
            return F.np.concatenate([y, F.np.zeros_like(y) + F.np.mean(x)], axis=1), x[0, 1:]

    results = []
    for hybrid in (False, True):
        layer = Layer()
        layer.initialize()
        if hybrid:
            layer.hybridize()
        x = batch(mx, 2, 3)
        x.attach_grad()
        with mx.autograd.record():
            first, second = layer(x)
            total = first.sum() + (second * 2).sum()
        total.backward()
        results += [first, second, total, x.grad, layer.scale.grad()]
    return results


@program.np
def files_come_back(mx):
    with tempfile.TemporaryDirectory() as folder:
        net = network(mx.gluon)
        net.initialize()
        net.hybridize()
        x = batch(mx, 2, 2, 8, 8)
        net(x)
        fill(mx, net)
        expected = net(x)
        net.save_parameters(os.path.join(folder, "net.params"))
        net.export(os.path.join(folder, "net"))
        again = network(mx.gluon)
        again.load_parameters(os.path.join(folder, "net.params"))
        imported = mx.gluon.SymbolBlock.imports(
            os.path.join(folder, "net-symbol.json"), ["data"], os.path.join(folder, "net-0000.params")
        )
        arrays = {"a": x, "scalar": mx.np.array(3.0), "empty": mx.np.zeros((0, 2))}
        mx.npx.save(os.path.join(folder, "arrays"), arrays)
        loaded = mx.npx.load(os.path.join(folder, "arrays"))
        files = [again(x), imported(x), is_np(imported(x)), loaded["a"], loaded["scalar"], loaded["empty"]]
        mx.npx.save(os.path.join(folder, "listed"), [x])
        refused = outcome(lambda: mx.npx.save(os.path.join(folder, "bad"), mx.nd.ones(2)))
        return [expected] + files + mx.npx.load(os.path.join(folder, "listed")) + [refused]


@program.np
def the_kinds_do_not_mix(mx):
    x, y = mx.np.ones(2), mx.nd.ones(2)
    calls = [lambda: mx.nd.relu(x), lambda: mx.np.sin(y), lambda: mx.npx.relu(y), lambda: x + y]
    shared = x.as_nd_ndarray()
    shared[:] = 5
    return [outcome(call) for call in calls] + [x, shared, y.as_np_ndarray(), is_np(y), is_np(x.as_nd_ndarray())]


@program.np
def modes_and_scopes(mx):
    def both():
        return mx.util.is_np_array(), mx.util.is_np_shape()

    seen = [both()]
    mx.npx.reset_np()
    seen.append(both())
    with mx.util.np_shape(True):
        with mx.util.np_array(True):
            seen.append(both())
        seen.append(both())
    seen.append(mx.util.use_np(both)())
    seen.append(both())
    return [str(seen), outcome(lambda: mx.npx.set_np(shape=False)), outcome(lambda: mx.npx.set_np(array=False))]


@program.np
def functions_of_ones_own(mx):
    class Double(mx.autograd.Function):
        def forward(self, x):
            self.seen = is_np(x)
            return x * 2

        def backward(self, dy):
            return dy * 3

    x = mx.np.ones((2, 2))
    x.attach_grad()
    function = Double()
    with mx.autograd.record():
        y = function(x)
    y.backward()
    mx.npx.waitall()
    (grad,) = mx.autograd.grad(_square(mx, x), [x])
    return [y, x.grad, is_np(y), function.seen, grad]


def _square(mx, x):
    with mx.autograd.record():
        y = (x * x).sum()
    return [y]
