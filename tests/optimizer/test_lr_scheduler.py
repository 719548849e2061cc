"""Learning rate schedules: errors, logging and serialization. test_parity compares the rates with MXNet."""

import logging

import pytest

import neomx as mx


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda s: s.FactorScheduler(0), ValueError, "at least 1 update, received 0"),
        (lambda s: s.FactorScheduler(1, 2), ValueError, "factor must not exceed 1.*received 2"),
        (lambda s: s.MultiFactorScheduler([3, 2]), ValueError, r"increasing.*\[3, 2\]"),
        (lambda s: s.MultiFactorScheduler(3), AssertionError, "list.*received 3"),
        (lambda s: s.PolyScheduler(0), ValueError, "max_update.*received 0"),
        (lambda s: s.CosineScheduler(2.5), AssertionError, "max_update must be an int, received 2.5"),
        (lambda s: s.LRScheduler(warmup_mode="x"), ValueError, "'linear' or 'constant', received 'x'"),
        (lambda s: s.LRScheduler(warmup_begin_lr=1), ValueError, "not exceed base_lr 0.01, received 1"),
    ],
)
def test_error_states_what_was_wrong(make, kind, message):
    with pytest.raises(kind, match=message):
        make(mx.lr_scheduler)


def test_rate_decrease_is_logged(caplog):
    schedule = mx.lr_scheduler.FactorScheduler(5, 0.1, base_lr=1.0)
    with caplog.at_level(logging.INFO):
        assert schedule(6) == pytest.approx(0.1)
    assert "Update[6]" in caplog.text and "1.00000e-01" in caplog.text


def test_custom_schedule():
    class Steps(mx.lr_scheduler.LRScheduler):
        def __call__(self, num_update):
            return self.base_lr / (1 + num_update)

    optimizer = mx.optimizer.SGD(learning_rate=0.5, lr_scheduler=Steps())
    assert optimizer.learning_rate == 0.5
    optimizer._update_count([0])
    assert optimizer._get_lr(0) == 0.25
    saved = mx.optimizer.get_updater(optimizer).get_states(dump_optimizer=True)
    updater = mx.optimizer.get_updater(mx.optimizer.SGD())
    updater.set_states(saved)
    assert updater.optimizer.learning_rate == 0.25
