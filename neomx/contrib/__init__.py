"""`mx.contrib`: what MXNet keeps apart from the rest."""

import sys

from .. import amp

sys.modules[f"{__name__}.amp"] = amp  # `import mxnet.contrib.amp` too

__all__ = ["amp"]
