"""The arrays that the fixtures in tests/fixtures/params hold, described for real MXNet and for neomx alike.

This file needs numpy alone; `mx` is whichever of the two is asked.
"""

import numpy as np

DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")


def dense(mx, dtype, *shape):
    values = (np.arange(int(np.prod(shape))) % 3).reshape(shape)
    return mx.nd.array(values, dtype=dtype)


def matrix():
    return np.array([[0, 1.5, 0, -2], [0, 0, 0, 0], [3, 0, 0, 0]], dtype="float32")


def contents(mx):
    """{fixture name: what is saved in it}."""
    csr = mx.nd.sparse.csr_matrix(matrix())
    rsp = mx.nd.sparse.row_sparse_array(matrix())
    everything = {"dense_" + dtype: dense(mx, dtype, 2, 3) for dtype in DTYPES}
    everything.update(csr=csr, rsp=rsp)
    return {
        "single": dense(mx, "float32", 2, 3),
        "list": [dense(mx, "float32", 4), dense(mx, "int64", 1, 2, 1, 3)],
        "names": {"arg:weight": dense(mx, "float32", 2, 2), "aux:m\u00e9an": dense(mx, "float64", 1)},
        "everything": everything,
        "empty_list": [],
        "empty_dict": {},
        "context": [mx.nd.array([1, 2], ctx=mx.cpu(3))],
        "zero_size": [mx.nd.sparse.zeros("csr", (2, 3)).data],
        "csr": [csr] + [csr.astype(dtype) for dtype in ("float64", "int32")],
        "row_sparse": [rsp, mx.nd.sparse.row_sparse_array((np.ones((2, 1, 3)), [1, 4]), shape=(6, 1, 3))],
        "sparse_zeros": {"c": mx.nd.sparse.zeros("csr", (2, 3)), "r": mx.nd.sparse.zeros("row_sparse", (2, 3))},
    }
