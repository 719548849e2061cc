"""Early stopping in one process; tests/learn/test_learn_workers.py runs it on workers."""

import numpy as np
import pytest

import neomx as mx
from neomx import gluon, learn, nd
from neomx.gluon import nn
from neomx.gluon.contrib.estimator import Estimator


def epochs(losses, **how):
    """Return the number of epochs, the best loss and whether each epoch improved it."""
    monitor = mx.metric.Loss()
    early = learn.EarlyStopping(monitor, mode="min", **how)
    improved = []
    for loss in losses:
        monitor.reset()
        monitor.update(None, [nd.array([loss, loss])])
        before = monitor.sum_metric, monitor.num_inst
        ends = early.should_stop()
        assert (monitor.sum_metric, monitor.num_inst) == before
        improved.append(early.improved)
        if ends:
            break
    return len(improved), early.best, improved


def test_training_ends_after_epochs_without_improvement():
    assert epochs([3, 2, 2.5, 2, 1], patience=2) == (4, 2, [True, True, False, False])
    assert epochs([3, 2, 2.5, 1, 2, 2, 2], patience=3)[:2] == (7, 1)
    assert epochs([3, 2.9, 2.8], patience=1, min_delta=0.5)[:2] == (2, 3)
    assert epochs([3, 2, 1], patience=1, baseline=0.5)[0] == 1


def test_nan_is_no_improvement():
    with pytest.warns(RuntimeWarning, match="the training has diverged"):
        assert epochs([3, np.nan, np.nan, 1], patience=2)[0] == 3


def test_estimator_stops():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    data = gluon.data.DataLoader(gluon.data.ArrayDataset(nd.ones((4, 3)), nd.zeros((4,))), 2)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
    estimator = Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), mx.metric.Accuracy(), trainer=trainer)
    early = learn.EarlyStopping(estimator.train_metrics[0], patience=2, mode="max")
    estimator.fit(data, epochs=9, event_handlers=[early])
    assert early.current_epoch == 3


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"patience": 0, "mode": "min"}, "patience must be a positive number of epochs, received 0"),
        ({"patience": 1, "mode": "auto"}, "mode must be 'min' for a loss or 'max'"),
        ({"patience": 1, "mode": "min", "min_delta": -1}, "min_delta must not be negative"),
        ({"patience": 1, "mode": "max", "monitor": mx.metric.F1()}, "F1 is not a mean over samples"),
        ({"patience": 1, "mode": "max", "monitor": "accuracy"}, "received 'accuracy'"),
    ],
)
def test_invalid_arguments_are_rejected(how, text):
    with pytest.raises(ValueError, match=text):
        learn.EarlyStopping(**{"monitor": mx.metric.Loss(), **how})
