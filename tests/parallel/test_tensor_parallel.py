"""Tensor parallelism on 2 and 4 real workers gives the losses and weights of one process.

Sums over an inner axis are computed in parts: results differ by rounding, a relative 1e-7. After ten steps of gradient
descent the difference is at most 6e-6 for losses of 5, and 4e-7 for weights (measured).
"""

import pathlib

import numpy as np
import pytest
import torch
from launching import neomx_run

import neomx as mx
from neomx.gluon import HybridBlock, nn
from neomx.gluon.model_zoo.transformer import GPT2, gpt2_tiny
from neomx.parallel.tensor import targets_of

WORKER = pathlib.Path(__file__).parents[1] / "workers" / "tensor.py"
NETWORKS = ["mlp", "mlp gathered", "gpt2", "gpt2 by sequence", "torch mlp", "torch model", "torch by sequence"]
MORE = ["mlp hybridized", "mlp hybridized after", "gpt2 hybridized", "gpt2 as torch", "bert"]


def run(workers, folder):
    job = neomx_run("-n", workers, WORKER, folder / "out")
    assert job.returncode == 0, job.stdout + job.stderr
    return [dict(np.load(folder / f"out-{rank}.npz")) for rank in range(workers)]


@pytest.fixture(scope="session")
def found(tmp_path_factory):
    """Return the results of each worker for this number of workers; each job runs once."""
    known = {}

    def of(workers):
        if workers not in known:
            known[workers] = run(workers, tmp_path_factory.mktemp(f"tensor{workers}"))
        return known[workers]

    return of


@pytest.mark.parametrize(
    ("workers", "name"), [*((2, name) for name in [*NETWORKS, *MORE]), *((4, name) for name in NETWORKS)]
)
def test_losses_and_weights_of_ten_steps_equal_one_process(workers, name, found):
    for each in found(workers):
        losses, weights = each[name]
        assert losses < 2e-5 and weights < 2e-6


@pytest.mark.parametrize("workers", [2, 4])
class TestWorkers:
    def test_each_worker_has_its_part(self, workers, found):
        (first, *_) = found(workers)
        kinds = ["DTensor"] * 4 + ["Parameter"] * 2 + ["DTensor"] * 3
        assert list(first["kinds"]) == kinds  # a LayerNorm stays whole
        assert first["elements"] == (16 * 12 + 16 + 12 * 16) // workers
        assert first["tied"] and first["evaluated"] < 1e-6

    def test_replicated_gradients_and_masks_are_equal_on_all_workers(self, workers, found):
        first, *others = found(workers)
        assert len(first["replicated gradients"]) > 500 and (first["dropped"] == 0).mean() > 0.3
        for other in others:
            np.testing.assert_array_equal(other["replicated gradients"], first["replicated gradients"])
            np.testing.assert_array_equal(other["dropped"], first["dropped"])

    def test_generated_text_equals_one_process(self, workers, found):
        for each in found(workers):
            assert each["text"].shape == (2, 14)
            np.testing.assert_array_equal(each["text"], each["expected text"])

    @pytest.mark.parametrize(
        "name", ["plain", "two axes", "weight", "sample_weight", "batch_axis", "hybridized", "labels beyond"]
    )
    def test_loss_of_a_sharded_vocabulary(self, name, workers, found):
        for each in found(workers):
            loss, gradient = each[f"loss {name}"]
            assert loss < 1e-6 and gradient < 1e-6

    def test_loss_of_torch(self, workers, found):
        assert all(each["torch sum"] < 1e-5 and each["torch none"] < 1e-6 for each in found(workers))

    def test_scores_are_not_exchanged(self, workers, found):
        (first, *_) = found(workers)
        examples, width = 2 * 8, 32
        assert tuple(first["shape"]) == (2, 8, 251) and first["kind"] == "DTensor"
        assert list(first["crossed for the loss"]) == [examples, 2 * examples]
        # Forward: the embedding, attention and feed-forward of two layers. Backward: the same layers and the head; the
        # gradient of the shared input of query, key and value is exchanged only once.
        assert list(first["crossed forward"]) == [examples * width] * 5
        assert list(first["crossed backward"]) == [examples * width] * 5

    def test_sharded_arrays(self, workers, found):
        (first, *_) = found(workers)
        assert first["argmax"] == first["scaled"] == first["row"] == 0 and first["sum"] < 1e-3
        assert "cannot mix sharded and replicated arrays" in str(first["mixed"])

    def test_invalid_input_at_run_time_is_rejected(self, workers, found):
        (first, *_) = found(workers)
        assert "251 rows" in str(first["beyond"])
        assert "2: a Dense layer with sharded inputs expects shape (batch, features)" in str(first["flattened"])
        shape = (2, 2 * workers + 1, 12)
        assert f"divisible by {workers} workers, received shape {shape}" in str(first["odd sequence"])


# ---- plans, without workers ----


def mlp(*widths):
    net = nn.HybridSequential()
    for width, following in zip(widths, widths[1:], strict=False):
        net.add(nn.Dense(following, activation="relu", in_units=width))
    net.initialize()
    return net


def chosen(net, plan="auto", degree=2):
    return {target.name: target.chosen for target in targets_of(net, plan, degree)}


def gpt2(**kwargs):
    net = gpt2_tiny(**kwargs)
    net.initialize()
    return net


def test_automatic_plan_of_pairs():
    assert chosen(mlp(4, 8, 6, 7, 3)) == {"0": "column", "1": "row"}  # 7 is odd: the second pair stays whole
    net = nn.HybridSequential()
    net.add(mlp(4, 8, 6), nn.Dense(4, in_units=6), nn.LayerNorm(in_channels=4), nn.Dense(4, in_units=4))
    net[1:].initialize()
    assert chosen(net) == {"0.0": "column", "0.1": "row"}  # a norm needs its whole input
    layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 4)]
    assert chosen(torch.nn.Sequential(*layers)) == {"0": "column", "3": "row"}
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)
    names = [f"layers.{i}.linear{j}" for i in (0, 1) for j in (1, 2)]
    assert chosen(encoder) == dict(zip(names, ["column", "row"] * 2, strict=True))
    assert chosen(torch.nn.TransformerEncoderLayer(8, 2, 16)) == {"linear1": "column", "linear2": "row"}


def test_automatic_plan_of_a_transformer_inside_another_block():
    class Classifier(HybridBlock):
        def __init__(self):
            super().__init__()
            self.body = gpt2_tiny(head=False)

    net = Classifier()
    net.initialize()
    plan = chosen(net)
    assert plan["body.embed"] == "vocabulary" and plan["body.blocks.1.attention.out"] == "row"
    assert len(plan) == 1 + 2 * 6


def test_automatic_plan_skips_layers_that_cannot_be_split():
    net = mlp(4, 8, 6)
    tied = nn.Dense(6, in_units=6)
    net.add(tied, nn.Dense(6, in_units=6, params=tied.params))
    steps = [nn.Dense(6, in_units=6, flatten=False), nn.Dense(3, in_units=18)]  # the second one flattens its input
    net.add(nn.Flatten(), *steps)
    net[2:].initialize()
    assert chosen(net) == {"0": "column", "1": "row"}


def test_automatic_plan_without_layers_to_split_is_an_error():
    with pytest.raises(mx.MXNetError, match=r"0 and 1 \(width 7\) cannot be divided by 2.* Pass a plan"):
        chosen(mlp(4, 7, 2))
    with pytest.raises(mx.MXNetError, match="found no layers to split"):
        chosen(torch.nn.MultiheadAttention(8, 2))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            {"blocks.*.attention.querry": "column"},
            r"'blocks.\*.attention.querry' matches no layer. Did you mean .*query",
        ),
        ({"x": "column"}, r"The net has embed, position, drop, blocks, blocks.\*, blocks.\*.norm1, .*head"),
        ({"head": "colunm"}, "Did you mean column.* Styles are column, row"),
        ({"blocks.0.*.up": "column", "blocks.*.up": "row"}, "'blocks.0.feedforward.up' matches two patterns.*narrower"),
        ({"embed": "column"}, "'embed' is of class Embedding, but the style 'column' is for Dense"),
        ({"blocks": "column"}, "'blocks' is of class HybridSequential"),
        ({".": "row"}, "'the net' is of class GPT2, but the style 'row' is for Dense"),
        ({"embed": "vocabulary"}, "embed shares its weight with head, which has no style.*'logits'"),
        ({"embed": "width", "head": "logits"}, "head and embed share weight.*split differently"),
        ({"blocks": "sequence_region"}, "'sequence_region', but 0.norm1 inside it has weights"),
    ],
)
def test_invalid_plans_are_rejected(plan, message):
    with pytest.raises(mx.MXNetError, match=message):
        chosen(gpt2(), plan)


def test_indivisible_sizes_are_rejected():
    with pytest.raises(
        mx.MXNetError, match="0.weight: 8 is not divisible by 3 tensor-parallel workers .style 'column'"
    ):
        chosen(mlp(4, 8, 6), {"0": "column"}, 3)
    with pytest.raises(mx.MXNetError, match=r"attention.query: 4 heads are not divisible by 8 tensor-parallel"):
        chosen(gpt2(), degree=8)
    with pytest.raises(mx.MXNetError, match="embed.weight: 9 rows leave one of 4 tensor-parallel workers without rows"):
        chosen(gpt2(vocab_size=9), degree=4)
    net = GPT2(vocab_size=11, units=9, layers=1, heads=3, max_length=4)
    net.initialize()
    with pytest.raises(mx.MXNetError, match="query.weight: 9 is not divisible by 2"):
        chosen(net)


def test_layers_that_cannot_be_split_are_rejected():
    with pytest.raises(mx.MXNetError, match="MultiheadAttention does not call its layers"):
        chosen(torch.nn.TransformerEncoderLayer(8, 2, 16), {"self_attn.out_proj": "row"})
    with pytest.raises(mx.MXNetError, match="an embedding with max_norm, sparse cannot be split"):
        chosen(torch.nn.ModuleList([torch.nn.Embedding(8, 4, max_norm=1.0, sparse=True)]), {"0": "vocabulary"})
    net = nn.HybridSequential()
    net.add(nn.Embedding(8, 4, sparse_grad=True))
    net.initialize()
    with pytest.raises(mx.MXNetError, match="sparse_grad"):
        chosen(net, {"0": "width"})
    with pytest.raises(TypeError, match="plan must be 'auto' or"):
        chosen(net, {})

    class Scaled(nn.Dense):
        def hybrid_forward(self, F, x, weight, bias=None):
            return 2 * super().hybrid_forward(F, x, weight, bias)

    scaled = Scaled(4, in_units=2)
    scaled.initialize()
    with pytest.raises(mx.MXNetError, match="'the net' is of class Scaled, but the style 'column' is for Dense"):
        chosen(scaled, {".": "column"})
    waiting = nn.Dense(4)
    waiting.initialize()
    with pytest.raises(RuntimeError, match="not initialized yet"):
        chosen(waiting, {".": "column"})


def test_cross_entropy_of_one_process():
    scores, target = torch.randn(2, 3, 7), torch.tensor([[1, 2, 6], [0, -100, 3]])
    expected = torch.nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())
    assert torch.allclose(mx.parallel.cross_entropy(scores, target), expected)
    with pytest.raises(IndexError, match="target 7 is out of bounds: there are 7 classes"):
        mx.parallel.cross_entropy(scores, target + 1)
    with pytest.raises(ValueError, match="target must have shape"):
        mx.parallel.cross_entropy(scores, target[0])
    with pytest.raises(ValueError, match="reduction must be"):
        mx.parallel.cross_entropy(scores, target, "max")
