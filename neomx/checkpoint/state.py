"""The state of a training: what a checkpoint contains, how workers divide it, and how it is restored.

Tensors have these names in a checkpoint:

    param/NAME                   a parameter that is the same on all workers, or divided among them by a layout
    optimizer/states/N/...       an array of the optimizer states of parameter N
    worker/R/param/NAME[@K]      a value that each worker (and context K) computes itself: a running average
    worker/R/grad/NAME[@K]       a gradient that adds up over several backward passes
    worker/R/random/NAME         the state of a random generator of worker R
    worker/R/data/N/NAME         an array of the position of loader N
    worker/R/strategy/NAME       the state of the gradient exchange of worker R

`NAME:rows` has the indices of a row-sparse array, whose values are in `NAME`. Elements that several workers have are
written by one of them. All remaining values are JSON: `facts` in the manifest, and those of one worker in its file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from ..base import MXNetError
from ..context import cpu
from ..ndarray import NDArray
from ..ndarray.sparse import RowSparseNDArray
from ..optimizer.part import Part
from ..optimizer.states import owners
from . import generators, regions
from .manifest import CheckpointError
from .regions import Region
from .snapshot import Fragment, fragment
from .subjects import Form, Held, Subject, subject_of

_log = logging.getLogger("neomx")
_ROWS = ":rows"
_OWN = re.compile(r"worker/[0-9]+/param/(.+?)(?:@[0-9]+)?")

Wanted = dict[str, Region | None]  # tensors to read by name, and which elements of them: None for all


@dataclass
class Content:
    """A checkpoint: its facts, and its tensors. `fetch` reads tensors, which are then in `tensors`."""

    step: int
    workers: int
    facts: dict[str, Any]
    forms: Mapping[str, Form]  # of all tensors, by name
    of_worker: Callable[[int], dict[str, Any]] = lambda rank: {}  # the facts of one worker
    read: Callable[[Wanted], dict[str, torch.Tensor]] = lambda wanted: {}
    layout: str = ""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def fetch(self, wanted: Wanted) -> None:
        """Read tensors that were not read before."""
        left = {name: region for name, region in wanted.items() if name not in self.tensors}
        if left:
            self.tensors |= self.read(left)

    def below(self, prefix: str) -> dict[str, torch.Tensor]:
        """Return the tensors that were read and whose names start with a prefix, without it."""
        return {name[len(prefix) :]: self.tensors[name] for name in self.tensors if name.startswith(prefix)}

    def fetch_for(self, rank: int, wanted: Wanted) -> None:
        """Read these tensors and all that a worker has for itself: generators and positions."""
        mine = [name for kind in ("random", "data") for name in self.names(f"worker/{rank}/{kind}/")]
        self.fetch({**wanted, **dict.fromkeys(mine)})

    def names(self, prefix: str) -> list[str]:
        """Return the names of all tensors that start with a prefix."""
        return [name for name in self.forms if name.startswith(prefix)]


class Training:
    """What a checkpoint saves: a network, its Trainer, or both; or a Module.

    `copy` and `restore` are the whole state of a training in one process, for a process that joins it:

        tensors, facts = Training(net, trainer).copy()
        Training(other_net, other_trainer).restore(content_of(tensors, facts))
    """

    def __init__(self, net: Any = None, trainer: Any = None, module: Any = None):
        self.subject: Subject = subject_of(net, trainer, module)

    # ---- saving ----

    def copy(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return copies of all parameters, running averages, optimizer states and gradients, and the facts about them.

        The facts are JSON values. With a layout, this worker has only a part: use a Checkpointer.
        """
        if self.subject.holders is not None:
            raise CheckpointError("a worker of a layout has only a part of the state. Save it with a Checkpointer")
        fragments, facts, mine = self.fragments(0, 1)
        return {each.name: each.tensor.detach().cpu().clone() for each in fragments}, {**facts, "worker": mine}

    def fragments(
        self, rank: int, workers: int, with_empty: bool = False, to_join: bool = False
    ) -> tuple[list[Fragment], dict[str, Any], dict[str, Any]]:
        """Return this worker's tensors, which are not copied, the facts about all, and those about this worker.

        Parts without elements are left out, except `with_empty`. With `to_join`, the tensors are for a worker that
        joins: without optimizer states that a store has.
        """
        found: list[Fragment] = []
        sparse: dict[str, list[int]] = {}
        mine: dict[str, Any] = {"fresh": {}}
        for value in self.subject.values():
            if value.is_trained:
                found += _fragments(f"param/{value.name}", value.arrays[0], sparse, is_shared=True)
            else:
                for name, array in _by_context(_prefix(rank, workers, value), value.name, value.arrays):
                    found += _fragments(name, array, sparse)
            for name, array in _by_context(f"worker/{rank}/grad/", value.name, value.gradients):
                found += _fragments(name, _whole(array), sparse)
            if value.fresh:
                mine["fresh"][value.name] = value.fresh
        facts: dict[str, Any] = {"kind": self.subject.kind, **self.subject.extras()}
        strategy = self.subject.strategy
        if strategy is not None:
            keeps = strategy.keeps_states
            if not keeps or rank == 0:
                content, arrays = strategy.states_to_join() if to_join else strategy.packed_states()
                facts["optimizer"] = content
                for name, array in arrays.items():
                    found += _fragments(f"optimizer/{name}", array, sparse, is_shared=not keeps, is_lent=not keeps)
            found += [fragment(f"worker/{rank}/strategy/{name}", each) for name, each in strategy.state().items()]
        facts["sparse"] = sparse
        return [each for each in found if with_empty or each.region is None or each.tensor.numel()], facts, mine

    def lend(self, wait: Callable[[], object]) -> None:
        """Call `wait` before the next update of the optimizer states."""
        strategy, training = self.subject.strategy, self.subject.training
        if strategy is not None and training is not None and not strategy.keeps_states:
            training.updater().lend(wait)

    # ---- restoring ----

    def wanted(self, content: Content, rank: int = 0, workers: int = 1) -> Wanted:
        """Return which tensors of a checkpoint this worker needs. Raises if it belongs to another model."""
        self._check(content)
        found: Wanted = {}
        for value in self._expected(content):
            for name in _sources(content, value, rank, workers):
                found |= _with_rows(name, content, None if value.split is None else _region(value))
        mine = f"worker/{rank}/"
        if self._is_same(content, workers):
            found |= dict.fromkeys([*content.names(f"{mine}grad/"), *content.names(f"{mine}strategy/")])
        for name, region in self._optimizer_regions(content).items():
            found |= _with_rows(f"optimizer/{name}", content, region)
        return found

    def restore(self, content: Content, rank: int = 0, workers: int = 1, joins: bool = False) -> None:
        """Restore parameters, optimizer states and the gradient exchange. With `joins`, those of another worker.

        If something does not fit, nothing is changed. The tensors that `wanted` names are read, unless they were.
        """
        content.fetch(self.wanted(content, rank, workers))
        subject, strategy = self.subject, self.subject.strategy
        same = self._is_same(content, workers)
        values = {
            value.name: [array_of(content, name) for name in _sources(content, value, rank, workers)]
            for value in self._expected(content)
        }
        subject.put(values)
        if strategy is not None:
            arrays = {name: array_of(content, f"optimizer/{name}") for name in self._optimizer_regions(content)}
            if joins:
                strategy.join_states(content.facts["optimizer"], arrays)
            else:
                strategy.weights_were_restored()
                strategy.take_packed_states(content.facts["optimizer"], arrays)
        subject.take_extras(content.facts)
        self._restore_exchange(content, f"worker/{rank}/", same)
        self._restore_gradients(content, rank, same)

    def restore_random(self, content: Content, rank: int, workers: int) -> None:
        """Restore the random generators. Workers that did not exist then get seeds of their own.

        The workers of a layout may need the same random numbers. After a change they all continue with those of
        worker 0.
        """
        source = self.source(content, rank, workers)
        content.fetch_for(source, {})
        states = content.below(f"worker/{source}/random/")
        if source == rank or self.must_be_alike(content, workers):
            generators.restore(states)
        else:
            generators.reseed(states, rank)

    def source(self, content: Content, rank: int, workers: int) -> int:
        """Return the worker of a checkpoint whose generators this one continues with."""
        return 0 if rank >= content.workers or self.must_be_alike(content, workers) else rank

    def must_be_alike(self, content: Content, workers: int) -> bool:
        """Whether all workers continue with the generators of worker 0."""
        if not self.subject.is_ready:  # a layout will be applied, perhaps the same
            return content.workers != workers
        return bool(content.layout or self.layout) and not self._is_same(content, workers)

    def _restore_exchange(self, content: Content, mine: str, same: bool) -> None:
        strategy = self.subject.strategy
        exchange = content.below(f"{mine}strategy/")
        if strategy is not None and exchange:
            strategy.load_state(exchange)
        elif content.names("worker/0/strategy/") and not same:
            _log.warning("the residuals of compressed gradients are dropped: the number of workers has changed")

    def _restore_gradients(self, content: Content, rank: int, same: bool) -> None:
        gradients = content.below(f"worker/{rank}/grad/")
        if not gradients:
            if content.names("worker/0/grad/") and not same:
                _log.warning("gradients that were added up since the last update are dropped: the workers have changed")
            return
        fresh = content.of_worker(rank).get("fresh", {})
        for value in self.subject.values():
            names = [name for name, _ in _by_context("", value.name, value.arrays)]
            if names[0] in gradients:
                value.put_gradients([gradients[name] for name in names], fresh.get(value.name, []))

    def _is_same(self, content: Content, workers: int) -> bool:
        """Whether the checkpoint is of as many workers with the same layout."""
        return content.workers == workers and content.layout == self.layout

    @property
    def layout(self) -> str:
        """The layout of the workers, or ''."""
        holders = self.subject.holders
        return "" if holders is None else holders.described

    def _expected(self, content: Content) -> list[Held]:
        """Return the values that this worker has, or will have."""
        waiting = [
            Held(name, [NDArray(torch.empty(form.shape or (), device="meta"), cpu())])
            for name in self.subject.waiting()
            if (form := _saved_form(content, name)) is not None
        ]
        return [*self.subject.values(), *waiting]

    def _optimizer_regions(self, content: Content) -> Wanted:
        """Return the arrays of the optimizer that this worker needs, and which elements of them."""
        strategy = self.subject.strategy
        if strategy is None:
            return {}
        if "optimizer" not in content.facts:
            raise CheckpointError("the checkpoint has no optimizer states: it was saved without trainer=")
        parts = strategy.parts()
        index_of = owners(content.facts["optimizer"])
        found: Wanted = {}
        for stored in content.names("optimizer/"):
            name = stored.removeprefix("optimizer/")
            if name.endswith(_ROWS):
                continue
            index = index_of.get(name)
            if parts is None or index is None:
                found[name] = None
            elif index in parts:
                found[name] = _region_of_state(parts[index], content.forms[stored].shape or ())
        return found

    def _check(self, content: Content) -> None:
        """Raise if a checkpoint does not belong to this model."""
        if content.facts.get("kind") != self.subject.kind:
            raise CheckpointError(
                f"the checkpoint is of a {content.facts.get('kind', 'unknown')!r:.40} training, but this is a "
                f"{self.subject.kind!r} training: a Module cannot continue that of a Trainer, nor the reverse"
            )
        saved = {name.removeprefix("param/") for name in content.names("param/") if not name.endswith(_ROWS)}
        saved |= {own[1] for name in content.forms if (own := _OWN.fullmatch(name))}
        values = {value.name: value.form for value in self.subject.values()}
        forms = values | self.subject.waiting()
        missing = [name for name in values if name not in saved]
        extra = sorted(saved - forms.keys() - set(self.subject.elsewhere()))
        wrong = [
            f"{name}: {problem}"
            for name, form in forms.items()
            if (found := _saved_form(content, name)) is not None and (problem := form.problem(found))
        ]
        problems = [
            *([f"the model has {_few(missing)}, which the checkpoint lacks"] if missing else []),
            *([f"the checkpoint has {_few(extra)}, which the model lacks"] if extra else []),
            *wrong[:5],
        ]
        if problems:
            raise CheckpointError(
                f"the checkpoint belongs to another model: {'; '.join(problems)}. Create the same model as for the run "
                "that saved it, or use another directory"
            )


def content_of(
    tensors: dict[str, torch.Tensor],
    facts: dict[str, Any],
    step: int = 0,
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> Content:
    """Return the content for `Training.restore` from the result of `Training.copy`, of another process for example.

    `shapes` has the whole shape of each tensor of which only the part of this worker is given.
    """
    forms = {name: Form(tuple(shapes.get(name, each.shape)), each.dtype) for name, each in tensors.items()}
    return Content(step, 1, facts, forms, of_worker=lambda rank: facts.get("worker", {}), tensors=dict(tensors))


# ---- names ----


def _prefix(rank: int, workers: int, value: Held) -> str:
    """Return where a value that each worker and context computes itself is saved."""
    return f"worker/{rank}/param/" if workers > 1 or len(value.arrays) > 1 else "param/"


def _by_context(prefix: str, name: str, arrays: Iterable[NDArray]) -> list[tuple[str, NDArray]]:
    """Return names for the arrays on several contexts."""
    return [(f"{prefix}{name}@{k}" if k else f"{prefix}{name}", array) for k, array in enumerate(arrays)]


def _sources(content: Content, value: Held, rank: int, workers: int) -> list[str]:
    """Return the name of the tensor for each context of a value."""
    whole = f"param/{value.name}"
    if whole in content.forms:
        return [whole] * len(value.arrays)
    ranks = [rank, *range(content.workers)] if workers == content.workers else range(content.workers)
    first = next(each for each in ranks if f"worker/{each}/param/{value.name}" in content.forms)
    names = [name for name, _ in _by_context(f"worker/{first}/param/", value.name, value.arrays)]
    return [name if name in content.forms else names[0] for name in names]


def _saved_form(content: Content, name: str) -> Form | None:
    """Return the form of a value in a checkpoint."""
    places = [f"param/{name}", *(f"worker/{rank}/param/{name}" for rank in range(content.workers))]
    found = next((each for each in places if each in content.forms), None)
    if found is None:
        return None
    sparse = content.facts.get("sparse", {}).get(found)
    return content.forms[found] if sparse is None else Form(tuple(sparse), content.forms[found].dtype)


def _with_rows(name: str, content: Content, region: Region | None) -> Wanted:
    """Return a tensor to read, with the indices of its rows if it is sparse."""
    rows = f"{name}{_ROWS}"
    return {name: region, **({rows: None} if rows in content.forms else {})}


# ---- arrays ----


def _fragments(name: str, array: NDArray, sparse: dict[str, list[int]], **how: bool) -> list[Fragment]:
    """Return the tensors of an array."""
    if array._sparse:
        if not isinstance(array, RowSparseNDArray):
            raise CheckpointError(f"{name} is a {array.stype} array: a checkpoint can save dense and row-sparse ones")
        sparse[name] = list(array.shape)
        values, rows = (part.detach() for part in array._parts)
        return [fragment(name, values, **how), fragment(f"{name}{_ROWS}", rows, **how)]
    if isinstance(array, Part):
        return [
            Fragment(
                name, array._data.detach(), array.whole_shape, regions.of_split(array.split, array.whole_shape), **how
            )
        ]
    return [fragment(name, array._data.detach(), **how)]


def _whole(array: NDArray) -> NDArray:
    """Return an array that is not divided: a gradient that each worker has for itself."""
    return NDArray(array._data.detach(), array._ctx)


def array_of(content: Content, name: str) -> NDArray:
    """Return a tensor that was read, as an array: row-sparse if it was."""
    tensor = content.tensors[name]
    shape = content.facts.get("sparse", {}).get(name)
    if shape is None:
        return NDArray(tensor, cpu())
    return RowSparseNDArray((tensor, content.tensors[f"{name}{_ROWS}"]), tuple(shape), cpu())


def _region(value: Held) -> Region | None:
    return None if value.split is None else regions.of_split(value.split, value.form.shape or ())


def _region_of_state(weight: NDArray, shape: tuple[int, ...]) -> Region | None:
    """Return the elements of a state, of this shape, that belong to a part of its weight."""
    if not isinstance(weight, Part) or len(shape) != len(weight.whole_shape):
        return None
    rows = zip(shape, weight.whole_shape, weight.split, strict=True)
    return regions.of_split([cut if size == of else slice(None) for size, of, cut in rows], shape)


def _few(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def check_plain(value: Any, what: str) -> None:
    """Raise if a value is not made of plain JSON values."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise MXNetError(f"{what} must have strings as keys, received {list(value)!r:.100}")
        for key, each in value.items():
            check_plain(each, f"{what}[{key!r}]")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            check_plain(each, f"{what}[{number}]")
    elif not (value is None or type(value) in (bool, int, float, str)):
        raise MXNetError(
            f"{what} is a {type(value).__name__}: expected None, a bool, an int, a float, a str, or lists and dicts of "
            "them"
        )
