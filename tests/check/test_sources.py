"""Source files for the check: encodings, syntax errors, Python 2, notebooks, folders."""

import json

import pytest
from reading import read as read_text

from neomx.base import MXNetError
from neomx.check import sources
from neomx.check.program import check


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("print 'loss', loss", "a print statement"),
        ("print >>sys.stderr, 1", "a print statement"),
        ("try: pass\nexcept ValueError, e: pass", "a comma in except"),
        ("exec 'x = 1'", "an exec statement"),
        ("raise ValueError, 'no'", "a comma in raise"),
        ("if a <> b: pass", "the operator <>"),
        ("x = `y`", "a backtick"),
        ("x = 0777", "a number such as 0777 or 1L"),
        ("x = 10L", "a number such as 0777 or 1L"),
        ("x = ur'a'", "a string with the prefix ur"),
        ("f = lambda (a, b): a", "a tuple as parameter"),
        ("if a:\n        x = 1\n\ty = 2", "tabs mixed with spaces"),
    ],
)
def test_python_2_syntax_is_recognized_with_its_line(statement, what):
    source = read_text(f"import mxnet as mx\n{statement}\n", "old.py")
    (problem,) = source.problems
    assert problem.message.startswith(f"Python 2 syntax ({what}). Convert the file with `2to3 -w old.py`")
    assert problem.line == 1 + len(statement.splitlines())
    (finding,) = [each for each in check(source)[0] if each.kind != "runs"]
    assert (finding.kind, finding.line, finding.message) == ("error", problem.line, problem.message)


def test_other_syntax_errors_have_pythons_message():
    (problem,) = read_text("import mxnet as mx\nx = (1,\ny = 2\n").problems
    assert problem.message == "syntax error: '(' was never closed"
    assert problem.line == 2
    (problem,) = read_text("x = \0").problems
    assert "null bytes" in problem.message


def test_encodings(tmp_path):
    latin = "import mxnet as mx\n# caf\xe9\nmx.nd.zeroz\n".encode("latin-1")
    source = sources.read(write(tmp_path / "a.py", latin))
    (problem,) = source.problems
    assert problem.line == 2
    assert problem.message.startswith("the file is not UTF-8, and it declares no encoding, so Python cannot run it")
    assert [finding.name for finding in check(source)[0] if finding.kind == "missing"] == ["mx.nd.zeroz"]
    declared = b"# -*- coding: latin-1 -*-\n" + latin
    assert sources.read(write(tmp_path / "b.py", declared)).problems == []
    wrong = b"# -*- coding: no-such-thing -*-\n" + latin
    assert "it declares a wrong encoding" in sources.read(write(tmp_path / "c.py", wrong)).problems[0].message
    marked = b"\xef\xbb\xbfimport mxnet as mx\r\nx = 1\x0c\r\nmx.nd.zeroz\r\n"
    source = sources.read(write(tmp_path / "d.py", marked))
    assert [finding.line for finding in check(source)[0] if finding.kind == "missing"] == [3]


def notebook(*cells, kind="code"):
    cells = [{"cell_type": kind, "source": cell.splitlines(keepends=True)} for cell in cells]
    cells.insert(1, {"cell_type": "markdown", "source": ["import nothing("]})
    return json.dumps({"cells": cells, "nbformat": 4})


def test_code_cells_of_a_notebook_are_one_program(tmp_path):
    text = notebook(
        "%matplotlib inline\nimport mxnet as mx\nfiles = !ls\nif True:\n    %time x = 1\nmx.nd.zeros?\n",
        "x = mx.nd.zeros((2,))\n\nmx.nd.zeroz\n",
        "%%bash\nls |\n",
        "%%time\nx.asnumpyy()\n",
        "this is no Python\n",
        "mx.nd.onez\n",
    )
    source = sources.read(write(tmp_path / "demo.ipynb", text))
    found = [(*source.place(each.line), each.name) for each in check(source)[0] if each.kind in ("missing", "error")]
    asnumpyy = "mx.ndarray.NDArray.asnumpyy"
    assert found == [(2, 3, "mx.nd.zeroz"), (4, 2, asnumpyy), (5, 1, ""), (6, 1, "mx.nd.onez")]


def test_old_and_broken_notebooks(tmp_path):
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["import mxnet as mx\n", "mx.nd.zeroz"]}]}]}
    source = sources.read(write(tmp_path / "old.ipynb", json.dumps(old)))
    assert [each.name for each in check(source)[0] if each.kind == "missing"] == ["mx.nd.zeroz"]
    for text in ("", "{", "[]", "{}", '{"cells": [1]}'):
        (problem,) = sources.read(write(tmp_path / "broken.ipynb", text)).problems
        assert problem.message.startswith("not a Jupyter notebook")


def test_folders(tmp_path):
    for name in ("b.py", "a/c.py", "a/d.txt", ".hidden/e.py", "env/f.py", "env/pyvenv.cfg", "__pycache__/g.py"):
        write(tmp_path / name, "")
    found = [path.removeprefix(f"{tmp_path}/") for path in sources.find([str(tmp_path), str(tmp_path / "a" / "d.txt")])]
    assert found == ["b.py", "a/c.py", "a/d.txt"]
    with pytest.raises(MXNetError, match="no such file or folder: .*nothing"):
        list(sources.find([str(tmp_path / "nothing")]))


def test_broken_links_in_folders_are_skipped(tmp_path):
    (tmp_path / "a.py").write_text("import mxnet\n")
    (tmp_path / "b.py").symlink_to(tmp_path / "missing.py")
    assert list(sources.find([str(tmp_path)])) == [str(tmp_path / "a.py")]
