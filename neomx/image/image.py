"""What MXNet keeps in its file of this name: all of `mx.image` but detection."""

from .augment import *  # noqa: F403
from .functions import *  # noqa: F403
from .functions import _get_interp_method  # noqa: F401 - scripts import it
from .iterators import *  # noqa: F403
