"""Quantization of floats to 8 bits and back, and calibration of the range.

A symmetric scale maps [-range, range] to the integers: 0 stays 0, and negative values become 0 in uint8. These ops
have no gradients.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from ..base import MXNetError
from .table import Types, by_data, op, typed

Tensor = torch.Tensor

_LIMITS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
_BYTE = {"uint8": torch.uint8, "int8": torch.int8}
# The integer that the end of the range maps to. quantize_v2 and dequantize add half a step.
_STEPS = {torch.uint8: 255.0, torch.int8: 127.0}
_HALF_STEPS = {torch.uint8: 255.5, torch.int8: 127.5}
_INT32_STEPS = 2147483647.0


def _to_bytes(data: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return (data * scale).round_().clamp_(*_LIMITS[dtype]).to(dtype)


def _range(low: Tensor, high: Tensor) -> Tensor:
    return torch.maximum(low.abs(), high.abs())


def _one(value: float, like: Tensor) -> Tensor:
    return torch.full((1,), value, dtype=torch.float32, device=like.device)


def _check_range(low: Tensor, high: Tensor) -> None:
    if low.shape != (1,) or high.shape != (1,):
        raise MXNetError("expected min_range and max_range to have shape (1,)")


def _check_floats(data: Tensor) -> None:
    if data.dtype is not torch.float32:
        raise MXNetError("expected float32 data")


def _calibrated(data: Tensor, low: float | None, high: float | None) -> tuple[Tensor, Tensor]:
    """Return the calibrated range, or the range of the data."""
    if low is not None and high is not None:
        return _one(low, data), _one(high, data)
    low_seen, high_seen = torch.aminmax(data)
    return low_seen.reshape(1), high_seen.reshape(1)


@by_data
def _range_shapes(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    return [(1,), (1,)]


def _byte_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    """Return the dtypes of the bytes and their range. "auto" is unsigned if the range is."""
    lowest = attrs.get("min_calib_range")
    byte = _BYTE.get(attrs["out_type"], torch.int8 if lowest is None or lowest < 0 else torch.uint8)
    return [types[0], *(t or torch.float32 for t in types[1:])], [byte, torch.float32, torch.float32]


@op("_contrib_quantize", outputs=3, infer=_range_shapes, types=_byte_types)
def quantize(
    data: Tensor, min_range: Tensor, max_range: Tensor, *, out_type: Literal["int8", "uint8"] = "uint8"
) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize floats of a given range to bytes. Returns the bytes and the range they represent."""
    _check_range(min_range, max_range)
    _check_floats(data)
    data, low, high = data.detach(), min_range.detach(), max_range.detach()
    dtype, limit = _BYTE[out_type], _range(low, high)
    result = _to_bytes(data, _STEPS[dtype] / limit, dtype)
    return (result, -limit, limit) if dtype is torch.int8 else (result, low.clone(), high.clone())


@op("_contrib_quantize_v2", may_alias=True, outputs=3, types=_byte_types)
def quantize_v2(
    data: Tensor,
    *,
    out_type: Literal["auto", "int8", "uint8"] = "int8",
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize floats to bytes by a calibrated range or the data's range. 'auto' is uint8 if the former is >= 0."""
    data = data.detach()
    if out_type == "auto":
        out_type = "uint8" if min_calib_range is not None and min_calib_range >= 0 else "int8"
    dtype = _BYTE[out_type]
    if data.dtype in _BYTE.values():  # already quantized
        least = 0.0 if data.dtype is torch.uint8 else -_HALF_STEPS[torch.int8]
        return data.to(dtype), _one(least, data), _one(_HALF_STEPS[data.dtype], data)
    _check_floats(data)
    low, high = _calibrated(data, min_calib_range, max_calib_range)
    limit = _range(low, high)
    result = _to_bytes(data, _HALF_STEPS[dtype] / limit, dtype)
    return (result, -limit, limit) if dtype is torch.int8 else (result, low, high)


@op("_contrib_quantize_asym", outputs=("output", "scale", "shift"), types=typed([torch.uint8, 0, 0]))
def quantize_asym(
    data: Tensor, *, min_calib_range: float | None = None, max_calib_range: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize floats to uint8 as data * scale + shift, which maps the range to 0...255. Returns also scale, shift."""
    _check_floats(data)
    data = data.detach()
    low, high = _calibrated(data, min_calib_range, max_calib_range)
    scale = 255.0 / (high - low)
    shift = 255.0 - high * scale
    return (data * scale).add_(shift).round_().clamp_(0, 255).to(torch.uint8), scale, shift


@op(
    "_contrib_dequantize",
    infer=_range_shapes,
    types=typed([torch.float32], [torch.uint8, torch.float32, torch.float32]),
)
def dequantize(
    data: Tensor, min_range: Tensor, max_range: Tensor, *, out_type: Literal["float32"] = "float32"
) -> Tensor:
    """Convert bytes that represent a range to floats."""
    _check_range(min_range, max_range)
    if data.dtype not in _HALF_STEPS:
        raise MXNetError("expected uint8 or int8 data")
    return data * (_range(min_range.detach(), max_range.detach()) / _HALF_STEPS[data.dtype])


@op(
    "_contrib_requantize",
    outputs=3,
    infer=_range_shapes,
    types=lambda types, a: _byte_types([types[0] or torch.int32, *types[1:]], a),
)
def requantize(
    data: Tensor,
    min_range: Tensor,
    max_range: Tensor,
    *,
    out_type: Literal["auto", "int8", "uint8"] = "int8",
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Convert int32 values that represent a range to bytes that represent a calibrated range or the data's range."""
    _check_range(min_range, max_range)
    if data.dtype is not torch.int32:
        raise MXNetError("expected int32 data")
    if out_type == "auto":
        out_type = "uint8" if min_calib_range is not None and min_calib_range >= 0 else "int8"
    dtype = _BYTE[out_type]
    unit = _range(min_range.detach(), max_range.detach()) / _INT32_STEPS
    if min_calib_range is not None and max_calib_range is not None:
        limit = _one(max(abs(min_calib_range), abs(max_calib_range)), data)
    else:
        limit = _range(*(edge.reshape(1).double() for edge in torch.aminmax(data))).float() * unit
    result = _to_bytes(data, unit * (_STEPS[dtype] / limit), dtype)
    return result, (-limit if dtype is torch.int8 else torch.zeros_like(limit)), limit


# ---- calibration ----


@op("_contrib_calibrate_entropy", outputs=2)
def calibrate_entropy(hist: Tensor, hist_edges: Tensor, *, num_quantized_bins: int = 255) -> tuple[Tensor, Tensor]:
    """The threshold at which the clipped and quantized histogram is closest to the original, and their divergence.

    The histogram is symmetric about 0 and has an odd number of bins. Values beyond the threshold are counted in the
    outermost bins. The measure is the Kullback-Leibler divergence.
    """
    if hist.dim() != 1 or hist_edges.shape != (hist.shape[0] + 1,) or hist.shape[0] % 2 == 0:
        raise MXNetError("expected a histogram with an odd number of bins and one more edge")
    if not 0 < num_quantized_bins <= hist.shape[0]:
        raise MXNetError(f"expected num_quantized_bins between 1 and {hist.shape[0]}, the number of bins")
    _check_floats(hist)
    counts, edges = hist.detach().cpu().double(), hist_edges.detach().cpu()
    before = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    middle = len(counts) // 2
    best, threshold = math.inf, edges[-1]
    for half in range(num_quantized_bins // 2, middle + 1):
        start, stop = middle - half, middle + half + 1
        inside = counts[start:stop]
        whole = inside.clone()
        whole[0] += before[start]
        whole[-1] += before[-1] - before[stop]
        divergence = _divergence(whole, _quantized(inside, whole != 0, num_quantized_bins))
        if divergence < best:
            best, threshold = divergence, edges[stop]
    result = hist.new_tensor([float(threshold), best])
    return result[:1], result[1:]


def _quantized(inside: Tensor, used: Tensor, bins: int) -> Tensor:
    """Merge adjacent bins into `bins` bins and spread each evenly over its nonempty original bins."""
    counts = inside.clone()
    counts[0] = 0  # MXNet ignores the first bin here
    group = torch.arange(len(counts)).div_(len(counts) // bins, rounding_mode="floor").clamp_(max=bins - 1)
    total = counts.new_zeros(bins).index_add_(0, group, counts)
    members = counts.new_zeros(bins).index_add_(0, group, (counts != 0).double())
    return torch.where(used, (total / members.clamp_(min=1))[group], 0.0)


def _divergence(p: Tensor, q: Tensor) -> float:
    """Return the Kullback-Leibler divergence of two smoothed histograms, or infinity if smoothing is not possible."""
    smoothed = []
    for counts in (p, q):
        empty = counts == 0
        zeros = int(empty.sum())
        if zeros == len(counts):
            return math.inf
        moved = 1e-4 * zeros / (len(counts) - zeros)
        if moved >= 1:
            return math.inf
        counts = torch.where(empty, 1e-4, counts - moved)
        smoothed.append(counts / counts.sum())
    return float(torch.sum(smoothed[0] * torch.log(smoothed[0] / smoothed[1])))
