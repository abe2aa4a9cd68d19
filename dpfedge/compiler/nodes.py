# SPDX-License-Identifier: Apache-2.0
"""A small builder of ONNX graphs: nodes and constants in, one checked ModelProto out; it knows no model family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dpfedge.tensors import TensorSpec

__all__ = ["IR_VERSION", "MICROSOFT", "OPSET", "Nodes", "port"]

OPSET = 20
IR_VERSION = 10
MICROSOFT = "com.microsoft"
_SPILL_BYTES = 4096  # smaller constants are shapes and norms
_SPILL_ALIGN = 4096  # a page, so that a session can map the constant where it lies
_ELEMENT = {"f32": TensorProto.FLOAT, "i64": TensorProto.INT64, "i32": TensorProto.INT32, "u8": TensorProto.UINT8}


def port(spec: TensorSpec) -> onnx.ValueInfoProto:
    """A graph input or output as ONNX writes it."""
    return helper.make_tensor_value_info(spec.name, _ELEMENT[spec.dtype], list(spec.dims))


class Nodes:
    """Collects nodes in order; each call returns the name of the (first) output.

    With `spill`, large constants are appended to that file and the model, which is then no longer self-contained,
    names their places in it: ONNX itself holds at most 2 GiB.
    """

    def __init__(self, name: str, spill: Path | None = None) -> None:
        self.name, self._spill = name, spill
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """An initialiser; a name given twice keeps its first value."""
        if name not in self._constants:
            array = np.ascontiguousarray(array)
            large = self._spill is not None and array.nbytes > _SPILL_BYTES
            self._constants[name] = self._spilled(name, array) if large else numpy_helper.from_array(array, name)
        return name

    def _spilled(self, name: str, array: np.ndarray[Any, Any]) -> TensorProto:
        assert self._spill is not None
        with self._spill.open("ab") as file:
            offset = -(-file.tell() // _SPILL_ALIGN) * _SPILL_ALIGN
            file.truncate(offset)
            file.seek(offset)
            file.write(array.data)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", self._spill.name), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        name: str,
        *,
        outputs: Sequence[str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """Append a node; without `outputs` it has one, called `name`."""
        names = [name] if outputs is None else list(outputs)
        self._nodes.append(helper.make_node(op, list(inputs), names, name=name, domain=domain, **attributes))
        return names[0]

    def model(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [port(spec) for spec in inputs],
            [port(spec) for spec in outputs],
            list(self._constants.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dpfedge")
