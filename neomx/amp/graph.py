"""Casts in graphs: inserted while a symbol is created, or into an existing symbol."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from .. import name as naming
from ..dtype import FLAG_OF_TORCH, NAME_OF_TORCH
from ..ops.table import OPS, Op
from ..symbol import Symbol
from ..symbol.graph import Entry, Node, topological
from ..symbol.infer import types_of
from .policy import WIDEST, Policy

# The ops whose outputs have names in MXNet's names of casts. Other outputs are numbered.
_NAMED = frozenset(
    """
    Activation BatchNorm BilinearSampler Concat Convolution Convolution_v1 Correlation Crop Deconvolution Dropout
    FullyConnected GridGenerator GroupNorm InstanceNorm L2Normalization LRN LayerNorm LeakyReLU MakeLoss Pad Pooling
    Pooling_v1 RNN ROIPooling SVMOutput SequenceLast SequenceMask SequenceReverse SliceChannel SoftmaxActivation
    SoftmaxOutput SpatialTransformer SwapAxis UpSampling _contrib_BatchNormWithReLU _contrib_DeformableConvolution
    _contrib_DeformablePSROIPooling _contrib_MultiBoxDetection _contrib_MultiBoxPrior _contrib_MultiBoxTarget
    _contrib_PSROIPooling _contrib_ROIAlign _contrib_RROIAlign _contrib_SyncBatchNorm
    _contrib_interleaved_matmul_encdec_qk _contrib_interleaved_matmul_encdec_valatt
    _contrib_interleaved_matmul_selfatt_qk _contrib_interleaved_matmul_selfatt_valatt _rnn_param_concat col2im
    elemwise_add im2col make_loss softmax softmin
    """.split()  # noqa: SIM905
)


def cast_node(entry: Entry, dtype: torch.dtype, name: str) -> Entry:
    """Return a cast of one output."""
    text = NAME_OF_TORCH[dtype]
    return Node(OPS["amp_cast"], name, [entry], {"dtype": text}, {"dtype": text}), 0


def multicast_node(entries: list[Entry], name: str) -> list[Entry]:
    """Return casts of all outputs to the widest dtype among them."""
    count = len(entries)
    node = Node(OPS["amp_multicast"], name, entries, {"num_outputs": str(count)}, {"num_outputs": count})
    return [(node, i) for i in range(count)]


def on_node(policy: Policy, op: Op) -> Callable[[Node], list[Entry]]:
    """Return a function that casts the inputs of each new node of `op`."""

    def cast(node: Node) -> list[Entry]:
        wanted = policy.wanted(op, node.values)
        if wanted is None:
            return node.inputs
        if wanted is WIDEST:
            return multicast_node(node.inputs, naming.current().get(None, "amp_multicast"))
        states = {id(each) for each in node.mutated()}
        return [
            entry if id(entry[0]) in states else cast_node(entry, wanted, naming.current().get(None, "amp_cast"))  # type: ignore[arg-type]
            for entry in node.inputs
        ]

    return cast


class Conversion:
    """A copy of a graph with casts. Each output is cast at most once to each dtype, and only where necessary.

    `data` are the variables that a program feeds. If given, the other variables are parameters, and their dtypes are
    recorded. With `cast_params`, parameters that would be cast to the target have that dtype from the start.
    """

    def __init__(
        self, symbol: Symbol, policy: Policy, excluded: Collection[str], data: Collection[str] | None, cast_params: bool
    ):
        self.policy, self.excluded = policy, set(excluded)
        self.types: dict[tuple[int, int], torch.dtype | None] = {}  # of the outputs of new nodes
        self.casts: dict[tuple[int, int, torch.dtype], Entry] = {}
        self.made: dict[int, Node] = {}
        order = topological(node for node, _ in symbol._outputs)
        self.params = set() if data is None else {node.name for node in order if node.op is None} - set(data)
        self.in_target = self._castable(order) & self.params if cast_params else set()
        for node in order:
            self._visit(node)
        heads = [(self.made[id(node)], i) for node, i in symbol._outputs]
        self.symbol = Symbol([e if self._type(e) is torch.float32 else self._cast(e, torch.float32) for e in heads])

    def _castable(self, order: list[Node]) -> set[str]:
        """The variables that are inputs of an op that computes in the target."""
        return {
            source.name
            for node in order
            if node.op is not None and self._wanted(node) is self.policy.target
            for source, _ in node.inputs
            if source.op is None
        }

    def _wanted(self, node: Node) -> Any:
        return torch.float32 if node.name in self.excluded else self.policy.wanted(node.op, node.values)  # type: ignore[arg-type]

    def _visit(self, node: Node) -> None:
        new = self.made[id(node)] = Node(node.op, node.name, attrs=dict(node.attrs), values=dict(node.values))
        if node.op is None:
            self._note(new)
            return
        entries = [(self.made[id(source)], i) for source, i in node.inputs]
        wanted = self._wanted(node)
        new.inputs = self._inputs(new, entries, wanted)
        known = [self._type(entry) for entry in new.inputs]
        if wanted is torch.float32:
            known = [dtype or torch.float32 for dtype in known]
        _, outputs = types_of(new, known, [None] * new.count_outputs())
        self.types.update({(id(new), i): dtype for i, dtype in enumerate(outputs)})

    def _note(self, variable: Node) -> None:
        """Record the dtype of a variable, if known."""
        if variable.name in self.params:
            dtype = self.policy.target if variable.name in self.in_target else torch.float32
            variable.attrs["__dtype__"] = str(FLAG_OF_TORCH[dtype])
        self.types[id(variable), 0] = self.policy.target if variable.name in self.in_target else None

    def _inputs(self, node: Node, entries: list[Entry], wanted: Any) -> list[Entry]:
        if wanted is None:
            return entries
        if wanted is WIDEST:
            return self._widened(entries)
        spared = torch.float32 if wanted is torch.float32 else None  # variables are float32 by default
        return [
            entry
            if self._type(entry) is wanted or (entry[0].op is None and spared is wanted)
            else self._cast(entry, wanted)
            for entry in entries
        ]

    def _widened(self, entries: list[Entry]) -> list[Entry]:
        """Cast all to float32 if one is available in it, else to the target. Use a multicast if a dtype is unknown."""
        found = [self._found(entry) for entry in entries]
        if not all(found):
            return multicast_node(entries, f"{_name(entries[0])}_amp_multicast")
        wanted = torch.float32 if any(torch.float32 in each for each in found) else self.policy.target
        return [entry if self._type(entry) is wanted else self._cast(entry, wanted) for entry in entries]

    def _found(self, entry: Entry) -> list[torch.dtype]:
        """The dtypes, of float32 and the target, in which an output is available: its own and those of its casts."""
        source, i = entry
        both = (torch.float32, self.policy.target)
        return [dtype for dtype in both if self._type(entry) is dtype or (id(source), i, dtype) in self.casts]

    def _type(self, entry: Entry) -> torch.dtype | None:
        return self.types.get((id(entry[0]), entry[1]))

    def _cast(self, entry: Entry, dtype: torch.dtype) -> Entry:
        key = (id(entry[0]), entry[1], dtype)
        if key not in self.casts:
            made = self.casts[key] = cast_node(entry, dtype, f"{_name(entry)}_amp_cast_{NAME_OF_TORCH[dtype]}")
            self.types[id(made[0]), 0] = dtype
        return self.casts[key]


def _name(entry: Entry) -> str:
    """The name of an output in MXNet's names of casts."""
    node, i = entry
    if node.op is None:
        return node.name
    return node.output_names()[i] if node.op.name in _NAMED else f"{node.name}_{i}"
