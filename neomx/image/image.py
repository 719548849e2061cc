"""What MXNet keeps in its file of this name: all of `mx.image` but detection."""

from .augment import *  # noqa: F403
from .functions import *  # noqa: F403
from .iterators import *  # noqa: F403
