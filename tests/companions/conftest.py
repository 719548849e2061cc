"""Here `mxnet` means neomx."""

import neomx.compat.mxnet  # noqa: F401
