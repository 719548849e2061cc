"""Sentences with names of people, places and companies, and a tag for each word (B-, I- and O, as in CoNLL-2003).

The words alone do not decide: `Paris` is a place or a first name, and `Morgan` a family name or a company. Some names
are invented. Where neither the name nor the sentence tells its kind, nobody can find it, so the best F1 is below 1.
"""

from __future__ import annotations

import random

FIRST = (
    "Ada Alan Grace Paris Jordan Austin Sydney Georgia Ivan Mary Lee Chelsea Linus Ken Rosa Florence Dallas Virginia"
)
LAST = "Turing Hopper Morgan Berlin London Jackson Cooper Knuth Noether Houston Kent Curie Ford Lincoln Baker Lynn Cole"
PLACE = "Paris London Jordan Austin Sydney Georgia Berlin Oslo Houston Lincoln Jackson Virginia Kent Lima Cairo Chelsea"
COMPANY = "Morgan Ford Baker Acme Lincoln Cooper Vertex Jackson Orion Florence Kent Apex Curie Delta Austin Zenith"
SYLLABLES = ["ba", "den", "fi", "gor", "ha", "ki", "lam", "mo", "nar", "pe", "ro", "sul", "ta", "vin", "wes", "zor"]
FORMS = """
P lives in L .
P , who works for C in L , met P .
C hired P last year .
the office of C in L is closed .
yesterday P left L for L .
P and P founded C .
shares of C fell after P resigned .
the mayor of L , P , thanked C .
in L , C sued P .
does P know L ?
C , C and C have moved to L .
P was born in L and joined C .
A praised A in L .
they spoke about A and A .
A is well known .
A , A and A were mentioned by P .
"""


def sentence(rng, unseen):
    """Return the words and the tags of one sentence; a share `unseen` of the names is invented."""
    words, tags = [], []
    for word in rng.choice(FORMS.strip().splitlines()).split():
        name, kind = _name(rng, word, unseen)
        words += name
        tags += ["O"] if kind is None else [f"B-{kind}", *[f"I-{kind}"] * (len(name) - 1)]
    return words, tags


def sentences(count, seed, unseen=0.2):
    """Return `count` sentences as pairs of words and tags."""
    rng = random.Random(seed)
    return [sentence(rng, unseen) for _ in range(count)]


def _name(rng, form, unseen):
    if form == "A":  # any kind: only the name itself tells which
        form = rng.choice("PLC")
    if form == "P":
        name = [_one(rng, FIRST, unseen), _one(rng, LAST, unseen)][: rng.choice((1, 2, 2))]
        return name, "PER"
    if form == "L":
        return [*rng.choice(([], [], ["New"], ["Saint"])), _one(rng, PLACE, unseen)], "LOC"
    if form == "C":
        return [_one(rng, COMPANY, unseen), *rng.choice(([], ["Inc"], ["and", "Sons"], ["Bank"]))], "ORG"
    return [form], None


def _one(rng, names, unseen):
    if rng.random() < unseen:
        return "".join(rng.choice(SYLLABLES) for _ in range(rng.choice((2, 3)))).capitalize()
    return rng.choice(names.split())
