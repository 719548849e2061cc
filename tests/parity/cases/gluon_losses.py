"""gluon.loss: every loss with and without weights, its gradients, hybridized and symbolic."""

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)


def numbers(seed, shape, low=-2.0, high=2.0):
    return np.random.RandomState(seed).uniform(low, high, shape)


def signs(seed, shape):
    return np.random.RandomState(seed).randint(0, 2, shape) * 2.0 - 1


def flags(seed, shape):
    return np.random.RandomState(seed).randint(0, 2, shape) * 1.0


def classes(seed, shape, count):
    return np.random.RandomState(seed).randint(0, count, shape) * 1.0


def shares(seed, shape):
    """Distributions along the last axis."""
    values = numbers(seed, shape, 0.1, 1)
    return values / values.sum(axis=-1, keepdims=True)


def evaluate(mx, loss, values, dtype="float32", grads=None):
    arrays = [v if v is None else mx.nd.array(v, dtype=dtype) for v in values]
    variables = [array for array in arrays[:grads] if array is not None]
    for array in variables:
        array.attach_grad()
    with mx.autograd.record():
        out = loss(*arrays)
    out.backward(mx.nd.array(numbers(9, out.shape), dtype=dtype))
    return [out] + [array.grad for array in variables]


# MXNet's log_softmax of float32 is good to some 1e-5: where that shows, the comparison is in float64.
def loss(name, make, *values, **options):
    """Programs for a loss: values and gradients, imperative and hybridized, and the names of its symbol."""
    hybrid = options.pop("hybrid", True)
    symbolic = options.pop("symbolic", True)
    dtype, grads = options.pop("dtype", "float32"), options.pop("grads", None)
    assert not options

    def run(mx):
        block = make(mx.gluon.loss)
        results = [block] + evaluate(mx, block, values, dtype, grads)
        if hybrid:
            block.hybridize()
            results += evaluate(mx, block, values, dtype, grads)
        return results

    def as_symbol(mx):
        out = make(mx.gluon.loss)(*[mx.sym.var("in%d" % i) for i in range(len(values))])
        return [out.list_arguments(), out.list_outputs()]

    run.__name__, as_symbol.__name__ = name, name + "_symbolic"
    program(run)
    if symbolic and all(v is not None for v in values):
        program(as_symbol)


pred, label, each = numbers(0, (3, 4)), numbers(1, (3, 4)), numbers(2, (3, 1), 0, 2)

for cls in ("L2Loss", "L1Loss", "HuberLoss", "KLDivLoss"):
    target = shares(1, (3, 4)) if cls == "KLDivLoss" else label
    loss(cls.lower(), lambda g, cls=cls: getattr(g, cls)(prefix="q_"), pred, target)
    loss(cls.lower() + "_weighted", lambda g, cls=cls: getattr(g, cls)(weight=0.3, prefix="q_"), pred, target, each)
    loss(cls.lower() + "_batch_axis", lambda g, cls=cls: getattr(g, cls)(batch_axis=1, prefix="q_"), pred, target)
loss("l2loss_reshapes", lambda g: g.L2Loss(prefix="q_"), numbers(0, (3, 1)), numbers(1, (3,)))
loss("l2loss_of_images", lambda g: g.L2Loss(weight=2, prefix="q_"), numbers(0, (2, 3, 2, 2)), numbers(1, (2, 3, 2, 2)))
loss("l1loss_batch_axis_2", lambda g: g.L1Loss(batch_axis=2, prefix="q_"), numbers(0, (2, 3, 4)), numbers(1, (2, 3, 4)))
loss("huberloss_rho", lambda g: g.HuberLoss(rho=0.4, prefix="q_"), pred, label)
loss(
    "kldivloss_of_logits",
    lambda g: g.KLDivLoss(from_logits=False, prefix="q_"),
    pred,
    shares(1, (3, 4)),
    dtype="float64",
)
loss("kldivloss_axis", lambda g: g.KLDivLoss(False, axis=1, prefix="q_"), numbers(0, (2, 3, 4)), shares(1, (2, 3, 4)))

probable = numbers(3, (3, 4), 0.05, 0.95)
yes = flags(4, (3, 4))
for name, guess, kwargs in (("", pred, {}), ("_of_sigmoid", probable, {"from_sigmoid": True})):
    make = lambda g, kwargs=kwargs: g.SigmoidBinaryCrossEntropyLoss(prefix="q_", **kwargs)  # noqa: E731
    loss("sigmoidbce" + name, make, guess, yes)
    loss("sigmoidbce_sample" + name, make, guess, yes, each)
    loss("sigmoidbce_positive" + name, make, guess, yes, each, numbers(5, (1, 4), 0.5, 2))
    loss("sigmoidbce_positive_alone" + name, make, guess, yes, None, numbers(5, (1, 4), 0.5, 2), hybrid=False)
loss("sigmoidbce_weighted", lambda g: g.SigmoidBCELoss(weight=3, batch_axis=1, prefix="q_"), pred, yes)
loss(
    "sigmoidbce_extreme",
    lambda g: g.SigmoidBCELoss(prefix="q_"),
    np.array([[60.0, -60.0], [0.0, 1.0]]),
    flags(0, (2, 2)),
)

loss("softmaxce", lambda g: g.SoftmaxCrossEntropyLoss(prefix="q_"), pred, classes(0, (3,), 4))
loss("softmaxce_column", lambda g: g.SoftmaxCELoss(prefix="q_"), pred, classes(0, (3, 1), 4))
loss("softmaxce_sample", lambda g: g.SoftmaxCELoss(weight=0.5, prefix="q_"), pred, classes(0, (3,), 4), each)
loss("softmaxce_dense", lambda g: g.SoftmaxCELoss(sparse_label=False, prefix="q_"), pred, shares(0, (3, 4)))
loss(
    "softmaxce_dense_sample", lambda g: g.SoftmaxCELoss(sparse_label=False, prefix="q_"), pred, shares(0, (3, 4)), each
)
loss("softmaxce_log_probabilities", lambda g: g.SoftmaxCELoss(from_logits=True, prefix="q_"), pred, classes(0, (3,), 4))
loss(
    "softmaxce_axis", lambda g: g.SoftmaxCELoss(axis=1, prefix="q_"), numbers(0, (2, 3, 4, 4)), classes(0, (2, 4, 4), 3)
)
loss(
    "softmaxce_sequence",
    lambda g: g.SoftmaxCELoss(batch_axis=1, prefix="q_"),
    numbers(0, (3, 2, 5)),
    classes(0, (3, 2), 5),
)
loss("softmaxce_extreme", lambda g: g.SoftmaxCELoss(prefix="q_"), np.array([[1000.0, -1000.0]]), np.array([1.0]))

for cls in ("HingeLoss", "SquaredHingeLoss", "LogisticLoss"):
    loss(cls.lower(), lambda g, cls=cls: getattr(g, cls)(prefix="q_"), pred, signs(0, (3, 4)))
    loss(
        cls.lower() + "_weighted",
        lambda g, cls=cls: getattr(g, cls)(weight=2.0, batch_axis=1, prefix="q_"),
        pred,
        signs(0, (3, 4)),
        each,
    )
loss("hingeloss_margin", lambda g: g.HingeLoss(margin=0.4, prefix="q_"), pred, signs(0, (3, 4)))
loss("squaredhingeloss_margin", lambda g: g.SquaredHingeLoss(margin=3, prefix="q_"), pred, signs(0, (3, 4)))
loss("logisticloss_binary", lambda g: g.LogisticLoss(label_format="binary", prefix="q_"), pred, yes)

triplet = [numbers(seed, (4, 5), -1, 1) for seed in range(3)]
loss("tripletloss", lambda g: g.TripletLoss(prefix="q_"), *triplet)
loss("tripletloss_weighted", lambda g: g.TripletLoss(margin=4, weight=0.5, prefix="q_"), *triplet)
loss("tripletloss_batch_axis", lambda g: g.TripletLoss(batch_axis=1, prefix="q_"), *triplet)

counts = classes(0, (3, 4), 5) + 1
loss("poissonnll", lambda g: g.PoissonNLLLoss(prefix="q_"), pred, counts)
loss("poissonnll_of_rates", lambda g: g.PoissonNLLLoss(from_logits=False, prefix="q_"), probable, counts)
loss("poissonnll_weighted", lambda g: g.PoissonNLLLoss(weight=2, prefix="q_"), pred, counts, each)

pairs = numbers(0, (4, 5)), numbers(1, (4, 5)), np.array([1.0, -1.0, 1.0, -1.0])
loss("cosineembedding", lambda g: g.CosineEmbeddingLoss(prefix="q_"), *pairs)
loss(
    "cosineembedding_margin",
    lambda g: g.CosineEmbeddingLoss(margin=-0.9, weight=2, prefix="q_"),
    *pairs,
    numbers(2, (4, 1)),
)
loss(
    "cosineembedding_other_labels",
    lambda g: g.CosineEmbeddingLoss(prefix="q_"),
    *pairs[:2],
    np.array([0.0, 1.0, 2.0, -1.0]),
)
# MXNet cannot hybridize it; neomx can.
loss("sdml", lambda g: g.SDMLLoss(prefix="q_"), triplet[2], triplet[0], hybrid=False, symbolic=False)
loss("sdml_smooth", lambda g: g.SDMLLoss(0.1, weight=3, prefix="q_"), *triplet[:2], hybrid=False, symbolic=False)

speech, text = numbers(0, (2, 8, 5)), np.array([[0.0, 2, 1, -1], [3, 3, -1, -1]])
# Only predictions get gradients: MXNet leaves those of labels as it finds the memory.
loss("ctc", lambda g: g.CTCLoss(prefix="q_"), speech, text, grads=1)
loss("ctc_weighted", lambda g: g.CTCLoss(weight=0.5, prefix="q_"), speech, text, grads=1)
loss(
    "ctc_time_first",
    lambda g: g.CTCLoss(layout="TNC", label_layout="TN", prefix="q_"),
    speech.swapaxes(0, 1),
    text.T,
    grads=1,
)
loss(
    "ctc_lengths",
    lambda g: g.CTCLoss(prefix="q_"),
    speech,
    np.abs(text),
    np.array([7.0, 8.0]),
    np.array([3.0, 2.0]),
    grads=1,
)
loss("ctc_data_lengths", lambda g: g.CTCLoss(prefix="q_"), speech, text, np.array([7.0, 8.0]), grads=1)
loss(
    "ctc_label_lengths",
    lambda g: g.CTCLoss(prefix="q_"),
    speech,
    np.abs(text),
    None,
    np.array([3.0, 2.0]),
    hybrid=False,
)
loss(
    "ctc_sample",
    lambda g: g.CTCLoss(prefix="q_"),
    speech,
    np.abs(text),
    np.array([7.0, 8.0]),
    np.array([3.0, 2.0]),
    np.array([0.5, 2.0]),
    grads=1,
)


@program
def poissonnll_full(mx):
    """MXNet writes in place here, so it can be neither trained with nor made a symbol of."""
    block = mx.gluon.loss.PoissonNLLLoss(compute_full=True)
    return [block(mx.nd.array(pred), mx.nd.array(target)) for target in (counts, counts - 1, label)]


@program
def a_loss_of_ones_own(mx):
    class Quartic(mx.gluon.loss.Loss):
        def __init__(self, weight=None, batch_axis=0, **kwargs):
            super(Quartic, self).__init__(weight, batch_axis, **kwargs)

        def hybrid_forward(self, F, pred, label, sample_weight=None):
            label = mx.gluon.loss._reshape_like(F, label, pred)
            loss = mx.gluon.loss._apply_weighting(F, (pred - label) ** 4, self._weight, sample_weight)
            return F.mean(loss, axis=self._batch_axis, exclude=True)

    block = Quartic(weight=0.5, prefix="q_")
    results = [block, block.name] + evaluate(mx, block, [pred, label, each])
    block.hybridize()
    return results + evaluate(mx, block, [pred, label, each])


@program
def loss_in_training(mx):
    net = mx.gluon.nn.Dense(3, in_units=4, dtype="float64")
    net.initialize()
    net.weight.set_data(mx.nd.array(numbers(0, (3, 4)), dtype="float64"))
    criterion = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    x, y = mx.nd.array(numbers(1, (5, 4)), dtype="float64"), mx.nd.array(classes(2, (5,), 3))
    with mx.autograd.record():
        total = criterion(net(x), y)
    total.backward()
    return [total, net.weight.grad(), net.bias.grad(), len(criterion.collect_params().keys())]


@program
def double_and_integer_labels(mx):
    g = mx.gluon.loss
    double = mx.nd.array(pred, dtype="float64")
    results = [g.SoftmaxCELoss()(double, mx.nd.array(classes(0, (3,), 4), dtype=kind)) for kind in ("float32", "int32")]
    results.append(g.SoftmaxCELoss()(mx.nd.array(pred, dtype="float32"), mx.nd.array([1, 2, 0], dtype="int64")))
    results.append(g.L2Loss()(double, mx.nd.array(label, dtype="float64")))
    results.append(outcome(lambda: g.L2Loss()(double, mx.nd.array(label, dtype="float32"))))
    return results


@program
def refusals(mx):
    g, nd = mx.gluon.loss, mx.nd
    a, b = nd.ones((2, 3)), nd.ones((2, 4))
    return [
        outcome(call)
        for call in (
            lambda: g.CTCLoss(layout="x"),
            lambda: g.CTCLoss(label_layout="x"),
            lambda: g.LogisticLoss(label_format="x"),
            lambda: g.L1Loss(weight="a")(a, a),
            lambda: g.L2Loss(weight="a")(a, a),
            lambda: g.L2Loss(weight=None)(a, a),
            lambda: g.L2Loss()(a, b),
            lambda: g.L2Loss()(a, nd.ones((6,))).shape,
            lambda: g.L2Loss()(a, a, nd.ones((5,))),
            lambda: g.SoftmaxCELoss()(a, nd.ones((4,))),
            lambda: g.KLDivLoss()(a, nd.ones((6,))),
            lambda: g.SDMLLoss()(a, nd.ones((3, 3))),
            lambda: g.Loss(1, 0)(a),
            lambda: g.TripletLoss()(a, a, a, a),
            lambda: g.SigmoidBCELoss()(a, a, None, nd.ones((4,))),
        )
    ] + [g.Loss(weight=1, batch_axis=0), g.SoftmaxCELoss is g.SoftmaxCrossEntropyLoss]
