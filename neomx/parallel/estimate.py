"""estimate: the memory and communication of a layout on each worker, before anything is allocated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import autograd
from .. import optimizer as opt
from ..context import cpu
from ..gluon import Block
from ..gluon.twin import unwrap, wrap
from ..ndarray import NDArray
from .apply import check_shard, units
from .checkpointing import Checkpointed, chosen_by
from .dimensions import Plan
from .layout import Layout, check_layout
from .model import Model
from .phantom import Saved, inputs_like, phantom_of, run, without_memory
from .schedules import Schedule, find_schedule
from .stages import Cut, CutBy
from .styles import layer_of

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "point to point")


@dataclass(frozen=True)
class Footprint:
    """What a worker needs, in bytes. If parts have different sizes, this is the worker with the largest."""

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int  # kept for backward, for all micro-batches in flight
    buffers: int  # gradients in transit, and parameters gathered from other workers
    temporary: int  # the gradient of the largest activation, in backward
    sent: dict[str, int] = field(default_factory=dict)  # per step, by kind; for collectives, the size of their data

    @property
    def peak(self) -> int:
        """The sum of all parts."""
        model = self.parameters + self.gradients + self.optimizer_state
        return model + self.activations + self.buffers + self.temporary


@dataclass(frozen=True)
class Estimate:
    """What each worker of a layout needs. Each number is the maximum over the workers of a pipeline."""

    layout: Layout
    workers: tuple[Footprint, ...]  # one for each worker of a pipeline; its peers in other dimensions need the same

    def _most(self, name: str) -> int:
        return max(int(getattr(each, name)) for each in self.workers)

    @property
    def parameters(self) -> int:
        """Bytes of parameters and buffers, such as running means."""
        return self._most("parameters")

    @property
    def gradients(self) -> int:
        """Bytes of gradients."""
        return self._most("gradients")

    @property
    def optimizer_state(self) -> int:
        """Bytes of optimizer states."""
        return self._most("optimizer_state")

    @property
    def activations(self) -> int:
        """Bytes kept for backward."""
        return self._most("activations")

    @property
    def buffers(self) -> int:
        """Bytes of gradients in transit and of parameters gathered from other workers."""
        return self._most("buffers")

    @property
    def temporary(self) -> int:
        """Bytes that backward needs temporarily: the gradient of the largest activation."""
        return self._most("temporary")

    @property
    def peak(self) -> int:
        """Bytes in total, on the worker with the most."""
        return self._most("peak")

    @property
    def sent(self) -> dict[str, int]:
        """Bytes that a worker exchanges in a step: 'all-reduce', 'all-gather', 'reduce-scatter', 'point to point'.

        For a collective, these are the bytes of the whole tensor that it sums or gathers.
        """
        return {kind: max(each.sent.get(kind, 0) for each in self.workers) for kind in KINDS}

    def __str__(self) -> str:
        columns = ("parameters", "gradients", "optimizer_state", "activations", "buffers", "temporary", "peak")
        rows = [["memory of a worker", *(name.replace("_", " ") for name in columns)]]
        rows += [[self._title(i), *(_readable(getattr(f, c)) for c in columns)] for i, f in enumerate(self.workers)]
        sent = [["sent in a step", *KINDS]]
        sent += [[self._title(i), *(_readable(f.sent.get(k, 0)) for k in KINDS)] for i, f in enumerate(self.workers)]
        return f"{self.layout}, {self.layout.size} workers\n{_table(rows)}\n{_table(sent)}"

    def _title(self, worker: int) -> str:
        return f"pipeline {worker}" if len(self.workers) > 1 else "each"


def _readable(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return (
                f"{count:.0f} {unit}"
                if unit == "B"
                else f"{count:.3g} {unit}"
                if count < 1000
                else f"{count:.0f} {unit}"
            )
        count /= 1000
    raise AssertionError


def _table(rows: list[list[str]]) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if not at else cell.rjust(w) for at, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def estimate(
    net: Model,
    layout: Layout,
    batch: Any,
    optimizer: opt.Optimizer | str = "adamw",
    optimizer_params: Mapping[str, Any] | None = None,
    shard: str | None = None,
    microbatches: int = 1,
    schedule: str = "1f1b",
    cut: Sequence[str] | None = None,
    checkpoint: Checkpointed = None,
    plan: Plan = "auto",
    loss: Callable[..., Any] | None = None,
    target: Any = None,
) -> Estimate:
    """Return the memory that each worker of a layout needs, and the bytes it exchanges per step. Nothing is allocated.

    `net` is a Block, initialized or not, or a torch module, possibly on the meta device. It is not changed. `batch` is
    the input of one worker in a step: an array, a tensor, a shape (for float32), or a list of several. With
    `loss(output, target)`, the activations of the loss count too. The other arguments are those of `mx.parallel.apply`,
    `mx.parallel.train_step` and `gluon.Trainer`. A pipeline without named cuts is cut by 'parameters' here.
    """
    check_layout(layout)
    shard = check_shard(layout, shard)
    with without_memory():
        inputs = _cut(inputs_like(batch), microbatches)
        targets = [] if target is None else _cut(inputs_like(target), microbatches)
        module = phantom_of(net, inputs)
        exchanged: Counter[str] = Counter()
        for dimension in layout.used:
            dimension.rehearse(module, layout.degree(dimension.name), plan, exchanged)
        head = None if loss is None else _Head(loss, targets, isinstance(net, Block))
        workers = _Workers(module, layout, schedule, cut, microbatches)
        workers.compute_again(checkpoint)
        measured = workers.measure(inputs, head, exchanged)
        rule = optimizer if isinstance(optimizer, opt.Optimizer) else opt.create(optimizer, **(optimizer_params or {}))
        return Estimate(layout, tuple(_footprint(each, layout, shard, rule, microbatches) for each in measured))


def _cut(tensors: list[torch.Tensor], microbatches: int) -> list[torch.Tensor]:
    """Return the first micro-batch of each tensor."""
    if not isinstance(microbatches, int) or microbatches < 1:
        raise ValueError(f"microbatches must be a positive integer, received {microbatches!r}")
    for tensor in tensors:
        if not tensor.dim() or len(tensor) % microbatches:
            raise ValueError(
                f"a batch of shape {tuple(tensor.shape)} cannot be split into {microbatches} equal micro-batches"
            )
    return [tensor.chunk(microbatches)[0].clone() for tensor in tensors]


class _Head:
    """The loss of the output of the last stage, called with arrays if the net is a Block."""

    def __init__(self, loss: Callable[..., Any], targets: list[torch.Tensor], on_arrays: bool) -> None:
        self._loss, self._targets, self._on_arrays = loss, targets, on_arrays

    def __call__(self, output: Any) -> Any:
        if not self._on_arrays:
            return self._loss(output, *self._targets)
        with autograd.record():
            return unwrap(self._loss(*wrap((output, *self._targets))))


@dataclass
class _Stage:
    """Some layers of the net, and what they keep for one micro-batch."""

    modules: list[torch.nn.Module]
    activations: int = 0
    again: int = 0  # in addition, while a part recomputes its activations
    largest: int = 0
    received: int = 0
    exchanged: Counter[str] = field(default_factory=Counter)

    def parameters(self) -> list[torch.Tensor]:
        """Its parameters, without duplicates."""
        return list({id(param): param for module in self.modules for param in module.parameters()}.values())


@dataclass
class _Measured:
    """The layers of a worker, and what it keeps and exchanges for them."""

    stages: list[_Stage]
    gathers: dict[str, list[int]]  # how often the parameters of each stage are gathered, by the kind of sharding
    shared: list[torch.Tensor]  # parameters that other stages also use
    activations: int
    largest: int
    exchanged: Counter[str]


class _Workers:
    """The layers of a net, in stages, on the workers of a pipeline."""

    def __init__(self, module: torch.nn.Module, layout: Layout, schedule: str, cut: CutBy, microbatches: int) -> None:
        self._count, self._microbatches = layout.pipeline, microbatches
        self._net = module
        self._saved: Saved | None = None
        self._schedule: Schedule | None = None
        if layout.pipeline == 1:
            self._stages = [_Stage([module])]
            self._places, self._orders = [0], {0: [("F", 0, 0)]}
            return
        net = layer_of(module)
        found = Cut(net, layout.pipeline, find_schedule(schedule), cut or "parameters", microbatches)
        for piece in found.pieces:
            piece.open()
            piece.train()
        self._stages = [_Stage(list(pieces)) for pieces in found.groups(())]
        self._places = [found.place(stage) for stage in range(found.stages)]
        self._schedule = found.schedule
        self._orders = _orders(found.schedule, self._places, microbatches)

    def compute_again(self, checkpoint: Checkpointed) -> None:
        """Make checkpointed parts keep only their inputs."""
        if not checkpoint:
            return
        if self._schedule is not None:
            self._schedule.check_checkpoint(checkpoint)
        for module in chosen_by(layer_of(self._net), checkpoint):
            module.register_forward_pre_hook(lambda module, args: self._running.enter(args))
            module.register_forward_hook(lambda module, args, output: self._running.leave())

    @property
    def _running(self) -> Saved:
        """What the currently running stage has saved."""
        assert self._saved is not None
        return self._saved

    def measure(self, inputs: list[torch.Tensor], head: _Head | None, exchanged: Counter[str]) -> list[_Measured]:
        """Run one micro-batch through all stages. Return what each worker keeps and exchanges."""
        for number, stage in enumerate(self._stages):
            before = Counter(exchanged)
            inputs = [self._run(stage, inputs, head if number == len(self._stages) - 1 else None, number > 0)]
            stage.exchanged = exchanged - before
        return [self._worker(place) for place in range(self._count)]

    def _run(self, stage: _Stage, inputs: list[torch.Tensor], head: _Head | None, receives: bool) -> torch.Tensor:
        there = [each for module in stage.modules for each in (*module.parameters(), *module.buffers())]
        self._saved = Saved([*there, *([] if receives else inputs)])
        with self._running as saved:
            output: Any = inputs
            for module in stage.modules:
                output = run(module, *(output if isinstance(output, list) else [output]))
            for each in (*(inputs if receives else ()), *_tensors_in(output)):
                saved.keep(each)
            if head is not None:
                saved.keep(run(head, output))
        stage.activations, stage.again, stage.largest = saved.nbytes, saved.again, saved.largest
        stage.received = sum(each.nbytes for each in inputs) if receives else 0
        last: torch.Tensor = output.detach().requires_grad_() if self._count > 1 else output
        return last

    def _worker(self, place: int) -> _Measured:
        mine = [stage for stage, at in enumerate(self._places) if at == place]
        exchanged: Counter[str] = Counter()
        for number in mine:
            stage = self._stages[number]
            exchanged.update(stage.exchanged)
            if number and self._places[number - 1] != place:
                exchanged["point to point"] += stage.received  # its gradient goes back
            if number + 1 < len(self._stages) and self._places[number + 1] != place:
                exchanged["point to point"] += self._stages[number + 1].received
        for kind in exchanged:
            exchanged[kind] *= self._microbatches
        stages = [self._stages[number] for number in mine]
        held = most_at_once(self._orders[place], {number: self._stages[number].activations for number in mine})
        return _Measured(
            stages,
            {shard: [self._gathers(number, shard) for number in mine] for shard in ("full", "grads")},
            self._shared(mine),
            held + max(stage.again for stage in stages),
            max(stage.largest for stage in stages),
            exchanged,
        )

    def _gathers(self, number: int, shard: str) -> int:
        if self._count == 1:
            return self._microbatches * (2 if shard == "full" else 1)
        return gathers([kind for kind, stage, _ in self._orders[self._places[number]] if stage == number], shard)

    def _shared(self, mine: list[int]) -> list[torch.Tensor]:
        """Return the trained parameters that these stages share with others, such as tied embeddings."""
        elsewhere = [stage for number, stage in enumerate(self._stages) if number not in mine]
        theirs = {id(param) for stage in elsewhere for param in stage.parameters()}
        here = {id(param): param for number in mine for param in self._stages[number].parameters()}
        return [param for key, param in here.items() if key in theirs and param.requires_grad]


def _tensors_in(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, (list, tuple)):
        return [tensor for each in output for tensor in _tensors_in(each)]
    return []


# ---- schedules ----


def _orders(schedule: Schedule, places: list[int], microbatches: int) -> dict[int, list[tuple[str, int, int]]]:
    """Return the actions of each worker in order, (kind, stage, micro-batch), according to torch's schedule."""
    workers, total = max(places) + 1, len(places)
    stages = [
        _NoStage(stage_index=stage, num_stages=total, group_size=workers, group_rank=0, is_last=stage == total - 1)
        for stage, place in enumerate(places)
        if place == 0
    ]
    made = schedule.over(stages, microbatches, loss_fn=lambda output, target: output)
    return {
        worker: [(a.computation_type.value, a.stage_index, a.microbatch_index) for a in actions if a is not None]
        for worker, actions in made.pipeline_order.items()
    }


class _NoStage:
    """The attributes of a stage that torch's schedules read before they run."""

    has_backward, group, device, submod = True, None, torch.device("cpu"), torch.nn.Module()

    def __init__(self, **places: Any) -> None:
        vars(self).update(places, is_first=places["stage_index"] == 0)


def most_at_once(order: Sequence[tuple[str, int, int]], activations: Mapping[int, int]) -> int:
    """Return the most that a worker keeps. A micro-batch stays from its forward to its backward for the weights."""
    held = most = 0
    for kind, stage, _ in order:
        held += {"F": 1, "B": -1, "W": -1}.get(kind, 0) * activations[stage]
        most = max(most, held)
    return most


def gathers(kinds: Sequence[str], shard: str) -> int:
    """Return how often a stage's parameters are gathered. After a backward they stay until the next forward ends."""
    whole, count = False, 0
    for kind in kinds:
        count += not whole
        whole = kind != "F" or shard == "grads"
    return count


# ---- from layers to bytes ----


def _footprint(
    worker: _Measured, layout: Layout, shard: str | None, rule: opt.Optimizer, microbatches: int
) -> Footprint:
    shares = _Shares(layout, shard)
    modules = [module for stage in worker.stages for module in stage.modules]
    params = list({id(param): param for stage in worker.stages for param in stage.parameters()}.values())
    others = {id(buffer): buffer for module in modules for buffer in module.buffers()}
    trained = [param for param in params if param.requires_grad]
    whole, gradients = _nbytes(params), _nbytes(trained)
    sent = worker.exchanged
    sent["all-reduce"] += _nbytes(_rows(worker.shared, shares.of_parameters))
    buffers = 0
    if shares.fully:
        assert shard is not None
        for stage, times in zip(worker.stages, worker.gathers[shard], strict=True):
            sent["all-gather"] += times * shares.parts * _nbytes(_rows(stage.parameters(), shares.parts))
        sent["reduce-scatter"] += shares.parts * _nbytes(_rows(trained, shares.parts))
        sent["all-reduce"] += _nbytes(_rows(trained, shares.parts)) if shares.copies > 1 else 0
        units = _units(modules)
        buffers = 2 * max(units) if shard == "full" else whole
        buffers += max(units) if microbatches == 1 else gradients  # gradients stay unsharded until they are complete
    elif layout.gradient_size > 1:
        sent["all-reduce"] += gradients
        sent["all-gather"] += whole if shard == "optimizer" else 0
        buffers = gradients + gradients // layout.gradient_size  # in transit, and this worker's part of the sums
    return Footprint(
        parameters=_nbytes(_rows(params, shares.of_parameters)) + _nbytes(others.values()),
        gradients=_nbytes(_rows(trained, shares.of_parameters)),
        optimizer_state=sum(_state(rule, i, each) for i, each in enumerate(_rows(trained, shares.of_state))),
        activations=worker.activations,
        buffers=buffers,
        temporary=worker.largest,
        sent=dict(sent),
    )


class _Shares:
    """The number of parts into which the workers split parameters, gradients and states."""

    def __init__(self, layout: Layout, shard: str | None) -> None:
        copies, parts = layout.degree(*layout.copy_dimensions), layout.degree(*layout.part_dimensions)
        self.fully = shard in ("full", "grads") and layout.gradient_size > 1
        self.parts, self.copies = (parts, copies) if parts > 1 else (copies, 1)
        self.of_parameters = self.parts if self.fully else 1
        self.of_state = layout.gradient_size if shard == "optimizer" else self.of_parameters


def _rows(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    """Return the first worker's rows of each tensor. No other worker has more."""
    return [tensor[: -(-tensor.shape[0] // parts)] if tensor.dim() and parts > 1 else tensor for tensor in tensors]


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)


def _state(rule: opt.Optimizer, index: int, weight: torch.Tensor) -> int:
    return _nbytes(_arrays(rule.create_state_multi_precision(index, NDArray(weight.detach(), cpu()))))


def _arrays(state: Any) -> list[torch.Tensor]:
    if isinstance(state, NDArray):
        return [state._data]
    return [tensor for each in state for tensor in _arrays(each)] if isinstance(state, (list, tuple)) else []


def _units(modules: list[torch.nn.Module]) -> list[int]:
    """Return the bytes of each unit that is gathered in one call: blocks or pieces of a pipeline, and the remainder."""
    alone = len(modules) == 1
    found = units(layer_of(modules[0])) if alone else modules
    apart = {id(param) for unit in found for param in unit.parameters()}
    rest = [param for module in modules for param in module.parameters() if id(param) not in apart]
    return [*(_nbytes(unit.parameters()) for unit in found), _nbytes(rest)]
