"""Programs that use GluonCV, the same under MXNet and neomx. Each returns arrays by name."""

import os
import random as python_random
import tempfile

import gluoncv as gcv
import mxnet as mx
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
    """A small residual network, not hybridized. Its gradients are ill-conditioned: MXNet's are 1% off in float32."""
    return _classify("cifar_resnet20_v1", 32, hybrid=False)


def resnet18():
    """ResNet-18, hybridized."""
    return _classify("resnet18_v1", 64, hybrid=True, dtype="float32")


def _street():
    """Return two images with boxes (x0, y0, x1, y1, class), in the format of a detection dataset."""
    pictures = [nd.array(random(f"street{at}", (120, 160, 3), 0, 255), dtype="uint8") for at in range(2)]
    boxes = [
        np.array([[10, 20, 90, 100, 3], [70, 30, 150, 110, 7]], "float32"),
        np.array([[30, 10, 120, 90, 14]], "float32"),
    ]
    return list(zip(pictures, boxes, strict=False))


def _ssd():
    """Return a single-shot detector on VGG16 with known shapes."""
    net = model_zoo.get_model("ssd_300_vgg16_atrous_voc", pretrained=False, pretrained_base=False)
    return fill(net, nd.zeros((1, 3, 300, 300)))


def ssd_transforms():
    """Images and boxes for validation and training, the latter with the targets of the anchors."""
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
    """Detection: forward and non-maximum suppression."""
    net = _ssd()
    net.set_nms(nms_thresh=0.45, nms_topk=400, post_nms=20)
    net.hybridize()
    classes, scores, found = net(nd.array(random("street", (1, 3, 300, 300), -2, 2)))
    return {"classes": classes, "scores": scores, "found": found}


def ssd_training():
    """One training step with the targets of a box: multi-box loss with hard negatives."""
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


class Street(gluon.data.Dataset):
    """Six images with boxes."""

    def __len__(self):
        return 6

    def __getitem__(self, at):
        boxes = np.array([[5, 6, 40, 50, 1], [20, 10, 70, 55, 2]], "float32")
        return nd.array(random(f"street{at}", (60, 80, 3), 0, 255), dtype="uint8"), boxes[: 1 + at % 2]


def loader_with_changing_transforms():
    """GluonCV's own loader: worker processes, and another image size in each batch."""
    np.random.seed(0)
    batch = batchify.Tuple(batchify.Stack(), batchify.Pad(pad_val=-1))
    transforms = [presets.yolo.YOLO3DefaultValTransform(size, size) for size in (64, 96)]
    loader = gcv.data.RandomTransformDataLoader(
        transforms, Street(), batch_size=2, shuffle=False, batchify_fn=batch, num_workers=1, last_batch="discard"
    )
    found = {}
    for at, (pictures, boxes) in enumerate(loader):
        found[f"shape{at}"], found[f"boxes{at}"] = pictures.shape, boxes
    return found


def yolo_training():
    """The targets of YOLO's transform, its four losses, and one training step."""
    net = model_zoo.get_model("yolo3_mobilenet0.25_voc", pretrained=False, pretrained_base=False)
    data = nd.array(random("pictures", (2, 3, 128, 128)))
    fill(net, data)
    np.random.seed(5)
    python_random.seed(5)
    transform = presets.yolo.YOLO3DefaultTrainTransform(128, 128, net=net)
    items = [transform(*Street()[at]) for at in range(2)]
    batch = batchify.Tuple(*[batchify.Stack() for _ in range(6)], batchify.Pad(pad_val=-1))(items)
    _, *targets, boxes = [part.as_in_context(mx.cpu()) for part in batch]
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001})
    with autograd.record():
        losses = net(data, boxes, *targets)
        total = sum(losses)
    total.backward()
    trainer.step(2)
    found = {f"loss{at}": loss for at, loss in enumerate(losses)}
    found.update((f"target{at}", target.sum(axis=1)) for at, target in enumerate(targets))
    return {**found, "boxes": boxes}


def exported():
    """A network and its preprocessing, exported as a symbol and loaded again."""
    net = fill(model_zoo.get_model("cifar_resnet20_v1", pretrained=False, classes=10), nd.zeros((1, 3, 32, 32)))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net")
        gcv.utils.export_block(path, net, data_shape=(32, 32, 3), preprocess=True, layout="HWC")
        again = gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0000.params")
        scores = again(nd.array(random("picture", (1, 32, 32, 3), 0, 255)))
    return {"scores": scores}


def records():
    """Detection data from a record file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "street")
        file = mx.recordio.MXIndexedRecordIO(path + ".idx", path + ".rec", "w")
        for at in range(3):
            picture, boxes = Street()[at]
            parts = boxes[:, [4, 0, 1, 2, 3]] / np.array([1, 80, 60, 80, 60])
            header = mx.recordio.IRHeader(0, np.concatenate([[4, 5, 80, 60], parts.ravel()]).astype("float32"), at, 0)
            file.write_idx(at, mx.recordio.pack_img(header, picture.asnumpy(), quality=9, img_fmt=".png"))
        file.close()
        items = [item for item in gcv.data.RecordFileDetection(path + ".rec")]
    return {f"boxes{at}": boxes for at, (_, boxes) in enumerate(items)}


def measures():
    """Detection and segmentation metrics, losses, and learning rate schedules."""
    metric = gcv.utils.metrics.voc_detection.VOC07MApMetric(iou_thresh=0.5, class_names=["a", "b"])
    boxes, classes, scores = (
        nd.array([[[0, 0, 10, 10], [20, 20, 40, 40]]]),
        nd.array([[[0], [1]]]),
        nd.array([[[0.9], [0.8]]]),
    )
    metric.update(boxes, classes, scores, boxes + 1, classes)
    segments = gcv.utils.metrics.segmentation.SegmentationMetric(3)
    segments.update(nd.array([[[0, 1], [2, 2]]]), nd.array(random("segments", (1, 3, 2, 2))))
    steps = [
        ("linear", {"base_lr": 0, "target_lr": 0.1}),
        ("poly", {"base_lr": 0.1, "power": 2}),
        ("cosine", {"base_lr": 0.1}),
    ]
    schedule = gcv.utils.LRSequential(
        [gcv.utils.LRScheduler(mode, nepochs=1, iters_per_epoch=10, **options) for mode, options in steps]
    )
    focal = gcv.loss.FocalLoss(num_class=3)
    return {
        "precision": metric.get()[1],
        "segments": segments.get(),
        "rates": [schedule(step) for step in range(30)],
        "focal": focal(nd.array(random("scores", (2, 5, 3))), nd.array([[0, 1, 2, -1, 0], [1, 1, 2, 0, -1]])),
    }


ZOO = {
    "resnet18_v2": 64,
    "resnest14": 64,
    "se_resnet18_v1": 64,
    "shufflenet_v2": 64,
    "squeezenet1.0": 224,
    "googlenet": 224,
    "mobilenetv3_small": 64,
    "cifar_residualattentionnet56": 32,
    "dla34": 64,
    "hrnet_w18_small_v1_c": 64,
    "yolo3_mobilenet0.25_voc": 96,
    "center_net_resnet18_v1b_dcnv2_voc": 64,
    "simple_pose_resnet18_v1b": 64,
    "fcn_resnet50_voc": 64,
}


def zoo():
    """The outputs of networks of other families for one image."""
    found = {}
    for name, size in ZOO.items():
        options = {"crop_size": size} if name.startswith("fcn") else {}
        if name.startswith(("yolo3", "center_net", "simple_pose", "fcn")):
            options["pretrained_base"] = False
        data = nd.array(random("picture", (1, 3, size, size)))
        outputs = fill(model_zoo.get_model(name, pretrained=False, **options), data)(data)
        for at, output in enumerate(outputs if isinstance(outputs, (list, tuple)) else [outputs]):
            found[f"{name}_{at}"] = output.reshape((-1,))[:200]
    return found


PROGRAMS = [
    cifar_resnet20,
    resnet18,
    ssd_transforms,
    ssd,
    ssd_training,
    loader_with_changing_transforms,
    yolo_training,
    exported,
    records,
    measures,
    zoo,
]
