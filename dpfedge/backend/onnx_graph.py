# SPDX-License-Identifier: Apache-2.0
"""What lowering an ONNX graph begins and ends with: a model in; its ports, its weights apart, and their places, out.

It needs the package `onnx`, so only `lower` and `finish` of a plugin import it. It changes no node.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import numpy_helper

from dpfedge.backend.api import Array
from dpfedge.errors import BackendError, Unsupported
from dpfedge.tensors import TensorSpec

__all__ = ["WEIGHT_MIN_BYTES", "graph_ports", "is_weight", "place_weights", "read_model", "take_weights"]

WEIGHT_MIN_BYTES = 1024
"""Smaller constants are shapes and norms; they stay in the graph, where shape inference reads them."""
_DTYPES = {1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64",
           12: "u32", 13: "u64"}  # fmt: skip
_PACKED = frozenset({21, 22, 23, 25, 26})  # (U)INT4, FLOAT4E2M1, (U)INT2: several elements in one byte
_DATA = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def read_model(data: bytes, where: str = "graph") -> onnx.ModelProto:
    """A serialised model; BackendError for other bytes."""
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise BackendError("it is no ONNX graph", where=where, found=str(error)) from error
    return model


def graph_ports(model: onnx.ModelProto, where: str = "graph") -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
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


def is_weight(tensor: onnx.TensorProto, *, least: int = WEIGHT_MIN_BYTES, packed: bool = False) -> bool:
    """Whether `take_weights` takes it."""
    known = tensor.data_type != onnx.TensorProto.STRING if packed else tensor.data_type in _DTYPES
    return known and _stored(tensor).nbytes >= least


def take_weights(model: onnx.ModelProto, *, least: int = WEIGHT_MIN_BYTES, packed: bool = False) -> dict[str, Array]:
    """Take constants of `least` bytes and more out of the graph: name → values; the graph keeps their names.

    Those of dtypes that NumPy lacks leave it only when `packed`: as the bytes that ONNX stores.
    """
    weights = {}
    for tensor in model.graph.initializer:
        if not is_weight(tensor, least=least, packed=packed):
            continue
        weights[tensor.name] = _stored(tensor)
        for part in _DATA:
            tensor.ClearField(part)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        del tensor.external_data[:]
    return weights


def _stored(tensor: onnx.TensorProto) -> Array:
    """The tensor's values; elements of less than a byte stay packed, as ONNX stores them."""
    if tensor.data_type in _PACKED and tensor.HasField("raw_data"):
        return np.frombuffer(tensor.raw_data, np.uint8)
    return np.ascontiguousarray(numpy_helper.to_array(tensor))


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
