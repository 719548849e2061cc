"""A short, seeded part of the fuzzer of the wire."""

import importlib.util
import pathlib

import pytest

PATH = pathlib.Path(__file__).with_name("wire.py")


@pytest.fixture(scope="module")
def fuzzer():
    spec = importlib.util.spec_from_file_location("fuzz_wire", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fuzzed_messages_do_not_break_the_wire(fuzzer):
    done = fuzzer.run(cases=3000, seed=14, seconds=12.0)
    assert all(done.values()), done
