"""The examples run, and do what they say."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))


def test_digits(tmp_path):
    import digits

    from neomx import nd

    file = str(tmp_path / "digits.params")
    assert digits.main(epochs=5, save=file) > 0.9
    assert sorted(nd.load(file)) == [f"p{i}" for i in range(6)]
