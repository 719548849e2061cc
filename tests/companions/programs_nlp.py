"""What is run with GluonNLP, the same under MXNet and neomx. Each gives arrays by name."""

import gluonnlp as nlp
from gluonnlp.model.bert import BERTClassifier, BERTEncoder, BERTModel
from mxnet import autograd, cpu, gluon, nd
from weights import fill, fingerprint

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
    """Sentences through BERT's tokenizer and transform, batched by batchify functions."""
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
    """Sequences, the pooled first token, sentence pairs and masked words."""
    tokens, lengths, types, _ = _batch()
    net = _bert(len(_vocabulary()), use_pooler=True, use_decoder=True, use_classifier=True)
    positions = nd.array([[1, 3], [1, 2], [2, 4], [1, 5]])
    fill(net, tokens, types, lengths, positions)
    sequence, pooled, pair, words = net(tokens, types, lengths, positions)
    found = {"sequence": sequence, "pooled": pooled, "pair": pair, "words": words}
    return {**found, "tokens": tokens, "lengths": lengths, "types": types}


def bert_training():
    """A classifier on BERT, two steps of BERTAdam with gradients clipped, hybridized."""
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


PROGRAMS = [bert, bert_training]
