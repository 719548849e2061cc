"""The random programs of race.py, and the helpers that they call. Needs numpy alone."""

import random
import re


def infer(mx, symbol, np_shape=False, **shapes):
    """What is inferred of a symbol's shapes, partially and in full."""

    def attempt(call):
        try:
            return call()
        except Exception as error:
            return "raises MXNetError" if isinstance(error, RuntimeError) else "raises " + type(error).__name__

    with mx.util.np_shape(np_shape):
        return attempt(lambda: symbol.infer_shape_partial(**shapes)), attempt(lambda: symbol.infer_shape(**shapes)[1])


def dtypes(symbol, **given):
    """What is inferred of a symbol's dtypes, partially and whether in full."""
    import numpy as np

    partial = [[t and np.dtype(t).name for t in each] for each in symbol.infer_type_partial(**given)]
    return partial, symbol.infer_type(**given)[1] is not None


def stored(array):
    """An array's storage and values, rounded; -0 is 0."""
    values = (array.asnumpy() + 0.0).round(4).tolist()
    return array.stype, str(array.shape), str(values).replace("-0.0", "0.0")


HELPERS = {"infer": infer, "dtypes": dtypes, "stored": stored}

# ---- partial shapes ----

# Calls with the full shapes of their variables; {n} is replaced by a random small number.
CALLS = [
    ("s.{unary}(a)", {"a": (2, 3)}),
    ("s.{unary}(a)", {"a": (2, 3, 4)}),
    ("(a + b)", {"a": (2, 3), "b": (2, 3)}),
    ("s.add_n(a, b, c)", {"a": (2, 3), "b": (2, 3), "c": (2, 3)}),
    ("s.{broadcast}(a, b)", {"a": (2, 3, 4), "b": (2, 1, 4)}),
    ("s.{broadcast}(a, b)", {"a": (2, 3), "b": (2, 3)}),
    ("s.Concat(a, b, dim=1)", {"a": (2, 3), "b": (2, 5)}),
    ("s.Concat(a, b, c, dim=0)", {"a": (2, 3), "b": (2, 3), "c": (1, 3)}),
    ("s.Concat(a, b, dim=-1)", {"a": (2, 3, 4), "b": (2, 3, 2)}),
    ("s.stack(a, b, axis=1)", {"a": (2, 3), "b": (2, 3)}),
    ("s.stack(a, b, axis=-1)", {"a": (2, 3), "b": (2, 3)}),
    ("s.SliceChannel(a, num_outputs=2, axis=1){i2}", {"a": (2, 4, 3)}),
    ("s.SliceChannel(a, num_outputs=3, axis=-1){i2}", {"a": (2, 3)}),
    ("s.SliceChannel(a, num_outputs=4, axis=1, squeeze_axis=True){i2}", {"a": (2, 4, 3)}),
    ("s.SliceChannel(a, num_outputs=1, axis=1){i1}", {"a": (2, 4)}),
    ("s.split_v2(a, 2, axis=1){i2}", {"a": (2, 4, 3)}),
    ("s.split_v2(a, (1, 3), axis=1){i2}", {"a": (2, 4, 3)}),
    ("s.split_v2(a, 4, axis=1, squeeze_axis=True){i2}", {"a": (2, 4, 3)}),
    ("s.Reshape(a, shape=(0, -1))", {"a": (2, 3, 4)}),
    ("s.Reshape(a, shape=(-1, 4))", {"a": (2, 3, 4)}),
    ("s.Reshape(a, shape=(-1,))", {"a": (2, 3)}),
    ("s.Reshape(a, shape=(6, 4))", {"a": (2, 3, 4)}),
    ("s.Reshape(a, shape=(-2,))", {"a": (2, 3, 4)}),
    ("s.Reshape(a, shape=(0, -2))", {"a": (2, 3, 4)}),
    ("s.Reshape(a, shape=(-3, 0))", {"a": (2, 3, 4)}),
    ("s.Reshape(a, shape=(0, -3))", {"a": (2, 3, 4)}),
    ("s.Reshape(a, shape=(-4, 2, -1, 0))", {"a": (4, 3)}),
    ("s.Reshape(a, shape=(-4, -1, 2, -2))", {"a": (4, 3)}),
    ("s.Reshape(a, shape=(0, 0))", {"a": (2, 3)}),
    ("s.Reshape(a, shape=(0, 0, 1))", {"a": (2, 3)}),
    ("s.Reshape(a, shape=(-1, 0), reverse=True)", {"a": (2, 3, 4)}),
    ("s.Reshape(a, shape=(0, 12))", {"a": (2, 3, 4)}),
    ("s.reshape_like(a, b)", {"a": (2, 6), "b": (3, 4)}),
    ("s.Flatten(a)", {"a": (2, 3, 4)}),
    ("s.Flatten(a)", {"a": (2, 3)}),
    ("s.transpose(a)", {"a": (2, 3, 4)}),
    ("s.transpose(a)", {"a": (2, 3)}),
    ("s.transpose(a, axes=(1, 0, 2))", {"a": (2, 3, 4)}),
    ("s.transpose(a, axes=(2, 0, 1))", {"a": (2, 3, 4)}),
    ("s.swapaxes(a, 0, 2)", {"a": (2, 3, 4)}),
    ("s.expand_dims(a, axis=1)", {"a": (2, 3)}),
    ("s.expand_dims(a, axis=-1)", {"a": (2, 3)}),
    ("s.squeeze(a, axis=1)", {"a": (2, 1, 3)}),
    ("s.squeeze(a)", {"a": (2, 1, 3)}),
    ("s.flip(a, axis=0)", {"a": (2, 3)}),
    ("s.tile(a, reps=(2, 1))", {"a": (2, 3)}),
    ("s.repeat(a, repeats=2, axis=1)", {"a": (2, 3)}),
    ("s.repeat(a, repeats=2)", {"a": (2, 3)}),
    ("s.pad(a, mode='constant', pad_width=(0, 0, 0, 0, 1, 1, 2, 2))", {"a": (2, 3, 4, 5)}),
    ("s.depth_to_space(a, 2)", {"a": (2, 4, 3, 3)}),
    ("s.space_to_depth(a, 2)", {"a": (2, 3, 4, 4)}),
    ("s.broadcast_to(a, shape=(2, 3))", {"a": (1, 3)}),
    ("s.broadcast_to(a, shape=(0, 3))", {"a": (2, 1)}),
    ("s.broadcast_axis(a, axis=1, size=3)", {"a": (2, 1)}),
    ("s.broadcast_like(a, b)", {"a": (2, 1), "b": (2, 3)}),
    ("s.slice(a, begin=(0, 1), end=(2, 3))", {"a": (2, 4)}),
    ("s.slice(a, begin=(None, 1), end=(None, None))", {"a": (2, 4)}),
    ("s.slice(a, begin=(1,), end=(2,))", {"a": (2, 4)}),
    ("s.slice(a, begin=(0, -2), end=(2, None), step=(1, 2))", {"a": (2, 4)}),
    ("s.slice_axis(a, axis=1, begin=1, end=3)", {"a": (2, 4)}),
    ("s.slice_axis(a, axis=1, begin=1, end=None)", {"a": (2, 4)}),
    ("s.slice_like(a, b)", {"a": (3, 4), "b": (2, 3)}),
    ("s.slice_like(a, b, axes=(1,))", {"a": (3, 4), "b": (2, 3)}),
    ("s.{reduce}(a, axis=1)", {"a": (2, 3, 4)}),
    ("s.{reduce}(a, axis=1, keepdims=True)", {"a": (2, 3, 4)}),
    ("s.{reduce}(a, axis=(0, 2))", {"a": (2, 3, 4)}),
    ("s.{reduce}(a, axis=0, exclude=True)", {"a": (2, 3, 4)}),
    ("s.{reduce}(a)", {"a": (2, 3)}),
    ("s.{reduce}(a, keepdims=True)", {"a": (2, 3)}),
    ("s.norm(a, axis=1)", {"a": (2, 3)}),
    ("s.argmax(a, axis=1)", {"a": (2, 3)}),
    ("s.argmax(a, axis=1, keepdims=True)", {"a": (2, 3)}),
    ("s.argmax_channel(a)", {"a": (2, 3)}),
    ("s.topk(a, k=2)", {"a": (2, 3)}),
    ("s.sort(a)", {"a": (2, 3)}),
    ("s.argsort(a)", {"a": (2, 3)}),
    ("s.dot(a, b)", {"a": (2, 3), "b": (3, 4)}),
    ("s.dot(a, b, transpose_a=True)", {"a": (3, 2), "b": (3, 4)}),
    ("s.dot(a, b, transpose_b=True)", {"a": (2, 3), "b": (4, 3)}),
    ("s.dot(a, b)", {"a": (2, 3, 4), "b": (4, 2)}),
    ("s.batch_dot(a, b)", {"a": (2, 3, 4), "b": (2, 4, 5)}),
    ("s.batch_dot(a, b, transpose_b=True)", {"a": (2, 3, 4), "b": (2, 5, 4)}),
    ("s.batch_dot(a, b, transpose_a=True)", {"a": (2, 4, 3), "b": (2, 4, 5)}),
    ("s.linalg.gemm2(a, b)", {"a": (2, 3), "b": (3, 4)}),
    ("s.linalg.gemm(a, b, c)", {"a": (2, 3), "b": (3, 4), "c": (2, 4)}),
    ("s.pick(a, b, axis=1)", {"a": (2, 3), "b": (2,)}),
    ("s.pick(a, b, axis=1, keepdims=True)", {"a": (2, 3), "b": (2, 1)}),
    ("s.where(a, b, c)", {"a": (2, 3), "b": (2, 3), "c": (2, 3)}),
    ("s.where(a, b, c)", {"a": (2,), "b": (2, 3), "c": (2, 3)}),
    ("s.take(a, b)", {"a": (4, 3), "b": (2,)}),
    ("s.take(a, b, axis=1)", {"a": (4, 3), "b": (2, 2)}),
    ("s.batch_take(a, b)", {"a": (4, 3), "b": (4,)}),
    ("s.gather_nd(a, b)", {"a": (4, 3), "b": (2, 5)}),
    ("s.one_hot(a, depth=4)", {"a": (2, 3)}),
    ("s.Embedding(a, b, input_dim=5, output_dim=3)", {"a": (2, 3), "b": (5, 3)}),
    ("s.FullyConnected(a, b, c, num_hidden=4)", {"a": (2, 3, 2), "b": (4, 6), "c": (4,)}),
    ("s.FullyConnected(a, b, c, num_hidden=4, flatten=False)", {"a": (2, 3, 2), "b": (4, 2), "c": (4,)}),
    ("s.FullyConnected(a, b, num_hidden=4, no_bias=True)", {"a": (2, 3), "b": (4, 3)}),
    ("s.Convolution(a, b, c, kernel=(3, 3), num_filter=4)", {"a": (2, 3, 6, 7), "b": (4, 3, 3, 3), "c": (4,)}),
    (
        "s.Convolution(a, b, kernel=(3, 3), stride=(2, 2), pad=(1, 1), num_filter=4, no_bias=True)",
        {"a": (2, 3, 6, 7), "b": (4, 3, 3, 3)},
    ),
    ("s.Convolution(a, b, c, kernel=(3,), num_filter=4)", {"a": (2, 3, 6), "b": (4, 3, 3), "c": (4,)}),
    (
        "s.Convolution(a, b, c, kernel=(2, 2, 2), num_filter=4, dilate=(2, 1, 1))",
        {"a": (2, 3, 6, 5, 4), "b": (4, 3, 2, 2, 2), "c": (4,)},
    ),
    (
        "s.Convolution(a, b, c, kernel=(3, 3), num_filter=4, num_group=2)",
        {"a": (2, 4, 6, 7), "b": (4, 2, 3, 3), "c": (4,)},
    ),
    ("s.Deconvolution(a, b, kernel=(3, 3), num_filter=4)", {"a": (2, 3, 6, 7), "b": (3, 4, 3, 3)}),
    (
        "s.Deconvolution(a, b, kernel=(3, 3), stride=(2, 2), pad=(1, 1), adj=(1, 1), num_filter=4)",
        {"a": (2, 3, 6, 7), "b": (3, 4, 3, 3)},
    ),
    (
        "s.Deconvolution(a, b, kernel=(3, 3), stride=(2, 2), target_shape=(12, 14), num_filter=4)",
        {"a": (2, 3, 6, 7), "b": (3, 4, 3, 3)},
    ),
    ("s.Deconvolution(a, b, kernel=(3,), num_filter=4)", {"a": (2, 3, 6), "b": (3, 4, 3)}),
    ("s.Pooling(a, kernel=(2, 2), stride=(2, 2))", {"a": (2, 3, 6, 7)}),
    ("s.Pooling(a, kernel=(3, 3), pool_type='avg', pooling_convention='full', stride=(2, 2))", {"a": (2, 3, 6, 7)}),
    ("s.Pooling(a, kernel=(3, 3), pool_type='avg', pooling_convention='same', stride=(2, 2))", {"a": (2, 3, 6, 7)}),
    ("s.Pooling(a, global_pool=True, kernel=(1, 1))", {"a": (2, 3, 6, 7)}),
    ("s.Pooling(a, kernel=(2,))", {"a": (2, 3, 6)}),
    ("s.BatchNorm(a, b, c, d, e)", {"a": (2, 3, 4), "b": (3,), "c": (3,), "d": (3,), "e": (3,)}),
    ("s.LayerNorm(a, b, c)", {"a": (2, 3, 4), "b": (4,), "c": (4,)}),
    ("s.GroupNorm(a, b, c, num_groups=2)", {"a": (2, 4, 3), "b": (2,), "c": (2,)}),
    ("s.InstanceNorm(a, b, c)", {"a": (2, 3, 4), "b": (3,), "c": (3,)}),
    ("s.L2Normalization(a)", {"a": (2, 3, 4)}),
    ("s.LRN(a, nsize=3)", {"a": (2, 3, 4, 5)}),
    ("s.Activation(a, act_type='relu')", {"a": (2, 3)}),
    ("s.LeakyReLU(a)", {"a": (2, 3)}),
    ("s.LeakyReLU(a, b, act_type='prelu')", {"a": (2, 3), "b": (3,)}),
    ("s.Dropout(a)", {"a": (2, 3)}),
    ("s.softmax(a, axis=1)", {"a": (2, 3)}),
    ("s.log_softmax(a)", {"a": (2, 3)}),
    ("s.SoftmaxOutput(a, b)", {"a": (2, 3), "b": (2,)}),
    ("s.SoftmaxOutput(a, b, multi_output=True)", {"a": (2, 3, 4), "b": (2, 4)}),
    ("s.SoftmaxActivation(a)", {"a": (2, 3)}),
    ("s.LinearRegressionOutput(a, b)", {"a": (2, 3), "b": (2, 3)}),
    ("s.MakeLoss(a)", {"a": (2, 3)}),
    ("s.make_loss(a)", {"a": (2, 3)}),
    ("s.SequenceMask(a, b, use_sequence_length=True)", {"a": (4, 2, 3), "b": (2,)}),
    ("s.SequenceLast(a)", {"a": (4, 2, 3)}),
    ("s.SequenceReverse(a)", {"a": (4, 2, 3)}),
    ("s.UpSampling(a, scale=2, sample_type='nearest', num_args=1)", {"a": (2, 3, 4, 5)}),
    ("s.contrib.AdaptiveAvgPooling2D(a, output_size=(2, 2))", {"a": (2, 3, 6, 7)}),
    ("s.contrib.BilinearResize2D(a, height=4, width=5)", {"a": (2, 3, 6, 7)}),
    ("s.Crop(a, b, num_args=2)", {"a": (2, 3, 6, 7), "b": (2, 3, 4, 5)}),
    ("s.ROIPooling(a, b, pooled_size=(2, 2), spatial_scale=1.0)", {"a": (2, 3, 6, 7), "b": (4, 5)}),
    ("s.smooth_l1(a, scalar=1.0)", {"a": (2, 3)}),
    ("s.clip(a, 0, 1)", {"a": (2, 3)}),
    ("s.Cast(a, dtype='float16')", {"a": (2, 3)}),
    ("s.identity(a)", {"a": (2, 3)}),
    ("s.BlockGrad(a)", {"a": (2, 3)}),
    ("s.zeros_like(a)", {"a": (2, 3)}),
    ("s.shape_array(a)", {"a": (2, 3)}),
    ("s.diag(a)", {"a": (2, 3)}),
    ("s.khatri_rao(a, b)", {"a": (2, 3), "b": (4, 3)}),
    ("(a > b)", {"a": (2, 3), "b": (2, 3)}),
    ("(a + s.zeros((0, 3)))", {"a": (2, 3)}),
    ("s.cumsum(a, axis=0)", {"a": (2, 3)}),
    (
        "s.RNN(a, b, c, d, mode='lstm', state_size=3, num_layers=1)",
        {"a": (4, 2, 5), "b": (120,), "c": (1, 2, 3), "d": (1, 2, 3)},
    ),
    ("s.RNN(a, b, c, mode='gru', state_size=3, num_layers=1)", {"a": (4, 2, 5), "b": (90,), "c": (1, 2, 3)}),
]
WORDS = {
    "{unary}": ["relu", "exp", "square", "negative", "sigmoid", "abs"],
    "{broadcast}": ["broadcast_add", "broadcast_mul", "broadcast_maximum", "broadcast_equal", "broadcast_power"],
    "{reduce}": ["sum", "mean", "max", "prod", "nansum"],
    "{i1}": ["", "[0]"],
    "{i2}": ["[0]", "[1]"],
}


class Shapes:
    """Makes programs that infer shapes from parts of them."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def call(self, names):
        """A call over variables of these names: its text and their shapes."""
        text, shapes = self.rng.choice(CALLS)
        for word, choices in WORDS.items():
            text = text.replace(word, self.rng.choice(choices))
        shapes = dict(shapes)
        for old, new in zip(sorted(shapes), names):
            text = _renamed(text, old, new)
        return text, {new: shapes[old] for old, new in zip(sorted(shapes), names)}

    def program(self):
        names = iter("abcdefghijklmnop")
        text, shapes = self.call(list(next(names) for _ in range(5)))
        names = (n for n in "ghijklmnopqr" if n not in shapes)
        if self.rng.random() < 0.5:
            text, shapes = self.wrapped(text, shapes, names)
        if self.rng.random() < 0.6:
            out = full_output(text, shapes)
            if out:
                anchor = next(names)
                text, shapes = "(%s + %s)" % (text, anchor), dict(shapes, **{anchor: out})
        np_shape = self.rng.random() < 0.3
        unknown = -1 if np_shape else 0
        given, declared = [], {}
        for name, shape in shapes.items():
            known = self.known(shape, unknown)
            declared[name] = "s.var(%r)" % name
            if known is not None and self.rng.random() < 0.15:
                declared[name] = "s.var(%r, shape=%r)" % (name, known)
                known = self.known(shape, unknown) if self.rng.random() < 0.3 else None
            if known is not None:
                given.append("%s=%r" % (name, known))
        function = "lambda %s: %s" % (", ".join(declared), text)
        arguments = ", ".join(["np_shape=True"] * np_shape + given)
        return "infer(mx, (%s)(%s), %s)" % (function, ", ".join(declared.values()), arguments)

    def wrapped(self, text, shapes, names):
        """Another call around one whose result has the shape that it takes."""
        out = full_output(text, shapes)
        for _ in range(40):
            outer, others = self.call(list("vwxyz"))
            if out and others["v"] == out:
                replaced = _renamed(outer, "v", text)
                shapes = dict(shapes, **{n: shape for n, shape in others.items() if n != "v"})
                return replaced, shapes
        return text, shapes

    def known(self, shape, unknown):
        """The whole shape, some of it, or nothing."""
        chance = self.rng.random()
        if chance < 0.4:
            return shape
        if chance < 0.6:
            return None
        return tuple(unknown if self.rng.random() < 0.5 else n for n in shape)


def _renamed(text, old, new):
    return re.sub(r"(?<![\w.'])%s(?![\w'(=])" % old, new, text)


def full_output(text, shapes):
    """The shape of the one output when everything is known; None if it has several."""
    import neomx as mx

    try:
        space = dict({name: mx.sym.var(name) for name in shapes}, s=mx.sym)
        outputs = eval(text, space).infer_shape(**shapes)[1]
    except Exception:
        return None
    return outputs[0] if outputs and len(outputs) == 1 else None


def shapes(count, seed):
    maker = Shapes(seed)
    return [maker.program() for _ in range(count)]


# ---- partial dtypes ----

DTYPES = ["float16", "float32", "float64", "int32", "int8"]


def types(count, seed):
    """Programs that infer dtypes from those of some variables."""
    maker, programs = Shapes(seed), []
    while len(programs) < count:
        text, names = maker.call(list("abcde"))
        if maker.rng.random() < 0.5:
            text, names = "(%s + g)" % text, dict(names, g=())
        given = []
        for name in names:
            if maker.rng.random() < 0.5:
                given.append("%s=%r" % (name, "float64" if maker.rng.random() < 0.7 else maker.rng.choice(DTYPES)))
        made = "(lambda %s: %s)(%s)" % (", ".join(names), text, ", ".join("s.var(%r)" % name for name in names))
        programs.append("dtypes(%s, %s)" % (made, ", ".join(given)))
    return programs


# ---- sparse storage ----

UNARY = """abs arcsin arctan cbrt ceil clip_1 cos exp floor log1p negative relu rint round sigmoid sign sin sqrt square
tanh trunc zeros_like ones_like BlockGrad sum_0 sum_1 mean_1 norm_1 slice quadratic""".split()
BINARY = """elemwise_add elemwise_sub elemwise_mul elemwise_div broadcast_add broadcast_mul broadcast_sub maximum add_n
concat dot _scatter_elemwise_div _hypot""".split()
NUMBER = """_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar _power_scalar _maximum_scalar
_minimum_scalar _scatter_plus_scalar _scatter_minus_scalar _equal_scalar _greater_scalar _lesser_equal_scalar
_not_equal_scalar""".split()
SPECIAL = {
    "clip_1": "nd.clip(%s, -1, 1)",
    "sum_0": "nd.sum(%s, axis=0)",
    "sum_1": "nd.sum(%s, axis=1, keepdims=True)",
    "mean_1": "nd.mean(%s, axis=1)",
    "norm_1": "nd.norm(%s, axis=1)",
    "slice": "nd.slice(%s, begin=(1,), end=(3,))",
    "quadratic": "nd.contrib.quadratic(%s, a=1, b=2, c=0)",
    "concat": "nd.concat(%s, dim=0)",
}


class Sparse:
    """Makes programs of one to three ops on 3 x 3 arrays of any storage."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def array(self):
        stored = [self.rng.choice([0, 0, 0, 1, -2, 3]) for _ in range(9)]
        rows = [stored[:3], stored[3:6], stored[6:]]
        return "nd.array(%r).tostype(%r)" % (rows, self.rng.choice(["row_sparse", "csr", "default"]))

    def expression(self, depth):
        if depth == 0:
            return self.array()
        kind = self.rng.choice(["unary", "binary", "binary", "number"])
        first = self.expression(depth - 1)
        if kind == "number":
            return "nd._internal.%s(%s, scalar=%d)" % (self.rng.choice(NUMBER), first, self.rng.choice([0, 2]))
        name, arguments = self.rng.choice(UNARY), first
        if kind == "binary":
            name, arguments = self.rng.choice(BINARY), "%s, %s" % (first, self.array())
        if name in SPECIAL:
            return SPECIAL[name] % arguments
        return "nd.%s%s(%s)" % ("_internal." if name.startswith("_") else "", name, arguments)


def sparse(count, seed):
    """Programs that tell how a result is stored, and its values."""
    maker = Sparse(seed)
    return ["stored(%s)" % maker.expression(maker.rng.randint(1, 3)) for _ in range(count)]


KINDS = {"shapes": shapes, "types": types, "sparse": sparse}
