"""`neomx check` knows the networks of `mx.sym` and their arguments."""

from reading import findings, names

from neomx import networks


def test_networks_are_known():
    text = f"""
        import mxnet as mx
        from mxnet import sym
        {", ".join(f"mx.sym.{name}" for name in networks.__all__)}
        sym.LSTM(sym.Variable("data"), num_hidden=3, num_layers=2)
        net = sym.Resnet(sym.Variable("data"), depth=18, num_classes=10, name="net")
        net.list_arguments()
        sym.DeConvolution(net, kernel=(2, 2), num_filter=3)
    """
    assert findings(text) == []
    assert set(names(text, "runs")) >= {f"mx.sym.{name}" for name in networks.__all__}


def test_unknown_networks_and_arguments_are_reported():
    text = """
        import mxnet as mx
        mx.sym.Vgg
        mx.sym.LSTM(mx.sym.Variable("data"), num_hidden=3, layers=2)
        mx.sym.Resnet(mx.sym.Variable("data"), depth=18).list_argumentz()
    """
    found = [(line, name, message) for line, _, name, message in findings(text)]
    assert [(line, name) for line, name, _ in found] == [
        (2, "mx.sym.Vgg"),
        (3, "mx.sym.LSTM(layers)"),
        (4, "mx.symbol.Symbol.list_argumentz"),
    ]
    assert "it has mx.sym.VGG" in found[0][2] and "layers" in found[1][2] and "list_arguments" in found[2][2]
