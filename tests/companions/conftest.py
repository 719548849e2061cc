"""Makes `import mxnet` mean neomx in these tests."""

import neomx.compat.mxnet  # noqa: F401
