"""Pipelines: cuts, schedules, errors; training on 2 and 4 workers equals one process.

Tolerance of losses and weights: one process sums the gradients of micro-batches in the same order, so without data
parallelism, clipping or a shared weight results are bitwise equal. Sums over workers are rounded in a different order.
"""

import itertools
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from launching import LIMIT, SOON, neomx_run
from torch.distributed import pipelining

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.base import MXNetError
from neomx.gluon import nn
from neomx.parallel import Layout, train_step
from neomx.parallel.checkpointing import checkpoint_blocks
from neomx.parallel.schedules import SCHEDULES, find_schedule
from neomx.parallel.stages import Cut, balance, by_parameters, ends_at, pieces_of

HERE = pathlib.Path(__file__).parents[1]
TOLERANCE = 5e-6


def mlp(layers=6):
    net = nn.HybridSequential()
    for _ in range(layers):
        net.add(nn.Dense(4, in_units=4, activation="tanh"))
    net.initialize()
    return net


# ---- cuts ----


def dearest(costs, ends):
    return max(sum(costs[begin:end]) for begin, end in zip([0, *ends], ends, strict=False))


def test_balanced_cut_is_optimal():
    random = np.random.default_rng(0)
    for pieces, stages in itertools.product(range(2, 9), range(1, 6)):
        if stages > pieces:
            continue
        costs = random.integers(1, 20, pieces).astype(float).tolist()
        ends = balance(costs, stages)
        assert ends == sorted(set(ends)) and ends[-1] == pieces and len(ends) == stages and ends[0] > 0
        every = ([*cuts, pieces] for cuts in itertools.combinations(range(1, pieces), stages - 1))
        assert dearest(costs, ends) == min(dearest(costs, each) for each in every)


def test_pieces_of_models():
    net = mlp(3)
    assert [piece.name for piece in pieces_of(net)] == ["0", "1", "2"]
    nested = nn.Sequential()
    nested.add(mlp(2), nn.Dense(3, in_units=4))
    assert [piece.name for piece in pieces_of(nested)] == ["0.0", "0.1", "1"]
    resnet = gluon.model_zoo.vision.resnet18_v1(classes=10)
    names = [piece.name for piece in pieces_of(resnet)]
    assert names[0] == "features.0" and "features.4.0" in names and names[-1] == "output"
    gpt2 = gluon.model_zoo.transformer.gpt2_tiny()
    assert [piece.name for piece in pieces_of(gpt2)] == ["embed", "blocks.0", "blocks.1", "head"]
    plain = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(3, 1)))
    assert [piece.name for piece in pieces_of(plain)] == ["0", "1.0", "1.1"]
    assert by_parameters(pieces_of(plain)) == [10, 1, 5]


class Odd(gluon.HybridBlock):
    """Has a parameter that is in none of its stages."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.body = mlp(4)
            self.scale = self.params.get("scale", shape=(1,))

    def stages(self):
        return list(self.body._children.items())


def cut(net, workers=2, schedule="1f1b", how=None, microbatches=4):
    return Cut(net, workers, find_schedule(schedule), how, microbatches)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cut(mlp(2), 3), r"3 stages need at least as many pieces, and the model has 2: 0, 1"),
        (lambda: cut(mlp(3), 2, "interleaved"), r"4 stages need .* the model has 3"),
        (lambda: cut(mlp(), how=["9"]), r"unknown piece '9'.*The pieces are 0, 1, 2"),
        (lambda: cut(mlp(), how=["3", "1"]), r"in this order: 1, 2, 3, 4, 5; received 3, 1"),
        (lambda: cut(mlp(), how=["1", "2"]), r"'1f1b' on 2 workers needs 2 stages, and 2 cuts make 3"),
        (lambda: cut(mlp(), 2, "zero-bubble", ["1", "2"]), r"needs a multiple of 2 stages, and 2 cuts make 3"),
        (lambda: cut(mlp(), how="tim"), r"cut must be 'time', 'parameters' or a list of names, received 'tim'"),
        (
            lambda: cut(mlp(), 4, microbatches=2),
            r"'1f1b' needs at least as many micro-batches as stages: 4, received 2",
        ),
        (
            lambda: cut(mlp(), 2, "interleaved", microbatches=5),
            r"multiple of the 2 workers of the pipeline, received 5. .* 6",
        ),
        (lambda: cut(mlp(), 2, "1f2b"), r"unknown schedule '1f2b'. Did you mean 1f1b\? Expected one of gpipe"),
        (lambda: cut(nn.Dense(3)), r"cannot cut Dense .* needs a Sequential"),
        (lambda: cut(Odd()), r"no stage of the pipeline contains 1 parameter\(s\) of Odd .*: scale"),
    ],
)
def test_invalid_cuts_raise_before_anything_runs(make, message):
    with pytest.raises((MXNetError, ValueError), match=message):
        make()


@pytest.mark.parametrize("name", ["zero-bubble", "zbv"])
def test_checkpointing_is_rejected_if_backward_runs_in_two_parts(name):
    find_schedule(name).check_checkpoint(False)
    with pytest.raises(ValueError, match=f"'{name}' runs backward in two parts.* use '1f1b'"):
        mx.parallel.estimate(mlp(), Layout(pipeline=2), (8, 4), microbatches=4, schedule=name, checkpoint=True)


def test_cut_at_names():
    net = gluon.model_zoo.vision.resnet18_v1(classes=10)
    pieces = pieces_of(net)
    names = [piece.name for piece in pieces]
    assert ends_at(["features.5", "output"], pieces) == [names.index("features.5.0"), len(names) - 1, len(names)]


# ---- schedules ----


def bubble_by_playing(order):
    """Return the idle fraction in torch's order of work: forward takes 1, backward 2, its halves 1 each."""
    costs = {"F": 1, "I": 1, "W": 1, "B": 2}
    todo = {rank: [each for each in acts if each and each[1].value in costs] for rank, acts in order.items()}
    busy = sum(costs[each[1].value] for acts in todo.values() for each in acts)
    last = max(each[0] for acts in todo.values() for each in acts)
    free, done = dict.fromkeys(todo, 0), {}
    while any(todo.values()):
        moved = False
        for rank, acts in todo.items():
            while acts:
                stage, kind, number = acts[0][0], acts[0][1].value, acts[0][2]
                needs = {"F": ("F", stage - 1, number), "W": None}.get(kind, ("B", stage + 1, number))
                if needs and not 0 <= needs[1] <= last:
                    needs = None if kind == "F" else ("F", stage, number)
                if needs and needs not in done:
                    break
                free[rank] = max(free[rank], done[needs] if needs else 0) + costs[kind]
                done["B" if kind == "I" else kind, stage, number] = free[rank]
                acts.pop(0)
                moved = True
        assert moved, "the order deadlocks"
    return 1 - busy / (len(todo) * max(free.values()))


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", ["gpipe", "interleaved", "zero-bubble", "zbv"])
def test_expected_bubble_matches_torchs_order(name, workers):
    schedule, microbatches = SCHEDULES[name], 8
    made = object.__new__(getattr(pipelining, schedule.kind))
    stages = schedule.stages * workers
    made.pp_group_size, made.n_local_stages, made._n_microbatches = workers, schedule.stages, microbatches
    made._num_stages = made.num_stages = stages
    made.number_of_rounds, made.microbatches_per_round = microbatches // workers, workers
    if name == "gpipe":
        made._stage = type("Stage", (), {"group_size": workers})
        made.pipeline_order = made._get_pipeline_order()
    else:
        made.pipeline_order = {rank: made._calculate_single_rank_operations(rank) for rank in range(workers)}
    if name == "zero-bubble":
        made.pipeline_order = made._add_bubbles_to_actions(stages)
    places = {act[0]: rank for rank, acts in made.pipeline_order.items() for act in acts if act}
    assert places == {stage: schedule.place(stage, workers) for stage in range(stages)}
    assert schedule.bubble(workers, stages, microbatches) == pytest.approx(bubble_by_playing(made.pipeline_order))


# ---- one process ----


def losses_of(step, batches):
    return [float(step(x, y).asscalar()) for x, y in batches]


def batches(count=3, samples=8, width=4):
    random = np.random.default_rng(0)
    return [
        (nd.array(random.standard_normal((samples, width))), nd.array(random.integers(0, 4, samples)))
        for _ in range(count)
    ]


def seeded(make):
    mx.random.seed(2)
    return make()


def trainer_of(net):
    return gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9})


LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def by_hand(net, trainer):
    losses = []
    for x, y in batches():
        with autograd.record():
            loss = LOSS(net(x), y)
        loss.backward()
        trainer.step(len(x))
        losses.append(float(loss.mean().asscalar()))
    return losses


@pytest.mark.parametrize("microbatches", [1, 4])
def test_one_process_accumulates_micro_batches(microbatches):
    net, other = seeded(mlp), seeded(mlp)
    expected = by_hand(net, trainer_of(net))
    step = train_step(other, LOSS, trainer_of(other), Layout(), microbatches)
    np.testing.assert_allclose(losses_of(step, batches()), expected, rtol=1e-6)
    np.testing.assert_allclose(net[2].weight.data().asnumpy(), other[2].weight.data().asnumpy(), atol=1e-6)
    assert "no pipeline" in str(step) and step.bubble_expected == step.bubble_measured == 0


def test_mean_loss_and_loss_on_arrays_are_equivalent():
    nets = [seeded(mlp) for _ in range(3)]
    losses = [LOSS, lambda out, y: LOSS(out, y).mean(), lambda out, y: LOSS(out, y)]
    steps = [train_step(net, loss, trainer_of(net), Layout(), 2) for net, loss in zip(nets, losses, strict=True)]
    found = [losses_of(step, batches()) for step in steps]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)


@pytest.mark.parametrize("loss", [torch.nn.MSELoss(), torch.nn.functional.mse_loss, torch.nn.MSELoss(reduction="none")])
def test_torch_module_with_torch_optimizer(loss):
    x, y = torch.randn(3, 8, 4), torch.randn(3, 8, 2)

    def made():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        return net, torch.optim.SGD(net.parameters(), 0.5)

    (net, optimizer), (other, another) = made(), made()
    step = train_step(net, loss, optimizer, Layout(), 4)
    for a, b in zip(x, y, strict=True):
        another.zero_grad()
        expected = torch.nn.functional.mse_loss(other(a), b)
        expected.backward()
        another.step()
        torch.testing.assert_close(step(a, b), expected.detach())
    torch.testing.assert_close(net.state_dict(), other.state_dict())


def test_clipping_applies_to_the_gradient_of_the_mean():
    net = seeded(mlp)
    before = net[0].weight.data().asnumpy()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    train_step(net, LOSS, trainer, Layout(), 2, clip=1e-3)(*batches(1)[0])
    moved = [param.grad().asnumpy() / 8 for param in net.collect_params().values()]
    assert np.sqrt(sum((each**2).sum() for each in moved)) == pytest.approx(1e-3, rel=1e-4)
    assert abs(net[0].weight.data().asnumpy() - before).max() < 1e-3


def test_invalid_calls_are_rejected():
    net = mlp()
    trainer = trainer_of(net)
    step = train_step(net, LOSS, trainer, Layout(), 3)
    x, y = batches(1)[0]
    with pytest.raises(
        ValueError, match=r"a batch of 8 samples is not divisible into 3 micro-batches: 8 / 3 = 2.66667"
    ):
        step(x, y)
    with pytest.raises(ValueError, match=r"the same number of samples, received \[8, 7\]"):
        step(x, y[:7])
    with pytest.raises(TypeError, match="the inputs followed by the target"):
        step(x)
    with pytest.raises(ValueError, match="microbatches must be a positive integer, received 0"):
        train_step(net, LOSS, trainer, Layout(), 0)
    with pytest.raises(MXNetError, match=r"1 x 1 x 1 x 2 = 2, but there are 1"):
        train_step(net, LOSS, trainer, Layout(pipeline=2), 4)
    with pytest.raises(TypeError, match="a Block needs a gluon.Trainer"):
        train_step(net, LOSS, torch.optim.SGD([torch.zeros(1)], 0.1), Layout())


# ---- activation checkpointing ----


class Cell(gluon.HybridBlock):
    """Dense, BatchNorm and Dropout with a residual connection; counts its calls."""

    calls = 0

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Dense(8, in_units=8, activation="relu"), nn.BatchNorm(in_channels=8), nn.Dropout(0.5))

    def forward(self, x):
        Cell.calls += 1
        return super().forward(x)

    def hybrid_forward(self, F, x):
        return x + self.body(x)


def run_cells(which, train_mode=True, by_torch=False):
    net = seeded(nn.HybridSequential)
    net.add(Cell(), Cell(), nn.Dense(3, in_units=8))
    net.initialize(mx.init.Xavier())
    if which is not None:
        checkpoint_blocks(net, which)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    x = nd.array(np.random.default_rng(0).standard_normal((6, 8)))
    mx.random.seed(5)
    Cell.calls, losses = 0, []
    for _ in range(3):
        if by_torch:
            net.collect_params().zero_grad()
            loss = net.torch()(x._data).square().sum()
            loss.backward()
            loss = loss.detach()
        else:
            with autograd.record(train_mode):
                loss = (net(x) ** 2).sum()
            loss.backward(train_mode=train_mode)
        trainer.step(6)
        losses.append(float(loss))
    return losses, {name: p.data().asnumpy() for name, p in net._collect_params_with_prefix().items()}, Cell.calls


@pytest.mark.parametrize("how", [{}, {"train_mode": False}, {"by_torch": True}], ids=str)
@pytest.mark.parametrize("which", [True, "0", ["[01].body"]], ids=str)
def test_checkpointing_keeps_masks_and_results(which, how):
    losses, weights, calls = run_cells(None, **how)
    again, same, more = run_cells(which, **how)
    assert again == losses
    for name, values in weights.items():
        np.testing.assert_array_equal(values, same[name], err_msg=name)
    assert more - calls == {"True": 6, "0": 3}.get(str(which), 0)  # one more call of each checkpointed Cell per step


def test_checkpointing_rejects_unknown_names():
    with pytest.raises(
        MXNetError, match=r"checkpoint: 'blocks.\*' matches no part of the model. Its parts are 0, 0.act"
    ):
        checkpoint_blocks(mlp(), "blocks.*")


# ---- workers ----


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """Return losses, states and weights of one process with the same micro-batches."""
    folder = tmp_path_factory.mktemp("alone")
    command = [sys.executable, str(HERE / "workers" / "pipeline.py"), str(folder / "w"), "1"]
    subprocess.run(command, check=True, timeout=LIMIT, capture_output=True)
    return results_of(folder, 0)


def results_of(folder, rank):
    """Return the results of a worker, and the weights of all cases by name."""
    found = dict(np.load(folder / f"w-{rank}.npz"))
    for path in folder.glob("w-*.params"):
        weights = {name: array.asnumpy() for name, array in nd.load(str(path)).items()}
        found[path.stem.removeprefix("w-") + " weights"] = weights
    return found


@pytest.mark.parametrize("workers", [2, 4])
def test_training_equals_one_process(workers, one_process, tmp_path):
    run = neomx_run("-n", workers, HERE / "workers" / "pipeline.py", tmp_path / "w", workers)
    assert run.returncode == 0, run.stdout + run.stderr
    first, last = results_of(tmp_path, 0), results_of(tmp_path, workers - 1)
    names = [name.removesuffix(" report") for name in first if name.endswith(" report")]
    assert len(names) >= 12
    for name in names:
        losses = one_process[name]
        np.testing.assert_allclose(first[name], losses, rtol=0, atol=TOLERANCE, err_msg=name)
        np.testing.assert_array_equal(first[name], last[name], err_msg=name)  # equal on all workers
        assert losses[0] != losses[-1]
        check_weights(name, first, one_process)
        check_report(name, first)


def check_weights(name, found, expected):
    if f"{name} state" in found:
        np.testing.assert_allclose(found[f"{name} state"], expected[f"{name} state"], atol=TOLERANCE, err_msg=name)
        return
    weights = found[f"{name} weights"]
    assert weights.keys() == expected[f"{name} weights"].keys()
    for key, values in expected[f"{name} weights"].items():
        np.testing.assert_allclose(weights[key], values, rtol=0, atol=TOLERANCE, err_msg=f"{name}: {key}")


def check_report(name, found):
    expected, measured = found[f"{name} bubble"]
    report = str(found[f"{name} report"])
    if "no pipeline" in name:
        assert expected == 0
        return
    assert 0 < expected < 0.5 and 0 <= measured < 1
    assert re.search(r"stage 0 on worker 0 of the pipeline: .*, [\d,]+ parameters", report)
    assert f"bubble: {expected:.1%} expected, {measured:.1%} measured on this worker" in report


@pytest.mark.parametrize(
    ("what", "schedule", "told"),
    [
        ("kill", "1f1b", "worker 1 .*gone"),
        ("hang", "gpipe", "did not complete within 8 s: worker 1"),
        ("raise", "zero-bubble", "worker 1 .*gone"),
    ],
)
def test_other_stages_report_a_fault(what, schedule, told, tmp_path):
    began = time.time()
    timeout = 8 if what == "hang" else LIMIT
    run = neomx_run("-n", 3, "--timeout", timeout, HERE / "workers" / "pipeline_faulty.py", tmp_path, what, schedule)
    assert run.returncode != 0
    when = float((tmp_path / "fault").read_text())
    assert when > began
    message = r"(recv from|send to) worker 1 of (activations|gradients) of micro-batch \d, stage {}.*{}"
    for rank, stages in ((0, "(0 to 1|1 to 0)"), (2, "(1 to 2|2 to 1)")):
        at, error = (tmp_path / str(rank)).read_text().split(" ", 1)
        assert re.search(message.format(stages, told), error), error
        assert float(at) - when < SOON
