"""Keep the bytes of MXNet's pack_img, which needs OpenCV: run with a directory that has `cv2` in PYTHONPATH.

The version must be that of constraints.txt, since other versions compress otherwise.
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

KINDS = [
    (95, ".jpg", 3),
    (30, ".jpeg", 3),
    (80, ".JPG", 1),
    (100, ".jpg", 3),
    (3, ".png", 3),
    (9, ".PNG", 1),
    (0, ".png", 3),
    (50, ".bmp", 3),
]
LABELS = [1, 2.5, [3, 4], np.array([5.0, 6, 7])]


def records(recordio, pixels):
    """{name: a record} for each kind of file and of label."""
    found = {}
    for number, (quality, file_format, channels) in enumerate(KINDS):
        header = recordio.IRHeader(0, LABELS[number % len(LABELS)], number, 7)
        image = pixels(number, 20, 30)
        image = image if channels == 3 else image[:, :, 0]
        packed = recordio.pack_img(header, image, quality=quality, img_fmt=file_format)
        found["%d%s_%d" % (quality, file_format, channels)] = packed
    return found


def unpacked(recordio, record):
    """The header and the image in each colour."""
    results = []
    for colour in (-1, 0, 1):
        header, image = recordio.unpack_img(record, iscolor=colour)
        results.append(image)
    return [np.array([header.flag, header.id, header.id2]), np.array(header.label)] + results


if __name__ == "__main__":
    import mxnet as mx

    from parity.pictures import pixels

    kept = {}
    for name, record in records(mx.recordio, pixels).items():
        kept["record " + name] = np.frombuffer(record, "uint8")
        for number, value in enumerate(unpacked(mx.recordio, record)):
            kept["%d %s" % (number, name)] = value
    np.savez_compressed(str(HERE / "recorded" / "pack_img.npz"), **kept)
    print("%d arrays" % len(kept))
