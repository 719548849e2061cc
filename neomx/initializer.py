"""`mx.init`: initializers, which write the initial values of parameters, depending on their names."""

from __future__ import annotations

import json
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from . import ndarray, random, registry
from .base import MXNetError, modes, string_types
from .ndarray import NDArray, load
from .ops.random import generator
from .ops.rnn import rnn_param_size

__all__ = [
    "Bilinear",
    "Constant",
    "FusedRNN",
    "InitDesc",
    "Initializer",
    "LSTMBias",
    "Load",
    "MSRAPrelu",
    "Mixed",
    "NDArray",
    "Normal",
    "One",
    "Orthogonal",
    "Uniform",
    "Xavier",
    "Zero",
    "alias",
    "create",
    "load",
    "ndarray",
    "random",
    "register",
    "registry",
    "string_types",
]


class InitDesc(str):
    """A parameter's name with its attributes and the default initializer of the model."""

    attrs: dict[str, str]
    global_init: Any

    def __new__(cls, name: str, attrs: dict[str, str] | None = None, global_init: Any = None) -> InitDesc:
        made = super().__new__(cls, name)
        made.attrs = attrs or {}
        made.global_init = global_init
        return made


# Methods by the ending of a name. The table for plain strings is older, and includes the names of running averages.
_BY_ENDING = {
    "weight": "_init_weight",
    "bias": "_init_bias",
    "gamma": "_init_gamma",
    "beta": "_init_beta",
    "min": "_init_zero",
    "max": "_init_one",
    "weight_quantize": "_init_quantized_weight",
    "bias_quantize": "_init_quantized_bias",
}
_BY_ENDING_OF_STRINGS = {
    **{ending: method for ending, method in _BY_ENDING.items() if not ending.endswith("quantize")},
    "moving_mean": "_init_zero",
    "moving_var": "_init_one",
    "moving_inv_var": "_init_zero",
    "moving_avg": "_init_zero",
}


class Initializer:
    """The base of initializers: `init(InitDesc('fc_weight'), array)` initializes the array according to its name.

    The ending of the name determines the method. Subclasses define weights in `_init_weight`; biases and betas are 0,
    gammas are 1. The attribute `__init__` of a parameter (from `dumps`) takes precedence over its name.
    """

    def __init__(self, **kwargs: Any):
        self._kwargs = kwargs
        self._verbose = False
        self._print_func: Callable[[NDArray], Any] | None = None

    def set_verbosity(self, verbose: bool = False, print_func: Callable[[NDArray], Any] | None = None) -> Initializer:
        """Log each initialized array with the result of `print_func`, by default the root mean square. Return self."""
        self._verbose = verbose
        self._print_func = print_func or _root_mean_square
        return self

    def _verbose_print(self, desc: str, init: str, arr: NDArray) -> None:
        if self._verbose and self._print_func:
            logging.info("Initialized %s as %s: %s", desc, init, self._print_func(arr))

    def dumps(self) -> str:
        """Return the initializer as JSON, such as `'["normal", {"sigma": 0.01}]'`, which `create` accepts."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Write the initial values of the parameter `desc` into `arr`."""
        if not isinstance(desc, InitDesc):
            self._legacy_init(desc, arr)
            return
        if desc.global_init is None:
            desc.global_init = self
        init = desc.attrs.get("__init__", "")
        if init:
            noted = _noted(desc, init)
            noted._init_weight(desc, _shown(noted, arr))
            self._verbose_print(desc, init, arr)
            return
        ending, method = _find_ending(desc, _BY_ENDING)
        getattr(self, method)(desc, _shown(self, arr))
        self._verbose_print(desc, ending, arr)

    def _legacy_init(self, name: str, arr: NDArray) -> None:
        """Initialize according to a plain string."""
        warnings.warn(
            "init(str, NDArray) is deprecated: call init(mx.init.InitDesc(...), NDArray)",
            DeprecationWarning,
            stacklevel=3,
        )
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, received {type(name).__name__}")
        if not isinstance(arr, NDArray):
            raise TypeError(f"arr must be an NDArray, received {type(arr).__name__}")
        _, method = _find_ending(name, _BY_ENDING_OF_STRINGS)
        if name.startswith("upsampling"):
            method = "_init_bilinear"
        elif name.startswith("stn_loc") and method in ("_init_weight", "_init_bias"):
            method = "_init_zero" if method == "_init_weight" else "_init_loc_bias"
        getattr(self, method)(name, arr)

    def _init_bilinear(self, _: str, arr: NDArray) -> None:
        arr[:] = _bilinear(arr.shape)

    def _init_loc_bias(self, _: str, arr: NDArray) -> None:
        if arr.shape != (6,):
            raise AssertionError(f"the bias of a localization network must have shape (6,), received {arr.shape}")
        arr[:] = np.array([1.0, 0, 0, 0, 1.0, 0])

    def _init_zero(self, _: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_one(self, _: str, arr: NDArray) -> None:
        arr[:] = 1.0

    def _init_bias(self, _: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_quantized_bias(self, _: str, arr: NDArray) -> None:
        arr[:] = 0

    def _init_gamma(self, _: str, arr: NDArray) -> None:
        arr[:] = 1.0

    def _init_beta(self, _: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise NotImplementedError(f"{type(self).__name__} must override _init_weight to initialize {name!r}")

    def _init_quantized_weight(self, _: str, arr: NDArray) -> None:
        arr[:] = random.randint(-127, 127, ctx=arr.context)  # one value for all elements, as in MXNet

    def _init_default(self, name: str, _: NDArray) -> None:
        raise ValueError(
            f"cannot choose an initializer for {name!r}: the name ends in none of {', '.join(_BY_ENDING)}. "
            "Set the initializer of the variable, e.g. mx.sym.Variable(init=mx.init.Zero())"
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._kwargs == other._kwargs  # type: ignore[attr-defined]


def _find_ending(name: str, methods: dict[str, str]) -> tuple[str, str]:
    """Return the ending of `name` and the method for it."""
    return next(((end, method) for end, method in methods.items() if name.endswith(end)), ("", "_init_default"))


def _root_mean_square(array: NDArray) -> str:
    return str((ndarray.norm(array) / math.sqrt(array.size)).asscalar())


_register = registry.get_register_func(Initializer, "initializer")
alias = registry.get_alias_func(Initializer, "initializer")
create = registry.get_create_func(Initializer, "initializer")


class WrongInitializerError(MXNetError, AssertionError):
    """Raised when a variable or Parameter specifies an invalid initializer. An AssertionError too, as in MXNet."""


def _shown(initializer: Any, array: NDArray) -> NDArray:
    """The array that an initializer receives: in NumPy mode, an `mx.np` array for a program's own initializer."""
    own = type(initializer).__module__.startswith("neomx.")
    return array.as_np_ndarray() if modes.np_array and not own else array


def _noted(name: str, text: str) -> Any:
    """Create the initializer that a variable's `__init__` describes. It may come from a file and be invalid."""
    try:
        return create(text)
    except (ValueError, TypeError, AttributeError, LookupError, AssertionError, RecursionError) as error:
        raise WrongInitializerError(
            f"variable {name!r}: __init__ is {text!r:.80}, expected the output of `Initializer.dumps`: {error}"
        ) from error


def register(klass: Any) -> Any:
    """Register a subclass of Initializer under its lowercase name. Use it as a class decorator."""
    return _register(klass)


class Load:
    """Initializes from saved values: a file of `nd.save` or a dictionary. Missing parameters use `default_init`."""

    def __init__(self, param: str | dict[str, NDArray], default_init: Any = None, verbose: bool = False):
        loaded = load(param) if isinstance(param, str) else param
        if not isinstance(loaded, dict):
            raise AssertionError(f"Load: expected arrays by name, received {type(loaded).__name__}")
        self.param = {re.sub("^(arg|aux):", "", name): array for name, array in loaded.items()}
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, arr: NDArray) -> None:
        """Write the saved values of `name` into `arr`."""
        if name in self.param:
            saved = self.param[name]
            if saved.shape != arr.shape:
                raise AssertionError(f"{name}: expected shape {arr.shape}, but the loaded array has {saved.shape}")
            arr[:] = saved
        elif self.default_init is None:
            raise AssertionError(f"{name} is not in the loaded parameters, and Load has no default_init")
        else:
            self.default_init(name, arr)
        if self.verbose:
            logging.info("Initialized %s by %s", name, "loading" if name in self.param else "default")


class Mixed:
    """Selects one of several initializers: the first whose pattern matches the start of the name."""

    def __init__(self, patterns: Sequence[str], initializers: Sequence[Any]):
        if len(patterns) != len(initializers):
            raise AssertionError(f"Mixed: {len(patterns)} patterns do not match {len(initializers)} initializers")
        self.map = [(re.compile(pattern), init) for pattern, init in zip(patterns, initializers, strict=True)]

    def __call__(self, name: str, arr: NDArray) -> None:
        """Initialize `arr` with the initializer of the first matching pattern."""
        for pattern, init in self.map:
            if pattern.match(name):
                init(name, arr)
                return
        patterns = [pattern.pattern for pattern, _ in self.map]
        raise ValueError(f"{name!r} matches none of {patterns}. Add a pattern '.*' with a default at the end")


@alias("zeros")
@register
class Zero(Initializer):
    """Initializes with zeros."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, _: str, arr: NDArray) -> None:
        arr[:] = 0


@alias("ones")
@register
class One(Initializer):
    """Initializes with ones."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, _: str, arr: NDArray) -> None:
        arr[:] = 1


@register
class Constant(Initializer):
    """Initializes with a constant, or with the values of an array."""

    def __init__(self, value: Any):
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, _: str, arr: NDArray) -> None:
        arr[:] = float(self.value) if isinstance(self.value, str) else self.value

    def dumps(self) -> str:
        """Return the initializer as JSON, with an array as a list."""
        value = self.value.asnumpy() if isinstance(self.value, NDArray) else self.value
        return json.dumps(["constant", {"value": value.tolist() if hasattr(value, "tolist") else value}])


def _draw_uniform(arr: NDArray, scale: float) -> None:
    if _takes_draws(arr) and scale >= 0:
        arr._writable_data().uniform_(-scale, scale, generator=generator(arr.context))
    else:
        random.uniform(-scale, scale, out=arr)


def _draw_normal(arr: NDArray, sigma: float) -> None:
    if _takes_draws(arr) and sigma > 0:
        arr._writable_data().normal_(0, sigma, generator=generator(arr.context))
    else:
        random.normal(0, sigma, out=arr)


def _takes_draws(arr: NDArray) -> bool:
    """Whether torch can sample directly into the array, which halves the time."""
    return arr.stype == "default" and arr.dtype in (np.float32, np.float64)


@register
class Uniform(Initializer):
    """Uniform random values from -scale to scale."""

    def __init__(self, scale: float = 0.07):
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, _: str, arr: NDArray) -> None:
        _draw_uniform(arr, self.scale)


@register
class Normal(Initializer):
    """Normal random values with mean 0 and standard deviation sigma."""

    def __init__(self, sigma: float = 0.01):
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, _: str, arr: NDArray) -> None:
        _draw_normal(arr, self.sigma)


@register
class Orthogonal(Initializer):
    """An orthogonal matrix: rows (or columns, if there are more rows) are orthogonal and have norm `scale`."""

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform"):
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if len(arr.shape) < 2:
            raise MXNetError(f"Orthogonal: {name!r} must have two dimensions or more, received shape {arr.shape}")
        if self.rand_type not in ("uniform", "normal"):
            raise ValueError(f"Orthogonal: rand_type must be 'uniform' or 'normal', received {self.rand_type!r}")
        rows, columns = arr.shape[0], math.prod(arr.shape[1:])
        shape = max(rows, columns), min(rows, columns)
        limits = (-1.0, 1.0) if self.rand_type == "uniform" else (0.0, 1.0)
        drawn = getattr(random, self.rand_type)(*limits, shape, ctx=arr.context)
        q, r = torch.linalg.qr(drawn.to_torch())
        q = q * r.diagonal().sign() * self.scale  # the signs make the result independent of the QR algorithm
        arr[:] = NDArray((q if rows >= columns else q.T).reshape(arr.shape), arr.context)


@register
class Xavier(Initializer):
    """Random values with magnitude `sqrt(magnitude / fan)`: the bound if uniform, the standard deviation if normal.

    The fan is the number of inputs ('in'), of outputs ('out'), or their mean ('avg').
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3):
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if len(arr.shape) < 2:
            raise ValueError(f"Xavier: {name!r} must have two dimensions or more, received shape {arr.shape}")
        receptive = math.prod(arr.shape[2:])
        inputs, outputs = arr.shape[1] * receptive, arr.shape[0] * receptive
        fans = {"in": inputs, "out": outputs, "avg": (inputs + outputs) / 2.0}
        if self.factor_type not in fans:
            raise ValueError(f"Xavier: factor_type must be 'in', 'out' or 'avg', received {self.factor_type!r}")
        scale = math.sqrt(self.magnitude / fans[self.factor_type])
        if self.rnd_type == "uniform":
            _draw_uniform(arr, scale)
        elif self.rnd_type == "gaussian":
            _draw_normal(arr, scale)
        else:
            raise ValueError(f"Xavier: rnd_type must be 'uniform' or 'gaussian', received {self.rnd_type!r}")


@register
class MSRAPrelu(Xavier):
    """Normal random values that preserve variances through layers with PReLU (or, with slope 0, ReLU)."""

    def __init__(self, factor_type: str = "avg", slope: float = 0.25):
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Bilinear(Initializer):
    """The weights of a transposed convolution that performs bilinear interpolation."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, _: str, arr: NDArray) -> None:
        arr[:] = _bilinear(arr.shape)


def _bilinear(shape: tuple[int, ...]) -> np.ndarray:
    """The values of the kernel, which are the same for each pair of channels."""
    if len(shape) != 4:
        raise ValueError(f"Bilinear: expected a weight with four dimensions, received shape {shape}")
    factor = math.ceil(shape[3] / 2.0)
    center = (2 * factor - 1 - factor % 2) / (2.0 * factor)
    along_y, along_x = (1 - np.abs(np.arange(size) / factor - center) for size in shape[2:])
    return np.outer(along_y, along_x)


@register
class LSTMBias(Initializer):
    """Zeros, except `forget_bias` for the forget gate, which is the second quarter."""

    def __init__(self, forget_bias: float = 1.0):
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0
        quarter = arr.shape[0] // 4
        arr[quarter : 2 * quarter] = self.forget_bias


_GATES = {"rnn_relu": ("",), "rnn_tanh": ("",), "lstm": ("_i", "_f", "_c", "_o"), "gru": ("_r", "_z", "_o")}


@register
class FusedRNN(Initializer):
    """Initializes the packed parameters of the RNN op, each matrix and bias by `init` or the model's initializer."""

    def __init__(
        self,
        init: Any,
        num_hidden: int,
        num_layers: int,
        mode: str,
        bidirectional: bool = False,
        forget_bias: float = 1.0,
    ):
        if init is not None:
            init = create(init)
        super().__init__(
            init=init.dumps() if init is not None else None,
            num_hidden=num_hidden,
            num_layers=num_layers,
            mode=mode,
            bidirectional=bidirectional,
            forget_bias=forget_bias,
        )
        self._init = init
        self._num_hidden = num_hidden
        self._num_layers = num_layers
        self._mode = mode
        self._bidirectional = bidirectional
        self._forget_bias = forget_bias

    def _init_weight(self, desc: str, arr: NDArray) -> None:
        global_init = getattr(desc, "global_init", None)
        init = self._init or global_init
        if init is None or init is self:
            raise ValueError(f"FusedRNN: {desc!r} has no initializer for its parts. Use FusedRNN(init, ...)")
        for name, part in self._parts(arr):
            if self._mode == "lstm" and name.endswith("_f_bias"):
                part[:] = self._forget_bias
            else:
                init(InitDesc(name, global_init=global_init), part)

    def _parts(self, arr: NDArray) -> Iterator[tuple[str, NDArray]]:
        """Iterate over the names and views of the packed matrices and biases, gate by gate."""
        position = 0
        for name, shape in self._part_shapes(self._input_size(arr)):
            size = math.prod(shape)
            yield name, arr[position : position + size].reshape(shape)
            position += size

    def _part_shapes(self, input_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        hidden, sides = self._num_hidden, "lr" if self._bidirectional else "l"
        cells = [f"{side}{layer}_" for layer in range(self._num_layers) for side in sides]
        gates = _GATES[self._mode]
        for cell in cells:
            columns = input_size if cell.endswith(("l0_", "r0_")) else hidden * len(sides)
            yield from ((f"{cell}i2h{gate}_weight", (hidden, columns)) for gate in gates)
            yield from ((f"{cell}h2h{gate}_weight", (hidden, hidden)) for gate in gates)
        for cell in cells:
            yield from ((f"{cell}{group}{gate}_bias", (hidden,)) for group in ("i2h", "h2h") for gate in gates)

    def _input_size(self, arr: NDArray) -> int:
        if self._mode not in _GATES:
            raise ValueError(f"FusedRNN: mode must be one of {', '.join(_GATES)}, received {self._mode!r}")
        hidden, bidirectional = self._num_hidden, self._bidirectional
        rest = arr.size - rnn_param_size(self._mode, 0, hidden, self._num_layers, bidirectional)
        size, over = divmod(rest, len(_GATES[self._mode]) * hidden * (1 + bidirectional))
        if over or size < 1:
            raise AssertionError(
                f"FusedRNN: {arr.size} parameters do not match {self._num_layers} layer(s) of "
                f"{self._mode} with {hidden} hidden units"
            )
        return size
