"""Ops that belong to no other module: Fourier transforms, count sketch and Hawkes processes."""

from __future__ import annotations

import torch

from ..base import MXNetError
from .table import op, typed

Tensor = torch.Tensor


@op("_contrib_fft")
def fft(data: Tensor, *, compute_size: int = 128) -> Tensor:
    """The Fourier transform of the last dimension, (..., d) to (..., 2 d): real and imaginary parts alternate."""
    return torch.view_as_real(torch.fft.fft(data)).flatten(-2)


@op("_contrib_ifft")
def ifft(data: Tensor, *, compute_size: int = 128) -> Tensor:
    """The real part of the inverse Fourier transform of the output of fft, without the division by d."""
    if data.shape[-1] % 2:
        raise MXNetError("expected a last dimension of even size: real and imaginary parts alternate")
    pairs = data.reshape(*data.shape[:-1], -1, 2).contiguous()
    return torch.fft.ifft(torch.view_as_complex(pairs), norm="forward").real


@op("_contrib_count_sketch")
def count_sketch(data: Tensor, h: Tensor, s: Tensor, *, out_dim: int, processing_batch_size: int = 32) -> Tensor:
    """Project the last dimension to size out_dim: element i is added to index h[i] with sign s[i]."""
    if h.numel() != data.shape[-1] or s.numel() != data.shape[-1]:
        raise MXNetError(f"expected h and s to have {data.shape[-1]} elements, the size of the last dimension of data")
    place = h.detach().reshape(-1).long()
    _check_within("h", place, out_dim)
    result = data.new_zeros(*data.shape[:-1], out_dim)
    return result.index_add(-1, place, data * s.detach().reshape(-1))


def _check_within(name: str, index: Tensor, size: int) -> None:
    # On a GPU a bad index would kill the process's CUDA context instead of raising an error.
    if index.numel() and not index.is_meta and not bool(((index >= 0) & (index < size)).all()):
        raise MXNetError(f"expected {name} to be within 0...{size - 1}")


class _Still(torch.autograd.Function):
    """The identity, with a gradient of 0."""

    @staticmethod
    def forward(ctx, data):
        return data.view_as(data)

    @staticmethod
    def backward(ctx, grad):
        return torch.zeros_like(grad)


@op("_contrib_hawkesll", outputs=("output", "out_state"), types=typed([0, 0], [None, 0, 0, 0, 0, torch.int32, 0, 0]))
def hawkesll(
    lda: Tensor,
    alpha: Tensor,
    beta: Tensor,
    state: Tensor,
    lags: Tensor,
    marks: Tensor,
    valid_length: Tensor,
    max_time: Tensor,
) -> tuple[Tensor, Tensor]:
    """Log likelihood of event sequences under Hawkes processes with exponential decay, and the final states.

    lda (N, K) are background rates, alpha (K,) branching ratios, beta (K,) decays, state (N, K) initial excitations,
    lags (N, T) times between events, and marks (N, T) the process (of K) of each event. Row i has valid_length[i]
    events and ends at max_time[i]. The likelihood has gradients for lda, alpha and beta; the state has none.
    """
    if lda.dim() != 2:
        raise MXNetError(f"expected lda of shape (N, K), got {tuple(lda.shape)}")
    batch, kinds = lda.shape
    if alpha.shape != (kinds,) or beta.shape != (kinds,) or state.shape != lda.shape:
        raise MXNetError(f"expected alpha and beta of shape ({kinds},) and state with the shape of lda")
    if lags.shape != marks.shape or lags.shape[0] != batch:
        raise MXNetError(f"expected lags and marks of the same shape, ({batch}, T)")
    if valid_length.shape != (batch,) or max_time.shape != (batch,):
        raise MXNetError(f"expected valid_length and max_time of shape ({batch},)")
    state, lags, max_time = state.detach(), lags.detach(), max_time.detach()
    time = torch.cumsum(lags, 1)
    happened = torch.arange(lags.shape[1], device=lags.device) < valid_length[:, None]
    kind = marks.long()
    _check_within("marks", kind, kinds)
    rate, branching, decay = lda.gather(1, kind), alpha[kind], beta[kind]
    last = torch.zeros_like(lda)  # the time of each process's last event
    excitation = state
    likelihood = lda.new_zeros(batch)
    for i in range(lags.shape[1]):
        now, k = time[:, i], kind[:, i, None]
        gap = now - last.gather(1, k)[:, 0]
        before = excitation.gather(1, k)[:, 0]
        faded = before * torch.exp(-decay[:, i] * gap)
        intensity = rate[:, i] + branching[:, i] * decay[:, i] * faded
        expected = rate[:, i] * gap + branching[:, i] * (before - faded)
        valid = happened[:, i]
        likelihood = likelihood + torch.where(valid, torch.log(intensity) - expected, 0.0)
        excitation = excitation.scatter(1, k, torch.where(valid, 1 + faded, before)[:, None])
        last = last.scatter(1, k, torch.where(valid, now, now - gap)[:, None])
    gap = max_time[:, None] - last
    faded = excitation * torch.exp(-beta * gap)
    likelihood = likelihood - (lda * gap + alpha * (excitation - faded)).sum(1)
    return likelihood, _Still.apply(faded)
