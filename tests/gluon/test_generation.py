"""Text generation: the same result with and without cached keys and values, for all forms of prompts."""

import numpy as np
import pytest
import torch
from small_transformers import RECORDED, close, lively_gpt2, recorded, small_gpt2, tokens

import neomx as mx
from neomx import autograd, nd
from neomx.gluon.model_zoo import transformer
from neomx.gluon.model_zoo.transformer.generation import Choice


def without_memory(net, prompt, count, choose):
    """Generate by processing the whole text for each token."""
    for _ in range(count):
        chosen = choose(net(prompt)[:, -1])
        prompt = nd.concat(prompt, nd.array(chosen.reshape(-1, 1).numpy(), dtype="int32"), dim=1)
    return prompt


def test_greedy_generation_matches_transformers():
    outputs, (x,) = recorded("gpt2_lm")
    net = transformer.load_huggingface(RECORDED / "gpt2_lm")
    np.testing.assert_array_equal(net.generate(x[:, :4], 6).asnumpy(), outputs["greedy"])


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"method": "sample"}, {"method": "sample", "temperature": 0.7, "top_k": 7, "top_p": 0.8}],
)
def test_generation_is_the_same_without_cache(options, hybridize):
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


def test_prompts_of_different_lengths_are_independent():
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


def test_generation_stops_when_all_texts_have_ended():
    net, x = lively_gpt2(), tokens(1, 3)
    whole = net.generate(x, 12).asnumpy()[0].tolist()
    stop = whole[6]
    end = whole.index(stop, 3) + 1
    assert net.generate(x, 12, eos=stop).asnumpy()[0].tolist() == whole[:end]
    pair = nd.concat(x, x + 1, dim=0)
    both = net.generate(pair, 12, eos=stop).asnumpy()
    assert both[0].tolist()[:end] == whole[:end] and set(both[0].tolist()[end:]) <= {stop}


def test_sampling_is_seeded_and_generation_has_no_dropout():
    net, x = lively_gpt2(dropout=0.5), tokens(2, 3)
    draw = lambda **kwargs: net.generate(x, 12, "sample", **kwargs).asnumpy().tolist()  # noqa: E731
    assert draw(seed=1) == draw(seed=1) != draw(seed=2)
    mx.random.seed(4)
    before = draw()
    mx.random.seed(4)
    assert draw() == before != draw()
    with autograd.record():
        assert net.generate(x, 5).asnumpy().tolist() == net.generate(x, 5).asnumpy().tolist()


def test_sampling_probabilities():
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
        ((tokens(1, 20), 5), {}, mx.MXNetError, "20 tokens and 5 new ones exceed the 24 positions"),
        ((tokens(4), 5), {}, mx.MXNetError, "shape \\(batch, time\\), or a list of prompts, received \\(4,\\)"),
        (([[1], []], 5), {}, mx.MXNetError, "at least one token"),
        (([], 5), {}, mx.MXNetError, "a list of prompts"),
        (([1, 2], 5), {}, mx.MXNetError, "a list of prompts"),
        (([[1, 32]], 5), {}, mx.MXNetError, "outside the range from 0 to 31"),
        (([["a"]], 5), {}, mx.MXNetError, "integer tokens, received \\['a'\\]"),
        (([[1]], 0), {}, ValueError, "max_new_tokens must be an integer of at least 1"),
        (([[1]], 5, "beam"), {}, ValueError, "'greedy' or 'sample', received 'beam'"),
        (([[1]], 5), {"top_k": 3}, ValueError, "require method='sample'"),
        (([[1]], 5, "sample"), {"temperature": 0}, ValueError, "temperature must be above 0"),
        (([[1]], 5, "sample"), {"top_p": 1.5}, ValueError, "top_p in \\(0, 1\\]"),
        (([[1]], 5, "sample"), {"top_k": -1}, ValueError, "top_k must be an integer of at least 0"),
        (([[1]], 5), {"eos": 32}, ValueError, "eos must be one of the 32 tokens"),
    ],
)
def test_generation_errors(arguments, options, kind, said):
    with pytest.raises(kind, match=said):
        small_gpt2(max_length=24).generate(*arguments, **options)


def test_generation_needs_the_head():
    with pytest.raises(mx.MXNetError, match="head=True"):
        small_gpt2(head=False).generate([[1]], 2)


def generated_in_layouts(prompts):
    """Return texts generated by a net in one process and by the same net sharded over two workers."""
    torch.set_num_threads(1)
    texts = []
    for layout, shard in ((None, None), ("shard=2", "full"), ("tensor=2", None)):
        net = lively_gpt2()
        if layout is not None:
            mx.parallel.apply(net, mx.parallel.Layout.parse(layout), shard=shard)
        texts.append(net.generate(prompts, 8) + net.generate(prompts, 8, "sample", top_k=9, seed=2))
    return texts


def test_sharded_net_generates_the_same_text():
    for alone, sharded, divided in mx.dist.launch(generated_in_layouts, 2, ([[1, 2, 3], [4], [5, 6]],)):
        assert sharded == alone
        assert divided == alone
