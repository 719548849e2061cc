"""`neomx check` knows the names of docs/guide-names.md, and which of them are for many workers."""

import re

from doc_pages import DOCS
from reading import findings, read

from neomx.check.program import check, registered_names
from neomx.check.starting import starts


def names():
    """Return the names in the first column of the page's table."""
    table = (DOCS / "guide-names.md").read_text().partition("|---|---|---|\n")[2].partition("\n\n")[0]
    return [name for row in table.splitlines() for name in re.findall(r"`(mx\.[\w.]+)`", row.split("|")[1])]


def test_every_name_of_the_page_is_known():
    assert len(names()) > 35
    text = "import mxnet as mx\nimport mxnet.distributed\nfrom mxnet.gluon import distributed, optimizers\n"
    text += "from mxnet.distributed.backend import ReduceOp, all_reduce\nfrom mxnet.parallel.datashard import *\n"
    text += "\n".join(names()) + "\nall_reduce, ReduceOp.AVG, distributed.DDP, optimizers.Adam, ScatterDataShard\n"
    text += "mx.model.FeedForward(mx.sym.var('x'), loss=None), mx.sym.SoftmaxOutput(multi_label=True)\n"
    assert findings(text, "missing", "error") == []


def test_similar_names_and_keywords_are_missing():
    text = """
        import mxnet as mx
        mx.comm_reduce, mx.parallel.lunch
        mx.random.RandomState(1).uniform(0, 1, shap=3)
    """
    missing = [name for _, _, name, _ in findings(text)]
    assert missing == ["mx.comm_reduce", "mx.parallel.lunch", "mx.random.RandomState.uniform(shap)"]


def test_program_for_many_workers_is_started_as_such():
    source = read("import mxnet as mx\nfrom mxnet import gluon\nnet = gluon.distributed.DDP(gluon.nn.Dense(1))\n")
    _, facts = check(source, frozenset(registered_names(source.tree)))
    alone, many = starts(source, facts)
    assert alone.command == "python -m neomx train.py" and many.command == "neomx run -n 2 train.py"
    assert many.why.startswith("line 3 has DDP, which is for many workers. Note that every worker would read all")
    divided = read("import mxnet as mx\nmx.parallel.datashard.ScatterDataShard(data)\n")
    _, facts = check(divided, frozenset())
    assert "Note" not in starts(divided, facts)[-1].why
