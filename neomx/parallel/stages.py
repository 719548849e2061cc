"""Stages: a model as a sequence of pieces, cut so that the workers of a pipeline have equal work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import torch

from ..base import MXNetError, modes, suggest
from ..comm.session import session
from ..gluon import Block, nn
from ..gluon.twin import unwrap, wrap
from .model import Model, Weight, elements_of
from .schedules import Schedule

Component: TypeAlias = Model | Callable[..., Any]
CutBy: TypeAlias = str | Sequence[str] | None  # 'time' (None), 'parameters', or the first pieces of later stages
_TIMED = 3  # number of runs of each piece; the fastest counts


class Piece(torch.nn.Module):
    """An indivisible part of a model that runs on tensors: a Block, a torch module, or a function."""

    def __init__(self, name: str, part: Component, takes_arrays: bool = False) -> None:
        """`takes_arrays` means that a function takes arrays instead of tensors."""
        super().__init__()
        self.name, self.part, self._takes_arrays = name, part, takes_arrays
        if isinstance(part, torch.nn.Module):
            self.run = part

    def forward(self, *args: torch.Tensor) -> Any:
        """Compute the output of the part, in train or predict mode by the flag of this module."""
        if isinstance(self.part, (Block, torch.nn.Module)):
            return self.run(*args)
        return on_tensors(self.part, args, self.training) if self._takes_arrays else self.part(*args)

    def open(self) -> None:
        """Create the twin of the Block, after all its parameters have shapes."""
        if isinstance(self.part, Block):
            self.run = self.part.torch()

    def holds(self) -> list[Weight]:
        """Return the Parameters of the Block, or the torch parameters of a torch module."""
        if isinstance(self.part, Block):
            return list(self.part.collect_params().values())
        return list(self.parameters())


def on_tensors(function: Callable[..., Any], args: Sequence[torch.Tensor], training: bool) -> Any:
    """Call a function on arrays with tensors, under torch's grad mode."""
    before = modes.recording, modes.training, modes.plain
    modes.recording, modes.training, modes.plain = torch.is_grad_enabled(), training, True
    try:
        return unwrap(function(*wrap(tuple(args))))
    finally:
        modes.recording, modes.training, modes.plain = before


class StageModule(torch.nn.Module):
    """Consecutive pieces, run one after the other."""

    def __init__(self, pieces: Iterable[Piece], detached: bool) -> None:
        """`detached` means that the schedule detaches outputs in place, so they must not be views."""
        super().__init__()
        self.pieces = torch.nn.ModuleList(pieces)
        self._detached = detached

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        """Return the output of the last piece."""
        for piece in self.pieces:
            output: object = piece(*args)
            if not isinstance(output, torch.Tensor):
                raise MXNetError(
                    f"pipeline: the piece {piece.name} returned a {type(output).__name__}; each piece of a pipeline "
                    "must return one array. Combine pieces that exchange more into one Block"
                )
            args = (output,)
        (last,) = args
        return last.clone() if self._detached and last._is_view() else last


# ---- a model as pieces ----


def pieces_of(net: Model) -> list[Piece]:
    """Return the pieces of a model in execution order. Raise if the model does not define them."""
    parts = list(parts_of(net))
    if parts == [("", net)]:
        raise MXNetError(
            f"cannot cut {_title(net)} into pieces: a pipeline needs a Sequential or HybridSequential, a Block with "
            "`features` and `output`, a torch.nn.Sequential, or a model whose stages() lists (name, Block) pairs in "
            "execution order"
        )
    return [Piece(name, part, isinstance(net, Block)) for name, part in parts]


def _title(net: Model) -> str:
    return f"{type(net).__name__} {net.name}" if isinstance(net, Block) else type(net).__name__


def parts_of(part: Component, name: str = "") -> Iterable[tuple[str, Component]]:
    """Return the consecutive parts of a model by name, or the model itself if it does not define parts."""
    stages, listed = getattr(part, "stages", None), list[tuple[str, Component]]()
    if callable(stages):
        listed = list(stages())
    elif isinstance(part, Block) and type(part) in (nn.Sequential, nn.HybridSequential):
        listed = list(part._children.items())
    elif type(part) is torch.nn.Sequential:
        listed = list(part.named_children())
    elif isinstance(part, Block) and list(part._children) == ["features", "output"]:
        listed = list(part._children.items())
    if not listed:
        yield name, part
    for key, child in listed:
        yield from parts_of(child, f"{name}.{key}" if name else str(key))


def refuse_homeless(net: Model, pieces: Sequence[Piece]) -> None:
    """Raise for parameters of the model that no piece contains, because no stage would train them."""
    held = {id(param) for piece in pieces for param in piece.holds()}
    if isinstance(net, Block):
        named: Iterable[tuple[str, Weight]] = net._collect_params_with_prefix().items()
    else:
        named = net.named_parameters()
    lost = [name for name, param in named if id(param) not in held]
    if lost:
        raise MXNetError(
            f"no stage of the pipeline contains {len(lost)} parameter(s) of {_title(net)}: {', '.join(lost[:8])}. Each "
            f"must belong to one of its {len(pieces)} pieces: {', '.join(piece.name for piece in pieces[:8])}"
        )


# ---- where to cut ----


def balance(costs: Sequence[float], count: int) -> list[int]:
    """Return the end of each of `count` stages that minimizes the cost of the slowest stage. The result is optimal."""
    sums = [0.0, *accumulate(costs)]
    pieces = len(costs)
    best = [sums[end] for end in range(pieces + 1)]  # cost of the slowest stage, if pieces up to `end` form one
    last_cuts: list[list[int]] = []
    for stages in range(2, count + 1):
        cuts = [
            min(range(stages - 1, end), key=lambda cut: max(best[cut], sums[end] - sums[cut])) if end >= stages else 0
            for end in range(pieces + 1)
        ]
        best = [max(best[cut], sums[end] - sums[cut]) for end, cut in enumerate(cuts)]
        last_cuts.append(cuts)
    ends = [pieces]
    for cuts in reversed(last_cuts):
        ends.insert(0, cuts[ends[0]])
    return ends


def ends_at(names: Sequence[str], pieces: Sequence[Piece]) -> list[int]:
    """Return the end of each stage, if each of these pieces starts a new stage."""
    known = [piece.name for piece in pieces]
    starts = []
    for name in names:
        if name not in known:
            begins = [each for each in known if each.startswith(f"{name}.")]
            if not begins:
                raise ValueError(
                    f"cut: unknown piece {name!r}.{suggest(name, known)} The pieces are {', '.join(known)}"
                )
            name = begins[0]
        starts.append(known.index(name))
    if starts != sorted(set(starts)) or 0 in starts:
        raise ValueError(
            f"cut: expected the first pieces of the second and later stages, in this order: {', '.join(known[1:])}; "
            f"received {', '.join(names)}"
        )
    return [*starts, len(pieces)]


def by_parameters(pieces: Sequence[Piece]) -> list[float]:
    """Return the cost of each piece: its number of parameter elements, at least a small positive cost."""
    return [1.0 + sum(elements_of(param) for param in piece.holds()) for piece in pieces]


def by_time(pieces: Sequence[Piece], inputs: Sequence[torch.Tensor]) -> list[float]:
    """Return the cost of each piece: seconds for forward and backward of one micro-batch, on the first worker."""
    seconds = []
    for piece in pieces:
        piece.train(False)
        taken, output = min((_timed(piece, inputs) for _ in range(_TIMED)), key=lambda pair: pair[0])
        piece.train(True)
        seconds.append(taken)
        inputs = (output,)
    opened = session()
    if opened.generations is not None:  # workers that join later need the same times
        key = f"layout/times of {'/'.join(piece.name for piece in pieces)}"
        times: list[float] = json.loads(opened.generations.store.compare_set(key, b"", json.dumps(seconds)))
        return times
    agreed = torch.tensor(seconds, dtype=torch.float64)
    opened.group.broadcast_(agreed, 0, "the time of each piece")
    return agreed.tolist()


def _timed(piece: Piece, inputs: Sequence[torch.Tensor]) -> tuple[float, torch.Tensor]:
    """Time a piece in predict mode, which changes no state and draws no random numbers."""
    leaves = [each.detach().requires_grad_(each.is_floating_point()) for each in inputs]
    began = time.perf_counter()
    output = piece(*leaves)
    wanted = [each for each in (*leaves, *piece.parameters()) if each.requires_grad]
    if output.requires_grad:
        torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)
    return time.perf_counter() - began, output.detach()


# ---- what a worker keeps ----


def free_elsewhere(net: torch.nn.Module, stages: Iterable[StageModule]) -> None:
    """Free the parameters of a torch module that are not in these stages. Other workers hold them."""
    modules = {id(module) for stage in stages for module in stage.modules()}
    kept = {id(param) for module in net.modules() if id(module) in modules for param in module.parameters()}
    for module in net.modules():
        for key, param in module._parameters.items():
            if param is not None and id(param) not in kept:
                param.grad, param.data = None, param.data.new_empty(0)
            elif param is not None and id(module) not in modules:  # a kept parameter under a name of another stage
                module._parameters[key] = torch.nn.Parameter(param.data.new_empty(0), requires_grad=False)


# ---- a cut ----


class Cut:
    """The cut of a model into stages, checked before anything runs."""

    def __init__(self, net: Model, workers: int, schedule: Schedule, how: CutBy, microbatches: int) -> None:
        """`how` is 'time' (None), 'parameters', or the names of the first pieces of later stages."""
        self.schedule, self.workers, self.microbatches, self._how = schedule, workers, microbatches, how
        self.pieces = pieces_of(net)
        refuse_homeless(net, self.pieces)
        self._given: list[int] | None = None
        if isinstance(how, str) and how not in ("time", "parameters"):
            raise ValueError(f"cut must be 'time', 'parameters' or a list of names, received {how!r}")
        if how is not None and not isinstance(how, str):
            self._given = ends_at(how, self.pieces)
        self.stages = schedule.stages * workers if self._given is None else len(self._given)
        schedule.check(workers, self.stages, microbatches)
        if len(self.pieces) < self.stages:
            raise MXNetError(
                f"{self.stages} stages need at least as many pieces, and the model has {len(self.pieces)}: "
                f"{', '.join(piece.name for piece in self.pieces)}"
            )

    def groups(self, inputs: Sequence[torch.Tensor]) -> list[list[Piece]]:
        """Return the pieces of each stage. `inputs` is one micro-batch, used to measure time."""
        ends = self._given
        if ends is None:
            costs = by_parameters(self.pieces) if self._how == "parameters" else by_time(self.pieces, inputs)
            ends = balance(costs, self.stages)
        return [list(self.pieces[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]

    @property
    def bubble(self) -> float:
        """The minimum fraction of time that workers are idle."""
        return self.schedule.bubble(self.workers, self.stages, self.microbatches)

    def place(self, stage: int) -> int:
        """Return the worker of the pipeline that holds a stage."""
        return self.schedule.place(stage, self.workers)
