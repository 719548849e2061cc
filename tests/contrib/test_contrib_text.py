"""mx.contrib.text and WikiText beyond the recordings: existing, missing and invalid files."""

import collections
import zipfile

import pytest

import neomx as mx
from neomx.base import MXNetError


def test_published_vectors_are_read_from_their_folder(tmp_path):
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "glove.6B.50d.txt").write_text("a 1 2\nb 3 4\n")
    words = mx.contrib.text.vocab.Vocabulary(collections.Counter(["b"]))
    found = mx.contrib.text.embedding.create(
        "glove", pretrained_file_name="glove.6B.50d.txt", embedding_root=str(tmp_path), vocabulary=words
    )
    assert found.idx_to_token == ["<unk>", "b"] and found.idx_to_vec.asnumpy().tolist() == [[0, 0], [3, 4]]


def test_error_without_network_names_the_expected_path(tmp_path, monkeypatch):
    monkeypatch.setenv("MXNET_GLUON_REPO", f"file://{tmp_path}/nothing")
    place = tmp_path / "fasttext"
    with pytest.raises(MXNetError, match=f"wiki.simple.vec is not in {place}.*copy wiki.simple.vec or wiki.simple.zip"):
        mx.contrib.text.embedding.create("fasttext", embedding_root=str(tmp_path))
    with pytest.raises(MXNetError, match=f"wiki.train.tokens is not in {tmp_path}"):
        mx.gluon.contrib.data.text.WikiText2(root=str(tmp_path))


def test_archive_is_extracted(tmp_path, monkeypatch):
    text = mx.gluon.contrib.data.text
    archive, root = tmp_path / "small.zip", tmp_path / "root"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("wikitext-2/wiki.train.tokens", " a b c \n d e \n")
    store = tmp_path / "gluon" / "dataset" / "wikitext-2"
    store.mkdir(parents=True)
    archive.rename(store / "wikitext-2-v1.zip")
    monkeypatch.setenv("MXNET_GLUON_REPO", f"file://{tmp_path}")
    monkeypatch.setattr(text.WikiText2, "_archive_file", ("wikitext-2-v1.zip", None))
    words = text.WikiText2(root=str(root), seq_len=3)
    assert words.vocabulary.to_tokens(words[0][1].asnumpy().tolist()) == ["b", "c", "<eos>"]
    with pytest.raises(MXNetError, match="wikitext-2-v1.zip does not contain wiki.test.tokens"):
        text.WikiText2(root=str(root), segment="test")
    with pytest.raises(MXNetError, match="words, but one sample needs"):
        text.WikiText2(root=str(root))


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        ("", ValueError, "no line with a token and a vector"),
        ("a 1 2\nb 1\nc 1 2 3\n", AssertionError, "line 3 of .*token c has 3 values, expected 2"),
        ("a 1 2\nb 1 x\n", ValueError, "line 2 of .*token b: could not convert"),
    ],
)
@pytest.mark.filterwarnings("ignore:At line 2")
def test_invalid_embedding_file_is_an_error(tmp_path, content, kind, message):
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(kind, match=message):
        mx.contrib.text.embedding.CustomEmbedding(str(path))
