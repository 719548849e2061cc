"""Containers, Dense, Dropout, Embedding, normalization layers, and functions as layers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ... import ndarray, symbol
from ...dtype import to_torch
from ..block import Block, HybridBlock
from ..parameter import Parameter
from .activations import Activation

__all__ = [
    "BatchNorm",
    "BatchNormReLU",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "HybridLambda",
    "HybridSequential",
    "InstanceNorm",
    "Lambda",
    "LayerNorm",
    "Sequential",
]


def check_sizes(least: int, **sizes: int) -> None:
    """Raise if a size argument of a layer is not an integer of at least `least`."""
    for name, size in sizes.items():
        if not isinstance(size, (int, np.integer)) or size < least:
            raise ValueError(f"{name} must be an integer of at least {least}, received {size!r}")


# ---- containers ----


class _Stack(Block):
    """The base of both containers, which hold layers in order and can be indexed like a list."""

    def add(self, *blocks: Block) -> None:
        """Append blocks."""
        for block in blocks:
            if not isinstance(block, Block):
                raise ValueError(
                    f"{type(self).__name__} expects Blocks, received {block!r:.80} of type {type(block).__name__}. "
                    "Use nn.Lambda or nn.HybridLambda to add a function"
                )
            self.register_child(block)

    def __getitem__(self, key: Any) -> Any:
        layers = list(self._children.values())[key]
        if not isinstance(layers, list):
            return layers
        part = type(self)(prefix=self._prefix)
        with part.name_scope():
            part.add(*layers)
        return part

    def __len__(self) -> int:
        return len(self._children)


class Sequential(_Stack):
    """Runs Blocks in sequence: the output of each is the input of the next."""

    def forward(self, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize each child separately. Use HybridSequential to run all of them as one graph."""
        if self._children and all(isinstance(child, HybridBlock) for child in self._children.values()):
            warnings.warn(
                f"All children of {type(self).__name__} {self.prefix!r} are HybridBlocks. "
                "Use HybridSequential to run them as one graph.",
                stacklevel=2,
            )
        super().hybridize(active, **kwargs)


class HybridSequential(_Stack, HybridBlock):
    """Runs HybridBlocks in sequence. When hybridized, they form one graph."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x


# ---- basic layers ----


class Dense(HybridBlock):
    """activation(dot(x, weight.T) + bias), with `units` outputs.

    With `flatten`, the input is first reshaped to (batch, features). Otherwise only the last axis is transformed.
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_units: int = 0,
        **kwargs: Any,
    ):
        check_sizes(0, units=units, in_units=in_units)  # 0 units are allowed here, as in MXNet, but forward fails
        super().__init__(**kwargs)
        self._units, self._in_units, self._flatten = units, in_units, flatten
        self._kwargs = {"no_bias": not use_bias, "num_hidden": units, "flatten": flatten, "name": "fwd"}
        with self.name_scope():
            self.weight = self.params.get(
                "weight", shape=(units, in_units), init=weight_initializer, dtype=dtype, allow_deferred_init=True
            )
            self.bias = None
            if use_bias:
                self.bias = self.params.get(
                    "bias", shape=(units,), init=bias_initializer, dtype=dtype, allow_deferred_init=True
                )
            self.act = activation_layer(activation)

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        arrays = (x, weight) if bias is None else (x, weight, bias)
        out = F.FullyConnected(*arrays, **self._kwargs)
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        shape = self.weight.shape or (None, None)
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]}, {self.act or 'linear'})"


def activation_layer(activation: str | None) -> Activation | None:
    """Return the layer for an `activation=` argument, named after its function, or None for None."""
    if activation is None:
        return None
    if not isinstance(activation, str):
        raise TypeError(
            f"activation must be a name such as 'relu', received {activation!r:.80}. Add other layers after this one"
        )
    return Activation(activation, prefix=activation + "_")


class Dropout(HybridBlock):
    """In training mode, sets a fraction `rate` of the elements to 0 and scales the others up.

    The mask is shared along `axes`.
    """

    def __init__(self, rate: float, axes: Any = (), **kwargs: Any):
        super().__init__(**kwargs)
        self._rate, self._axes = rate, axes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self._rate > 0:
            return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd", cudnn_off=False)
        return F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


class Embedding(HybridBlock):
    """Maps each index below `input_dim` to a vector of size `output_dim`.

    With `sparse_grad`, the gradient of the weight is row_sparse: it contains only the rows that a batch used.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        sparse_grad: bool = False,
        **kwargs: Any,
    ):
        check_sizes(1, input_dim=input_dim, output_dim=output_dim)
        super().__init__(**kwargs)
        self._kwargs = {"input_dim": input_dim, "output_dim": output_dim, "dtype": dtype, "sparse_grad": sparse_grad}
        self.weight = self.params.get(
            "weight",
            shape=(input_dim, output_dim),
            init=weight_initializer,
            dtype=dtype,
            allow_deferred_init=True,
            grad_stype="row_sparse" if sparse_grad else "default",
        )

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        return "{}({input_dim} -> {output_dim}, {dtype})".format(type(self).__name__, **self._kwargs)


class Flatten(HybridBlock):
    """Reshapes the input to (batch, features)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__


# ---- normalization ----


def _per_channel(block: Block, name: str, size: int, learnt: bool, init: Any, **kwargs: Any) -> Parameter:
    """Create a parameter with one value per channel. It keeps its initial value unless `learnt`."""
    check_sizes(0, in_channels=size)
    grad_req = "write" if learnt else "null"
    return block.params.get(name, grad_req=grad_req, shape=(size,), init=init, allow_deferred_init=True, **kwargs)


def _channels(parameter: Parameter) -> int:
    """The number of channels of a parameter, or 0 if unknown."""
    return parameter.shape[0] if parameter.shape else 0


def _describe(block: Block, attributes: dict[str, Any]) -> str:
    return f"{type(block).__name__}({', '.join(f'{name}={value!r}' for name, value in attributes.items())})"


class _BatchNorm(HybridBlock):
    """Batch normalization, optionally followed by a ReLU in the same op."""

    fuse_relu = False
    gamma: Parameter

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._kwargs: dict[str, Any] = {
            "axis": axis,
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
        }
        self.in_channels = in_channels
        for name, learnt, init in (
            ("gamma", scale, gamma_initializer),
            ("beta", center, beta_initializer),
            ("running_mean", False, running_mean_initializer),
            ("running_var", False, running_variance_initializer),
        ):
            setattr(self, name, _per_channel(self, name, in_channels, learnt, init, differentiable=learnt))

    def cast(self, dtype: Any) -> None:
        """Cast the parameters. For half precision data they stay float32, as the op requires."""
        super().cast("float32" if to_torch(dtype) in (torch.float16, torch.bfloat16) else dtype)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        norm = F.contrib.BatchNormWithReLU if self.fuse_relu else F.BatchNorm
        return norm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        return _describe(self, self._kwargs | {"in_channels": _channels(self.gamma) or None})


class BatchNorm(_BatchNorm):
    """Batch normalization: normalizes each channel along `axis` to mean 0 and variance 1, then applies gamma and beta.

    Training uses the mean and variance of the batch and updates the running averages. Inference uses the averages.
    """


class BatchNormReLU(_BatchNorm):
    """relu(BatchNorm(x)) in one op."""

    fuse_relu = True


class InstanceNorm(HybridBlock):
    """Normalizes each channel of each example to mean 0 and variance 1, then applies gamma and beta."""

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis, self._epsilon = axis, epsilon
        self.gamma = _per_channel(self, "gamma", in_channels, scale, gamma_initializer)
        self.beta = _per_channel(self, "beta", in_channels, center, beta_initializer)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        x = F.InstanceNorm(F.swapaxes(x, dim1=1, dim2=self._axis), gamma, beta, name="fwd", eps=self._epsilon)
        return F.swapaxes(x, dim1=1, dim2=self._axis)

    def __repr__(self) -> str:
        return _describe(self, self._kwargs | {"in_channels": _channels(self.gamma)})


class LayerNorm(HybridBlock):
    """Normalizes each example along `axis` to mean 0 and variance 1, then applies gamma and beta."""

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis, self._epsilon = axis, epsilon
        self.gamma = _per_channel(self, "gamma", in_channels, scale, gamma_initializer)
        self.beta = _per_channel(self, "beta", in_channels, center, beta_initializer)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.LayerNorm(data, gamma, beta, axis=self._axis, eps=self._epsilon)

    def __repr__(self) -> str:
        return _describe(self, self._kwargs | {"in_channels": _channels(self.gamma)})


class GroupNorm(HybridBlock):
    """Normalizes each group of channels of each example to mean 0 and variance 1, then applies gamma and beta.

    gamma and beta have one value for each of the `num_groups` groups.
    """

    def __init__(
        self,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        prefix: str | None = None,
        params: Any = None,
    ):
        check_sizes(1, num_groups=num_groups)
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "num_groups": num_groups, "center": center, "scale": scale}
        self._num_groups, self._epsilon = num_groups, epsilon
        self.gamma = _per_channel(self, "gamma", num_groups, scale, gamma_initializer)
        self.beta = _per_channel(self, "beta", num_groups, center, beta_initializer)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.GroupNorm(data, gamma, beta, num_groups=self._num_groups, eps=self._epsilon)

    def __repr__(self) -> str:
        return _describe(self, self._kwargs)


# ---- functions as layers ----


def _check_function(function: Any, modules: tuple[Any, ...], where: str) -> None:
    if isinstance(function, str):
        if not all(hasattr(module, function) for module in modules):
            raise AssertionError(f"{where} has no function {function!r}")
    elif not callable(function):
        raise ValueError(
            f"expected a function or the name of one in {where}, received {function!r:.80} of type {type(function)}"
        )


class _Function(Block):
    """The base of Lambda and HybridLambda, which print the name of the function."""

    _func_name: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


class Lambda(_Function):
    """Wraps a function on arrays, or the name of a function in `mx.nd`, as a Block."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None):
        super().__init__(prefix=prefix)
        _check_function(function, (ndarray,), "mx.nd")
        self._func_impl: Any = getattr(ndarray, function) if isinstance(function, str) else function
        self._func_name = getattr(self._func_impl, "__name__", repr(function))

    def forward(self, *args: Any) -> Any:
        return self._func_impl(*args)


class HybridLambda(_Function, HybridBlock):
    """Wraps a function of F (`mx.nd` or `mx.sym`) and inputs, or the name of a function in both, as a HybridBlock."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None):
        super().__init__(prefix=prefix)
        _check_function(function, (ndarray, symbol), "mx.nd and mx.sym")
        self._func = function
        self._func_name = function if isinstance(function, str) else getattr(function, "__name__", repr(function))

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        if isinstance(self._func, str):
            return getattr(F, self._func)(x, *args)
        return self._func(F, x, *args)
