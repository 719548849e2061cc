"""Error messages of box and region ops for invalid input."""

import numpy as np
import pytest

import neomx as mx

c = mx.nd.contrib


def ones(*shape, dtype="float32"):
    return mx.nd.array(np.ones(shape), dtype=dtype)


MAP, ROIS = ones(1, 4, 6, 6), ones(2, 5)
POOL = {"pooled_size": (2, 2), "spatial_scale": 1}
GROUPS = {"spatial_scale": 1, "output_dim": 1, "pooled_size": 2, "group_size": 2}
RPN = {"scales": (1,), "ratios": (1,)}
ANCHORS, LABELS, PREDICTED = ones(1, 3, 4), ones(2, 1, 5), ones(2, 2, 3)

CALLS = [
    (lambda: c.box_iou(ones(4), ones(2, 4)), "expected boxes of shape (..., n, 4)"),
    (lambda: c.box_iou(ones(2, 4, dtype="int32"), ones(2, 4, dtype="int32")), "floating point"),
    (lambda: c.box_iou(ones(2, 4), ones(2, 4), format="middle"), "expected one of 'center', 'corner'"),
    (lambda: c.box_iou(ones(2, 4), ones(2, 4, dtype="float64")), "one dtype"),
    (lambda: c.box_nms(ones(6)), "expected rows of boxes"),
    (lambda: c.box_nms(ones(3, 5)), "coord_start=2: expected four coordinates within the 5 columns"),
    (lambda: c.box_nms(ones(3, 6), score_index=3), "score_index=3 is one of the coordinates 2 to 5"),
    (lambda: c.box_nms(ones(3, 6), id_index=5), "id_index=5 is one of the coordinates"),
    (lambda: c.box_nms(ones(3, 6), score_index=9), "score_index=9: expected one of the 6 columns"),
    (lambda: c.box_nms(ones(3, 6, dtype="int32")), "floating point"),
    (lambda: c.bipartite_matching(ones(3), threshold=1), "expected scores of shape"),
    (lambda: c.bipartite_matching(ones(3, 3)), "missing argument threshold"),
    (lambda: c.box_decode(ones(2, 3, 4), ones(2, 3, 4)), "anchors of shape (1, n, 4)"),
    (lambda: c.box_encode(ones(2, 3), ones(2, 3), ones(2, 3, 4), ones(1, 3, 4), ones(4), ones(4)), "equal b and n"),
    (lambda: c.box_encode(ones(2, 3), ones(2, 3), ones(2, 3, 4), ones(2, 3, 4), ones(3), ones(4)), "(4,)"),
    (lambda: c.MultiBoxPrior(ones(3, 2, 2)), "expected a feature map"),
    (lambda: c.MultiBoxPrior(MAP, ratios=()), "at least one size and one ratio"),
    (lambda: c.MultiBoxPrior(MAP, steps=(0.1, -1)), "expected both to be positive or both negative"),
    (lambda: c.MultiBoxTarget(ones(2, 3, 4), LABELS, PREDICTED), "anchors of shape (1, a, 4), shared by the batch"),
    (lambda: c.MultiBoxTarget(ANCHORS, ones(1, 5), PREDICTED), "expected labels of shape"),
    (lambda: c.MultiBoxTarget(ANCHORS, LABELS, ones(1, 2, 3)), "expected class predictions of shape"),
    (lambda: c.MultiBoxTarget(ANCHORS, LABELS, PREDICTED, variances=(1, 1)), "expected four values"),
    (lambda: c.MultiBoxTarget(ANCHORS, mx.nd.array([[[-1, 0, 0, 1, 1]]] * 2), PREDICTED), "all coordinates to be -1"),
    (
        lambda: c.MultiBoxTarget(
            mx.nd.array([[[0, 0, 1, 1], [0, 0, 1, 0.9]]]),
            mx.nd.array([[[0, 0, 0, 1, 1]]]),
            ones(1, 2, 2),
            overlap_threshold=1,
            negative_mining_ratio=1,
        ),
        "negative mining needs [1] background anchors, but only [0]",
    ),
    (lambda: c.MultiBoxDetection(PREDICTED, ones(2, 3), ANCHORS), "box predictions of shape (b, a * 4)"),
    (lambda: c.MultiBoxDetection(PREDICTED, ones(2, 12), ones(1, 4, 4)), "anchors of shape (1, a, 4)"),
    (lambda: c.Proposal(ones(1, 4, 3, 3), ones(1, 4, 3, 3), ones(1, 3), **RPN), "cls_prob of shape (b, 2, h, w)"),
    (lambda: c.Proposal(ones(1, 2, 3, 3), ones(1, 8, 3, 3), ones(1, 3), **RPN), "bbox_pred of shape (1, 4, 3, 3)"),
    (lambda: c.MultiProposal(ones(2, 2, 3, 3), ones(2, 4, 3, 3), ones(1, 3), **RPN), "im_info of shape (2, 3)"),
    (lambda: c.Proposal(ones(1, 2, 3, 3), ones(1, 4, 3, 3), ones(1, 3) * 99, **RPN), "too large for a feature map"),
    (lambda: mx.nd.ROIPooling(ones(3, 6, 6), ROIS, **POOL), "expected a feature map"),
    (lambda: mx.nd.ROIPooling(MAP, ones(2, 4), **POOL), "expected regions of shape (r, 5)"),
    (lambda: mx.nd.ROIPooling(MAP, ROIS, pooled_size=(2,), spatial_scale=1), "expected two positive sizes"),
    (lambda: c.ROIAlign(MAP, ROIS, pooled_size=(0, 2), spatial_scale=1), "expected two positive sizes"),
    (lambda: c.ROIAlign(MAP, ROIS, aligned=True, **POOL), "right > left and bottom > top"),
    (
        lambda: c.ROIAlign(MAP, ROIS, pooled_size=(3, 3), spatial_scale=1, position_sensitive=True),
        "multiple of the 9 cells",
    ),
    (lambda: c.RROIAlign(MAP, ROIS, **POOL), "expected regions of shape (r, 6)"),
    (lambda: c.PSROIPooling(MAP, ROIS, output_dim=2, pooled_size=2, spatial_scale=1), "expected 8 channels"),
    (lambda: c.DeformablePSROIPooling(MAP, ROIS, ones(2, 2, 3, 3), **GROUPS), "expected trans of shape"),
    (lambda: c.DeformablePSROIPooling(MAP, ROIS, ones(2, 4, 2, 2), **GROUPS), "multiple of the 2 classes"),
    (lambda: c.DeformablePSROIPooling(MAP, ROIS, **GROUPS), "expected trans; pass no_trans=True to omit it"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=range(len(CALLS)))
def test_error_states_what_was_expected(call, message):
    with pytest.raises(mx.MXNetError) as error:
        call()
    assert message in str(error.value)
