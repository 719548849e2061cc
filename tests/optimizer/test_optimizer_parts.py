"""Optimizers on Parts: several ranks (here threads) compute the same values as one rank with whole arrays."""

import threading

import numpy as np
import pytest
import torch
from launching import LIMIT

import neomx as mx
from neomx.optimizer import Part

SHAPES = [(5, 4), (7,), (4, 3, 2, 2), (1, 6), (3, 1)]
NAMES = ["a_weight", "a_bias", "b_weight", "c_weight", "c_gamma"]
STEPS = 3


class Ranks:
    """Threads that act as ranks. One runs at a time, until it waits: they share a random generator."""

    def __init__(self, count):
        self.count, self.calls = count, [0] * count
        self._given, self._barrier, self._turn = [None] * count, threading.Barrier(count), threading.Lock()

    def exchange(self, rank, value):
        """Return the values of all ranks on each rank."""
        self._given[rank] = value
        self._wait()
        result = list(self._given)
        self._wait()
        self.calls[rank] += 1
        return result

    def _wait(self):
        self._turn.release()
        try:
            self._barrier.wait(LIMIT)
        finally:
            self._turn.acquire()

    def total(self, rank):
        return lambda x: torch.stack(self.exchange(rank, x)).sum(0)

    def gather(self, rank):
        def gather(tensor, part):
            whole = torch.full(part.whole_shape, np.nan, dtype=tensor.dtype)
            for piece, split in self.exchange(rank, (tensor, part.split)):
                whole[split] = piece
            return whole

        return gather

    def run(self, work):
        """Return the results of `work(rank)` on each rank."""
        results, errors = [None] * self.count, []

        def one(rank):
            try:
                with self._turn:
                    results[rank] = work(rank)
            except BaseException as error:
                errors.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        if errors:
            raise errors[0]
        return results


def rows(shape, rank, count):
    """Split by rows as `torch.chunk` does: unevenly, with none for some ranks."""
    return (cut_of(shape[0], rank, count), *[slice(None)] * (len(shape) - 1))


def columns(shape, rank, count):
    """Split by columns, or by rows if there are none."""
    if len(shape) == 1:
        return rows(shape, rank, count)
    return (slice(None), cut_of(shape[1], rank, count), *[slice(None)] * (len(shape) - 2))


def both(shape, rank, count):
    """Split rows over two ranks, and columns over the others."""
    if len(shape) == 1:
        return rows(shape, rank, count)
    return (cut_of(shape[0], rank % 2, 2), *columns(shape, rank // 2, count // 2)[1:])


def lopsided(shape, rank, count):
    """Give all but one row to the last rank, and none to the first."""
    first = [0, 0, shape[0] - 1, shape[0]] if count == 3 else [0, 0, shape[0]]
    return (slice(first[rank], first[rank + 1]), *[slice(0, size) for size in shape[1:]])


def cut_of(size, rank, count):
    length = -(-size // count)
    return slice(min(rank * length, size), min((rank + 1) * length, size))


SPLITS = [(rows, 2), (rows, 4), (columns, 2), (both, 4), (lopsided, 3)]
EVERY = [
    ("adadelta", {"wd": 0.1}),
    ("adagrad", {"learning_rate": 0.1, "wd": 0.1}),
    ("adam", {"learning_rate": 0.05, "wd": 0.1}),
    ("adam", {"learning_rate": 0.05, "clip_gradient": 0.2}),
    ("adamax", {"learning_rate": 0.05, "wd": 0.1}),
    ("adamw", {"learning_rate": 0.05, "wd": 0.1}),
    ("ccsgd", {"momentum": 0.9}),
    ("dcasgd", {"momentum": 0.9, "wd": 0.1}),
    ("ftml", {"learning_rate": 0.05, "wd": 0.1}),
    ("ftrl", {"learning_rate": 0.05, "wd": 0.1}),
    ("groupadagrad", {"learning_rate": 0.05}),
    ("groupadagrad", {"learning_rate": 0.05, "clip_gradient": 0.2}),
    ("lamb", {"learning_rate": 0.05, "wd": 0.1}),
    ("lamb", {"learning_rate": 0.05, "bias_correction": False, "lower_bound": 0.5, "upper_bound": 1.5}),
    ("lars", {"learning_rate": 0.5, "eta": 0.1, "wd": 0.1}),
    ("lars", {"learning_rate": 0.5, "eta": 0.1, "momentum": 0.9, "clip_gradient": 0.2}),
    ("lbsgd", {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.1}),
    ("lbsgd", {"learning_rate": 0.05, "momentum": 0.9, "warmup_strategy": "lars", "batch_scale": 2, "wd": 0.1}),
    ("lbsgd", {"learning_rate": 0.05, "warmup_strategy": "lars"}),
    ("nadam", {"learning_rate": 0.05, "wd": 0.1}),
    ("nag", {"momentum": 0.9, "wd": 0.1}),
    ("rmsprop", {"learning_rate": 0.05, "wd": 0.1}),
    ("rmsprop", {"learning_rate": 0.05, "centered": True, "clip_weights": 0.7}),
    ("sgd", {"momentum": 0.9, "wd": 0.1}),
    ("sgd", {}),
    ("sgld", {"learning_rate": 0.05, "wd": 0.1}),
    ("signum", {"momentum": 0.9, "wd": 0.1, "wd_lh": 0.1}),
    ("signum", {"momentum": 0.0}),
    ("test", {}),
]


def shapes_of(name):
    return [shape for shape in SHAPES if len(shape) == 2] if name == "groupadagrad" else SHAPES


def values(seed, name, dtype):
    rng = np.random.RandomState(seed)
    return [torch.tensor(rng.uniform(-2, 2, shape), dtype=dtype) for shape in shapes_of(name)]


def updater(name, settings):
    schedule = mx.lr_scheduler.FactorScheduler(2, 0.5)
    optimizer = mx.optimizer.create(
        name, rescale_grad=1 / 8, lr_scheduler=schedule, param_idx2name=dict(enumerate(NAMES)), **settings
    )
    optimizer.set_lr_mult({1: 0.5})
    return mx.optimizer.get_updater(optimizer)


def train(made, weights, name, dtype, numbers=range(STEPS)):
    """Update whole arrays or Parts, with gradients of the whole arrays."""
    for number in numbers:
        mx.random.seed(number)
        grads = [
            mx.nd.from_torch((w.cut(whole) if isinstance(w, Part) else whole).clone())
            for w, whole in zip(weights, values(number + 100, name, dtype), strict=False)  # there may be fewer weights
        ]
        made(list(range(len(weights))), grads, weights)
    return made


def parts_of(wholes, ranks, rank, split):
    total, cuts = ranks.total(rank), [split(tuple(whole.shape), rank, ranks.count) for whole in wholes]
    return [Part(w[cut].clone(), mx.cpu(), w.shape, cut, total) for w, cut in zip(wholes, cuts, strict=True)]


def flat(state):
    if isinstance(state, (list, tuple)):
        return [array for each in state for array in flat(each)]
    return [] if state is None else [state]


def whole_run(name, settings, dtype=torch.float32):
    """Return the weights of one process, and the updater that trained them."""
    weights = [mx.nd.from_torch(whole) for whole in values(0, name, dtype)]
    return weights, train(updater(name, settings), weights, name, dtype)


def parts_run(name, settings, split, count, dtype=torch.float32):
    """Return the whole weights, the gathered updater and the number of sums of each rank."""
    ranks = Ranks(count)

    def work(rank):
        weights = parts_of(values(0, name, dtype), ranks, rank, split)
        made = train(updater(name, settings), weights, name, dtype)
        summed = ranks.calls[rank]
        gather = ranks.gather(rank)
        wholes = [gather(weight._data, weight) for weight in weights]
        return wholes, made.gathered(dict(enumerate(weights)), gather), summed

    return ranks.run(work)


def assert_like(found, expected, rtol, atol=0.0):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def numpys(weights, made):
    arrays = [*weights, *flat([made.states[i] for i in range(len(weights))])]
    return [a.float().numpy() if isinstance(a, torch.Tensor) else a.asnumpy() for a in arrays]


def test_every_optimizer_is_tested():
    ours = {name for name, cls in mx.optimizer.Optimizer.opt_registry.items() if cls.__module__.startswith("neomx.")}
    assert {name for name, _ in EVERY} == ours


@pytest.mark.parametrize(("split", "count"), SPLITS)
@pytest.mark.parametrize(("name", "settings"), EVERY)
def test_parts_equal_whole_weights(name, settings, split, count):
    expected = numpys(*whole_run(name, settings))
    for wholes, made, _ in parts_run(name, settings, split, count):
        # float32 rounds at 6e-8. For weights near 0, the rounding of the last steps remains: 1e-7.
        assert_like(numpys(wholes, made), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "settings"), [each for each in EVERY if each[0] in ("lamb", "lars", "sgld", "adamw")])
def test_replicated_weights_count_once(name, settings):
    expected = numpys(*whole_run(name, settings))
    weights = [
        Part(whole, mx.cpu(), whole.shape, [slice(None)] * whole.dim(), lambda x: x)
        for whole in values(0, name, torch.float32)
    ]
    assert_like(numpys(weights, train(updater(name, settings), weights, name, torch.float32)), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("split", "count"), [(rows, 4), (columns, 2)])
@pytest.mark.parametrize(("name", "settings"), EVERY)
def test_half_precision_with_float32_copies(name, settings, split, count, dtype):
    settings = {**settings, "multi_precision": True}
    expected = numpys(*whole_run(name, settings, dtype))
    for wholes, made, _ in parts_run(name, settings, split, count, dtype)[:1]:
        # The float32 copies differ by rounding, and may round to adjacent values in half precision.
        assert_like(numpys(wholes, made)[: len(wholes)], expected[: len(wholes)], rtol=2 * torch.finfo(dtype).eps)
        masters = slice(len(wholes), None)
        assert_like(numpys(wholes, made)[masters], expected[masters], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "more", "sums"),
    [
        ("lamb", {}, STEPS),
        ("lars", {}, STEPS),  # updated with four weights per call
        ("lbsgd", {"warmup_strategy": "lars"}, STEPS),
        ("lbsgd", {"warmup_strategy": "lars", "batch_scale": 2}, STEPS // 2),
        ("groupadagrad", {}, STEPS),
        ("adam", {}, 0),
    ],
)
def test_sums_of_all_weights_use_one_collective(name, more, sums):
    assert {summed for _, _, summed in parts_run(name, {"learning_rate": 0.1, **more}, columns, 2)} == {sums}


def test_rows_need_no_sums_over_columns():
    assert {summed for _, _, summed in parts_run("groupadagrad", {"learning_rate": 0.1}, rows, 2)} == {0}


class Unchanged(mx.optimizer.LARS):
    """Calls the inherited method with one weight at a time."""

    def update_multi_precision(self, index, weight, grad, state):
        for row in zip(index, weight, grad, state, strict=True):
            super().update_multi_precision(*row)


def test_subclass_uses_its_own_update():
    settings = {"learning_rate": 0.5, "eta": 0.1}
    weights = values(0, "lars", torch.float32)
    ranks = Ranks(2)

    def work(rank):
        parts = parts_of(weights, ranks, rank, rows)
        train(mx.optimizer.get_updater(Unchanged(**settings)), parts, "lars", torch.float32, [0])
        return ranks.calls[rank], [ranks.gather(rank)(part._data, part) for part in parts]

    whole = [mx.nd.from_torch(weight.clone()) for weight in weights]
    train(mx.optimizer.get_updater(Unchanged(**settings)), whole, "lars", torch.float32, [0])
    for calls, found in ranks.run(work):
        assert calls == len(SHAPES)
        assert_like([each.numpy() for each in found], [each.asnumpy() for each in whole], rtol=1e-6)


# ---- states in files ----


@pytest.mark.parametrize("precision", [{}, {"multi_precision": True}])
@pytest.mark.parametrize(("name", "settings"), EVERY)
def test_states_of_any_split_equal_single_process(name, settings, precision, tmp_path):
    """States saved by four ranks are loaded by one, by two with columns and by four. All continue like one process."""
    dtype = torch.float16 if precision else torch.float32
    settings, file = {**settings, **precision}, tmp_path / "a.states"
    weights, one = whole_run(name, settings, dtype)
    saved = parts_run(name, settings, both, 4, dtype)
    for _, made, _ in saved:
        assert_same_layout(made.get_states(dump_optimizer=True), one.get_states(dump_optimizer=True))
    file.write_bytes(saved[0][1].get_states(dump_optimizer=True))
    started = [weight._data.clone() for weight in weights]
    expected = numpys(weights, train(one, weights, name, dtype, [7, 8]))

    again = [mx.nd.from_torch(weight.clone()) for weight in started]
    restored = updater(name, settings).restored(file, dict(enumerate(again)))
    close(numpys(again, train(restored, again, name, dtype, [7, 8])), expected, dtype)
    for split, count in [(columns, 2), (both, 4)]:
        for wholes, made in go_on(name, settings, dtype, file, started, split, count):
            close(numpys(wholes, made), expected, dtype)


def go_on(name, settings, dtype, file, started, split, count):
    ranks = Ranks(count)

    def work(rank):
        parts = parts_of(started, ranks, rank, split)
        made = updater(name, settings).restored(file, dict(enumerate(parts)))
        train(made, parts, name, dtype, [7, 8])
        gather = ranks.gather(rank)
        return [gather(part._data, part) for part in parts], made.gathered(dict(enumerate(parts)), gather)

    return ranks.run(work)


def close(found, expected, dtype):
    assert_like(found, expected, rtol=2e-6 if dtype is torch.float32 else 2 * torch.finfo(dtype).eps, atol=1e-7)


def assert_same_layout(one, other):
    """Assert that two files are equal up to rounding: the same structure, array names and shapes."""
    found, expected = map(mx.nd.load_frombuffer, (one, other))
    assert found.pop("header").asnumpy().tobytes() == expected.pop("header").asnumpy().tobytes()
    assert found.keys() == expected.keys()
    assert_like([found[key].asnumpy() for key in found], [expected[key].asnumpy() for key in found], 2e-6, 1e-7)


def test_states_are_split_and_gathered():
    part = Part(torch.zeros(2, 3), mx.cpu(), (4, 3), (slice(2, 4), slice(None)), lambda x: x)
    whole = {0: (mx.nd.arange(12).reshape((4, 3)), None, 3), 1: mx.nd.ones((4, 3))}
    cut = mx.optimizer.cut_states(whole, {0: part})
    assert cut[0][0].asnumpy().tolist() == [[6, 7, 8], [9, 10, 11]] and cut[0][1:] == (None, 3)
    assert cut[1] is whole[1]  # not of a Part
    again = mx.optimizer.cut_states(cut, {0: part})
    assert again[0][0].shape == (2, 3)
    back = mx.optimizer.gather_states(cut, {0: part}, lambda tensor, _: torch.cat([torch.zeros(2, 3), tensor]))
    assert back[0][0].asnumpy().tolist() == [[0] * 3, [0] * 3, [6, 7, 8], [9, 10, 11]]


@pytest.mark.parametrize("name", ["groupadagrad", "adam"])
def test_states_of_single_rows_and_columns_keep_their_kind(name):
    """In a Part with one column, states like the weight and states per row have the same shape."""
    made, (whole, *_) = updater(name, {}), values(0, name, torch.float32)
    train(made, [mx.nd.from_torch(whole.clone())], name, torch.float32, [0])
    states = made.get_states()
    ranks = Ranks(4)

    def work(rank):
        parts = parts_of([whole], ranks, rank, columns)
        mine = updater(name, {})
        mine.set_states(states)
        train(mine, parts, name, torch.float32, [1])
        mine.set_states(mine.get_states())  # states of Parts are not split again
        train(mine, parts, name, torch.float32, [2])
        return mine.gathered({0: parts[0]}, ranks.gather(rank)).get_states(dump_optimizer=True)

    made = updater(name, {})
    made.set_states(states)
    expected = train(made, [mx.nd.from_torch(whole.clone())], name, torch.float32, [1, 2]).get_states(
        dump_optimizer=True
    )
    for found in ranks.run(work):
        assert_same_layout(found, expected)


def test_states_of_another_shape_are_rejected():
    made = updater("sgd", {"momentum": 0.9})
    other = updater("sgd", {"momentum": 0.9})
    train(made, [mx.nd.zeros(shape) for shape in SHAPES], "sgd", torch.float32, [0])
    other.set_states(made.get_states())
    part = Part(torch.zeros(3, 4), mx.cpu(), (6, 4), (slice(0, 3), slice(None)), lambda x: x)
    with pytest.raises(mx.MXNetError, match=r"weight 0 is an array of shape \(5, 4\).*needs an array of shape \(3, 4"):
        other([0], [mx.nd.zeros((3, 4))], [part])


# ---- errors ----


@pytest.mark.parametrize("name", ["sgd", "adam", "lars"])
def test_sparse_gradients_of_parts_are_rejected(name):
    part = Part(torch.zeros(2, 3), mx.cpu(), (4, 3), (slice(0, 2), slice(None)), lambda x: x)
    grad = mx.nd.ones((2, 3)).tostype("row_sparse")
    with pytest.raises(mx.MXNetError, match="weight 5 is sharded over ranks.*its gradient is row_sparse"):
        mx.optimizer.get_updater(mx.optimizer.create(name))([5], [grad], [part])


@pytest.mark.parametrize(
    ("whole", "split"),
    [
        ((4, 3), (slice(0, 3), slice(None))),
        ((4,), (slice(0, 2),)),
        ((4, 3), (slice(0, 2),)),
        ((2, 4), (slice(None),) * 2),
    ],
)
def test_part_must_match_its_split(whole, split):
    with pytest.raises(mx.MXNetError, match=r"a part of shape \(2, 3\) is not \[.*of an array of shape \("):
        Part(torch.zeros(2, 3), mx.cpu(), whole, split, lambda x: x)


def test_lamb_rejects_noncontiguous_part():
    part = Part(torch.zeros(4, 3)[:, :2], mx.cpu(), (4, 3), (slice(None), slice(0, 2)), lambda x: x)
    with pytest.raises(mx.MXNetError, match=r"part of weight 5, of shape \(4, 2\), is not contiguous"):
        mx.optimizer.get_updater(mx.optimizer.LAMB())([5], [mx.nd.zeros((4, 2))], [part])


# ---- total norms ----


def test_total_norm_uses_one_collective_per_group():
    wholes = values(3, "sgd", torch.float32)
    expected = float(np.sqrt(sum(np.square(each.double().numpy()).sum() for each in wholes)))
    first, second = Ranks(2), Ranks(2)

    def work(rank):
        parts = [*parts_of(wholes[:2], first, rank, rows), *parts_of(wholes[2:4], second, rank, columns)]
        copied = Part(wholes[4], mx.cpu(), wholes[4].shape, [slice(None)] * 2, lambda x: x)
        return mx.optimizer.total_norm([parts[2], parts[0], copied, *parts[1:2], parts[3]])

    first._turn = second._turn
    assert first.run(work) == pytest.approx([expected] * 2, rel=1e-6)
    assert (first.calls, second.calls) == ([1, 1], [1, 1])
    assert mx.optimizer.total_norm([mx.nd.from_torch(each) for each in wholes]) == pytest.approx(expected, rel=1e-6)
    assert mx.optimizer.total_norm([]) == 0


# ---- AdamW, which MXNet 1.9 has only as an op ----


@pytest.mark.parametrize("limit", [None, 0.1])
@pytest.mark.parametrize("fused", [True, False])
def test_adamw_equals_torch(fused, limit):
    weights = [mx.nd.from_torch(each) for each in values(0, "adamw", torch.float32)]
    others = [each.clone().requires_grad_() for each in values(0, "adamw", torch.float32)]
    theirs = torch.optim.AdamW(others, lr=0.05, weight_decay=0.1)
    settings = {"learning_rate": 0.05, "wd": 0.1, "rescale_grad": 1 / 8, "clip_gradient": limit}
    ours = mx.optimizer.get_updater(mx.optimizer.AdamW(**settings))
    if not fused:
        ours._fused.update = lambda optimizer, states, indices, *_: range(len(indices))
    for number in range(5):
        for other, grad in zip(others, values(number + 100, "adamw", torch.float32), strict=True):
            other.grad = grad / 8 if limit is None else (grad / 8).clamp(-limit, limit)
        theirs.step()
        train(ours, weights, "adamw", torch.float32, [number])
    assert_like([w.asnumpy() for w in weights], [o.detach().numpy() for o in others], rtol=2e-6, atol=1e-7)
