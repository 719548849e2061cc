"""Check neomx without extras: import every module, and call the functions that need an extra.

    python tests/package/extras.py                without any extra: each call must fail and name the extra
    python tests/package/extras.py --hide         the same, by hiding extras that are installed
    python tests/package/extras.py --with image   with this extra: its calls must work

It prints a line for each module and call that fails the check, and then exits with code 1.
"""

import argparse
import importlib
import importlib.machinery
import pkgutil
import sys
import tempfile

HIDDEN = {"cryptography", "cv2", "graphviz", "onnx", "onnxscript", "scipy", "tensorboard", "tokenizers", "transformers"}
# Programs, and modules that change the process when they are imported.
NOT_IMPORTED = {"neomx.__main__", "neomx.compat.startup.sitecustomize"}


def hide():
    """Hide installed packages from both `import` and `find_spec`."""
    finder = importlib.machinery.PathFinder
    find = finder.find_spec

    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else find(name, path, target)

    finder.find_spec = find_spec


def image(mx, folder):
    mx.image.imdecode(b"P6 1 1 255\n\0\0\0")  # one black pixel


def scipy(mx, folder):
    mx.nd.sparse.csr_matrix(([1.0], [0], [0, 1]), shape=(1, 2)).asscipy()


def chi_square(mx, folder):
    mx.test_utils.chi_square_check(
        lambda n: mx.nd.random.uniform(shape=n).asnumpy(), [(0.0, 0.5), (0.5, 1.0)], [0.5] * 2
    )


def tensorboard(mx, folder):
    mx.contrib.tensorboard.LogMetricsCallback(folder).summary_writer.close()


def tensorboard_sink(mx, folder):
    mx.monitor.start("tensorboard", folder)


def viz(mx, folder):
    mx.viz.plot_network(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc"))


def export_onnx(mx, folder):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    weights = {"fc_weight": mx.nd.ones((2, 3)), "fc_bias": mx.nd.zeros(2)}
    path = mx.onnx.export_model(net, weights, [(1, 3)], onnx_file_path=f"{folder}/net.onnx")
    mx.onnx.import_model(path)


def subwords(mx, folder):
    mx.gluon.data.text.SubwordTokenizer.train(["one text"], 300)


def measure_network(mx, folder):
    from neomx.comm import wire
    from neomx.doctor import measure

    listening = wire.listen()
    stop = measure.serve(listening, b"0123456789abcdef", lambda line: None)
    try:
        measure.measure(f"127.0.0.1:{listening.getsockname()[1]}", b"0123456789abcdef", 30.0)
    finally:
        stop()


def checkpoints_at_urls(mx, folder):
    net = mx.gluon.nn.Dense(1, in_units=1)
    net.initialize()
    ckpt = mx.checkpoint.Checkpointer(f"file://{folder}/run", net=net, signals=False)
    ckpt.save()
    ckpt.close()


CALLS = {
    "image": [image],
    "scipy": [scipy, chi_square],
    "tensorboard": [tensorboard, tensorboard_sink],
    "viz": [viz],
    "onnx": [export_onnx],
    "text": [subwords],
}
# Functions that the extra only makes faster, or whose package torch installs too.
WORK_WITHOUT = {"wire": [measure_network], "remote": [checkpoints_at_urls]}


def import_everything():
    """Import each module of the package and return the errors."""
    neomx = importlib.import_module("neomx")
    errors = []
    modules = pkgutil.walk_packages(
        neomx.__path__, "neomx.", onerror=lambda name: errors.append(f"import {name} fails")
    )
    count = 0
    for module in modules:
        if module.name in NOT_IMPORTED:
            continue
        try:
            importlib.import_module(module.name)
            count += 1
        except Exception as error:
            errors.append(f"import {module.name} fails: {type(error).__name__}: {error}")
    print(f"imported {count} modules")
    return errors


def try_call(extra, call, installed):
    """Return what is wrong with a call, or None."""
    import neomx as mx

    with tempfile.TemporaryDirectory() as folder:
        try:
            call(mx, folder)
        except Exception as error:
            if installed:
                return f"{call.__name__} fails: {type(error).__name__}: {error}"
            if f'pip install "neomx[{extra}]"' not in str(error):
                return f"{call.__name__} does not name the extra {extra!r}: {type(error).__name__}: {error}"
            return None
    return None if installed else f"{call.__name__} works without the extra {extra!r}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hide", action="store_true")
    parser.add_argument("--with", dest="extra")
    options = parser.parse_args()
    if options.hide:
        hide()
    errors = import_everything()
    for extra in [options.extra] if options.extra else CALLS:
        calls = CALLS.get(extra, [])
        errors += filter(None, [try_call(extra, call, installed=bool(options.extra)) for call in calls])
    for extra, calls in WORK_WITHOUT.items():
        errors += filter(None, [try_call(extra, call, installed=True) for call in calls])
    print("\n".join(errors) or "everything is as expected")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
