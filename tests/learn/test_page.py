"""The code on the pages about ways to learn runs as printed."""

import subprocess
import sys

import doc_pages
import pytest
from launching import LIMIT, environment


@pytest.mark.parametrize("page", sorted(doc_pages.DOCS.glob("learn*.md")), ids=lambda page: page.stem)
def test_code_on_the_page_runs(page):
    command = [sys.executable, doc_pages.__file__, str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
