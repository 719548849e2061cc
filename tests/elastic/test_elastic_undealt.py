"""A training whose samples are not dealt to the workers goes on after a loss, and says what is missing."""

from cluster import Cluster
from launching import ROOT


def test_the_others_go_on_and_the_first_says_that_samples_are_missing(tmp_path):
    with Cluster(f"{ROOT}/tests/workers/elastic_undealt.py", workers=2, output=tmp_path) as job:
        codes = job.wait()
    logs = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    assert codes == {0: 0, 1: -9}, logs
    assert logs["worker-0.log"].count("the samples of this training are not dealt to the workers") == 1, logs
    assert "worker 1 is lost" in logs["worker-0.log"] and "steps: 12" in logs["worker-0.log"], logs
