"""Gluon programs as MXNet's users write them: what they print on the way, and the weights they come to."""

import os
import tempfile

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


class Source:
    """Arrays from a numpy seed, the same under every engine."""

    def __init__(self, mx, seed=0):
        self.mx, self.rng = mx, np.random.RandomState(seed)

    def normal(self, *shape, scale=1.0):
        return self.mx.nd.array(self.rng.normal(0, scale, shape))

    def integers(self, high, *shape):
        return self.mx.nd.array(self.rng.randint(0, high, shape))

    def pictures(self, count, classes, *shape, noise=0.3):
        """Noisy pictures of which the class can be learned, and their classes."""
        prototypes = self.rng.uniform(0, 1, (classes, *shape))
        labels = self.rng.randint(0, classes, count)
        images = prototypes[labels] + self.rng.normal(0, noise, (count, *shape))
        return self.mx.nd.array(images), self.mx.nd.array(labels)

    def fill(self, net):
        """Give a net, whose shapes are known, weights that do not depend on the engine's random numbers."""
        for name, param in net.collect_params().items():
            if param.grad_req == "null" and name.endswith(("mean", "var")):
                continue
            scale = 1 / np.sqrt(np.prod(param.shape[1:]) or 1)
            shift = 1 if name.endswith("gamma") else 0
            param.set_data(self.mx.nd.array(shift + self.rng.uniform(-scale, scale, param.shape) * 0.7))
        return net

    def start(self, net, *inputs, ctx=None):
        """Initialise a net, let it see inputs so that it knows its shapes, and fill it."""
        net.initialize(ctx=ctx)
        net(*inputs)
        return self.fill(net)


def sequential(mx, *layers, hybrid=True):
    net = mx.gluon.nn.HybridSequential() if hybrid else mx.gluon.nn.Sequential()
    net.add(*layers)
    return net


def weights(net):
    """The values of all parameters, in the order in which the net knows them."""
    return [param.data() for param in net.collect_params().values()]


@program
def mlp_with_a_loader_and_a_metric(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx)
    x, y = src.pictures(50, 4, 1, 6, 6)
    train = gluon.data.DataLoader(gluon.data.ArrayDataset(x[:36], y[:36]), batch_size=10)
    test = gluon.data.DataLoader(gluon.data.ArrayDataset(x[36:], y[36:]), batch_size=5)
    net = sequential(mx, nn.Flatten(), nn.Dense(16, activation="relu"), nn.Dense(4), hybrid=False)
    src.start(net, x)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.3})
    loss_of, metric, printed = gluon.loss.SoftmaxCrossEntropyLoss(), mx.metric.Accuracy(), []
    for _ in range(3):
        total = 0.0
        metric.reset()
        for data, label in train:
            with mx.autograd.record():
                output = net(data)
                loss = loss_of(output, label)
            loss.backward()
            trainer.step(data.shape[0])
            metric.update([label], [output])
            total += loss.mean().asscalar()
        printed += [total / len(train), metric.get()[1]]
        held_out = mx.metric.CompositeEvalMetric([mx.metric.Accuracy(), mx.metric.TopKAccuracy(2)])
        for data, label in test:
            held_out.update(label, net(data))
        printed += held_out.get()[1]
    return [np.array(printed), *weights(net)]


@program
def lenet_with_a_falling_rate(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 1)
    x, y = src.pictures(24, 5, 1, 16, 16)
    net = sequential(mx)
    with net.name_scope():
        net.add(nn.Conv2D(channels=4, kernel_size=5, activation="relu"), nn.MaxPool2D(pool_size=2, strides=2))
        net.add(nn.Conv2D(channels=6, kernel_size=3, activation="tanh"), nn.AvgPool2D(pool_size=2, strides=2))
        net.add(nn.Flatten(), nn.Dense(12, activation="relu"), nn.Dense(5))
    net.hybridize(static_alloc=True, static_shape=True)
    src.start(net, x)
    schedule = mx.lr_scheduler.MultiFactorScheduler(step=[3, 6], factor=0.5, warmup_steps=2, warmup_begin_lr=0.01)
    schedule.base_lr = 0.2
    options = {"learning_rate": 0.2, "momentum": 0.9, "wd": 1e-3, "lr_scheduler": schedule}
    trainer = gluon.Trainer(net.collect_params(), "sgd", options)
    loss_of, losses, rates = gluon.loss.SoftmaxCrossEntropyLoss(), [], []
    for step in range(9):
        rows = slice(8 * (step % 3), 8 * (step % 3) + 8)
        with mx.autograd.record():
            loss = loss_of(net(x[rows]), y[rows])
        loss.backward()
        trainer.step(8)
        losses.append(loss.mean().asscalar())
        rates.append(trainer.learning_rate)
    return [np.array(losses), np.array(rates), *weights(net)]


def residual_net(mx):
    nn = mx.gluon.nn

    class Residual(mx.gluon.HybridBlock):
        def __init__(self, channels, use_1x1conv=False, strides=1, **kwargs):
            super().__init__(**kwargs)
            self.conv1 = nn.Conv2D(channels, kernel_size=3, padding=1, strides=strides, use_bias=False)
            self.conv2 = nn.Conv2D(channels, kernel_size=3, padding=1)
            self.conv3 = nn.Conv2D(channels, kernel_size=1, strides=strides) if use_1x1conv else None
            self.bn1, self.bn2 = nn.BatchNorm(), nn.BatchNorm(momentum=0.8)

        def hybrid_forward(self, F, x):
            y = F.Activation(self.bn1(self.conv1(x)), act_type="relu")
            y = self.bn2(self.conv2(y))
            return F.relu(y + (self.conv3(x) if self.conv3 else x))

    return sequential(mx, Residual(3), Residual(4, use_1x1conv=True, strides=2), nn.GlobalAvgPool2D(), nn.Dense(3))


def residual(mx, hybrid):
    src = Source(mx, 2)
    x, y = src.pictures(12, 3, 3, 8, 8)
    net = residual_net(mx)
    src.start(net, x)
    if hybrid:
        net.hybridize()
    trainer = mx.gluon.Trainer(net.collect_params(), "nag", {"learning_rate": 0.05, "momentum": 0.9})
    loss_of, results = mx.gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(4):
        with mx.autograd.record():
            output = net(x)
            loss = loss_of(output, y)
        loss.backward()
        trainer.step(12)
        results += [output, net(x)]
    with mx.autograd.record(train_mode=False):
        frozen = net(x).sum()
    with mx.autograd.train_mode():
        results.append(net(x))
    frozen.backward()
    return results + [net[0].conv1.weight.grad()] + weights(net)


@program
def residual_net_in_training_and_prediction(mx):
    return residual(mx, False)


@program
def residual_net_hybridized(mx):
    return residual(mx, True)


@program
def training_on_two_contexts(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 3)
    contexts = [mx.cpu(0), mx.cpu(1)]
    x, y = src.pictures(20, 3, 6)
    net = sequential(mx, nn.Dense(8, activation="softrelu"), nn.Dense(3))
    src.start(net, x.as_in_context(contexts[0]), ctx=contexts)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
    loss_of, metric, printed = gluon.loss.SoftmaxCrossEntropyLoss(), mx.metric.Accuracy(), []
    for _ in range(3):
        metric.reset()
        for start in range(0, 20, 10):
            data = gluon.utils.split_and_load(x[start : start + 10], ctx_list=contexts, batch_axis=0)
            label = gluon.utils.split_and_load(y[start : start + 10], ctx_list=contexts, batch_axis=0)
            with mx.autograd.record():
                outputs = [net(part) for part in data]
                losses = [loss_of(output, part) for output, part in zip(outputs, label)]
            for loss in losses:
                loss.backward()
            trainer.step(10)
            metric.update(label, outputs)
            printed.append(sum(loss.sum().asscalar() for loss in losses))
        printed.append(metric.get()[1])
    replicas = [param.data(ctx) for param in net.collect_params().values() for ctx in contexts]
    return [np.array(printed), *replicas]


@program
def gradients_accumulated_over_small_batches(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 4)
    x, y = src.normal(12, 5), src.normal(12, 2)
    results = []
    for parts in (1, 3):
        net = sequential(mx, nn.Dense(6, activation="sigmoid"), nn.Dense(2))
        Source(mx, 9).start(net, x)
        net.collect_params().setattr("grad_req", "add")
        net.collect_params().zero_grad()
        trainer = gluon.Trainer(net.collect_params(), "rmsprop", {"learning_rate": 0.01, "centered": True})
        for _ in range(3):
            for data, label in zip(gluon.utils.split_data(x, parts), gluon.utils.split_data(y, parts)):
                with mx.autograd.record():
                    loss = gluon.loss.L2Loss()(net(data), label)
                loss.backward()
            results.append(net[0].weight.grad())
            trainer.step(12)
            for param in net.collect_params().values():
                param.zero_grad()
        results += weights(net)
    return [result.asnumpy() for result in results]


@program
def gradient_clipping(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 5)
    x, y = src.normal(8, 5, scale=3), src.normal(8, 1, scale=9)
    results = []
    for options in ({"learning_rate": 0.1}, {"learning_rate": 0.1, "clip_gradient": 0.05}):
        net = sequential(mx, nn.Dense(4, activation="tanh"), nn.Dense(1))
        Source(mx, 9).start(net, x)
        trainer = gluon.Trainer(net.collect_params(), "sgd", options)
        for _ in range(3):
            with mx.autograd.record():
                loss = gluon.loss.HuberLoss(rho=2)(net(x), y).mean()
            loss.backward()
            gradients = [param.grad() for param in net.collect_params().values() if param.grad_req != "null"]
            norm = gluon.utils.clip_global_norm(gradients, 0.4)
            results += [loss, float(norm), mx.nd.add_n(*[(g**2).sum() for g in gradients])]
            trainer.step(1)
        results += weights(net)
    return results


@program
def embedding_and_output_share_weights(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 6)

    class Model(gluon.HybridBlock):
        def __init__(self, vocabulary, size, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.encoder = nn.Embedding(vocabulary, size)
                self.mix = nn.Dense(size, activation="tanh", flatten=False)
                self.decoder = nn.Dense(vocabulary, flatten=False, params=self.encoder.params)

        def hybrid_forward(self, F, tokens):
            return self.decoder(self.mix(self.encoder(tokens)))

    tokens = src.integers(7, 3, 6)
    results = []
    for hybrid in (False, True):
        model = Model(7, 4, prefix="model_")
        Source(mx, 9).start(model, tokens)
        if hybrid:
            model.hybridize()
        trainer = gluon.Trainer(model.collect_params(), "adagrad", {"learning_rate": 0.1})
        for _ in range(3):
            with mx.autograd.record():
                scores = model(tokens[:, :-1])
                loss = gluon.loss.SoftmaxCrossEntropyLoss()(scores, tokens[:, 1:])
            loss.backward()
            trainer.step(3)
            results.append(loss)
        results += [" ".join(model.collect_params().keys()), model.encoder.weight.grad(), *weights(model)]
        results.append(str(model.encoder.weight is model.decoder.weight))
    return results


@program
def contrib_ops_in_a_hybrid_block(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 7)

    class Pyramid(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.reduce = nn.Conv2D(3, 1)
                self.out = nn.Conv2D(2, 3, padding=1)

        def hybrid_forward(self, F, x):
            levels = [x]
            for size in (1, 2):
                pooled = self.reduce(F.contrib.AdaptiveAvgPooling2D(x, output_size=size))
                levels.append(F.contrib.BilinearResize2D(pooled, height=8, width=8))
            positions = F.contrib.arange_like(x, axis=2).reshape((1, 1, -1, 1))
            merged = F.concat(*levels, dim=1)
            return self.out(F.broadcast_mul(merged, 1 + 0.1 * positions)), F.contrib.div_sqrt_dim(merged)

    x = src.normal(2, 4, 8, 8)
    results = []
    for hybrid in (False, True):
        net = Pyramid(prefix="pyramid_")
        Source(mx, 9).start(net, x)
        if hybrid:
            net.hybridize()
        x.attach_grad()
        with mx.autograd.record():
            out, scaled = net(x)
            loss = (out**2).mean() + scaled.abs().mean()
        loss.backward()
        results += [out, loss, x.grad.copy(), net.reduce.weight.grad(), net.out.bias.grad()]
    return results


@program
def block_with_lists_of_inputs(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 8)

    class Step(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.gate, self.new = nn.Dense(4), nn.Dense(4)

        def hybrid_forward(self, F, x, states, scale):
            h, c = states
            gate = F.sigmoid(self.gate(F.concat(x, h, dim=1)))
            c = gate * c + (1 - gate) * F.tanh(self.new(x))
            h = F.broadcast_mul(c, scale)
            return h, [h, c]

    xs, scale = [src.normal(2, 3) for _ in range(3)], src.normal(1, 4)
    results = []
    for hybrid in (False, True):
        net, states = Step(), [mx.nd.zeros((2, 4)), mx.nd.ones((2, 4))]
        Source(mx, 9).start(net, xs[0], states, scale)
        if hybrid:
            net.hybridize()
        with mx.autograd.record():
            outputs = []
            for x in xs:
                output, states = net(x, states, scale)
                outputs.append(output)
            loss = mx.nd.stack(*outputs).square().sum() + states[1].sum()
        loss.backward()
        results += [*outputs, states[1], net.gate.weight.grad(), net.new.weight.grad()]
    return results


@program
def features_by_symbol_block(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 9)
    x = src.normal(3, 2, 8, 8)
    net = nn.HybridSequential(prefix="body_")
    with net.name_scope():
        net.add(nn.Conv2D(3, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(), nn.Dense(5, activation="tanh"))
        net.add(nn.Dense(2))
    src.start(net, x)
    data = mx.sym.var("data")
    internals = net(data).get_internals()
    names = [name for name in internals.list_outputs() if name.endswith("_output")]
    outputs = [internals["body_pool0_fwd_output"], internals["body_dense0_tanh_fwd_output"]]
    extractor = gluon.SymbolBlock(outputs, data, params=net.collect_params())
    head = nn.Dense(1)
    pooled, dense = extractor(x)
    src.start(head, dense)
    with mx.autograd.record():
        loss = (head(extractor(x)[1]) ** 2).mean()
    loss.backward()
    gradient = net[0].weight.grad()
    return [",".join(names), pooled, dense, loss, gradient, " ".join(extractor.collect_params().keys())]


@program
def transfer_learning_by_patterns(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 10)

    class Net(gluon.HybridBlock):
        def __init__(self, classes, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.features = nn.HybridSequential(prefix="features_")
                with self.features.name_scope():
                    self.features.add(nn.Dense(6, activation="relu"), nn.BatchNorm(), nn.Dense(4, activation="relu"))
                self.output = nn.Dense(classes, prefix="output_")

        def hybrid_forward(self, F, x):
            return self.output(self.features(x))

    x, y = src.pictures(16, 3, 5)
    old, loss_of = src.start(Net(7, prefix="net_"), x), gluon.loss.SoftmaxCELoss()
    results = [" ".join(old.collect_params(".*weight|.*bias").keys())]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "old.params")
        old.features.save_parameters(file)
        net = Net(3, prefix="net_")
        net.initialize()
        net.features.load_parameters(file)
    net(x)
    src.fill(net.output)
    net.collect_params(".*features_dense0.*").setattr("grad_req", "null")
    net.collect_params(".*features.*").setattr("lr_mult", 0.1)
    net.collect_params(".*bias|.*gamma|.*beta").setattr("wd_mult", 0)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "wd": 0.1, "momentum": 0.5})
    for _ in range(3):
        with mx.autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(16)
        results.append(loss)
    return results + weights(net)


@program
def half_precision_forward(mx):
    """Layers that multiply no matrices: MXNet has no such kernels in half precision on a CPU."""
    nn, src = mx.gluon.nn, Source(mx, 11)
    words = src.integers(7, 3, 6)
    net = sequential(mx, nn.Embedding(7, 4), nn.BatchNorm(), nn.Swish(), nn.MaxPool1D(2), nn.LayerNorm(), nn.SELU())
    src.start(net, words)
    results = [net(words)]
    for hybrid in (False, True):
        net.cast("float16")
        net.hybridize(hybrid)
        half = net(words)
        results += [np.dtype(half.dtype).name, np.round(half.asnumpy().astype("float32"), 2)]
        results.append(" ".join(np.dtype(param.dtype).name for param in net.collect_params().values()))
        net.cast("float32")
        results.append(np.dtype(net(words).dtype).name)
    return results


@program
def training_goes_on_from_saved_states(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 12)
    x, y = src.pictures(16, 3, 5)

    def fresh():
        net = sequential(mx, nn.Dense(6, activation="relu"), nn.BatchNorm(), nn.Dense(3))
        Source(mx, 9).start(net, x)
        schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5)
        options = {"learning_rate": 0.1, "wd": 0.01, "lr_scheduler": schedule}
        return net, gluon.Trainer(net.collect_params(), "adam", options)

    def steps(net, trainer, count):
        losses = []
        for _ in range(count):
            with mx.autograd.record():
                loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(x), y)
            loss.backward()
            trainer.step(16)
            losses.append(loss.mean().asscalar())
        return losses

    whole, trainer = fresh()
    expected = steps(whole, trainer, 7)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "half")
        first, trainer = fresh()
        losses = steps(first, trainer, 3)
        first.save_parameters(file + ".params")
        trainer.save_states(file + ".states")
        second, trainer = fresh()
        second.load_parameters(file + ".params")
        trainer.load_states(file + ".states")
    losses += steps(second, trainer, 4)
    same = all((a == b).asnumpy().all() for a, b in zip(weights(whole), weights(second)))
    return [np.array(expected), np.array(losses), same, trainer.learning_rate, *weights(second)]


@program
def slices_of_a_sequential(mx):
    nn, src = mx.gluon.nn, Source(mx, 13)
    x = src.normal(2, 4)
    results = []
    for hybrid in (False, True):
        squash = nn.HybridLambda("tanh") if hybrid else nn.Lambda("tanh")
        net = sequential(mx, nn.Dense(5), nn.Activation("relu"), nn.Dense(4), squash, nn.Dense(2), hybrid=hybrid)
        Source(mx, 9).start(net, x)
        tail, body = net[2:], net[:-1]
        h = x
        for layer in net:
            h = layer(h)
        with mx.autograd.record():
            y = net[-1](body(x)).sum()
        y.backward()
        results += [net(x), h, tail(net[:2](x)), net[1:4:2](net[0](x)), len(net), len(tail), type(body).__name__]
        results += [net[0].weight.grad(), outcome(lambda net=net: net[9]), len(list(tail.collect_params().keys()))]
    return results


@program
def net_in_a_net_with_one_part_hybridized(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 14)

    class Outer(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.body = sequential(mx, nn.Dense(5, activation="relu"), nn.LayerNorm(), nn.Dense(4))
                self.shared = nn.Dense(4, activation="tanh")
                self.blocks = nn.Sequential()
                self.blocks.add(sequential(mx, nn.Dense(4), nn.LeakyReLU(0.2)), nn.Lambda(lambda x: 2 * x))

        def forward(self, x):
            h = self.shared(self.blocks(self.body(x)))
            while h.norm().asscalar() > 1:
                h = h / 2
            return self.shared(h).sum(axis=1)

    x = src.normal(3, 6)
    net = Outer()
    src.start(net, x)
    net.body.hybridize()
    net.blocks[0].hybridize()
    trainer, results = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.2}), []
    for _ in range(3):
        with mx.autograd.record():
            loss = net(x)
        loss.backward()
        trainer.step(3)
        results.append(loss)
    net.hybridize()
    return results + [net(x)] + weights(net)


@program
def function_of_ones_own_in_a_block(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 15)

    class ReverseGradient(mx.autograd.Function):
        def __init__(self, strength):
            super().__init__()
            self.strength = strength

        def forward(self, x):
            return x * 1

        def backward(self, dy):
            return -self.strength * dy

    class Adversary(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.features, self.label, self.domain = nn.Dense(4, activation="tanh"), nn.Dense(3), nn.Dense(2)

        def forward(self, x):
            h = self.features(x)
            return self.label(h), self.domain(ReverseGradient(0.3)(h))

    x, y = src.pictures(8, 3, 5)
    domain = src.integers(2, 8)
    net, loss_of = Adversary(), gluon.loss.SoftmaxCrossEntropyLoss()
    src.start(net, x)
    trainer, results = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.3}), []
    for _ in range(3):
        with mx.autograd.record():
            label, where = net(x)
            loss = loss_of(label, y) + loss_of(where, domain)
        loss.backward()
        trainer.step(8)
        results += [loss, net.features.weight.grad().copy()]
    return results + weights(net)


@program
def a_picture_is_optimised(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 16)

    class Picture(gluon.Block):
        def __init__(self, shape, **kwargs):
            super().__init__(**kwargs)
            self.weight = self.params.get("weight", shape=shape)

        def forward(self):
            return self.weight.data()

    def extract(net, x):
        features = []
        for i, layer in enumerate(net):
            x = layer(x)
            if i in (0, 2):
                features.append(x)
        return features

    def gram(x):
        flat = x.reshape((x.shape[1], -1))
        return mx.nd.dot(flat, flat.T) / flat.size

    content, style = src.normal(1, 3, 8, 8), src.normal(1, 3, 8, 8)
    net = sequential(mx, nn.Conv2D(4, 3, activation="relu"), nn.AvgPool2D(), nn.Conv2D(4, 2, activation="relu"))
    src.start(net, content)
    target, styles = extract(net, content)[1], [gram(f) for f in extract(net, style)]
    picture = Picture(content.shape)
    picture.initialize(mx.init.Constant(0))
    picture.weight.set_data(content)
    trainer = gluon.Trainer(picture.collect_params(), "adam", {"learning_rate": 0.1})
    losses = []
    for step in range(6):
        with mx.autograd.record():
            x = picture()
            features = extract(net, x)
            content_loss = (features[1] - target).square().mean()
            style_loss = mx.nd.add_n(*[(gram(f) - s).square().mean() for f, s in zip(features, styles)])
            variation = (x[:, :, 1:] - x[:, :, :-1]).abs().mean() + (x[:, :, :, 1:] - x[:, :, :, :-1]).abs().mean()
            loss = content_loss + 10 * style_loss + 0.1 * variation
        loss.backward()
        trainer.step(1)
        losses += [content_loss.asscalar(), style_loss.asscalar(), variation.asscalar()]
        if step == 3:
            trainer.set_learning_rate(trainer.learning_rate * 0.1)
    return [np.array(losses), picture.weight.data()]


@program
def siamese_net_with_triplet_loss(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 17)
    anchor, positive, negative = (src.normal(6, 1, 8, 8) for _ in range(3))
    net = sequential(mx, nn.Conv2D(3, 3, activation="relu"), nn.GlobalMaxPool2D(), nn.Flatten(), nn.Dense(4))
    net.add(nn.HybridLambda(lambda F, x: F.L2Normalization(x)))
    src.start(net, anchor)
    net.hybridize()
    triplet, cosine = gluon.loss.TripletLoss(margin=0.8), gluon.loss.CosineEmbeddingLoss(margin=0.1)
    trainer, results = gluon.Trainer(net.collect_params(), "adadelta", {"rho": 0.9, "epsilon": 1e-3}), []
    for _ in range(4):
        with mx.autograd.record():
            a, p, n = net(anchor), net(positive), net(negative)
            loss = triplet(a, p, n) + cosine(a, n, mx.nd.array([-1] * 6)).reshape((-1,))
        loss.backward()
        trainer.step(6)
        results.append(loss)
    return results + weights(net)


@program
def seq2seq_with_unrolled_cells(mx):
    gluon, nn, rnn, src = mx.gluon, mx.gluon.nn, mx.gluon.rnn, Source(mx, 18)

    class Seq2Seq(gluon.Block):
        def __init__(self, words, size, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.embedding = nn.Embedding(words, size)
                self.encoder, self.decoder = rnn.LSTMCell(size), rnn.LSTMCell(size)
                self.out = nn.Dense(words, flatten=False)

        def forward(self, source, target, length):
            _, states = self.encoder.unroll(
                source.shape[1], self.embedding(source), layout="NTC", merge_outputs=True, valid_length=length
            )
            outputs, _ = self.decoder.unroll(
                target.shape[1], self.embedding(target), begin_state=states, layout="NTC", merge_outputs=True
            )
            return self.out(outputs)

        def translate(self, source, length, steps):
            states = self.encoder.unroll(
                source.shape[1], self.embedding(source), layout="NTC", merge_outputs=True, valid_length=length
            )[1]
            word, words = mx.nd.zeros((source.shape[0],)), []
            for _ in range(steps):
                output, states = self.decoder(self.embedding(word), states)
                word = self.out(output).argmax(axis=1)
                words.append(word)
            return mx.nd.stack(*words, axis=1)

    source, target = src.integers(8, 4, 5), src.integers(8, 4, 4)
    length, target_length = mx.nd.array([5, 3, 2, 4]), mx.nd.array([4, 2, 3, 4])
    start = mx.nd.concat(mx.nd.zeros((4, 1)), target[:, :-1], dim=1)
    model, loss_of = Seq2Seq(8, 6), gluon.loss.SoftmaxCrossEntropyLoss()
    src.start(model, source, start, length)
    trainer, results = gluon.Trainer(model.collect_params(), "adam", {"learning_rate": 0.02}), []
    for _ in range(4):
        with mx.autograd.record():
            scores = model(source, start, length)
            mask = mx.nd.SequenceMask(
                mx.nd.ones_like(target).expand_dims(2), target_length, use_sequence_length=True, axis=1
            )
            loss = loss_of(scores, target, mask)
        loss.backward()
        gluon.utils.clip_global_norm([param.grad() for param in model.collect_params().values()], 1.0)
        trainer.step(1)
        results.append(loss)
    return results + [model.translate(source, length, 3)] + weights(model)


@program
def attention_with_masks(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 19)

    class Attention(gluon.HybridBlock):
        def __init__(self, size, heads, **kwargs):
            super().__init__(**kwargs)
            self._heads = heads
            with self.name_scope():
                self.query = nn.Dense(size, use_bias=False, flatten=False)
                self.key = nn.Dense(size, use_bias=False, flatten=False)
                self.value = nn.Dense(size, use_bias=False, flatten=False)
                self.norm, self.dropout = nn.LayerNorm(), nn.Dropout(0.0)

        def split(self, F, x):
            x = x.reshape((0, 0, self._heads, -1)).transpose((0, 2, 1, 3))
            return x.reshape((-1, 0, 0), reverse=True)

        def hybrid_forward(self, F, x, mask):
            q, k, v = (self.split(F, layer(x)) for layer in (self.query, self.key, self.value))
            scores = F.contrib.div_sqrt_dim(F.batch_dot(q, k, transpose_b=True))
            scores = F.where(F.repeat(mask, self._heads, axis=0), scores, -1e6 * F.ones_like(scores))
            mixed = F.batch_dot(self.dropout(F.softmax(scores, axis=-1)), v)
            mixed = mixed.reshape((-1, self._heads, 0, 0), reverse=True).transpose((0, 2, 1, 3)).reshape((0, 0, -1))
            return self.norm(x + mixed)

    x, lengths = src.normal(2, 5, 8), mx.nd.array([5, 3])
    positions = mx.nd.arange(5).reshape((1, 1, 5))
    mask = mx.nd.broadcast_lesser(positions, lengths.reshape((2, 1, 1))).broadcast_to((2, 5, 5))
    causal = mask * mx.nd.array(np.tril(np.ones((5, 5))))
    results = [mx.nd.softmax(x[:, :, :5], length=mx.nd.array([[5] * 5, [3] * 5], dtype="int32"), use_length=True)]
    for hybrid in (False, True):
        net = Attention(8, 2)
        Source(mx, 9).start(net, x, mask)
        if hybrid:
            net.hybridize()
        x.attach_grad()
        with mx.autograd.record():
            y = net(x, mask) + net(x, causal)
            loss = (y**2).mean(axis=(1, 2)).sum() + y[:, 0].sum()
        loss.backward()
        results += [y, x.grad.copy(), net.query.weight.grad(), net.value.weight.grad(), net.norm.gamma.grad()]
    return results


@program
def two_networks_against_each_other(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 20)
    real, noise = src.normal(8, 2), src.normal(8, 3)
    generator = sequential(mx, nn.Dense(6, activation="relu"), nn.Dense(2))
    critic = sequential(mx, nn.Dense(6), nn.LeakyReLU(0.2), nn.Dense(1))
    src.start(generator, noise)
    src.start(critic, real)
    options = {"learning_rate": 0.02, "beta1": 0.5}
    make, judge = (gluon.Trainer(net.collect_params(), "adam", options) for net in (generator, critic))
    loss_of, ones, zeros = gluon.loss.SigmoidBinaryCrossEntropyLoss(), mx.nd.ones((8,)), mx.nd.zeros((8,))
    results = []
    for _ in range(4):
        with mx.autograd.record():
            fake = generator(noise)
            judged = loss_of(critic(real), ones) + loss_of(critic(fake.detach()), zeros)
        judged.backward()
        judge.step(8)
        with mx.autograd.record():
            made = loss_of(critic(generator(noise)), ones)
        made.backward()
        make.step(8)
        results += [judged, made]
    return results + weights(generator) + weights(critic)


@program
def variational_autoencoder(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 21)

    class VAE(gluon.HybridBlock):
        def __init__(self, latent, **kwargs):
            super().__init__(**kwargs)
            self.encoder = sequential(mx, nn.Dense(6, activation="softrelu"), nn.Dense(2 * latent))
            self.decoder = sequential(mx, nn.Dense(6, activation="softrelu"), nn.Dense(5, activation="sigmoid"))

        def hybrid_forward(self, F, x, noise):
            mean, log_variance = F.split(self.encoder(x), axis=1, num_outputs=2)
            y = self.decoder(mean + F.exp(0.5 * log_variance) * noise)
            divergence = 0.5 * F.sum(1 + log_variance - mean * mean - F.exp(log_variance), axis=1)
            likelihood = F.sum(x * F.log(y + 1e-6) + (1 - x) * F.log(1 - y + 1e-6), axis=1)
            return -likelihood - divergence

    x = mx.nd.array(src.rng.uniform(0, 1, (6, 5)) > 0.5)
    net = VAE(2)
    src.start(net, x, src.normal(6, 2))
    net.hybridize()
    trainer, results = gluon.Trainer(net.collect_params(), "adamax", {"learning_rate": 0.02}), []
    for _ in range(4):
        noise = src.normal(6, 2)
        with mx.autograd.record():
            loss = net(x, noise)
        loss.backward()
        trainer.step(6)
        results.append(loss)
    return results + weights(net)


@program
def two_tasks_with_weighted_losses(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 22)
    x, y = src.pictures(10, 4, 6)
    parity = y % 2
    trunk, digit, odd = nn.Dense(6, activation="relu"), nn.Dense(4), nn.Dense(1)
    nets = sequential(mx, trunk, digit, odd)
    nets.initialize()
    digit(trunk(x)), odd(trunk(x))
    src.fill(nets)
    classify = gluon.loss.SoftmaxCrossEntropyLoss(weight=0.7)
    decide = gluon.loss.SigmoidBCELoss(weight=0.3)
    trainer, results = gluon.Trainer(nets.collect_params(), "ftml", {"learning_rate": 0.05}), []
    for _ in range(3):
        with mx.autograd.record():
            h = trunk(x)
            first, second = classify(digit(h), y), decide(odd(h), parity, src.rng.uniform(0, 1) * mx.nd.ones((10, 1)))
        mx.autograd.backward([first, second])
        trainer.step(10)
        results += [first, second, trunk.weight.grad().copy()]
    return results + weights(nets)


@program
def losses_and_layers_of_ones_own(mx):
    gluon, src = mx.gluon, Source(mx, 23)

    class Centred(gluon.HybridBlock):
        """A dense layer with a scale of its own, a constant, and a parameter that is not trained."""

        def __init__(self, units, inputs=0, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(units, inputs), allow_deferred_init=True)
                self.scale = self.params.get("scale", shape=(1,), init=mx.init.Constant(2.0))
                self.shift = self.params.get_constant("shift", np.arange(units, dtype="float32"))
                self.seen = self.params.get("seen", grad_req="null", shape=(1,), init="zeros", differentiable=False)

        def hybrid_forward(self, F, x, weight, scale, shift, seen):
            y = F.dot(F.broadcast_sub(x, x.mean(axis=0, keepdims=True)), weight, transpose_b=True)
            return F.broadcast_add(F.broadcast_mul(y, scale), F.broadcast_add(shift, F.BlockGrad(seen)))

    class Focal(gluon.loss.Loss):
        def __init__(self, gamma=2, weight=None, batch_axis=0, **kwargs):
            super().__init__(weight, batch_axis, **kwargs)
            self._gamma = gamma

        def hybrid_forward(self, F, pred, label, sample_weight=None):
            p = F.pick(F.softmax(pred), label, axis=-1, keepdims=True)
            loss = -((1 - p) ** self._gamma) * F.log(p)
            if sample_weight is not None:
                loss = F.broadcast_mul(loss, sample_weight)
            return F.mean(loss * (self._weight or 1), axis=self._batch_axis, exclude=True)

    x, y = src.pictures(8, 3, 4)
    results = []
    for hybrid in (False, True):
        net, loss_of = Centred(3, 4, prefix="centred_"), Focal(weight=0.5)
        net.initialize()
        net.weight.set_data(Source(mx, 9).normal(3, 4))
        if hybrid:
            net.hybridize()
            loss_of.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "signum", {"learning_rate": 0.05, "wd_lh": 0.01})
        for step in range(3):
            with mx.autograd.record():
                loss = loss_of(net(x), y, mx.nd.arange(1, 9).reshape((8, 1)))
            loss.backward()
            trainer.step(8)
            results.append(loss)
            net.seen.set_data(net.seen.data() + step)
        results += [repr(net), repr(loss_of)] + weights(net)
    return results


@program
def single_shot_detector(mx):
    gluon, nn, nd, src = mx.gluon, mx.gluon.nn, mx.nd, Source(mx, 24)

    class Detector(gluon.Block):
        def __init__(self, classes, **kwargs):
            super().__init__(**kwargs)
            self.classes, self.stages = classes, nn.Sequential()
            self.scores, self.boxes = nn.Sequential(), nn.Sequential()
            for _ in range(2):
                stage = sequential(
                    mx, nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D()
                )
                self.stages.add(stage)
                self.scores.add(nn.Conv2D(3 * (classes + 1), 3, padding=1))
                self.boxes.add(nn.Conv2D(3 * 4, 3, padding=1))

        def forward(self, x):
            parts = [], [], []
            for i, stage in enumerate(self.stages):
                x = stage(x)
                anchors = nd.contrib.MultiBoxPrior(x, sizes=[0.3 + 0.3 * i, 0.4 + 0.3 * i], ratios=[1, 2])
                for part, value in zip(parts[1:], (self.scores[i](x), self.boxes[i](x))):
                    part.append(value.transpose((0, 2, 3, 1)).flatten())
                parts[0].append(anchors)
            anchors, scores, boxes = (nd.concat(*part, dim=1) for part in parts)
            return anchors, scores.reshape((0, -1, self.classes + 1)), boxes

    x = src.normal(2, 3, 16, 16)
    label = nd.array([[[0, 0.1, 0.1, 0.5, 0.6]], [[1, 0.4, 0.3, 0.9, 0.9]]])
    net = Detector(2)
    src.start(net, x)
    trainer, results = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.2, "wd": 5e-4}), []
    for _ in range(3):
        with mx.autograd.record():
            anchors, scores, boxes = net(x)
            offsets, masks, classes = nd.contrib.MultiBoxTarget(anchors, label, scores.transpose((0, 2, 1)))
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(scores, classes)
            loss = loss + gluon.loss.L1Loss()(boxes * masks, offsets * masks)
        loss.backward()
        trainer.step(2)
        results += [loss, masks.sum(), classes.sum()]
    probabilities = scores.softmax().transpose((0, 2, 1))
    found = nd.contrib.MultiBoxDetection(probabilities, boxes, anchors, nms_threshold=0.5, nms_topk=20)
    return results + [found[:, :8]] + weights(net)


@program
def segmentation_with_deconvolution(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 25)
    x, y = src.normal(2, 3, 8, 8), src.integers(3, 2, 8, 8)
    net = sequential(mx, nn.Conv2D(4, 3, strides=2, padding=1, activation="relu"), nn.InstanceNorm(), nn.SELU())
    net.add(nn.Conv2D(4, 3, padding=2, dilation=2), nn.PReLU(), nn.Conv2DTranspose(3, 4, strides=2, padding=1))
    src.start(net, x)
    net[-1].bias.initialize(mx.init.Constant([0.1, 0.0, -0.1]), force_reinit=True)
    net[:4].hybridize()  # not the rest: MXNet's own hybridized PReLU has another gradient than its plain one
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss(axis=1)
    trainer, results = gluon.Trainer(net.collect_params(), "nag", {"learning_rate": 0.2, "momentum": 0.9}), []
    for _ in range(3):
        with mx.autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(2)
        results.append(loss)
    accuracy = mx.metric.Accuracy(axis=1)
    accuracy.update([y], [net(x)])
    return results + [accuracy.get()[1]] + weights(net)


@program
def text_classifiers(mx):
    gluon, nn, rnn, src = mx.gluon, mx.gluon.nn, mx.gluon.rnn, Source(mx, 26)

    class Recurrent(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.embedding = nn.Embedding(9, 4)
            self.encoder = rnn.LSTM(3, num_layers=2, bidirectional=True, input_size=4)
            self.decoder = nn.Dense(2)

        def forward(self, words):
            outputs = self.encoder(self.embedding(words.T))
            return self.decoder(mx.nd.concat(outputs[0], outputs[-1]))

    class Convolutional(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.embedding, self.frozen = nn.Embedding(9, 4), nn.Embedding(9, 4)
            self.convs, self.pool = gluon.contrib.nn.HybridConcurrent(axis=1), nn.GlobalMaxPool1D()
            for width in (2, 3):
                self.convs.add(sequential(mx, nn.Conv1D(5, width, activation="relu"), nn.GlobalMaxPool1D()))
            self.decoder = nn.Dense(2)

        def hybrid_forward(self, F, words):
            x = F.concat(self.embedding(words), self.frozen(words), dim=2)
            return self.decoder(self.convs(x.transpose((0, 2, 1))).flatten())

    words, y = src.integers(9, 6, 7), src.integers(2, 6)
    results = []
    for net in (Recurrent(), Convolutional()):
        src.start(net, words)
        if hasattr(net, "frozen"):
            net.frozen.collect_params().setattr("grad_req", "null")
            net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "nadam", {"learning_rate": 0.02})
        for _ in range(3):
            with mx.autograd.record():
                loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(words), y)
            loss.backward()
            trainer.step(6)
            results.append(loss)
        results += weights(net)
    return results


@program
def word_vectors_with_sparse_gradients(mx):
    gluon, nn, nd, src = mx.gluon, mx.gluon.nn, mx.nd, Source(mx, 27)
    centre, context = src.integers(12, 5, 1), src.integers(12, 5, 4)
    label, mask = src.integers(2, 5, 4), src.integers(2, 5, 4)
    net = sequential(mx, nn.Embedding(12, 3, sparse_grad=True), nn.Embedding(12, 3))
    net.initialize()
    src.fill(net)
    loss_of = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    trainer, results = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9}), []
    for _ in range(3):
        with mx.autograd.record():
            pred = nd.batch_dot(net[0](centre), net[1](context).swapaxes(1, 2))
            loss = loss_of(pred.reshape(label.shape), label, mask) * mask.shape[1] / (mask.sum(axis=1) + 1)
        loss.backward()
        trainer.step(5)
        results += [loss, net[0].weight.grad().stype]
    vectors = net[0].weight.data()
    cosine = nd.dot(vectors, vectors[3]) / (nd.sum(vectors * vectors, axis=1) * nd.sum(vectors[3] ** 2) + 1e-9).sqrt()
    return results + [nd.topk(cosine, k=4, ret_typ="indices"), *weights(net)]


@program
def truncated_backpropagation_through_time(mx):
    gluon, nn, rnn, src = mx.gluon, mx.gluon.nn, mx.gluon.rnn, Source(mx, 28)
    corpus = src.integers(6, 12, 2)
    embedding, layer, out = nn.Embedding(6, 4), rnn.GRU(5), nn.Dense(6, flatten=False)
    model = nn.Sequential()
    model.add(embedding, layer, out)
    src.start(model, corpus)
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.5})
    state, results = layer.begin_state(batch_size=2), []
    for start in range(0, 9, 3):
        state = [each.detach() for each in state]
        with mx.autograd.record():
            output, state = layer(embedding(corpus[start : start + 3]), state)
            scores = out(output).reshape((-1, 6))
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(scores, corpus[start + 1 : start + 4].reshape((-1,)))
        loss.backward()
        params = [param for param in model.collect_params().values() if param.grad_req != "null"]
        gluon.utils.clip_global_norm([param.grad() for param in params], 0.25 * 3 * 2)
        trainer.step(6)
        results += [loss.mean().exp(), state[0]]
    return results + weights(model)


@program
def policy_gradient(mx):
    gluon, nn, nd, src = mx.gluon, mx.gluon.nn, mx.nd, Source(mx, 29)
    observations, actions = src.normal(10, 4), src.integers(3, 10)
    rewards = src.rng.normal(size=10)
    returns = [sum(0.9 ** (j - i) * rewards[j] for j in range(i, 10)) for i in range(10)]
    body, actor, value = nn.Dense(8, activation="relu"), nn.Dense(3), nn.Dense(1)
    net = sequential(mx, body, actor, value)
    net.initialize()
    actor(body(observations)), value(body(observations))
    src.fill(net)
    trainer, results = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 3e-2}), []
    for _ in range(3):
        with mx.autograd.record():
            h = body(observations)
            log_policy, values = nd.log_softmax(actor(h)), value(h).reshape((-1,))
            with mx.autograd.pause():
                advantage = nd.array(returns) - values
            entropy = -(log_policy.exp() * log_policy).sum(axis=1)
            chosen = nd.pick(log_policy, actions)
            loss = -chosen * advantage - 0.01 * entropy + gluon.loss.L1Loss()(values, nd.array(returns))
        loss.backward()
        trainer.step(10)
        results += [loss, entropy]
    return results + weights(net)


@program
def gradient_penalty(mx):
    """The penalty only: differences tell that MXNet's gradients of it are wrong where a Dense is involved."""
    nn, src = mx.gluon.nn, Source(mx, 30)
    x = src.normal(6, 3)
    net = sequential(mx, nn.Dense(5), nn.HybridLambda("sigmoid"), nn.Dense(1))
    src.start(net, x)
    x.attach_grad()
    with mx.autograd.record():
        critic = net(x)
        gradient = mx.autograd.grad(critic, [x], create_graph=True, retain_graph=True)[0]
        penalty = ((gradient**2).sum(axis=1).sqrt() - 1) ** 2
    return [critic, gradient, penalty]


@program
def rates_and_decay_for_each_parameter(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 31)
    x, y = src.normal(8, 4), src.normal(8, 1)
    net = sequential(mx, nn.Dense(4, activation="relu"), nn.Dense(1))
    src.start(net, x)
    net[0].collect_params().setattr("lr_mult", 0)
    net[1].weight.wd_mult = 3
    slow = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "wd": 0.1})
    no_decay = gluon.Trainer(net.collect_params(".*bias"), "sgd", {"learning_rate": 0.1})
    results = []
    for step, trainer in enumerate([slow, no_decay, slow]):
        trainer.set_learning_rate(0.1 / (step + 1))
        with mx.autograd.record():
            loss = gluon.loss.LogisticLoss()(net(x), y.sign())
        loss.backward()
        trainer.step(8)
        results += [loss, trainer.learning_rate] + [value.asnumpy() for value in weights(net)]
    return results


@program
def model_exported_and_served(mx):
    gluon, nn, src = mx.gluon, mx.gluon.nn, Source(mx, 32)
    x, y = src.pictures(6, 3, 2, 6, 6)
    net = nn.HybridSequential(prefix="served_")
    with net.name_scope():
        net.add(nn.Conv2D(3, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Flatten(), nn.Dropout(0.5), nn.Dense(3))
    src.start(net, x)
    net.hybridize()
    expected = net(x)
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "model")
        net.export(prefix, epoch=3)
        served = gluon.SymbolBlock.imports(prefix + "-symbol.json", ["data"], prefix + "-0003.params", ctx=mx.cpu())
        names = sorted(mx.nd.load(prefix + "-0003.params"))
    output = served(x)
    trainer = gluon.Trainer(served.collect_params(), "sgd", {"learning_rate": 0.1})
    with mx.autograd.record(train_mode=False):
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(served(x), y)
    loss.backward()
    trainer.step(6)
    return [expected, output, ",".join(names), loss, served(x)]
