"""Pipelines: stages on different workers, through which torch's schedules pass micro-batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from ..base import Backward
from ..comm.engine import EngineGroup
from ..comm.transaction import transaction
from .model import Home
from .stages import Cut, StageModule


class Pipeline:
    """The stages of this worker, and the schedule that runs them together with those of other workers."""

    def __init__(
        self,
        stages: dict[int, StageModule],
        cut: Cut,
        group: dist.ProcessGroup,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        described: list[str],
    ) -> None:
        """`stages` are the stages of this worker, by number. `loss` returns the scalar to differentiate."""
        self.stages, self.total, self.place = stages, cut.stages, cut.place
        self.microbatches, self.schedule, self.group = cut.microbatches, cut.schedule, group
        self.described = described
        self.borrowed: list[Home] = []  # locations of parameters that an earlier worker also holds
        self._loss = loss
        self._shapes: list[object] = []  # of the batch for which the schedule was built
        self._running: Any = None
        self.waited = self.seconds = 0.0
        self._name_messages()

    def _name_messages(self) -> None:
        """Register descriptions of messages, so that errors name what was in transit when a worker was lost."""
        for stage in range(self.total):
            for number in range(self.microbatches):
                of = f"of micro-batch {number}, stage"
                self._messages()[self.tag(stage, number)] = f"activations {of} {stage - 1} to {stage}"
                self._messages()[self.tag(stage, number, backward=True)] = f"gradients {of} {stage + 1} to {stage}"

    def _messages(self) -> dict[int, str]:
        return self.group.messages if isinstance(self.group, EngineGroup) else {}

    def _seconds_waited(self) -> float:
        """Return the total time that this worker has waited for messages; 0 for groups that do not measure it."""
        return self.group.waited if isinstance(self.group, EngineGroup) else 0.0

    def tag(self, stage: int, number: int, backward: bool = False) -> int:
        """Return the tag of the message with the input of a stage for a micro-batch."""
        return 1 + (2 * stage + backward) * self.microbatches + number

    def run(self, inputs: Sequence[torch.Tensor], target: torch.Tensor) -> None:
        """Run forward and backward for all micro-batches, and accumulate gradients in the parameters of the stages."""
        shapes: list[object] = [(each.shape, each.dtype) for each in (*inputs, target)]
        if isinstance(self.group, EngineGroup):
            shapes.append(self.group.group.generation)  # workers may have joined
        if shapes != self._shapes:
            self._running = self._open(inputs)
            if transaction().is_adrift:
                return
            self._shapes = shapes
        began, waited = time.perf_counter(), self._seconds_waited()
        first = inputs if 0 in self.stages else ()
        wanted = {"target": target} if self.total - 1 in self.stages else {}
        self._running.step(*first, return_outputs=False, **wanted)
        self.seconds = time.perf_counter() - began
        self.waited = self._seconds_waited() - waited

    def _open(self, inputs: Sequence[torch.Tensor]) -> Any:
        """torch's schedule for batches of this shape."""
        parts = [each[: len(each) // self.microbatches] for each in inputs]
        outputs = self._boundaries(parts)
        if not outputs:
            return None
        made = [
            _Messenger(
                self,
                self.stages[number],
                number,
                parts if number == 0 else [outputs[number - 1]],
                outputs[number],
            )
            for number in sorted(self.stages)
        ]
        return self.schedule.over(made, self.microbatches, loss_fn=self._loss, scale_grads=False)

    @torch.no_grad()
    def _boundaries(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs of each stage for one micro-batch, as phantoms, from a run in predict mode.

        Return no outputs if a worker of an elastic job is lost in it.
        """
        outputs: list[torch.Tensor] = []
        for number in range(self.total):
            header = torch.zeros(_HEADER, dtype=torch.int64)
            if number in self.stages:
                given = [torch.zeros_like(outputs[-1], device=parts[0].device)] if number else parts
                stage = self.stages[number]
                stage.train(False)
                header = _describe(stage(*given))
                stage.train(True)
            dist.broadcast(header, group=self.group, group_src=self.place(number))
            if transaction().is_adrift:  # a worker was lost, in an elastic job
                return []
            outputs.append(_described(header))
        return outputs


class _Messenger(PipelineStage):
    """torch's stage with tagged messages, so that errors can name them."""

    def __init__(
        self, pipeline: Pipeline, stage: StageModule, number: int, inputs: Sequence[torch.Tensor], output: torch.Tensor
    ) -> None:
        device = next((each.device for each in stage.parameters()), torch.device("cpu"))
        given = tuple(each.detach().to("meta").requires_grad_(number > 0 and _flows(each)) for each in inputs)
        super().__init__(
            stage,
            number,
            pipeline.total,
            device,
            given,
            output.requires_grad_(_flows(output)),
            group=pipeline.group,
        )
        self._tag = pipeline.tag

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        before, Backward.again = Backward.again, self.stage_index > 0  # the first stage has no backward for its inputs
        try:
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)
        finally:
            Backward.again = before

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return _tagged(super().get_fwd_recv_ops(fwd_chunk_id), self._tag(self.stage_index, fwd_chunk_id))

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return _tagged(super().get_fwd_send_ops(fwd_chunk_id), self._tag(self.stage_index + 1, fwd_chunk_id))

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return _tagged(super().get_bwd_recv_ops(bwd_chunk_id), self._tag(self.stage_index, bwd_chunk_id, True))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return _tagged(super().get_bwd_send_ops(bwd_chunk_id), self._tag(self.stage_index - 1, bwd_chunk_id, True))


def _tagged(ops: list[dist.P2POp], tag: int) -> list[dist.P2POp]:
    for op in ops:
        op.tag = tag
    return ops


def _flows(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


# ---- shapes on the wire ----

_DIMS = 12
_HEADER = 2 + 2 * _DIMS
_TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


def _describe(tensor: torch.Tensor) -> torch.Tensor:
    """Return the dtype, shape and strides of a tensor as numbers."""
    header = torch.zeros(_HEADER, dtype=torch.int64)
    dims = tensor.dim()
    header[:2] = torch.tensor([_TYPES.index(tensor.dtype), dims])
    header[2 : 2 + dims] = torch.tensor(tensor.shape)
    header[2 + dims : 2 + 2 * dims] = torch.tensor(tensor.stride())
    return header


def _described(header: torch.Tensor) -> torch.Tensor:
    kind, dims, *rest = header.tolist()
    return torch.empty_strided(rest[:dims], rest[dims : 2 * dims], dtype=_TYPES[kind], device="meta")
