"""Numbers spelled out in English and in German, which says the ones before the tens: 42 is "zwei und vierzig"."""

from __future__ import annotations

import random

ONES = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn",
}
TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
}


def spelled(number, language):
    """Return the words of a number below a million."""
    ones, tens = ONES[language].split(), TENS[language].split()
    hundred, thousand = ("hundred", "thousand") if language == "en" else ("hundert", "tausend")
    if number < 20:
        return [ones[number]]
    if number < 100:
        ten, one = [tens[number // 10 - 2]], number % 10
        if one == 0:
            return ten
        return [*ten, ones[one]] if language == "en" else ["ein" if one == 1 else ones[one], "und", *ten]
    size, word = (1000, thousand) if number >= 1000 else (100, hundred)
    head = spelled(number // size, language)
    if language == "de" and head[-1] == "eins":
        head[-1] = "ein"
    rest = number % size
    return [*head, word, *(spelled(rest, language) if rest else [])]


def pairs(count, seed, most=1_000_000):
    """Return `count` different pairs of sentences (lists of words), English and German."""
    numbers = random.Random(seed).sample(range(most), count)
    return [(spelled(number, "en"), spelled(number, "de")) for number in numbers]
