"""Ratings of items by users: made ones, or those of MovieLens from files."""

import pathlib
from typing import NamedTuple

import numpy as np


class Ratings(NamedTuple):
    """Numbers from 0 on of users, items, groups of users and genres of items, with the rating, one row for each."""

    user: np.ndarray
    item: np.ndarray
    group: np.ndarray
    genre: np.ndarray
    rating: np.ndarray

    def part(self, rows):
        """Return some of the rows."""
        return Ratings(*(column[rows] for column in self))


def made_ratings(count, seed, users, items, rank=4, groups=8, genres=12, noise=0.3):
    """Return ratings that are a product of low rank, plus the taste of a user's group for a genre, plus noise."""
    random = np.random.default_rng(seed)
    of_user, of_item = random.normal(0, 0.7, (users, rank)), random.normal(0, 0.7, (items, rank))
    group, genre = random.integers(groups, size=users), random.integers(genres, size=items)
    taste = random.normal(0, 0.5, (groups, genres))
    user, item = random.integers(users, size=count), random.integers(items, size=count)
    rating = 3 + (of_user[user] * of_item[item]).sum(axis=1) + taste[group[user], genre[item]]
    rating += random.normal(0, noise, count)
    return Ratings(user, item, group[user], genre[item], rating.astype("float32"))


def movielens(folder):
    """Return the ratings of MovieLens 100K (`u.data`) or of larger ones in its first layout (`ratings.dat`).

    Groups are the occupations of users, and genres are the first genre of each film, if their files are there too.
    """
    folder = pathlib.Path(folder)
    old = (folder / "u.data").exists()
    rows = _rows(folder / "u.data", "\t") if old else _rows(folder / "ratings.dat", "::")
    users = _rows(folder / "u.user", "|") if old else _rows(folder / "users.dat", "::")
    films = _rows(folder / "u.item", "|") if old else _rows(folder / "movies.dat", "::")
    if not rows:
        raise SystemExit(f"{folder} has neither u.data nor ratings.dat of MovieLens")
    occupations = {row[0]: row[3] for row in users}
    first = {row[0]: row[5:].index("1") if old else row[2].split("|")[0] for row in films}
    user, item, rating = zip(*(row[:3] for row in rows), strict=True)
    group, genre = [occupations.get(number, "") for number in user], [str(first.get(number, "")) for number in item]
    return Ratings(*map(_numbered, (user, item, group, genre)), np.array(rating, "float32"))


def _rows(file, separator):
    """Return the columns of each line of a file, or nothing if it does not exist."""
    if not file.exists():
        return []
    return [line.split(separator) for line in file.read_text(encoding="latin-1").splitlines()]


def _numbered(values):
    """Return the values as numbers from 0 on."""
    return np.unique(values, return_inverse=True)[1]
