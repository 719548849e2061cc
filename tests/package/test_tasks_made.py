"""The data and the scores of the programs in examples/tasks that several of them share, and their readers of files."""

import pathlib
import sys

import numpy as np
import pytest

from neomx.sample import digits

sys.path.append(
    str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "tasks")
)  # last: examples/ has a gan too

from detection import answers
from made.canvases import SIZE, canvases, resized
from made.graphs import cora, made_graph
from made.precision import average_precision
from made.ratings import movielens
from made.series import read_series, windows


def test_average_precision_is_the_mean_precision_at_each_hit():
    # Ranked: hit, miss, hit; a third positive is not found.
    assert average_precision([0.2, 0.9, 0.5], [1, 1, 0], 3) == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert average_precision([], [], 2) == 0


def test_canvases_depend_only_on_seed_and_number():
    pictures, labels, _, _ = digits()
    few, many = canvases(pictures, labels, 3, seed=1), canvases(pictures, labels, 6, seed=1)
    for a, b in zip(few, many, strict=True):
        np.testing.assert_array_equal(a, b[:3])
    assert (canvases(pictures, labels, 3, seed=2).pixels != few.pixels).any()


def test_labels_of_a_canvas_agree():
    pictures, labels, _, _ = digits()
    made = canvases(pictures, labels, 30, seed=1)
    for pixels, boxes, mask, present in zip(*made, strict=True):
        inside = np.zeros((SIZE, SIZE), bool)
        boxes = boxes[boxes[:, 0] >= 0]
        assert len(boxes) and set(boxes[:, 0]) == set(np.flatnonzero(present))
        for digit, *corners in boxes:
            left, top, right, bottom = np.round(np.array(corners) * SIZE).astype(int)
            part = mask[top:bottom, left:right]
            assert set(np.unique(part)) == {0, digit + 1}
            # The box is tight: each of its sides touches the digit.
            assert all(side.any() for side in (part[0], part[-1], part[:, 0], part[:, -1]))
            inside[top:bottom, left:right] = True
        assert not mask[~inside].any() and not pixels[0][~inside].any()


def test_resizing_keeps_a_plain_picture():
    assert resized(np.full((28, 28), 7), 20) == pytest.approx(np.full((20, 20), 7))
    picture = np.random.default_rng(1).random((28, 28))
    np.testing.assert_array_equal(resized(picture, 28), picture)


def test_each_box_is_found_once():
    boxes = np.array([[3, 0.1, 0.1, 0.5, 0.5], [-1, -1, -1, -1, -1]], "float32")
    detected = np.array(
        [
            [3, 0.9, 0.1, 0.1, 0.5, 0.45],  # right
            [3, 0.8, 0.1, 0.1, 0.5, 0.5],  # the box is taken
            [4, 0.7, 0.1, 0.1, 0.5, 0.5],  # another digit
            [3, 0.6, 0.4, 0.4, 0.9, 0.9],  # another place
            [-1, 0.5, 0.1, 0.1, 0.5, 0.5],  # suppressed
        ],
        "float32",
    )
    assert answers(detected, boxes)[:, 2].tolist() == [1, 0, 0, 0]


def test_graph_has_each_edge_once_and_in_both_directions():
    graph = made_graph(100, seed=1)
    edges = {(node, other) for node in range(100) for other in graph.neighbors[slice(*graph.starts[node : node + 2])]}
    assert len(edges) == len(graph.neighbors)
    assert edges == {(b, a) for a, b in edges} and all((node, node) in edges for node in range(100))


def test_cora_is_read(tmp_path):
    (tmp_path / "cora.content").write_text("31\t0\t1\tTheory\n7\t1\t1\tRules\n9\t0\t0\tTheory\n")
    (tmp_path / "cora.cites").write_text("31\t7\n7\t9\n31\t1000\n")  # paper 1000 has no content
    graph = cora(tmp_path)
    assert graph.features.tolist() == [[0, 1], [1, 1], [0, 0]] and graph.classes.tolist() == [1, 0, 1]
    assert graph.starts.tolist() == [0, 2, 5, 7] and graph.neighbors.tolist() == [0, 1, 0, 1, 2, 1, 2]


def test_movielens_100k_is_read(tmp_path):
    (tmp_path / "u.data").write_text("9\t5\t3\t881250949\n2\t5\t4\t881250949\n")
    (tmp_path / "u.user").write_text("2|24|M|writer|85711\n9|53|F|artist|94043\n")
    (tmp_path / "u.item").write_bytes("5|Café (1995)|01-Jan-1995||http|0|0|1\n".encode("latin-1"))
    user, item, group, genre, rating = movielens(tmp_path)
    assert (user.tolist(), item.tolist(), rating.tolist()) == ([1, 0], [0, 0], [3, 4])
    assert (group.tolist(), genre.tolist()) == ([0, 1], [0, 0])


def test_movielens_1m_is_read(tmp_path):
    (tmp_path / "ratings.dat").write_text("1::7::5::978300760\n1::8::2::978302109\n")
    (tmp_path / "users.dat").write_text("1::F::1::10::48067\n")
    (tmp_path / "movies.dat").write_text("7::Toy (1995)::Drama|Comedy\n8::Ice (1999)::Action\n")
    user, item, group, genre, rating = movielens(tmp_path)
    assert (user.tolist(), item.tolist(), rating.tolist()) == ([0, 0], [0, 1], [5, 2])
    assert (group.tolist(), genre.tolist()) == ([0, 0], [1, 0])
    (tmp_path / "ratings.dat").unlink()
    with pytest.raises(SystemExit, match="neither u.data nor ratings.dat"):
        movielens(tmp_path)


def test_columns_of_numbers_are_read_from_csv(tmp_path):
    (tmp_path / "a.csv").write_text("time,x,name,y\nmonday,1,a,4\ntuesday,2,5,4.5\n")
    assert [series.tolist() for series in read_series(tmp_path)] == [[1, 2], [4, 4.5]]
    assert windows([np.arange(5), np.arange(3)], 3, 2).tolist() == [[0, 1, 2], [2, 3, 4], [0, 1, 2]]
    with pytest.raises(SystemExit, match="at least 3 values"):
        windows([np.arange(2)], 3, 1)
