"""A pretend accelerator: torch devices `pretend:0` to `pretend:5`, in plain Python, for machines without a GPU.

Its tensors are ordinary torch tensors on torch's slot for accelerators of other vendors (PrivateUse1). Their memory is
the host's and kernels run on the CPU, but this is hidden: a tensor of the accelerator never shares memory with a CPU
tensor, has no `.numpy()`, and cannot be mixed with tensors of another device, with the same exceptions as CUDA.

Registration affects the whole process and cannot be undone, so its tests run in a separate process.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

NAME, COUNT = "pretend", 6
aten = torch.ops.aten
_CPU_KERNELS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_DLPACK_CPU, _DLPACK_EXTENSION = 1, 12  # DLPack's numbers for device types

# Ops that also accept CPU tensors on CUDA: scalars, as all pointwise ops do, and indices.
_TAKES_NUMBERS = {"fill", "masked_fill", "index_put", "_index_put_impl", "floor_divide"}
_TAKES_INDICES = {"index", "index_put", "_index_put_impl"}


class Module:
    """`torch.pretend`."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return COUNT

    def manual_seed_all(self, seed: int) -> None:
        pass

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _relabel(tensor: torch.Tensor, kind: int, index: int) -> torch.Tensor:
    """Return the same memory as a tensor of another device, by rewriting the device in a DLPack capsule."""
    capsule = torch._C._to_dlpack(tensor)
    start = _pointer(capsule, b"dltensor")  # a DLTensor: void *data, then int32 device_type, int32 device_id
    ctypes.c_int32.from_address(start + 8).value = kind
    ctypes.c_int32.from_address(start + 12).value = index
    return torch._C._from_dlpack(capsule)


def _host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor with the memory of an accelerator's tensor."""
    return _relabel(tensor, _DLPACK_CPU, 0)


def _on(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """Return a new CPU tensor as a tensor of the accelerator."""
    if tensor._is_zerotensor():  # it has no memory
        tensor = tensor.clone()
    return _relabel(tensor, _DLPACK_EXTENSION, device.index or 0)


def _is_ours(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == NAME


@functools.cache
def _is_pointwise(packet: torch._ops.OpOverloadPacket) -> bool:
    """Return whether an op is elementwise; not all of its overloads have the tag."""
    return any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())


def _common_device(op: torch._ops.OpOverload, tensors: Sequence[torch.Tensor]) -> torch.device:
    """Return the device of an op's tensors, or raise CUDA's error."""
    name = op._schema.name.removeprefix("aten::").removesuffix("_")
    takes_numbers = name in _TAKES_NUMBERS or _is_pointwise(op.overloadpacket)
    device = next(t.device for t in tensors if _is_ours(t))
    for position, tensor in enumerate(tensors):
        if tensor.device == device:
            continue
        if tensor.device.type == "cpu":
            if tensor.dim() == 0 and takes_numbers:
                continue
            if position and name in _TAKES_INDICES and not tensor.is_floating_point():
                continue
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {device} and "
            f"{tensor.device}! ({op})"
        )
    return device


def _run(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run any op without a kernel for all devices: the CPU kernel, on the accelerator's memory."""
    returns = op._schema.returns
    if returns and returns[0].alias_info is not None and not returns[0].alias_info.is_write:
        return op.redispatch(_CPU_KERNELS, *args, **kwargs)  # a view changes only strides, equal on all devices
    # A number in place of a tensor is passed as a number.
    args = tuple(
        torch.tensor(value)
        if isinstance(value, (int, float)) and isinstance(argument.type, torch.TensorType)
        else value
        for value, argument in zip(args, op._schema.arguments, strict=False)
    )
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if any(map(_is_ours, tensors)):
        device = _common_device(op, tensors)
    else:
        device = torch.device(kwargs["device"])
    originals: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def to_host(value: Any) -> Any:
        if not _is_ours(value):
            return value
        # An empty out= may be resized, which is impossible for memory of another tensor.
        host = torch.empty(0, dtype=value.dtype) if value.numel() == 0 and value.dim() == 1 else _host(value)
        originals[id(host)] = (host, value)
        return host

    args_on_host, kwargs_on_host = pytree.tree_map(to_host, (args, kwargs))
    if "device" in kwargs_on_host:
        kwargs_on_host["device"] = torch.device("cpu")
    if kwargs_on_host.get("pin_memory"):
        raise RuntimeError(f"only CPU memory can be pinned, not that of {device}")
    results = op(*args_on_host, **kwargs_on_host)
    for host, original in originals.values():
        if host.shape != original.shape:
            _take(original, _on(original.device, host))

    def to_device(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return originals[id(value)][1] if id(value) in originals else _on(device, value)

    return pytree.tree_map(to_device, results)


def _set(tensor: torch.Tensor, storage: torch.UntypedStorage, *where: Any) -> torch.Tensor:
    return aten.set_.source_Storage_storage_offset.redispatch(_CPU_KERNELS, tensor, storage, *where)


def _take(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Set the memory and the shape of `tensor` to those of `other`."""
    return _set(tensor, other.untyped_storage(), other.storage_offset(), other.shape, other.stride())


def _resize(tensor: torch.Tensor, size: Sequence[int], *, memory_format: Any = None) -> torch.Tensor:
    if tuple(tensor.shape) == tuple(size):
        return tensor
    return _take(tensor, _on(tensor.device, torch.empty(size, dtype=tensor.dtype)))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy between devices."""
    (_host(target) if _is_ours(target) else target).copy_(_host(source) if _is_ours(source) else source)
    return target


def _convolution(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any) -> torch.Tensor:
    return _run(aten.convolution.default, data, weight, bias, *how)


def _convolution_backward(grad: torch.Tensor, data: torch.Tensor, weight: torch.Tensor, *how: Any) -> Any:
    return _run(aten.convolution_backward.default, grad, data, weight, [grad.shape[1]], *how)


def _lstm_cell(ours: Any, theirs: Any, cell: torch.Tensor, bias: Any = None, other_bias: Any = None) -> Any:
    gates = ours + theirs if bias is None else ours + theirs + bias + other_bias
    enter, forget, new, leave = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell, torch.empty(0, device=cell.device)


def _gru_cell(ours: Any, theirs: Any, state: torch.Tensor, bias: Any = None, other_bias: Any = None) -> Any:
    if bias is not None:
        ours, theirs = ours + bias, theirs + other_bias
    (reset, update, new), (other_reset, other_update, other_new) = ours.chunk(3, 1), theirs.chunk(3, 1)
    new = (new + (reset + other_reset).sigmoid() * other_new).tanh()
    return new + (update + other_update).sigmoid() * (state - new), torch.empty(0, device=state.device)


_Generator, _new_tensor, _clone = torch.Generator, torch.Tensor.new_tensor, torch.UntypedStorage.clone


def _clone_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    if storage.device.type != NAME:
        return _clone(storage)
    whole = _on(storage.device, torch.empty(0, dtype=torch.uint8))
    return _set(whole, storage, 0, [storage.nbytes()], [1]).clone().untyped_storage()


def _pin(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cpu":
        raise RuntimeError(f"only CPU tensors can be pinned, received one on {tensor.device}")
    copy = tensor.clone()
    copy.was_pinned = True  # checked by tests
    return copy


class _AnyGenerator(torch.Generator):
    """Draws random numbers for the accelerator by a CPU generator."""

    def __new__(cls, device: Any = "cpu") -> torch.Generator:
        kind = torch.device(device)
        return _Generator.__new__(cls, "cpu" if kind.type == NAME else kind)


_library: list[torch.library.Library] = []


def register() -> None:
    """Register the devices. Must be called before the first `mx.gpu()`, once per process."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Module())
    fallback, own = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    _library.extend((fallback, own))  # registrations last as long as these objects
    fallback.fallback(_run, "PrivateUse1")
    for name, kernel in (
        ("set_.source_Storage_storage_offset", _set),
        ("resize_", _resize),
        ("_copy_from", _copy_from),
        ("convolution_overrideable", _convolution),
        ("convolution_backward_overrideable", _convolution_backward),
    ):
        own.impl(name, kernel, "PrivateUse1")
    for name, kernel in (("_thnn_fused_lstm_cell", _lstm_cell), ("_thnn_fused_gru_cell", _gru_cell)):
        own.impl(name, kernel, "AutogradPrivateUse1")
    # Features that torch does not let Python code provide for an accelerator: generators, synchronization, a current
    # device, storages, pinned memory, and threads for the backward of a second device.
    torch.UntypedStorage.clone = _clone_storage
    torch.Tensor.pin_memory = _pin
    torch.Generator = _AnyGenerator
    torch.Tensor.new_tensor = lambda self, *args, **how: _new_tensor(self, *args, **{"device": self.device, **how})
    torch.accelerator.synchronize = lambda device=None, /: None
    torch.autograd.set_multithreading_enabled(False)
