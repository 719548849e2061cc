"""Film reviews of a small grammar, in which negation turns the meaning of words around.

An opinion is stated directly ("the plot was clever and moving") or by negating its opposite ("the plot was never
dull"). Other sentences are negated but state no opinion, so that the number of negations says nothing.
"""

import numpy as np

OPINIONS = (  # bad and good
    "bad poor dull awful boring clumsy cold confused cheap dreary empty forced hollow lazy silly tedious",
    "good great lovely superb clever moving funny fresh bright warm charming elegant honest joyful poetic witty",
)
ASPECTS = "acting plot music script ending cast camera dialogue story scenery pace humor direction film sound"
NEGATED = ("was not", "was never", "was hardly", "never felt", "hardly seemed")
NEUTRAL = (
    "i had not seen it before",
    "we did not go alone",
    "my sister came with me",
    "it was not raining that day",
    "the cinema was near the station",
    "i never read the book",
    "nobody left before the end",
    "it runs for two hours",
)


def review(label, draw):
    """Return the words of a review of this opinion, 1 for good and 0 for bad."""
    clauses = [_opinion(label, draw) for _ in range(draw.integers(1, 4))]
    clauses += [_one(NEUTRAL, draw) for _ in range(draw.integers(0, 3))]
    draw.shuffle(clauses)
    return " . ".join([*clauses, ""]).split()


def _opinion(label, draw):
    subject = "the " + _one(ASPECTS.split(), draw)
    if draw.random() < 0.4:
        return f"{subject} {_one(NEGATED, draw)} {_one(OPINIONS[1 - label].split(), draw)}"
    words = OPINIONS[label].split()
    more = f" and {_one(words, draw)}" if draw.random() < 0.9 else ""
    return f"{subject} {_one(('was', 'felt', 'seemed'), draw)} {_one(words, draw)}{more}"


def _one(choices, draw):
    return choices[draw.integers(len(choices))]


def reviews(count, seed):
    """Return reviews, each a list of words, and their opinions."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(2, size=count)
    return [review(label, draw) for label in labels], labels.tolist()
