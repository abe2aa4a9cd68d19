# SPDX-License-Identifier: Apache-2.0
"""An ONNX file in, a self-contained ModelProto out; external data is read only from the model's own folder.

Versions are checked against what dpfedge compiles for, so that an unknown one is found here and never on a board.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import helper

from dpfedge.compiler.importer.confined import confined
from dpfedge.errors import ModelError

__all__ = ["IR_MAX", "OPSET_MAX", "OPSET_MIN", "all_tensors", "check_model", "import_onnx", "subgraphs"]

OPSET_MIN, OPSET_MAX = 1, 28
"""Opsets of the standard domain that onnxruntime 1.32 opens; below 7 most operators have no kernel, says lowering."""
IR_MIN, IR_MAX = 3, 14
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"})


def import_onnx(path: Path) -> onnx.ModelProto:
    """Read and check `path` with all its external data inside; ModelError says what is wrong with which number."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise ModelError(
            "not an ONNX file, or cut off",
            where=str(path),
            found=f"{path.stat().st_size} bytes",
            remedy="fetch it again",
        ) from error
    check_model(model, str(path))
    for tensor in all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _read_external(tensor, path)
    return model


def check_model(model: onnx.ModelProto, where: str) -> None:
    """Refuse an empty graph, an unknown IR or opset version, and operator domains that no backend has."""
    if not model.graph.node:
        raise ModelError("the graph has no node", where=where, found=f"IR {model.ir_version}")
    _check_version("IR version", model.ir_version, IR_MIN, IR_MAX, where)
    known = DOMAINS | {function.domain for function in model.functions}
    used = {node.domain for graph in subgraphs(model.graph) for node in graph.node}
    if foreign := sorted(used - known):
        raise ModelError(
            "operators of an unknown domain",
            where=where,
            found=", ".join(foreign),
            allowed=", ".join(sorted(DOMAINS - {""})),
        )
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), None)
    if opset is not None or used & {"", "ai.onnx"}:
        _check_version("opset", opset, OPSET_MIN, OPSET_MAX, where)


def _check_version(what: str, found: int | None, least: int, most: int, where: str) -> None:
    """Refuse what the installed onnxruntime cannot run; a newer one than this was written for is asked."""
    if found is not None and least <= found <= most:
        return
    newest = most if found is None or found < least else _newest(what, most)
    if found is None or not least <= found <= newest:
        raise ModelError(
            f"unsupported {what}",
            where=where,
            found=found,
            allowed=f"{least} to {newest} (onnxruntime {version('onnxruntime')})",
            remedy="export it again" if found is None or found < least else "export it again, or upgrade onnxruntime",
        )


def _newest(what: str, known: int) -> int:
    """The highest version from `known` on that onnxruntime opens a one-node model of."""
    newest = known
    while _opens(**{"ir": newest + 1} if what == "IR version" else {"opset": newest + 1}):
        newest += 1
    return newest


def _opens(ir: int = 10, opset: int = OPSET_MAX) -> bool:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "probe", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except (native.Fail, native.InvalidGraph, native.InvalidArgument, native.NotImplemented):
        return False
    return True


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initialisers, sparse ones, and in attributes; of graphs, branches and functions."""
    nodes: list[onnx.NodeProto] = [node for function in model.functions for node in function.node]
    for graph in subgraphs(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        nodes += graph.node
    for node in nodes:
        for attribute in node.attribute:
            yield from (
                attribute.t,
                *attribute.tensors,
                attribute.sparse_tensor.values,
                attribute.sparse_tensor.indices,
            )


def subgraphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """`graph` and every graph inside its nodes, outermost first."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from subgraphs(attribute.g)
            for child in attribute.graphs:
                yield from subgraphs(child)


def _read_external(tensor: onnx.TensorProto, model: Path) -> None:
    """Load one tensor's bytes; the file must be a plain file of its own inside the model's folder."""
    places = {entry.key: entry.value for entry in tensor.external_data}
    where = f"{model}: tensor {tensor.name}"
    source = confined(model.parent, places.get("location", ""), where, "external data")
    size = source.stat().st_size
    offset = _number(places, "offset", 0, where)
    length = _number(places, "length", size - offset, where)
    if offset + length > size:
        raise ModelError(
            f"external data ends behind {source.name}: expected {offset + length} bytes, have {size}", where=where
        )
    with source.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(length)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _number(places: dict[str, str], key: str, default: int, where: str) -> int:
    text = places.get(key)
    if text is None:
        return default
    if not text.isdecimal():
        raise ModelError(f"external data {key} is no number", where=where, found=text)
    return int(text)
