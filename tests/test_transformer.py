"""model_zoo.transformer: its ops, GPT-2 and BERT on arrays, graphs and torch tensors, and against Hugging Face."""

import copy
import fnmatch
import json
import pathlib
import shutil

import numpy as np
import pytest
import torch

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.formats import safetensors
from neomx.gluon.model_zoo import transformer
from neomx.gluon.model_zoo.transformer import huggingface
from neomx.gluon.model_zoo.transformer.generation import Choice

RECORDED = pathlib.Path(__file__).resolve().parent / "fixtures" / "transformers"
MODELS = ["gpt2_lm", "gpt2_model", "bert_model", "bert_masked", "bert_classes"]


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
    """With weights so large that everything matters, and that text is not one word again and again."""
    mx.random.seed(5)
    for param in net.collect_params().values():
        param.set_data(param.data() + 0.5 * nd.random.normal(shape=param.shape))
    return net


# ---- the ops ----


def attention_by_hand(q, k, v, lengths=None, causal=False, size=4):
    """One query of one head of one example at a time."""
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
    assert (dropped[:, 0] == 0).any() and set(np.unique(dropped[:, 0])) == {0, 2}  # one key: all of it or nothing
    assert abs(dropped.mean() - 1) < 0.1
    np.testing.assert_array_equal(dropped, drop())
    close(nd.contrib.attention(q, k, v, head_size=4, dropout=0.5, causal=True), v)  # not while predicting


def test_gelu_tanh():
    x = np.linspace(-3, 3, 13, dtype="float32")
    close(nd.contrib.gelu_tanh(nd.array(x)), 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


@pytest.mark.parametrize(
    ("shapes", "attributes", "said"),
    [
        ([(2, 8)] * 3, {}, "batch, time"),
        ([(2, 3, 6)] * 3, {}, "heads \\* head_size"),
        ([(2, 3, 8), (2, 4, 8), (2, 5, 8)], {}, "one shape"),
        ([(2, 3, 8), (2, 4, 8), (2, 4, 8)], {"causal": True}, "a key for each query, got 4 for 3"),
        ([(2, 3, 8)] * 3, {"use_valid_length": True}, "needs valid_length"),
        ([(2, 3, 8)] * 3 + [(3,)], {"use_valid_length": True}, "valid_length of shape \\(2,\\)"),
    ],
)
def test_attention_refuses(shapes, attributes, said):
    with pytest.raises(mx.MXNetError, match=said):
        nd.contrib.attention(*map(nd.ones, shapes), head_size=4, **attributes)


# ---- GPT-2 ----


def test_gpt2_is_one_thing_on_arrays_graphs_stages_and_torch():
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


def test_gpt2_looks_back_only():
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


def test_gpt2_starts_as_the_paper_says():
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


def test_gpt2_refuses():
    with pytest.raises(mx.MXNetError, match="sequences of 13 tokens, and the net has positions for 12"):
        small_gpt2()(tokens(1, 13))
    with pytest.raises(mx.MXNetError, match="shape \\(batch, time\\), received \\(5,\\)"):
        small_gpt2()(tokens(5))
    with pytest.raises(ValueError, match="units=16, heads=3"):
        small_gpt2(heads=3)
    with pytest.raises(ValueError, match="layers must be an integer of at least 1, received 0"):
        small_gpt2(layers=0)


# ---- BERT ----


def small_bert(**kwargs):
    sizes = {"vocab_size": 32, "units": 16, "layers": 2, "heads": 2, "max_length": 12}
    return transformer.BERT(**(sizes | kwargs))


BERTS = {
    "bert": small_bert,
    "classifier": lambda: transformer.BERTClassifier(small_bert(), classes=3),
    "masked": lambda: transformer.BERTMaskedLM(small_bert(pooler=False)),
    "masked with pooler": lambda: transformer.BERTMaskedLM(small_bert()),
}


def first(result):
    return result[0] if isinstance(result, (list, tuple)) else result


@pytest.mark.parametrize("kind", BERTS)
def test_bert_is_one_thing_on_arrays_graphs_stages_and_torch(kind):
    mx.random.seed(0)
    net, x = BERTS[kind](), tokens(2, 7)
    net.initialize()
    lively(net)
    types, lengths = x % 2, nd.array([3, 7])
    calls = [(x,), (x, types), (x, None, lengths), (x, types, lengths)]
    expected = [first(net(*call)) for call in calls]
    assert all(np.abs((one - expected[0]).asnumpy()).max() > 1e-2 for one in expected[1:])  # each argument matters
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
def test_what_comes_after_the_valid_length_does_not_matter(kind):
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
def test_the_tensor_plan_names_layers_that_are_there(make):
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
            trainer.step(len(x), ignore_stale_grad=net is heads[0])  # which does not use the pooler
            losses.append(each.mean().asscalar())
        assert losses[-1] < 0.5 * losses[0]
    assert heads[0].head.weight is bert.embed.weight


def test_bert_refuses():
    bert = small_bert()
    bert.initialize()
    with pytest.raises(mx.MXNetError, match="sequences of 13 tokens, and the net has positions for 12"):
        bert(tokens(1, 13))
    with pytest.raises(mx.MXNetError, match="valid_length of shape \\(2,\\)"):
        bert(tokens(2, 3), None, nd.array([1, 2, 3]))
    with pytest.raises(ValueError, match="pooler=True"):
        transformer.BERTClassifier(small_bert(pooler=False))
    with pytest.raises(ValueError, match="gelu, gelu_tanh, relu, received 'mish'"):
        small_bert(activation="mish")


# ---- all of them ----


def test_published_sizes():
    sizes = {"gpt2_small": 124_439_808, "gpt2_medium": 354_823_168, "gpt2_large": 774_030_080, "gpt2_xl": 1_557_611_200}
    sizes |= {"bert_base": 109_482_240, "bert_large": 335_141_888, "bert_small": 28_763_648, "bert_medium": 41_373_184}
    for name, size in sizes.items():
        params = transformer.get_transformer(name).collect_params()  # not initialised: no memory is taken
        assert sum(int(np.prod(param.shape)) for param in params.values()) == size, name


def test_get_transformer():
    net = transformer.get_transformer("bert_tiny", vocab_size=9, dropout=0.0)
    assert net.embed.weight.shape == (9, 128)
    with pytest.raises(ValueError, match="no transformer is called 'gpt2_tinny'. Did you mean gpt2_tiny"):
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


def test_dropout_is_for_training():
    net, x = small_gpt2(dropout=0.5), tokens(2, 5)
    with autograd.train_mode():
        dropped = net(x)
    assert np.abs((dropped - net(x)).asnumpy()).max() > 1e-2
    net, expected = small_gpt2(dropout=0.0), small_gpt2()(x)
    with autograd.train_mode():
        close(net(x), expected)


# ---- Hugging Face's checkpoints ----


def recorded(name):
    outputs = np.load(RECORDED / name / "outputs.npz")
    return outputs, [nd.array(outputs[key], dtype="int32") for key in ("tokens", "types", "lengths") if key in outputs]


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_checkpoints_give_what_the_library_gives(name, hybridize):
    outputs, arguments = recorded(name)
    net = transformer.load_huggingface(RECORDED / name)
    if hybridize:
        net.hybridize()
    result = net(*arguments)
    if name == "bert_model":
        close(result[0], outputs["last_hidden_state"])
        close(result[1], outputs["pooler_output"])
    else:
        close(result, outputs["logits" if "logits" in outputs else "last_hidden_state"])


@pytest.mark.parametrize("name", MODELS)
def test_hidden_states_are_the_librarys(name):
    outputs, arguments = recorded(name)
    net = transformer.load_huggingface(RECORDED / name)
    body, seen = getattr(net, "bert", net), []
    for i in range(len(body.blocks)):
        body.blocks[i].register_forward_hook(lambda block, taken, given: seen.extend([taken[0], given]))
    net(*arguments)
    close(seen[0], outputs["hidden0"])
    close(seen[1], outputs["hidden1"])
    last = body.norm(seen[-1]) if name.startswith("gpt2") else seen[-1]  # GPT-2's are recorded after the norm
    close(last, outputs["hidden2"])


def gpt2_gradients(net, through):
    x = recorded("gpt2_lm")[1][0]
    if through == "twin":
        twin, tensor = net.torch().eval(), torch.from_numpy(x.asnumpy()).long()
        scores = twin(tensor)[:, :-1].flatten(0, 1)
        torch.nn.functional.cross_entropy(scores, tensor[:, 1:].flatten()).backward()
        return {name: param.grad.numpy() for name, param in twin.named_parameters()}
    if through == "graph":
        net.hybridize()
    with autograd.record(train_mode=False):
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(x)[:, :-1], x[:, 1:]).mean()
    loss.backward()
    close(loss, recorded("gpt2_lm")[0]["loss"].reshape(1))
    return {name: param.grad().asnumpy() for name, param in net._collect_params_with_prefix().items()}


@pytest.mark.parametrize("through", ["arrays", "graph", "twin"])
def test_gradients_are_the_librarys(through):
    outputs = recorded("gpt2_lm")[0]
    ours = gpt2_gradients(transformer.load_huggingface(RECORDED / "gpt2_lm"), through)
    ours.pop("head.weight", None)
    for name, grad in ours.items():
        theirs = outputs["grad transformer." + huggingface._source(name, huggingface._GPT2_LAYERS)]
        close(grad, huggingface._from_gpt2(name, torch.from_numpy(theirs)))
    assert len(ours) == 36


def test_a_net_that_is_given_gets_the_weights():
    outputs, arguments = recorded("bert_masked")
    whole = transformer.load_huggingface(RECORDED / "bert_masked")
    sizes = {"vocab_size": 40, "units": 16, "heads": 4, "hidden": 24, "layers": 2, "max_length": 12}
    net = transformer.load_huggingface(RECORDED / "bert_masked", small_bert(**sizes, pooler=False))
    close(net(*arguments), whole.bert(*arguments))
    with pytest.raises(mx.MXNetError, match="does not hold pooler.dense.weight, pooler.dense.bias"):
        transformer.load_huggingface(RECORDED / "bert_masked", small_bert(**sizes))
    with pytest.raises(AssertionError, match="blocks.0.feedforward.up.weight"):
        transformer.load_huggingface(RECORDED / "bert_masked", small_bert(**(sizes | {"hidden": 25}), pooler=False))
    with pytest.raises(TypeError, match="taken as it is: dropout"):
        transformer.load_huggingface(RECORDED / "bert_masked", net, dropout=0.0)
    with pytest.raises(TypeError, match="net must be one of GPT2, BERT"):
        transformer.load_huggingface(RECORDED / "bert_masked", gluon.nn.Dense(2))


def test_architecture_and_dropout_can_be_chosen():
    net = transformer.load_huggingface(RECORDED / "bert_classes", architecture="BertModel", dropout=0.0)
    assert isinstance(net, transformer.BERT) and net.drop._rate == 0
    outputs, arguments = recorded("bert_classes")
    close(net(*arguments)[0], outputs["hidden2"])
    assert transformer.load_huggingface(RECORDED / "bert_classes").drop._rate == 0.1


def changed(tmp_path, name, **settings):
    """A copy of a recorded checkpoint with other settings in its configuration."""
    folder = tmp_path / "model"
    shutil.copytree(RECORDED / name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    return folder


def rewritten(folder, change):
    """Its arrays changed by a function of their dictionary."""
    arrays = safetensors.read(folder / "model.safetensors")
    safetensors.write(folder / "model.safetensors", change(arrays))
    return folder


def test_files_of_other_ages_and_types(tmp_path):
    def older(arrays):
        bare = {name.removeprefix("transformer."): each for name, each in arrays.items()}
        return {**bare, "h.0.attn.bias": torch.ones(1, 1, 12, 12), "lm_head.weight": bare["wte.weight"].clone()}

    outputs, arguments = recorded("gpt2_lm")
    close(transformer.load_huggingface(rewritten(changed(tmp_path, "gpt2_lm"), older))(*arguments), outputs["logits"])
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def oldest(arrays):
        for new, old in names.items():
            arrays = {name.replace(new, old): each for name, each in arrays.items()}
        return {**arrays, "cls.seq_relationship.bias": torch.ones(2), "bert.embeddings.position_ids": torch.arange(12)}

    outputs, arguments = recorded("bert_masked")
    folder = rewritten(changed(tmp_path / "b", "bert_masked"), oldest)
    close(transformer.load_huggingface(folder)(*arguments), outputs["logits"])
    rewritten(folder, lambda arrays: {name: each.bfloat16() for name, each in arrays.items()})
    net = transformer.load_huggingface(folder)
    assert net.transform.weight.data().dtype == np.float32
    close(net(*arguments), outputs["logits"], 0.15)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"architectures": ["GPT2DoubleHeadsModel"]}, "'GPT2DoubleHeadsModel' is not supported"),
        ({"architectures": None}, "Give architecture= one of GPT2Model"),
        ({"architectures": ["BertModel"]}, "a BertModel cannot be made of a model of type 'gpt2'"),
        ({"activation_function": "silu"}, "activation 'silu' is not supported"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True is not supported"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings = False is not supported"),
        ({"attn_pdrop": 0.3}, "dropout rates differ .*: give dropout="),
        ({"n_layer": 1}, "no place for: h.1."),
        ({"n_layer": 3}, "does not hold h.2."),
    ],
)
def test_configurations_that_are_refused(tmp_path, settings, said):
    with pytest.raises(mx.MXNetError, match=said):
        transformer.load_huggingface(changed(tmp_path, "gpt2_lm", **settings))


def test_folders_that_are_refused(tmp_path):
    def refuse(folder, said):
        with pytest.raises(mx.MXNetError, match=said):
            transformer.load_huggingface(folder)

    refuse(tmp_path / "gpt2", "there is no folder")
    refuse(tmp_path, "cannot read .*config.json: No such file")
    (tmp_path / "config.json").write_text("{")
    refuse(tmp_path, "config.json is no JSON text")
    (tmp_path / "config.json").write_text("[]")
    refuse(tmp_path, "must hold an object, holds a list")
    folder = changed(tmp_path, "bert_model")
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": places | {"another": "model-00001-of-00003.safetensors"}}))
    refuse(folder, "model-00001-of-00003.safetensors does not hold 'another'")
    index.write_text(json.dumps({"weight_map": places | {"another": "../config.safetensors"}}))
    refuse(folder, "weight_map must name a file of this folder")
    index.write_text(json.dumps({"weight_map": places}))
    (folder / "model-00003-of-00003.safetensors").unlink()
    refuse(folder, "cannot read .*model-00003-of-00003.safetensors: No such file")
    index.unlink()
    refuse(folder, "holds neither model.safetensors nor")
    (folder / "config.json").write_text(json.dumps({"architectures": ["BertModel"], "model_type": "bert"}))
    (folder / "model-00001-of-00003.safetensors").rename(folder / "model.safetensors")
    refuse(folder, "config.json has no 'vocab_size'")
    folder = changed(tmp_path / "c", "bert_masked", architectures=["BertForSequenceClassification"])
    refuse(folder, "holds no classifier. Load it with architecture='BertModel'")


# ---- generation ----


def lively_gpt2(**kwargs):
    return lively(small_gpt2(max_length=24, **kwargs))


def without_memory(net, prompt, count, choose):
    """Generation that reads the whole text for each token."""
    for _ in range(count):
        chosen = choose(net(prompt)[:, -1])
        prompt = nd.concat(prompt, nd.array(chosen.reshape(-1, 1).numpy(), dtype="int32"), dim=1)
    return prompt


def test_greedy_generation_is_the_librarys():
    outputs, (x,) = recorded("gpt2_lm")
    net = transformer.load_huggingface(RECORDED / "gpt2_lm")
    np.testing.assert_array_equal(net.generate(x[:, :4], 6).asnumpy(), outputs["greedy"])


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"method": "sample"}, {"method": "sample", "temperature": 0.7, "top_k": 7, "top_p": 0.8}],
)
def test_generation_is_the_same_without_memory(options, hybridize):
    net, x = lively_gpt2(), tokens(3, 5)
    if hybridize:
        net.hybridize()
    choose = Choice(**{"method": "greedy", "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 7, **options})
    expected = without_memory(net, x, 12, choose)
    got = net.generate(x, 12, seed=7, **options)
    np.testing.assert_array_equal(got.asnumpy(), expected.asnumpy())
    assert got.dtype == np.int32 and len(np.unique(got[:, 5:].asnumpy())) > 2
    tensor = torch.from_numpy(x.asnumpy())
    assert net.generate(tensor, 12, seed=7, **options).tolist() == expected.asnumpy().tolist()


def test_prompts_of_several_lengths_do_not_disturb_each_other():
    net, prompts = lively_gpt2(), [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
    alone = [net.generate([prompt], 8)[0] for prompt in prompts]
    assert net.generate(prompts, 8) == alone
    assert net.generate([nd.array(prompt) for prompt in prompts], np.int64(8)) == alone
    assert [len(text) for text in alone] == [13, 9, 11]
    stop = alone[1][4]
    ended = net.generate(prompts, 8, eos=stop)
    for text, whole, prompt in zip(ended, alone, prompts, strict=True):
        new = whole[len(prompt) :]
        assert text == prompt + (new[: new.index(stop) + 1] if stop in new else new)


def test_generation_ends_when_all_texts_have_ended():
    net, x = lively_gpt2(), tokens(1, 3)
    whole = net.generate(x, 12).asnumpy()[0].tolist()
    stop = whole[6]
    end = whole.index(stop, 3) + 1
    assert net.generate(x, 12, eos=stop).asnumpy()[0].tolist() == whole[:end]
    pair = nd.concat(x, x + 1, dim=0)
    both = net.generate(pair, 12, eos=stop).asnumpy()
    assert both[0].tolist()[:end] == whole[:end] and set(both[0].tolist()[end:]) <= {stop}


def test_sampling_is_seeded_and_generation_drops_nothing():
    net, x = lively_gpt2(dropout=0.5), tokens(2, 3)
    draw = lambda **kwargs: net.generate(x, 12, "sample", **kwargs).asnumpy().tolist()  # noqa: E731
    assert draw(seed=1) == draw(seed=1) != draw(seed=2)
    mx.random.seed(4)
    before = draw()
    mx.random.seed(4)
    assert draw() == before != draw()
    with autograd.record():
        assert net.generate(x, 5).asnumpy().tolist() == net.generate(x, 5).asnumpy().tolist()


def test_what_may_be_drawn():
    scores = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))

    def chances(temperature=1.0, top_k=0, top_p=1.0):
        return Choice("sample", temperature, top_k, top_p, None).probabilities(scores)[0].numpy()

    close(chances(), [0.5, 0.3, 0.15, 0.05])
    close(chances(top_k=2), [0.625, 0.375, 0, 0])
    close(chances(top_k=9), [0.5, 0.3, 0.15, 0.05])
    close(chances(top_p=0.79), [0.625, 0.375, 0, 0])
    close(chances(top_p=0.81), np.array([0.5, 0.3, 0.15, 0]) / 0.95)
    close(chances(top_p=0.01), [1, 0, 0, 0])
    close(chances(temperature=0.5), np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365)
    close(chances(top_k=3, top_p=0.6), [0.625, 0.375, 0, 0])
    drawn = Choice("sample", 1.0, 0, 1.0, 3)(nd.array(scores.repeat(4000, 1).numpy()))
    close(np.bincount(drawn.numpy(), minlength=4) / 4000, [0.5, 0.3, 0.15, 0.05], 0.03)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "said"),
    [
        ((tokens(1, 20), 5), {}, mx.MXNetError, "20 tokens and 5 new ones are more than the 24 positions"),
        ((tokens(4), 5), {}, mx.MXNetError, "shape \\(batch, time\\), or a list of prompts, received \\(4,\\)"),
        (([[1], []], 5), {}, mx.MXNetError, "at least one token"),
        (([], 5), {}, mx.MXNetError, "a list of prompts"),
        (([1, 2], 5), {}, mx.MXNetError, "a list of prompts"),
        (([[1, 32]], 5), {}, mx.MXNetError, "beyond the 32 that the net knows"),
        (([["a"]], 5), {}, mx.MXNetError, "integers, received \\['a'\\]"),
        (([[1]], 0), {}, ValueError, "max_new_tokens must be an integer of at least 1"),
        (([[1]], 5, "beam"), {}, ValueError, "'greedy' or 'sample', received 'beam'"),
        (([[1]], 5), {"top_k": 3}, ValueError, "for method='sample'"),
        (([[1]], 5, "sample"), {"temperature": 0}, ValueError, "temperature must be above 0"),
        (([[1]], 5, "sample"), {"top_p": 1.5}, ValueError, "top_p in \\(0, 1\\]"),
        (([[1]], 5, "sample"), {"top_k": -1}, ValueError, "top_k must be an integer of at least 0"),
        (([[1]], 5), {"eos": 32}, ValueError, "eos must be one of the 32 tokens"),
    ],
)
def test_generation_refuses(arguments, options, kind, said):
    with pytest.raises(kind, match=said):
        small_gpt2(max_length=24).generate(*arguments, **options)


def test_generation_needs_the_head():
    with pytest.raises(mx.MXNetError, match="head=True"):
        small_gpt2(head=False).generate([[1]], 2)


def generated_in_layouts(prompts):
    """What a net says alone and when two workers hold it, in whole texts of each."""
    torch.set_num_threads(1)
    texts = []
    for layout, shard in ((None, None), ("shard=2", "full"), ("tensor=2", None)):
        net = lively_gpt2()
        if layout is not None:
            mx.parallel.apply(net, mx.parallel.Layout.parse(layout), shard=shard)
        texts.append(net.generate(prompts, 8) + net.generate(prompts, 8, "sample", top_k=9, seed=2))
    return texts


def test_a_net_that_workers_hold_together_says_the_same():
    for alone, sharded, divided in mx.dist.launch(generated_in_layouts, 2, ([[1, 2, 3], [4], [5, 6]],), timeout=60):
        assert sharded == alone
        assert divided == alone
