"""The names of MXNet's `mx.image.image`: all of `mx.image` except detection."""

from .augment import *  # noqa: F403
from .functions import *  # noqa: F403
from .functions import _get_interp_method  # noqa: F401 - scripts import it
from .iterators import *  # noqa: F403
