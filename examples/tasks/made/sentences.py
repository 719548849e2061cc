"""Sentences of a small English grammar whose probabilities are known, so that the best possible perplexity is too.

The verb agrees with its subject, also across a relative clause: "the dogs that the cat near the houses sees bark".
"""

import math

import numpy as np

WORDS = {
    "noun": "dog cat girl boy bird farmer king teacher doctor neighbor sailor baker friend singer writer horse",
    "place": "house river tree bridge garden tower market harbor",
    "near": "near behind beside",
    "adjective": "old young small happy quiet clever hungry tired",
    "sees": "see follow help like find call know watch",
    "sleeps": "sleep sing laugh wait run dance",
    "adverb": "often quietly today again outside",
}


class Writer:
    """Writes one sentence at random, word by word, and adds up the logarithms of the probabilities."""

    def __init__(self, draw):
        self.draw, self.words, self.log_probability = draw, [], 0.0

    def chance(self, probability):
        """Return True with this probability."""
        hit = self.draw.random() < probability
        self.log_probability += math.log(probability if hit else 1 - probability)
        return hit

    def one(self, kind):
        """Return a word of a kind. Those at the beginning of its list are more frequent."""
        words = WORDS[kind].split()
        weights = 1 / np.arange(2, len(words) + 2)
        number = self.draw.choice(len(words), p=weights / weights.sum())
        self.log_probability += math.log(weights[number] / weights.sum())
        return words[number]

    def sentence(self):
        """Write a sentence."""
        self.predicate(self.subject(0), 0)
        self.words.append(".")

    def subject(self, depth):
        """Write a noun with what describes it, and return whether it is plural."""
        plural = self.chance(0.4)
        self.words.append("some" if plural and self.chance(0.3) else "the")
        if self.chance(0.3):
            self.words.append(self.one("adjective"))
        self.words.append(self.one("noun") + "s" * plural)
        if self.chance(0.2):
            self.words += [self.one("near"), "the", self.one("place") + "s" * self.chance(0.3)]
        if depth < 2 and self.chance(0.25):
            self.words.append("that")
            if self.chance(0.5):
                self.predicate(plural, depth + 1)
            else:
                self.verb("sees", self.subject(depth + 1))
        return plural

    def verb(self, kind, plural):
        """Write a verb that agrees with its subject."""
        self.words.append(self.one(kind) + "s" * (not plural))

    def predicate(self, plural, depth):
        """Write a verb with its object or adverb."""
        if self.chance(0.6):
            self.verb("sees", plural)
            self.subject(depth + 1)
        else:
            self.verb("sleeps", plural)
            if self.chance(0.4):
                self.words.append(self.one("adverb"))


def sentences(count, seed):
    """Return sentences, each a list of words, and the perplexity per word of a model that knows the grammar."""
    draw = np.random.default_rng(seed)
    found = [Writer(draw) for _ in range(count)]
    for writer in found:
        writer.sentence()
    rows = [writer.words for writer in found]
    return rows, math.exp(-sum(writer.log_probability for writer in found) / sum(map(len, rows)))
