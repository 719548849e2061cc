"""Make the `.params` fixtures under real MXNet 1.9.1, or check that it loads what neomx wrote.

    .venv-oracle/bin/python tests/parity/record_params.py                   write tests/fixtures/params
    .venv/bin/python -m pytest tests/formats/test_params_format.py --basetemp=DIR (or a neomx program that saves files)
    .venv-oracle/bin/python tests/parity/record_params.py check DIR         load what was saved below DIR

`check` looks at the files that are called like a fixture and compares them with what they must hold.
"""

import pathlib
import pickle
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures" / "params"
sys.path.insert(0, str(HERE.parent))


def items(saved):
    return saved.items() if isinstance(saved, dict) else enumerate(saved if isinstance(saved, list) else [saved])


def check(mx, contents, directory):
    count = 0
    for path in sorted(pathlib.Path(directory).rglob("*.params")):
        if path.stem not in contents or path.is_symlink():
            continue
        expected = dict(items(contents[path.stem]))
        received = dict(items(mx.nd.load(str(path))))
        assert list(expected) == list(received), path
        for key, array in expected.items():
            assert array.stype == received[key].stype and array.dtype == received[key].dtype, (path, key)
            np.testing.assert_array_equal(array.asnumpy(), received[key].asnumpy(), err_msg=str((path, key)))
        count += 1
    print("%d files loaded and found right" % count)


def main(arguments):
    import mxnet as mx

    from parity.params_spec import contents

    assert mx.__version__ == "1.9.1", mx.__version__
    if arguments[:1] == ["check"]:
        check(mx, contents(mx), arguments[1])
        return
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name, saved in contents(mx).items():
        mx.nd.save(str(FIXTURES / (name + ".params")), saved)
    matrix = mx.nd.array([[0, 1, 0], [2, 0, 3], [0, 0, 0]])
    pickled = {
        "weight": mx.nd.array([[1, 2, 3]]),
        "ids": mx.nd.array([7, 8], dtype="int32"),
        "csr": matrix.tostype("csr"),
        "row_sparse": matrix.tostype("row_sparse"),
        "empty": mx.nd.sparse.zeros("row_sparse", (2, 3)),
        "np": mx.np.array([3.5]),
    }
    (FIXTURES / "arrays.pkl").write_bytes(pickle.dumps(pickled, protocol=2))
    mx.npx.set_np()
    arrays = {"scalar": mx.np.array(3.5), "none": mx.np.zeros((0, 2)), "v": mx.np.arange(3)}
    mx.npx.save(str(FIXTURES / "np_shape.params"), arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
