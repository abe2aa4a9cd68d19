# SPDX-License-Identifier: Apache-2.0
"""PP-OCR text detection and recognition (arXiv 2009.09941) in, graphs that read RGB bytes as they lie in a link out.

Normalising, the order of colours and the batch of one become part of the graph, so that a stage hands over a frame and
touches no pixel. It knows nothing of boxes and of text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dpfedge.errors import ModelError

__all__ = ["HEIGHT", "MULTIPLE", "STEP", "build_detector", "build_reader"]

HEIGHT = 48
"""Rows of a line as the reader was trained."""
MULTIPLE = 32
"""The detector halves its input five times."""
STEP = 8
"""Columns of a line for each step the reader answers."""
_SCALE, _OFFSET = 1 / 127.5, -1.0  # mean and standard deviation 0.5, for every colour alike
_AXES_INPUT = 13
_CHARACTERS = "character"  # key of the file's metadata


def build_detector(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """Graph `detect`: `frame` u8[height,width,3] → `map` f32[height,width]; ModelError when it is no such detector."""
    source, output = _ports(model, where, (3, None, None), 4)
    return _wrapped(model, "detect", source, ("frame", ["height", "width", 3]), output, ("map", ["height", "width"]))


def build_reader(model: onnx.ModelProto, where: str) -> tuple[onnx.ModelProto, list[str]]:
    """Graph `read` (`line` u8[48,width,3] → `shares` f32[steps,classes]) and the text of each class from 1 on.

    Class 0 is CTC's blank; ModelError when the file has no list of characters, or one that does not fit its classes.
    """
    source, output = _ports(model, where, (3, HEIGHT, None), 3)
    classes = output.type.tensor_type.shape.dim[2].dim_value
    listed = next((entry.value for entry in model.metadata_props if entry.key == _CHARACTERS), None)
    if listed is None:
        found = ", ".join(entry.key for entry in model.metadata_props) or "nothing"
        raise ModelError("no list of characters in the file's metadata", where=where, found=found, allowed=_CHARACTERS)
    characters = [*listed.split("\n"), " "]  # training appends the space, which is in no list
    if len(characters) + 1 != classes:
        found = f"{len(characters)} characters with the space"
        raise ModelError("the list of characters is not this model's", where=where, found=found, allowed=classes - 1)
    graph = _wrapped(model, "read", source, ("line", [HEIGHT, "width", 3]), output, ("shares", ["steps", classes]))
    return graph, characters


def _ports(
    model: onnx.ModelProto, where: str, sizes: Sequence[int | None], rank: int
) -> tuple[onnx.ValueInfoProto, onnx.ValueInfoProto]:
    """Input and output, when there is one of each: an image of `sizes` (None: any) behind the batch."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    outputs = list(model.graph.output)
    if len(inputs) != 1 or len(outputs) != 1:
        found = ", ".join(value.name for value in (*inputs, *outputs))
        raise ModelError("not a PP-OCR model", where=where, found=found, allowed="one input, one output")
    dims = [dim.dim_value for dim in inputs[0].type.tensor_type.shape.dim]
    ranks = len(dims), len(outputs[0].type.tensor_type.shape.dim)
    fits = ranks == (4, rank) and all(size in (None, dim) for size, dim in zip(sizes, dims[1:], strict=True))
    if not fits or inputs[0].type.tensor_type.elem_type != TensorProto.FLOAT:
        allowed = f"f32[1, {', '.join('any' if size is None else str(size) for size in sizes)}] → rank {rank}"
        raise ModelError("not a PP-OCR model", where=where, found=f"{dims} → rank {ranks[1]}", allowed=allowed)
    return inputs[0], outputs[0]


def _wrapped(
    model: onnx.ModelProto,
    name: str,
    source: onnx.ValueInfoProto,
    taken: tuple[str, list[int | str]],
    output: onnx.ValueInfoProto,
    given: tuple[str, list[int | str]],
) -> onnx.ModelProto:
    """A copy between other ports: bytes of RGB in, the answer without a batch out."""
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    axes = [0, 1] if given[0] == "map" else [0]
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", [taken[0]], ["planes"], perm=[2, 0, 1]),
            helper.make_node("Cast", ["planes"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["floats", "scale"], ["scaled"]),
            helper.make_node("Add", ["scaled", "offset"], ["normal"]),
            _axes("Unsqueeze", "normal", source.name, [0], opset),
            *model.graph.node,
            _axes("Squeeze", output.name, given[0], axes, opset),
        ],
        name,
        [helper.make_tensor_value_info(taken[0], TensorProto.UINT8, taken[1])],
        [helper.make_tensor_value_info(given[0], TensorProto.FLOAT, given[1])],
        [
            *_constants(model, source.name, name),
            numpy_helper.from_array(np.array(_SCALE, np.float32), "scale"),
            numpy_helper.from_array(np.array(_OFFSET, np.float32), "offset"),
            *(numpy_helper.from_array(np.array(axes[:n], np.int64), f"axes{n}") for n in {1, len(axes)}),
        ],
    )
    opsets, ir = model.opset_import, model.ir_version
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, producer_name="dpfedge")


def _axes(op: str, given: str, made: str, axes: list[int], opset: int) -> onnx.NodeProto:
    """Unsqueeze or Squeeze; from opset 13 on the axes are an input."""
    if opset < _AXES_INPUT:
        return helper.make_node(op, [given], [made], axes=axes)
    return helper.make_node(op, [given, f"axes{len(axes)}"], [made])


def _constants(model: onnx.ModelProto, source: str, where: str) -> list[onnx.TensorProto]:
    """The initialisers; the first convolution, trained on BGR, gets its weights in the order of RGB."""
    readers = [node for node in model.graph.node if source in node.input]
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    if len(readers) != 1 or readers[0].op_type != "Conv" or readers[0].input[1] not in constants:
        found = ", ".join(node.op_type for node in readers) or "nothing"
        raise ModelError("not a PP-OCR model", where=where, found=f"input read by {found}", allowed="one convolution")
    name = readers[0].input[1]
    if sum(name in node.input for node in model.graph.node) != 1:
        raise ModelError("not a PP-OCR model", where=where, found=f"{name} used twice", allowed="a first convolution")
    flipped = numpy_helper.to_array(constants[name])[:, ::-1]
    constants[name] = numpy_helper.from_array(np.ascontiguousarray(flipped), name)
    return list(constants.values())
