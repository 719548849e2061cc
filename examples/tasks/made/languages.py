"""Sentences about six topics in English, and in a made-up neighbor language that shares roots but no words with it.

Spelling rules derive the words of the neighbor language, as between English and Dutch: "ships" becomes "schipen".
"""

import re

import numpy as np

TOPICS = {
    "sea": "ship water salmon storm shore wave anchor harbor sailor tide whale net island captain",
    "farm": "plow barn cow field harvest seed goat horse hay milk sheep corn farmer stable",
    "home": "house kitchen table chair door window lamp bed garden roof wall oven curtain carpet",
    "music": "song drum trumpet dance melody violin choir singer rhythm concert piano flute band opera",
    "body": "hand finger knee shoulder heart blood bone tooth tongue skin arm brain muscle nose",
    "trade": "market price shop coin money bank merchant gold silver profit contract debt customer ledger",
}
COMMON = {
    "english": "the a and with under near some many old new good we they see find have was is often here",
    "neighbor": "de un en met onder bij wat veel oud nieuw goed wij zij zien vinden hebben deed zijn vaak hier",
}
RULES = {"sh": "sch", "wh": "w", "th": "d", "c(?!h)": "k", "oo": "oe", "ou": "ui", "ea": "ee", "y$": "ij"}


def word(root, form, language):
    """Return a form of a root in a language: 0 is singular, 1 plural, 2 small."""
    if language == "english":
        return (root, root + "s", f"{root}let")[form]
    for found, written in RULES.items():
        root = re.sub(found, written, root)
    return root + ("e", "en", "kje")[form]


def sentences(count, language, seed):
    """Return sentences, each a list of words, and the numbers of their topics."""
    draw = np.random.default_rng(seed)
    roots = [words.split() for words in TOPICS.values()]
    topics = draw.integers(len(roots), size=count).tolist()
    return [_sentence(roots[topic], COMMON[language].split(), language, draw) for topic in topics], topics


def _sentence(roots, common, language, draw):
    words = [word(roots[i], draw.choice(3, p=(0.5, 0.3, 0.2)), language) for i in draw.integers(len(roots), size=3)]
    words += [common[i] for i in draw.integers(len(common), size=draw.integers(3, 8))]
    return [words[i] for i in draw.permutation(len(words))]
