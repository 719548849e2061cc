"""Whole programs as MXNet's users write them: models from scratch, their training, and what they come to."""

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

    def uniform(self, *shape):
        return self.mx.nd.array(self.rng.uniform(0, 1, shape))

    def integers(self, high, *shape):
        return self.mx.nd.array(self.rng.randint(0, high, shape))

    def weights(self, *shapes, scale=0.3, grad_req="write"):
        """Variables of these shapes."""
        arrays = [self.normal(*shape, scale=scale) for shape in shapes]
        for array in arrays:
            array.attach_grad(grad_req)
        return arrays


def sgd(params, lr, batch_size):
    for param in params:
        param[:] = param - lr * param.grad / batch_size


@program
def linear_regression(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx)
    features = src.normal(20, 2)
    labels = 2 * features[:, 0] - 3.4 * features[:, 1] + 4.2 + src.normal(20, scale=0.01)
    w, b = src.normal(2, 1, scale=0.01), nd.zeros(shape=(1,))
    for param in (w, b):
        param.attach_grad()
    losses = []
    order = np.random.RandomState(1).permutation(20)
    for _ in range(2):
        for i in range(0, 20, 8):
            rows = nd.array(order[i : min(i + 8, 20)])
            x, y = features.take(rows), labels.take(rows)
            with autograd.record():
                loss = (nd.dot(x, w) + b - y.reshape((-1, 1))) ** 2 / 2
            loss.backward()
            sgd([w, b], 0.1, len(x))
            losses.append(loss.mean().asscalar())
    return [np.array(losses), w, b]


@program
def softmax_regression(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 1)
    x, y = src.uniform(12, 1, 4, 4), src.integers(3, 12)
    w, b = src.weights((16, 3), (3,))

    def net(x):
        exps = (nd.dot(x.reshape((-1, w.shape[0])), w) + b).exp()
        return exps / exps.sum(axis=1, keepdims=True)

    losses, accuracies = [], []
    for _ in range(4):
        with autograd.record():
            y_hat = net(x)
            loss = -nd.pick(y_hat, y).log()
        loss.backward()
        sgd([w, b], 0.5, 12)
        losses.append(nd.mean(loss).asscalar())
        accuracies.append((net(x).argmax(axis=1) == y.astype("float32")).mean().asscalar())
    return [np.array(losses), np.array(accuracies), w, b]


@program
def mlp_with_weight_decay_and_dropout_by_hand(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 2)
    x, y = src.normal(10, 6), src.integers(4, 10)
    params = w1, b1, w2, b2 = src.weights((6, 8), (8,), (8, 4), (4,))

    def relu(x):
        return nd.maximum(x, 0)

    def dropout(x, rate):
        assert 0 <= rate <= 1
        mask = src.uniform(*x.shape) < (1 - rate)
        return mask * x / (1 - rate)

    def net(x):
        h = relu(nd.dot(x, w1) + b1)
        if autograd.is_training():
            h = dropout(h, 0.4)
        return nd.dot(h, w2) + b2

    def softmax_cross_entropy(yhat, y):
        return -nd.nansum(y * nd.log_softmax(yhat), axis=0, exclude=True)

    losses = []
    for _ in range(4):
        with autograd.record():
            loss = softmax_cross_entropy(net(x), nd.one_hot(y, 4))
            loss = loss + 0.01 * ((w1**2).sum() + (w2**2).sum()) / 2
        loss.backward()
        sgd(params, 0.3, 10)
        losses.append(nd.sum(loss).asscalar())
    return [np.array(losses), net(x), w1, b1, w2, b2]


@program
def lenet(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 3)
    x, y = src.normal(6, 1, 12, 12), src.integers(5, 6)
    params = w1, b1, w2, b2, w3, b3, w4, b4 = src.weights(
        (3, 1, 3, 3), (3,), (4, 3, 2, 2), (4,), (16, 8), (8,), (8, 5), (5,), scale=0.4
    )

    def net(x):
        h = nd.Convolution(data=x, weight=w1, bias=b1, kernel=w1.shape[2:], num_filter=w1.shape[0])
        h = nd.Pooling(data=nd.relu(h), pool_type="avg", kernel=(2, 2), stride=(2, 2))
        h = nd.Convolution(data=h, weight=w2, bias=b2, kernel=w2.shape[2:], num_filter=w2.shape[0])
        h = nd.Pooling(data=nd.Activation(h, act_type="relu"), pool_type="max", kernel=(2, 2), stride=(2, 2))
        h = nd.relu(nd.dot(nd.flatten(h), w3) + b3)
        return nd.dot(h, w4) + b4

    losses = []
    for _ in range(3):
        with autograd.record():
            loss = nd.softmax_cross_entropy(net(x), y)
        loss.backward()
        for param in params:
            param -= 0.02 * param.grad
        losses.append(loss.asscalar())
    return [np.array(losses), *params, net(x).softmax()]


@program
def cnn_with_batch_norm_and_momentum(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 4)
    x, y = src.normal(5, 2, 6, 6), src.integers(3, 5)
    params = w, gamma, beta, v = src.weights((4, 2, 3, 3), (4,), (4,), (3, 4))
    gamma[:] = 1
    mean, var = nd.zeros(4), nd.ones(4)
    momenta = [nd.zeros_like(p) for p in params]

    def net(x):
        h = nd.Convolution(x, w, no_bias=True, kernel=(3, 3), pad=(1, 1), stride=(2, 2), num_filter=4)
        h = nd.BatchNorm(h, gamma, beta, mean, var, fix_gamma=False, momentum=0.8, eps=1e-4)
        h = nd.LeakyReLU(h, act_type="leaky", slope=0.1)
        h = nd.Pooling(h, global_pool=True, pool_type="avg", kernel=(1, 1))
        return nd.FullyConnected(h, v, no_bias=True, num_hidden=3)

    losses = []
    for _ in range(4):
        with autograd.record():
            loss = -nd.pick(nd.log_softmax(net(x), axis=-1), y, axis=1)
        autograd.backward(loss)
        for param, momentum in zip(params, momenta):
            momentum[:] = 0.9 * momentum + param.grad
            param[:] -= 0.05 * momentum
        losses.append(loss.mean().asscalar())
    return [np.array(losses), *params, mean, var, net(x)]


def grad_clipping(mx, params, theta):
    norm = mx.nd.array([0.0])
    for p in params:
        norm += (p.grad**2).sum()
    norm = norm.sqrt().asscalar()
    if norm > theta:
        for p in params:
            p.grad[:] *= theta / norm
    return norm


def train_language_model(mx, params, net, state, vocabulary=6):
    """Character steps with the state carried on and detached; losses, norms, weights, a prediction."""
    nd, autograd = mx.nd, mx.autograd
    corpus = np.random.RandomState(7).randint(0, vocabulary, (3, 4 * 5 + 1))
    losses, norms = [], []
    for start in range(0, 20, 5):
        state = [s.detach() for s in state]
        batch = nd.array(corpus[:, start : start + 5])
        target = nd.array(corpus[:, start + 1 : start + 6])
        with autograd.record():
            inputs = [nd.one_hot(step, vocabulary) for step in batch.T]
            outputs, state = net(inputs, state)
            outputs = nd.concat(*outputs, dim=0)
            loss = -nd.pick(nd.log_softmax(outputs), target.T.reshape((-1,))).mean()
        loss.backward()
        norms.append(float(grad_clipping(mx, params, 0.2)))
        sgd(params, 1.0, 1)
        losses.append(loss.asscalar())
    predicted = [0]
    state = [nd.zeros((1, s.shape[1])) for s in state]
    for _ in range(4):
        (output,), state = net([nd.one_hot(nd.array([predicted[-1]]), vocabulary)], state)
        predicted.append(int(output[0].argmax(axis=0).asscalar()))
    return [np.array(losses), np.exp(losses), np.array(norms), np.array(predicted), *params, *state]


@program
def rnn_from_scratch(mx):
    nd = mx.nd
    params = w_xh, w_hh, b_h, w_hq, b_q = Source(mx, 5).weights((6, 4), (4, 4), (4,), (4, 6), (6,))

    def net(inputs, state):
        (h,) = state
        outputs = []
        for x in inputs:
            h = nd.tanh(nd.dot(x, w_xh) + nd.dot(h, w_hh) + b_h)
            outputs.append(nd.dot(h, w_hq) + b_q)
        return outputs, (h,)

    return train_language_model(mx, params, net, (nd.zeros(shape=(3, 4)),))


@program
def gru_from_scratch(mx):
    nd = mx.nd
    params = Source(mx, 6).weights(*[(6, 4), (4, 4), (4,)] * 3, (4, 6), (6,))
    w_xz, w_hz, b_z, w_xr, w_hr, b_r, w_xh, w_hh, b_h, w_hq, b_q = params

    def net(inputs, state):
        (h,) = state
        outputs = []
        for x in inputs:
            z = nd.sigmoid(nd.dot(x, w_xz) + nd.dot(h, w_hz) + b_z)
            r = nd.sigmoid(nd.dot(x, w_xr) + nd.dot(h, w_hr) + b_r)
            candidate = nd.tanh(nd.dot(x, w_xh) + nd.dot(r * h, w_hh) + b_h)
            h = z * h + (1 - z) * candidate
            outputs.append(nd.dot(h, w_hq) + b_q)
        return outputs, (h,)

    return train_language_model(mx, params, net, (nd.zeros(shape=(3, 4)),))


@program
def lstm_from_scratch(mx):
    nd = mx.nd
    params = w_x, w_h, b, w_hq, b_q = Source(mx, 7).weights((6, 16), (4, 16), (16,), (4, 6), (6,))

    def net(inputs, state):
        h, c = state
        outputs = []
        for x in inputs:
            gates = nd.dot(x, w_x) + nd.dot(h, w_h) + b
            i, f, o, g = nd.split(gates, num_outputs=4, axis=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(nd.dot(h, w_hq) + b_q)
        return outputs, (h, c)

    return train_language_model(mx, params, net, (nd.zeros(shape=(3, 4)), nd.zeros(shape=(3, 4))))


@program
def lstm_through_the_fused_op(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 8)
    hidden, layers, batch, steps, words = 3, 2, 2, 5, 7
    size = 4 * hidden * (4 + hidden + 2) + 4 * hidden * (hidden + hidden + 2)
    params = embedding, packed, w, b = src.weights((words, 4), (size,), (words, hidden), (words,))
    tokens = src.integers(words, steps + 1, batch)
    state = [nd.zeros((layers, batch, hidden)) for _ in range(2)]
    losses = []
    for _ in range(4):
        state = [s.detach() for s in state]
        with autograd.record():
            x = nd.Embedding(tokens[:-1], embedding, input_dim=words, output_dim=4)
            out, h, c = nd.RNN(
                x,
                packed,
                state[0],
                state[1],
                state_size=hidden,
                num_layers=layers,
                mode="lstm",
                state_outputs=True,
                p=0.0,
            )
            logits = nd.FullyConnected(out.reshape((-3, -1)), w, b, num_hidden=words)
            loss = nd.softmax_cross_entropy(logits, tokens[1:].reshape((-1,))) / (steps * batch)
        state = [h, c]
        loss.backward()
        for p in params:
            nd.sgd_update(p, p.grad, lr=2.0, clip_gradient=0.5, out=p)
        losses.append(loss.asscalar())
    return [np.array(losses), *params, h, c]


def regression_problem(mx, seed):
    src = Source(mx, seed)
    x = src.normal(12, 5)
    y = mx.nd.dot(x, src.normal(5, 1)) + 1
    return x, y, src.weights((5, 1), (1,), scale=0.1)


def squared_loss_step(mx, x, y, w, b):
    with mx.autograd.record():
        loss = ((mx.nd.dot(x, w) + b - y) ** 2).mean()
    loss.backward()
    return loss.asscalar()


@program
def optimizers_by_hand(mx):
    nd = mx.nd

    def momentum(p, s, t):
        s[0][:] = 0.9 * s[0] + 0.02 * p.grad
        p[:] -= s[0]

    def nesterov(p, s, t):
        s[0] *= 0.9
        s[0] += p.grad
        p[:] = p - 0.02 * (p.grad + 0.9 * s[0])

    def adagrad(p, s, t):
        s[0][:] += p.grad.square()
        p[:] -= 0.2 * p.grad / (s[0] + 1e-6).sqrt()

    def rmsprop(p, s, t):
        s[0][:] = 0.9 * s[0] + (1 - 0.9) * nd.square(p.grad)
        div = 0.05 * p.grad / nd.sqrt(s[0] + 1e-6)
        p[:] -= div

    def adadelta(p, s, t):
        s[0][:] = 0.9 * s[0] + 0.1 * p.grad * p.grad
        g = nd.sqrt(s[1] + 1e-3) / nd.sqrt(s[0] + 1e-3) * p.grad
        s[1][:] = 0.9 * s[1] + 0.1 * g * g
        p[:] -= g

    def adam(p, s, t):
        s[0][:] = 0.9 * s[0] + 0.1 * p.grad
        s[1][:] = 0.999 * s[1] + 0.001 * p.grad.square()
        corrected = s[0] / (1 - 0.9**t), s[1] / (1 - 0.999**t)
        p[:] -= 0.1 * corrected[0] / (corrected[1].sqrt() + 1e-6)

    results = {}
    for rule in (momentum, nesterov, adagrad, rmsprop, adadelta, adam):
        x, y, (w, b) = regression_problem(mx, 9)
        states = [[p.zeros_like(), nd.zeros_like(p)] for p in (w, b)]
        losses = []
        for t in range(1, 6):
            losses.append(squared_loss_step(mx, x, y, w, b))
            for p, s in zip((w, b), states):
                rule(p, s, t)
        results[rule.__name__ + " losses"] = np.array(losses)
        results[rule.__name__ + " w"], results[rule.__name__ + " b"] = w, b
        results[rule.__name__ + " states"] = nd.concat(*[s.reshape(-1) for pair in states for s in pair], dim=0)
    return results


@program
def optimizers_by_update_ops(mx):
    nd = mx.nd
    rules = {
        "sgd": (0, lambda p, s: nd.sgd_update(p, p.grad, lr=0.05, wd=0.01, out=p)),
        "sgd_mom": (1, lambda p, s: nd.sgd_mom_update(p, p.grad, *s, lr=0.02, momentum=0.9, rescale_grad=0.5, out=p)),
        "nag": (1, lambda p, s: nd.nag_mom_update(p, p.grad, *s, lr=0.02, momentum=0.9, out=p)),
        "adam": (2, lambda p, s: nd.adam_update(p, p.grad, *s, lr=0.1, wd=0.01, out=p)),
        "rmsprop": (1, lambda p, s: nd.rmsprop_update(p, p.grad, *s, lr=0.05, gamma1=0.9, out=p)),
        "rmspropalex": (3, lambda p, s: nd.rmspropalex_update(p, p.grad, *s, lr=0.05, out=p)),
        "ftrl": (2, lambda p, s: nd.ftrl_update(p, p.grad, *s, lr=0.2, lamda1=0.05, out=p)),
        "signum": (1, lambda p, s: nd.signum_update(p, p.grad, *s, lr=0.05, momentum=0.9, out=p)),
        "ftml": (3, lambda p, s: nd.ftml_update(p, p.grad, *s, lr=0.1, t=len(losses), out=p)),
    }
    results = {}
    for name, (count, rule) in rules.items():
        x, y, (w, b) = regression_problem(mx, 10)
        states = [[nd.zeros(p.shape) for _ in range(count)] for p in (w, b)]
        losses = []
        for _ in range(5):
            losses.append(squared_loss_step(mx, x, y, w, b))
            for p, s in zip((w, b), states):
                rule(p, s)
        results[name + " losses"], results[name + " w"], results[name + " b"] = np.array(losses), w, b
        for i in range(count):
            results["%s state%d" % (name, i)] = states[0][i]
    return results


@program
def optimised_image(mx):
    """As in style transfer: fixed weights, the picture is the variable."""
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 11)
    kernels = [src.normal(4, 3, 3, 3, scale=0.3), src.normal(5, 4, 3, 3, scale=0.3)]
    content, style = src.uniform(1, 3, 8, 8), src.uniform(1, 3, 8, 8)

    def features(x):
        taken = []
        for k in kernels:
            x = nd.Convolution(x, k, no_bias=True, kernel=(3, 3), pad=(1, 1), num_filter=k.shape[0]).relu()
            taken.append(x)
            x = nd.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
        return taken

    def gram(x):
        c = x.shape[1]
        n = x.size // x.shape[1]
        y = x.reshape((c, int(n)))
        return nd.dot(y, y.T) / n

    content_target, style_targets = features(content)[1], [gram(f) for f in features(style)]
    image = content.copy()
    image.attach_grad()
    losses = []
    for _ in range(4):
        with autograd.record():
            taken = features(image)
            content_loss = (taken[1] - content_target).square().mean()
            style_loss = nd.add_n(*[(gram(f) - t).square().mean() for f, t in zip(taken, style_targets)])
            tv = 0.5 * (
                (image[:, :, 1:, :] - image[:, :, :-1, :]).abs().mean()
                + (image[:, :, :, 1:] - image[:, :, :, :-1]).abs().mean()
            )
            loss = content_loss + 10 * style_loss + 0.1 * tv
        loss.backward()
        image[:] = nd.clip(image - 0.5 * image.grad / nd.norm(image.grad), 0, 1)
        losses.append([content_loss.asscalar(), style_loss.asscalar(), tv.asscalar()])
    return [np.array(losses), image, image.grad]


@program
def adversarial_pair(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 12)
    generator = gw, gb = src.weights((2, 2), (2,))
    critic = dw1, db1, dw2, db2 = src.weights((2, 5), (5,), (5, 1), (1,), scale=0.5)

    def make(z):
        return nd.dot(z, gw) + gb

    def judge(x):
        h = nd.tanh(nd.dot(x, dw1) + db1)
        return nd.dot(h, dw2) + db2

    def bce(logits, label):
        return nd.relu(logits) - logits * label + nd.Activation(-nd.abs(logits), act_type="softrelu")

    history = []
    for _ in range(4):
        real, z = src.normal(8, 2) * 0.5 + 1, src.normal(8, 2)
        ones, zeros = nd.ones((8, 1)), nd.zeros((8, 1))
        with autograd.record():
            fake = make(z)
            d_loss = (bce(judge(real), ones) + bce(judge(fake.detach()), zeros)) / 2
        d_loss.backward()
        sgd(critic, 0.4, 8)
        with autograd.record():
            g_loss = bce(judge(make(z)), ones)
        g_loss.backward()
        sgd(generator, 0.4, 8)
        history.append([d_loss.mean().asscalar(), g_loss.mean().asscalar()])
    return [np.array(history), *generator, *critic, critic[0].grad]


@program
def convolutional_autoencoder(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 13)
    x = src.uniform(3, 1, 8, 8)
    params = e1, e2, d1, d2 = src.weights((3, 1, 4, 4), (4, 3, 4, 4), (4, 3, 4, 4), (3, 1, 4, 4))
    shape = {"kernel": (4, 4), "stride": (2, 2), "pad": (1, 1), "no_bias": True}

    def net(x):
        h = nd.Convolution(x, e1, num_filter=3, **shape).relu()
        code = nd.Convolution(h, e2, num_filter=4, **shape).tanh()
        h = nd.Deconvolution(code, d1, num_filter=3, **shape).relu()
        return nd.Deconvolution(h, d2, num_filter=1, **shape).sigmoid(), code

    states = [(nd.zeros(p.shape), nd.zeros(p.shape)) for p in params]
    losses = []
    for _ in range(4):
        with autograd.record():
            y, code = net(x)
            bce = -(x * nd.log(y + 1e-8) + (1 - x) * nd.log(1 - y + 1e-8)).mean(axis=0, exclude=True)
            loss = bce + 0.01 * code.abs().mean(axis=0, exclude=True)
        loss.backward()
        for p, (mean, var) in zip(params, states):
            nd.adam_update(p, p.grad, mean, var, out=p, lr=0.02, epsilon=1e-3, rescale_grad=1.0 / len(x))
        losses.append(loss.mean().asscalar())
    return [np.array(losses), *params, code]


@program
def variational_autoencoder(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 14)
    x, noise = src.uniform(5, 6), src.normal(5, 2)
    params = w1, b1, w2, b2 = src.weights((4, 6), (4,), (6, 2), (6,))
    losses = []
    for _ in range(4):
        with autograd.record():
            mu, log_var = nd.split(nd.FullyConnected(x, w1, b1, num_hidden=4), axis=1, num_outputs=2)
            z = mu + nd.exp(0.5 * log_var) * noise
            y = nd.sigmoid(nd.FullyConnected(z, w2, b2, num_hidden=6))
            kl = 0.5 * nd.sum(1 + log_var - mu * mu - nd.exp(log_var), axis=1)
            likelihood = nd.sum(x * nd.log(y + 1e-10) + (1 - x) * nd.log(1 - y + 1e-10), axis=1)
            loss = -likelihood - kl
        loss.backward()
        for p in params:
            p -= 0.02 * p.grad
        losses.append(loss.asnumpy().mean())
    return [np.array(losses), *params]


@program
def matrix_factorisation(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 15)
    users, items, ratings = src.integers(5, 12), src.integers(7, 12), src.uniform(12) * 4 + 1
    params = p, q, user_bias, item_bias = src.weights((5, 3), (7, 3), (5, 1), (7, 1))
    average = ratings.mean()
    losses = []
    for _ in range(4):
        with autograd.record():
            u = nd.Embedding(users, p, input_dim=5, output_dim=3)
            v = nd.take(q, items)
            scores = (u * v).sum(axis=1) + nd.squeeze(user_bias.take(users)) + item_bias.take(items).reshape((-1,))
            errors = scores + average - ratings
            loss = nd.smooth_l1(errors, scalar=1.0).sum() + 0.01 * (nd.norm(u) ** 2 + nd.norm(v) ** 2)
        loss.backward()
        for w in params:
            w -= 0.1 * w.grad
        losses.append(loss.asscalar())
    best = nd.topk(nd.dot(p, q, transpose_b=True), k=2, ret_typ="indices", axis=1)
    return [np.array(losses), *params, best]


@program
def word2vec(mx):
    """Skip-gram with negative sampling: padded contexts, a mask over them."""
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 16)
    centers = src.integers(9, 4, 1)
    contexts_negatives = src.integers(9, 4, 6)
    lengths = nd.array([6, 4, 5, 2])
    mask = nd.arange(6).reshape((1, -1)) < lengths.reshape((-1, 1))
    label = (nd.arange(6) < 2).broadcast_to((4, 6)) * mask
    params = v, u = src.weights((9, 3), (9, 3))
    losses = []
    for _ in range(4):
        with autograd.record():
            center = nd.Embedding(centers, v, input_dim=9, output_dim=3)
            context = nd.Embedding(contexts_negatives, u, input_dim=9, output_dim=3)
            pred = nd.batch_dot(center, context.swapaxes(1, 2)).reshape(label.shape)
            bce = nd.relu(pred) - pred * label + nd.log1p(nd.exp(-nd.abs(pred)))
            loss = (bce * mask).mean(axis=1) * mask.shape[1] / mask.sum(axis=1)
        loss.backward()
        sgd(params, 0.5, 4)
        losses.append(loss.mean().asscalar())
    cosine = nd.dot(v, v[2]) / (nd.sum(v * v, axis=1) * nd.sum(v[2] * v[2]) + 1e-9).sqrt()
    return [np.array(losses), v, u, cosine, nd.topk(cosine, k=3)]


@program
def attention(mx):
    """Queries look at keys of varying length: batch_dot, softmax by length, SequenceMask."""
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 17)
    x, memory = src.normal(3, 2, 4), src.normal(3, 5, 4)
    lengths = nd.array([5, 2, 3], dtype="int32")
    params = wq, wk, wv, wo = src.weights((4, 4), (4, 4), (4, 4), (4, 4), scale=0.5)

    def heads(x, w):
        x = nd.FullyConnected(x, w, no_bias=True, flatten=False, num_hidden=4)
        x = x.reshape((0, 0, 2, -1)).transpose((0, 2, 1, 3))
        return x.reshape((-1, 0, 0), reverse=True)

    def net():
        q, k, v = heads(x, wq), heads(memory, wk), heads(memory, wv)
        scores = nd.batch_dot(q, k, transpose_b=True) / 2**0.5
        valid = nd.repeat(lengths, 2).reshape((-1, 1)).broadcast_to((6, 2))
        weights = nd.softmax(scores, valid, axis=-1, use_length=True)
        out = nd.batch_dot(weights, v).reshape((-1, 2, 0, 0), reverse=True).transpose((0, 2, 1, 3))
        out = nd.FullyConnected(out.reshape((0, 0, -3)), wo, no_bias=True, flatten=False, num_hidden=4)
        return nd.LayerNorm(out + x, nd.ones(4), nd.zeros(4)), weights

    losses = []
    target = src.normal(3, 2, 4)
    for _ in range(4):
        with autograd.record():
            out, weights = net()
            loss = ((out - target) ** 2).mean()
            masked = nd.SequenceMask(
                memory.swapaxes(0, 1), sequence_length=lengths.astype("float32"), use_sequence_length=True
            )
            loss = loss + 0.1 * (nd.dot(masked.mean(axis=0), wv) ** 2).mean()
        loss.backward()
        for p in params:
            p -= 0.3 * p.grad
        losses.append(loss.asscalar())
    return [np.array(losses), *params, out, weights]


@program
def encoder_decoder_with_masked_loss(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 18)
    source, target = src.integers(5, 4, 3), src.integers(5, 4, 3)
    valid = nd.array([4, 2, 3])
    params = embedding, wx, wh, bh, wa, wo, bo = src.weights((5, 3), (3, 4), (4, 4), (4,), (4, 4), (5, 8), (5,))

    def cell(x, h):
        return nd.tanh(nd.dot(x, wx) + nd.dot(h, wh) + bh)

    losses = []
    for _ in range(3):
        with autograd.record():
            h, memory = nd.zeros((3, 4)), []
            for t in range(4):
                h = cell(embedding.take(source[t]), h)
                memory.append(h)
            memory = nd.stack(*memory, axis=1)
            token, loss = nd.zeros(3), nd.zeros(3)
            for t in range(4):
                h = cell(embedding.take(token), h)
                energy = nd.batch_dot(memory, nd.dot(h, wa).expand_dims(2)).squeeze(axis=2)
                context = (memory * energy.softmax(axis=1).expand_dims(-1)).sum(axis=1)
                scores = nd.FullyConnected(nd.concat(h, context, dim=1), wo, bo, num_hidden=5)
                keep = valid > t
                loss = loss - keep * nd.pick(scores.log_softmax(), target[t])
                token = target[t]
            loss = loss.sum() / valid.sum()
        loss.backward()
        grad_clipping(mx, params, 1.0)
        sgd(params, 1.0, 1)
        losses.append(loss.asscalar())
    return [np.array(losses), *params]


@program
def single_shot_detector(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 19)
    x = src.uniform(2, 3, 8, 8)
    labels = nd.array([[[0, 0.1, 0.1, 0.45, 0.5], [1, 0.5, 0.4, 0.9, 0.95]], [[1, 0.2, 0.3, 0.8, 0.7], [-1] * 5]])
    kinds, per_pixel = 2, 3
    params = body, head_class, head_box = src.weights(
        (4, 3, 3, 3), (per_pixel * (kinds + 1), 4, 3, 3), (per_pixel * 4, 4, 3, 3)
    )

    def predict(x, w):
        y = nd.Convolution(x, w, no_bias=True, kernel=(3, 3), pad=(1, 1), num_filter=w.shape[0])
        return nd.flatten(nd.transpose(y, axes=(0, 2, 3, 1)))

    def net(x):
        y = nd.Convolution(x, body, no_bias=True, kernel=(3, 3), pad=(1, 1), num_filter=4).relu()
        anchors, classes, boxes = [], [], []
        for size in ([0.3, 0.4], [0.6, 0.7]):
            y = nd.Pooling(y, kernel=(2, 2), stride=(2, 2), pool_type="max")
            anchors.append(nd.contrib.MultiBoxPrior(y, sizes=size, ratios=[1, 2]))
            classes.append(predict(y, head_class))
            boxes.append(predict(y, head_box))
        return nd.concat(*anchors, dim=1), nd.concat(*classes, dim=1).reshape((0, -1, kinds + 1)), nd.concat(*boxes)

    losses = []
    for _ in range(4):
        with autograd.record():
            anchors, classes, boxes = net(x)
            with autograd.pause():
                targets, masks, wanted = nd.contrib.MultiBoxTarget(
                    anchors, labels, classes.transpose((0, 2, 1)), negative_mining_ratio=3, overlap_threshold=0.4
                )
            keep = wanted >= 0
            class_loss = -(keep * nd.pick(nd.log_softmax(classes, axis=-1), wanted * keep, axis=-1))
            box_loss = nd.smooth_l1((boxes - targets) * masks, scalar=1.0)
            loss = class_loss.mean(axis=1) + box_loss.mean(axis=1)
        loss.backward()
        for p in params:
            nd.sgd_update(weight=p, grad=p.grad, lr=0.3, wd=5e-4, rescale_grad=0.5, out=p)
        losses.append(loss.asnumpy())
    probabilities = nd.SoftmaxActivation(classes.transpose((0, 2, 1)), mode="channel")
    found = nd.contrib.MultiBoxDetection(probabilities, boxes, anchors, nms_threshold=0.4, force_suppress=True)
    return [np.array(losses), *params, targets, wanted, found]


@program
def policy_gradient(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 20)
    params = w1, b1, w_policy, w_value = src.weights((4, 3), (4,), (2, 4), (1, 4))
    history = []
    for _ in range(3):
        states, actions, rewards = src.normal(5, 3), src.integers(2, 5), src.uniform(5)
        returns = nd.zeros(5)
        running = 0
        for t in reversed(range(5)):
            running = rewards[t].asscalar() + 0.9 * running
            returns[t] = running
        returns = (returns - returns.mean()) / (((returns - returns.mean()) ** 2).mean().sqrt() + 1e-5)
        with autograd.record():
            h = nd.Activation(nd.FullyConnected(states, w1, b1, num_hidden=4), act_type="tanh")
            probs = nd.softmax(nd.FullyConnected(h, w_policy, no_bias=True, num_hidden=2))
            values = nd.FullyConnected(h, w_value, no_bias=True, num_hidden=1).reshape(-1)
            logp = nd.log(nd.pick(probs, actions))
            advantages = returns - values.detach()
            entropy = -(probs * probs.log()).sum(axis=1)
            loss = -(logp * advantages) + 0.5 * (values - returns) ** 2 - 0.01 * entropy
        loss.backward()
        for p in params:
            p -= 0.1 * p.grad
        history.append(loss.asnumpy())
    # One action is certain, so its sample and the gradient through its probability are too.
    certain = nd.array([[0.0, 1.0], [1.0, 0.0]])
    certain.attach_grad()
    with autograd.record():
        sampled, logp = nd.sample_multinomial(certain, shape=3, get_prob=True)
        loss = (logp * nd.array([[1, 2, 3], [4, 5, 6]])).sum()
    loss.backward()
    return [np.array(history), *params, sampled, logp, certain.grad]


@program
def layers_as_functions(mx):
    """autograd.Function inside a network: a sigmoid of one's own and a straight-through sign."""
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 21)

    class Sigmoid(autograd.Function):
        def forward(self, x):
            y = 1 / (1 + nd.exp(-x))
            self.save_for_backward(y)
            return y

        def backward(self, dy):
            (y,) = self.saved_tensors
            return dy * y * (1 - y)

    class Binary(autograd.Function):
        def __init__(self, limit):
            super().__init__()
            self.limit = limit

        def forward(self, x, w):
            self.save_for_backward(x, w)
            return nd.sign(x), w * 2

        def backward(self, dx, dw):
            x, _ = self.saved_tensors
            return dx * (x.abs() <= self.limit), dw * 2

    x, y = src.normal(6, 3), src.integers(2, 6)
    params = w1, w2 = src.weights((3, 4), (4, 2))
    losses = []
    for _ in range(4):
        with autograd.record():
            h = Sigmoid()(nd.dot(x, w1))
            s, w = Binary(0.7)(h - 0.5, w2)
            loss = -nd.pick(nd.log_softmax(nd.dot(s + h, w)), y)
        loss.backward()
        sgd(params, 0.05, 6)
        losses.append(loss.mean().asscalar())
    return [np.array(losses), *params]


def register_layers(mx):
    """A dense layer and a softmax loss as custom ops."""

    class Dense(mx.operator.CustomOp):
        def __init__(self, bias):
            super(Dense, self).__init__()
            self.bias = bias

        def forward(self, is_train, req, in_data, out_data, aux):
            x, weight = in_data[0], in_data[1]
            self.assign(out_data[0], req[0], mx.nd.dot(x, weight.T) + self.bias)
            if is_train:
                aux[0][:] += 1

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            x, weight = in_data[0], in_data[1]
            self.assign(in_grad[0], req[0], mx.nd.dot(out_grad[0], weight))
            self.assign(in_grad[1], req[1], mx.nd.dot(out_grad[0].T, x))

    @mx.operator.register("programs_dense")
    class DenseProp(mx.operator.CustomOpProp):
        def __init__(self, bias):
            super(DenseProp, self).__init__(need_top_grad=True)
            self.bias = float(bias)

        def list_arguments(self):
            return ["data", "weight"]

        def list_auxiliary_states(self):
            return ["calls"]

        def infer_shape(self, in_shape):
            data, weight = in_shape
            return [data, weight], [[data[0], weight[0]]], [(1,)]

        def create_operator(self, ctx, shapes, dtypes):
            return Dense(self.bias)

    class Loss(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            x = in_data[0].asnumpy()
            y = np.exp(x - x.max(axis=1).reshape((x.shape[0], 1)))
            y /= y.sum(axis=1).reshape((x.shape[0], 1))
            self.assign(out_data[0], req[0], mx.nd.array(y))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            label = in_data[1].asnumpy().ravel().astype(int)
            y = out_data[0].asnumpy()
            y[np.arange(label.shape[0]), label] -= 1.0
            self.assign(in_grad[0], req[0], mx.nd.array(y))

    @mx.operator.register("programs_softmax")
    class LossProp(mx.operator.CustomOpProp):
        def __init__(self):
            super(LossProp, self).__init__(need_top_grad=False)

        def list_arguments(self):
            return ["data", "label"]

        def list_outputs(self):
            return ["output"]

        def infer_shape(self, in_shape):
            return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []

        def infer_type(self, in_type):
            return in_type, [in_type[0]], []

        def create_operator(self, ctx, shapes, dtypes):
            return Loss()


@program
def layers_as_custom_ops(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 22)
    register_layers(mx)
    x, y = src.normal(6, 3), src.integers(2, 6)
    params = w1, w2 = src.weights((4, 3), (2, 4))
    calls = nd.zeros(1)
    losses = []
    for _ in range(4):
        with autograd.record():
            h = nd.Custom(x, w1, calls, bias=0.1, op_type="programs_dense").tanh()
            out = nd.Custom(h, w2, calls, bias=0, op_type="programs_dense")
            out = nd.Custom(out, y, op_type="programs_softmax")
        out.backward()
        sgd(params, 0.5, 6)
        losses.append(-nd.pick(out, y).log().mean().asscalar())
    return [np.array(losses), *params, calls, out]


@program
def data_parallel(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 23)
    contexts = [mx.cpu(0), mx.cpu(1)]
    x, y = src.normal(8, 5), src.integers(3, 8)
    first = [src.normal(6, 5, scale=0.3), src.normal(6, scale=0.3), src.normal(3, 6, scale=0.3)]

    def get_params(params, ctx):
        copies = [p.copyto(ctx) for p in params]
        for p in copies:
            p.attach_grad()
        return copies

    def allreduce(data):
        for i in range(1, len(data)):
            data[0][:] += data[i].copyto(data[0].context)
        for i in range(1, len(data)):
            data[0].copyto(data[i])

    def split_and_load(data, contexts):
        n, k = data.shape[0], len(contexts)
        m = n // k
        return [data[i * m : (i + 1) * m].as_in_context(contexts[i]) for i in range(k)]

    replicas = [get_params(first, ctx) for ctx in contexts]
    losses = []
    for _ in range(3):
        parts = list(zip(split_and_load(x, contexts), split_and_load(y, contexts), replicas))
        with autograd.record():
            parts_losses = [
                nd.softmax_cross_entropy(
                    nd.dot(nd.relu(nd.FullyConnected(xs, w1, b1, num_hidden=6)), w2, transpose_b=True), ys
                )
                for xs, ys, (w1, b1, w2) in parts
            ]
        for loss in parts_losses:
            loss.backward()
        for i in range(len(first)):
            allreduce([params[i].grad for params in replicas])
        for params in replicas:
            sgd(params, 0.5, 8)
        losses.append([loss.asscalar() for loss in parts_losses])
    where = " ".join(str(p.context) for params in replicas for p in params)
    assert str(parts_losses[1].context) == "cpu(1)" and str(replicas[1][0].grad.context) == "cpu(1)"
    return [np.array(losses), *replicas[0], *replicas[1], where]


@program
def gradients_of_gradients(mx):
    """A penalty on the slope, and Newton's steps."""
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 24)
    (w,) = src.weights((4, 3))
    losses = []
    for _ in range(3):
        with autograd.record():
            score = nd.sigmoid(nd.sin(w))
            dw = autograd.grad(score, [w], create_graph=True, retain_graph=True)[0]
            loss = score.mean() + (nd.log(dw.square() + 1) - 1).square().mean()
        loss.backward()
        w -= 0.2 * w.grad
        losses.append(loss.asscalar())
    points = nd.array([0.5, 1.1, 1.2])
    points.attach_grad()
    for _ in range(3):
        with autograd.record():
            value = nd.cosh(nd.log(points))
            slope = autograd.grad(value, points, create_graph=True, retain_graph=True)[0]
        slope.backward()
        points -= slope / points.grad
    return [np.array(losses), w, points, slope]


@program
def loops_as_ops(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 25)
    x, target = src.normal(5, 2, 3), src.normal(2, 4)
    params = wx, wh = src.weights((4, 3), (4, 4))

    def step(data, states):
        h = nd.tanh(
            nd.FullyConnected(data, wx, no_bias=True, num_hidden=4)
            + nd.FullyConnected(states[0], wh, no_bias=True, num_hidden=4)
        )
        return h, [h, states[1] + h.mean()]

    def forward():
        outputs, states = nd.contrib.foreach(step, x, [nd.zeros((2, 4)), nd.zeros(1)])
        loss = ((states[0] - target) ** 2).mean() + 0.1 * states[1].sum()
        steps, (i, total) = nd.contrib.while_loop(
            cond=lambda i, s: i < 3,
            func=lambda i, s: (s * wh.mean(), (i + 1, s + outputs[i.astype("int32").asscalar()].mean())),
            loop_vars=(nd.array([0]), nd.array([1])),
            max_iterations=4,
        )
        loss = loss + steps[:3].sum() + total
        loss = nd.contrib.cond(loss.sum() < 100, lambda: loss * 2, lambda: loss)
        return loss, outputs, steps[:3], i, total

    losses = []
    for _ in range(3):
        with autograd.record():
            loss, *results = forward()
        loss.backward()
        sgd(params, 0.1, 1)
        losses.append(loss.asscalar())
    return [np.array(losses), *params, *results]


@program
def k_means(mx):
    nd, src = mx.nd, Source(mx, 26)
    points = nd.concat(src.normal(8, 2), src.normal(8, 2) + 4, dim=0)
    centers = points[[0, 15]]
    for _ in range(3):
        distances = nd.sum((points.expand_dims(1) - centers.expand_dims(0)) ** 2, axis=2)
        belongs = nd.argmin(distances, axis=1)
        for k in range(2):
            centers[k] = nd.sum(points * (belongs == k).reshape((-1, 1)), axis=0) / (belongs == k).sum()
    return [centers, belongs, distances.min(axis=1)]


@program
def principal_components(mx):
    nd, src = mx.nd, Source(mx, 27)
    x = nd.dot(src.normal(20, 4), nd.array(np.diag([4.0, 2.0, 1.0, 0.5])))
    x = x - x.mean(axis=0, keepdims=True)
    covariance = nd.linalg.syrk(x, transpose=True, alpha=1.0 / (len(x) - 1))
    u, values = nd.linalg.syevd(covariance)
    top = u[::-1][:2]
    top = top * nd.sign(top[:, 0:1])
    projected = nd.linalg.gemm2(x, top, transpose_b=True)
    root = nd.linalg.potrf(covariance)
    white = nd.linalg.trsm(root, x.T)
    return [covariance, values, top, projected, nd.dot(white, white.T) / 19, nd.linalg.sumlogdiag(root)]


@program
def gaussian_process(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 28)
    x, y = src.uniform(6, 1), src.normal(6, 1)
    params = length, noise = nd.array([0.0]), nd.array([-1.0])
    for p in params:
        p.attach_grad()
    losses = []
    for _ in range(3):
        with autograd.record():
            squares = (x - x.T) ** 2
            kernel = nd.exp(-squares / (2 * nd.exp(length))) + nd.exp(noise) * nd.eye(6)
            root = nd.linalg.potrf(kernel)
            alpha = nd.linalg.trsm(root, y)
            loss = 0.5 * (alpha**2).sum() + nd.linalg.sumlogdiag(root)
        loss.backward()
        sgd(params, 0.1, 1)
        losses.append(loss.asscalar())
    return [np.array(losses), *params]


@program
def picture_pipeline(mx):
    nd, rng = mx.nd, np.random.RandomState(29)
    pictures = [nd.array(rng.randint(0, 256, (9, 12, 3)), dtype="uint8") for _ in range(3)]
    batch = []
    for i, picture in enumerate(pictures):
        cropped = nd.image.crop(picture, 2, 1, 8, 8)
        resized = nd.image.resize(cropped, size=(6, 6), interp=0)
        turned = nd.image.flip_left_right(resized) if i % 2 else resized
        batch.append(
            nd.image.normalize(nd.image.to_tensor(turned), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.2))
        )
    x = nd.stack(*batch)
    grey = (pictures[0].astype("float32") * nd.array([0.299, 0.587, 0.114])).sum(axis=2, keepdims=True)
    bright = nd.clip(pictures[0].astype("float32") * 1.5, 0, 255).astype("uint8")
    padded = nd.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 2, 2), constant_value=0)
    return [x, grey, bright, padded.shape, nd.UpSampling(x, scale=2, sample_type="nearest").mean(axis=(2, 3))]


@program
def sparse_regression(mx):
    nd, autograd, rng = mx.nd, mx.autograd, np.random.RandomState(30)
    dense = rng.uniform(-1, 1, (6, 10)) * (rng.uniform(0, 1, (6, 10)) < 0.25)
    x = nd.array(dense).tostype("csr")
    y = nd.array(rng.uniform(-1, 1, (6, 1)))
    weight, bias = nd.array(rng.uniform(-1, 1, (10, 1))), nd.zeros(1)
    weight.attach_grad(stype="row_sparse")
    bias.attach_grad()
    momentum = nd.zeros((10, 1))
    losses = []
    for _ in range(4):
        with autograd.record():
            loss = (nd.sparse.dot(x, weight) + bias - y).square().mean()
        loss.backward()
        nd.sparse.sgd_mom_update(weight, weight.grad, momentum, out=weight, lr=0.3, momentum=0.5, wd=0.1)
        nd.sgd_update(bias, bias.grad, out=bias, lr=0.3)
        losses.append(loss.asscalar())
    return [np.array(losses), weight, bias, momentum, weight.grad.stype, weight.grad.indices, weight.grad.data]


@program
def sparse_embedding(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 31)
    table = src.normal(8, 3)
    table.attach_grad(stype="row_sparse")
    mean, var = nd.zeros((8, 3)), nd.zeros((8, 3))
    words = nd.array([[1, 5], [5, 7]])
    losses = []
    for _ in range(3):
        with autograd.record():
            vectors = nd.Embedding(words, table, input_dim=8, output_dim=3, sparse_grad=True)
            loss = (vectors.mean(axis=1) - 1).square().sum()
        loss.backward()
        nd.adam_update(table, table.grad, mean, var, out=table, lr=0.1, lazy_update=True, wd=0.01)
        losses.append(loss.asscalar())
    kept = nd.sparse.retain(table.tostype("row_sparse"), nd.array([1, 7]))
    return [np.array(losses), table, mean, var, table.grad.indices, table.grad.data, kept.indices, kept.data]


@program
def weights_saved_between_epochs(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 32)
    x, y = src.normal(6, 3), src.normal(6, 1)
    params = {"w": src.normal(3, 1), "b": nd.zeros(1)}
    best, losses = None, []
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(3):
            for p in params.values():
                p.attach_grad()
            with autograd.record():
                loss = ((nd.dot(x, params["w"]) + params["b"] - y) ** 2).mean()
            loss.backward()
            for p in params.values():
                p -= 0.2 * p.grad
            losses.append(loss.asscalar())
            best = os.path.join(folder, "net-%04d.params" % epoch)
            nd.save(best, {"arg:" + k: v for k, v in params.items()})
            params = {k.split(":")[1]: v for k, v in nd.load(best).items()}
        nd.save(best, [params["w"], params["b"]])
        w, b = nd.load(best)
    return [np.array(losses), w, b, sorted(params), w.grad is None]


@program
def accumulated_gradients_and_frozen_layers(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 33)
    x, y = src.normal(8, 3), src.normal(8, 2)
    (w1,), (w2,) = src.weights((5, 3), grad_req="null"), src.weights((2, 5), grad_req="add")
    losses = []
    for _ in range(3):
        total = 0
        for i in range(0, 8, 4):
            with autograd.record():
                h = nd.FullyConnected(x[i : i + 4], w1, no_bias=True, num_hidden=5).relu()
                out = nd.FullyConnected(h, w2, no_bias=True, num_hidden=2)
                loss = nd.LinearRegressionOutput(out, y[i : i + 4])
            loss.backward()
            total += float(((loss - y[i : i + 4]) ** 2).mean().asscalar())
        w2 -= 0.1 * w2.grad / 2
        w2.grad[:] = 0
        losses.append(total)
    return [np.array(losses), w1, w2, str(w1.grad)]


@program
def half_precision_with_master_weights(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 34)
    x, y = src.normal(6, 3).astype("float16"), src.integers(3, 6)
    master = src.normal(3)
    w, momentum = master.astype("float16"), nd.zeros(3)
    w.attach_grad()
    losses = []
    for _ in range(3):
        with autograd.record():
            loss = nd.softmax_cross_entropy(nd.broadcast_mul(x, w).astype("float32"), y) * 128
        loss.backward()
        nd.mp_sgd_mom_update(w, w.grad, momentum, master, out=w, lr=0.1, momentum=0.9, rescale_grad=1 / 128)
        losses.append(float(loss.asscalar()) / 128)
    return [np.round(losses, 2), w.dtype.__name__, w.grad.dtype.__name__, master.asnumpy().round(1) + 0.0]


@program
def cyclic_generators_with_shared_critic(mx):
    """Two maps that undo each other; one backward over losses of both, heads weighted."""
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 35)
    a, b = src.normal(5, 2), src.normal(5, 2) + 1
    params = f, g = src.weights((2, 2), (2, 2))
    history = []
    for _ in range(3):
        with autograd.record():
            there, back = nd.dot(a, f), nd.dot(b, g)
            cycle = (nd.dot(there, g) - a).abs().mean() + (nd.dot(back, f) - b).abs().mean()
            moments = (there.mean(axis=0) - b.mean(axis=0)).square() + (back.mean(axis=0) - a.mean(axis=0)).square()
        autograd.backward([cycle, moments], [nd.array([2.0]), None])
        for p in params:
            p[:] = nd.where(p.grad > 0, p - 0.05, p + 0.05)
        history.append(cycle.asscalar())
    return [np.array(history), f, g, f.grad, g.grad, moments]


@program
def connectionist_temporal_classification(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 36)
    x = src.normal(6, 2, 3)
    labels = nd.array([[1, 2, 0], [3, 0, 0]])
    (w,) = src.weights((4, 3))
    losses = []
    for _ in range(3):
        with autograd.record():
            scores = nd.FullyConnected(x, w, no_bias=True, flatten=False, num_hidden=4)
            loss = nd.CTCLoss(scores, labels)
        loss.backward()
        w -= 0.1 * w.grad
        losses.append(loss.asnumpy())
    return [np.array(losses), w, scores.argmax(axis=2)]


@program
def siamese_pairs_and_norms(mx):
    nd, autograd, src = mx.nd, mx.autograd, Source(mx, 37)
    a, b, same = src.normal(6, 4), src.normal(6, 4), src.integers(2, 6)
    params = w, scale = src.weights((3, 4), (3,))
    losses = []
    for _ in range(3):
        with autograd.record():
            one, two = [nd.L2Normalization(nd.dot(t, w, transpose_b=True)) for t in (a, b)]
            distance = nd.norm((one - two) * (1 + scale), axis=1)
            loss = same * distance**2 + (1 - same) * nd.maximum(1.5 - distance, 0) ** 2
            loss = nd.where(loss > 2, loss * 0.5, loss)
        loss.backward()
        sgd(params, 0.3, 6)
        losses.append(loss.mean().asscalar())
    return [np.array(losses), w, scale, distance]


@program
def keywords_that_do_nothing(mx):
    """An op without attributes takes any keyword."""
    nd = mx.nd
    x = nd.array([[1, 4], [9, 16]])
    return [
        nd.zeros_like(x, dtype="int32"),
        nd.ones_like(x, ctx=mx.cpu(1)),
        nd.sigmoid(x, axis=1),
        x.sqrt(keepdims=True),
        nd.broadcast_mul(x, x, axis=1),
        nd.where(x > 4, x, -x, axis=0),
        outcome(lambda: nd.sum(x, dim=1)),
        outcome(lambda: nd.add_n(x, x, axis=1)),
        outcome(lambda: nd.exp(x=x)),
    ]


@program
def default_context(mx):
    first = mx.Context.default_ctx
    mx.Context.default_ctx = mx.cpu(2)
    with mx.cpu(1):
        inside = str(mx.Context.default_ctx), str(mx.nd.ndarray.zeros(2).context)
    outside = str(mx.current_context()), str(mx.nd.ones(2).context)
    mx.Context.default_ctx = first
    return [str(first), *inside, *outside, str(mx.nd.ndarray.array([1]).context)]


@program
def names_in_base(mx):
    base = mx.base
    return [
        *[isinstance(3, types) for types in (base.string_types, base.integer_types, base.numeric_types)],
        *[isinstance("a", types) for types in (base.string_types, base.integer_types, base.numeric_types)],
        isinstance(np.float32(1), base.numeric_types),
        isinstance(np.int64(1), base.integer_types),
        base.mx_real_t.__name__,
        str(base._Null),
        base.py_str(b"ab"),
        str([base._as_list(value) for value in (1, "ab", [2], (3, 4))]),
    ]


@program
def buffers_written_before_backward(mx):
    """Backward reads memory as it is then, also that of arrays which are no variables."""
    nd = mx.nd

    def fill(x):
        x[:] = 5

    def fill_one(x):
        x[0] = 9

    def add(x):
        x += 1

    def square(x):
        nd.square(x, out=x)

    def through_a_view(x):
        x.reshape((3, 1))[1:] *= 2

    def copy(x):
        nd.array([7, 8, 9]).copyto(x)

    def update(x):
        nd.sgd_update(x, x * 2, lr=0.1, out=x)

    results = []
    for write in (fill, fill_one, add, square, through_a_view, copy, update):
        w, x = nd.array([1, 2, 3]), nd.array([4, 5, 6])
        w.attach_grad()
        with mx.autograd.record():
            y = w * x
        write(x)
        y.backward()
        results += [y, w.grad]
    return results
