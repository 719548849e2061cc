"""`neomx check --fix`: rewrites import statements and nothing else."""

import os
import re
import stat
import textwrap

import pytest
from reading import read

from neomx.check import imports, sources
from neomx.launch.cli import main

BEFORE = """
    #!/usr/bin/env python
    import os, mxnet as mx  # caf\xe9: import mxnet as mx
    import mxnet
    import  mxnet.ndarray   as nd
    import mxnet.gluon.nn
    from mxnet import (autograd,
                       gluon as g)  # and more
    from mxnet.gluon.data import vision; from mxnet import *
    import horovod.mxnet as hvd
    from horovod import mxnet as hvd2
    from byteps import mxnet as bps
    from .mxnet import local
    import mxnet_tools, numpy

    def f():
        "import mxnet as mx"
        \xe9 = 1; import mxnet as inner
        try:
            from mxnet.gluon.nn import Dense
        except ImportError: import mxnet.symbol as sym
        return mxnet.gluon.nn.Dense
"""
AFTER = """
    #!/usr/bin/env python
    import os, neomx as mx  # caf\xe9: import mxnet as mx
    import neomx as mxnet
    import  neomx.ndarray   as nd
    import neomx.gluon.nn, neomx as mxnet
    from neomx import (autograd,
                       gluon as g)  # and more
    from neomx.gluon.data import vision; from neomx import *
    import neomx.horovod as hvd
    from neomx import horovod as hvd2
    from neomx import horovod as bps
    from .mxnet import local
    import mxnet_tools, numpy

    def f():
        "import mxnet as mx"
        \xe9 = 1; import neomx as inner
        try:
            from neomx.gluon.nn import Dense
        except ImportError: import neomx.symbol as sym
        return mxnet.gluon.nn.Dense
"""


def script(text):
    return textwrap.dedent(text).lstrip("\n")


def test_only_imports_change_and_fix_is_idempotent():
    assert imports.rewritten(read(BEFORE)) == script(AFTER)
    assert imports.rewritten(read(AFTER)) == script(AFTER)


def test_rewritten_imports_bind_the_names_used():
    statements = [line.strip() for line in AFTER.splitlines() if re.match(r"    import +neomx", line)]
    space = {}
    exec("\n".join(statements), space)
    assert space["mxnet"].gluon.nn.Dense is space["mxnet"].gluon.nn.basic_layers.Dense
    assert space["nd"] is space["mxnet"].nd and space["hvd"].__name__ == "neomx.horovod"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ('__import__("mxnet")', "line 2: __import__('mxnet') has the module's name in a string"),
        ('importlib.import_module("mxnet.gluon")', "line 2: importlib.import_module('mxnet.gluon') has"),
        ('sys.modules["mxnet"]', "line 2: sys.modules['mxnet'] has"),
        ("import horovod.mxnet", "line 2: `import horovod.mxnet` binds horovod. Write `import horovod.mxnet as hvd`"),
        ("import horovod.torch as hvd", "line 2: neomx has no horovod.torch"),
        ("from horovod import mxnet, torch", "line 2: of horovod, neomx only has horovod.mxnet"),
        ("from horovod.common import util", "line 2: of horovod.common, neomx only has horovod.mxnet"),
        ("from mxnet. gluon import nn", "line 2: expected `from mxnet.gluon import ...` on one line"),
        ("import mxnet . nd  as q", "line 2: expected `mxnet.nd` without spaces"),
        ("import gluoncv", "line 2: gluoncv imports mxnet itself"),
        ("import numpy as np; np.float(1)", "line 2: numpy.float: the installed NumPy has no such name"),
        ("if mx.__version__ > '1.5': pass", "line 2: mxnet.__version__ is 1.9.1, but neomx.__version__"),
        ("print 'x'", "line 2: Python 2 syntax"),
    ],
)
def test_unsafe_files_are_not_changed_and_the_reason_names_the_line(statement, reason):
    with pytest.raises(imports.NotSafe) as error:
        imports.rewritten(read(f"import mxnet as mx\n{statement}\n"))
    assert str(error.value).startswith(reason)


def test_file_without_mxnet_is_silently_skipped():
    text = "import gluoncv, importlib\nimportlib.import_module(name)\n"
    assert imports.rewritten(read(text)) == text


def test_file_is_replaced_atomically_with_its_encoding_and_mode(tmp_path):
    path, link = tmp_path / "train.py", tmp_path / "link.py"
    data = b"# -*- coding: latin-1 -*-\r\n# caf\xe9\x0c\r\nimport mxnet as mx\r\nx = 1  \r\n"
    path.write_bytes(data)
    path.chmod(0o755)
    link.symlink_to(path)
    source = sources.read(str(link))
    imports.write(source, imports.rewritten(source))
    assert path.read_bytes() == data.replace(b"mxnet", b"neomx")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755 and link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link.py", "train.py"]


def test_utf_8_byte_order_mark_is_kept(tmp_path):
    path = tmp_path / "train.py"
    path.write_bytes(b"\xef\xbb\xbfimport mxnet as mx\n")
    assert main(["check", "--fix", str(path)]) == 0
    assert path.read_bytes() == b"\xef\xbb\xbfimport neomx as mx\n"


def test_fix_writes_only_without_diff(tmp_path, capsys):
    path, other = tmp_path / "train.py", tmp_path / "other.py"
    path.write_text("import mxnet as mx\n")
    other.write_text("import mxnet as mx\n__import__('mxnet')\n")
    assert main(["check", "--fix", "--diff", str(path)]) == 0
    assert capsys.readouterr().out.endswith("@@ -1 +1 @@\n-import mxnet as mx\n+import neomx as mx\n")
    assert path.read_text() == "import mxnet as mx\n"
    assert main(["check", "--fix", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"{path}: now imports neomx\n" in out
    assert f"{other}: not changed. line 2: __import__('mxnet')" in out
    assert path.read_text() == "import neomx as mx\n" and "import mxnet" in other.read_text()
    assert main(["check", "--fix", str(path)]) == 0
    assert capsys.readouterr().out == ""


def test_notebook_is_not_changed_and_a_remedy_is_shown(tmp_path, capsys):
    path = tmp_path / "demo.ipynb"
    path.write_text('{"cells": [{"cell_type": "code", "source": ["import mxnet"]}]}')
    assert main(["check", "--fix", str(path)]) == 1
    assert "Add `import neomx.compat.mxnet` to the first cell" in capsys.readouterr().out
