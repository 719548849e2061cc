"""The code of docs/learn-less-labels.md runs as printed."""

import subprocess
import sys

import doc_pages
from launching import LIMIT, environment


def test_page_runs_as_printed():
    page = doc_pages.DOCS / "learn-less-labels.md"
    assert sum(map(doc_pages.runs, doc_pages.blocks(page))) > 15
    command = [sys.executable, doc_pages.__file__, str(page)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, env=environment()
    )
    assert done.returncode == 0, done.stdout
