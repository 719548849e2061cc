"""EMA: an exponential moving average of the weights, which often generalizes better than the last weights."""

from __future__ import annotations

import os
from types import TracebackType

import torch

from .. import ndarray as nd
from ..base import MXNetError
from ..comm.session import session
from ..context import cpu
from ..gluon.loading import holders_of, named
from ..gluon.nn import Block
from ..ndarray import NDArray

_COUNT = "ema.updates"  # in a file: the number of updates


class EMA:
    """The moving average of the weights and running statistics of a Block or torch module.

    Call `update` after each step. Each update moves the average toward the weights: average = decay * average +
    (1 - decay) * weight. With `warmup`, the n-th update uses min(decay, n / (n + 9)), so that the average forgets the
    initial weights. Within `with ema:` the network has the averages:

        ema = learn.EMA(net, decay=0.999)
        ...
            trainer.step(n)
            ema.update()
        with ema:
            evaluate(net)

    All parameters must be initialized. Averages of half precision weights are kept in float32. Integers, such as
    counters of a torch module, are copied.
    """

    def __init__(self, net: Block | torch.nn.Module, decay: float = 0.999, warmup: bool = True) -> None:
        if not isinstance(decay, int | float) or isinstance(decay, bool) or not 0 <= decay < 1:
            raise ValueError(f"decay must be a number of at least 0 and below 1, received {decay!r}")
        if not isinstance(net, Block | torch.nn.Module):
            raise TypeError(f"expected a Block or a torch module, received {net!r:.80}")
        self.decay, self.warmup, self.updates = float(decay), warmup, 0
        self._net = net
        self._averages = {name: _wide(values[0]).clone() for name, values in self._weights().items()}
        self._kept: dict[str, torch.Tensor] | None = None  # the weights, while the network has the averages

    def _weights(self) -> dict[str, list[torch.Tensor]]:
        """Return the tensors of the network, one for each context, by their position in the network."""
        if isinstance(self._net, torch.nn.Module):
            return {name: [tensor.detach()] for name, tensor in self._net.state_dict().items()}
        params = self._net._collect_params_with_prefix()
        if holders_of(params.values()) is not None:
            raise MXNetError("EMA needs whole weights, but a layout has divided those of this network")
        return {name: [array._data.detach() for array in param.list_data()] for name, param in params.items()}

    # ---- averaging ----

    def update(self) -> None:
        """Move the averages toward the current weights."""
        if self._kept is not None:
            raise MXNetError("update() within `with ema:` would average the averages. Call it after the block")
        self.updates += 1
        decay = min(self.decay, self.updates / (self.updates + 9)) if self.warmup else self.decay
        averages, weights = [], []
        for name, (weight, *_) in self._weights().items():
            if weight.is_floating_point():
                averages.append(self._averages[name])
                weights.append(_wide(weight))
            else:
                self._averages[name].copy_(weight)
        if averages:
            torch._foreach_lerp_(averages, weights, 1 - decay)

    def agree(self) -> None:
        """Copy the averages of the worker with the most updates. All workers must call it.

        It is only needed if workers have different numbers of batches: a worker without a batch joins the step of the
        others, but does not call `update`.
        """
        group = session().group
        counts = group.all_gather_small(torch.tensor([self.updates])).flatten().tolist()
        source = counts.index(max(counts))
        group.broadcast_all_(list(self._averages.values()), source)
        self.updates = counts[source]

    # ---- using the averages ----

    def __enter__(self) -> EMA:
        if self._kept is not None:
            raise MXNetError("the network already has the averages: `with ema:` cannot be nested")
        self._kept = {name: values[0].clone() for name, values in self._weights().items()}
        self._write(self._averages)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._kept is not None
        self._write(self._kept)
        self._kept = None

    def _write(self, values: dict[str, torch.Tensor]) -> None:
        for name, tensors in self._weights().items():
            for tensor in tensors:
                tensor.data.copy_(values[name])

    # ---- files ----

    def save(self, filename: str | os.PathLike[str]) -> None:
        """Write the averages to a `.params` file. `net.load_parameters(filename, ignore_extra=True)` reads it too."""
        arrays = {name: NDArray(values, cpu()) for name, values in self._averages.items()}
        nd.save(os.fspath(filename), {**arrays, _COUNT: nd.array([self.updates], dtype="int64")})

    def load(self, filename: str | os.PathLike[str]) -> None:
        """Read averages that `save` has written. If any of them does not fit, nothing is changed."""
        found = {name: array._data for name, array in named(nd.load(os.fspath(filename)), f" in {filename}").items()}
        if _COUNT not in found:
            raise MXNetError(f"{filename} was not written by EMA.save: it does not contain {_COUNT!r}")
        updates = int(found.pop(_COUNT))
        for name in [*self._averages, *found]:
            mine, theirs = (_described(values.get(name)) for values in (self._averages, found))
            if mine != theirs:
                raise MXNetError(f"{name} is {theirs} in {filename}, and {mine} in the network. Nothing was loaded")
        for name, values in found.items():
            self._averages[name].copy_(values)
        self.updates = updates


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in which small differences do not vanish."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _described(tensor: torch.Tensor | None) -> str:
    return "missing" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
