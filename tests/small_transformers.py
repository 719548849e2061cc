"""Small transformers for tests, and recordings of others."""

import pathlib

import numpy as np

import neomx as mx
from neomx import nd
from neomx.gluon.model_zoo import transformer

RECORDED = pathlib.Path(__file__).resolve().parent / "fixtures" / "transformers"


def tokens(*shape, vocabulary=32, seed=0):
    return nd.array(np.random.default_rng(seed).integers(0, vocabulary, shape), dtype="int32")


def close(one, other, tolerance=1e-5):
    one, other = (each.asnumpy() if isinstance(each, nd.NDArray) else np.asarray(each) for each in (one, other))
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def small_gpt2(seed=0, **kwargs):
    mx.random.seed(seed)
    net = transformer.GPT2(**({"vocab_size": 32, "units": 16, "layers": 2, "heads": 2, "max_length": 12} | kwargs))
    net.initialize()
    return net


def lively(net):
    """Enlarge the weights, so that everything affects the result and generated text does not repeat one word."""
    mx.random.seed(5)
    for param in net.collect_params().values():
        param.set_data(param.data() + 0.5 * nd.random.normal(shape=param.shape))
    return net


def small_bert(**kwargs):
    sizes = {"vocab_size": 32, "units": 16, "layers": 2, "heads": 2, "max_length": 12}
    return transformer.BERT(**(sizes | kwargs))


def lively_gpt2(**kwargs):
    return lively(small_gpt2(max_length=24, **kwargs))


def recorded(name):
    outputs = np.load(RECORDED / name / "outputs.npz")
    return outputs, [nd.array(outputs[key], dtype="int32") for key in ("tokens", "types", "lengths") if key in outputs]
