"""Random search and successive halving in one process; tests/learn/test_learn_workers.py runs them on workers."""

import math

import numpy as np
import pytest

import neomx as mx
from neomx import learn, nd

SPACE = {
    "x": learn.uniform(-1, 3),
    "rate": learn.log_uniform(1e-4, 1),
    "units": learn.integers(2, 5),
    "kind": ["a", "b"],
}


def test_random_search_returns_all_trials_the_best_first():
    found = learn.random_search(lambda config: (config["x"] - 1) ** 2, SPACE, 40, seed=3)
    assert sorted(each.number for each in found) == list(range(40))
    assert [each.score for each in found] == sorted(each.score for each in found)
    assert found[0].score < 0.01 < found[-1].score
    assert {each.config["kind"] for each in found} == {"a", "b"}
    assert {each.config["units"] for each in found} == {2, 3, 4, 5}
    rates = [math.log10(each.config["rate"]) for each in found]
    assert all(-4 <= rate <= 0 for rate in rates)
    assert abs(np.mean(rates) + 2) < 0.6  # 40 samples from -4 to 0: the standard error is 0.18
    best = learn.random_search(lambda config: config["x"], SPACE, 40, seed=3, mode="max")[0]
    assert best.config["x"] == max(each.config["x"] for each in found)
    assert learn.random_search(lambda config: 0, SPACE, 3, seed=4)[0].config != found[0].config


def test_trials_are_seeded_and_do_not_depend_on_each_other():
    def trial(config):
        net = mx.gluon.nn.Dense(1, in_units=2)
        assert net.prefix == "dense0_"
        config["x"] = None  # belongs to this trial alone
        return float(nd.random.uniform(shape=(1,)).asscalar() + np.random.rand())

    first = learn.random_search(trial, SPACE, 4, seed=1)
    then = nd.random.uniform(shape=(1,)).asscalar()
    again = learn.random_search(trial, SPACE, 4, seed=1)
    assert first == again
    assert nd.random.uniform(shape=(1,)).asscalar() == then
    assert len({each.score for each in first}) == 4
    fewer = learn.random_search(trial, SPACE, 2, seed=1)
    assert {each.number: each for each in fewer}.items() <= {each.number: each for each in first}.items()


def test_halving_gives_more_budget_to_the_best():
    calls = []

    def trial(config, budget):
        calls.append(budget)
        return abs(config["x"] - 1) + 1 / budget

    found = learn.successive_halving(trial, SPACE, 9, [1, 3, 9], seed=2)
    assert calls == [1] * 9 + [3] * 3 + [9]
    assert [each.budget for each in found] == [9, 3, 3, *[1] * 6]
    assert sorted(each.number for each in found) == list(range(9))
    distances = [abs(each.config["x"] - 1) for each in found]
    assert distances == sorted(distances)


def test_failed_trials_are_reported():
    def trial(config):
        if config["kind"] == "a":
            raise KeyError("no a")
        return float("nan") if config["units"] == 2 else config["x"]

    with pytest.raises(mx.MXNetError, match="task 'trial .' .*KeyError: 'no a'|task 'trial .*KeyError: 'no a'"):
        learn.random_search(trial, SPACE, 20)
    found = learn.random_search(trial, SPACE, 20, ignore_errors=True)
    failed = [each.error for each in found]
    assert failed.count("KeyError: 'no a'") == sum(each.config["kind"] == "a" for each in found) > 0
    scores = [each.score for each in found]
    valid = [score for score in scores if not math.isnan(score)]
    assert scores[: len(valid)] == sorted(valid) and 0 < len(valid) < 20
    text = learn.table(found)
    assert len(text.splitlines()) == 21
    assert text.splitlines()[0].split() == ["trial", "x", "rate", "units", "kind", "score"]
    assert "KeyError: 'no a'" in text


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ({"trials": 0}, ValueError, "trials must be a positive integer, received 0"),
        ({"seed": -1}, ValueError, "seed must be an integer of at least 0"),
        ({"mode": "best"}, ValueError, "mode must be 'min' or 'max'"),
        ({"space": {}}, TypeError, "space must be a dictionary"),
        ({"space": {"x": 3}}, TypeError, "x must be a list of choices, or a distribution"),
        ({"space": {"x": []}}, TypeError, "x must be a list of choices"),
        ({"budgets": []}, ValueError, "budgets must be a list"),
        ({"keep": 1}, ValueError, "keep must be a fraction above 0 and below 1"),
        ({"workers": 2}, ValueError, "workers must be from 1 to 1"),
    ],
)
def test_invalid_arguments_are_rejected(how, kind, text):
    given = {"trial": lambda config, budget: 0, "space": SPACE, "trials": 2, "budgets": [1, 2], **how}
    with pytest.raises(kind, match=text):
        learn.successive_halving(**given)


@pytest.mark.parametrize(
    ("make", "bounds"), [(learn.uniform, (1, 1)), (learn.log_uniform, (0, 1)), (learn.integers, (3, 2))]
)
def test_invalid_ranges_are_rejected(make, bounds):
    with pytest.raises(ValueError, match="low"):
        make(*bounds)
