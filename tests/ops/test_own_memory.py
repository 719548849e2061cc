"""Results of ops never share memory with their inputs: writing to one must not change the other."""

import pytest

import neomx as mx
from parity import spec
from parity.recordings import FAMILIES


def memory(array):
    return array.to_torch().untyped_storage().data_ptr() if array.stype == "default" and array.size else None


def shares_memory(case):
    numpy_mode = isinstance(case, spec.NpCase)
    make = mx.np.array if numpy_mode else mx.nd.array
    with mx.util.np_shape(numpy_mode), mx.util.np_array(numpy_mode):
        arrays = [make(value, dtype=value.dtype) for value in case.arrays()]
        outputs = case.call(mx, arrays)
    given = {memory(array) for array in arrays} - {None}
    made = [each for each in outputs if hasattr(each, "asnumpy") and not any(each is array for array in arrays)]
    return any(memory(array) in given for array in made)


@pytest.mark.parametrize("family", FAMILIES)
def test_results_do_not_share_memory_with_inputs(family):
    calls = [case for case in spec.CASES[family].values() if isinstance(case, spec.Call)]
    assert [case.id for case in calls if shares_memory(case)] == []
