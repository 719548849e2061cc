"""A worker that cannot reach the job's store for a while does not train, and joins the others again."""

import json
import time

from cluster import Cluster
from launching import ROOT

# The relayed worker pretends to run on another host, so that nobody sees that its process is alive.
ELSEWHERE = """
import os, runpy, socket, sys
if os.environ["RANK"] == "1":
    socket.gethostname = lambda: "elsewhere"
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


AT_ONCE = 24  # samples of all workers in a step


def trained_samples(directory):
    """Return the samples of all committed steps, by epoch.

    A step counts if a worker has committed it. A worker that was cut off in it may have sent its gradient before: then
    the others have fewer samples than a step, and its samples are the rest.
    """
    steps, dropped = {}, {}
    for path in directory.glob("seen-*.jsonl"):
        for line in path.read_text().splitlines():
            epoch, before, after, samples, _ = json.loads(line)
            (steps if after == before + 1 else dropped).setdefault((epoch, before), []).extend(samples)
    found = {}
    for (epoch, number), samples in steps.items():
        rest = dropped.get((epoch, number), []) if len(samples) < AT_ONCE else []
        found.setdefault(epoch, []).extend([*samples, *rest])
    return found


def test_a_worker_that_was_cut_off_joins_again_and_no_sample_is_lost(tmp_path):
    script = tmp_path / "elsewhere.py"
    script.write_text(ELSEWHERE)
    arguments = [f"{ROOT}/tests/workers/elastic_training.py", tmp_path, 12, 8, 0.1]
    options = {"workers": 3, "output": tmp_path, "silence": 2.0, "relayed": 1, "NEOMX_SILENCE": "2"}
    with Cluster(script, arguments, **options) as job:
        seen = tmp_path / "seen-0.jsonl"
        while not (seen.exists() and seen.read_text().count("\n") >= 2):
            time.sleep(0.05)
        job.relay.cut()
        while (job.generation() or {"members": [0, 1, 2]})["members"] != [0, 2]:
            time.sleep(0.05)
        job.relay.heal()
        codes = job.wait()
    logs = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    assert codes == dict.fromkeys(range(3), 0), logs
    assert "worker 1 is lost" in logs["worker-0.log"] and "worker 1 joins" in logs["worker-0.log"]
    trained = trained_samples(tmp_path)
    assert {epoch: sorted(samples) for epoch, samples in trained.items()} == dict.fromkeys(range(12), [*range(96)]), (
        logs
    )
    weights = {(tmp_path / f"weights-{member}.params").read_bytes() for member in range(3)}
    assert len(weights) == 1
