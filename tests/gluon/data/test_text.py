"""gluon.data.text: vocabularies, sub-words, augmentation, masking, packing and batches."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neomx as mx
from neomx.base import MXNetError
from neomx.gluon.data import text

TEXTS = ["the quick brown fox jumps over the lazy dog", "the lazy foxes were quickly jumping, over and over"] * 20
TOKENS = st.lists(st.integers(0, 99), max_size=30)


@pytest.fixture(scope="module", params=["bpe", "wordpiece"])
def pieces(request):
    return text.SubwordTokenizer.train(TEXTS, 290 if request.param == "bpe" else 80, request.param)


# ---- vocabularies ----


def test_vocabulary_encodes_and_decodes():
    words = text.Vocabulary.of([["b", "a", "b"], ["c"]], reserved_tokens=["<pad>"], min_freq=1)
    assert words.idx_to_token == ["<unk>", "<pad>", "b", "a", "c"]
    assert words.encode("b x c") == words.encode(["b", "x", "c"]) == [2, 0, 4]
    assert words.decode(np.array([2, 0, 4])) == "b <unk> c"
    assert words.special_indices == [0, 1] and words.starts_word.all()
    assert isinstance(words, mx.contrib.text.vocab.Vocabulary)
    with pytest.raises(TypeError, match="list of words"):
        text.Vocabulary.of(["one text"])


@pytest.mark.parametrize("reserved", [None, ["<pad>", "é"]])
def test_vocabulary_file_is_json_with_the_same_indices(tmp_path, reserved):
    words = text.Vocabulary.of([["ö", "b", "b", '"']], unknown_token="?", reserved_tokens=reserved)
    words.save(tmp_path / "words.json")
    assert json.loads((tmp_path / "words.json").read_text())["unknown_token"] == "?"
    found = text.Vocabulary.load(tmp_path / "words.json")
    assert (found.idx_to_token, found.token_to_idx) == (words.idx_to_token, words.token_to_idx)
    assert (found.unknown_token, found.reserved_tokens) == ("?", reserved)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"unknown_token": "u", "reserved_tokens": null, "tokens": [1]}',
        '{"unknown_token": "u", "reserved_tokens": ["u"], "tokens": []}',
        '{"unknown_token": "u", "reserved_tokens": 3, "tokens": []}',
        '{"unknown_token": "u", "reserved_tokens": null, "tokens": ["a", "a"]}',
        "[" * 100000,
    ],
)
def test_invalid_vocabulary_files_are_reported(tmp_path, content):
    (tmp_path / "words.json").write_text(content)
    with pytest.raises(MXNetError, match="words.json"):
        text.Vocabulary.load(tmp_path / "words.json")


def test_vocabulary_of_other_objects_is_not_saved(tmp_path):
    with pytest.raises(MXNetError, match="the token 3"):
        text.Vocabulary.of([[3]]).save(tmp_path / "words.json")


# ---- sub-words ----


def test_subwords_reproduce_the_text(pieces):
    for sentence in ("the brown dog", "over the foxes", "quick"):
        assert pieces.decode(pieces.encode(sentence)) == sentence
    assert pieces.to_tokens(pieces.encode("foxes")) == pieces.tokens("foxes")
    assert pieces.to_indices(pieces.tokens("foxes")) == pieces.encode("foxes")
    assert len(pieces) == len(pieces.idx_to_token) and pieces.idx_to_token[:2] == ["[PAD]", "[UNK]"]
    assert pieces.special_indices == [0, 1, 2, 3, 4]
    assert pieces.decode([2, *pieces.encode("fox"), 3]) == "fox"
    assert pieces.decode([2, *pieces.encode("fox")], skip_special=False).startswith("[CLS]")


def test_frequent_words_are_single_tokens(pieces):
    assert len(pieces.encode("the")) == 1 and len(pieces.encode("jumping")) > 1


def test_starts_of_words(pieces):
    tokens = pieces.encode("the jumping dogs")
    assert pieces.starts_word[tokens].sum() == 3 and pieces.starts_word[tokens[:2]].all()
    assert pieces.starts_word[:5].all()  # special tokens


def test_unknown_characters(pieces):
    wordpiece = pieces.starts_word.sum() > len(pieces) / 3
    assert pieces.decode(pieces.encode("dog ☃"), skip_special=False) == ("dog [UNK]" if wordpiece else "dog ☃")


def test_file_of_subwords(pieces, tmp_path):
    pieces.save(tmp_path / "pieces.json")
    found = text.SubwordTokenizer.load(tmp_path / "pieces.json")
    assert found.idx_to_token == pieces.idx_to_token and found.special_indices == pieces.special_indices
    assert found.encode(TEXTS[1]) == pieces.encode(TEXTS[1])
    assert (found.starts_word == pieces.starts_word).all()
    (tmp_path / "pieces.json").write_text("{}")
    with pytest.raises(MXNetError, match="pieces.json is not a JSON file of the library"):
        text.SubwordTokenizer.load(tmp_path / "pieces.json")


def test_lowercase_and_special_tokens():
    for model in ("bpe", "wordpiece"):
        pieces = text.SubwordTokenizer.train(TEXTS, 300, model, ["<pad>", "<unk>"], "<unk>", lowercase=True)
        assert pieces.encode("THE dog") == pieces.encode("the dog")
        assert pieces.encode("<pad> dog")[0] == pieces.to_indices("<pad>") == 0


def test_invalid_training_raises(pieces):
    train = text.SubwordTokenizer.train
    with pytest.raises(ValueError, match="'bpe' or 'wordpiece', received 'unigram'"):
        train(TEXTS, model="unigram")
    with pytest.raises(TypeError, match="splitlines"):
        train("one text")
    with pytest.raises(ValueError, match="at least 261"):
        train(TEXTS, 100)
    with pytest.raises(ValueError, match="vocab_size must be at least"):
        train(TEXTS, 10, "wordpiece")
    with pytest.raises(ValueError, match="must contain the unknown_token '\\[UNK\\]'"):
        train(TEXTS, 100, "wordpiece", ["[PAD]"])
    with pytest.raises(ValueError, match="not one of the"):
        pieces.to_indices("nowhere")
    with pytest.raises(ValueError, match="the index 1000 is invalid"):
        pieces.to_tokens([1000])


# ---- augmentation ----


@settings(deadline=None)
@given(TOKENS, st.floats(0, 1))
def test_dropout_keeps_order_and_at_least_one_token(tokens, p):
    found = text.TokenDropout(p)(tokens)
    rest = iter(tokens)
    assert all(token in rest for token in found)  # a subsequence
    assert bool(found) == bool(tokens)


def test_dropout_rate():
    assert len(text.TokenDropout(0)(range(50))) == 50 and len(text.TokenDropout(1)(range(50))) == 1
    kept = len(text.TokenDropout(0.3)(range(10000)))
    assert abs(kept - 7000) < 250  # 5.5 standard deviations


@settings(deadline=None)
@given(TOKENS, st.floats(0, 1))
def test_swap_permutes(tokens, p):
    found = text.TokenSwap(p)(tokens)
    assert sorted(found) == sorted(tokens)


def test_swap_rate():
    assert text.TokenSwap(0)(range(50)) == list(range(50))
    moved = sum(at != token for at, token in enumerate(text.TokenSwap(0.1)(range(10000))))
    assert 1600 < moved < 2000  # a swap moves two tokens, some of them twice


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 5))
def test_local_shuffle_moves_by_at_most_the_distance(count, distance):
    found = text.LocalShuffle(distance)(range(count))
    assert sorted(found) == list(range(count))
    assert all(abs(at - token) <= distance for at, token in enumerate(found))


def test_local_shuffle_reaches_the_distance():
    moves = [abs(at - token) for _ in range(50) for at, token in enumerate(text.LocalShuffle(2)(range(50)))]
    assert set(moves) == {0, 1, 2}


def test_noise_of_back_translation():
    words = [f"w{number}" for number in range(4000)]
    found = text.BackTranslationNoise(drop=0.2, blank=0.1, distance=3)(words)
    assert abs(len(found) - 3200) < 150 and abs(found.count("<blank>") - 320) < 100  # 6 standard deviations
    order = [int(word[1:]) for word in found if word != "<blank>"]
    assert order != sorted(order) and len(set(order)) == len(order)
    assert text.BackTranslationNoise(0, 0, 0)(words) == words
    assert text.BackTranslationNoise(0, 1, 3, blank_token=7)([1, 2]) == [7, 7]


def test_synonyms():
    synonyms = {"fox": ["vixen", "cub"], "dog": ["hound"]}
    assert text.SynonymReplacement(synonyms, 1.0)(["a", "dog"]) == ["a", "hound"]
    found = text.SynonymReplacement(synonyms, 0.5)(["fox", "a"] * 2000)
    counts = [found.count(word) for word in ("fox", "vixen", "cub", "a")]
    assert abs(counts[0] - 1000) < 130 and abs(counts[1] - 500) < 130 and counts[3] == 2000
    assert text.SynonymReplacement(synonyms, 0)(["fox"]) == ["fox"]
    for wrong in ({"fox": "vixen"}, {"fox": []}):
        with pytest.raises(ValueError, match="'fox'"):
            text.SynonymReplacement(wrong)


@settings(deadline=None)
@given(st.lists(st.text("abcXYZ.é", min_size=1, max_size=8), max_size=6), st.floats(0, 1))
def test_characters_change_but_no_word_vanishes(words, p):
    found = text.CharacterNoise(p)(words)
    assert len(found) == len(words) and all(found)
    assert all(len(a) <= 2 * len(b) for a, b in zip(found, words, strict=True))
    if p == 0:
        assert found == words


def test_typing_errors_are_of_four_kinds():
    found = set(text.CharacterNoise(0.2)(["Dot"] * 2000))
    assert {"Dot", "Fot", "Sot", "ot", "DDot", "oDt", "Dt", "Dpt"} <= found
    assert not any("q" in word.lower() for word in found)  # not a neighbor
    found = set(text.CharacterNoise(0.5, neighbors={"a": "z"})(["a"] * 200))
    assert found == {"a", "z", "aa"}


def test_invalid_probabilities_raise():
    makers = [text.TokenDropout, text.TokenSwap, text.CharacterNoise, text.BackTranslationNoise]
    makers += [lambda p: text.SynonymReplacement({}, p), lambda p: text.BackTranslationNoise(blank=p)]
    for maker in makers:
        with pytest.raises(ValueError, match="from 0 to 1, received 1.5"):
            maker(1.5)
    for maker in (text.LocalShuffle, lambda distance: text.BackTranslationNoise(distance=distance)):
        with pytest.raises(ValueError, match="must not be negative, received -1"):
            maker(-1)


# ---- masking ----

WORDS = text.Vocabulary.of([[f"w{number}" for number in range(200)]], reserved_tokens=["<pad>", "[MASK]"])


def test_masked_tokens_have_the_published_rates():
    tokens = np.tile(np.arange(3, 203), 100)
    inputs, labels, weights = text.MaskTokens(WORDS)(tokens)
    chosen = weights == 1
    assert (labels == tokens).all() and (inputs[~chosen] == tokens[~chosen]).all()
    assert chosen.sum() == 3000 and set(weights) == {0, 1}
    masked, same = (inputs[chosen] == 2).mean(), (inputs[chosen] == tokens[chosen]).mean()
    assert abs(masked - 0.8) < 0.04 and abs(same - 0.1005) < 0.03  # 5 standard deviations
    assert set(np.unique(inputs)) == set(range(2, 203))  # random tokens are never special
    assert (inputs.dtype, labels.dtype, weights.dtype) == (np.int32, np.int32, np.float32)


@settings(deadline=None)
@given(st.lists(st.integers(0, 202), max_size=40), st.floats(0, 1))
def test_special_tokens_are_never_chosen(tokens, p):
    inputs, labels, weights = text.MaskTokens(WORDS, p=p)(tokens)
    ordinary = sum(token > 2 for token in tokens)
    assert weights.sum() == (max(1, round(p * ordinary)) if ordinary else 0)
    assert not weights[np.array(tokens, int) <= 2].any()
    assert labels.tolist() == tokens and len(inputs) == len(tokens)


def test_whole_words_are_chosen_together(pieces):
    sentence = "jumping foxes over jumping dogs"
    tokens = [2, *pieces.encode(sentence), 3]
    starts = np.flatnonzero(pieces.starts_word[tokens])
    seen = set()
    for _ in range(60):
        _, _, weights = text.MaskTokens(pieces, p=0.2, whole_words=True)(tokens)
        words = [set(weights[a:b]) for a, b in zip(starts, [*starts[1:], len(tokens)], strict=True)]
        assert all(len(word) == 1 for word in words) and weights.sum() >= round(0.2 * (len(tokens) - 2))
        seen |= {number for number, word in enumerate(words) if word == {1}}
    assert seen == {1, 2, 3, 4, 5}  # every word but the special tokens at both ends


def test_masking_needs_a_mask_token():
    with pytest.raises(ValueError, match="'<mask>' is not in the vocabulary"):
        text.MaskTokens(WORDS, mask_token="<mask>")


@pytest.mark.parametrize("tokens", [[3, 203], [-1, 3]])
def test_unknown_indices_are_not_masked(tokens):
    with pytest.raises(ValueError, match=rf"vocabulary of 203 tokens.* from {min(tokens)} to {max(tokens)}"):
        text.MaskTokens(WORDS)(tokens)


# ---- packing ----


@settings(deadline=None)
@given(st.lists(TOKENS, max_size=8), st.integers(1, 12), st.none() | st.just(-1))
def test_blocks_are_the_concatenated_sequences(sequences, length, end):
    found = text.cut_blocks(sequences, length, end)
    row = [token for each in sequences for token in [*each, *([] if end is None else [end])]]
    assert found.shape == (len(row) // length, length) and found.dtype == np.int32
    assert found.ravel().tolist() == row[: found.size]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), max_size=20), st.integers(9, 15))
def test_packed_rows_contain_every_sequence_once(sequences, length):
    tokens, segments, positions = text.pack_rows(sequences, length)
    found = []
    for row, parts, places in zip(tokens, segments, positions, strict=True):
        for segment in range(1, parts.max() + 1):
            at = np.flatnonzero(parts == segment)
            assert (np.diff(at) == 1).all() and places[at].tolist() == list(range(len(at)))
            found.append(row[at].tolist())
        assert (row[parts == 0] == 0).all()
    assert sorted(found) == sorted(sequences)
    total = sum(map(len, sequences))
    assert len(tokens) <= 2 * -(-total // length)  # the bound of first fit: two rows are never both half empty


def test_invalid_packing_raises():
    with pytest.raises(ValueError, match="a sequence has 3 tokens, but a row has 2"):
        text.pack_rows([[1, 2, 3]], 2)
    for call in (text.pack_rows, text.cut_blocks):
        with pytest.raises(ValueError, match="length must be an integer of at least 1"):
            call([[1]], 0)


# ---- batches ----


def test_pad_and_stack():
    batch, lengths = text.Pad(pad_val=-1, ret_length=True)([[1, 2], np.array([3, 4, 5], np.int32), mx.nd.array([6])])
    assert batch.asnumpy().tolist() == [[1, 2, -1], [3, 4, 5], [6, -1, -1]]
    assert lengths.asnumpy().tolist() == [2, 3, 1] and lengths.dtype == np.int32
    assert text.Pad()([[1, 2], [3]]).dtype == np.int32 and text.Pad()([[0.5], [1.0]]).dtype == np.float32
    assert text.Pad(dtype="float16")([[1]]).dtype == np.float16
    assert text.Pad(round_to=4)([[1] * 5, [2]]).shape == (2, 8)
    assert text.Pad(axis=1)([np.zeros((2, 3)), np.ones((2, 1))]).asnumpy()[1].tolist() == [[1, 0, 0], [1, 0, 0]]
    assert text.Stack()([3, 4]).asnumpy().tolist() == [3, 4] and text.Stack()([3, 4]).dtype == np.int32
    assert text.Stack("float32")([np.zeros(2), np.zeros(2)]).dtype == np.float32


def test_tuple_applies_each_function_to_its_element():
    for batchify in (text.Tuple(text.Pad(), text.Stack()), text.Tuple([text.Pad(), text.Stack()])):
        tokens, labels = batchify([([1, 2], 0), ([3], 1)])
        assert tokens.asnumpy().tolist() == [[1, 2], [3, 0]] and labels.asnumpy().tolist() == [0, 1]
    with pytest.raises(MXNetError, match="2 functions, received a sample of 3 elements"):
        batchify([(1, 2, 3)])


def test_invalid_batches_raise():
    with pytest.raises(MXNetError, match=r"differ only in axis 0, received \(1, 2\), \(1, 3\)"):
        text.Pad()([np.zeros((1, 2)), np.zeros((1, 3))])
    with pytest.raises(MXNetError, match="differ only in axis 0"):
        text.Pad()([1, 2])
    with pytest.raises(MXNetError, match=r"different shapes: \(1,\), \(2,\)"):
        text.Stack()([[1], [1, 2]])
    with pytest.raises(MXNetError, match="Encode texts first"):
        text.Pad()([["word"]])
    with pytest.raises(ValueError, match="round_to must be at least 1"):
        text.Pad(round_to=0)


def test_batches_are_np_arrays_in_numpy_mode():
    with mx.util.np_array(True):
        assert isinstance(text.Pad()([[1], [1, 2]]), mx.np.ndarray)
