"""Vision datasets from files, their errors, image decoding, and random transforms."""

import gzip
import io
import os
import tarfile
import threading

import numpy as np
import pytest

import neomx as mx
from neomx.formats import picture
from neomx.gluon import data
from neomx.gluon.data.vision import transforms as T
from neomx.sample import digits

MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Downloads go to a port without a server."""
    monkeypatch.setenv("MXNET_GLUON_REPO", "http://127.0.0.1:9/")


def idx_bytes(array):
    return b"\0\0\x08" + bytes([array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def smooth(h=20, w=30):
    y, x = np.mgrid[:h, :w]
    return np.stack([x * 8, y * 12, (x + y) * 5], 2).astype("uint8")


# ---- MNIST and CIFAR ----


@pytest.mark.parametrize(("train", "count"), [(True, 5000), (False, 1000)])
def test_mnist_sample(train, count):
    dataset = data.vision.MNIST(train=train, sample=True)
    image, label = dataset[3]
    assert len(dataset) == count
    assert isinstance(image, mx.nd.NDArray) and image.shape == (28, 28, 1) and image.dtype is np.uint8
    assert isinstance(label, np.int32) and label == digits()[1 if train else 3][3]
    assert (image.asnumpy()[:, :, 0] == digits()[0 if train else 2][3]).all()


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_reads_standard_files(tmp_path, packed):
    rng = np.random.RandomState(0)
    arrays = [rng.randint(0, 256, s).astype("uint8") for s in ((7, 28, 28), (7,), (3, 28, 28), (3,))]
    for name, array in zip(MNIST_FILES, arrays, strict=True):
        file = tmp_path / (name + ".gz" * packed)
        file.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    for cls in (data.vision.MNIST, data.vision.FashionMNIST):
        train, test = cls(str(tmp_path)), cls(str(tmp_path), train=False, transform=lambda x, y: (x.shape, int(y)))
        assert len(train) == 7 and (train[2][0].asnumpy()[:, :, 0] == arrays[0][2]).all()
        assert test[1] == ((28, 28, 1), arrays[3][1])
        assert train[1:3][0].shape == (2, 28, 28, 1)


def test_error_without_files_or_network_says_what_to_do(tmp_path):
    root = tmp_path / "new"
    with pytest.raises(mx.MXNetError) as caught:
        data.vision.MNIST(str(root))
    message = str(caught.value)
    assert "train-images-idx3-ubyte.gz" in message and str(root) in message
    assert "http://127.0.0.1:9/gluon/dataset/mnist/train-images-idx3-ubyte.gz" in message and "manually" in message
    with pytest.raises(mx.MXNetError, match=r"cifar-100-binary.tar.gz.*manually"):
        data.vision.CIFAR100(str(root))
    assert list(root.iterdir()) == []


def test_damaged_mnist_file(tmp_path):
    for name, shape in zip(MNIST_FILES, ((7, 28, 28), (6,)), strict=False):
        (tmp_path / name).write_bytes(idx_bytes(np.zeros(shape, "uint8")))
    with pytest.raises(mx.MXNetError, match=r"\(7, 28, 28\) and labels of shape \(6,\)"):
        data.vision.MNIST(str(tmp_path))
    (tmp_path / MNIST_FILES[0]).write_bytes(b"\0\0\x08\x03")
    with pytest.raises(mx.MXNetError, match="truncated or damaged"):
        data.vision.MNIST(str(tmp_path))


def records(labels, seed=0):
    return np.random.RandomState(seed).randint(0, 10, (4, labels + 3072)).astype("uint8")


def test_cifar_from_files_and_from_the_archive(tmp_path):
    for i in range(1, 6):
        records(1, i).tofile(tmp_path / f"data_batch_{i}.bin")
    train = data.vision.CIFAR10(str(tmp_path))
    image, label = train[6]
    raw = records(1, 2)[2]
    assert len(train) == 20 and label == raw[0] and isinstance(label, np.int32)
    assert (image.asnumpy() == raw[1:].reshape(3, 32, 32).transpose(1, 2, 0)).all()

    root = tmp_path / "archive"
    root.mkdir()
    with tarfile.open(root / "cifar-100-binary.tar.gz", "w:gz") as tar:
        for name in ("train.bin", "test.bin", "../evil.bin"):
            info = tarfile.TarInfo("cifar-100-binary/" + name)
            info.size = 4 * 3074
            tar.addfile(info, io.BytesIO(records(2).tobytes()))
    # The SHA-1 of this archive differs from the published one, so the file must be rejected.
    with pytest.raises(mx.MXNetError, match="manually"):
        data.vision.CIFAR100(str(root))
    fine = data.vision.CIFAR100.__new__(data.vision.CIFAR100)
    fine._root = str(root)
    fine._unpack(str(root / "cifar-100-binary.tar.gz"))
    assert sorted(os.listdir(root)) == ["cifar-100-binary.tar.gz", "test.bin", "train.bin"]
    assert data.vision.CIFAR100(str(root), fine_label=True)[1][1] == records(2)[1, 1]
    assert data.vision.CIFAR100(str(root), train=False)[1][1] == records(2)[1, 0]


def test_damaged_cifar_file(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(mx.MXNetError, match="3 bytes, expected a multiple of 3073"):
        data.vision.CIFAR10(str(tmp_path), train=False)


# ---- images in files ----


def test_png_is_exact_and_jpeg_close(tmp_path):
    pixels = smooth()
    png, jpeg = (picture.encode(pixels, quality, kind) for quality, kind in ((3, ".png"), (95, ".jpg")))
    (tmp_path / "a.png").write_bytes(png)
    assert (mx.image.imread(tmp_path / "a.png").asnumpy() == pixels).all()
    assert (mx.image.imdecode(png, to_rgb=False).asnumpy() == pixels[:, :, ::-1]).all()
    assert (mx.image.imdecode(np.frombuffer(png, "uint8")).asnumpy() == pixels).all()
    assert np.abs(mx.image.imdecode(jpeg).asnumpy().astype(int) - pixels).mean() < 3
    grey = mx.image.imdecode(png, flag=0)
    assert grey.shape == (20, 30, 1)
    assert np.abs(grey.asnumpy()[:, :, 0] - pixels @ [0.299, 0.587, 0.114]).max() <= 1
    out = mx.nd.zeros((20, 30, 3), dtype="uint8")
    assert mx.image.imdecode(png, out=out) is out and (out.asnumpy() == pixels).all()


def test_16_bit_image_keeps_its_upper_bits():
    encoded = picture.encode((np.arange(12).reshape(3, 4) * 5000).astype("uint16"), 3, ".png")
    pixels = mx.image.imdecode(encoded, flag=0).asnumpy()[:, :, 0]
    assert (pixels == np.arange(12).reshape(3, 4) * 5000 // 256).all()


@pytest.mark.parametrize("cut", [0.5, 0.9])
@pytest.mark.parametrize("kind", [".png", ".jpg"])
def test_truncated_image(tmp_path, kind, cut):
    encoded = picture.encode(np.random.RandomState(0).randint(0, 256, (20, 30, 3)).astype("uint8"), 9, kind)
    (tmp_path / "a").write_bytes(encoded[: int(len(encoded) * cut)])
    with pytest.raises(mx.MXNetError, match="/a: cannot decode"):
        mx.image.imread(tmp_path / "a")


def test_error_without_opencv_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    monkeypatch.setattr(picture, "_thread", threading.local())
    with pytest.raises(mx.MXNetError, match=r'pip install "neomx\[image\]"'):
        mx.image.imdecode(b"x")


def test_images_in_records(tmp_path):
    recordio = mx.recordio
    writer = recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    for i in range(3):
        header = recordio.IRHeader(0, i if i < 2 else [5, 6], i, 0)
        writer.write_idx(i, recordio.pack_img(header, smooth()[:, :, ::-1], quality=5, img_fmt=".png"))
    writer.close()
    dataset = data.vision.ImageRecordDataset(str(tmp_path / "a.rec"))
    image, label = dataset[1]
    assert len(dataset) == 3 and label == 1.0 and (image.asnumpy() == smooth()).all()
    assert dataset[2][1].tolist() == [5, 6]
    grey = data.vision.ImageRecordDataset(str(tmp_path / "a.rec"), 0, lambda x, y: (x.shape, y + 1))
    assert grey[0] == ((20, 30, 1), 1.0)
    header, pixels = recordio.unpack_img(dataset._record.read_idx(1))
    assert header.id == 1 and (pixels == smooth()[:, :, ::-1]).all()
    assert recordio.unpack_img(dataset._record.read_idx(1), iscolor=0)[1].shape == (20, 30)
    loaded = [x.shape for x, y in data.DataLoader(dataset.take(2), 2, num_workers=2)]
    assert loaded == [(2, 20, 30, 3)]


def test_pack_img_errors():
    header = mx.recordio.IRHeader(0, 1, 0, 0)
    with pytest.raises(mx.MXNetError, match=".foo"):
        mx.recordio.pack_img(header, smooth(), img_fmt=".foo")
    with pytest.raises(mx.MXNetError, match="float64"):
        mx.recordio.pack_img(header, np.zeros((2, 2)))


def test_images_in_folders(tmp_path):
    for folder in ("cat", "ant"):
        (tmp_path / folder).mkdir()
        for name in ("2.PNG", "1.jpg"):
            encoded = picture.encode(smooth(), 5, ".png")
            (tmp_path / folder / name).write_bytes(encoded)
    dataset = data.vision.ImageFolderDataset(str(tmp_path))
    assert dataset.synsets == ["ant", "cat"]
    assert [(os.path.relpath(path, tmp_path), label) for path, label in dataset.items] == [
        ("ant/1.jpg", 0),
        ("ant/2.PNG", 0),
        ("cat/1.jpg", 1),
        ("cat/2.PNG", 1),
    ]
    image, label = dataset[2]
    assert len(dataset) == 4 and label == 1 and (image.asnumpy() == smooth()).all()
    assert data.vision.ImageFolderDataset(str(tmp_path), 0, lambda x, y: x.shape)[0] == (20, 30, 1)
    (tmp_path / "ant" / "notes.txt").write_text("x")
    (tmp_path / "loose.png").write_text("x")
    with pytest.warns(UserWarning, match="Ignoring") as warned:
        assert len(data.vision.ImageFolderDataset(str(tmp_path))) == 4
    assert len(warned) == 2


# ---- random transforms ----


@pytest.fixture
def image():
    return mx.nd.array(smooth() // 2 + 20, dtype="uint8").astype("float32")


@pytest.mark.parametrize(("cls", "axis"), [(T.RandomFlipLeftRight, 1), (T.RandomFlipTopBottom, 0)])
def test_flips_with_probability_half(image, cls, axis):
    flip, plain = cls(), image.asnumpy()
    kinds = [1 if (out == plain).all() else 2 if (out == np.flip(plain, axis)).all() else 0 for out in
             (flip(image).asnumpy() for _ in range(200))]  # fmt: skip
    assert kinds.count(0) == 0 and 60 < kinds.count(1) < 140


def test_brightness_is_a_factor_within_its_range(image):
    factors = [(T.RandomBrightness(0.3)(image) / image).asnumpy() for _ in range(100)]
    assert all(np.allclose(f, f[0, 0, 0], rtol=1e-5) for f in factors)
    means = [f.mean() for f in factors]
    assert 0.7 <= min(means) < 0.78 and 1.22 < max(means) <= 1.3
    assert T.RandomBrightness(2.0)._args[0] == 0


def test_contrast_keeps_mean_gray_and_hue_keeps_lightness(image):
    grey = np.array([0.299, 0.587, 0.114])
    for _ in range(10):
        out = T.RandomContrast(0.5)(image).asnumpy()
        assert np.allclose((out @ grey).mean(), (image.asnumpy() @ grey).mean(), rtol=1e-4)
        hued = T.RandomHue(0.4)(image).asnumpy()
        lightness = [x.max(2) + x.min(2) for x in (hued, image.asnumpy())]
        assert np.allclose(*lightness, rtol=1e-3, atol=0.1)


@pytest.mark.parametrize(
    "transform",
    [
        T.RandomSaturation(0.4),
        T.RandomColorJitter(0.3, 0.3, 0.3, 0.1),
        T.RandomLighting(0.2),
        T.Compose([T.RandomBrightness(0.2), T.RandomLighting(0.1), T.ToTensor()]),
        T.Compose([T.RandomColorJitter(0.1), T.RandomFlipLeftRight()]),
    ],
    ids=["saturation", "jitter", "lighting", "compose", "hybrid"],
)
def test_random_colors_vary_and_depend_on_the_seed(image, transform):
    def run():
        mx.random.seed(7)
        return [transform(image).asnumpy() for _ in range(4)]

    first, second = run(), run()
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert any((first[0] != other).any() for other in first[1:])
    assert all(np.isfinite(x).all() for x in first)


def test_transforms_in_worker_processes(image):
    dataset = data.SimpleDataset([image] * 4).transform(T.Compose([T.RandomBrightness(0.5), T.ToTensor()]))
    mx.random.seed(1)
    loader = data.DataLoader(dataset, 1, num_workers=2)
    first = [batch.mean().asscalar() for batch in loader]
    mx.random.seed(1)
    assert [batch.mean().asscalar() for batch in data.DataLoader(dataset, 1, num_workers=1)] == first
    assert len(set(first)) == 4
