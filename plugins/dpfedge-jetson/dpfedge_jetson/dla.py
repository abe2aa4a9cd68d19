# SPDX-License-Identifier: Apache-2.0
"""What a DLA can run: an ONNX graph in; what of it a DLA will never run, node by node, out, before anybody has a DLA.

The limits are those of TensorRT's documentation, "DLA Supported Layers and Restrictions" (Jetson and DriveOS). TensorRT
would move such nodes to the GPU, and onnxruntime's TensorRT provider always lets it; here they are refused, and the
compiler decides where the graph goes. What passes may still be refused when the engine is built: that is an error then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper, shape_inference

__all__ = ["OPERATORS", "refusals"]

_KERNEL, _STRIDE, _PADDING, _DILATION, _CHANNELS, _SIZE, _BATCH = 32, 8, 31, 32, 8192, 8192, 4096
_WINDOW, _POOL_STRIDE, _POOL_PADDING = 8, 16, 7
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
Shapes = Mapping[str, Sequence[int] | None]
Rule = Callable[[onnx.NodeProto, Shapes], str]
"""Node → why a DLA does not run it; empty when it does."""


def _values(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _within(what: str, values: Sequence[int], least: int, most: int) -> str:
    bad = [value for value in values if not least <= value <= most]
    return f"{what} {bad[0]} is not {least} to {most}" if bad else ""


def _plane(node: onnx.NodeProto, shapes: Shapes) -> str:
    shape = shapes.get(node.input[0])
    return "" if shape is None or len(shape) == 4 else f"its input has {len(shape)} dimensions, not 4"


def _convolution(node: onnx.NodeProto, shapes: Shapes) -> str:
    values, weight = _values(node), shapes.get(node.input[1])
    kernel = values.get("kernel_shape") or (weight[2:] if weight else ())
    auto = values.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    return (
        _plane(node, shapes)
        or _within("kernel", kernel, 1, _KERNEL)
        or _within("stride", values.get("strides", ()), 1, _STRIDE)
        or _within("padding", values.get("pads", ()), 0, _PADDING)
        or _within("dilation", values.get("dilations", ()), 1, _DILATION)
        or _within("channels", weight[:2] if weight else (), 1, _CHANNELS)
        or ("padding is left to the operator" if auto else "")
    )


def _deconvolution(node: onnx.NodeProto, shapes: Shapes) -> str:
    values = _values(node)
    if any(values.get("pads", ())) or any(values.get("output_padding", ())):
        return "a deconvolution with padding"
    if values.get("group", 1) != 1 or any(one != 1 for one in values.get("dilations", ())):
        return "a grouped or dilated deconvolution"
    return _convolution(node, shapes)


def _pooling(node: onnx.NodeProto, shapes: Shapes) -> str:
    values = _values(node)
    return (
        _plane(node, shapes)
        or _within("window", values.get("kernel_shape", ()), 1, _WINDOW)
        or _within("stride", values.get("strides", ()), 1, _POOL_STRIDE)
        or _within("padding", values.get("pads", ()), 0, _POOL_PADDING)
        or ("sizes are rounded up" if values.get("ceil_mode") else "")
        or ("a dilated window" if any(one != 1 for one in values.get("dilations", ())) else "")
    )


def _whole_pooling(node: onnx.NodeProto, shapes: Shapes) -> str:
    shape = shapes.get(node.input[0]) or ()
    return _plane(node, shapes) or _within("window", shape[2:], 1, _WINDOW)


def _concatenation(node: onnx.NodeProto, shapes: Shapes) -> str:
    axis = _values(node).get("axis", 1)
    return _plane(node, shapes) or ("" if axis in (1, -3) else f"it joins along axis {axis}, not the channels")


def _clipping(node: onnx.NodeProto, shapes: Shapes) -> str:
    values = _values(node)
    least = values.get("min", shapes.get(f"={node.input[1]}", [0])[0] if len(node.input) > 1 else 0)  # type: ignore[index]
    return _plane(node, shapes) or ("" if least == 0 else "it clips below another number than 0")


OPERATORS: Mapping[str, Rule] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "LeakyRelu", "PRelu", "BatchNormalization"), _plane),
    **dict.fromkeys(("Add", "Sub", "Mul", "Max", "Min", "Div", "Pow"), _plane),
    "Conv": _convolution, "ConvTranspose": _deconvolution, "MaxPool": _pooling, "AveragePool": _pooling,
    "GlobalAveragePool": _whole_pooling, "GlobalMaxPool": _whole_pooling, "Concat": _concatenation, "Clip": _clipping,
}  # fmt: skip
"""Operators that become one layer a DLA has, with what limits them."""


def refusals(model: onnx.ModelProto) -> Iterator[str]:
    """Why a DLA does not run this graph, port by port and node by node; none when it may."""
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    shapes = dict(_shapes(inferred.graph))
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in (*inferred.graph.input, *inferred.graph.output):
        if value.name not in constants:
            yield from _port(value)
    for node in model.graph.node:
        rule = OPERATORS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        why = "a DLA has no such layer" if rule is None else rule(node, shapes)
        if why:
            yield f"{node.op_type} {node.name or node.output[0]}: {why}"


def _port(value: onnx.ValueInfoProto) -> Iterator[str]:
    tensor = value.type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    if tensor.elem_type not in _FLOATS:
        yield f"port {value.name}: a DLA takes floats, not {onnx.TensorProto.DataType.Name(tensor.elem_type)}"
    elif not all(sizes):
        yield f"port {value.name}: a size is left open, and a DLA has fixed ones"
    elif why := _within("batch", sizes[:1], 1, _BATCH) or _within("size", sizes[1:], 1, _SIZE):
        yield f"port {value.name}: {why}"


def _shapes(graph: onnx.GraphProto) -> Iterator[tuple[str, Sequence[int] | None]]:
    """Value → its sizes; `=name` → the numbers of a small constant."""
    for tensor in graph.initializer:
        yield tensor.name, list(tensor.dims)
        if not tensor.dims and tensor.data_type in _FLOATS:
            yield f"={tensor.name}", onnx.numpy_helper.to_array(tensor).reshape(-1).tolist()
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        yield value.name, [dim.dim_value for dim in dims] if all(dim.dim_value for dim in dims) else None
