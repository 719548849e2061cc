"""Record the outputs of Hugging Face's library for small models with random weights.

    pip install -c constraints.txt '.[transformers]' && python tests/record_transformers.py

writes tests/fixtures/transformers/<model>/: the checkpoint as saved by that library, and outputs.npz with inputs and
outputs. The tests compare with these files and do not need the library.
"""

import pathlib
import shutil

import numpy as np
import torch
import transformers as hf

FOLDER = pathlib.Path(__file__).resolve().parent / "fixtures" / "transformers"
GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 12, "initializer_range": 0.3}
BERT = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "initializer_range": 0.3,
}
MODELS = {
    "gpt2_lm": (hf.GPT2LMHeadModel, hf.GPT2Config(**GPT2)),
    "gpt2_model": (hf.GPT2Model, hf.GPT2Config(**GPT2)),
    "bert_model": (hf.BertModel, hf.BertConfig(**BERT)),
    "bert_masked": (hf.BertForMaskedLM, hf.BertConfig(**BERT)),
    "bert_classes": (hf.BertForSequenceClassification, hf.BertConfig(**BERT, num_labels=3)),
}
LENGTHS = np.array([7, 4, 1])


def inputs(kind: str) -> dict[str, np.ndarray]:
    """Return tokens; for BERT also token types, and lengths for a mask."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 40, (3, 7))
    return {"tokens": tokens} if kind == "gpt2" else {"tokens": tokens, "types": tokens % 2, "lengths": LENGTHS}


def record(name: str, kind: type, config: hf.PretrainedConfig) -> None:
    """Save one model and its outputs."""
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():  # initial biases (0) and norms (1) would hide errors
        for param in model.parameters():
            if param.dim() == 1:
                param += 0.3 * torch.randn_like(param)
        if config.model_type == "gpt2":  # else it repeats one word
            model.get_parameter("transformer.wpe.weight" if name == "gpt2_lm" else "wpe.weight").mul_(6)
    given = inputs(config.model_type)
    call = {"input_ids": torch.from_numpy(given["tokens"])}
    if "types" in given:
        call["token_type_ids"] = torch.from_numpy(given["types"])
        call["attention_mask"] = (torch.arange(7) < torch.from_numpy(LENGTHS)[:, None]).long()
    result = model(**call, output_hidden_states=True)
    found = {f"hidden{i}": each for i, each in enumerate(result.hidden_states)}
    for field in ("logits", "pooler_output", "last_hidden_state"):
        if result.get(field) is not None:
            found[field] = result[field]
    if name == "gpt2_lm":
        tokens = call["input_ids"]
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        found |= {"loss": loss, **{f"grad {key}": param.grad for key, param in model.named_parameters()}}
        start, mask = tokens[:, :4], torch.ones(3, 4)  # explicit: otherwise token 0 would count as padding
        found["greedy"] = model.generate(start, attention_mask=mask, max_new_tokens=6, do_sample=False, pad_token_id=0)
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **({"max_shard_size": "10KB"} if name == "bert_model" else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    np.savez_compressed(folder / "outputs.npz", **given, **{key: each.detach().numpy() for key, each in found.items()})


if __name__ == "__main__":
    for name, (kind, config) in MODELS.items():
        record(name, kind, config)
        print(name)
