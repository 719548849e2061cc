"""Random graphs of common ops with random attributes: names, JSON, inference, outputs and gradients."""

import numpy as np

from parity.spec import family

case, program = family(__name__)


class Maker:
    """Grows a graph from a seed. All choices come from numpy's generator."""

    def __init__(self, mx, seed):
        self.s, self.rng, self.refused = mx.sym, np.random.RandomState(seed), []
        self.shapes = {"image": (2, 4, 6, 5), "table": (3, 8), "third": (2, 3, 4)}
        self.pool = [self.s.var(name) for name in self.shapes]

    def pick(self, *choices):
        return choices[self.rng.randint(len(choices))]

    def flip(self):
        return bool(self.rng.randint(2))

    def number(self, low=-2.0, high=2.0):
        return round(float(self.rng.uniform(low, high)), 2)

    def shape_of(self, symbol):
        names = symbol.list_arguments()
        shapes = symbol.infer_shape(**{k: v for k, v in self.shapes.items() if k in names})[1]
        return (0,) if shapes is None else shapes[0]  # a length of 0 is unknown here, and known in MXNet

    def axis(self, shape):
        return int(self.rng.randint(-len(shape), len(shape)))

    def grow(self, steps):
        for _ in range(steps):
            x = self.pool[-1] if self.flip() else self.pool[self.rng.randint(len(self.pool))]
            shape = self.shape_of(x)
            rules = [self.elementwise, self.scalar, self.reduce, self.move, self.cut, self.normalise, self.join]
            rules += {2: [self.dense, self.table], 3: [self.dense, self.sequence], 4: [self.image] * 6}.get(
                len(shape), []
            )
            try:
                made = self.pick(*rules)(x, shape)
                sizes = [self.shape_of(symbol) for symbol in made]
            except Exception:
                self.refused.append(len(self.pool))
                continue
            self.pool += [symbol for symbol, size in zip(made, sizes) if 0 < np.prod(size) <= 600]

    # ---- rules: each gives symbols made of x ----

    def elementwise(self, x, shape):
        s = self.s
        name = self.pick(
            "tanh",
            "sigmoid",
            "sin",
            "arctan",
            "softsign",
            "square",
            "abs",
            "erf",
            "relu",
            "cbrt",
            "sign",
            "floor",
            "rint",
            "BlockGrad",
            "zeros_like",
            "identity",
            "hard_sigmoid",
            "reciprocal",
            "rsqrt",
        )
        if name in ("rsqrt", "reciprocal", "cbrt"):
            return [getattr(s, name)(s.square(x) + 0.5)]
        return [getattr(s, name)(x)]

    def scalar(self, x, shape):
        a = self.number(0.5, 2)
        return [
            self.pick(
                lambda: x + a,
                lambda: a - x,
                lambda: x * a,
                lambda: x / a,
                lambda: a / (x * x + 1),
                lambda: x > a,
                lambda: x <= a,
                lambda: self.s.maximum(x, a),
                lambda: self.s.minimum(a, x),
                lambda: self.s.clip(x, -a, a),
                lambda: (x * x) ** a,
                lambda: a ** self.s.tanh(x),
                lambda: x % a,
                lambda: -x,
                lambda: x == x,
                lambda: self.s.smooth_l1(x, scalar=a),
                lambda: self.s.hypot(x, a),
                lambda: self.s.Activation(x, act_type=self.pick("relu", "sigmoid", "tanh", "softrelu", "softsign")),
                lambda: self.s.LeakyReLU(x, act_type=self.pick("leaky", "elu", "selu", "gelu"), slope=0.3),
            )()
        ]

    def reduce(self, x, shape):
        axes = self.pick((), (self.axis(shape),), tuple(sorted({self.axis(shape) % len(shape) for _ in range(2)})))
        name = self.pick("sum", "mean", "max", "min", "norm", "prod", "nansum", "argmax", "sum_axis", "argmin")
        arguments = {"keepdims": self.flip()}
        if name in ("argmax", "argmin"):
            return [getattr(self.s, name)(x, axis=self.axis(shape), **arguments)]
        if axes:
            arguments["axis"] = axes if len(axes) > 1 else axes[0]
        if name == "norm":
            arguments["ord"] = self.pick(1, 2)
        elif self.flip() and axes:
            arguments["exclude"] = True
        return [getattr(self.s, name)(self.s.tanh(x) if name == "prod" else x, **arguments)]

    def move(self, x, shape):
        s, n = self.s, len(shape)
        order = tuple(int(i) for i in self.rng.permutation(n))
        a, b = int(self.rng.randint(n)), int(self.rng.randint(n))
        return [
            self.pick(
                lambda: s.transpose(x, axes=order),
                lambda: s.transpose(x),
                lambda: s.swapaxes(x, a, b),
                lambda: s.expand_dims(x, axis=a),
                lambda: s.flip(x, axis=a),
                lambda: s.Flatten(x),
                lambda: s.reshape(x, shape=(0, -1)),
                lambda: s.reshape(x, shape=(-1, 0), reverse=True),
                lambda: s.reshape(x, shape=(-3, -2)),
                lambda: s.reshape(x, shape=(-2, 1)),
                lambda: s.reshape(x, shape=(-1,)),
                lambda: s.tile(x, reps=self.pick((2,), (1, 2), 2)),
                lambda: s.repeat(x, repeats=2, axis=a),
                lambda: s.squeeze(s.expand_dims(x, axis=a), axis=a),
                lambda: s.broadcast_axis(s.sum(x, axis=a, keepdims=True), axis=a, size=3),
                lambda: s.depth_to_space(x, 2),
                lambda: s.space_to_depth(x, 2),
                lambda: s.diag(x, k=1),
            )()
        ]

    def cut(self, x, shape):
        s, a = self.s, self.axis(shape)
        length = shape[a]
        begin = int(self.rng.randint(0, max(length - 1, 1)))
        return list(
            self.pick(
                lambda: [s.slice_axis(x, axis=a, begin=begin, end=self.pick(None, length, begin + 1, -1))],
                lambda: list(s.split(x, num_outputs=length, axis=a, squeeze_axis=self.flip() and len(shape) > 1)),
                lambda: list(s.split(x, num_outputs=2, axis=a)),
                lambda: list(s.split_v2(x, (1,), axis=a)),
                lambda: [s.slice(x, begin=(None, 1), end=(None, None), step=(1, self.pick(1, 2)))],
                lambda: [s.slice(x, begin=(-1,), end=(None,), step=(-1,))],
                lambda: [s.take(x, s.arange(0, 2), axis=a, mode=self.pick("clip", "wrap"))],
                lambda: [s.pick(x, s.argmax(x, axis=a), axis=a, keepdims=self.flip())],
                lambda: list(
                    s.topk(x, axis=a, k=1, ret_typ=self.pick("value", "both", "indices"), is_ascend=self.flip())
                ),
                lambda: [s.sort(x, axis=a, is_ascend=self.flip())],
                lambda: [s.slice_like(x, s.slice_axis(x, axis=a, begin=0, end=1), axes=(a,))],
                lambda: [s.where(x > 0, x, s.sin(x))],
            )()
        )

    def normalise(self, x, shape):
        s, a, modes = self.s, self.axis(shape), ("instance", "channel", "spatial")[: 3 if len(shape) > 2 else 1]
        rules = [
            lambda: s.softmax(x, axis=a),
            lambda: s.log_softmax(x, axis=a, temperature=self.pick(None, 1.5)),
            lambda: s.softmin(x, axis=a),
            lambda: s.LayerNorm(x, axis=a, eps=1e-3),
            lambda: s.L2Normalization(x, mode=self.pick(*modes)),
            lambda: s.BatchNorm(
                x,
                fix_gamma=self.flip(),
                axis=a if self.flip() else min(1, len(shape) - 1),
                use_global_stats=self.flip(),
                eps=1e-2,
            ),
            lambda: s.Dropout(x, p=0.5, mode="training") * 0 + x,
        ]
        # MXNet computes neither InstanceNorm of a table nor the true gradient of SoftmaxActivation of anything else.
        rules.append(lambda: s.InstanceNorm(x) if len(shape) > 2 else s.SoftmaxActivation(s.Flatten(x)))
        return [self.pick(*rules)()]

    def join(self, x, shape):
        s, a = self.s, self.axis(shape)
        others = [y for y in self.pool if self.shape_of(y) == shape]
        y = others[self.rng.randint(len(others))]
        narrow = s.mean(y, axis=a, keepdims=True)
        return [
            self.pick(
                lambda: x + y,
                lambda: x - y,
                lambda: x * s.tanh(y),
                lambda: x / (y * y + 1),
                lambda: s.maximum(x, y),
                lambda: x < y,
                lambda: s.concat(x, y, x, dim=a),
                lambda: s.stack(x, y, axis=self.pick(a, 0)),
                lambda: s.add_n(x, y, y),
                lambda: s.broadcast_add(x, narrow),
                lambda: s.broadcast_mul(narrow, x),
                lambda: s.broadcast_maximum(x, narrow),
                lambda: s.broadcast_lesser(x, narrow),
                lambda: s.broadcast_like(narrow, x),
                lambda: s.broadcast_sub(x, s.var("v%d" % len(self.pool), shape=narrow_shape(shape, a))),
                lambda: s.dot(x, y, transpose_b=True) / 8,
                lambda: s.batch_dot(x, y, transpose_a=True),
                lambda: s.elemwise_mul(s.tanh(x), y),
                lambda: s.concat(x, narrow, dim=a),
                lambda: s.broadcast_hypot(x, narrow),
            )()
        ]

    def dense(self, x, shape):
        hidden, s = int(self.rng.randint(1, 6)), self.s
        return [s.FullyConnected(x, num_hidden=hidden, no_bias=self.flip(), flatten=self.flip()) / 2]

    def table(self, x, shape):
        s = self.s
        tokens = s.clip(s.round(s.abs(s.BlockGrad(x)) * 2), 0, 4)
        return [
            self.pick(
                lambda: s.Embedding(tokens, input_dim=5, output_dim=3),
                lambda: s.one_hot(tokens, depth=5, on_value=2, off_value=-1),
                lambda: s.SoftmaxOutput(x, s.argmax(x, axis=1), grad_scale=0.5),
                lambda: s.MakeLoss(s.square(x), grad_scale=2, normalization=self.pick("null", "batch")),
                lambda: s.LinearRegressionOutput(x, s.BlockGrad(s.tanh(x))),
            )()
        ]

    def sequence(self, x, shape):
        s = self.s
        lengths = s.ones((shape[1],)) * 1
        return [
            self.pick(
                lambda: s.SequenceMask(x, lengths, use_sequence_length=True, value=self.number()),
                lambda: s.SequenceLast(x, lengths, use_sequence_length=True),
                lambda: s.SequenceReverse(x),
                lambda: s.RNN(
                    x,
                    s.var("p%d" % len(self.pool)),
                    s.zeros((1, shape[1], 3)),
                    state_size=3,
                    num_layers=1,
                    mode=self.pick("rnn_tanh", "gru"),
                ),
                lambda: s.Convolution(x, kernel=(2,), num_filter=2, stride=(self.pick(1, 2),), pad=(1,)),
            )()
        ]

    def image(self, x, shape):
        s, channels = self.s, shape[1]
        kernel = (int(self.rng.randint(1, 4)), int(self.rng.randint(1, 4)))
        stride, pad = (
            (self.pick(1, 2), self.pick(1, 2)),
            tuple(int(self.rng.randint(0, (k + 1) // 2 + 1)) for k in kernel),
        )
        pool_pad = tuple(min(p, k // 2) for p, k in zip(pad, kernel))
        group = self.pick(1, 1, channels)
        return [
            self.pick(
                lambda: s.Convolution(
                    x,
                    kernel=kernel,
                    stride=stride,
                    pad=pad,
                    dilate=self.pick((1, 1), (1, 2)),
                    num_filter=group * self.pick(1, 2),
                    num_group=group,
                    no_bias=self.flip(),
                ),
                lambda: s.Deconvolution(
                    x,
                    kernel=kernel,
                    stride=stride,
                    pad=tuple(p // 2 for p in pad),
                    num_filter=group * 2,
                    num_group=group,
                    no_bias=self.flip(),
                ),
                lambda: s.Pooling(
                    x, kernel=kernel, stride=stride, pad=pool_pad, pool_type=self.pick("max", "avg", "sum")
                ),
                lambda: s.Pooling(
                    x, kernel=kernel, stride=stride, pad=pool_pad, pool_type="avg", count_include_pad=self.flip()
                ),
                lambda: s.Pooling(x, global_pool=True, pool_type=self.pick("max", "avg"), kernel=(1, 1)),
                lambda: s.LRN(x, nsize=3),
                lambda: s.UpSampling(x, scale=2, sample_type="nearest"),
                lambda: s.Pad(
                    x,
                    mode=self.pick("constant", "edge", "reflect"),
                    pad_width=(0, 0, 0, 0, 1, 1, 2, 1),
                    constant_value=self.number(),
                ),
                lambda: s.GroupNorm(x, num_groups=2),
                lambda: s.contrib.BilinearResize2D(x, height=4, width=3),
                lambda: s.contrib.AdaptiveAvgPooling2D(x, output_size=2),
                lambda: s.Crop(x, offset=(0, 1), h_w=(1, shape[3] - 1), num_args=1),
            )()
        ]


def narrow_shape(shape, axis):
    return tuple(1 if i == axis % len(shape) else n for i, n in enumerate(shape))


def facts(mx, seed):
    """What a random graph is, gives and passes back."""
    with mx.name.NameManager():
        maker = Maker(mx, seed)
        maker.grow(9)
        symbol = mx.sym.Group(maker.pool[-4:])
    names = symbol.list_arguments()
    known = {k: v for k, v in maker.shapes.items() if k in names}
    arguments, outputs, states = symbol.infer_shape(**known)
    rng = np.random.RandomState(seed)
    arrays = {n: mx.nd.array(rng.uniform(-1, 1, size=s)) for n, s in zip(names, arguments)}
    aux = {n: mx.nd.array(rng.uniform(0.5, 1, size=s)) for n, s in zip(symbol.list_auxiliary_states(), states)}
    grads = {n: mx.nd.zeros(a.shape) for n, a in arrays.items()}
    executor = symbol.bind(mx.cpu(), arrays, grads, "write", aux)
    found = executor.forward(is_train=True)
    executor.backward([mx.nd.array(rng.uniform(-1, 1, size=o.shape)) for o in found])
    results = {"json": symbol.tojson(), "refused": maker.refused, "shapes": [arguments, outputs, states]}
    results["names"] = [names, symbol.list_outputs(), symbol.list_auxiliary_states()]
    results.update({"out%d" % i: o for i, o in enumerate(found)})
    results.update({"grad " + n: g for n, g in grads.items()})
    results.update({"state " + n: a for n, a in aux.items()})
    return results


def graph(seed):
    def run(mx):
        return facts(mx, seed)

    run.__name__ = "graph_%d" % seed
    return run


for _seed in range(60):
    program(graph(_seed))
