"""Whole programs in NumPy mode, loss by loss: translation with attention, and a training loop over several devices."""

import math

import numpy as np

from parity.cases.np_gluon import fill
from parity.spec import family

case, program = family(__name__)


def attention_blocks(mx):
    """The Blocks of an encoder and a decoder that attends to the encoder's outputs."""
    nd, npx, nn, rnn = mx.np, mx.npx, mx.gluon.nn, mx.gluon.rnn

    def masked_softmax(scores, lengths):
        """Softmax over the last axis of (batch, queries, keys), of the first `lengths` keys only."""
        batch, queries, keys = scores.shape
        flat = scores.reshape((batch * queries, keys))
        lengths = lengths.repeat(queries)
        masked = npx.sequence_mask(flat, lengths, use_sequence_length=True, value=-1e6, axis=1)
        return npx.softmax(masked, axis=-1).reshape((batch, queries, keys))

    class Attention(mx.gluon.Block):
        def __init__(self, width, dropout, **kwargs):
            super(Attention, self).__init__(**kwargs)
            self.keys = nn.Dense(width, use_bias=False, flatten=False)
            self.queries = nn.Dense(width, use_bias=False, flatten=False)
            self.dropout = nn.Dropout(dropout)

        def forward(self, queries, keys, values, lengths):
            queries, keys = self.queries(queries), self.keys(keys)
            scores = npx.batch_dot(queries, keys, transpose_b=True) / math.sqrt(queries.shape[-1])
            return npx.batch_dot(self.dropout(masked_softmax(scores, lengths)), values)

    class Encoder(mx.gluon.Block):
        def __init__(self, words, width, hidden, **kwargs):
            super(Encoder, self).__init__(**kwargs)
            self.embedding = nn.Embedding(words, width)
            self.rnn = rnn.GRU(hidden, 2)

        def forward(self, tokens):
            steps = self.embedding(tokens).swapaxes(0, 1)
            state = self.rnn.begin_state(batch_size=steps.shape[1], ctx=steps.ctx)
            return self.rnn(steps, state)

    class Decoder(mx.gluon.Block):
        def __init__(self, words, width, hidden, **kwargs):
            super(Decoder, self).__init__(**kwargs)
            self.attention = Attention(hidden, 0.0)
            self.embedding = nn.Embedding(words, width)
            self.rnn = rnn.GRU(hidden, 2)
            self.out = nn.Dense(words, flatten=False)

        def forward(self, tokens, memory, state, lengths):
            memory, outputs = memory.swapaxes(0, 1), []
            for step in self.embedding(tokens).swapaxes(0, 1):
                query = nd.expand_dims(state[0][-1], axis=1)
                context = self.attention(query, memory, memory, lengths)
                joined = nd.concatenate((context, nd.expand_dims(step, axis=1)), axis=-1)
                output, state = self.rnn(joined.swapaxes(0, 1), state)
                outputs.append(output)
            return self.out(nd.concatenate(outputs, axis=0)).swapaxes(0, 1)

    class Translator(mx.gluon.Block):
        def __init__(self, words, width, hidden, **kwargs):
            super(Translator, self).__init__(**kwargs)
            self.encoder, self.decoder = Encoder(words, width, hidden), Decoder(words, width, hidden)

        def forward(self, source, target, lengths):
            memory, state = self.encoder(source)
            return self.decoder(target, memory, state, lengths)

    return Translator


@program.np
def translation_with_attention(mx):
    """Sequences are to be reversed; the loss counts the first words of each target."""
    words, steps, batch = 9, 5, 6
    net = attention_blocks(mx)(words, 4, 5)
    net.initialize()
    rng = np.random.RandomState(3)
    source = mx.np.array(rng.randint(1, words, (batch, steps)).astype("float32"))
    lengths = mx.np.array(rng.randint(2, steps + 1, batch).astype("float32"))
    target = mx.np.flip(source, axis=1)
    begin = mx.np.zeros((batch, 1))
    given = mx.np.concatenate([begin, target[:, :-1]], axis=1)
    net(source, given, lengths)
    fill(mx, net)
    for parameter in net.collect_params().values():
        parameter.set_data(parameter.data() * 0.5)
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
    error = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for _ in range(12):
        with mx.autograd.record():
            scores = net(source, given, lengths)
            weights = mx.np.expand_dims(mx.np.ones_like(target), axis=-1)
            weights = mx.npx.sequence_mask(weights, lengths, True, axis=1)
            loss = error(scores, target, weights).sum()
        loss.backward()
        norm = math.sqrt(sum(float((p.grad() ** 2).sum()) for p in net.collect_params().values()))
        if norm > 1:
            for p in net.collect_params().values():
                p.grad()[:] *= 1 / norm
        trainer.step(batch)
        losses.append(float(loss))
    predicted = net(source, given, lengths).argmax(axis=-1)
    return [np.array(losses, dtype="float32"), predicted, scores]


@program.np
def training_on_several_devices_by_hand(mx):
    """A convolutional network whose parameters are copied to each device and whose gradients are summed by hand."""
    rng = np.random.RandomState(0)
    shapes = [(4, 1, 3, 3), (4,), (6, 4, 3, 3), (6,), (24, 10), (10,), (10, 3), (3,)]
    start = [mx.np.array((rng.normal(size=shape) * 0.2).astype("float32")) for shape in shapes]
    devices = [mx.cpu(0), mx.cpu(1)]

    def network(x, params):
        w1, b1, w2, b2, w3, b3, w4, b4 = params
        h = mx.npx.convolution(data=x, weight=w1, bias=b1, kernel=(3, 3), num_filter=4)
        h = mx.npx.pooling(mx.npx.activation(h, act_type="relu"), pool_type="avg", kernel=(2, 2), stride=(2, 2))
        h = mx.npx.convolution(data=h, weight=w2, bias=b2, kernel=(3, 3), num_filter=6)
        h = mx.npx.pooling(mx.npx.relu(h), pool_type="max", kernel=(2, 2), stride=(2, 2))
        h = h.reshape(h.shape[0], -1)
        return mx.np.dot(mx.npx.relu(mx.np.dot(h, w3) + b3), w4) + b4

    def copies(params, device):
        copied = [p.copyto(device) for p in params]
        for p in copied:
            p.attach_grad()
        return copied

    def allreduce(arrays):
        for each in arrays[1:]:
            arrays[0][:] += each.copyto(arrays[0].ctx)
        for each in arrays[1:]:
            arrays[0].copyto(each)

    error = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    params = [copies(start, device) for device in devices]
    losses = []
    for step in range(8):
        rng = np.random.RandomState(step)
        x, y = rng.normal(size=(12, 1, 14, 14)).astype("float32"), rng.randint(0, 3, 12)
        xs = mx.gluon.utils.split_and_load(mx.np.array(x), devices)
        ys = mx.gluon.utils.split_and_load(mx.np.array(y), devices)
        with mx.autograd.record():
            parts = [error(network(xi, p), yi).sum() for xi, yi, p in zip(xs, ys, params)]
        for part in parts:
            part.backward()
        losses.append(sum(float(part) for part in parts))
        for i in range(len(shapes)):
            allreduce([p[i].grad for p in params])
        for own in params:
            for p in own:
                p[:] = p - 0.1 * p.grad / 12
    return [np.array(losses, dtype="float32")] + params[0] + [params[1][0], params[1][7]]


@program.np
def training_on_several_devices_by_trainer(mx):
    """The same idea with Gluon: parameters on two contexts, one loss for each, `trainer.step`."""
    devices = [mx.cpu(0), mx.cpu(1)]
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(4, 3, activation="relu", in_channels=1), mx.gluon.nn.BatchNorm(in_channels=4))
    net.add(mx.gluon.nn.GlobalAvgPool2D(), mx.gluon.nn.Dense(3, in_units=4))
    net.initialize(ctx=devices)
    fill(mx, net)
    net.hybridize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3})
    error = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for step in range(8):
        rng = np.random.RandomState(step)
        x, y = rng.normal(size=(12, 1, 6, 6)).astype("float32"), rng.randint(0, 3, 12)
        xs = mx.gluon.utils.split_and_load(mx.np.array(x), devices)
        ys = mx.gluon.utils.split_and_load(mx.np.array(y), devices)
        with mx.autograd.record():
            parts = [error(net(xi), yi) for xi, yi in zip(xs, ys)]
        for part in parts:
            part.backward()
        trainer.step(12)
        losses.append(sum(float(part.sum()) for part in parts))
    trained = [p.data(devices[1]) for p in net.collect_params().values() if p.grad_req != "null"]
    return [np.array(losses, dtype="float32")] + trained
