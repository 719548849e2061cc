"""Create the digits that neomx includes (neomx/sample/*.gz) from the full MNIST dataset.

    python scripts/make_digits_sample.py FOLDER_WITH_THE_FOUR_IDX_GZ_FILES

Takes the first 500 images of each digit from the training set and the first 100 from the test set, in file order.
"""

import gzip
import pathlib
import struct
import sys

import numpy as np

TARGET = pathlib.Path(__file__).resolve().parent.parent / "neomx" / "sample"


def read(path: pathlib.Path) -> np.ndarray:
    with gzip.open(path) as file:
        data = file.read()
    dimensions = struct.unpack_from(f">{data[3]}I", data, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(dimensions)


def write(path: pathlib.Path, array: np.ndarray) -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(header + array.tobytes())


def main(source: pathlib.Path) -> None:
    for part, each in (("train", 500), ("t10k", 100)):
        images, labels = read(source / f"{part}-images-idx3-ubyte.gz"), read(source / f"{part}-labels-idx1-ubyte.gz")
        chosen = np.sort(np.concatenate([np.flatnonzero(labels == digit)[:each] for digit in range(10)]))
        write(TARGET / f"{part}-images-idx3-ubyte.gz", images[chosen])
        write(TARGET / f"{part}-labels-idx1-ubyte.gz", labels[chosen])
        print(f"{part}: {len(chosen)} digits")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
