"""The gluon examples run and reach the expected accuracy. All are seeded; the bounds leave room for other machines."""

import pathlib
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(("model", "epochs", "least"), [("mlp", 3, 0.88), ("lenet", 1, 0.85)])
def test_mnist_on_the_sample(model, epochs, least, hybridize, capsys):
    import mnist

    assert mnist.main(model=model, epochs=epochs, hybridize=hybridize) > least
    assert capsys.readouterr().out.count("test accuracy") == epochs


def test_mnist_reads_files_from_a_directory():
    import mnist

    import neomx.sample

    folder = str(pathlib.Path(neomx.sample.__file__).parent)
    assert mnist.main(data=folder, model="mlp", epochs=1) > 0.8


def test_custom_layer():
    import custom_layer

    assert custom_layer.main(epochs=2) > 0.75


def test_custom_loss():
    import custom_loss

    reached = custom_loss.main(epochs=6)
    assert reached["GeneralisedCrossEntropy"] > 0.87
    assert reached["GeneralisedCrossEntropy"] > reached["SoftmaxCrossEntropyLoss"] + 0.01


def test_gan():
    import gan

    before, _ = gan.main(epochs=0)
    share, variety = gan.main(epochs=20)
    assert before < 0.3 and share > 0.6  # look like the digit it was trained on
    assert variety > 5  # the images are not all the same


def test_multi_task():
    import multi_task

    accuracy, error = multi_task.main(epochs=3)
    assert accuracy > 0.87 and error < 0.5


def test_fine_tuning():
    import fine_tuning

    tuned, fresh, frozen_is_the_same = fine_tuning.main()
    assert frozen_is_the_same
    assert tuned > 0.85 and tuned > fresh + 0.03


def test_several_contexts():
    import several_contexts

    net, reached = several_contexts.main(epochs=2)
    assert reached > 0.85
    for param in net.collect_params().values():
        first, second = (param.data(ctx).asnumpy() for ctx in param.list_ctx())
        assert (first == second).all()


def test_lstm_text():
    import lstm_text

    perplexity, recited = lstm_text.main()
    assert perplexity < 1.2
    assert recited.startswith(lstm_text.POEM[:100])


def test_gpt2(capsys):
    import gpt2

    loss, recited = gpt2.main()
    assert loss < 0.5
    assert recited.startswith(gpt2.POEM[:45])
    assert capsys.readouterr().out.count("step") == 3
