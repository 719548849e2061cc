"""Aliases of neomx: `import mxnet` and `import horovod.mxnet` in scripts written for those libraries."""
