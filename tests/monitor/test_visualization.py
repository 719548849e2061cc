"""mx.viz beyond the recordings: cases in which MXNet fails, and missing packages. See parity/cases/visualization.py."""

import sys

import pytest

import neomx as mx

X = mx.sym.var("data")


def test_pooling_without_a_type_is_max():
    net = mx.sym.Pooling(X, kernel=(3, 3), name="pool")
    assert 'pool [label="Pooling\nmax, 3x3/1"' in mx.viz.plot_network(net).source


def test_edges_name_the_output_they_come_from(capsys):
    first, second = mx.sym.split_v2(X, (1,), axis=1)
    net = mx.sym.Group([mx.sym.relu(first, name="a"), mx.sym.FullyConnected(second, num_hidden=4, name="b")])
    source = mx.viz.plot_network(net, shape={"data": (2, 6)}).source
    assert "\ta -> _split_v2" in source and "[label=1 " in source
    assert "\tb -> _split_v2" in source and "[label=5 " in source
    mx.viz.print_summary(net, {"data": (2, 6)})
    assert "Total params: 24\n" in capsys.readouterr().out  # 5 * 4 + 4


def test_custom_op_shows_its_type():
    @mx.operator.register("viz_identity")
    class Identity(mx.operator.CustomOpProp):
        pass

    assert "me [label=viz_identity " in mx.viz.plot_network(mx.sym.Custom(X, op_type="viz_identity", name="me")).source


def test_plot_is_displayed_in_a_notebook():
    dot = mx.visualization.plot_network(X * 2, title="t", save_format="svg")
    assert type(dot).__name__ == "Digraph" and dot.format == "svg" and hasattr(dot, "_repr_mimebundle_")


def test_missing_graphviz_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(mx.MXNetError, match=r'pip install "neomx\[viz\]"'):
        mx.viz.plot_network(X)


def test_bad_input_is_named(capsys):
    with pytest.raises(TypeError, match="symbol must be a Symbol, received int"):
        mx.viz.plot_network(3)
    with pytest.raises(TypeError, match="symbol must be Symbol, received str"):
        mx.viz.print_summary("net-symbol.json")
    with pytest.raises(mx.MXNetError, match="unknown argument 'image'. Arguments: data"):
        mx.viz.plot_network(X * 2, shape={"image": (1, 2)})
    with pytest.raises(ValueError, match="Input shape is incomplete.*: y"):
        mx.viz.print_summary(mx.sym.dot(X, mx.sym.var("y")), {"data": (2, 3)})
    assert capsys.readouterr().out == ""


def test_positions_must_be_four_column_ends():
    with pytest.raises(IndexError, match="ends of 4 columns, received \\[0.5, 1.0\\]"):
        mx.viz.print_summary(mx.sym.relu(X), {"data": (2, 3)}, positions=[0.5, 1.0])
