"""Image transforms as Blocks, which `Compose` combines, for use with `dataset.transform_first`.

Images are (height, width, channels) with values from 0 to 255. `ToTensor` converts them to (channels, height, width)
with values from 0 to 1.

Transforms that move pixels can be called with boxes and masks, too: `transform(image, boxes, masks)`. See
`transforms.joint`. `MixUp`, `CutMix` and `MixedDataset` mix samples with their labels. The random numbers of the
transforms that MXNet does not have come from `mx.random.rng()`.
"""

from . import basic, blur, color, erase, geometric, mix, policy
from .basic import *  # noqa: F403
from .blur import *  # noqa: F403
from .color import *  # noqa: F403
from .erase import *  # noqa: F403
from .geometric import *  # noqa: F403
from .mix import *  # noqa: F403
from .policy import *  # noqa: F403

__all__ = (
    basic.__all__ + blur.__all__ + color.__all__ + erase.__all__ + geometric.__all__ + mix.__all__ + policy.__all__
)
