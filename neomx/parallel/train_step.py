"""train_step: one training step under any layout, from a batch to updated weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import torch
import torch.distributed as dist

from .. import autograd
from ..amp.amp import scale_loss
from ..base import MXNetError
from ..comm.session import session
from ..comm.transaction import transaction
from ..events import emit
from ..gluon import Block, Trainer
from ..gluon.placement import is_waiting
from ..gluon.twin import unwrap, wrap
from ..ndarray import NDArray
from .apply import check, lay_out
from .checkpointing import Checkpointed
from .clip import clip_global_norm
from .dimensions import Plan
from .layout import Layout, check_layout
from .model import Model
from .module import workers_of
from .replicas import divide_into
from .schedules import find_schedule
from .stages import Cut, CutBy, Piece
from .workers import LayoutWorkers

if TYPE_CHECKING:
    from .pipeline import Pipeline


@runtime_checkable
class Steps(Protocol):
    """An object that updates a torch module: a torch optimizer, or a wrapper of one."""

    def step(self) -> object:
        """Update the parameters by their gradients."""


@runtime_checkable
class Synchronises(Protocol):
    """A torch module whose gradients are exchanged in backward, as made by `fully_shard` and `replicate`."""

    def set_requires_gradient_sync(self, required: bool, /) -> None:
        """Set whether the next backward exchanges gradients."""


# For a Block; for a torch module; or a function that creates the latter from the parameters that this worker holds.
TrainerLike: TypeAlias = Trainer | torch.optim.Optimizer | Callable[[list[torch.nn.Parameter]], Steps]


def train_step(
    net: Model,
    loss: Callable[..., Any],
    trainer: TrainerLike,
    layout: Layout,
    microbatches: int = 1,
    schedule: str = "1f1b",
    cut: CutBy = None,
    checkpoint: Checkpointed = None,
    shard: str | None = None,
    plan: Plan = "auto",
    clip: float | None = None,
) -> TrainStep:
    """Return a function `step(*inputs, target)` that trains on one batch and returns its loss, equal on every worker.

    The batch of this worker is split into `microbatches`, whose gradients are summed before one update. The loss is
    that of one process on the whole batch: `loss(net(x), y).mean()`. With `layout.pipeline` > 1 each worker holds some
    stages of `net`, cut by measured 'time' (the default), by 'parameters', or before the named pieces. `trainer` is a
    gluon.Trainer for a Block. For a torch module it is an optimizer, or a function that creates one from the parameters
    that this worker holds. `clip` is the maximum norm of the gradient of that loss. `checkpoint`, `shard` and `plan`
    are as in `apply`, unless `net` already has a layout.
    """
    if not isinstance(microbatches, int) or isinstance(microbatches, bool) or microbatches < 1:
        raise ValueError(f"microbatches must be a positive integer, received {microbatches!r}")
    if clip is not None and not (isinstance(clip, (int, float)) and clip > 0):
        raise ValueError(f"clip must be a positive number or None, received {clip!r}")
    check_layout(layout)
    layout.check(session().world.initial)
    divide_into(microbatches)
    chosen = find_schedule(schedule)
    pieces = None
    if layout.pipeline > 1:
        from .staging import lay_out_stages  # takes a second to import: not within a step, where other workers wait

        chosen.check_checkpoint(checkpoint)
        pieces = Cut(net, layout.pipeline, chosen, cut, microbatches)
    is_new = workers_of(net) is None
    if is_new or pieces is not None:
        shard = check(net, layout, shard)
        _check_optimizer(net, trainer, layout, shard)

        if isinstance(trainer, Trainer) and layout.size > 1:
            trainer.expect_layout()

    def arrange(inputs: Sequence[torch.Tensor], step: TrainStep) -> None:
        if isinstance(net, Block):
            _find_shapes(net, inputs)
        if pieces is not None:
            step.pipeline, step.adding = lay_out_stages(net, pieces, layout, shard, plan, checkpoint, inputs, step.head)
        elif is_new:
            lay_out(net, layout, shard, plan, checkpoint)

    head = Head(loss, microbatches, isinstance(net, Block))
    return TrainStep(net, head, trainer, layout, arrange, clip, 0.0 if pieces is None else pieces.bubble)


def _check_optimizer(net: Model, trainer: TrainerLike, layout: Layout, shard: str | None) -> None:
    """Raise if a torch optimizer holds parameters that sharding will replace, or does not suit the model."""
    if isinstance(net, Block) != isinstance(trainer, Trainer):
        raise TypeError(
            f"a Block needs a gluon.Trainer, a torch module a torch optimizer, received "
            f"{type(net).__name__} and {type(trainer).__name__}"
        )
    if isinstance(net, Block):
        return
    if shard == "optimizer" and layout.pipeline > 1:
        raise MXNetError("a torch module in a pipeline supports shard='full' or 'grads', received 'optimizer'")
    divided = shard is not None or any(each.divides_parameters for each in layout.used)
    if divided and isinstance(trainer, torch.optim.Optimizer):
        raise MXNetError(
            "the optimizer holds whole parameters, which this layout replaces by shards. Pass a "
            "function that creates it: lambda params: torch.optim.AdamW(params, lr=1e-3)"
        )


def _find_shapes(net: Block, inputs: Sequence[torch.Tensor]) -> None:
    """Initialize parameters whose shapes are inferred from a batch."""
    if any(is_waiting(param) for param in net.collect_params().values()):
        with autograd.pause():
            net(*wrap(tuple(inputs)))


class TrainStep:
    """The function that `train_step` returns. After a step it also has the time spent waiting."""

    def __init__(
        self,
        net: Model,
        head: Head,
        trainer: TrainerLike,
        layout: Layout,
        arrange: Callable[..., None],
        clip: float | None,
        bubble: float,
    ) -> None:
        self.bubble_expected = bubble  # the minimum fraction of idle time, according to the schedule
        self.net, self.head, self.layout = net, head, layout
        self.trainer: TrainerLike | Steps = trainer
        self.pipeline: Pipeline | None = None
        self.adding: list[Callable[[], None]] = []  # functions that sum gradients after a pipeline has run
        self._workers: LayoutWorkers | None = None
        self._arrange: Callable[..., None] | None = arrange
        self._clip = clip
        self._modules: list[torch.nn.Module] = []

    # ---- a step ----

    def __call__(self, *batch: Any) -> Any:
        """Train on the batch `(*inputs, target)` and return the loss."""
        if len(batch) < 2:
            raise TypeError(f"step expects the inputs followed by the target, received {len(batch)} argument(s)")
        *inputs, target = unwrap(batch)
        for each in (*inputs, target):
            if not isinstance(each, torch.Tensor):
                raise TypeError(f"step expects arrays or tensors, received a {type(each).__name__}")
        samples = self._samples(inputs, target)
        steps = transaction()
        steps.expect_step()
        if self._arrange is not None:
            emit("layout_begin", trainer=self.trainer)
            self._begin([each[: len(each) // self.head.microbatches] for each in inputs])
            emit("layout", trainer=self.trainer)
        if steps.is_adrift:  # in an elastic job: this worker does not train with others, but may join them in its step
            self._update(samples)
            return self._loss_of(batch, torch.zeros(()))
        for param in self._parameters():
            param.grad = None
        self.head.begin(samples, self._loss_scale())
        self._hold(True)
        if self.pipeline is not None:
            self.pipeline.run(inputs, target)
        else:
            self._accumulate(inputs, target)
        for add in self.adding:
            add()
        self._update(samples)
        return self._loss_of(batch, self._loss_of_all(samples))

    @staticmethod
    def _loss_of(batch: Sequence[Any], value: torch.Tensor) -> Any:
        """Return the loss as the program expects it: an array or a tensor."""
        if isinstance(batch[0], NDArray):
            return wrap(value.to(torch.promote_types(batch[0]._data.dtype, torch.float32)).reshape(1))
        return value.to(torch.promote_types(batch[0].dtype, torch.float32))

    def _loss_scale(self) -> float:
        """Return the factor by which `mx.amp` scales the loss of this step; the Trainer divides by it again."""
        if not isinstance(self.trainer, Trainer) or self.trainer._amp_loss_scaler is None:
            return 1.0
        with scale_loss(1.0, self.trainer) as scale:
            return float(scale)

    def _samples(self, inputs: Sequence[torch.Tensor], target: torch.Tensor) -> int:
        lengths = [len(each) for each in (*inputs, target)]
        if len(set(lengths)) > 1:
            raise ValueError(f"inputs and target must have the same number of samples, received {lengths}")
        samples, parts = lengths[0], self.head.microbatches
        if not samples or samples % parts:
            raise ValueError(
                f"a batch of {samples} samples is not divisible into {parts} micro-batches: {samples} / {parts} = "
                f"{samples / parts:g}"
            )
        return samples

    def _begin(self, inputs: Sequence[torch.Tensor]) -> None:
        assert self._arrange is not None
        self._arrange(inputs, self)
        self._arrange, self._workers = None, workers_of(self.net)
        if self.pipeline is not None:
            self._modules = [self.pipeline.stages[number] for number in sorted(self.pipeline.stages)]
        else:
            whole = Piece("net", self.net)
            whole.open()
            self._modules = [whole]
        if not isinstance(self.trainer, (Trainer, torch.optim.Optimizer)):
            assert callable(self.trainer)
            # a stage without weights has an optimizer too, because learning rate schedules need one
            self.trainer = self.trainer(self._parameters() or [torch.nn.Parameter(torch.empty(0))])

    def _parameters(self) -> list[torch.nn.Parameter]:
        return list({id(each): each for module in self._modules for each in module.parameters()}.values())

    def _accumulate(self, inputs: Sequence[torch.Tensor], target: torch.Tensor) -> None:
        """Run forward and backward for each micro-batch; gradients are exchanged in the backward of the last one."""
        count = self.head.microbatches
        for number, part in enumerate(zip(*(each.chunk(count) for each in (*inputs, target)), strict=True)):
            self._hold(number < count - 1)
            torch.autograd.backward(self.head(self._modules[0](*part[:-1]), part[-1]))

    def _hold(self, hold: bool) -> None:
        """Disable or enable the exchange of gradients, which must wait until they are complete."""
        if isinstance(self.trainer, Trainer):
            self.trainer.strategy.holds = hold
        if self.pipeline is None:  # torch's stages do it themselves
            root = self._modules[0].run
            if isinstance(root, Synchronises):
                root.set_requires_gradient_sync(not hold)

    def _update(self, samples: int) -> None:
        if isinstance(self.trainer, Trainer):
            self._update_block(self.trainer, samples)
            return
        if self._clip is not None:
            self._clip_torch(self._clip)
        assert isinstance(self.trainer, Steps)
        self.trainer.step()

    def _update_block(self, trainer: Trainer, samples: int) -> None:
        if self._clip is None:
            trainer.step(samples)
            return
        assert isinstance(self.net, Block)
        trainer.allreduce_grads()
        of_all = self._of_all(torch.tensor(float(samples))).item() * self.head.scale
        clip_global_norm(self.net.collect_params(), self._clip * of_all)
        trainer.update(samples)

    def _clip_torch(self, most: float) -> None:
        if self.pipeline is None or self._workers is None:
            clip_global_norm(self._parameters(), most)
        else:
            found = [tensors[key] for tensors, key in self.pipeline.borrowed]
            borrowed = [param for param in found if param is not None]
            clip_global_norm(self._parameters(), most, self._workers.pipeline_group, borrowed)

    def _of_all(self, value: torch.Tensor) -> torch.Tensor:
        """Sum over the workers whose gradients are summed."""
        if self._workers is not None and self.layout.gradient_size > 1:
            self._workers.gradient_group.all_reduce_(value, "sum", "the loss")
        return value

    def _loss_of_all(self, samples: int) -> torch.Tensor:
        """Return the mean loss over all samples. It is sent in float64, because other stages do not know its dtype."""
        value = self.head.mean()
        if self.layout.gradient_size > 1:
            total, count = self._of_all(torch.stack([value * samples, value.new_tensor(samples)]))
            value = total / count
        if self.pipeline is not None:
            last = self.pipeline.place(self.pipeline.total - 1)
            dist.broadcast(value, group=self.pipeline.group, group_src=last)
        return value

    # ---- report ----

    @property
    def bubble_measured(self) -> float:
        """The fraction of the last step's forward and backward in which this worker waited for others."""
        return 0.0 if self.pipeline is None else self.pipeline.waited / max(self.pipeline.seconds, 1e-9)

    def report(self) -> str:
        """Return the stages, and the bubble: expected for stages of equal duration, and measured in the last step."""
        title = f"{self.layout}, {self.head.microbatches} micro-batch(es)"
        if self.pipeline is None:
            return title + (", to be cut at the first batch" if self.layout.pipeline > 1 else ", no pipeline")
        bubble = f"bubble: {self.bubble_expected:.1%} expected, {self.bubble_measured:.1%} measured on this worker"
        return "\n".join([f"{title}, schedule {self.pipeline.schedule.name!r}", *self.pipeline.described, bubble])

    def __str__(self) -> str:
        return self.report()


class Head:
    """The loss at the end of a model, as the scalar to differentiate."""

    def __init__(self, loss: Callable[..., Any], microbatches: int, sums: bool) -> None:
        """`sums`: differentiate the sum over samples, which a Trainer divides; otherwise the mean."""
        self._loss = Piece("loss", loss, takes_arrays=sums)
        self._loss.open()
        self.microbatches, self._sums = microbatches, sums
        self._means: list[torch.Tensor] = []

    def begin(self, samples: int, scale: float) -> None:
        """Start a batch with this number of samples, whose loss is multiplied by `scale` before backward."""
        self._samples, self.scale = samples // self.microbatches, scale
        self._means = []

    def __call__(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        values = self._loss(output, target)
        if not isinstance(values, torch.Tensor):
            raise MXNetError(f"the loss must return an array, received a {type(values).__name__}")
        mean = values.mean()
        self._means.append(mean.detach())
        if not self._sums:
            return mean / self.microbatches
        return (values.sum() if values.numel() == self._samples else mean * self._samples) * self.scale

    def mean(self) -> torch.Tensor:
        """Return the mean over the batch; zero on workers that do not compute it."""
        if not self._means:
            return torch.zeros((), dtype=torch.float64)
        means = torch.stack(self._means)
        return means.mean(dtype=torch.float32 if means.is_mps else torch.float64)  # Apple's GPUs have no float64
