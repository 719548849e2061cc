"""Importing this module does what the launcher does: it makes `import mxnet` and `import horovod.mxnet` load neomx."""

from .startup import neomx_aliases, neomx_companions

neomx_aliases.install()
neomx_companions.install()
