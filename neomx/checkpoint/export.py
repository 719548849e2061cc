"""Files that MXNet programs load, from a checkpoint of any number of workers and any layout."""

from __future__ import annotations

import re

from .. import ndarray as nd
from ..context import cpu
from ..formats.atomic import replacing
from ..ndarray import NDArray
from ..optimizer.states import container, dumps, unpack
from .state import Content, array_of

_OPTIMIZER = "optimizer/"
_OWN = re.compile(r"worker/([0-9]+)/param/(.+?)(?:@([0-9]+))?")


def write_params(content: Content, path: str) -> int:
    """Write the parameters, as `net.save_parameters` or `Module.save_params` would. Return their number."""
    arrays = parameters(content)
    nd.save(path, arrays)
    return len(arrays)


def write_states(content: Content, path: str, for_mxnet: bool = False) -> int:
    """Write the optimizer states, as `Trainer.save_states` or `Module.save_optimizer_states` would.

    With `for_mxnet`, the file has only the states, in the format of MXNet 1.9. Return the number of arrays.
    """
    names = [name for name in content.names(_OPTIMIZER) if not name.endswith(":rows")]
    content.fetch(dict.fromkeys(content.names(_OPTIMIZER)))
    arrays = {name.removeprefix(_OPTIMIZER): array_of(content, name) for name in names}
    packed = content.facts["optimizer"]
    if for_mxnet or content.facts["kind"] == "module":
        text = dumps(unpack({**packed, "optimizer": None}, arrays)[0], None)
    else:
        text = container(packed, arrays)
    with replacing(path) as file:
        file.write(text)
    return len(arrays)


def parameters(content: Content) -> dict[str, NDArray]:
    """Return all parameters. Running averages are those of the first worker, the mean of its contexts."""
    shared = [name for name in content.names("param/") if not name.endswith(":rows")]
    own: dict[str, list[str]] = {}
    first: dict[str, int] = {}
    for name in content.forms:
        found = _OWN.fullmatch(name)
        if found and not found[2].startswith("state:") and first.setdefault(found[2], int(found[1])) == int(found[1]):
            own.setdefault(found[2], []).append(name)
    content.fetch(dict.fromkeys([*content.names("param/"), *(each for names in own.values() for each in names)]))
    arrays = {name.removeprefix("param/"): array_of(content, name) for name in shared if "/state:" not in name}
    for name, names in own.items():
        copies = [array_of(content, each) for each in names]
        arrays[name] = copies[0] if len(copies) == 1 else nd.add_n(*copies) / len(copies)
    return {name: array.as_in_context(cpu()) for name, array in arrays.items()}
