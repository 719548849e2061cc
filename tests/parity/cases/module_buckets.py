"""mx.mod.BucketingModule: an LSTM on sentences of several lengths, step by step."""

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)
WORDS, WIDTH, BATCH = 12, 6, 4


def lstm(mx, length, cell=False):
    """An LSTM over `length` words that says the next one: by the RNN op, or unrolled."""
    sym = mx.sym
    words = sym.Embedding(sym.Variable("data"), input_dim=WORDS, output_dim=WIDTH, name="embed")
    hidden = unrolled(mx, words, length) if cell else fused(mx, words)
    scores = sym.FullyConnected(sym.Reshape(hidden, shape=(-1, WIDTH)), num_hidden=WORDS, name="head")
    label = sym.Reshape(sym.Variable("softmax_label"), shape=(-1,))
    return (
        sym.SoftmaxOutput(scores, label, name="softmax", use_ignore=True, ignore_label=0),
        ("data",),
        ("softmax_label",),
    )


def fused(mx, words):
    sym = mx.sym
    states = {name: sym.Variable(name, shape=(1, BATCH, WIDTH), init=mx.init.Zero()) for name in ("h", "c")}
    inputs = sym.transpose(words, axes=(1, 0, 2))
    hidden = sym.RNN(
        inputs, sym.Variable("rnn_parameters"), states["h"], states["c"], state_size=WIDTH, num_layers=1, mode="lstm"
    )
    return sym.transpose(hidden, axes=(1, 0, 2))


def unrolled(mx, words, length):
    sym = mx.sym
    shared = {name: sym.Variable(name) for name in ("i2h_weight", "i2h_bias", "h2h_weight")}
    steps = sym.SliceChannel(words, num_outputs=length, axis=1, squeeze_axis=1)
    h = c = None
    outputs = []
    for t in range(length):
        gates = sym.FullyConnected(
            steps[t], weight=shared["i2h_weight"], bias=shared["i2h_bias"], num_hidden=4 * WIDTH, name="i2h%d" % t
        )
        if h is not None:
            gates = gates + sym.FullyConnected(
                h, weight=shared["h2h_weight"], no_bias=True, num_hidden=4 * WIDTH, name="h2h%d" % t
            )
        i, f, g, o = list(sym.SliceChannel(gates, num_outputs=4, name="gates%d" % t))
        new = sym.sigmoid(i) * sym.tanh(g)
        c = new if c is None else sym.sigmoid(f) * c + new
        h = sym.sigmoid(o) * sym.tanh(c)
        outputs.append(sym.expand_dims(h, axis=1))
    return sym.Concat(*outputs, dim=1)


class Sentences:
    """Batches of sentences, every batch of one length; the label is the next word, 0 past the end."""

    default_bucket_key = 7

    def __init__(self, mx, lengths=(7, 3, 5, 3, 7, 5)):
        self.mx, self.batch_size = mx, BATCH
        rng = np.random.RandomState(3)
        self.batches = []
        for length in lengths:
            start = rng.randint(1, WORDS, (BATCH, 1))
            text = (start + np.arange(length + 1) * rng.randint(1, 3)) % WORDS
            self.batches.append((length, text[:, :-1], text[:, 1:]))
        self.provide_data = [mx.io.DataDesc("data", (BATCH, 7), layout="NT")]
        self.provide_label = [mx.io.DataDesc("softmax_label", (BATCH, 7), layout="NT")]

    def __iter__(self):
        mx = self.mx
        for length, words, following in self.batches:
            yield mx.io.DataBatch(
                [mx.nd.array(words)],
                [mx.nd.array(following)],
                pad=0,
                bucket_key=length,
                provide_data=[mx.io.DataDesc("data", (BATCH, length), layout="NT")],
                provide_label=[mx.io.DataDesc("softmax_label", (BATCH, length), layout="NT")],
            )

    def reset(self):
        pass


def params(mx, symbol, **shapes):
    arg_shapes, _, _ = symbol.infer_shape(**shapes)
    rng = np.random.RandomState(2)
    return {
        name: mx.nd.zeros(shape) if name in ("h", "c") else mx.nd.array(rng.uniform(-0.4, 0.4, shape))
        for name, shape in zip(symbol.list_arguments(), arg_shapes)
        if name not in shapes
    }


def fit(mx, cell, contexts=1, **options):
    fixed = [] if cell else ["h", "c"]
    module = mx.mod.BucketingModule(
        lambda length: lstm(mx, length, cell),
        default_bucket_key=7,
        context=[mx.cpu(i) for i in range(contexts)],
        fixed_param_names=fixed,
    )
    args = params(mx, lstm(mx, 7, cell)[0], data=(BATCH, 7), softmax_label=(BATCH, 7))
    metrics, after = [], {}

    def epoch_end(epoch, symbol, arguments, auxiliary):
        after.update({"%d %s" % (epoch, name): value.asnumpy() for name, value in arguments.items()})

    module.fit(
        Sentences(mx),
        eval_metric=mx.metric.Perplexity(0),
        arg_params=args,
        num_epoch=3,
        batch_end_callback=lambda p: metrics.append(p.eval_metric.get()[1]),
        epoch_end_callback=epoch_end,
        **options,
    )
    score = module.score(Sentences(mx), mx.metric.Perplexity(None))[0][1]
    return dict(after, metrics=np.array(metrics), score=score, buckets=sorted(module._buckets))


@program
def fit_lstm_by_sgd(mx):
    return fit(mx, False, optimizer_params={"learning_rate": 2.0, "momentum": 0.5, "wd": 1e-4, "rescale_grad": 0.05})


@program
def fit_lstm_by_adam(mx):
    return fit(mx, False, optimizer="adam", optimizer_params={"learning_rate": 0.02})


@program
def fit_unrolled_lstm_by_sgd(mx):
    return fit(mx, True, optimizer_params={"learning_rate": 0.3, "momentum": 0.5, "clip_gradient": 1.0})


@program
def fit_unrolled_lstm_on_two_contexts(mx):
    return fit(mx, True, contexts=2, optimizer="adam", optimizer_params={"learning_rate": 0.02})


@program
def fit_unrolled_lstm_without_a_store(mx):
    return fit(mx, True, contexts=2, kvstore=None, optimizer_params={"learning_rate": 0.5, "momentum": 0.9})


@program
def switching_buckets(mx):
    module = mx.mod.BucketingModule(lambda length: lstm(mx, length, True), default_bucket_key=7)
    module.bind([("data", (BATCH, 7))], [("softmax_label", (BATCH, 7))])
    module.init_params(arg_params=params(mx, lstm(mx, 7, True)[0], data=(BATCH, 7), softmax_label=(BATCH, 7)))
    results = []
    batches = list(Sentences(mx))
    for batch in batches[:3]:
        module.prepare(batch)
        results.append([module._curr_bucket_key, sorted(module._buckets), module.data_shapes])
        module.forward(batch, is_train=False)
        results += [
            module.get_outputs()[0].asnumpy(),
            [module._curr_bucket_key, module.symbol.name, module.data_shapes],
        ]
    module.switch_bucket(4, [("data", (BATCH, 4))], [("softmax_label", (BATCH, 4))])
    results += [module.output_names, module.label_shapes]
    module.init_optimizer(optimizer_params={"learning_rate": 0.5})
    for batch in batches:
        module.forward_backward(batch)
        module.update()
    return [*results, module.get_params()[0]["h2h_weight"]]


@program
def predict_buckets(mx):
    module = mx.mod.BucketingModule(lambda length: lstm(mx, length, True), default_bucket_key=7)
    module.bind([("data", (BATCH, 7))], [("softmax_label", (BATCH, 7))], for_training=False)
    module.init_params(arg_params=params(mx, lstm(mx, 7, True)[0], data=(BATCH, 7), softmax_label=(BATCH, 7)))
    found = list(module.iter_predict(Sentences(mx, (7, 3))))
    return [[out.shape for outputs, _, _ in found for out in outputs], found[1][0][0], found[1][1]]


@program
def refusals(mx):
    def module(**options):
        return mx.mod.BucketingModule(lambda length: lstm(mx, length), **options)

    bound = module(default_bucket_key=7)
    bound.bind([("data", (BATCH, 7))], [("softmax_label", (BATCH, 7))])
    return [
        outcome(lambda: module()),
        outcome(lambda: module(default_bucket_key=7, fixed_param_names=["none"])),
        outcome(lambda: module(default_bucket_key=7).switch_bucket(3, [("data", (BATCH, 3))])),
        outcome(lambda: module(default_bucket_key=7).init_params()),
        outcome(lambda: module(default_bucket_key=7).symbol),
        outcome(lambda: bound.init_optimizer()),
        outcome(lambda: bound.update()),
        outcome(lambda: bound.bind([("data", (BATCH, 7))], shared_module=bound)),
        outcome(lambda: mx.mod.BucketingModule.load("nowhere", 1, None, 7)),
        outcome(lambda: mx.mod.BucketingModule.load("nowhere", 1, lstm)),
        outcome(lambda: mx.mod.BucketingModule.load_dict(None, lstm, 7, {}, {})),
        list(module(default_bucket_key=7).data_names),
        module(default_bucket_key=7).output_names,
    ]
