"""Hugging Face checkpoints: outputs compared with those recorded by record_transformers.py, and errors."""

import json
import shutil

import numpy as np
import pytest
import torch
from small_transformers import RECORDED, close, recorded, small_bert

import neomx as mx
from neomx import autograd, gluon
from neomx.formats import safetensors
from neomx.gluon.model_zoo import transformer
from neomx.gluon.model_zoo.transformer import huggingface

MODELS = ["gpt2_lm", "gpt2_model", "bert_model", "bert_masked", "bert_classes"]


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_match_transformers(name, hybridize):
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
def test_hidden_states_match_transformers(name):
    outputs, arguments = recorded(name)
    net = transformer.load_huggingface(RECORDED / name)
    body, seen = getattr(net, "bert", net), []
    for i in range(len(body.blocks)):
        body.blocks[i].register_forward_hook(lambda block, taken, given: seen.extend([taken[0], given]))
    net(*arguments)
    close(seen[0], outputs["hidden0"])
    close(seen[1], outputs["hidden1"])
    last = body.norm(seen[-1]) if name.startswith("gpt2") else seen[-1]  # GPT-2's are recorded after normalization
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
def test_gradients_match_transformers(through):
    outputs = recorded("gpt2_lm")[0]
    ours = gpt2_gradients(transformer.load_huggingface(RECORDED / "gpt2_lm"), through)
    ours.pop("head.weight", None)
    for name, grad in ours.items():
        theirs = outputs["grad transformer." + huggingface._source(name, huggingface._GPT2_LAYERS)]
        close(grad, huggingface._from_gpt2(name, torch.from_numpy(theirs)))
    assert len(ours) == 36


def test_weights_load_into_given_net():
    outputs, arguments = recorded("bert_masked")
    whole = transformer.load_huggingface(RECORDED / "bert_masked")
    sizes = {"vocab_size": 40, "units": 16, "heads": 4, "hidden": 24, "layers": 2, "max_length": 12}
    net = transformer.load_huggingface(RECORDED / "bert_masked", small_bert(**sizes, pooler=False))
    close(net(*arguments), whole.bert(*arguments))
    with pytest.raises(mx.MXNetError, match="does not contain pooler.dense.weight, pooler.dense.bias"):
        transformer.load_huggingface(RECORDED / "bert_masked", small_bert(**sizes))
    with pytest.raises(AssertionError, match="blocks.0.feedforward.up.weight"):
        transformer.load_huggingface(RECORDED / "bert_masked", small_bert(**(sizes | {"hidden": 25}), pooler=False))
    with pytest.raises(TypeError, match="dropout cannot be combined with net="):
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
    """Copy a recorded checkpoint and change settings in its configuration."""
    folder = tmp_path / "model"
    shutil.copytree(RECORDED / name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    return folder


def rewritten(folder, change):
    """Change the arrays of a checkpoint with a function of their dictionary."""
    arrays = safetensors.read(folder / "model.safetensors")
    safetensors.write(folder / "model.safetensors", change(arrays))
    return folder


def test_files_of_older_versions_and_other_dtypes(tmp_path):
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
        ({"architectures": None}, "Pass architecture= one of GPT2Model"),
        ({"architectures": ["BertModel"]}, "cannot create a BertModel from a model of type 'gpt2'"),
        ({"activation_function": "silu"}, "activation 'silu' is not supported"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True is not supported"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings = False is not supported"),
        ({"attn_pdrop": 0.3}, "dropout rates differ .*: pass dropout="),
        ({"n_layer": 1}, "that the net does not have: h.1."),
        ({"n_layer": 3}, "does not contain h.2."),
    ],
)
def test_unsupported_configurations_raise(tmp_path, settings, said):
    with pytest.raises(mx.MXNetError, match=said):
        transformer.load_huggingface(changed(tmp_path, "gpt2_lm", **settings))


def test_invalid_directories_raise(tmp_path):
    def refuse(folder, said):
        with pytest.raises(mx.MXNetError, match=said):
            transformer.load_huggingface(folder)

    refuse(tmp_path / "gpt2", "there is no directory")
    refuse(tmp_path, "cannot read .*config.json: No such file")
    (tmp_path / "config.json").write_text("{")
    refuse(tmp_path, "config.json is not valid JSON")
    (tmp_path / "config.json").write_text("[]")
    refuse(tmp_path, "must contain a JSON object, received list")
    folder = changed(tmp_path, "bert_model")
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": places | {"another": "model-00001-of-00003.safetensors"}}))
    refuse(folder, "model-00001-of-00003.safetensors does not contain 'another'")
    index.write_text(json.dumps({"weight_map": places | {"another": "../config.safetensors"}}))
    refuse(folder, "weight_map must map each array to a file in this directory")
    index.write_text(json.dumps({"weight_map": places}))
    (folder / "model-00003-of-00003.safetensors").unlink()
    refuse(folder, "cannot read .*model-00003-of-00003.safetensors: No such file")
    index.unlink()
    refuse(folder, "contains neither model.safetensors nor")
    (folder / "config.json").write_text(json.dumps({"architectures": ["BertModel"], "model_type": "bert"}))
    (folder / "model-00001-of-00003.safetensors").rename(folder / "model.safetensors")
    refuse(folder, "config.json has no 'vocab_size'")
    folder = changed(tmp_path / "c", "bert_masked", architectures=["BertForSequenceClassification"])
    refuse(folder, "does not contain a classifier. Load it with architecture='BertModel'")
