"""gluon.contrib.estimator beyond MXNet: NaN, contexts without data, invalid input, terminals, incomplete files."""

import logging
import os
import sys

import numpy as np
import pytest

import neomx as mx
from neomx.gluon.contrib.estimator import (
    BatchBegin,
    BatchEnd,
    CheckpointHandler,
    EarlyStoppingHandler,
    EpochEnd,
    Estimator,
    LoggingHandler,
)
from parity.cases.estimator import estimator_of, loader, weights


class Diverge(BatchEnd):
    """Sets the weights to NaN, starting with a given batch."""

    priority = -1500

    def __init__(self, at):
        self.left = at

    def batch_end(self, estimator, *args, **kwargs):
        self.left -= 1
        if self.left == 0:
            for param in estimator.net.collect_params().values():
                param.set_data(param.data() * float("nan"))


def test_nan_stops_early_with_warning():
    est, lines = estimator_of(mx)
    handler = EarlyStoppingHandler(est.val_metrics[1], mode="min", patience=2)
    with pytest.warns(RuntimeWarning, match=r"\[Epoch \d\] validation softmaxcrossentropyloss is nan.*diverged"):
        est.fit(loader(mx), val_data=loader(mx), epochs=9, event_handlers=[Diverge(4), handler])
    assert (handler.stopped_epoch, handler.current_epoch, handler.wait) == (2, 3, 2)
    assert np.isfinite(handler.best)
    assert "early stopping" in lines[-2]


def test_epoch_without_validation_is_not_counted_as_nan():
    est, _ = estimator_of(mx)
    handler = EarlyStoppingHandler(est.val_metrics[1], mode="min", patience=1)
    with pytest.warns(RuntimeWarning, match="is not updated.*does not count"):
        est.fit(loader(mx), epochs=3, event_handlers=[handler])
    assert (handler.wait, handler.current_epoch) == (0, 3)


def test_nan_does_not_replace_best_checkpoint(tmp_path):
    est, _ = estimator_of(mx)
    handler = CheckpointHandler(tmp_path, monitor=est.val_metrics[1], save_best=True, mode="max")
    with pytest.warns(RuntimeWarning, match="is nan.*model-best stays at 0"):
        est.fit(loader(mx), val_data=loader(mx), epochs=3, event_handlers=[Diverge(4), handler])
    est.net.load_parameters(str(tmp_path / "model-best.params"))
    assert np.isfinite(weights(est)).all()


def test_last_good_checkpoint_is_kept_after_divergence(tmp_path):
    est, _ = estimator_of(mx)
    handler = CheckpointHandler(tmp_path, monitor=est.val_metrics[1], max_checkpoints=2)
    with pytest.warns(RuntimeWarning, match="The last good checkpoint is model-epoch1batch6"):
        est.fit(loader(mx), val_data=loader(mx), epochs=6, event_handlers=[Diverge(8), handler])
    assert handler.saved_checkpoints == ["model-epoch1batch6", "model-epoch5batch18"]
    est.net.load_parameters(str(tmp_path / "model-epoch1batch6.params"))
    assert np.isfinite(weights(est)).all()


def test_uneven_batches_are_split_over_contexts():
    alone, _ = estimator_of(mx)
    shared, _ = estimator_of(mx, ctx=[mx.cpu(0), mx.cpu(1)])
    for est in (alone, shared):
        est.fit(loader(mx, samples=10, batch_size=5), val_data=loader(mx, samples=9, batch_size=3), epochs=2)
    for mine, other in zip(alone.net.collect_params().values(), shared.net.collect_params().values(), strict=True):
        for array in other.list_data():
            np.testing.assert_allclose(array.asnumpy(), mine.data().asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(shared.val_metrics[1].get()[1], alone.val_metrics[1].get()[1], rtol=1e-5)


@pytest.mark.parametrize("what", ["fit", "evaluate"])
def test_context_without_data_raises(what):
    est, _ = estimator_of(mx, ctx=[mx.cpu(0), mx.cpu(1)])
    kwargs = {"epochs": 1} if what == "fit" else {}
    with pytest.raises(ValueError, match="a batch of 1 samples cannot be split over 2 contexts.*last_batch='discard'"):
        getattr(est, what)(loader(mx, samples=5, batch_size=4), **kwargs)


@pytest.mark.parametrize("kwargs", [{"epochs": -1}, {"epochs": 1.5}, {"batches": -3}])
def test_invalid_epochs_or_batches_raise(kwargs):
    est, _ = estimator_of(mx)
    with pytest.raises(ValueError, match="must be an integer that is not negative"):
        est.fit(loader(mx), **kwargs)


def test_other_invalid_input_raises():
    est, _ = estimator_of(mx)
    data = mx.gluon.data
    with pytest.raises(ValueError, match="a batch must be a list of data and label, received NDArray of shape"):
        est.fit(data.DataLoader(data.ArrayDataset(mx.nd.zeros((4, 3))), batch_size=2), epochs=1)
    with pytest.raises(ValueError, match="train_data has no batches"):
        est.fit(loader(mx, samples=0), batches=1)
    with pytest.raises(ValueError, match="context must be"):
        Estimator(est.net, est.loss, context=[])
    with pytest.raises(ValueError, match="handlers must be an EventHandler"):
        est.fit(loader(mx), epochs=1, event_handlers=3)
    with pytest.raises(ValueError, match="log_interval must be"):
        LoggingHandler(0)


def test_list_of_handlers_is_not_modified():
    est, _ = estimator_of(mx)
    handlers = [Diverge(99)]
    est.fit(loader(mx), val_data=loader(mx), epochs=1, event_handlers=handlers)
    assert len(handlers) == 1
    est.fit(loader(mx), epochs=1, event_handlers=tuple(handlers))


def test_network_with_deferred_initialization_trains():
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(4), mx.gluon.nn.Dense(2))
    net.initialize()
    est, lines = estimator_of(mx, net=net)
    est.fit(loader(mx), val_data=loader(mx), epochs=2)
    assert net[0].weight.shape == (4, 3)
    assert lines[-1].startswith("Train finished")


def test_incomplete_checkpoint_is_ignored(tmp_path, monkeypatch):
    """The parameters are written last, so a checkpoint with parameters also has states."""
    est, _ = estimator_of(mx)

    def full_disk(name):
        raise OSError("no space left")

    monkeypatch.setattr(est.net, "save_parameters", full_disk)
    with pytest.raises(OSError, match="no space"):
        est.fit(loader(mx), epochs=1, event_handlers=[CheckpointHandler(tmp_path)])
    again, lines = estimator_of(mx)
    again.fit(loader(mx), epochs=1, event_handlers=[CheckpointHandler(tmp_path, resume_from_checkpoint=True)])
    assert any("No checkpoint found" in line for line in lines)


def test_checkpoint_log_messages_are_correct(tmp_path):
    est, lines = estimator_of(mx)
    handler = CheckpointHandler(tmp_path, monitor=est.val_metrics[1], save_best=True, mode="min", verbose=1)
    est.fit(loader(mx), val_data=loader(mx), epochs=2, event_handlers=[handler])
    said = [line for line in lines if "CheckpointHandler" in line]
    assert said[0].startswith("[Epoch 0] CheckpointHandler: trained total 3 batches")
    assert "improved from inf to" in said[1]
    assert said[2].startswith("[Epoch 1] CheckpointHandler: trained total 6 batches")


class Terminal:
    """A stderr that claims to be a terminal."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_progress_is_shown_on_a_terminal(monkeypatch):
    from neomx.gluon.contrib.estimator import progress

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN", 0.0)
    est, _ = estimator_of(mx)
    state = []

    class Look(logging.Handler):
        def emit(self, record):
            state.append(terminal.text.endswith("\r\033[K") or not terminal.text)

    est.logger.handlers = [Look()]
    est.fit(loader(mx), val_data=loader(mx), batches=4, event_handlers=[LoggingHandler(1, est.train_metrics)])
    assert "Training [########................] 1/3 batches, " in terminal.text
    assert "Training [########################] 1/1 batches, " in terminal.text
    assert "Validation [########################] 3/3 batches, " in terminal.text
    assert " samples/s, 0:00 left" in terminal.text
    assert all(state)
    assert len(state) > 8
    assert terminal.text.endswith("\r\033[K")
    assert est.logger.filters == []


def test_no_progress_without_a_terminal(capfd):
    net = estimator_of(mx)[0].net
    with pytest.warns(UserWarning, match="No trainer specified"):
        est = Estimator(net, mx.gluon.loss.SoftmaxCrossEntropyLoss())
    assert isinstance(est.logger.handlers[0], logging.StreamHandler)
    est.logger.handlers = []
    est.fit(loader(mx), epochs=1)
    assert capfd.readouterr() == ("", "")


def test_remaining_time_format():
    from neomx.gluon.contrib.estimator.progress import _clock

    assert [_clock(s) for s in (0, 61.4, 3599, 7325)] == ["0:00", "1:01", "59:59", "2:02:05"]


def test_batch_begin_receives_the_batch():
    sizes = []

    class Sizes(BatchBegin, EpochEnd):
        def batch_begin(self, estimator, *args, batch, **kwargs):
            sizes.append(len(batch[0]))

    est, _ = estimator_of(mx)
    est.fit(loader(mx), epochs=1, event_handlers=Sizes())
    assert sizes == [4, 4, 2]


def test_checkpoints_leave_other_files_alone(tmp_path):
    est, _ = estimator_of(mx)
    (tmp_path / "model-best-of-all.params").write_bytes(b"mine")
    est.fit(loader(mx), epochs=2, event_handlers=[CheckpointHandler(tmp_path, max_checkpoints=1)])
    assert sorted(os.listdir(tmp_path)) == [
        "model-best-of-all.params",
        "model-epoch1batch6.params",
        "model-epoch1batch6.states",
        "model-symbol.json",
    ]
