"""Text: vocabularies and sub-words, augmentation, masking, packing, and batches of similar lengths.

words = text.Vocabulary.of(sentences)                          # sentences are lists of words
pieces = text.SubwordTokenizer.train(texts, vocab_size=8000)   # byte-level BPE, or model="wordpiece"
dataset = gluon.data.SimpleDataset([pieces.encode(each) for each in texts]).transform(text.MaskTokens(pieces))
sampler = text.BucketSampler(lengths, batch_size=32, seed=1)   # on N workers, the batches of one process
loader = gluon.data.DataLoader(dataset, batch_sampler=sampler, batchify_fn=text.Tuple(*[text.Pad()] * 3))
"""

from .augmentation import (
    BackTranslationNoise,
    CharacterNoise,
    LocalShuffle,
    SynonymReplacement,
    TokenDropout,
    TokenSwap,
)
from .batchify import Pad, Stack, Tuple
from .bucketing import BucketSampler
from .masking import MaskTokens
from .packing import Packed, cut_blocks, pack_rows
from .subwords import SubwordTokenizer
from .vocabulary import Vocabulary

__all__ = [
    "BackTranslationNoise",
    "BucketSampler",
    "CharacterNoise",
    "LocalShuffle",
    "MaskTokens",
    "Packed",
    "Pad",
    "Stack",
    "SubwordTokenizer",
    "SynonymReplacement",
    "TokenDropout",
    "TokenSwap",
    "Tuple",
    "Vocabulary",
    "cut_blocks",
    "pack_rows",
]
