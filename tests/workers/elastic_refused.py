"""Asks for layouts that an elastic job cannot have, and writes the errors: elastic_refused.py FOLDER [OPTIMIZER].

With an optimizer, makes a step with it under a layout.
"""

import functools
import json
import os
import sys

import torch

import neomx as mx
from neomx import gluon
from neomx.gluon import nn
from neomx.parallel import Layout, apply

errors = {}


def attempt(name, call):
    try:
        call()
        errors[name] = ""
    except Exception as error:
        errors[name] = str(error)


def network():
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=4), nn.Dense(4, in_units=4))
    net.initialize()
    return net


def two():
    nets = [apply(network(), Layout(data=2)) for _ in range(2)]
    trainers = [gluon.Trainer(net.collect_params(), "sgd") for net in nets]
    for trainer in trainers:
        _ = trainer.strategy


def step(optimizer):
    net = apply(network(), Layout(data=2, tensor=2), plan={"0": "column", "1": "row"})
    trainer = gluon.Trainer(net.collect_params(), optimizer)
    x = mx.nd.ones((2, 4))
    with mx.autograd.record():
        value = net(x).sum()
    value.backward()
    trainer.step(2)


torch.set_num_threads(1)
folder, *optimizers = sys.argv[1:]
for name in optimizers:
    attempt(name, functools.partial(step, name))
if not optimizers:
    attempt("tensor", lambda: apply(network(), Layout(tensor=2)))
    attempt("full", lambda: apply(network(), Layout(data=2), shard="full"))
    attempt("torch", lambda: apply(torch.nn.Linear(2, 2), Layout(data=2)))
    attempt("another", lambda: apply(network(), Layout(shard=2)))
    attempt("two", two)
with open(f"{folder}/errors-{os.environ['RANK']}.json", "w") as file:
    json.dump(errors, file)
if not optimizers:
    mx.dist.barrier()
