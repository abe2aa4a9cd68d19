# SPDX-License-Identifier: Apache-2.0
"""What lowering an ONNX graph begins and ends with: a model in; its ports, its weights apart, and their places, out.

It needs the package `onnx`, so only `lower` and `finish` of a plugin import it. It changes no node.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from dpfedge.backend.api import Array
from dpfedge.errors import BackendError, Unsupported
from dpfedge.tensors import TensorSpec

__all__ = ["WEIGHT_MIN_BYTES", "graph_ports", "place_weights", "take_weights"]

WEIGHT_MIN_BYTES = 1024
"""Smaller constants are shapes and norms; they stay in the graph."""
_DTYPES = {1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64",
           12: "u32", 13: "u64"}  # fmt: skip
_DATA = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def graph_ports(model: onnx.ModelProto, where: str) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs of a graph as specs; a dimension without size or name becomes `?n`.

    Unsupported names a port whose values a link cannot carry.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_spec(where, value) for value in model.graph.input if value.name not in constants)
    return inputs, tuple(_spec(where, value) for value in model.graph.output)


def _spec(where: str, value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    if tensor.elem_type not in _DTYPES:
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type) if tensor.elem_type else value.type.WhichOneof("value")
        raise Unsupported(
            "a port must hold numbers of a dtype that links have", where=f"{where}: port {value.name}", found=kind,
            allowed=", ".join(_DTYPES.values()),
        )  # fmt: skip
    dims = tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"?{index}"
        for index, dim in enumerate(tensor.shape.dim)
    )
    return TensorSpec(value.name, _DTYPES[tensor.elem_type], dims)


def take_weights(model: onnx.ModelProto, least: int = WEIGHT_MIN_BYTES) -> dict[str, Array]:
    """Take constants of `least` bytes and more out of the graph: name → values; the graph keeps their names.

    Elements of less than a byte stay inside: their array is not what is stored.
    """
    weights = {}
    for tensor in model.graph.initializer:
        if tensor.data_type not in _DTYPES:
            continue
        array = np.asarray(numpy_helper.to_array(tensor))
        if array.nbytes < least:
            continue
        for part in _DATA:
            tensor.ClearField(part)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        weights[tensor.name] = np.ascontiguousarray(array)
    return weights


def place_weights(code: bytes, places: Mapping[str, tuple[str, int, int]]) -> bytes:
    """`code`, an ONNX model, with the place of each weight as external data: location, offset, length."""
    model = onnx.ModelProto.FromString(code)
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        if tensor.name not in places:
            raise BackendError("weight has no place", where=f"graph {model.graph.name}", found=tensor.name)
        section, offset, size = places[tensor.name]
        for key, value in (("location", section), ("offset", str(offset)), ("length", str(size))):
            tensor.external_data.add(key=key, value=value)
    return bytes(model.SerializeToString(deterministic=True))
