# SPDX-License-Identifier: Apache-2.0
"""Convolutions for the vector unit: a graph in, the same graph with fewer and faster memory layouts out.

onnxruntime has blocked kernels (NCHWc) for 2-D convolutions only, and leaves the blocked layout at every operator it
does not know. `widen` turns 1-D convolutions into 2-D ones of height 1 before its optimiser runs, `stay_blocked` keeps
element-wise operators in the blocked layout afterwards. Both change no number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["BLOCKED_DOMAIN", "stay_blocked", "widen"]

BLOCKED_DOMAIN = "com.microsoft.nchwc"
_ELEMENTWISE = frozenset({"Add", "Div", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Sub", "Tanh"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_AXIS = "dpfedge.axis2"
_WHOLE_BLOCK = 16  # the widest block; tensors of other channel counts have padded channels


class _Rewriter:
    """Walks a graph once; some tensors get a twin in another form, and nodes move over to twins where they can."""

    def __init__(self, model: onnx.ModelProto, undo: Callable[[str, str], onnx.NodeProto]) -> None:
        self.graph, self.undo = model.graph, undo
        self.twins: dict[str, str] = {}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.nodes: list[onnx.NodeProto] = []
        self._plain: set[str] = set()

    def twin(self, name: str) -> str:
        """A name for the twin of `name`; until a node needs `name` itself, only the twin exists."""
        self.twins[name] = f"{name}.twin"
        return self.twins[name]

    def mark_plain(self, name: str) -> None:
        """`name` exists beside its twin."""
        self._plain.add(name)

    def can_move(self, node: onnx.NodeProto) -> bool:
        """Whether every input of an element-wise node has a twin or is a constant of one element."""
        if node.op_type not in _ELEMENTWISE or not any(name in self.twins for name in node.input):
            return False
        return all(name in self.twins or self._is_scalar(name) for name in node.input)

    def move(self, node: onnx.NodeProto) -> None:
        """Put an element-wise node on its inputs' twins."""
        for index, name in enumerate(node.input):
            node.input[index] = self.twins.get(name, name)
        node.output[0] = self.twin(node.output[0])
        self.nodes.append(node)

    def keep(self, node: onnx.NodeProto) -> None:
        """Leave a node as it is; inputs that exist only as twins are brought back first."""
        self._need(node.input)
        self.nodes.append(node)

    def drop_unused(self) -> None:
        """Remove twins that were offered and that no node took."""
        used = {name for node in self.nodes for name in node.input} | {value.name for value in self.graph.output}
        self.nodes = [node for node in self.nodes if node.op_type != "ReorderInput" or node.output[0] in used]

    def finish(self) -> None:
        """Write the nodes back."""
        self._need([value.name for value in self.graph.output])
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in self.nodes]
        del self.graph.node[:]
        self.graph.node.extend(nodes)
        del self.graph.value_info[:]

    def _need(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.twins and name not in self._plain:
                self._plain.add(name)
                self.nodes.append(self.undo(self.twins[name], name))

    def _is_scalar(self, name: str) -> bool:
        tensor = self.constants.get(name)
        return tensor is not None and int(np.prod(tensor.dims)) == 1


def widen(model: onnx.ModelProto) -> int:
    """Give 1-D convolutions a height of 1, and keep it through element-wise operators; how many were changed.

    A graph with branches is left alone: their bodies read tensors by name.
    """
    if _branches(model.graph):
        return 0
    lines = {node.output[0] for node in _lines(model.graph)}
    if not lines:
        return 0
    rewriter = _Rewriter(model, lambda wide, plain: _node("Squeeze", [wide, _AXIS], plain))
    for node in list(model.graph.node):
        if node.output[0] in lines:
            _widen_one(rewriter, node)
        elif rewriter.can_move(node):
            rewriter.move(node)
        else:
            rewriter.keep(node)
    model.graph.initializer.append(numpy_helper.from_array(np.array([2], np.int64), _AXIS))
    rewriter.finish()
    return len(lines)


def _branches(graph: onnx.GraphProto) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute)


def _node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], name=f"{output}.{op}", **attributes)


def _lines(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Convolutions over one dimension whose constant weights only such convolutions read."""
    weights = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    found = [n for n in graph.node if n.op_type in _CONVOLUTIONS and weights.get(n.input[1]) == 3]
    names = {node.output[0] for node in found}
    others = {name for node in graph.node if node.output[0] not in names for name in node.input}
    return [node for node in found if node.input[1] not in others]


def _widen_one(rewriter: _Rewriter, node: onnx.NodeProto) -> None:
    source, weight = node.input[0], rewriter.constants[node.input[1]]
    if source not in rewriter.twins:
        rewriter.nodes.append(_node("Unsqueeze", [source, _AXIS], rewriter.twin(source)))
        rewriter.mark_plain(source)
    node.input[0] = rewriter.twins[source]
    if len(weight.dims) == 3:  # a weight that two nodes share is widened once
        weight.dims.insert(2, 1)
    for attribute in node.attribute:
        if attribute.name in ("kernel_shape", "strides", "dilations", "output_shape"):
            attribute.ints.insert(0, 1)
        elif attribute.name == "output_padding":
            attribute.ints.insert(0, 0)
        elif attribute.name == "pads":
            start, end = attribute.ints
            attribute.ints[:] = [0, start, 0, end]
    node.output[0] = rewriter.twin(node.output[0])
    rewriter.nodes.append(node)


def stay_blocked(model: onnx.ModelProto) -> int:
    """Keep element-wise operators between blocked convolutions in the blocked layout; how many were moved.

    Two blocked tensors are combined only if they have the same sizes by construction: broadcasting one over the other
    would mix up blocks. A graph with branches is left alone: their bodies read tensors by name.
    """
    if _branches(model.graph):
        return 0
    channels: dict[str, int] = {}

    def undo(blocked: str, plain: str) -> onnx.NodeProto:
        return _node("ReorderOutput", [blocked], plain, domain=BLOCKED_DOMAIN, channels=channels[blocked])

    rewriter, sizes, moved = _Rewriter(model, undo), _sizes(model.graph), 0
    for node in list(model.graph.node):
        if width := _whole_channels(node):
            rewriter.twins[node.output[0]] = node.input[0]
            channels[node.input[0]] = width
        elif node.op_type == "ReorderInput" and node.input[0] in rewriter.twins:
            _alias(model.graph, node.output[0], rewriter.twins[node.input[0]])
        elif rewriter.can_move(node) and len({sizes[name] for name in node.input if name in rewriter.twins}) == 1:
            rewriter.move(node)
            channels[node.output[0]] = next(channels[name] for name in node.input if name in channels)
            moved += 1
        else:
            rewriter.keep(node)
            if width := _whole_filters(node, rewriter.constants):
                plain = node.output[0]
                rewriter.nodes.append(_node("ReorderInput", [plain], rewriter.twin(plain), domain=BLOCKED_DOMAIN))
                rewriter.mark_plain(plain)
                channels[rewriter.twins[plain]] = width
    rewriter.drop_unused()
    rewriter.finish()
    return moved


def _sizes(graph: onnx.GraphProto) -> dict[str, tuple[Any, Any]]:
    """Tensor → (a name of its height and width, channels): equal means equal sizes, whatever the graph's input is."""
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    sizes: dict[str, tuple[Any, Any]] = {}
    for node in graph.node:
        known = [sizes[name] for name in node.input if name in sizes]
        same = node.op_type in ("ReorderInput", "ReorderOutput") or node.op_type in _ELEMENTWISE
        for output in node.output:
            if node.op_type in _CONVOLUTIONS and len(weights.get(node.input[1], ())) == 4:
                place = sizes.get(node.input[0], (node.input[0], None))[0]
                sizes[output] = _convolved(node, weights[node.input[1]], place)
            else:
                sizes[output] = known[0] if same and len(set(known)) == 1 else (output, None)
    return sizes


def _convolved(node: onnx.NodeProto, weight: tuple[int, ...], place: Any) -> tuple[Any, Any]:
    values = {attribute.name: tuple(attribute.ints) for attribute in node.attribute if attribute.ints}
    modes = [attribute.s for attribute in node.attribute if attribute.name == "auto_pad"]
    filters, kernel = weight[0 if node.op_type == "Conv" else 1], values.get("kernel_shape", weight[2:])
    stride, dilation, pads = (values.get(key, value) for key, value in _DEFAULTS.items())
    grown = [pads[axis] + pads[axis + 2] - dilation[axis] * (kernel[axis] - 1) for axis in range(2)]
    if modes not in ([], [b"NOTSET"]):
        return node.output[0], filters
    if node.op_type == "Conv" and set(stride) == {1} and not any(grown):
        return place, filters
    return (node.op_type, place, kernel, stride, dilation, pads, values.get("output_padding")), filters


_DEFAULTS = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}


def _whole_channels(node: onnx.NodeProto) -> int:
    """Channels of a ReorderOutput that fill their blocks; 0 for any other node."""
    if node.op_type != "ReorderOutput" or node.domain != BLOCKED_DOMAIN:
        return 0
    values = {attribute.name: attribute.i for attribute in node.attribute}
    return 0 if values.get("channels_last") or values["channels"] % _WHOLE_BLOCK else values["channels"]


def _whole_filters(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> int:
    """Channels of a transposed convolution, which has no blocked kernel, if they would fill blocks; else 0."""
    weight = constants.get(node.input[1]) if node.op_type == "ConvTranspose" else None
    if weight is None or len(weight.dims) != 4 or weight.dims[1] % _WHOLE_BLOCK:
        return 0
    return int(weight.dims[1]) if all(a.i == 1 for a in node.attribute if a.name == "group") else 0


def _alias(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new
