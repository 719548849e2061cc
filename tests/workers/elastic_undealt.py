"""Trains a Module on an iterator of each worker's own samples; worker 1 dies in step 3: elastic_undealt.py."""

import os
import signal

import numpy as np

import neomx as mx

steps = 0


def die(parameters):
    global steps
    steps += 1
    if os.environ["RANK"] == "1" and steps == 3:
        os.kill(os.getpid(), signal.SIGKILL)


net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1)
module = mx.mod.Module(mx.sym.LinearRegressionOutput(net, mx.sym.Variable("label")), label_names=["label"])
data = mx.io.NDArrayIter(np.ones((24, 3)), {"label": np.ones(24)}, batch_size=4)
module.fit(data, kvstore="dist_sync", eval_metric="mse", num_epoch=2, batch_end_callback=die)
print("steps:", steps)
