"""Augmented samples are the same for any number of workers of a job and of processes and threads of a loader."""

import numpy as np
import pytest

import neomx as mx
from neomx.gluon.data import DataLoader, ShardedDataset, SimpleDataset
from neomx.gluon.data.vision import transforms as T

COUNT = 10
IMAGES = np.random.RandomState(0).randint(0, 256, (COUNT, 12, 10, 3)).astype("uint8")
BOX, MASK = np.array([[2.0, 1, 9, 11]]), np.arange(120).reshape(12, 10)

IMAGE_ONLY = {
    "RandomGray": T.RandomGray(0.5),
    "GaussianBlur": T.GaussianBlur(),
    "CutOut": T.CutOut(5, 2),
    "RandomErasing": T.RandomErasing(),
    "RandomErasing noise": T.RandomErasing(fill="noise"),
}
JOINT = {
    "RandomCrop": T.RandomCrop((10, 12), 3, min_visible=0),
    "RandomAffine": T.RandomAffine(30, 0.2, (0.8, 1.2), 10, min_visible=0),
    "RandomPerspective": T.RandomPerspective(min_visible=0),
    "ElasticTransform": T.ElasticTransform(20, 3, min_visible=0),
    "RandAugment": T.RandAugment(3, 20, min_visible=0),
    "AutoAugment": T.AutoAugment("cifar10", min_visible=0),
    "RandomFlipLeftRight": T.RandomFlipLeftRight(),
    "RandomFlipTopBottom": T.RandomFlipTopBottom(),
    "RandomResizedCrop": T.RandomResizedCrop((10, 12), (0.5, 0.9), min_visible=0),
    "RandomRotation": T.Compose([T.ToTensor(), T.RandomRotation((-30, 30), min_visible=0)]),
    "RandomApply": T.RandomApply(T.RandomAffine(30, min_visible=0)),
}
MIXES = {"MixUp": T.MixUp(1.0, COUNT), "CutMix": T.CutMix(1.0, COUNT, layout="HWC")}
NAMES = [*IMAGE_ONLY, *JOINT, *(f"{name} with boxes" for name in JOINT), *MIXES]


def augment(index):
    """Return the index, and the results of all transforms on one image, one after the other."""
    image = mx.nd.array(IMAGES[index], dtype="uint8")
    parts = [np.array([index])]
    parts += [transform(image).asnumpy() for transform in (*IMAGE_ONLY.values(), *JOINT.values())]
    for transform in JOINT.values():
        moved, boxes, masks = transform(image, BOX, MASK)
        parts.append(np.concatenate([moved.asnumpy().ravel(), np.resize(boxes, 4), masks.ravel()]))
    items = [(mx.nd.array(each, dtype="uint8"), i) for i, each in enumerate(IMAGES)]
    for mix in MIXES.values():
        parts.append(np.concatenate([part.asnumpy().ravel() for part in T.MixedDataset(items, mix)[index]]))
    return np.concatenate([part.astype("float64").ravel() for part in parts])


def places():
    """Return the slice of each transform in the result of `augment`."""
    sizes = [IMAGES[0].size] * (len(IMAGE_ONLY) + len(JOINT)) + [IMAGES[0].size + 4 + MASK.size] * len(JOINT)
    ends = 1 + np.cumsum(sizes + [IMAGES[0].size + COUNT] * len(MIXES))
    return {
        name: slice(end - (ends[0] - 1) if i == 0 else ends[i - 1], end)
        for i, (name, end) in enumerate(zip(NAMES, ends, strict=True))
    }


def epochs(size=1, **options):
    """Return the samples of two epochs, by index, from all workers of a job of this size."""
    found = [[], []]
    for rank in range(size):
        shard = ShardedDataset(SimpleDataset(list(range(COUNT))).transform(augment), True, 5, rank, size)
        loader = DataLoader(shard, 4, **options)
        for rows in found:
            rows += [batch.asnumpy() for batch in loader]
    rows = [np.concatenate(each) for each in found]
    return np.stack([each[each[:, 0].argsort()] for each in rows])


@pytest.fixture(scope="module")
def runs():
    options = {"plain": {}, "threads": {"num_workers": 2, "thread_pool": True}, "processes": {"num_workers": 2}}
    return {(size, name): epochs(size, **each) for size in (1, 2, 3) for name, each in options.items()}


@pytest.mark.parametrize("name", NAMES)
def test_samples_do_not_depend_on_workers(runs, name):
    alone, place = runs[1, "plain"], places()[name]
    assert alone.shape == (2, COUNT, places()[NAMES[-1]].stop) and alone[0, :, 0].tolist() == list(range(COUNT))
    for key, found in runs.items():
        np.testing.assert_array_equal(found[:, :, place], alone[:, :, place], err_msg=str(key))
    assert (alone[0, :, place] != alone[1, :, place]).any()  # the next epoch differs
    assert sum((alone[0, i, place] != alone[1, i, place]).any() for i in range(COUNT)) >= 2


def test_batch_form_depends_on_the_batch():
    """Two workers mix other pairs than one worker with both batches: see the documentation of `mix`."""
    x, y = mx.nd.array(IMAGES.astype("float32")), mx.nd.arange(COUNT)
    mix = T.MixUp(1.0, COUNT)
    mx.random.seed(1)
    whole = mix(x, y)[1].asnumpy()
    mx.random.seed(1)
    halves = [mix(x[part], y[part])[1].asnumpy() for part in (slice(0, 5), slice(5, 10))]
    assert (np.concatenate(halves) != whole).any()
    assert not halves[0][:, 5:].any()
