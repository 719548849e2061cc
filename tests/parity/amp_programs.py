"""What `amp.init` does to a process: the same code under real MXNet, which cannot undo it, and under neomx."""

import inspect
import json

import numpy as np


def dtype_of(array):
    """float16, bfloat16, ... whatever a library calls it."""
    name = str(getattr(array.dtype, "__name__", array.dtype))
    return "bfloat16" if "bfloat16" in name else name


def symbols(mx):
    """The ops of new graphs."""
    s, a, b = mx.sym, mx.sym.var("a"), mx.sym.var("b")
    fc = s.FullyConnected(a, num_hidden=3, name="fc")
    made = {
        "FullyConnected": fc,
        "softmax": s.softmax(fc),
        "+": fc + b,
        "elemwise_add": s.elemwise_add(fc, b),
        "broadcast_add": s.broadcast_add(fc, b),
        "concat": s.concat(fc, b),
        "softrelu": s.Activation(fc, act_type="softrelu"),
        "relu": s.Activation(fc, act_type="relu"),
        "leaky": s.LeakyReLU(fc, act_type="leaky"),
        "elu": s.LeakyReLU(fc, act_type="elu"),
        "SoftmaxOutput": s.SoftmaxOutput(fc, name="so"),
        "two layers": s.FullyConnected(fc, num_hidden=2, name="fc2"),
        "exp": s.exp(fc),
        "method": fc.exp(),
        "scalar": fc * 2,
        "power": fc**2,
        "LayerNorm": s.LayerNorm(fc),
        "BatchNorm": s.BatchNorm(fc),
        "where": s.where(a, fc, b),
        "reshape": s.reshape(fc, shape=(3, -1)),
        "dot": s.dot(fc, b),
        "batch_dot": s.batch_dot(fc, b),
        "gemm2": s.linalg.gemm2(fc, b),
        "div_sqrt_dim": s.contrib.div_sqrt_dim(fc),
        "add_n": s.add_n(fc, b),
        "division": fc / b,
        "comparison": fc > b,
        "negative": -fc,
        "square": s.square(fc),
        "sum": s.sum(fc),
        "Embedding": s.Embedding(a, input_dim=3, output_dim=2),
        "RNN": s.RNN(a, state_size=2, num_layers=1, mode="lstm"),
        "Convolution": s.Convolution(a, kernel=(1,), num_filter=2),
        "Pooling": s.Pooling(fc, kernel=(2,)),
        "Dropout": s.Dropout(fc),
        "tanh": s.tanh(fc),
        "sigmoid": s.sigmoid(fc),
        "stack": s.stack(fc, b),
        "norm": s.norm(fc),
        "mean": s.mean(fc),
    }
    listed = {}
    for key, symbol in made.items():
        nodes = json.loads(symbol.tojson(remove_amp_cast=False))["nodes"]
        listed[key] = [
            [n["op"], n.get("attrs", {}).get("dtype") or n.get("attrs", {}).get("num_outputs"), n["inputs"]]
            for n in nodes
        ]
    return listed


def arrays(mx):
    """The dtypes of results: of bfloat16 in MXNet's CPU form, which casts both ways; its float16 never widens."""
    nd = mx.nd
    x = nd.ones((2, 3))
    h = nd.FullyConnected(x, nd.array(np.eye(3)), no_bias=True, num_hidden=3)
    calls = {
        "FullyConnected": lambda: h,
        "of integers": lambda: nd.FullyConnected(*[nd.ones((2, 2), dtype="int32")] * 2, no_bias=True, num_hidden=2),
        "of float64": lambda: nd.FullyConnected(*[nd.ones((2, 2), dtype="float64")] * 2, no_bias=True, num_hidden=2),
        "softmax": lambda: nd.softmax(h),
        "exp": lambda: nd.exp(h),
        "method": lambda: h.exp(),
        "reshape": lambda: nd.reshape(h, shape=(3, 2)),
        "method reshape": lambda: h.reshape((3, 2)),
        "relu": lambda: nd.relu(h),
        "tanh": lambda: nd.tanh(h),
        "Activation": lambda: nd.Activation(h, act_type="relu"),
        "softrelu": lambda: nd.Activation(h, act_type="softrelu"),
        "+": lambda: h + x,
        "+ of one": lambda: h + h,
        "broadcast_mul": lambda: nd.broadcast_mul(h, x),
        "scalar": lambda: h * 2,
        "sum": lambda: h.sum(),
        "BatchNorm": lambda: nd.BatchNorm(h.reshape((2, 3, 1)), *[nd.ones(3)] * 4),
        "transpose": lambda: h.T,
        "cast": lambda: nd.cast(h, dtype="float32"),
        "where": lambda: nd.where(x > 0, h, x),
        "Dropout": lambda: nd.Dropout(h),
        "Pooling": lambda: nd.Pooling(h.reshape((1, 2, 3)), kernel=(1,), pool_type="max"),
    }
    return {key: dtype_of(call()) for key, call in calls.items()}


def scales(mx, amp):
    """A Trainer's way through overflows: scales, gradients and weights."""
    parameter = mx.gluon.Parameter("w", shape=(3,))
    parameter.initialize(init=mx.init.One())
    trainer = mx.gluon.Trainer([parameter], "sgd", {"learning_rate": 0.1, "momentum": 0.5})
    amp.init_trainer(trainer)
    scaler = trainer._amp_loss_scaler
    lines = []

    def step(factor=1.0, unscale=False, two=False):
        with mx.autograd.record():
            loss = (parameter.data() * factor).sum()
            with amp.scale_loss([loss, loss * 1] if two else loss, trainer) as scaled:
                mx.autograd.backward(scaled)
        gradients = [parameter.grad().asnumpy().tolist()]
        if unscale:
            amp.unscale(trainer)
            gradients.append(parameter.grad().asnumpy().tolist())
        before = trainer._scale
        trainer.step(2)
        lines.append(
            [
                repr(gradients),
                before,
                [round(float(v), 5) for v in parameter.data().asnumpy()],
                scaler.loss_scale,
                scaler._next_loss_scale,
                scaler._unskipped,
                trainer.optimizer.num_update,
            ]
        )

    inf, nan = float("inf"), float("nan")
    for factor in (1.0, inf, 1.0, nan, 1e38, 1.0):
        step(factor)
    step(two=True)
    step(unscale=True)
    step(inf, unscale=True)
    scaler._scale_seq_len = 3
    for _ in range(8):
        step()
    scaler._loss_scale = scaler._next_loss_scale = 2.0
    for factor in (inf, inf, inf, 1.0):
        step(factor)
    scaler._loss_scale = scaler._next_loss_scale = 2.0**24
    for _ in range(4):
        step(1e-6)
    return lines


def own_gradients(mx):
    """The gradients of losses that make their own."""
    x, label = mx.nd.array([[1.0, 2.0]]), mx.nd.array([0.0])
    x.attach_grad()
    results = []
    for more in ({}, {"grad_scale": 2.0}):
        with mx.autograd.record():
            y = mx.nd.SoftmaxOutput(x, label, **more)
        y.backward()
        results.append([round(float(v), 1) for v in x.grad.asnumpy()[0]])
    return results


def lists(amp, dtype):
    names = [name for name in dir(amp) if name.startswith("list_")]
    return {name: sorted(getattr(amp, name)(dtype) or [], key=str) for name in names}


def public(amp):
    return sorted(name for name in dir(amp) if not name.startswith("_"))


def signatures(amp):
    """The names of all arguments of all functions."""
    functions = {name: getattr(amp, name) for name in public(amp) if inspect.isfunction(getattr(amp, name))}
    return {name: list(inspect.signature(function).parameters) for name, function in functions.items()}
