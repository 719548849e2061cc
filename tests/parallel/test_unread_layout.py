"""A layout that the program does not read is reported, since each worker then has the whole model."""

import pytest
from launching import neomx_run, write

READS = """
    import neomx as mx
    {read}
    mx.dist.barrier()
"""


@pytest.mark.parametrize(
    ("layout", "read", "warned"),
    [("tensor=2", "", True), ("tensor=2", "mx.parallel.Layout.from_env()", False), ("data=2", "", False)],
)
def test_layout_that_the_program_does_not_read_is_reported(tmp_path, layout, read, warned):
    done = neomx_run("--layout", layout, write(tmp_path, READS.format(read=read)))
    assert done.returncode == 0, done.stderr
    assert (f"--layout {layout} had no effect" in done.stdout + done.stderr) is warned
