"""Balance a pole on a cart by reinforcement learning: actors play as tasks, and a learner trains by all-reduce.

    neomx run -n 2 examples/tasks/reinforcement.py

In each iteration, `mx.parallel.tasks` deals the actors to the workers. Each actor plays several games with the current
policy and returns what happened to all workers. Then all workers together improve the policy by PPO, each on its part
of the samples. The games of an actor depend only on its number, so the result does not depend on the number of workers.

Metric: mean number of steps (at most 200) for which the trained policy balances the pole in 64 new games.
Target: 190. A random policy lasts for about 22 steps.
"""

from functools import partial

import numpy as np
from task import Task

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

STEPS, GAMES, ACTORS = 200, 8, 4
DISCOUNT, SMOOTH, CLIP = 0.99, 0.95, 0.2


class CartPole:
    """Several carts with a pole each. The state of one: position, velocity, angle of the pole, angular velocity."""

    def __init__(self, games, rng):
        self.state = rng.uniform(-0.05, 0.05, (games, 4))

    def step(self, right):
        """Push each cart to the right or to the left for 0.02 s; return which games go on."""
        x, speed, angle, turning = self.state.T
        force = np.where(right, 10.0, -10.0)
        # A cart of 1 kg and a pole of 0.1 kg and 1 m, whose center is at 0.5 m.
        sine, cosine = np.sin(angle), np.cos(angle)
        pushed = (force + 0.05 * turning**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        push = pushed - 0.05 * turn * cosine / 1.1
        self.state = np.stack([x + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * turning, turning + 0.02 * turn], 1)
        return (abs(self.state[:, 0]) < 2.4) & (abs(self.state[:, 2]) < np.radians(12))


class Policy(gluon.HybridBlock):
    """The log odds of pushing to the right, and the expected sum of rewards, for a batch of states."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Dense(32, activation="tanh", in_units=4), nn.Dense(32, activation="tanh", in_units=32))
            self.odds, self.value = nn.Dense(1, in_units=32), nn.Dense(1, in_units=32)

    def hybrid_forward(self, F, state):
        hidden = self.body(state)
        return F.squeeze(self.odds(hidden), axis=1), F.squeeze(self.value(hidden), axis=1)


def play(net, games, seed, greedy=False):
    """Play some games; return states, actions, values and a mask of the steps that were played, (steps, games, ...)."""
    rng = np.random.default_rng(seed)
    carts, going = CartPole(games, rng), np.ones(games, bool)
    states, actions, values, played = [], [], [], []
    for _ in range(STEPS):
        odds, value = (part.asnumpy() for part in net(nd.array(carts.state)))
        right = odds > 0 if greedy else rng.random(games) < 1 / (1 + np.exp(-odds))
        for kept, new in zip((states, actions, values, played), (carts.state, right, value, going), strict=True):
            kept.append(new)
        going = going & carts.step(right)
        if not going.any():
            break
    return [np.array(each, "float32") for each in (states, actions, values, played)]


def advantages(values, played):
    """Return how much better each step was than expected, by generalized advantage estimation; every step earns 1."""
    found, following, after = np.zeros_like(values), np.zeros(values.shape[1]), np.zeros(values.shape[1])
    for step in reversed(range(len(values))):
        error = 1 + DISCOUNT * following - values[step]
        found[step] = after = (error + DISCOUNT * SMOOTH * after) * played[step]
        following = values[step] * played[step]
    return found


def act(net, number):
    """Play the games of one actor; return its samples: states, actions, advantages and expected sums of rewards."""
    states, actions, values, played = play(net, GAMES, number)
    better = advantages(values, played)
    rows = played > 0
    return [nd.array(each[rows]) for each in (states, actions, better, better + values)]


def log_probability(odds, right):
    """Return the log of the probability of the actions that were taken."""
    return -nd.log1p(nd.exp(nd.where(right, -odds, odds)))


def loss_of(net, state, right, better, value, before):
    """PPO's clipped loss, with the error of the expected value."""
    odds, expected = net(state)
    ratio = nd.exp(log_probability(odds, right) - before)
    gain = nd.minimum(ratio * better, nd.clip(ratio, 1 - CLIP, 1 + CLIP) * better)
    return 0.5 * 0.01 * (expected - value) ** 2 - gain


def main():
    task = Task(__doc__, "steps balanced", 190, 60, iterations=(50, 10))
    net = Policy()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}, kvstore="dist_sync")
    seed = task.options.seed
    for iteration in range(task.options.iterations):
        actors = {f"actor {n}": partial(act, net, (seed, iteration, n)) for n in range(ACTORS)}
        samples = [nd.concat(*parts, dim=0) for parts in zip(*mx.parallel.tasks(actors).values(), strict=True)]
        better = samples[2]
        samples[2] = (better - better.mean()) / (((better - better.mean()) ** 2).mean().sqrt() + 1e-6)
        mine = [each[task.rank :: task.workers] for each in samples]
        before = log_probability(net(mine[0])[0], mine[1])
        for _ in range(8):
            with autograd.record():
                loss = loss_of(net, *mine, before)
            loss.backward()
            trainer.step(len(better))
        task.report(iteration + 1, steps=len(better) / (ACTORS * GAMES))
    _, _, _, played = play(net, 64, (seed, 10**6), greedy=True)
    task.finish(played.sum(axis=0).mean())


if __name__ == "__main__":
    main()
