"""Sounds: WAV files, datasets of them, and transforms."""

from . import datasets, transforms
from .datasets import AudioFolderDataset
from .files import load, save

__all__ = ["AudioFolderDataset", "datasets", "load", "save", "transforms"]
