"""model_zoo.transformer: its ops, GPT-2 and BERT on arrays, graphs and torch tensors."""

import copy
import fnmatch

import numpy as np
import pytest
import torch
from small_transformers import close, lively, small_bert, small_gpt2, tokens

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon.model_zoo import transformer

# ---- the ops ----


def attention_by_hand(q, k, v, lengths=None, causal=False, size=4):
    """Compute one query of one head of one example at a time."""
    out = np.zeros_like(q)
    for b in range(q.shape[0]):
        for h in range(0, q.shape[2], size):
            for t in range(q.shape[1]):
                seen = k.shape[1] if lengths is None else lengths[b]
                seen = min(seen, t + 1) if causal else seen
                scores = k[b, :seen, h : h + size] @ q[b, t, h : h + size] / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                out[b, t, h : h + size] = weights / weights.sum() @ v[b, :seen, h : h + size]
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [None, [2, 5]])
def test_attention(causal, lengths):
    q, k, v = (np.random.default_rng(i).normal(size=(2, 5, 8)).astype("float32") for i in range(3))
    arrays = [nd.array(each) for each in (q, k, v)]
    optional = [] if lengths is None else [nd.array(lengths, dtype="int32")]
    attributes = {"head_size": 4, "causal": causal, "use_valid_length": lengths is not None}
    got = nd.contrib.attention(*arrays, *optional, **attributes)
    close(got, attention_by_hand(q, k, v, lengths, causal))

    names = ["q", "k", "v", "n"][: 3 + len(optional)]
    graph = mx.sym.contrib.attention(*map(mx.sym.var, names), **attributes)
    graph = mx.sym.load_json(graph.tojson())
    close(graph.eval(**dict(zip(names, arrays + optional, strict=True)))[0], got)
    assert graph.infer_shape(q=(2, 5, 8), k=(2, 5, 8))[1] == [(2, 5, 8)]


def test_dropout_of_attention_keeps_the_mean_and_is_seeded():
    q, k, v = (nd.random.normal(shape=(64, 3, 8)) for _ in range(3))
    v = nd.ones((64, 3, 8))

    def drop():
        mx.random.seed(3)
        with autograd.train_mode():
            return nd.contrib.attention(q, k, v, head_size=4, dropout=0.5, causal=True).asnumpy()

    dropped = drop()
    assert (dropped[:, 0] == 0).any() and set(np.unique(dropped[:, 0])) == {0, 2}  # a single key is kept or dropped
    assert abs(dropped.mean() - 1) < 0.1
    np.testing.assert_array_equal(dropped, drop())
    close(nd.contrib.attention(q, k, v, head_size=4, dropout=0.5, causal=True), v)  # no dropout during prediction


def test_gelu_tanh():
    x = np.linspace(-3, 3, 13, dtype="float32")
    close(nd.contrib.gelu_tanh(nd.array(x)), 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


@pytest.mark.parametrize(
    ("shapes", "attributes", "said"),
    [
        ([(2, 8)] * 3, {}, "batch, time"),
        ([(2, 3, 6)] * 3, {}, "heads \\* head_size"),
        ([(2, 3, 8), (2, 4, 8), (2, 5, 8)], {}, "the same shape"),
        ([(2, 3, 8), (2, 4, 8), (2, 4, 8)], {"causal": True}, "a key for each query, got 4 for 3"),
        ([(2, 3, 8)] * 3, {"use_valid_length": True}, "requires valid_length"),
        ([(2, 3, 8)] * 3 + [(3,)], {"use_valid_length": True}, "valid_length of shape \\(2,\\)"),
    ],
)
def test_attention_errors(shapes, attributes, said):
    with pytest.raises(mx.MXNetError, match=said):
        nd.contrib.attention(*map(nd.ones, shapes), head_size=4, **attributes)


# ---- GPT-2 ----


def test_gpt2_agrees_on_arrays_graphs_stages_and_torch():
    net, x = small_gpt2(), tokens(2, 7)
    expected = net(x)
    assert expected.shape == (2, 7, 32)
    staged = x
    for _, stage in net.stages():
        staged = stage(staged)
    close(staged, expected)
    close(net.torch().eval()(torch.from_numpy(x.asnumpy())).detach(), expected)
    net.hybridize()
    close(net(x), expected)
    close(net.torch()(torch.from_numpy(x.asnumpy())).detach(), expected)


def test_gpt2_is_causal():
    net, x = small_gpt2(), tokens(1, 6)
    other = x.copy()
    other[0, 4] = (x[0, 4] + 1) % 32
    before, after = net(x).asnumpy(), net(other).asnumpy()
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).any()


def test_gpt2_stages_hold_every_parameter_and_tie_the_first_to_the_last():
    net = small_gpt2()
    names = [name for name, _ in net.stages()]
    assert names == ["embed", "blocks.0", "blocks.1", "head"]
    held = [set(map(id, stage.collect_params().values())) for _, stage in net.stages()]
    assert set().union(*held) == set(map(id, net.collect_params().values()))
    assert held[0] & held[-1] == {id(net.embed.weight)} and net.head.weight is net.embed.weight


def test_gpt2_initialization_follows_the_paper():
    net = small_gpt2(units=64, layers=8, vocab_size=500)
    spread = {name: float(p.data().asnumpy().std()) for name, p in net._collect_params_with_prefix().items()}
    assert spread["embed.weight"] == pytest.approx(0.02, rel=0.05)
    assert spread["blocks.0.attention.query.weight"] == pytest.approx(0.02, rel=0.05)
    assert spread["blocks.7.feedforward.down.weight"] == pytest.approx(0.02 / 4, rel=0.05)
    assert spread["blocks.3.attention.out.bias"] == 0


@pytest.mark.parametrize("hybridize", [False, True])
def test_training_gpt2_tiny_lowers_the_loss(hybridize):
    mx.random.seed(0)
    net, x = transformer.gpt2_tiny(vocab_size=32), tokens(4, 9)
    net.initialize()
    if hybridize:
        net.hybridize()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3})
    losses = []
    for _ in range(30):
        with autograd.record():
            each = loss(net(x[:, :-1]), x[:, 1:])
        each.backward()
        trainer.step(len(x))
        losses.append(each.mean().asscalar())
    assert losses[0] == pytest.approx(np.log(32), rel=0.1) and losses[-1] < 0.5


def test_gpt2_errors():
    with pytest.raises(mx.MXNetError, match="sequences of 13 tokens, but the net has 12 positions"):
        small_gpt2()(tokens(1, 13))
    with pytest.raises(mx.MXNetError, match="shape \\(batch, time\\), received \\(5,\\)"):
        small_gpt2()(tokens(5))
    with pytest.raises(ValueError, match="units=16, heads=3"):
        small_gpt2(heads=3)
    with pytest.raises(ValueError, match="layers must be an integer of at least 1, received 0"):
        small_gpt2(layers=0)


# ---- BERT ----


BERTS = {
    "bert": small_bert,
    "classifier": lambda: transformer.BERTClassifier(small_bert(), classes=3),
    "masked": lambda: transformer.BERTMaskedLM(small_bert(pooler=False)),
    "masked with pooler": lambda: transformer.BERTMaskedLM(small_bert()),
}


def first(result):
    return result[0] if isinstance(result, (list, tuple)) else result


@pytest.mark.parametrize("kind", BERTS)
def test_bert_agrees_on_arrays_graphs_stages_and_torch(kind):
    mx.random.seed(0)
    net, x = BERTS[kind](), tokens(2, 7)
    net.initialize()
    lively(net)
    types, lengths = x % 2, nd.array([3, 7])
    calls = [(x,), (x, types), (x, None, lengths), (x, types, lengths)]
    expected = [first(net(*call)) for call in calls]
    assert all(np.abs((one - expected[0]).asnumpy()).max() > 1e-2 for one in expected[1:])  # all arguments have effect
    staged = x
    for _, stage in net.stages():
        staged = stage(staged)
    close(first(staged), expected[0])
    twin = net.torch().eval()
    net.hybridize()
    for call, values in zip(calls, expected, strict=True):
        close(first(net(*call)), values)
        tensors = [None if each is None else torch.from_numpy(each.asnumpy()) for each in call]
        close(first(twin(*tensors)).detach(), values)


@pytest.mark.parametrize("kind", BERTS)
def test_tokens_after_valid_length_have_no_effect(kind):
    mx.random.seed(0)
    net, x = BERTS[kind](), tokens(2, 7)
    net.initialize()
    lively(net)
    other = x.copy()
    other[0, 3:] = 0
    lengths = nd.array([3, 7])
    before, after = (first(net(each, None, lengths)).asnumpy() for each in (x, other))
    close(before[0, :3], after[0, :3], 1e-6)
    close(before[1], after[1], 1e-6)


@pytest.mark.parametrize("make", [transformer.gpt2_tiny, lambda: transformer.gpt2_tiny(head=False), *BERTS.values()])
def test_tensor_plan_names_existing_layers(make):
    net = make()
    net.initialize()
    names = [name for name, _ in net.torch().named_modules()]
    assert all(fnmatch.filter(names, pattern) for pattern in net.TENSOR_PLAN)


def test_bert_learns_to_fill_in_and_to_classify():
    mx.random.seed(0)
    bert, x = small_bert(dropout=0.0), tokens(8, 6)
    heads = [transformer.BERTMaskedLM(bert), transformer.BERTClassifier(bert, classes=2)]
    labels = [x, nd.array(np.arange(8) % 2)]
    for net, label in zip(heads, labels, strict=True):
        net.initialize(force_reinit=True)
        net.hybridize()
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 5e-3})
        losses = []
        for _ in range(40):
            with autograd.record():
                each = loss(net(x), label)
            each.backward()
            trainer.step(len(x), ignore_stale_grad=net is heads[0])  # heads[0] does not use the pooler
            losses.append(each.mean().asscalar())
        assert losses[-1] < 0.5 * losses[0]
    assert heads[0].head.weight is bert.embed.weight


def test_bert_errors():
    bert = small_bert()
    bert.initialize()
    with pytest.raises(mx.MXNetError, match="sequences of 13 tokens, but the net has 12 positions"):
        bert(tokens(1, 13))
    with pytest.raises(mx.MXNetError, match="valid_length of shape \\(2,\\)"):
        bert(tokens(2, 3), None, nd.array([1, 2, 3]))
    with pytest.raises(ValueError, match="pooler=True"):
        transformer.BERTClassifier(small_bert(pooler=False))
    with pytest.raises(ValueError, match="gelu, gelu_tanh, relu, received 'mish'"):
        small_bert(activation="mish")


# ---- all networks ----


def test_parameter_counts_match_published_models():
    sizes = {"gpt2_small": 124_439_808, "gpt2_medium": 354_823_168, "gpt2_large": 774_030_080, "gpt2_xl": 1_557_611_200}
    sizes |= {"bert_base": 109_482_240, "bert_large": 335_141_888, "bert_small": 28_763_648, "bert_medium": 41_373_184}
    for name, size in sizes.items():
        params = transformer.get_transformer(name).collect_params()  # not initialized: uses no memory
        assert sum(int(np.prod(param.shape)) for param in params.values()) == size, name


def test_get_transformer():
    net = transformer.get_transformer("bert_tiny", vocab_size=9, dropout=0.0)
    assert net.embed.weight.shape == (9, 128)
    with pytest.raises(ValueError, match="unknown transformer 'gpt2_tinny'. Did you mean gpt2_tiny"):
        transformer.get_transformer("gpt2_tinny")


def test_files_copies_and_exports(tmp_path):
    net, x = small_gpt2(), tokens(2, 5)
    net.hybridize()
    expected = net(x)
    close(copy.deepcopy(net)(x), expected)
    for deduplicate in (False, True):
        net.save_parameters(str(tmp_path / "net.params"), deduplicate=deduplicate)
        other = small_gpt2(seed=1)
        other.load_parameters(str(tmp_path / "net.params"))
        close(other(x), expected)
    net.export(str(tmp_path / "net"))
    loaded = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"))
    close(loaded(x), expected)


def test_dropout_only_in_training():
    net, x = small_gpt2(dropout=0.5), tokens(2, 5)
    with autograd.train_mode():
        dropped = net(x)
    assert np.abs((dropped - net(x)).asnumpy()).max() > 1e-2
    net, expected = small_gpt2(dropout=0.0), small_gpt2()(x)
    with autograd.train_mode():
        close(net(x), expected)
