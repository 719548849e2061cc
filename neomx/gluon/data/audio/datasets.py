"""Datasets of sounds in local files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from ....base import MXNetError
from ....formats import wav
from ....ndarray import array
from ...kinds import of_kind
from .. import dataset
from .transforms import Resample


class AudioFolderDataset(dataset.Dataset):
    """WAV files in directories, one per class, such as `root/yes/1.wav`. Each item is (sound, class index).

    The sound is (samples,): the mean of the channels. With `rate`, it is resampled to that rate. `synsets` has the
    class names in the order of their indices, `items` the files and their class indices.
    """

    def __init__(self, root: str, rate: int | None = None, transform: Callable[..., Any] | None = None):
        self._rate, self._transform = rate, transform
        self.synsets: list[str] = []
        self.items: list[tuple[str, int]] = []
        root = os.path.expanduser(root)
        try:
            folders = sorted(entry.path for entry in os.scandir(root) if entry.is_dir())
        except OSError as error:
            raise MXNetError(f"cannot list {root}: {error.strerror or error}") from error
        for label, folder in enumerate(folders):
            self.synsets.append(os.path.basename(folder))
            for name in sorted(os.listdir(folder)):
                if name.lower().endswith(".wav"):
                    self.items.append((os.path.join(folder, name), label))
                else:
                    warnings.warn(f"Ignoring {name} in {folder}, which is not a .wav file.", stacklevel=2)

        if not self.items:
            raise MXNetError(f"{root} contains no directories with .wav files, such as {root}/yes/1.wav")

    def __getitem__(self, idx: int) -> Any:
        path, label = self.items[idx]
        samples, rate = wav.read(path)
        sound = of_kind(array(samples.mean(1)))
        if self._rate is not None and self._rate != rate:
            sound = Resample(rate, self._rate)(sound)
        item = sound, label
        return item if self._transform is None else self._transform(*item)

    def __len__(self) -> int:
        return len(self.items)
