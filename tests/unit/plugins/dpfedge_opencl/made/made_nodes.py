# SPDX-License-Identifier: Apache-2.0
"""Small models for the tests of the OpenCL backend: lowered, made concrete, and run on this machine's device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dpfedge_opencl.graph import Graph, read
from dpfedge_opencl.lower import finish, lower
from dpfedge_opencl.ops.api import Facts
from dpfedge_opencl.plan import Plan
from dpfedge_opencl.specialise import specialise
from onnx import helper, numpy_helper

from dpfedge.backend.api import Device, LoweredGraph, LowerRequest
from dpfedge.errors import Unavailable
from dpfedge.testing.cases import IR_VERSION, OPSETS
from dpfedge.testing.loading import load

Array = np.ndarray[Any, np.dtype[Any]]
FACTS = Facts(arch="x86-64-v3", cpu=True, compute_units=2, vector_width=8, max_work_group=4096)
SECTION = "weights.test"


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    """A node of standard ONNX, or of com.microsoft after `ms:`; names are separated by spaces, `-` is none."""
    names = ["" if one == "-" else one for one in inputs.split()]
    domain = "com.microsoft" if op.startswith("ms:") else ""
    return helper.make_node(op.removeprefix("ms:"), names, outputs.split(), outputs.split()[0], domain=domain, **attrs)


def port(name: str, dims: Sequence[int | str] | None, kind: str = "f4") -> onnx.ValueInfoProto:
    """A port with sizes or names."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return helper.make_tensor_value_info(name, number, dims)


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto],
    constants: Mapping[str, Array] | None = None, opset: int = 20,
) -> onnx.ModelProto:  # fmt: skip
    """A model of these parts."""
    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "made", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(*OPSETS[1])]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets)


def lowered(made: onnx.ModelProto) -> LoweredGraph:
    """The model as this backend lowers it."""
    return lower(LowerRequest("made", made.SerializeToString(), "any", frozenset()))


def graph_of(made: onnx.ModelProto) -> Graph:
    """The model as a board reads it."""
    found = lowered(made)
    places, at = {}, 0
    for name, array in found.weights.items():
        places[name] = (SECTION, at, array.nbytes)
        at += array.nbytes + -array.nbytes % 64
    return read(finish(found, places), "graph made")


def plan_of(graph: Graph, *shared: tuple[str, str], facts: Facts = FACTS, **shapes: tuple[int, ...]) -> Plan:
    """The graph for these shapes."""
    return specialise(graph, shapes, frozenset(shared), facts)


def device() -> tuple[Any, Device]:
    """The backend and this machine's first OpenCL device; the test is skipped where there is none."""
    from dpfedge_opencl.backend import OpenClBackend

    backend = OpenClBackend()
    try:
        return backend, backend.devices(Path("/"))[0]
    except Unavailable as error:
        pytest.skip(f"unavailable: {error}")


def run(made: onnx.ModelProto, **feeds: Array) -> dict[str, Array]:
    """The model's answers on this machine's OpenCL device."""
    backend, here = device()
    executable = load(backend, here, made)
    found = {name: np.array(array) for name, array in executable.run(feeds).items()}
    executable.close()
    return found


def right(made: onnx.ModelProto, **feeds: Array) -> dict[str, Array]:
    """The reference's answers."""
    from dpfedge_reference.evaluator import evaluate

    return dict(zip([one.name for one in made.graph.output], evaluate(made, feeds), strict=True))


def compare(made: onnx.ModelProto, tolerance: float = 1e-5, **feeds: Array) -> None:
    """Assert that the device's answers are the reference's, but for rounding."""
    wanted = right(made, **feeds)
    for name, array in run(made, **feeds).items():
        assert array.shape == wanted[name].shape
        assert array.dtype == wanted[name].dtype
        np.testing.assert_allclose(array, wanted[name], rtol=tolerance, atol=tolerance, err_msg=name)


@contextmanager
def as_gpu() -> Iterator[None]:
    """Plans as for a GPU with small vectors, run on this machine's device: the other half of what operators choose."""
    from dpfedge_opencl import loading

    kept = loading.specialise
    facts = replace(FACTS, cpu=False, vector_width=4, compute_units=8, max_work_group=256)

    def planned(
        graph: Graph, shapes: Mapping[str, tuple[int, ...]], shared: frozenset[tuple[str, str]], _: Facts
    ) -> Plan:
        return kept(graph, shapes, shared, facts)

    loading.specialise = planned
    try:
        yield
    finally:
        loading.specialise = kept
