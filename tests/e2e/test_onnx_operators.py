# SPDX-License-Identifier: Apache-2.0
"""Every node model of ONNX's own backend tests: what onnxruntime runs, runs lowered, with the same answers."""

from __future__ import annotations

import collections
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dpfedge_cpu import CpuBackend

from dpfedge.backend.api import Budget, GraphView, LowerRequest
from dpfedge.compiler.generic import unsign_products
from dpfedge.compiler.importer.onnx import check_model
from dpfedge.errors import DpfError, Unsupported

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as native

NOT_HERE = (native.Fail, native.InvalidArgument, native.InvalidGraph, native.NotImplemented, native.RuntimeException,
            RuntimeError, ValueError, TypeError)  # fmt: skip
Answers = list[np.ndarray[Any, Any]]


def plain(model: onnx.ModelProto, inputs: Any) -> tuple[Mapping[str, Any], Answers]:
    """The feeds and answers of onnxruntime for the file as it is; one of NOT_HERE when it cannot."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    feeds = {name: np.asarray(array) for name, array in zip(names, inputs, strict=True) if array is not None}
    answers = session.run(None, feeds)
    return feeds, answers


def lowered(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Answers:
    """The answers of the graph as a package would hold it."""
    backend = CpuBackend()
    device = backend.devices(Path("/"))[0]
    check_model(model, "model")
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    unsign_products(copy)
    graph = backend.lower(LowerRequest("g", copy.SerializeToString(), device.arch, device.features))
    data, places = bytearray(), {}
    for name, array in graph.weights.items():
        data += bytes(-len(data) % 64)
        places[name] = ("w", len(data), array.nbytes)
        data += array.tobytes()
    code = memoryview(backend.finish(graph, places))
    weights = {"w": memoryview(bytes(data))} if data else {}
    found = backend.load(GraphView("g", code, graph.inputs, graph.outputs, weights), device, Budget()).run(feeds)
    return list(found.values())


def equal(found: Answers, wanted: Answers) -> bool:
    """Within float32's rounding; integers exactly."""
    return all(
        np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) if b.dtype.kind in "fc" else np.array_equal(a, b)
        for a, b in zip(found, wanted, strict=True)
    )


def test_onnx__all_operators() -> None:
    """Nothing differs; refused are only ports that hold no numbers, and each refusal is a named error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    counts: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    for case in cases:
        try:
            feeds, wanted = plain(case.model, case.data_sets[0][0])
        except NOT_HERE:
            counts["onnxruntime cannot"] += 1
            continue
        try:
            good = equal(lowered(case.model, feeds), wanted)
        except Unsupported:
            counts["refused"] += 1
        except DpfError as error:
            wrong.append(f"{case.name}: {error}")
        else:
            counts["passed"] += good
            wrong += [] if good else [f"{case.name}: another answer"]
    print(dict(counts))

    assert wrong == []
    assert counts["passed"] > 1000
    assert counts["refused"] < counts["passed"] / 20


@pytest.mark.parametrize("kind", [onnx.TensorProto.STRING])
def test_onnx__refusal_is_named(kind: int) -> None:
    """Texts are what most refused cases hold."""
    ports = [onnx.helper.make_tensor_value_info(name, kind, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", ports[:1], ports[1:])
    with pytest.raises(Unsupported, match="a port must hold numbers"):
        lowered(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), {})
