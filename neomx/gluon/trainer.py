"""Trainer: applies an optimizer to Parameters, after summing their gradients over contexts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from .. import kvstore as kv
from .. import optimizer as opt
from ..events import emit
from ..formats.atomic import replacing
from ..ndarray import NDArray
from .data.place import current_batch
from .exchange import ServerExchange, WorkerExchange, make_exchange
from .gradients import is_fresh, mark_used
from .loading import ensemble_of
from .parameter import Parameter
from .parameter_dict import ParameterDict


class Trainer:
    """`trainer.step(batch_size)` after each backward: gradients are summed over contexts, divided, and applied."""

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        kvstore: Any = "device",
        compression_params: dict[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ):
        self._params = _listed(params)
        self._compression_params = compression_params
        self._contexts = self._check_contexts()
        self._init_optimizer(optimizer, optimizer_params or {})
        self._scale = self._optimizer.rescale_grad
        self._kvstore_params = {"kvstore": kvstore, "update_on_kvstore": update_on_kvstore}
        self._kvstore: Any = None
        self._update_on_kvstore: bool | None = None
        self._kv_initialized = False
        self._plan: Any = None
        self._exchange: WorkerExchange | ServerExchange | None = None  # with other workers
        self._amp_loss_scaler: Any = None  # set by amp.init_trainer
        self._amp_agree: Callable[[bool], bool] | None = None  # whether any rank's part of the gradients overflowed
        for param in self._params:
            param._set_trainer(self)
        if isinstance(kvstore, str) and kv.is_distributed(kvstore):
            self._refuse_layout(kvstore)
            self._kvstore_params["kvstore"] = kv.create(kvstore)
        self._begin_alike([param for param in self._params if param._arrays is not None])

    def _refuse_layout(self, kvstore: str) -> None:
        placed = [param.name for param in self._params if param._placement is not None]
        if placed:
            raise ValueError(
                f"kvstore={kvstore!r}: a layout says already how the gradients of {placed[0]!r} and others meet. Leave "
                "kvstore out"
            )

    def _is_placed(self) -> bool:
        """Whether a layout has the Parameters in hand."""
        return ensemble_of(self._params) is not None

    def _take_layout(self) -> None:
        """Choose again how gradients meet, and cut the states: a layout has come after a step, or a file's states."""
        self._kv_initialized = False
        for updater in self._updaters:
            updater.bring_again()

    def _begin_alike(self, params: list[Parameter]) -> None:
        """Give these parameters, on all workers, the values they have on the first."""
        store = self._kvstore_params["kvstore"]
        if params and getattr(store, "begins_alike", False):
            store.group.broadcast_all_([array._data for param in params for array in param.list_data()])

    def _check_contexts(self) -> list[Any]:
        contexts: list[Any] | None = None
        for param in self._params:
            listed = param.list_ctx()
            if contexts is not None and contexts != listed:
                raise AssertionError(
                    f"All Parameters must be initialized on the same set of contexts, but Parameter {param.name!r} is "
                    f"initialized on {listed} while previous Parameters are initialized on {contexts}."
                )
            contexts = listed
        return contexts or []

    def _init_optimizer(self, optimizer: Any, optimizer_params: dict[str, Any]) -> None:
        by_index: dict[Any, Any] = dict(enumerate(self._params))
        if isinstance(optimizer, opt.Optimizer):
            if optimizer_params:
                raise AssertionError(
                    "optimizer_params must be None if optimizer is an instance of Optimizer instead of str"
                )
            self._optimizer = optimizer
            self._optimizer.param_dict = by_index
        else:
            self._optimizer = opt.create(optimizer, param_dict=by_index, **optimizer_params)
        self._updaters = [opt.get_updater(self._optimizer) for _ in self._contexts]

    def _init_kvstore(self) -> None:
        """Choose the store when the first step tells that all is in place."""
        ensemble = ensemble_of(self._params)
        if ensemble is not None:
            self._kvstore, self._update_on_kvstore, self._kv_initialized = None, False, True
            self._exchange, self._amp_agree = ensemble.exchange(self), ensemble.any
            return
        kvstore, on_store = self._kvstore_params["kvstore"], self._kvstore_params["update_on_kvstore"]
        store = kv.create(kvstore) if isinstance(kvstore, str) else kvstore
        if store is not None and not isinstance(store, kv.KVStoreBase):
            raise TypeError(f"kvstore must be a KVStore, the name of one, or None; received {kvstore!r:.80}")
        if store is not None and len(self._contexts) == 1 and isinstance(kvstore, str) and "dist" not in kvstore:
            store = None
        if store is None:
            if on_store:
                raise ValueError("Cannot set update_on_kvstore=True when no kvstore is in use")
            on_store = False if len(self._contexts) > 1 else None
        else:
            capable = store.is_capable(kv.KVStoreBase.OPTIMIZER)
            if on_store and not capable:
                raise ValueError(f"update_on_kvstore=True: the kvstore {store.type!r} cannot run an optimizer")
            on_store = capable if on_store is None else bool(on_store)
            self._prepare(store, on_store)
        self._kvstore, self._update_on_kvstore, self._kv_initialized = store, on_store, True
        self._exchange = make_exchange(self, store)

    def _prepare(self, store: Any, on_store: bool) -> None:
        """Give a store what it needs: nothing, if workers exchange gradients and update by themselves."""
        if self._compression_params:
            store.set_gradient_compression(self._compression_params)
        if getattr(store, "exchanges_by", None) == "workers":
            return
        if on_store:
            store.set_optimizer(self._optimizer)
        for i, param in enumerate(self._params):
            arrays = param.list_data()
            if isinstance(store, kv.KVStore):
                store.init(i, arrays[0])
            else:
                store.broadcast(i, arrays[0], out=arrays)

    def _take_states(self, content: bytes) -> None:
        """Go on from the states, and the optimizer, of another worker."""
        for updater in self._updaters:
            updater.set_states(content)
            updater.optimizer = self._updaters[0].optimizer
        self._optimizer = self._updaters[0].optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))

    def _store_updates(self) -> bool:
        """Whether the optimizer runs in the store, which is chosen now if it was not before."""
        if not self._kv_initialized:
            self._init_kvstore()
        return self._kvstore is not None and bool(self._update_on_kvstore)

    def _parameter_was_set(self) -> None:
        """A program wrote other values into a parameter: a store that updates must take them over."""
        if not self._kv_initialized or not self._store_updates():
            return
        if isinstance(self._exchange, WorkerExchange):
            return  # every worker holds its weights itself
        if "dist" in self._kvstore.type:
            raise RuntimeError("Cannot reset distributed KVStore.")
        # The states live on: they are the updater's, which goes over to the new store.
        updater, self._kvstore, self._kv_initialized = self._kvstore._updater, None, False
        self._init_kvstore()
        self._kvstore._updater = updater

    @property
    def learning_rate(self) -> float:
        """The rate of the next update."""
        return self._optimizer.learning_rate

    @property
    def optimizer(self) -> opt.Optimizer:
        """The optimizer it applies."""
        return self._optimizer

    def set_learning_rate(self, lr: float) -> None:
        """Set the rate."""
        self._optimizer.set_learning_rate(lr)

    def _rescale(self, batch_size: float) -> None:
        try:
            scale = self._scale / batch_size
        except (ZeroDivisionError, TypeError):
            raise ValueError(f"batch_size must be a number, and not 0, received {batch_size!r}") from None
        self._optimizer.rescale_grad = scale

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients over contexts, divide them by `batch_size`, update the parameters."""
        began = time.perf_counter()
        self._step(batch_size, ignore_stale_grad)
        emit("step", trainer=self, samples=batch_size, seconds=time.perf_counter() - began)

    def _step(self, batch_size: float, ignore_stale_grad: bool) -> None:
        self._rescale(batch_size)
        if not self._kv_initialized:
            self._init_kvstore()
        if self._exchange is not None:
            self._step_together(self._exchange, batch_size, ignore_stale_grad)
            return
        if self._kvstore is not None:
            self._find_stale(ignore_stale_grad)  # before gradients are summed
        self._allreduce_grads()
        self._update(ignore_stale_grad)

    def _step_together(self, exchange: Any, batch_size: float, ignore_stale_grad: bool) -> None:
        """A step with all workers: the same sums, divided by the same number, update the same weights."""
        if self._update_on_kvstore and isinstance(exchange, ServerExchange):
            exchange.update(batch_size, ignore_stale_grad)
            for _, _, weights in self._current_plan():
                for weight in weights:
                    mark_used(weight)
            return
        divisor, stale = exchange.reduce(batch_size)
        self._rescale(divisor)
        if self._overflowed(total for total, old in zip(exchange.sums, stale, strict=True) if not old):
            return
        self._refuse_stale(stale, ignore_stale_grad)
        kept = [i for i, each in enumerate(stale) if not each]
        for updater, (indices, _, weights) in zip(self._updaters, self._current_plan(), strict=True):
            if not self._update_on_kvstore:
                _put(exchange.sums, stale, weights)
            sums = [_beside(exchange.sums[i], weights[i]) for i in kept]
            exchange.apply(updater, [indices[i] for i in kept], sums, [weights[i] for i in kept])
            for weight in weights:
                mark_used(weight)

    @staticmethod
    def _samples(batch_size: float) -> float:
        """How many samples this worker has in the step, -1 if that is not known."""
        batch = current_batch()
        return -1 if batch is None or batch.samples is None else batch.samples

    def _refuse_stale(self, stale: list[bool], ignore_stale_grad: bool) -> None:
        if any(stale) and not ignore_stale_grad:
            first = self._current_plan()[0][0][stale.index(True)]
            raise UserWarning(_stale_message(self._params[first].name, self._contexts[0]))

    def allreduce_grads(self) -> None:
        """Sum the gradients over contexts only; `update` then applies them."""
        if self._store_updates():
            raise AssertionError(
                "allreduce_grads() when parameters are updated on kvstore is not supported. Try setting "
                "`update_on_kvstore` to False when creating trainer."
            )
        self._allreduce_grads()

    def _allreduce_grads(self) -> None:
        """The one seam between a step and other devices: override it to reduce elsewhere."""
        if self._update_on_kvstore or (self._kvstore is None and self._exchange is None):
            return  # in a store that updates, `_update` pushes: it knows which gradients are fresh
        if self._exchange is not None:
            _, nobody_has = self._exchange.reduce(float("nan"))  # `update` will say what to divide by
            for _, _, weights in self._current_plan():
                _put(self._exchange.sums, nobody_has, weights)
            return
        for i, param in enumerate(self._params):
            if param.grad_req != "null":
                stale = [weight for weight in param.list_data() if not is_fresh(weight)]
                gradients = param.list_grad()
                self._kvstore.pushpull(i, gradients, out=gradients, priority=-i)
                for weight in stale:  # a sum is no backward
                    mark_used(weight)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Apply gradients that `allreduce_grads` has summed."""
        if self._store_updates():
            raise AssertionError(
                "update() when parameters are updated on kvstore is not supported. Try setting `update_on_kvstore` to "
                "False when creating trainer."
            )
        began = time.perf_counter()
        self._rescale(batch_size if self._exchange is None else self._exchange.agree(batch_size))
        self._update(ignore_stale_grad)
        emit("step", trainer=self, samples=batch_size, seconds=time.perf_counter() - began)

    def _find_stale(self, ignore_stale_grad: bool) -> list[set[int]]:
        """Which weights of the plan, by context, have gradients that were used before; refused unless ignored."""
        plan = self._current_plan()
        stale = [{i for i, weight in enumerate(weights) if not is_fresh(weight)} for _, _, weights in plan]
        for ctx, (indices, _, _), found in zip(self._contexts, plan, stale, strict=True):
            if found and not ignore_stale_grad:
                raise UserWarning(_stale_message(self._params[indices[min(found)]].name, ctx))
        return stale

    def _overflowed(self, gradients: Iterable[NDArray]) -> bool:
        """Whether gradients of a scaled loss are not finite: then they count as used, and the step is left out."""
        scaler = self._amp_loss_scaler
        if scaler is None or not scaler.overflowed(list(gradients), self._amp_agree):
            return False
        for _, _, weights in self._current_plan():
            for weight in weights:
                mark_used(weight)
        return True

    def _update(self, ignore_stale_grad: bool) -> None:
        rows = (row for _, gradients, weights in self._current_plan() for row in zip(gradients, weights, strict=True))
        if self._overflowed(gradient for gradient, weight in rows if is_fresh(weight)):
            return
        stale = self._find_stale(ignore_stale_grad)
        for at, (indices, gradients, weights) in enumerate(self._current_plan()):
            if stale[at]:
                fresh = [i for i in range(len(weights)) if i not in stale[at]]
                indices, gradients = [indices[i] for i in fresh], [gradients[i] for i in fresh]
                weights = [weights[i] for i in fresh]
                if not weights:
                    continue
            if self._update_on_kvstore and self._kvstore is not None:
                if at == 0:
                    self._update_by_store(indices)
                continue  # MXNet asks once whether such gradients are fresh, never again
            apply = self._updaters[at] if self._exchange is None else partial(self._exchange.apply, self._updaters[at])
            apply(indices, gradients, weights)
            for weight in weights:
                mark_used(weight)

    def _update_by_store(self, indices: list[int]) -> None:
        for i in indices:
            param = self._params[i]
            self._kvstore.push(i, param.list_grad(), priority=-i)
            self._kvstore.pull(i, param.list_data(), priority=-i)

    def _current_plan(self) -> list[tuple[list[int], list[NDArray], list[NDArray]]]:
        """(indices, gradients, weights) of the trained parameters by context: the same lists while nothing changes."""
        for param in self._params:
            param._follow()
        arrays = [param._arrays for param in self._params]
        reqs = [(param._grad_req, param._placement and param._placement.identity(param)) for param in self._params]
        key = self._plan[0] if self._plan else None
        if key is None or key[1] != reqs or any(a is not b for a, b in zip(arrays, key[0], strict=True)):
            trained = [(i, p) for i, p in enumerate(self._params) if p.grad_req != "null" and p._is_here]
            per_context = []
            for ctx in self._contexts:
                weights = [param._local(ctx) for _, param in trained]
                per_context.append(([i for i, _ in trained], [w._grad for w in weights], weights))
            self._plan = ((arrays, reqs), per_context)
        return self._plan[1]

    def save_states(self, fname: str) -> None:
        """Write the optimizer's states to a file."""
        if self._store_updates() and not isinstance(self._exchange, WorkerExchange):
            self._kvstore.save_optimizer_states(fname, dump_optimizer=True)
            return
        if self._is_placed():
            self._exchange.save_states(fname)  # type: ignore[union-attr]
            return
        with replacing(fname) as file:
            file.write(self._updaters[0].get_states(dump_optimizer=True))

    def load_states(self, fname: str) -> None:
        """Read the optimizer's states from a file."""
        if self._store_updates() and not isinstance(self._exchange, WorkerExchange):
            self._kvstore.load_optimizer_states(fname)
            self._optimizer = self._kvstore._updater.optimizer
        else:
            self._updaters = [
                self._exchange.restored(updater, fname)  # type: ignore[union-attr]
                if self._is_placed()
                else updater.restored(fname, {i: _known(param, ctx) for i, param in enumerate(self._params)})
                for updater, ctx in zip(self._updaters, self._contexts, strict=True)
            ]
            for updater in self._updaters:
                updater.optimizer = self._updaters[0].optimizer
            self._optimizer = self._updaters[0].optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))


def _known(param: Parameter, ctx: Any) -> NDArray | None:
    return None if param._arrays is None else param.data(ctx)


def _listed(params: Any) -> list[Parameter]:
    """The Parameters of a dictionary, in the order of their names, or of a list."""
    if isinstance(params, (dict, ParameterDict)):
        params = [params[name] for name in sorted(params.keys())]
    if not isinstance(params, (list, tuple)):
        raise ValueError(f"First argument must be a list or dict of Parameters, got {type(params)}.")
    for param in params:
        if not isinstance(param, Parameter):
            raise ValueError(f"First argument must be a list or dict of Parameters, got list of {type(param)}.")
    return list(params)


def _put(sums: list[NDArray], stale: list[bool], weights: list[NDArray]) -> None:
    """Make the sums the weights' gradients; those that nobody computed stay used."""
    for total, old, weight in zip(sums, stale, weights, strict=True):
        if total is not weight._grad:
            total.copyto(weight._grad)  # type: ignore[arg-type]
        if old:
            mark_used(weight)


def _beside(total: NDArray, weight: NDArray) -> NDArray:
    """A sum where its weight is."""
    return total if total._data.device == weight._data.device else total.as_in_context(weight.context)


def _stale_message(name: str, ctx: Any) -> str:
    return (
        f"Gradient of Parameter `{name}` on context {ctx} has not been updated by backward since last `step`. Perhaps "
        "this iteration used a part of the model only. If that is meant, call step with ignore_stale_grad=True, which "
        "leaves the Parameters with stale gradients as they are"
    )
