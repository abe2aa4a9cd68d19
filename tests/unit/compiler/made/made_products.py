# SPDX-License-Identifier: Apache-2.0
"""A graph of two products with constant matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from dpfedge.compiler.nodes import Nodes
from dpfedge.tensors import TensorSpec


def graph(inner: int = 64, **gemm: Any) -> onnx.ModelProto:
    """x[n,96] → MatMul → Relu → Gemm with a bias → y[n,32]; the first matrix is also gathered from."""
    random = np.random.default_rng(9)
    nodes = Nodes("two")
    nodes.constant("first", random.standard_normal((96, inner)).astype(np.float32))
    nodes.constant("second", random.standard_normal((32, inner)).astype(np.float32))
    nodes.constant("bias", random.standard_normal(32).astype(np.float32))
    nodes.add("Relu", [nodes.add("MatMul", ["x", "first"], "hidden")], "active")
    nodes.add("Gemm", ["active", "second", "bias"], "y", transB=1, **gemm)
    return nodes.model([TensorSpec("x", "f32", ("n", 96))], [TensorSpec("y", "f32", ("n", 32))])
