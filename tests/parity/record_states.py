"""Make files of optimizer states under real MXNet 1.9.1, and what training goes on to from them.

.venv-oracle/bin/python tests/parity/record_states.py      write tests/fixtures/states

For each case three files: NAME.states as MXNet's `get_states` gives it after three steps, NAME-start.params, the
weights then, and NAME-end.params, the weights two steps later.
"""

import pathlib
import sys

import numpy as np

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "states"
SHAPES = [(3, 2), (4,)]


def optimizers(mx):
    """{name: (optimizer, dtype, whether it is saved too)}."""
    opt, schedules = mx.optimizer, mx.lr_scheduler
    return {
        "sgd": (opt.SGD(momentum=0.9, learning_rate=0.1), "float32", False),
        "sgd_plain": (opt.SGD(learning_rate=0.1), "float32", True),
        "sgd_half": (opt.SGD(momentum=0.9, learning_rate=0.1, multi_precision=True), "float16", True),
        "adam": (opt.Adam(learning_rate=0.1, lr_scheduler=schedules.FactorScheduler(2, 0.5)), "float32", True),
        "adam_half": (opt.Adam(learning_rate=0.1, multi_precision=True), "float16", False),
        "rmsprop": (opt.RMSProp(centered=True, param_idx2name={0: "a_weight", 1: "a_bias"}, wd=0.1), "float32", True),
        "nadam": (opt.Nadam(lr_scheduler=schedules.MultiFactorScheduler([1, 4], 0.1)), "float32", True),
        "lbsgd": (opt.LBSGD(momentum=0.5, learning_rate=0.1, warmup_strategy="lars"), "float32", True),
    }


def step(mx, updater, weights, number):
    """One update of all weights with gradients from a seed."""
    rng = np.random.RandomState(number)
    grads = [mx.nd.array(rng.uniform(-1, 1, shape)).astype(weights[0].dtype) for shape in SHAPES]
    updater([0, 1], grads, weights)


def main():
    import mxnet as mx

    assert mx.__version__ == "1.9.1", mx.__version__
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name, (optimizer, dtype, whole) in optimizers(mx).items():
        weights = [mx.nd.ones(shape).astype(dtype) for shape in SHAPES]
        updater = mx.optimizer.get_updater(optimizer)
        for number in range(3):
            step(mx, updater, weights, number)
        (FIXTURES / (name + ".states")).write_bytes(updater.get_states(dump_optimizer=whole))
        mx.nd.save(str(FIXTURES / (name + "-start.params")), weights)
        for number in range(3, 5):
            step(mx, updater, weights, number)
        mx.nd.save(str(FIXTURES / (name + "-end.params")), weights)


if __name__ == "__main__":
    sys.exit(main())
