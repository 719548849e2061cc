"""Hyperparameter search: trials run on the workers at the same time, with the same result for any number of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..comm.session import session
from ..name import NameManager
from ..random import seed as set_seed

Draw = Callable[[np.random.Generator], Any]
Space = Mapping[str, Sequence[Any] | Draw]


@dataclass(frozen=True)
class Trial:
    """A configuration with its score. `error` is the message of the exception if the trial failed."""

    number: int
    config: dict[str, Any]
    score: float
    budget: Any = None
    error: str | None = None


# ---- spaces ----


def uniform(low: float, high: float) -> Draw:
    """A hyperparameter with a uniform distribution from `low` to `high`."""
    _check_range(low, high)
    return lambda random: float(random.uniform(low, high))


def log_uniform(low: float, high: float) -> Draw:
    """A positive hyperparameter whose logarithm has a uniform distribution, such as a learning rate."""
    _check_range(low, high)
    if not low > 0:
        raise ValueError(f"low must be above 0, received {low!r}")
    return lambda random: math.exp(random.uniform(math.log(low), math.log(high)))


def integers(low: int, high: int) -> Draw:
    """An integer hyperparameter from `low` to `high`, both included."""
    _check_range(low, high)
    return lambda random: int(random.integers(low, high, endpoint=True))


def _check_range(low: Any, high: Any) -> None:
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in (low, high)) or not low < high:
        raise ValueError(f"expected two numbers with low < high, received {low!r} and {high!r}")


def _draw(space: Space, number: int, seed: int = 0) -> dict[str, Any]:
    """Return the configuration of a trial. It depends only on the space, the number of the trial and the seed."""
    random = np.random.Generator(np.random.PCG64([seed, number]))
    return {name: _drawn(name, choices, random) for name, choices in space.items()}


def _drawn(name: str, choices: Any, random: np.random.Generator) -> Any:
    if callable(choices):
        return choices(random)
    if not isinstance(choices, list | tuple) or not choices:
        raise TypeError(
            f"{name} must be a list of choices, or a distribution such as learn.uniform(0, 1), received {choices!r:.80}"
        )
    return choices[int(random.integers(len(choices)))]


# ---- searches ----


def random_search(
    trial: Callable[[dict[str, Any]], float],
    space: Space,
    trials: int,
    seed: int = 0,
    mode: str = "min",
    workers: int = 1,
    ignore_errors: bool = False,
) -> list[Trial]:
    """Run `trial(config)`, which returns a score, for random configurations. Return all trials, the best first.

    `space` maps names to lists of choices or to distributions: {"rate": learn.log_uniform(1e-4, 1), "units": [32, 64]}.
    Trials run on groups of `workers` workers, as `mx.parallel.tasks` describes: within a trial, `mx.dist` sees only
    these. A trial starts with its own `mx.random.seed`, so results depend neither on the number of workers nor on other
    trials. All workers must make the same call. All return the same list, and continue with equal random numbers.

    `mode` is 'min' or 'max'. A NaN is the worst score. If a trial raises, the search raises an MXNetError that names
    it. With `ignore_errors`, that trial instead has a NaN as its score, and the message in `error`.
    """
    return _search(lambda config, _: trial(config), space, trials, [None], 1.0, seed, mode, workers, ignore_errors)


def successive_halving(
    trial: Callable[[dict[str, Any], Any], float],
    space: Space,
    trials: int,
    budgets: Sequence[Any],
    keep: float = 1 / 3,
    seed: int = 0,
    mode: str = "min",
    workers: int = 1,
    ignore_errors: bool = False,
) -> list[Trial]:
    """Run `trial(config, budget)` for all configurations with the first budget, and the best ones with the next.

    A budget is anything that the trial understands, such as a number of epochs. The fraction `keep` of the trials, at
    least one, runs with the next budget, from the start. The list has each trial with the last budget that it ran
    with: those with a larger budget first, and among these the best first. Other arguments are those of
    `random_search`.
    """
    if isinstance(budgets, str) or not len(budgets):
        raise ValueError(f"budgets must be a list, such as [1, 3, 9], received {budgets!r:.80}")
    if not isinstance(keep, int | float) or not 0 < keep < 1:
        raise ValueError(f"keep must be a fraction above 0 and below 1, received {keep!r}")
    return _search(trial, space, trials, budgets, keep, seed, mode, workers, ignore_errors)


def _search(
    trial: Callable[[dict[str, Any], Any], float],
    space: Space,
    trials: int,
    budgets: Sequence[Any],
    keep: float,
    seed: int,
    mode: str,
    workers: int,
    ignore_errors: bool,
) -> list[Trial]:
    if not isinstance(trials, int) or isinstance(trials, bool) or trials < 1:
        raise ValueError(f"trials must be a positive integer, received {trials!r}")
    if mode not in ("min", "max"):
        raise ValueError(f"mode must be 'min' or 'max', received {mode!r}")
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, received {seed!r}")
    if not isinstance(space, Mapping) or not space:
        raise TypeError(f"space must be a dictionary {{name: choices or distribution}}, received {space!r:.80}")
    from ..parallel import tasks  # takes a second to import, which other ways to learn do not need

    configs = {number: _draw(space, number, seed) for number in range(trials)}
    left, ended = list(configs), list[Trial]()
    for rung, budget in enumerate(budgets):
        work = {f"trial {n}": _work(trial, configs[n], budget, [seed, n], ignore_errors) for n in left}
        results = tasks(work, workers)
        found = [Trial(n, configs[n], budget=budget, **results[f"trial {n}"]) for n in left]
        found.sort(key=lambda each: (math.isnan(each.score), each.score if mode == "min" else -each.score, each.number))
        goes_on = max(1, int(len(found) * keep)) if rung + 1 < len(budgets) else 0
        left = [each.number for each in found[:goes_on]]
        ended = found[goes_on:] + ended
    _seed([seed, trials])  # workers have run different trials, but continue with the same random numbers
    return ended


def _seed(numbers: list[int]) -> None:
    """Seed the generators of mx and NumPy."""
    number = int(np.random.SeedSequence(numbers).generate_state(1)[0]) % 2**31
    set_seed(number)
    np.random.seed(number)


def _work(trial: Callable[..., float], config: dict[str, Any], budget: Any, seed: list[int], catches: bool) -> Any:
    """Return the function that runs a trial and returns its score and the error."""
    from ..parallel import tasks

    def score() -> float:
        _seed(seed)
        with NameManager():  # workers that ran different trials before give their parameters the same names
            return float(trial(dict(config), budget))

    def run() -> dict[str, Any]:
        if not catches:
            return {"score": score(), "error": None}
        workers = session().world.size
        try:
            # If only some workers of a trial fail, the others wait for them. A task within the task ends on all.
            found = score() if workers == 1 else tasks({"trial": score}, workers)["trial"]
        except Exception as error:
            return {"score": math.nan, "error": f"{type(error).__name__}: {error}"}
        return {"score": found, "error": None}

    return run


def table(trials: Sequence[Trial]) -> str:
    """Return trials as a table in plain text, one line for each."""
    names = list(trials[0].config) if trials else []
    has_budgets = any(trial.budget is not None for trial in trials)
    rows = [["trial", *names, *(["budget"] if has_budgets else []), "score"]]
    for trial in trials:
        budget = [_shown(trial.budget)] if has_budgets else []
        values = [_shown(trial.config[name]) for name in names]
        rows.append([str(trial.number), *values, *budget, _shown(trial.score) if trial.error is None else trial.error])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return "\n".join("  ".join([*(c.rjust(w) for c, w in zip(r, widths, strict=False)), r[-1]]) for r in rows)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
