"""Loading Hugging Face checkpoints: a directory with config.json and model.safetensors, whole or sharded."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ....base import MXNetError, suggest
from ....context import cpu
from ....formats.safetensors import Archive
from ....ndarray import NDArray
from ...block import HybridBlock
from ...loading import load_into
from ...parameter import Parameter
from .bert import BERT, BERTClassifier, BERTMaskedLM
from .gpt2 import GPT2

__all__ = ["load_huggingface"]

Config = dict[str, Any]
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}

# The layer names of neomx and of Hugging Face. * is the index of a block.
_GPT2_LAYERS = {
    "embed": "wte",
    "position": "wpe",
    "norm": "ln_f",
    "blocks.*.norm1": "h.*.ln_1",
    "blocks.*.norm2": "h.*.ln_2",
    "blocks.*.attention.query": "h.*.attn.c_attn",
    "blocks.*.attention.key": "h.*.attn.c_attn",
    "blocks.*.attention.value": "h.*.attn.c_attn",
    "blocks.*.attention.out": "h.*.attn.c_proj",
    "blocks.*.feedforward.up": "h.*.mlp.c_fc",
    "blocks.*.feedforward.down": "h.*.mlp.c_proj",
}
_BERT_LAYERS = {
    "embed": "embeddings.word_embeddings",
    "position": "embeddings.position_embeddings",
    "token_type": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "blocks.*.attention.query": "encoder.layer.*.attention.self.query",
    "blocks.*.attention.key": "encoder.layer.*.attention.self.key",
    "blocks.*.attention.value": "encoder.layer.*.attention.self.value",
    "blocks.*.attention.out": "encoder.layer.*.attention.output.dense",
    "blocks.*.norm1": "encoder.layer.*.attention.output.LayerNorm",
    "blocks.*.feedforward.up": "encoder.layer.*.intermediate.dense",
    "blocks.*.feedforward.down": "encoder.layer.*.output.dense",
    "blocks.*.norm2": "encoder.layer.*.output.LayerNorm",
    "pooler": "pooler.dense",
}
_WITHIN_HEADS = {f"bert.{ours}": theirs for ours, theirs in _BERT_LAYERS.items()}
_LAYERS: dict[type[HybridBlock], dict[str, str]] = {
    GPT2: _GPT2_LAYERS,
    BERT: _BERT_LAYERS,
    BERTClassifier: {**_WITHIN_HEADS, "head": "classifier"},
    BERTMaskedLM: {
        **_WITHIN_HEADS,
        "transform": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "head": "cls.predictions",  # only its bias: the weight is that of the embedding
    },
}
# Entries of a checkpoint that are not parameters of the net: constants, tied weights, and heads for other tasks.
_SPARE = re.compile(
    r"h\.\d+\.attn\.(masked_)?bias|lm_head\.weight|embeddings\.position_ids|(cls|pooler|classifier)\..*"
)


def load_huggingface(
    path: str | os.PathLike[str],
    net: HybridBlock | None = None,
    ctx: Any = None,
    architecture: str | None = None,
    **kwargs: Any,
) -> HybridBlock:
    """Create the net of a directory with config.json and safetensors and load its weights, or load them into `net`.

    The architecture is read from the configuration unless `architecture` is given: GPT2Model, GPT2LMHeadModel,
    BertModel, BertForMaskedLM or BertForSequenceClassification. `kwargs`, such as `dropout=0.0`, are passed to the
    class of the net.
    """
    folder = os.fspath(path)
    config = _read_json(folder, "config.json")
    _refuse_variants(config, folder)
    weights = _Weights(folder)
    if net is None:
        net = _make(config, architecture, weights, kwargs, folder)
    elif kwargs or architecture is not None:
        raise TypeError(f"{', '.join(kwargs) or 'architecture'} cannot be combined with net=")
    elif not isinstance(net, tuple(_LAYERS)):
        raise TypeError(f"net must be one of {', '.join(each.__name__ for each in _LAYERS)}, received {type(net)}")
    _load(net, weights, ctx)
    return net


# ---- the configuration ----


def _read_json(folder: str, file: str) -> Config:
    if not os.path.isdir(folder):
        raise MXNetError(
            f"there is no directory {folder!r}. Pass a directory that contains config.json and model.safetensors: "
            "download the files of the model first"
        )
    path = os.path.join(folder, file)
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
    except OSError as error:
        raise MXNetError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise MXNetError(f"{path} is not valid JSON: {error!s:.200}") from error
    if not isinstance(value, dict):
        raise MXNetError(f"{path} must contain a JSON object, received {type(value).__name__}")
    return value


def _refuse_variants(config: Config, folder: str) -> None:
    """Raise if the configuration requires a variant that our nets do not implement."""
    usual = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "is_decoder": False,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }
    for key, value in usual.items():
        if config.get(key, value) != value:
            raise MXNetError(f"{folder}: {key} = {config[key]!r} is not supported, only {value!r}")


def _make(config: Config, architecture: str | None, weights: _Weights, kwargs: Config, folder: str) -> HybridBlock:
    """Create the net that a configuration describes."""
    name = architecture or next(iter(config.get("architectures") or ()), None) or "none"
    if name not in _MAKERS:
        raise MXNetError(
            f"{folder}: architecture {name!r} is not supported.{suggest(str(name), _MAKERS)} "
            f"Pass architecture= one of {', '.join(_MAKERS)}"
        )
    if not name.lower().startswith(str(config.get("model_type"))):
        raise MXNetError(f"{folder}: cannot create a {name} from a model of type {config.get('model_type')!r}")
    try:
        return _MAKERS[name](config, weights, kwargs)
    except KeyError as error:
        raise MXNetError(f"{folder}: config.json has no {error.args[0]!r}") from error


def _gpt2(config: Config, head: bool, kwargs: Config) -> GPT2:
    rates = [config.get(f"{each}_pdrop", 0.1) for each in ("embd", "attn", "resid")]
    made = {
        "vocab_size": config["vocab_size"],
        "units": config["n_embd"],
        "layers": config["n_layer"],
        "heads": config["n_head"],
        "max_length": config["n_positions"],
        "hidden": config.get("n_inner"),
        "activation": _activation(config.get("activation_function", "gelu_new")),
        "epsilon": config.get("layer_norm_epsilon", 1e-5),
        "head": head,
    }
    return GPT2(**(made | _dropout(rates, kwargs) | kwargs))


def _bert(config: Config, pooler: bool, kwargs: Config) -> BERT:
    rates = [config.get(f"{each}_dropout_prob", 0.1) for each in ("hidden", "attention_probs")]
    made = {
        "vocab_size": config["vocab_size"],
        "units": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "max_length": config["max_position_embeddings"],
        "hidden": config["intermediate_size"],
        "token_types": config.get("type_vocab_size", 2),
        "activation": _activation(config.get("hidden_act", "gelu")),
        "epsilon": config.get("layer_norm_eps", 1e-12),
        "pooler": pooler,
    }
    return BERT(**(made | _dropout(rates, kwargs) | kwargs))


def _masked(config: Config, kwargs: Config) -> BERTMaskedLM:
    activation, epsilon = _activation(config.get("hidden_act", "gelu")), config.get("layer_norm_eps", 1e-12)
    return BERTMaskedLM(_bert(config, False, kwargs), activation, epsilon)


def _classifier(config: Config, weights: _Weights, kwargs: Config) -> BERTClassifier:
    if "classifier.bias" not in weights:
        raise MXNetError(
            f"{weights.folder} does not contain a classifier. Load it with architecture='BertModel' "
            "and create a BERTClassifier from the result"
        )
    rates = [kwargs.get("dropout"), config.get("classifier_dropout"), config.get("hidden_dropout_prob"), 0.1]
    rate: float = next(each for each in rates if each is not None)
    return BERTClassifier(_bert(config, True, kwargs), len(weights["classifier.bias"]), rate)


def _dropout(rates: list[float], kwargs: Config) -> Config:
    """Return the dropout rate of all layers. Our nets have only one rate."""
    if "dropout" in kwargs or len(set(rates)) == 1:
        return {"dropout": rates[0]}
    raise MXNetError(f"the checkpoint's dropout rates differ ({rates}), but a net has only one: pass dropout=")


def _activation(name: Any) -> str:
    if name not in _ACTIVATIONS:
        raise MXNetError(f"the activation {name!r} is not supported, only {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


_MAKERS: dict[str, Callable[[Config, Any, Config], HybridBlock]] = {
    "GPT2Model": lambda config, weights, kwargs: _gpt2(config, False, kwargs),
    "GPT2LMHeadModel": lambda config, weights, kwargs: _gpt2(config, True, kwargs),
    "BertModel": lambda config, weights, kwargs: _bert(config, True, kwargs),
    "BertForMaskedLM": lambda config, weights, kwargs: _masked(config, kwargs),
    "BertForSequenceClassification": _classifier,
}


# ---- the weights ----


class _Weights(Mapping[str, torch.Tensor]):
    """The arrays in a directory, by their names in the model without a head."""

    def __init__(self, folder: str):
        self.folder = folder
        self._found: dict[str, tuple[Archive, str]] = {}
        for archive, name in _arrays(folder):
            self._found[_bare(name)] = archive, name

    def __getitem__(self, name: str) -> torch.Tensor:
        archive, stored = self._found[name]
        return archive[stored]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _arrays(folder: str) -> Iterator[tuple[Archive, str]]:
    """Iterate over the (file, name) of all arrays."""
    whole, index = os.path.join(folder, "model.safetensors"), "model.safetensors.index.json"
    if os.path.exists(whole):
        archive = Archive(whole)
        yield from ((archive, name) for name in archive)
        return
    if not os.path.exists(os.path.join(folder, index)):
        raise MXNetError(
            f"{folder} contains neither model.safetensors nor {index}. Other file types are not supported, because "
            "they could execute arbitrary code. Save the model as safetensors"
        )
    places = _read_json(folder, index).get("weight_map")
    if not isinstance(places, dict) or not all(_is_beside(file) for file in places.values()):
        raise MXNetError(f"{folder}/{index}: weight_map must map each array to a file in this directory")
    archives = {file: Archive(os.path.join(folder, file)) for file in sorted(set(places.values()))}
    for name, file in places.items():
        if name not in archives[file]:
            raise MXNetError(f"{folder}/{file} does not contain {name!r}, although {index} lists it")
        yield archives[file], name


def _is_beside(file: Any) -> bool:
    return isinstance(file, str) and file == os.path.basename(file) and file.endswith(".safetensors")


def _bare(name: str) -> str:
    """Return a name without the parts that depend on the head and on the version of the library."""
    name = re.sub(r"^(transformer|bert)\.", "", name)
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
    return name.replace("cls.predictions.decoder.bias", "cls.predictions.bias")


def _load(net: HybridBlock, weights: _Weights, ctx: Any) -> None:
    """Load the weights into the net. If any is missing or does not fit, nothing is changed."""
    layers = next(layers for kind, layers in _LAYERS.items() if isinstance(net, kind))
    firsts: dict[int, tuple[str, Parameter]] = {}
    for name, param in net._collect_params_with_prefix().items():
        firsts.setdefault(id(param), (name, param))  # a tied weight is loaded under its first name
    sources = {name: _source(name, layers) for name, _ in firsts.values()}
    missing = [theirs for theirs in sources.values() if theirs not in weights]
    if missing:
        raise MXNetError(f"{weights.folder} does not contain {', '.join(dict.fromkeys(missing))}")
    extra = [name for name in weights if name not in sources.values() and not _SPARE.fullmatch(name)]
    if extra:
        raise MXNetError(f"{weights.folder} contains weights that the net does not have: {', '.join(extra)}")
    convert = _from_gpt2 if isinstance(net, GPT2) else lambda ours, tensor: tensor
    arrays = {ours: NDArray(convert(ours, weights[theirs]), cpu()) for ours, theirs in sources.items()}
    params = {name: [(name, param)] for name, param in firsts.values()}
    load_into(params, arrays, ctx, False, False, True, "current", f" in {weights.folder!r}", MXNetError)


def _source(name: str, layers: dict[str, str]) -> str:
    """Return the Hugging Face name of one of our parameters."""
    layer, leaf = name.rsplit(".", 1)
    number = re.search(r"\.(\d+)\.", layer)
    pattern = re.sub(r"\.\d+\.", ".*.", layer)
    theirs = layers[pattern].replace("*", number[1] if number else "")
    return f"{theirs}.{ {'gamma': 'weight', 'beta': 'bias'}.get(leaf, leaf) }"


def _from_gpt2(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Convert a weight of GPT-2: its weights are (inputs, outputs), and query, key and value are concatenated."""
    part = re.search(r"attention\.(query|key|value)", name)
    if part:
        tensor = tensor.chunk(3, -1)[("query", "key", "value").index(part[1])]
    is_product = re.search(r"(attention|feedforward)\.\w+\.weight", name)
    return tensor.t() if is_product and tensor.dim() == 2 else tensor
