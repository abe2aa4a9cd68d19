# SPDX-License-Identifier: Apache-2.0
"""ONNX in, plain nodes of one dialect out: onnxruntime's basic optimiser, then one way to write each operator.

Compile time only. Differences between operator sets end here: axes, limits, pads and the like are always inputs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dpfedge.backend.api import Array
from dpfedge.errors import BackendError, Unsupported
from dpfedge_opencl.ops.api import Node

__all__ = ["DTYPES", "Source", "open_source"]

DTYPES: Mapping[int, str] = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64", 12: "u32",
    13: "u64",
}  # fmt: skip
"""ONNX's number of a dtype → ours."""
_RUNTIME_DTYPES = {
    "float": "f32", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "int32": "i32", "int64": "i64",
    "bool": "bool", "float16": "f16", "double": "f64", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
_LACKING = (
    "NOT_IMPLEMENTED",
    "is not a registered function/op",
    "is under development",
    "Unsupported model IR version",
)
# attribute that later became an input: operator → attributes in the order of inputs 1, 2, …
_NOW_INPUTS: Mapping[str, tuple[str, ...]] = {
    "Squeeze": ("axes",), "Unsqueeze": ("axes",), "Split": ("split",), "Clip": ("min", "max"), "Pad": ("pads",),
    "Slice": ("starts", "ends", "axes"), "Reshape": ("shape",), "Tile": ("repeats",), "TopK": ("k",),
    **{f"Reduce{kind}": ("axes",) for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp",
                                               "SumSquare")},
}  # fmt: skip
_ROOT = ("", "ai.onnx")


@dataclass(slots=True)
class Source:
    """An ONNX graph as nodes, and what is known of its values."""

    model: onnx.ModelProto
    """As the optimiser left it."""
    nodes: list[Node]
    protos: dict[str, onnx.NodeProto]
    """Node's name → what it was made of, for the parts that the CPU runs."""
    constants: dict[str, Array]
    dtypes: dict[str, str]
    """Value → dtype; "" for what no kernel can hold (strings, sequences)."""
    packed: dict[str, onnx.TensorProto] = field(default_factory=dict)
    """Constants of dtypes that NumPy lacks; only the CPU plugin reads them."""


def open_source(content: bytes, name: str) -> Source:
    """The optimised graph; Unsupported where onnxruntime lacks an operator, BackendError where the graph is wrong."""
    where = f"graph {name}"
    model = _optimised(content, where)
    source = Source(model, [], {}, {}, _dtypes(model, where))
    for tensor in model.graph.initializer:
        if tensor.data_type in DTYPES:
            source.constants[tensor.name] = np.ascontiguousarray(numpy_helper.to_array(tensor)).reshape(
                tuple(tensor.dims)
            )
            source.dtypes[tensor.name] = DTYPES[tensor.data_type]
        else:
            source.packed[tensor.name] = tensor
    for port in (*model.graph.input, *model.graph.output):
        source.dtypes.setdefault(port.name, DTYPES.get(port.type.tensor_type.elem_type, ""))
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    taken: set[str] = set()
    for index, proto in enumerate(model.graph.node):
        _add(source, proto, _unique(proto, index, taken), opsets)
    return source


def _unique(proto: onnx.NodeProto, index: int, taken: set[str]) -> str:
    name = proto.name or next((out for out in proto.output if out), f"node{index}")
    while name in taken:
        name = f"{name}.{index}"
    taken.add(name)
    return name


def _optimised(content: bytes, where: str) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory(prefix="dpfedge-opencl-") as folder:
        target = Path(folder, "basic.onnx")
        options = _options("ORT_ENABLE_BASIC")
        options.optimized_model_filepath = str(target)
        _session(content, options, where)
        return onnx.load(str(target))


def _options(level: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def _session(content: bytes, options: Any, where: str) -> Any:
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    names = (
        "Fail",
        "InvalidArgument",
        "NoModel",
        "RuntimeException",
        "InvalidProtobuf",
        "NotImplemented",
        "InvalidGraph",
    )
    errors = (*(getattr(native, one) for one in names if hasattr(native, one)), RuntimeError, ValueError)
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except errors as error:
        text = " ".join(str(error).split())
        lacking = any(phrase in text for phrase in _LACKING)
        raise (Unsupported if lacking else BackendError)(text, where=where) from error


def _dtypes(model: onnx.ModelProto, where: str) -> dict[str, str]:
    """dtype of every value, as onnxruntime infers them: the model again, with every value as an output."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    have = {port.name for port in whole.graph.output}
    for node in model.graph.node:
        fresh = [name for name in node.output if name and name not in have]
        whole.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in fresh)
    session = _session(whole.SerializeToString(), _options("ORT_DISABLE_ALL"), where)
    found = {}
    for value in (*session.get_inputs(), *session.get_outputs()):
        found[value.name] = _RUNTIME_DTYPES.get(value.type.removeprefix("tensor(").removesuffix(")"), "")
    return found


def _add(source: Source, proto: onnx.NodeProto, name: str, opsets: Mapping[str, int]) -> None:
    op = proto.op_type if proto.domain in _ROOT else f"{proto.domain}.{proto.op_type}"
    opset = max((opsets.get(domain, 0) for domain in _ROOT), default=0)
    attrs = dict(_attributes(proto))
    inputs = list(proto.input)
    for place, attribute in enumerate(_NOW_INPUTS.get(op, ()), start=1):
        if attribute in attrs:
            inputs += [""] * (place - len(inputs))
            inputs.append(_constant(source, f"{name}.{attribute}", attrs.pop(attribute), op))
    if op in ("Softmax", "LogSoftmax", "Hardmax") and opset < 13:
        attrs["flat"] = attrs.get("axis", 1)  # one row from this axis on
    if op == "Cast":
        attrs["to"] = DTYPES.get(attrs["to"], "")
    while inputs and not inputs[-1]:
        inputs.pop()
    inputs += [one for one in _captured_by(proto) if one not in inputs]
    source.nodes.append(Node(op, name, tuple(inputs), tuple(proto.output), attrs))
    source.protos[name] = proto


def _captured_by(node: onnx.NodeProto) -> list[str]:
    """What the branches of a node read of the graph around them."""
    found: list[str] = []
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
            own = {tensor.name for tensor in graph.initializer} | {port.name for port in graph.input}
            own |= {out for one in graph.node for out in one.output}
            reads = [port.name for port in graph.output]
            for one in graph.node:
                reads += [*one.input, *_captured_by(one)]
            found += [name for name in reads if name and name not in own]
    return list(dict.fromkeys(found))


def _constant(source: Source, name: str, value: Any, op: str) -> str:
    kind = np.float32 if op == "Clip" else np.int64
    source.constants[name] = np.asarray(value, kind)
    source.dtypes[name] = "f32" if op == "Clip" else "i64"
    return name


def _attributes(proto: onnx.NodeProto) -> Iterator[tuple[str, Any]]:
    for attribute in proto.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            yield attribute.name, value.decode()
        elif isinstance(value, onnx.TensorProto):
            if attribute.name == "value" and value.data_type in DTYPES:
                array = numpy_helper.to_array(value)
                yield "dtype", DTYPES[value.data_type]
                yield "value", array.reshape(-1)[0].item() if array.size else 0
        elif isinstance(value, onnx.GraphProto):
            yield attribute.name, "graph"
        elif isinstance(value, (int, float)):
            yield attribute.name, value
        else:
            yield attribute.name, [one.decode() if isinstance(one, bytes) else one for one in value]
