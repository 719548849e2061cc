"""Displays of progress: the bar, the lines and TensorBoard's files, from events and with a simulated clock."""

import io
import re
import sys

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import neomx as mx
from neomx import autograd, events, nd
from neomx.events import emit
from neomx.gluon.data.place import Batch
from neomx.monitor.numbers import duration, number, rate


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def seen(text):
    """Return what a terminal finally shows, without erased lines."""
    return [re.split(r"\r\x1b\[K", line)[-1] for line in text.split("\n")]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watch(clock, monkeypatch):
    """Return a function that creates a Progress and closes it after the test."""
    monkeypatch.setenv("COLUMNS", "100")
    made = []

    def make(stream, **options):
        made.append(mx.monitor.Progress(stream, clock=clock, **options))
        return made[-1]

    yield make
    for progress in made:
        progress.close()
    assert not any(events.heard(name) for name in ("epoch", "epoch_end", "step", "metrics"))


def train(clock, steps=4, seconds=1.0, loader="train", number=0, samples=None, total=None, trainers=1):
    emit("epoch", loader=loader, number=number, steps=steps, samples=samples)
    for step in range(steps):
        clock.now += seconds
        for _ in range(trainers):
            emit("step", samples=1000, seconds=0.1)  # the argument of step may be anything
        emit("batch", loader=loader, batch=Batch(number, step, steps, 10, total))
    emit("epoch_end", loader=loader, number=number)


def step(clock, number):
    clock.now += 1
    emit("step", samples=1)
    emit("batch", loader="train", batch=Batch(0, number, 9, 1, None))


def test_progress_lines_without_a_terminal(watch, clock):
    out = io.StringIO()
    watch(out, workers=2, every=2.0)
    mx.monitor.report(loss=0.123456, accuracy=0.5)
    train(clock)
    train(clock, number=1)
    assert out.getvalue().splitlines() == [
        "epoch 0, step 2/4, 20 samples/s, loss 0.1235, accuracy 0.5, 0:02 left",
        "epoch 0, step 4/4, 20 samples/s, loss 0.1235, accuracy 0.5, 0:00 left",
        "epoch 0: 4 steps in 4.0 s, 20 samples/s, loss 0.1235, accuracy 0.5",
        "epoch 1, step 2/4, 20 samples/s, loss 0.1235, accuracy 0.5, 0:02 left",
        "epoch 1, step 4/4, 20 samples/s, loss 0.1235, accuracy 0.5, 0:00 left",
        "epoch 1: 4 steps in 4.0 s, 20 samples/s, loss 0.1235, accuracy 0.5",
    ]


def test_time_left_includes_remaining_epochs(watch, clock):
    out = io.StringIO()
    watch(out, epochs=3, every=2.0)
    train(clock, steps=3, seconds=60)
    assert out.getvalue().splitlines()[1] == "epoch 0 of 3, step 2/3, 0.17 samples/s, 7:00 left"


def test_total_samples_are_reported_or_estimated_from_the_number_of_workers(watch, clock):
    out = io.StringIO()
    watch(out, workers=4, every=1.0)
    train(clock, steps=1, total=33, samples=33)
    train(clock, steps=1, number=1)
    lines = out.getvalue().splitlines()
    assert "33 samples/s" in lines[0] and "40 samples/s" in lines[2]


def test_reported_samples_take_precedence_over_the_estimate(watch, clock):
    """One of two workers may have no batch."""
    out = io.StringIO()
    watch(out, workers=2, every=1.0)
    emit("epoch", loader=1, number=0, steps=2, samples=None)
    for at, summed in enumerate([20, 10]):
        clock.now += 1
        emit("reduce", samples=summed, seconds=0.1, waiting=0.0)
        emit("step", samples=10)
        emit("batch", loader=1, batch=Batch(0, at, 2, 10, None))
    emit("epoch_end", loader=1, number=0)
    rates = [re.search(r"(\d+) samples/s", line)[1] for line in out.getvalue().splitlines()]
    assert rates == ["20", "10", "15"]


def test_loop_that_ends_early_is_not_summarized_as_an_epoch(watch, clock):
    out = io.StringIO()
    watch(out, every=100.0)
    emit("epoch", loader="train", number=0, steps=9, samples=None)
    step(clock, 0)
    step(clock, 1)
    emit("epoch_end", loader="train", number=0)
    assert out.getvalue() == "epoch 0: stopped at step 2/9 after 2.0 s, 1 samples/s\n"


def test_rate_covers_the_last_seconds(watch, clock):
    out = io.StringIO()
    watch(out, every=1.0)
    emit("epoch", loader=1, number=0, steps=None, samples=None)
    for step, seconds in enumerate([1.0] * 20 + [0.5] * 20):
        clock.now += seconds
        emit("step", samples=10)
        emit("batch", loader=1, batch=Batch(0, step, None, 10, None))
    assert "20 samples/s" in out.getvalue().splitlines()[-1]
    assert "left" not in out.getvalue()  # the number of steps is unknown


def test_slow_first_batch_does_not_affect_the_estimate(watch, clock):
    out = io.StringIO()
    watch(out, every=0.0)
    clock.now += 60
    emit("epoch", loader="train", number=0, steps=9, samples=None)
    for at, seconds in enumerate([59, 0, 0]):
        clock.now += seconds
        step(clock, at)
    assert [line.split(", ")[-1] for line in out.getvalue().splitlines()] == [
        "0.017 samples/s",
        "0:07 left",
        "0:06 left",
    ]


def test_validation_inside_an_epoch_is_not_an_epoch(watch, clock):
    out = io.StringIO()
    watch(out, every=0.0)
    emit("epoch", loader="train", number=0, steps=2, samples=None)
    emit("step", samples=5)
    train(clock, steps=2, trainers=0, loader="validation")
    emit("batch", loader="train", batch=Batch(0, 0, 2, 5, None))
    clock.now += 2
    emit("epoch_end", loader="unknown", number=7)
    emit("epoch_end", loader="train", number=0)
    assert out.getvalue().splitlines() == [
        "epoch 0, step 1/2, 2.5 samples/s",
        "epoch 0: stopped at step 1/2 after 4.0 s, 1.2 samples/s",
    ]


def test_pass_without_training_is_not_an_epoch(watch, clock):
    """For example `for x, y in loader: net(x); break` before the first epoch, or an evaluation on the training data."""
    out = io.StringIO()
    watch(out, every=100.0)
    train(clock, steps=1, trainers=0)
    train(clock, number=1)
    train(clock, trainers=0, number=2)
    train(clock, number=3)
    train(clock, number=7)  # set by the program: it continues elsewhere
    assert [line.partition(":")[0] for line in out.getvalue().splitlines()] == ["epoch 0", "epoch 1", "epoch 7"]


def test_bar_of_an_estimator_agrees_with_its_log(watch, caplog):
    from neomx.gluon.contrib.estimator import Estimator

    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    data = mx.gluon.data.ArrayDataset(nd.random.normal(shape=(12, 3)), nd.array([0, 1] * 6))
    loader = mx.gluon.data.DataLoader(data, batch_size=4)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    estimator = Estimator(net, mx.gluon.loss.SoftmaxCrossEntropyLoss(), mx.metric.Accuracy(), trainer=trainer)
    estimator.logger.setLevel("INFO")
    out, logged = io.StringIO(), []
    estimator.logger.addFilter(lambda record: logged.append(record.getMessage()) or True)
    watch(out, every=1e9)
    for _ in range(2):  # each fit counts from 0
        estimator.fit(loader, epochs=2)
    ends = [re.match(r"\[Epoch (\d)\] Finished in .*training accuracy: ([\d.]+)", line) for line in logged]
    ends = [match.groups() for match in ends if match]
    shown = [re.match(r"epoch (\d): .*training accuracy ([\d.]+)", line) for line in out.getvalue().splitlines()]
    assert [number for number, _ in ends] == ["0", "1", "0", "1"]
    assert [(m[1], f"{float(m[2]):.3f}") for m in shown] == [(n, f"{float(value):.3f}") for n, value in ends]


def test_batch_counts_once_for_any_number_of_trainers(watch, clock):
    out = io.StringIO()
    watch(out, every=100.0)
    train(clock, trainers=2)
    emit("epoch", loader="train", number=1, steps=4, samples=None)
    for step in range(4):  # gradients of two batches for each step
        clock.now += 1
        if step % 2:
            emit("step", samples=1000)
        emit("batch", loader="train", batch=Batch(1, step, 4, 10, None))
    emit("epoch_end", loader="train", number=1)
    assert out.getvalue().splitlines() == [
        "epoch 0: 4 steps in 4.0 s, 10 samples/s",
        "epoch 1: 3 steps in 4.0 s, 7.5 samples/s",  # the first was not yet known to be for training
    ]


def test_steps_without_a_loader_are_summarized_at_the_end(watch, clock):
    out = io.StringIO()
    progress = watch(out, every=100.0)
    for _ in range(3):
        clock.now += 1
        emit("step", samples=7)
    progress.close()
    progress.close()
    assert out.getvalue() == "3 steps in 3.0 s, 7 samples/s\n"


def test_bar_is_redrawn_at_most_ten_times_a_second(watch, clock):
    out = Terminal()
    watch(out)
    mx.monitor.report(loss=1.0)
    train(clock, steps=500, seconds=0.01)
    assert 45 <= out.getvalue().count("loss") <= 51
    assert seen(out.getvalue()) == ["epoch 0: 500 steps in 5.0 s, 1,000 samples/s, loss 1", ""]
    drawings = out.getvalue().split("\r\x1b[K")[1:-1]
    assert all(len(drawing) < 100 for drawing in drawings)
    text = r"█+░+  (4[89]|50)%  epoch 0, step \d+/500, 1,000 samples/s, loss 1, 0:0[23] left"
    assert re.fullmatch(text, drawings[24])


def test_bar_fits_its_terminal(watch, clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    out = Terminal()
    out.encoding = "ascii"
    watch(out)
    train(clock, steps=2)
    first = out.getvalue().split("\r\x1b[K")[1]
    assert first == "epoch 0, step 1/2, 10/s"
    monkeypatch.setenv("COLUMNS", "70")
    train(clock, steps=2, number=1)
    assert "#..." in out.getvalue() and "█" not in out.getvalue()


def test_narrow_terminal_shows_a_bar_without_cut_words(watch, clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    watch(out, epochs=3)
    mx.monitor.report(loss=0.12345, accuracy=0.5)
    train(clock, steps=9)
    drawn = out.getvalue().split("\r\x1b[K")[2]
    assert re.fullmatch(r"█+░+  22%  epoch 0 of 3, step 2/9, 10/s, loss 0.1235, accuracy 0.5, 0:25 left", drawn)
    monkeypatch.setenv("COLUMNS", "70")
    train(clock, steps=9, number=1)
    assert re.search(r"░  22%  epoch 1 of 3, step 2/9, 10/s, loss 0.1235, 0:16 left", out.getvalue())


def test_program_output_stays_above_the_bar(watch, clock, monkeypatch):
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    progress = watch(out)
    emit("epoch", loader="train", number=0, steps=9, samples=None)
    step(clock, 0)
    assert "step 1/9" in seen(out.getvalue())[-1]
    print("hello", end=" ")
    step(clock, 1)
    print("world")
    step(clock, 2)
    assert seen(out.getvalue())[0] == "hello world" and "step 3/9" in seen(out.getvalue())[1]
    progress.close()
    assert sys.stdout is out


def test_only_worker_0_shows_progress(monkeypatch, clock):
    monkeypatch.setattr(mx.monitor, "discover", lambda: World(rank=1, size=2))
    out = io.StringIO()
    mx.monitor.progress(stream=out)
    assert not events.heard("step")
    monkeypatch.setattr(mx.monitor, "discover", lambda: World(rank=0, size=2))
    progress = mx.monitor.progress(epochs=1, stream=out, clock=clock, every=1.0)
    train(clock, steps=1)
    progress.close()
    assert out.getvalue().startswith("epoch 0 of 1, step 1/1, 20 samples/s")


class World:
    role = "worker"

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


def test_report_accepts_numbers_arrays_and_metrics():
    metric = mx.metric.Accuracy()
    metric.update(nd.array([0, 1]), nd.array([[1, 0], [1, 0]]))
    received = []
    mx.monitor.report(metric, loss="not evaluated without a listener")
    stop = events.subscribe(lambda _, fields: received.append(fields["values"]), "metrics")
    try:
        x = nd.array([1.0, 3.0])
        x.attach_grad()
        with autograd.record():
            loss = x * 2
        mx.monitor.report(metric, loss=loss, tensor=torch.tensor([1.0, 2.0]), count=3, size=np.float32(0.5))
        with pytest.raises(TypeError, match="loss='low'"):
            mx.monitor.report(loss="low")
    finally:
        stop()
    (values,) = received
    assert {name: number(value) for name, value in values.items()} == {
        "accuracy": 0.5, "loss": 4.0, "tensor": 1.5, "count": 3.0, "size": 0.5,
    }  # fmt: skip
    assert values["loss"]._data.grad_fn is None


def test_times_and_rates_are_readable():
    assert [duration(seconds) for seconds in (0.4, 7, 754.6, 10921)] == ["0:00", "0:07", "12:35", "3:02:01"]
    assert [rate(value) for value in (0.5, 9.94, 12345.6)] == ["0.5 samples/s", "9.9 samples/s", "12,346 samples/s"]


def test_forward_and_backward_emit_their_duration():
    received = []
    x = nd.ones((3,))
    x.attach_grad()

    def step(inside):
        with autograd.record():
            y = (x * x).sum()
            with autograd.record():
                z = y * 2
            if inside:
                z.backward()
        if not inside:
            z.backward()

    step(False)
    stops = [
        events.subscribe(lambda name, fields: received.append((name, fields["seconds"])), name)
        for name in ("forward", "backward")
    ]
    try:
        step(False)
        step(True)
    finally:
        for stop in stops:
            stop()
    step(False)
    assert [name for name, _ in received] == ["forward", "backward", "backward", "forward"]
    assert all(0 < seconds < 5 for _, seconds in received)
    assert x.grad.asnumpy().tolist() == [4, 4, 4]


def test_backward_inside_recording_does_not_count_as_forward(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(autograd, "perf_counter", lambda: next(now))
    received = {}
    stop = events.subscribe(lambda name, fields: received.update({name: fields.get("seconds")}))
    x = nd.ones((3,))
    x.attach_grad()
    try:
        with autograd.record():  # enters at 0, backward from 1 to 2, leaves at 3
            (x * x).backward()
    finally:
        stop()
    assert received == {"backward": 1, "forward": 2}


def scalars(directory):
    """Return {tag: [(step, value)]} of TensorBoard's files."""
    loaded = EventAccumulator(str(directory))
    loaded.Reload()
    return {tag: [(e.step, round(e.value, 5)) for e in loaded.Scalars(tag)] for tag in loaded.Tags()["scalars"]}


def test_tensorboard_writes_reports_rates_and_times(tmp_path, clock):
    board = mx.monitor.TensorBoard(tmp_path, rank=1, every=2.0, clock=clock)
    emit("epoch", loader="train", number=0, steps=3, samples=None)
    for step in range(3):
        clock.now += 1.0
        emit("forward", seconds=0.25)
        emit("backward", seconds=0.5)
        mx.monitor.report(loss=nd.array([step, step + 1]))
        emit("reduce", waiting=0.0625, seconds=0.1875, samples=-1.0)
        emit("step", samples=8, seconds=0.2)
        emit("batch", loader="train", batch=Batch(0, step, 3, 8, 16))
    emit("epoch_end", loader="train", number=0)
    board.close()
    assert not events.heard("step")
    assert scalars(tmp_path / "worker-1") == {
        "loss": [(0, 0.5), (1, 1.5), (2, 2.5)],
        "samples_per_second": [(2, 16), (3, 16)],
        "seconds/step": [(2, 1), (3, 1)],
        "seconds/forward": [(2, 0.25), (3, 0.25)],
        "seconds/backward": [(2, 0.5), (3, 0.5)],
        "seconds/communication": [(2, 0.125), (3, 0.125)],
        "seconds/waiting": [(2, 0.0625), (3, 0.0625)],
    }


def test_missing_tensorboard_package_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(mx.MXNetError, match=r"neomx\[tensorboard\]"):
        mx.monitor.TensorBoard(tmp_path)


def test_launched_process_starts_requested_sinks(tmp_path, capsys):
    """In processes: test_shard_processes.py."""
    assert mx.monitor.start_from_environment({"NEOMX_PROGRESS": "0", "NEOMX_TENSORBOARD": ""}) == []
    sinks = mx.monitor.start_from_environment({"NEOMX_PROGRESS": "1", "NEOMX_TENSORBOARD": str(tmp_path)})
    train_and_evaluate()
    for sink in sinks:
        sink.close()
    shown = capsys.readouterr()
    assert shown.out == "" and re.fullmatch(r"epoch 0: 3 steps in \d+\.\d s, [\d,.]+ samples/s, loss 0.5\n", shown.err)
    written = scalars(tmp_path / "worker-0")
    assert written["loss"] == [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert {"seconds/forward", "seconds/backward", "seconds/step", "samples_per_second"} < set(written)


def train_and_evaluate():
    net = mx.gluon.nn.Dense(1, in_units=1)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    for x in mx.gluon.data.DataLoader(nd.ones((6, 1)), batch_size=2):
        with autograd.record():
            y = net(x)
        y.backward()
        trainer.step(2)
        mx.monitor.report(loss=0.5)
    for x in mx.gluon.data.DataLoader(nd.ones((6, 1)), batch_size=2):
        net(x)
