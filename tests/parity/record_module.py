"""Make checkpoints of modules under real MXNet 1.9.1, or check that it goes on from those that neomx wrote.

.venv-oracle/bin/python tests/parity/record_module.py                    write tests/fixtures/module
.venv/bin/python -m pytest tests/module/test_module_files.py --basetemp=DIR
.venv-oracle/bin/python tests/parity/record_module.py check DIR          go on from what was saved below DIR
"""

import pathlib
import shutil
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures" / "module"
sys.path.insert(0, str(HERE.parent))


def alike(mx, expected, found):
    wanted, received = mx.nd.load(str(expected)), mx.nd.load(str(found))
    assert sorted(wanted) == sorted(received), found
    for name, array in wanted.items():
        np.testing.assert_allclose(received[name].asnumpy(), array.asnumpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def check(mx, directory):
    """Go on from every checkpoint of an epoch 1 that has an epoch 2 beside it, and compare."""
    from parity.module_files import TRAININGS, sentences, train

    count = 0
    for path in sorted(pathlib.Path(directory).rglob("*-0002.params")):
        name = path.name[: -len("-0002.params")]
        if name not in TRAININGS or any(part.is_symlink() for part in path.parents):
            continue
        with tempfile.TemporaryDirectory() as own:
            for file in path.parent.glob(name + "-*"):
                shutil.copy(str(file), own)
            train(mx, name, own + "/" + name, 1, 2)
            alike(mx, path, own + "/" + name + "-0002.params")
        count += 1
    for path in sorted(pathlib.Path(directory).rglob("buckets.buckets")):
        if not any(part.is_symlink() for part in path.parents):
            saved = mx.nd.load(str(path.parent / "outputs.params"))
            for expected, received in zip(saved, sentences(mx, str(path)[: -len(".buckets")])):
                np.testing.assert_allclose(received.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)
            count += 1
    assert count, "nothing was found below " + directory
    print("%d checkpoints loaded and found right" % count)


def main(arguments):
    import mxnet as mx

    from parity.module_files import TRAININGS, new_buckets, sentences, train

    assert mx.__version__ == "1.9.1", mx.__version__
    if arguments[:1] == ["check"]:
        check(mx, arguments[1])
        return
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name in TRAININGS:
        train(mx, name, str(FIXTURES / name), 0, 1)
        train(mx, name, str(FIXTURES / name), 1, 2)
    outputs = sentences(mx, str(FIXTURES / "buckets"), new_buckets(mx))
    mx.nd.save(str(FIXTURES / "outputs.params"), outputs)


if __name__ == "__main__":
    main(sys.argv[1:])
