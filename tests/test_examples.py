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


def test_cnn_from_scratch():
    import cnn_from_scratch

    assert cnn_from_scratch.main(epochs=1) > 0.85


def test_custom_op():
    import custom_op

    assert custom_op.main(epochs=2) > 0.8


def test_the_program_of_the_readme(tmp_path, monkeypatch):
    text = (pathlib.Path(__file__).resolve().parent.parent / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    assert names["w"].grad.shape == (784, 10) and abs(names["w"].asnumpy()).max() > 0
    assert (names["nd"].load("w.params")["w"] == names["w"]).asnumpy().all()
