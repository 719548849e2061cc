"""Box and region ops that cannot be compared with MXNet: equality with plain loops, and edge cases."""

import numpy as np
import pytest
import torch

import neomx as mx
from neomx.ops import OPS
from neomx.ops.boxes import match, overlaps, suppress

c = mx.nd.contrib


def boxes(rng, count):
    low = rng.uniform(0, 0.7, (count, 2))
    return np.concatenate([low, low + rng.uniform(0.05, 0.3, (count, 2))], 1).astype("float32")


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("grouped", [False, True])
def test_suppress_equals_greedy_loop(threshold, grouped):
    rng = np.random.RandomState(0)
    data = torch.tensor(boxes(rng, 700))  # several chunks
    groups = torch.tensor(rng.randint(0, 3, 700)) if grouped else None
    hits = overlaps(data, data) > threshold
    if groups is not None:
        hits &= groups[:, None] == groups
    kept = []
    for i in range(len(data)):
        if not hits[kept, i].any():
            kept.append(i)
    assert suppress(data, threshold, groups).tolist() == kept
    assert suppress(data, threshold, groups, limit=7).tolist() == kept[:7]


@pytest.mark.parametrize("digits", [1, 6])
@pytest.mark.parametrize("limit", [None, 3])
def test_match_equals_greedy_loop(digits, limit):
    rng = np.random.RandomState(1)
    scores = rng.uniform(0, 1, (3, 9, 6)).round(digits)
    columns, rows = match(torch.tensor(scores), 0.2, limit)
    for b in range(3):
        rest, expected = scores[b].copy(), np.full(9, -1)
        for _ in range(limit or 6):
            i, j = np.unravel_index(rest.argmax(), rest.shape)  # the first of the best
            if rest[i, j] <= 0.2:
                break
            expected[i], rest[i], rest[:, j] = j, -1, -1
        assert columns[b].tolist() == expected.tolist()
        for j, i in enumerate(rows[b].tolist()):
            assert (i < 0 and j not in expected) or expected[i] == j


def test_empty_regions_and_boxes():
    data, none = mx.nd.array(np.ones((1, 4, 6, 6))), mx.nd.array(np.ones((0, 5)))
    size = {"pooled_size": (2, 2), "spatial_scale": 1}
    groups = {"output_dim": 1, "pooled_size": 2, "group_size": 2, "spatial_scale": 1}
    assert mx.nd.ROIPooling(data, none, **size).shape == (0, 4, 2, 2)
    assert c.ROIAlign(data, none, **size).shape == (0, 4, 2, 2)
    assert c.PSROIPooling(data, none, **groups).shape == (0, 1, 2, 2)
    assert c.DeformablePSROIPooling(data, none, no_trans=True, **groups).shape == (0, 1, 2, 2)
    assert c.box_nms(mx.nd.array(np.ones((2, 0, 6)))).shape == (2, 0, 6)
    assert c.bipartite_matching(mx.nd.array(np.ones((0, 3))), threshold=0)[1].asnumpy().tolist() == [-1, -1, -1]


@pytest.mark.parametrize("op", ["ROIAlign", "RROIAlign", "DeformablePSROIPooling"])
def test_nan_regions_keep_output_shape(op):
    rois = mx.nd.array([[0, np.nan, 0, 3, 3, 3][: 6 if op == "RROIAlign" else 5]])
    size = {"pooled_size": (2, 2), "spatial_scale": 1}
    if op == "DeformablePSROIPooling":
        size = {"output_dim": 4, "pooled_size": 2, "group_size": 1, "spatial_scale": 1, "no_trans": True}
    assert getattr(c, op)(mx.nd.array(np.ones((1, 4, 6, 6))), rois, **size).shape == (1, 4, 2, 2)


def test_gradient_of_rotated_regions_equals_roi_align():
    # MXNet has no such gradient. A region rotated by 360 degrees must equal that of ROIAlign.
    rng = np.random.RandomState(0)
    values, heads = rng.uniform(-1, 1, (1, 2, 7, 7)), rng.uniform(-1, 1, (1, 2, 2, 3))
    grads = []
    for op, roi in ((c.ROIAlign, [0, 1, 2, 5, 6]), (c.RROIAlign, [0, 3, 4, 4, 4, 360])):
        x = mx.nd.array(values)
        x.attach_grad()
        with mx.autograd.record():
            y = op(x, mx.nd.array([roi]), pooled_size=(2, 3), spatial_scale=1)
        y.backward(mx.nd.array(heads))
        grads.append(x.grad.asnumpy())
    np.testing.assert_allclose(grads[0], grads[1], atol=1e-5)


def test_proposal_accepts_several_images():
    # MXNet's Proposal rejects them; here it equals MultiProposal.
    rng = np.random.RandomState(0)
    inputs = [rng.uniform(0, 1, (2, 2, 3, 3)), rng.uniform(-1, 1, (2, 4, 3, 3)), [[48, 48, 1], [40, 40, 1]]]
    kwargs = {"scales": (1,), "ratios": (1,), "rpn_post_nms_top_n": 4, "rpn_min_size": 1}
    one, many = (op(*map(mx.nd.array, inputs), **kwargs).asnumpy() for op in (c.Proposal, c.MultiProposal))
    np.testing.assert_array_equal(one, many)
    assert one[:, 0].tolist() == [0] * 4 + [1] * 4


def meta(*shape):
    return torch.empty(shape, device="meta")


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "shapes"),
    [
        ("_contrib_box_nms", [(2, 3, 6)], {}, [(2, 3, 6)]),
        ("_contrib_bipartite_matching", [(2, 3, 6)], {"threshold": 0.5}, [(2, 3), (2, 6)]),
        ("_contrib_MultiBoxTarget", [(1, 3, 4), (2, 1, 5), (2, 2, 3)], {"negative_mining_ratio": 3.0},
         [(2, 12), (2, 12), (2, 3)]),
        ("_contrib_MultiBoxDetection", [(2, 2, 3), (2, 12), (1, 3, 4)], {}, [(2, 3, 6)]),
        ("_contrib_MultiProposal", [(2, 24, 3, 3), (2, 48, 3, 3), (2, 3)], {"output_score": True},
         [(600, 5), (600, 1)]),
        ("ROIPooling", [(1, 4, 6, 6), (3, 5)], {"pooled_size": (2, 3), "spatial_scale": 1.0}, [(3, 4, 2, 3)]),
        ("_contrib_ROIAlign", [(1, 4, 6, 6), (3, 5)], {"pooled_size": (2, 3), "spatial_scale": 1.0}, [(3, 4, 2, 3)]),
        ("_contrib_RROIAlign", [(1, 4, 6, 6), (3, 6)], {"pooled_size": (2, 3), "spatial_scale": 1.0}, [(3, 4, 2, 3)]),
        ("_contrib_PSROIPooling", [(1, 4, 6, 6), (3, 5)], {"spatial_scale": 1.0, "output_dim": 1, "pooled_size": 2},
         [(3, 1, 2, 2)]),
        ("_image_random_flip_left_right", [(4, 4, 3)], {"ctx": mx.cpu()}, [(4, 4, 3)]),
        ("_image_random_hue", [(4, 4, 3)], {"ctx": mx.cpu(), "min_factor": 0.5, "max_factor": 1.0}, [(4, 4, 3)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_shapes_are_inferred_on_meta_tensors(name, inputs, attrs, shapes):
    result = OPS[name].fn(*[meta(*shape) for shape in inputs], **attrs)
    assert [tuple(r.shape) for r in ([result] if isinstance(result, torch.Tensor) else result)] == shapes
