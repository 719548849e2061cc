"""What the workers of test_server.py and test_hostile.py run: `python server_scripts.py <name> <argument>`."""

from __future__ import annotations

import sys
import time

import neomx as mx
from neomx.kvstore.remote import RemoteStore


def first(argument):
    kv = RemoteStore("dist_sync")
    kv.init("a", mx.nd.ones((3, 4)))
    kv.init(["b", "big"], [mx.nd.zeros((5,)), mx.nd.zeros((2000, 1000))])
    out = mx.nd.zeros((3, 4))
    kv.pull("a", out)
    assert (out.asnumpy() == 1).all()
    for step in range(3):
        kv.push("a", mx.nd.ones((3, 4)) * (kv.rank + 1 + step))
        kv.pull("a", out)
        assert (out.asnumpy() == 3 + 2 * step).all(), out
    big = mx.nd.zeros((2000, 1000))
    kv.push("big", mx.nd.ones((2000, 1000)))
    t = time.time()
    kv.push("big", mx.nd.ones((2000, 1000)))
    kv.pull("big", big)
    print(time.time() - t)
    assert (big.asnumpy() == 2).all(), big
    kv.barrier()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
