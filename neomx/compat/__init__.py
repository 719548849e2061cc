"""Other libraries' names for neomx: `import mxnet` and `import horovod.mxnet` in scripts written for those."""
