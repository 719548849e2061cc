"""Detect digits on canvases: find their boxes and classes with a small SSD (https://arxiv.org/abs/1512.02325).

    neomx run -n 2 examples/tasks/detection.py

Each canvas of 48x48 pixels has one to three digits in different sizes and places. The network classifies anchor boxes
at each cell of two feature maps as one of the digits or as background, and corrects their coordinates. The metric is
the mean average precision: for each digit, all answers are ranked by their score. An answer is right if its overlap
(IoU) with a box of this digit that no better answer has found is at least 0.5.

The digits are those included in neomx, or those of MNIST if `--data` is a directory with its files.
"""

import numpy as np
from made.canvases import canvases
from made.digits import digits
from made.precision import average_precision
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

BATCH, CLASSES = 20, 10
RATIOS = 0.8, 0.4  # of width to height
SIZES = (0.26, 0.32), (0.36, 0.42)  # as fractions of the canvas, for each feature map
ANCHORS = 3  # per cell: both sizes with the first ratio, the first size with the second ratio


def conv(channels):
    return nn.Conv2D(channels, 3, padding=1, activation="relu")


class SSD(gluon.HybridBlock):
    """Predicts from two feature maps, of 12x12 and 6x6 cells."""

    def __init__(self):
        super().__init__()
        self.stages, self.scores, self.offsets = (nn.HybridSequential() for _ in range(3))
        first, second = nn.HybridSequential(), nn.HybridSequential()
        first.add(conv(12), nn.MaxPool2D(), conv(24), nn.MaxPool2D(), conv(48), conv(64))
        second.add(nn.MaxPool2D(), conv(64))
        self.stages.add(first, second)
        self.scores.add(*(nn.Conv2D(ANCHORS * (CLASSES + 1), 3, padding=1) for _ in SIZES))
        self.offsets.add(*(nn.Conv2D(ANCHORS * 4, 3, padding=1) for _ in SIZES))

    def hybrid_forward(self, F, x):
        """Return anchors (1, a, 4), scores of the classes (batch, CLASSES + 1, a) and offsets (batch, a * 4)."""
        anchors, scores, offsets = [], [], []
        for stage, score, offset, sizes in zip(self.stages, self.scores, self.offsets, SIZES, strict=True):
            x = stage(x)
            anchors.append(F.contrib.MultiBoxPrior(x, sizes=sizes, ratios=RATIOS))
            scores.append(F.reshape(F.transpose(score(x), axes=(0, 2, 3, 1)), shape=(0, -1, CLASSES + 1)))
            offsets.append(F.flatten(F.transpose(offset(x), axes=(0, 2, 3, 1))))
        scores = F.transpose(F.concat(*scores, dim=1), axes=(0, 2, 1))
        return F.concat(*anchors, dim=1), scores, F.concat(*offsets, dim=1)


def loss_of(anchors, scores, offsets, boxes):
    """Return the losses of a batch: of the classes and of the boxes, per box on the canvas."""
    wanted, matched, classes = nd.contrib.MultiBoxTarget(anchors, boxes, scores, negative_mining_ratio=3)
    counted = classes >= 0  # the others are background that is easy to recognize
    entropy = -nd.pick(nd.log_softmax(scores, axis=1), classes, axis=1) * counted
    distance = nd.smooth_l1((offsets - wanted) * matched, scalar=1)
    return (entropy.sum(axis=1) + distance.sum(axis=1)) / (matched.sum(axis=1) / 4)


def answers(detected, boxes):
    """Return an array of class, score, and whether it is right (1) or not, for each detection on one canvas."""
    detected, boxes = detected[detected[:, 0] >= 0], boxes[boxes[:, 0] >= 0]
    overlap = nd.contrib.box_iou(nd.array(detected[:, 2:]), nd.array(boxes[:, 1:])).asnumpy()
    overlap *= detected[:, :1] == boxes[:, 0]
    right = np.zeros(len(detected))
    for row in range(len(detected)):  # the best scores first
        best = overlap[row].argmax()
        if overlap[row, best] >= 0.5:
            right[row], overlap[:, best] = 1, 0
    return np.column_stack([detected[:, :2], right])


def mean_average_precision(net, test):
    """Return the mean over the digits of the average precision."""
    found = []
    for at in range(0, len(test.pixels), 100):
        anchors, scores, offsets = net(nd.array(test.pixels[at : at + 100]))
        probabilities = nd.softmax(scores, axis=1)
        detected = nd.contrib.MultiBoxDetection(probabilities, offsets, anchors, threshold=0.05, nms_threshold=0.4)
        found += map(answers, detected.asnumpy(), test.boxes[at : at + 100])
    digit, score, right = np.concatenate(found).T
    count = [(test.boxes[..., 0] == number).sum() for number in range(CLASSES)]
    return np.mean([average_precision(score[digit == d], right[digit == d], count[d]) for d in range(CLASSES)])


def main():
    options = {"epochs": (8, 1), "count": (4000, 1500)}
    task = Task(__doc__, metric="mean average precision", target=0.95, short=0.15, **options)
    seed = task.options.seed
    train_x, train_y, test_x, test_y = digits(task.options.data)
    train = canvases(train_x, train_y, task.options.count, seed)
    test = canvases(test_x, test_y, task.options.count // 8, seed + 1)
    data = gluon.data.ArrayDataset(train.pixels, train.boxes)
    batches = gluon.data.DataLoader(mx.dist.shard(data, shuffle=True, seed=seed), task.part(BATCH))

    net = SSD()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3}, kvstore="dist_sync")

    for epoch in range(task.options.epochs):
        task.epoch(len(data))
        total, seen = nd.zeros(1), 0
        for x, boxes in batches:
            with autograd.record():
                loss = loss_of(*net(x), boxes)
            loss.backward()
            trainer.step(BATCH)
            total, seen = total + loss.sum(), seen + len(x)
        precision = mean_average_precision(net, test)
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), seen), precision=precision)
    task.finish(precision)


if __name__ == "__main__":
    main()
