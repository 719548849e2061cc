"""Programs that use GluonNLP, the same under MXNet and neomx. Each returns arrays by name."""

import tempfile

import gluonnlp as nlp
import mxnet as mx
import numpy as np
from gluonnlp.model.bert import BERTClassifier, BERTEncoder, BERTModel
from mxnet import autograd, cpu, gluon, nd
from weights import fill, fingerprint, random

TEXT = [
    "the quick brown fox jumps over the lazy dog",
    "a dog sleeps",
    "the fox and the dog are quick",
    "foxes jump, dogs sleep!",
]
WORDS = ["the", "quick", "brown", "fox", "##es", "jump", "##s", "over", "lazy", "dog", "a", "sleep", ",", "!"]


def _vocabulary():
    return nlp.vocab.BERTVocab(nlp.data.count_tokens(WORDS))


def _batch(length=12):
    """Process sentences with BERT's tokenizer and transform, and combine them with batchify functions."""
    tokenizer = nlp.data.BERTTokenizer(_vocabulary(), lower=True)
    transform = nlp.data.BERTSentenceTransform(tokenizer, max_seq_length=length, pair=False)
    items = [tuple(transform((text,))) + (at % 2,) for at, text in enumerate(TEXT)]
    batchify = nlp.data.batchify.Tuple(
        nlp.data.batchify.Stack("int32"),
        nlp.data.batchify.Stack("float32"),
        nlp.data.batchify.Stack("int32"),
        nlp.data.batchify.Stack("float32"),
    )
    return [part.as_in_context(cpu()) for part in batchify(items)]


def _bert(size, dropout=0.0, **options):
    encoder = BERTEncoder(num_layers=2, units=16, hidden_size=32, max_length=20, num_heads=4, dropout=dropout)
    return BERTModel(encoder, size, token_type_vocab_size=2, units=16, embed_size=16, **options)


def bert():
    """Sequence output, pooled first token, next-sentence classification and masked words."""
    tokens, lengths, types, _ = _batch()
    net = _bert(len(_vocabulary()), use_pooler=True, use_decoder=True, use_classifier=True)
    positions = nd.array([[1, 3], [1, 2], [2, 4], [1, 5]])
    fill(net, tokens, types, lengths, positions)
    sequence, pooled, pair, words = net(tokens, types, lengths, positions)
    found = {"sequence": sequence, "pooled": pooled, "pair": pair, "words": words}
    return {**found, "tokens": tokens, "lengths": lengths, "types": types}


def bert_training():
    """A BERT classifier, hybridized: two steps of BERTAdam with clipped gradients."""
    tokens, lengths, types, label = _batch()
    net = BERTClassifier(_bert(len(_vocabulary()), use_pooler=True, use_decoder=False, use_classifier=False), 2, 0.0)
    fill(net, tokens, types, lengths)
    net.hybridize()
    loss_function = gluon.loss.SoftmaxCELoss()
    loss_function.hybridize()
    trainer = gluon.Trainer(
        net.collect_params(), "bertadam", {"learning_rate": 0.01, "epsilon": 1e-6, "wd": 0.01}, update_on_kvstore=False
    )
    found = {"eval": net(tokens, types, lengths)}
    for step in range(2):
        with autograd.record():
            loss = loss_function(net(tokens, types, lengths), label).mean()
        loss.backward()
        found[f"loss{step}"] = loss
        if step == 0:
            found["gradients"] = fingerprint(net, "grad")
        trainer.allreduce_grads()
        nlp.utils.clip_grad_global_norm([p for p in net.collect_params().values() if p.grad_req != "null"], 1)
        trainer.update(1)
    found["weights"] = fingerprint(net, "data")
    found["trained"] = net(tokens, types, lengths)
    return found


def language_model():
    """A word-level LSTM whose state is carried over from batch to batch of a corpus."""
    words = "the quick brown fox jumps over the lazy dog".split() * 8
    vocabulary = nlp.Vocab(nlp.data.count_tokens(words))
    cut = nlp.data.batchify.CorpusBPTTBatchify(vocabulary, 5, 4, last_batch="discard")
    batches = list(cut(gluon.data.SimpleDataset(words)))[:3]
    net = nlp.model.train.StandardRNN("lstm", len(vocabulary), 8, 8, 2, dropout=0.0, tie_weights=True)
    state = net.begin_state(func=nd.zeros, batch_size=4)
    fill(net, batches[0][0], state)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for data, label in batches:
        state = [each.detach() for each in state]
        with autograd.record():
            scores, state, _, _ = net(data, state)
            loss = loss_function(scores.reshape((-3, -1)), label.reshape((-1,))).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asscalar())
    return {"losses": losses, "scores": scores, "data": data}


def weight_drop():
    """The AWD LSTM, whose recurrent weights are a Parameter class of GluonNLP."""
    net = nlp.model.AWDRNN("lstm", 10, 8, 12, 2, True, dropout=0, weight_drop=0.3, drop_h=0, drop_i=0, drop_e=0)
    data, state = nd.array([[1, 2], [3, 4], [5, 6]]), net.begin_state(batch_size=2, func=nd.zeros)
    fill(net, data, state)
    plain, _ = net(data, state)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1})
    with autograd.record():
        dropped, _ = net(data, state)
    dropped.backward()
    trainer.step(1)
    return {"plain": plain, "differs": np.abs(plain.asnumpy() - dropped.asnumpy()).max() > 1e-3}


def sampled_softmax():
    """A large vocabulary: sparse embeddings, and a loss over sampled words."""
    net = nlp.model.train.BigRNN(20, 4, 6, 1, 4, 5)
    data, label = nd.array([[1, 2], [3, 4], [5, 6]]), nd.array([[2, 3], [4, 5], [6, 7]])
    sample = nd.array([1, 5, 7, 9, 11]), nd.array([0.1, 0.2, 0.3, 0.4, 0.5]), nd.full((6,), 0.25)
    state = net.begin_state(batch_size=2, func=nd.zeros)
    net.initialize(mx.init.Zero())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    net(data, label, state, sample)
    fill(net)
    losses = []
    for _ in range(3):
        with autograd.record():
            scores, _, target = net(data, label, state, sample)
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(scores.reshape((-3, -1)), target.reshape((-1,))).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asscalar())
    return {"losses": losses}


def transformer():
    """Encoder and decoder of the translation transformer."""
    encoder, decoder, _ = nlp.model.transformer.get_transformer_encoder_decoder(
        num_layers=2, num_heads=2, units=8, hidden_size=16, max_src_length=10, max_tgt_length=10, dropout=0.0
    )
    source, target = nd.array(random("source", (2, 5, 8))), nd.array(random("target", (2, 4, 8)))
    lengths = nd.array([5, 3])
    fill(encoder, source, None, lengths)
    memory, _ = encoder(source, None, lengths)
    state = decoder.init_state_from_encoder(memory, lengths)
    fill(decoder, target, state, nd.array([4, 2]))
    return {"memory": memory[0], "decoded": decoder(target, state, nd.array([4, 2]))[0]}


def beam_search():
    """Beam search for three sequences from each of two starts."""

    def decoder(words, states):
        return nd.log_softmax(states), states + nd.one_hot(words, 6) * 0.1

    search = nlp.model.BeamSearchSampler(3, decoder, 5, nlp.model.BeamSearchScorer(alpha=1.0, K=5), max_length=6)
    words, scores, lengths = search(nd.array([0, 1]), nd.array(random("start", (2, 6))))
    return {"words": words, "scores": scores, "lengths": lengths}


def attention():
    """All kinds of attention, with masks."""
    query, key = nd.array(random("query", (2, 3, 8))), nd.array(random("key", (2, 4, 8)))
    mask = nd.array(random("mask", (2, 3, 4)) > -0.5)
    found = {}
    for kind in ("multi_head", "mlp", "dot", "scaled_luong", "cosine"):
        cell = nlp.model.attention_cell._get_attention_cell(kind, units=8, num_heads=2)
        found[kind], found[kind + "_weights"] = fill(cell, query, key, key)(query, key, key, mask)
    return found


def elmo():
    """Character convolutions, and bidirectional LSTMs with projection and clipping."""
    convolution = nlp.model.ConvolutionalEncoder(6, (3, 4), (1, 2), num_highway=1, output_size=5)
    characters, mask = nd.array(random("characters", (7, 2, 6))), nd.ones((7, 2))
    fill(convolution, characters, mask)
    both_ways = nlp.model.BiLMEncoder("lstmpc", 2, 5, 8, 0, True, proj_size=5, cell_clip=3, proj_clip=3)
    words, mask_of_words = nd.array(random("words", (3, 2, 5))), nd.ones((2, 3))
    state = both_ways.begin_state(nd.zeros, batch_size=2)
    fill(both_ways, words, state, mask_of_words)
    return {"convolution": convolution(characters, mask), "both_ways": both_ways(words, state, mask_of_words)[0]}


def data():
    """Bucket samplers, padding, loaders with worker processes (also sharded), and a vocabulary with embeddings."""
    lengths = [3, 9, 4, 1, 7, 5, 2, 8, 6, 10]
    items = gluon.data.SimpleDataset([np.arange(length, dtype="float32") for length in lengths])
    pad = nlp.data.batchify.Pad(pad_val=-1)

    def sampler(**options):
        return nlp.data.FixedBucketSampler(lengths, 4, num_buckets=2, shuffle=False, ratio=0.5, **options)

    loader = gluon.data.DataLoader(items, batch_sampler=sampler(), batchify_fn=pad, num_workers=1)
    sharded = nlp.data.ShardedDataLoader(items, batch_sampler=sampler(num_shards=2), batchify_fn=pad, num_workers=1)
    batches = list(loader) + [part for parts in sharded for part in parts]
    found = {f"batch{at}": batch for at, batch in enumerate(batches)}
    found["sorted"] = list(nlp.data.SortedSampler(lengths))
    with tempfile.NamedTemporaryFile("w", suffix=".vec") as file:
        file.write("a 1 2 3\nb 4 5 6\nc 7 8 9\n")
        file.flush()
        vectors = nlp.embedding.TokenEmbedding.from_file(file.name)
    vocabulary = nlp.Vocab(nlp.data.count_tokens(["a", "b", "b", "z"]))
    vocabulary.set_embedding(vectors)
    return {**found, "vectors": vocabulary.embedding.idx_to_vec, "words": vocabulary[["a", "q", "b"]]}


PROGRAMS = [
    bert,
    bert_training,
    language_model,
    weight_drop,
    sampled_softmax,
    transformer,
    beam_search,
    attention,
    elmo,
    data,
]
