# SPDX-License-Identifier: Apache-2.0
"""A small builder of ONNX graphs: nodes and constants in, one checked ModelProto out; it knows no model family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dpfedge.tensors import TensorSpec

__all__ = ["IR_VERSION", "MICROSOFT", "OPSET", "Nodes", "port"]

OPSET = 20
IR_VERSION = 10
MICROSOFT = "com.microsoft"
_ELEMENT = {"f32": TensorProto.FLOAT, "i64": TensorProto.INT64, "i32": TensorProto.INT32, "u8": TensorProto.UINT8}


def port(spec: TensorSpec) -> onnx.ValueInfoProto:
    """A graph input or output as ONNX writes it."""
    return helper.make_tensor_value_info(spec.name, _ELEMENT[spec.dtype], list(spec.dims))


class Nodes:
    """Collects nodes in order; each call returns the name of the (first) output."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """An initialiser; a name given twice keeps its first value."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

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
