# SPDX-License-Identifier: Apache-2.0
"""Lowering at compile time: an ONNX graph in, the graph onnxruntime's optimiser leaves and its weights apart out.

The optimiser runs once here, so that loading on the board runs none of it. It chooses no numeric format and no kernel.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from dpfedge.backend.api import Budget, LoweredGraph, LowerRequest
from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.backend.onnx_graph import WEIGHT_MIN_BYTES, graph_ports, is_weight, read_model, take_weights
from dpfedge_cpu.branches import graphs, hoist, separate
from dpfedge_cpu.canonical import canonical
from dpfedge_cpu.kernels import DOMAIN
from dpfedge_cpu.layout import BLOCKED_DOMAIN, stay_blocked, widen
from dpfedge_cpu.patterns import kernels
from dpfedge_cpu.products import own_products
from dpfedge_cpu.session import mapped_errors, runtime, session_options

__all__ = ["has_halves", "lower", "lower_plain"]

_BLOCKED = ("x86-64-v3", "x86-64-v4")  # CPUs with blocked kernels
_SLOWER = ("SkipLayerNormFusion",)  # its operator is eight times slower than the two it replaces


def lower(request: LowerRequest) -> LoweredGraph:
    """Optimise `request.onnx`; layout optimisations only where this machine has the target's architecture."""
    here = cpu_facts(Path("/")).level
    level = "ENABLE_ALL" if request.arch == here else "ENABLE_EXTENDED"
    rule = f"target {request.arch} is {'' if request.arch == here else 'not '}the compiling machine's architecture"
    source = read_model(request.onnx, f"graph {request.name}")
    widened = widen(source) if level == "ENABLE_ALL" and request.arch in _BLOCKED else 0
    model = _optimise(request, source, level)
    _name_apart(model)
    separate(model)
    decisions = [(f"optimiser={level}", rule), *kernels(onnx.ModelProto.FromString(request.onnx), model)]
    rounded = own_products(model)
    if rounded:
        rule = "activations are rounded to 16 bits per block, and weights used as the package has them"
        decisions.append((f"products={rounded}×BlockProduct", rule))
    signed = "vnni" in request.features and request.arch.startswith("x86") and request.options.get("rows") != 1
    if signed and sign_weights(model):
        decisions.append(("int8=u8·s8", "vnni adds 8-bit products in 32 bits; without it AVX2 would saturate at 16"))
    if unsigned_products(model):
        decisions.append(("int8=u8·u8", "exact on every CPU; of u8·s8, AVX2 without vnni saturates sums at 16 bits"))
    if any(node.domain == BLOCKED_DOMAIN for node in model.graph.node):
        stay_blocked(model)
        lines = f", {widened} from 1-D" if widened else ""
        decisions.append(
            (f"layout=nchwc,{request.arch}{lines}", "convolutions read blocks as wide as this CPU's vector")
        )
    finer = bool(rounded) and not _coarse_blocks(model)
    return replace(_finished(request, model, decisions), arithmetic="block16" if finer else "graph")


def _coarse_blocks(model: onnx.ModelProto) -> bool:
    """Whether a product still rounds activations to 8 bits per block."""
    return any(
        node.op_type == "MatMulNBits" and any(one.name == "accuracy_level" and one.i == 4 for one in node.attribute)
        for graph in graphs(model.graph)
        for node in graph.node
    )


def lower_plain(
    request: LowerRequest, change: Callable[[onnx.ModelProto], Sequence[tuple[str, str]]] | None = None
) -> LoweredGraph:
    """`request.onnx` for a provider that is not on this machine: what is true of every device, and no CPU's layout.

    Constants are folded and what has no effect is gone; fusions wait for the provider (`Providers.level`). A graph with
    16-bit floats is left to the provider as it is. `change` may rewrite the graph after that and returns the decisions
    it took.
    """
    model = read_model(request.onnx, f"graph {request.name}")
    if any(has_halves(graph) for graph in graphs(model.graph)):
        decision = "optimiser=none", "the CPU has no 16-bit kernels, and its casts to 32 bits would stay in the graph"
    else:
        model = _optimise(request, model, "ENABLE_BASIC")
        rule = "layouts and fusions belong to the device's provider, which has them when it loads the graph"
        decision = "optimiser=ENABLE_BASIC", rule
    _name_apart(model)
    separate(model)
    return _finished(request, model, [decision, *(change(model) if change is not None else ())])


_HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def has_halves(graph: onnx.GraphProto) -> bool:
    """Whether a value of this graph, its branches apart, is said to be a 16-bit float."""
    ports = (*graph.input, *graph.output, *graph.value_info)
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    return (
        any(tensor.data_type in _HALVES for tensor in graph.initializer)
        or any(port.type.tensor_type.elem_type in _HALVES for port in ports)
        or any(one.t.data_type in _HALVES or (one.name in ("to", "dtype") and one.i in _HALVES) for one in attributes)
    )


def _finished(request: LowerRequest, model: onnx.ModelProto, decisions: Sequence[tuple[str, str]]) -> LoweredGraph:
    canonical(model)
    hoist(model, partial(is_weight, packed=True))
    inputs, outputs = graph_ports(model, f"graph {request.name}")
    weights = take_weights(model, packed=True)
    code = model.SerializeToString(deterministic=True)
    return LoweredGraph(code, weights, inputs, outputs, tuple(decisions), mapped=_mapped(model))


_IN_PLACE = frozenset({"BlockProduct", "Gather", "GatherBlockQuantized"})  # operators that pack nothing


def _mapped(model: onnx.ModelProto) -> frozenset[str]:
    """Constants of the outermost graph that only such operators read."""
    read: dict[str, bool] = {}
    for graph in graphs(model.graph):
        for node in graph.node:
            for name in node.input:
                read[name] = read.get(name, True) and node.op_type in _IN_PLACE
    return frozenset(tensor.name for tensor in model.graph.initializer if read.get(tensor.name, False))


def _optimise(request: LowerRequest, model: onnx.ModelProto, level: str) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory(prefix="dpfedge-lower-") as folder:
        source, target = Path(folder, "source.onnx"), Path(folder, "target.onnx")
        source.write_bytes(model.SerializeToString())
        options = session_options(Budget())
        options.graph_optimization_level = getattr(runtime().GraphOptimizationLevel, f"ORT_{level}")
        options.optimized_model_filepath = str(target)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes", str(WEIGHT_MIN_BYTES)
        )
        for key, value in request.options.get("session", {}).items():
            options.add_session_config_entry(key, value)
        with mapped_errors(f"graph {request.name}"):
            runtime().InferenceSession(
                str(source), options, providers=["CPUExecutionProvider"], disabled_optimizers=[*_SLOWER]
            )
        optimised = onnx.load(str(target))
    # onnxruntime lists every domain that this process has ever registered
    unknown = {one.domain for one in optimised.opset_import} - {one.domain for one in model.opset_import}
    for one in [one for one in optimised.opset_import if one.domain == DOMAIN and DOMAIN in unknown]:
        optimised.opset_import.remove(one)
    return optimised


def unsigned_products(model: onnx.ModelProto) -> int:
    """How many products of bytes have a constant u8 matrix."""
    unsigned = {tensor.name for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.UINT8}
    nodes = [node for graph in graphs(model.graph) for node in graph.node if node.op_type in _MATRIX]
    return sum(node.input[_MATRIX[node.op_type]] in unsigned for node in nodes)


_MATRIX = {
    "MatMulIntegerToFloat": 1, "DynamicQuantizeMatMul": 1, "MatMulInteger": 1, "ConvInteger": 1, "QLinearMatMul": 3,
    "QLinearConv": 3,
}  # fmt: skip


def sign_weights(model: onnx.ModelProto) -> int:
    """Make constant u8 matrices s8, with their zero points: the same numbers, faster kernels; how many were changed."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    uses = [name for graph in graphs(model.graph) for node in graph.node for name in node.input]
    done = 0
    for node in model.graph.node:
        places = _QUANTISED.get(node.op_type)
        if places is None or max(places) >= len(node.input):
            continue
        names = [node.input[place] for place in places]
        if any(name not in constants or constants[name].data_type != onnx.TensorProto.UINT8 for name in names):
            continue
        for place, name in zip(places, names, strict=True):
            if uses.count(name) == 1:
                constants[name].CopyFrom(_signed(constants[name], name))
                continue
            if f"{name}.signed" not in constants:
                constants[f"{name}.signed"] = model.graph.initializer.add()
                constants[f"{name}.signed"].CopyFrom(_signed(constants[name], f"{name}.signed"))
            node.input[place] = f"{name}.signed"
        done += 1
    return done


_QUANTISED = {"MatMulIntegerToFloat": (1, 5), "DynamicQuantizeMatMul": (1, 3)}  # op → inputs: matrix, its zero point


def _signed(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array((numpy_helper.to_array(tensor) ^ 128).view(np.int8), name)


def _name_apart(model: onnx.ModelProto) -> None:
    """Remove what names this run: producer text stays out, and a graph without a name gets one."""
    model.producer_name, model.producer_version, model.doc_string = "dpfedge", "", ""
    for index, graph in enumerate(graphs(model.graph)):
        graph.name = graph.name if index else "main"
        graph.name = graph.name or f"graph_{index}"
        graph.doc_string = ""
