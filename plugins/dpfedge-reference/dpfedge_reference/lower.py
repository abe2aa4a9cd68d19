# SPDX-License-Identifier: Apache-2.0
"""Lowering for the reference: an ONNX graph in, the same nodes and their large constants apart out.

It changes no node. An operator without a definition here is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from dpfedge.backend.api import Array, LoweredGraph, LowerRequest
from dpfedge.errors import BackendError, Unsupported
from dpfedge.tensors import TensorSpec
from dpfedge_reference.evaluator import mapped_errors, prepare

__all__ = ["finish", "lower"]

WEIGHT_MIN_BYTES = 1024
_DTYPES = {1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64",
           12: "u32", 13: "u64"}  # fmt: skip


def lower(request: LowerRequest) -> LoweredGraph:
    """Check that each operator is defined here, and take out constants of 1 KiB and more."""
    where = f"graph {request.name}"
    with mapped_errors(where):
        model = onnx.ModelProto.FromString(request.onnx)
    try:
        prepare(model, {})
    except (NotImplementedError, RuntimeError) as error:
        raise Unsupported(
            "an operator has no definition here", where=where, found=" ".join(str(error).split())[:200]
        ) from error
    model.producer_name, model.producer_version, model.doc_string = "dpfedge", "", ""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_spec(where, value) for value in model.graph.input if value.name not in constants)
    outputs = tuple(_spec(where, value) for value in model.graph.output)
    weights = dict(_take_weights(model))
    return LoweredGraph(model.SerializeToString(deterministic=True), weights, inputs, outputs)


def _take_weights(model: onnx.ModelProto) -> Iterator[tuple[str, Array]]:
    for tensor in model.graph.initializer:
        # elements of less than a byte stay inside: their array is not what is stored
        if tensor.data_type not in _DTYPES:
            continue
        array = np.ascontiguousarray(numpy_helper.to_array(tensor))
        if array.nbytes < WEIGHT_MIN_BYTES:
            continue
        for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(field)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        yield tensor.name, array


def finish(lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
    """Write each constant's place as ONNX external data: location, offset, length."""
    model = onnx.ModelProto.FromString(lowered.code)
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        if tensor.name not in places:
            raise BackendError("weight has no place", where=f"graph {model.graph.name}", found=tensor.name)
        section, offset, size = places[tensor.name]
        for key, value in (("location", section), ("offset", str(offset)), ("length", str(size))):
            tensor.external_data.add(key=key, value=value)
    return bytes(model.SerializeToString(deterministic=True))


def _spec(where: str, value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    if tensor.elem_type not in _DTYPES:
        raise Unsupported(
            "a port must hold numbers of a dtype that links have", where=f"{where}: port {value.name}",
            found=onnx.TensorProto.DataType.Name(tensor.elem_type), allowed=", ".join(_DTYPES.values()),
        )  # fmt: skip
    dims = tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"?{index}"
        for index, dim in enumerate(tensor.shape.dim)
    )
    return TensorSpec(value.name, _DTYPES[tensor.elem_type], dims)
