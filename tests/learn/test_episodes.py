"""Episodes are correct classification tasks, and the networks agree with their definitions in numpy."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.learn import Episodes, MatchingNet, PrototypicalNet

LABELS = np.repeat([3, 5, 6, 9], 10)
DATA = np.arange(40, dtype="float32").reshape(40, 1) * np.ones((1, 2), "float32")  # each sample contains its index
TOLERANCE = 1e-5  # float32: sums of a few products of order 1, in another order than numpy's


def loader(seed=None, length=6, batch=3):
    return gluon.data.DataLoader(Episodes(DATA, LABELS, 3, 2, 4, length, seed), batch)


def test_episode_has_disjoint_examples_and_queries_of_distinct_classes():
    support, support_label, query, query_label = Episodes(DATA, LABELS, 3, 2, 4, 5)[2]
    assert support.shape == (6, 2) and query.shape == (12, 2)
    np.testing.assert_array_equal(support_label, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(query_label, np.repeat([0, 1, 2], 4))
    drawn = np.concatenate([support, query])[:, 0].astype(int)
    assert len(set(drawn)) == 18
    of_class = [set(LABELS[drawn[np.concatenate([support_label, query_label]) == way]]) for way in range(3)]
    assert [len(each) for each in of_class] == [1, 1, 1] and len(set.union(*of_class)) == 3


def test_epochs_have_other_episodes_unless_they_have_a_seed():
    def epochs(seed):
        mx.random.seed(4)
        batches = loader(seed)
        return [np.concatenate([batch[0].asnumpy() for batch in batches]) for _ in range(2)]

    first, second = epochs(None)
    assert (first != second).any()
    np.testing.assert_array_equal(first, epochs(None)[0])  # they follow mx.random.seed
    first, second = epochs(7)
    np.testing.assert_array_equal(first, second)
    assert (first != epochs(8)[0]).any()


def test_episodes_of_a_dataset_equal_those_of_an_array():
    for one, other in zip(
        Episodes(DATA, LABELS, 2, 1, 1, 3, seed=1),
        Episodes(gluon.data.SimpleDataset(list(nd.array(DATA))), nd.array(LABELS), 2, 1, 1, 3, seed=1),
        strict=True,
    ):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ways": 5}, "needs 5 classes, but the labels have only 4"),
        ({"shots": 9}, r"needs 9 \+ 4 samples of each class, but class 3 has only 10"),
        ({"queries": 0}, "queries must be at least 1, received 0"),
        ({"labels": LABELS[:-1]}, r"one label for each of 40 samples, received shape \(39,\)"),
    ],
)
def test_impossible_episodes_are_rejected(change, message):
    settings = {"data": DATA, "labels": LABELS, "ways": 3, "shots": 2, "queries": 4, "length": 6, **change}
    with pytest.raises(ValueError, match=message):
        Episodes(**settings)


def batch(seed=0):
    """Two episodes of three classes, with examples in mixed order and different numbers of them per class."""
    random = np.random.default_rng(seed)
    label = np.array([[2, 0, 1, 0, 1], [1, 1, 0, 2, 2]], "float32")
    support, query = random.standard_normal((2, 5, 1, 4, 4)), random.standard_normal((2, 7, 1, 4, 4))
    return support.astype("float32"), label, query.astype("float32"), random.integers(0, 3, (2, 7)).astype("float32")


def embedding():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(3, 3, activation="tanh"), nn.Dense(4))
    net.initialize(mx.init.Xavier())
    return net


def vectors(net, x):
    return net(nd.array(x.reshape(-1, 1, 4, 4))).asnumpy().reshape(*x.shape[:2], -1).astype("float64")


@pytest.mark.parametrize("hybridize", [False, True])
def test_prototypical_net_is_the_negative_squared_distance_to_mean_embeddings(hybridize):
    net = PrototypicalNet(embedding(), ways=3)
    if hybridize:
        net.hybridize()
    support, label, query, _ = batch()
    found = net(nd.array(support), nd.array(label), nd.array(query)).asnumpy()
    examples, points = vectors(net.embedding, support), vectors(net.embedding, query)
    for episode in range(2):
        prototypes = [examples[episode][label[episode] == way].mean(0) for way in range(3)]
        expected = [[-np.sum((point - each) ** 2) for each in prototypes] for point in points[episode]]
        np.testing.assert_allclose(found[episode], expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("hybridize", [False, True])
def test_matching_net_is_a_vote_weighted_by_cosine_similarity(hybridize):
    net = MatchingNet(embedding(), ways=3, scale=4.0)
    if hybridize:
        net.hybridize()
    support, label, query, _ = batch()
    found = net(nd.array(support), nd.array(label), nd.array(query)).asnumpy()
    examples, points = vectors(net.embedding, support), vectors(net.embedding, query)
    for episode in range(2):
        for at, point in enumerate(points[episode]):
            norms = np.linalg.norm(examples[episode], axis=1) * np.linalg.norm(point)
            votes = np.exp(4.0 * examples[episode] @ point / norms)
            expected = [votes[label[episode] == way].sum() / votes.sum() for way in range(3)]
            np.testing.assert_allclose(np.exp(found[episode, at]), expected, rtol=TOLERANCE)


@pytest.mark.parametrize("kind", [PrototypicalNet, MatchingNet])
def test_gradients_are_equal_when_hybridized_and_in_numpy_mode(kind):
    arrays = [nd.array(each) for each in batch()]
    inner = embedding()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def gradients(net, arrays):
        with autograd.record():
            value = loss(net(*arrays[:3]), arrays[3])
        assert value.shape == (2,)  # one for each episode
        value.backward()
        return [param.grad().asnumpy().copy() for param in inner.collect_params().values()]

    plain = gradients(kind(inner, 3), arrays)
    assert all(each.any() for each in plain)
    traced = kind(inner, 3)
    traced.hybridize()
    for a, b in zip(plain, gradients(traced, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=1e-6)
    with mx.np_array(True):
        for a, b in zip(plain, gradients(kind(inner, 3), [x.as_np_ndarray() for x in arrays]), strict=True):
            np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=1e-6)


def test_wrong_shapes_and_labels_are_rejected():
    net = PrototypicalNet(embedding(), ways=3)
    support, label, query, _ = (nd.array(each) for each in batch())
    with pytest.raises(mx.MXNetError, match=r"received the shapes \(5, 1, 4, 4\), \(5,\) and \(7, 1, 4, 4\)"):
        net(support[0], label[0], query[0])
    with pytest.raises(
        mx.MXNetError, match="all classes from 0 to 2, and no others, received the labels \\[0.0, 1.0\\]"
    ):
        net(support, label * (label < 2), query)
    with pytest.raises(ValueError, match="scale must be positive, received 0"):
        MatchingNet(embedding(), 3, scale=0)
