"""Importing this by hand does what the launcher does: `import mxnet` and `import horovod.mxnet` mean neomx."""

from .startup import neomx_aliases, neomx_companions

neomx_aliases.install()
neomx_companions.install()
