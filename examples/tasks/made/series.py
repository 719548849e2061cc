"""Time series: made ones, or those of CSV files, and windows of them for training."""

import csv
import pathlib

import numpy as np


def made_series(count, seed, days=70):
    """Return hourly series with a pattern of the day, another of the week, a trend, and noise that fades slowly."""
    random = np.random.default_rng(seed)
    hours = np.arange(24 * days)
    made = []
    for _ in range(count):
        peak, width = random.uniform(6, 20), random.uniform(2, 5)
        day = np.exp(-(((np.arange(24) - peak + 12) % 24 - 12) ** 2) / (2 * width**2))
        week = random.uniform(0.3, 1.5, 7)
        noise = np.zeros(len(hours))
        for hour, shock in enumerate(random.normal(0, 0.05, len(hours))):
            noise[hour] = 0.8 * noise[hour - 1] + shock
        trend = random.normal(0, 0.5) * hours / len(hours)
        made.append(random.uniform(1, 10) * (week[hours // 24 % 7] * day[hours % 24] + trend + noise))
    return made


def read_series(folder):
    """Return all columns of the CSV files in a directory that have a number in each row. The first row has names."""
    found = []
    for file in sorted(pathlib.Path(folder).glob("*.csv")):
        with open(file, newline="") as opened:
            _, *rows = csv.reader(opened)
        found += [np.array(column, float) for column in zip(*rows, strict=True) if all(map(_is_number, column))]
    if not found:
        raise SystemExit(f"{folder} has no CSV file with a column of numbers")
    return found


def _is_number(text):
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


def windows(all_series, length, step):
    """Return all windows of `length` values of the series that begin `step` values apart, one in each row."""
    starts = [range(0, len(series) - length + 1, step) for series in all_series]
    found = [series[at : at + length] for series, all_at in zip(all_series, starts, strict=True) for at in all_at]
    if not found:
        raise SystemExit(f"a series must have at least {length} values for training and for testing")
    return np.array(found, "float32")
