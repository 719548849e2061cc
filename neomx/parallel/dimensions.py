"""The dimensions of a layout: what the workers along each dimension share and exchange.

A layout has a degree for each dimension that is registered here. Everything else follows from these objects: the mesh,
how samples are divided, which gradients are summed, and which workers train one model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch

from ..base import MXNetError, suggest

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from .model import Model

_ELASTIC = ("data", "shard", "tensor", "pipeline")
Plan: TypeAlias = Mapping[str, str] | str  # for tensor parallelism: {name pattern: style}, or 'auto'


class Dimension:
    """Base class of dimensions. Derive from it, set `name` and the attributes that differ, and register the class."""

    name: str
    order = 0  # position in the mesh: a dimension of a higher order has closer ranks
    exchanges = ""  # what workers along it exchange, for errors
    splits_samples = False  # whether workers along it take different samples of a batch
    sums_gradients = False  # whether gradients are summed over the workers along it
    divides_parameters = False  # whether each worker along it holds a part of the parameters
    shares_model = True  # whether workers along it train one model, with the same initial values and one file

    def check(self, degree: int) -> None:
        """Raise ValueError if the degree is not supported."""

    def divide(self, net: Model, mesh: DeviceMesh, plan: Plan) -> None:
        """Change a model for the workers along this dimension. `mesh` is its one-dimensional mesh.

        The values of the parameters are equal on all workers when this is called.
        """

    def rehearse(self, module: torch.nn.Module, degree: int, plan: Plan, exchanged: Counter[str]) -> None:
        """Do the same for `estimate`, in one process with a model without memory. Count the bytes exchanged."""


Class = TypeVar("Class", bound=type[Dimension])
_registered: dict[str, Dimension] = {}


def register_dimension(kind: Class) -> Class:
    """Register a dimension under the `name` of the class. All workers must do so before they create a Layout."""
    if not (isinstance(kind, type) and issubclass(kind, Dimension)):
        raise TypeError(f"expected a class derived from mx.parallel.Dimension, received {kind!r:.80}")
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{kind.__name__}: name must be a word such as 'data', received {name!r}")
    if name in _registered:
        raise ValueError(f"{kind.__name__}: there is already a dimension {name!r}. Choose another name")
    if kind.sums_gradients and not kind.shares_model:
        raise ValueError(
            f"{kind.__name__}: sums_gradients=True needs shares_model=True, because "
            "gradients of separate models cannot be summed"
        )
    _registered[name] = kind()
    return kind


def registered() -> list[Dimension]:
    """Return all dimensions, in the order of registration."""
    return list(_registered.values())


def in_mesh() -> list[Dimension]:
    """Return all dimensions, from the outermost of the mesh to the innermost. The order is the same on all workers."""
    return sorted(_registered.values(), key=lambda each: (each.order, each.name))


def find_dimension(name: str) -> Dimension:
    """Return the dimension with this name."""
    if name not in _registered:
        known = ", ".join(_registered)
        raise ValueError(
            f"layout: there is no dimension {name!r}.{suggest(name, _registered)} Use any of {known}, or register it "
            "with mx.parallel.register_dimension first"
        )
    return _registered[name]


def check_degree(name: str, degree: object) -> None:
    """Raise if `degree` is not a valid number of workers."""
    if not isinstance(degree, int) or isinstance(degree, bool) or degree < 1:
        raise ValueError(f"Layout: {name} must be a positive integer, received {degree!r}")


def parse_degrees(text: str) -> dict[str, int]:
    """Return the degrees in 'data=2,tensor=2'. Names are not checked, because the program may register more."""
    degrees: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, degree = (each.strip() for each in part.partition("="))
        if not equals:
            raise ValueError(f"layout {text!r}: expected name=number, received {part!r}. Write it like data=2,tensor=2")
        if name in degrees or not degree.isdecimal():
            why = "is given twice" if name in degrees else f"must be a number, received {degree!r}"
            raise ValueError(f"layout {text!r}: {name} {why}. Write it like data=2,tensor=2")
        degrees[name] = int(degree)
        check_degree(name, degrees[name])
    return degrees


def check_elastic(degrees: Mapping[str, int]) -> None:
    """Raise if a layout cannot go on after the loss of a worker, in an elastic job."""
    text = ",".join(f"{name}={degree}" for name, degree in degrees.items())
    own = [name for name, degree in degrees.items() if degree > 1 and name not in _ELASTIC]
    if own:
        raise MXNetError(
            f"layout {text}: an elastic job supports the dimensions {', '.join(_ELASTIC)}, not {', '.join(own)}. Start "
            "the job without --elastic"
        )
    if prod(degrees.values()) > 1 == degrees.get("data", 1):
        raise MXNetError(
            f"layout {text}: an elastic job needs data=2 or more, because the loss of a worker takes its replica of "
            "the model out, and another one must be left. Start the job without --elastic, and save checkpoints"
        )


def equation(degrees: Mapping[str, int]) -> tuple[str, str]:
    """Return the product of degrees as text, with names and with values. The default degree is 1."""
    shown: dict[str, int] = {**dict.fromkeys(_registered, 1), **degrees}
    return _product(shown), _product(shown.values())


def _product(factors: Iterable[object]) -> str:
    return " x ".join(map(str, factors))


# ---- the built-in dimensions ----


@register_dimension
class DataDimension(Dimension):
    """Replicas of the model that process different samples."""

    name, order = "data", 20
    exchanges = "gradients over data"
    splits_samples = sums_gradients = True


@register_dimension
class ShardDimension(Dimension):
    """Workers that process different samples and each hold a shard of the parameters."""

    name, order = "shard", 30
    exchanges = "parameters or gradients over shards"
    splits_samples = sums_gradients = divides_parameters = True


@register_dimension
class TensorDimension(Dimension):
    """Workers that compute each layer together, each with a part of its weights."""

    name, order = "tensor", 40
    exchanges = "a layer's parts over the tensor group"
    divides_parameters = True

    def divide(self, net: Model, mesh: DeviceMesh, plan: Plan) -> None:
        """Split layers according to the plan."""
        from .tensor import parallelize

        parallelize(net, mesh, plan)

    def rehearse(self, module: torch.nn.Module, degree: int, plan: Plan, exchanged: Counter[str]) -> None:
        """Reduce layers to one worker's part of their weights."""
        from .rehearsal import rehearse

        rehearse(module, plan, degree, exchanged)


@register_dimension
class PipelineDimension(Dimension):
    """Workers that each hold some of the layers. `train_step` cuts the model."""

    name, order = "pipeline", 10
    exchanges = "activations or gradients between stages"
