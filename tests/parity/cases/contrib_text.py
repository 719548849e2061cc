"""mx.contrib.text and the datasets of text: vocabularies, counts, vectors of words, sequences."""

import os
import tempfile
import warnings
from collections import Counter
from unittest import mock

from ..spec import family, outcome

case, program = family(__name__)

WORDS = Counter({"a": 3, "b": 3, "c": 1, "d": 2, "<unk>": 5, "pad": 1})


def told(vocabulary):
    """All that a vocabulary tells of itself."""
    names = vocabulary.unknown_token, vocabulary.reserved_tokens
    return len(vocabulary), vocabulary.idx_to_token, sorted(vocabulary.token_to_idx.items()), names


@program
def vocabularies(mx):
    make = mx.contrib.text.vocab.Vocabulary
    return [
        told(make()),
        told(make(WORDS)),
        told(make(WORDS, most_freq_count=2)),
        told(make(WORDS, most_freq_count=0)),
        told(make(WORDS, most_freq_count=3, reserved_tokens=["a", "<pad>"])),
        told(make(WORDS, min_freq=2)),
        told(make(WORDS, unknown_token="UNK", reserved_tokens=[])),
        told(make(Counter([3, 3, 1, 2]), unknown_token=0)),
        outcome(lambda: make(WORDS, min_freq=0)),
        outcome(lambda: make(WORDS, reserved_tokens=["x", "x"])),
        outcome(lambda: make(WORDS, reserved_tokens=["<unk>"])),
        outcome(lambda: make({"a": 1})),
    ]


@program
def words_and_numbers(mx):
    vocabulary = mx.contrib.text.vocab.Vocabulary(WORDS)
    return [
        vocabulary.to_indices("a"),
        vocabulary.to_indices(["d", "nothing", "a"]),
        vocabulary.to_indices([]),
        vocabulary.to_tokens(2),
        vocabulary.to_tokens([1, 0, 5]),
        outcome(lambda: vocabulary.to_tokens(6)),
        outcome(lambda: vocabulary.to_tokens([0.5])),
        outcome(lambda: vocabulary.to_tokens("a")),
    ]


@program
def counted_words(mx):
    count, known = mx.contrib.text.utils.count_tokens_from_str, Counter({"is": 5})
    text = " Life is great ! \n life is good . \n"
    updated = count(text, counter_to_update=known)
    results = [
        count(text),
        count(text, to_lower=True),
        count(text, "l", "G", True),
        count(text.replace(" ", "*"), r"\*", "\n", True),
        updated,
    ]
    return [*[sorted(result.items()) for result in results], updated is known]


def embedding(mx, text, **kwargs):
    """A CustomEmbedding of a file with this text."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = os.path.join(folder, "vectors.txt")
        with open(path, "w", encoding="utf8") as file:
            file.write(text)
        return mx.contrib.text.embedding.CustomEmbedding(path, **kwargs)


PLAIN = "a 0.1 0.2 0.3\nb 1.1 1.2 1.3\nä -1 2e-3 7\n"


@program
def embeddings(mx):
    vocabulary = mx.contrib.text.vocab.Vocabulary(Counter(["b", "q"]), reserved_tokens=["<p>"])
    made = {
        "plain": embedding(mx, PLAIN),
        "ones": embedding(mx, PLAIN, init_unknown_vec=mx.nd.ones),
        "tabs": embedding(mx, PLAIN.replace(" ", "\t"), elem_delim="\t"),
        "unknown": embedding(mx, "a 0.1 0.2\n<unk> 7 8\nb 1 2\n<unk> 3 4\n"),
        "repeated": embedding(mx, "a 0.1 0.2\nb 1 2\na 3 4\n"),
        "header": embedding(mx, "3 3\n" + PLAIN),
        "trailing": embedding(mx, PLAIN.replace("\n", " \n")),
        "named": embedding(mx, PLAIN, unknown_token="a"),
        "vocabulary": embedding(mx, PLAIN, vocabulary=vocabulary, init_unknown_vec=mx.nd.ones),
    }
    results = {name: (told(each), each.vec_len) for name, each in made.items()}
    results.update(("vectors_" + name, each.idx_to_vec) for name, each in made.items())
    return results


@program
def vectors_of_words(mx):
    vectors = embedding(mx, PLAIN)
    found = [
        vectors.get_vecs_by_tokens("a"),
        vectors.get_vecs_by_tokens(["ä", "nothing", "A"]),
        vectors.get_vecs_by_tokens(["Ä", "B", "Z"], lower_case_backup=True),
        vectors.get_vecs_by_tokens("B", lower_case_backup=True),
    ]
    vectors.update_token_vectors("a", mx.nd.array([9, 9, 9]))
    vectors.update_token_vectors(["b", "<unk>"], mx.nd.array([[1, 2, 3], [4, 5, 6]]))
    vectors.update_token_vectors(["ä"], mx.nd.array([[7, 7, 7]]))
    return [
        *found,
        vectors.idx_to_vec,
        outcome(lambda: vectors.update_token_vectors("nothing", mx.nd.array([1, 1, 1]))),
        outcome(lambda: vectors.update_token_vectors("a", mx.nd.array([1, 1]))),
        outcome(lambda: vectors.update_token_vectors(["a", "b"], mx.nd.array([1, 1, 1]))),
        outcome(lambda: vectors.update_token_vectors("a", [1, 2, 3])),
        outcome(lambda: embedding(mx, "a 1 2 3\nb 1 2\n")),
        outcome(lambda: embedding(mx, "a 1 2 3\nb x y z\n")),
        outcome(lambda: embedding(mx, "a 1 2 3\na 1 x 3\n")),
        outcome(lambda: embedding(mx, "a 1 2 3\na\n")),
        outcome(lambda: mx.contrib.text.embedding.CustomEmbedding("nowhere")),
    ]


@program
def composite_embeddings(mx):
    first, second = embedding(mx, PLAIN, init_unknown_vec=mx.nd.ones), embedding(mx, "b 5 6\nc 7 8\n")
    vocabulary = mx.contrib.text.vocab.Vocabulary(Counter(["a", "b", "c", "c"]), reserved_tokens=["<p>"])
    make = mx.contrib.text.embedding.CompositeEmbedding
    both, one = make(vocabulary, [first, second]), make(vocabulary, second)
    return [
        told(both),
        both.vec_len,
        both.idx_to_vec,
        told(one),
        one.idx_to_vec,
        outcome(lambda: make("vocabulary", second)),
        outcome(lambda: make(vocabulary, ["second"])),
    ]


@program
def published_embeddings(mx):
    module = mx.contrib.text.embedding

    class WordsOfMine(module._TokenEmbedding):
        def __init__(self, size=2):
            super().__init__()
            self.size = size

    results = [
        sorted(set(module.get_pretrained_file_names()) - {"wordsofmine"}),  # which a run before this one left
        module.get_pretrained_file_names("glove"),
        module.get_pretrained_file_names("fasttext"),
        sorted(module.GloVe.pretrained_file_name_sha1.items()),
        outcome(lambda: module.get_pretrained_file_names("nothing")),
        outcome(lambda: module.create("nothing")),
        outcome(lambda: module.create("glove", pretrained_file_name="nothing")),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the program may run twice in a process
        module.register(WordsOfMine)
    return [*results, module.create("wordsofmine", size=5).size]


@program
def wikitext(mx):
    module = mx.gluon.contrib.data.text
    text = " = Title = \n \n the cat sat on the mat . \n the <unk> ran \n\n a b c d e f g h i j the é \n"
    unchecked = mock.patch.object(module, "check_sha1", lambda *_: True, create=True)
    with tempfile.TemporaryDirectory() as folder, unchecked:  # or MXNet refuses a text that is not the published one
        for segment in ("train", "valid", "test"):
            with open(os.path.join(folder, "wiki.%s.tokens" % segment), "w", encoding="utf8") as file:
                file.write(text if segment == "train" else text.replace("the", "every"))
        train = module.WikiText2(root=folder, seq_len=5)
        test = module.WikiText103(root=folder, segment="test", vocab=train.vocabulary, seq_len=7)
        results = [len(train), told(train.vocabulary), sorted(train.frequencies.items()), type(train[0]).__name__]
        results += [part for i in range(len(train)) for part in train[i]]
        results += [len(test), sorted(test.frequencies.items()), test[-1][0], test[0:2][1]]
        return [*results, outcome(lambda: module.WikiText2(root=folder, segment="x")), outcome(lambda: train[100])]
