"""On two workers, bucketed batches train like those of one process, and every worker trains the same sub-words."""

import json
import subprocess
import sys

import numpy as np
from launching import LIMIT, environment, neomx_run, write

SCRIPT = """
    import json, sys
    import numpy as np
    import neomx as mx
    from neomx import autograd, gluon
    from neomx.gluon.data import text

    rng = np.random.default_rng(1)
    sentences = [rng.integers(1, 30, length).tolist() for length in rng.integers(1, 12, 45)]
    labels = [sentence.count(7) + len(sentence) / 10 for sentence in sentences]

    kv = mx.kv.create("dist_sync")
    sampler = text.BucketSampler([len(sentence) for sentence in sentences], 8 // kv.num_workers, 3, seed=2)
    batchify = text.Tuple(text.Pad(ret_length=True), text.Stack("float32"))
    dataset = gluon.data.ArrayDataset(sentences, labels).transform_first(text.TokenDropout(0.2))
    loader = gluon.data.DataLoader(dataset, batch_sampler=sampler, batchify_fn=batchify)

    mx.random.seed(1)
    net = gluon.nn.Embedding(30, 1)
    net.initialize(mx.init.Normal(0.1))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
    loss_of = gluon.loss.L2Loss()
    for epoch in range(2):
        for (tokens, lengths), label in loader:
            with autograd.record():
                scores = mx.nd.SequenceMask(net(tokens), lengths, True, axis=1).sum(axis=1)
                loss = loss_of(scores, label)
            loss.backward()
            trainer.step(len(label) * kv.num_workers)
    weights = net.weight.data().asnumpy().ravel().tolist()
    with open(f"{sys.argv[1]}/{kv.num_workers}-{kv.rank}.json", "w") as file:
        json.dump(weights, file)
"""

TRAIN = """
    import random
    from neomx.gluon.data import text
    random.seed(1)
    words = ["".join(random.choice("abcdef") for _ in range(random.randint(2, 7))) for _ in range(200)]
    texts = [" ".join(random.choice(words) for _ in range(8)) for _ in range(200)]
    for model, size in (("bpe", 400), ("wordpiece", 200)):
        print(text.SubwordTokenizer.train(texts, size, model).idx_to_token)
"""


def test_two_workers_train_like_one(tmp_path):
    script = write(tmp_path, SCRIPT)
    for count in (1, 2):
        run = neomx_run("-n", count, script, tmp_path)
        assert run.returncode == 0, run.stdout + run.stderr
    alone, *both = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("1-0", "2-0", "2-1"))
    assert both[0] == both[1]
    # The order of summation differs: float32 rounding of twelve steps.
    np.testing.assert_allclose(both[0], alone, rtol=1e-5, atol=1e-6)


def test_training_of_subwords_does_not_depend_on_the_process(tmp_path):
    command = [sys.executable, write(tmp_path, TRAIN)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(2)]
    first, second = (run.communicate(timeout=LIMIT)[0] for run in runs)
    assert first == second and len(first) > 1000
