"""Pooling over regions of interest."""

import numpy as np

from parity.spec import const, f, family, outcome

case, program = family(__name__)

ROIS = [[0, 0, 0, 4, 4], [1, 2.3, 3.1, 7.7, 6.4], [0, -1, -1, 20, 20], [1, 5, 5, 3, 3], [0, 1.5, 2.5, 2.5, 3.5]]
ROIS += [[1, 8, 7, 8, 7], [0, 30, 30, 40, 40], [1, -9, -8, -6, -5], [0, 0.5, 0.5, 12.5, 9.5]]
UPRIGHT = [r for r in ROIS if r[3] > r[1]]

for pooled, scale in (((2, 3), 1.0), ((3, 3), 0.5), ((7, 5), 0.8), ((1, 1), 1.0)):
    case("ROIPooling", f(2, 3, 8, 9), const(ROIS), pooled_size=pooled, spatial_scale=scale)
    case("_contrib_ROIAlign", f(2, 3, 8, 9), const(ROIS), pooled_size=pooled, spatial_scale=scale)
# Pixels that tie: the first takes the gradient. Regions of an image that is not there are zero.
case(
    "ROIPooling", const(np.zeros((1, 1, 4, 4)).tolist()), const([[0, 0, 0, 3, 3]]), pooled_size=(2, 2), spatial_scale=1
)
case("ROIPooling", f(2, 2, 4, 4), const([[-1, 0, 0, 3, 3], [2, 0, 0, 3, 3], [1.7, 0, 0, 3, 3]]), pooled_size=(2, 2),
     spatial_scale=1)  # fmt: skip
case("ROIPooling", f(1, 2, 6, 6, dtype="float64"), const([[0, 0, 1, 4, 5]], "float64"), pooled_size=(3, 2),
     spatial_scale=1)  # fmt: skip
case("ROIPooling", f(1, 2, 6, 6, dtype="float16"), const([[0, 0, 1, 4, 5]], "float16"), pooled_size=(3, 2),
     spatial_scale=1)  # fmt: skip

for kwargs in (
    dict(sample_ratio=1),
    dict(sample_ratio=2, spatial_scale=0.5),
    dict(sample_ratio=3, position_sensitive=True),
    dict(position_sensitive=True, spatial_scale=0.7),
):
    kwargs = dict(dict(spatial_scale=1.0), **kwargs)
    case("_contrib_ROIAlign", f(2, 12, 8, 9), const(ROIS), pooled_size=(2, 2), **kwargs)
for kwargs in (dict(), dict(sample_ratio=2), dict(position_sensitive=True)):
    case("_contrib_ROIAlign", f(2, 12, 8, 9), const(UPRIGHT), pooled_size=(2, 3), spatial_scale=0.6, aligned=True,
         **kwargs)  # fmt: skip
case("_contrib_ROIAlign", f(2, 2, 4, 4), const([[1.7, 0, 0, 3, 3]]), pooled_size=(2, 2),
     spatial_scale=1)  # fmt: skip
case("_contrib_ROIAlign", f(1, 2, 6, 6, dtype="float64"), const([[0, 0, 1, 4, 5]], "float64"), pooled_size=(3, 2),
     spatial_scale=1)  # fmt: skip
case("_contrib_ROIAlign", f(1, 2, 6, 6, dtype="float16"), const([[0, 0, 1, 4, 5]], "float16"), pooled_size=(3, 2),
     spatial_scale=1)  # fmt: skip

TURNED = [
    [0, 4, 3, 5, 4, 30],
    [1, 3.3, 4.1, 6, 2.5, -75],
    [0, 0, 0, 4, 4, 45],
    [1, 7, 7, 9, 3, 180],
    [0, 4, 4, 3, 3, 0],
]
for kwargs in (dict(), dict(sampling_ratio=2), dict(sampling_ratio=3, spatial_scale=0.5)):
    kwargs = dict(dict(spatial_scale=1.0), **kwargs)
    # MXNet has no gradient here.
    case("_contrib_RROIAlign", f(2, 3, 8, 9), const(TURNED), pooled_size=(2, 3), _grad=False, **kwargs)

for kwargs in (
    dict(output_dim=3, pooled_size=2, spatial_scale=1.0),
    dict(output_dim=3, pooled_size=2, spatial_scale=0.45, group_size=2),
    dict(output_dim=3, pooled_size=5, spatial_scale=0.8, group_size=2),
    dict(output_dim=12, pooled_size=3, spatial_scale=1.0, group_size=1),
):
    case("_contrib_PSROIPooling", f(2, 12, 8, 9), const(ROIS), **kwargs)

for kwargs in (
    dict(output_dim=3, group_size=2, pooled_size=2, spatial_scale=1.0),
    dict(output_dim=3, group_size=2, pooled_size=3, spatial_scale=0.5, sample_per_part=4),
    dict(output_dim=12, group_size=1, pooled_size=2, spatial_scale=0.7, sample_per_part=2, trans_std=0.1),
):
    case("_contrib_DeformablePSROIPooling", f(2, 12, 8, 9), const(ROIS), no_trans=True, **kwargs)
for kwargs, trans in (
    (dict(output_dim=3, group_size=2, pooled_size=2), f(9, 2, 2, 2)),
    (dict(output_dim=3, group_size=2, pooled_size=2, trans_std=0.3), f(9, 2, 2, 2)),
    (dict(output_dim=3, group_size=2, pooled_size=4, part_size=2, sample_per_part=2, trans_std=0.1), f(9, 2, 2, 2)),
    (dict(output_dim=12, group_size=1, pooled_size=3, sample_per_part=3, trans_std=0.2), f(9, 6, 3, 3)),
    (dict(output_dim=3, group_size=2, pooled_size=3, sample_per_part=3, trans_std=0.2), f(9, 6, 3, 3)),
):
    for scale in (1.0, 0.6):
        case("_contrib_DeformablePSROIPooling", f(2, 12, 8, 9), const(ROIS), trans, spatial_scale=scale,
             **kwargs)  # fmt: skip


@program
def refused(mx):
    c = mx.nd.contrib

    def ones(*shape):
        return mx.nd.array(np.ones(shape))

    size = dict(pooled_size=(2, 2), spatial_scale=1)
    return [
        outcome(lambda: mx.nd.ROIPooling(ones(1, 3, 4, 4), ones(2, 4), **size)),
        outcome(lambda: mx.nd.ROIPooling(ones(3, 4, 4), ones(2, 5), **size)),
        outcome(lambda: c.ROIAlign(ones(1, 3, 4, 4), ones(1, 2, 5), **size)),
        outcome(lambda: c.RROIAlign(ones(1, 3, 4, 4), ones(2, 5), **size)),
    ]
