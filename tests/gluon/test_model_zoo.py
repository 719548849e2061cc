"""The model zoo compared with recordings of MXNet 1.9.1 (tests/parity/zoo_spec.py), and weight files."""

import hashlib
import json
import lzma
import pathlib
import zipfile

import numpy as np
import pytest

import neomx as mx
from neomx.base import MXNetError
from neomx.gluon.model_zoo import model_store, vision
from parity import tolerance, zoo_spec

HERE = pathlib.Path(__file__).parents[1]
RECORDED = HERE / "parity" / "recorded"
FIXTURES = HERE / "fixtures" / "zoo"


@pytest.fixture(scope="module")
def graphs():
    return json.loads(lzma.decompress((RECORDED / "zoo_graphs.json.xz").read_bytes()))


@pytest.fixture(scope="module")
def runs():
    with np.load(RECORDED / "zoo.npz") as file:
        return dict(file)


# ---- structure ----


@pytest.mark.parametrize("name", sorted(vision.MODELS))
def test_names_shapes_and_graph_match_mxnet(name, graphs):
    expected = graphs[name]
    received = json.loads(json.dumps(zoo_spec.describe(mx, name, 299 if name == "inceptionv3" else 224)))
    for part in expected:
        assert received[part] == expected[part], part


def test_all_mxnet_networks_exist(graphs):
    assert set(vision.MODELS) == set(graphs) == set(model_store._model_sha1)


# ---- computation ----


@pytest.mark.parametrize("name", zoo_spec.NETS)
def test_prediction_matches_mxnet(name, runs):
    net, x = zoo_spec.make(mx, zoo_spec.NETS[name])
    expected = runs[name + ":predict"]
    tolerance.check(net(x).asnumpy(), expected)
    net.hybridize()
    tolerance.check(net(x).asnumpy(), expected)


@pytest.mark.parametrize("name", [name for name in zoo_spec.NETS if name not in zoo_spec.NOT_TRAINED])
def test_training_step_matches_mxnet(name, runs):
    net, x = zoo_spec.make(mx, zoo_spec.NETS[name])
    out, held = zoo_spec.train(mx, net, x)
    expected = runs[name + ":train"]
    np.testing.assert_allclose(out, expected, rtol=1e-8, atol=1e-8)
    for key, (norm, along) in zip(sorted(held), runs[name + ":held"], strict=True):
        np.testing.assert_allclose(held[key], [norm, along], rtol=1e-6, atol=2e-6 * norm + 1e-9, err_msg=key)


# ---- weight files ----


def test_mxnet_weight_file_reproduces_mxnet_outputs():
    build, shape = zoo_spec.SAVED
    net = build(vision)
    net.load_parameters(str(FIXTURES / "mobilenet0.125.params"), ctx=mx.cpu())
    expected = np.load(FIXTURES / "mobilenet0.125.npy")
    tolerance.check(net(zoo_spec.picture(mx, shape)).asnumpy(), expected)


def test_seeded_weights_equal_saved_file():
    saved = mx.nd.load(str(FIXTURES / "mobilenet0.125.params"))
    net, _ = zoo_spec.make(mx, zoo_spec.SAVED)
    params = net._collect_params_with_prefix()
    assert set(params) == set(saved)
    for key, array in saved.items():
        np.testing.assert_array_equal(params[key].data().asnumpy(), array.asnumpy(), err_msg=key)


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Publish the weights of a small network as "mobilenet0.25" in a local store. Return (file contents, archive)."""
    content = (FIXTURES / "mobilenet0.125.params").read_bytes()
    monkeypatch.setitem(model_store._model_sha1, "mobilenet0.25", hashlib.sha1(content).hexdigest())
    store = tmp_path / "store"
    folder = store / "gluon" / "models"
    folder.mkdir(parents=True)
    monkeypatch.setenv("MXNET_GLUON_REPO", store.as_uri())
    name = f"mobilenet0.25-{model_store.short_hash('mobilenet0.25')}"
    with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
        archive.writestr(f"{name}.params", content)
    return content, folder / f"{name}.zip"


def test_published_weights_are_downloaded_verified_and_kept(published, tmp_path):
    content, archive = published
    path = pathlib.Path(model_store.get_model_file("mobilenet0.25", root=str(tmp_path / "models")))
    assert path.name == f"mobilenet0.25-{hashlib.sha1(content).hexdigest()[:8]}.params"
    assert path.read_bytes() == content
    archive.unlink()
    assert model_store.get_model_file("mobilenet0.25", root=str(tmp_path / "models")) == str(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_damaged_file_is_downloaded_again(published, tmp_path):
    content, archive = published
    path = tmp_path / archive.with_suffix(".params").name
    path.write_bytes(content[:-1])
    assert model_store.get_model_file("mobilenet0.25", root=str(tmp_path)) == str(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("what", ["other weights", "no archive", "nothing"])
def test_error_without_weights_names_file_and_url(what, published, tmp_path):
    _, archive = published
    if what == "other weights":
        with zipfile.ZipFile(archive, "w") as zipped:
            zipped.writestr(archive.with_suffix(".params").name, b"other")
    elif what == "no archive":
        archive.write_bytes(b"sorry, moved")
    else:
        archive.unlink()
    path = tmp_path / "models" / archive.with_suffix(".params").name
    with pytest.raises(MXNetError) as error:
        vision.get_model("mobilenet0.25", pretrained=True, root=str(path.parent))
    assert str(path) in str(error.value) and archive.as_uri() in str(error.value)
    assert list(path.parent.iterdir()) == []


def test_pretrained_reads_the_published_file(tmp_path, monkeypatch):
    net, x = zoo_spec.make(mx, zoo_spec.NETS["mobilenet"])
    net.save_parameters(str(tmp_path / "saved"))
    sha1 = hashlib.sha1((tmp_path / "saved").read_bytes()).hexdigest()
    monkeypatch.setitem(model_store._model_sha1, "mobilenet0.25", sha1)
    (tmp_path / "saved").rename(tmp_path / f"mobilenet0.25-{sha1[:8]}.params")
    again = vision.get_model(
        "MobileNet0.25", pretrained=True, root=str(tmp_path), ctx=mx.cpu(1), classes=zoo_spec.CLASSES
    )
    assert again.output.bias.list_ctx() == [mx.cpu(1)]
    np.testing.assert_array_equal(again(x.as_in_context(mx.cpu(1))).asnumpy(), net(x).asnumpy())


@pytest.mark.parametrize("name", sorted(vision.MODELS))
def test_every_network_requests_its_own_weights(name, monkeypatch):
    asked = []
    monkeypatch.setattr("neomx.gluon.model_zoo.vision.parts.get_model_file", lambda n, root: asked.append(n) or n)
    monkeypatch.setattr(mx.gluon.Block, "load_parameters", lambda *args, **kwargs: None)
    vision.get_model(name, pretrained=True)
    assert asked == [name]


def test_purge_deletes_only_weights(tmp_path):
    for name in ("a.params", "b.params", "notes.txt"):
        (tmp_path / name).write_text("")
    model_store.purge(str(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


# ---- arguments ----


def test_arguments():
    net = vision.resnet18_v1(classes=7, thumbnail=True, prefix="ab_")
    assert net.output.weight.shape == (7, 512)
    assert next(iter(net.collect_params())) == "ab_conv0_weight"
    assert isinstance(net.features[1][0], vision.BasicBlockV1)
    assert vision.get_vgg(13, batch_norm=True).features[1].name.endswith("batchnorm0")
    assert vision.get_mobilenet(0.3).features[0].weight.shape == (9, 0, 3, 3)
    assert vision.get_mobilenet_v2(2.0).features[20].weight.shape[0] == 2560
    assert "Dropout(p = 0.3" in repr(vision.densenet121(dropout=0.3))


def test_two_networks_share_parameters():
    one = vision.squeezenet1_1(classes=2)
    two = vision.squeezenet1_1(classes=2, prefix=one.prefix, params=one.collect_params())
    assert one.features[0].weight is two.features[0].weight


@pytest.mark.parametrize(
    "wrong, kind, words",
    [
        (lambda: vision.get_model("resnet18_v3"), ValueError, "Did you mean resnet18_v2"),
        (lambda: vision.get_model("resnet18_v1", bogus=1), TypeError, "bogus"),
        (lambda: vision.get_resnet(1, 19), AssertionError, "18, 34, 50, 101, 152"),
        (lambda: vision.get_resnet(3, 18), AssertionError, "1 and 2"),
        (lambda: vision.get_vgg(12), KeyError, "11, 13, 16, 19"),
        (lambda: vision.densenet.get_densenet(122), KeyError, "121, 161, 169, 201"),
        (lambda: vision.SqueezeNet("1.2"), AssertionError, "1.0 or 1.1"),
        (lambda: vision.ResNetV1(vision.BasicBlockV1, [2, 2], [64, 64]), AssertionError, "3 channel counts"),
        (lambda: vision.VGG([1, 1], [64]), AssertionError, "2 stages"),
        (lambda: vision.get_mobilenet(0.3, pretrained=True), ValueError, "mobilenet0.30 is not available"),
        (lambda: model_store.get_model_file("nope"), ValueError, "nope is not available"),
    ],
)
def test_errors_list_available_options(wrong, kind, words):
    with pytest.raises(kind, match=words):
        wrong()
