"""`mx.sym`'s networks compute the numbers of the Gluon forms, and work with Module, SymbolBlock and files."""

import json

import numpy as np
import pytest

import neomx as mx
from neomx import gluon, nd
from neomx import symbol as sym
from neomx.gluon.model_zoo import transformer, vision

WORDS = 9


def numbers(*shape, seed=0):
    return nd.array(np.random.default_rng(seed).normal(size=shape))


def tokens(*shape):
    return nd.array(np.random.default_rng(1).integers(0, WORDS, shape))


SIZES = {"vocab_size": WORDS, "num_layers": 2, "num_heads": 2, "max_length": 7}
ALSO = {"vocab_size": WORDS, "layers": 2, "heads": 2, "max_length": 7, "prefix": "net_"}
# Each network, its Gluon form with the same names, and its input.
PAIRS = {
    "lstm": (
        lambda x: sym.LSTM(x, num_hidden=4, num_layers=2, bidirectional=True, dropout=0.3, name="net"),
        lambda: gluon.rnn.LSTM(4, 2, "NTC", 0.3, True, prefix="net_"),
        numbers(2, 5, 3),
    ),
    "lstm, time first": (
        lambda x: sym.LSTM(x, 4, layout="TNC", name="net"),
        lambda: gluon.rnn.LSTM(4, prefix="net_"),
        numbers(5, 2, 3),
    ),
    "bert": (
        lambda x: sym.Bert(x, num_hidden=8, **SIZES, name="net"),
        lambda: transformer.BERT(units=8, pooler=False, **ALSO),
        tokens(2, 5),
    ),
    "pooled bert": (
        lambda x: sym.Bert(x, num_hidden=8, **SIZES, pooler=True, name="net"),
        lambda: transformer.BERT(units=8, **ALSO),
        tokens(2, 5),
    ),
    "gpt2": (
        lambda x: sym.GPT2(x, hidden_size=8, **SIZES, name="net"),
        lambda: transformer.GPT2(units=8, **ALSO),
        tokens(2, 5),
    ),
    "hidden states of gpt2": (
        lambda x: sym.GPT2(x, hidden_size=8, **SIZES, head=False, name="net"),
        lambda: transformer.GPT2(units=8, head=False, **ALSO),
        tokens(2, 5),
    ),
    "resnet": (
        lambda x: sym.Resnet(x, depth=18, num_classes=3, name="net"),
        lambda: vision.resnet18_v1(classes=3, prefix="net_"),
        numbers(2, 3, 32, 32),
    ),
    "resnet, version 2": (
        lambda x: sym.Resnet(x, depth=18, num_classes=3, version=2, thumbnail=True, name="net"),
        lambda: vision.resnet18_v2(classes=3, thumbnail=True, prefix="net_"),
        numbers(2, 3, 8, 8),
    ),
    "vgg": (
        lambda x: sym.VGG(x, version=11, num_classes=3, batch_norm=True, name="net"),
        lambda: vision.vgg11_bn(classes=3, prefix="net_"),
        numbers(1, 3, 32, 32),
    ),
}


def initialized(block, *arrays):
    """Initialize a Block. Return the results of a forward, and its parameters by name."""
    block.initialize(mx.init.Xavier())
    found = block(*arrays)
    found = [each.asnumpy() for each in (found if isinstance(found, (list, tuple)) else [found])]
    return found, {name: param.data() for name, param in block.collect_params().items()}


def evaluated(graph, given, params):
    names = graph.list_auxiliary_states()
    states = {name: params[name] for name in names}
    arguments = {name: given.get(name, params.get(name)) for name in graph.list_arguments()}
    assert set(arguments) | set(states) == set(given) | set(params)
    return [each.asnumpy() for each in graph.bind(mx.cpu(), arguments, aux_states=states).forward()]


def assert_close(found, expected):
    """The graph runs the same kernels. Some of them combine values in another order, so results differ by rounding."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


@pytest.mark.parametrize("name", PAIRS)
def test_numbers_are_those_of_gluon(name):
    build, block, data = PAIRS[name]
    expected, params = initialized(block(), data)
    assert_close(evaluated(build(sym.Variable("data")), {"data": data}, params), expected)


def test_bert_takes_token_types_and_lengths():
    extra = {"token_types": sym.Variable("types"), "valid_length": sym.Variable("lengths")}
    graph = sym.Bert(sym.Variable("data"), num_hidden=8, **SIZES, **extra, name="net")
    given = {"data": tokens(2, 5), "types": nd.array([[0, 1] * 2 + [0]] * 2), "lengths": nd.array([3, 5])}
    block = transformer.BERT(units=8, pooler=False, **ALSO)
    expected, params = initialized(block, *given.values())
    assert_close(evaluated(graph, given, params), expected)
    for part in ({"token_types": extra["token_types"]}, {"valid_length": extra["valid_length"]}):
        graph = sym.Bert(sym.Variable("data"), num_hidden=8, **SIZES, **part, name="net")
        assert len(graph.list_arguments()) == len(params) + 2


def test_attention_is_that_of_gluon():
    inputs = {"q": numbers(2, 4, 5), "k": numbers(2, 3, 6, seed=1), "v": numbers(2, 3, 7, seed=2)}
    block = transformer.MultiHeadAttention(8, 2, 4, prefix="net_")
    expected, params = initialized(block, *inputs.values())
    graph = sym.MultiHeadAttention(*map(sym.Variable, inputs), num_heads=2, key_dim=4, name="net")
    assert_close(evaluated(graph, inputs, params), expected)
    block.hybridize()
    assert_close([block(*inputs.values()).asnumpy()], expected)

    data, lengths = numbers(2, 4, 5), nd.array([2, 4])
    block = transformer.MultiHeadAttention(6, 2, 4, causal=True, prefix="net_")
    expected, params = initialized(block, data, data, data, lengths)
    given = {"causal": True, "valid_length": sym.Variable("lengths")}
    graph = sym.SelfAttention(sym.Variable("data"), num_heads=2, key_dim=4, units=6, **given, name="net")
    assert_close(evaluated(graph, {"data": data, "lengths": lengths}, params), expected)


def test_states_of_lstm():
    data = numbers(2, 5, 3)
    block = gluon.rnn.LSTM(4, 2, "NTC", prefix="net_")
    block.initialize()
    outputs, states = block(data, block.begin_state(2))
    params = {name: param.data() for name, param in block.collect_params().items()}
    graph = sym.LSTM(sym.Variable("data"), 4, 2, state_outputs=True, name="net")
    assert_close(evaluated(graph, {"data": data}, params), [each.asnumpy() for each in (outputs, *states)])


# ---- small functions ----


def test_leading_is_the_symbol_or_a_group():
    one, other = sym.Variable("a"), sym.Variable("b")
    assert sym.Leading(one) is one
    assert sym.Leading([one, other]).list_outputs() == ["a", "b"]


def test_deconvolution_is_mxnets():
    assert sym.DeConvolution is sym.Deconvolution


def test_hamming_window():
    data = np.random.default_rng(0).normal(size=(2, 21)).astype("float32")
    frames = sym.HammingWindow(sym.Variable("data"), length=6, hop=4).eval(data=nd.array(data))[0].asnumpy()
    expected = np.stack([data[:, i : i + 6] for i in range(0, 16, 4)], axis=1) * np.hamming(6)
    np.testing.assert_allclose(frames, expected, atol=1e-6)  # the window is computed in float32
    assert sym.HammingWindow(sym.Variable("data"), length=6).infer_shape(data=(3, 21))[1] == [(3, 6, 6)]


def test_fourier_transforms():
    data = np.random.default_rng(0).normal(size=(2, 8)).astype("float32")
    spectrum = sym.Fft(sym.Variable("data"))
    found = spectrum.eval(data=nd.array(data))[0].asnumpy()
    np.testing.assert_allclose(found[:, ::2] + 1j * found[:, 1::2], np.fft.fft(data), atol=1e-5)
    back = (sym.Ifft(spectrum) / 8).eval(data=nd.array(data))[0].asnumpy()
    np.testing.assert_allclose(back, data, atol=1e-6)


@pytest.mark.parametrize("bit", [2, 5, 8])
def test_quantize(bit):
    data = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    levels, scale = (each.asnumpy() for each in sym.quantize(sym.Variable("data"), bit=bit).eval(data=nd.array(data)))
    most = 2 ** (bit - 1) - 1
    assert levels.dtype == np.int8 and np.abs(levels).max() == most
    np.testing.assert_allclose(scale, [[np.abs(data).max() / most]], rtol=1e-6)
    np.testing.assert_array_equal(levels, np.round(data / scale))
    whole = sym.quantize(sym.Variable("data"), bit=bit)
    for back in (sym.dequantize(whole), sym.dequantize(whole[0], whole[1])):
        restored = back.eval(data=nd.array(data))[0].asnumpy()
        np.testing.assert_allclose(restored, levels * scale, rtol=1e-6)
        assert np.abs(restored - data).max() <= scale / 2 * 1.0001


def test_quantize_zeros():
    levels, scale = sym.quantize(sym.Variable("data")).eval(data=nd.zeros((2, 3)))
    assert not levels.asnumpy().any() and scale.asscalar() > 0


def test_gradient_passes_through_quantization_for_training():
    back = sym.dequantize(sym.quantize(sym.Variable("data"), bit=3, dtype="float32"))
    executor = back.simple_bind(mx.cpu(), data=(2, 3))
    executor.arg_dict["data"][:] = numbers(2, 3)
    executor.forward(is_train=True)
    executor.backward(nd.array([[1, 2, 3], [4, 5, 6]]))
    np.testing.assert_allclose(executor.grad_dict["data"].asnumpy(), [[1, 2, 3], [4, 5, 6]], rtol=1e-6)


# ---- names ----


def test_names_are_unique_and_follow_the_name():
    data = sym.Variable("data")
    with mx.name.NameManager():
        graph = sym.Group([sym.LSTM(data, 2), sym.LSTM(data, 2), sym.SelfAttention(data, 1, 2), sym.LSTM(data, 2)])
    names = graph.list_arguments()
    assert len(names) == len(set(names)) == 1 + 4 * 3 + 8
    assert graph.list_outputs() == ["lstm0_output", "lstm1_output", "selfattention0_output", "lstm2_output"]
    nodes = [node["name"] for node in json.loads(graph.tojson())["nodes"]]
    assert len(nodes) == len(set(nodes))
    named = sym.RandomFlip(sym.LSTM(data, 2, name="encoder"), name="flip")
    assert named.list_arguments()[1:3] == ["encoder_l0_i2h_weight", "encoder_l0_h2h_weight"]
    assert named.list_outputs() == ["flip_output"]
    with mx.name.Prefix("top_"):
        assert sym.GPT2(data, 1, 4, 5).list_outputs() == ["top_gpt20_output"]
        assert sym.LSTM(data, 2, name="encoder").list_arguments()[1] == "top_encoder_l0_i2h_weight"


def test_two_networks_share_a_graph():
    data = sym.Variable("data")
    both = sym.VGG(data, version=11, num_classes=2) + sym.Resnet(data, depth=18, num_classes=2)
    names = both.list_arguments() + both.list_auxiliary_states()
    assert len(names) == len(set(names))


# ---- Module, SymbolBlock, files ----


def test_module_initializes_each_parameter_suitably():
    data = sym.Variable("data")
    words = sym.Bert(data, num_hidden=32, num_layers=1, num_heads=2, vocab_size=50, max_length=8, name="bert")
    net = sym.FullyConnected(sym.LSTM(sym.SelfAttention(words, 2, 16, name="look"), 16, name="lstm"), num_hidden=2)
    module = mx.mod.Module(sym.SoftmaxOutput(net, name="softmax"))
    module.bind([("data", (2, 5))], [("softmax_label", (2,))])
    module.init_params(mx.init.Xavier())
    values = {name: each.asnumpy() for name, each in module.get_params()[0].items()}
    assert 0.017 < values["bert_embed_weight"].std() < 0.023  # as BERT itself defines it
    assert (values["bert_norm_gamma"] == 1).all()
    for name in ("look_query_weight", "lstm_l0_i2h_weight"):  # from the program's initializer
        bound = np.sqrt(3 / (sum(values[name].shape) / 2))
        assert 0.9 * bound < np.abs(values[name]).max() <= bound
    biases = [name for name in values if name.endswith(("bias", "beta"))]
    assert len(biases) > 10 and not any(values[name].any() for name in biases)


def test_checkpoint_of_a_module_becomes_a_symbol_block(tmp_path):
    data = sym.Variable("data")
    net = sym.FullyConnected(sym.GPT2(data, 1, 8, WORDS, num_heads=2, max_length=6, name="gpt"), num_hidden=2)
    module = mx.mod.Module(sym.SoftmaxOutput(net, name="softmax"))
    module.bind([("data", (2, 5))], [("softmax_label", (2,))])
    module.init_params()
    module.save_checkpoint(str(tmp_path / "net"), 1)
    x = tokens(2, 5)
    module.forward(mx.io.DataBatch([x], [nd.zeros(2)]), is_train=False)
    expected = module.get_outputs()[0].asnumpy()
    files = str(tmp_path / "net-symbol.json"), ["data", "softmax_label"], str(tmp_path / "net-0001.params")
    assert_close([gluon.SymbolBlock.imports(*files)(x, nd.zeros(2)).asnumpy()], [expected])
    again = mx.mod.Module.load(str(tmp_path / "net"), 1)
    again.bind([("data", (2, 5))], [("softmax_label", (2,))], for_training=False)
    assert_close([again.predict(mx.io.NDArrayIter(x, batch_size=2)).asnumpy()], [expected])


def test_graph_becomes_a_block_with_deferred_shapes():
    block = gluon.SymbolBlock(sym.LSTM(sym.Variable("data"), 4, name="net"), [sym.Variable("data")])
    block.initialize()
    assert block(numbers(2, 5, 3)).shape == (2, 5, 4)


# ---- the namespace ----


def test_names_of_the_namespace():
    from neomx import networks

    assert set(networks.__all__) == sym._NETWORKS <= set(dir(mx.sym))
    assert all(getattr(mx.sym, name) is getattr(networks, name) for name in networks.__all__)
    assert not hasattr(mx.sym, "Perceptron")
    with pytest.raises(AttributeError, match="Did you mean SelfAttention"):
        mx.sym.SelfAtention


# ---- errors ----

DATA = sym.Variable("data")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: sym.Resnet(DATA, depth=20), "Resnet: depth must be one of 18, 34, 50, 101, 152, received 20"),
        (lambda: sym.Resnet(DATA, 18, version=3), "version must be one of 1, 2, received 3"),
        (lambda: sym.Resnet(DATA, 18, num_classes=0), "num_classes must be an integer of at least 1, received 0"),
        (lambda: sym.VGG(DATA, version=12), "VGG: version must be one of 11, 13, 16, 19, received 12"),
        (lambda: sym.VGG(DATA, version="16"), "received '16'"),
        (lambda: sym.VGG(DATA, version=[16]), "received \\[16\\]"),
        (lambda: sym.quantize(DATA, bit=1), "bit must be an integer from 2 to 8, received 1"),
        (lambda: sym.quantize(DATA, bit=9), "received 9"),
        (lambda: sym.quantize(DATA, dtype="int4"), "'int8' or 'float32', received 'int4'"),
        (lambda: sym.dequantize(DATA), "expected the result of quantize"),
        (lambda: sym.Bert(DATA, num_hidden=100, num_heads=3), "num_hidden must be a multiple of num_heads"),
        (lambda: sym.GPT2(DATA, hidden_size=0), "GPT2: hidden_size must be an integer of at least 1, received 0"),
        (lambda: sym.GPT2(DATA, hidden_size=64, num_heads=5), "hidden_size=64, 5 heads"),
        (lambda: sym.SelfAttention(DATA, num_heads=2, key_dim=2.5), "key_dim must be an integer"),
        (lambda: sym.SelfAttention(DATA, num_heads=0, key_dim=2), "num_heads must be an integer of at least 1"),
        (lambda: sym.SelfAttention(DATA, 2, 2, dropout=2), "dropout must be a number from 0 to 1, received 2"),
        (lambda: sym.LSTM(DATA, num_hidden=0), "LSTM: num_hidden must be"),
        (lambda: sym.LSTM(DATA, 2, layout="CTN"), "layout must be 'NTC'"),
        (lambda: sym.LSTM(nd.ones((2, 3, 4)), 2), "must be a Symbol, received NDArray. For arrays, use gluon.rnn.LSTM"),
        (lambda: sym.LSTM(sym.Group([DATA, DATA]), 2), "one output, received 2. Choose one with \\[index\\]"),
        (lambda: sym.LSTM(DATA, 2, name=3), "name must be a string"),
        (lambda: sym.MultiHeadAttention(DATA, DATA, None, 2, 2), "value must be a Symbol, received NoneType"),
        (lambda: sym.SelfAttention(DATA, 2, 2, valid_length=3), "valid_length must be a Symbol"),
        (lambda: sym.RandomFlip(DATA, prob=1.5), "prob must be a number from 0 to 1, received 1.5"),
        (lambda: sym.RandomFlip(DATA, axis=-1), "axis must be an integer of at least 1, received -1"),
        (lambda: sym.RandomRotation(DATA, angle="90"), "angle must be a number from 0 to 180, received '90'"),
        (lambda: sym.Mixup(DATA, DATA, alpha=0), "alpha must be a number"),
        (lambda: sym.Mixup(DATA, 3), "label must be a Symbol"),
        (lambda: sym.HammingWindow(DATA, length=1), "length must be an integer of at least 2"),
        (lambda: sym.HammingWindow(DATA, length=4, hop=0), "hop must be an integer of at least 1"),
        (lambda: sym.Leading(3), "Group expects a list of symbols"),
    ],
)
def test_errors_name_the_argument(build, said):
    with pytest.raises((TypeError, ValueError), match=said):
        build()
