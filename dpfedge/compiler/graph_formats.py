# SPDX-License-Identifier: Apache-2.0
"""An ONNX graph in, the same graph with its constant matrices in another format out.

Products (MatMul, Gemm) change; convolutions change only where the format is a float, because onnxruntime's 8-bit
convolution is slower than its float one. Decoders are built in their format (`formats.py`) and come here for fp16, fp8.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dpfedge.compiler.blocks import BLOCK, Floats
from dpfedge.compiler.formats import Form
from dpfedge.compiler.importer.onnx import subgraphs
from dpfedge.compiler.nodes import MICROSOFT
from dpfedge.compiler.quantise import int4
from dpfedge.records import dataclass

__all__ = ["in_form"]

_MATRIX_OF = {"MatMul": 1, "Gemm": 1}
"""Products → which input is the matrix."""
_FLOATS_OF = {**_MATRIX_OF, "Conv": 1, "ConvTranspose": 1, "Gather": 0}
_LARGEST = {"FLOAT16": 65504.0, "FLOAT8E4M3FN": 448.0, "FLOAT8E4M3FNUZ": 240.0}
"""Element type → its largest value."""
_MIN_ELEMENTS = 1024  # smaller matrices are no gain, and lowering folds them into the graph


@dataclass(frozen=True, slots=True)
class _Use:
    """A node and the large float constant it multiplies by."""

    node: onnx.NodeProto
    tensor: onnx.TensorProto


def in_form(model: onnx.ModelProto, form: Form) -> tuple[onnx.ModelProto, tuple[tuple[str, str], ...]]:
    """(converted copy, decisions); the model itself where it has nothing to convert."""
    if form.name == "keep":
        return model, ()
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    uses = list(_uses(copy, _MATRIX_OF if form.element is None else _FLOATS_OF))
    if not uses:
        return model, ((f"weights=keep, not {form.name}", "the graph multiplies by no large float constant"),)
    if form.name == "int8":
        return _dynamic(copy, uses), ((f"int8={len(uses)} products", _DYNAMIC_RULE),)
    if form.element is not None:
        count = _store(copy, uses, form.element)
        return copy, ((f"{form.name}={count} constants", f"stored as {form.element.lower()}, widened where used"),)
    done = _blocks(copy, uses, symmetric=form.name == "int4")
    left = f"; {len(uses) - done} of {len(uses)} have no whole blocks and stay float32" if done < len(uses) else ""
    return copy, ((f"int4={done} products, block 32", f"scale searched by squared error{left}"),)


_DYNAMIC_RULE = (
    "activations are scaled per run, weights per output; unsigned, so that no 16-bit sum saturates on x86 without vnni"
)


def _uses(model: onnx.ModelProto, inputs: dict[str, int]) -> Iterator[_Use]:
    """Products of the main graph with a constant that is no input a caller may overrule."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for port in model.graph.input:
        constants.pop(port.name, None)
    for node in model.graph.node:
        place = inputs.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        tensor = constants.get(node.input[place]) if place is not None else None
        if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT or int(np.prod(tensor.dims)) < _MIN_ELEMENTS:
            continue
        if len(tensor.dims) == 2 or (len(tensor.dims) > 2 and node.op_type.startswith("Conv")):
            yield _Use(node, tensor)


def _dynamic(model: onnx.ModelProto, uses: list[_Use]) -> onnx.ModelProto:
    """Products as MatMulInteger with activations quantised at run time, by onnxruntime's own tool."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for use in uses:
        use.node.name = use.node.name or f"{use.node.output[0]}.{use.node.op_type}"
    # a Gemm becomes a MatMul of this name before anything is quantised
    names = [use.node.name + ("_MatMul" if use.node.op_type == "Gemm" else "") for use in uses]
    producer = (model.producer_name, model.producer_version)
    properties = [(item.key, item.value) for item in model.metadata_props]
    # without this mark the tool logs advice
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    with tempfile.TemporaryDirectory(prefix="dpfedge-format-") as folder:
        target = Path(folder, "model.onnx")
        quantize_dynamic(
            model,
            target,
            op_types_to_quantize=list(_MATRIX_OF),
            per_channel=True,
            weight_type=QuantType.QUInt8,
            nodes_to_quantize=names,
            extra_options={"MatMulConstBOnly": True, "WeightSymmetric": True},
        )
        found = onnx.load(str(target))
    found.producer_name, found.producer_version = producer
    del found.metadata_props[:]
    for key, value in properties:
        found.metadata_props.add(key=key, value=value)
    return found


def _blocks(model: onnx.ModelProto, uses: list[_Use], *, symmetric: bool) -> int:
    """MatMul and plain Gemm with 4-bit blocks; how many were changed."""
    instead: dict[str, list[onnx.NodeProto]] = {}
    made: dict[tuple[str, bool], list[str]] = {}
    for use in uses:
        rows, turned = _rows(use)
        if rows is None:
            continue
        key = (use.tensor.name, turned)
        if key not in made:
            made[key] = _add_blocks(model, f"{key[0]}.int4{'t' * turned}", rows, symmetric)
        instead[use.node.output[0]] = _block_nodes(use.node, made[key], rows.shape)
    _exchange(model, instead)
    if instead and not any(item.domain == MICROSOFT for item in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return len(instead)


def _rows(use: _Use) -> tuple[Floats | None, bool]:
    """(the matrix [outputs, inputs], whether the node stores it so); None where it cannot be blocks."""
    values: dict[str, Any] = {item.name: helper.get_attribute_value(item) for item in use.node.attribute}
    turned = bool(values.get("transB"))
    if values.get("transA") or values.get("alpha", 1.0) != 1.0 or values.get("beta", 1.0) != 1.0:
        return None, turned
    matrix = numpy_helper.to_array(use.tensor)
    rows = np.ascontiguousarray(matrix if turned else matrix.T, np.float32)
    return (None if rows.shape[1] % BLOCK else rows), turned


def _add_blocks(model: onnx.ModelProto, name: str, rows: Floats, symmetric: bool) -> list[str]:
    blocks = int4(rows, symmetric=symmetric)
    arrays: dict[str, Any] = {"codes": blocks.codes, "scales": blocks.scales}
    if blocks.zeros is not None:
        arrays["zeros"] = blocks.zeros
    for part, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array, f"{name}.{part}"))
    return [f"{name}.{part}" for part in arrays]


def _block_nodes(node: onnx.NodeProto, blocks: list[str], shape: tuple[int, ...]) -> list[onnx.NodeProto]:
    bias, result = (node.input[2] if len(node.input) > 2 else ""), node.output[0]
    output = f"{result}.product" if bias else result
    inputs, name = [node.input[0], *blocks], f"{result}.MatMulNBits"
    product = helper.make_node("MatMulNBits", inputs, [output], name=name, domain=MICROSOFT, N=shape[0], K=shape[1],
                               bits=4, block_size=BLOCK, accuracy_level=4)  # fmt: skip
    return [product, helper.make_node("Add", [output, bias], [result], name=f"{result}.bias")] if bias else [product]


def _exchange(model: onnx.ModelProto, instead: dict[str, list[onnx.NodeProto]]) -> None:
    """Put other nodes in place of some, found by their output, and drop constants that nothing reads any more."""
    nodes = [new for node in model.graph.node for new in instead.get(node.output[0], [node])]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    used = {name for graph in subgraphs(model.graph) for node in graph.node for name in node.input}
    used |= {value.name for graph in subgraphs(model.graph) for value in graph.output}
    for tensor in [tensor for tensor in model.graph.initializer if tensor.name not in used]:
        model.graph.initializer.remove(tensor)


def _store(model: onnx.ModelProto, uses: list[_Use], element: str) -> int:
    """Float constants as `element`, widened to float32 by a node that a backend folds into its product; how many."""
    constants = {use.tensor.name: use.tensor for use in uses}
    nodes: list[onnx.NodeProto] = []
    for name, tensor in constants.items():
        values, stored = numpy_helper.to_array(tensor), f"{name}.{element.lower()}"
        if element == "FLOAT16":
            narrow: Any = np.clip(values, -_LARGEST[element], _LARGEST[element]).astype(np.float16)
            nodes.append(helper.make_node("Cast", [stored], [name], name=f"{name}.Cast", to=onnx.TensorProto.FLOAT))
        else:
            scale = np.array(np.abs(values).max() / _LARGEST[element] or 1.0, np.float32)
            narrow = (values / scale).astype(helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, element)))
            model.graph.initializer.append(numpy_helper.from_array(scale, f"{stored}.scale"))
            inputs = [stored, f"{stored}.scale"]
            nodes.append(helper.make_node("DequantizeLinear", inputs, [name], name=f"{name}.DequantizeLinear"))
        model.graph.initializer.append(numpy_helper.from_array(narrow, stored))
    for tensor in constants.values():
        model.graph.initializer.remove(tensor)
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    return len(constants)
