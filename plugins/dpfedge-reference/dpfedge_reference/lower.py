# SPDX-License-Identifier: Apache-2.0
"""Lowering for the reference: an ONNX graph in, the same nodes and their large constants apart out.

It changes no node. An operator without a definition here is refused by name.
"""

from __future__ import annotations

from dpfedge.backend.api import LoweredGraph, LowerRequest
from dpfedge.backend.onnx_graph import graph_ports, read_model, take_weights
from dpfedge.errors import Unsupported
from dpfedge_reference.evaluator import prepare

__all__ = ["lower"]


def lower(request: LowerRequest) -> LoweredGraph:
    """Check that each operator is defined here, and take out constants of 1 KiB and more."""
    where = f"graph {request.name}"
    model = read_model(request.onnx, where)
    try:
        prepare(model, {})
    except (NotImplementedError, RuntimeError) as error:
        raise Unsupported(
            "an operator has no definition here", where=where, found=" ".join(str(error).split())[:200]
        ) from error
    model.producer_name, model.producer_version, model.doc_string = "dpfedge", "", ""
    inputs, outputs = graph_ports(model, where)
    weights = take_weights(model)
    return LoweredGraph(model.SerializeToString(deterministic=True), weights, inputs, outputs)
