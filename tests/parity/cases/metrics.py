"""Metrics after several unequal batches, local and global, and how they are made, named and combined."""

from collections import OrderedDict

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)
NAN = float("nan")


def batches(mx, classes, sizes=(5, 3, 1, 4), seed=0):
    """[(labels, probabilities)] of classes."""
    rng = np.random.RandomState(seed)
    made = [(rng.randint(0, classes, n), rng.dirichlet([1] * classes, n)) for n in sizes]
    return [([mx.nd.array(label)], [mx.nd.array(p)]) for label, p in made]


def numbers(mx, shapes, seed=0):
    """[(labels, predictions)] of numbers, from pairs of shapes."""
    rng = np.random.RandomState(seed)
    return [([mx.nd.array(rng.randn(*a))], [mx.nd.array(rng.randn(*b))]) for a, b in shapes]


def values(metric):
    """What a metric says, as numbers."""
    return [float(v) for pairs in (metric.get_name_value(), metric.get_global_name_value()) for _, v in pairs]


def followed(metric, data):
    """The values after each batch, with the local sum forgotten in between; then all lists in one update."""
    results = [values(metric)]
    for i, (labels, preds) in enumerate(data):
        metric.update(labels, preds)
        results.append(values(metric))
        if i == 1:
            metric.reset_local()
            results.append(values(metric))
    metric.reset()
    results.append(values(metric))
    metric.update([x for labels, _ in data for x in labels], [x for _, preds in data for x in preds])
    results.append(values(metric))
    return np.array(results)


@program
def classification(mx):
    m, two, five = mx.metric, batches(mx, 2), batches(mx, 5, seed=1)
    return [
        followed(m.Accuracy(), two),
        followed(m.Accuracy(), five),
        followed(m.TopKAccuracy(2), five),
        followed(m.TopKAccuracy(top_k=5), five),
        followed(m.F1(), two),
        followed(m.F1(average="micro"), two),
        followed(m.MCC(), two),
        followed(m.MCC(average="micro"), two),
        followed(m.PCC(), two),
        followed(m.PCC(), five),
        followed(m.PCC(), batches(mx, 3, seed=2) + batches(mx, 6, seed=3)),
    ]


@program
def probabilities(mx):
    m, four = mx.metric, batches(mx, 4, seed=4)
    return [
        followed(m.CrossEntropy(), four),
        followed(m.CrossEntropy(eps=0.1), four),
        followed(m.NegativeLogLikelihood(), four),
        followed(m.Perplexity(None), four),
        followed(m.Perplexity(0), four),
        followed(m.Perplexity(ignore_label=-1), four),
    ]


@program
def regression(mx):
    columns = numbers(mx, [((4,), (4, 1)), ((3,), (3,)), ((2, 3), (2, 3)), ((3, 1), (3, 2)), ((2, 2, 2), (2, 2, 2))])
    same = numbers(mx, [((4,), (4,)), ((3, 2), (3, 2)), ((5,), (5,))], seed=1)
    m = mx.metric
    return [followed(metric, columns) for metric in (m.MAE(), m.MSE(), m.RMSE())] + [
        followed(m.PearsonCorrelation(), same)
    ]


@program
def pearson_of_all_numbers(mx):
    """Without resets: MXNet has no global value of this one, and its reset_local forgets nothing."""
    metric, results = mx.metric.PearsonCorrelation(average="micro"), []
    for labels, preds in numbers(mx, [((4,), (4,)), ((3, 2), (3, 2)), ((5,), (5,))], seed=1):
        metric.update(labels, preds)
        results.append(metric.get()[1])
    metric.reset()
    return [np.array(results, dtype="float64"), *metric.get()]


@program
def losses(mx):
    rng = np.random.RandomState(0)
    data = [(None, [mx.nd.array(rng.rand(*s)) for s in shapes]) for shapes in (((4,),), ((3, 2), (1,)), ((2,),))]
    results = []
    for metric in (mx.metric.Loss(), mx.metric.Torch(), mx.metric.Caffe()):
        for _, preds in data:
            metric.update(0, preds)
            results.append(values(metric))
        metric.reset_local()
        metric.update(None, data[0][1][0])
        results.append(values(metric))
    half = mx.metric.Loss()
    half.update(None, (mx.nd.ones(3000, dtype="float16"), mx.nd.ones(3, dtype="int32")))
    return [np.array(results), *values(half), half.num_inst]


@program
def shapes_and_dtypes(mx):
    a, rng = mx.nd.array, np.random.RandomState(0)
    accuracy = [
        ([a([0, 1, 1])], [a([0, 1, 0])]),
        ([a([[0, 1, 1]])], [a([[0, 1, 0]])]),
        ([a([[0], [1], [1], [0]])], [a(rng.rand(4, 3))]),
        ([a([0.7, 1.2, 1.9])], [a([0.2, 1.9, 1])]),
        ([a(rng.randint(0, 3, (2, 4, 4)))], [a(rng.rand(2, 3, 4, 4))]),
        ([a([0, 1, 1], dtype="int64")], [a(rng.randint(0, 9, (3, 2)), dtype="int32")]),
        ([a([0, 1, 1], dtype="uint8")], [a(rng.rand(3, 2), dtype="float16")]),
        ([a([0, 1])], [a([[1, 1], [1, 1]])]),
        ([a([1, 0])], [a([[1], [0]])]),
        (a([0, 1, 1]), a(rng.rand(3, 2))),
        ([], []),
    ]
    others = [
        (mx.metric.Accuracy(axis=2), [a(rng.randint(0, 3, (2, 4)))], [a(rng.rand(2, 4, 3))]),
        (mx.metric.Accuracy(axis=-1), [a([1, 0])], [a(rng.rand(2, 3))]),
        (mx.metric.CrossEntropy(), [a([[0], [2]])], [a(rng.rand(2, 3))]),
        (mx.metric.CrossEntropy(), [a([0, 2])], [a(rng.rand(2, 3, 4))]),
        (mx.metric.CrossEntropy(), [a([0, -1])], [a(rng.rand(2, 3))]),
        (mx.metric.CrossEntropy(), [a([0, 1])], [a([[0, 1], [1, 0]])]),
        (mx.metric.Perplexity(None), a([0, 1, 7]), a(rng.rand(3, 3))),
        (mx.metric.Perplexity(None), [a([0, 1])], [a([[0, 1], [1, 0]])]),
        (mx.metric.Perplexity(0), [a([0, 0])], [a(rng.rand(2, 3))]),
        (mx.metric.MAE(), [a([1, 2], dtype="int32")], [a([3, 5], dtype="uint8")]),
        (mx.metric.MSE(), [a([1, 2], dtype="float64")], [a([3, 5.5])]),
        (mx.metric.RMSE(), a([1, 2]), a([3, 5])),
        (mx.metric.F1(), [a([0, 1, 1, 0])], [a([[0.1, 0.2, 0.9], [0, 1, 0], [0, 1, 0], [0, 1, 0]])]),
        (mx.metric.F1(), [a([-1, 1, 1])], [a([[0.2, 0.8]] * 3)]),
        (mx.metric.MCC(), [a([1, 1, 1])], [a([[0.2, 0.8]] * 3)]),
        (mx.metric.PCC(), [a([0, 1, 1])], [a([0, 1, 0])]),
        (mx.metric.PCC(), [a([1, 1, 1])], [a([[0, 1]] * 3)]),
    ]
    results = []
    for metric, labels, preds in [(mx.metric.Accuracy(), *each) for each in accuracy] + others:
        metric.update(labels, preds)
        results.append(values(metric))
    return [np.array(results)]


@program
def not_a_number(mx):
    """NaN is reported, also after batches that have none."""
    a, m = mx.nd.array, mx.metric
    sick = [[NAN, 0.5], [0.25, 0.75]]
    runs = [(metric, [a([0, 1])], [a(sick)]) for metric in (m.CrossEntropy(), m.Perplexity(None), m.Perplexity(0))]
    runs += [(metric, [a([0, NAN])], [a([1, 2])]) for metric in (m.MAE(), m.MSE(), m.RMSE(), m.PearsonCorrelation())]
    runs += [(m.Loss(), [], [a([1, NAN])]), (m.CustomMetric(lambda label, pred: NAN), [a([1])], [a([1])])]
    runs += [(metric, [a([0, 1])], [a(sick)]) for metric in (m.Accuracy(), m.F1(), m.MCC(), m.TopKAccuracy(2))]
    results = []
    for metric, labels, preds in runs:
        metric.update(labels, preds)
        results.append(values(metric))
        metric.update(labels, preds)
        results.append(values(metric))
    return [np.array(results)]


@program
def refusals(mx):
    a, m, rng = mx.nd.array, mx.metric, np.random.RandomState(0)
    two, four = [a([0, 1])], [a(rng.rand(4, 3))]
    calls = [(metric, two, four) for metric in (m.Accuracy(), m.TopKAccuracy(2), m.CrossEntropy(), m.Perplexity(0))]
    calls += [(metric, two, four) for metric in (m.NegativeLogLikelihood(), m.PearsonCorrelation(), m.MSE())]
    calls += [(metric, two, []) for metric in (m.Accuracy(), m.MAE(), m.Perplexity(0), m.CustomMetric(lambda x, y: 1))]
    calls += [(m.Accuracy(), [a([[0, 1]])], two), (m.TopKAccuracy(4), [a([0] * 4)], four)]
    calls += [(m.TopKAccuracy(2), two, [a(rng.rand(2, 3, 4))]), (m.CrossEntropy(), [a([0, 7])], [a(rng.rand(2, 3))])]
    calls += [(metric, [a([0, 1, 2])], [a(rng.rand(3, 2))]) for metric in (m.F1(), m.MCC())]
    calls += [(m.EvalMetric("base"), two, two), (m.PearsonCorrelation(), [a([1, 2])], [a([[1], [2]])])]
    results = [outcome(lambda c=c: c[0].update(c[1], c[2])) for c in calls]
    return results + [outcome(lambda: m.TopKAccuracy()), outcome(lambda: m.CustomMetric(len).get_config())]


@program
def names_and_configurations(mx):
    m = mx.metric
    made = [m.Accuracy(), m.Accuracy(2, "mine", ["p"], ["l"]), m.TopKAccuracy(3), m.F1(), m.MCC(), m.PCC()]
    made += [m.Perplexity(None), m.Perplexity(0), m.MAE(), m.MSE(), m.RMSE(), m.CrossEntropy(), m.PearsonCorrelation()]
    made += [m.NegativeLogLikelihood(eps=0.5), m.Loss(), m.Torch(), m.Caffe(), m.CompositeEvalMetric()]
    made += [m.CompositeEvalMetric(["acc", m.MSE()], "both", ["a"], ["b"]), m.EvalMetric("x", ["a"], ["b"], foo=3)]
    configs = [sorted(metric.get_config().items(), key=str) for metric in made]
    return [str(c) for c in configs] + [str(metric) for metric in made]


@program
def made_by_name(mx):
    def error(label, pred):
        return float(np.abs(label - pred).sum())

    create, m = mx.metric.create, mx.metric
    names = "acc accuracy Accuracy ce crossentropy f1 mcc pcc mae mse rmse nll_loss negativeloglikelihood".split()
    names += "pearsonr pearsoncorrelation loss torch caffe composite compositeevalmetric".split()
    made = [create(name) for name in names]
    made += [create("top_k_acc", 3), create("top_k_accuracy", top_k=2), create("topkaccuracy", 4)]
    made += [create("perplexity", ignore_label=0), create("acc", axis=2, name="foo"), create(m.MSE()), create(error)]
    made += [
        create(["acc", "mse"]),
        create([m.Accuracy(), error, ["ce", "f1"]]),
        create([]),
        create("custommetric", len),
    ]
    made += [create({"metric": "acc", "name": "bar"}), create('["acc", {"axis": 2}]'), create(lambda x, y: 1.0)]
    registered = mx.registry.get_registry(m.EvalMetric).items()
    return [type(each).__name__ + str(each) for each in made] + [
        ",".join(sorted(name for name, c in registered if ".metric" in c.__module__)),
        *[outcome(lambda x=x: create(x)) for x in ("nope", None, 3, ("acc", "ce"), "perplexity")],
        outcome(lambda: create(m.MSE(), 3)),
    ]


@program
def from_functions(mx):
    def total(label, pred):
        return float(np.abs(label - pred).sum())

    def counted(label, pred):
        return float(np.abs(label - pred).sum()), label.size

    m, a = mx.metric, mx.nd.array
    labels, preds = [a([1, 2, 3]), a([4, 5])], [a([1, 1, 1]), a([2, 2])]
    results = []
    for metric in (m.CustomMetric(total), m.CustomMetric(counted, "mine"), m.np(total), m.np(counted, "its", True)):
        metric.update(labels, preds)
        metric.reset_local()
        metric.update(labels[:1], preds[:1])
        results += [metric.name, *values(metric)]
    extra = m.CustomMetric(total, allow_extra_outputs=True)
    extra.update(labels[:1], preds)
    bare = m.np(lambda label, pred: type(label) is type(pred) is np.ndarray)
    bare.update(labels[0], preds[0])
    return results + [*values(extra), *values(bare), bare.name, m.CustomMetric(lambda x, y: 1).name]


@program
def composites(mx):
    m = mx.metric
    metric = m.CompositeEvalMetric(["acc", m.CrossEntropy()])
    metric.add(m.TopKAccuracy(2))
    metric.add(m.np(lambda label, pred: float(label.sum()), name="sum"))
    data = batches(mx, 3, seed=5)
    rows = followed(metric, data)
    nested = m.CompositeEvalMetric([metric, "loss"])
    nested.update(*data[0])
    names, found = nested.get()
    return [
        rows,
        ",".join(names),
        np.array(found, dtype="float64"),
        str([name for name, _ in metric.get_global_name_value()]),
        type(metric.get_metric(1)).__name__,
        type(metric.get_metric(-1)).__name__,
        len(metric.metrics),
    ]


@program
def arrays_by_name(mx):
    m, a = mx.metric, mx.nd.array
    labels = OrderedDict([("l", a([0, 1])), ("k", a([1]))])
    preds = OrderedDict([("p", a([[0.3, 0.7], [0.4, 0.6]])), ("q", a([3]))])
    first, both = m.Accuracy(output_names=["p"], label_names=["l"]), m.MSE(output_names=["q"], label_names=["k"])
    all_of_them = m.Loss()
    own = m.CompositeEvalMetric([m.create("acc", output_names=["p"], label_names=["l"]), both])
    outer = m.CompositeEvalMetric(["acc", "ce"], output_names=["p"], label_names=["l"])
    wrong = m.CompositeEvalMetric([m.MSE(output_names=["q"])], output_names=["p"], label_names=["l"])
    results = []
    for metric in (first, all_of_them, own, outer):
        metric.update_dict(labels, preds)
        results += values(metric)
    return results + [
        outcome(lambda: first.update_dict({"x": a([0])}, preds)),
        outcome(lambda: first.update_dict(labels, {"x": a([0])})),
        outcome(lambda: wrong.update_dict(labels, preds)),
    ]


@program
def own_metrics(mx):
    class Halves(mx.metric.EvalMetric):
        def __init__(self, name="halves"):
            super(Halves, self).__init__(name)

        def update(self, labels, preds):
            labels, preds = mx.metric.check_label_shapes(labels, preds, True)
            for pred in preds:
                self.sum_metric += float(pred.asnumpy().sum()) / 2
                self.num_inst += 1

    class WithGlobal(Halves):
        def __init__(self):
            mx.metric.EvalMetric.__init__(self, "global", has_global_stats=True)

        def update(self, labels, preds):
            super(WithGlobal, self).update(labels, preds)
            self.global_sum_metric += 1
            self.global_num_inst += 2

    class Several(mx.metric.EvalMetric):
        def update(self, labels, preds):
            pass

        def get(self):
            return ["a", "b"], [1.5, 2.5]

    mx.metric.register(Halves)
    mx.metric.register(WithGlobal, "with_global")
    mx.metric.alias("several", "more")(Several)
    made = mx.metric.create(["halves", "with_global", Several("s")])
    results = []
    for labels, preds in batches(mx, 2):
        made.update(labels, preds)
        results.append(values(made))
        made.reset_local()
    return [np.array(results), str(made), str(made.get_global()), type(mx.metric.create("more", "name")).__name__]


@program
def checked_shapes(mx):
    check, a = mx.metric.check_label_shapes, mx.nd.array([1, 2])
    return [
        str(check([1], [2])),
        str([type(x).__name__ for x in check(a, a)]),
        str([type(x).__name__ for x in check(a, a, True)]),
        str([type(x).__name__ for x in check(a, a, wrap=True, shape=True)]),
        str([type(x).__name__ for x in check(a, a.reshape((2, 1)))]),
        outcome(lambda: check([1, 2], [2])),
        outcome(lambda: check(a, a.reshape((2, 1)), shape=True)),
        outcome(lambda: check(a, [a], wrap=True)),
    ]
