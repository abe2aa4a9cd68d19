# SPDX-License-Identifier: Apache-2.0
"""A fake of the package tensorrt, and models for DLAs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

Network = Callable[..., onnx.ModelProto]


@pytest.fixture
def fake_tensorrt(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The fake, as `import tensorrt` finds it; new for each test."""
    spec = importlib.util.spec_from_file_location("tensorrt", Path(__file__).with_name("fake_tensorrt.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def network() -> Network:
    """`network(*nodes, shape=…, out=…)`: a model from x to y; `w` is a kernel of 16 channels, 3 × 3."""
    return _network


def _network(
    *nodes: onnx.NodeProto,
    shape: Sequence[int | str] = (1, 16, 8, 8),
    out: Sequence[int | str] | None = None,
    kind: int = TensorProto.FLOAT,
    kernel: Sequence[int] = (16, 16, 3, 3),
) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info("x", kind, shape),
        helper.make_tensor_value_info("y", kind, shape if out is None else out),
    ]
    weights = [
        numpy_helper.from_array(np.ones(kernel, np.float32), "w"),
        numpy_helper.from_array(np.zeros((), np.float32), "zero"),
        numpy_helper.from_array(np.full((), 6, np.float32), "six"),
    ]
    graph = helper.make_graph(list(nodes), "g", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
