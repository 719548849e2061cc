"""What is run with GluonCV, the same under MXNet and neomx. Each gives arrays by name."""

import random as python_random

import gluoncv as gcv
import numpy as np
from gluoncv import model_zoo
from gluoncv.data import batchify
from gluoncv.data.transforms import presets
from gluoncv.model_zoo.ssd.target import SSDTargetGenerator
from mxnet import autograd, gluon, nd
from weights import fill, fingerprint, random


def _classify(name, size, hybrid, dtype="float64"):
    data = nd.array(random("pictures", (4, 3, size, size)))
    label = nd.array([1, 7, 0, 3])
    net = fill(model_zoo.get_model(name, pretrained=False, classes=10), data)
    net.cast(dtype)
    data = data.astype(dtype)
    if hybrid:
        net.hybridize()
    found = {"eval": net(data)}
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-4})
    for step in range(2):
        with autograd.record():
            loss = loss_function(net(data), label)
        loss.backward()
        found[f"loss{step}"] = loss
        if step == 0:
            found["gradients"] = fingerprint(net, "grad")
        trainer.step(len(label))
    found["weights"] = fingerprint(net, "data")
    found["trained"] = net(data)
    return found


def cifar_resnet20():
    """A small residual network, as it is. Its gradients are ill-conditioned: in single precision MXNet is 1% off."""
    return _classify("cifar_resnet20_v1", 32, hybrid=False)


def resnet18():
    """The residual network of everyday use, hybridized."""
    return _classify("resnet18_v1", 64, hybrid=True, dtype="float32")


def _street():
    """Two pictures with boxes (x0, y0, x1, y1, class), as a detection dataset gives them."""
    pictures = [nd.array(random(f"street{at}", (120, 160, 3), 0, 255), dtype="uint8") for at in range(2)]
    boxes = [
        np.array([[10, 20, 90, 100, 3], [70, 30, 150, 110, 7]], "float32"),
        np.array([[30, 10, 120, 90, 14]], "float32"),
    ]
    return list(zip(pictures, boxes, strict=False))


def _ssd():
    """A single-shot detector on VGG16 with its shapes settled."""
    net = model_zoo.get_model("ssd_300_vgg16_atrous_voc", pretrained=False, pretrained_base=False)
    return fill(net, nd.zeros((1, 3, 300, 300)))


def ssd_transforms():
    """Pictures and boxes for validation and training, the latter with the anchors' targets."""
    anchors = nd.array(np.sort(random("anchors", (1, 50, 4), 0, 300), axis=2)[:, :, [0, 2, 1, 3]])
    transforms = [presets.ssd.SSDDefaultValTransform(300, 300), presets.ssd.SSDDefaultTrainTransform(300, 300, anchors)]
    np.random.seed(5)
    python_random.seed(5)
    found = {}
    for name, transform, parts in zip(("validation", "training"), transforms, (2, 3), strict=False):
        items = [transform(*item) for item in _street()]
        data, *rest = batchify.Tuple(*[batchify.Pad(pad_val=-1) for _ in range(parts)])(items)
        found[f"{name}_picture"] = data[:, :, ::37, ::37]
        found.update((f"{name}_part{at}", part) for at, part in enumerate(rest))
    return found


def ssd():
    """Detection: forward, suppression of double boxes."""
    net = _ssd()
    net.set_nms(nms_thresh=0.45, nms_topk=400, post_nms=20)
    net.hybridize()
    classes, scores, found = net(nd.array(random("street", (1, 3, 300, 300), -2, 2)))
    return {"classes": classes, "scores": scores, "found": found}


def ssd_training():
    """A step of training with the targets of a box: multi-box loss with hard negatives."""
    net = _ssd()
    data = nd.array(random("street", (1, 3, 300, 300), -2, 2))
    with autograd.train_mode():
        class_scores, _, anchors = net(data)
    targets = SSDTargetGenerator(iou_thresh=0.5, stds=(0.1, 0.1, 0.2, 0.2), negative_mining_ratio=-1)
    box, kind = nd.array([[[40, 50, 180, 220]]]), nd.array([[[7]]])
    classes, boxes, _ = targets(anchors, class_scores.transpose((0, 2, 1)), box, kind)
    loss_function = gcv.loss.SSDMultiBoxLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001, "wd": 5e-4, "momentum": 0.9})
    with autograd.record():
        class_scores, offsets, _ = net(data)
        total, class_loss, box_loss = loss_function(class_scores, offsets, classes, boxes)
        autograd.backward(total)
    found = {"anchors": anchors[:, ::500], "classes": classes, "boxes": boxes.sum(axis=1), "total": total[0]}
    found.update(class_loss=class_loss[0], box_loss=box_loss[0], gradients=fingerprint(net, "grad"))
    trainer.step(1)
    found["weights"] = fingerprint(net, "data")
    return found


PROGRAMS = [cifar_resnet20, resnet18, ssd_transforms, ssd, ssd_training]
