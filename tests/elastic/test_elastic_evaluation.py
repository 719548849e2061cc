"""A worker that dies while the workers evaluate: the others process its samples, and sums contain each once."""

import json

import pytest
from cluster import Cluster
from launching import ROOT


@pytest.mark.parametrize("where", ["in batch 1 of evaluation 0", "before evaluation 1", "after the sum 0"])
def test_each_sample_is_evaluated_once(tmp_path, where):
    script = f"{ROOT}/tests/workers/elastic_evaluation.py"
    with Cluster(script, [tmp_path, where], workers=3, output=tmp_path, DIES="1") as job:
        codes = job.wait()
    logs = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    assert codes == {0: 0, 1: -9, 2: 0}, logs
    for member in (0, 2):
        assert json.loads((tmp_path / f"found-{member}.json").read_text()) == [[1] * 31] * 2, logs
