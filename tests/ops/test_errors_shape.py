"""Error messages of ops that reshape, slice, join, index and sort."""

import numpy as np
import pytest

import neomx as mx

nd = mx.nd
x = nd.array(np.arange(12).reshape(3, 4))
image = nd.array(np.zeros((1, 2, 4, 4)))
ints = nd.array(np.zeros((3, 4)), dtype="int32")
steps = nd.array(np.zeros((4, 3, 2)))


def vector(*values):
    return nd.array(values)


CALLS = [
    (lambda: nd.reshape(x), "expected a nonempty shape"),
    (lambda: nd.reshape(x, shape=(5, 2)), r"12 elements.*\(10 elements"),
    (lambda: nd.reshape(x, target_shape=(5, 2)), "12 elements"),
    (lambda: nd.reshape(x, target_shape=(-1, 2)), "expected positive sizes"),
    (lambda: nd.reshape(x, shape="wide"), "expected an int or a tuple of ints, received 'wide'"),
    (lambda: nd.reshape_like(x, x, lhs_begin=1, lhs_end=1), "lhs_begin=1, lhs_end=1 is not a valid range"),
    (lambda: nd.reshape_like(x, vector(1, 2)), "invalid for input of size 12"),
    (lambda: nd.expand_dims(x, axis=4), r"range of \[-3, 2\], but got 4"),
    (lambda: nd.squeeze(x, axis=0), "axis 0 has size 3"),
    (lambda: nd.squeeze(x, axis=9), "Dimension out of range"),
    (lambda: nd.transpose(x, axes=(0,)), "permute"),
    (lambda: nd.transpose(x, axes=(0, 0)), "permute"),
    (lambda: nd.swapaxes(x, dim1=5, dim2=0), "Dimension out of range"),
    (lambda: nd.flip(x, axis=2), "Dimension out of range"),
    (lambda: nd.depth_to_space(image, block_size=2), r"channels \(2\) must be divisible by"),
    (lambda: nd.depth_to_space(x, block_size=2), "4 dimensions"),
    (lambda: nd.space_to_depth(image, block_size=3), "must be divisible by block_size"),
    (lambda: nd.space_to_depth(image, block_size=0), "positive block_size"),
    (lambda: nd.tile(x, reps=(-1,)), "tile"),
    (lambda: nd.repeat(x, repeats=-1), "repeat"),
    (lambda: nd.broadcast_axis(x, axis=0, size=5), "axis 0 has size 3"),
    (lambda: nd.broadcast_axis(x, axis=(0, 1), size=5), "must have the same length"),
    (lambda: nd.broadcast_to(x, shape=(4,)), r"cannot be broadcast to \(4,\)"),
    (lambda: nd.broadcast_to(x, shape=(3, 5)), "must match the existing size"),
    (lambda: nd.broadcast_like(x, steps), "equal numbers of dimensions"),
    (lambda: nd.broadcast_like(x, steps, lhs_axes=(0,), rhs_axes=()), "must be nonempty and equally long"),
    (lambda: nd.diag(x, k=7), "diagonal 7 is out of range"),
    (lambda: nd.pad(image, mode="constant", pad_width=(1, 1)), "two integers for each of 4 dimensions"),
    (lambda: nd.pad(image, mode="constant", pad_width=(1,) * 8), "start with four zeros"),
    (lambda: nd.pad(image, mode="wrap", pad_width=(0,) * 8), "'constant', 'edge', 'reflect'"),
    (lambda: nd.pad(image, mode="reflect", pad_width=(0, 0, 0, 0, 4, 4, 0, 0)), "[Pp]adding size"),
    (lambda: nd.im2col(image, kernel=(2,)), r"kernel must be \(height, width\)"),
    (lambda: nd.col2im(image, output_size=(4,), kernel=(2, 2)), "output_size must be"),
    (lambda: nd.slice(x, begin=(0,), end=(1, 1)), "must have the same length"),
    (lambda: nd.slice(x, begin=(0, 0, 0), end=(1, 1, 1)), "at most 2"),
    (lambda: nd.slice(x, begin=(0,), end=(1,), step=(0,)), "step cannot be zero"),
    (lambda: nd.slice_axis(x, axis=0, begin=2, end=9), "2:9 is not a valid slice of axis 0 with size 3"),
    (lambda: nd.slice_like(x, steps), "equal numbers of dimensions"),
    (lambda: nd.slice_like(x, nd.array(np.zeros((5, 5)))), "less than 5 in shape_like"),
    (lambda: nd._internal._slice_assign(x, x, begin=(0,), end=(1,)), r"shape of the slice, \(1, 4\), got \(3, 4\)"),
    (lambda: nd.Crop(image, h_w=(9, 9)), r"must fit into \(4, 4\)"),
    (lambda: nd.Crop(image, h_w=(2, 2), offset=(3, 3)), r"offset \(3, 3\) is out of range"),
    (lambda: nd.Crop(x, h_w=(2, 2)), "4 dimensions"),
    (lambda: nd.split(x, num_outputs=3), "size 4 is not divisible into 3"),
    (lambda: nd.split(x, num_outputs=2, squeeze_axis=True), "parts of size 1"),
    (lambda: nd._internal._split_v2(x, indices=(0, 9)), "at most 4"),
    (lambda: nd._internal._split_v2(x, indices=(1, 2)), "start with 0"),
    (lambda: nd.concat(), "at least one array"),
    (lambda: nd.concat(x, ints), "one dtype"),
    (lambda: nd.concat(x, steps), "same number of dimensions"),
    (lambda: nd.stack(), "at least one array"),
    (lambda: nd.stack(x, vector(1)), "equal size"),
    (lambda: nd.take(x, vector(3), mode="raise"), "index 3 is out of bounds: expected 0 to 2"),
    (lambda: nd.take(x, vector(0), axis=2), "Dimension out of range"),
    (lambda: nd.batch_take(x, vector(0)), "one index for each of 3 rows"),
    (lambda: nd.pick(x, vector(0, 1)), r"index must have shape \(3, 1\)"),
    (lambda: nd.pick(x, vector(0, 1, 2), axis=None), "expected an axis"),
    (lambda: nd.fill_element_0index(x, vector(1), vector(1)), "one value and one index for each"),
    (lambda: nd.fill_element_0index(x, vector(1, 1, 1), vector(0, 0, 4)), "index 4 is out of bounds"),
    (lambda: nd.gather_nd(x, nd.array([[0], [4]])), "index 4 is out of bounds for axis 1 with size 4"),
    (lambda: nd.gather_nd(x, nd.array([[0], [0], [0]])), "1 to 2 rows"),
    (lambda: nd.scatter_nd(vector(1), nd.array([[5]]), shape=(2,)), "index 5 is out of bounds"),
    (lambda: nd.scatter_nd(vector(1, 2), nd.array([[0]]), shape=(2,)), r"shape \(1,\), got \(2,\)"),
    (lambda: nd.contrib.index_copy(x, vector(0), x), "one index for each of 3 new rows"),
    (lambda: nd.contrib.index_copy(x, vector(0, 1, 9), x), "index 9 is out of bounds"),
    (lambda: nd.contrib.boolean_mask(x, vector(1)), r"shape \(3,\), got \(1,\)"),
    (lambda: nd.ravel_multi_index(x, shape=(2, 2)), "a row for each of 2"),
    (lambda: nd.unravel_index(vector(1)), "expected the shape"),
    (lambda: nd.where(vector(1), x, x), "condition must have the shape of x"),
    (lambda: nd.where(x, x, ints), "the same shape and dtype"),
    (lambda: nd.topk(x, k=9), "k must be at most 4"),
    (lambda: nd.topk(x, axis=3), "Dimension out of range"),
    (lambda: nd.topk(x, ret_typ="all"), "expected one of 'both'"),
    (lambda: nd.sort(x, axis=3), "Dimension out of range"),
    (lambda: nd.SequenceMask(steps, use_sequence_length=True), "both sequence_length and use_sequence_length"),
    (lambda: nd.SequenceLast(steps, vector(1, 2, 3)), "both sequence_length and use_sequence_length"),
    (lambda: nd.SequenceMask(steps, vector(1), use_sequence_length=True), r"shape \(3,\), got \(1,\)"),
    (lambda: nd.SequenceMask(steps, axis=2), "axis must be 0 or 1"),
    (lambda: nd.SequenceReverse(steps, axis=1), "axis must be 0"),
    (lambda: nd.SequenceLast(vector(1)), "at least 2 dimensions"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_error_states_what_was_expected(call, message):
    with pytest.raises(mx.MXNetError, match=message):
        call()
