"""Boxes: overlap, encoding, matching, nms; SSD's multibox ops; proposals."""

import numpy as np

from parity.spec import const, f, family, outcome

case, program = family(__name__)


def add(name, function):
    """A program made in a loop."""
    function.__name__ = name
    program(function)


def boxes(rng, *shape, size=1.0, most=0.5):
    """Random corner boxes in a square of `size`."""
    low = rng.uniform(0, size * (1 - most), size=shape + (2,))
    return np.concatenate([low, low + rng.uniform(0.05, most, size=shape + (2,)) * size], -1).astype("float32")


# ---- overlap, encoding, decoding, matching ----

for format in ("corner", "center"):
    case("_contrib_box_iou", f(5, 4, lo=0), f(3, 4, lo=0), format=format)
    case("_contrib_box_iou", f(2, 3, 4, lo=0), f(2, 2, 4, lo=0), format=format)
case("_contrib_box_iou", const([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]), const([[0, 0, 1, 1], [0, 0, 0, 0]]))
case("_contrib_box_iou", f(3, 4, lo=0, dtype="float64"), f(3, 4, lo=0, dtype="float64"), format="center")
case("_contrib_box_iou", const([[0, 0, 1, 1]], "float16"), const([[0, 0.5, 1, 1.5]], "float16"))

case("_contrib_box_decode", f(2, 3, 4), f(1, 3, 4, lo=0))
case("_contrib_box_decode", f(2, 3, 4), f(1, 3, 4, lo=0), std0=0.1, std1=0.2, std2=0.3, std3=0.4, format="corner")
case("_contrib_box_decode", f(2, 3, 4, lo=-3, hi=3), f(1, 3, 4, lo=0), clip=0.5)
case("_contrib_box_decode", f(2, 3, 4, dtype="float64"), f(1, 3, 4, lo=0, dtype="float64"), clip=0)

case("_contrib_bipartite_matching", f(4, 6, lo=0), threshold=0.2)
case("_contrib_bipartite_matching", f(2, 6, 4, lo=0), threshold=0.2)
case("_contrib_bipartite_matching", f(2, 2, 5, 5, lo=0), threshold=0.6, is_ascend=True)
case("_contrib_bipartite_matching", f(2, 5, 5, lo=0), threshold=0.1, topk=2)
case("_contrib_bipartite_matching", f(2, 5, 5, lo=0), threshold=0.9, topk=1, is_ascend=True)
case("_contrib_bipartite_matching", const([[0.5, 0.5], [0.5, 0.5], [0.1, 0.9]]), threshold=0.1)
case("_contrib_bipartite_matching", const([[0.5, 0.25], [0.25, 0.75]]), threshold=0.5)
case("_contrib_bipartite_matching", const([[0, 0, 0], [0, 0, 0]]), threshold=-1)
case("_contrib_bipartite_matching", f(3, 3, dtype="float64"), threshold=0.0, topk=0)


@program
def box_encode(mx):
    rng = np.random.RandomState(0)
    samples = mx.nd.array(rng.choice([-1, 0, 0.4, 0.5, 0.6, 1], size=(2, 12)))
    matches = mx.nd.array(rng.randint(0, 5, size=(2, 12)) + rng.choice([0, 0.7], size=(2, 12)))
    anchors, refs = mx.nd.array(boxes(rng, 2, 12)), mx.nd.array(boxes(rng, 2, 5))
    means, stds = mx.nd.array([0.1, -0.2, 0.3, 0]), mx.nd.array([0.1, 0.1, 0.2, 0.2])
    inputs = [samples, matches, anchors, refs, means, stds]
    for x in inputs:
        x.attach_grad()
    with mx.autograd.record():
        targets, masks = mx.nd.contrib.box_encode(*inputs)
    targets.backward()
    return [targets, masks] + [x.grad for x in inputs]


# ---- nms ----

ROWS = [
    [0, 0.5, 0.1, 0.1, 0.2, 0.2],
    [1, 0.4, 0.1, 0.1, 0.2, 0.2],
    [0, 0.3, 0.1, 0.1, 0.14, 0.14],
    [2, 0.6, 0.5, 0.5, 0.7, 0.8],
    [0, 0.5, 0.1, 0.1, 0.2, 0.2],
    [-1, 0.9, 0.5, 0.5, 0.7, 0.8],
    [0, -0.1, 0, 0, 1, 1],
    [1, 0.45, 0.11, 0.1, 0.21, 0.2],
]
for kwargs in (
    dict(),
    dict(overlap_thresh=0.1),
    dict(overlap_thresh=0),
    dict(overlap_thresh=1),
    dict(id_index=0),
    dict(id_index=0, background_id=0),
    dict(background_id=0),
    dict(id_index=0, force_suppress=True),
    dict(topk=2),
    dict(topk=3, id_index=0, out_format="center"),
    dict(topk=0, out_format="center"),
    dict(topk=-5),
    dict(valid_thresh=0.45),
    dict(valid_thresh=2),
    dict(valid_thresh=-1, id_index=0, overlap_thresh=0.1),
    dict(in_format="center"),
    dict(in_format="center", out_format="center"),
):
    case("_contrib_box_nms", const(ROWS), **kwargs)
case("_contrib_box_nms", const([ROWS[:4], ROWS[4:]]), id_index=0)
case("_contrib_box_nms", const([[ROWS[:4], ROWS[4:]]]), topk=2, valid_thresh=0.1)
case("_contrib_box_nms", const([r[2:] + r[1:2] for r in ROWS]), coord_start=0, score_index=4)
case("_contrib_box_nms", const([r[1:2] + [7] + r[2:] + r[:1] for r in ROWS]), score_index=0, id_index=6)
case("_contrib_box_nms", const([[0, 0.5, 0.2, 0.2, 0.1, 0.1], [0, 0.4, 0.2, 0.2, 0.1, 0.1]]))
case("_contrib_box_nms", const(ROWS, "float64"), id_index=0)
case("_contrib_box_nms", const(ROWS, "float16"))

for seed in range(3):

    def many_boxes(mx, seed=seed):
        rng = np.random.RandomState(seed)
        rows = np.concatenate([rng.randint(-1, 3, (2, 60, 1)), rng.uniform(-0.1, 1, (2, 60, 1)), boxes(rng, 2, 60)], -1)
        # Scores of two digits: many ties, which keep their order.
        data = mx.nd.array(np.concatenate([rows[..., :1], rows[..., 1:2].round(1 + seed % 2), rows[..., 2:]], -1))
        nms = mx.nd.contrib.box_nms
        return [
            nms(data, overlap_thresh=0.2),
            nms(data, overlap_thresh=0.3, id_index=0, topk=40),
            nms(data, overlap_thresh=0.05, id_index=0, force_suppress=True, valid_thresh=0.2),
        ]

    add("nms_of_many_boxes_%d" % seed, many_boxes)


@program
def nms_of_thousands(mx):
    rng = np.random.RandomState(0)
    data = np.concatenate([rng.uniform(0, 1, (1500, 1)), boxes(rng, 1500, most=0.3)], -1)
    out = mx.nd.contrib.box_nms(mx.nd.array(data), overlap_thresh=0.4, coord_start=1, score_index=0)
    return [out[:400]]


# ---- SSD ----

case("_contrib_MultiBoxPrior", f(1, 3, 2, 3))
case("_contrib_MultiBoxPrior", f(2, 1, 3, 2), sizes=(0.5, 0.25), ratios=(1, 2, 0.5))
case("_contrib_MultiBoxPrior", f(1, 1, 2, 2), sizes=(0.9, 0.4), ratios=(4, 2), clip=True)
case("_contrib_MultiBoxPrior", f(1, 1, 2, 3), sizes=0.9, ratios=(1, 4), steps=(0.2, 0.3), offsets=(0.1, 0.7))
case("_contrib_MultiBoxPrior", f(1, 1, 2, 3), sizes=(0.3,), steps=(-1, -1), offsets=(0, 1))

TARGETS = (
    dict(),
    dict(overlap_threshold=0.2),
    dict(overlap_threshold=0.9),
    dict(overlap_threshold=-1),
    dict(variances=(1, 0.5, 0.3, 0.2)),
    dict(negative_mining_ratio=1),
    dict(negative_mining_ratio=1.7, negative_mining_thresh=0.3, overlap_threshold=0.3),
    dict(negative_mining_ratio=3, minimum_negative_samples=5, ignore_label=-7),
    dict(negative_mining_ratio=100, negative_mining_thresh=2),
)
for i, kwargs in enumerate(TARGETS):

    def target(mx, seed=i, kwargs=kwargs):
        rng = np.random.RandomState(seed)
        anchors = boxes(rng, 1, 40)
        labels = np.concatenate([rng.randint(0, 3, (3, 4, 1)), boxes(rng, 3, 4)], -1)
        labels[1, 2:] = -1
        labels[2] = -1
        inputs = [mx.nd.array(x) for x in (anchors, labels, rng.uniform(-1, 1, (3, 4, 40)))]
        for x in inputs:
            x.attach_grad()
        with mx.autograd.record():
            outputs = mx.nd.contrib.MultiBoxTarget(*inputs, **kwargs)
        outputs[0].backward()
        return outputs + [x.grad for x in inputs]

    add("multibox_target_%d" % i, target)

EXACT = [[0, 0, 1, 1], [0, 0, 0.5, 1], [0, 0, 0.5, 0.5], [0, 0, 0.25, 1], [0.5, 0.5, 1, 1], [2, 2, 3, 3]]
for label in (
    [[1, 0, 0, 1, 1]],
    [[1, 5, 5, 6, 6], [0, 0, 0, 1, 1]],
    [[1, 0, 0, 1, 1], [2, 0, 0, 1, 1], [3, 0, 0, 1, 1]],
    [[1, 0, 0, 0, 0], [2, 0, 0, 1, 1]],
    [[-1, -1, -1, -1, -1], [2, 0, 0, 1, 1]],
    [[2, 0, 0, 1, 1, 9]],
):
    for threshold in (0.5, 0.25):
        case("_contrib_MultiBoxTarget", const([EXACT]), const([label]), f(1, 3, 6), overlap_threshold=threshold)
# All predictions alike: hard negatives are taken in order.
case("_contrib_MultiBoxTarget", const([EXACT]), const([[[1, 0, 0, 1, 1]]]), const(np.zeros((1, 3, 6)).tolist()),
     negative_mining_ratio=2)  # fmt: skip
case("_contrib_MultiBoxTarget", const([EXACT]), const([[[-1] * 5]]), f(1, 3, 6), ignore_label=-5)

DETECTIONS = (
    dict(),
    dict(clip=False, variances=(0.2, 0.3, 0.4, 0.5)),
    dict(threshold=0.5),
    dict(threshold=2),
    dict(background_id=1),
    dict(nms_threshold=0.1),
    dict(nms_threshold=0.1, force_suppress=True),
    dict(nms_threshold=0),
    dict(nms_threshold=1),
    dict(nms_threshold=2, nms_topk=3),
    dict(nms_topk=5),
    dict(nms_topk=100),
    dict(nms_topk=7, nms_threshold=0.2, threshold=0.4),
)
for i, kwargs in enumerate(DETECTIONS):

    def detection(mx, seed=i, kwargs=kwargs):
        rng = np.random.RandomState(seed)
        prob = rng.uniform(0, 1, (2, 3, 12))
        prob = (prob / prob.sum(1, keepdims=True)).round(1 + seed % 2)
        inputs = [mx.nd.array(x) for x in (prob, rng.uniform(-1, 1, (2, 48)), boxes(rng, 1, 12))]
        for x in inputs:
            x.attach_grad()
        with mx.autograd.record():
            output = mx.nd.contrib.MultiBoxDetection(*inputs, **kwargs)
        output.backward()
        return [output] + [x.grad for x in inputs]

    add("multibox_detection_%d" % i, detection)
# The same box twice, at nms_threshold 1; a score just at the threshold; the background alone.
case("_contrib_MultiBoxDetection", const([[[0.2, 0.5], [0.8, 0.5]]]), const([[0] * 8]),
     const([[[0.1, 0.1, 0.4, 0.4], [0.1, 0.1, 0.4, 0.4]]]), nms_threshold=1, threshold=0.5)  # fmt: skip
case("_contrib_MultiBoxDetection", const([[[0.2, 0.5]]]), const([[0] * 8]),
     const([[[0.1, 0.1, 0.4, 0.4], [0.1, 0.1, 0.4, 0.4]]]))  # fmt: skip

# ---- proposals ----

PROPOSALS = (
    dict(rpn_post_nms_top_n=12, rpn_min_size=4),
    dict(rpn_post_nms_top_n=200, rpn_min_size=0, threshold=1, output_score=True),
    dict(rpn_post_nms_top_n=20, rpn_min_size=12, threshold=0.3, output_score=True),
    dict(rpn_pre_nms_top_n=10, rpn_post_nms_top_n=20, threshold=0.5, output_score=True),
    dict(rpn_pre_nms_top_n=-1, rpn_post_nms_top_n=5, threshold=0.7, output_score=True),
    dict(rpn_post_nms_top_n=30, rpn_min_size=2, output_score=True, iou_loss=True),
    dict(rpn_post_nms_top_n=30, rpn_min_size=2, output_score=True, feature_stride=7),
)
for i, kwargs in enumerate(PROPOSALS):
    for multi in (False, True):

        def propose(mx, seed=i, kwargs=kwargs, multi=multi):
            rng = np.random.RandomState(seed)
            stride, count = kwargs.get("feature_stride", 8), 2 if multi else 1
            prob = rng.uniform(0, 1, (count, 12, 5, 6)).round(3)
            deltas = rng.uniform(-0.5, 0.5, (count, 24, 5, 6)) * (5 if "iou_loss" in kwargs else 1)
            info = np.array([[5 * stride, 6 * stride, 1], [4.7 * stride, 5.2 * stride, 1.5]])[:count]
            inputs = [mx.nd.array(x) for x in (prob, deltas, info)]
            for x in inputs:
                x.attach_grad()
            op = mx.nd.contrib.MultiProposal if multi else mx.nd.contrib.Proposal
            with mx.autograd.record():
                output = op(*inputs, scales=(1, 2.5), ratios=(0.5, 1, 2.2), **dict(dict(feature_stride=8), **kwargs))
            outputs = output if isinstance(output, list) else [output]
            outputs[0].backward()
            return outputs + [x.grad for x in inputs]

        add("%sproposal_%d" % ("multi_" if multi else "", i), propose)


@program
def refused(mx):
    c = mx.nd.contrib

    def ones(*shape):
        return mx.nd.array(np.ones(shape))

    return [
        outcome(lambda: c.box_iou(ones(4), ones(2, 4))),
        outcome(lambda: c.box_iou(ones(2, 5), ones(2, 5))),
        outcome(lambda: c.box_nms(ones(2, 5))),
        outcome(lambda: c.box_nms(ones(2, 6), score_index=3)),
        outcome(lambda: c.box_decode(ones(2, 4), ones(2, 4))),
        outcome(lambda: c.bipartite_matching(ones(2), threshold=1)),
        outcome(lambda: c.MultiBoxPrior(ones(3, 2, 2))),
        outcome(lambda: c.MultiBoxTarget(ones(2, 3, 4), ones(2, 1, 5), ones(2, 2, 3))),
        outcome(lambda: c.MultiBoxDetection(ones(1, 2, 3), ones(1, 3), ones(1, 3, 4))),
    ]
